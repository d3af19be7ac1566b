//! What strangers do at a gate: they come from any port, hold connections without a word, use the numbers of others, and
//! make names that are not theirs.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use nfs3_types::nfs3::nfsstat3;

use crate::fixture::{Fixture, text, wait_for};
use crate::nfs_client::{NfsClient, ROOT, from_a_privileged_port};

/// Whether the other end closes a connection on which nothing was sent.
fn is_closed(conn: &TcpStream) -> bool {
    is_closed_within(conn, Duration::from_secs(10))
}

fn is_closed_within(mut conn: &TcpStream, time: Duration) -> bool {
    conn.set_read_timeout(Some(time)).expect("a timeout");
    matches!(conn.read(&mut [0; 1]), Ok(0)) || conn.take_error().is_ok_and(|error| error.is_some())
}

#[test]
fn only_root_of_a_machine_is_a_client_of_nfs_and_insecure_admits_all() {
    let fixture = Fixture::new("nfs-ports");
    fixture.up(3, "2+1", "128M");
    let gate = fixture.nfs("gate", &[]);
    gate.root(ROOT);
    for _ in 0..20 {
        let stranger = TcpStream::connect(gate.address).expect("the gate listens");
        assert!(is_closed(&stranger), "a port of anybody is admitted");
    }
    fixture.stop_nfs(&gate);
    let said = fs::read_to_string(fixture.path("gate.log")).expect("a log");
    assert_eq!(said.matches("whose port anybody may use").count(), 1, "a line a minute:\n{said}");

    let gate = fixture.nfs("open", &["--insecure"]);
    let stranger = TcpStream::connect(gate.address).expect("the gate listens");
    let mut stranger = NfsClient::over(stranger, ROOT).expect("options");
    stranger.mount("/main").expect("everybody is served");
    fixture.stop_nfs(&gate);
    fixture.check_logs(&["whose port anybody may use"]);
}

#[test]
fn idle_clients_make_room() {
    let fixture = Fixture::new("nfs-seats");
    fixture.up(3, "2+1", "128M");
    let gate = fixture.nfs("gate", &["--connections", "8"]);
    let mut idle: Vec<TcpStream> =
        (0..8).map(|_| from_a_privileged_port(gate.address).expect("the gate listens")).collect();
    let (mut nfs, root) = gate.root(ROOT);
    // One address has six seats. The gate's threads take connections in any order, so nobody knows which three of the eight make room.
    let closed = || idle.iter().filter(|conn| is_closed_within(conn, Duration::from_millis(1))).count();
    assert!(wait_for(Duration::from_secs(20), || closed() >= 3), "{} idle ones made room", closed());
    assert_eq!(closed(), 3, "nobody else has to");
    // A client that asks stays, however many come.
    for _ in 0..16 {
        idle.push(from_a_privileged_port(gate.address).expect("the gate listens"));
        nfs.lookup(&root, "nothing").expect_err("there is no such file");
    }
    fixture.stop_nfs(&gate);
    fixture.check_logs(&[]);
}

#[test]
fn a_request_with_the_number_of_anothers_is_carried_out_and_a_repetition_is_not() {
    let fixture = Fixture::new("nfs-numbers");
    fixture.up(3, "2+1", "128M");
    let gate = fixture.nfs("gate", &["--no-root-squash"]);
    let (mut first, root) = gate.root(ROOT);
    // Two programs that begin at the same number, at the same time.
    let mut second = gate.client(ROOT);
    first.file(&root, "a", 0o644);
    first.xid = 1000;
    first.remove(&root, "a").expect("there");
    first.file(&root, "a", 0o644);
    second.xid = 1000;
    second.remove(&root, "a").expect("there");
    assert_eq!(first.lookup(&root, "a").err(), Some(nfsstat3::NFS3ERR_NOENT), "it was carried out");
    // The same program, run again.
    second.xid = 2000;
    second.mkdir(&root, "job", 0o755).expect("free");
    drop(second);
    first.rmdir(&root, "job").expect("empty");
    std::thread::sleep(Duration::from_millis(1500));
    let mut second = gate.client(ROOT);
    second.xid = 2000;
    second.mkdir(&root, "job", 0o755).expect("free");
    first.rmdir(&root, "job").expect("it was made");
    // A client that has lost its connection asks once more.
    first.file(&root, "z", 0o644);
    first.xid = 3000;
    first.remove(&root, "z").expect("there");
    drop(first);
    let mut first = gate.client(ROOT);
    first.xid = 3000;
    first.remove(&root, "z").expect("the first answer");
    fixture.stop_nfs(&gate);
    fixture.check_logs(&[]);
}

#[test]
fn nobody_makes_the_name_of_the_control_files() {
    let fixture = Fixture::new("reserved-name");
    fixture.up(3, "2+1", "128M");
    let mount = fixture.mount("mnt");
    fs::create_dir(mount.join("precious")).expect("free");
    let moved = fs::rename(mount.join("precious"), mount.join(".shoal"));
    assert_eq!(moved.err().and_then(|error| error.raw_os_error()), Some(nix::libc::EPERM));
    let gate = fixture.nfs("gate", &["--no-root-squash"]);
    let (mut nfs, root) = gate.root(ROOT);
    assert_eq!(nfs.mkdir(&root, ".shoal", 0o755).err(), Some(nfsstat3::NFS3ERR_PERM));
    fs::create_dir(mount.join("precious/.shoal")).expect("elsewhere it is a name like any other");
    fixture.must(&["tune", text(&mount)]);
    fixture.stop_nfs(&gate);
    fixture.umount(&mount);
}

#[test]
fn a_disk_is_exported_to_its_user_alone() {
    let fixture = Fixture::new("nbd-default");
    fixture.up(3, "2+1", "128M");
    let volume = format!("disk-{}", std::process::id());
    fixture.must(&["volume", "create", &volume, "--block", "16M", "--code", "2+1", "--same-node"]);
    let said = fixture.must(&["nbd", &volume, "--log", text(&fixture.path("gate.log")), "--json"]).json();
    let socket = format!("/run/shoal/nbd-{volume}.sock");
    assert_eq!(said["uri"], format!("nbd+unix:///{volume}?socket={socket}"));
    let mode = |path: &str| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&socket), 0o600);
    let second = fixture.path("second.log");
    fixture
        .shoal(&["nbd", &volume, "--log", text(&second)])
        .refused(&["is in use by another process", "--socket"]);
    fixture.must(&["nbd", &volume, "--stop"]);
    assert!(wait_for(Duration::from_secs(5), || !Path::new(&socket).exists()));
}
