//! Finds readers with a pattern among the reads of a file: forward, backward, or with a constant stride.
//!
//! Several programs may read a file at the same time, and a kernel may send the reads of one program slightly out of
//! order. So the last [`STREAMS_MAX`] positions are kept, and a read continues the one that it fits.

/// Most readers that are followed in a file.
const STREAMS_MAX: usize = 16;
/// How far from the expected place a read may begin, in multiples of its length.
const SLACK: u64 = 4;
/// Number of equal distances in a row from which on reads have a stride.
const STRIDES_MIN: u32 = 3;

/// How a read continues an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It does not.
    None,
    /// It begins where that one ended.
    Forward,
    /// It ends where that one began.
    Backward,
    /// It begins at a constant distance from it, in bytes.
    Stride(i64),
}

/// A reader with a pattern.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// The pattern.
    pub(crate) step: Step,
    /// Number of reads that continued it.
    pub(crate) run: u32,
    /// Start and end of the last read.
    start: u64,
    end: u64,
    /// When it was last used, in reads of the file.
    used: u64,
    /// Up to where bytes were asked for ahead of the reader: a place in the file.
    pub(crate) ahead: Option<u64>,
}

/// The readers of a file.
#[derive(Default, Debug)]
pub(crate) struct Streams {
    streams: Vec<Stream>,
    reads: u64,
    /// Start of the last read, its distance from the one before, and how often the distance was the same.
    last: u64,
    distance: i64,
    equal: u32,
}

impl Streams {
    /// Records a read. Returns the stream that it continues, or that begins with it.
    pub(crate) fn note(&mut self, offset: u64, len: u64) -> &mut Stream {
        self.reads += 1;
        let end = offset.saturating_add(len);
        let distance = offset.wrapping_sub(self.last) as i64;
        self.equal = if distance == self.distance { self.equal + 1 } else { 1 };
        (self.last, self.distance) = (offset, distance);
        let index = match self.position(offset, len) {
            Some((index, step)) => {
                let stream = &mut self.streams[index];
                if stream.step != step && stream.run > 0 {
                    (stream.run, stream.ahead) = (0, None);
                }
                stream.step = step;
                stream.run += 1;
                // Reads that arrive out of order do not move it back.
                let is_late = step == Step::Forward && end < stream.end;
                if !is_late {
                    (stream.start, stream.end) = (offset, end);
                }
                index
            }
            None => self.begin(offset, end),
        };
        self.streams[index].used = self.reads;
        &mut self.streams[index]
    }

    /// The stream that a read continues.
    fn position(&self, offset: u64, len: u64) -> Option<(usize, Step)> {
        let end = offset.saturating_add(len);
        let forward = |stream: &Stream| (offset == stream.end).then_some(Step::Forward);
        let backward = |stream: &Stream| (end == stream.start).then_some(Step::Backward);
        let find = |fits: &dyn Fn(&Stream) -> Option<Step>| {
            self.streams.iter().enumerate().find_map(|(index, stream)| Some((index, fits(stream)?)))
        };
        let strided = |stream: &Stream| match stream.step {
            Step::Stride(stride) if stream.start.checked_add_signed(stride) == Some(offset) => {
                Some(stream.step)
            }
            _ => None,
        };
        let near = |stream: &Stream| {
            let is_near = stream.end.abs_diff(offset) <= SLACK * len;
            (stream.step == Step::Forward && stream.run > 1 && is_near).then_some(Step::Forward)
        };
        find(&forward).or_else(|| find(&strided)).or_else(|| find(&near)).or_else(|| find(&backward))
    }

    /// Begins a stream, in the place of the one that was not used for the longest time.
    fn begin(&mut self, offset: u64, end: u64) -> usize {
        let has_stride = self.equal >= STRIDES_MIN && self.distance != 0;
        let (step, run) =
            if has_stride { (Step::Stride(self.distance), self.equal) } else { (Step::None, 0) };
        let stream = Stream { step, run, start: offset, end, used: self.reads, ahead: None };
        if self.streams.len() < STREAMS_MAX {
            self.streams.push(stream);
            return self.streams.len() - 1;
        }
        let oldest = self.streams.iter().enumerate().min_by_key(|(_, stream)| stream.used);
        let index = oldest.map_or(0, |(index, _)| index);
        self.streams[index] = stream;
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How the last of these reads continues an earlier one, and how often.
    fn last(reads: impl IntoIterator<Item = (u64, u64)>) -> (Step, u32) {
        let mut streams = Streams::default();
        let mut found = (Step::None, 0);
        for (offset, len) in reads {
            let stream = streams.note(offset, len);
            found = (stream.step, stream.run);
        }
        found
    }

    #[test]
    fn forward_backward_and_strided_reads_are_found() {
        assert_eq!(last((0..5).map(|n| (n * 100, 100))), (Step::Forward, 4));
        assert_eq!(last((0..5).map(|n| (10_000 - n * 100, 100))), (Step::Backward, 4));
        assert_eq!(last((0..8).map(|n| (n * 1000, 100))).0, Step::Stride(1000));
        assert_eq!(last((0..8).map(|n| (100_000 - n * 1000, 100))).0, Step::Stride(-1000));
        assert_eq!(last([(0, 100), (5000, 100), (300, 100), (9000, 100)]), (Step::None, 0));
        assert_eq!(last([(0, 100), (0, 100), (0, 100), (0, 100), (0, 100)]).0, Step::None, "the same again");
    }

    #[test]
    fn readers_beside_each_other_are_told_apart() {
        let readers =
            (0..8).flat_map(|n| (0..8).map(move |reader| ((reader * reader) << 30 | (n * 100), 100)));
        assert_eq!(last(readers), (Step::Forward, 7));
    }

    #[test]
    fn reads_out_of_order_continue_a_stream() {
        assert_eq!(
            last([(0, 100), (100, 100), (200, 100), (400, 100), (300, 100), (500, 100)]),
            (Step::Forward, 5)
        );
    }
}
