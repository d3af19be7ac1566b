//! Reads of an open file.

use std::sync::atomic::Ordering;

use types::Buf;

use crate::error::ClientError;
use crate::face::session::Session;
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
            let bytes = self.stack.read(read).await?;
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
}
