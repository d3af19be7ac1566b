//! What the devices of all bricks read and write, against what clients ask the bricks for.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use types::messages::brick::{AskedCounts, BrickReport, DeviceCounts};
use types::messages::cluster::ClusterMap;
use types::wire::Key;

use crate::home::read_key;
use crate::output::table;
use crate::remote::{Remote, Target};

use super::findings::short;
use super::layers::ratio;

const MIB: f64 = 1_048_576.0;

/// The bricks of a cluster, or why they cannot be asked.
pub(super) struct Devices(Result<(Remote, ClusterMap), String>);

impl Devices {
    /// Those of the cluster with this metadata service and key file.
    pub(super) fn of(cluster: Option<(String, Option<PathBuf>)>) -> Devices {
        let found = || -> anyhow::Result<(Remote, ClusterMap)> {
            let (meta, key_file) =
                cluster.ok_or_else(|| anyhow::anyhow!("the daemon has no run file here"))?;
            let key = key_file.as_deref().map(read_key).transpose()?.unwrap_or(Key::OPEN);
            let remote = Remote::new(&Target { meta, key, key_file })?;
            let map = remote.status()?.map;
            Ok((remote, map))
        };
        Devices(found().map_err(|error| format!("{error:#}")))
    }

    /// What they have done since they were started.
    pub(super) fn look(&self) -> DeviceTotals {
        match &self.0 {
            Ok((remote, map)) => {
                let reports = remote.bricks(map);
                DeviceTotals::of(map.bricks.len(), reports.values())
            }
            Err(reason) => DeviceTotals { reason: Some(reason.clone()), ..DeviceTotals::default() },
        }
    }
}

/// The counts of all bricks together.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct DeviceTotals {
    /// Bricks of the cluster.
    bricks: usize,
    /// Bricks that have answered, each with its counts.
    answers: Vec<(u32, AskedCounts, DeviceCounts)>,
    /// Why none was asked.
    reason: Option<String>,
}

impl DeviceTotals {
    fn of<'a>(bricks: usize, reports: impl Iterator<Item = &'a BrickReport>) -> DeviceTotals {
        let answers = reports.map(|report| (report.brick.0, report.asked, report.device)).collect();
        DeviceTotals { bricks, answers, reason: None }
    }

    /// What was done since `past`. A brick that was silent then, or has restarted since, does not count.
    pub(super) fn since(&self, past: &DeviceTotals) -> DeviceTotals {
        let one = |(brick, asked, device): &(u32, AskedCounts, DeviceCounts)| {
            let (_, asked_then, then) = past.answers.iter().find(|(other, ..)| other == brick)?;
            Some((*brick, less(asked, asked_then)?, less_done(device, then)?))
        };
        DeviceTotals { answers: self.answers.iter().filter_map(one).collect(), ..self.clone() }
    }

    fn sums(&self) -> (AskedCounts, DeviceCounts) {
        let mut sums = (AskedCounts::default(), DeviceCounts::default());
        for (_, asked, device) in &self.answers {
            sums.0.reads += asked.reads;
            sums.0.read_bytes += asked.read_bytes;
            sums.0.writes += asked.writes;
            sums.0.written_bytes += asked.written_bytes;
            sums.1.reads += device.reads;
            sums.1.read_bytes += device.read_bytes;
            sums.1.read_us += device.read_us;
            sums.1.writes += device.writes;
            sums.1.written_bytes += device.written_bytes;
            sums.1.write_us += device.write_us;
            sums.1.syncs += device.syncs;
            sums.1.sync_us += device.sync_us;
        }
        sums
    }

    /// A table; numbers of an interval are for a second.
    pub(super) fn text(&self, time: Option<Duration>) -> String {
        if let Some(reason) = &self.reason {
            return format!("devices: not shown, because the bricks cannot be asked: {reason}\n");
        }
        let seconds = time.map_or(1.0, |time| time.as_secs_f64().max(0.001));
        let per = if time.is_some() { "/s" } else { "" };
        let (asked, device) = self.sums();
        let rate = |count: u64| format!("{:.0}", count as f64 / seconds);
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / MIB / seconds);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let took = |us: u64, count: u64| or_none(ratio(us, count).map(|us| format!("{:.2} ms", us / 1e3)));
        let size = |bytes: u64, count: u64| or_none(ratio(bytes, count).map(short));
        let times = |done: u64, asked: u64| or_none(ratio(done, asked).map(|times| format!("{times:.2}")));
        let head = ["", "asked", "MiB", "device", "MiB", "size", "ampl.", "each took"];
        let head = head.map(|word| {
            if ["asked", "MiB", "device"].contains(&word) { format!("{word}{per}") } else { word.to_owned() }
        });
        let flow = |name: &str, asked: [u64; 2], done: [u64; 3]| {
            vec![
                name.to_owned(),
                rate(asked[0]),
                mib(asked[1]),
                rate(done[0]),
                mib(done[1]),
                size(done[1], done[0]),
                times(done[1], asked[1]),
                took(done[2], done[0]),
            ]
        };
        let reads =
            flow("reads", [asked.reads, asked.read_bytes], [device.reads, device.read_bytes, device.read_us]);
        let writes = flow(
            "writes",
            [asked.writes, asked.written_bytes],
            [device.writes, device.written_bytes, device.write_us],
        );
        let none = || "-".to_owned();
        let syncs = vec![
            "syncs".to_owned(),
            none(),
            none(),
            rate(device.syncs),
            none(),
            none(),
            none(),
            took(device.sync_us, device.syncs),
        ];
        let since = if time.is_some() { "" } else { ", all since each brick was started" };
        format!(
            "devices: {} of {} bricks, for all clients and volumes of the cluster{since}\n\n{}",
            self.answers.len(),
            self.bricks,
            table(&[head.to_vec(), reads, writes, syncs])
        )
    }

    pub(super) fn document(&self) -> Value {
        let (asked, device) = self.sums();
        json!({
            "scope": "cluster",
            "bricks": self.bricks,
            "answered": self.answers.len(),
            "error": self.reason,
            "asked": {
                "reads": asked.reads, "read_bytes": asked.read_bytes,
                "writes": asked.writes, "written_bytes": asked.written_bytes,
            },
            "device": {
                "reads": device.reads, "read_bytes": device.read_bytes, "read_us": device.read_us,
                "writes": device.writes, "written_bytes": device.written_bytes, "write_us": device.write_us,
                "syncs": device.syncs, "sync_us": device.sync_us,
            },
            "read_amplification": ratio(device.read_bytes, asked.read_bytes),
            "write_amplification": ratio(device.written_bytes, asked.written_bytes),
        })
    }
}

fn less(now: &AskedCounts, then: &AskedCounts) -> Option<AskedCounts> {
    Some(AskedCounts {
        reads: now.reads.checked_sub(then.reads)?,
        read_bytes: now.read_bytes.checked_sub(then.read_bytes)?,
        writes: now.writes.checked_sub(then.writes)?,
        written_bytes: now.written_bytes.checked_sub(then.written_bytes)?,
    })
}

fn less_done(now: &DeviceCounts, then: &DeviceCounts) -> Option<DeviceCounts> {
    Some(DeviceCounts {
        reads: now.reads.checked_sub(then.reads)?,
        read_bytes: now.read_bytes.checked_sub(then.read_bytes)?,
        read_us: now.read_us.checked_sub(then.read_us)?,
        writes: now.writes.checked_sub(then.writes)?,
        written_bytes: now.written_bytes.checked_sub(then.written_bytes)?,
        write_us: now.write_us.checked_sub(then.write_us)?,
        syncs: now.syncs.checked_sub(then.syncs)?,
        sync_us: now.sync_us.checked_sub(then.sync_us)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brick(id: u32, times: u64) -> (u32, AskedCounts, DeviceCounts) {
        let asked = AskedCounts { reads: 2, read_bytes: 8_192, writes: 1, written_bytes: 4_096 };
        let device = DeviceCounts {
            reads: 4 * times,
            read_bytes: 16_384 * times,
            read_us: 2_000 * times,
            writes: 3 * times,
            written_bytes: 12_288 * times,
            write_us: 300 * times,
            syncs: times,
            sync_us: 5_000 * times,
        };
        let asked = AskedCounts {
            reads: asked.reads * times,
            read_bytes: asked.read_bytes * times,
            writes: asked.writes * times,
            written_bytes: asked.written_bytes * times,
        };
        (id, asked, device)
    }

    fn totals(answers: Vec<(u32, AskedCounts, DeviceCounts)>) -> DeviceTotals {
        DeviceTotals { bricks: 3, answers, reason: None }
    }

    #[test]
    fn bricks_are_summed_and_amplification_is_by_bytes() {
        let text = totals(vec![brick(1, 1), brick(2, 1)]).text(None);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(
            text.starts_with("devices: 2 of 3 bricks, for all clients and volumes of the cluster, all since"),
            "{text}"
        );
        assert_eq!(rows[2], ["asked", "MiB", "device", "MiB", "size", "ampl.", "each", "took"]);
        assert_eq!(rows[3], ["reads", "4", "0.0", "8", "0.0", "4K", "2.00", "0.50", "ms"]);
        assert_eq!(rows[4], ["writes", "2", "0.0", "6", "0.0", "4K", "3.00", "0.10", "ms"]);
        assert_eq!(rows[5], ["syncs", "-", "-", "2", "-", "-", "-", "5.00", "ms"]);
        let document = totals(vec![brick(1, 1)]).document();
        assert_eq!((&document["write_amplification"], &document["answered"]), (&json!(3.0), &json!(1)));
        assert_eq!(document["device"]["syncs"], 1);
    }

    #[test]
    fn an_interval_has_the_bricks_that_answered_before_and_after() {
        let (then, now) =
            (totals(vec![brick(1, 1), brick(2, 9)]), totals(vec![brick(1, 4), brick(2, 1), brick(3, 5)]));
        assert_eq!(now.since(&then), totals(vec![brick(1, 3)]));
        let text = now.since(&then).text(Some(Duration::from_secs(3)));
        assert!(text.contains("device/s") && text.contains("reads   2"), "{text}");
    }

    #[test]
    fn who_cannot_ask_says_why() {
        let none = DeviceTotals { reason: Some("no key".into()), ..DeviceTotals::default() };
        assert!(none.since(&none).text(None).contains("cannot be asked: no key"));
        assert_eq!(none.document()["error"], "no key");
    }
}
