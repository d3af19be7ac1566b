//! The report of the demo.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use types::Code;

use super::victims::{LostLeader, Victim};
use crate::size::Size;

/// How long a phase took.
pub(super) struct Phase {
    pub(super) name: &'static str,
    pub(super) seconds: f64,
}

/// Everything that the demo reports.
pub(super) struct Report {
    pub(super) code: Code,
    pub(super) bricks: u32,
    pub(super) bytes: u64,
    pub(super) files: usize,
    pub(super) links: usize,
    pub(super) directories: usize,
    pub(super) victims: Vec<Victim>,
    pub(super) lost_leader: Option<LostLeader>,
    /// Units that bricks decoded, the killed ones' included.
    pub(super) decoded_by_bricks: u64,
    /// Counters of the second mount before and after the comparison.
    pub(super) before: BTreeMap<String, u64>,
    pub(super) counters: BTreeMap<String, u64>,
    pub(super) mismatches: u64,
    pub(super) notes: Vec<String>,
    pub(super) phases: Vec<Phase>,
    pub(super) seconds: f64,
}

impl Report {
    /// What the second mount counted while comparing; [`None`] if it has no such counter.
    fn counted(&self, name: &str) -> Option<u64> {
        Some(self.counters.get(name)?.saturating_sub(*self.before.get(name)?))
    }

    /// Decoded units. The mount counts those for its own reads; the bricks count all, but the last count of a killed
    /// brick may be missing.
    fn decoded(&self) -> u64 {
        self.decoded_by_bricks.max(self.decoded_for_reading())
    }

    fn decoded_for_reading(&self) -> u64 {
        self.counted("units_decoded").unwrap_or(0)
    }

    /// Bytes that reads returned without asking a brick.
    fn cached(&self) -> Option<u64> {
        self.counted("bytes_own")
    }

    /// Bytes that bricks sent for reads; more than was read if a read was repeated.
    fn from_bricks(counted: impl Fn(&str) -> Option<u64>) -> u64 {
        ["bytes_direct", "bytes_primary"].iter().filter_map(|name| counted(name)).sum()
    }

    fn was_primary(&self) -> bool {
        self.victims.iter().any(|v| v.primary_of > 0 && v.ordered > 0)
    }

    /// Everything that is wrong; empty if all is well.
    fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.mismatches > 0 {
            complaints.push(format!("{} mismatches", self.mismatches));
        }
        match self.cached() {
            Some(0) => {}
            Some(bytes) => complaints.push(format!("{bytes} bytes came from the client's cache")),
            None => complaints.push("the mount does not count bytes from its cache".to_owned()),
        }
        let sent = Report::from_bricks(|name| self.counted(name));
        if sent.min(self.counted("bytes_read").unwrap_or(0)) < self.bytes {
            complaints.push("fewer bytes came from the bricks than were compared".to_owned());
        }
        if self.decoded_for_reading() == 0 {
            complaints.push("no unit was decoded for reading: the killed bricks were not missed".to_owned());
        }
        if !self.was_primary() {
            complaints.push("no killed brick was the primary of a group in use".to_owned());
        }
        complaints
    }

    pub(super) fn is_good(&self) -> bool {
        self.complaints().is_empty()
    }

    pub(super) fn complaint(&self) -> String {
        self.complaints().join("; ")
    }

    fn speed(&self, phase: &str) -> Option<f64> {
        let seconds = self.phases.iter().find(|p| p.name == phase)?.seconds;
        Some(self.bytes as f64 / f64::from(1 << 20) / seconds)
    }

    pub(super) fn document(&self) -> Value {
        let killed: Vec<Value> = self
            .victims
            .iter()
            .map(|v| {
                json!({
                    "brick": v.brick.to_string(),
                    "pid": v.pid,
                    "at_bytes": v.at,
                    "primary_of_groups": v.primary_of,
                    "writes_ordered": v.ordered,
                })
            })
            .collect();
        let phases: serde_json::Map<String, Value> =
            self.phases.iter().map(|p| (p.name.to_owned(), round(p.seconds).into())).collect();
        json!({
            "good": self.is_good(),
            "complaints": self.complaints(),
            "code": self.code.to_string(),
            "bricks": self.bricks,
            "bytes": self.bytes,
            "files": self.files,
            "links": self.links,
            "directories": self.directories,
            "killed": killed,
            "killed_was_primary": self.was_primary(),
            "killed_leader": self.lost_leader.as_ref().map(|lost| json!({
                "server": lost.name,
                "next": lost.follower,
                "seconds": round(lost.seconds),
            })),
            "units_decoded": self.decoded(),
            "units_decoded_for_reading": self.decoded_for_reading(),
            "bytes_from_client_caches": self.cached(),
            "bytes_read_through_mount": self.counted("bytes_read"),
            "mismatches": self.mismatches,
            "first_mismatches": self.notes,
            "seconds": phases,
            "seconds_total": round(self.seconds),
            "mib_per_s": { "copy": self.speed("copy").map(round), "compare": self.speed("compare").map(round) },
            "mount_counters": self.counters,
        })
    }

    pub(super) fn words(&self) -> String {
        let mut text = String::from("\n");
        for note in &self.notes {
            text += &format!("  mismatch: {note}\n");
        }
        let killed: Vec<String> = self.victims.iter().map(|v| v.brick.to_string()).collect();
        let verdict = if self.is_good() { "Nothing lost." } else { "FAILED." };
        text += &format!(
            "{verdict} {} files ({}) compared byte by byte, {} mismatches.\n",
            self.files,
            Size(self.bytes),
            self.mismatches
        );
        text += &format!(
            "Killed with SIGKILL: {}; units decoded from the others: {}; bytes from client caches: {}.\n",
            killed.join(" while copying, "),
            self.decoded(),
            self.cached().map_or("unknown".into(), |n| n.to_string()),
        );
        if let Some(LostLeader { name, follower, seconds }) = &self.lost_leader {
            text += &format!(
                "Killed with SIGKILL while copying: {name}, which led the metadata servers; {follower} led {seconds:.1} s later.\n"
            );
        }
        let speed = |phase| self.speed(phase).map_or("-".into(), |s| format!("{s:.0} MiB/s"));
        text += &format!(
            "Copied in at {}, read back and compared at {}, {:.0} s in all.\n",
            speed("copy"),
            speed("compare"),
            self.seconds
        );
        text
    }
}

fn round(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}
