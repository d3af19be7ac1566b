//! The interface for callers: a disk like any other.

use std::io;
use std::ops::Range;
use std::rc::Rc;

use types::limits::BLOCK;
use types::{Buf, BufMut};

use super::completion::Completion;
use super::link::{self, Link, PAUSE_US, Shared};
use super::replay_log::{Piece, Task};
use super::url::Url;
use crate::World;

/// Unflushed bytes from which on a write first waits for a flush. Unflushed writes are kept in memory.
const UNFLUSHED_MAX: usize = 32 << 20;

/// A remote disk. Clones share it.
#[derive(Clone)]
pub(crate) struct Disk(Rc<Handle>);

struct Handle {
    shared: Rc<Shared>,
    /// Serialises writes that cover a server's block only partly.
    partial: async_lock::Mutex<()>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.over.set(true);
        self.shared.news.notify();
    }
}

impl Disk {
    /// Connects. The export must have at least `least` bytes.
    pub(crate) async fn open(world: &World, url: &str, least: u64) -> io::Result<Disk> {
        let url = Url::parse(url)?;
        world.sleep(PAUSE_US).await;
        let wrong = |text: String| io::Error::other(format!("{}: {text}", url.text));
        let (link, export) = link::connect(world, &url).await.map_err(|error| wrong(error.text()))?;
        if export.len() < least {
            return Err(wrong(format!("the export has {} bytes, {least} are wanted", export.len())));
        }
        let disk = Disk::over(Shared::new(world.clone(), url, export), link);
        if disk.len() >= BLOCK as u64 {
            let first = disk.read(0, BLOCK).await?;
            disk.shared().first.replace(Some(first));
        }
        Ok(disk)
    }

    fn over(shared: Shared, link: Link) -> Disk {
        let shared = Rc::new(shared);
        shared.world.spawn("lent disk", link::run(shared.clone(), link));
        Disk(Rc::new(Handle { shared, partial: async_lock::Mutex::new(()) }))
    }

    fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// Its URL.
    pub(crate) fn name(&self) -> &str {
        &self.shared().url.text
    }

    /// Its size in bytes. It stays the same even if the export grows.
    pub(crate) fn len(&self) -> u64 {
        self.shared().export.len()
    }

    /// Reads exactly `len` bytes at `offset`; `UnexpectedEof` past the end.
    pub(crate) async fn read(&self, offset: u64, len: usize) -> io::Result<Buf> {
        let range = self.range(offset, len, io::ErrorKind::UnexpectedEof)?;
        if len == 0 {
            return Ok(Buf::empty());
        }
        let whole = self.widened(&range);
        let from = (offset - whole.start) as usize;
        let mut pieces: Vec<Rc<Completion>> = Vec::new();
        let mut at = whole.start;
        while at < whole.end {
            let len = (whole.end - at).min(self.shared().export.piece() as u64) as u32;
            pieces.push(self.shared().ask(Task::Read { offset: at, len })?);
            at += u64::from(len);
        }
        if let [one] = &pieces[..] {
            return Ok(one.wait().await?.slice(from..from + len));
        }
        let mut all = BufMut::dirty((whole.end - whole.start) as usize);
        let mut filled = 0;
        for piece in pieces {
            let bytes = piece.wait().await?;
            all[filled..filled + bytes.len()].copy_from_slice(&bytes);
            filled += bytes.len();
        }
        Ok(all.freeze().slice(from..from + len))
    }

    /// Writes `parts` one after the other from `offset` on. They are durable after the next [`Disk::sync`].
    ///
    /// # Cancel
    /// If it is dropped, any part of the bytes may be written, even later.
    pub(crate) async fn write(&self, offset: u64, parts: Vec<Buf>) -> io::Result<()> {
        let range = self.range(offset, bytes_of(&parts), io::ErrorKind::InvalidInput)?;
        self.room().await?;
        if range.start < BLOCK as u64 {
            self.shared().first.replace(None);
        }
        let whole = self.widened(&range);
        if whole == range {
            return self.write_whole(offset, parts).await;
        }
        let _one = self.0.partial.lock().await;
        let before = self.read(whole.start, (range.start - whole.start) as usize).await?;
        let behind = self.read(range.end, (whole.end - range.end) as usize).await?;
        let parts = std::iter::once(before).chain(parts).chain([behind]).collect();
        self.write_whole(whole.start, parts).await
    }

    /// Writes whole blocks of the server.
    async fn write_whole(&self, offset: u64, parts: Vec<Buf>) -> io::Result<()> {
        let pieces = cut(offset, parts, self.shared().export.piece());
        let asked: io::Result<Vec<_>> =
            pieces.into_iter().map(|piece| self.shared().ask(Task::Write(piece))).collect();
        for piece in asked? {
            piece.wait().await?;
        }
        Ok(())
    }

    /// Waits until there is room for another unflushed write.
    async fn room(&self) -> io::Result<()> {
        loop {
            let flushed = self.shared().flushed.wait();
            let (unflushed, flushing) = {
                let replay_log = self.shared().replay_log.borrow();
                (replay_log.unflushed(), replay_log.is_flushing())
            };
            match flushing {
                _ if unflushed < UNFLUSHED_MAX => return Ok(()),
                true => flushed.await,
                false => self.sync().await?,
            }
        }
    }

    /// Makes all finished writes durable. After an error the disk is lost.
    pub(crate) async fn sync(&self) -> io::Result<()> {
        self.shared().ask(Task::Flush)?.wait().await.map(drop)
    }

    /// Waits until the disk is lost, and says why.
    pub(crate) async fn lost(&self) -> io::Error {
        loop {
            let lost = self.shared().lost.wait();
            let error = self.shared().replay_log.borrow().error();
            match error {
                Some(error) => return error,
                None => lost.await,
            }
        }
    }

    fn range(&self, offset: u64, len: usize, beyond: io::ErrorKind) -> io::Result<Range<u64>> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.len());
        let end = end.ok_or_else(|| {
            io::Error::new(beyond, format!("{}: {len} bytes at {offset} are past its end", self.name()))
        })?;
        Ok(offset..end)
    }

    /// A range extended to whole blocks of the server.
    fn widened(&self, range: &Range<u64>) -> Range<u64> {
        let block = u64::from(self.shared().export.block);
        range.start / block * block..range.end.next_multiple_of(block)
    }
}

fn bytes_of(parts: &[Buf]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// Splits a write into pieces of at most `most` bytes.
fn cut(offset: u64, parts: Vec<Buf>, most: usize) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut at = offset;
    for mut part in parts {
        while !part.is_empty() {
            let room = pieces.last().map_or(0, |piece| most - piece.len as usize);
            if room == 0 {
                pieces.push(Piece { offset: at, len: 0, parts: Vec::new() });
            }
            let taken = part.len().min(if room == 0 { most } else { room });
            if let Some(piece) = pieces.last_mut() {
                piece.len += taken as u32;
                piece.parts.push(part.slice(0..taken));
            }
            part = part.slice(taken..part.len());
            at += taken as u64;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_cut_where_the_server_wants_it() {
        let bytes: Vec<u8> = (0..=255).collect();
        let parts = [0..10, 10..10, 10..100, 100..256].map(|range| Buf::copy_of(&bytes[range]));
        let pieces = cut(1000, parts.to_vec(), 64);
        let places: Vec<(u64, u32)> = pieces.iter().map(|piece| (piece.offset, piece.len)).collect();
        assert_eq!(places, [(1000, 64), (1064, 64), (1128, 64), (1192, 64)]);
        let joined: Vec<u8> =
            pieces.iter().flat_map(|piece| piece.parts.iter().flat_map(|part| part.to_vec())).collect();
        assert_eq!(joined, bytes);
        assert!(cut(0, Vec::new(), 64).is_empty());
    }
}
