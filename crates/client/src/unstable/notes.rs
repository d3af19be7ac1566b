//! Which notes of this mount bricks must keep: those of which the metadata service does not know, and on which an `fsync`
//! relies or may rely soon.

use std::collections::{BTreeMap, BTreeSet};

use types::limits::NOTES_MAX;
use types::{ClientSeq, InodeId};

/// Numbers of writes with notes, by file.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    files: BTreeMap<InodeId, BTreeSet<ClientSeq>>,
}

impl Notes {
    /// Whether there may be one more note of this file.
    pub(crate) fn may_add(&self, inode: InodeId) -> bool {
        self.files.contains_key(&inode) || self.files.len() < NOTES_MAX
    }

    /// A write with this number has a note. Returns up to which number nobody needs a note.
    pub(crate) fn add(&mut self, inode: InodeId, seq: ClientSeq) -> ClientSeq {
        self.files.entry(inode).or_default().insert(seq);
        let needed = self.files.values().filter_map(|seqs| seqs.first()).min().unwrap_or(&seq);
        ClientSeq(needed.0.saturating_sub(1))
    }

    /// The write is stable: its note stands for the earlier ones of its file.
    pub(crate) fn is_stable(&mut self, inode: InodeId, seq: ClientSeq) {
        if let Some(seqs) = self.files.get_mut(&inode) {
            *seqs = seqs.split_off(&seq);
        }
    }

    /// The write is lost, or the service knows what it has noted.
    pub(crate) fn remove(&mut self, inode: InodeId, seq: ClientSeq) {
        if let Some(seqs) = self.files.get_mut(&inode) {
            seqs.remove(&seq);
            if seqs.is_empty() {
                self.files.remove(&inode);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_never_called_told() {
        let (a, b) = (InodeId(7), InodeId(8));
        let mut notes = Notes::default();
        assert_eq!(notes.add(a, ClientSeq(5)), ClientSeq(4), "nothing else is needed");
        assert_eq!(notes.add(b, ClientSeq(6)), ClientSeq(4));
        notes.is_stable(a, ClientSeq(5));
        assert_eq!(notes.add(a, ClientSeq(9)), ClientSeq(4), "until 9 is stable, a relies on 5");
        notes.is_stable(a, ClientSeq(9));
        assert_eq!(notes.add(a, ClientSeq(10)), ClientSeq(5), "b's may be relied on");
        notes.remove(b, ClientSeq(6));
        notes.remove(a, ClientSeq(10));
        assert_eq!(notes.add(b, ClientSeq(12)), ClientSeq(8));
        notes.remove(a, ClientSeq(9));
        notes.remove(b, ClientSeq(12));
        assert!(notes.files.is_empty());
    }

    #[test]
    fn files_with_notes_are_few() {
        let mut notes = Notes::default();
        for n in 0..NOTES_MAX as u64 {
            notes.add(InodeId(n), ClientSeq(n + 1));
        }
        assert!(notes.may_add(InodeId(3)) && !notes.may_add(InodeId(1000)));
    }
}
