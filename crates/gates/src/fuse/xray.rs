//! The file `.shoal/xray`: what has entered each layer of a mount, or of one of its open files.
//!
//! A read shows a line for each layer, from the top down: `layer NAME reads N read_bytes N writes N written_bytes N`. The
//! first layer is entered by what programs ask for. The last one, `bricks`, is what went to bricks.
//!
//! A mount with a cache on a disk has a line for it: `disk-cache-state STATE bytes N bytes_most N hits N ... reason TEXT`.
//!
//! After a write of `file INODE`, reads through the same handle show this open file. If it is closed, they show a line
//! `error TEXT`, as after a write that has failed.

use client::Mount;
use types::InodeId;

use crate::control::{Whole, layers_text};

use super::control_handles::ControlHandles;

/// Most bytes of a write.
const WRITE_MAX: usize = 64;

/// The handles of the file.
#[derive(Default)]
pub(super) struct XrayHandles(pub(super) ControlHandles<XrayHandle>);

#[derive(Default)]
pub(super) struct XrayHandle {
    /// The file that reads show, or why the last write failed.
    shown: Option<Result<InodeId, String>>,
    /// What is being read. The parts of one text fit together.
    text: String,
}

impl XrayHandles {
    /// The whole text: a new one from the `start`, else that of the read before.
    pub(super) fn read(&self, mount: &Mount, number: u64, start: bool) -> String {
        let read = |handle: &mut XrayHandle| {
            if start {
                let layers = match &handle.shown {
                    None => Ok((mount.layer_counters(), Whole::of(mount))),
                    Some(Ok(inode)) => {
                        let layers = mount.file_layer_counters(*inode).ok_or_else(|| not_open(*inode));
                        layers.map(|layers| (layers, Whole::default()))
                    }
                    Some(Err(error)) => Err(error.clone()),
                };
                handle.text = layers.map_or_else(
                    |error| format!("error {error}\n"),
                    |(layers, whole)| layers_text(&layers, whole),
                );
            }
            handle.text.clone()
        };
        self.0.with(number, read).unwrap_or_default()
    }

    /// Sets the file that reads show.
    ///
    /// # Errors
    /// Says what is wrong; the next read says it too.
    pub(super) fn write(&self, mount: &Mount, number: u64, data: &[u8]) -> Result<(), String> {
        let open = |inode| mount.file_layer_counters(inode).map(|_| inode).ok_or_else(|| not_open(inode));
        let shown = parse(data).and_then(open);
        self.0.with(number, |handle| handle.shown = Some(shown.clone()));
        shown.map(|_| ())
    }
}

pub(super) fn parse(data: &[u8]) -> Result<InodeId, String> {
    let wrong = || "write `file INODE`, with the number of an inode".to_owned();
    let text = std::str::from_utf8(data).ok().filter(|text| text.len() <= WRITE_MAX).ok_or_else(wrong)?;
    let number = text.trim().strip_prefix("file ").ok_or_else(wrong)?;
    number.trim().parse().map(InodeId).map_err(|_| wrong())
}

fn not_open(inode: InodeId) -> String {
    format!("inode {} is not open at this mount; a file is counted while it is open", inode.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_by_its_inode() {
        assert_eq!(parse(b"file 12\n"), Ok(InodeId(12)));
        for wrong in [&b""[..], b"file", b"file x", b"file -1", b"mount", b"\xff", &[b' '; WRITE_MAX + 1]] {
            assert_eq!(parse(wrong), Err("write `file INODE`, with the number of an inode".to_owned()));
        }
    }
}
