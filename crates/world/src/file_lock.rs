//! Locks of disks and stores: one process serves a file, whatever strangers do.
//!
//! The kernel lets everybody lock a file who can open it for reading, and a lock stays when the file's mode is repaired. So
//! each opener takes two locks:
//!
//! 1. one of the file itself. Processes in other containers see it too;
//! 2. one of a file of its own in our run directory, where nobody else can open anything. It is named by the disk's inode.
//!
//! The first may be missing if somebody holds it who has the file open for reading only. We open for writing, so this is
//! a stranger. The second keeps our own processes apart then.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock, major, minor};
use rustix::io::Errno;

use crate::private_files::{self, user};

/// The folder of lock files in the run directory.
const FOLDER: &str = "locks";
/// Most attempts to lock a lock file that its last user removes at the same time.
const ATTEMPTS: usize = 100;

/// Keeps other processes of ours from the same file, as long as it and the locked file are open.
#[derive(Debug)]
pub struct FileLock {
    own: Option<(File, PathBuf)>,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if let Some((_, path)) = &self.own {
            // Still locked: an opener that waits for it finds that the name is gone, and tries again.
            let _ = fs::remove_file(path);
        }
    }
}

impl FileLock {
    /// Locks a file or block device that is open for reading and writing.
    ///
    /// # Errors
    /// `WouldBlock` if another process, or this one, has it locked.
    pub fn take(file: &File, path: &Path) -> io::Result<FileLock> {
        let own = own_lock(file);
        if own.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            return Err(in_use());
        }
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let own = own.inspect_err(|error| {
                    tracing::debug!(%error, "{} has no second lock", path.display());
                });
                Ok(FileLock { own: own.ok() })
            }
            Err(Errno::WOULDBLOCK) => {
                let own = own.map_err(|_| in_use())?;
                let Some(stranger) = stranger(file) else { return Err(in_use()) };
                let path = path.display();
                tracing::warn!(
                    "{stranger} holds a lock of {path}, which it can only read: it is served nevertheless"
                );
                Ok(FileLock { own: Some(own) })
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn in_use() -> io::Error {
    io::Error::new(ErrorKind::WouldBlock, "it is in use by another process")
}

/// The second lock.
fn own_lock(file: &File) -> io::Result<(File, PathBuf)> {
    let folder = private_files::run_dir()?.join(FOLDER);
    private_files::make_dir(&folder, |_| true)?;
    let found = file.metadata()?;
    let name = match found.file_type().is_block_device() {
        true => format!("device-{:x}", found.rdev()),
        false => format!("{:x}-{}", found.dev(), found.ino()),
    };
    let path = folder.join(name);
    for _ in 0..ATTEMPTS {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        if fs::metadata(&path).is_ok_and(|now| lock.metadata().is_ok_and(|lock| lock.ino() == now.ino())) {
            return Ok((lock, path));
        }
    }
    Err(in_use())
}

/// Who holds the lock of a file, in words, if that is nobody of ours. `None` if it may be.
fn stranger(file: &File) -> Option<String> {
    let place = place(file)?;
    let mut found = None;
    for (pid, writes) in holders(&place) {
        if writes {
            return None;
        }
        found = Some(pid);
    }
    if let Some(pid) = found {
        return Some(format!("process {pid}"));
    }
    // Only root sees what other users have open.
    if user() == 0 {
        return None;
    }
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(5) == Some(&place.as_str())).then(|| words[4].parse::<u32>().ok())?
    })?;
    let owner = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    (owner != 0 && owner != user()).then(|| format!("process {pid} of user {owner}"))
}

/// The process that holds a lock of this file and may write to it, as far as this user sees it.
pub fn holder(path: &Path) -> Option<u32> {
    let place = place(&File::open(path).ok()?)?;
    holders(&place).into_iter().find_map(|(pid, writes)| writes.then_some(pid))
}

/// How the kernel's lists of locks name a file.
fn place(file: &File) -> Option<String> {
    let found = file.metadata().ok()?;
    Some(format!("{:02x}:{:02x}:{}", major(found.dev()), minor(found.dev()), found.ino()))
}

/// The processes that hold a lock of a file, and whether they have opened it for writing.
fn holders(place: &str) -> Vec<(u32, bool)> {
    let mut found = Vec::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let open = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
        let held = open.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        found.extend(held.filter_map(|info| lock_in(&info, place)).map(|writes| (pid, writes)));
    }
    found
}

/// Whether an open file, of which this is the text in `fdinfo`, holds a lock of the file at `place`, and whether it can be written.
fn lock_in(info: &str, place: &str) -> Option<bool> {
    let is_lock = |line: &str| line.starts_with("lock:") && line.split_whitespace().any(|word| word == place);
    if !info.lines().any(is_lock) {
        return None;
    }
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
    Some(flags & OFlags::RWMODE.bits() != OFlags::RDONLY.bits())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_text_of_an_open_file_says_who_locks_it() {
        let info =
            "pos:\t0\nflags:\t0100002\nmnt_id:\t2\nlock:\t1: FLOCK  ADVISORY  WRITE 7 fe:0a:13 0 EOF\n";
        assert_eq!(lock_in(info, "fe:0a:13"), Some(true));
        assert_eq!(lock_in(info, "fe:0a:1"), None);
        assert_eq!(lock_in(&info.replace("0100002", "0100000"), "fe:0a:13"), Some(false));
        assert_eq!(lock_in("pos:\t0\nflags:\t02\n", "fe:0a:13"), None);
    }

    struct Ends(Child);

    impl Drop for Ends {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn open(path: &Path) -> File {
        File::options().read(true).write(true).open(path).unwrap()
    }

    /// Another user, who could read the file before, locks it in each way there is.
    #[test]
    fn a_stranger_s_lock_keeps_nobody_out_and_ours_does() {
        if user() != 0 {
            return;
        }
        for kind in ["-x", "-s"] {
            let path = std::env::temp_dir().join(format!("shoal-lock{kind}-{}", std::process::id()));
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
            let mut stranger = Command::new("flock");
            stranger.arg("-F").arg(kind).arg(&path).args(["sleep", "60"]).uid(65_534).gid(65_534);
            let stranger = Ends(stranger.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
            let is_locked = || flock(open(&path), FlockOperation::NonBlockingLockExclusive).is_err();
            assert!((0..500).any(|_| is_locked() || {
                thread::sleep(Duration::from_millis(10));
                false
            }));

            let first = open(&path);
            let lock = FileLock::take(&first, &path).expect("a stranger keeps nobody out");
            let other = path.with_extension("name");
            fs::hard_link(&path, &other).unwrap();
            let second = FileLock::take(&open(&other), &other).unwrap_err();
            assert_eq!(second.kind(), ErrorKind::WouldBlock, "one of ours is enough, by any name");
            drop((stranger, first));
            let again = FileLock::take(&open(&path), &path).unwrap_err();
            assert_eq!(again.kind(), ErrorKind::WouldBlock, "the first one is still there");
            drop(lock);
            let file = open(&path);
            let _lock = FileLock::take(&file, &path).expect("everybody has gone");
            assert_eq!(holder(&path), Some(std::process::id()));
            let again = FileLock::take(&open(&path), &path).unwrap_err();
            assert_eq!(again.kind(), ErrorKind::WouldBlock);
            fs::remove_file(&path).unwrap();
            fs::remove_file(&other).unwrap();
        }
    }
}
