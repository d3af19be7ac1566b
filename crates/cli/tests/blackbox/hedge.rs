//! A brick that answers late: what it has is decoded from the others, people are told which one it is, and it is asked again
//! once it is quick.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc::O_DIRECT;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::fixture::{Fixture, Pages, Prng, make_stable, text};

const SOON: Duration = Duration::from_secs(120);
/// Several files: their groups have b3 at different slots, so it is asked for some of them, whatever their ids are.
const FILES: usize = 24;
const FILE: usize = 1 << 20;

/// Lets a process run for a twentieth of the time.
fn hold_back<T>(pid: i32, act: impl FnOnce() -> T) -> T {
    struct Over<'a>(&'a AtomicBool, Pid);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
            let _ = kill(self.1, Signal::SIGCONT);
        }
    }
    let (is_over, pid) = (AtomicBool::new(false), Pid::from_raw(pid));
    thread::scope(|scope| {
        let over = Over(&is_over, pid);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for (signal, millis) in [(Signal::SIGSTOP, 19), (Signal::SIGCONT, 1)] {
                    kill(pid, signal).expect("the brick is there");
                    thread::sleep(Duration::from_millis(millis));
                }
            }
            kill(pid, Signal::SIGCONT).expect("the brick is there");
        });
        let done = act();
        drop(over);
        done
    })
}

/// A number in `.shoal/status`.
fn number(mount: &Path, name: &str) -> u64 {
    let status = fs::read_to_string(mount.join(".shoal/status")).expect("the status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("its line");
    line.trim().parse().expect("a number")
}

fn slow_bricks(mount: &Path) -> Vec<String> {
    let status = fs::read_to_string(mount.join(".shoal/status")).expect("the status");
    let lines = status.lines().filter_map(|line| line.strip_prefix("slow-brick "));
    lines.filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
}

/// Acts until something is so; false if that takes too long.
fn until(act: &mut impl FnMut(), is_so: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    loop {
        act();
        match (is_so(), begin.elapsed() < SOON) {
            (true, _) => return true,
            (false, true) => {}
            (false, false) => return false,
        }
    }
}

#[test]
fn a_late_brick_is_read_around_and_named() {
    let fixture = Fixture::new("hedge");
    fixture.up(6, "4+2", "256M");
    let mount = fixture.mount("mount");
    let mut prng = Prng::new(7);
    let make = |number: usize, bytes: &[u8]| {
        let path = mount.join(format!("file{number}"));
        make_stable(&path, bytes);
        File::options().read(true).custom_flags(O_DIRECT).open(&path).expect("the file")
    };
    let bytes: Vec<Vec<u8>> = (0..FILES).map(|_| prng.bytes(FILE)).collect();
    let files: Vec<File> = bytes.iter().enumerate().map(|(number, bytes)| make(number, bytes)).collect();
    fixture.must(&["tune", text(&mount), "io-cache=off", "read-ahead=off"]);
    let mut pages = Pages::new();
    let mut read = |times: usize| {
        for _ in 0..times {
            let number = prng.below(FILES as u64) as usize;
            let at = prng.below((FILE / Pages::LEN) as u64) as usize * Pages::LEN;
            files[number].read_exact_at(&mut pages.0, at as u64).expect("bytes");
            assert!(pages.0[..] == bytes[number][at..at + Pages::LEN], "64 KiB of file {number} at {at}");
        }
    };
    read(200);
    hold_back(fixture.pid("b3"), || {
        // While it is looked at, the brick may have had its turn in time for once: so again, if need be.
        let is_named = || {
            let report = fixture.must(&["xray", text(&mount), "--once", "--json"]).json();
            let of = |name: &str| report[name].as_array().expect("a list").clone();
            let says =
                |finding: &Value| finding["sentence"].as_str().is_some_and(|s| s.starts_with("b3 takes "));
            of("slow_bricks").iter().any(|slow| slow["brick"] == "b3") && of("findings").iter().any(says)
        };
        assert!(until(&mut || read(20), is_named), "nobody says that b3 is slow");
        // Without hedges it is waited for.
        fixture.must(&["tune", text(&mount), "hedge=off"]);
        let counted = || ["reads_hedged", "reads_diverted"].map(|name| number(&mount, name));
        let before = counted();
        read(50);
        assert_eq!(before, counted());
        fixture.must(&["tune", text(&mount), "hedge=auto"]);
    });
    for name in ["reads_hedged", "reads_diverted", "units_decoded"] {
        assert!(number(&mount, name) > 0, "{name}");
    }
    // It is as quick as the others again.
    assert!(until(&mut || read(20), || slow_bricks(&mount).is_empty()), "b3 is still slow");
    drop(files);
    fixture.umount(&mount);
}
