//! `shoal meta check`: nothing is wrong while programs change names; what somebody has damaged in the stores is found,
//! repaired on every metadata server, and no file is lost.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::fixture::{Fixture, wait_for};

/// The kinds of keys of inodes and names.
const INODE: u8 = 0x10;
const ENTRY: u8 = 0x11;
const LISTED: u8 = 0x12;
const BIG: usize = 6 << 20;
const SOON: Duration = Duration::from_secs(120);

/// The stores of all metadata servers of a cluster.
fn stores(fixture: &Fixture) -> Vec<PathBuf> {
    let within =
        |dir: PathBuf| fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut found: Vec<PathBuf> = within(fixture.home())
        .filter(|path| path.is_dir())
        .flat_map(within)
        .filter(|path| path.extension().is_some_and(|extension| extension == "redb"))
        .collect();
    found.sort();
    found
}

/// Removes a name from a directory, another one also from what is listed, and a file with all that is known of it, and changes
/// the links of yet another. Nobody has the store open.
fn damage(store: &Path, (name, nameless, lost, linked): (&str, u64, u64, u64)) {
    let engine = meta::Engine::open_redb(store).expect("a store");
    let pairs = engine.pairs().expect("readable");
    let of = |inode: u64| {
        let is_it = |(key, _): &&(Vec<u8>, Vec<u8>)| key[0] == INODE && key[5..13] == inode.to_be_bytes();
        &pairs.iter().find(is_it).expect("the file").0
    };
    let is_damaged = |(key, value): &&(Vec<u8>, Vec<u8>)| {
        // After the version comes the inode.
        let leads_to = |inode: u64| value[1..9] == inode.to_le_bytes();
        key[0] == ENTRY && key[13..] == *name.as_bytes()
            || (key[0] == ENTRY || key[0] == LISTED) && (leads_to(lost) || leads_to(nameless))
    };
    let damaged: Vec<&Vec<u8>> = pairs.iter().filter(is_damaged).map(|(key, _)| key).collect();
    assert_eq!(damaged.len(), 5);
    let value_of = |wanted: &Vec<u8>| pairs.iter().find(|(key, _)| key == wanted).expect("there").1.clone();
    let mut value = value_of(of(linked));
    // After the version, the kind and the mode come the links.
    value[6] = 77;
    let gone = damaged.into_iter().chain([of(lost)]).map(|key| (key.clone(), None));
    let writes: Vec<_> = gone.chain([(of(linked).clone(), Some(value))]).collect();
    engine.damage(&writes).expect("room");
}

fn used_by(brick: &serde_json::Value) -> u64 {
    brick["capacity"].as_u64().expect("a size") - brick["free"].as_u64().expect("a size")
}

#[test]
fn damaged_names_are_found_and_repaired() {
    let fixture = Fixture::new("meta-check");
    let words = ["up", "--bricks", "4", "--code", "2+1", "--size", "128M", "--metas", "3"];
    fixture.must(&words);
    let mount = fixture.mount("mnt");
    for name in 0..40 {
        let dir = mount.join(format!("dir{}", name % 4)).join("inner");
        fs::create_dir_all(&dir).expect("new");
        fs::write(dir.join(format!("f{name}")), format!("bytes of {name}")).expect("new");
    }
    fs::write(mount.join("big"), vec![7; BIG]).expect("room");
    fs::hard_link(mount.join("dir1/inner/f1"), mount.join("again")).expect("new");
    symlink("dir0", mount.join("link")).expect("new");

    // Names change all the time, and a moment of them is always whole.
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..10_000 {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let (old, new) =
                    (mount.join(format!("x{round}")), mount.join(format!("dir3/y{}", round % 50)));
                fs::write(&old, "x").and_then(|()| fs::rename(&old, &new)).expect("room");
                if round % 3 == 0 {
                    fs::remove_file(&new).expect("there");
                }
            }
        });
        for round in 0..10 {
            let words = ["meta", "check", "--bricks"];
            let ran = fixture.shoal(&words[..2 + round % 2]);
            assert!(ran.ok && ran.stdout.contains("all is well"), "{ran:?}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let inode_of = |name: &str| fs::metadata(mount.join(name)).expect("there").ino();
    let (linked, lost, nameless) = (inode_of("again"), inode_of("big"), inode_of("dir2"));
    let seen = fixture.must(&["meta", "check", "--json"]).json();
    assert_eq!(
        (seen["directories"].as_u64(), seen["faults"].as_array().map(Vec::len)),
        (Some(9), Some(0)),
        "{seen}"
    );
    fixture.umount(&mount);
    // At its start a server's store gets what only its journal has.
    fixture.must(&["down"]);
    fixture.must(&["up"]);
    fixture.must(&["down"]);

    let stores = stores(&fixture);
    assert_eq!(stores.len(), 3, "{stores:?}");
    stores.iter().for_each(|store| damage(store, ("f7", nameless, lost, linked)));
    fixture.must(&["up"]);
    let is_led = || fixture.shoal(&["meta", "check"]).stdout.contains("not all is well");
    assert!(wait_for(SOON, is_led), "{:?}", fixture.shoal(&["meta", "check"]));
    let ran = fixture.shoal(&["meta", "check"]);
    ran.refused(&["faults in the metadata", "meta check --repair"]);
    for words in ["has no name", "is listed and not there", "links 77 where 2 was found"] {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
    let ran = fixture.must(&["meta", "check", "--repair"]);
    assert!(ran.stdout.contains("repaired: ") && ran.stdout.contains("all is well"), "{}", ran.stdout);

    // Nobody knows of the lost file any more, and its bytes are still there.
    let used = || fixture.status()["bricks"].as_array().expect("bricks").iter().map(used_by).sum::<u64>();
    // Bricks tell it with their next heartbeat.
    assert!(wait_for(SOON, || used() > BIG as u64), "{} bytes", used());
    let before = used();
    let ran = fixture.shoal(&["meta", "check", "--bricks"]);
    ran.refused(&["1 fault in the metadata"]);
    assert!(
        ran.stdout.contains(&format!("bricks have bytes of object {lost:x}, which no file has")),
        "{}",
        ran.stdout
    );
    fixture.must(&["meta", "check", "--bricks", "--repair"]);
    assert!(wait_for(SOON, || used() + BIG as u64 <= before), "{before} bytes, and now {}", used());

    // Another server leads now, and has the repairs.
    let list = fixture.must(&["meta", "list", "--json"]).json();
    let servers = list["servers"].as_array().expect("servers");
    let leader = servers.iter().position(|server| server["state"] == "leads").expect("one leads");
    let name = if leader == 0 { "meta".to_owned() } else { format!("meta{}", leader + 1) };
    fixture.kill(&name);
    let is_well = || fixture.shoal(&["meta", "check"]).stdout.contains("all is well");
    assert!(wait_for(SOON, is_well), "{:?}", fixture.shoal(&["meta", "check"]));
    let mount = fixture.mount("mnt");
    let found: Vec<PathBuf> = fs::read_dir(mount.join("lost+found"))
        .expect("made")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert_eq!(found, [mount.join(format!("lost+found/#{nameless}"))]);
    assert_eq!(fs::read_to_string(found[0].join("inner/f2")).expect("there"), "bytes of 2");
    assert_eq!(fs::read_to_string(mount.join("dir3/inner/f7")).expect("there"), "bytes of 7");
    assert_eq!(fs::read_to_string(mount.join("again")).expect("there"), "bytes of 1");
    fixture.umount(&mount);
    fixture.verified();
}

#[test]
fn a_check_says_what_it_needs() {
    let fixture = Fixture::new("meta-check-bad");
    fixture.up(3, "2+1", "64M");
    fixture
        .shoal(&["meta", "check", "--memory", "1"])
        .refused(&["more files than can be checked in 1 B", "--memory with more"]);
    fixture.shoal(&["meta", "check", "--memory", "many"]).refused(&["is not a size"]);
    fixture.must(&["down"]);
    fixture.shoal(&["meta", "check"]).refused(&["does not answer"]);
}
