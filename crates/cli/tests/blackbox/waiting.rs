//! Requests that wait: they hold up nobody else, a signal ends them, and nothing is left of them.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::descriptors::Descriptors;
use crate::fixture::{Fixture, make_stable, read_direct, text, wait_for, within};

/// How long a program may live after a signal that ends it.
const SOON: Duration = Duration::from_secs(3);

fn start(words: &[&str]) -> Child {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the program runs")
}

/// A program that reads the first block of a file, past the caches.
fn reader(path: &Path) -> Child {
    start(&["dd", &format!("if={}", text(path)), "of=/dev/null", "bs=4096", "count=1", "iflag=direct"])
}

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).expect("a pid");
    kill(Pid::from_raw(pid), signal).expect("the program runs");
}

fn runs(child: &mut Child) -> bool {
    child.try_wait().expect("a child").is_none()
}

/// Asserts that signals end a program soon.
fn ends(child: &mut Child, by: Signal) {
    signal(child, by);
    let began = Instant::now();
    while runs(child) {
        assert!(began.elapsed() < SOON, "{by} does not end a program that waits");
        thread::sleep(Duration::from_millis(20));
    }
}

fn drop_caches() {
    fs::write("/proc/sys/vm/drop_caches", "3").expect("root may do this");
}

#[test]
fn any_number_of_waiting_readers_holds_up_nobody_else_and_signals_end_them() {
    let fixture = Fixture::new("waiting");
    fixture.up(4, "2+2", "128M");
    fixture.must(&["volume", "create", "--same-node", "--type", "distribute", "files"]);
    let dir = fixture.path("files");
    fs::create_dir(&dir).expect("a mount point");
    fixture.must(&["mount", "files", text(&dir)]);
    let paths: Vec<_> = (0..24).map(|number| dir.join(number.to_string())).collect();
    paths.iter().for_each(|path| make_stable(path, &[7; 8192]));
    fixture.kill("b1");
    drop_caches();
    let mut readers: Vec<Child> = paths.iter().map(|path| reader(path)).collect();
    let is_waiting = |readers: &mut Vec<Child>| readers.iter_mut().map(runs).collect::<Vec<bool>>();
    // Until the others have their answers.
    let mut waiting = is_waiting(&mut readers);
    assert!(waiting.contains(&true), "all reads end although a brick is dead");
    let quiet = Instant::now();
    while quiet.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(100));
        waiting = is_waiting(&mut readers);
    }
    let lost = &paths[waiting.iter().position(|waits| *waits).expect("a file is on the dead brick")];
    let good = &paths[waiting.iter().position(|waits| !*waits).expect("files are on the other bricks")];
    readers.extend((0..20).map(|_| reader(lost)));
    // Each of them has reached the mount.
    thread::sleep(Duration::from_millis(500));
    drop_caches();
    within(Duration::from_secs(10), "the rest of a mount whose readers wait", || {
        assert_eq!(fs::metadata(good).expect("its attributes").len(), 8192);
        assert_eq!(fs::read_dir(&dir).expect("a directory").count(), 24);
        assert_eq!(read_direct(good, 4096, 4096), [7; 4096]);
        make_stable(&dir.join("new"), b"");
    });
    let mut cat = start(&["cat", text(lost)]);
    thread::sleep(Duration::from_millis(300));
    assert!(runs(&mut cat), "it waits for the dead brick");
    ends(&mut cat, Signal::SIGINT);
    let mut waiting: Vec<Child> =
        readers.into_iter().filter_map(|mut it| runs(&mut it).then_some(it)).collect();
    assert!(waiting.len() > 20);
    // `dd` handles SIGINT itself, and its reads wait in the background.
    let (terminated, killed) = waiting.split_at_mut(10);
    terminated.iter_mut().for_each(|reader| ends(reader, Signal::SIGTERM));
    killed.iter_mut().for_each(|reader| ends(reader, Signal::SIGKILL));
    fixture.must(&["up"]);
    let again = || fs::read(lost).is_ok();
    assert!(wait_for(Duration::from_secs(20), again), "the brick is back");
    fixture.umount(&dir);
}

#[test]
fn signals_end_programs_that_wait_for_a_cluster_that_stands_still() {
    let fixture = Fixture::new("still");
    fixture.up(3, "2+1", "128M");
    let dir = fixture.mount("m");
    make_stable(&dir.join("file"), &[1; 100_000]);
    drop_caches();
    let daemons: Vec<i32> = ["meta", "b1", "b2", "b3"].iter().map(|name| fixture.pid(name)).collect();
    let all = |signal| daemons.iter().for_each(|pid| kill(Pid::from_raw(*pid), signal).expect("it runs"));
    all(Signal::SIGSTOP);
    let file = dir.join("file");
    let (new, made) = (format!("of={}", text(&dir.join("new"))), dir.join("made"));
    let programs: [&[&str]; 6] = [
        &["stat", text(&file)],
        &["cat", text(&file)],
        &["ls", "-la", text(&dir)],
        &["touch", text(&made)],
        &["dd", "if=/dev/zero", &new, "bs=1M", "count=30", "conv=fsync"],
        &["df", text(&dir)],
    ];
    // What the kernel believes for a second.
    thread::sleep(Duration::from_millis(1500));
    for by in [Signal::SIGINT, Signal::SIGKILL] {
        let mut started: Vec<Child> = programs.iter().map(|words| start(words)).collect();
        thread::sleep(Duration::from_millis(1200));
        for (child, words) in started.iter_mut().zip(programs) {
            assert!(runs(child), "{words:?} does not wait");
            ends(child, by);
        }
    }
    all(Signal::SIGCONT);
    assert!(wait_for(Duration::from_secs(20), || fs::read(&file).is_ok_and(|bytes| bytes == [1; 100_000])));
    fixture.umount(&dir);
}

#[test]
fn a_burst_of_opens_leaves_no_descriptors() {
    const THREADS: usize = 300;
    let fixture = Fixture::new("burst");
    fixture.up(3, "2+1", "256M");
    let dir = fixture.mount("m");
    let burst = |rounds: usize| {
        let open = |number: usize| {
            for _ in 0..rounds {
                let mut file = File::create(dir.join(format!("burst{number}"))).expect("a file");
                file.write_all(b"x").expect("a byte");
            }
        };
        thread::scope(|scope| (0..THREADS).for_each(|number| drop(scope.spawn(move || open(number)))));
    };
    burst(1);
    let daemons = [fixture.mount_pid(&dir), fixture.pid("meta"), fixture.pid("b1")];
    let before = daemons.map(Descriptors::of);
    burst(10);
    let after = daemons.map(Descriptors::of);
    for (before, after) in before.iter().zip(&after) {
        assert!(
            after.rings <= before.rings + 2 && after.all <= before.all + 16,
            "{before:?}, then {after:?}"
        );
        assert!(after.threads < 48, "{after:?}");
    }
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemons[0])).expect("its limits");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("that of descriptors");
    let words: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(words[3], words[4], "the soft limit is raised to the hard one");
    fixture.umount(&dir);
}

#[test]
fn umount_of_a_mount_whose_daemon_is_stopped_gives_up_and_says_how_to_get_rid_of_it() {
    let fixture = Fixture::new("stopped-mount");
    fixture.up(3, "2+1", "128M");
    let dir = fixture.mount("m");
    let daemon = Pid::from_raw(fixture.mount_pid(&dir));
    kill(daemon, Signal::SIGSTOP).expect("it runs");
    let ran = within(Duration::from_secs(30), "umount of a stopped mount", || {
        fixture.shoal(&["umount", text(&dir)])
    });
    ran.refused(&["has done nothing", "umount --lazy", "kill -CONT"]);
    kill(daemon, Signal::SIGCONT).expect("it runs");
    fixture.umount(&dir);
}
