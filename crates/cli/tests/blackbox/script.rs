//! Random file operations, the same ones for the same seed, on any directory.
//!
//! Every step reports what it saw: bytes, names, error numbers. Two directories that behave alike give the same report.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::fixture::Prng;

/// Names that the steps choose from, in each of the directories.
const NAMES: u64 = 12;
/// Handles that are held open over other steps.
const HANDLES_MAX: usize = 6;
/// Longest write, in bytes: some stripes and some units.
const WRITE_MAX: u64 = 3 << 20;

/// A run of the script in one directory.
pub(crate) struct Script {
    root: PathBuf,
    prng: Prng,
    handles: Vec<File>,
}

impl Script {
    pub(crate) fn new(root: &Path, seed: u64) -> Script {
        Script { root: root.to_owned(), prng: Prng::new(seed), handles: Vec::new() }
    }

    /// One of the names; some lie in directories that may not be there.
    fn name(&mut self) -> PathBuf {
        let name = format!("n{}", self.prng.below(NAMES));
        match self.prng.below(4) {
            0 | 1 => self.root.join(name),
            2 => self.root.join("n0").join(name),
            _ => self.root.join("n1").join(name),
        }
    }

    /// Offset and length of a read or write: small, block-sized, or over several stripes.
    fn range(&mut self) -> (u64, usize) {
        match self.prng.below(5) {
            0 => (self.prng.below(100), self.prng.below(200) as usize),
            1 => (self.prng.below(64) * 4096, 4096),
            2 => (self.prng.below(1 << 20), self.prng.below(64 << 10) as usize),
            3 => (self.prng.below(4) << 18, self.prng.below(WRITE_MAX) as usize),
            _ => (self.prng.below(32 << 20), self.prng.below(9000) as usize),
        }
    }

    /// Does one step. What it saw is the same wherever files behave like files.
    pub(crate) fn step(&mut self) -> String {
        let kind = self.prng.below(22);
        let (path, other) = (self.name(), self.name());
        let (offset, len) = self.range();
        let what = match kind {
            0..=3 => self.write(&path, offset, len),
            4 => append(&path, &self.prng.bytes(len.min(70_000))),
            5 | 6 => read(&path, offset, len),
            7 => truncate(&path, offset),
            8 => fs::create_dir(&path).map(|()| String::new()),
            9 => fs::remove_dir(&path).map(|()| String::new()),
            10 | 11 => fs::remove_file(&path).map(|()| String::new()),
            12 | 13 => fs::rename(&path, &other).map(|()| String::new()),
            14 => fs::hard_link(&path, &other).map(|()| String::new()),
            15 => symlink("n3", &path).map(|()| String::new()),
            16 => chmod(&path, self.prng.below(0o1000) as u32),
            17 => list(&path),
            18 => self.hold(&path),
            19 | 20 => self.use_handle(offset, len),
            _ => stat(&path),
        };
        let place =
            |p: &Path| p.strip_prefix(&self.root).map(|p| p.display().to_string()).unwrap_or_default();
        let saw = what.unwrap_or_else(|e| format!("error {:?}", e.raw_os_error()));
        format!("{kind} {} {} {offset}+{len}: {saw}", place(&path), place(&other))
    }

    fn write(&mut self, path: &Path, offset: u64, len: usize) -> io::Result<String> {
        let bytes = self.prng.bytes(len);
        let truncate = self.prng.below(4) == 0;
        let sync = self.prng.below(6) == 0;
        let file = OpenOptions::new().write(true).create(true).truncate(truncate).open(path)?;
        file.write_all_at(&bytes, offset)?;
        if sync {
            file.sync_all()?;
        }
        Ok(String::new())
    }

    fn hold(&mut self, path: &Path) -> io::Result<String> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if self.handles.len() == HANDLES_MAX {
            self.handles.remove(0);
        }
        self.handles.push(file);
        Ok(String::new())
    }

    /// Reads, writes or truncates a file that is held open, whatever has become of its name.
    fn use_handle(&mut self, offset: u64, len: usize) -> io::Result<String> {
        let (index, kind) = (self.prng.below(HANDLES_MAX as u64) as usize, self.prng.below(4));
        let bytes = self.prng.bytes(len);
        let Some(file) = self.handles.get_mut(index) else { return Ok("none".into()) };
        match kind {
            0 => file.write_all_at(&bytes, offset).map(|()| String::new()),
            1 => file.set_len(offset).map(|()| String::new()),
            2 => {
                file.seek(SeekFrom::Start(offset))?;
                let mut seen = Vec::new();
                file.take(len as u64).read_to_end(&mut seen)?;
                Ok(digest(&seen))
            }
            _ => Ok(format!("{} links, {} bytes", file.metadata()?.nlink(), file.metadata()?.len())),
        }
    }
}

fn append(path: &Path, bytes: &[u8]) -> io::Result<String> {
    OpenOptions::new().append(true).create(true).open(path)?.write_all(bytes).map(|()| String::new())
}

fn read(path: &Path, offset: u64, len: usize) -> io::Result<String> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut seen = Vec::new();
    file.take(len as u64).read_to_end(&mut seen)?;
    Ok(digest(&seen))
}

fn truncate(path: &Path, size: u64) -> io::Result<String> {
    OpenOptions::new().write(true).open(path)?.set_len(size).map(|()| String::new())
}

fn chmod(path: &Path, mode: u32) -> io::Result<String> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode | 0o600)).map(|()| String::new())
}

fn list(path: &Path) -> io::Result<String> {
    let mut names: Vec<String> = fs::read_dir(path)?
        .map(|e| e.map(|e| e.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_, _>>()?;
    names.sort();
    Ok(names.join(" "))
}

fn stat(path: &Path) -> io::Result<String> {
    let meta = path.symlink_metadata()?;
    let size = if meta.is_dir() { 0 } else { meta.len() };
    let links = if meta.is_dir() { 0 } else { meta.nlink() };
    Ok(format!("{:o} {links} links, {size} bytes", meta.mode()))
}

/// Bytes in short.
pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("{} bytes, {:08x}", bytes.len(), types::checksum::crc(bytes))
}

/// Everything below a directory: path to kind, mode, size, links and contents.
pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("a directory can be listed").flatten() {
            let path = entry.path();
            let meta = path.symlink_metadata().expect("what is listed is there");
            let what = if meta.is_symlink() {
                format!("-> {}", fs::read_link(&path).expect("a link").display())
            } else if meta.is_dir() {
                open.push(path.clone());
                format!("{:o}", meta.mode())
            } else {
                let bytes = fs::read(&path).expect("a file can be read");
                assert_eq!(bytes.len() as u64, meta.len(), "{}", path.display());
                format!("{:o} {} links, {}", meta.mode(), meta.nlink(), digest(&bytes))
            };
            found.insert(path.strip_prefix(root).expect("below the root").to_owned(), what);
        }
    }
    found
}
