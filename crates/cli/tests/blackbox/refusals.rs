//! Wrong commands, wrong keys and wrong bytes get a clear error and do no harm: each is tried, its text is read, and
//! the cluster must go on.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::fixture::{Fixture, Prng, text, wait_for, within};

#[test]
fn volumes_that_cannot_be_are_refused_with_the_reason() {
    let fixture = Fixture::new("domains");
    fixture.shoal(&["up", "--bricks", "4", "--code", "8+2"]).refused(&["8+2 needs 10 bricks", "--code 2+2"]);
    fixture.shoal(&["up", "--bricks", "4", "--size", "8000000T"]).refused(&["at most 256 TiB", "--size"]);
    assert!(!fixture.home().join("cluster.json").exists());
    fixture.up(4, "2+2", "128M");
    let create = |args: &[&str]| fixture.shoal(&[&["volume", "create"], args].concat());
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
    let volumes = fixture.must(&["volume", "list", "--json"]).json();
    let names: Vec<&str> =
        volumes.as_array().expect("a list").iter().filter_map(|v| v["name"].as_str()).collect();
    assert_eq!(names, ["main", "near"]);
    fixture.shoal(&["volume", "delete", "near"]).refused(&["nothing is deleted", "no terminal", "--yes"]);
    fixture.must(&["volume", "info", "near"]);
    fixture.shoal(&["volume", "delete", "far"]).refused(&["no volume `far`"]);
    for (typed, deletes) in [("main", false), ("near", true)] {
        let asked = typing(&fixture, &["volume", "delete", "near"], typed);
        assert!(asked.contains("Type its name"), "{asked}");
        assert_eq!(asked.contains("nothing is deleted"), !deletes, "{asked}");
    }
    fixture.shoal(&["volume", "info", "near"]).refused(&["no volume `near`", "main"]);
}

/// What a command says at a terminal at which somebody types a line.
fn typing(fixture: &Fixture, args: &[&str], line: &str) -> String {
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
    python.args(["-c", script, line, shoal]).args(args).env("SHOAL_DIR", fixture.home());
    let ran = python.output().expect("python3 runs");
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[test]
fn mount_points_and_volumes_that_will_not_do() {
    let fixture = Fixture::new("mount-points");
    let dir = fixture.path("mnt");
    fs::create_dir(&dir).expect("a directory");
    fixture.shoal(&["mount", "main", text(&dir)]).refused(&["no cluster lives in", "shoal up"]);
    fixture.up(3, "2+1", "128M");
    fixture.shoal(&["mount", "mian", text(&dir)]).refused(&["no volume `mian`", "one of: main"]);
    fixture.shoal(&["mount", "main", text(&fixture.path("nowhere"))]).refused(&["does not exist", "mkdir"]);
    fs::write(dir.join("mine"), b"x").expect("a file");
    fixture.shoal(&["mount", "main", text(&dir)]).refused(&["is not empty"]);
    fixture.shoal(&["mount", "main", text(&dir.join("mine"))]).refused(&["is not a directory"]);
    assert_eq!(fs::read(dir.join("mine")).expect("the file"), b"x");
    assert!(fixture.mount_points().is_empty());
}

#[test]
fn taken_ports_and_wrong_keys_are_refused() {
    let fixture = Fixture::new("ports");
    // Below the ports that the kernel gives to connections: one of those could have the bricks' ports.
    let mut ports = (20_000..32_000u16).step_by(100);
    let taken = ports.find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let up = ["up", "--bricks", "3", "--size", "128M", "--port"];
    fixture.shoal(&[&up[..], &[&port.to_string()]].concat()).refused(&["in use by another process"]);
    drop(taken);
    fixture.must(&["up"]);

    let meta = fixture.status_meta();
    let wrong = fixture.path("wrong-key");
    fs::write(&wrong, "ab".repeat(32)).expect("a key");
    let ask = |key: &str| fixture.shoal(&["status", "--meta", &meta, "--key-file", key]);
    ask(text(&wrong)).refused(&["another key", "--key-file"]);
    fixture.shoal(&["status", "--meta", &meta]).refused(&["another key"]);
    ask("/dev/null").refused(&["is not a key file"]);
    assert!(ask(text(&fixture.home().join("key"))).ok);
    fixture.shoal(&["status", "--meta", "127.0.0.1:1"]).refused(&["does not answer"]);

    let init = fixture.path("cluster");
    fixture.must(&["cluster", "init", "--dir", text(&init)]);
    fixture.shoal(&["cluster", "init", "--dir", text(&init)]).refused(&["already"]);
    let open = ["meta", "--dir", text(&init), "--listen", "0.0.0.0:17400", "--no-key"];
    fixture.shoal(&open).refused(&["without a key", "--key-file"]);
    // A brick at all addresses of its machine, of which it names none: others would call themselves.
    let (key, disk) = (init.join("key"), fixture.path("disk"));
    for (listen, advertise) in
        [("0.0.0.0:17411", None), ("[::]:17411", None), ("127.0.0.1:17411", Some("0.0.0.0:17411"))]
    {
        let brick =
            ["brick", "--disk", text(&disk), "--format", "--size", "128M", "--id", "9", "--node", "1"];
        let at = ["--listen", listen, "--meta", &meta, "--key-file", text(&key)];
        let told = advertise.map_or(vec![], |address| vec!["--advertise", address]);
        fixture
            .shoal(&[&brick[..], &at, &told].concat())
            .refused(&["mounts and other bricks cannot call", "--advertise"]);
        assert!(!disk.exists(), "nothing is formatted for a command that is refused");
    }
    let nowhere = fixture.path("nothing");
    fixture.shoal(&["meta", "--dir", text(&nowhere)]).refused(&["is not there", "shoal cluster init"]);
    let mount = fixture.mount("mnt");
    fs::write(mount.join("file"), b"x").expect("the cluster is none the worse");
}

#[test]
fn a_cluster_is_not_made_twice() {
    let fixture = Fixture::new("twice-up");
    fixture.up(3, "2+1", "128M");
    fixture.shoal(&["up", "--bricks", "5"]).refused(&["made with --bricks 3", "--dir"]);
    fixture.must(&["up", "--bricks", "3"]);
    fixture.must(&["down"]);
    fixture.must(&["down"]);
    fixture.must(&["up"]);
}

#[test]
fn random_bytes_at_every_port_do_no_harm() {
    let fixture = Fixture::new("noise");
    fixture.up(4, "2+2", "256M");
    let mount = fixture.mount("mnt");
    let right = Prng::new(1).bytes(3_000_000);
    fs::write(mount.join("file"), &right).expect("a file");
    let status = fixture.status();
    let mut addresses: Vec<String> = status["bricks"]
        .as_array()
        .expect("bricks")
        .iter()
        .filter_map(|b| b["address"].as_str())
        .map(str::to_owned)
        .collect();
    addresses.push(fixture.status_meta());
    let mut idle = Vec::new();
    for (seed, address) in addresses.iter().enumerate() {
        let mut prng = Prng::new(seed as u64 + 77);
        for round in 0..40 {
            let mut conn = TcpStream::connect(address).expect("the port is open");
            conn.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
            let len = 1 + prng.below(10_000) as usize;
            let mut noise = prng.bytes(len);
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
    let calm = || fixture.status()["bricks"].as_array().is_some_and(|b| b.iter().all(|b| b["state"] == "up"));
    assert!(wait_for(Duration::from_secs(10), calm), "every daemon is still there");
}

#[test]
fn a_cluster_can_be_started_daemon_by_daemon() {
    let fixture = Fixture::new("by-hand");
    let init = fixture.path("meta");
    fixture.must(&["cluster", "init", "--dir", text(&init)]);
    let key = init.join("key");
    let base = 20_000 + (std::process::id() % 5_000) as u16;
    let at = |n: u16| format!("127.0.0.1:{}", base + n);
    let meta = at(0);
    fixture.daemon("meta", &["meta", "--dir", text(&init), "--listen", &meta, "--key-file", text(&key)]);
    let to = ["--meta", &meta, "--key-file", text(&key)];
    assert!(wait_for(Duration::from_secs(20), || fixture.shoal(&[&["status"], &to[..]].concat()).ok));
    let create = [&["volume", "create", "v", "--code", "2+1"], &to[..]].concat();
    fixture.shoal(&create).refused(&["needs 3 failure domains", "0 nodes", "shoal brick"]);
    for n in 1..=3u16 {
        let (disk, listen, id) = (fixture.path(&format!("disk{n}")), at(n), n.to_string());
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
        fixture.daemon(&format!("brick{n}"), &[&own, &to[..]].concat());
    }
    assert!(wait_for(Duration::from_secs(20), || fixture.shoal(&create).ok), "{}", fixture.said("brick1"));
    let dir = fixture.path("mnt");
    fs::create_dir(&dir).expect("a directory");
    fixture.must(&[&["mount", "v", text(&dir), "--log", text(&fixture.path("mnt.log"))], &to[..]].concat());
    fs::write(dir.join("file"), b"by hand").expect("a file");
    assert_eq!(fs::read(dir.join("file")).expect("the file"), b"by hand");
    fixture.umount(&dir);
}
