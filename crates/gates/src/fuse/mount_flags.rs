//! The kernel's flags of the mount point. `mount -o remount` changes them without a message to this process.
//!
//! The kernel itself refuses writes to a read-only mount. But on FUSE it does not keep access times, so `ro`,
//! `noatime` and `nodiratime` are read from the list of mounts before an access is recorded. Reading this list sends
//! no request to any file system.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use types::messages::names::FileKind;

/// The list of mounts that this process sees.
const MOUNTS: &str = "/proc/self/mountinfo";

/// The flags of one mount point.
pub(super) struct MountFlags {
    dir: PathBuf,
    seen: Mutex<Seen>,
}

struct Seen {
    /// Kept open, because polling it tells whether the list has changed.
    mounts: Option<File>,
    flags: Access,
}

/// Which accesses to record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Access {
    files: bool,
    directories: bool,
}

impl MountFlags {
    pub(super) fn new(dir: &Path) -> MountFlags {
        let flags = Access { files: false, directories: false };
        MountFlags { dir: dir.to_owned(), seen: Mutex::new(Seen { mounts: None, flags }) }
    }

    /// Whether to record accesses to an inode of this kind.
    pub(super) fn updates_atime(&self, kind: FileKind) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.look(&self.dir) {
            Ok(()) if kind == FileKind::Directory => seen.flags.directories,
            Ok(()) => seen.flags.files,
            Err(error) => {
                tracing::debug!("{MOUNTS} cannot be read: {error}");
                false
            }
        }
    }
}

impl Seen {
    fn look(&mut self, dir: &Path) -> io::Result<()> {
        let (file, changed) = match &mut self.mounts {
            Some(file) => {
                let changed = has_changed(file);
                (file, changed)
            }
            none => (none.insert(File::open(MOUNTS)?), true),
        };
        if changed {
            let mut text = Vec::new();
            file.seek(SeekFrom::Start(0))?;
            file.read_to_end(&mut text)?;
            // If several mounts have this path, the last one is on top.
            let found = text.split(|byte| *byte == b'\n').filter_map(|line| parse(line, dir)).next_back();
            self.flags = found.unwrap_or(Access { files: false, directories: false });
        }
        Ok(())
    }
}

/// Whether the list of mounts has changed since it was read. Source: proc_pid_mountinfo(5), `poll`.
fn has_changed(file: &File) -> bool {
    let mut asked = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
    poll(&mut asked, PollTimeout::ZERO) != Ok(0)
}

/// The flags in a line of the list, if it is about the mount at `dir`: `36 35 0:41 / /mnt/dir rw,relatime shared:1 -
/// fuse.shoal main rw`.
fn parse(line: &[u8], dir: &Path) -> Option<Access> {
    let mut words = line.split(|byte| *byte == b' ');
    let place = words.nth(4)?;
    if place != escaped(dir.as_os_str()) {
        return None;
    }
    let mount = words.next()?;
    let whole = line.rsplit(|byte| *byte == b' ').next()?;
    let has = |options: &[u8], option: &[u8]| options.split(|byte| *byte == b',').any(|word| word == option);
    let files = !has(mount, b"ro") && !has(whole, b"ro") && !has(mount, b"noatime");
    Some(Access { files, directories: files && !has(mount, b"nodiratime") })
}

/// A path as the kernel lists it: blank, tab, newline and backslash as three octal digits.
fn escaped(path: &OsStr) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in path.as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => out.extend(format!("\\{byte:03o}").into_bytes()),
            _ => out.push(*byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_mounts_is_understood() {
        let of = |options: &str, whole: &str| {
            let line = format!(r"36 35 0:41 / /mnt/a\040b {options} shared:1 - fuse.shoal main {whole}");
            parse(line.as_bytes(), Path::new("/mnt/a b")).map(|access| (access.files, access.directories))
        };
        assert_eq!(of("rw,nosuid,relatime", "rw,user_id=0"), Some((true, true)));
        assert_eq!(of("rw,noatime", "rw"), Some((false, false)));
        assert_eq!(of("rw,nodiratime", "rw"), Some((true, false)));
        assert_eq!(of("ro,relatime", "rw"), Some((false, false)));
        assert_eq!(of("rw,relatime", "ro,user_id=0"), Some((false, false)));
        assert_eq!(parse(b"36 35 0:41 / /mnt/b rw - fuse.shoal main rw", Path::new("/mnt/a b")), None);
        assert_eq!(parse(b"", Path::new("/mnt")), None);
    }

    #[test]
    fn this_machine_has_a_root() {
        let flags = MountFlags::new(Path::new("/"));
        let first = flags.updates_atime(FileKind::File);
        assert_eq!(flags.updates_atime(FileKind::File), first, "also when nothing has changed");
        assert!(!MountFlags::new(Path::new("/there/is/no/such")).updates_atime(FileKind::File));
    }
}
