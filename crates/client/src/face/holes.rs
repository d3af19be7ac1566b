//! Finds where a file has bytes, and replaces them by zeros.
//!
//! Ranges that were never written take no space, and the primaries know them. So zeros are written only where other
//! bytes may be. A whole stripe of zeros frees its space.

use std::ops::Range;
use std::sync::Arc;

use types::ObjectId;

use crate::error::ClientError;
use crate::face::session::Session;
use crate::paths::find::Rows;
use crate::paths::find_bytes::{joined, stripes_of};
use crate::state::open_file::OpenFile;
use crate::state::open_files::Handle;

/// The target of a seek.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// The next place with bytes.
    Data,
    /// The next place without bytes, or the end of the file.
    Hole,
}

/// What was found in a part of a file.
struct FoundPart {
    /// The object that was searched.
    object: ObjectId,
    /// Where there are bytes: ascending, apart from each other.
    ranges: Vec<Range<u64>>,
    /// The end of the part.
    upto: u64,
}

impl Session {
    /// The parts of a file's `range` that may have bytes other than zeros: ascending, apart from each other.
    /// Everything else reads as zeros and takes no space.
    ///
    /// If a group has no live parity slot, its stripes that exist count as bytes.
    pub async fn find_bytes(&self, handle: u64, range: Range<u64>) -> Result<Vec<Range<u64>>, ClientError> {
        let file = self.handle(handle)?.file.clone();
        let (mut found, mut at) = (Vec::new(), range.start);
        while let Some(part) = self.find_part(&file, at..range.end).await? {
            found.extend(part.ranges);
            at = part.upto;
        }
        Ok(joined(found))
    }

    /// Searches the first part of a range; [`None`] if the range is behind the end of the file. Meanwhile the file is
    /// neither truncated by another client nor moved to another tier; both may happen before the next part.
    async fn find_part(
        &self,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> Result<Option<FoundPart>, ClientError> {
        let _io = self.modes.begin_io(file).await?;
        let (end, object) = {
            let state = file.lock();
            (range.end.min(state.size), state.object)
        };
        if range.start >= end {
            return Ok(None);
        }
        let (ranges, upto) = self.io.find_some(file, range.start..end).await?;
        Ok(Some(FoundPart { object, ranges, upto }))
    }

    /// The first place of the kind `what` from `offset` on; `None` if there is none in the file.
    ///
    /// A reported hole has no bytes. Reported data may still be zeros: in unstable stripes, within a unit up to its
    /// last block, and in each stripe that exists in a group without a live parity slot.
    pub async fn seek(&self, handle: u64, offset: u64, what: Seek) -> Result<Option<u64>, ClientError> {
        let file = self.handle(handle)?.file.clone();
        let mut at = offset;
        // Begin with one extent, then double the number: usually the answer is near.
        let mut extents = 1_u64;
        loop {
            let geometry = self.link.routes.geometry_of(file.lock().object);
            let extent = u64::from(geometry.search_stripes()) * geometry.stripe() as u64;
            let end = (at / extent).saturating_add(extents).saturating_mul(extent);
            let Some(part) = self.find_part(&file, at..end).await? else { break };
            if let Some(place) = first(&part.ranges, at..part.upto, what) {
                return Ok(Some(place));
            }
            at = part.upto;
            extents = extents.saturating_mul(2);
        }
        let size = file.lock().size;
        Ok(match what {
            Seek::Data => None,
            Seek::Hole => (offset < size).then_some(size),
        })
    }

    /// Replaces a range of a file by zeros; the file does not grow. Whole stripes free their space. Returns when the
    /// primaries have accepted the zeros, or, if the file is shared, when they are stable.
    ///
    /// # Errors
    /// Also reports errors of earlier writes to this file.
    pub async fn zero(&self, handle: u64, range: Range<u64>) -> Result<(), ClientError> {
        let handle = self.handle(handle)?;
        if !handle.write {
            return Err(ClientError::BadHandle);
        }
        let file = &handle.file;
        let lost = handle.error_cursor.before_write(&file.lock().wb_errors)?;
        let mut at = range.start;
        while let Some(part) = self.find_part(file, at..range.end).await? {
            if self.zero_found(&handle, &part, at, lost).await? {
                at = part.upto;
            }
        }
        Ok(())
    }

    /// Writes zeros over the bytes that were found in a part of a file that begins at `at`. False if the file has another
    /// object since: what was found says nothing of it.
    async fn zero_found(
        &self,
        handle: &Handle,
        part: &FoundPart,
        at: u64,
        lost: u64,
    ) -> Result<bool, ClientError> {
        let geometry = self.link.routes.geometry_of(part.object);
        let mut rows = Rows::new(geometry, stripes_of(&geometry, &part.ranges), at..part.upto);
        while let Some(row) = rows.next() {
            if !self.zero_stripes(handle, part.object, row, lost).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes zeros over parts of a bounded number of stripes, up to the end of the file. False if the file has another
    /// object.
    async fn zero_stripes(
        &self,
        handle: &Handle,
        object: ObjectId,
        row: Vec<(u64, usize, usize)>,
        lost: u64,
    ) -> Result<bool, ClientError> {
        let file = &handle.file;
        let _io = self.modes.begin_io(file).await?;
        let Some(upto) = self.write_behind.lay_zeros(file, object, row) else { return Ok(false) };
        self.io.make_answered(file, upto).await;
        let may_buffer = file.lock().may_buffer();
        if may_buffer {
            handle.error_cursor.after_write(&file.lock().wb_errors, lost)?;
        } else {
            // Zeros do not make the file longer, so there is no size to report.
            self.write_through(handle, 0, 0, lost).await?;
        }
        Ok(true)
    }
}

/// The first place of the kind `what` in `range`. The ranges of `data` lie in it, ascending and apart from each
/// other.
fn first(data: &[Range<u64>], range: Range<u64>, what: Seek) -> Option<u64> {
    let begins = data.first().map(|first| first.start);
    match what {
        Seek::Data => begins,
        Seek::Hole if begins != Some(range.start) => Some(range.start),
        Seek::Hole => data.first().map(|first| first.end).filter(|end| *end < range.end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_what_is_looked_for() {
        let data = [10..20, 30..40];
        assert_eq!(first(&data, 0..50, Seek::Data), Some(10));
        assert_eq!(first(&data, 0..50, Seek::Hole), Some(0));
        assert_eq!(first(&data, 10..50, Seek::Hole), Some(20));
        assert_eq!(first(&data[1..], 30..40, Seek::Hole), None, "it may go on");
        assert_eq!(first(&[], 5..9, Seek::Data), None);
        assert_eq!(first(&[], 5..9, Seek::Hole), Some(5));
    }
}
