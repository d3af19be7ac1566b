//! Volumes are made by the names of types: their codes, groups and placements are read, and files are written.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::fixture::{Fixture, Prng, text};

#[test]
fn types_of_volumes_are_codes_groups_and_placements() {
    let fixture = Fixture::new("types");
    fixture.up(4, "2+2", "128M");
    let create = |args: &[&str]| fixture.shoal(&[&["volume", "create", "--same-node"], args].concat());
    let made = [
        ("replicate 3", "replicate", "1+2", Some(1)),
        ("stripe 3", "stripe", "3+0", Some(1)),
        ("disperse 2+1", "disperse", "2+1", Some(1)),
        ("distributed-replicate 2", "distributed-replicate", "1+1", None),
        ("distributed-stripe 2", "distributed-stripe", "2+0", None),
        ("distributed-disperse 2+1", "distributed-disperse", "2+1", None),
        // There are no more bricks than the code has units.
        ("distributed-stripe 4", "stripe", "4+0", None),
    ];
    for (number, (words, kind, code, groups)) in made.iter().enumerate() {
        let name = format!("v{number}");
        let words: Vec<&str> = words.split(' ').collect();
        let ran = create(&[&[&*name, "--json", "--type"], &words[..]].concat()).json();
        assert_eq!((&ran["type"], &ran["code"]), (&Value::from(*kind), &Value::from(*code)), "{words:?}");
        let found = ran["groups"].as_array().expect("groups").len();
        assert!(groups.map_or(found > 4, |groups| found == groups), "{words:?}: {found} groups");
        assert_eq!(ran["extent_stripes"], 64);
    }
    let list = fixture.must(&["volume", "list"]).stdout;
    assert!(list.contains("distributed-disperse"), "{list}");
    assert!(
        list.lines().any(|line| line.trim_start().starts_with("main") && line.contains("disperse")),
        "{list}"
    );
    let info = fixture.must(&["volume", "info", "v0"]).stdout;
    assert!(info.contains("code 1+2 (replicate)") && info.contains("1 group\n"), "{info}");

    let is_refused = |args: &[&str], words: &[&str]| create(args).refused(words);
    is_refused(&["odd", "--type", "raid5"], &["no type `raid5`", "one of: distribute, replicate N"]);
    is_refused(&["odd", "--type", "replicate", "1"], &["from 2 to 7, not `1`", "--type replicate 3"]);
    is_refused(&["odd", "--type", "stripe", "0"], &["not `0`"]);
    is_refused(&["odd", "--type", "disperse"], &["needs a code K+M"]);
    is_refused(&["--type", "replicate", "3"], &["has no name"]);
    is_refused(
        &["odd", "--type", "replicate", "2", "--groups", "8"],
        &["one group", "--type distributed-replicate 2"],
    );
    is_refused(&["odd", "--type", "replicate", "3", "--code", "1+2"], &["cannot be used with"]);
    is_refused(&["odd"], &["--code"]);
    is_refused(&["odd", "--type", "stripe", "6"], &["code 6+0 needs 6 failure domains"]);
}

#[test]
fn a_distributed_file_is_whole_on_one_brick() {
    let fixture = Fixture::new("distribute");
    fixture.up(4, "2+2", "128M");
    // The name may come last: the type takes no argument.
    let made =
        ["volume", "create", "--same-node", "--unit", "64K", "--json", "--type", "distribute", "files"];
    let made = fixture.must(&made).json();
    assert_eq!((&made["type"], &made["code"]), (&"distribute".into(), &"1+0".into()));
    assert_eq!(made["extent_stripes"], Value::Null);
    let dir = fixture.path("files");
    fs::create_dir(&dir).expect("a mount point");
    fixture.must(&["mount", "files", text(&dir)]);
    let units = || -> Vec<u64> {
        let bricks = fixture.status()["bricks"].as_array().expect("bricks").clone();
        bricks.iter().map(|brick| brick["units"].as_u64().expect("a number")).collect()
    };
    // Five times 64 stripes of 64 KiB, and some bytes far out.
    let bytes = Prng::new(1).bytes(20 << 20);
    let mut used = [false; 4];
    for number in 0..16 {
        let before = units();
        let path = dir.join(number.to_string());
        let file = File::create(&path).expect("a file");
        let len = if number == 0 { bytes.len() } else { 1000 };
        file.write_all_at(&bytes[..len], 0).expect("a write");
        file.write_all_at(b"far", 1 << 40).expect("a write");
        file.sync_all().expect("stable");
        drop(file);
        let grown: Vec<usize> = (0..4)
            .zip(before.iter().zip(units()))
            .filter(|(_, (a, b))| *a < b)
            .map(|(brick, _)| brick)
            .collect();
        assert_eq!(grown.len(), 1, "file {number} is on bricks {grown:?}");
        used[grown[0]] = true;
    }
    assert_eq!(used, [true; 4], "files are on all bricks");
    let file = File::open(dir.join("0")).expect("the file");
    let mut found = vec![0; bytes.len()];
    file.read_exact_at(&mut found, 0).expect("its bytes");
    assert!(found == bytes);
    let mut far = [1; 4];
    file.read_exact_at(&mut far, (1 << 40) - 1).expect("its bytes");
    assert_eq!(&far, b"\0far");
    drop(file);
    fixture.umount(&dir);
    fixture.check_logs(&[]);
}
