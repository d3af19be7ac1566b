//! Guesses the class of a device.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use types::messages::cluster::BrickClass;

/// The class of the device that a path names, or that holds this file. The kernel says whether a device rotates
/// (`queue/rotational`, Documentation/ABI/stable/sysfs-block). What it says nothing of, such as RAM or an export of
/// another machine, counts as an SSD.
pub(crate) fn guess(path: &Path) -> BrickClass {
    match rotational(path) {
        Some(true) => BrickClass::Hdd,
        _ => BrickClass::Ssd,
    }
}

fn rotational(path: &Path) -> Option<bool> {
    let meta = fs::metadata(path).ok()?;
    let device = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
    let (major, minor) = (nix::libc::major(device), nix::libc::minor(device));
    flag_of(&PathBuf::from(format!("/sys/dev/block/{major}:{minor}")))
}

/// The flag of a block device in sysfs. A partition has its disk's.
fn flag_of(device: &Path) -> Option<bool> {
    let read = |path: PathBuf| fs::read_to_string(path).ok().map(|text| text.trim() == "1");
    read(device.join("queue/rotational")).or_else(|| read(device.join("../queue/rotational")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_as_fast_as_its_disk() {
        let dir = std::env::temp_dir().join(format!("shoal-test-class-{}", std::process::id()));
        let (disk, partition) = (dir.join("sda"), dir.join("sda/sda1"));
        fs::create_dir_all(disk.join("queue")).expect("a directory");
        fs::create_dir_all(&partition).expect("a directory");
        fs::write(disk.join("queue/rotational"), "1\n").expect("a file");
        assert_eq!((flag_of(&disk), flag_of(&partition)), (Some(true), Some(true)));
        fs::write(disk.join("queue/rotational"), "0\n").expect("a file");
        assert_eq!((flag_of(&disk), flag_of(&partition)), (Some(false), Some(false)));
        assert_eq!(flag_of(&dir), None);
        fs::remove_dir_all(dir).expect("a directory of this test");
    }

    #[test]
    fn what_the_kernel_does_not_know_counts_as_an_ssd() {
        assert_eq!(guess(Path::new("nbd://host/export")), BrickClass::Ssd);
        assert_eq!(guess(Path::new("/proc/self/status")), BrickClass::Ssd);
    }
}
