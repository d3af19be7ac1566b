//! A leader sends others what they lack: signs of life, records, and the whole store.

use std::rc::Rc;
use std::sync::Arc;

use types::checksum::crc;
use types::limits::RECORDS_MAX;
use types::messages::replica::*;
use types::{Buf, Epoch};
use world::CallError;

use super::agreement::has;
use super::leader::Leading;
use super::{APPEND_US, BEAT_US, CALL_US, RETRY_US};
use crate::keys;
use crate::kv::{EngineError, packed};
use crate::records::from_value;

/// About how many bytes a part of the whole store has.
const PART: usize = 512 << 10;
/// Most bytes of several records that are sent at a time: they fit into a half of the shortest journal.
const BATCH: usize = 128 << 10;

/// Most batches of records between two parts, unless the history is about to forget them.
const BATCHES: usize = 16;

/// Why a store could not be sent.
#[derive(Debug, thiserror::Error)]
enum FeedError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the term is over, or the other server has no use for it")]
    Unwanted,
}

impl Leading {
    /// Sends to all who should have something, until the term is over.
    pub(crate) fn feed(self: &Rc<Leading>) {
        let members = self.members();
        for member in members.iter().filter(|member| member.id != self.me.id) {
            self.feed_one(member.clone());
        }
    }

    /// Sends to one server as long as it is a member, or in the list of the others.
    pub(super) fn feed_one(self: &Rc<Leading>, to: MetaMember) {
        self.world.spawn("signs of life", beats(Rc::clone(self), to.clone()));
        self.world.spawn("records", records(Rc::clone(self), to));
    }

    fn is_wanted(&self, id: u64) -> bool {
        let is_in = |list: &[MetaMember]| list.iter().any(|member| member.id == id);
        let is_listed =
            || is_in(&self.members()) || is_in(&self.others.borrow()) || is_in(&self.parting.borrow());
        !self.is_over() && is_listed()
    }

    /// What to send next: a record; or, to a server that is behind, several that are chosen, so that it has them with one sync.
    /// `None` if the history does not reach back so far.
    fn batch(&self, next: u64) -> Option<(Vec<SentRecord>, Buf)> {
        let (history, chosen) = (self.history.borrow(), self.chosen_up_to());
        let (position, first) = history.get(next)?;
        let mut records = vec![SentRecord { position, len: first.len() as u32 }];
        let mut more = Vec::new();
        for number in next + 1..=chosen {
            let Some((position, writes)) = history.get(number) else { break };
            let bytes: usize = records.iter().map(|sent| sent.len as usize).sum();
            if records.len() >= RECORDS_MAX || bytes + writes.len() > BATCH {
                break;
            }
            records.push(SentRecord { position, len: writes.len() as u32 });
            more.push(writes);
        }
        if more.is_empty() {
            return Some((records, first));
        }
        let all: Vec<u8> =
            std::iter::once(&first).chain(&more).flat_map(|writes| writes.iter().copied()).collect();
        Some((records, all.into()))
    }

    fn sign(&self, to: &MetaMember) -> Append {
        Append {
            to: to.id,
            term: self.term(),
            leader: self.me.clone(),
            previous: RecordPosition::default(),
            records: Vec::new(),
            chosen: self.chosen_up_to(),
            has: self.core.borrow().last_of(to.id),
            sum: crc(&[]),
        }
    }

    async fn send_append(
        &self,
        to: &MetaMember,
        us: u64,
        append: &Append,
        writes: Buf,
    ) -> Result<Appended, CallError> {
        let begun_us = self.world.now();
        let peers = if append.records.is_empty() { &self.signs } else { &self.peers };
        let (answer, _) = peers.call_within(us, &to.address, Epoch(0), append, writes).await?;
        let last = self.core.borrow().acknowledged(append, &answer);
        self.answered(to.id, begun_us, last, &answer);
        Ok(answer)
    }

    /// Sends chosen records that follow `last`, while a server gets the whole store: it keeps them. So the history needs to reach back
    /// no further, however long the store takes.
    async fn send_meanwhile(&self, to: &MetaMember, last: &mut u64) -> Result<(), FeedError> {
        for batches in 0.. {
            let next = *last + 1;
            let is_urgent = self.history.borrow().is_old(next);
            if next > self.chosen_up_to() || (batches >= BATCHES && !is_urgent) {
                break;
            }
            let (records, writes) = self.batch(next).ok_or(FeedError::Unwanted)?;
            let previous = RecordPosition { number: *last, term: 0 };
            *last += records.len() as u64;
            let append = Append { previous, records, sum: crc(&writes), ..self.sign(to) };
            self.send_append(to, APPEND_US, &append, writes).await?;
        }
        Ok(())
    }

    /// Sends the whole store as the engine has it, and the records that come meanwhile. Returns the record with which it ends.
    async fn install(&self, to: &MetaMember) -> Result<u64, FeedError> {
        let reader = Arc::new(self.engine.snapshot()?);
        let number = reader.get(&keys::applied(), from_value::<u64>)?.and_then(Result::ok).unwrap_or(0);
        tracing::info!(to = to.address, record = number, "sends the whole metadata store");
        let (mut from, mut part, mut last_sent) = (Vec::new(), 0, number);
        loop {
            let of = Arc::clone(&reader);
            // The disk may be slow.
            let (mut pairs, is_last) = self.world.off_thread(move || of.part(&from, PART)).await?;
            let last_key = pairs.keys().next_back().cloned();
            pairs.remove(&keys::applied());
            let payload = packed(&pairs);
            let (to_id, term, leader, sum) = (to.id, self.term(), self.me.clone(), crc(&payload));
            let install = Install { to: to_id, term, leader, number, part, is_last, sum };
            let begun_us = self.world.now();
            let sent = self.peers.call_within(APPEND_US, &to.address, Epoch(0), &install, payload.into());
            let (answer, _) = sent.await?;
            self.answered(to.id, begun_us, None, &answer);
            // It says only at the end whether it has taken all.
            let is_refused = is_last && (answer.is_incomplete || answer.chosen < last_sent);
            if !self.is_wanted(to.id) || is_refused {
                return Err(FeedError::Unwanted);
            }
            let (false, Some(last)) = (is_last, last_key) else { return Ok(last_sent) };
            self.send_meanwhile(to, &mut last_sent).await?;
            from = [last.as_slice(), &[0]].concat();
            part += 1;
        }
    }
}

async fn beats(leading: Rc<Leading>, to: MetaMember) {
    while leading.is_wanted(to.id) {
        let begun_us = leading.world.now();
        if let Err(error) = leading.send_append(&to, CALL_US, &leading.sign(&to), Buf::empty()).await {
            tracing::debug!(to = to.address, %error, "a metadata server does not answer");
        }
        let next = begun_us + BEAT_US;
        leading.world.sleep(next.saturating_sub(leading.world.now()).max(RETRY_US / 2)).await;
    }
}

async fn records(leading: Rc<Leading>, to: MetaMember) {
    while leading.is_wanted(to.id) {
        if let Err(error) = send(&leading, &to).await {
            tracing::debug!(to = to.address, %error, "a metadata server does not take records");
        }
        leading.world.sleep(RETRY_US).await;
    }
}

/// Sends what a server lacks, in order, until something fails.
async fn send(leading: &Leading, to: &MetaMember) -> Result<(), FeedError> {
    let mut known = leading.send_append(to, CALL_US, &leading.sign(to), Buf::empty()).await?;
    let mut next = known.chosen + 1;
    while leading.is_wanted(to.id) {
        let news = leading.news.wait();
        let last = leading.history.borrow().last();
        let is_behind = known.is_incomplete || next <= last.unwrap_or(0).max(leading.chosen_up_to());
        if !is_behind {
            news.await;
            continue;
        }
        leading.lag(to.id, next).await;
        let batch = if known.is_incomplete { None } else { leading.batch(next) };
        let base = leading.core.borrow().base;
        let Some((records, writes)) = batch else {
            if !known.is_incomplete && next <= base.number && known.last == base {
                next = base.number + 1;
                continue;
            }
            next = leading.install(to).await? + 1;
            known.is_incomplete = false;
            continue;
        };
        let previous = leading.history.borrow().get(next - 1).map(|(position, _)| position);
        let previous = previous.or((base.number + 1 == next).then_some(base));
        let last = records.last().expect("there is one").position;
        let append =
            Append { previous: previous.unwrap_or_default(), records, sum: crc(&writes), ..leading.sign(to) };
        known = leading.send_append(to, APPEND_US, &append, writes).await?;
        next = if has(&known, &last) { last.number + 1 } else { known.chosen + 1 };
    }
    Ok(())
}
