//! What somebody without the key of the cluster can do to its daemons: connect at any rate, and pass on what others say.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use types::messages::session::{Meant, Role};

use crate::descriptors::Descriptors;
use crate::fixture::{Fixture, make_stable, read_direct, text, wait_for, within};
use crate::relay::{Attack, Forgery, Handshake, Outcome, Relay, To};

const SOON: Duration = Duration::from_secs(60);
/// The address of a daemon of the embedded cluster; 0 is the metadata service.
fn address(fixture: &Fixture, daemon: u16) -> String {
    let plan = fs::read_to_string(fixture.home().join("cluster.json")).expect("a plan");
    let plan: Value = serde_json::from_str(&plan).expect("JSON");
    let port = plan["port"].as_u64().expect("a port") + u64::from(daemon);
    format!("127.0.0.1:{port}")
}

/// Connects without an end and says nothing. At most 2,000 connections are kept; a daemon keeps fewer.
fn connect_for_ever(addresses: &[String], count: &AtomicUsize, stop: &AtomicBool) {
    let mut kept = VecDeque::new();
    while !stop.load(Ordering::Acquire) {
        for address in addresses {
            if let Ok(connection) = TcpStream::connect(address) {
                kept.push_back(connection);
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        kept.drain(..kept.len().saturating_sub(2_000));
    }
}

#[test]
fn ten_thousand_idle_connections_keep_nobody_out() {
    let fixture = Fixture::new("idle");
    fixture.up(3, "2+1", "128M");
    let daemons = [fixture.pid("meta"), fixture.pid("b1")];
    let addresses = [address(&fixture, 0), address(&fixture, 1)];
    let before = daemons.map(Descriptors::of);
    let (count, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| connect_for_ever(&addresses, &count, &stop));
        let enough = |least: usize| wait_for(SOON, || count.load(Ordering::Relaxed) >= least);
        assert!(enough(5_000), "{count:?} connections");
        // Everybody who has the key is served meanwhile.
        let mount = within(SOON, "a mount among idle connections", || fixture.mount("mnt"));
        within(SOON, "files among idle connections", || {
            make_stable(&mount.join("file"), &[7; 300_000]);
            assert!(read_direct(&mount.join("file"), 300_000, 4096) == [7; 300_000]);
            fixture.status();
        });
        assert!(enough(10_000), "{count:?} connections");
        for (before, pid) in before.iter().zip(daemons) {
            let now = Descriptors::of(pid);
            assert!(now.all <= before.all + 128 + 64, "{before:?}, then {now:?}");
        }
        fixture.umount(&mount);
        stop.store(true, Ordering::Release);
    });
    for log in ["meta.log", "b1.log"] {
        let said = fs::read_to_string(fixture.home().join("log").join(log)).expect("a log");
        let lines = said.matches("have not proved the key").count();
        // One a minute.
        assert!((1..=3).contains(&lines), "{lines} lines in {log}");
    }
    fixture.check_logs(&["have not proved the key"]);
}

/// Whether callers of this kind have come.
fn have_come(handshakes: &[Handshake], caller: Role, meant: Meant) -> bool {
    handshakes.iter().any(|handshake| handshake.caller == caller && handshake.meant == meant)
}

#[test]
fn the_port_of_a_daemon_that_is_down_leads_to_no_other_daemon() {
    let fixture = Fixture::new("squatter");
    fixture.up(4, "2+1", "128M");
    let mount = fixture.mount("mnt");
    let daemons: Vec<String> = (0..=4).map(|daemon| address(&fixture, daemon)).collect();
    make_stable(&mount.join("file"), &[1; 300_000]);

    // The port of a brick, which clients and bricks call.
    fixture.kill("b1");
    let relay = Relay::new(&daemons[1], &[&daemons[0], &daemons[2], &daemons[3]]);
    let round = Cell::new(2);
    let both_have_come = || {
        make_stable(&mount.join("file"), &[round.get(); 300_000]);
        round.set(round.get() % 200 + 1);
        let seen = relay.handshakes();
        have_come(&seen, Role::Client, Meant::Brick) && have_come(&seen, Role::Brick, Meant::Brick)
    };
    let have_come_to_brick = wait_for(SOON, both_have_come);
    let to_brick = relay.handshakes();
    drop(relay);
    assert!(have_come_to_brick, "{to_brick:?}");
    assert!(!to_brick.iter().any(|handshake| handshake.is_proved), "{to_brick:?}");
    fixture.must(&["up"]);

    // That of the metadata service, which all of them call.
    fixture.kill("meta");
    let relay = Relay::new(&daemons[0], &[&daemons[1], &daemons[2]]);
    let all_have_come = || {
        let seen = relay.handshakes();
        have_come(&seen, Role::Client, Meant::Meta) && have_come(&seen, Role::Brick, Meant::Meta)
    };
    let have_come_to_meta = wait_for(SOON, all_have_come);
    let status = within(SOON, "status through a relay", || fixture.shoal(&["status"]));
    let to_meta = relay.handshakes();
    drop(relay);
    assert!(have_come_to_meta, "{to_meta:?}");
    assert!(!to_meta.iter().any(|handshake| handshake.is_proved), "{to_meta:?}");
    assert!(!status.ok, "{}", status.stdout);

    fixture.must(&["up"]);
    let last = [round.get(); 300_000];
    make_stable(&mount.join("file"), &last);
    assert!(read_direct(&mount.join("file"), 300_000, 4096) == last);
    fixture.umount(&mount);
    fixture.must(&["down"]);
    // The daemons that were called have said so.
    let said = fs::read_to_string(fixture.home().join("log/b2.log")).expect("a log");
    assert!(said.contains("a caller means another server"), "{said}");
}

/// A cluster with a relay in front of each of its daemons.
struct Relayed {
    fixture: Fixture,
    meta: Relay,
    bricks: Vec<Relay>,
    mount: PathBuf,
}

/// A port for a daemon of the test.
fn port(number: u16) -> u16 {
    28_000 + (std::process::id() % 200) as u16 * 16 + number
}

impl Relayed {
    fn new(name: &str) -> Relayed {
        let fixture = Fixture::new(name);
        let dir = fixture.path("meta");
        fixture.must(&["cluster", "init", "--dir", text(&dir)]);
        let (key, listen) = (dir.join("key"), format!("127.0.0.1:{}", port(0)));
        fixture.daemon("meta", &["meta", "--dir", text(&dir), "--listen", &listen]);
        let meta = Relay::new("127.0.0.1:0", &[&listen]);
        let access = ["--meta", &meta.address, "--key-file", text(&key)];
        assert!(wait_for(SOON, || fixture.shoal(&[&["status"][..], &access].concat()).ok), "no service");
        let mut bricks = Vec::new();
        for n in 1..=3 {
            let (id, disk) = (n.to_string(), fixture.path(&format!("disk{n}")));
            let listen = format!("127.0.0.1:{}", port(n));
            let relay = Relay::new("127.0.0.1:0", &[&listen]);
            let words = [
                &["brick", "--disk", text(&disk), "--format", "--size", "128M", "--id", &id, "--node", &id],
                &["--listen", &listen, "--advertise", &relay.address][..],
                &access,
            ];
            fixture.daemon(&format!("b{n}"), &words.concat());
            bricks.push(relay);
        }
        let made =
            || fixture.shoal(&[&["volume", "create", "main", "--code", "2+1"][..], &access].concat()).ok;
        assert!(wait_for(SOON, made), "no volume");
        let mount = fixture.mount_with("mnt", &access);
        Relayed { fixture, meta, bricks, mount }
    }

    /// Writes and reads a file past all caches: asks every brick.
    fn work(&self, round: u8) {
        let file = self.mount.join("file");
        make_stable(&file, &[round; 1 << 20]);
        assert!(read_direct(&file, 1 << 20, 64 << 10) == vec![round; 1 << 20]);
    }

    fn said(&self, daemon: &str) -> String {
        self.fixture.said(daemon)
    }
}

#[test]
fn a_relay_in_the_right_place_passes_on_and_adds_nothing() {
    let cluster = Relayed::new("relay");
    let round = Cell::new(0u8);
    let work = || {
        round.set(round.get().wrapping_add(1));
        cluster.work(round.get());
    };
    work();
    // What is passed on as it was said does no harm: the relay is in all connections.
    let met = cluster.meta.handshakes();
    assert!(met.iter().all(|handshake| handshake.is_proved), "{met:?}");
    assert!(
        have_come(&met, Role::Client, Meant::Meta) && have_come(&met, Role::Brick, Meant::Meta),
        "{met:?}"
    );
    let bricks: Vec<Handshake> = cluster.bricks.iter().flat_map(Relay::handshakes).collect();
    assert!(bricks.iter().all(|handshake| handshake.is_proved), "{bricks:?}");
    assert!(
        have_come(&bricks, Role::Client, Meant::Brick) && have_come(&bricks, Role::Brick, Meant::Brick),
        "{bricks:?}"
    );
    for relay in [&cluster.meta, &cluster.bricks[0]] {
        for caller in [Role::Client, Role::Brick] {
            for to in [To::Server, To::Caller] {
                for forgery in [Forgery::Add, Forgery::Change, Forgery::Repeat] {
                    let attack = Attack { caller, to, forgery };
                    assert_eq!(relay.attack(attack, work), Some(Outcome::Closed), "{attack:?}");
                }
            }
        }
    }
    work();
    cluster.fixture.umount(&cluster.mount);
    for daemon in ["meta", "b1", "b2", "b3"] {
        assert!(!cluster.said(daemon).contains("panicked"), "{}", cluster.said(daemon));
    }
}
