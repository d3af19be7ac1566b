//! Pauses the sending and reporting of a file.

use std::sync::Arc;

use crate::paths::Io;
use crate::state::open_file::OpenFile;
use crate::unstable::Unstable;

/// While this lives, no bytes or reports of the file are sent.
pub(crate) struct WritebackPause<'a> {
    unstable: &'a Unstable,
    file: &'a Arc<OpenFile>,
}

impl Drop for WritebackPause<'_> {
    fn drop(&mut self) {
        self.file.lock().writeback_paused = false;
        self.unstable.enqueue_all(self.file);
        // Bytes that became stable meanwhile were not reported.
        self.unstable.flow.queue_report(self.file);
        self.file.changed.notify();
    }
}

impl Io {
    /// Pauses write-back of a file, and waits for sends and reports in flight.
    pub(crate) async fn pause_writeback<'a>(&'a self, file: &'a Arc<OpenFile>) -> WritebackPause<'a> {
        file.lock().writeback_paused = true;
        let writeback_paused = WritebackPause { unstable: &self.unstable, file };
        loop {
            let changed = file.changed.wait();
            {
                let state = file.lock();
                if state.claims == 0 && state.growing == 0 {
                    return writeback_paused;
                }
            }
            changed.await;
        }
    }
}
