//! What a server has promised: its id, the newest term that it knows, and its vote in it. Durable before it counts.
//!
//! ```text
//! | block 0 | block 1 |   written in turn; the one with the higher count is valid
//! a block: | magic 8 | count 8 | id 8 | term 8 | vote 8 | crc32c 4 | was a member 8 | crc32c of all before 4 | zeros |
//!
//! Older builds wrote zeros after the first checksum: such a server was not noted as a member.
//! ```

use std::io;

use types::checksum::crc;
use types::limits::BLOCK;
use types::{Buf, BufMut};
use world::{Disk, DiskMode, World};

use super::agreement::Promises;
use crate::MetaError;

const MAGIC: [u8; 8] = *b"SHOALvot";
const LEN: usize = 44;
/// Bytes with the note whether it was a member.
const LEN_NOTED: usize = LEN + 12;
/// In place of a vote: the others have removed the server; its files are older than what it has said.
const REMOVED: u64 = u64::MAX;
const SET_BACK: u64 = u64::MAX - 1;

/// The open file.
pub(crate) struct Ballot {
    disk: Disk,
    count: u64,
    /// What it holds.
    pub(crate) promises: Promises,
}

impl Ballot {
    /// Opens the file, or, if `is_new`, makes it, with a new id.
    pub(crate) async fn open(world: &World, path: &str, is_new: bool) -> Result<Ballot, MetaError> {
        let opened = Ballot::read(world, path, is_new).await;
        opened.map_err(|error| MetaError::Ballot { path: path.to_owned(), error })
    }

    /// The file of a server that is new. One that lost its store begins with another id: nobody may take what it has from now on
    /// for what it had.
    pub(crate) async fn renewed(world: &World, path: &str) -> Result<Ballot, MetaError> {
        let renewed = async {
            let (disk, blocks) = Ballot::blocks(world, path, true).await?;
            let count = newest(&blocks).map_or(0, |(count, _)| count);
            let mut ballot = Ballot { disk, count, promises: none(world) };
            ballot.write(ballot.promises).await?;
            Ok(ballot)
        };
        renewed.await.map_err(|error| MetaError::Ballot { path: path.to_owned(), error })
    }

    async fn blocks(world: &World, path: &str, is_new: bool) -> io::Result<(Disk, Vec<Buf>)> {
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
        Ok((disk, blocks))
    }

    async fn read(world: &World, path: &str, is_new: bool) -> io::Result<Ballot> {
        let (disk, blocks) = Ballot::blocks(world, path, is_new).await?;
        let mut ballot = Ballot { disk, count: 0, promises: none(world) };
        match newest(&blocks) {
            Some((count, promises)) => {
                (ballot.count, ballot.promises) = (count, promises);
                // The process before may have ended before its sync.
                ballot.disk.sync().await?;
            }
            None if blocks.iter().any(|block| block.iter().any(|byte| *byte != 0)) => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it is damaged"));
            }
            None => {
                // Both blocks get their room on the disk now.
                ballot.disk.write(0, vec![BufMut::zeroed(2 * BLOCK).freeze()]).await?;
                ballot.write(ballot.promises).await?;
            }
        }
        Ok(ballot)
    }

    /// Makes a promise durable.
    ///
    /// # Errors
    /// No room: the promise counts only if the caller makes it again, or another one. After any other error nobody knows what was
    /// promised.
    pub(crate) async fn promise(&mut self, promises: Promises) -> Result<(), MetaError> {
        let written = self.write(promises).await;
        written.map_err(|error| MetaError::Ballot { path: self.disk.name().to_owned(), error })
    }

    /// The other servers have removed this one. It never votes again.
    pub(crate) async fn removed(&mut self) -> Result<(), MetaError> {
        self.promise(Promises { vote: REMOVED, ..self.promises }).await
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.promises.vote == REMOVED
    }

    /// Its files are those of an earlier time. It never votes again.
    pub(crate) async fn set_back(&mut self) -> Result<(), MetaError> {
        self.promise(Promises { vote: SET_BACK, ..self.promises }).await
    }

    pub(crate) fn is_set_back(&self) -> bool {
        self.promises.vote == SET_BACK
    }

    async fn write(&mut self, promises: Promises) -> io::Result<()> {
        let count = self.count + 1;
        let Promises { id, term, vote, was_member } = promises;
        let mut block = BufMut::zeroed(BLOCK);
        block[..8].copy_from_slice(&MAGIC);
        for (at, number) in [count, id, term, vote].into_iter().enumerate() {
            block[8 * (at + 1)..8 * (at + 2)].copy_from_slice(&number.to_le_bytes());
        }
        let sum = crc(&block[..LEN - 4]);
        block[LEN - 4..LEN].copy_from_slice(&sum.to_le_bytes());
        block[LEN..LEN + 8].copy_from_slice(&u64::from(was_member).to_le_bytes());
        let sum = crc(&block[..LEN_NOTED - 4]);
        block[LEN_NOTED - 4..LEN_NOTED].copy_from_slice(&sum.to_le_bytes());
        self.disk.write(count % 2 * BLOCK as u64, vec![block.freeze()]).await?;
        self.disk.sync().await?;
        (self.count, self.promises) = (count, promises);
        Ok(())
    }
}

/// Those of a server that is new.
fn none(world: &World) -> Promises {
    Promises { id: world.random() | 1, term: 0, vote: 0, was_member: false }
}

/// The newest promises, and the count of their block.
fn newest(blocks: &[Buf]) -> Option<(u64, Promises)> {
    blocks.iter().filter_map(|block| decode(block)).max_by_key(|(count, _)| *count)
}

fn decode(block: &[u8]) -> Option<(u64, Promises)> {
    let number = |at: usize| block[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let is_whole = |len: usize| {
        let sum = block[len - 4..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        sum == Some(crc(&block[..len - 4]))
    };
    (block[..8] == MAGIC && is_whole(LEN)).then_some(())?;
    let was_member = is_whole(LEN_NOTED) && number(LEN)? != 0;
    let promises = Promises { id: number(16)?, term: number(24)?, vote: number(32)?, was_member };
    Some((number(8)?, promises))
}
