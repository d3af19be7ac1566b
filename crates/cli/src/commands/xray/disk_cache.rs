//! The cache on a disk of a mount, as `.shoal/xray` tells of it.

use std::collections::BTreeMap;
use std::str::SplitAsciiWhitespace;

use serde_json::{Value, json};

use super::findings::Finding;

/// What the mount says of its cache, since it began.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct DiskCache {
    state: String,
    reason: Option<String>,
    numbers: BTreeMap<String, u64>,
}

/// Reads `NAME N ...`.
pub(super) fn numbers(mut words: SplitAsciiWhitespace<'_>) -> Option<BTreeMap<String, u64>> {
    let mut numbers = BTreeMap::new();
    while let (Some(name), Some(number)) = (words.next(), words.next()) {
        numbers.insert(name.to_owned(), number.parse().ok()?);
    }
    Some(numbers)
}

impl DiskCache {
    /// Reads the line `disk-cache-state STATE NAME N ... reason TEXT`, if there is one.
    pub(super) fn parse(text: &str) -> Option<DiskCache> {
        let line = text.lines().find_map(|line| line.strip_prefix("disk-cache-state "))?;
        let (line, reason) = match line.split_once(" reason ") {
            Some((line, reason)) => (line, Some(reason.to_owned())),
            None => (line, None),
        };
        let mut words = line.split_ascii_whitespace();
        let state = words.next()?.to_owned();
        Some(DiskCache { state, reason, numbers: numbers(words)? })
    }

    /// What is wrong with it.
    pub(super) fn finding(&self) -> Option<Finding> {
        let reason = self.reason.as_deref().unwrap_or("the mount does not say why");
        let sentence = match self.state.as_str() {
            "on" => return None,
            "full" => {
                format!(
                    "nothing is added to the cache on the disk: {reason}; make room there, and mount again"
                )
            }
            _ => format!(
                "the cache on the disk is off and bricks serve all reads: {reason}; look at that disk, and mount again"
            ),
        };
        Some(Finding { sentence, setting: None, is_wrong: true })
    }

    pub(super) fn document(&self) -> Value {
        let mut document = json!(self.numbers);
        document["state"] = json!(self.state);
        document["reason"] = json!(self.reason);
        document
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_fails_is_found() {
        assert_eq!(DiskCache::parse("layer auto reads 1\n"), None);
        let on =
            DiskCache::parse("layer auto reads 1\ndisk-cache-state on hits 5 misses 6\n").expect("a line");
        assert_eq!((on.finding(), on.document()["hits"].as_u64()), (None, Some(5)));
        let off = DiskCache::parse("disk-cache-state off hits 5 reason cannot read x: it is gone\n")
            .expect("a line");
        let said = off.finding().expect("it is off").sentence;
        assert!(
            said.contains("bricks serve all reads: cannot read x: it is gone; look at that disk"),
            "{said}"
        );
        let full = DiskCache::parse("disk-cache-state full reason no space\n").expect("a line");
        assert!(
            full.finding().is_some_and(|finding| finding.is_wrong && finding.sentence.contains("no space"))
        );
    }
}
