//! Mount points: checks for new ones, the mounts of Shoal, and their daemons.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::problem::problem;
use crate::process::Daemon;
use crate::run_files::{self, RunFile};

/// The file system type of a Shoal mount.
pub(crate) const FS_TYPE: &str = "fuse.shoal";

/// A mount of Shoal as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    pub(crate) dir: PathBuf,
    pub(crate) fs_type: String,
    pub(crate) source: String,
    /// The kernel's flags, as words.
    pub(crate) options: Vec<String>,
}

/// Every mount that this process sees, the newest last.
pub(crate) fn mounted() -> anyhow::Result<Vec<Mounted>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    Ok(text.lines().filter_map(parse_line).collect())
}

/// The topmost mount at `dir`. The path is not made canonical, because that would fail on a dead mount.
pub(crate) fn mounted_at(dir: &Path) -> anyhow::Result<Option<Mounted>> {
    Ok(mounted()?.into_iter().rfind(|m| m.dir == dir))
}

/// The mount that a path is on: the innermost one, and of several at one place the topmost. The path has no symbolic
/// links.
pub(crate) fn mount_of<'a>(path: &Path, mounts: &'a [Mounted]) -> Option<&'a Mounted> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.dir));
    above.max_by_key(|mount| mount.dir.components().count())
}

/// `36 35 98:0 /root /mnt/dir rw,noatime master:1 - fuse.shoal main rw`
fn parse_line(line: &str) -> Option<Mounted> {
    let (place, what) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(4);
    let dir = unescape(place.next()?);
    let options = place.next()?.split(',').map(str::to_owned).collect();
    let mut what = what.split(' ');
    Some(Mounted { dir, fs_type: what.next()?.to_owned(), source: what.next()?.to_owned(), options })
}

/// The kernel writes blank, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 4).and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(value) if byte == b'\\' => {
                out.push(value);
                at += 4;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&out))
}

/// Makes a path absolute without an access to its last part.
pub(crate) fn absolute(dir: &Path) -> anyhow::Result<PathBuf> {
    let parent = match dir.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(dir.to_owned()),
    };
    let Some(name) = dir.file_name() else {
        return fs::canonicalize(dir).with_context(|| format!("{} cannot be found", dir.display()));
    };
    let parent = fs::canonicalize(parent).with_context(|| format!("{} cannot be found", parent.display()))?;
    Ok(parent.join(name))
}

/// Checks whether this process can mount.
pub(crate) fn check_fuse() -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(problem("mounting needs root", "the same command with sudo"));
    }
    if fs::metadata("/dev/fuse").is_err() {
        return Err(problem(
            "/dev/fuse is missing: this kernel has no FUSE, or its module is not loaded",
            "`modprobe fuse`; in a container, pass the device in (--device /dev/fuse --cap-add SYS_ADMIN)",
        ));
    }
    Ok(())
}

/// Checks whether `dir` can become a mount point.
pub(crate) fn check_free(dir: &Path) -> anyhow::Result<PathBuf> {
    check_fuse()?;
    let dir = absolute(dir)?;
    if let Some(mount) = mounted_at(&dir)? {
        let what =
            format!("{} is a mount point already ({}, {})", dir.display(), mount.fs_type, mount.source);
        return Err(problem(what, format!("another directory, or `shoal umount {}` first", dir.display())));
    }
    let make = format!("`mkdir -p {}`", dir.display());
    let meta = match fs::metadata(&dir) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(problem(format!("the mount point {} does not exist", dir.display()), make));
        }
        Err(error) => return Err(error).with_context(|| format!("cannot look at {}", dir.display())),
    };
    if !meta.is_dir() {
        bail!("the mount point {} is not a directory", dir.display());
    }
    let mut entries = fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
    if entries.next().is_some() {
        let what =
            format!("the mount point {} is not empty: a mount would hide what is in it", dir.display());
        return Err(problem(what, "an empty directory"));
    }
    fs::canonicalize(&dir).with_context(|| format!("cannot find {}", dir.display()))
}

/// Makes the run file of this process, which serves the mount at `dir`; `meta` is the address of the metadata
/// service, `key_file` the file with the cluster's key.
pub(crate) fn create_run_file(
    dir: &Path,
    volume: &str,
    meta: &str,
    key_file: Option<&Path>,
) -> anyhow::Result<RunFile> {
    let key_file = key_file.map(Path::to_string_lossy);
    let dir = dir.to_string_lossy();
    let note = json!({ "dir": dir, "volume": volume, "meta": meta, "key_file": key_file });
    RunFile::create("mount", &note)
}

/// A mount daemon of this machine.
pub(crate) struct MountDaemon {
    pub(crate) dir: PathBuf,
    pub(crate) meta: String,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) daemon: Daemon,
}

/// The mount daemons that run on this machine.
pub(crate) fn mount_daemons() -> Vec<MountDaemon> {
    let known = |(note, daemon): (Value, Daemon)| {
        let (dir, meta) = (note["dir"].as_str()?, note["meta"].as_str()?);
        let key_file = note["key_file"].as_str().map(PathBuf::from);
        Some(MountDaemon { dir: PathBuf::from(dir), meta: meta.to_owned(), key_file, daemon })
    };
    run_files::of_kind("mount").into_iter().filter_map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo_parse() {
        let line = r"36 35 0:41 / /mnt/a\040b\134 rw,nosuid shared:1 - fuse.shoal main rw,user_id=0";
        let expected = Mounted {
            dir: PathBuf::from("/mnt/a b\\"),
            fs_type: FS_TYPE.to_owned(),
            source: "main".to_owned(),
            options: vec!["rw".to_owned(), "nosuid".to_owned()],
        };
        assert_eq!(parse_line(line), Some(expected));
        assert_eq!(parse_line("nonsense"), None);
    }

    #[test]
    fn a_path_is_on_the_innermost_mount_and_there_on_the_topmost() {
        let line = |(dir, source)| parse_line(&format!("36 35 0:41 / {dir} rw - fuse.shoal {source} rw"));
        let table = [("/", "root"), ("/mnt/a", "below"), ("/mnt/a", "a"), ("/mnt/a/b", "b"), ("/mnt", "mnt")];
        let mounts: Vec<Mounted> = table.into_iter().filter_map(line).collect();
        let source = |path: &str| mount_of(Path::new(path), &mounts).map(|mount| mount.source.as_str());
        let found = ["/mnt/a/c", "/mnt/a", "/mnt/a/b/c", "/mnt/ab", "/etc"].map(source);
        assert_eq!(found, [Some("a"), Some("a"), Some("b"), Some("mnt"), Some("root")]);
    }
}
