//! A fabric that runs. Must be made within a [sandbox](crate::sandbox), which removes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;

use layout::topology::{Topology, Vertex};
use nix::sched::{CloneFlags, unshare};

use super::cable::{Cable, name};
use super::commands::{self, CablePlan};
use super::routes::Routes;
use crate::error::{LabError, Result, doing, refused};
use crate::iproute::{Counts, batch, counts, queues, run};
use crate::node::{Node, Space, counter, read_from_start};

/// See the module.
pub struct Fabric {
    topology: Topology,
    places: BTreeMap<Vertex, Place>,
    plan: CablePlan,
    cut: BTreeSet<Cable>,
    routes: Routes,
}

/// The namespace of a node or switch.
struct Place {
    space: Space,
    /// The kernel's counters of IP there.
    snmp: File,
}

/// What a cable has carried since it was laid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CableLoad {
    /// Which.
    pub cable: Cable,
    /// Whether it is cut.
    pub is_cut: bool,
    /// By direction, in the order of [`Cable::directions`].
    pub counts: [Counts; 2],
}

impl Fabric {
    /// Makes the nodes of a topology, whose numbers go from 1 without a gap, its switches and cables.
    ///
    /// # Errors
    /// What `ip` or `tc` said.
    pub fn build(topology: Topology, plan: CablePlan) -> Result<Fabric> {
        batch("ip", &commands::spaces(&topology))?;
        let mut places = BTreeMap::new();
        for &vertex in topology.vertices() {
            places.insert(vertex, Place::find(vertex)?);
        }
        let forwards =
            |vertex: &Vertex| topology.shape().is_switchless() || !matches!(vertex, Vertex::Node(_));
        for (vertex, place) in &places {
            place.configure(forwards(vertex))?;
        }
        batch("ip", &commands::cables(&topology))?;
        let routes = Routes::of(&topology, &BTreeSet::new()).map_err(doing("find routes"))?;
        let mut ways = routes.changes(&Routes::default(), None);
        for (&vertex, place) in &places {
            let mut lines = commands::ports(&topology, vertex);
            lines.extend(ways.remove(&vertex).unwrap_or_default());
            let limits = commands::limits(&topology, vertex, plan);
            place.space.enter(|| batch("tc", &limits).and_then(|()| batch("ip", &lines)))??;
        }
        Ok(Fabric { topology, places, plan, cut: BTreeSet::new(), routes })
    }

    /// Its shape, with all cables whole.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What its cables are like.
    pub fn plan(&self) -> CablePlan {
        self.plan
    }

    /// Its nodes, in the order of their numbers, to run programs at.
    ///
    /// # Errors
    /// A node cannot be entered.
    pub fn nodes(&self) -> Result<Vec<Node>> {
        self.topology.nodes().keys().map(|node| Node::find(node.0)).collect()
    }

    /// Makes all cables like this.
    ///
    /// # Errors
    /// What `tc` said.
    pub fn shape(&mut self, plan: CablePlan) -> Result<()> {
        self.shape_by(plan, plan.link.burst())
    }

    /// The same, with buckets of so many bytes: small messages after a pause are as slow as the rate says if a bucket holds no
    /// more than a packet.
    ///
    /// # Errors
    /// What `tc` said.
    pub fn shape_by(&mut self, plan: CablePlan, burst: u32) -> Result<()> {
        for (&vertex, place) in &self.places {
            let limits = commands::limits_by(&self.topology, vertex, plan, burst);
            place.space.enter(|| batch("tc", &limits))??;
        }
        self.plan = plan;
        Ok(())
    }

    /// Takes it away, so that another one may have the names of its nodes. Programs and connections there must have ended.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn remove(self) -> Result<()> {
        batch("ip", &commands::no_spaces(&self.topology))
    }

    /// The cables that are cut.
    pub fn cut_cables(&self) -> &BTreeSet<Cable> {
        &self.cut
    }

    /// Cuts a cable: what is on it is lost, then routes lead around it.
    ///
    /// # Errors
    /// It is cut already, or what `ip` said.
    pub fn cut(&mut self, cable: Cable) -> Result<()> {
        if self.cut.contains(&cable) {
            return Err(refused(
                format!("{cable} is cut already"),
                format!("`mend {cable}`, or another cable"),
            ));
        }
        self.set_ports(cable, false)?;
        self.cut.insert(cable);
        self.route(Some(cable))
    }

    /// Mends a cable.
    ///
    /// # Errors
    /// It is not cut, or what `ip` said.
    pub fn mend(&mut self, cable: Cable) -> Result<()> {
        if !self.cut.contains(&cable) {
            let cut: Vec<String> = self.cut.iter().map(Cable::to_string).collect();
            let (what, remedy) = if cut.is_empty() {
                ("no cable is cut".to_owned(), format!("`shoal lab cut {cable}` first"))
            } else {
                (format!("{cable} is not cut"), format!("one that is: {}", cut.join(", ")))
            };
            return Err(refused(what, remedy));
        }
        self.set_ports(cable, true)?;
        self.cut.remove(&cable);
        self.route(None)
    }

    /// What each cable has carried.
    ///
    /// # Errors
    /// What `tc` said.
    pub fn loads(&self) -> Result<Vec<CableLoad>> {
        let mut at = BTreeMap::new();
        for (vertex, place) in &self.places {
            at.insert(*vertex, queues(&place.space)?);
        }
        let of_cable = |cable: Cable| {
            let sent = |(from, to): (Vertex, Vertex)| counts(&at[&from], &commands::space(to));
            let is_cut = self.cut.contains(&cable);
            CableLoad { cable, is_cut, counts: cable.directions().map(sent) }
        };
        Ok(Cable::all(&self.topology).into_iter().map(of_cable).collect())
    }

    /// IP packets that each node and switch has forwarded for others.
    ///
    /// # Errors
    /// The kernel's counters cannot be read.
    pub fn forwarded(&self) -> Result<BTreeMap<Vertex, u64>> {
        let read = |(vertex, place): (&Vertex, &Place)| {
            let text = read_from_start(&place.snmp).map_err(doing("read the counters of IP"))?;
            let found = counter(&text, "Ip:", "ForwDatagrams").ok_or("no ForwDatagrams");
            Ok((*vertex, found.map_err(doing("read the counters of IP"))?))
        };
        self.places.iter().map(read).collect()
    }

    fn set_ports(&self, cable: Cable, is_up: bool) -> Result<()> {
        for (from, to) in cable.directions() {
            let line = [commands::port_state(to, is_up)];
            self.places[&from].space.enter(|| batch("ip", &line))??;
        }
        Ok(())
    }

    /// Computes all routes again. `down` is the cable that has just been set down.
    fn route(&mut self, down: Option<Cable>) -> Result<()> {
        let routes = Routes::of(&self.topology, &self.cut).map_err(doing("find routes"))?;
        for (vertex, lines) in routes.changes(&self.routes, down) {
            self.places[&vertex].space.enter(|| batch("ip", &lines))??;
        }
        self.routes = routes;
        Ok(())
    }
}

impl Place {
    /// The namespace of a node or switch, already made.
    fn find(vertex: Vertex) -> Result<Place> {
        let space = Space::find(&commands::space(vertex))?;
        // Of the thread that has entered it, not of the process.
        let opened = space.enter(|| File::open("/proc/thread-self/net/snmp"))?;
        let snmp = opened.map_err(doing(format!("open the counters of {}", name(vertex))))?;
        Ok(Place { space, snmp })
    }

    /// The settings that its interfaces get when they are made.
    fn configure(&self, forwards: bool) -> Result<()> {
        let mut settings = vec![
            // Answers may come another way than questions go.
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv4/conf/default/rp_filter", "0"),
            ("ipv4/ip_forward", if forwards { "1" } else { "0" }),
        ];
        // Nothing is to be on the cables but what programs send.
        if Path::new("/proc/sys/net/ipv6").exists() {
            settings.push(("ipv6/conf/default/disable_ipv6", "1"));
        }
        let write = || {
            settings.iter().try_for_each(|(name, value)| {
                let file = format!("/proc/sys/net/{name}");
                fs::write(&file, value).map_err(doing(format!("set {file}")))
            })
        };
        self.space.enter(write)?
    }
}

/// Checks, in a network namespace of its own, whether this machine can make cables of this kind.
///
/// # Errors
/// iproute2 is missing, or the kernel lacks something; the remedy names its module.
pub fn check_kernel(plan: CablePlan) -> Result<()> {
    let check = || {
        unshare(CloneFlags::CLONE_NEWNET).map_err(doing("make a network namespace"))?;
        able("link add name left type veth peer name right", "ip", "virtual cables", "veth")?;
        let bucket = "qdisc add dev lo root tbf rate 1mbit burst 16384 limit 65536";
        able(bucket, "tc", "token buckets", "sch_tbf")?;
        if plan.delay.is_zero() {
            return Ok(());
        }
        let delay = "qdisc replace dev lo root netem delay 1ms";
        able(delay, "tc", "delays on cables", "sch_netem").map_err(|error| match error {
            LabError::Refused { what, remedy } => refused(what, format!("{remedy}; or no --hop-delay")),
            other => other,
        })
    };
    std::thread::scope(|scope| {
        scope.spawn(check).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn able(line: &str, program: &'static str, what: &str, module: &str) -> Result<()> {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    match run(program, &words) {
        Err(LabError::Command { said, .. }) => {
            let what = format!("this kernel has no {what}: `{program} {line}` says `{said}`");
            Err(refused(what, format!("`modprobe {module}`, or a kernel that has it")))
        }
        ran => ran.map(drop),
    }
}
