//! Mounts of one volume see each other's writes and names at once, and one that dies or stops holds up nobody for ever:
//! two mounts work on the same files, and each read is compared.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fixture::{Fixture, Prng, kill_now, text, within};

#[test]
fn what_is_closed_is_seen_by_who_opens() {
    let fixture = Fixture::new("close-to-open");
    fixture.up(4, "2+2", "1G");
    let (a, b) = (fixture.mount("a"), fixture.mount("b"));
    let mut prng = Prng::new(11);
    for round in 0..40 {
        let (writer, reader) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let len = 1 + prng.below(2 << 20) as usize;
        let bytes = prng.bytes(len);
        match round % 3 {
            0 => fs::write(writer.join("file"), &bytes).expect("a new content"),
            1 => {
                let mut file = OpenOptions::new().append(true).open(writer.join("file")).expect("the file");
                file.write_all(&bytes).expect("more of it");
            }
            _ => {
                let file = OpenOptions::new().write(true).open(writer.join("file")).expect("the file");
                file.write_all_at(&bytes, prng.below(100_000)).expect("other bytes in it");
            }
        }
        let right = fs::read(writer.join("file")).expect("the writer reads");
        let seen = fs::read(reader.join("file")).expect("the other reads");
        assert!(right == seen, "round {round}: {} and {} bytes", right.len(), seen.len());
    }
    fixture.check_logs(&[]);
}

#[test]
fn two_writers_of_one_file_see_each_other() {
    let fixture = Fixture::new("shared");
    fixture.up(4, "2+2", "1G");
    let (a, b) = (fixture.mount("a"), fixture.mount("b"));
    let open = |dir: &Path| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join("file"))
            .expect("open")
    };
    within(Duration::from_secs(120), "two writers of one file", || {
        let (in_a, in_b) = (open(&a), open(&b));
        for block in 0..50u64 {
            let (writer, reader) = if block % 2 == 0 { (&in_a, &in_b) } else { (&in_b, &in_a) };
            let bytes = vec![block as u8 + 1; 4096];
            writer.write_all_at(&bytes, block * 4096).expect("a write");
            let mut seen = vec![0; 4096];
            reader.read_exact_at(&mut seen, block * 4096).expect("a read");
            assert!(seen == bytes, "block {block}");
        }
    });
    assert_eq!(fs::read(a.join("file")).expect("all of it"), fs::read(b.join("file")).expect("all of it"));
    fixture.check_logs(&[]);
}

/// One mount cuts a file while the other writes it: the cut comes before the write or after it, and what is written
/// afterwards stays.
#[test]
fn a_shared_file_is_cut_between_writes() {
    const LONG: usize = 120_000;
    // The kernel parts a write at the end of a page that it does not have and that the write begins within.
    const PAGE: u64 = 4096;
    const WRITTEN: usize = 5 * PAGE as usize;
    let fixture = Fixture::new("shared-cut");
    fixture.up(3, "2+1", "512M");
    let (a, b) = (fixture.mount("a"), fixture.mount("b"));
    fs::write(a.join("file"), vec![0; LONG]).expect("a file");
    let open =
        |dir: &Path| OpenOptions::new().read(true).write(true).open(dir.join("file")).expect("the file");
    within(Duration::from_secs(120), "cuts beside writes", || {
        let (in_a, in_b) = (open(&a), open(&b));
        let mut prng = Prng::new(5);
        for round in 1..=60u8 {
            let (at, cut) = ((prng.below(22) * PAGE) as usize, prng.below(LONG as u64) as usize);
            std::thread::scope(|scope| {
                scope.spawn(|| in_a.write_all_at(&[round; WRITTEN], at as u64).expect("a write"));
                in_b.set_len(cut as u64).expect("a cut");
            });
            in_a.write_all_at(&[round; PAGE as usize], LONG as u64).expect("a later write");
            let mut seen = vec![0; LONG + PAGE as usize];
            in_b.read_exact_at(&mut seen, 0).expect("a read");
            assert!(seen[LONG..] == [round; PAGE as usize], "round {round}: a later write is gone");
            let written = at.max(cut)..(at + WRITTEN).max(cut);
            let is = |range: std::ops::Range<usize>, byte| seen[range].iter().all(|seen| *seen == byte);
            assert!(is(written.clone(), 0) || is(written.clone(), round), "round {round}: half a cut");
            assert!(
                is(cut..written.start, 0) && is(written.end..LONG, 0),
                "round {round}: old bytes came back"
            );
        }
    });
    fixture.check_logs(&[]);
}

/// While a cut waits for a mount that stands still, the others' reads of the file wait too, and nothing else.
#[test]
fn a_cut_that_waits_holds_up_nothing_but_its_file() {
    /// More than a mount has threads, each further from the next one than the kernel reads ahead.
    const WAITING: usize = 12;
    const APART: usize = 1 << 20;
    /// Should the cut be done before everything waits. Each with a file that no cache knows.
    const TRIES: usize = 4;
    let fixture = Fixture::new("waiting-cut");
    fixture.up(3, "2+1", "512M");
    let (a, b, c) = (fixture.mount("a"), fixture.mount("b"), fixture.mount("c"));
    fs::write(a.join("other"), b"another").expect("another file");
    let passed = within(Duration::from_secs(120), "what does not wait", || {
        (0..TRIES).any(|number| {
            let name = format!("file{number}");
            fs::write(a.join(&name), vec![1; WAITING * APART]).expect("a file");
            let open = |dir: &Path| {
                OpenOptions::new().read(true).write(true).open(dir.join(&name)).expect("the file")
            };
            let (in_a, in_b, in_c) = (open(&a), open(&b), open(&c));
            in_c.read_exact_at(&mut [0; 10], 0).expect("a read");
            let daemon = Pid::from_raw(fixture.mount_pid(&c));
            kill(daemon, Signal::SIGSTOP).expect("it runs");
            let is_cut = AtomicBool::new(false);
            let passed = std::thread::scope(|scope| {
                scope.spawn(|| {
                    in_a.set_len(((WAITING - 1) * APART) as u64 + 90_000).expect("a cut");
                    is_cut.store(true, Ordering::SeqCst);
                });
                std::thread::sleep(Duration::from_millis(500));
                for thread in 0..WAITING {
                    let in_b = &in_b;
                    scope.spawn(move || {
                        in_b.read_exact_at(&mut [0; 4096], (thread * APART) as u64).expect("a read")
                    });
                }
                std::thread::sleep(Duration::from_millis(200));
                assert_eq!(fs::read(b.join("other")).expect("a read of another file"), b"another");
                // Whoever has cut it may need a moment to say so.
                std::thread::sleep(Duration::from_millis(200));
                let passed = !is_cut.load(Ordering::SeqCst);
                kill(daemon, Signal::SIGCONT).expect("it is stopped");
                passed
            });
            drop(in_c);
            passed
        })
    });
    assert!(passed, "another file could be read only when the cut was done");
}

/// A handle from before the sharing reads through the kernel's cache, and finds nothing there that is older than a write
/// which another mount was told is done.
#[test]
fn handles_from_before_the_sharing_see_every_write() {
    let fixture = Fixture::new("shared-cache");
    fixture.up(3, "2+1", "512M");
    let (a, b) = (fixture.mount("a"), fixture.mount("b"));
    fs::write(a.join("file"), vec![0; 64 << 10]).expect("a file");
    let open = |dir: &Path, write| {
        OpenOptions::new().read(true).write(write).open(dir.join("file")).expect("the file")
    };
    within(Duration::from_secs(60), "reads beside writes", || {
        let (writes, reads) = (open(&a, true), open(&a, false));
        let mut seen = vec![0; 64 << 10];
        reads.read_exact_at(&mut seen, 0).expect("a read into the cache");
        let other = open(&b, true);
        for round in 1..=100u8 {
            let (writer, reader) = match round % 4 {
                0 => (&writes, &other),
                1 => (&other, &writes),
                2 => (&other, &reads),
                _ => (&writes, &reads),
            };
            let at = u64::from(round % 3) * 5000;
            writer.write_all_at(&[round; 9000], at).expect("a write");
            // As by a program that copies times: neither the size nor the time says that there is anything new.
            writer.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).expect("a time");
            let mut seen = vec![0; 9000];
            reader.read_exact_at(&mut seen, at).expect("a read");
            assert!(seen == vec![round; 9000], "round {round}: {} is there", seen[0]);
        }
    });
    fixture.check_logs(&[]);
}

/// The daemon of a mount is stopped until its lease has run out and somebody else has written: the kernel does not show
/// what it has cached meanwhile.
#[test]
fn a_stopped_mount_shows_nothing_old() {
    let fixture = Fixture::new("stopped-mount");
    fixture.up(3, "2+1", "512M");
    let (a, b) = (fixture.mount("a"), fixture.mount("b"));
    fs::write(a.join("file"), vec![1; 4096]).expect("a file");
    let old = OpenOptions::new().read(true).write(true).open(a.join("file")).expect("the file");
    let read = || {
        let mut seen = vec![0; 4096];
        old.read_exact_at(&mut seen, 0).map(|()| seen)
    };
    assert!(read().expect("a read into the cache") == vec![1; 4096]);
    let daemon = Pid::from_raw(fixture.mount_pid(&a));
    kill(daemon, Signal::SIGSTOP).expect("it runs");
    let seen = within(Duration::from_secs(60), "a stopped mount", || {
        let other = OpenOptions::new().write(true).open(b.join("file")).expect("the other is let in");
        other.write_all_at(&[2; 4096], 0).expect("a write");
        other.sync_all().expect("an fsync");
        std::thread::scope(|scope| {
            let reader = scope.spawn(read);
            std::thread::sleep(Duration::from_millis(300));
            kill(daemon, Signal::SIGCONT).expect("it is stopped");
            reader.join().expect("a reader")
        })
    });
    assert!(seen.as_ref().map_or(true, |seen| *seen == [2; 4096]), "{:?}", seen.map(|seen| seen[0]));
    let again = within(Duration::from_secs(60), "an open anew", || fs::read(a.join("file")));
    assert!(again.expect("a new handle") == vec![2; 4096]);
}

/// Lookups that a mount answered from names that it had read ahead.
fn lookups_ahead(mount: &Path) -> u64 {
    let status = fs::read_to_string(mount.join(".shoal/status")).expect("a status");
    let count = status.lines().find_map(|line| line.strip_prefix("lookups_ahead "));
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no count in {status}"))
}

/// A mount that removes the files of a directory asks for few of their names. It sees what else is done to names and files that it has
/// read ahead: at once what was done on the same machine, and a second late at worst what another one has done.
#[test]
fn a_mount_that_removes_files_sees_what_else_is_done_in_the_directory() {
    const FILES: u32 = 1500;
    let fixture = Fixture::new("removals");
    fixture.up(3, "2+1", "512M");
    let (a, b) = (fixture.mount("a"), fixture.mount("b"));
    let of = |mount: &Path, name: u32| mount.join("dir").join(format!("f{name}"));
    fs::create_dir(a.join("dir")).expect("a directory");
    (0..FILES).for_each(|name| fs::write(of(&a, name), format!("first {name}")).expect("a file"));
    // The kernel knows no name any more.
    std::thread::sleep(Duration::from_millis(1500));
    (0..200).for_each(|name| fs::remove_file(of(&a, name)).expect("it is there"));
    let answered = lookups_ahead(&a);
    assert!(answered > 20, "{answered} of 200 lookups");

    let append = |mount: &Path, name, more: &str| {
        let mut file = OpenOptions::new().append(true).open(of(mount, name)).expect("it is there");
        file.write_all(more.as_bytes()).expect("a write");
    };
    let forget = || fs::write("/proc/sys/vm/drop_caches", "2").expect("root may");
    let (reached, changed) = (AtomicU32::new(200), Mutex::new(HashSet::new()));
    // The file that is being changed: whoever removes waits for it.
    let busy = AtomicU32::new(0);
    let mut checked = 0;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut next = 0;
            loop {
                let name = next.max(reached.load(Ordering::SeqCst) + 40);
                if name >= FILES {
                    break;
                }
                next = name + 1;
                busy.store(name, Ordering::SeqCst);
                if reached.load(Ordering::SeqCst) >= name {
                    continue;
                }
                match name % 4 {
                    0 => append(&a, name, ", longer"),
                    1 => fs::set_permissions(of(&a, name), fs::Permissions::from_mode(0o600))
                        .expect("it is there"),
                    2 => append(&b, name, " of b"),
                    _ => {
                        fs::write(b.join("other"), format!("second {name}")).expect("a file");
                        fs::rename(b.join("other"), of(&b, name)).expect("in its place");
                    }
                }
                changed.lock().expect("no panic").insert(name);
                forget();
                busy.store(0, Ordering::SeqCst);
            }
            busy.store(0, Ordering::SeqCst);
        });
        for name in 200..FILES {
            reached.store(name, Ordering::SeqCst);
            let mut waited = 0;
            while busy.load(Ordering::SeqCst) == name {
                assert!(waited < 60_000, "the change of f{name} ends");
                std::thread::sleep(Duration::from_millis(1));
                waited += 1;
            }
            let file = of(&a, name);
            if changed.lock().expect("no panic").contains(&name) {
                checked += 1;
                match name % 4 {
                    0 => {
                        let length = fs::metadata(&file).expect("it is there").len();
                        assert_eq!(length, format!("first {name}, longer").len() as u64);
                    }
                    1 => assert_eq!(fs::metadata(&file).expect("it is there").mode() & 0o777, 0o600),
                    2 => {
                        append(&a, name, " and a");
                        let all = fs::read_to_string(of(&b, name)).expect("it is there");
                        assert_eq!(all, format!("first {name} of b and a"));
                    }
                    _ => {
                        let all = fs::read_to_string(&file).expect("it is there");
                        assert!(all == format!("first {name}") || all == format!("second {name}"), "{all}");
                    }
                }
            }
            fs::remove_file(&file).unwrap_or_else(|error| panic!("f{name}: {error}"));
            assert!(name % 10 != 0 || !file.exists(), "f{name} was removed");
        }
    });
    assert!(checked >= 8, "{checked} changes");
    let again = lookups_ahead(&a) - answered;
    assert!(again > 300, "{again} of {} lookups", FILES - 200);
    assert_eq!(fs::read_dir(b.join("dir")).expect("a directory").count(), 0);
    fixture.check_logs(&[]);
}

/// A name that both mounts make and replace at once is no reason to fail. Where the other mount replaces the file during both looks of the
/// kernel, an open gets ESTALE (RELIABILITY.md, "ESTALE for a name"): that is rare, and the next open finds a file.
#[test]
fn names_are_made_and_replaced_by_both() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 40;
    let stale = AtomicU64::new(0);
    let read = |path: &Path| loop {
        match fs::read_to_string(path) {
            Err(error) if error.raw_os_error() == Some(nix::libc::ESTALE) => {
                stale.fetch_add(1, Ordering::Relaxed)
            }
            read => break read.expect("one of them"),
        };
        assert!(stale.load(Ordering::Relaxed) <= THREADS * ROUNDS / 10, "an open often finds no file");
    };
    let fixture = Fixture::new("names-across");
    fixture.up(3, "2+1", "512M");
    let mounts = [fixture.mount("a"), fixture.mount("b")];
    within(Duration::from_secs(120), "names on two mounts", || {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (mount, read) = (&mounts[thread as usize % 2], &read);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let options = OpenOptions::new()
                            .append(true)
                            .create(true)
                            .open(mount.join(format!("made-{round}")));
                        options.expect("made by whoever comes first").write_all(b"x").expect("a write");
                        let fresh = mount.join(format!("fresh-{thread}"));
                        fs::write(&fresh, format!("{thread} {round}")).expect("a new file");
                        fs::rename(&fresh, mount.join("replaced")).expect("in the old one's place");
                        let seen = read(&mount.join("replaced"));
                        assert!(seen.contains(' '), "`{seen}` was never written");
                    }
                });
            }
        });
    });
    fixture.check_logs(&[]);
}

/// Each of two mounts holds files that the other's threads want: every open waits for a recall.
#[test]
fn recalls_across_do_not_lock_up() {
    const THREADS: usize = 8;
    const FILES: usize = 8;
    let fixture = Fixture::new("across");
    fixture.up(4, "2+2", "1G");
    let mounts = [fixture.mount("a"), fixture.mount("b")];
    for file in 0..FILES {
        fs::write(mounts[0].join(file.to_string()), b"start").expect("a file");
    }
    within(Duration::from_secs(180), "opens across two mounts", || {
        std::thread::scope(|scope| {
            for thread in 0..2 * THREADS {
                let mount = &mounts[thread % 2];
                scope.spawn(move || {
                    let mut prng = Prng::new(thread as u64 + 1);
                    for _ in 0..25 {
                        let path = mount.join(prng.below(FILES as u64).to_string());
                        let file = OpenOptions::new().read(true).write(true).open(path).expect("an open");
                        file.write_all_at(&prng.bytes(9000), prng.below(1 << 20)).expect("a write");
                        let mut seen = vec![0; 100];
                        file.read_at(&mut seen, 0).expect("a read");
                    }
                });
            }
        });
    });
    for file in 0..FILES {
        let read = |mount: &Path| fs::read(mount.join(file.to_string())).expect("the file");
        assert!(read(&mounts[0]) == read(&mounts[1]), "file {file}");
    }
    fixture.check_logs(&[]);
}

#[test]
fn a_dead_mount_can_be_unmounted_and_what_was_synced_is_there() {
    let fixture = Fixture::new("dead-mount");
    fixture.up(4, "2+2", "1G");
    let mount = fixture.mount("mnt");
    let bytes = Prng::new(5).bytes(5 << 20);
    let mut file = File::create(mount.join("synced")).expect("a file");
    file.write_all(&bytes).expect("a write");
    file.sync_all().expect("stable");
    kill_now(fixture.mount_pid(&mount));
    assert!(fs::read(mount.join("synced")).is_err(), "nobody serves the mount");
    drop(file);
    fixture.umount(&mount);
    let mount = fixture.mount("mnt");
    assert!(fs::read(mount.join("synced")).expect("the file") == bytes);
}

#[test]
fn a_busy_mount_says_so() {
    let fixture = Fixture::new("busy");
    fixture.up(3, "2+1", "512M");
    let mount = fixture.mount("mnt");
    let file = File::create(mount.join("file")).expect("a file");
    fixture.shoal(&["umount", text(&mount)]).refused(&["is busy", "--lazy"]);
    fixture.shoal(&["mount", "main", text(&mount)]).refused(&["is a mount point already", "umount"]);
    drop(file);
    fixture.umount(&mount);
    fixture.shoal(&["umount", text(&mount)]).refused(&["is not mounted"]);
}

#[test]
fn a_command_in_another_pid_namespace_leaves_the_mounts_of_this_one_alone() {
    let fixture = Fixture::new("pid-namespaces");
    fixture.up(3, "2+1", "128M");
    let dir = fixture.mount("mnt");
    let here = || fixture.status()["mounts"].clone();
    assert_eq!(here(), serde_json::json!([text(&dir)]));
    // It shares /run with this process, and sees none of the processes.
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_shoal"), "status", "--json"]);
    let ran = elsewhere.env("SHOAL_DIR", fixture.home()).output().expect("unshare runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let there: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("one document");
    assert_eq!(there["mounts"], serde_json::json!([]));
    assert_eq!(here(), serde_json::json!([text(&dir)]), "the run file is still there");
    fixture.umount(&dir);
    assert_eq!(here(), serde_json::json!([]));
}

/// A shell that has a file of a mount open starts daemons: they do not keep the mount in use.
#[test]
fn daemons_do_not_hold_what_their_caller_has_open() {
    let fixture = Fixture::new("inherited");
    fixture.up(3, "2+1", "512M");
    let mount = fixture.mount("mnt");
    let file = mount.join("file");
    fs::write(&file, b"bytes").expect("a file");
    fixture.kill("b3");
    let other = fixture.path("mnt-2");
    fs::create_dir(&other).expect("a mount point");
    let script = r#"exec 9< "$1"; "$2" up && "$2" mount main "$3""#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", text(&file), env!("CARGO_BIN_EXE_shoal"), text(&other)]);
    let ran = shell.env("SHOAL_DIR", fixture.home()).output().expect("a shell");
    assert!(ran.status.success(), "{ran:?}");
    let inherited = fixture.processes().into_iter().filter(|pid| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| target == file)
    });
    assert_eq!(inherited.count(), 0, "daemons that have the file open");
    fixture.umount(&mount);
    assert_eq!(fs::read(other.join("file")).expect("read"), b"bytes");
}
