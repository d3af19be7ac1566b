//! The stack, what passes it, and what a translator is.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{LocalBoxFuture, join_all};
use types::{Buf, InodeId, Tuning};
use world::World;
use world::trace::enter;

use crate::error::ClientError;
use crate::state::layer_counts::LayerCounts;
use crate::state::open_file::{Mark, OpenFile};
use crate::state::settings::Settings;
use crate::state::tunings::Tunings;
use crate::translators::write_behind::WriteBehind;

/// A read on its way down the stack.
#[derive(Clone, Copy)]
pub struct Read<'a> {
    pub(crate) file: &'a Arc<OpenFile>,
    /// First byte.
    pub offset: u64,
    /// Number of bytes. The answer has fewer only at the end of the file.
    pub len: usize,
    /// Whether the kernel caches what is read, and reads ahead itself.
    pub in_kernel: bool,
    /// What the translators do with it.
    pub settings: Settings,
}

impl Read<'_> {
    /// The file's inode.
    pub fn inode(&self) -> InodeId {
        self.file.inode
    }

    /// The range in the file.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.len as u64)
    }
}

/// A write on its way down the stack.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    pub(crate) file: &'a Arc<OpenFile>,
    /// First byte.
    pub offset: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// What the translators do with it.
    pub settings: Settings,
}

impl Write<'_> {
    /// The file's inode.
    pub fn inode(&self) -> InodeId {
        self.file.inode
    }

    /// The range in the file.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.bytes.len() as u64)
    }
}

/// A wait for the writes of a file, on its way down the stack.
#[derive(Clone, Copy)]
pub struct Flush<'a> {
    pub(crate) file: &'a Arc<OpenFile>,
    /// How far the writes so far must have come.
    pub until: Until,
}

impl Flush<'_> {
    /// The file's inode.
    pub fn inode(&self) -> InodeId {
        self.file.inode
    }
}

/// How far the writes of a file must have come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// The primaries have accepted them.
    Accepted,
    /// They are durable on every live slot that takes part.
    Stable,
}

/// What a flush has covered.
#[derive(Clone, Copy, Debug)]
pub struct Flushed(pub(crate) Mark);

/// The answer of a translator. It stays on its thread.
pub type Answer<'a, T> = LocalBoxFuture<'a, Result<T, ClientError>>;

/// One layer of the stack. Every thread of a mount has its own value; what they share is behind an `Arc`. Functions that
/// a translator does not write itself pass the request on.
///
/// A translator that keeps bytes keeps them for the contents of the file at that time, and nobody tells it that they
/// have changed: it asks the file each time (`FileState::cacheable`, `FileState::may_keep`).
pub trait Translator {
    /// Its name, as counters show it.
    fn name(&self) -> &'static str;

    /// Reads a range.
    fn read<'a>(&'a self, read: Read<'a>, below: Below<'a>) -> Answer<'a, Buf> {
        below.read(read)
    }

    /// Writes a range.
    fn write<'a>(&'a self, write: Write<'a>, below: Below<'a>) -> Answer<'a, ()> {
        below.write(write)
    }

    /// Returns when the writes to a file so far have come far enough.
    fn flush<'a>(&'a self, flush: Flush<'a>, below: Below<'a>) -> Answer<'a, Flushed> {
        below.flush(flush)
    }

    /// The settings of the mount are these from now on. For what is not decided with each request.
    fn tune(&self, tuning: &Tuning) {
        let _ = tuning;
    }

    /// What it does beside requests, until the mount ends. Runs once for each mount.
    fn background<'a>(&'a self, below: Below<'a>) -> LocalBoxFuture<'a, ()> {
        let _ = below;
        Box::pin(async {})
    }
}

/// Makes a translator for a thread.
pub type MakeTranslator = Box<dyn Fn() -> Rc<dyn Translator> + Send + Sync>;

/// Everything below a translator.
#[derive(Clone, Copy)]
pub struct Below<'a> {
    layers: &'a [Rc<dyn Translator>],
    stack: &'a Stack,
}

impl<'a> Below<'a> {
    /// Reads a range.
    pub fn read(self, read: Read<'a>) -> Answer<'a, Buf> {
        self.stack.counts.read(&read.file.layer_counts, self.index(), read.len);
        self.enter();
        match self.next() {
            Some((layer, below)) => layer.read(read, below),
            None => self.stack.end.read(read),
        }
    }

    /// Writes a range.
    pub fn write(self, write: Write<'a>) -> Answer<'a, ()> {
        self.stack.counts.write(&write.file.layer_counts, self.index(), write.bytes.len());
        self.enter();
        match self.next() {
            Some((layer, below)) => layer.write(write, below),
            None => self.stack.end.write(write),
        }
    }

    /// Returns when the writes to a file so far have come far enough.
    pub fn flush(self, flush: Flush<'a>) -> Answer<'a, Flushed> {
        self.enter();
        match self.next() {
            Some((layer, below)) => layer.flush(flush, below),
            None => self.stack.end.flush(flush),
        }
    }

    /// Notes for the request's trace that it enters the next layer.
    fn enter(self) {
        enter(&self.stack.world, || self.layers.first().map_or(WriteBehind::NAME, |layer| layer.name()));
    }

    fn next(self) -> Option<(&'a Rc<dyn Translator>, Below<'a>)> {
        let (layer, layers) = self.layers.split_first()?;
        Some((layer, Below { layers, ..self }))
    }

    /// The number of the next layer, from the top.
    fn index(self) -> usize {
        self.stack.layers.len() - self.layers.len()
    }
}

/// The translators of a thread, from the top down.
pub(crate) struct Stack {
    layers: Vec<Rc<dyn Translator>>,
    end: Rc<WriteBehind>,
    counts: Arc<LayerCounts>,
    tunings: Arc<Tunings>,
    world: World,
    /// The version of the settings that the translators have.
    tuned: Cell<Option<u64>>,
}

impl Stack {
    pub(crate) fn new(
        layers: Vec<Rc<dyn Translator>>,
        end: Rc<WriteBehind>,
        counts: Arc<LayerCounts>,
        tunings: Arc<Tunings>,
        world: World,
    ) -> Stack {
        counts.set_names(layers.iter().map(|layer| layer.name()).chain([WriteBehind::NAME]));
        Stack { layers, end, counts, tunings, world, tuned: Cell::new(None) }
    }

    fn top(&self) -> Below<'_> {
        let version = Some(self.tunings.version());
        if self.tuned.replace(version) != version {
            let (volume, mount) = self.tunings.levels();
            let tuning = mount.or(&volume);
            self.layers.iter().for_each(|layer| layer.tune(&tuning));
        }
        Below { layers: &self.layers, stack: self }
    }

    /// Reads a range.
    pub(crate) async fn read(&self, read: Read<'_>) -> Result<Buf, ClientError> {
        self.top().read(read).await
    }

    /// Writes a range.
    pub(crate) async fn write(&self, write: Write<'_>) -> Result<(), ClientError> {
        let _inflight = InflightWrite::begin(write.file, write.range());
        self.top().write(write).await
    }

    /// Returns when the writes to a file so far have come far enough.
    pub(crate) async fn flush(&self, file: &Arc<OpenFile>, until: Until) -> Result<Mark, ClientError> {
        let Flushed(mark) = self.top().flush(Flush { file, until }).await?;
        Ok(mark)
    }

    /// What the translators do beside requests, until the mount ends.
    pub(crate) async fn background(&self) {
        let one = |index: usize| {
            self.layers[index].background(Below { layers: &self.layers[index + 1..], stack: self })
        };
        join_all((0..self.layers.len()).map(one)).await;
    }
}

/// A write that passes the stack: caches keep nothing that it overlaps.
struct InflightWrite<'a> {
    file: &'a Arc<OpenFile>,
    range: Range<u64>,
}

impl<'a> InflightWrite<'a> {
    fn begin(file: &'a Arc<OpenFile>, range: Range<u64>) -> InflightWrite<'a> {
        file.lock().writes.begin(range.clone());
        InflightWrite { file, range }
    }
}

impl Drop for InflightWrite<'_> {
    fn drop(&mut self) {
        self.file.lock().writes.end(&self.range);
    }
}
