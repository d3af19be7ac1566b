//! Files are for their owner alone, and what strangers have put there, locked or damaged does no harm.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::fixture::{Fixture, Prng, text, wait_for};

/// An ordinary user.
const STRANGER: u32 = 65_534;
/// Patience with whatever takes a moment.
const SOON: Duration = Duration::from_secs(20);

/// Every file and directory below one, and itself.
fn all_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    let mut at = 0;
    while let Some(path) = found.get(at).cloned() {
        if path.is_dir() {
            found.extend(fs::read_dir(&path).expect("a directory").flatten().map(|entry| entry.path()));
        }
        at += 1;
    }
    found
}

/// Fails if anything below a directory is open to others.
fn assert_private(dir: &Path) {
    for path in all_below(dir) {
        let found = fs::symlink_metadata(&path).expect("it is there");
        assert_eq!(found.mode() & 0o077, 0, "{} has mode {:o}", path.display(), found.mode());
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
}

#[test]
fn everything_is_for_its_owner_alone_and_wider_modes_are_repaired() {
    let fixture = Fixture::new("modes");
    fixture.up(3, "2+1", "128M");
    let home = fixture.home();
    assert_private(&home);
    let backup = fixture.path("names.bak");
    fixture.must(&["meta", "backup", text(&backup)]);
    fixture.must(&["down"]);

    let below = all_below(&home);
    below.iter().for_each(|path| chmod(path, if path.is_dir() { 0o755 } else { 0o644 }));
    let up = fixture.must(&["up"]);
    assert_private(&home);
    assert!(up.stderr.contains("(mode 0755)") && up.stderr.contains("0700"), "{}", up.stderr);
    let log = |name: &str| fs::read_to_string(home.join("log").join(name)).expect("a log");
    assert!(log("b1.log").contains("bricks/b1 was open to other users (mode 0644)"), "{}", log("b1.log"));
    for file in ["meta.redb", "meta.journal"] {
        assert!(log("meta.log").contains(&format!("{file} was open to other users")), "{}", log("meta.log"));
    }
    fixture.must(&["down"]);

    let (init, restored, disk) = (fixture.path("init"), fixture.path("restored"), fixture.path("disk"));
    fixture.must(&["cluster", "init", "--dir", text(&init)]);
    fixture.must(&["meta", "restore", text(&backup), "--dir", text(&restored)]);
    fixture.must(&["up"]);
    let (meta, key) = (fixture.status_meta(), home.join("key"));
    let words =
        ["brick", "--disk", text(&disk), "--format", "--id", "9", "--size", "64M", "--node", "9", "--listen"];
    let to = ["--meta", &meta, "--key-file", text(&key)];
    // The address is looked at before the disk is touched.
    fixture
        .shoal(&[&words[..], &["198.18.7.7:7411"], &to].concat())
        .refused(&["is not an address of this machine"]);
    assert!(!disk.exists());
    fixture.daemon("b9", &[&words[..], &["127.0.0.1:19411"], &to].concat());
    assert!(wait_for(SOON, || fixture.said("b9").contains("listening at")), "{}", fixture.said("b9"));
    [&init, &restored, &disk, &backup].into_iter().for_each(|path| assert_private(path));
}

#[test]
fn what_a_stranger_has_put_into_the_directory_is_refused() {
    let fixture = Fixture::new("strangers");
    let (home, precious) = (fixture.home(), fixture.path("precious"));
    fs::write(&precious, "precious").expect("a file");
    fs::create_dir_all(home.join("run")).expect("a directory");
    symlink(&precious, home.join("run/b1.pid")).expect("a link");
    chown(&home, Some(STRANGER), None).expect("root");
    let up = ["up", "--bricks", "3", "--code", "2+1", "--size", "128M"];
    fixture.shoal(&up).refused(&["belongs to user 65534", "try:"]);
    chown(&home, Some(0), None).expect("root");
    // The link that is left is a name of ours now: it is replaced, and not followed.
    fixture.must(&up);
    assert_eq!(fs::read_to_string(&precious).expect("the file"), "precious");

    fixture.must(&["down"]);
    fs::remove_file(home.join("log/b1.log")).expect("a log");
    symlink(&precious, home.join("log/b1.log")).expect("a link");
    std::os::unix::fs::lchown(home.join("log/b1.log"), Some(STRANGER), None).expect("root");
    fixture.shoal(&["up"]).refused(&["b1.log", "belongs to user 65534"]);
    fs::remove_file(home.join("log/b1.log")).expect("a link");
    chown(home.join("bricks/b2"), Some(STRANGER), None).expect("root");
    fixture.shoal(&["up"]).refused(&["b2", "belongs to user 65534"]);
    chown(home.join("bricks/b2"), Some(0), None).expect("root");
    fixture.must(&["up"]);
    assert_eq!(fs::read_to_string(&precious).expect("the file"), "precious");
}

/// A copy of the binary, which every user may run.
fn binary_for_all(fixture: &Fixture) -> PathBuf {
    let copy = fixture.path("shoal");
    fs::copy(env!("CARGO_BIN_EXE_shoal"), &copy).expect("room");
    chmod(&copy, 0o755);
    copy
}

#[test]
fn what_may_not_be_signalled_does_not_count_as_stopped() {
    let fixture = Fixture::new("not-permitted");
    let (binary, home, runs) = (binary_for_all(&fixture), fixture.home(), fixture.path("runs"));
    for dir in [&home, &runs] {
        fs::create_dir(dir).expect("a directory");
        chown(dir, Some(STRANGER), Some(STRANGER)).expect("root");
        chmod(dir, 0o700);
    }
    let of_stranger = |words: &[&str]| {
        let mut command = Command::new(&binary);
        command.args(words).args(["--dir", text(&home)]).env("XDG_RUNTIME_DIR", &runs);
        command.uid(STRANGER).gid(STRANGER).stdin(Stdio::null());
        command.output().expect("it runs")
    };
    let up = of_stranger(&["up", "--bricks", "3", "--code", "2+1", "--size", "64M"]);
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    // A root that may signal its own processes only.
    let mut down = Command::new("setpriv");
    down.args(["--bounding-set=-kill", "--inh-caps=-kill", text(&binary), "down", "--dir", text(&home)]);
    let down = down.stdin(Stdio::null()).output().expect("setpriv runs");
    let said = String::from_utf8_lossy(&down.stderr).into_owned();
    assert!(!down.status.success() && down.stdout.is_empty(), "it claims that all has ended: {down:?}");
    for word in ["is not down", "meta, b1, b2, b3 still run", "Operation not permitted", "try:"] {
        assert!(said.contains(word), "`{word}` is not in:\n{said}");
    }
    let status = of_stranger(&["status"]);
    assert!(status.status.success(), "all of it runs: {status:?}");
    let down = of_stranger(&["down"]);
    assert!(down.status.success(), "{down:?}");
    assert!(!of_stranger(&["status"]).status.success());
}

/// Ends a program of a test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_lock_of_a_stranger_keeps_nothing_from_starting() {
    let fixture = Fixture::new("stranger-locks");
    fixture.up(3, "2+1", "128M");
    fixture.must(&["down"]);
    let home = fixture.home();
    let mut strangers = Vec::new();
    for file in ["bricks/b1", "meta/meta.redb", "meta/meta.journal"] {
        // As in a directory of an earlier build, which everybody could read.
        for part in ["", "bricks", "meta"] {
            chmod(&home.join(part), 0o755);
        }
        let path = home.join(file);
        chmod(&path, 0o644);
        let mut flock = Command::new("flock");
        flock.args(["-F", "-x", text(&path), "sleep", "300"]).uid(STRANGER).gid(STRANGER);
        strangers.push(Ends(flock.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("flock(1)")));
        let free = || {
            Command::new("flock").args(["-n", text(&path), "true"]).status().is_ok_and(|ran| ran.success())
        };
        assert!(wait_for(SOON, || !free()), "the stranger has {file}");
    }
    fixture.must(&["up"]);
    let log = fs::read_to_string(home.join("log/b1.log")).expect("a log");
    assert!(log.contains("holds a lock of") && log.contains("bricks/b1"), "{log}");
    let mount = fixture.mount("mnt");
    fs::write(mount.join("file"), "served").expect("a file");
    fixture.umount(&mount);
    // One of ours still keeps another one out, by another name too.
    let other = fixture.path("same-brick");
    fs::hard_link(home.join("bricks/b1"), &other).expect("a name");
    let (meta, key) = (fixture.status_meta(), home.join("key"));
    let words =
        ["brick", "--disk", text(&other), "--node", "1", "--listen", "127.0.0.1:19412", "--meta", &meta];
    fixture
        .shoal(&[&words[..], &["--key-file", text(&key)]].concat())
        .refused(&["is served by another process already"]);
}

#[test]
fn a_cluster_with_a_key_is_not_served_without_it() {
    let fixture = Fixture::new("keyless");
    let (init, at) = (fixture.path("init"), "127.0.0.1:19413");
    fixture.must(&["cluster", "init", "--dir", text(&init)]);
    let serve = ["meta", "--dir", text(&init), "--listen", at];
    let pid = fixture.daemon("meta", &serve);
    let asked = |key: &[&str]| fixture.shoal(&[&["status", "--meta", at], key].concat());
    assert!(
        wait_for(SOON, || asked(&["--key-file", text(&init.join("key"))]).ok),
        "{}",
        fixture.said("meta")
    );
    asked(&[]).refused(&["another key"]);
    crate::fixture::kill_now(pid.try_into().expect("a pid"));
    fs::rename(init.join("key"), fixture.path("key")).expect("it is moved");
    fixture.shoal(&serve).refused(&["no key is given", "--key-file", "--no-key"]);
    fixture.daemon("open", &[&serve[..], &["--no-key"]].concat());
    assert!(wait_for(SOON, || asked(&[]).ok), "{}", fixture.said("open"));
    assert!(fixture.said("open").contains("without a key, everybody"), "{}", fixture.said("open"));
}

#[test]
fn damaged_stores_and_bricks_end_in_a_clear_error() {
    let fixture = Fixture::new("damaged");
    fixture.up(3, "2+1", "128M");
    let mount = fixture.mount("mnt");
    (0..200).for_each(|n| fs::write(mount.join(format!("file{n}")), "x").expect("a file"));
    fixture.umount(&mount);
    fixture.must(&["down"]);
    let (store, copy) = (fixture.home().join("meta"), fixture.path("copy"));
    let mut random = Prng::new(1);
    for seed in 0..12 {
        let _ = fs::remove_dir_all(&copy);
        fs::create_dir(&copy).expect("a directory");
        for file in ["meta.redb", "meta.journal"] {
            fs::copy(store.join(file), copy.join(file)).expect("a copy");
        }
        let file = File::options().read(true).write(true).open(copy.join("meta.redb")).expect("a store");
        let blocks = file.metadata().expect("a length").len() / 4096;
        let mut block = [0; 4096];
        // Some bits of a block with anything in it.
        loop {
            let at = random.below(blocks) * 4096;
            file.read_exact_at(&mut block, at).expect("a block");
            if block.iter().any(|byte| *byte != 0) {
                (0..40).for_each(|_| block[random.below(4096) as usize] ^= 1 << random.below(8));
                file.write_all_at(&block, at).expect("a change");
                break;
            }
        }
        // What it cannot serve it refuses; the rest is damage that no page in use has.
        let words = [
            "30",
            env!("CARGO_BIN_EXE_shoal"),
            "meta",
            "--no-key",
            "--dir",
            text(&copy),
            "--listen",
            "127.0.0.1:19414",
        ];
        let mut served =
            Command::new("timeout").args(words).stderr(Stdio::piped()).spawn().expect("timeout(1)");
        let log = std::thread::spawn({
            let mut pipe = served.stderr.take().expect("a pipe");
            move || {
                let mut said = Vec::new();
                let mut part = [0; 4096];
                while let Ok(len @ 1..) = std::io::Read::read(&mut pipe, &mut part) {
                    said.extend_from_slice(&part[..len]);
                    if String::from_utf8_lossy(&said).contains("listening at") {
                        break;
                    }
                }
                String::from_utf8_lossy(&said).into_owned()
            }
        });
        let said = log.join().expect("it ends");
        let _ = Command::new("kill").arg(served.id().to_string()).status();
        let _ = served.wait();
        let is_clear = said.contains("is damaged") && said.contains("shoal meta restore");
        assert!(
            !said.contains("panicked") && (is_clear || said.contains("listening at")),
            "seed {seed}: {said}"
        );
    }

    let brick = File::options().write(true).open(fixture.home().join("bricks/b2")).expect("a brick");
    brick.set_len(24 << 20).expect("it is cut");
    fixture.shoal(&["up"]).refused(&["b2", "134217728 bytes", "only 25165824", "shoal brick replace"]);
}
