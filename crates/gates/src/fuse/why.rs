//! The file `.shoal/why`: the slowest requests of a mount, or of one of its files.
//!
//! After a write of `file INODE`, reads through the same handle show this file, whether it is open or not. If the write has
//! failed, they show a line `error TEXT`. `control/slow_text.rs` lists the other lines.

use std::sync::Arc;

use client::Mount;
use types::InodeId;

use crate::control::slow_text;

use super::control_handles::ControlHandles;
use super::{local, xray};

/// The handles of the file.
#[derive(Default)]
pub(super) struct WhyHandles(pub(super) ControlHandles<WhyHandle>);

#[derive(Default)]
pub(super) struct WhyHandle {
    /// The file that reads show, or why the last write failed.
    shown: Option<Result<InodeId, String>>,
    /// What is being read. The parts of one text fit together.
    text: String,
}

impl WhyHandles {
    /// The whole text: a new one from the `start`, else that of the read before.
    pub(super) fn read(&self, mount: &Arc<Mount>, number: u64, start: bool) -> String {
        let read = |handle: &mut WhyHandle| {
            if start {
                handle.text = match &handle.shown {
                    None => slow_text(mount, None, local::now(mount)),
                    Some(Ok(inode)) => slow_text(mount, Some(*inode), local::now(mount)),
                    Some(Err(error)) => format!("error {error}\n"),
                };
            }
            handle.text.clone()
        };
        self.0.with(number, read).unwrap_or_default()
    }

    /// Sets the file that reads show.
    ///
    /// # Errors
    /// Says what is wrong; the next read says it too.
    pub(super) fn write(&self, number: u64, data: &[u8]) -> Result<(), String> {
        let shown = xray::parse(data);
        self.0.with(number, |handle| handle.shown = Some(shown.clone()));
        shown.map(|_| ())
    }
}
