//! Makes the kernel forget.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use fuser::{INodeNo, Notifier};
use types::InodeId;

/// How long whoever recalls a mode waits for the kernel.
///
/// The kernel may have to wait for a read or write of the same file that is on its way, and that may have to wait for
/// the client's background, which is who waits here: so not for ever. What is forgotten late is read by nobody:
/// whoever reads asks for the attributes first, and that forgets it too.
const PATIENCE: Duration = Duration::from_millis(100);

struct Order {
    inode: INodeNo,
    done: Sender<()>,
}

/// A thread that makes the kernel forget the pages of files: the kernel may take its time over it.
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
                    tracing::debug!("the kernel keeps {}: {error}", order.inode.0);
                }
                // Whoever gave the order may have stopped waiting.
                let _ = order.done.send(());
            }
        })?;
        Ok(Invalidator { notifier, orders })
    }

    /// Forgets a file's attributes. Never waits.
    pub(super) fn attributes(&self, inode: InodeId) {
        if let Err(error) = self.notifier.inval_inode(INodeNo(inode.0), -1, 0) {
            tracing::debug!("the kernel keeps the attributes of {inode}: {error}");
        }
    }

    /// Forgets a file's pages. Waits for those that are being read or written: others must carry that out.
    pub(super) fn pages(&self, inode: InodeId) {
        if let Err(error) = self.notifier.inval_inode(INodeNo(inode.0), 0, 0) {
            tracing::debug!("the kernel keeps {inode}: {error}");
        }
    }

    /// Forgets a file's attributes at once and its pages soon.
    pub(super) fn soon(&self, inode: InodeId) -> Receiver<()> {
        self.attributes(inode);
        let (done, waiting) = channel();
        // If the thread has gone the mount ends, and the receiver says that nobody is there.
        let _ = self.orders.send(Order { inode: INodeNo(inode.0), done });
        waiting
    }

    /// Forgets a file's attributes at once, and waits a little for its pages to be forgotten.
    pub(super) fn everything(&self, inode: InodeId) {
        let waiting = self.soon(inode);
        if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::debug!("the kernel takes its time to forget the pages of {inode}");
        }
    }
}
