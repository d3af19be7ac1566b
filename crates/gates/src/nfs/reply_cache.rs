//! The duplicate request cache. A client that has lost its connection repeats its requests, and must get the first
//! answer: for example, a file cannot be removed twice.
//!
//! A bounded number of answers is kept for a while. The key is the client's address, the request's number, length and
//! checksum, which covers what the client says about itself. A duplicate of a request in progress waits for its answer.
//!
//! Two programs may use the same numbers: many begin at a fixed one. So an answer is given to the connection that has asked, and,
//! once that one has ended, to another one that its client may have made since: from the same port, as Linux does it, or at once.
//! All others have their requests carried out.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::checksum::crc;
use world::Notify;

/// Most answers in the cache.
const ANSWERS_MAX: usize = 4096;
/// Most requests in progress that are skipped in a search for an old answer to drop.
const PASSED_OVER_MAX: usize = 8;
/// How long answers are kept, in microseconds. After this a client may reuse its numbers.
const AGE_MAX_US: u64 = 120_000_000;
/// How long after the end of a connection a request from another port may be a repetition, in microseconds.
const RECONNECT_US: u64 = 750_000;
/// How long the end of a connection may take to be noticed when its client has made another one, in microseconds.
pub(super) const NOTICE_US: u64 = 100_000;
/// A connection that has not ended.
const OPEN: u64 = u64::MAX;

/// A connection, of which the cache knows more than the connection lasts.
pub(super) struct Origin {
    client: SocketAddr,
    /// When it ended, in microseconds; [`OPEN`] if it has not.
    ended_us: AtomicU64,
    /// Notified when it has ended.
    ended: Notify,
}

impl Origin {
    pub(super) fn new(client: SocketAddr) -> Arc<Origin> {
        Arc::new(Origin { client, ended_us: AtomicU64::new(OPEN), ended: Notify::new() })
    }

    pub(super) fn client(&self) -> SocketAddr {
        self.client
    }

    /// The connection has ended.
    pub(super) fn end(&self, now: u64) {
        self.ended_us.store(now, Ordering::Release);
        self.ended.notify();
    }

    /// Returns when the connection has ended.
    pub(super) async fn ended(&self) {
        loop {
            let ended = self.ended.wait();
            if self.ended_us.load(Ordering::Acquire) != OPEN {
                return;
            }
            ended.await;
        }
    }

    /// Whether the client of this connection may have made that one since.
    fn may_have_become(&self, other: &Origin, now: u64) -> bool {
        match self.ended_us.load(Ordering::Acquire) {
            OPEN => false,
            ended => self.client == other.client || now < ended + RECONNECT_US,
        }
    }

    fn is_open(&self) -> bool {
        self.ended_us.load(Ordering::Acquire) == OPEN
    }
}

/// The key of a request that may be repeated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RequestKey {
    client: std::net::IpAddr,
    xid: u32,
    sum: u32,
    len: usize,
    /// The requests of several connections have the same key but for this.
    number: u64,
}

impl RequestKey {
    pub(super) fn new(origin: &Origin, xid: u32, record: &[u8]) -> RequestKey {
        RequestKey { client: origin.client.ip(), xid, sum: crc(record), len: record.len(), number: 0 }
    }
}

/// The duplicate request cache of a gate.
#[derive(Default)]
pub(super) struct ReplyCache {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    answers: BTreeMap<RequestKey, Arc<Entry>>,
    /// By age, the oldest first.
    order: VecDeque<(RequestKey, u64)>,
    next: u64,
}

impl Known {
    /// Requests with this key, of any connection, the newest first.
    fn copies(&self, key: RequestKey) -> impl Iterator<Item = &Arc<Entry>> {
        let last = RequestKey { number: u64::MAX, ..key };
        self.answers.range(key..=last).rev().map(|(_, entry)| entry)
    }

    /// Drops answers that are too old or too many. Requests in progress stay, because their duplicates must wait for
    /// them.
    fn forget_old(&mut self, now: u64) {
        let is_awaited = |entry: &Arc<Entry>| matches!(*entry.lock(), Answer::Awaited);
        let mut passed_over = 0;
        for _ in 0..self.order.len() {
            let Some((oldest, since)) = self.order.front().copied() else { return };
            let too_many = self.order.len() >= ANSWERS_MAX && passed_over < PASSED_OVER_MAX;
            if now < since + AGE_MAX_US && !too_many {
                return;
            }
            self.order.pop_front();
            if self.answers.get(&oldest).is_some_and(is_awaited) {
                self.order.push_back((oldest, now));
                passed_over += 1;
            } else {
                self.answers.remove(&oldest);
            }
        }
    }
}

struct Entry {
    origin: Arc<Origin>,
    answer: Mutex<Answer>,
    /// Notified when there is an answer, or there will be none.
    over: Notify,
}

#[derive(Default)]
enum Answer {
    #[default]
    Awaited,
    Given(Arc<[u8]>),
    /// The request ended without an answer.
    Never,
}

/// What to do with a request.
pub(super) enum CacheLookup<'a> {
    /// Carry it out, then call [`NewRequest::answer`].
    NewRequest(NewRequest<'a>),
    /// It was carried out, or is in progress.
    Duplicate(Duplicate),
}

/// A request in progress, which must be answered.
pub(super) struct NewRequest<'a> {
    reply_cache: &'a ReplyCache,
    key: RequestKey,
    entry: Arc<Entry>,
}

/// The answer to an earlier copy of the request.
pub(super) struct Duplicate(Arc<Entry>);

impl ReplyCache {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another connection that has asked the same and has not ended. If it is about to end, the request is a repetition.
    pub(super) fn same_of_another(&self, key: RequestKey, origin: &Arc<Origin>) -> Option<Arc<Origin>> {
        let known = self.lock();
        let others = known.copies(key).map(|entry| &entry.origin);
        let mut open = others.filter(|other| other.is_open() && !Arc::ptr_eq(other, origin));
        open.next().map(Arc::clone)
    }

    /// Looks up a request of a connection at the time `now`.
    pub(super) fn begin(&self, key: RequestKey, origin: &Arc<Origin>, now: u64) -> CacheLookup<'_> {
        let mut known = self.lock();
        known.forget_old(now);
        let is_its = |entry: &&Arc<Entry>| {
            Arc::ptr_eq(&entry.origin, origin) || entry.origin.may_have_become(origin, now)
        };
        if let Some(entry) = known.copies(key).find(is_its) {
            return CacheLookup::Duplicate(Duplicate(Arc::clone(entry)));
        }
        let entry =
            Arc::new(Entry { origin: Arc::clone(origin), answer: Mutex::default(), over: Notify::new() });
        let key = RequestKey { number: known.next, ..key };
        known.next += 1;
        known.answers.insert(key, Arc::clone(&entry));
        known.order.push_back((key, now));
        CacheLookup::NewRequest(NewRequest { reply_cache: self, key, entry })
    }
}

impl NewRequest<'_> {
    /// Stores the answer for duplicates, waiting and later.
    pub(super) fn answer(self, answer: &[u8]) {
        *self.entry.lock() = Answer::Given(answer.into());
    }
}

impl Drop for NewRequest<'_> {
    fn drop(&mut self) {
        // Lock in this order, as `forget_old` does.
        let mut known = self.reply_cache.lock();
        let mut answer = self.entry.lock();
        if matches!(*answer, Answer::Awaited) {
            *answer = Answer::Never;
            known.answers.remove(&self.key);
            known.order.retain(|(key, _)| *key != self.key);
        }
        drop((answer, known));
        self.entry.over.notify();
    }
}

impl Duplicate {
    /// Waits for the answer; `None` if there will be none.
    pub(super) async fn answer(self) -> Option<Arc<[u8]>> {
        loop {
            let over = self.0.over.wait();
            match &*self.0.lock() {
                Answer::Given(answer) => return Some(Arc::clone(answer)),
                Answer::Never => return None,
                Answer::Awaited => {}
            }
            over.await;
        }
    }
}

impl Entry {
    fn lock(&self) -> MutexGuard<'_, Answer> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::net::Ipv4Addr;

    /// A cache, and the connection of the requests.
    struct Fixture {
        reply_cache: ReplyCache,
        origin: Arc<Origin>,
    }

    fn fixture() -> Fixture {
        Fixture { reply_cache: ReplyCache::default(), origin: connection(700) }
    }

    fn connection(port: u16) -> Arc<Origin> {
        Origin::new((Ipv4Addr::LOCALHOST, port).into())
    }

    fn key(xid: u32, record: &[u8]) -> RequestKey {
        RequestKey::new(&connection(1), xid, record)
    }

    fn first(of: &Fixture, key: RequestKey, now: u64) -> NewRequest<'_> {
        match of.reply_cache.begin(key, &of.origin, now) {
            CacheLookup::NewRequest(first) => first,
            _ => panic!("it is new"),
        }
    }

    fn again(of: &Fixture, key: RequestKey, now: u64) -> Duplicate {
        match of.reply_cache.begin(key, &of.origin, now) {
            CacheLookup::Duplicate(again) => again,
            _ => panic!("it is known"),
        }
    }

    fn is_repetition(of: &Fixture, other: &Arc<Origin>, now: u64) -> bool {
        matches!(of.reply_cache.begin(key(1, b"remove"), other, now), CacheLookup::Duplicate(_))
    }

    #[test]
    fn an_answer_goes_to_the_connection_that_has_asked_and_to_the_one_that_takes_its_place() {
        let fixture = fixture();
        first(&fixture, key(1, b"remove"), 0).answer(b"done");
        assert!(is_repetition(&fixture, &fixture.origin, 1));
        // While the first one is open, nobody else has repeated its request.
        let (same, other) = (connection(700), connection(701));
        assert!(fixture.reply_cache.same_of_another(key(1, b"remove"), &fixture.origin).is_none());
        let open =
            fixture.reply_cache.same_of_another(key(1, b"remove"), &other).expect("it may be about to end");
        assert!(Arc::ptr_eq(&open, &fixture.origin) && open.ended().now_or_never().is_none());
        assert!(!is_repetition(&fixture, &same, 1) && !is_repetition(&fixture, &other, 1));
        fixture.origin.end(1000);
        assert!(open.ended().now_or_never().is_some());
        assert!(is_repetition(&fixture, &other, 1000 + RECONNECT_US - 1), "its client reconnects at once");
        assert!(!is_repetition(&fixture, &other, 1000 + RECONNECT_US), "a program that was run again");
        assert!(is_repetition(&fixture, &same, AGE_MAX_US - 1), "the port tells who it is");
    }

    #[test]
    fn two_connections_with_the_same_numbers_have_their_own_answers() {
        let fixture = fixture();
        first(&fixture, key(1, b"remove"), 0).answer(b"done");
        let other = connection(701);
        match fixture.reply_cache.begin(key(1, b"remove"), &other, 1) {
            CacheLookup::NewRequest(turn) => turn.answer(b"gone"),
            _ => panic!("it is another's"),
        }
        let of_first = again(&fixture, key(1, b"remove"), 2).answer();
        assert_eq!(of_first.now_or_never(), Some(Some(b"done"[..].into())));
        let of_other = fixture.reply_cache.begin(key(1, b"remove"), &other, 2);
        let CacheLookup::Duplicate(of_other) = of_other else { panic!("it is known") };
        assert_eq!(of_other.answer().now_or_never(), Some(Some(b"gone"[..].into())));
    }

    #[test]
    fn a_repetition_gets_the_first_answer() {
        let fixture = fixture();
        let turn = first(&fixture, key(1, b"remove"), 0);
        let mut waits = Box::pin(again(&fixture, key(1, b"remove"), 0).answer());
        assert!(waits.as_mut().now_or_never().is_none(), "the first is still at it");
        turn.answer(b"done");
        assert_eq!(waits.now_or_never(), Some(Some(b"done"[..].into())));
        let later = again(&fixture, key(1, b"remove"), AGE_MAX_US - 1).answer();
        assert_eq!(later.now_or_never(), Some(Some(b"done"[..].into())));
    }

    #[test]
    fn another_request_is_no_repetition() {
        let fixture = fixture();
        first(&fixture, key(1, b"remove"), 0).answer(b"done");
        first(&fixture, key(2, b"remove"), 0).answer(b"gone");
        first(&fixture, key(1, b"rename"), 0).answer(b"done");
        first(&fixture, key(1, b"remove"), AGE_MAX_US).answer(b"its time is over");
    }

    #[test]
    fn all_that_is_too_old_is_forgotten_at_once() {
        let fixture = fixture();
        let turns: Vec<NewRequest<'_>> = (0..20).map(|xid| first(&fixture, key(xid, b"remove"), 0)).collect();
        for xid in 20..100 {
            first(&fixture, key(xid, b"remove"), 0).answer(b"done");
        }
        drop(first(&fixture, key(99, b"remove"), AGE_MAX_US));
        assert_eq!(
            fixture.reply_cache.lock().order.len(),
            turns.len(),
            "but those that are being carried out"
        );
    }

    #[test]
    fn what_is_being_carried_out_is_never_forgotten() {
        let fixture = fixture();
        let turn = first(&fixture, key(0, b"remove"), 0);
        for xid in 1..2 * ANSWERS_MAX as u32 {
            first(&fixture, key(xid, b"remove"), AGE_MAX_US).answer(b"done");
        }
        let waits = again(&fixture, key(0, b"remove"), 2 * AGE_MAX_US).answer();
        turn.answer(b"done");
        assert_eq!(waits.now_or_never(), Some(Some(b"done"[..].into())));
        assert!(fixture.reply_cache.lock().order.len() <= ANSWERS_MAX);
    }

    #[test]
    fn whoever_gives_up_leaves_the_turn_to_others() {
        let fixture = fixture();
        let turn = first(&fixture, key(1, b"remove"), 0);
        let waits = again(&fixture, key(1, b"remove"), 0).answer();
        drop(turn);
        assert_eq!(waits.now_or_never(), Some(None));
        first(&fixture, key(1, b"remove"), 0).answer(b"done");
    }

    #[test]
    fn memory_is_bounded() {
        let fixture = fixture();
        for xid in 0..3 * ANSWERS_MAX as u32 {
            first(&fixture, key(xid, b"remove"), 0).answer(b"done");
        }
        let known = fixture.reply_cache.lock();
        assert!(known.answers.len() <= ANSWERS_MAX && known.order.len() == known.answers.len());
    }
}
