//! Makes a lab within its sandbox, and carries out requests.

use std::collections::BTreeMap;
use std::io::stdin;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use types::NodeId;

use super::look::{BrickState, Look, NodeLook};
use super::plan::LabPlan;
use super::request::{self, Request};
use super::slow::Slow;
use crate::cluster::{Cluster, FILES, Mount};
use crate::error::{Result, doing, refused};
use crate::fabric::cable::find_node;
use crate::fabric::{Cable, Fabric};
use crate::node::Node;
use crate::sandbox::SANDBOX_DIR;

/// Longest pause of a slow brick.
pub const SLOW_MAX: Duration = Duration::from_secs(10);

/// What the maker of a lab says on its way.
pub enum Said<'a> {
    /// What it does next.
    Step(&'a str),
    /// It is up: what [`Request::About`] answers.
    Up(&'a Value),
}

/// Makes a lab with the program `shoal`, and carries out the requests that come over standard input, a listening socket, until
/// one asks it to end. `say` gets what happens meanwhile; if it fails, nobody waits for the lab any more.
///
/// # Errors
/// The lab cannot be made, or the socket fails.
pub fn run(shoal: &Path, plan: LabPlan, mut say: impl FnMut(Said<'_>) -> Result<()>) -> Result<()> {
    let listener = stdin().as_fd().try_clone_to_owned().map_err(doing("use the control socket"))?;
    let listener = UnixListener::from(listener);
    let cables = plan.topology.links().len();
    say(Said::Step(&format!("making {} nodes and {cables} cables", plan.nodes())))?;
    let fabric = Fabric::build(plan.topology.clone(), plan.cable)?;
    let nodes = fabric.nodes()?;
    say(Said::Step(&format!("starting the metadata service and {} bricks", plan.nodes())))?;
    let cluster = Cluster::start(shoal, &nodes[..], plan.cluster(), None)?;
    say(Said::Step("mounting the volume"))?;
    let dir = mount_dir();
    let mount = cluster.mount_at(plan.mount_at.0, FILES, &dir, &[])?;
    let mut server =
        Server { fabric, cluster, _mount: mount, slow: BTreeMap::new(), began: Instant::now(), plan };
    say(Said::Up(&server.about()))?;
    request::serve(&listener, |request| {
        let is_last = request == Request::Down;
        (server.act(request), is_last)
    })
}

/// Where the volume is mounted.
fn mount_dir() -> PathBuf {
    Path::new(SANDBOX_DIR).join(FILES)
}

struct Server<'n> {
    fabric: Fabric,
    cluster: Cluster<'n, [Node]>,
    _mount: Mount,
    slow: BTreeMap<u32, Slow>,
    began: Instant,
    plan: LabPlan,
}

impl Server<'_> {
    fn act(&mut self, request: Request) -> Result<Value> {
        match request {
            Request::About => Ok(self.about()),
            Request::Look => self.look().map(|look| look.to_json()),
            Request::Cut(cable) => {
                let cable = Cable::find(self.fabric.topology(), &cable)?;
                self.fabric.cut(cable)?;
                Ok(json!({ "cable": cable.to_string() }))
            }
            Request::Mend(cable) => {
                let cable = Cable::find(self.fabric.topology(), &cable)?;
                self.fabric.mend(cable)?;
                Ok(json!({ "cable": cable.to_string() }))
            }
            Request::Kill(node) => self.kill(find_node(self.fabric.topology(), &node)?),
            Request::Slow(node, ms) => {
                let node = find_node(self.fabric.topology(), &node)?;
                self.slow_down(node, Duration::from_millis(ms))
            }
            Request::Heal => self.heal(),
            Request::Down => Ok(json!({})),
        }
    }

    fn about(&self) -> Value {
        json!({
            "plan": self.plan.to_json(),
            "volume": FILES,
            "mount": mount_dir().to_string_lossy(),
            "meta": self.cluster.meta_address(),
            "key_file": self.cluster.key().to_string_lossy(),
        })
    }

    fn look(&mut self) -> Result<Look> {
        let cables = self.fabric.loads()?;
        let at_us = self.began.elapsed().as_micros() as u64;
        let states = self.cluster.ask(&["status"]).ok();
        let numbers: Vec<u32> = (1..=self.plan.nodes()).collect();
        let nodes = numbers.into_iter().map(|number| self.look_at(number, states.as_ref())).collect();
        Ok(Look { at_us, nodes, forwarded: self.fabric.forwarded()?.into_iter().collect(), cables })
    }

    fn look_at(&mut self, number: u32, states: Option<&Value>) -> NodeLook {
        let runs = self.cluster.brick(number).map(|brick| brick.pid().is_some());
        let brick = match (runs, self.slow.get(&number)) {
            (None, _) => BrickState::Killed,
            (Some(false), _) => BrickState::Ended,
            (Some(true), Some(slow)) => BrickState::Slow(slow.pause().as_millis() as u64),
            (Some(true), None) => BrickState::Runs,
        };
        let id = format!("b{number}");
        let bricks = states.and_then(|states| states["bricks"].as_array()).into_iter().flatten();
        let state = bricks.filter(|brick| brick["id"] == *id).find_map(|brick| brick["state"].as_str());
        NodeLook { node: NodeId(number), brick, cluster: state.map(str::to_owned) }
    }

    fn kill(&mut self, node: NodeId) -> Result<Value> {
        self.running(node)?;
        self.slow.remove(&node.0);
        self.cluster.kill_brick(node.0);
        Ok(json!({ "node": node.0 }))
    }

    fn slow_down(&mut self, node: NodeId, pause: Duration) -> Result<Value> {
        if pause > SLOW_MAX {
            let what = format!("pauses of {} ms are too long", pause.as_millis());
            let remedy = format!("at most {} s; `shoal lab kill {}` for longer", SLOW_MAX.as_secs(), node.0);
            return Err(refused(what, remedy));
        }
        let process = self.running(node)?;
        let before = self.slow.remove(&node.0);
        if pause.is_zero() {
            return match before {
                Some(_) => Ok(json!({ "node": node.0, "slow_ms": null })),
                None => Err(refused(format!("node {} is not slow", node.0), "a time, such as 20ms")),
            };
        }
        self.slow.insert(node.0, Slow::start(process, pause)?);
        Ok(json!({ "node": node.0, "slow_ms": pause.as_millis() as u64 }))
    }

    /// The process of a node's brick.
    fn running(&mut self, node: NodeId) -> Result<nix::unistd::Pid> {
        let process = self.cluster.brick(node.0).and_then(|brick| brick.pid());
        let what = format!("the brick of node {} does not run", node.0);
        process.ok_or_else(|| refused(what, "`shoal lab heal` starts it again"))
    }

    fn heal(&mut self) -> Result<Value> {
        let mended: Vec<String> = self.fabric.cut_cables().iter().map(Cable::to_string).collect();
        for cable in self.fabric.cut_cables().clone() {
            self.fabric.mend(cable)?;
        }
        let quick: Vec<u32> = self.slow.keys().copied().collect();
        self.slow.clear();
        let mut started = Vec::new();
        for node in 1..=self.plan.nodes() {
            if self.running(NodeId(node)).is_err() {
                self.cluster.restart_brick(node)?;
                started.push(node);
            }
        }
        self.cluster.wait_for_bricks()?;
        Ok(json!({ "mended": mended, "started": started, "quick": quick }))
    }
}
