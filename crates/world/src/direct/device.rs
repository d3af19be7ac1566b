//! A direct disk as its users see it: the cache, then the queue, then the device.

use std::future::Future;
use std::rc::Rc;

use pace::device::{Operation, Parameters, PolicyName};
use pace::{IoClass, Share};
use types::Buf;

use crate::World;
use crate::trace::{Stage, span};

use super::blocks::Blocks;
use super::class::current;
use super::queue::{Queue, Turn};

/// Requests that a device has at a time, unless somebody says otherwise: a SATA disk takes 32.
pub const DEPTH: u32 = 32;
/// Largest depth.
pub const DEPTH_MAX: u32 = 1024;

/// How a direct disk is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectOptions {
    /// Bytes of blocks that are kept in memory.
    pub cache_bytes: u64,
    /// Requests that the device has at a time, besides those of the journal; 1 to [`DEPTH_MAX`].
    pub depth: u32,
    /// In which order requests of a class go.
    pub policy: PolicyName,
    /// The size around which the slq policies order reads and writes, in bytes; [`None`] for the policies' own.
    pub priority: Option<u64>,
}

/// How the queue of a direct disk is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSettings {
    /// Requests that the device has at a time, besides those of the journal.
    pub depth: u32,
    /// In which order requests of a class go.
    pub policy: PolicyName,
    /// What the policy goes by. Its depth is not used.
    pub parameters: Parameters,
    /// The shares of the classes, in the order of [`IoClass::ALL`].
    pub shares: [Share; IoClass::ALL.len()],
}

/// A change of the queue: what is not named stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueChange<'a> {
    /// See [`QueueSettings`].
    pub depth: Option<u32>,
    /// See [`QueueSettings`].
    pub policy: Option<PolicyName>,
    /// Parameters of the policy by name, see [`Parameters::set`].
    pub parameters: &'a [(&'a str, u64)],
    /// Shares of classes.
    pub shares: &'a [(IoClass, Share)],
}

/// Counts of a disk behind a queue since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DirectCounts {
    /// Bytes read from the cache.
    pub cached_bytes: u64,
    /// Bytes that the cache has now.
    pub cache_used: u64,
    /// Bytes that it may have.
    pub cache_most: u64,
    /// Requests that wait in the queue now.
    pub waiting: u32,
    /// Requests at the device now.
    pub at_device: u32,
    /// Requests that went together with a neighbour.
    pub merges: u64,
    /// Requests that went after their deadlines.
    pub expiries: u64,
    /// Requests of each class so far, in the order of [`IoClass::ALL`].
    pub requests: [u64; IoClass::ALL.len()],
    /// How long they have waited in the queue, in microseconds.
    pub waited_us: [u64; IoClass::ALL.len()],
}

/// The cache and the queue of a direct disk. Clones of the disk share them.
pub(crate) struct Direct {
    world: World,
    blocks: Blocks,
    queue: Rc<Queue>,
}

impl Direct {
    pub(crate) fn new(world: &World, options: DirectOptions) -> Direct {
        Direct {
            world: world.clone(),
            blocks: Blocks::new(options.cache_bytes),
            queue: Queue::new(world, &options),
        }
    }

    pub(crate) fn counts(&self) -> DirectCounts {
        DirectCounts {
            cached_bytes: self.blocks.hit_bytes(),
            cache_used: self.blocks.bytes(),
            cache_most: self.blocks.most_bytes(),
            ..self.queue.counts()
        }
    }

    /// See [`Disk::tune_queue`](crate::Disk::tune_queue).
    pub(crate) fn tune(&self, change: &QueueChange<'_>) -> Result<(), String> {
        self.queue.tune(change)
    }

    pub(crate) fn settings(&self) -> QueueSettings {
        self.queue.settings()
    }

    /// Bytes from the cache, or from `device` when it is this request's turn.
    pub(crate) async fn read<E>(
        &self,
        offset: u64,
        len: usize,
        device: impl Future<Output = Result<Buf, E>>,
    ) -> Result<Buf, E> {
        let class = current().unwrap_or(IoClass::ClientRead);
        // Who checks what is stored wants to see the device.
        let cached = (class != IoClass::Scrub).then(|| self.blocks.get(offset, len)).flatten();
        if let Some(bytes) = cached {
            return Ok(bytes);
        }
        let _turn =
            span(&self.world, Stage::Queue, self.queue.turn(class, Operation::Read, offset, len)).await;
        let reading = self.blocks.begin_read(offset, len);
        let bytes = device.await?;
        if class != IoClass::Scrub {
            reading.keep(&bytes);
        }
        Ok(bytes)
    }

    /// Waits until it is this write's turn.
    pub(crate) async fn write_turn(&self, offset: u64, parts: &[Buf]) -> Turn {
        let class = current().unwrap_or(IoClass::ClientWrite);
        let len = parts.iter().map(|part| part.len()).sum();
        span(&self.world, Stage::Queue, self.queue.turn(class, Operation::Write, offset, len)).await
    }

    /// Writes by `device`.
    pub(crate) async fn write<E>(
        &self,
        offset: u64,
        parts: &[Buf],
        device: impl Future<Output = Result<(), E>>,
    ) -> Result<(), E> {
        let writing = self.blocks.begin_write(offset, parts.iter().map(|part| part.len()).sum());
        device.await?;
        writing.keep(parts);
        Ok(())
    }
}
