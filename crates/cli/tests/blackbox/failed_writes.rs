//! Bytes that no brick took are no part of a file: the bricks are full, programs hear of it when they close, sync or commit, and a
//! file is as long as what was stored: the first bytes of what was written, and no zeros. Through every gate.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::IntoRawFd;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use nfs3_types::nfs3::stable_how;

use crate::fixture::{Fixture, wait_for};
use crate::nfs_client::user;

const LENGTHS: [usize; 4] = [100, 5_000, 300_000, 2_000_000];

/// Bytes without a zero.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251 + 1) as u8).collect()
}

/// Writes until nothing fits any more: large pieces first, then small ones.
fn fill(mount: &Path) {
    for (name, piece) in [("fill", 1 << 20), ("fill-small", 4096)] {
        let mut file = File::create(mount.join(name)).expect("a file");
        let fits = |file: &mut File| file.write_all(&vec![7; piece]).and_then(|()| file.sync_all()).is_ok();
        assert!((0..4000).any(|_| !fits(&mut file)), "the bricks never fill up");
    }
}

/// Writes and closes; whether both said that all is well.
fn write_and_close(mut file: File, bytes: &[u8]) -> bool {
    let written = file.write_all(bytes).is_ok();
    written & nix::unistd::close(file.into_raw_fd()).is_ok()
}

/// Whether a file is the first bytes of what was written, as far as `stat` and `read` say.
fn check(path: &Path, whole: &[u8], all: bool) {
    let (len, found) = (fs::metadata(path).expect("the file").len(), fs::read(path).expect("readable"));
    let zeros = found.iter().filter(|byte| **byte == 0).count();
    let place = path.display();
    assert_eq!(found.len() as u64, len, "{place}: stat and read differ");
    assert!(whole.starts_with(&found), "{place}: {len} bytes, of which {zeros} are zeros that nobody wrote");
    assert!(
        !all || found.len() == whole.len(),
        "{place}: {len} bytes, and nobody said that the others were lost"
    );
}

/// Whether there is room again for a file of some size.
fn has_room(mount: &Path) -> bool {
    let file = File::create(mount.join("room"));
    let fits = file.and_then(|mut file| file.write_all(&[3; 4 << 20]).and_then(|()| file.sync_all())).is_ok();
    fits && fs::remove_file(mount.join("room")).is_ok()
}

#[test]
fn a_write_that_found_no_room_leaves_no_zeros() {
    let fixture = Fixture::new("failed-writes");
    fixture.up(3, "2+1", "48M");
    let mount = fixture.mount("mnt");
    let log = mount.join("log");
    fs::write(&log, b"first line\n").expect("room");
    File::open(&log).and_then(|file| file.sync_all()).expect("room");
    fill(&mount);
    let mut failed = 0;
    for len in LENGTHS {
        let path = mount.join(format!("f{len}"));
        let all = write_and_close(File::create(&path).expect("a name"), &bytes(len));
        check(&path, &bytes(len), all);
        failed += u32::from(!all);
        let stat = fs::metadata(&path).expect("the file");
        // So that programs that compare times copy it once more.
        assert!(stat.len() > 0 || stat.modified().expect("a time") == UNIX_EPOCH, "{len}: {stat:?}");
    }
    assert!(failed > 0, "everything fits");
    let appended = OpenOptions::new().append(true).open(&log).expect("the log");
    let all = write_and_close(appended, b"second line\n");
    check(&log, b"first line\nsecond line\n", all);

    // A second mount, which comes later, shows the same.
    let other = fixture.mount("other");
    LENGTHS.iter().for_each(|len| check(&other.join(format!("f{len}")), &bytes(*len), false));
    check(&other.join("log"), b"first line\nsecond line\n", all);
    fixture.umount(&other);
    ["fill", "fill-small"].iter().for_each(|name| fs::remove_file(mount.join(name)).expect("it goes"));
    assert!(wait_for(Duration::from_secs(60), || has_room(&mount)), "the space comes back");
    let before = fs::read(&log).expect("the log");
    let appended = OpenOptions::new().append(true).open(&log).expect("the log");
    assert!(write_and_close(appended, b"third line\n"), "there is room");
    assert_eq!(fs::read(&log).expect("the log"), [before, b"third line\n".to_vec()].concat());
    for len in LENGTHS {
        let path = mount.join(format!("f{len}"));
        assert!(write_and_close(File::create(&path).expect("a name"), &bytes(len)), "there is room");
        check(&path, &bytes(len), true);
    }
    fixture.check_logs(&[]);
}

/// The kernel holds bytes back, and tells the mount of them when they are written out.
#[test]
fn an_exclusive_mount_that_found_no_room_leaves_no_zeros() {
    let fixture = Fixture::new("failed-writes-exclusive");
    fixture.up(3, "2+1", "48M");
    let mount = fixture.mount_with("mnt", &["--exclusive"]);
    fill(&mount);
    let mut failed = 0;
    for len in LENGTHS {
        let file = File::create(mount.join(format!("f{len}"))).expect("a name");
        let synced = file.try_clone().expect("a descriptor");
        let all = write_and_close(file, &bytes(len)) & synced.sync_all().is_ok();
        failed += u32::from(!all);
    }
    assert!(failed > 0, "everything fits");
    // It may say that something was lost.
    fixture.shoal(&["umount", crate::fixture::text(&mount)]);
    let mount = fixture.mount("mnt");
    LENGTHS.iter().for_each(|len| check(&mount.join(format!("f{len}")), &bytes(*len), false));
}

#[test]
fn an_nfs_write_that_found_no_room_leaves_no_zeros() {
    let fixture = Fixture::new("failed-writes-nfs");
    fixture.up(3, "2+1", "48M");
    let mount = fixture.mount("mnt");
    let gate = fixture.nfs("gate", &["--no-root-squash"]);
    let (mut nfs, root) = gate.root(user(0, &[]));
    fill(&mount);
    let mut failed = 0;
    for len in [100, 30_000] {
        let (name, whole) = (format!("n{len}"), bytes(len));
        let file = nfs.file(&root, &name, 0o644);
        let written = nfs.write(&file, 0, &whole, stable_how::UNSTABLE).is_ok();
        let all = written && nfs.commit(&file).is_ok();
        failed += u32::from(!all);
        let found = nfs.read_all(&file);
        assert_eq!(nfs.getattr(&file).expect("the file").size, found.len() as u64);
        assert!(whole.starts_with(&found), "{name}: {} bytes that nobody wrote", found.len());
        check(&mount.join(&name), &whole, all);
    }
    assert!(failed > 0, "everything fits");
    fixture.stop_nfs(&gate);
}
