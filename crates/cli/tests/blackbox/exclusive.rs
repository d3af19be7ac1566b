//! An exclusive mount is the only one of its volume, and what the kernel holds back for it is not lost: others try to
//! mount, the mount dies or loses its lease, and files are compared by the next mount.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fixture::{Fixture, Prng, kill_now, text, wait_for, within};

const EXCLUSIVE: [&str; 1] = ["--exclusive"];

#[test]
fn an_exclusive_mount_is_the_only_one() {
    let fixture = Fixture::new("exclusive");
    fixture.up(3, "2+1", "512M");
    let a = fixture.mount_with("a", &EXCLUSIVE);
    fs::write(a.join("file"), b"mine").expect("a file");
    for options in [&EXCLUSIVE[..], &[]] {
        let (_, second) = fixture.try_mount("b", options);
        second.refused(&["is mounted exclusively at ", text(&a), " for ", "shoal umount", "(3.5 s)"]);
        assert!(!second.stderr.contains("without --exclusive"), "that would not help:\n{}", second.stderr);
    }
    let client = &fixture.status()["clients"][0];
    assert_eq!((&client["volume"], &client["exclusive"]), (&"main".into(), &true.into()));
    assert!(fixture.must(&["status"]).stdout.contains(&format!("mounted exclusively at {}", host(&a))));

    // The service remembers over a restart, also a hard one.
    fixture.kill("meta");
    fixture.must(&["up"]);
    fixture.try_mount("b", &[]).1.refused(&["is mounted exclusively at ", text(&a)]);
    assert_eq!(fs::read(a.join("file")).expect("the file"), b"mine");

    // The end of the mount lets others in at once, and any of them keeps an exclusive one out.
    fixture.umount(&a);
    let b = fixture.mount("b");
    fixture.try_mount("a", &EXCLUSIVE).1.refused(&["is mounted at ", text(&b), "without --exclusive"]);
    let a = fixture.mount("a");
    assert_eq!(fs::read(a.join("file")).expect("the file"), b"mine");
    fixture.umount(&a);
    fixture.umount(&b);
    for _ in 0..5 {
        let a = fixture.mount_with("a", &EXCLUSIVE);
        fixture.umount(&a);
    }
    fixture.check_logs(&[]);
}

/// A mount as the service describes it.
fn host(dir: &Path) -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    format!("{}:{}", name.trim(), dir.display())
}

/// Files and what must be in them.
type Right = BTreeMap<PathBuf, Vec<u8>>;

/// Writes every way that the kernel may hold back.
fn write_every_way(dir: &Path, prng: &mut Prng) -> Right {
    let mut right = Right::new();
    // Small writes in a row, by a handle that cannot read, and over each other.
    let mut bytes = prng.bytes(3 << 20);
    let mut file = File::create(dir.join("row")).expect("a file");
    bytes.chunks(1000).for_each(|chunk| file.write_all(chunk).expect("a write"));
    file.write_all_at(&[7; 5000], 4_100).expect("a write over others");
    bytes[4_100..9_100].fill(7);
    right.insert("row".into(), bytes);
    // Appends by two handles in turns.
    let open = || OpenOptions::new().append(true).create(true).open(dir.join("log")).expect("a file");
    let (mut one, mut two) = (open(), open());
    let mut bytes = Vec::new();
    for round in 0..500 {
        let line = format!("line {round} of the log\n");
        if round % 3 == 0 { &mut one } else { &mut two }.write_all(line.as_bytes()).expect("an append");
        bytes.extend(line.bytes());
    }
    right.insert("log".into(), bytes);
    // Cut, within a page and beyond, while pages are dirty; then longer again.
    let mut bytes = prng.bytes(700_000);
    let file = File::create(dir.join("cut")).expect("a file");
    file.write_all_at(&bytes, 0).expect("a write");
    file.set_len(300_001).expect("shorter");
    file.set_len(400_000).expect("longer");
    file.write_all_at(b"end", 500_000).expect("a write far out");
    bytes.truncate(300_001);
    bytes.resize(500_000, 0);
    bytes.extend(b"end");
    right.insert("cut".into(), bytes);
    // Through a mapping that outlives the handle.
    let mut bytes = prng.bytes(200_000);
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).open(dir.join("map")).expect("a file");
    file.write_all_at(&bytes, 0).expect("a write");
    let map = Map::of(file, bytes.len());
    for at in (0..bytes.len()).step_by(1777) {
        map.set(at, 0x55);
        bytes[at] = 0x55;
    }
    drop(map);
    right.insert("map".into(), bytes);
    // Written under one name, closed under another, over a third; and without any.
    fs::write(dir.join("old"), prng.bytes(9_999)).expect("a file");
    let bytes = prng.bytes(123_456);
    let mut file = File::create(dir.join("fresh")).expect("a file");
    file.write_all(&bytes[..60_000]).expect("a write");
    fs::rename(dir.join("fresh"), dir.join("old")).expect("a rename");
    file.write_all(&bytes[60_000..]).expect("a write");
    right.insert("old".into(), bytes);
    let mut file = File::create(dir.join("gone")).expect("a file");
    file.write_all(&prng.bytes(5_000)).expect("a write");
    fs::remove_file(dir.join("gone")).expect("the name goes");
    file.write_all(&prng.bytes(5_000)).expect("a write");
    right
}

/// A shared mapping of a file, as its first bytes.
struct Map {
    at: *mut libc::c_void,
    len: usize,
}

impl Map {
    fn of(file: File, len: usize) -> Map {
        let (prot, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing else.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Map { at, len }
    }

    fn set(&self, index: usize, byte: u8) {
        assert!(index < self.len);
        // SAFETY: within the mapping, which lives as long as `self`; the file is not cut meanwhile.
        unsafe { self.at.cast::<u8>().add(index).write_volatile(byte) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own and nobody uses it any more.
        unsafe { libc::munmap(self.at, self.len) };
    }
}

/// Everything is as it must be, and was last changed when it was.
fn check(dir: &Path, right: &Right, times: &BTreeMap<PathBuf, (i64, i64)>) {
    for (name, bytes) in right {
        let seen = fs::read(dir.join(name)).expect("the file");
        let differs = seen.iter().zip(bytes).position(|(a, b)| a != b);
        assert_eq!((seen.len(), differs), (bytes.len(), None), "{}", name.display());
    }
    assert_eq!(&modified(dir), times);
}

/// When the files were changed last.
fn modified(dir: &Path) -> BTreeMap<PathBuf, (i64, i64)> {
    let entries = fs::read_dir(dir).expect("a listing").flatten();
    let time = |e: fs::DirEntry| (e.file_name().into(), e.metadata().expect("there"));
    entries.map(time).map(|(name, meta)| (name, (meta.mtime(), meta.mtime_nsec()))).collect()
}

#[test]
fn what_the_kernel_held_back_is_there_after_the_mount() {
    let fixture = Fixture::new("write-back");
    fixture.up(6, "4+2", "1G");
    let mut prng = Prng::new(21);
    let mount = fixture.mount_with("mnt", &EXCLUSIVE);
    let mut right = write_every_way(&mount, &mut prng);
    // Times that were set stay, whatever came before and after.
    let past = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let touch = |name: &str, time: SystemTime| {
        let file = OpenOptions::new().write(true).open(mount.join(name)).expect("the file");
        file.set_times(FileTimes::new().set_modified(time)).expect("a time");
    };
    touch("log", past);
    fs::set_permissions(mount.join("row"), fs::Permissions::from_mode(0o600)).expect("a mode");
    fs::rename(mount.join("log"), mount.join("log.1")).expect("a rename");
    let log = right.remove(Path::new("log")).expect("it was written");
    right.insert("log.1".into(), log);
    let times = modified(&mount);
    assert_eq!(times[Path::new("log.1")], (1_000_000_000, 123_456_789));
    check(&mount, &right, &times);
    fixture.umount(&mount);

    // Pages that the kernel does not have are read before a part of them is written, by whatever handle.
    let mount = fixture.mount_with("mnt", &EXCLUSIVE);
    check(&mount, &right, &times);
    fixture.umount(&mount);
    let mount = fixture.mount_with("mnt", &EXCLUSIVE);
    for name in ["row", "old"] {
        let file = OpenOptions::new().write(true).open(mount.join(name)).expect("the file");
        let bytes = right.get_mut(Path::new(name)).expect("known");
        for _ in 0..200 {
            let at = prng.below(bytes.len() as u64 - 300) as usize;
            let len = 1 + prng.below(299) as usize;
            let part = prng.bytes(len);
            file.write_all_at(&part, at as u64).expect("a write");
            bytes[at..at + part.len()].copy_from_slice(&part);
        }
    }
    let times = modified(&mount);
    fixture.umount(&mount);
    check(&fixture.mount("mnt"), &right, &times);
    fixture.check_logs(&[]);
}

/// The blocks of a file that is written at random.
struct Blocks {
    file: File,
    /// What each was last written with; 0 never.
    last: Vec<u64>,
}

impl Blocks {
    const BYTES: usize = 4096;

    fn block(at: usize, salt: u64) -> Vec<u8> {
        Prng::new(salt * 100_003 + at as u64).bytes(Blocks::BYTES)
    }

    fn write(&mut self, at: usize, salt: u64) {
        self.file.write_all_at(&Blocks::block(at, salt), (at * Blocks::BYTES) as u64).expect("a write");
        self.last[at] = salt;
    }

    fn check(path: &Path, last: &[u64]) {
        let bytes = fs::read(path).expect("the file");
        for (at, salt) in last.iter().enumerate() {
            let range = at * Blocks::BYTES..(at + 1) * Blocks::BYTES;
            let right = if *salt == 0 { vec![0; Blocks::BYTES] } else { Blocks::block(at, *salt) };
            let seen = bytes.get(range.start.min(bytes.len())..range.end.min(bytes.len())).expect("a range");
            assert!(*seen == right[..seen.len()], "{}, block {at}, written as {salt}", path.display());
            assert!(seen.len() == right.len() || *salt == 0, "{}, block {at} is cut off", path.display());
        }
    }
}

#[test]
fn random_blocks_by_many_writers_are_there_after_the_mount() {
    const WRITERS: u64 = 6;
    const BLOCKS: usize = 4096;
    const WRITES: u64 = 6000;
    let fixture = Fixture::new("random-blocks");
    fixture.up(6, "4+2", "1G");
    let mount = fixture.mount_with("mnt", &EXCLUSIVE);
    let work = |writer: u64| {
        let path = mount.join(format!("w{writer}"));
        let options = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let mut blocks = Blocks { file: options.expect("a file"), last: vec![0; BLOCKS] };
        let mut prng = Prng::new(writer + 40);
        for salt in 1..=WRITES {
            blocks.write(prng.below(BLOCKS as u64) as usize, salt);
            if salt % 1500 == 0 && writer.is_multiple_of(2) {
                blocks.file.sync_all().expect("stable");
            }
            if salt % 50 == 0 {
                let at = prng.below(BLOCKS as u64) as usize;
                let mut seen = vec![0; Blocks::BYTES];
                let len = blocks.file.read_at(&mut seen, (at * Blocks::BYTES) as u64).expect("a read");
                let salt = blocks.last[at];
                assert!(salt == 0 || (len == seen.len() && seen == Blocks::block(at, salt)), "block {at}");
            }
        }
        Blocks::check(&path, &blocks.last);
        (format!("w{writer}"), blocks.last)
    };
    let written: Vec<_> = within(Duration::from_secs(180), "random blocks", || {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || work(writer))).collect();
            threads.into_iter().map(|t| t.join().expect("no thread fails")).collect()
        })
    });
    fixture.umount(&mount);
    let mount = fixture.mount("mnt");
    written.iter().for_each(|(name, last)| Blocks::check(&mount.join(name), last));
    fixture.check_logs(&[]);
}

#[test]
fn what_was_synced_survives_the_death_of_the_mount() {
    let fixture = Fixture::new("exclusive-dead");
    fixture.up(4, "2+2", "1G");
    let mount = fixture.mount_with("mnt", &EXCLUSIVE);
    let options = OpenOptions::new().read(true).write(true).create_new(true).open(mount.join("file"));
    let mut blocks = Blocks { file: options.expect("a file"), last: vec![0; 1000] };
    let mut prng = Prng::new(8);
    (1..=3000).for_each(|salt| blocks.write(prng.below(1000) as usize, salt));
    blocks.file.sync_all().expect("stable");
    let mut log = OpenOptions::new().append(true).create(true).open(mount.join("log")).expect("a file");
    for line in 0..100 {
        writeln!(log, "{line}").expect("an append");
        log.sync_all().expect("stable");
    }
    let len = log.metadata().expect("attributes").len();
    kill_now(fixture.mount_pid(&mount));
    fixture.try_mount("other", &[]).1.refused(&["is mounted exclusively at ", "(3.5 s)"]);
    let Blocks { file, last } = blocks;
    drop((file, log));
    fixture.umount(&mount);
    let back = || fixture.try_mount("mnt", &EXCLUSIVE).1.ok;
    assert!(wait_for(Duration::from_secs(20), back), "the lease of the dead one runs out");
    Blocks::check(&mount.join("file"), &last);
    assert_eq!(fs::read(mount.join("log")).expect("the log").len() as u64, len);
}

#[test]
fn an_exclusive_mount_that_lost_its_lease_is_over() {
    let fixture = Fixture::new("exclusive-lost");
    fixture.up(3, "2+1", "512M");
    let mount = fixture.mount_with("mnt", &EXCLUSIVE);
    let mut file = File::create(mount.join("file")).expect("a file");
    file.write_all(b"stable").expect("a write");
    file.sync_all().expect("stable");
    drop(file);
    // Nothing of the mount is touched while its daemon stands still: whoever did would stand still as well.
    let daemon = Pid::from_raw(fixture.mount_pid(&mount));
    kill(daemon, Signal::SIGSTOP).expect("the daemon runs");
    fixture.try_mount("other", &[]).1.refused(&["is mounted exclusively at ", "(3.5 s)"]);
    let let_in = wait_for(Duration::from_secs(20), || fixture.try_mount("other", &[]).1.ok);
    kill(daemon, Signal::SIGCONT).expect("the daemon stands still");
    assert!(let_in, "the lease of a daemon that stands still runs out");

    within(Duration::from_secs(90), "a mount without its lease", || {
        File::create(mount.join("late")).expect_err("the volume is another one's by now");
        File::open(mount.join("file")).expect_err("nor is anything read that may be old");
    });
    let other = fixture.path("other");
    assert_eq!(fs::read(other.join("file")).expect("the file"), b"stable");
    assert!(!other.join("late").exists());
    fixture.umount(&mount);
    fs::write(other.join("after"), b"mine").expect("the other mount is not harmed");
    fixture.umount(&other);
}
