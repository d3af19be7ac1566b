//! The counters of a mount.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a mount since its start, and its present memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Bytes that reads returned.
    pub bytes_read: u64,
    /// Bytes that writes accepted.
    pub bytes_written: u64,
    /// Bytes read from this mount's own unstable writes.
    pub bytes_own: u64,
    /// Bytes read from the bricks of their units.
    pub bytes_direct: u64,
    /// Bytes read through primaries.
    pub bytes_primary: u64,
    /// Units that the primaries decoded for these reads.
    pub units_decoded: u64,
    /// Reads of a unit for which the primary was asked too, because the unit's brick was late.
    pub reads_hedged: u64,
    /// Those that the primary answered first.
    pub hedges_won: u64,
    /// Reads of a unit for which only the primary was asked, because the unit's brick is slow.
    pub reads_diverted: u64,
    /// Whole stripes that this client encoded and staged.
    pub stripes_staged: u64,
    /// Those of them whose units went along a tree of members.
    pub stripes_relayed: u64,
    /// Whole stripes that their primaries encoded.
    pub stripes_sent: u64,
    /// Requests that were repeated.
    pub retries: u64,
    /// Requests that another brick has passed on, because this mount does not reach the one that is meant.
    pub requests_proxied: u64,
    /// Writes sent to primaries.
    pub pieces_sent: u64,
    /// Spans of these writes; a write has several if it gathers small ones.
    pub spans_sent: u64,
    /// Calls of `fsync` that did not wait for the metadata service, because bricks keep the size.
    pub syncs_noted: u64,
    /// Lookups that were answered from names read ahead of a program that removes them.
    pub lookups_ahead: u64,
    /// Bytes of buffers with unstable bytes, now.
    pub unstable_bytes: u64,
    /// Bytes of the read cache, now.
    pub cache_bytes: u64,
}

#[derive(Clone, Copy)]
pub(crate) enum Counter {
    ReadBytes,
    WrittenBytes,
    OwnBytes,
    DirectBytes,
    PrimaryBytes,
    DecodedUnits,
    HedgedReads,
    WonHedges,
    DivertedReads,
    StagedStripes,
    RelayedStripes,
    SentStripes,
    Retries,
    Proxied,
    Pieces,
    Spans,
    NotedSyncs,
    LookupsAhead,
}

/// The counters, shared by all threads.
#[derive(Default)]
pub(crate) struct Counts([AtomicU64; 18]);

impl Counts {
    pub(crate) fn count(&self, counter: Counter, by: u64) {
        self.0[counter as usize].fetch_add(by, Ordering::Relaxed);
    }

    /// All counters, with the present memory of the mount.
    pub(crate) fn all(&self, unstable_bytes: u64) -> Counters {
        let of = |counter: Counter| self.0[counter as usize].load(Ordering::Relaxed);
        Counters {
            bytes_read: of(Counter::ReadBytes),
            bytes_written: of(Counter::WrittenBytes),
            bytes_own: of(Counter::OwnBytes),
            bytes_direct: of(Counter::DirectBytes),
            bytes_primary: of(Counter::PrimaryBytes),
            units_decoded: of(Counter::DecodedUnits),
            reads_hedged: of(Counter::HedgedReads),
            hedges_won: of(Counter::WonHedges),
            reads_diverted: of(Counter::DivertedReads),
            stripes_staged: of(Counter::StagedStripes),
            stripes_relayed: of(Counter::RelayedStripes),
            stripes_sent: of(Counter::SentStripes),
            retries: of(Counter::Retries),
            requests_proxied: of(Counter::Proxied),
            pieces_sent: of(Counter::Pieces),
            spans_sent: of(Counter::Spans),
            syncs_noted: of(Counter::NotedSyncs),
            lookups_ahead: of(Counter::LookupsAhead),
            unstable_bytes,
            cache_bytes: 0,
        }
    }
}
