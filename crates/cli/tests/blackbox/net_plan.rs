//! Networks without switches: what `shoal net plan` writes is carried out in network namespaces, one for each node, with a
//! pair of virtual interfaces for each cable; `shoal net check` tells which are as planned.
//!
//! What systemd-networkd would do is done by `ip`, from the same files. The routing daemons are real ones, each with the
//! file that was written for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::fixture::{CommandOutput, Fixture, text, wait_for};

/// Longest time until all ways are found. On a quiet machine: 8 s.
const CONVERGE: Duration = Duration::from_secs(120);
/// Where Debian has the daemons of FRR, which are in no PATH.
const FRR: &str = "/usr/lib/frr";

fn ip(args: &[&str]) {
    run("ip", args);
}

fn run(program: &str, args: &[&str]) {
    let ran = Command::new(program).args(args).output();
    let ran = ran.unwrap_or_else(|error| panic!("{program}: {error}; see ./dev test for what it needs"));
    assert!(ran.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// An end of a cable: node and interface.
type End = (u64, String);

/// A planned network that was built; its namespaces are gone when it is dropped.
struct Built {
    fixture: Fixture,
    /// The words that describe it to both commands.
    words: Vec<&'static str>,
    dir: PathBuf,
    spaces: BTreeMap<u64, String>,
    cables: Vec<[End; 2]>,
}

impl Built {
    /// Plans a network with `plan`, which also says who finds the ways, and builds it; `rewire` may misplace cables.
    fn new(
        name: &str,
        words: &[&'static str],
        plan: &[&str],
        rewire: impl FnOnce(&mut Vec<[End; 2]>),
    ) -> Built {
        let fixture = Fixture::new(name);
        let dir = fixture.path("plan");
        let args = [&["net", "plan", "--json", "--out", text(&dir)], words, plan].concat();
        let plan = fixture.must(&args).json();
        let list = |name: &str| plan[name].as_array().expect("a list").clone();
        let end = |end: &Value| {
            let interface = end["interface"].as_str().expect("the name of a port");
            (end["node"].as_u64().expect("a node"), interface.to_owned())
        };
        let mut cables: Vec<[End; 2]> =
            list("cables").iter().map(|cable| [end(&cable["from"]), end(&cable["to"])]).collect();
        rewire(&mut cables);
        let id = std::process::id() % 100_000;
        let numbers = list("nodes").into_iter().map(|node| node["node"].as_u64().expect("a node"));
        let spaces: BTreeMap<u64, String> = numbers.map(|node| (node, format!("shoal{id}n{node}"))).collect();
        let mut built = Built { fixture, words: words.to_vec(), dir, spaces: BTreeMap::new(), cables };
        for (node, space) in spaces {
            ip(&["netns", "add", &space]);
            ip(&["-n", &space, "link", "set", "lo", "up"]);
            built.spaces.insert(node, space);
        }
        for [(a, left), (b, right)] in &built.cables {
            let [a, b] = [a, b].map(|node| &*built.spaces[node]);
            ip(&["-n", a, "link", "add", left, "type", "veth", "peer", "name", right, "netns", b]);
        }
        built.spaces.keys().for_each(|node| built.configure(*node));
        built
    }

    fn space(&self, node: u64) -> &str {
        &self.spaces[&node]
    }

    /// The directory of a node's files.
    fn files(&self, node: u64) -> PathBuf {
        self.dir.join(format!("n{node}"))
    }

    /// Does what systemd-networkd and systemd-sysctl would do with the files of a node.
    fn configure(&self, node: u64) {
        let space = self.space(node);
        let networks = fs::read_dir(self.files(node).join("etc/systemd/network")).expect("files").flatten();
        let networks: Vec<Vec<(String, String)>> =
            networks.map(|entry| settings(&fs::read_to_string(entry.path()).expect("text"))).collect();
        // Addresses first: routes name them.
        for with_routes in [false, true] {
            for network in &networks {
                let of = |key: &str| network.iter().find(|(name, _)| name == key).map(|(_, value)| &**value);
                let name = of("Name").expect("the name of an interface");
                if with_routes {
                    routes(space, name, network);
                    continue;
                }
                ip(&["-n", space, "address", "add", of("Address").expect("an address"), "dev", name]);
                if let Some(mtu) = of("MTUBytes") {
                    ip(&["-n", space, "link", "set", name, "mtu", mtu]);
                }
                ip(&["-n", space, "link", "set", name, "up"]);
            }
        }
        let wanted =
            fs::read_to_string(self.files(node).join("etc/sysctl.d/90-shoal-net.conf")).expect("text");
        for (key, value) in settings(&wanted) {
            sysctl(space, &key, &value);
        }
    }

    /// Starts FRR at each node, as its service does: the daemons, then all their configuration by vtysh.
    fn start_frr(&self) {
        for (node, space) in &self.spaces {
            let own = self.fixture.path(&format!("frr{node}"));
            fs::create_dir(&own).expect("a directory");
            fs::copy(self.files(*node).join("etc/frr/frr.conf"), own.join("frr.conf")).expect("a file");
            run("chown", &["-R", "frr:frr", text(&own)]);
            for daemon in ["zebra", "bfdd", "ospfd"] {
                let file = |name: &str| text(&own.join(name)).to_owned();
                let mut command = Command::new("ip");
                command.args(["netns", "exec", space, &format!("{FRR}/{daemon}"), "-A", "127.0.0.1"]);
                command.args([
                    "-f",
                    "/dev/null",
                    "-i",
                    &file(&format!("{daemon}.pid")),
                    "-z",
                    &file("zebra.api"),
                ]);
                command.args(["--vty_socket", text(&own)]);
                if daemon == "bfdd" {
                    command.args(["--bfdctl", &file("bfdd.control")]);
                }
                let name = format!("{daemon}{node}");
                self.fixture.start(&name, command);
                let serves = || own.join(format!("{daemon}.vty")).exists();
                assert!(wait_for(Duration::from_secs(20), serves), "{name}: {}", self.fixture.said(&name));
            }
            run("vtysh", &["--vty_socket", text(&own), "--config_dir", text(&own), "-b"]);
        }
    }

    /// Starts BIRD at each node.
    fn start_bird(&self) {
        for (node, space) in &self.spaces {
            let config = self.files(*node).join("etc/bird/bird.conf");
            let control = self.fixture.path(&format!("bird{node}.ctl"));
            let mut command = Command::new("ip");
            command.args(["netns", "exec", space, "bird", "-f", "-c", text(&config), "-s", text(&control)]);
            self.fixture.start(&format!("bird{node}"), command);
        }
    }

    /// Sets the routes of a node again, which go with an address that they name.
    fn configure_again(&self, node: u64) {
        for [(a, left), (b, right)] in &self.cables {
            for (at, name) in [(a, left), (b, right)].into_iter().filter(|(at, _)| **at == node) {
                let file = self.files(*at).join(format!("etc/systemd/network/10-shoal-{name}.network"));
                let network = settings(&fs::read_to_string(file).expect("text"));
                // Those that are still there cannot be added.
                let _ = Command::new("ip")
                    .args(["-n", self.space(node), "route", "flush", "dev", name, "scope", "global"])
                    .output();
                routes(self.space(node), name, &network);
            }
        }
    }

    fn check(&self, node: u64, more: &[&str]) -> CommandOutput {
        let number = node.to_string();
        let args = [&["net", "check", "--node", &number], &*self.words, more].concat();
        self.fixture.shoal_in(self.space(node), &args)
    }

    /// What is wrong at a node: what, what was found, what to do.
    fn wrong(&self, node: u64) -> Vec<[String; 3]> {
        let ran = self.check(node, &["--json"]);
        let document: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
        let findings = document["findings"].as_array().expect("findings").clone();
        let wrong = findings.iter().filter(|finding| finding["ok"] == false);
        let words = |finding: &Value| {
            ["what", "found", "try"].map(|key| finding[key].as_str().unwrap_or_default().to_owned())
        };
        let wrong: Vec<[String; 3]> = wrong.map(words).collect();
        assert_eq!(ran.ok, wrong.is_empty(), "the exit code tells: {ran:?}");
        assert_eq!(document["ok"], wrong.is_empty());
        wrong
    }

    /// Fails unless one thing is wrong at a node, in these words.
    fn has(&self, node: u64, expected: [&str; 3]) {
        let wrong = self.wrong(node);
        let found =
            wrong.iter().any(|line| line.iter().zip(expected).all(|(said, word)| said.contains(word)));
        assert!(found, "n{node} does not say {expected:?}: {wrong:#?}");
    }

    /// Waits until all nodes find everything as planned.
    fn converge(&self) {
        for &node in self.spaces.keys() {
            let right = wait_for(CONVERGE, || self.check(node, &[]).ok);
            assert!(right, "n{node}: {}", self.check(node, &[]).stdout);
        }
    }

    /// Cuts or mends a cable: the port of its far end goes down, the near one loses its carrier.
    fn set(&self, cable: usize, state: &str) {
        let (node, interface) = &self.cables[cable - 1][1];
        ip(&["-n", self.space(*node), "link", "set", interface, state]);
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        for space in self.spaces.values() {
            let _ = Command::new("ip").args(["netns", "del", space]).output();
        }
    }
}

/// The lines `key=value` of a file, in their order.
fn settings(text: &str) -> Vec<(String, String)> {
    let pairs = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect()
}

/// Sets the routes of a `.network` file: each begins with its destination.
fn routes(space: &str, name: &str, network: &[(String, String)]) {
    let begins: Vec<usize> = (0..network.len()).filter(|&at| network[at].0 == "Destination").collect();
    for at in begins {
        let value = |offset: usize, key: &str| {
            assert_eq!(network[at + offset].0, key, "routes are written in this order");
            &*network[at + offset].1
        };
        let (to, gateway) = (value(0, "Destination"), value(1, "Gateway"));
        let (source, metric) = (value(2, "PreferredSource"), value(3, "Metric"));
        ip(&["-n", space, "route", "add", to, "via", gateway, "dev", name, "src", source, "metric", metric]);
    }
}

fn sysctl(space: &str, key: &str, value: &str) {
    ip(&["netns", "exec", space, "sysctl", "-qw", &format!("{key}={value}")]);
}

const MESH: [&str; 4] = ["--mesh", "3", "--range", "198.18.64.0/24"];

#[test]
fn a_mesh_with_static_routes_is_checked() {
    let mesh = Built::new("net-static", &MESH, &["--routing", "static"], |_| {});
    mesh.converge();
    let said = mesh.check(1, &[]);
    assert!(said.stdout.contains("n1 of mesh: 3 nodes, 3 cables"), "{said:?}");
    assert!(said.stdout.contains("all is as planned"), "{said:?}");
    // The topology's file says the same, and the address tells which node it is.
    let file = mesh.dir.join("topology");
    let args = ["net", "check", "--topology", text(&file), "--range", MESH[3]];
    assert!(mesh.fixture.shoal_in(mesh.space(2), &args).ok);

    // A missing address: the neighbour misses it too.
    ip(&["-n", mesh.space(2), "address", "del", "198.18.64.129/31", "dev", "port1"]);
    mesh.has(
        2,
        [
            "port1, cable 1 to n1 port1",
            "has no 198.18.64.129/31",
            "ip address add 198.18.64.129/31 dev port1",
        ],
    );
    mesh.has(1, ["port1, cable 1 to n2 port1", "nobody there has an address of the plan", "at n2"]);
    ip(&["-n", mesh.space(2), "address", "add", "198.18.64.129/31", "dev", "port1"]);
    mesh.configure_again(2);
    mesh.converge();

    ip(&["-n", mesh.space(2), "address", "del", "198.18.64.2/32", "dev", "lo"]);
    mesh.has(2, ["n2 198.18.64.2", "no interface has it", "ip address add 198.18.64.2/32 dev lo"]);
    mesh.has(1, ["n2 198.18.64.2", "does not answer", "is it up"]);
    ip(&["-n", mesh.space(2), "address", "add", "198.18.64.2/32", "dev", "lo"]);
    mesh.configure_again(2);
    mesh.converge();

    sysctl(mesh.space(3), "net/ipv4/conf/port2/forwarding", "0");
    mesh.has(3, ["port2, cable 3", "does not forward", "net/ipv4/conf/port2/forwarding=1"]);
    sysctl(mesh.space(3), "net/ipv4/conf/port2/forwarding", "1");

    ip(&["-n", mesh.space(3), "link", "set", "port1", "mtu", "1400"]);
    mesh.has(3, ["MTU of the ports", "port1 has 1400, port2 has 1500", "ip link set port1 mtu 1500"]);
    mesh.has(1, ["port2, cable 2 to n3 port1", "packets of 1500 bytes do not arrive", "make it 1500"]);
    ip(&["-n", mesh.space(3), "link", "set", "port1", "mtu", "1500"]);

    // A cut cable: the third node forwards, without a daemon.
    mesh.set(1, "down");
    mesh.has(1, ["port1, cable 1 to n2 port1", "has no carrier", "is cable 1 in at both ends"]);
    mesh.has(1, ["n2 198.18.64.2", "answers over 2 hops, planned 1", "cable of the short way"]);
    mesh.has(2, ["port1, cable 1 to n1 port1", "is down", "ip link set port1 up"]);
}

#[test]
fn a_crossed_cable_is_told() {
    // At n1, the cables to n2 and n3 are in each other's ports.
    let mesh = Built::new("net-crossed", &MESH, &["--routing", "static"], |cables| {
        let (left, right) = (cables[0][1].clone(), cables[1][1].clone());
        (cables[0][1], cables[1][1]) = (right, left);
    });
    let swap = "swap the cables in port1 and port2";
    mesh.has(1, ["port1, cable 1 to n2 port1", "leads to n3 port1, the plan says n2 port1", swap]);
    mesh.has(
        1,
        [
            "port2, cable 2 to n3 port1",
            "leads to n2 port1, the plan says n3 port1",
            "swap the cables in port2 and port1",
        ],
    );
    mesh.has(
        2,
        [
            "port1, cable 1 to n1 port1",
            "leads to n1 port2, the plan says n1 port1",
            "at n1: move the cable from port2 to port1",
        ],
    );
    let said = mesh.check(1, &[]);
    said.refused(&["n1 is not as planned"]);
    assert!(said.stdout.contains(swap), "{}", said.stdout);
}

#[test]
fn frr_goes_around_a_cut_cable() {
    let mesh = Built::new("net-frr", &MESH, &["--routing", "frr"], |_| {});
    mesh.start_frr();
    mesh.converge();
    mesh.set(1, "down");
    let detour = || {
        mesh.wrong(1).iter().any(|[what, found, _]| what.starts_with("n2") && found.contains("over 2 hops"))
    };
    assert!(wait_for(CONVERGE, detour), "{}", mesh.check(1, &[]).stdout);
    mesh.set(1, "up");
    mesh.converge();
}

#[test]
fn bird_goes_around_a_cut_cable_of_a_torus() {
    let words = ["--torus", "3x3", "--range", "198.18.65.0/24"];
    let torus = Built::new("net-bird", &words, &["--routing", "bird"], |_| {});
    torus.start_bird();
    torus.converge();
    torus.set(1, "down");
    // n1 and n2 are two hops apart now, and everybody else answers.
    let detour = || {
        let wrong = torus.wrong(1);
        let far = wrong.iter().filter(|[what, ..]| what.starts_with('n'));
        let far: Vec<&str> = far.map(|[what, ..]| &**what).collect();
        far == ["n2 198.18.65.2"]
            && wrong.iter().any(|[_, found, _]| found.contains("over 2 hops, planned 1"))
    };
    assert!(wait_for(CONVERGE, detour), "{}", torus.check(1, &[]).stdout);
    torus.set(1, "up");
    torus.converge();
}

#[test]
fn what_cannot_be_planned_is_refused() {
    let mesh = Built::new("net-refused", &MESH, &["--routing", "static"], |_| {});
    let fixture = &mesh.fixture;
    let plan = |more: &[&str]| fixture.shoal_in(mesh.space(1), &[&["net", "plan"], &MESH[..], more].concat());
    plan(&[]).refused(&["range 198.18.64.0/24 is in use on this machine: ", "198.18.64.", "--allow-overlap"]);
    let dir = fixture.path("again");
    assert!(plan(&["--allow-overlap", "--out", text(&dir)]).ok);
    assert!(Path::new(&dir).join("n3/etc/frr/frr.conf").exists());
    plan(&["--allow-overlap", "--out", text(&dir)]).refused(&["is not empty", "a new directory"]);
    // A route alone is a use, too; that to everything is none.
    ip(&["-n", mesh.space(1), "route", "add", "198.18.72.0/22", "via", "198.18.64.129"]);
    ip(&["-n", mesh.space(1), "route", "add", "default", "via", "198.18.64.129"]);
    let other = |range| fixture.shoal_in(mesh.space(1), &["net", "plan", "--mesh", "3", "--range", range]);
    other("198.18.73.0/24").refused(&["a route to 198.18.72.0/22 leads through port1", "another one"]);
    assert!(other("198.18.80.0/24").ok);

    let file = fixture.path("no-topology");
    fs::write(&file, "[Match]\nName=eth0\n").expect("a file");
    let checked = fixture.shoal_in(mesh.space(1), &["net", "check", "--topology", text(&file)]);
    checked.refused(&["no-topology: line 1", "is no shape"]);
    let checked = fixture.shoal_in(mesh.space(1), &["net", "check", "--mesh", "3", "--node", "9"]);
    checked.refused(&["has no node n9", "one of n1, n2, n3"]);
    // The addresses of another range are nobody's here.
    let checked = fixture.shoal_in(mesh.space(1), &["net", "check", "--mesh", "3"]);
    checked.refused(&["no node's address of the plan", "--node 1"]);
}
