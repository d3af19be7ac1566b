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

use crate::fixture::{Fixture, Pages, Prng, make_stable, text};

const SOON: Duration = Duration::from_secs(120);
const FILE: usize = 32 << 20;

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

#[test]
fn a_late_brick_is_read_around_and_named() {
    let fixture = Fixture::new("hedge");
    fixture.up(6, "4+2", "256M");
    let mount = fixture.mount("mount");
    let (path, mut prng) = (mount.join("file"), Prng::new(7));
    let bytes = prng.bytes(FILE);
    make_stable(&path, &bytes);
    fixture.must(&["tune", text(&mount), "io-cache=off", "read-ahead=off"]);
    let file = File::options().read(true).custom_flags(O_DIRECT).open(&path).expect("the file");
    let mut pages = Pages::new();
    let mut read = |times: usize| {
        for _ in 0..times {
            let at = prng.below((FILE / Pages::LEN) as u64) as usize * Pages::LEN;
            file.read_exact_at(&mut pages.0, at as u64).expect("bytes");
            assert!(pages.0[..] == bytes[at..at + Pages::LEN], "64 KiB at {at}");
        }
    };
    read(200);
    let named = hold_back(fixture.pid("b3"), || {
        let begin = Instant::now();
        while slow_bricks(&mount).is_empty() && begin.elapsed() < SOON {
            read(20);
        }
        let named = slow_bricks(&mount);
        read(50);
        let report = fixture.must(&["xray", text(&mount), "--once", "--json"]).json();
        let findings = report["findings"].as_array().expect("findings").clone();
        assert_eq!(report["slow_bricks"][0]["brick"], "b3", "{report}");
        assert!(
            findings.iter().any(|f| f["sentence"].as_str().is_some_and(|s| s.starts_with("b3 takes "))),
            "{findings:?}"
        );
        // Without hedges it is waited for.
        fixture.must(&["tune", text(&mount), "hedge=off"]);
        let before = (number(&mount, "reads_hedged"), number(&mount, "reads_diverted"));
        read(50);
        assert_eq!(before, (number(&mount, "reads_hedged"), number(&mount, "reads_diverted")));
        fixture.must(&["tune", text(&mount), "hedge=auto"]);
        named
    });
    assert_eq!(named, ["b3"]);
    assert!(number(&mount, "reads_hedged") > 0 && number(&mount, "reads_diverted") > 0);
    assert!(number(&mount, "units_decoded") > 0);
    // It is as quick as the others again.
    let begin = Instant::now();
    while !slow_bricks(&mount).is_empty() && begin.elapsed() < SOON {
        read(20);
    }
    assert_eq!(slow_bricks(&mount), Vec::<String>::new());
    drop(file);
    fixture.umount(&mount);
}
