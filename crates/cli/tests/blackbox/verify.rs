//! `shoal volume verify` names what is wrong, and says what it could not compare: one block of a brick is flipped, and
//! bricks are killed.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use store::Superblock;
use types::{BrickId, ClusterId};

use crate::fixture::{Fixture, Prng, wait_for};

const SIZE: u64 = 128 << 20;

#[test]
fn a_flipped_block_is_found_and_named() {
    let fixture = Fixture::new("verify");
    fixture.up(6, "4+2", "128M");
    let mount = fixture.mount("mnt");
    for name in 0..4 {
        let file = File::create(mount.join(name.to_string())).expect("a file");
        file.write_all_at(&Prng::new(name).bytes(3 << 20), 0).expect("a write");
        file.sync_all().expect("stable");
        file.write_all_at(&[9; 700], 5_000).expect("an overlay");
        file.sync_all().expect("stable");
    }
    let words = fixture.must(&["volume", "verify", "main"]).stdout;
    assert!(words.contains("stripes of `main` compared: all is well"), "{words}");
    fixture.verified();
    fixture.must(&["down"]);

    // One bit of one block of brick b3 is flipped. The block belongs to the last stripes of a file, which have no
    // overlay. Places that are free again may still hold a copy of it: they are changed too.
    let zone = Superblock::lay_out(ClusterId::default(), BrickId(1), [0; 16], SIZE, None).expect("a layout");
    let path = fixture.home().join("bricks/b3");
    let disk = OpenOptions::new().read(true).write(true).open(&path).expect("the brick");
    let last = Prng::new(3).bytes(3 << 20).split_off(2 << 20);
    let block_at = |at: u64| {
        let mut block = vec![0; 4096];
        disk.read_exact_at(&mut block, at).map(|()| block).expect("a block")
    };
    let places = || (zone.data_start..SIZE).step_by(4096);
    let held = places().map(block_at).find(|block| last.chunks(4096).any(|chunk| chunk == block));
    let held = held.expect("a block of the file");
    let flipped: Vec<_> = places().filter(|at| block_at(*at) == held).collect();
    flipped.iter().for_each(|at| disk.write_all_at(&[held[2000] ^ 1], at + 2000).expect("a flipped bit"));
    println!("flipped at {flipped:?}");
    drop(disk);

    fixture.must(&["up"]);
    let verify = || fixture.shoal(&["volume", "verify", "main"]);
    let finds = wait_for(Duration::from_secs(30), || verify().stderr.contains("damaged"));
    assert!(finds, "the flipped bit is found: {:?}", verify());
    let ran = verify();
    ran.refused(&["volume `main`: 0 stripes mismatched, 1 damaged", "bricks that are named"]);
    assert!(ran.stdout.contains("the unit on b3 is damaged"), "{}", ran.stdout);
    let ran = fixture.shoal(&["volume", "verify", "main", "--json"]);
    assert!(!ran.ok);
    let found: serde_json::Value = serde_json::from_str(&ran.stdout).expect("one document");
    let groups = found["groups"].as_array().expect("groups");
    let damaged: Vec<_> =
        groups.iter().flat_map(|g| g["damaged"].as_array().expect("a list").clone()).collect();
    assert_eq!(damaged.len(), 1, "{found}");
    assert_eq!(damaged[0]["bricks"], serde_json::json!(["b3"]));

    // Whoever reads gets the right bytes all the same.
    let mount = fixture.mount("mnt-2");
    for name in 0..4 {
        let mut right = Prng::new(name).bytes(3 << 20);
        right[5_000..5_700].fill(9);
        assert!(fs::read(mount.join(name.to_string())).expect("the file") == right, "file {name}");
    }
}

/// Bricks forget what is removed one after the other. What is compared meanwhile lacks units that nobody misses.
#[test]
fn what_is_being_removed_is_no_fault() {
    let fixture = Fixture::new("verify-removed");
    fixture.up(6, "4+2", "256M");
    let mount = fixture.mount("mnt");
    let (rounds, files) = (8, 300);
    for round in 0..rounds {
        let dir = mount.join(round.to_string());
        fs::create_dir(&dir).expect("a directory");
        for name in 0..files {
            fs::write(dir.join(name.to_string()), Prng::new(name).bytes(20_000)).expect("a file");
        }
    }
    std::thread::scope(|scope| {
        let remover = scope.spawn(|| {
            for round in 0..rounds {
                fs::remove_dir_all(mount.join(round.to_string())).expect("removed");
            }
        });
        while !remover.is_finished() {
            fixture.verified();
        }
    });
    fixture.verified();
    fixture.check_logs(&[]);
}

#[test]
fn what_cannot_be_compared_is_said() {
    let fixture = Fixture::new("verify-not");
    fixture.up(3, "2+1", "64M");
    fixture.shoal(&["volume", "verify", "sea"]).refused(&["there is no volume `sea`", "one of: main"]);
    fixture.kill("b1");
    fixture.kill("b2");
    fixture.shoal(&["volume", "verify", "main"]).refused(&["group ", "of volume `main` is not served"]);
    fixture.must(&["down"]);
    fixture.shoal(&["volume", "verify", "main"]).refused(&["does not answer"]);
}
