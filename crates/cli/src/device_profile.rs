//! What was measured of a device, kept in a file: `shoal brick probe` writes it, and a brick with `--io direct` goes by it.

mod identity;
mod knee;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};

pub(crate) use identity::DeviceIdentity;
pub(crate) use knee::{Pair, Step, find_step, parallelism};

use crate::problem::problem;

/// A brick has several requests under way even where one alone would do.
const DEPTH_LEAST: u32 = 8;
/// No device has a larger buffer, in bytes.
const BUFFER_MAX: u64 = 64 << 20;
/// The format of the file.
const FORMAT: u64 = 1;

/// One direction of a device.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DirectionProfile {
    /// Of single requests of 4 KiB, in microseconds: the median.
    pub(crate) median_us: f64,
    /// The 99th percentile.
    pub(crate) p99_us: f64,
    /// Bytes per second of requests of 1 MiB in sequence, eight at a time.
    pub(crate) rate: f64,
    /// Random requests of 4 KiB: how many at a time, and how many of them per second.
    pub(crate) by_depth: Vec<(u32, f64)>,
}

impl DirectionProfile {
    /// The most random requests of 4 KiB per second.
    pub(crate) fn iops(&self) -> f64 {
        self.by_depth.iter().map(|(_, iops)| *iops).fold(0.0, f64::max)
    }

    /// How many requests at a time the device can use.
    pub(crate) fn parallelism(&self) -> u32 {
        parallelism(&self.by_depth)
    }

    fn json(&self) -> Value {
        let by_depth: Vec<Value> = self
            .by_depth
            .iter()
            .map(|(depth, iops)| json!({ "depth": depth, "iops": iops.round() }))
            .collect();
        json!({
            "median_us": self.median_us, "p99_us": self.p99_us, "bytes_per_second": self.rate.round(),
            "iops": self.iops().round(), "parallelism": self.parallelism(), "by_depth": by_depth,
        })
    }

    fn read(value: &Value) -> Option<DirectionProfile> {
        let number = |key: &str| value[key].as_f64();
        let of_depth =
            |row: &Value| Some((u32::try_from(row["depth"].as_u64()?).ok()?, row["iops"].as_f64()?));
        Some(DirectionProfile {
            median_us: number("median_us")?,
            p99_us: number("p99_us")?,
            rate: number("bytes_per_second")?,
            by_depth: value["by_depth"].as_array()?.iter().map(of_depth).collect::<Option<_>>()?,
        })
    }
}

/// A device.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DeviceProfile {
    /// Which device it is.
    pub(crate) device: DeviceIdentity,
    /// Its reads.
    pub(crate) reads: DirectionProfile,
    /// Its writes, if they were measured.
    pub(crate) writes: Option<DirectionProfile>,
    /// Where single reads begin to take longer than their bytes do: the size of its buffer; [`None`] if no step was found.
    pub(crate) buffer: Option<Step>,
}

impl DeviceProfile {
    /// How many requests a brick gives to the device at a time: what reads can use. Behind so many a client's read waits at most, and
    /// writes, which are longer as a rule, need no more.
    pub(crate) fn depth(&self) -> u32 {
        self.reads.parallelism().max(DEPTH_LEAST)
    }

    /// Where the profile of a disk is kept, if nobody says otherwise: beside a file, and for a device below /var/lib/shoal.
    pub(crate) fn place_of(disk: &Path) -> PathBuf {
        let name = disk.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let dir = match disk.starts_with("/dev") {
            true => Path::new("/var/lib/shoal"),
            false => disk.parent().unwrap_or(Path::new("/")),
        };
        dir.join(format!("{name}.profile.json"))
    }

    /// The document that is kept and shown.
    pub(crate) fn json(&self) -> Value {
        json!({
            "format": FORMAT,
            "device": self.device.json(),
            "reads": self.reads.json(),
            "writes": self.writes.as_ref().map(DirectionProfile::json),
            "buffer": self.buffer.as_ref().map(|step| json!({ "bytes": step.bytes, "step_us": step.us })),
            "depth": self.depth(),
        })
    }

    /// Writes the file.
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        }
        let text = serde_json::to_string_pretty(&self.json())?;
        // Whole or not at all, also if the machine stops now.
        let new = path.with_extension("new");
        let written = std::fs::File::create(&new).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            std::fs::rename(&new, path)
        });
        written.with_context(|| format!("{} cannot be written", path.display()))
    }

    /// Reads the file; [`None`] if there is none.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Option<DeviceProfile>> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
        };
        let profile = serde_json::from_str(&text).ok().and_then(|value| DeviceProfile::parse(&value));
        profile.map(Some).ok_or_else(|| {
            problem(
                format!("{} is no profile of a device", path.display()),
                "`shoal brick probe` measures anew",
            )
        })
    }

    fn parse(value: &Value) -> Option<DeviceProfile> {
        if value["format"].as_u64() != Some(FORMAT) {
            return None;
        }
        let step = |value: &Value| {
            Some(Step {
                bytes: value["bytes"].as_u64().filter(|bytes| *bytes <= BUFFER_MAX)?,
                us: value["step_us"].as_f64()?,
            })
        };
        let (writes, buffer) = (&value["writes"], &value["buffer"]);
        Some(DeviceProfile {
            device: DeviceIdentity::read(&value["device"])?,
            reads: DirectionProfile::read(&value["reads"])?,
            writes: if writes.is_null() { None } else { Some(DirectionProfile::read(writes)?) },
            buffer: if buffer.is_null() { None } else { Some(step(buffer)?) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> DeviceProfile {
        let direction = |most: f64| DirectionProfile {
            median_us: 80.5,
            p99_us: 140.0,
            rate: 5e8,
            by_depth: vec![(1, most / 10.0), (8, most / 2.0), (32, most), (128, most * 1.02)],
        };
        DeviceProfile {
            device: DeviceIdentity { id: "S3Z8".to_owned(), model: "An SSD".to_owned(), bytes: 1 << 40 },
            reads: direction(100_000.0),
            writes: Some(direction(50_000.0)),
            buffer: Some(Step { bytes: 512 << 10, us: 125.0 }),
        }
    }

    #[test]
    fn a_profile_is_read_as_it_was_written() {
        let dir = std::env::temp_dir().join(format!("shoal-test-profile-{}", std::process::id()));
        let path = dir.join("below/disk.profile.json");
        assert!(DeviceProfile::read(&path).expect("no file is no profile").is_none());
        for profile in [profile(), DeviceProfile { writes: None, buffer: None, ..profile() }] {
            profile.write(&path).expect("written");
            assert_eq!(DeviceProfile::read(&path).expect("a profile"), Some(profile));
        }
        for text in ["", "{}", "{\"format\": 2}", "[1]"] {
            std::fs::write(&path, text).expect("written");
            assert!(DeviceProfile::read(&path).is_err(), "{text}");
        }
        std::fs::remove_dir_all(dir).expect("a directory of this test");
    }

    #[test]
    fn the_depth_is_what_the_device_can_use() {
        assert_eq!(profile().depth(), 32);
    }

    #[test]
    fn a_profile_lies_beside_a_file_and_not_in_dev() {
        let place = |path: &str| DeviceProfile::place_of(Path::new(path));
        assert_eq!(place("/srv/brick4"), Path::new("/srv/brick4.profile.json"));
        assert_eq!(place("/dev/disk/by-id/sdb"), Path::new("/var/lib/shoal/sdb.profile.json"));
    }
}
