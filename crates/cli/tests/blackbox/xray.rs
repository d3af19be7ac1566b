//! What each layer of a mount reads and writes, as `shoal xray` and `.shoal/xray` show it, and which settings it names.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::libc::O_DIRECT;
use serde_json::Value;

use crate::fixture::{Fixture, Pages, Prng, text, wait_for};

/// Bytes of the file, of a page of io-cache and of a read.
const FILE: u64 = 32 << 20;
const PAGE: u64 = 128 << 10;
const READ: usize = 4096;

/// A file of random bytes that is stable, open without the kernel's cache.
fn file(path: &Path) -> File {
    let mut file = File::create(path).expect("a file");
    file.write_all(&Prng::new(1).bytes(FILE as usize)).and_then(|()| file.sync_all()).expect("stable bytes");
    OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path).expect("the file")
}

/// Reads 4 KiB of each page of the file.
fn read_each_page(file: &File) {
    let pages = FILE / PAGE;
    let mut buffer = Pages::new();
    for n in 0..pages {
        let page = n * 101 % pages;
        let place = (n * 7) % (PAGE / READ as u64);
        file.read_exact_at(&mut buffer.0[..READ], page * PAGE + place * READ as u64).expect("bytes");
    }
}

fn layer<'a>(document: &'a Value, name: &str) -> &'a Value {
    let layers = document["layers"].as_array().expect("layers");
    layers.iter().find(|layer| layer["name"] == name).unwrap_or_else(|| panic!("no {name} in {document}"))
}

fn amplification(document: &Value, name: &str) -> f64 {
    layer(document, name)["reads"]["amplification"].as_f64().unwrap_or_else(|| panic!("none: {document}"))
}

fn settings(document: &Value) -> Vec<&str> {
    let findings = document["findings"].as_array().expect("findings");
    findings.iter().filter_map(|finding| finding["setting"].as_str()).collect()
}

#[test]
fn a_page_that_is_too_large_is_seen_and_named() {
    let fixture = Fixture::new("xray-page");
    fixture.up(3, "2+1", "512M");
    let mount = fixture.mount("mnt");
    let path = mount.join("file");
    let file = file(&path);
    let tune = |setting: &str| {
        fixture.must(&["tune", text(&path), "io-cache=on", "read-ahead=off", setting]);
    };
    let look = |words: &[&str]| fixture.must(&[&["xray", text(&path), "--json"], words].concat()).json();
    tune("io-cache.page=128K");
    read_each_page(&file);
    let seen = look(&["--once"]);
    let times = amplification(&seen, "io-cache");
    assert!((31.5..=32.5).contains(&times), "{times}: {seen:#}");
    assert_eq!(layer(&seen, "auto")["reads"]["requests"], FILE / PAGE);
    assert_eq!(layer(&seen, "bricks")["reads"]["amplification"], Value::Null);
    assert_eq!(settings(&seen), ["io-cache.page=4K"], "{seen:#}");
    let said = fixture.must(&["xray", text(&path), "--once"]).stdout;
    let command = format!("try: shoal tune {} io-cache.page=4K", path.display());
    assert!(
        said.contains("its page of 128K is larger than their 4K reads") && said.contains(&command),
        "{said}"
    );

    // The command that it names, and an interval of reads after it.
    tune("io-cache.page=4K");
    let done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                read_each_page(&file);
            }
        });
        let seen = look(&["--interval", "1"]);
        done.store(true, Ordering::Relaxed);
        seen
    });
    let times = amplification(&seen, "io-cache");
    assert!(times <= 1.05, "{times}: {seen:#}");
    assert!(layer(&seen, "auto")["reads"]["requests"].as_u64().is_some_and(|reads| reads > 16), "{seen:#}");
    assert!(settings(&seen).is_empty(), "{seen:#}");
    drop(file);
    fixture.check_logs(&[]);
}

#[test]
fn writes_and_an_idle_mount_are_seen() {
    let fixture = Fixture::new("xray-writes");
    fixture.up(3, "2+1", "512M");
    let mount = fixture.mount("mnt");
    let idle = fixture.must(&["xray", text(&mount)]).stdout;
    assert!(idle.contains("nothing was read or written"), "{idle}");
    fixture.must(&["tune", text(&mount), "write-behind=off"]);
    let mut open = OpenOptions::new();
    let file = open.create(true).write(true).custom_flags(O_DIRECT).open(mount.join("file")).expect("a file");
    let buffer = Pages::new();
    for n in 0..32 {
        file.write_all_at(&buffer.0[..READ], n * 1_048_576).expect("bytes are written");
    }
    let seen = fixture.must(&["xray", text(&mount), "--once", "--json"]).json();
    assert_eq!(layer(&seen, "auto")["writes"]["requests"], 32);
    assert_eq!(layer(&seen, "bricks")["writes"]["bytes"], 32 * READ);
    assert_eq!(settings(&seen), ["write-behind=on"], "{seen:#}");
    let documents = fixture.must(&["xray", text(&mount), "--count", "2", "--json"]).stdout;
    let documents = serde_json::Deserializer::from_str(&documents).into_iter::<Value>();
    let seconds: Vec<f64> =
        documents.map(|one| one.expect("JSON")["seconds"].as_f64().expect("a time")).collect();
    assert!(seconds.len() == 2 && seconds.iter().all(|s| *s >= 1.0), "{seconds:?}");
    drop(file);
    fixture.check_logs(&[]);
}

#[test]
fn the_file_of_the_layers_shows_the_mount_or_an_open_file() {
    let fixture = Fixture::new("xray-file");
    fixture.up(3, "2+1", "512M");
    let mount = fixture.mount("mnt");
    let control = mount.join(".shoal/xray");
    assert_eq!(fs::metadata(&control).expect("it is there").permissions().mode() & 0o7777, 0o600);
    let shown = fs::read_to_string(&control).expect("text");
    let first = "layer auto reads 0 read_bytes 0 writes 0 written_bytes 0\n";
    assert!(shown.starts_with(first) && shown.lines().count() == 5, "{shown}");
    assert!(shown.lines().last().is_some_and(|line| line.starts_with("layer bricks ")), "{shown}");

    let (one, other) = (mount.join("one"), mount.join("other"));
    let written = |path: &Path, bytes: &[u8]| {
        let mut file = File::create(path).expect("a file");
        file.write_all(bytes).and_then(|()| file.sync_all()).expect("stable bytes");
        file
    };
    let (open, kept) = (written(&one, &[1; 100]), written(&other, &[1; 1000]));
    let mut handle = OpenOptions::new().read(true).write(true).open(&control).expect("the control file");
    let inode = |file: &File| file.metadata().expect("attributes").ino();
    let mut read = |file: Option<u64>| {
        if let Some(inode) = file {
            handle.write_all(format!("file {inode}\n").as_bytes()).expect("an open file");
        }
        let mut text = String::new();
        handle.rewind().and_then(|()| handle.read_to_string(&mut text)).expect("text");
        text
    };
    assert!(read(None).contains("written_bytes 1100\n"), "the mount");
    assert!(read(Some(inode(&open))).contains("written_bytes 100\n"), "one file");
    assert!(read(Some(inode(&kept))).contains("written_bytes 1000\n"), "the other one");
    for wrong in ["file 4711\n", "file x\n", "mount\n"] {
        let error = fs::write(&control, wrong).expect_err(wrong);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    drop((open, kept));
    let closed = || !fixture.shoal(&["xray", text(&one)]).ok;
    assert!(wait_for(Duration::from_secs(30), closed), "it is closed");
    fixture.shoal(&["xray", text(&one)]).refused(&["is not open at this mount", "for the whole mount"]);
    fixture.shoal(&["xray", "/nowhere"]).refused(&["there is no /nowhere", "a directory of a mount"]);
    fixture.shoal(&["xray", "/"]).refused(&["is not on a mount of Shoal", "shoal status"]);
    fixture.check_logs(&[]);
}
