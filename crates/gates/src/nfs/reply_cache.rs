//! The duplicate request cache. A client that has lost its connection repeats its requests, and must get the first
//! answer: for example, a file cannot be removed twice.
//!
//! A bounded number of answers is kept for a while. The key is the client's address, the request's number, length and
//! checksum. A duplicate of a request in progress waits for its answer.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::checksum::crc;
use world::Notify;

/// Most answers in the cache.
const ANSWERS_MAX: usize = 4096;
/// Most requests in progress that are skipped in a search for an old answer to drop.
const PASSED_OVER_MAX: usize = 8;
/// How long answers are kept, in microseconds. After this a client may reuse its numbers.
const AGE_MAX_US: u64 = 120_000_000;

/// The key of a request that may be repeated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RequestKey {
    client: IpAddr,
    xid: u32,
    sum: u32,
    len: usize,
}

impl RequestKey {
    pub(super) fn new(client: IpAddr, xid: u32, record: &[u8]) -> RequestKey {
        RequestKey { client, xid, sum: crc(record), len: record.len() }
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
}

impl Known {
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

#[derive(Default)]
struct Entry {
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

    /// Looks up a request at the time `now`.
    pub(super) fn begin(&self, key: RequestKey, now: u64) -> CacheLookup<'_> {
        let mut known = self.lock();
        known.forget_old(now);
        if let Some(entry) = known.answers.get(&key) {
            return CacheLookup::Duplicate(Duplicate(Arc::clone(entry)));
        }
        let entry = Arc::new(Entry::default());
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

    fn key(xid: u32, record: &[u8]) -> RequestKey {
        RequestKey::new(IpAddr::V4(Ipv4Addr::LOCALHOST), xid, record)
    }

    fn first(reply_cache: &ReplyCache, key: RequestKey, now: u64) -> NewRequest<'_> {
        match reply_cache.begin(key, now) {
            CacheLookup::NewRequest(first) => first,
            CacheLookup::Duplicate(_) => panic!("it is new"),
        }
    }

    fn again(reply_cache: &ReplyCache, key: RequestKey, now: u64) -> Duplicate {
        match reply_cache.begin(key, now) {
            CacheLookup::NewRequest(_) => panic!("it is known"),
            CacheLookup::Duplicate(again) => again,
        }
    }

    #[test]
    fn a_repetition_gets_the_first_answer() {
        let reply_cache = ReplyCache::default();
        let turn = first(&reply_cache, key(1, b"remove"), 0);
        let mut waits = Box::pin(again(&reply_cache, key(1, b"remove"), 0).answer());
        assert!(waits.as_mut().now_or_never().is_none(), "the first is still at it");
        turn.answer(b"done");
        assert_eq!(waits.now_or_never(), Some(Some(b"done"[..].into())));
        let later = again(&reply_cache, key(1, b"remove"), AGE_MAX_US - 1).answer();
        assert_eq!(later.now_or_never(), Some(Some(b"done"[..].into())));
    }

    #[test]
    fn another_request_is_no_repetition() {
        let reply_cache = ReplyCache::default();
        first(&reply_cache, key(1, b"remove"), 0).answer(b"done");
        first(&reply_cache, key(2, b"remove"), 0).answer(b"gone");
        first(&reply_cache, key(1, b"rename"), 0).answer(b"done");
        first(&reply_cache, key(1, b"remove"), AGE_MAX_US).answer(b"its time is over");
    }

    #[test]
    fn all_that_is_too_old_is_forgotten_at_once() {
        let reply_cache = ReplyCache::default();
        let turns: Vec<NewRequest<'_>> =
            (0..20).map(|xid| first(&reply_cache, key(xid, b"remove"), 0)).collect();
        for xid in 20..100 {
            first(&reply_cache, key(xid, b"remove"), 0).answer(b"done");
        }
        drop(first(&reply_cache, key(99, b"remove"), AGE_MAX_US));
        assert_eq!(reply_cache.lock().order.len(), turns.len(), "but those that are being carried out");
    }

    #[test]
    fn what_is_being_carried_out_is_never_forgotten() {
        let reply_cache = ReplyCache::default();
        let turn = first(&reply_cache, key(0, b"remove"), 0);
        for xid in 1..2 * ANSWERS_MAX as u32 {
            first(&reply_cache, key(xid, b"remove"), AGE_MAX_US).answer(b"done");
        }
        let waits = again(&reply_cache, key(0, b"remove"), 2 * AGE_MAX_US).answer();
        turn.answer(b"done");
        assert_eq!(waits.now_or_never(), Some(Some(b"done"[..].into())));
        assert!(reply_cache.lock().order.len() <= ANSWERS_MAX);
    }

    #[test]
    fn whoever_gives_up_leaves_the_turn_to_others() {
        let reply_cache = ReplyCache::default();
        let turn = first(&reply_cache, key(1, b"remove"), 0);
        let waits = again(&reply_cache, key(1, b"remove"), 0).answer();
        drop(turn);
        assert_eq!(waits.now_or_never(), Some(None));
        first(&reply_cache, key(1, b"remove"), 0).answer(b"done");
    }

    #[test]
    fn memory_is_bounded() {
        let reply_cache = ReplyCache::default();
        for xid in 0..3 * ANSWERS_MAX as u32 {
            first(&reply_cache, key(xid, b"remove"), 0).answer(b"done");
        }
        let known = reply_cache.lock();
        assert!(known.answers.len() <= ANSWERS_MAX && known.order.len() == known.answers.len());
    }
}
