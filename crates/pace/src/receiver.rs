//! Who may send how much: the transfers to one receiver.

use std::collections::{BTreeMap, BTreeSet};

use crate::port::{Holding, Member, Port};

/// Credit that nobody has used for so long holds the window no longer: a little more than TCP needs to send once more what was
/// lost.
const EXPIRY_US: u64 = 300_000;

/// A transfer to the receiver: the answer to a request that it has sent, or the payload of one that it serves. Older ones
/// have smaller numbers and come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Transfer(pub u64);

/// Bytes of a transfer that its sender may send now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Whose.
    pub transfer: Transfer,
    /// How many, above 0.
    pub bytes: usize,
}

/// Who sends a transfer: one connection, on which nothing overtakes anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Sender(pub u64);

#[derive(Debug, Default)]
struct State {
    sender: Sender,
    /// Announced and not granted.
    waiting: usize,
    /// Of the window: credit that was given, and has not arrived.
    held: usize,
    /// Bytes of a small answer that has not arrived.
    small: usize,
    /// May be sent and has not arrived, whether it still holds the window or not.
    allowed: usize,
    /// When credit was last given.
    given_us: u64,
    /// Whether its bytes were announced and come in pieces.
    is_announced: bool,
    /// Nobody takes its bytes for a while.
    is_paused: bool,
    /// Its credit would have gone with the request if the window were larger.
    is_late: bool,
}

/// Gives out credit to those who send to one thread, within the window of its [`Port`].
///
/// # Invariants
/// What is held is the sum over all transfers. When credit is given, the port's window has room for it, except where nothing
/// else is under way.
#[derive(Debug)]
pub struct Receiver {
    member: Member,
    transfers: BTreeMap<Transfer, State>,
    /// Those with announced bytes that are not granted.
    hungry: BTreeSet<Transfer>,
    /// Those that hold some of the window, by when credit was last given.
    holders: BTreeSet<(u64, Transfer)>,
    /// Those that have let credit for announced bytes expire and sent nothing since. None of their transfers is hungry.
    silent: BTreeSet<Sender>,
    holding: Holding,
    next: u64,
}

impl Receiver {
    /// Nothing is under way.
    pub fn new(port: &mut Port) -> Receiver {
        Receiver {
            member: port.join(),
            transfers: BTreeMap::new(),
            hungry: BTreeSet::new(),
            holders: BTreeSet::new(),
            silent: BTreeSet::new(),
            holding: Holding::default(),
            next: 0,
        }
    }

    /// It receives nothing any more, and its part of the window is free.
    pub fn leave(&mut self, port: &mut Port) {
        port.leave(self.member);
    }

    /// Who it is at its port.
    pub fn member(&self) -> Member {
        self.member
    }

    /// A request leaves whose answer has up to `expected` bytes. Returns its number, and how many of them may be sent without
    /// an announcement: all, or none. Credit goes with a request only while half of the window is free, because a disk may
    /// come first. Of a request that comes, the announcement alone tells of bytes: it expects none.
    pub fn open(
        &mut self,
        port: &mut Port,
        now_us: u64,
        sender: Sender,
        expected: usize,
    ) -> (Transfer, usize) {
        self.next += 1;
        let (transfer, mut state) = (Transfer(self.next), State { sender, ..State::default() });
        let room = port.room(self.member);
        let fits = self.hungry.is_empty() && self.holding.held.saturating_add(expected) <= room.carried;
        let mut credit = 0;
        if expected <= port.bulk_min {
            state.small = expected;
            self.holding.small += expected;
        } else if fits {
            credit = expected;
            port.stats.carried += expected as u64;
            self.hold(transfer, &mut state, now_us, expected);
        } else {
            state.is_late = true;
        }
        self.transfers.insert(transfer, state);
        self.holding.open += 1;
        port.hold(self.member, self.holding);
        (transfer, credit)
    }

    /// The sender has `waiting` bytes that it may not send yet. Bytes that were expected without an announcement come no more.
    pub fn announced(&mut self, port: &mut Port, transfer: Transfer, waiting: usize) {
        let Some(mut state) = self.transfers.remove(&transfer) else { return };
        self.release(transfer, &mut state, usize::MAX);
        state.allowed = 0;
        state.is_announced = true;
        state.waiting = waiting;
        self.heard(state.sender);
        if waiting > 0 && !state.is_paused {
            self.hungry.insert(transfer);
        } else {
            self.hungry.remove(&transfer);
        }
        self.transfers.insert(transfer, state);
        port.hold(self.member, self.holding);
    }

    /// `bytes` of a transfer have come.
    ///
    /// # Errors
    /// If they are more than were granted: how many more.
    pub fn arrived(
        &mut self,
        port: &mut Port,
        now_us: u64,
        transfer: Transfer,
        bytes: usize,
    ) -> Result<(), usize> {
        let Some(mut state) = self.transfers.remove(&transfer) else { return Ok(()) };
        let excess = if state.is_announced { bytes.saturating_sub(state.allowed) } else { 0 };
        if state.held > 0 && state.is_announced {
            let delay = now_us.saturating_sub(state.given_us);
            port.stats.delay_us = (port.stats.delay_us * 7 + delay) / 8;
        }
        state.allowed = state.allowed.saturating_sub(bytes);
        self.release(transfer, &mut state, bytes);
        self.heard(state.sender);
        if state.waiting > 0 && !state.is_paused {
            // Its credit may have expired, and its sender goes on after all.
            self.hungry.insert(transfer);
        }
        let is_limited = self.holding.wanted > 0 || state.is_late;
        self.transfers.insert(transfer, state);
        port.hold(self.member, self.holding);
        port.arrived(now_us, bytes, is_limited);
        if excess > 0 { Err(excess) } else { Ok(()) }
    }

    /// A transfer has ended, or nobody wants it any more. Returns the bytes that its sender may still send or has announced.
    pub fn close(&mut self, port: &mut Port, transfer: Transfer) -> usize {
        let Some(mut state) = self.transfers.remove(&transfer) else { return 0 };
        self.release(transfer, &mut state, usize::MAX);
        self.heard(state.sender);
        self.holding.open -= 1;
        if self.hungry.remove(&transfer) && self.hungry.is_empty() {
            self.holding.wanted = 0;
        }
        port.hold(self.member, self.holding);
        state.allowed + state.waiting
    }

    /// Nobody takes the bytes of a transfer until [`Receiver::resume`]: it holds nothing of the window, and is granted nothing.
    /// What its sender may send already comes all the same; it waits in the machine's memory, behind the port.
    pub fn pause(&mut self, port: &mut Port, transfer: Transfer) {
        let Some(mut state) = self.transfers.remove(&transfer) else { return };
        self.release(transfer, &mut state, usize::MAX);
        state.is_paused = true;
        self.transfers.insert(transfer, state);
        if self.hungry.remove(&transfer) && self.hungry.is_empty() {
            self.holding.wanted = 0;
        }
        port.hold(self.member, self.holding);
    }

    /// The bytes of a transfer are taken again.
    pub fn resume(&mut self, transfer: Transfer) {
        let Some(state) = self.transfers.get_mut(&transfer) else { return };
        state.is_paused = false;
        if state.waiting > 0 && !self.silent.contains(&state.sender) {
            self.hungry.insert(transfer);
        }
    }

    /// The next grant, if the window has room. Call it until there is none.
    pub fn grant(&mut self, port: &mut Port, now_us: u64) -> Option<Grant> {
        self.expire(port, now_us);
        let room = port.room(self.member);
        let mut chosen = None;
        self.holding.wanted = 0;
        // Few hold the window at a time, so few are passed over here.
        for &transfer in &self.hungry {
            let state = &self.transfers[&transfer];
            // Two grants under way keep its sender busy. If nobody else wants to send, it has all.
            if state.held >= 2 * room.quantum && self.hungry.len() > 1 {
                continue;
            }
            let bytes = state.waiting.min(room.quantum);
            if room.is_idle || self.holding.held.saturating_add(bytes) <= room.bytes {
                chosen = Some(Grant { transfer, bytes });
            } else {
                self.holding.wanted = bytes;
            }
            break;
        }
        if let Some(grant) = chosen {
            let mut state = self.transfers.remove(&grant.transfer).unwrap_or_default();
            state.waiting -= grant.bytes;
            if state.waiting == 0 {
                self.hungry.remove(&grant.transfer);
            }
            self.hold(grant.transfer, &mut state, now_us, grant.bytes);
            self.transfers.insert(grant.transfer, state);
            port.stats.granted += grant.bytes as u64;
        }
        port.hold(self.member, self.holding);
        chosen
    }

    /// When [`Receiver::grant`] should be asked again although nothing arrives: then credit expires.
    pub fn wake_at(&self) -> Option<u64> {
        if self.hungry.is_empty() {
            return None;
        }
        self.holders.first().map(|(given, _)| given + EXPIRY_US)
    }

    fn hold(&mut self, transfer: Transfer, state: &mut State, now_us: u64, bytes: usize) {
        if state.held > 0 {
            self.holders.remove(&(state.given_us, transfer));
        }
        state.held += bytes;
        state.allowed += bytes;
        state.given_us = now_us;
        self.holding.held += bytes;
        if state.held > 0 {
            self.holders.insert((now_us, transfer));
        }
    }

    fn release(&mut self, transfer: Transfer, state: &mut State, bytes: usize) {
        self.holding.small -= std::mem::take(&mut state.small);
        let bytes = bytes.min(state.held);
        if bytes == 0 {
            return;
        }
        state.held -= bytes;
        self.holding.held -= bytes;
        if state.held == 0 {
            self.holders.remove(&(state.given_us, transfer));
        }
    }

    /// A sender has shown that it goes on, or what it has let expire is not wanted any more.
    fn heard(&mut self, sender: Sender) {
        if self.silent.remove(&sender) {
            let of_it = self.transfers.iter().filter(|(_, state)| state.sender == sender);
            let hungry = of_it.filter(|(_, state)| state.waiting > 0 && !state.is_paused);
            self.hungry.extend(hungry.map(|(transfer, _)| *transfer));
        }
    }

    /// Takes the window back from transfers whose bytes do not come. They may still come. Until then they are granted nothing
    /// more, and if they were announced, no transfer of the same sender is: one that hangs would have the window for ever,
    /// because the oldest come first.
    fn expire(&mut self, port: &mut Port, now_us: u64) {
        while let Some(&(given, transfer)) = self.holders.first() {
            if now_us < given + EXPIRY_US {
                return;
            }
            let Some(mut state) = self.transfers.remove(&transfer) else { return };
            port.stats.expired += state.held as u64;
            self.release(transfer, &mut state, usize::MAX);
            self.hungry.remove(&transfer);
            let (sender, had_bytes) = (state.sender, state.is_announced);
            self.transfers.insert(transfer, state);
            // Without an announcement its bytes may still be on a slow disk, and others of the same sender in its memory.
            if had_bytes && self.silent.insert(sender) {
                let transfers = &self.transfers;
                self.hungry.retain(|hungry| transfers[hungry].sender != sender);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BULK_MIN, WindowSetting};
    use proptest::prelude::*;

    const KIB: usize = 1 << 10;

    /// A receiver with a port of its own.
    struct Alone {
        port: Port,
        receiver: Receiver,
    }

    impl Alone {
        fn new(setting: WindowSetting) -> Alone {
            let mut port = Port::new(setting, BULK_MIN);
            let receiver = Receiver::new(&mut port);
            Alone { port, receiver }
        }

        fn of(window: usize) -> Alone {
            Alone::new(WindowSetting::Fixed(window))
        }

        fn open(&mut self, expected: usize) -> (Transfer, usize) {
            self.receiver.open(&mut self.port, 0, Sender(self.receiver.next + 1), expected)
        }

        /// A request whose answer is announced at once.
        fn announced(&mut self, bytes: usize) -> Transfer {
            let (transfer, credit) = self.open(bytes);
            assert_eq!(credit, 0);
            self.receiver.announced(&mut self.port, transfer, bytes);
            transfer
        }

        fn arrived(&mut self, now: u64, transfer: u64, bytes: usize) -> Result<(), usize> {
            self.receiver.arrived(&mut self.port, now, Transfer(transfer), bytes)
        }

        fn close(&mut self, transfer: u64) -> usize {
            self.receiver.close(&mut self.port, Transfer(transfer))
        }

        fn grants(&mut self, now: u64) -> Vec<(u64, usize)> {
            grants(&mut self.receiver, &mut self.port, now)
        }
    }

    fn grants(receiver: &mut Receiver, port: &mut Port, now: u64) -> Vec<(u64, usize)> {
        std::iter::from_fn(|| receiver.grant(port, now))
            .map(|grant| (grant.transfer.0, grant.bytes))
            .collect()
    }

    #[test]
    fn credit_goes_with_a_request_while_half_of_the_window_is_free() {
        let mut alone = Alone::of(1024 * KIB);
        assert_eq!(alone.open(256 * KIB), (Transfer(1), 256 * KIB));
        assert_eq!(alone.open(256 * KIB), (Transfer(2), 256 * KIB));
        assert_eq!(alone.open(64 * KIB), (Transfer(3), 0));
        alone.arrived(5, 1, 256 * KIB).expect("as expected");
        alone.close(1);
        assert_eq!(alone.open(64 * KIB), (Transfer(4), 64 * KIB));
        assert_eq!(alone.port.held(), (256 + 64) * KIB);
    }

    #[test]
    fn the_oldest_are_granted_first_and_two_at_a_time() {
        let mut alone = Alone::of(64 * KIB);
        for _ in 0..3 {
            alone.announced(100 * KIB);
        }
        assert_eq!(alone.grants(1), [(1, 16384), (1, 16384), (2, 16384), (2, 16384)]);
        alone.arrived(2, 2, 16384).expect("granted");
        assert_eq!(alone.grants(2), [(2, 16384)]);
        alone.arrived(3, 1, 16384).expect("granted");
        assert_eq!(alone.grants(3), [(1, 16384)]);
        assert_eq!(alone.arrived(4, 1, 16384 * 3), Err(16384), "more than was granted");
    }

    #[test]
    fn small_answers_that_wait_for_disks_stop_nobody() {
        let mut alone = Alone::of(64 * KIB);
        for _ in 0..100 {
            alone.open(4 * KIB);
        }
        alone.announced(100 * KIB);
        assert_eq!(alone.grants(0), [(101, 16384); 3], "three quarters are left");
        for transfer in 1..=100 {
            alone.arrived(1, transfer, 4 * KIB).expect("small");
            alone.close(transfer);
        }
        assert_eq!(alone.grants(1), [(101, 16384)]);
    }

    #[test]
    fn who_is_alone_has_all_of_it() {
        let mut alone = Alone::of(64 * KIB);
        alone.announced(100 * KIB);
        assert_eq!(alone.grants(1), [(1, 16384); 4]);
    }

    #[test]
    fn credit_that_nobody_uses_expires() {
        let mut alone = Alone::of(64 * KIB);
        for _ in 0..2 {
            alone.announced(64 * KIB);
        }
        assert_eq!(alone.grants(0).len(), 4);
        assert_eq!(alone.receiver.wake_at(), Some(EXPIRY_US));
        assert_eq!(alone.grants(EXPIRY_US - 1), []);
        alone.arrived(EXPIRY_US - 1, 2, 16384).expect("granted");
        assert_eq!(alone.grants(EXPIRY_US - 1), [(2, 16384)]);
        // The first sender hangs: others have its part of the window.
        assert_eq!(alone.grants(EXPIRY_US), [(2, 16384)]);
        assert_eq!(alone.port.stats().expired, 32 * KIB as u64);
        alone.announced(64 * KIB);
        assert_eq!(alone.grants(EXPIRY_US), [(3, 16384)]);
        // It goes on after all.
        alone.arrived(EXPIRY_US + 1, 1, 32 * KIB).expect("what had expired may still come");
        alone.arrived(EXPIRY_US + 1, 2, 48 * KIB).expect("granted");
        assert_eq!(alone.grants(EXPIRY_US + 1), [(1, 16384), (1, 16384), (3, 16384)]);
        alone.arrived(EXPIRY_US + 2, 1, 32 * KIB).expect("granted");
        assert_eq!((alone.close(1), alone.close(2)), (0, 0));
        assert_eq!(alone.close(3), 64 * KIB, "granted or announced");
        assert_eq!((alone.port.held(), alone.receiver.wake_at(), alone.port.open()), (0, None, 0));
    }

    #[test]
    fn a_sender_that_hangs_has_the_window_once_however_much_it_has_announced() {
        let mut alone = Alone::of(64 * KIB);
        let hangs = Sender(77);
        for _ in 0..50 {
            let (transfer, _) = alone.receiver.open(&mut alone.port, 0, hangs, 0);
            alone.receiver.announced(&mut alone.port, transfer, 64 * KIB);
        }
        let other = alone.announced(64 * KIB).0;
        assert_eq!(alone.grants(0), [(1, 16384), (1, 16384), (2, 16384), (2, 16384)]);
        assert_eq!(alone.grants(EXPIRY_US), [(other, 16384); 4]);
        // It goes on: all of its transfers do.
        alone.arrived(EXPIRY_US + 1, 1, 32 * KIB).expect("granted");
        alone.arrived(EXPIRY_US + 1, other, 64 * KIB).expect("granted");
        assert_eq!(alone.grants(EXPIRY_US + 1), [(1, 16384), (1, 16384), (2, 16384), (2, 16384)]);
        assert_eq!(alone.grants(2 * EXPIRY_US + 1), []);
        // What it has let expire is given up: it has another try with the rest.
        alone.close(1);
        alone.close(2);
        assert_eq!(alone.grants(2 * EXPIRY_US + 2), [(3, 16384), (3, 16384), (4, 16384), (4, 16384)]);
    }

    #[test]
    fn an_answer_that_waits_for_a_disk_stops_no_other_of_its_sender() {
        let mut alone = Alone::of(64 * KIB);
        let slow = Sender(77);
        let (_, credit) = alone.receiver.open(&mut alone.port, 0, slow, 32 * KIB);
        assert_eq!(credit, 32 * KIB);
        let (second, _) = alone.receiver.open(&mut alone.port, 0, slow, 64 * KIB);
        alone.receiver.announced(&mut alone.port, second, 64 * KIB);
        assert_eq!(alone.grants(0), [(2, 16384); 2]);
        alone.arrived(EXPIRY_US - 1, 2, 32 * KIB).expect("granted");
        assert_eq!(alone.grants(EXPIRY_US), [(2, 16384); 2], "the credit of the first one has expired");
    }

    #[test]
    fn what_nobody_takes_holds_nothing_of_the_window() {
        let mut alone = Alone::of(64 * KIB);
        for _ in 0..3 {
            alone.announced(64 * KIB);
        }
        assert_eq!(alone.grants(0), [(1, 16384), (1, 16384), (2, 16384), (2, 16384)]);
        for transfer in [1, 3] {
            alone.receiver.pause(&mut alone.port, Transfer(transfer));
        }
        assert_eq!(alone.port.held(), 32 * KIB);
        assert_eq!(alone.grants(1), [(2, 16384), (2, 16384)], "nobody else takes any");
        // What was granted before may come, and nothing more is granted for it.
        alone.arrived(2, 1, 16384).expect("granted");
        alone.arrived(2, 2, 64 * KIB).expect("granted");
        alone.close(2);
        assert_eq!(alone.grants(2), []);
        for transfer in [1, 3] {
            alone.receiver.resume(Transfer(transfer));
        }
        assert_eq!(alone.grants(3), [(1, 16384), (1, 16384), (3, 16384), (3, 16384)]);
        alone.arrived(4, 1, 48 * KIB).expect("granted, and before");
        assert_eq!((alone.close(1), alone.close(3)), (0, 64 * KIB));
        assert_eq!((alone.port.held(), alone.port.open()), (0, 0));
    }

    #[test]
    fn a_window_that_is_too_small_for_one_answer_grows_by_it() {
        let mut alone = Alone::new(WindowSetting::Auto);
        let mut rounds = 0;
        loop {
            let (transfer, credit) = alone.open(256 * KIB);
            if credit > 0 {
                break;
            }
            rounds += 1;
            alone.receiver.announced(&mut alone.port, transfer, 256 * KIB);
            while let Some(grant) = alone.receiver.grant(&mut alone.port, rounds * 20_000) {
                alone.arrived(rounds * 20_000, transfer.0, grant.bytes).expect("granted");
            }
            alone.close(transfer.0);
        }
        assert!(rounds <= 5, "{rounds}");
    }

    #[test]
    fn receivers_of_a_port_have_equal_shares_and_leave_what_they_do_not_need() {
        let mut port = Port::new(WindowSetting::Fixed(64 * KIB), BULK_MIN);
        let (mut one, mut two) = (Receiver::new(&mut port), Receiver::new(&mut port));
        for receiver in [&mut one, &mut two] {
            let (transfer, _) = receiver.open(&mut port, 0, Sender(1), 1024 * KIB);
            receiver.announced(&mut port, transfer, 1024 * KIB);
        }
        assert_eq!(grants(&mut one, &mut port, 0).len(), 4, "nobody else wants any");
        assert_eq!(grants(&mut two, &mut port, 0), []);
        let relieved = |port: &Port, but: &Receiver| port.relieved(but.member()).collect::<Vec<_>>();
        assert_eq!(relieved(&port, &one), [], "it waits, and has no room yet");
        for now in 1..=2 {
            one.arrived(&mut port, now, Transfer(1), 16384).expect("granted");
            assert_eq!(grants(&mut one, &mut port, now), [], "more than its share");
            assert_eq!(relieved(&port, &one), [two.member()]);
            assert_eq!(grants(&mut two, &mut port, now), [(1, 16384)]);
        }
        one.arrived(&mut port, 3, Transfer(1), 16384).expect("granted");
        assert_eq!(grants(&mut two, &mut port, 3), [], "that is its share");
        assert_eq!(grants(&mut one, &mut port, 3), [(1, 16384)]);
        two.leave(&mut port);
        assert_eq!(grants(&mut one, &mut port, 4).len(), 2);
        assert_eq!(port.held(), 64 * KIB);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Open(usize),
        Announce(usize, usize),
        Arrive(usize, usize),
        Close(usize),
        Pause(usize),
        Resume(usize),
        Later(u64),
        Lose,
    }

    fn steps() -> impl Strategy<Value = Vec<(bool, Step)>> {
        let step = prop_oneof![
            (0usize..600_000).prop_map(Step::Open),
            (any::<usize>(), 0usize..600_000).prop_map(|(of, bytes)| Step::Announce(of, bytes)),
            (any::<usize>(), 1usize..300_000).prop_map(|(of, bytes)| Step::Arrive(of, bytes)),
            any::<usize>().prop_map(Step::Close),
            any::<usize>().prop_map(Step::Pause),
            any::<usize>().prop_map(Step::Resume),
            (0u64..2_000_000).prop_map(Step::Later),
            Just(Step::Lose),
        ];
        proptest::collection::vec((any::<bool>(), step), 0..200)
    }

    proptest! {
        /// Whatever peers do: the window is kept, credit is conserved, nobody is starved.
        #[test]
        fn any_order_of_events(auto in any::<bool>(), steps in steps()) {
            let setting = if auto { WindowSetting::Auto } else { WindowSetting::Fixed(48 * KIB) };
            let mut port = Port::new(setting, BULK_MIN);
            let mut both = [Receiver::new(&mut port), Receiver::new(&mut port)];
            let (mut now, mut live) = (0, [Vec::new(), Vec::new()]);
            for (second, step) in steps {
                let (receiver, live) = (&mut both[usize::from(second)], &mut live[usize::from(second)]);
                let one = |of: usize, live: &Vec<Transfer>| live.get(of % live.len().max(1)).copied();
                match step {
                    Step::Open(expected) => {
                        let sender = Sender(expected as u64 % 3);
                        live.push(receiver.open(&mut port, now, sender, expected).0);
                    }
                    Step::Announce(of, bytes) => {
                        if let Some(transfer) = one(of, live) { receiver.announced(&mut port, transfer, bytes) }
                    }
                    Step::Arrive(of, bytes) => {
                        if let Some(transfer) = one(of, live) {
                            let _ = receiver.arrived(&mut port, now, transfer, bytes);
                        }
                    }
                    Step::Close(of) if !live.is_empty() => {
                        receiver.close(&mut port, live.swap_remove(of % live.len()));
                    }
                    Step::Close(_) => {}
                    Step::Pause(of) => {
                        if let Some(transfer) = one(of, live) { receiver.pause(&mut port, transfer) }
                    }
                    Step::Resume(of) => {
                        if let Some(transfer) = one(of, live) { receiver.resume(transfer) }
                    }
                    Step::Later(us) => now += us,
                    Step::Lose => port.lost(now, 8),
                }
                for receiver in &mut both {
                    while let Some(grant) = receiver.grant(&mut port, now) {
                        prop_assert!(grant.bytes > 0);
                        let window = port.window().bytes();
                        prop_assert!(port.held() <= window.max(grant.bytes), "{} of {window}", port.held());
                    }
                    let held: usize = receiver.transfers.values().map(|state| state.held).sum();
                    prop_assert_eq!(held, receiver.holding.held);
                    let holders = receiver.transfers.iter().filter(|(_, state)| state.held > 0);
                    let holders: BTreeSet<_> = holders.map(|(transfer, state)| (state.given_us, *transfer)).collect();
                    prop_assert!(holders == receiver.holders);
                    let silent = |transfer: &Transfer| receiver.silent.contains(&receiver.transfers[transfer].sender);
                    prop_assert!(!receiver.hungry.iter().any(silent));
                }
                let held: usize = both.iter().map(|receiver| receiver.holding.held).sum();
                prop_assert_eq!(held, port.held());
            }
            // In the end all bytes are taken, senders send what they may, and everybody who has announced gets all of it.
            for (receiver, live) in both.iter_mut().zip(&live) {
                live.iter().for_each(|transfer| receiver.resume(*transfer));
            }
            let mut rounds = 0;
            while both.iter().any(|receiver| receiver.transfers.values().any(|state| state.waiting > 0)) {
                for receiver in &mut both {
                    let sent: Vec<_> = receiver.transfers.iter().map(|(of, state)| (*of, state.allowed)).collect();
                    for (transfer, bytes) in sent {
                        let _ = receiver.arrived(&mut port, now, transfer, bytes);
                    }
                    while receiver.grant(&mut port, now).is_some() {}
                }
                rounds += 1;
                prop_assert!(rounds < 100_000);
            }
            for (receiver, live) in both.iter_mut().zip(live) {
                for transfer in live {
                    receiver.close(&mut port, transfer);
                }
                prop_assert_eq!((receiver.holding, receiver.holders.len()), (Holding::default(), 0));
            }
        }
    }
}
