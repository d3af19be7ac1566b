//! Bonnie's four sequential items: by character through a buffer like that of stdio, and by block.
//!
//! Like Bonnie, this calls `putc` and `getc` for each character, and `write` and `read` for each block of 16 KiB, on
//! a [`Sink`] or a [`Read`]. The time of a write ends when everything is stable, so no cache is measured. Bytes read
//! are compared with those written.

mod disk;
mod file;
mod nfs;
pub mod readers;
pub mod records;
pub mod streams;
mod window;

use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::time::{Duration, Instant};

pub use disk::NbdDisk;
pub use file::LocalFile;
pub use nfs::NfsFile;

use crate::error::{LabError, Result, doing};

/// Bonnie's block, in bytes.
pub const BLOCK: usize = 16 << 10;
/// The buffer of stdio, in bytes: a page, the size that C libraries use for a file without a preferred size.
const STDIO: usize = 4 << 10;

/// A destination that is written sequentially.
pub trait Sink: Write {
    /// Returns when everything that was written is stable.
    ///
    /// # Errors
    /// A byte could not be made stable.
    fn finish(&mut self) -> std::io::Result<()>;
}

/// One of the four items.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Item {
    /// `putc` for each character.
    PutChars,
    /// `write` for each block.
    WriteBlocks,
    /// `getc` for each character.
    GetChars,
    /// `read` for each block.
    ReadBlocks,
}

impl Item {
    /// In the order in which they are measured.
    pub const ALL: [Item; 4] = [Item::PutChars, Item::WriteBlocks, Item::GetChars, Item::ReadBlocks];

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Item::PutChars => "char write",
            Item::WriteBlocks => "block write",
            Item::GetChars => "char read",
            Item::ReadBlocks => "block read",
        }
    }

    /// The item with this title.
    pub fn named(title: &str) -> Option<Item> {
        Item::ALL.into_iter().find(|item| item.title() == title)
    }

    /// Whether the item writes.
    pub fn writes(self) -> bool {
        matches!(self, Item::PutChars | Item::WriteBlocks)
    }

    /// The file that the item writes or reads: what it wrote by character is read by character.
    pub fn file(self) -> &'static str {
        match self {
            Item::PutChars | Item::GetChars => "chars",
            Item::WriteBlocks | Item::ReadBlocks => "blocks",
        }
    }
}

/// Start and end of a load.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// The time of its first byte.
    pub start: Instant,
    /// The time when its last byte was stable, or read and compared.
    pub end: Instant,
}

impl Interval {
    /// From the first start to the last end of several.
    pub fn over(intervals: &[Interval]) -> Duration {
        let start = intervals.iter().map(|interval| interval.start).min();
        let end = intervals.iter().map(|interval| interval.end).max();
        start.zip(end).map(|(start, end)| end - start).unwrap_or_default()
    }
}

/// Writes `bytes` bytes by an item; `open` is timed too, as Bonnie's is.
///
/// # Errors
/// Something could not be written.
pub fn write(item: Item, bytes: u64, open: impl FnOnce() -> Result<Box<dyn Sink>>) -> Result<Interval> {
    let start = Instant::now();
    let mut sink = open()?;
    let written = match item {
        Item::PutChars => put_chars(&mut *sink, bytes),
        _ => write_blocks(&mut *sink, bytes),
    };
    written.and_then(|()| sink.finish()).map_err(doing(item.title()))?;
    drop(sink);
    Ok(Interval { start, end: Instant::now() })
}

/// Reads `bytes` bytes by an item, and compares them.
///
/// # Errors
/// Something could not be read, or is not what was written.
pub fn read(item: Item, bytes: u64, open: impl FnOnce() -> Result<Box<dyn Read>>) -> Result<Interval> {
    let start = Instant::now();
    let mut source = open()?;
    let wrong = match item {
        Item::GetChars => get_chars(&mut *source, bytes),
        _ => read_blocks(&mut *source, bytes),
    };
    match wrong.map_err(doing(item.title()))? {
        None => Ok(Interval { start, end: Instant::now() }),
        Some(at) => Err(LabError::WrongBytes { place: item.title().to_owned(), at }),
    }
}

/// The character at an offset of the file that is written by character.
fn character(at: u64) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

fn put_chars(sink: &mut dyn Sink, bytes: u64) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(STDIO, sink);
    for at in 0..bytes {
        out.write_all(&[character(at)])?;
    }
    out.flush()
}

/// The offset of the first wrong character, if any.
fn get_chars(source: &mut dyn Read, bytes: u64) -> std::io::Result<Option<u64>> {
    let mut input = BufReader::with_capacity(STDIO, source);
    for at in 0..bytes {
        // As `getc`: the next character of the buffer, which is refilled when empty.
        let Some(&byte) = input.fill_buf()?.first() else { return Ok(Some(at)) };
        input.consume(1);
        if byte != character(at) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// The contents of a block: its number, then bytes that are the same in all blocks.
fn fill(block: &mut [u8], number: u64) {
    block[..8].copy_from_slice(&number.to_le_bytes());
}

fn blank() -> Vec<u8> {
    (0..BLOCK as u64).map(character).collect()
}

fn write_blocks(sink: &mut dyn Sink, bytes: u64) -> std::io::Result<()> {
    let mut block = blank();
    for number in 0..bytes / BLOCK as u64 {
        fill(&mut block, number);
        sink.write_all(&block)?;
    }
    Ok(())
}

/// The offset of the first wrong block, if any.
fn read_blocks(source: &mut dyn Read, bytes: u64) -> std::io::Result<Option<u64>> {
    let (mut wanted, mut block) = (blank(), blank());
    for number in 0..bytes / BLOCK as u64 {
        fill(&mut wanted, number);
        source.read_exact(&mut block)?;
        if block != wanted {
            return Ok(Some(number * BLOCK as u64));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::io::Cursor;
    use std::rc::Rc;

    /// Bytes in memory, and the sizes of the calls that brought them.
    #[derive(Clone, Default)]
    struct Memory(Rc<RefCell<(Vec<u8>, Vec<usize>)>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let (all, calls) = &mut *self.0.borrow_mut();
            all.extend_from_slice(bytes);
            calls.push(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Sink for Memory {
        fn finish(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn written(item: Item, bytes: u64) -> (Vec<u8>, Vec<usize>) {
        let memory = Memory::default();
        let sink = memory.clone();
        write(item, bytes, move || Ok(Box::new(sink))).expect("memory takes bytes");
        memory.0.take()
    }

    #[test]
    fn characters_go_by_pages_and_blocks_by_blocks() {
        let (bytes, calls) = written(Item::PutChars, 10_000);
        assert_eq!((bytes.len(), calls), (10_000, vec![4096, 4096, 1808]));
        let (bytes, calls) = written(Item::WriteBlocks, 3 * BLOCK as u64);
        assert_eq!((bytes.len(), calls), (3 * BLOCK, vec![BLOCK; 3]));
    }

    #[test]
    fn a_wrong_byte_is_seen() {
        for (put, get) in [(Item::PutChars, Item::GetChars), (Item::WriteBlocks, Item::ReadBlocks)] {
            let (mut bytes, _) = written(put, 4 * BLOCK as u64);
            let look = |bytes: Vec<u8>| {
                read(get, 4 * BLOCK as u64, move || Ok(Box::new(Cursor::new(bytes)))).map(drop)
            };
            look(bytes.clone()).expect("the same bytes");
            bytes[40_000] ^= 1;
            let at = if put == Item::PutChars { 40_000 } else { 2 * BLOCK as u64 };
            let seen = look(bytes);
            assert!(matches!(seen, Err(LabError::WrongBytes { at: seen, .. }) if seen == at), "{seen:?}");
        }
    }

    #[test]
    fn time_of_several_is_from_the_first_start_to_the_last_end() {
        let now = Instant::now();
        let interval = |from, to| Interval {
            start: now + Duration::from_secs(from),
            end: now + Duration::from_secs(to),
        };
        assert_eq!(Interval::over(&[interval(3, 9), interval(2, 5)]), Duration::from_secs(7));
        assert_eq!(Interval::over(&[]), Duration::ZERO);
    }
}
