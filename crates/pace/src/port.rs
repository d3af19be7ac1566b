//! One window that several receivers of a machine share: the threads of a process, and other processes.

use std::collections::BTreeMap;

use crate::{Window, WindowSetting};

/// A receiver at its port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Member(u64);

/// What happened at a port since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Bytes that were granted after an announcement.
    pub granted: u64,
    /// Bytes whose credit went with the request.
    pub carried: u64,
    /// Bytes of large requests that needed no credit.
    pub free: u64,
    /// Credit that expired, in bytes.
    pub expired: u64,
    /// Packets that senders have sent once more.
    pub lost: u64,
    /// Average time from a grant to its bytes, in microseconds.
    pub delay_us: u64,
}

/// What a receiver has of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Holding {
    /// Credit that was given and has not arrived, in bytes.
    pub(crate) held: usize,
    /// Bytes of small answers on their way.
    pub(crate) small: usize,
    /// Transfers that are not ended.
    pub(crate) open: usize,
    /// Bytes of the grant that it would give if it had room; 0 if there is none.
    pub(crate) wanted: usize,
}

/// How much a receiver may hold now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    /// In all.
    pub(crate) bytes: usize,
    /// In all, if some of it goes with a request.
    pub(crate) carried: usize,
    /// Of it in one grant.
    pub(crate) quantum: usize,
    /// Nobody holds anything.
    pub(crate) is_idle: bool,
}

/// What a process tells the others of its machine, and hears from them. Everything comes to them through one port, so the window
/// of each is about all of them together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// That window, in bytes.
    pub window: usize,
    /// A window that was too large; [`None`] if no packet was lost yet.
    pub ceiling: Option<usize>,
}

/// A process that has not waited for room in the window for so long tells the others nothing: it needs no part of it.
const WAITED_US: u64 = 300_000;

/// Smallest grant, in bytes, unless less is left: about six packets.
const GRANT_MIN: usize = 8 << 10;
/// Largest grant, in bytes.
const GRANT_MAX: usize = 256 << 10;

/// The receive window of a machine's port, and who holds how much of it.
///
/// Receivers that have more to receive than fits have equal shares. Who needs less than its share leaves the rest to the others.
#[derive(Debug)]
pub struct Port {
    window: Window,
    /// What other processes have told that want more than there is.
    others: Vec<Told>,
    /// When something waited for room last.
    waited_us: Option<u64>,
    members: BTreeMap<Member, Holding>,
    next: u64,
    pub(crate) bulk_min: usize,
    pub(crate) stats: Stats,
}

impl Port {
    /// A port without receivers. Payloads of up to `bulk_min` bytes need no credit ([`BULK_MIN`](crate::BULK_MIN), except in
    /// simulations).
    pub fn new(setting: WindowSetting, bulk_min: usize) -> Port {
        let (window, stats) = (Window::new(setting), Stats::default());
        let (others, members) = (Vec::new(), BTreeMap::new());
        Port { window, others, waited_us: None, members, next: 0, bulk_min, stats }
    }

    /// The window of all processes of the machine together.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Bytes that may be on their way to this process: its part of the window.
    pub fn bytes(&self) -> usize {
        if self.others.is_empty() {
            return self.window.bytes();
        }
        let all = self.others.len() + 1;
        let known: usize = self.others.iter().map(|told| told.window / all).sum();
        // Each knows the window a little differently.
        ((known + self.window.bytes() / all) / all).max(GRANT_MIN)
    }

    /// What the other processes of the machine should hear; [`None`] while it needs no part of the window.
    pub fn told(&self, now_us: u64) -> Option<Told> {
        let is_hungry = self.waited_us.is_some_and(|waited| now_us < waited + WAITED_US);
        let is_shared = self.window.setting() == WindowSetting::Auto;
        (is_hungry && is_shared).then(|| self.window.told())
    }

    /// What all others of which [`Port::told`] is something have told. One that knows nothing yet believes them.
    pub fn hear(&mut self, now_us: u64, others: Vec<Told>) {
        if self.window.setting() != WindowSetting::Auto {
            return;
        }
        if let Some(told) = others.iter().find(|told| told.ceiling.is_some()) {
            self.window.believe(now_us, *told);
        }
        self.others = others;
    }

    /// What happened.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Credit that was given by all receivers and has not arrived, in bytes.
    pub fn held(&self) -> usize {
        self.members.values().map(|holding| holding.held).sum()
    }

    /// Transfers of all receivers that are not ended.
    pub fn open(&self) -> usize {
        self.members.values().map(|holding| holding.open).sum()
    }

    /// Other receivers that have waited for room in the window, and have it now.
    pub fn relieved(&self, but: Member) -> impl Iterator<Item = Member> + '_ {
        let waiting = self.members.iter().filter(move |(id, holding)| **id != but && holding.wanted > 0);
        let fits = |(id, holding): &(&Member, &Holding)| {
            let room = self.room(**id);
            room.is_idle || holding.held.saturating_add(holding.wanted) <= room.bytes
        };
        waiting.filter(fits).map(|(id, _)| *id)
    }

    pub(crate) fn join(&mut self) -> Member {
        self.next += 1;
        self.members.insert(Member(self.next), Holding::default());
        Member(self.next)
    }

    pub(crate) fn leave(&mut self, member: Member) {
        self.members.remove(&member);
    }

    pub(crate) fn hold(&mut self, member: Member, holding: Holding) {
        if let Some(place) = self.members.get_mut(&member) {
            *place = holding;
        }
    }

    pub(crate) fn room(&self, member: Member) -> Room {
        let window = self.bytes();
        let (mut others, mut small, mut held, mut starved) = (0usize, 0usize, 0usize, 0);
        for (id, holding) in &self.members {
            held = held.saturating_add(holding.held);
            small = small.saturating_add(holding.small);
            if *id != member {
                others = others.saturating_add(holding.held);
                starved += usize::from(holding.wanted > 0);
            }
        }
        // Small answers need no credit. They may wait for disks, and must not keep everything else waiting.
        let taken = others.saturating_add(small.min(window / 4));
        Room {
            bytes: window.saturating_sub(taken).min(window / (1 + starved)),
            carried: (window / 2).saturating_sub(taken).min(window / 2 / (1 + starved)),
            quantum: (window / 4).clamp(GRANT_MIN, GRANT_MAX),
            is_idle: held == 0,
        }
    }

    pub(crate) fn arrived(&mut self, now_us: u64, bytes: usize, is_limited: bool) {
        if is_limited {
            self.waited_us = Some(now_us);
        }
        self.window.arrived(now_us, bytes, is_limited);
    }

    /// `bytes` have come that needed no credit, although they are many.
    pub fn arrived_without_credit(&mut self, now_us: u64, bytes: usize) {
        self.stats.free += bytes as u64;
        self.window.arrived(now_us, bytes, false);
    }

    /// Their sender had to send `packets` once more.
    pub fn lost_without_credit(&mut self, now_us: u64, packets: u64) {
        self.stats.lost += packets;
        self.window.lost_without_credit(now_us, packets);
    }

    /// A sender had to send `packets` once more.
    pub fn lost(&mut self, now_us: u64, packets: u64) {
        self.stats.lost += packets;
        self.window.lost(now_us, packets);
    }
}
