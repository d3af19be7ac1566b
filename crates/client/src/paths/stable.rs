//! Makes accepted pieces stable: one `Sync` per primary for everything that waits in its groups.
//!
//! A `Sync` names the groups and the epochs in which their primaries accepted the bytes. A piece that was accepted in
//! an earlier epoch is first sent again (write.rs); the new primary recognises writes that it has already.
//!
//! If only a few pieces are unsent when a caller begins to wait, their `Write`s ask for stability (`Write.stable`)
//! and no `Sync` is needed. The background sends a `Sync` for pieces that were accepted some time ago, one at a time
//! to each primary.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::join_all;
use types::messages::brick::Sync;
use types::{BrickId, Buf, ClientSeq, GroupId, Refusal};
use world::trace::{Stage, span};

use crate::error::ClientError;
use crate::paths::Io;
use crate::paths::write::WriteStage;
use crate::routes::retry::{RetryBudget, Verdict, backoff_us, verdict};
use crate::routes::route::Route;
use crate::state::counters::Counter;
use crate::state::open_file::{FileState, OpenFile};
use crate::unstable::flow::{AGE_MAX_US, SYNC_DELAY_US, SyncBatch};

/// Most unsent pieces that ask for stability themselves.
const ASKING_MAX: usize = 16;

/// The result of an attempt to make groups stable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Synced {
    /// Nothing waits there; other tasks may be making it stable.
    Nothing,
    /// All of it is stable.
    Stable,
    /// Some of it is not yet.
    NotYet,
    /// Some of it cannot become stable.
    Refused(ClientError),
}

impl Io {
    /// Returns when every piece of a file up to number `upto` is stable or lost.
    ///
    /// # Errors
    /// If it does not happen within the retry budget. The bytes are kept, and the background continues.
    pub(crate) async fn make_stable(&self, file: &Arc<OpenFile>, upto: u64) -> Result<(), ClientError> {
        let mut budget = RetryBudget::new(&self.link.world);
        {
            let mut state = file.lock();
            if state.unanswered.range(..=upto).nth(ASKING_MAX).is_none() {
                state.wanted_stable = state.wanted_stable.max(upto);
            }
        }
        loop {
            self.make_answered(file, upto).await;
            let changed = file.changed.wait();
            let groups = {
                let state = file.lock();
                if state.unstable.first().is_none_or(|first| *first > upto) {
                    return Ok(());
                }
                self.groups_of(&state)
            };
            match self.sync_groups(groups, u64::MAX).await {
                Synced::Stable => {}
                Synced::Nothing => {
                    let changed = self.link.world.timeout(AGE_MAX_US, changed);
                    span(&self.link.world, Stage::Underway, changed).await;
                    budget.check()?;
                }
                Synced::NotYet => budget.backoff().await?,
                Synced::Refused(error) => return Err(error),
            }
        }
    }

    /// The groups that have accepted pieces of a file.
    fn groups_of(&self, state: &FileState) -> BTreeSet<u32> {
        let map = self.link.routes.map();
        let accepted = state.stripes.iter().filter(|(_, s)| s.has_accepted());
        accepted.map(|(stripe, _)| map.route(state.key(*stripe)).group.index).collect()
    }

    /// Makes everything stable that was accepted in these groups no later than `since`.
    async fn sync_groups(&self, groups: impl IntoIterator<Item = u32>, since: u64) -> Synced {
        let shares = self.shares(groups, since);
        let done = join_all(shares.into_iter().map(|share| self.sync_share(share))).await;
        let worse = |a, b| match (a, b) {
            (Synced::Refused(error), _) | (_, Synced::Refused(error)) => Synced::Refused(error),
            (Synced::NotYet, _) | (_, Synced::NotYet) => Synced::NotYet,
            (Synced::Stable, _) | (_, Synced::Stable) => Synced::Stable,
            _ => Synced::Nothing,
        };
        done.into_iter().fold(Synced::Nothing, worse)
    }

    /// The pieces that wait in these groups, by primary. Pieces accepted in an earlier epoch are queued to be sent
    /// again.
    fn shares(&self, groups: impl IntoIterator<Item = u32>, since: u64) -> Vec<Vec<(Route, SyncBatch<'_>)>> {
        let map = self.link.routes.map();
        let mut shares: BTreeMap<Option<BrickId>, Vec<(Route, SyncBatch<'_>)>> = BTreeMap::new();
        for index in groups {
            let mut batch = self.unstable.flow.take_accepted(index, since);
            let route = map.route_to(GroupId { volume: self.link.routes.volume, index });
            for old in batch.entries.extract_if(.., |e| e.epoch != route.epoch) {
                self.unstable.enqueue_due(&old.file, &mut old.file.lock(), old.stripe);
            }
            if !batch.entries.is_empty() {
                shares.entry(route.primary().map(|(brick, _)| brick)).or_default().push((route, batch));
            }
        }
        shares.into_values().collect()
    }

    /// Makes the accepted pieces of one primary's groups stable.
    async fn sync_share(&self, mut share: Vec<(Route, SyncBatch<'_>)>) -> Synced {
        let Some((route, _)) = share.first() else { return Synced::Nothing };
        let route = route.clone();
        let upto = share.iter().flat_map(|(_, batch)| &batch.entries).map(|e| e.seq).max();
        let groups = share.iter().map(|(route, _)| (route.group, route.epoch)).collect();
        let client = self.link.routes.lease.client();
        let request = Sync { client, upto: upto.unwrap_or(ClientSeq(0)), groups };
        let error = match self.link.ask_primary(&route, &request, Buf::empty()).await {
            Ok(_) => {
                let entries = share.iter_mut().flat_map(|(_, batch)| batch.entries.drain(..));
                self.are_stable(entries);
                return Synced::Stable;
            }
            Err(error) => error,
        };
        tracing::debug!(stage = %WriteStage::Accepted, group = %route.group, %error, "sync failed");
        self.link.routes.counts.count(Counter::Retries, 1);
        match verdict(error) {
            Verdict::Again => Synced::NotYet,
            Verdict::Refresh => {
                self.link.refresh_map(route.map_version()).await;
                Synced::NotYet
            }
            Verdict::GiveUp(error @ ClientError::Refused(Refusal::Fenced)) => {
                for lost in share.iter_mut().flat_map(|(_, batch)| batch.entries.drain(..)) {
                    self.unstable.lose(&mut lost.file.lock(), lost.stripe, lost.order, error);
                    lost.file.changed.notify();
                }
                Synced::Stable
            }
            Verdict::GiveUp(error) => Synced::Refused(error),
        }
    }

    /// Starts a `Sync` for pieces that have waited long enough. Returns the time of the next check.
    pub(crate) fn sync_what_is_due(self: &Rc<Self>, now: u64) -> u64 {
        let map = self.link.routes.map();
        let group = |index| GroupId { volume: self.link.routes.volume, index };
        let primary = |index| map.route_to(group(index)).primary().map(|(brick, _)| brick);
        let (shares, next) = self.unstable.flow.take_due_groups(now, primary);
        for (primary, groups) in shares {
            let io = self.clone();
            self.link.world.spawn("sync", async move {
                let done = io.sync_groups(groups, now.saturating_sub(SYNC_DELAY_US)).await;
                let failed = matches!(done, Synced::NotYet | Synced::Refused(_));
                let (now, chance) = (io.link.world.now(), io.link.world.random());
                // A short pause, so that the next `Sync` covers more pieces.
                let rest = |tries| now + if failed { backoff_us(tries, chance) } else { SYNC_DELAY_US / 2 };
                io.unstable.flow.end_sync(primary, failed, rest);
            });
        }
        next
    }
}
