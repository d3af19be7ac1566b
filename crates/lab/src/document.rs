//! What the documents and pages of papers share: fields of JSON, and the parts of a page that say how it was made.

use std::fmt::Write;

use serde_json::Value;

use crate::error::{Result, doing};

/// A megabyte, in bytes.
pub const MB: f64 = 1e6;

/// The fields of a JSON object. `None` if one is missing or is something else.
#[derive(Clone, Copy)]
pub struct Fields<'v>(pub &'v Value);

impl Fields<'_> {
    /// A number.
    pub fn number(self, name: &str) -> Option<u64> {
        self.0[name].as_u64()
    }

    /// A number of 32 bits.
    pub fn small(self, name: &str) -> Option<u32> {
        self.number(name).and_then(|number| u32::try_from(number).ok())
    }

    /// A list, each part of which `read` can read.
    pub fn list<T>(self, name: &str, read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
        self.0[name].as_array()?.iter().map(read).collect()
    }

    /// A list of numbers of 32 bits.
    pub fn smalls(self, name: &str) -> Option<Vec<u32>> {
        self.list(name, |value| value.as_u64().and_then(|number| u32::try_from(number).ok()))
    }

    /// The one of `all` whose title stands there.
    pub fn named<T: Copy>(self, name: &str, all: &[T], title: impl Fn(T) -> &'static str) -> Option<T> {
        all.iter().copied().find(|one| self.0[name] == title(*one))
    }

    /// The version of a system that was compared with, or why it was not: `name`, or `name_missing`.
    pub fn peer(self, name: &str) -> Option<std::result::Result<String, String>> {
        match self.0[name].as_str() {
            Some(version) => Some(Ok(version.to_owned())),
            None => self.0[format!("{name}_missing")].as_str().map(|why| Err(why.to_owned())),
        }
    }
}

/// What was parsed of a document.
///
/// # Errors
/// Nothing was.
pub fn parsed<T>(found: Option<T>) -> Result<T> {
    found.ok_or("something is missing, or another version wrote it").map_err(doing("read the runs"))
}

/// A sentence of a page: which command wrote it, and how long that took.
pub fn written(paper: &str, seconds: f64) -> String {
    let (minutes, rest) = (seconds as u64 / 60, seconds as u64 % 60);
    format!(
        "`shoal paper {paper}` wrote this page, within {minutes} min {rest:02} s; [{paper}.json]({paper}.json) has every run."
    )
}

/// The section of a page on how things were done: what, in the paper, here.
pub fn how(rows: &[(&str, String, String)]) -> String {
    let mut text = String::from("## How it was done\n\n| | the paper | here |\n|---|---|---|\n");
    for (what, paper, here) in rows {
        let _ = writeln!(text, "| {what} | {paper} | {here} |");
    }
    text
}

/// A size in MiB, or in KiB if it is smaller than one.
pub fn size(bytes: u64) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_there_or_they_are_not() {
        let value = json!({ "a": 7, "large": 1u64 << 40, "list": [1, 2], "mixed": [1, "x"], "gluster_missing": "gone", "word": "b" });
        let fields = Fields(&value);
        assert_eq!(
            (fields.small("a"), fields.small("large"), fields.number("large")),
            (Some(7), None, Some(1 << 40))
        );
        assert_eq!(
            (fields.smalls("list"), fields.smalls("mixed"), fields.smalls("none")),
            (Some(vec![1, 2]), None, None)
        );
        assert_eq!(fields.named("word", &["a", "b"], |word| word), Some("b"));
        assert_eq!((fields.peer("gluster"), fields.peer("other")), (Some(Err("gone".into())), None));
        assert_eq!(Fields(&json!({ "gluster": "10.3" })).peer("gluster"), Some(Ok("10.3".into())));
    }

    #[test]
    fn sizes_and_times_are_for_people() {
        assert_eq!((size(64 << 10), size(16 << 20)), ("64 KiB".to_owned(), "16 MiB".to_owned()));
        assert!(written("000", 321.5).contains("within 5 min 21 s; [000.json]"));
    }
}
