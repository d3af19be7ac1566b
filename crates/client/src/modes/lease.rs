//! The client's relation to the metadata service: renews the lease and serves recalls of modes. Joining again after a
//! restart of the service is in routes/link.rs.

use std::rc::Rc;
use std::sync::Arc;

use types::Refusal;
use types::messages::cluster::{ClientPoll, Mode, Recall, RecallAck};
use world::CallError;

use crate::modes::{Modes, Recalled};
use crate::routes::lease_state::{POLL_PAUSE_US, POLL_US};
use crate::routes::retry::RetryBudget;
use crate::state::open_file::{Mark, OpenFile};
use crate::unstable::flow::AGE_MAX_US;

impl Modes {
    /// Renews the lease, follows the map and serves recalls and quiesces.
    pub(crate) async fn watch(self: &Rc<Self>) {
        while !self.link.routes.lease.has_left() && !self.link.routes.lease.is_lost() {
            let (sent, generation) = (self.link.world.now(), self.link.routes.lease.generation());
            let client = self.link.routes.lease.client();
            let asked = self.io.layer_counts.asked();
            let unreached = self.link.routes.unreached();
            let poll = ClientPoll { client, map: self.link.routes.map().version, asked, unreached };
            match self.link.ask_once(POLL_US, &poll).await {
                Ok(news) => {
                    self.link.routes.lease.renew(sent);
                    let have = self.link.routes.map().version;
                    if news.map > have {
                        self.link.refresh_map(have).await;
                    }
                    news.recalls.into_iter().for_each(|recall| self.begin_recall(recall));
                    news.quiesces.into_iter().for_each(|asked| self.begin_quiesce(asked));
                }
                Err(CallError::Refused(Refusal::Unknown | Refusal::Fenced)) => {
                    if let Err(error) = self.link.rejoin(generation).await {
                        tracing::debug!(%error, "cannot join again");
                        self.link.world.sleep(POLL_PAUSE_US).await;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the metadata service cannot be polled");
                    self.link.world.sleep(POLL_PAUSE_US).await;
                }
            }
        }
    }

    fn begin_recall(self: &Rc<Self>, recall: Recall) {
        self.state.inflight_opens().recall(recall.inode, recall.mode);
        let file = self.files.file(recall.inode);
        if let Some(file) = &file {
            let mut state = file.lock();
            if state.recalled == Some(recall.number) {
                return;
            }
            state.recalled = Some(recall.number);
        }
        let modes = self.clone();
        self.link.world.spawn("recall", async move { modes.take_mode(recall, file).await });
    }

    /// Makes bytes stable that may not be buffered in the new mode, then confirms the mode.
    async fn take_mode(&self, recall: Recall, file: Option<Arc<OpenFile>>) {
        if let Some(file) = &file {
            self.flush_for_recall(file).await;
            self.adopt_mode(file, recall.mode, Some(recall.number)).await;
            tracing::debug!(inode = %file.inode, mode = ?recall.mode, "adopted a recalled mode");
        }
        self.state.call_hook(recall.inode, Recalled::To(recall.mode));
        let client = self.link.routes.lease.client();
        let taken = RecallAck { client, inode: recall.inode, number: recall.number };
        if let Err(error) = self.link.ask(&taken).await {
            tracing::debug!(inode = %recall.inode, %error, "a recalled mode could not be confirmed");
        }
        if let Some(file) = &file {
            file.lock().recalled.take_if(|number| *number == recall.number);
            self.unstable.flow.queue_report(file);
        }
    }

    /// Sets the file's mode. Waits until zeroing in mode Alone has ended, and until the service knows an end of the file that was
    /// lost: it takes this only from a mount that has the file alone. Does nothing if the recall with this number has been replaced by
    /// a newer one.
    pub(crate) async fn adopt_mode(&self, file: &Arc<OpenFile>, mode: Mode, recall: Option<u64>) {
        loop {
            let changed = file.changed.wait();
            {
                let mut state = file.lock();
                if recall.is_some() && state.recalled != recall {
                    return;
                }
                let is_unknown = state.loss.is_some() && !state.fenced;
                let must_stay = state.mode() == Mode::Alone && (state.zeroing.runs || is_unknown);
                if !must_stay || self.link.routes.lease.has_left() {
                    state.set_mode(mode);
                    return;
                }
            }
            self.link.world.timeout(AGE_MAX_US, changed).await;
        }
    }

    /// Makes everything written to a file stable and reports it. If that fails within the retry budget, bytes that
    /// become stable later are reported then.
    pub(crate) async fn flush_for_recall(&self, file: &Arc<OpenFile>) {
        let mut budget = RetryBudget::new(&self.link.world);
        loop {
            let mark = self.unstable.seal_all(file);
            let stable = self.io.make_stable(file, mark.upto).await;
            // A write that begins meanwhile is written through and reports its own end.
            let mark = if stable.is_ok() { mark } else { Mark::default() };
            let told = self.io.report_size(file, Some(mark)).await;
            match stable.and(told) {
                Ok(()) => return,
                Err(error) => tracing::debug!(inode = %file.inode, %error, "cannot give up a mode yet"),
            }
            if self.link.routes.lease.has_left() || budget.backoff().await.is_err() {
                file.lock().keep_owed_end();
                return;
            }
        }
    }
}
