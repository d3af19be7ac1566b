//! Invalidates the kernel's caches.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use fuser::{INodeNo, Notifier};
use types::InodeId;

/// How long the recall of a mode waits for the kernel.
///
/// The kernel may wait for a read or write of the same file, which may wait for the client's background, which waits
/// here. So there must be a limit. A late invalidation is safe: before it reads cached pages, the kernel asks for the
/// attributes, and their answer invalidates the pages too.
const PATIENCE: Duration = Duration::from_millis(100);

struct Order {
    inode: INodeNo,
    done: Sender<()>,
}

/// A thread that invalidates cached pages, because the kernel may take long for it.
#[derive(Clone)]
pub(super) struct Invalidator {
    notifier: Notifier,
    orders: Sender<Order>,
}

impl Invalidator {
    /// Starts the thread; it ends with the last clone.
    pub(super) fn new(notifier: Notifier) -> std::io::Result<Invalidator> {
        let (orders, received) = channel::<Order>();
        let kernel = notifier.clone();
        thread::Builder::new().name("fuse-inval".into()).spawn(move || {
            while let Ok(order) = received.recv() {
                if let Err(error) = kernel.inval_inode(order.inode, 0, 0) {
                    tracing::debug!(
                        "the kernel does not invalidate the pages of inode {}: {error}",
                        order.inode.0
                    );
                }
                // The caller may have stopped waiting.
                let _ = order.done.send(());
            }
        })?;
        Ok(Invalidator { notifier, orders })
    }

    /// Invalidates a file's attributes. Never waits.
    pub(super) fn attributes(&self, inode: InodeId) {
        if let Err(error) = self.notifier.inval_inode(INodeNo(inode.0), -1, 0) {
            tracing::debug!("the kernel does not invalidate the attributes of {inode}: {error}");
        }
    }

    /// Invalidates a file's pages. Waits for pages that are being read or written, so other threads must be able to
    /// serve these requests.
    pub(super) fn pages(&self, inode: InodeId) {
        if let Err(error) = self.notifier.inval_inode(INodeNo(inode.0), 0, 0) {
            tracing::debug!("the kernel does not invalidate the pages of {inode}: {error}");
        }
    }

    /// Invalidates a file's attributes at once, and its pages in the background.
    pub(super) fn soon(&self, inode: InodeId) -> Receiver<()> {
        self.attributes(inode);
        let (done, waiting) = channel();
        // If the thread has ended, so does the mount, and the receiver reports a disconnect.
        let _ = self.orders.send(Order { inode: INodeNo(inode.0), done });
        waiting
    }

    /// Invalidates a file's attributes at once, and waits a short time for its pages.
    pub(super) fn everything(&self, inode: InodeId) {
        let waiting = self.soon(inode);
        if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::debug!("the kernel still invalidates the pages of {inode}");
        }
    }
}
