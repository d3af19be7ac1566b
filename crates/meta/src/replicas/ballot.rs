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
    /// The server's id.
    pub(crate) id: u64,
    /// The newest term that the server knows.
    pub(crate) term: u64,
    /// For whom it has voted in this term; 0: for nobody.
    pub(crate) vote: u64,
    /// Whether the server was a member once, by a record that was chosen. One that was, and is none any more, does not join again.
    pub(crate) was_member: bool,
}

/// What a block holds.
struct Promises {
    count: u64,
    id: u64,
    term: u64,
    vote: u64,
    was_member: bool,
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
            let count = newest(&blocks).map_or(0, |newest| newest.count);
            let id = world.random() | 1;
            let mut ballot = Ballot { disk, count, id, term: 0, vote: 0, was_member: false };
            ballot.write(0, 0).await?;
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
        let id = world.random() | 1;
        let mut ballot = Ballot { disk, count: 0, id, term: 0, vote: 0, was_member: false };
        match newest(&blocks) {
            Some(Promises { count, id, term, vote, was_member }) => {
                (ballot.count, ballot.id, ballot.term, ballot.vote) = (count, id, term, vote);
                ballot.was_member = was_member;
                // The process before may have ended before its sync.
                ballot.disk.sync().await?;
            }
            None if blocks.iter().any(|block| block.iter().any(|byte| *byte != 0)) => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it is damaged"));
            }
            None => {
                // Both blocks get their room on the disk now.
                ballot.disk.write(0, vec![BufMut::zeroed(2 * BLOCK).freeze()]).await?;
                ballot.write(0, 0).await?;
            }
        }
        Ok(ballot)
    }

    /// Makes a promise durable.
    ///
    /// # Errors
    /// No room: the promise counts only if the caller makes it again, or another one. After any other error nobody knows what was
    /// promised.
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

    /// Its files are those of an earlier time. It never votes again.
    pub(crate) async fn set_back(&mut self) -> Result<(), MetaError> {
        self.promise(self.term, SET_BACK).await
    }

    pub(crate) fn is_set_back(&self) -> bool {
        self.vote == SET_BACK
    }

    /// Notes that it is a member.
    pub(crate) async fn note_member(&mut self) -> Result<(), MetaError> {
        self.was_member = true;
        self.promise(self.term, self.vote).await
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
        block[LEN..LEN + 8].copy_from_slice(&u64::from(self.was_member).to_le_bytes());
        let sum = crc(&block[..LEN_NOTED - 4]);
        block[LEN_NOTED - 4..LEN_NOTED].copy_from_slice(&sum.to_le_bytes());
        self.disk.write(count % 2 * BLOCK as u64, vec![block.freeze()]).await?;
        self.disk.sync().await?;
        (self.count, self.term, self.vote) = (count, term, vote);
        Ok(())
    }
}

fn newest(blocks: &[Buf]) -> Option<Promises> {
    blocks.iter().filter_map(|block| decode(block)).max_by_key(|promises| promises.count)
}

fn decode(block: &[u8]) -> Option<Promises> {
    let number = |at: usize| block[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let is_whole = |len: usize| {
        let sum = block[len - 4..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        sum == Some(crc(&block[..len - 4]))
    };
    (block[..8] == MAGIC && is_whole(LEN)).then_some(())?;
    let was_member = is_whole(LEN_NOTED) && number(LEN)? != 0;
    Some(Promises { count: number(8)?, id: number(16)?, term: number(24)?, vote: number(32)?, was_member })
}
