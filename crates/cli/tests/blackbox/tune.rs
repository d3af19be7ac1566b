//! Settings of volumes, mounts and open files change while they are in use, and each level has its own: they are changed
//! by the command and by the control file, and what mounts say about them is compared.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;

use crate::fixture::{Fixture, text, wait_for};

/// Time in which a mount learns of its volume's settings, however slow the machine is.
const SOON: Duration = Duration::from_secs(30);
/// Somebody who is not root.
const NOBODY: u32 = 65_534;

impl Fixture {
    /// A setting of a target at a level: what `shoal tune TARGET --json` says.
    fn setting(&self, target: &str, key: &str, level: &str) -> Option<String> {
        let answer = self.must(&["tune", target, "--json"]).json();
        answer["settings"][key][level].as_str().map(str::to_owned)
    }

    /// A mount has this setting of its volume within a short time.
    fn wait_for_setting(&self, mount: &Path, key: &str, value: Option<&str>) {
        let there = || self.setting(text(mount), key, "volume").as_deref() == value;
        let shown = || self.must(&["tune", text(mount)]).stdout;
        assert!(wait_for(SOON, there), "{key} of the volume is not {value:?} at a mount:\n{}", shown());
    }
}

#[test]
fn every_mount_has_the_settings_of_its_volume_also_after_restarts() {
    let fixture = Fixture::new("tune-volume");
    fixture.up(3, "2+1", "512M");
    let (a, b) = (fixture.mount("a"), fixture.mount("b"));
    let set = fixture.must(&["tune", "main", "read-ahead=off", "io-cache.page=4K"]);
    assert!(
        set.stdout.contains("volume `main` has the settings io-cache.page=4K read-ahead=off"),
        "{}",
        set.stdout
    );
    for mount in [&a, &b] {
        fixture.wait_for_setting(mount, "read-ahead", Some("off"));
        assert_eq!(fixture.setting(text(mount), "io-cache.page", "effective").as_deref(), Some("4K"));
    }

    // The service has them after a hard restart, and goes on telling of changes.
    fixture.kill("meta");
    fixture.must(&["up"]);
    assert_eq!(fixture.setting("main", "read-ahead", "volume").as_deref(), Some("off"));
    let answer =
        fixture.must(&["tune", "main", "read-ahead=inherit", "write-behind.age=200", "--json"]).json();
    assert_eq!((&answer["level"], &answer["volume"]), (&"volume".into(), &"main".into()));
    assert_eq!(answer["settings"]["write-behind.age"]["volume"], "200ms");
    for mount in [&a, &b] {
        fixture.wait_for_setting(mount, "read-ahead", None);
        fixture.wait_for_setting(mount, "write-behind.age", Some("200ms"));
    }

    // A mount that comes later has them from its first moment.
    fixture.umount(&b);
    let b = fixture.mount("b");
    let kept = ["write-behind.age", "io-cache.page"].map(|key| fixture.setting(text(&b), key, "volume"));
    assert_eq!(kept, [Some("200ms".to_owned()), Some("4K".to_owned())]);
    let info = fixture.must(&["volume", "info", "main", "--json"]).json();
    assert_eq!(info["tuning"], "io-cache.page=4K write-behind.age=200ms");
    fixture.check_logs(&[]);
}

#[test]
fn a_mount_has_settings_of_its_own() {
    let fixture = Fixture::new("tune-mount");
    fixture.up(3, "2+1", "512M");
    let (a, b) = (fixture.mount("a"), fixture.mount("b"));
    fixture.must(&["tune", "main", "read-ahead=on"]);
    fixture.wait_for_setting(&a, "read-ahead", Some("on"));
    fs::create_dir(a.join("dir")).expect("a directory");
    let set = fixture.must(&["tune", text(&a.join("dir")), "read-ahead=off", "io-cache.size=32M"]);
    let sentence = format!("the mount at {} has the settings io-cache.size=32M read-ahead=off", a.display());
    assert!(set.stdout.contains(&sentence), "{}", set.stdout);
    let answer = fixture.must(&["tune", text(&a), "--json"]).json();
    let read_ahead = &answer["settings"]["read-ahead"];
    let levels = ["volume", "mount", "file", "effective"].map(|level| read_ahead[level].as_str());
    assert_eq!(levels, [Some("on"), Some("off"), None, Some("off")]);
    assert_eq!(answer["mount"], text(&a));
    assert_eq!(fixture.setting(text(&b), "read-ahead", "effective").as_deref(), Some("on"));
    let table = fixture.must(&["tune", text(&a), "read-ahead=inherit", "--show"]).stdout;
    let row = |name: &str| {
        let line = table.lines().find(|line| line.trim_start().starts_with(name)).expect("its row");
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("setting "), ["setting", "volume", "mount", "in", "effect", "takes"]);
    assert_eq!(row("read-ahead ")[1..4], ["on", "-", "on"]);
    assert_eq!(row("io-cache.size ")[1..4], ["-", "32M", "32M"]);

    // They end with the mount.
    fixture.umount(&a);
    let a = fixture.mount("a");
    assert_eq!(fixture.setting(text(&a), "io-cache.size", "mount"), None);
    fixture.check_logs(&[]);
}

#[test]
fn the_control_file_takes_lines_and_says_why_it_refuses_some() {
    let fixture = Fixture::new("tune-control");
    fixture.up(3, "2+1", "512M");
    for options in [&[][..], &["--exclusive"]] {
        let mount = fixture.mount_with("mnt", options);
        let path = mount.join(".shoal/tune");
        let attr = fs::metadata(&path).expect("the control file");
        assert_eq!(attr.permissions().mode() & 0o7777, 0o600);
        let mut stranger = Command::new("cat");
        let refused = stranger.arg(&path).uid(NOBODY).gid(NOBODY).output().expect("cat runs");
        assert!(!refused.status.success(), "{}", String::from_utf8_lossy(&refused.stdout));

        fs::write(&path, "read-ahead=off\n\nio-cache.page=8K io-cache=on\n").expect("good lines");
        let shown = fs::read_to_string(&path).expect("text");
        for line in ["mount read-ahead off\n", "mount io-cache.page 8K\n", "effective write-behind auto\n"] {
            assert!(shown.contains(line), "{line} is not in {shown}");
        }
        assert!(!shown.contains("error"), "{shown}");
        // Of several lines all are good or none is carried out, and everybody can read why.
        for (lines, why) in [
            ("read-ahead=on\nread-ahead=maybe\n", "it takes auto, on or off"),
            ("read-ahead=on\nfile 4711 read-ahead=on\n", "inode 4711 is not open at this mount"),
            ("file x read-ahead=on\n", "`x` is not an inode number"),
            (&" ".repeat(5000), "at most 4096"),
        ] {
            let error = fs::write(&path, lines).expect_err(why);
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            let shown = fs::read_to_string(&path).expect("text");
            let last = shown.lines().last().unwrap_or_default();
            assert!(last.starts_with("error ") && last.contains(why), "{shown}");
            assert!(shown.contains("mount read-ahead off\n"), "{shown}");
        }
        // Whoever has written reads about his own write.
        let open = || OpenOptions::new().read(true).write(true).open(&path).expect("the control file");
        let (mut one, mut other) = (open(), open());
        one.write_all(b"read-ahead=on").expect("a good line");
        other.write_all(b"prefetch=on").expect_err("a wrong line");
        let text_of = |file: &mut File| {
            let mut text = String::new();
            file.rewind().and_then(|()| file.read_to_string(&mut text)).expect("text");
            text
        };
        assert!(!text_of(&mut one).contains("error"));
        assert!(text_of(&mut other).ends_with("write-behind.age, hedge\n"), "{}", text_of(&mut other));
        drop((one, other));
        fixture.umount(&mount);
    }
    fixture.check_logs(&[]);
}

#[test]
fn settings_of_an_open_file_end_when_it_is_closed() {
    let fixture = Fixture::new("tune-file");
    fixture.up(3, "2+1", "512M");
    let (a, b) = (fixture.mount("a"), fixture.mount("b"));
    let path = a.join("file");
    fs::write(&path, b"some bytes").expect("a file");
    let not_open = ["is not open at this mount", "settings of a file last while it is open", "shoal tune"];
    let closed = || !fixture.shoal(&["tune", text(&path)]).ok;
    assert!(wait_for(SOON, closed), "a file that was closed is not open");
    fixture.shoal(&["tune", text(&path), "read-ahead=off"]).refused(&not_open);
    let open = File::open(&path).expect("the file");
    assert_eq!(fixture.setting(text(&path), "read-ahead", "file"), None);
    fixture.must(&["tune", text(&a), "read-ahead=on", "io-cache=on"]);
    let set = fixture.must(&["tune", text(&path), "read-ahead=off"]);
    assert!(set.stdout.contains("file has the settings read-ahead=off"), "{}", set.stdout);
    let answer: Value = fixture.must(&["tune", text(&path), "--json"]).json();
    let read_ahead = &answer["settings"]["read-ahead"];
    let levels = ["volume", "mount", "file", "effective"].map(|level| read_ahead[level].as_str());
    assert_eq!(levels, [None, Some("on"), Some("off"), Some("off")]);
    assert_eq!((&answer["level"], &answer["file"]), (&"file".into(), &text(&path).into()));
    assert_eq!(fixture.setting(text(&a), "read-ahead", "effective").as_deref(), Some("on"));
    fixture.shoal(&["tune", text(&b.join("file"))]).refused(&not_open);
    fixture
        .shoal(&["tune", text(&path), "io-cache.size=1G"])
        .refused(&["`io-cache.size` is for a whole mount", "not for a file"]);

    drop(open);
    assert!(wait_for(SOON, closed), "settings last no longer than the file is open");
    let open = File::open(&path).expect("the file");
    assert_eq!(fixture.setting(text(&path), "read-ahead", "file"), None);
    drop(open);
    fixture.check_logs(&[]);
}

#[test]
fn what_cannot_be_tuned_is_refused_with_the_reason() {
    let fixture = Fixture::new("tune-refused");
    fixture.shoal(&["tune", "main"]).refused(&["no cluster lives in", "shoal up"]);
    fixture.up(3, "2+1", "512M");
    let mount = fixture.mount("mnt");
    for (target, level) in [("main", "volume"), (text(&mount), "mount")] {
        let tune = |change: &str| fixture.shoal(&["tune", target, "read-ahead=off", change]);
        tune("prefetch=on").refused(&[target, "no setting `prefetch`; there are io-cache, io-cache.page,"]);
        tune("io-cache.page=5K").refused(&["cannot be `5K`", "4K to 1M, a power of two", "shoal tune"]);
        tune("read-ahead").refused(&["`read-ahead` is not a setting", "key=value"]);
        tune("io-cache=").refused(&["it takes auto, on or off, or inherit"]);
        tune(&format!("io-cache={}", "x".repeat(600))).refused(&["longer than 512 bytes", "fewer changes"]);
        assert_eq!(fixture.setting(target, "read-ahead", level), None, "nothing was changed at {target}");
    }
    fixture.shoal(&["tune", "mian", "read-ahead=off"]).refused(&["no volume `mian`", "one of: main"]);
    fixture.shoal(&["tune", "/nowhere/at/all"]).refused(&["there is no /nowhere/at/all", "name of a volume"]);
    let plain = fixture.path("plain");
    fs::write(&plain, b"x").expect("a file");
    fixture.shoal(&["tune", text(&plain)]).refused(&["is not on a mount of Shoal", "shoal status"]);
    mkfifo(&mount.join("pipe"), Mode::S_IRUSR).expect("a pipe");
    fixture.shoal(&["tune", text(&mount.join("pipe"))]).refused(&["neither a directory nor a regular file"]);

    // A name is that of the volume; with a slash it is a path.
    let open = File::create(mount.join("main")).expect("a file");
    let here = |args: &[&str]| {
        let ran = fixture.command(args).current_dir(&mount).output().expect("the binary runs");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        (serde_json::from_slice::<Value>(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {said}")), said)
    };
    let (answer, said) = here(&["tune", "main", "--json"]);
    assert!(answer["level"] == "volume" && said.contains("./main means the path"), "{answer} {said}");
    let (answer, said) = here(&["tune", "./main", "--json"]);
    assert!(answer["level"] == "file" && said.is_empty(), "{answer} {said}");
    let (answer, said) = here(&["tune", ".", "--json"]);
    assert!(answer["level"] == "mount" && said.is_empty(), "{answer} {said}");
    drop(open);

    let reader = fixture.mount_with("reader", &["--read-only"]);
    let change = fixture.shoal(&["tune", text(&reader), "read-ahead=off"]);
    change.refused(&["is read-only", "settings of its volume", "mount -o remount,rw"]);
    fixture.must(&["tune", text(&reader)]);
    fixture.check_logs(&[]);
}
