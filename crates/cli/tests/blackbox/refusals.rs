//! Wrong commands, wrong keys, wrong bytes: each with a clear error and nothing lost.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::stage::{Chance, Stage, text, wait_for, within};

#[test]
fn more_units_than_failure_domains() {
    let stage = Stage::new("domains");
    stage.shoal(&["up", "--bricks", "4", "--code", "8+2"]).refused(&["8+2 needs 10 bricks", "--code 2+2"]);
    stage.shoal(&["up", "--bricks", "4", "--size", "8000000T"]).refused(&["at most 256 TiB", "--size"]);
    assert!(!stage.home().join("cluster.json").exists());
    stage.up(4, "2+2", "128M");
    let create = |args: &[&str]| stage.shoal(&[&["volume", "create"], args].concat());
    create(&["wide", "--code", "8+2", "--same-node"]).refused(&[
        "needs 10 failure domains",
        "4 bricks",
        "--code 2+2",
    ]);
    create(&["apart", "--code", "2+1"]).refused(&["needs 3 failure domains", "1 nodes", "--same-node"]);
    assert!(create(&["near", "--code", "2+1", "--same-node"]).ok);
    create(&["near", "--code", "2+1", "--same-node"]).refused(&["exists already"]);
    create(&["odd", "--code", "2+1", "--unit", "5000"]).refused(&["power of two"]);
    create(&["odd", "--code", "two"]).refused(&["K+M"]);
    create(&["odd", "--code", "2+1", "--groups", "4000000000"])
        .refused(&["at most 4096 groups", "--groups 0"]);
    let volumes = stage.must(&["volume", "list", "--json"]).json();
    let names: Vec<&str> =
        volumes.as_array().expect("a list").iter().filter_map(|v| v["name"].as_str()).collect();
    assert_eq!(names, ["main", "near"]);
    stage.shoal(&["volume", "delete", "near"]).refused(&["nothing is deleted", "no terminal", "--yes"]);
    stage.must(&["volume", "info", "near"]);
    stage.shoal(&["volume", "delete", "far"]).refused(&["no volume `far`"]);
    for (typed, deletes) in [("main", false), ("near", true)] {
        let asked = typing(&stage, &["volume", "delete", "near"], typed);
        assert!(asked.contains("Type its name"), "{asked}");
        assert_eq!(asked.contains("nothing is deleted"), !deletes, "{asked}");
    }
    stage.shoal(&["volume", "info", "near"]).refused(&["no volume `near`", "main"]);
}

/// What a command says at a terminal at which somebody types a line.
fn typing(stage: &Stage, args: &[&str], line: &str) -> String {
    let script = "import os, pty, sys\n\
        pid, terminal = pty.fork()\n\
        if pid == 0: os.execv(sys.argv[2], sys.argv[2:])\n\
        said = b''\n\
        try:\n\
        \x20   while b': ' not in said: said += os.read(terminal, 1000)\n\
        \x20   os.write(terminal, sys.argv[1].encode() + b'\\n')\n\
        \x20   while True: said += os.read(terminal, 1000)\n\
        except OSError: pass\n\
        os.waitpid(pid, 0)\n\
        print(said.decode())";
    let shoal = env!("CARGO_BIN_EXE_shoal");
    let mut python = Command::new("python3");
    python.args(["-c", script, line, shoal]).args(args).env("SHOAL_DIR", stage.home());
    let ran = python.output().expect("python3 runs");
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[test]
fn mount_points_and_volumes_that_will_not_do() {
    let stage = Stage::new("mount-points");
    let dir = stage.path("mnt");
    fs::create_dir(&dir).expect("a directory");
    stage.shoal(&["mount", "main", text(&dir)]).refused(&["no cluster lives in", "shoal up"]);
    stage.up(3, "2+1", "128M");
    stage.shoal(&["mount", "mian", text(&dir)]).refused(&["no volume `mian`", "one of: main"]);
    stage.shoal(&["mount", "main", text(&stage.path("nowhere"))]).refused(&["does not exist", "mkdir"]);
    fs::write(dir.join("mine"), b"x").expect("a file");
    stage.shoal(&["mount", "main", text(&dir)]).refused(&["is not empty"]);
    stage.shoal(&["mount", "main", text(&dir.join("mine"))]).refused(&["is not a directory"]);
    assert_eq!(fs::read(dir.join("mine")).expect("the file"), b"x");
    assert!(stage.mount_points().is_empty());
}

#[test]
fn ports_and_keys() {
    let stage = Stage::new("ports");
    // Below the ports that the kernel gives to connections: one of those could have the bricks' ports.
    let mut ports = (20_000..32_000u16).step_by(100);
    let taken = ports.find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let up = ["up", "--bricks", "3", "--size", "128M", "--port"];
    stage.shoal(&[&up[..], &[&port.to_string()]].concat()).refused(&["in use by another process"]);
    drop(taken);
    stage.must(&["up"]);

    let meta = stage.status_meta();
    let wrong = stage.path("wrong-key");
    fs::write(&wrong, "ab".repeat(32)).expect("a key");
    let ask = |key: &str| stage.shoal(&["status", "--meta", &meta, "--key-file", key]);
    ask(text(&wrong)).refused(&["another key", "--key-file"]);
    stage.shoal(&["status", "--meta", &meta]).refused(&["another key"]);
    ask("/dev/null").refused(&["is not a key file"]);
    assert!(ask(text(&stage.home().join("key"))).ok);
    stage.shoal(&["status", "--meta", "127.0.0.1:1"]).refused(&["does not answer"]);

    let init = stage.path("cluster");
    stage.must(&["cluster", "init", "--dir", text(&init)]);
    stage.shoal(&["cluster", "init", "--dir", text(&init)]).refused(&["already"]);
    let open = ["meta", "--dir", text(&init), "--listen", "0.0.0.0:17400"];
    stage.shoal(&open).refused(&["without a key", "--key-file"]);
    let nowhere = stage.path("nothing");
    stage.shoal(&["meta", "--dir", text(&nowhere)]).refused(&["is not there", "shoal cluster init"]);
    let mount = stage.mount("mnt");
    fs::write(mount.join("file"), b"x").expect("the cluster is none the worse");
}

#[test]
fn a_cluster_is_not_made_twice() {
    let stage = Stage::new("twice-up");
    stage.up(3, "2+1", "128M");
    stage.shoal(&["up", "--bricks", "5"]).refused(&["made with --bricks 3", "--dir"]);
    stage.must(&["up", "--bricks", "3"]);
    stage.must(&["down"]);
    stage.must(&["down"]);
    stage.must(&["up"]);
}

#[test]
fn random_bytes_at_every_port_do_no_harm() {
    let stage = Stage::new("noise");
    stage.up(4, "2+2", "256M");
    let mount = stage.mount("mnt");
    let right = Chance::new(1).bytes(3_000_000);
    fs::write(mount.join("file"), &right).expect("a file");
    let status = stage.status();
    let mut addresses: Vec<String> = status["bricks"]
        .as_array()
        .expect("bricks")
        .iter()
        .filter_map(|b| b["address"].as_str())
        .map(str::to_owned)
        .collect();
    addresses.push(stage.status_meta());
    let mut idle = Vec::new();
    for (seed, address) in addresses.iter().enumerate() {
        let mut chance = Chance::new(seed as u64 + 77);
        for round in 0..40 {
            let mut conn = TcpStream::connect(address).expect("the port is open");
            conn.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
            let len = 1 + chance.below(10_000) as usize;
            let mut noise = chance.bytes(len);
            if round % 2 == 0 {
                // As much like a frame as noise can be.
                let magic = types::wire::MAGIC;
                noise.splice(0..magic.len().min(noise.len()), magic);
            }
            // The server may hang up in the middle.
            let _ = conn.write_all(&noise);
            let _ = conn.read(&mut [0; 64]);
            if round % 10 == 0 {
                idle.push(conn);
            }
        }
    }
    within(Duration::from_secs(60), "files after the noise", || {
        assert!(fs::read(mount.join("file")).expect("the file") == right);
        fs::write(mount.join("another"), &right).expect("another file");
    });
    let calm = || stage.status()["bricks"].as_array().is_some_and(|b| b.iter().all(|b| b["state"] == "up"));
    assert!(wait_for(Duration::from_secs(10), calm), "every daemon is still there");
}

#[test]
fn a_cluster_of_several_daemons_by_hand() {
    let stage = Stage::new("by-hand");
    let init = stage.path("meta");
    stage.must(&["cluster", "init", "--dir", text(&init)]);
    let key = init.join("key");
    let base = 20_000 + (std::process::id() % 5_000) as u16;
    let at = |n: u16| format!("127.0.0.1:{}", base + n);
    let meta = at(0);
    stage.daemon("meta", &["meta", "--dir", text(&init), "--listen", &meta, "--key-file", text(&key)]);
    let to = ["--meta", &meta, "--key-file", text(&key)];
    assert!(wait_for(Duration::from_secs(20), || stage.shoal(&[&["status"], &to[..]].concat()).ok));
    let create = [&["volume", "create", "v", "--code", "2+1"], &to[..]].concat();
    stage.shoal(&create).refused(&["needs 3 failure domains", "0 nodes", "shoal brick"]);
    for n in 1..=3u16 {
        let (disk, listen, id) = (stage.path(&format!("disk{n}")), at(n), n.to_string());
        let own = [
            "brick",
            "--disk",
            text(&disk),
            "--format",
            "--id",
            &id,
            "--size",
            "256M",
            "--node",
            &id,
            "--listen",
            &listen,
        ];
        stage.daemon(&format!("brick{n}"), &[&own, &to[..]].concat());
    }
    assert!(wait_for(Duration::from_secs(20), || stage.shoal(&create).ok), "{}", stage.said("brick1"));
    let dir = stage.path("mnt");
    fs::create_dir(&dir).expect("a directory");
    stage.must(&[&["mount", "v", text(&dir), "--log", text(&stage.path("mnt.log"))], &to[..]].concat());
    fs::write(dir.join("file"), b"by hand").expect("a file");
    assert_eq!(fs::read(dir.join("file")).expect("the file"), b"by hand");
    stage.umount(&dir);
}
