//! The demo's files: selects, copies and compares them.
//!
//! Two threads work through the list. Half-way they stop at a *gate* until the demo opens it. So a brick is killed in
//! the middle of the work even if the input is small.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, bail};

/// Bytes that one read or write moves.
const CHUNK: usize = 1 << 20;
/// Threads that copy or compare.
const THREADS: usize = 2;
/// Directories that every Debian has, with the most bytes and files to take from each.
const DEFAULT_INPUT: [(&str, u64, usize); 3] =
    [("/usr/lib", 160 << 20, 1200), ("/usr/share", 60 << 20, 1500), ("/usr/bin", 80 << 20, 600)];

/// What an entry of the list is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Directory,
    File { bytes: u64 },
    Link,
}

/// One entry: where it comes from and its path below the mount.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    source: PathBuf,
    below: PathBuf,
    kind: Kind,
}

/// Everything to copy, directories before what is in them.
#[derive(Default)]
pub(super) struct List {
    entries: Vec<Entry>,
    pub(super) bytes: u64,
    pub(super) files: usize,
    pub(super) links: usize,
    pub(super) directories: usize,
}

impl List {
    /// The files below `input`, or a selection of the system's.
    pub(super) fn gather(input: Option<&Path>) -> anyhow::Result<List> {
        let mut list = List::default();
        match input {
            Some(input) => list.add(input, Path::new("input"), u64::MAX, usize::MAX)?,
            None => {
                for (dir, bytes, files) in DEFAULT_INPUT {
                    if Path::new(dir).is_dir() {
                        list.add(Path::new(dir), Path::new(dir.trim_start_matches('/')), bytes, files)?;
                    }
                }
            }
        }
        if list.files == 0 {
            bail!("there is no file to copy in {}", input.unwrap_or(Path::new("/usr")).display());
        }
        Ok(list)
    }

    fn add(&mut self, dir: &Path, below: &Path, bytes: u64, files: usize) -> anyhow::Result<()> {
        let mut parent = PathBuf::new();
        for part in below {
            parent.push(part);
            self.push(Entry { source: dir.to_owned(), below: parent.clone(), kind: Kind::Directory });
        }
        let bytes_end = self.bytes.saturating_add(bytes);
        let files_end = self.files.saturating_add(files);
        self.walk(dir, below, bytes_end, files_end)
    }

    fn walk(&mut self, dir: &Path, below: &Path, bytes_end: u64, files_end: usize) -> anyhow::Result<()> {
        let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
        let mut entries: Vec<_> = entries.flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let Ok(meta) = entry.path().symlink_metadata() else { continue };
            if self.files >= files_end || self.bytes >= bytes_end {
                return Ok(());
            }
            let next = |kind| Entry { source: entry.path(), below: below.join(entry.file_name()), kind };
            if meta.is_dir() {
                self.push(next(Kind::Directory));
                let before = self.entries.len();
                self.walk(&entry.path(), &below.join(entry.file_name()), bytes_end, files_end)?;
                if bytes_end != u64::MAX && self.entries.len() == before {
                    // Of a selection, directories without a selected file are left out.
                    self.entries.pop();
                    self.directories -= 1;
                }
            } else if meta.is_symlink() {
                self.push(next(Kind::Link));
            } else if meta.is_file() && self.bytes.saturating_add(meta.len()) <= bytes_end {
                self.push(next(Kind::File { bytes: meta.len() }));
            }
        }
        Ok(())
    }

    fn push(&mut self, entry: Entry) {
        match entry.kind {
            Kind::Directory if self.entries.iter().rev().any(|e| e.below == entry.below) => return,
            Kind::Directory => self.directories += 1,
            Kind::Link => self.links += 1,
            Kind::File { bytes } => {
                self.files += 1;
                self.bytes += bytes;
            }
        }
        self.entries.push(entry);
    }
}

/// The progress of one pass over the list, shared by its threads and the demo's main thread.
pub(super) struct Pass {
    bytes: AtomicU64,
    next: AtomicUsize,
    mismatches: AtomicU64,
    stop: AtomicBool,
    running: AtomicUsize,
    half: u64,
    gate: Mutex<bool>,
    opened: Condvar,
    notes: Mutex<Vec<String>>,
}

/// The result of a pass.
pub(super) struct Done {
    pub(super) mismatches: u64,
    /// The first mismatches, as text.
    pub(super) notes: Vec<String>,
}

impl Pass {
    pub(super) fn new(list: &List) -> Pass {
        Pass {
            bytes: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            mismatches: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            running: AtomicUsize::new(THREADS),
            half: list.bytes / 2,
            gate: Mutex::new(false),
            opened: Condvar::new(),
            notes: Mutex::new(Vec::new()),
        }
    }

    /// Bytes moved so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether some thread still runs.
    pub(super) fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed) > 0
    }

    /// Opens the gate: the second half begins.
    pub(super) fn open_gate(&self) {
        *self.gate.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    /// Ends the pass early.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.open_gate();
    }

    fn moved(&self, bytes: usize) -> anyhow::Result<()> {
        let before = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if before + bytes as u64 >= self.half {
            let closed = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
            drop(self.opened.wait_while(closed, |open| !*open).unwrap_or_else(PoisonError::into_inner));
        }
        if self.stop.load(Ordering::Relaxed) {
            bail!("stopped");
        }
        Ok(())
    }

    fn mismatch(&self, what: String) {
        const NOTES_MAX: usize = 20;
        self.mismatches.fetch_add(1, Ordering::Relaxed);
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < NOTES_MAX {
            notes.push(what);
        }
    }

    /// Copies everything to below `mount`, with two threads; `watch` runs meanwhile.
    pub(super) fn copy(
        &self,
        list: &List,
        mount: &Path,
        watch: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Done> {
        for entry in list.entries.iter().filter(|e| e.kind == Kind::Directory) {
            let path = mount.join(&entry.below);
            fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        self.work(list, watch, |entry| self.copy_one(entry, mount))
    }

    /// Compares everything below `mount` with its source, byte by byte.
    pub(super) fn compare(
        &self,
        list: &List,
        mount: &Path,
        watch: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Done> {
        self.compare_names(list, mount)?;
        self.work(list, watch, |entry| self.compare_one(entry, mount))
    }

    fn work(
        &self,
        list: &List,
        watch: impl FnOnce() -> anyhow::Result<()>,
        one: impl Fn(&Entry) -> anyhow::Result<()> + Sync,
    ) -> anyhow::Result<Done> {
        let run = || -> anyhow::Result<()> {
            while let Some(entry) = list.entries.get(self.next.fetch_add(1, Ordering::Relaxed)) {
                one(entry).inspect_err(|_| self.stop())?;
            }
            Ok(())
        };
        let results = thread::scope(|scope| {
            let counted = || {
                let result = run();
                self.running.fetch_sub(1, Ordering::Relaxed);
                result
            };
            let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(counted)).collect();
            let watched = watch().inspect_err(|_| self.stop());
            self.open_gate();
            let mut results: Vec<anyhow::Result<()>> = workers
                .into_iter()
                .map(|w| w.join().unwrap_or_else(|_| bail!("a worker panicked")))
                .collect();
            results.push(watched);
            results
        });
        // "stopped" is an echo of the error that made the others stop.
        let mut errors: Vec<anyhow::Error> = results.into_iter().filter_map(Result::err).collect();
        errors.sort_by_key(|e| e.to_string() == "stopped");
        if let Some(error) = errors.into_iter().next() {
            return Err(error);
        }
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Done { mismatches: self.mismatches.load(Ordering::Relaxed), notes })
    }

    fn copy_one(&self, entry: &Entry, mount: &Path) -> anyhow::Result<()> {
        let to = mount.join(&entry.below);
        match entry.kind {
            Kind::Directory => Ok(()),
            Kind::Link => {
                let target = fs::read_link(&entry.source)
                    .with_context(|| format!("cannot read the link {}", entry.source.display()))?;
                symlink(target, &to).with_context(|| format!("cannot make the link {}", to.display()))
            }
            Kind::File { .. } => self.copy_file(&entry.source, &to),
        }
    }

    fn copy_file(&self, from: &Path, to: &Path) -> anyhow::Result<()> {
        let mut source = File::open(from).with_context(|| format!("cannot open {}", from.display()))?;
        let mut sink = File::create_new(to).with_context(|| format!("cannot make {}", to.display()))?;
        let mut chunk = vec![0; CHUNK];
        loop {
            let n =
                fill(&mut source, &mut chunk).with_context(|| format!("cannot read {}", from.display()))?;
            let part = chunk.get(..n).expect("a read fills at most its buffer");
            sink.write_all(part).with_context(|| format!("cannot write {}", to.display()))?;
            self.moved(n)?;
            if n < CHUNK {
                return Ok(());
            }
        }
    }

    fn compare_one(&self, entry: &Entry, mount: &Path) -> anyhow::Result<()> {
        let copy = mount.join(&entry.below);
        let Ok(meta) = copy.symlink_metadata() else {
            self.mismatch(format!("{} cannot be found", copy.display()));
            return Ok(());
        };
        match entry.kind {
            Kind::Directory if !meta.is_dir() => self.mismatch(format!("{} is no directory", copy.display())),
            Kind::Directory => {}
            Kind::Link => {
                let (a, b) = (fs::read_link(&entry.source), fs::read_link(&copy));
                if !matches!((&a, &b), (Ok(a), Ok(b)) if a == b) {
                    self.mismatch(format!("{} points elsewhere", copy.display()));
                }
            }
            Kind::File { .. } => self.compare_file(&entry.source, &copy)?,
        }
        Ok(())
    }

    fn compare_file(&self, original: &Path, copy: &Path) -> anyhow::Result<()> {
        let mut a = File::open(original).with_context(|| format!("cannot open {}", original.display()))?;
        let mut b = match File::open(copy) {
            Ok(file) => file,
            Err(error) => {
                self.mismatch(format!("{} cannot be opened: {error}", copy.display()));
                return Ok(());
            }
        };
        let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
        let mut at = 0;
        loop {
            let n = fill(&mut a, &mut left).with_context(|| format!("cannot read {}", original.display()))?;
            let m = match fill(&mut b, &mut right) {
                Ok(m) => m,
                Err(error) => {
                    self.mismatch(format!("{} cannot be read at {at}: {error}", copy.display()));
                    return Ok(());
                }
            };
            if left.get(..n) != right.get(..m) {
                let same = left.iter().zip(&right).take_while(|(a, b)| a == b).count().min(n).min(m);
                self.mismatch(format!("{} differs at byte {}", copy.display(), at + same));
                return Ok(());
            }
            self.moved(n)?;
            at += n;
            if n < CHUNK {
                return Ok(());
            }
        }
    }

    /// Checks that there are no other names. The expected ones are compared elsewhere.
    fn compare_names(&self, list: &List, mount: &Path) -> anyhow::Result<()> {
        let expected: std::collections::BTreeSet<&Path> =
            list.entries.iter().map(|e| e.below.as_path()).collect();
        let mut open = vec![mount.to_owned()];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
                let entry = entry.with_context(|| format!("cannot list {}", dir.display()))?;
                let path = entry.path();
                let below = path.strip_prefix(mount).context("an entry lies in its directory")?;
                if !expected.contains(below) {
                    self.mismatch(format!("{} was never written", path.display()));
                } else if entry.file_type().is_ok_and(|t| t.is_dir()) {
                    open.push(path);
                }
            }
        }
        Ok(())
    }
}

/// Reads until `chunk` is full or the file ends.
fn fill(file: &mut File, chunk: &mut [u8]) -> std::io::Result<usize> {
    let mut len = 0;
    while let Some(rest) = chunk.get_mut(len..)
        && !rest.is_empty()
    {
        match file.read(rest) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("shoal-files-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).expect("a temporary directory");
        dir
    }

    #[test]
    fn a_copy_compares_equal_and_every_change_is_found() {
        let (from, to) = (scratch("from"), scratch("to"));
        fs::create_dir_all(from.join("d")).expect("a directory");
        fs::write(from.join("d/a"), vec![7; 3 * CHUNK + 5]).expect("a file");
        fs::write(from.join("empty"), b"").expect("a file");
        symlink("d/a", from.join("link")).expect("a link");
        let list = List::gather(Some(&from)).expect("files");
        assert_eq!((list.files, list.links, list.directories), (2, 1, 2));
        let ok = || Ok(());
        let done = Pass::new(&list).copy(&list, &to, ok).expect("a copy");
        assert_eq!(done.mismatches, 0);
        assert_eq!(Pass::new(&list).compare(&list, &to, ok).expect("a comparison").mismatches, 0);
        let copy = to.join("input");
        let mut bytes = fs::read(copy.join("d/a")).expect("the copy");
        bytes[2 * CHUNK] ^= 1;
        fs::write(copy.join("d/a"), bytes).expect("the copy");
        fs::write(copy.join("empty"), b"x").expect("the copy");
        fs::write(copy.join("stranger"), b"").expect("one more");
        fs::remove_file(copy.join("link")).expect("the link");
        let done = Pass::new(&list).compare(&list, &to, ok).expect("a comparison");
        assert_eq!(done.mismatches, 4, "{:?}", done.notes);
        assert!(done.notes.iter().any(|n| n.ends_with(&format!("d/a differs at byte {}", 2 * CHUNK))));
        for dir in [from, to] {
            fs::remove_dir_all(dir).expect("the temporary directory");
        }
    }

    #[test]
    fn the_gate_holds_the_second_half() {
        let (from, to) = (scratch("gate-from"), scratch("gate-to"));
        for name in ["a", "b", "c", "d"] {
            fs::write(from.join(name), vec![1; CHUNK]).expect("a file");
        }
        let list = List::gather(Some(&from)).expect("files");
        let pass = Pass::new(&list);
        let watch = || {
            thread::sleep(std::time::Duration::from_millis(100));
            assert!(
                pass.bytes() <= 3 * CHUNK as u64,
                "at most one chunk of each thread passes the gate's mark"
            );
            Ok(())
        };
        pass.copy(&list, &to, watch).expect("a copy");
        assert_eq!(pass.bytes(), 4 * CHUNK as u64);
        for dir in [from, to] {
            fs::remove_dir_all(dir).expect("the temporary directory");
        }
    }
}
