//! A file is what its model in memory is, whatever is done to it while daemons are killed and stopped: writes and
//! reads, also around the page cache and with the cache dropped, truncations, maps, copies within the file,
//! allocations, syncs, reopenings and renames. After each operation that tells bytes, they are compared with the model.
//!
//! In the manner of fsx, and with all of its operations that the kernel offers of such a mount. The modes of
//! `fallocate` that move bytes are refused, and must change nothing. `SHOAL_LONG=1` makes it ten times as long, `SHOAL_SEED` begins elsewhere.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::libc;

use crate::fixture::{Fixture, Pages, Prng};
use crate::nemesis::{Plan, is_long, under_nemesis};

/// The file is never longer.
const LEN_MAX: u64 = 5 << 20;
/// Longest single write, read or map.
const PIECE_MAX: u64 = 192 << 10;
/// An operation that takes longer has waited for somebody to come back.
const WAITED: Duration = Duration::from_millis(500);

struct Exerciser {
    path: PathBuf,
    file: File,
    model: Vec<u8>,
    prng: Prng,
    /// The last operations, for whoever looks at a failure.
    log: Vec<String>,
    slowest: Duration,
    /// In operations that have waited.
    waited: Duration,
}

impl Exerciser {
    fn new(dir: &Path, seed: u64) -> Exerciser {
        let path = dir.join(format!("exercise-{seed}-0"));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("a file");
        let (model, prng, log) = (Vec::new(), Prng::new(seed), Vec::new());
        Exerciser { path, file, model, prng, log, slowest: Duration::ZERO, waited: Duration::ZERO }
    }

    /// An offset and a length: mostly within the file, of all sizes.
    fn range(&mut self, end: u64) -> (u64, usize) {
        let most = [512, 4096, 30_000, PIECE_MAX][self.prng.below(4) as usize];
        let mut offset = self.prng.below(end.max(1));
        if self.prng.below(3) == 0 {
            offset &= !4095;
        }
        (offset, (1 + self.prng.below(most)).min(LEN_MAX - offset) as usize)
    }

    fn step(&mut self, number: u64) {
        let begun = Instant::now();
        let len = self.model.len() as u64;
        let what = match self.prng.below(100) {
            0..30 => self.write(),
            30..75 => self.read(),
            75..77 => self.truncate(),
            77..81 => self.write_mapped(),
            81..90 => self.read_mapped(),
            90 => self.sync(),
            91 => self.reopen(),
            92 => self.rename(number),
            93 => self.append(),
            94 => self.write_direct(),
            95 => self.read_direct(),
            96 => self.copy_within(),
            97 => self.allocate(),
            98 => self.drop_cache(),
            _ => self.check_length(),
        };
        let took = begun.elapsed();
        self.slowest = self.slowest.max(took);
        self.waited += if took > WAITED { took } else { Duration::ZERO };
        self.log.push(format!("{number}: {what} (length before {len})"));
        if self.log.len() > 200 {
            self.log.drain(..100);
        }
    }

    /// Fails, with what was done before.
    fn check(&self, what: &str, offset: u64, found: &[u8], right: &[u8]) {
        if found == right {
            return;
        }
        let differs = found.iter().zip(right).position(|(found, right)| found != right);
        let last = self.log.iter().rev().take(40).rev().cloned().collect::<Vec<_>>().join("\n");
        panic!(
            "{what} at {offset}: {} bytes for {}, different from byte {differs:?} on; file of {} bytes\n{last}",
            found.len(),
            right.len(),
            self.model.len()
        );
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset as usize + bytes.len();
        self.model.resize(self.model.len().max(end), 0);
        self.model[offset as usize..end].copy_from_slice(bytes);
    }

    fn write(&mut self) -> String {
        let beyond = if self.prng.below(8) == 0 { 300_000 } else { 1 };
        let (offset, len) = self.range((self.model.len() as u64 + beyond).min(LEN_MAX - 1));
        let bytes = self.prng.bytes(len);
        self.file.write_all_at(&bytes, offset).expect("a write");
        self.put(offset, &bytes);
        format!("write {offset} {len}")
    }

    fn append(&mut self) -> String {
        let (offset, len) = (self.model.len() as u64, self.range(1).1);
        if offset + len as u64 > LEN_MAX {
            return "nothing".to_owned();
        }
        let bytes = self.prng.bytes(len);
        self.file.write_all_at(&bytes, offset).expect("an append");
        self.put(offset, &bytes);
        format!("append {len}")
    }

    fn read(&mut self) -> String {
        let (offset, len) = self.range(self.model.len() as u64 + 5000);
        let mut found = vec![0xee; len];
        let mut done = 0;
        loop {
            let n = self.file.read_at(&mut found[done..], offset + done as u64).expect("a read");
            done += n;
            if n == 0 || done == len {
                break;
            }
        }
        let start = self.model.len().min(offset as usize);
        let end = self.model.len().min(offset as usize + len);
        self.check("read", offset, &found[..done], &self.model[start..end]);
        format!("read {offset} {len}")
    }

    fn truncate(&mut self) -> String {
        let len = match self.prng.below(6) {
            0 => 0,
            1 | 2 => self.prng.below(LEN_MAX),
            _ => self.prng.below(self.model.len() as u64 + 1),
        };
        self.file.set_len(len).expect("a truncation");
        self.model.resize(len as usize, 0);
        format!("truncate {len}")
    }

    /// Another handle, around the page cache.
    fn direct(&self) -> File {
        let options = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&self.path);
        options.expect("the file, for direct reads and writes")
    }

    fn write_direct(&mut self) -> String {
        let offset = self.prng.below(self.model.len() as u64 + 100_000) & !4095;
        let len = (1 + self.prng.below(Pages::LEN as u64 / 4096)) as usize * 4096;
        if offset + len as u64 > LEN_MAX {
            return "nothing".to_owned();
        }
        let bytes = self.prng.bytes(len);
        let mut pages = Pages::new();
        pages.0[..len].copy_from_slice(&bytes);
        self.direct().write_all_at(&pages.0[..len], offset).expect("a direct write");
        self.put(offset, &bytes);
        format!("write direct {offset} {len}")
    }

    fn read_direct(&mut self) -> String {
        let offset = self.prng.below(self.model.len() as u64 + 5000) & !4095;
        let mut pages = Pages::new();
        let n = self.direct().read_at(&mut pages.0, offset).expect("a direct read");
        let start = self.model.len().min(offset as usize);
        let end = self.model.len().min(start + Pages::LEN);
        self.check("read direct", offset, &pages.0[..n], &self.model[start..end]);
        format!("read direct {offset} {n}")
    }

    /// Copies a range of the file to another place, by the kernel.
    fn copy_within(&mut self) -> String {
        let Some((from, len)) = self.mapped_range() else { return "nothing".to_owned() };
        let to = self.prng.below(self.model.len() as u64 + 50_000);
        if to + len as u64 > LEN_MAX || from.abs_diff(to) < len as u64 {
            return "nothing".to_owned();
        }
        let (mut at, mut into, mut left) = (from as i64, to as i64, len);
        while left > 0 {
            let fd = self.file.as_raw_fd();
            // SAFETY: two offsets that live as long as the call.
            let n = unsafe { libc::copy_file_range(fd, &raw mut at, fd, &raw mut into, left, 0) };
            assert!(n > 0, "copy_file_range: {n}, {}", std::io::Error::last_os_error());
            left -= n as usize;
        }
        let bytes = self.model[from as usize..from as usize + len].to_vec();
        self.put(to, &bytes);
        format!("copy {from} to {to}, {len}")
    }

    /// Allocates space, makes holes, and lays zeros.
    fn allocate(&mut self) -> String {
        let (offset, len) = self.range((self.model.len() as u64 + 50_000).min(LEN_MAX - 1));
        let (offset, end) = (offset as usize, offset as usize + len);
        let fd = self.file.as_raw_fd();
        let modes = [
            0,
            libc::FALLOC_FL_KEEP_SIZE,
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
            libc::FALLOC_FL_ZERO_RANGE,
            libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
            libc::FALLOC_FL_COLLAPSE_RANGE,
            libc::FALLOC_FL_INSERT_RANGE,
        ];
        let mode = modes[self.prng.below(modes.len() as u64) as usize];
        // SAFETY: numbers only.
        let done = unsafe { libc::fallocate(fd, mode, offset as i64, len as i64) };
        let error = (done != 0).then(|| std::io::Error::last_os_error().raw_os_error());
        let moves = mode & (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) != 0;
        assert_eq!(error, moves.then_some(Some(libc::EOPNOTSUPP)), "fallocate, mode {mode}");
        if !moves && mode & libc::FALLOC_FL_KEEP_SIZE == 0 {
            self.model.resize(self.model.len().max(end), 0);
        }
        if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0 {
            let size = self.model.len();
            self.model[offset.min(size)..end.min(size)].fill(0);
        }
        format!("allocate {offset} {len} mode {mode}")
    }

    /// The kernel forgets the pages that it need not write any more.
    fn drop_cache(&mut self) -> String {
        // SAFETY: numbers only.
        let done = unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(done, 0, "posix_fadvise");
        "drop the cache".to_owned()
    }

    /// A range that lies within the file, whole pages before its start.
    fn mapped_range(&mut self) -> Option<(u64, usize)> {
        let (offset, len) = self.range(self.model.len() as u64);
        let len = len.min(self.model.len().saturating_sub(offset as usize));
        (len > 0).then_some((offset, len))
    }

    fn write_mapped(&mut self) -> String {
        let Some((offset, len)) = self.mapped_range() else { return "nothing".to_owned() };
        let bytes = self.prng.bytes(len);
        let sync = self.prng.below(2) == 0;
        let map = Map::new(&self.file, offset, len);
        map.bytes().copy_from_slice(&bytes);
        if sync {
            map.sync();
        }
        drop(map);
        self.put(offset, &bytes);
        format!("write mapped {offset} {len} sync {sync}")
    }

    fn read_mapped(&mut self) -> String {
        let Some((offset, len)) = self.mapped_range() else { return "nothing".to_owned() };
        let map = Map::new(&self.file, offset, len);
        let found = map.bytes().to_vec();
        let right = &self.model[offset as usize..offset as usize + len];
        self.check("read mapped", offset, &found, right);
        format!("read mapped {offset} {len}")
    }

    fn sync(&mut self) -> String {
        if self.prng.below(2) == 0 {
            self.file.sync_all().expect("an fsync");
        } else {
            self.file.sync_data().expect("an fdatasync");
        }
        "sync".to_owned()
    }

    fn reopen(&mut self) -> String {
        self.file = OpenOptions::new().read(true).write(true).open(&self.path).expect("the file");
        "reopen".to_owned()
    }

    fn rename(&mut self, number: u64) -> String {
        let name = self.path.file_name().and_then(|name| name.to_str()).expect("a name");
        let stem = name.rsplit_once('-').expect("a number").0;
        let to = self.path.with_file_name(format!("{stem}-{number}"));
        fs::rename(&self.path, &to).expect("a rename");
        self.path = to;
        "rename".to_owned()
    }

    fn check_length(&mut self) -> String {
        let found = fs::metadata(&self.path).expect("attributes").len();
        assert_eq!(found, self.model.len() as u64, "the length; {:?}", self.log.last());
        "stat".to_owned()
    }

    /// The whole file, by another handle.
    fn check_all(&self) {
        self.check("everything", 0, &fs::read(&self.path).expect("the file"), &self.model);
    }
}

/// A range of a file in memory, shared.
struct Map {
    start: *mut libc::c_void,
    mapped: usize,
    skip: usize,
    len: usize,
}

impl Map {
    fn new(file: &File, offset: u64, len: usize) -> Map {
        let skip = (offset % 4096) as usize;
        let mapped = skip + len;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = (offset - skip as u64) as libc::off_t;
        // SAFETY: a fresh mapping at a place that the kernel chooses; nothing else refers to it.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), mapped, protection, libc::MAP_SHARED, file.as_raw_fd(), at)
        };
        assert_ne!(start, libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        Map { start, mapped, skip, len }
    }

    #[expect(clippy::mut_from_ref, reason = "one slice at a time, by the callers above")]
    fn bytes(&self) -> &mut [u8] {
        // SAFETY: the mapping is as long, lives as long as `self`, and only one slice of it is made.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast::<u8>().add(self.skip), self.len) }
    }

    fn sync(&self) {
        // SAFETY: the range is the mapping's.
        let done = unsafe { libc::msync(self.start, self.mapped, libc::MS_SYNC) };
        assert_eq!(done, 0, "msync: {}", std::io::Error::last_os_error());
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping's, and no slice of it is left.
        unsafe { libc::munmap(self.start, self.mapped) };
    }
}

fn exercise(name: &str, options: &[&str], operations: u64, plan: Option<&Plan>) {
    let fixture = Fixture::new(name);
    fixture.up(6, "4+2", "512M");
    let mount = fixture.mount_with("mnt", options);
    let seed = std::env::var("SHOAL_SEED").map_or(1, |text| text.parse().expect("a number"));
    let work = || {
        let mut exerciser = Exerciser::new(&mount, seed);
        for number in 0..operations {
            exerciser.step(number);
            if number % 5000 == 4999 {
                exerciser.check_all();
            }
        }
        exerciser.file.sync_all().expect("an fsync");
        exerciser.check_all();
        // The file is closed here: nobody may have it open when its mount ends.
        let Exerciser { path, model, slowest, waited, .. } = exerciser;
        (path, model, slowest, waited)
    };
    let begun = Instant::now();
    let ((path, model, slowest, waited), faults) = match plan {
        Some(plan) => under_nemesis(&fixture, plan, seed, work),
        None => (work(), 0),
    };
    let took = begun.elapsed();
    println!(
        "{name}: {operations} operations in {took:?}, of which {waited:?} waiting; {faults} faults, the slowest took {slowest:?}"
    );
    fixture.umount(&mount);
    let mount = fixture.mount_with("mnt-2", options);
    let found = fs::read(mount.join(path.file_name().expect("a name"))).expect("the file");
    let differs = found.iter().zip(&model).position(|(found, right)| found != right);
    assert!(
        found == model,
        "another mount: {} bytes for {}, different from {differs:?} on",
        found.len(),
        model.len()
    );
    assert!(plan.is_none_or(|plan| slowest < plan.pause_max()), "a call took {slowest:?}");
    fixture.verified();
}

/// `SHOAL_OPERATIONS` says another number.
fn operations() -> u64 {
    let usual = if is_long() { 1_000_000 } else { 100_000 };
    std::env::var("SHOAL_OPERATIONS").map_or(usual, |text| text.parse().expect("a number"))
}

/// A brick is killed or stopped now and then.
fn killer() -> Plan {
    let victims = (1..=6).map(|brick| format!("b{brick}")).collect();
    let every = if is_long() { 15_000..20_000 } else { 3_000..6_000 };
    Plan { victims, every, ..Plan::harsh(6) }
}

#[test]
fn a_file_is_what_its_model_is() {
    let operations = operations();
    exercise("exercise", &[], operations, Some(&killer()));
}

/// The kernel holds writes back and has them written when it wants.
#[test]
fn a_file_is_what_its_model_is_in_an_exclusive_mount() {
    let operations = operations();
    exercise("exercise-alone", &["--exclusive"], operations, Some(&killer()));
}
