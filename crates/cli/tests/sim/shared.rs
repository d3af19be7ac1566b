//! A file that both clients of a storm keep open, write and truncate behaves as one copy: every read is fitted into the
//! history of its block.

use std::collections::BTreeMap;

use client::{ClientError, SetAttrs};
use types::messages::names::Owner;
use types::{InodeId, Refusal};

use crate::check::history::{filled, value_of};
use crate::cluster::Client;
use crate::storm::Storm;

/// Its name.
pub(crate) const NAME: &str = "shared";
const BLOCK: usize = 4096;
/// Its length in stripes.
const STRIPES: u64 = 5;

impl Storm<'_> {
    /// Opens it, made if it is not there. `None` if the run is hopeless already.
    pub(crate) async fn open_shared(&self, client: &Client) -> Option<u64> {
        let owner = Owner { uid: 0, gid: 0, mode: 0o644 };
        let opened = match client.session.lookup(InodeId::ROOT, NAME.as_bytes()).await {
            Ok(attr) => client.session.open(attr.inode, true, false).await,
            Err(ClientError::Refused(Refusal::NotFound)) => {
                client.session.create(InodeId::ROOT, NAME.as_bytes(), owner).await
            }
            Err(error) => Err(error),
        };
        match opened {
            Ok(opened) => Some(opened.handle),
            Err(_) if self.exceeds_tolerance(&client.world).await => None,
            Err(error) => panic!("seed {}: the shared file cannot be opened: {error}", self.seed),
        }
    }

    fn stripe_blocks(&self) -> u64 {
        (self.stripe / BLOCK) as u64
    }

    /// A range of blocks: often a few in one stripe, sometimes across a boundary of stripes.
    fn shared_range(&self) -> (u64, u64) {
        let all = STRIPES * self.stripe_blocks();
        let len = match self.prng.below(4) {
            0 => 1,
            1 => 1 + self.prng.below(self.stripe_blocks()),
            2 => self.stripe_blocks(),
            _ => 1 + self.prng.below(4),
        };
        let first = match self.prng.below(3) {
            0 => self.prng.below(STRIPES) * self.stripe_blocks(),
            // The same place again and again: that is where histories are long.
            1 => self.prng.below(3),
            _ => self.prng.below(all),
        };
        (first, len.min(all - first))
    }

    /// Cuts it somewhere.
    async fn cut_shared(&self, client: &Client) -> Result<(), ClientError> {
        let attr = client.session.lookup(InodeId::ROOT, NAME.as_bytes()).await?;
        let blocks = self.prng.below(STRIPES * self.stripe_blocks());
        let number = self.history.borrow_mut().cut(blocks);
        let changes = SetAttrs { size: Some(blocks * BLOCK as u64), ..SetAttrs::default() };
        client.session.setattr(attr.inode, changes).await?;
        if self.lost_a_lease() {
            return Err(ClientError::Refused(Refusal::Fenced));
        }
        self.history.borrow_mut().has_cut(number);
        Ok(())
    }

    /// Writes or reads some blocks, or cuts the file.
    pub(crate) async fn shared_step(&self, client: &Client, handle: u64) -> Result<(), ClientError> {
        for _ in 0..1 + self.prng.below(3) {
            if self.prng.below(12) == 0 {
                self.cut_shared(client).await?;
                continue;
            }
            let (first, len) = self.shared_range();
            let at = first * BLOCK as u64;
            if self.prng.coin() {
                let value = self.history.borrow_mut().write(first..first + len);
                client.session.write(handle, at, &filled(value, len as usize)).await?;
                if self.lost_a_lease() {
                    return Err(ClientError::Refused(Refusal::Fenced));
                }
                self.history.borrow_mut().written(value);
            } else {
                let start = self.history.borrow_mut().tick();
                let found = client.session.read(handle, at, len as usize * BLOCK).await?;
                if self.lost_a_lease() {
                    return Err(ClientError::Refused(Refusal::Fenced));
                }
                self.found(start, first, len, &found);
            }
        }
        Ok(())
    }

    fn found(&self, start: u64, first: u64, len: u64, found: &[u8]) {
        let checked = self.history.borrow_mut().read_blocks(start, first, len, found);
        self.must(checked.map_err(|why| format!("shared, {why}")));
    }

    /// Reads it whole when nobody writes it any more.
    pub(crate) async fn compare_shared(&self, client: &Client) {
        if self.inconclusive.get() {
            return;
        }
        let start = self.history.borrow_mut().tick();
        let found = match crate::workload::read_whole(client, NAME).await {
            Ok(found) => found,
            Err(_) if self.exceeds_tolerance_after_loss(&client.world).await => return,
            Err(ClientError::Refused(Refusal::NotFound)) => return,
            Err(error) => panic!("seed {}: the shared file cannot be read: {error}", self.seed),
        };
        self.found(start, 0, STRIPES * self.stripe_blocks(), &found);
        let values: BTreeMap<u64, u64> =
            (0..).zip(found.chunks(BLOCK).map(|block| value_of(block).unwrap_or(0))).collect();
        let looked_at = self.must(self.history.borrow().all_or_nothing(&values, self.stripe_blocks()));
        self.tally.borrow_mut().writes_whole += looked_at;
    }
}
