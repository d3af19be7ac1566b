//! A mount behaves like a file system of this machine: the same random operations run on a mount and on a tmpfs, and
//! what they report is compared; single cases follow.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::fixture::{Fixture, Prng, wait_for, within};
use crate::script::{Script, tree};

/// A directory in memory, to compare with.
struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn new(name: &str) -> Tmpfs {
        let dir = Path::new("/dev/shm").join(format!("shoal-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).expect("/dev/shm is a tmpfs");
        Tmpfs(dir)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn random_operations_do_what_a_tmpfs_does() {
    random_operations("files", 1..=4, &[]);
}

#[test]
fn random_operations_on_an_exclusive_mount_do_too() {
    random_operations("files-exclusive", 5..=10, &["--exclusive"]);
}

fn random_operations(name: &str, seeds: std::ops::RangeInclusive<u64>, options: &[&str]) {
    const STEPS: usize = 400;
    let fixture = Fixture::new(name);
    fixture.up(6, "4+2", "1G");
    let mut expected = Vec::new();
    let mount = fixture.mount_with("mnt", options);
    for seed in seeds {
        let tmpfs = Tmpfs::new(&format!("files-{seed}"));
        let dir = mount.join(format!("seed-{seed}"));
        fs::create_dir(&dir).expect("a directory");
        let (mut here, mut there) = (Script::new(&dir, seed), Script::new(&tmpfs.0, seed));
        for step in 0..STEPS {
            let (seen, right) = (here.step(), there.step());
            assert_eq!(seen, right, "seed {seed}, step {step}");
        }
        drop((here, there));
        assert_eq!(tree(&dir), tree(&tmpfs.0), "seed {seed}");
        expected.push((seed, tree(&tmpfs.0)));
    }
    fixture.umount(&mount);
    let mount = fixture.mount("mnt-2");
    for (seed, right) in expected {
        assert_eq!(tree(&mount.join(format!("seed-{seed}"))), right, "seed {seed}, read back by a new mount");
    }
    fixture.check_logs(&[]);
}

#[test]
fn names_have_255_bytes_and_holes_are_zeros() {
    let fixture = Fixture::new("names");
    fixture.up(3, "2+1", "512M");
    let mount = fixture.mount("mnt");
    let errno = |result: std::io::Result<()>| result.err().and_then(|e| e.raw_os_error());
    let name = |len: usize| mount.join("x".repeat(len));
    fs::write(name(255), b"long").expect("255 bytes are a name");
    assert_eq!(fs::read(name(255)).expect("it is there"), b"long");
    assert_eq!(errno(fs::write(name(256), b"")), Some(nix::libc::ENAMETOOLONG));
    assert_eq!(errno(fs::create_dir(name(256))), Some(nix::libc::ENAMETOOLONG));
    assert_eq!(errno(fs::rename(name(255), name(256))), Some(nix::libc::ENAMETOOLONG));

    // The status file is found by name and listed nowhere.
    let listed: Vec<_> = fs::read_dir(&mount).expect("a listing").flatten().map(|e| e.file_name()).collect();
    assert_eq!(listed, [name(255).file_name().expect("a name")]);
    assert!(fs::read_to_string(mount.join(".shoal/status")).expect("status").contains("bytes_written 4\n"));

    // A hole of 5 GiB reads as zeros and takes no space.
    let sparse = mount.join("sparse");
    let file = File::create(&sparse).expect("a file");
    file.write_all_at(b"end", 5 << 30).expect("a write far out");
    drop(file);
    let file = File::open(&sparse).expect("the file");
    assert_eq!(file.metadata().expect("attributes").len(), (5 << 30) + 3);
    let mut middle = vec![1; 100_000];
    file.read_exact_at(&mut middle, 3 << 30).expect("a read in the hole");
    assert!(middle.iter().all(|b| *b == 0));

    // Growing after shrinking shows zeros, not what was there.
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(mount.join("shrunk"));
    let file = file.expect("a file");
    file.write_all_at(&[7; 300_000], 0).expect("a write");
    file.sync_all().expect("stable");
    file.set_len(1_000).expect("shorter");
    file.set_len(300_000).expect("longer");
    let mut bytes = vec![9; 300_000];
    file.read_exact_at(&mut bytes, 0).expect("a read");
    assert!(bytes[..1_000].iter().all(|b| *b == 7) && bytes[1_000..].iter().all(|b| *b == 0));
    fixture.check_logs(&[]);
}

/// What was heard of a directory a moment ago is not told again once something has changed here.
#[test]
fn a_directory_shows_at_once_what_changed() {
    let fixture = Fixture::new("listed");
    fixture.up(3, "2+1", "512M");
    let mount = fixture.mount("mnt");
    let dir = mount.join("dir");
    let at = |name: &str| dir.join(name);
    fs::create_dir(&dir).expect("a directory");
    // The listing makes the kernel ask for the attributes again.
    let seen = || {
        let names: BTreeSet<_> =
            fs::read_dir(&dir).expect("a listing").flatten().map(|e| e.file_name()).collect();
        let meta = fs::metadata(&dir).expect("attributes");
        (names, meta.nlink(), meta.mode() & 0o777, (meta.mtime(), meta.mtime_nsec()))
    };
    type Change<'a> = (&'a str, usize, u64, &'a dyn Fn() -> std::io::Result<()>);
    let changes: [Change<'_>; 12] = [
        ("create", 1, 2, &|| File::create_new(at("file")).map(drop)),
        ("link", 2, 2, &|| fs::hard_link(at("file"), at("link"))),
        ("symlink", 3, 2, &|| std::os::unix::fs::symlink("file", at("symlink"))),
        ("mkfifo", 4, 2, &|| Ok(nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU)?)),
        ("mkdir", 5, 3, &|| fs::create_dir(at("sub"))),
        ("rename", 5, 3, &|| fs::rename(at("file"), at("renamed"))),
        ("rename out", 4, 2, &|| fs::rename(at("sub"), mount.join("sub"))),
        ("rename in", 5, 3, &|| fs::rename(mount.join("sub"), at("sub"))),
        ("rmdir", 4, 2, &|| fs::remove_dir(at("sub"))),
        ("unlink", 3, 2, &|| fs::remove_file(at("link"))),
        ("utimes", 3, 2, &|| File::open(&dir)?.set_modified(std::time::UNIX_EPOCH)),
        ("chmod", 3, 2, &|| fs::set_permissions(&dir, fs::Permissions::from_mode(0o701))),
    ];
    for (what, count, links, change) in changes {
        let before = seen();
        assert_eq!(before, seen(), "before {what}");
        change().expect(what);
        let after = seen();
        assert_eq!((after.0.len(), after.1), (count, links), "entries and links after {what}");
        if what == "chmod" {
            assert_eq!(after.2, 0o701);
        } else {
            assert_ne!(after.3, before.3, "its time after {what}");
        }
    }
    fixture.check_logs(&[]);
}

/// The kernel opens a pipe by itself: whether one is open, nobody else knows.
#[test]
fn an_open_pipe_without_a_name_has_attributes() {
    let fixture = Fixture::new("pipes");
    fixture.up(3, "2+1", "512M");
    let mounts = [fixture.mount("mnt-0"), fixture.mount("mnt-1")];
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o640);
    for remover in &mounts {
        let path = mounts[0].join("pipe");
        nix::unistd::mkfifo(&path, mode).expect("a pipe");
        let pipe = OpenOptions::new().read(true).write(true).open(&path).expect("an open pipe");
        let inode = pipe.metadata().expect("attributes").ino();
        fs::remove_file(remover.join("pipe")).expect("its name goes");
        // What the kernel may believe for a second must not be what answers.
        thread::sleep(Duration::from_millis(1200));
        let left = pipe.metadata().expect("attributes without a name");
        assert_eq!((left.nlink(), left.ino(), left.mode() & 0o7777), (0, inode, 0o640));
        assert!(path.metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound));
    }
    fixture.check_logs(&[]);
}

#[test]
fn a_file_without_a_name_lives_until_it_is_closed() {
    let fixture = Fixture::new("unlinked");
    fixture.up(3, "2+1", "512M");
    let mount = fixture.mount("mnt");
    let free = |mount: &Path| {
        let space = nix::sys::statvfs::statvfs(mount).expect("statfs");
        space.blocks_available() * space.fragment_size()
    };
    let before = free(&mount);
    let path = mount.join("file");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("a file");
    let bytes = Prng::new(3).bytes(40 << 20);
    file.write_all(&bytes[..20 << 20]).expect("a write");
    fs::remove_file(&path).expect("the name goes");
    assert!(!path.exists());
    file.write_all(&bytes[20 << 20..]).expect("a write without a name");
    file.sync_all().expect("stable without a name");
    assert_eq!(file.metadata().expect("attributes").nlink(), 0);
    let mut seen = Vec::new();
    std::io::Seek::rewind(&mut file).expect("back to the start");
    file.read_to_end(&mut seen).expect("a read");
    assert!(seen == bytes, "the bytes are those that were written");
    let soon =
        |condition: &dyn Fn(u64) -> bool| wait_for(Duration::from_secs(30), || condition(free(&mount)));
    assert!(soon(&|now| now + (35 << 20) <= before), "40 MiB take space");
    drop(file);
    assert!(soon(&|now| now + (5 << 20) >= before), "the space of the deleted file comes back");
    fixture.check_logs(&[]);
}

#[test]
fn many_threads_at_once_read_what_they_wrote() {
    let fixture = Fixture::new("threads");
    fixture.up(4, "2+2", "1G");
    let mount = fixture.mount("mnt");
    let work = |thread: u64| {
        let dir = mount.join(format!("t{thread}"));
        fs::create_dir(&dir).expect("a directory");
        let mut prng = Prng::new(thread + 1);
        for file in 0..30 {
            let len = prng.below(400_000) as usize;
            let bytes = prng.bytes(len);
            let path = dir.join(file.to_string());
            fs::write(&path, &bytes).expect("a file");
            assert!(fs::read(&path).expect("the file") == bytes, "{}", path.display());
            if file % 3 == 0 {
                fs::rename(&path, dir.join(format!("{file}-moved"))).expect("a rename");
            }
        }
        assert_eq!(fs::read_dir(&dir).expect("a listing").count(), 30);
    };
    within(Duration::from_secs(120), "16 threads on one mount", || {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|thread| scope.spawn(move || work(thread))).collect();
            threads.into_iter().for_each(|t| t.join().expect("no thread fails"));
        });
    });
    fixture.check_logs(&[]);
}
