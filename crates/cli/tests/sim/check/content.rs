//! A file that one client writes holds what it wrote, and after a power cut at least what was synced: the checker keeps
//! both, and compares byte by byte.

use std::collections::BTreeSet;

/// A file as it should be.
#[derive(Clone, Default)]
pub(crate) struct Content {
    pub(crate) now: Vec<u8>,
    /// Every content since the last fsync, oldest first; the fsynced one is the first.
    since: Vec<Vec<u8>>,
}

impl Content {
    /// A file that was just made: nothing is promised of it but that it holds nothing else.
    pub(crate) fn made() -> Content {
        Content { now: Vec::new(), since: vec![Vec::new()] }
    }

    pub(crate) fn changed(&mut self) {
        self.since.push(self.now.clone());
    }

    pub(crate) fn synced(&mut self) {
        self.since = vec![self.now.clone()];
    }

    /// What a file may hold after everything lost power: of each byte, any value since the last fsync.
    pub(crate) fn allows(&self, found: &[u8]) -> Result<(), String> {
        if let [only] = self.since.as_slice() {
            return if only == found { Ok(()) } else { Err(difference(only, found)) };
        }
        let sizes: BTreeSet<usize> = self.since.iter().map(Vec::len).collect();
        let (least, most) = (sizes.first().copied().unwrap_or(0), sizes.last().copied().unwrap_or(0));
        if found.len() < least || found.len() > most {
            return Err(format!("{} bytes, expected {least} to {most}", found.len()));
        }
        for (at, byte) in found.iter().enumerate() {
            if *byte != 0 && !self.since.iter().any(|content| content.get(at) == Some(byte)) {
                return Err(format!("byte {at} is {byte}, which was never written there"));
            }
            // Zeros only where one of the contents has none: what an fsync confirmed and nobody changed stays.
            if *byte == 0 && self.since.iter().all(|content| content.get(at).is_some_and(|byte| *byte != 0)) {
                return Err(format!("byte {at} is lost"));
            }
        }
        Ok(())
    }
}

/// Where two contents begin to differ.
pub(crate) fn difference(expected: &[u8], found: &[u8]) -> String {
    if expected.len() != found.len() {
        return format!("{} bytes, expected {}", found.len(), expected.len());
    }
    let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(0);
    let wrong = expected.iter().zip(found).filter(|(a, b)| a != b).count();
    format!("byte {at} is {}, expected {}; {wrong} bytes differ", found[at], expected[at])
}

#[test]
fn a_lost_byte_and_a_strange_one_are_found() {
    let mut content = Content::made();
    content.now = vec![1; 10];
    content.changed();
    content.synced();
    content.now[3] = 2;
    content.changed();
    assert!(content.allows(&[1; 10]).is_ok());
    assert!(content.allows(&[1, 1, 1, 2, 1, 1, 1, 1, 1, 1]).is_ok());
    assert!(content.allows(&[1, 1, 1, 2, 1, 1, 1, 1, 1]).is_err(), "too short");
    assert!(content.allows(&[1, 1, 1, 3, 1, 1, 1, 1, 1, 1]).is_err(), "never written");
    assert!(content.allows(&[1, 1, 1, 0, 1, 1, 1, 1, 1, 1]).is_err(), "written over by nothing");
}
