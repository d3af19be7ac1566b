//! A link of the lab carries its rate and no more, and nothing of a lab is left when its owner is killed: the tests
//! send bytes over a link, and look for processes, mounts and namespaces. They need root.
//!
//! The tests that are ignored are the processes of the others: this program starts itself again, as a lab's owner does.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use lab::fabric::shape::topology;
use lab::fabric::{Cable, CablePlan, Fabric, check_kernel};
use lab::network::Network;
use lab::node::Node;
use lab::sandbox::{Sandbox, enter};
use lab::star::{Control, Link, SWITCH};
use layout::topology::Vertex;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use types::NodeId;

const LINK: Link = Link { mbit: 10, queue: 256 << 10 };
const ROOM: u64 = 64 << 20;
const BYTES: usize = 2 << 20;
const PORT: u16 = 4000;
/// What the process within a sandbox says when everything is there.
const READY: &str = "everything is there";
/// A hang is told from slowness by a clock only.
const PATIENCE: Duration = Duration::from_secs(120);

/// This program again, as one of the tests that are ignored.
fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test's own file"));
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// Sends bytes from one node to another; how long that took.
fn send(from: &Node, to: &Node) -> Duration {
    let at = SocketAddr::from((to.address(), PORT));
    let listener = to.inside(|| TcpListener::bind(at)).expect("a node").expect("a listener");
    thread::scope(|scope| {
        let receive = scope.spawn(move || {
            let (mut conn, _) = listener.accept().expect("a connection");
            let mut received = Vec::new();
            conn.read_to_end(&mut received).expect("bytes");
            (received.len(), Instant::now())
        });
        let mut conn = from.inside(|| TcpStream::connect(at)).expect("a node").expect("a connection");
        let start = Instant::now();
        conn.write_all(&vec![7; BYTES]).expect("bytes");
        drop(conn);
        let (received, end) = receive.join().expect("it receives");
        assert_eq!(received, BYTES);
        end - start
    })
}

#[test]
#[ignore = "the first process of a sandbox, which the next test starts"]
fn inside_of_three_nodes() {
    enter(ROOM).expect("a sandbox");
    let network = Network::build(3, LINK).expect("three nodes");
    let before = network.traffic().expect("counters");
    let time = send(network.node(1), network.node(2));
    let after = network.traffic().expect("counters");
    let traffic: Vec<_> = after.iter().zip(before).map(|(after, before)| after.since(before)).collect();
    let bytes = BYTES as u64;
    let about = |count: u64| (bytes..bytes + bytes / 4).contains(&count);
    assert!(about(traffic[0].sent) && about(traffic[1].received), "{traffic:?}");
    assert!(traffic[0].received < bytes / 8 && traffic[2].received < 64 << 10, "{traffic:?}");
    // A link cannot be faster than its rate, however slow the machine is; a tenth for what may leave at once.
    let least = Duration::from_secs_f64(BYTES as f64 * 8.0 / 10e6 * 0.9);
    assert!(time > least, "{BYTES} bytes within {time:?} by a link of 10 Mbit/s");
    network.shape(Link { mbit: 1000, ..LINK }).expect("other rates");
    let faster = send(network.node(2), network.node(3));
    assert!(faster < time, "{faster:?} by a link of 1 Gbit/s, {time:?} by one of 10 Mbit/s");
}

#[test]
fn a_link_carries_its_rate_and_counts_it() {
    let mut sandbox =
        Sandbox::start(&mut again("inside_of_three_nodes")).expect("a sandbox: run the tests as root");
    let status = sandbox.init().wait().expect("it ends");
    assert!(status.success(), "what it says is above: {status}");
}

#[test]
#[ignore = "the first process of a sandbox, which the next test starts"]
fn inside_of_a_router() {
    enter(ROOM).expect("a sandbox");
    let network = Network::build_routed(2, Control::Cubic).expect("two nodes");
    let fast = Link { mbit: 1000, queue: 4 << 20 };
    network.shape_node(1, fast, fast).expect("a fast link");
    // Eight packets have room there, and TCP begins with ten.
    network.shape_node(2, Link { mbit: 10, queue: 12 << 10 }, fast).expect("a slow one with a shallow port");
    let counts = || {
        let port = network.towards().expect("counters")[1];
        (port, network.node(1).repeated().expect("counters"))
    };
    let before = counts();
    let time = send(network.node(1), network.node(2));
    let after = counts();
    let (port, repeated) = (after.0.since(before.0), after.1.since(before.1));
    assert!(port.received > BYTES as u64 && port.dropped > 0, "{port:?}");
    assert!(repeated.packets >= port.dropped, "what is lost is sent once more: {repeated:?}, {port:?}");
    assert!(time > Duration::from_secs_f64(BYTES as f64 * 8.0 / 10e6 * 0.9), "{time:?} by 10 Mbit/s");
    for control in Control::ALL {
        network.control_by(control).expect("another congestion control");
        let words = ["-n", "node1", "route", "show", "default"];
        let route = Command::new("ip").args(words).output().expect("ip runs");
        let route = String::from_utf8_lossy(&route.stdout).into_owned();
        assert!(route.contains(&format!("congctl {}", control.title())), "{route}");
    }
}

#[test]
fn a_shallow_port_drops_and_the_counters_see_it() {
    let mut sandbox =
        Sandbox::start(&mut again("inside_of_a_router")).expect("a sandbox: run the tests as root");
    let status = sandbox.init().wait().expect("it ends");
    assert!(status.success(), "what it says is above: {status}");
}

#[test]
#[ignore = "the first process of a sandbox, which the next test starts"]
fn inside_of_a_shared_buffer() {
    enter(ROOM).expect("a sandbox");
    let network = Network::build_routed(3, Control::Cubic).expect("three nodes");
    let fast = Link { mbit: 1000, queue: 4 << 20 };
    (1..=3).for_each(|node| network.shape_node(node, fast, fast).expect("fast links"));
    let slow = Link { mbit: 10, queue: 24 << 10 };
    let least = Duration::from_secs_f64(BYTES as f64 * 8.0 / 10e6 * 0.9);
    let shared = network.with_shared_buffer(&[2, 3], slow, |shared| {
        let times = thread::scope(|scope| {
            let network = &network;
            let both = [2, 3].map(|to| scope.spawn(move || send(network.node(1), network.node(to))));
            both.map(|one| one.join().expect("it sends"))
        });
        assert!(times.iter().all(|time| *time > least), "{times:?} by 10 Mbit/s each");
        let counts = shared.counts()?;
        assert!(counts.iter().all(|port| port.bytes > BYTES as u64), "{counts:?}");
        // Each connection has room for ten packets at first, and the memory for sixteen of both.
        assert!(counts.iter().any(|port| port.dropped > 0), "{counts:?}");
        // What goes the other way does not come through these ports.
        send(network.node(2), network.node(1));
        Ok(shared.counts()?.iter().zip(counts).map(|(after, before)| after.since(before).bytes).max())
    });
    let acknowledged = shared.expect("a router with a shared buffer").expect("two ports");
    assert!(acknowledged < BYTES as u64 / 8, "{acknowledged} bytes");
    let faster = send(network.node(1), network.node(2));
    assert!(faster < least, "{faster:?} without it");
}

#[test]
fn ports_that_share_a_memory_have_their_rates_and_drop_what_does_not_fit() {
    let mut sandbox =
        Sandbox::start(&mut again("inside_of_a_shared_buffer")).expect("a sandbox: run the tests as root");
    let status = sandbox.init().wait().expect("it ends");
    assert!(status.success(), "what it says is above: {status}");
}

#[test]
#[ignore = "the first process of a sandbox, which the next test starts"]
fn inside_of_a_torus() {
    enter(ROOM).expect("a sandbox");
    let plan = CablePlan { link: Link { mbit: 100, queue: 64 << 10 }, delay: Duration::ZERO };
    check_kernel(plan).expect("cables");
    let mut fabric = Fabric::build(topology(4, "torus:2x2").expect("a torus"), plan).expect("a fabric");
    let nodes = fabric.nodes().expect("nodes");
    let name = |text| Cable::find(fabric.topology(), text).expect("a cable");
    let (direct, other) = (name("1-2"), name("2-4"));
    // Bytes from node 1 to node 2, by cable and direction.
    let sent = |fabric: &Fabric| {
        let before = fabric.loads().expect("counters");
        send(&nodes[0], &nodes[1]);
        let after = fabric.loads().expect("counters").into_iter().zip(before);
        after
            .map(|(after, before)| (after.cable.to_string(), after.counts[0].since(before.counts[0]).bytes))
            .filter(|(_, bytes)| *bytes >= BYTES as u64)
            .map(|(cable, _)| cable)
            .collect::<Vec<_>>()
    };
    assert_eq!(sent(&fabric), ["1-2"]);
    let forwarded = fabric.forwarded().expect("counters");
    assert!(forwarded.values().all(|packets| *packets == 0), "{forwarded:?}");

    fabric.cut(direct).expect("it is cut");
    assert!(fabric.cut(direct).is_err() && fabric.mend(other).is_err());
    // On from 1 over 3 and 4 to 2: the last cable is used from its second end.
    assert_eq!(sent(&fabric), ["1-3", "3-4"]);
    let forwarded = fabric.forwarded().expect("counters");
    let packets = |node| forwarded[&Vertex::Node(NodeId(node))];
    let least = (BYTES / 1500) as u64;
    assert!(packets(3) > least && packets(4) > least && packets(2) == 0, "{forwarded:?}");

    fabric.cut(other).expect("it is cut");
    let at = SocketAddr::from((nodes[1].address(), PORT));
    let error = nodes[0].inside(|| TcpStream::connect(at)).expect("a node").expect_err("no way");
    assert_eq!(error.kind(), std::io::ErrorKind::NetworkUnreachable, "{error}");
    fabric.mend(other).expect("it is mended");
    assert_eq!(sent(&fabric), ["1-3", "3-4"]);
    fabric.mend(direct).expect("it is mended");
    assert_eq!(sent(&fabric), ["1-2"]);
    assert!(fabric.cut_cables().is_empty());
}

#[test]
fn packets_go_around_a_cable_that_is_cut_and_back_once_it_is_mended() {
    let mut sandbox =
        Sandbox::start(&mut again("inside_of_a_torus")).expect("a sandbox: run the tests as root");
    let status = sandbox.init().wait().expect("it ends");
    assert!(status.success(), "what it says is above: {status}");
}

#[test]
#[ignore = "the first process of a sandbox, which the next test starts"]
fn inside_of_a_fat_tree() {
    enter(ROOM).expect("a sandbox");
    let plan = CablePlan { link: Link { mbit: 1000, queue: 1 << 20 }, delay: Duration::ZERO };
    let fabric = Fabric::build(topology(4, "fat-tree:2").expect("a tree"), plan).expect("a fabric");
    let nodes = fabric.nodes().expect("nodes");
    send(&nodes[0], &nodes[3]);
    send(&nodes[1], &nodes[0]);
    let forwarded = fabric.forwarded().expect("counters");
    let packets = |vertex| forwarded[&vertex];
    assert!(packets(Vertex::Core) > 0 && packets(Vertex::Core) < packets(Vertex::Rack(0)), "{forwarded:?}");
    assert!((1..=4).all(|node| packets(Vertex::Node(NodeId(node))) == 0), "{forwarded:?}");
}

#[test]
fn switches_of_a_fat_tree_forward_and_its_nodes_do_not() {
    let mut sandbox =
        Sandbox::start(&mut again("inside_of_a_fat_tree")).expect("a sandbox: run the tests as root");
    let status = sandbox.init().wait().expect("it ends");
    assert!(status.success(), "what it says is above: {status}");
}

#[test]
#[ignore = "the first process of a sandbox, which `owner` starts"]
fn inside_for_ever() {
    enter(ROOM).expect("a sandbox");
    let network = Network::build(3, LINK).expect("three nodes");
    let mut command = Command::new("sleep");
    let mut sleeper =
        network.node(3).inside(|| command.arg("1000").spawn()).expect("a node").expect("a program");
    println!("{READY}");
    let _ = sleeper.wait();
}

#[test]
#[ignore = "the owner of a sandbox, which the next test kills"]
fn owner() {
    let mut sandbox = Sandbox::start(&mut again("inside_for_ever")).expect("a sandbox");
    let _ = sandbox.init().wait();
}

#[test]
fn nothing_is_left_of_a_lab_whose_owner_is_killed() {
    let mut owner = again("owner").stdout(Stdio::piped()).spawn().expect("an owner");
    let mut said = BufReader::new(owner.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains(READY) {
        line.clear();
        assert!(said.read_line(&mut line).expect("a line") > 0, "it ended before everything was there");
    }
    kill(Pid::from_raw(owner.id().cast_signed()), Signal::SIGKILL).expect("the owner runs");
    owner.wait().expect("it is dead");
    // Every process of the lab has the other end of this pipe: it closes when the last of them has gone.
    let (gone, wait) = channel();
    thread::spawn(move || {
        let mut rest = Vec::new();
        let _ = said.read_to_end(&mut rest);
        let _ = gone.send(());
    });
    wait.recv_timeout(PATIENCE).expect("processes of a lab outlive its owner");
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.lines().any(|line| line.starts_with("lab ")), "{mounts}");
    assert!(!std::path::Path::new("/run/netns").join(SWITCH).exists());
}

#[test]
fn only_the_first_process_of_a_namespace_enters() {
    let refused = enter(ROOM).expect_err("this process is not the first of its namespace");
    assert!(refused.to_string().contains("not the first"), "{refused}");
}
