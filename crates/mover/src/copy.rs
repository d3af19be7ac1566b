//! Moves one file.

use std::ops::Range;

use client::{ClientError, Opened, Seek, Session, SetAttrs};
use types::messages::names::{Attr, FileKind};
use types::{InodeId, Refusal};
use world::World;

use crate::pace::Pace;

/// Bytes that are read and written at a time.
const CHUNK: usize = 4 << 20;
/// Zeros of this length, in bytes, are not copied.
const ZEROS: usize = 64 << 10;
/// After so many bytes, look whether the copy has become useless.
const LOOK_EVERY: u64 = 64 << 20;

/// What became of a file that was to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveOutcome {
    /// It lies in the other tier now.
    Moved {
        /// Bytes that were copied; holes are not.
        bytes: u64,
    },
    /// It was in this tier already.
    InPlace,
    /// It is open for writing, or was written meanwhile. It is where it was.
    Busy,
    /// It was removed.
    Gone,
    /// It is no file with bytes.
    NotAFile,
}

/// Moves files of a mounted volume, on one thread.
pub struct Mover {
    session: Session,
    world: World,
    pace: Pace,
}

impl Mover {
    /// A mover that copies at most `rate` bytes per second. The mount's background must run.
    pub fn new(session: Session, world: World, rate: Option<u64>) -> Mover {
        Mover { session, world, pace: Pace::new(rate) }
    }

    /// Moves a file to a tier. `progress` is called with the number of bytes just copied.
    ///
    /// # Errors
    /// If bytes cannot be read or written. The file is where it was.
    pub async fn move_file(
        &mut self,
        inode: InodeId,
        tier: u8,
        progress: &mut dyn FnMut(u64),
    ) -> Result<MoveOutcome, ClientError> {
        match self.try_move(inode, tier, progress).await {
            Err(ClientError::Refused(Refusal::Stale | Refusal::NotFound)) => Ok(MoveOutcome::Gone),
            Err(ClientError::Refused(Refusal::Busy)) => Ok(MoveOutcome::Busy),
            outcome => outcome,
        }
    }

    async fn try_move(
        &mut self,
        inode: InodeId,
        tier: u8,
        progress: &mut dyn FnMut(u64),
    ) -> Result<MoveOutcome, ClientError> {
        let attr = self.session.getattr(inode).await?;
        if attr.kind != FileKind::File {
            return Ok(MoveOutcome::NotAFile);
        }
        if attr.object.tier() == tier {
            return Ok(MoveOutcome::InPlace);
        }
        // For writing: then no other client caches the file, and each learns of the new object.
        let opened = self.session.open(inode, true, false).await?;
        let outcome = self.move_open(&opened, tier, progress).await;
        let closed = self.session.release(opened.handle).await;
        let outcome = outcome?;
        closed?;
        Ok(outcome)
    }

    async fn move_open(
        &mut self,
        opened: &Opened,
        tier: u8,
        progress: &mut dyn FnMut(u64),
    ) -> Result<MoveOutcome, ClientError> {
        // Other clients have reported their writes before the open was answered.
        let seen = self.session.getattr(opened.attr.inode).await?;
        if seen.object.tier() == tier {
            return Ok(MoveOutcome::InPlace);
        }
        let temporary = self.session.create_temporary(tier).await?;
        let outcome = self.copy_and_swap(opened.handle, &temporary, &seen, progress).await;
        // With the last close the temporary file goes, and with it the copy or the old object.
        let closed = self.session.release(temporary.handle).await;
        let outcome = outcome?;
        closed?;
        Ok(outcome)
    }

    async fn copy_and_swap(
        &mut self,
        from: u64,
        temporary: &Opened,
        seen: &Attr,
        progress: &mut dyn FnMut(u64),
    ) -> Result<MoveOutcome, ClientError> {
        let Some(bytes) = self.copy(from, temporary.handle, seen, progress).await? else {
            return Ok(MoveOutcome::Busy);
        };
        // A size of 0 would give the copy an object in the first tier.
        if seen.size > 0 {
            let size = SetAttrs { size: Some(seen.size), ..SetAttrs::default() };
            self.session.setattr(temporary.attr.inode, size).await?;
        }
        self.session.fsync(temporary.handle).await?;
        self.session.swap_objects(seen, temporary.attr.inode).await?;
        tracing::debug!(inode = %seen.inode, bytes, "a file has moved to another tier");
        Ok(MoveOutcome::Moved { bytes })
    }

    /// Copies a file's bytes without its holes. Returns how many; [`None`] if somebody has changed the file meanwhile.
    async fn copy(
        &mut self,
        from: u64,
        to: u64,
        seen: &Attr,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Option<u64>, ClientError> {
        let (mut at, mut bytes, mut look_at) = (0, 0, LOOK_EVERY);
        while at < seen.size {
            let Some(data) = self.session.seek(from, at, Seek::Data).await? else { break };
            let hole = self.session.seek(from, data, Seek::Hole).await?.unwrap_or(seen.size).min(seen.size);
            at = data;
            while at < hole {
                let len = (hole - at).min(CHUNK as u64);
                let wait = self.pace.take(len, self.world.now());
                if wait > 0 {
                    self.world.sleep(wait).await;
                }
                let read = self.session.read(from, at, len as usize).await?;
                if read.is_empty() {
                    return Ok(None);
                }
                // Without a live parity slot nobody knows where a stripe has holes: they are read as zeros, and stay holes.
                for part in parts_with_bytes(&read) {
                    self.session.write(to, at + part.start as u64, &read[part]).await?;
                }
                at += read.len() as u64;
                bytes += read.len() as u64;
                progress(read.len() as u64);
                if bytes >= look_at {
                    look_at = bytes + LOOK_EVERY;
                    let now = self.session.getattr(seen.inode).await?;
                    if (now.changes, now.truncate_seq) != (seen.changes, seen.truncate_seq) {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(bytes))
    }
}

/// The parts of a chunk that are not only zeros, in whole pieces of [`ZEROS`] bytes.
fn parts_with_bytes(chunk: &[u8]) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    for (piece, at) in chunk.chunks(ZEROS).zip((0..).step_by(ZEROS)) {
        let end = at + piece.len();
        match parts.last_mut() {
            _ if piece.iter().all(|byte| *byte == 0) => {}
            Some(last) if last.end == at => last.end = end,
            _ => parts.push(at..end),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_zeros_are_left_out() {
        let mut chunk = vec![0; 5 * ZEROS + 100];
        assert_eq!(parts_with_bytes(&chunk), Vec::<Range<usize>>::new());
        assert_eq!(parts_with_bytes(&[]), Vec::<Range<usize>>::new());
        chunk[ZEROS] = 1;
        chunk[3 * ZEROS - 1] = 1;
        assert_eq!(parts_with_bytes(&chunk), vec![ZEROS..3 * ZEROS]);
        chunk[5 * ZEROS + 99] = 1;
        assert_eq!(parts_with_bytes(&chunk), vec![ZEROS..3 * ZEROS, 5 * ZEROS..5 * ZEROS + 100]);
        chunk[0] = 1;
        assert_eq!(parts_with_bytes(&chunk).first(), Some(&(0..3 * ZEROS)));
    }
}
