//! Records the requests to a disk. A test can then rebuild the disk's bytes at each point, to crash there.

use std::cell::RefCell;
use std::rc::Rc;

use types::Buf;

use super::sparse::Sparse;

/// A request that a disk has carried out.
#[derive(Clone, Debug)]
pub enum DiskEvent {
    /// Bytes went to the disk's cache.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        bytes: Buf,
    },
    /// The first `upto` recorded writes are durable from here on.
    Sync {
        /// Number of durable writes.
        upto: usize,
    },
}

/// The requests to a disk since the recording began. Clones share it.
#[derive(Clone, Default)]
pub struct Recording(Rc<RefCell<Recorded>>);

#[derive(Default)]
struct Recorded {
    events: Vec<DiskEvent>,
    writes: usize,
}

impl Recording {
    /// Requests so far.
    #[expect(clippy::len_without_is_empty, reason = "a position, not a container")]
    pub fn len(&self) -> usize {
        self.0.borrow().events.len()
    }

    /// The requests so far, in the order in which they took effect.
    pub fn events(&self) -> Vec<DiskEvent> {
        self.0.borrow().events.clone()
    }

    /// Writes so far.
    pub(super) fn writes(&self) -> usize {
        self.0.borrow().writes
    }

    pub(super) fn wrote(&self, offset: u64, parts: &[Buf]) {
        let bytes = match parts {
            [only] => only.clone(),
            parts => Buf::from(parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>()),
        };
        let mut recorded = self.0.borrow_mut();
        recorded.writes += 1;
        recorded.events.push(DiskEvent::Write { offset, bytes });
    }

    pub(super) fn synced(&self, upto: usize) {
        self.0.borrow_mut().events.push(DiskEvent::Sync { upto });
    }
}

/// The bytes of a disk. Clones share pages.
#[derive(Clone, Default)]
pub struct DiskImage(pub(super) Sparse);

impl DiskImage {
    /// Writes bytes at an offset.
    pub fn write(&mut self, offset: u64, bytes: &Buf) {
        self.0.write(offset, bytes);
    }
}
