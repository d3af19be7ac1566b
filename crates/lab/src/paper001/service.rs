//! The access paths.

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::cluster::{Cluster, DISK, FILES, Mount};
use crate::error::{Result, doing};
use crate::load::{Item, LocalFile, NbdDisk, NfsFile, Sink};
use crate::node::Program;

/// An access path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AccessPath {
    /// A file in the same RAM that the bricks are in: no network, no Shoal.
    Local,
    /// Peer to peer: each client mounts the volume, whose bricks are on the nodes.
    FileGate,
    /// The client's own gate serves the same volume by NFS; the load is its client.
    NfsGate,
    /// The client's own gate exports a block volume, whose bricks are on the nodes; the load is its NBD client.
    BlockGate,
    /// The gate node has all bricks, over NBD to the nodes' disks, and mounts the volume for itself.
    GatheredFileGate,
    /// The same gate node serves all clients by NFS: the paper's centralised arrangement.
    Centralised,
}

impl AccessPath {
    /// All access paths.
    pub const ALL: [AccessPath; 6] = [
        AccessPath::Local,
        AccessPath::FileGate,
        AccessPath::NfsGate,
        AccessPath::BlockGate,
        AccessPath::GatheredFileGate,
        AccessPath::Centralised,
    ];

    /// Its title on the page.
    pub fn title(self) -> &'static str {
        match self {
            AccessPath::Local => "local disk",
            AccessPath::FileGate => "file gate",
            AccessPath::NfsGate => "NFS gate",
            AccessPath::BlockGate => "block gate",
            AccessPath::GatheredFileGate => "file gate over remote block bricks",
            AccessPath::Centralised => "the same, by NFS from a client",
        }
    }

    /// The access path with this title.
    pub fn named(title: &str) -> Option<AccessPath> {
        AccessPath::ALL.into_iter().find(|way| way.title() == title)
    }
}

/// An access path for some clients, which count from 0.
pub trait Service: Sync {
    /// Opens a client's file or disk for writing.
    ///
    /// # Errors
    /// It cannot be opened.
    fn sink(&self, client: usize, item: Item, bytes: u64) -> Result<Box<dyn Sink>>;

    /// Opens it for reading.
    ///
    /// # Errors
    /// It cannot be opened.
    fn source(&self, client: usize, item: Item, bytes: u64) -> Result<Box<dyn Read>>;

    /// Empties every cache between the load and the disks.
    ///
    /// # Errors
    /// Something could not be made stable.
    fn drop_caches(&mut self) -> Result<()>;

    /// Removes the written files, and closes.
    ///
    /// # Errors
    /// Something could not be made stable.
    fn close(self: Box<Self>) -> Result<()>;
}

/// A file of this client.
fn file(dir: &Path, client: usize, item: Item) -> PathBuf {
    dir.join(name(client, item))
}

fn name(client: usize, item: Item) -> String {
    format!("{}-{client}", item.file())
}

fn remove(dir: &Path, client: usize) {
    for item in [Item::PutChars, Item::WriteBlocks] {
        // A run with only some items has made only some files.
        let _ = std::fs::remove_file(file(dir, client, item));
    }
}

/// [`AccessPath::Local`].
pub struct Local(pub PathBuf);

impl Service for Local {
    fn sink(&self, client: usize, item: Item, _bytes: u64) -> Result<Box<dyn Sink>> {
        Ok(Box::new(LocalFile::create(&file(&self.0, client, item))?))
    }

    fn source(&self, client: usize, item: Item, _bytes: u64) -> Result<Box<dyn Read>> {
        Ok(Box::new(LocalFile::open(&file(&self.0, client, item))?))
    }

    fn drop_caches(&mut self) -> Result<()> {
        // It is RAM, so there is no cache to empty.
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        remove(&self.0, 0);
        Ok(())
    }
}

/// [`AccessPath::FileGate`] and [`AccessPath::GatheredFileGate`]: a mount at each of some nodes.
pub struct Mounts<'c, 'n> {
    cluster: &'c Cluster<'n>,
    nodes: Vec<u32>,
    mounts: Vec<Mount>,
}

impl<'c, 'n> Mounts<'c, 'n> {
    /// Mounts the volume at these nodes.
    ///
    /// # Errors
    /// A mount failed.
    pub fn open(cluster: &'c Cluster<'n>, nodes: Vec<u32>) -> Result<Mounts<'c, 'n>> {
        let mounts = mount_all(cluster, &nodes)?;
        Ok(Mounts { cluster, nodes, mounts })
    }
}

fn mount_all(cluster: &Cluster<'_>, nodes: &[u32]) -> Result<Vec<Mount>> {
    nodes.iter().map(|node| cluster.mount(*node)).collect()
}

impl Service for Mounts<'_, '_> {
    fn sink(&self, client: usize, item: Item, _bytes: u64) -> Result<Box<dyn Sink>> {
        Ok(Box::new(LocalFile::create(&file(self.mounts[client].dir(), client, item))?))
    }

    fn source(&self, client: usize, item: Item, _bytes: u64) -> Result<Box<dyn Read>> {
        Ok(Box::new(LocalFile::open(&file(self.mounts[client].dir(), client, item))?))
    }

    fn drop_caches(&mut self) -> Result<()> {
        self.mounts.drain(..).try_for_each(Mount::unmount)?;
        self.mounts = mount_all(self.cluster, &self.nodes)?;
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        for (client, mount) in self.mounts.iter().enumerate() {
            remove(mount.dir(), client);
        }
        self.mounts.drain(..).try_for_each(Mount::unmount)
    }
}

/// [`AccessPath::BlockGate`]: a gate at one node, for a client there.
pub struct Disk<'c, 'n> {
    cluster: &'c Cluster<'n>,
    node: u32,
    gate: Option<Program>,
    at: SocketAddr,
}

impl<'c, 'n> Disk<'c, 'n> {
    /// Starts the gate.
    ///
    /// # Errors
    /// The gate failed.
    pub fn open(cluster: &'c Cluster<'n>, node: u32) -> Result<Disk<'c, 'n>> {
        let (gate, at) = cluster.nbd_gate(node)?;
        Ok(Disk { cluster, node, gate: Some(gate), at })
    }

    fn connect(&self) -> Result<NbdDisk> {
        let connected = self.cluster.network().node(self.node).inside(|| NbdDisk::connect(self.at, DISK))?;
        connected.map_err(doing("connect to the block gate"))
    }

    /// Where the item's part of the disk starts.
    fn start(item: Item, bytes: u64) -> u64 {
        if item.file() == Item::PutChars.file() { bytes } else { 0 }
    }
}

impl Service for Disk<'_, '_> {
    fn sink(&self, _client: usize, item: Item, bytes: u64) -> Result<Box<dyn Sink>> {
        Ok(Box::new(self.connect()?.writer(Self::start(item, bytes))))
    }

    fn source(&self, _client: usize, item: Item, bytes: u64) -> Result<Box<dyn Read>> {
        let start = Self::start(item, bytes);
        Ok(Box::new(self.connect()?.reader(start, start + bytes)))
    }

    fn drop_caches(&mut self) -> Result<()> {
        self.gate.take().map_or(Ok(()), Program::end)?;
        self.gate = Some(self.cluster.nbd_gate(self.node)?.0);
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.gate.take().map_or(Ok(()), Program::end)
    }
}

/// [`AccessPath::NfsGate`] and [`AccessPath::Centralised`]: an NFS gate at one node, clients at that node or at others.
pub struct Nfs<'c, 'n> {
    cluster: &'c Cluster<'n>,
    node: u32,
    memory: u64,
    clients: Vec<u32>,
    gate: Option<Program>,
    at: SocketAddr,
}

impl<'c, 'n> Nfs<'c, 'n> {
    /// Starts the gate at a node, with `memory` bytes as its budget, for clients at these nodes.
    ///
    /// # Errors
    /// The gate failed.
    pub fn open(cluster: &'c Cluster<'n>, node: u32, memory: u64, clients: Vec<u32>) -> Result<Nfs<'c, 'n>> {
        let (gate, at) = cluster.nfs_gate(node, memory)?;
        Ok(Nfs { cluster, node, memory, clients, gate: Some(gate), at })
    }

    /// Opens a file through a new connection from the client's node.
    fn connect(
        &self,
        client: usize,
        item: Item,
        open: fn(SocketAddr, &str, &str) -> std::io::Result<NfsFile>,
    ) -> Result<NfsFile> {
        let node = self.cluster.network().node(self.clients[client]);
        let opened = node.inside(|| open(self.at, FILES, &name(client, item)))?;
        opened.map_err(doing("open a file by NFS"))
    }
}

impl Service for Nfs<'_, '_> {
    fn sink(&self, client: usize, item: Item, _bytes: u64) -> Result<Box<dyn Sink>> {
        Ok(Box::new(self.connect(client, item, NfsFile::create)?.writer()))
    }

    fn source(&self, client: usize, item: Item, bytes: u64) -> Result<Box<dyn Read>> {
        Ok(Box::new(self.connect(client, item, NfsFile::open)?.reader(bytes)))
    }

    fn drop_caches(&mut self) -> Result<()> {
        self.gate.take().map_or(Ok(()), Program::end)?;
        self.gate = Some(self.cluster.nfs_gate(self.node, self.memory)?.0);
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.gate.take().map_or(Ok(()), Program::end)?;
        let mount = self.cluster.mount(self.node)?;
        (0..self.clients.len()).for_each(|client| remove(mount.dir(), client));
        mount.unmount()
    }
}
