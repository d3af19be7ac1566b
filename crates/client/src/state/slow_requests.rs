//! The slowest requests of the last minutes, each with what it has waited for: those of the mount, and those of each file that
//! had some lately, whether it is still open or not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use types::wire::Served;
use types::{BrickId, InodeId};
use world::trace::Stage;

use crate::state::lock;

/// Quicker requests are not kept, in microseconds.
pub(crate) const SLOW_MIN_US: u64 = 1_000;
/// How long a request is kept, in microseconds.
const KEPT_US: u64 = 600_000_000;
/// Most requests that are kept for the mount: of programs, and as many of the background.
const MOUNT_MAX: usize = 32;
/// Most requests that are kept for a file: of programs, and as many of the background.
const FILE_MAX: usize = 8;
/// Most files for which requests are kept. The one that was slow longest ago gives way.
const FILES_MAX: usize = 128;

/// A request that took long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlowRequest {
    /// What was asked.
    pub asked: Asked,
    /// When it reached the client, in microseconds of the mount's clock.
    pub begun: u64,
    /// How long it had waited in the gate before, in microseconds.
    pub gate_us: u64,
    /// How long it took, with the wait in the gate, in microseconds.
    pub took_us: u64,
    /// It ended with an error.
    pub failed: bool,
    /// What it waited for, in the order in which the waits ended.
    pub spans: Box<[SlowSpan]>,
}

/// A request of a program, or of the mount's background.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// `read`, `write`, `flush` (a close) and `fsync` come from programs; `fetch` is read-ahead, `send` write-behind.
    pub op: &'static str,
    /// The file.
    pub inode: InodeId,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range.
    pub len: u64,
}

/// A part of a request's time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlowSpan {
    /// What it is about.
    pub kind: SlowKind,
    /// When it began, in microseconds after the request reached the gate.
    pub from_us: u64,
    /// How long it took, in microseconds.
    pub took_us: u64,
}

impl Asked {
    /// The mount's background does it; no program waits for it directly.
    pub(crate) fn is_background(&self) -> bool {
        matches!(self.op, "fetch" | "send")
    }
}

/// What a part of a request's time is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SlowKind {
    /// The request entered this layer.
    Layer(&'static str),
    /// It waited.
    Wait(Stage),
    /// A server was asked.
    Call {
        /// The name of the request.
        request: &'static str,
        /// Who was asked.
        server: Server,
        /// How long the answer, which was ready, waited for credit of the receive window, in microseconds.
        credit_us: u64,
        /// What the brick tells about its time; `None` if it was quick, or did not answer.
        served: Option<Served>,
    },
}

/// A server of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// The metadata service.
    Meta,
    /// A brick.
    Brick(BrickId),
    /// One that is in the map no more.
    Unknown,
}

/// The slowest requests of a mount or a file.
#[derive(Default)]
struct Slowest {
    requests: Vec<Arc<SlowRequest>>,
    /// When the last one was added.
    added: u64,
}

impl Slowest {
    /// The place for a request of `us` microseconds, if it belongs here: one that is too old or the quickest.
    fn place(&self, us: u64, now: u64, most: usize) -> Option<usize> {
        let old = self.requests.iter().position(|request| is_old(request, now));
        let free = (self.requests.len() < most).then_some(self.requests.len());
        old.or(free).or_else(|| {
            let quickest = self.requests.iter().enumerate().min_by_key(|(_, request)| request.took_us);
            quickest.filter(|(_, request)| request.took_us < us).map(|(place, _)| place)
        })
    }

    fn add(&mut self, request: &Arc<SlowRequest>, now: u64, most: usize) {
        let Some(place) = self.place(request.took_us, now, most) else { return };
        self.added = now;
        match self.requests.get_mut(place) {
            Some(other) => *other = request.clone(),
            None => self.requests.push(request.clone()),
        }
    }

    /// Those that are not too old, the slowest first.
    fn sorted(&self, now: u64) -> Vec<Arc<SlowRequest>> {
        let mut requests: Vec<_> =
            self.requests.iter().filter(|request| !is_old(request, now)).cloned().collect();
        requests.sort_by_key(|request| (std::cmp::Reverse(request.took_us), request.begun));
        requests
    }
}

fn is_old(request: &SlowRequest, now: u64) -> bool {
    now.saturating_sub(request.begun) > KEPT_US
}

/// The slowest requests of programs, and those of the background. Each has its own room: the background is patient, and often
/// slower than what programs ask for.
#[derive(Default)]
struct Ranking {
    programs: Slowest,
    background: Slowest,
}

impl Ranking {
    fn of(&self, asked: &Asked) -> &Slowest {
        if asked.is_background() { &self.background } else { &self.programs }
    }

    fn of_mut(&mut self, asked: &Asked) -> &mut Slowest {
        if asked.is_background() { &mut self.background } else { &mut self.programs }
    }

    fn added(&self) -> u64 {
        self.programs.added.max(self.background.added)
    }

    /// Those that are not too old: of programs, then of the background, the slowest first.
    fn sorted(&self, now: u64) -> Vec<Arc<SlowRequest>> {
        [self.programs.sorted(now), self.background.sorted(now)].concat()
    }
}

#[derive(Default)]
struct Tables {
    mount: Ranking,
    files: BTreeMap<InodeId, Ranking>,
}

/// The slowest requests of a mount and of its files, shared by all threads.
#[derive(Default)]
pub(crate) struct SlowRequests(Mutex<Tables>);

impl SlowRequests {
    /// Whether a request of `us` microseconds would be kept.
    pub(crate) fn wants(&self, asked: &Asked, us: u64, now: u64) -> bool {
        if us < SLOW_MIN_US {
            return false;
        }
        let tables = lock(&self.0);
        let file = tables.files.get(&asked.inode);
        let by_file = file.is_none_or(|file| file.of(asked).place(us, now, FILE_MAX).is_some());
        by_file || tables.mount.of(asked).place(us, now, MOUNT_MAX).is_some()
    }

    /// Keeps a request, if it is among the slowest.
    pub(crate) fn keep(&self, request: SlowRequest, now: u64) {
        let (inode, request) = (request.asked.inode, Arc::new(request));
        let mut tables = lock(&self.0);
        tables.mount.of_mut(&request.asked).add(&request, now, MOUNT_MAX);
        if tables.files.len() >= FILES_MAX && !tables.files.contains_key(&inode) {
            let first = tables.files.iter().min_by_key(|(_, file)| file.added()).map(|(inode, _)| *inode);
            first.and_then(|inode| tables.files.remove(&inode));
        }
        tables.files.entry(inode).or_default().of_mut(&request.asked).add(&request, now, FILE_MAX);
    }

    /// The slowest requests of the mount, or of a file: of programs, then of the background, the slowest first.
    pub(crate) fn slowest(&self, inode: Option<InodeId>, now: u64) -> Vec<Arc<SlowRequest>> {
        let tables = lock(&self.0);
        match inode {
            None => tables.mount.sorted(now),
            Some(inode) => tables.files.get(&inode).map(|file| file.sorted(now)).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(inode: u64) -> Asked {
        Asked { op: "read", inode: InodeId(inode), offset: 0, len: 4096 }
    }

    fn request(inode: u64, begun: u64, took_us: u64) -> SlowRequest {
        SlowRequest { asked: asked(inode), begun, gate_us: 0, took_us, failed: false, spans: Box::default() }
    }

    fn times(table: &SlowRequests, inode: Option<u64>, now: u64) -> Vec<u64> {
        table.slowest(inode.map(InodeId), now).iter().map(|request| request.took_us).collect()
    }

    #[test]
    fn the_slowest_are_kept_for_the_mount_and_for_each_file() {
        let table = SlowRequests::default();
        for n in 0..100 {
            // 37 and 100 have no common factor: each time once, in no order.
            table.keep(request(n % 2, n, 1_000 + n * 37 % 100), n);
        }
        let expected = |from: u64, step: usize| (from..1_100).rev().step_by(step).collect::<Vec<u64>>();
        assert_eq!(times(&table, None, 100), expected(1_100 - MOUNT_MAX as u64, 1));
        assert_eq!(times(&table, Some(1), 100), expected(1_100 - 2 * FILE_MAX as u64, 2));
        assert_eq!(times(&table, Some(7), 100), []);
        assert!(!table.wants(&asked(1), 1_000, 100), "others are slower");
        assert!(table.wants(&asked(1), 1_100, 100));
        assert!(table.wants(&asked(7), SLOW_MIN_US, 100), "the first one of its file");
        assert!(!table.wants(&asked(7), SLOW_MIN_US - 1, 100));
    }

    #[test]
    fn the_background_pushes_no_request_of_a_program_out() {
        let table = SlowRequests::default();
        table.keep(request(1, 0, 2_000), 0);
        for n in 0..100 {
            let slow = request(1, n, 90_000);
            table.keep(SlowRequest { asked: Asked { op: "send", ..slow.asked }, ..slow }, n);
        }
        let found = table.slowest(Some(InodeId(1)), 100);
        assert_eq!((found.len(), found[0].asked.op), (1 + FILE_MAX, "read"));
        assert_eq!(table.slowest(None, 100).len(), 1 + MOUNT_MAX);
    }

    #[test]
    fn old_ones_give_way() {
        let table = SlowRequests::default();
        (0..40).for_each(|n| table.keep(request(1, n, 90_000), n));
        let later = KEPT_US + 30;
        assert_eq!(times(&table, None, later).len(), 2, "all but those of the last ten minutes are gone");
        assert_eq!(times(&table, Some(1), later), []);
        assert!(table.wants(&asked(1), 1_000, later));
        table.keep(request(1, later, 1_000), later);
        assert_eq!(times(&table, Some(1), later), [1_000]);
    }

    #[test]
    fn only_so_many_files_are_remembered() {
        let table = SlowRequests::default();
        for n in 0..2 * FILES_MAX as u64 {
            table.keep(request(n, n, 5_000), n);
            table.keep(request(0, n, 5_000 + n), n);
        }
        assert_eq!(lock(&table.0).files.len(), FILES_MAX);
        assert_eq!(times(&table, Some(0), 0).len(), FILE_MAX, "a file that is slow now stays");
        assert_eq!(times(&table, Some(3), 0), []);
    }
}
