//! What `shoal xray` shows: a table and the findings, or a JSON document.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::commands::tune::control_file::Contents;
use crate::output::table;

use super::devices::DeviceTotals;
use super::disk_cache::DiskCache;
use super::findings::{Finding, findings, short};
use super::layers::{Flow, Kind, Layer, Layers, READS, WRITES};
use super::network::Network;
use super::slow_bricks::SlowBrick;

const MIB: f64 = 1_048_576.0;

/// What is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Subject {
    Mount,
    File,
    Gate,
}

/// What has entered the layers in an interval, or since the beginning.
pub(super) struct Report {
    /// The mount point, or the file.
    pub(super) path: PathBuf,
    pub(super) mount: PathBuf,
    pub(super) subject: Subject,
    pub(super) layers: Layers,
    pub(super) settings: Contents,
    /// The cache on a disk, since the mount began; `None` if there is none, or if this is about a file.
    pub(super) disk_cache: Option<DiskCache>,
    /// What came over the network, since the mount began; `None` if nothing did, or if this is about a file.
    pub(super) network: Option<Network>,
    /// Bricks that the mount avoids now; none if this is about a file.
    pub(super) slow_bricks: Vec<SlowBrick>,
    /// What the devices of all bricks have done meanwhile.
    pub(super) devices: DeviceTotals,
    /// The length of the interval. `None` for all since the mount began, or since the file was opened.
    pub(super) time: Option<Duration>,
}

impl Report {
    pub(super) fn text(&self) -> String {
        let what = match self.subject {
            Subject::File => "the open file",
            Subject::Mount => "the mount at",
            Subject::Gate => "the gate",
        };
        let when = match (self.time, self.subject) {
            (Some(time), _) => format!("{:.1} s", time.as_secs_f64()),
            (None, Subject::File) => "all since it was opened".to_owned(),
            (None, Subject::Mount | Subject::Gate) => "all since it began".to_owned(),
        };
        let head = format!("{what} {}, {when}", self.path.display());
        let sentences: String = self.sentences().iter().map(|sentence| format!("{sentence}\n")).collect();
        let network = self.network.as_ref().map(Network::text).unwrap_or_default();
        format!("{head}\n\n{}\n{sentences}\n{}{network}", self.table(), self.devices.text(self.time))
    }

    fn table(&self) -> String {
        let head = match self.time {
            Some(_) => ["reads/s", "MiB/s", "size", "ampl.", "writes/s", "MiB/s", "size", "ampl."],
            None => ["reads", "MiB", "size", "ampl.", "writes", "MiB", "size", "ampl."],
        };
        let mut rows = vec![["layer"].into_iter().chain(head).map(str::to_owned).collect()];
        for (at, layer) in self.layers.0.iter().enumerate() {
            let mut row = vec![layer.name.clone()];
            row.extend(self.cells(at, layer, READS).into_iter().chain(self.cells(at, layer, WRITES)));
            rows.push(row);
        }
        table(&rows)
    }

    fn cells(&self, at: usize, layer: &Layer, kind: Kind) -> [String; 4] {
        let flow = kind(layer);
        let none = || "-".to_owned();
        let amplification =
            self.layers.amplification(at, kind).map_or_else(none, |times| format!("{times:.2}"));
        let (requests, bytes) = self.rates(flow);
        let size = flow.mean().map_or_else(none, short);
        [format!("{requests:.0}"), format!("{:.1}", bytes / MIB), size, amplification]
    }

    /// Requests and bytes, of a second if this is about an interval.
    fn rates(&self, flow: Flow) -> (f64, f64) {
        let seconds = self.time.map_or(1.0, |time| time.as_secs_f64().max(0.001));
        (flow.requests as f64 / seconds, flow.bytes as f64 / seconds)
    }

    /// The findings as lines.
    fn sentences(&self) -> Vec<String> {
        if [READS, WRITES].into_iter().all(|kind| self.layers.0.iter().all(|layer| kind(layer).requests == 0))
        {
            let wrong = self.disk_cache.iter().filter_map(DiskCache::finding).map(|finding| finding.sentence);
            return wrong.chain(["nothing was read or written".to_owned()]).collect();
        }
        let found = self.findings();
        let is_good = found.iter().all(|finding| !finding.is_wrong);
        let one = |finding: &Finding| match self.command(finding) {
            Some(command) => format!("{}\n  try: {command}", finding.sentence),
            None => finding.sentence.clone(),
        };
        let good = is_good.then(|| "nothing is wrong: no setting would save much".to_owned());
        found.iter().map(one).chain(good).collect()
    }

    fn findings(&self) -> Vec<Finding> {
        let mut found = findings(&self.layers, &self.settings);
        found.extend(self.disk_cache.iter().filter_map(DiskCache::finding));
        found.extend(self.network.iter().filter_map(Network::finding));
        found.extend(self.slow_bricks.iter().map(SlowBrick::finding));
        found
    }

    /// The command that changes what was found.
    fn command(&self, finding: &Finding) -> Option<String> {
        let setting = finding.setting.as_ref()?;
        let target = match (self.subject, &self.volume()) {
            // A gate has the settings of its volume.
            (Subject::Gate, Some(volume)) => volume.clone(),
            _ => quoted(&self.path),
        };
        Some(format!("shoal tune {target} {setting}"))
    }

    /// The volume of a gate, from its URI.
    fn volume(&self) -> Option<String> {
        let uri = self.path.to_string_lossy();
        let name = uri.split_once("://")?.1.split_once('/')?.1;
        let name = name.trim_start_matches('/');
        name.split(['/', '?']).next().filter(|name| !name.is_empty()).map(str::to_owned)
    }

    pub(super) fn document(&self) -> Value {
        let flow = |at: usize, layer: &Layer, kind: Kind| {
            let flow = kind(layer);
            let (requests, bytes) = self.rates(flow);
            let per_second = |rate: f64| self.time.map(|_| rate);
            json!({
                "requests": flow.requests,
                "bytes": flow.bytes,
                "requests_per_second": per_second(requests),
                "bytes_per_second": per_second(bytes),
                "mean_bytes": flow.mean(),
                "amplification": self.layers.amplification(at, kind),
            })
        };
        let layer = |(at, layer): (usize, &Layer)| json!({ "name": layer.name, "reads": flow(at, layer, READS), "writes": flow(at, layer, WRITES) });
        let finding = |finding: Finding| {
            let command = self.command(&finding);
            json!({ "sentence": finding.sentence, "setting": finding.setting, "command": command })
        };
        json!({
            "mount": (self.subject != Subject::Gate).then(|| self.mount.to_string_lossy()),
            "gate": (self.subject == Subject::Gate).then(|| self.path.to_string_lossy()),
            "file": (self.subject == Subject::File).then(|| self.path.to_string_lossy()),
            "seconds": self.time.map(|time| time.as_secs_f64()),
            "layers": self.layers.0.iter().enumerate().map(layer).collect::<Vec<_>>(),
            "disk_cache": self.disk_cache.as_ref().map(DiskCache::document),
            "receive_window": self.network.as_ref().and_then(Network::window_document),
            "peers": self.network.as_ref().map(Network::peers_document),
            "fairness": self.network.as_ref().and_then(Network::fairness),
            "slow_bricks": self.slow_bricks.iter().map(SlowBrick::document).collect::<Vec<_>>(),
            "devices": self.devices.document(),
            "findings": self.findings().into_iter().map(finding).collect::<Vec<_>>(),
        })
    }
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:".contains(c);
    if text.chars().all(is_plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::super::layers::tests::layers;
    use super::*;

    fn report(flows: [[u64; 4]; 5], time: Option<u64>) -> Report {
        Report {
            path: "/mnt/a file".into(),
            mount: "/mnt".into(),
            subject: Subject::File,
            devices: DeviceTotals::default(),
            layers: layers(flows),
            settings: Contents {
                effective: "io-cache.page=128K".parse().expect("it is good"),
                ..Contents::default()
            },
            disk_cache: None,
            network: None,
            slow_bricks: Vec::new(),
            time: time.map(Duration::from_secs),
        }
    }

    fn amplified() -> [[u64; 4]; 5] {
        let below = [512, 64 << 20, 0, 0];
        [[512, 2 << 20, 0, 0], [512, 2 << 20, 0, 0], below, below, below]
    }

    #[test]
    fn a_table_has_rates_and_what_to_change() {
        let text = report(amplified(), Some(2)).text();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0].join(" "), "the open file /mnt/a file, 2.0 s");
        assert_eq!(
            rows[2],
            ["layer", "reads/s", "MiB/s", "size", "ampl.", "writes/s", "MiB/s", "size", "ampl."]
        );
        assert_eq!(rows[4], ["io-cache", "256", "1.0", "4K", "32.00", "0", "0.0", "-", "-"]);
        assert_eq!(rows[7], ["bricks", "256", "32.0", "128K", "-", "0", "0.0", "-", "-"]);
        assert!(text.contains("\n  try: shoal tune '/mnt/a file' io-cache.page=4K\n\ndevices: "), "{text}");
    }

    #[test]
    fn totals_are_no_rates() {
        let text = report(amplified(), None).text();
        assert!(text.starts_with("the open file /mnt/a file, all since it was opened\n"), "{text}");
        assert!(text.contains("reads  MiB"), "{text}");
        let io_cache = text.lines().find(|line| line.starts_with("  io-cache")).expect("its row");
        assert_eq!(io_cache.split_whitespace().nth(1), Some("512"));
    }

    #[test]
    fn what_is_good_is_said() {
        let good = report([[100, 409_600, 0, 0]; 5], Some(1)).text();
        assert!(good.contains("\nnothing is wrong: no setting would save much\n\ndevices: "), "{good}");
        let idle = report([[0; 4]; 5], Some(1)).text();
        assert!(idle.contains("\nnothing was read or written\n\ndevices: "), "{idle}");
    }

    #[test]
    fn a_gate_is_tuned_by_its_volume() {
        let at =
            |uri: &str| Report { path: uri.into(), subject: Subject::Gate, ..report(amplified(), Some(2)) };
        for (uri, volume) in [
            ("nbd://127.0.0.1:10809/vm", "vm"),
            ("nbd+unix:///main/a/b?socket=/tmp/s", "main"),
            ("nfs://[::1]:2049/main", "main"),
        ] {
            let document = at(uri).document();
            assert_eq!(document["findings"][0]["command"], format!("shoal tune {volume} io-cache.page=4K"));
            assert_eq!((&document["gate"], &document["mount"]), (&json!(uri), &Value::Null));
        }
    }

    #[test]
    fn a_document_has_all_numbers() {
        let document = report(amplified(), Some(2)).document();
        let io_cache = &document["layers"][1];
        assert_eq!(io_cache["name"], "io-cache");
        assert_eq!(io_cache["reads"]["requests"], 512);
        assert_eq!(io_cache["reads"]["bytes_per_second"], f64::from(1 << 20));
        assert_eq!(io_cache["reads"]["amplification"], 32.0);
        assert_eq!(io_cache["writes"]["amplification"], Value::Null);
        assert_eq!(document["findings"][0]["setting"], "io-cache.page=4K");
        assert_eq!(document["seconds"], 2.0);
        assert_eq!(report(amplified(), None).document()["seconds"], Value::Null);
    }
}
