//! Which device a path names.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};

/// What tells a device from others, as the kernel has it (Documentation/ABI/stable/sysfs-block).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DeviceIdentity {
    /// Its serial number or world-wide name; of a loop device the file behind it; else the kernel's name, which another device may
    /// have after a start of the machine.
    pub(crate) id: String,
    /// Its model, if it says one.
    pub(crate) model: String,
    /// Its bytes.
    pub(crate) bytes: u64,
}

impl DeviceIdentity {
    /// The device at a path, or the one that holds the file or directory.
    pub(crate) fn of(path: &Path) -> anyhow::Result<DeviceIdentity> {
        let meta = fs::metadata(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let device = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
        let (major, minor) = (nix::libc::major(device), nix::libc::minor(device));
        Ok(DeviceIdentity::in_sysfs(&PathBuf::from(format!("/sys/dev/block/{major}:{minor}")))
            .unwrap_or_else(|| DeviceIdentity {
                id: format!("{major}:{minor}"),
                model: String::new(),
                bytes: 0,
            }))
    }

    /// [`None`] if the kernel has no such block device: a file system without one, such as tmpfs.
    fn in_sysfs(device: &Path) -> Option<DeviceIdentity> {
        let device = fs::canonicalize(device).ok()?;
        let read = |name: &str| {
            let text = fs::read_to_string(device.join(name))
                .or_else(|_| fs::read_to_string(device.join("..").join(name)));
            text.ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let sectors: u64 = fs::read_to_string(device.join("size")).ok()?.trim().parse().ok()?;
        let id = ["serial", "device/serial", "wwid", "device/wwid", "loop/backing_file"]
            .into_iter()
            .find_map(read);
        let name = device.file_name()?.to_string_lossy().into_owned();
        // A partition has its disk's serial number, and a place of its own.
        let partition = fs::read_to_string(device.join("partition"))
            .map_or(String::new(), |n| format!(" part {}", n.trim()));
        Some(DeviceIdentity {
            id: id.map_or(name, |id| id + &partition),
            model: read("device/model").unwrap_or_default(),
            bytes: sectors * 512,
        })
    }

    /// As it is kept.
    pub(super) fn json(&self) -> Value {
        json!({ "id": self.id, "model": self.model, "bytes": self.bytes })
    }

    pub(super) fn read(value: &Value) -> Option<DeviceIdentity> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        Some(DeviceIdentity { id: text("id")?, model: text("model")?, bytes: value["bytes"].as_u64()? })
    }
}

impl std::fmt::Display for DeviceIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.id)?;
        if !self.model.is_empty() {
            write!(f, " ({})", self.model)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_told_by_its_serial_number() {
        let dir = std::env::temp_dir().join(format!("shoal-test-identity-{}", std::process::id()));
        let (disk, partition) = (dir.join("sda"), dir.join("sda/sda1"));
        fs::create_dir_all(disk.join("device")).expect("a directory");
        fs::create_dir_all(&partition).expect("a directory");
        fs::write(disk.join("size"), "2048\n").expect("a file");
        fs::write(partition.join("size"), "1024\n").expect("a file");
        fs::write(partition.join("partition"), "1\n").expect("a file");
        let id = |path: &Path| DeviceIdentity::in_sysfs(path).expect("a device");
        assert_eq!((&*id(&disk).id, id(&disk).bytes), ("sda", 1 << 20));
        fs::write(disk.join("device/serial"), "S3Z8\n").expect("a file");
        fs::write(disk.join("device/model"), "An SSD  \n").expect("a file");
        assert_eq!(id(&disk).to_string(), "S3Z8 (An SSD)");
        assert_eq!((&*id(&partition).id, id(&partition).bytes), ("S3Z8 part 1", 512 << 10));
        assert_eq!(DeviceIdentity::in_sysfs(&dir.join("sdb")), None);
        fs::remove_dir_all(dir).expect("a directory of this test");
    }
}
