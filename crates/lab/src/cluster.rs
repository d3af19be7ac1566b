//! Shoal's daemons on the nodes: one brick on each, the metadata service on the first, mounts and gates where needed.
//! All are started by their command lines, in the foreground, and end with the [`Cluster`].

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use serde_json::Value;

use crate::error::{Result, doing};
use crate::network::Network;
use crate::node::{Node, Program};
use crate::sandbox::SANDBOX_DIR;
use crate::star;

/// Port of the metadata service.
const META_PORT: u16 = 7400;
/// Bricks listen at this port plus their number.
const BRICK_PORT: u16 = 7400;
/// Port of the NBD server of a node's disk.
const DISK_PORT: u16 = 10809;
/// Port of a gate.
const GATE_PORT: u16 = 2049;
/// How long a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The words in a daemon's log once it can be reached.
const LISTENING: &str = "listening at ";

/// Where the bricks' processes run, and how they reach their disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disks {
    /// Each at its node, over a file there.
    Own,
    /// All at the first node, over NBD to the nodes' disks (its own is a file there).
    Gathered,
    /// Each at its node, over NBD to a server there that logs every access.
    Counted,
}

/// Options of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    /// Number of nodes with a brick: the first ones of the network.
    pub nodes: u32,
    /// Where the bricks are.
    pub disks: Disks,
    /// Bytes of a brick.
    pub brick: u64,
    /// Memory budget of a brick, in bytes.
    pub brick_memory: u64,
    /// Memory budget of a mount, and of a gate for its own node, in bytes.
    pub client_memory: u64,
    /// Bytes of a unit.
    pub unit: u32,
    /// The code of the volumes, as `K+M`.
    pub code: String,
    /// The bricks' receive window, as the option wants it.
    pub receive_window: &'static str,
    /// What the cluster is told about the network between its nodes, as `shoal topology set --file` reads it.
    pub topology: Option<String>,
    /// The block device of the only brick, which uses it past the page cache. None: the bricks' disks are files.
    pub device: Option<PathBuf>,
}

/// RAID-5 over a number of nodes, as `K+M`.
pub fn raid_5(nodes: u32) -> String {
    format!("{}+1", nodes - 1)
}

/// The volume of files.
pub const FILES: &str = "main";
/// The block volume.
pub const DISK: &str = "disk";

/// Nodes by their numbers.
pub trait Nodes {
    /// A node; they count from 1.
    ///
    /// # Panics
    /// If there is no such node.
    fn node(&self, number: u32) -> &Node;
}

impl Nodes for Network {
    fn node(&self, number: u32) -> &Node {
        Network::node(self, number)
    }
}

impl Nodes for [Node] {
    fn node(&self, number: u32) -> &Node {
        &self[number as usize - 1]
    }
}

/// A running cluster. Dropping it removes everything.
pub struct Cluster<'n, N: Nodes + ?Sized = Network> {
    shoal: PathBuf,
    network: &'n N,
    plan: ClusterPlan,
    dir: PathBuf,
    /// Those that have not been killed, by their nodes.
    bricks: BTreeMap<u32, Program>,
    /// In the order of stopping: metadata service, servers of disks.
    programs: Vec<Program>,
}

impl<'n, N: Nodes + ?Sized> Cluster<'n, N> {
    /// Starts a cluster with the program `shoal`, a volume of files, and, if asked for, a block volume of `disk` bytes.
    ///
    /// # Errors
    /// What a daemon said before it ended.
    pub fn start(
        shoal: &Path,
        network: &'n N,
        plan: ClusterPlan,
        disk: Option<u64>,
    ) -> Result<Cluster<'n, N>> {
        let dir = Path::new(SANDBOX_DIR).join("cluster");
        std::fs::create_dir(&dir).map_err(doing(format!("make {}", dir.display())))?;
        let (bricks, programs) = (BTreeMap::new(), Vec::new());
        let mut cluster = Cluster { shoal: shoal.to_owned(), network, plan, dir, bricks, programs };
        cluster.start_meta()?;
        for number in 1..=cluster.plan.nodes {
            cluster.start_brick(number)?;
        }
        cluster.wait_for_bricks()?;
        cluster.tell_topology()?;
        let (code, unit) = (cluster.plan.code.clone(), cluster.plan.unit.to_string());
        cluster.ask(&["volume", "create", FILES, "--code", &code, "--unit", &unit])?;
        if let Some(disk) = disk {
            let disk = disk.to_string();
            cluster.ask(&["volume", "create", DISK, "--code", &code, "--unit", &unit, "--block", &disk])?;
        }
        Ok(cluster)
    }

    fn tell_topology(&self) -> Result<()> {
        let Some(topology) = &self.plan.topology else { return Ok(()) };
        let file = self.dir.join("topology");
        std::fs::write(&file, topology).map_err(doing(format!("write {}", file.display())))?;
        self.ask(&["topology", "set", "--file", &file.to_string_lossy()]).map(drop)
    }

    /// What it was started as.
    pub fn plan(&self) -> &ClusterPlan {
        &self.plan
    }

    /// Its nodes, and others.
    pub fn network(&self) -> &'n N {
        self.network
    }

    fn start_meta(&mut self) -> Result<()> {
        let (dir, node) = (self.dir.join("meta"), self.network.node(1));
        node.run(Command::new(&self.shoal).args(["cluster", "init", "--dir"]).arg(&dir))?;
        let mut command = Command::new(&self.shoal);
        command.arg("meta").arg("--dir").arg(&dir).args(["--listen", &self.meta_address()]);
        command.args(["--memory", "64M"]).arg("--key-file").arg(self.key());
        let mut meta = node.start("shoal meta", &mut command, &self.log("meta"))?;
        says_listening(&mut meta)?;
        self.programs.push(meta);
        Ok(())
    }

    fn start_brick(&mut self, number: u32) -> Result<()> {
        let disks = self.plan.disks;
        let is_far = disks == Disks::Counted || (disks == Disks::Gathered && number != 1);
        let file = self.disk_file(number);
        let size = self.plan.brick.to_string();
        let disk = if is_far { self.start_disk(number, &file)? } else { file.to_string_lossy().into_owned() };
        let mut command = self.brick_command(number, &disk);
        command.args(["--format", "--id", &number.to_string()]);
        if !is_far && self.plan.device.is_none() {
            command.args(["--size", &size]);
        }
        self.run_brick(number, &mut command)
    }

    /// The command of a brick whose disk is prepared.
    fn brick_command(&self, number: u32, disk: &str) -> Command {
        let listen = format!("{}:{}", self.brick_node(number).address(), u32::from(BRICK_PORT) + number);
        let mut command = Command::new(&self.shoal);
        command.args(["brick", "--disk", disk, "--node", &number.to_string(), "--listen", &listen]);
        command.args(["--meta", &self.meta_address(), "--memory", &self.plan.brick_memory.to_string()]);
        command.args(["--receive-window", self.plan.receive_window]).arg("--key-file").arg(self.key());
        if self.plan.device.is_some() {
            command.args(["--io", "direct"]);
        }
        command
    }

    fn run_brick(&mut self, number: u32, command: &mut Command) -> Result<()> {
        let log = self.log(&format!("brick{number}"));
        let brick = self.brick_node(number).start(&format!("shoal brick {number}"), command, &log)?;
        self.bricks.insert(number, brick);
        Ok(())
    }

    /// The node where a brick's process runs.
    fn brick_node(&self, number: u32) -> &'n Node {
        self.network.node(if self.plan.disks == Disks::Gathered { 1 } else { number })
    }

    fn disk_file(&self, number: u32) -> PathBuf {
        self.plan.device.clone().unwrap_or_else(|| self.dir.join(format!("disk{number}")))
    }

    /// The process of a node's brick, if it has not been killed; it may have ended by itself.
    pub fn brick(&mut self, number: u32) -> Option<&mut Program> {
        self.bricks.get_mut(&number)
    }

    /// Kills a node's brick. What is on its disk stays.
    pub fn kill_brick(&mut self, number: u32) {
        self.bricks.remove(&number);
    }

    /// Starts a node's brick again, over a file at the node as its disk, and waits until it serves.
    ///
    /// # Errors
    /// What it said before it ended.
    pub fn restart_brick(&mut self, number: u32) -> Result<()> {
        let disk = self.disk_file(number).to_string_lossy().into_owned();
        let mut command = self.brick_command(number, &disk);
        self.run_brick(number, &mut command)?;
        self.bricks.get_mut(&number).map_or(Ok(()), says_listening)
    }

    /// Starts the NBD server of a node's disk. Returns its URL for the brick.
    fn start_disk(&mut self, number: u32, file: &Path) -> Result<String> {
        let making = doing(format!("make {}", file.display()));
        std::fs::File::create(file).and_then(|file| file.set_len(self.plan.brick)).map_err(making)?;
        let node = self.network.node(number);
        let address = node.address().to_string();
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--ipaddr", &address, "--port", &DISK_PORT.to_string()]);
        command.args(["--exportname", "brick"]);
        if self.plan.disks == Disks::Counted {
            command.args(["--filter", "log", "file"]).arg(file);
            command.arg(format!("logfile={}", self.accesses(number).display()));
        } else {
            command.arg("file").arg(file);
        }
        let name = format!("nbdkit{number}");
        let mut server = node.start("nbdkit", &mut command, &self.log(&name))?;
        let at = SocketAddr::from((node.address(), DISK_PORT));
        server.wait_until(PATIENCE, || node.inside(|| TcpStream::connect(at).is_ok()).unwrap_or(false))?;
        self.programs.push(server);
        Ok(format!("nbd://{address}:{DISK_PORT}/brick"))
    }

    /// The log of accesses of the server of a counted disk.
    pub fn accesses(&self, number: u32) -> PathBuf {
        self.dir.join(format!("accesses{number}"))
    }

    /// Waits until the cluster has heard of all bricks.
    ///
    /// # Errors
    /// One ends, or a minute has passed.
    pub fn wait_for_bricks(&mut self) -> Result<()> {
        let nodes = self.plan.nodes as usize;
        let end = std::time::Instant::now() + PATIENCE;
        while self.bricks_up()? < nodes {
            self.bricks.values_mut().chain(&mut self.programs).try_for_each(Program::check)?;
            if std::time::Instant::now() > end {
                return Err(doing("start the bricks")("not all of them join within a minute"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn bricks_up(&self) -> Result<usize> {
        let status = self.ask(&["status"])?;
        let bricks = status["bricks"].as_array().into_iter().flatten();
        Ok(bricks.filter(|brick| brick["state"] == "up").count())
    }

    /// Runs a command that asks the cluster, at the first node. Returns its answer.
    ///
    /// # Errors
    /// What it said.
    pub fn ask(&self, words: &[&str]) -> Result<Value> {
        self.ask_at(1, words)
    }

    /// The same at another node.
    ///
    /// # Errors
    /// What it said.
    pub fn ask_at(&self, node: u32, words: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.shoal);
        command.arg("--json").args(words).args(["--meta", &self.meta_address()]);
        command.arg("--key-file").arg(self.key());
        let said = self.network.node(node).run(&mut command)?;
        serde_json::from_slice(&said).map_err(doing(format!("read the answer of {command:?}")))
    }

    /// Mounts the volume of files at a node.
    ///
    /// # Errors
    /// What the mount said.
    pub fn mount(&self, node: u32) -> Result<Mount> {
        self.mount_with(node, FILES, &[])
    }

    /// The same, by a number of threads.
    ///
    /// # Errors
    /// What the mount said.
    pub fn mount_by_threads(&self, node: u32, threads: u32) -> Result<Mount> {
        self.mount_with(node, FILES, &["--threads", &threads.to_string()])
    }

    /// Changes settings of a mount while it is in use.
    ///
    /// # Errors
    /// What the command said.
    pub fn tune(&self, mount: &Mount, settings: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.shoal);
        command.arg("tune").arg(mount.dir()).args(settings);
        self.network.node(1).run(&mut command).map(drop)
    }

    /// Mounts a volume at a node, with options of `shoal mount`.
    ///
    /// # Errors
    /// What the mount said.
    pub fn mount_with(&self, node: u32, volume: &str, words: &[&str]) -> Result<Mount> {
        self.mount_as(node, volume, 0, words)
    }

    /// The same, for one of several mounts of a volume at a node, which have numbers.
    ///
    /// # Errors
    /// What the mount said.
    pub fn mount_as(&self, node: u32, volume: &str, number: u32, words: &[&str]) -> Result<Mount> {
        let dir = self.dir.join(format!("mount{node}-{volume}-{number}"));
        self.mount_at(node, volume, &dir, words)
    }

    /// The same at a directory, which is made.
    ///
    /// # Errors
    /// What the mount said.
    pub fn mount_at(&self, node: u32, volume: &str, dir: &Path, words: &[&str]) -> Result<Mount> {
        std::fs::create_dir_all(dir).map_err(doing(format!("make {}", dir.display())))?;
        let mut command = self.gate_command("mount", self.plan.client_memory);
        command.args(words).arg("--").arg(volume).arg(dir);
        let log = self.log(&dir.file_name().unwrap_or_default().to_string_lossy());
        let mut program = self.network.node(node).start("shoal mount", &mut command, &log)?;
        program.wait_until(PATIENCE, || is_mounted(dir))?;
        Ok(Mount { dir: dir.to_owned(), program: Some(program) })
    }

    /// Exports the block volume at a node, for that node.
    ///
    /// # Errors
    /// What the gate said.
    pub fn nbd_gate(&self, node: u32) -> Result<(Program, SocketAddr)> {
        let at = SocketAddr::from(([127, 0, 0, 1], DISK_PORT));
        let mut command = self.gate_command("nbd", self.plan.client_memory);
        command.args(["--listen", &at.to_string(), "--", DISK]);
        self.gate("nbd", node, &mut command).map(|gate| (gate, at))
    }

    /// Serves the volume of files by NFS at a node, for all nodes, with a memory budget in bytes.
    ///
    /// # Errors
    /// What the gate said.
    pub fn nfs_gate(&self, node: u32, memory: u64) -> Result<(Program, SocketAddr)> {
        let at = SocketAddr::from((star::address(node), GATE_PORT));
        let mut command = self.gate_command("nfs", memory);
        command.args(["--listen", &at.to_string(), "--allow", &star::addresses()]);
        command.args(["--no-root-squash", "--insecure", "--", FILES]);
        self.gate("nfs", node, &mut command).map(|gate| (gate, at))
    }

    fn gate(&self, kind: &str, node: u32, command: &mut Command) -> Result<Program> {
        let log = self.log(&format!("{kind}{node}"));
        let mut gate = self.network.node(node).start(&format!("shoal {kind}"), command, &log)?;
        says_listening(&mut gate)?;
        Ok(gate)
    }

    fn gate_command(&self, kind: &str, memory: u64) -> Command {
        let mut command = Command::new(&self.shoal);
        command.args([kind, "--foreground", "--meta", &self.meta_address()]);
        command.args(["--memory", &memory.to_string()]);
        command.arg("--key-file").arg(self.key());
        command
    }

    /// Where the metadata service listens.
    pub fn meta_address(&self) -> String {
        format!("{}:{META_PORT}", star::address(1))
    }

    /// The file with the cluster's key.
    pub fn key(&self) -> PathBuf {
        self.dir.join("meta/key")
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.log"))
    }
}

impl<N: Nodes + ?Sized> Drop for Cluster<'_, N> {
    fn drop(&mut self) {
        // Kill them one after the other; the contents of the disks are not needed any more.
        self.bricks.clear();
        self.programs.clear();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn says_listening(program: &mut Program) -> Result<()> {
    let log = program.log().to_owned();
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    program.wait_until(PATIENCE, || said().contains(LISTENING))
}

fn is_mounted(dir: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let at = format!(" {} ", dir.display());
    table.lines().any(|line| line.contains(&at) && line.contains("fuse.shoal"))
        && std::fs::metadata(dir).is_ok()
}

/// A mounted volume.
pub struct Mount {
    dir: PathBuf,
    program: Option<Program>,
}

impl Mount {
    /// Where its files are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Ends it. Returns when everything is stable and its process has ended.
    ///
    /// # Errors
    /// Something could not be made stable.
    pub fn unmount(mut self) -> Result<()> {
        let what = format!("unmount {}", self.dir.display());
        umount2(&self.dir, MntFlags::empty()).map_err(doing(what))?;
        self.program.take().map_or(Ok(()), Program::wait)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.program.is_some() {
            // Its process is killed next.
            let _ = umount2(&self.dir, MntFlags::MNT_DETACH);
        }
    }
}
