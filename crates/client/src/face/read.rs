//! Reads of an open file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use types::messages::names::{AttrReply, GetAttr};
use types::{Buf, Refusal};

use crate::error::ClientError;
use crate::face::session::Session;
use crate::routes::retry::RetryBudget;
use crate::state::open_file::OpenFile;
use crate::state::open_files::Handle;
use crate::state::settings::Settings;
use crate::state::slow_requests::Asked;
use crate::translators::Read;

impl Session {
    /// Reads up to `len` bytes at `offset`: fewer only at the end of the file.
    pub async fn read(&self, handle: u64, offset: u64, len: usize) -> Result<Buf, ClientError> {
        let handle = self.handle(handle)?;
        let asked = Asked { op: "read", inode: handle.file.inode, offset, len: len as u64 };
        self.link.traced(asked, || self.read_open(&handle, offset, len), Result::is_err).await
    }

    async fn read_open(&self, handle: &Handle, offset: u64, len: usize) -> Result<Buf, ClientError> {
        let file = handle.file.clone();
        let in_kernel = handle.in_kernel.load(Ordering::Relaxed);
        loop {
            let io = self.modes.begin_io(&file).await?;
            let read = Read { file: &file, offset, len, in_kernel, settings: Settings::UNSETTLED };
            let bytes = match self.stack.read(read).await {
                Err(error @ ClientError::Refused(Refusal::ObjectRemoved)) => {
                    let truncate_seq = io.truncate_seq;
                    drop(io);
                    if self.was_truncated_since(&file, truncate_seq).await? {
                        continue;
                    }
                    return Err(error);
                }
                outcome => outcome?,
            };
            // A truncation does not wait for reads of a client that was given up, nor for reads of the client that
            // truncates in mode Alone.
            let is_leased = self.link.routes.lease.is_leased(self.link.world.now());
            let is_good = {
                let state = file.lock();
                is_leased && !state.fenced && state.truncate_seq == io.truncate_seq
            };
            if is_good {
                if !bytes.is_empty() && !handle.noatime.load(Ordering::Relaxed) {
                    self.atimes.note_read(&file);
                }
                return Ok(bytes);
            }
        }
    }

    /// Whether a file that had `truncate_seq` was truncated or fenced since, so that it has another object now. If the service has
    /// truncated it, this waits until this mount knows the new object.
    async fn was_truncated_since(
        &self,
        file: &Arc<OpenFile>,
        truncate_seq: u64,
    ) -> Result<bool, ClientError> {
        let mut budget = RetryBudget::new(&self.link.world);
        loop {
            self.modes.revalidate_if_shared(file).await?;
            {
                let state = file.lock();
                if state.fenced || state.truncate_seq != truncate_seq {
                    return Ok(true);
                }
            }
            let asked = GetAttr { volume: self.link.routes.volume, inode: file.inode };
            let AttrReply { attr } = self.link.ask(&asked).await?;
            if attr.truncate_seq == truncate_seq && file.lock().truncate_seq == truncate_seq {
                return Ok(false);
            }
            budget.backoff().await?;
        }
    }
}
