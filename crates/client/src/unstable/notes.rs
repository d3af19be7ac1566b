//! Which notes of this mount bricks must keep: those of which the metadata service does not know, and on which an `fsync`
//! relies or may rely soon.

use std::collections::{BTreeMap, BTreeSet};

use types::limits::NOTES_MAX;
use types::{ClientSeq, InodeId};

/// Numbers of writes with notes.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Those that are needed, by file.
    needed: BTreeMap<InodeId, BTreeSet<ClientSeq>>,
    /// The last one of each file, above the number up to which nobody needs any. A slot keeps no others.
    last: BTreeMap<InodeId, ClientSeq>,
}

impl Notes {
    /// The write with this number, the highest so far, is to have a note. Returns up to which number nobody needs one; `None` if
    /// slots would have to keep too many.
    pub(crate) fn add(&mut self, inode: InodeId, seq: ClientSeq) -> Option<ClientSeq> {
        let needed = self.needed.values().filter_map(|seqs| seqs.first()).min().unwrap_or(&seq);
        let told = ClientSeq(needed.0.saturating_sub(1));
        self.last.retain(|_, seq| *seq > told);
        if self.last.len() == NOTES_MAX && !self.last.contains_key(&inode) {
            return None;
        }
        self.last.insert(inode, seq);
        self.needed.entry(inode).or_default().insert(seq);
        Some(told)
    }

    /// The write is stable: its note stands for the earlier ones of its file.
    pub(crate) fn is_stable(&mut self, inode: InodeId, seq: ClientSeq) {
        if let Some(seqs) = self.needed.get_mut(&inode) {
            *seqs = seqs.split_off(&seq);
        }
    }

    /// The write is lost, or the service knows what it has noted.
    pub(crate) fn remove(&mut self, inode: InodeId, seq: ClientSeq) {
        if let Some(seqs) = self.needed.get_mut(&inode) {
            seqs.remove(&seq);
            if seqs.is_empty() {
                self.needed.remove(&inode);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(notes: &mut Notes, inode: InodeId, seq: u64) -> Option<u64> {
        notes.add(inode, ClientSeq(seq)).map(|told| told.0)
    }

    #[test]
    fn what_is_needed_is_never_called_told() {
        let (a, b) = (InodeId(7), InodeId(8));
        let mut notes = Notes::default();
        assert_eq!(add(&mut notes, a, 5), Some(4), "nothing else is needed");
        assert_eq!(add(&mut notes, b, 6), Some(4));
        notes.is_stable(a, ClientSeq(5));
        assert_eq!(add(&mut notes, a, 9), Some(4), "until 9 is stable, a relies on 5");
        notes.is_stable(a, ClientSeq(9));
        assert_eq!(add(&mut notes, a, 10), Some(5), "b's may be relied on");
        notes.remove(b, ClientSeq(6));
        notes.remove(a, ClientSeq(10));
        assert_eq!(add(&mut notes, b, 12), Some(8));
        notes.remove(a, ClientSeq(9));
        notes.remove(b, ClientSeq(12));
        assert!(notes.needed.is_empty());
    }

    /// A slot forgets the oldest note of a client that has too many. It must be one that nobody needs.
    #[test]
    fn slots_are_never_given_more_notes_than_they_keep() {
        let mut notes = Notes::default();
        let kept = InodeId(1);
        assert_eq!(add(&mut notes, kept, 5), Some(4));
        notes.is_stable(kept, ClientSeq(5));
        let mut seq = 5;
        // Files that are noted, told and closed, one after the other, while the first one is still needed.
        for inode in 2..=NOTES_MAX as u64 {
            seq += 1;
            assert_eq!(add(&mut notes, InodeId(inode), seq), Some(4));
            notes.remove(InodeId(inode), ClientSeq(seq));
        }
        assert_eq!(add(&mut notes, InodeId(1000), seq + 1), None);
        assert!(add(&mut notes, kept, seq + 1).is_some(), "it takes no further place");
        notes.is_stable(kept, ClientSeq(seq + 1));
        assert!(add(&mut notes, InodeId(1000), seq + 2).is_some());
    }
}
