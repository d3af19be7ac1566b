//! The file `.shoal/tune`: shows and changes the translators' settings of a mount and of its open files.
//!
//! What is written at once is carried out at once: lines in at most [`WRITE_MAX`] bytes. If one of them is wrong, the
//! write fails, and none is carried out.
//!
//! | line | what it does |
//! |---|---|
//! | `read-ahead=off io-cache.page=4K` | changes settings of the mount |
//! | `file INODE read-ahead=off` | changes settings of an open file, until it is closed |
//! | `file INODE` | changes nothing |
//!
//! After a line for a file, reads through the same handle show this file.
//!
//! | what a read shows | |
//! |---|---|
//! | `volume KEY VALUE` | what is set for the volume |
//! | `mount KEY VALUE` | what is set for the mount |
//! | `file KEY VALUE` | what is set for the file |
//! | `effective KEY VALUE` | what counts, for every key |
//! | `work KIND` | what kind of work is done on the file, if that is known: the client chooses by it |
//! | `error TEXT` | why the last write failed: through this handle, or if it has written nothing, through any |

use std::sync::{Mutex, MutexGuard, PoisonError};

use client::Mount;
use types::tuning::{TuningError, check_file_changes};
use types::{InodeId, Tuning};

use crate::control::tuning_text;

use super::control_handles::ControlHandles;

/// Most bytes of a write.
const WRITE_MAX: usize = 4096;

/// The handles of the file.
#[derive(Default)]
pub(super) struct TuneHandles {
    pub(super) open: ControlHandles<TuneHandle>,
    /// Why the last write through any handle failed, if it did.
    last_error: Mutex<Option<String>>,
}

#[derive(Default)]
pub(super) struct TuneHandle {
    /// The file that reads show.
    file: Option<InodeId>,
    /// The end of its last write.
    written: Option<Result<(), String>>,
    /// What is being read. The parts of one text fit together.
    text: String,
}

impl TuneHandles {
    fn last_error(&self) -> MutexGuard<'_, Option<String>> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole text: a new one from the `start`, else that of the read before.
    pub(super) fn read(&self, mount: &Mount, number: u64, start: bool) -> String {
        let read = |handle: &mut TuneHandle| {
            if start {
                let error = match &handle.written {
                    Some(written) => written.clone().err(),
                    None => self.last_error().clone(),
                };
                let gone = handle.file.filter(|inode| !is_open(mount, *inode)).map(not_open);
                let file = if gone.is_some() { None } else { handle.file };
                handle.text = tuning_text(&mount.tuning(file), error.or(gone).as_deref());
            }
            handle.text.clone()
        };
        self.open.with(number, read).unwrap_or_default()
    }

    /// Carries out what was written.
    ///
    /// # Errors
    /// Says which line is wrong; the next read says it too.
    pub(super) fn write(&self, mount: &Mount, number: u64, data: &[u8]) -> Result<(), String> {
        let done = parse(data).and_then(|lines| apply(mount, &lines));
        let written = done.as_ref().map(|_| ()).map_err(Clone::clone);
        *self.last_error() = written.clone().err();
        self.open.with(number, |handle| {
            handle.file = done.unwrap_or(None);
            handle.written = Some(written.clone());
        });
        written
    }
}

/// A line that was written.
#[derive(PartialEq, Eq, Debug)]
enum Line<'a> {
    Mount(&'a str),
    File(InodeId, &'a str),
}

fn parse(data: &[u8]) -> Result<Vec<Line<'_>>, String> {
    if data.len() > WRITE_MAX {
        return Err(format!("{} bytes were written at once; at most {WRITE_MAX} are taken", data.len()));
    }
    let text = std::str::from_utf8(data).map_err(|_| "what was written is not text".to_owned())?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| parse_line(line).map_err(one_line)).collect()
}

fn parse_line(line: &str) -> Result<Line<'_>, String> {
    let (first, rest) = line.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((line, ""));
    let words = |error: TuningError| error.to_string();
    if first != "file" {
        Tuning::default().change(line).map_err(words)?;
        return Ok(Line::Mount(line));
    }
    let (inode, changes) = rest.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((rest, ""));
    let inode = inode.parse().map_err(|_| {
        let start: String = inode.chars().take(40).collect();
        format!("`{start}` is not an inode number: write `file INODE key=value`")
    })?;
    check_file_changes(changes).map_err(words)?;
    Ok(Line::File(InodeId(inode), changes))
}

/// Carries out all lines, or none if a file is not open. Returns the file of the last one.
fn apply(mount: &Mount, lines: &[Line<'_>]) -> Result<Option<InodeId>, String> {
    for line in lines {
        match line {
            Line::File(inode, _) if !is_open(mount, *inode) => return Err(not_open(*inode)),
            Line::Mount(_) | Line::File(..) => {}
        }
    }
    let words = |error: TuningError| one_line(error.to_string());
    let mut last = None;
    for line in lines {
        last = match line {
            Line::Mount(changes) => mount.tune(changes).map(|()| None).map_err(words)?,
            Line::File(inode, changes) => match mount.tune_file(*inode, changes).map_err(words)? {
                true => Some(*inode),
                false => return Err(not_open(*inode)),
            },
        };
    }
    Ok(last)
}

/// Whether the mount has a file open.
fn is_open(mount: &Mount, inode: InodeId) -> bool {
    mount.tune_file(inode, "") == Ok(true)
}

fn not_open(inode: InodeId) -> String {
    format!("inode {} is not open at this mount; settings of a file last while it is open", inode.0)
}

/// An error is a line of what is read.
fn one_line(error: String) -> String {
    error.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_for_the_mount_or_for_a_file() {
        let written = b"read-ahead=off io-cache.page=4K\n\n  file 12 read-ahead=inherit\nfile 7\n";
        let expected = vec![
            Line::Mount("read-ahead=off io-cache.page=4K"),
            Line::File(InodeId(12), "read-ahead=inherit"),
            Line::File(InodeId(7), ""),
        ];
        assert_eq!(parse(written), Ok(expected));
        assert_eq!(parse(b""), Ok(vec![]));
    }

    #[test]
    fn wrong_lines_are_named() {
        let long = [b'\n'; WRITE_MAX + 1];
        let wrong: [(&[u8], &str); 9] = [
            (b"read-ahead=on\nprefetch=on", "no setting `prefetch`; there are io-cache,"),
            (b"read-ahead=soon", "it takes auto, on or off"),
            (b"read-ahead", "write key=value"),
            (b"file", "`` is not an inode number"),
            (b"file /mnt/a read-ahead=on", "`/mnt/a` is not an inode number"),
            (b"file -1", "`-1` is not an inode number"),
            (b"file 7 io-cache.size=1G", "`io-cache.size` is for a whole mount"),
            (b"\xff", "not text"),
            (&long, "4097 bytes were written at once; at most 4096"),
        ];
        for (written, said) in wrong {
            let error = parse(written).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
        assert_eq!(parse(b"a\x1bb=c\rd").map_err(|error| error.contains(char::is_control)), Err(false));
    }
}
