//! Room for writes that are accepted and not yet committed.
//!
//! Each shard has a share of it. While a shard is away, its writes are not committed: they keep their share, and nothing of the
//! others'.

use std::rc::Rc;

use types::VolumeId;

use crate::server::{ACCEPTED_MAX, Server};
use crate::shard::Shard;

/// Bytes of an accepted write, counted until it is committed or given up.
pub(super) struct Accepted {
    server: Rc<Server>,
    shard: Option<Rc<Shard>>,
    bytes: usize,
}

impl Drop for Accepted {
    fn drop(&mut self) {
        let accepted = self.server.accepted.get();
        assert!(accepted >= self.bytes, "bytes released twice would let in more writes than the RAM holds");
        self.server.accepted.set(accepted - self.bytes);
        if let Some(shard) = &self.shard {
            shard.accepted.set(shard.accepted.get() - self.bytes);
        }
        self.server.progress.notify();
    }
}

impl Server {
    /// Waits until the accepted writes of a volume's shard leave room for so many bytes.
    pub(super) async fn accept(self: Rc<Server>, volume: VolumeId, bytes: usize) -> Accepted {
        loop {
            let progress = self.progress.wait();
            let shard = self.shards.of_volume(volume);
            let taken = shard.as_ref().map_or(0, |shard| shard.accepted.get());
            if taken == 0 || taken + bytes <= ACCEPTED_MAX / self.shards.count() {
                if let Some(shard) = &shard {
                    shard.accepted.set(taken + bytes);
                }
                self.accepted.set(self.accepted.get() + bytes);
                return Accepted { server: self, shard, bytes };
            }
            progress.await;
        }
    }
}
