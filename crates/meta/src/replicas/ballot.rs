//! What a server has promised: its id, the newest term that it knows, and its vote in it. Durable before it counts.
//!
//! ```text
//! | block 0 | block 1 |   written in turn; the one with the higher count is valid
//! a block: | magic 8 | count 8 | id 8 | term 8 | vote 8 | crc32c 4 | zeros |
//! ```

use std::io;

use crate::MetaError;
use types::BufMut;
use types::checksum::crc;
use types::limits::BLOCK;
use world::{Disk, DiskMode, World};

const MAGIC: [u8; 8] = *b"SHOALvot";
const LEN: usize = 44;
/// In place of a vote.
const REMOVED: u64 = u64::MAX;

/// The open file.
pub(crate) struct Ballot {
    disk: Disk,
    count: u64,
    /// The server's id.
    pub(crate) id: u64,
    /// The newest term that the server knows.
    pub(crate) term: u64,
    /// For whom it has voted in this term; 0: for nobody.
    pub(crate) vote: u64,
}

impl Ballot {
    /// Opens the file, or, if `is_new`, makes it, with a new id.
    pub(crate) async fn open(world: &World, path: &str, is_new: bool) -> Result<Ballot, MetaError> {
        let opened = Ballot::read(world, path, is_new).await;
        opened.map_err(|error| MetaError::Ballot { path: path.to_owned(), error })
    }

    async fn read(world: &World, path: &str, is_new: bool) -> io::Result<Ballot> {
        let disk = match world.open_disk_when_free(path, DiskMode::Buffered).await {
            Ok(disk) => disk,
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_new => {
                world.create_disk(path, 2 * BLOCK as u64).await?
            }
            Err(error) => return Err(error),
        };
        let mut blocks = Vec::new();
        for at in 0..2 {
            blocks.push(disk.read(at * BLOCK as u64, BLOCK).await?);
        }
        let newest = blocks.iter().filter_map(|block| decode(block)).max();
        let mut ballot = Ballot { disk, count: 0, id: world.random() | 1, term: 0, vote: 0 };
        match newest {
            Some([count, id, term, vote]) => {
                (ballot.count, ballot.id, ballot.term, ballot.vote) = (count, id, term, vote);
            }
            None if blocks.iter().any(|block| block.iter().any(|byte| *byte != 0)) => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it is damaged"));
            }
            None => ballot.write(0, 0).await?,
        }
        Ok(ballot)
    }

    /// Makes a promise durable.
    ///
    /// # Errors
    /// After any error nobody knows what was promised.
    pub(crate) async fn promise(&mut self, term: u64, vote: u64) -> Result<(), MetaError> {
        let written = self.write(term, vote).await;
        written.map_err(|error| MetaError::Ballot { path: self.disk.name().to_owned(), error })
    }

    /// The other servers have removed this one. It never votes again.
    pub(crate) async fn removed(&mut self) -> Result<(), MetaError> {
        self.promise(self.term, REMOVED).await
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.vote == REMOVED
    }

    async fn write(&mut self, term: u64, vote: u64) -> io::Result<()> {
        let count = self.count + 1;
        let mut block = BufMut::zeroed(BLOCK);
        block[..8].copy_from_slice(&MAGIC);
        for (at, number) in [count, self.id, term, vote].into_iter().enumerate() {
            block[8 * (at + 1)..8 * (at + 2)].copy_from_slice(&number.to_le_bytes());
        }
        let sum = crc(&block[..LEN - 4]);
        block[LEN - 4..LEN].copy_from_slice(&sum.to_le_bytes());
        self.disk.write(count % 2 * BLOCK as u64, vec![block.freeze()]).await?;
        self.disk.sync().await?;
        (self.count, self.term, self.vote) = (count, term, vote);
        Ok(())
    }
}

/// Count, id, term and vote.
fn decode(block: &[u8]) -> Option<[u64; 4]> {
    let number = |at: usize| block[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let sum = u32::from_le_bytes(*block[LEN - 4..].first_chunk()?);
    (block[..8] == MAGIC && sum == crc(&block[..LEN - 4])).then_some(())?;
    Some([number(8)?, number(16)?, number(24)?, number(32)?])
}
