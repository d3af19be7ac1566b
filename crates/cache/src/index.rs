//! Which cell of a cache has which chunk, and which one goes when another needs its place. The order is that of the crate
//! quick_cache, which resists scans.

use std::collections::BTreeSet;
use std::hash::{BuildHasherDefault, DefaultHasher};

use quick_cache::unsync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, UnitWeighter};
use types::{Buf, BufMut};

use crate::format::{BLOCK, RECORD, RECORDS};

/// Cells that are always free, for the chunk that comes next.
const SPARE: u32 = 4;
/// Bytes of memory that a cell takes, at most: its record and its place in the order.
pub(crate) const CELL_MEMORY: u64 = 96;

/// What a cell has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Record {
    /// The print of its chunk's key; 0 if it is free.
    print: u64,
    /// A bit for each block that is there.
    blocks: u16,
}

/// Collects the cells of chunks that leave the cache.
struct Leaving;

impl Lifecycle<u64, u32> for Leaving {
    type RequestState = Vec<(u64, u32)>;

    fn on_evict(&self, left: &mut Vec<(u64, u32)>, print: u64, cell: u32) {
        left.push((print, cell));
    }
}

type Order = Cache<u64, u32, UnitWeighter, BuildHasherDefault<DefaultHasher>, Leaving>;

/// See the module.
pub(crate) struct Index {
    order: Order,
    records: Vec<Record>,
    free: Vec<u32>,
    /// Parts of the table that are not written as they are.
    unwritten: BTreeSet<usize>,
}

impl Index {
    /// An empty one. There is at least one cell.
    pub(crate) fn new(cells: u32) -> Index {
        let used = cells.saturating_sub(SPARE).max(1);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(used as usize)
            .weight_capacity(u64::from(used))
            .build()
            .expect("both capacities are given");
        Index {
            order: Cache::with_options(options, UnitWeighter, BuildHasherDefault::default(), Leaving),
            records: vec![Record::default(); cells as usize],
            free: (0..cells).rev().collect(),
            unwritten: BTreeSet::new(),
        }
    }

    /// From a table, whatever is in it.
    pub(crate) fn load(cells: u32, table: &[u8]) -> Index {
        let mut index = Index::new(cells);
        index.free.clear();
        for (cell, bytes) in (0..cells).zip(table.chunks_exact(RECORD)) {
            let print = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
            let blocks = u16::from_le_bytes(bytes[8..10].try_into().expect("two bytes"));
            if print == 0 || blocks == 0 || index.order.peek(&print).is_some() {
                index.free.push(cell);
                continue;
            }
            index.records[cell as usize] = Record { print, blocks };
            index.insert(print, cell);
        }
        index.free.extend((table.len() / RECORD) as u32..cells);
        index
    }

    /// The cell of a chunk and the blocks that it has. Counts as a use.
    pub(crate) fn find(&self, print: u64) -> Option<(u32, u16)> {
        let cell = *self.order.get(&print)?;
        Some((cell, self.records[cell as usize].blocks))
    }

    /// The cell for blocks of a chunk that are to be written, and the blocks that it has: the cell of the chunk, or one
    /// that is free. `None` if the chunk is not worth the place of another one.
    pub(crate) fn place(&mut self, print: u64) -> Option<(u32, u16)> {
        if let Some(cell) = self.order.peek(&print) {
            return Some((*cell, self.records[*cell as usize].blocks));
        }
        let cell = self.free.pop()?;
        self.set(cell, Record { print, blocks: 0 });
        self.insert(print, cell);
        self.order.peek(&print).map(|cell| (*cell, 0))
    }

    /// Blocks were written to a cell. Does nothing if the chunk has left it meanwhile.
    pub(crate) fn add(&mut self, print: u64, cell: u32, blocks: u16) {
        let Record { print: present, blocks: before } = self.records[cell as usize];
        if present == print {
            self.set(cell, Record { print, blocks: before | blocks });
        }
    }

    /// Removes a chunk, if it is still in this cell.
    pub(crate) fn remove(&mut self, print: u64, cell: u32) -> bool {
        let is_there = self.order.peek(&print) == Some(&cell);
        if is_there {
            self.order.remove(&print);
            self.set_free(cell);
        }
        is_there
    }

    /// The next part of the table to write: its number, and its bytes.
    pub(crate) fn next_unwritten(&mut self) -> Option<(usize, Buf)> {
        let part = self.unwritten.pop_first()?;
        let mut bytes = BufMut::zeroed(BLOCK);
        let records = self.records[part * RECORDS..].iter().take(RECORDS);
        for (place, record) in bytes.chunks_exact_mut(RECORD).zip(records) {
            place[..8].copy_from_slice(&record.print.to_le_bytes());
            place[8..10].copy_from_slice(&record.blocks.to_le_bytes());
        }
        Some((part, bytes.freeze()))
    }

    /// Whether parts of the table are to be written.
    pub(crate) fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Number of chunks.
    pub(crate) fn chunks(&self) -> u64 {
        self.order.len() as u64
    }

    fn insert(&mut self, print: u64, cell: u32) {
        let mut left = Vec::new();
        self.order.insert_with_lifecycle(print, cell, &mut left);
        left.into_iter().for_each(|(_, cell)| self.set_free(cell));
    }

    fn set_free(&mut self, cell: u32) {
        self.set(cell, Record::default());
        self.free.push(cell);
    }

    fn set(&mut self, cell: u32, record: Record) {
        self.records[cell as usize] = record;
        self.unwritten.insert(cell as usize / RECORDS);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every cell is free or has one chunk, and the order knows it.
    fn check(index: &Index) {
        let mut seen = vec![false; index.records.len()];
        for cell in &index.free {
            assert!(!std::mem::replace(&mut seen[*cell as usize], true), "free twice");
            assert_eq!(index.records[*cell as usize], Record::default());
        }
        for (print, cell) in index.order.iter() {
            assert!(!std::mem::replace(&mut seen[*cell as usize], true), "cell {cell} is used twice");
            assert_eq!(index.records[*cell as usize].print, *print);
        }
        assert!(seen.into_iter().all(|seen| seen), "a cell is lost");
        assert!(!index.free.is_empty(), "there is always a free cell");
    }

    fn table(index: &mut Index, cells: u32) -> Vec<u8> {
        index.unwritten = (0..(cells as usize).div_ceil(RECORDS)).collect();
        std::iter::from_fn(|| index.next_unwritten()).flat_map(|(_, bytes)| bytes.to_vec()).collect()
    }

    #[test]
    fn chunks_that_are_used_stay_while_others_pass() {
        let mut index = Index::new(1000);
        for _ in 0..3 {
            for print in 1..=500 {
                if index.find(print).is_none() {
                    let (cell, _) = index.place(print).expect("there is a place");
                    index.add(print, cell, 1);
                }
            }
        }
        for print in 10_000..110_000 {
            if let Some((cell, _)) = index.place(print) {
                index.add(print, cell, 1);
            }
        }
        check(&index);
        let kept = (1..=500).filter(|print| index.find(*print).is_some()).count();
        assert!(kept > 400, "{kept} of 500");
    }

    #[test]
    fn the_memory_of_a_cell_is_bounded() {
        let cells = 200_000_u32;
        let mut index = Index::new(cells);
        for print in 1..=u64::from(cells) * 3 {
            index.place(print);
        }
        let used = index.order.memory_used();
        let bytes = used.total() + index.records.capacity() * size_of::<Record>() + index.free.capacity() * 4;
        let each = bytes as u64 / u64::from(cells);
        assert!(each <= CELL_MEMORY, "{each} bytes for each cell: {used:?}");
    }

    proptest! {
        #[test]
        fn cells_are_never_lost_nor_used_twice(
            cells in 1..40_u32,
            steps in prop::collection::vec((0..5_u8, 1..60_u64, any::<u16>()), 0..300),
        ) {
            let mut index = Index::new(cells);
            for (step, print, blocks) in steps {
                match step {
                    0 | 1 => if let Some((cell, _)) = index.place(print) {
                        index.add(print, cell, blocks);
                        prop_assert!(index.find(print).is_some_and(|(at, has)| at == cell && has & blocks == blocks));
                    },
                    2 => drop(index.find(print)),
                    3 => if let Some((cell, _)) = index.find(print) {
                        index.remove(print, cell);
                        prop_assert_eq!(index.find(print), None);
                        index.add(print, cell, blocks);
                        prop_assert_eq!(index.find(print), None, "it has left");
                    },
                    _ => index = Index::load(cells, &table(&mut index, cells)),
                }
                if cells > SPARE {
                    check(&index);
                }
            }
        }

        #[test]
        fn any_table_can_be_loaded(cells in 1..600_u32, table in prop::collection::vec(any::<u8>(), 0..12_000), same in any::<bool>()) {
            // With few different numbers, cells claim to have the same chunk.
            let table: Vec<u8> = table.into_iter().map(|byte| if same { byte & 1 } else { byte }).collect();
            let mut index = Index::load(cells, &table);
            for print in 1..50 {
                index.place(print);
            }
            if cells > SPARE {
                check(&index);
            }
        }
    }
}
