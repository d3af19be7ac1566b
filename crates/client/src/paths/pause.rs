//! Nothing of a file is sent or reported for a while.

use std::sync::Arc;

use crate::paths::Io;
use crate::state::open_file::OpenFile;
use crate::unstable::Unstable;

/// Nothing of the file is sent or reported while this lives.
pub(crate) struct WritebackPause<'a> {
    unstable: &'a Unstable,
    file: &'a Arc<OpenFile>,
}

impl Drop for WritebackPause<'_> {
    fn drop(&mut self) {
        self.file.lock().writeback_paused = false;
        self.unstable.enqueue_all(self.file);
        // What became stable meanwhile could not be told.
        self.unstable.flow.queue_report(self.file);
        self.file.changed.notify();
    }
}

impl Io {
    /// Holds a file, and waits for what is on its way.
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
