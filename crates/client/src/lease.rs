//! The client's relation to the metadata service: its lease, recalls of modes, and joining again after a restart of
//! the service.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use types::code_probe::{CodeProbe, hit};
use types::limits::{HEARTBEAT_US, LEASE_US};
use types::messages::cluster::{ClientJoin, ClientJoined, ClientLeave, ClientPoll, Mode, Recall, RecallAck};
use types::{ClientId, InodeId, Refusal};
use world::CallError;

use crate::error::ClientError;
use crate::mount::{Mount, Recalled, lock};
use crate::open_file::OpenFile;
use crate::retry::RetryBudget;
use crate::seq_tracker::SeqTracker;
use crate::session::Session;
use crate::write_behind::AGE_MAX_US;

/// Timeout of a poll, in microseconds. The service holds a poll for one heartbeat, and the lease must not run out
/// meanwhile.
const POLL_US: u64 = 2 * HEARTBEAT_US;
/// Most tries to tell the service that the mount ends.
const LEAVE_TRIES: u32 = 3;
/// Pause after a poll that failed, in microseconds.
const POLL_PAUSE_US: u64 = 100_000;

/// The client's id, and the end of its lease.
pub(crate) struct LeaseState {
    client: AtomicU64,
    /// How often the client has joined.
    generation: AtomicU64,
    leased_until: AtomicU64,
    left: AtomicBool,
    /// The lease of an exclusive mount has run out.
    lost: AtomicBool,
}

impl LeaseState {
    pub(crate) fn new(client: ClientId, leased_until: u64) -> LeaseState {
        LeaseState {
            client: AtomicU64::new(client.0),
            generation: AtomicU64::new(1),
            leased_until: AtomicU64::new(leased_until),
            left: AtomicBool::new(false),
            lost: AtomicBool::new(false),
        }
    }

    pub(crate) fn client(&self) -> ClientId {
        ClientId(self.client.load(Ordering::Acquire))
    }

    /// How often this client has joined.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether the lease is valid. Then the service has let no other client in, and modes are valid.
    pub(crate) fn is_leased(&self, now: u64) -> bool {
        now < self.leased_until.load(Ordering::Acquire)
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// Whether the lease of an exclusive mount has run out: other clients may have been let in, and nothing cached is
    /// valid.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Remaining time of the lease from `now` on, in microseconds.
    fn left(&self, now: u64) -> u64 {
        self.leased_until.load(Ordering::Acquire).saturating_sub(now)
    }

    fn renew(&self, sent: u64) {
        self.leased_until.fetch_max(sent + LEASE_US, Ordering::AcqRel);
    }

    fn begin(&self, client: ClientId, sent: u64) {
        self.client.store(client.0, Ordering::Release);
        self.renew(sent);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

/// Opens in flight, and the recalls that arrived meanwhile. A recall may overtake the answer that grants the recalled
/// mode.
#[derive(Default)]
pub(crate) struct InflightOpens {
    numbers: SeqTracker,
    recalls: BTreeMap<InodeId, (u64, Mode)>,
}

impl InflightOpens {
    pub(crate) fn begin(&mut self) -> u64 {
        self.numbers.begin()
    }

    /// The mode `granted` by an open, reduced by a recall that arrived meanwhile.
    pub(crate) fn left(&self, opening: u64, inode: InodeId, granted: Mode) -> Mode {
        match self.recalls.get(&inode) {
            Some((at, recalled)) if *at >= opening && *recalled != granted => Mode::Shared,
            _ => granted,
        }
    }

    pub(crate) fn finish(&mut self, opening: u64) {
        self.numbers.finish(opening);
        let finished = self.numbers.finished();
        self.recalls.retain(|_, (at, _)| *at > finished);
    }

    fn recall(&mut self, inode: InodeId, mode: Mode) {
        if !self.numbers.is_idle() {
            self.recalls.insert(inode, (self.numbers.last(), mode));
        }
    }
}

impl Mount {
    /// The background of a mount: sends writes, makes them stable, sends reports, renews the lease, serves recalls
    /// and follows the map. Must run exactly once per mount; ends with [`Mount::leave`].
    pub async fn background(self: Arc<Mount>, world: world::World) {
        let session = self.session(world);
        let world = &session.world;
        let watch = world.named("lease", session.watch());
        let timers = world.named("flow", session.run_timers());
        let settle = world.named("sizes", session.run_reports());
        let accesses = world.named("accesses", session.report_atimes());
        let sizes = futures_util::future::join(settle, accesses);
        let flush = world.named("write-behind", session.flush_queue());
        let zero = world.named("zeroing", session.zero_files());
        futures_util::future::join5(watch, timers, sizes, flush, zero).await;
    }

    /// Sends written bytes from another thread, in addition to [`Mount::background`]. Ends with [`Mount::leave`].
    pub async fn flush_more(self: Arc<Mount>, world: world::World) {
        self.session(world).flush_queue().await;
    }

    /// Ends the mount: makes everything written stable and tells the service. Afterwards all calls fail.
    ///
    /// # Errors Why some bytes did not become stable. The mount has ended anyway.
    pub async fn leave(self: &Arc<Mount>, world: &world::World) -> Result<(), ClientError> {
        let session = self.session(world.clone());
        let outcome = session.finish().await;
        self.lease.left.store(true, Ordering::Release);
        self.flow.close();
        self.zeroing_wanted.notify();
        self.atimes.flush_now.notify();
        let client = self.lease.client();
        if let Err(error) = outcome {
            // Writes in flight may still reach a brick. So do not tell the service: it lets other clients in only
            // when the lease has run out.
            tracing::warn!(%client, %error, "the mount ends; written bytes that are not stable may be lost");
            return Err(error);
        }
        for _ in 0..LEAVE_TRIES {
            match session.ask_once(POLL_US, &ClientLeave { client }).await {
                Err(CallError::Unreachable) => world.sleep(POLL_PAUSE_US).await,
                _ => break,
            }
        }
        // If the service was not told, it notices when the lease runs out.
        tracing::info!(%client, "left");
        outcome
    }
}

impl Session {
    /// Makes everything stable and sends all reports.
    async fn finish(&self) -> Result<(), ClientError> {
        let mut outcome = Ok(());
        for file in self.mount.files() {
            let mark = self.mount.seal_all(&file);
            let told = match self.make_stable(&file, mark.upto).await {
                Ok(()) => self.report_size(&file, Some(mark)).await,
                Err(error) => Err(error),
            };
            outcome = outcome.and(told).and(file.lock().wb_errors.unreported());
        }
        self.report_batch(&self.mount.files()).await;
        while self.mount.atimes.are_waiting() {
            self.report_some_atimes().await;
        }
        outcome.and(lock(&self.mount.unreported).map_or(Ok(()), Err))
    }

    /// Renews the lease, follows the map and serves recalls and quiesces.
    async fn watch(&self) {
        while !self.mount.lease.has_left() && !self.mount.lease.is_lost() {
            let (sent, generation) = (self.world.now(), self.mount.lease.generation());
            let client = self.mount.lease.client();
            let poll = ClientPoll { client, map: self.mount.map().version };
            match self.ask_once(POLL_US, &poll).await {
                Ok(news) => {
                    self.mount.lease.renew(sent);
                    let have = self.mount.map().version;
                    if news.map > have {
                        self.refresh_map(have).await;
                    }
                    news.recalls.into_iter().for_each(|recall| self.begin_recall(recall));
                    news.quiesces.into_iter().for_each(|asked| self.begin_quiesce(asked));
                }
                Err(CallError::Refused(Refusal::Unknown | Refusal::Fenced)) => {
                    if let Err(error) = self.rejoin(generation).await {
                        tracing::debug!(%error, "cannot join again");
                        self.world.sleep(POLL_PAUSE_US).await;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the metadata service cannot be polled");
                    self.world.sleep(POLL_PAUSE_US).await;
                }
            }
        }
    }

    /// Remaining time of the lease, in microseconds. Until then no other client is let in, so data cached under a
    /// mode stay valid.
    pub fn lease_left_us(&self) -> u64 {
        self.mount.lease.left(self.world.now())
    }

    /// Waits until the client has a lease.
    pub(crate) async fn wait_for_lease(&self) -> Result<(), ClientError> {
        if self.mount.lease.is_leased(self.world.now()) {
            return Ok(());
        }
        hit(CodeProbe::LeaseWait);
        let mut budget = RetryBudget::new(&self.world);
        while !self.mount.lease.is_leased(self.world.now()) {
            if self.mount.lease.has_left() {
                return Err(ClientError::Unmounted);
            }
            if self.mount.lease.is_lost() {
                return Err(ClientError::Refused(Refusal::Fenced));
            }
            budget.backoff().await?;
        }
        Ok(())
    }

    /// Joins again, unless another task has since `generation`. The service has restarted, or has fenced this client.
    pub(crate) async fn rejoin(&self, generation: u64) -> Result<(), ClientError> {
        let _turn = self.mount.joining.lock().await;
        if self.mount.lease.generation() != generation || self.mount.lease.has_left() {
            return Ok(());
        }
        if self.mount.lease.is_lost() {
            return Err(ClientError::Refused(Refusal::Fenced));
        }
        hit(CodeProbe::Rejoined);
        let known = Some(self.mount.lease.client());
        match self.join(known).await {
            Ok(()) => Ok(()),
            Err(CallError::Refused(Refusal::Fenced | Refusal::Unknown)) => {
                // All handles fail with the lost lease. Files opened from now on belong to the new client id.
                self.mount.lose_everything();
                if self.mount.options.exclusive {
                    self.mount.lease.lost.store(true, Ordering::Release);
                    tracing::error!(
                        "the lease has run out: this exclusive mount is over; unmount it and mount it again"
                    );
                    return Err(ClientError::Refused(Refusal::Fenced));
                }
                self.join(None).await.map_err(ClientError::from)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn join(&self, client: Option<ClientId>) -> Result<(), CallError> {
        let opened = |file: &Arc<OpenFile>| file.lock().open_inode(file.inode);
        let opens = self.mount.files().iter().map(opened).filter(|o| o.readers + o.writers > 0).collect();
        let options = &self.mount.options;
        let (volume, exclusive, place) = (options.volume.clone(), options.exclusive, options.place.clone());
        let sent = self.world.now();
        let join = ClientJoin { volume, client, opens, exclusive, place };
        let ClientJoined { client: now, .. } = self.ask_once(POLL_US, &join).await?;
        if client.is_some_and(|before| before != now) {
            self.mount.lose_everything();
        }
        tracing::info!(client = %now, "joined again");
        self.mount.lease.begin(now, sent);
        Ok(())
    }

    fn begin_recall(&self, recall: Recall) {
        self.mount.inflight_opens().recall(recall.inode, recall.mode);
        let file = self.mount.file(recall.inode);
        if let Some(file) = &file {
            let mut state = file.lock();
            if state.recalled == Some(recall.number) {
                return;
            }
            state.recalled = Some(recall.number);
        }
        let session = self.clone();
        self.world.spawn("recall", async move { session.take_mode(recall, file).await });
    }

    /// Makes bytes stable that may not be buffered in the new mode, then confirms the mode.
    async fn take_mode(&self, recall: Recall, file: Option<Arc<OpenFile>>) {
        if let Some(file) = &file {
            self.flush_for_recall(file).await;
            self.adopt_mode(file, recall.mode, Some(recall.number)).await;
            tracing::debug!(inode = %file.inode, mode = ?recall.mode, "adopted a recalled mode");
        }
        self.mount.call_hook(recall.inode, Recalled::To(recall.mode));
        let client = self.mount.lease.client();
        let taken = RecallAck { client, inode: recall.inode, number: recall.number };
        if let Err(error) = self.ask(&taken).await {
            tracing::debug!(inode = %recall.inode, %error, "a recalled mode could not be confirmed");
        }
        if let Some(file) = &file {
            file.lock().recalled.take_if(|number| *number == recall.number);
            self.mount.flow.queue_report(file);
        }
    }

    /// Sets the file's mode. Waits until zeroing in mode Alone has ended. Does nothing if the recall with this number
    /// has been replaced by a newer one.
    pub(crate) async fn adopt_mode(&self, file: &Arc<OpenFile>, mode: Mode, recall: Option<u64>) {
        loop {
            let changed = file.changed.wait();
            {
                let mut state = file.lock();
                if recall.is_some() && state.recalled != recall {
                    return;
                }
                if state.mode != Mode::Alone || !state.zeroing.runs || self.mount.lease.has_left() {
                    state.mode = mode;
                    return;
                }
            }
            self.world.timeout(AGE_MAX_US, changed).await;
        }
    }

    /// Makes everything written to a file stable and reports it. If that fails within the retry budget, bytes that
    /// become stable later are reported then.
    pub(crate) async fn flush_for_recall(&self, file: &Arc<OpenFile>) {
        let mut budget = RetryBudget::new(&self.world);
        loop {
            let mark = self.mount.seal_all(file);
            let stable = self.make_stable(file, mark.upto).await;
            // A write that begins meanwhile is written through and reports its own end.
            let told = self.report_size(file, Some(mark)).await;
            match stable.and(told) {
                Ok(()) => return,
                Err(error) => tracing::debug!(inode = %file.inode, %error, "cannot give up a mode yet"),
            }
            if self.mount.lease.has_left() || budget.backoff().await.is_err() {
                file.lock().keep_owed_end();
                return;
            }
        }
    }
}

impl Mount {
    /// The service has fenced this client: unstable bytes are lost, and every handle fails from now on.
    fn lose_everything(&self) {
        for file in self.forget_files() {
            let mut state = file.lock();
            tracing::debug!(inode = %file.inode, stable = state.is_stable(), "fenced");
            state.fenced = true;
            state.wb_errors.add(ClientError::Refused(Refusal::Fenced));
            state.releases.clear();
            self.drop_unstable(&mut state);
            drop(state);
            file.changed.notify();
            self.call_hook(file.inode, Recalled::Lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId(5);

    /// A recall counts for every open that had begun by then, until that has been taken over.
    #[test]
    fn a_recall_that_overtakes_an_answer_is_kept() {
        let mut inflight_opens = InflightOpens::default();
        inflight_opens.recall(FILE, Mode::Shared);
        let first = inflight_opens.begin();
        assert_eq!(inflight_opens.left(first, FILE, Mode::Alone), Mode::Alone, "it begins after the recall");
        inflight_opens.recall(FILE, Mode::Shared);
        let second = inflight_opens.begin();
        assert_eq!(inflight_opens.left(first, FILE, Mode::Alone), Mode::Shared);
        assert_eq!(
            inflight_opens.left(first, FILE, Mode::Alone),
            Mode::Shared,
            "however often it is asked for"
        );
        assert_eq!(inflight_opens.left(second, FILE, Mode::Alone), Mode::Alone);
        assert_eq!(inflight_opens.left(first, InodeId(6), Mode::Alone), Mode::Alone);
        inflight_opens.finish(first);
        inflight_opens.finish(second);
        assert!(inflight_opens.recalls.is_empty());
    }

    #[test]
    fn what_a_mode_allows_is_believed_as_long_as_the_lease() {
        let lease = LeaseState::new(ClientId(1), 100);
        assert_eq!((lease.left(40), lease.left(100), lease.left(500)), (60, 0, 0));
        lease.renew(200);
        assert_eq!(lease.left(300), LEASE_US - 100);
    }
}
