//! Asks the bricks of a restored cluster what became of its groups since the backup ([`Recovery`]).

use std::collections::BTreeSet;
use std::rc::Rc;

use futures_util::future::join_all;
use types::limits::{HEARTBEAT_US, LEASE_MARGIN_US, LEASE_US};
use types::messages::cluster::BrickState;
use types::messages::recovery::{RecoverGroups, RecoveryReport};
use types::{BrickId, Buf, Epoch, GroupId, Refusal, VolumeId};
use world::CallError;

use super::Shared;
use crate::cluster::Recovery;

/// Pause between two rounds, in microseconds.
const ROUND_US: u64 = HEARTBEAT_US / 4;
/// How long a brick may take for an answer, in microseconds. It waits for room in its journal and for a sync.
const ANSWER_US: u64 = 10_000_000;
/// Bricks that are asked at the same time.
const AT_ONCE: usize = 16;
/// Groups that go on in one turn.
const PART: usize = 512;

pub(super) async fn run(shared: Rc<Shared>) {
    if shared.recovery.borrow().is_none() {
        return;
    }
    tracing::warn!("this cluster was restored: bricks are asked for what they know of its groups");
    // A brick may have a lease of the service that was there before.
    shared.world.sleep(LEASE_US + LEASE_MARGIN_US).await;
    let mut told = None;
    loop {
        match shared.recover().await {
            Ok(true) => break,
            Ok(false) => {}
            Err(refusal) => tracing::warn!(%refusal, "groups of the restored cluster cannot go on yet"),
        }
        let report = shared.recovery_report();
        if told != report {
            tracing::info!(?report, "the bricks of the restored cluster are asked");
            told = report;
        }
        shared.world.sleep(ROUND_US).await;
    }
    tracing::warn!(report = ?shared.recovery_report(), "all groups of the restored cluster are known");
    shared.purges.notify();
}

impl Shared {
    /// Whether the cluster was restored and does not know all its groups.
    pub(super) fn is_recovering(&self) -> bool {
        self.recovery.borrow().as_ref().is_some_and(|recovery| !recovery.is_done())
    }

    /// The volumes of a restored cluster of which not all groups are known.
    pub(super) fn recovering_volumes(&self) -> BTreeSet<VolumeId> {
        self.recovery.borrow().as_ref().map(Recovery::volumes).unwrap_or_default()
    }

    pub(super) fn recovery_report(&self) -> Option<RecoveryReport> {
        let (state, recovery) = (self.state.borrow(), self.recovery.borrow());
        let report = recovery.as_ref().map(|recovery| recovery.report(&state.cluster.map().bricks));
        report.filter(|report| report.groups > 0 || report.doubtful > 0)
    }

    /// One round: every brick that is Up is asked for what it has not said yet. Returns whether all groups are known.
    async fn recover(&self) -> Result<bool, Refusal> {
        self.may_answer().await?;
        let up: Vec<(BrickId, String)> = {
            let state = self.state.borrow();
            if let Some(recovery) = &mut *self.recovery.borrow_mut() {
                recovery.keep(state.cluster.map());
            }
            let bricks = state.cluster.map().bricks.iter().filter(|brick| brick.state == BrickState::Up);
            bricks.map(|brick| (brick.id, brick.address.clone())).collect()
        };
        for some in up.chunks(AT_ONCE) {
            join_all(some.iter().map(|(brick, address)| self.ask_for_groups(*brick, address))).await;
            self.world.yield_now().await;
        }
        // What this server says is true only while it leads.
        self.may_answer().await?;
        loop {
            let resumed = match &mut *self.recovery.borrow_mut() {
                Some(recovery) => recovery.take_known(&self.state.borrow().cluster.map().bricks, PART),
                None => return Ok(true),
            };
            if resumed.is_empty() {
                break;
            }
            let now = self.world.now();
            self.decide(|state| Ok(state.cluster.resume_groups(resumed, now)))?;
            self.world.yield_now().await;
        }
        Ok(!self.is_recovering())
    }

    async fn ask_for_groups(&self, brick: BrickId, address: &str) {
        let raised = self.recovery.borrow().as_ref().map_or(0, Recovery::raised);
        let (mut after, mut makes_sense): (Option<GroupId>, bool) = (None, true);
        loop {
            let groups = match &*self.recovery.borrow() {
                Some(recovery) => recovery.to_ask(brick, after),
                None => return,
            };
            let Some(last) = groups.last() else { break };
            after = Some(last.group);
            let request = RecoverGroups { groups };
            let call = self.peers.call_within(ANSWER_US, address, Epoch(0), &request, Buf::default());
            match call.await {
                Ok((answer, _)) => {
                    let mut recovery = self.recovery.borrow_mut();
                    let Some(recovery) = &mut *recovery else { return };
                    if !recovery.answered(brick, &request.groups, &answer.groups) {
                        tracing::error!(%brick, "what the brick says of its groups makes no sense");
                        makes_sense = false;
                    }
                }
                Err(CallError::Refused(refusal)) => {
                    return tracing::warn!(%brick, %refusal, "the brick does not say what it knows of groups");
                }
                Err(error) => return tracing::debug!(%brick, %error, "the brick is asked again"),
            }
        }
        if makes_sense && let Some(recovery) = &mut *self.recovery.borrow_mut() {
            recovery.told_all(brick, raised);
        }
    }
}
