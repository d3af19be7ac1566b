//! Finds the process that has locked a file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::libc;
use world::file_lock;

/// The process that has locked a file, as text.
pub(crate) fn of(path: &Path) -> String {
    match file_lock::holder(path).or_else(|| listed(path)) {
        None => "another process".to_owned(),
        Some(pid) => match command_of(pid) {
            None => format!("process {pid}"),
            Some(command) => format!("process {pid} ({command})"),
        },
    }
}

fn listed(path: &Path) -> Option<u32> {
    let file = fs::metadata(path).ok()?;
    pid_of(&fs::read_to_string("/proc/locks").unwrap_or_default(), file.dev(), file.ino())
}

/// The holder in the kernel's table of locks: `1: FLOCK ADVISORY WRITE 708 fe:00:1316 0 EOF`. [`None`] if it runs in
/// another container, because its pid is not known here.
fn pid_of(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let place = format!("{:02x}:{:02x}:{inode}", libc::major(device), libc::minor(device));
    let held = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut held = held.filter(|words| words.get(1) != Some(&"->") && words.get(5) == Some(&place.as_str()));
    held.find_map(|words| words.get(4)?.parse().ok()).filter(|pid| *pid > 0)
}

/// The first words of a process's command line.
fn command_of(pid: u32) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).take(2);
    let words: Vec<_> = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    if words.is_empty() { None } else { Some(words.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_among_locks() {
        let locks = "1: POSIX  ADVISORY  READ 11 fe:00:99 0 EOF\n2: FLOCK  ADVISORY  WRITE 708 fe:0a:1316 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 12 fe:0a:1317 0 EOF\n3: OFDLCK ADVISORY  WRITE -1 fe:0a:1318 0 EOF\n";
        let device = libc::makedev(0xfe, 0x0a);
        assert_eq!(pid_of(locks, device, 1316), Some(708));
        assert_eq!(pid_of(locks, device, 1317), None, "it waits");
        assert_eq!(pid_of(locks, device, 1318), None, "nobody knows");
        assert_eq!(pid_of(locks, libc::makedev(0xfe, 0), 1316), None);
    }
}
