//! The NBD negotiation: from the server's greeting to an export.
//!
//! ```text
//! server: greeting ──▶ Negotiation::greeted ──▶ client: flags, option Go
//! server: answers  ──▶ Negotiation::answered, one after the other, until there is an Export
//! ```

use super::error::{RemoteError, protocol_error};
use crate::nbd::consts::*;
use crate::nbd::{Input, OptionReplyHeader, option};

/// Bytes of the server's greeting.
pub(super) const GREETING_LEN: usize = 18;
/// Most bytes of an answer's data that are accepted.
const DATA_MAX: u32 = crate::STREAM_HEAD_MAX as u32;
/// Most answers to one option.
const ANSWERS_MAX: u32 = 64;
/// Most characters of a server's message that are shown.
const WORDS_MAX: usize = 200;

/// An export of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Export {
    /// Bytes.
    pub(super) size: u64,
    /// Transmission flags.
    pub(super) flags: u16,
    /// Offset and length of every request are multiples of this, in bytes.
    pub(super) block: u32,
    /// Most bytes of one request.
    pub(super) most: u32,
}

/// One negotiation.
pub(super) struct Negotiation<'a> {
    name: &'a str,
    /// Size and flags, once they are known.
    export: Option<(u64, u16)>,
    /// Smallest and largest request. If the server does not say, the protocol's defaults.
    sizes: (u32, u32),
    answers: u32,
}

impl<'a> Negotiation<'a> {
    pub(super) fn new(name: &'a str) -> Negotiation<'a> {
        Negotiation { name, export: None, sizes: (1, REQUEST_MAX), answers: 0 }
    }

    /// The client's answer to the greeting.
    pub(super) fn greeted(&self, greeting: &[u8]) -> Result<Vec<u8>, RemoteError> {
        let mut input = Input(greeting);
        let words = (input.u64(), input.u64(), input.u16());
        let (Some(MAGIC), Some(OPTION_MAGIC), Some(flags)) = words else {
            return protocol_error("its greeting is not that of an NBD server");
        };
        let flags = u32::from(flags);
        if flags & FIXED_NEWSTYLE == 0 {
            return Err(RemoteError::Fatal(
                "the server is too old: it does not speak fixed newstyle".to_owned(),
            ));
        }
        let name = self.name.as_bytes();
        let data = [
            &(name.len() as u32).to_be_bytes()[..],
            name,
            &1u16.to_be_bytes(),
            &INFO_BLOCK_SIZE.to_be_bytes(),
        ];
        let ours = (FIXED_NEWSTYLE | flags & NO_ZEROES).to_be_bytes();
        Ok([&ours[..], &option(OPT_GO, &data.concat())].concat())
    }

    /// Kind of an answer and bytes of its data, from its header.
    pub(super) fn data_len(&mut self, head: &[u8]) -> Result<(u32, usize), RemoteError> {
        self.answers += 1;
        match OptionReplyHeader::parse(head) {
            Some(OptionReplyHeader { option: OPT_GO, kind, len })
                if len <= DATA_MAX && self.answers <= ANSWERS_MAX =>
            {
                Ok((kind, len as usize))
            }
            _ => protocol_error("its answer to the request for an export is invalid"),
        }
    }

    /// Takes an answer's data. Returns the export after the last one.
    pub(super) fn answered(&mut self, kind: u32, data: &[u8]) -> Result<Option<Export>, RemoteError> {
        match kind {
            REP_INFO => self.informed(data).map(|()| None),
            REP_ACK => {
                let Some((size, flags)) = self.export else {
                    return protocol_error("it grants an export and does not give its size");
                };
                let (block, most) = self.sizes;
                Export { size, flags, block, most }.sound().map(Some)
            }
            _ => Err(self.refused(kind, data)),
        }
    }

    fn informed(&mut self, data: &[u8]) -> Result<(), RemoteError> {
        let mut input = Input(data);
        match input.u16() {
            Some(INFO_EXPORT) => {
                let (Some(size), Some(flags), true) = (input.u64(), input.u16(), input.is_at_end()) else {
                    return protocol_error("it describes the export wrongly");
                };
                self.export = Some((size, flags));
            }
            Some(INFO_BLOCK_SIZE) => {
                let (Some(block), Some(_), Some(most), true) =
                    (input.u32(), input.u32(), input.u32(), input.is_at_end())
                else {
                    return protocol_error("it describes its block sizes wrongly");
                };
                self.sizes = (block, most);
            }
            Some(_) => {}
            None => return protocol_error("it sends an information without a type"),
        }
        Ok(())
    }

    fn refused(&self, kind: u32, data: &[u8]) -> RemoteError {
        let name = self.name;
        let words: String = String::from_utf8_lossy(data).chars().take(WORDS_MAX).collect();
        let words = if words.is_empty() { words } else { format!(" ({})", words.escape_debug()) };
        match kind {
            REP_ERR_UNKNOWN => RemoteError::Transient(format!(
                "the server has no export `{name}`{words}; `nbdinfo --list` shows those that it has"
            )),
            REP_ERR_POLICY | REP_ERR_SHUTDOWN => RemoteError::Transient(format!(
                "the server does not give access to the export `{name}` now{words}"
            )),
            REP_ERR_TLS_REQD => {
                RemoteError::Fatal(format!("the server insists on TLS{words}; start it without"))
            }
            REP_ERR_UNSUP => {
                RemoteError::Fatal(format!("the server is too old: it does not know NBD_OPT_GO{words}"))
            }
            kind if kind >> 31 == 1 => RemoteError::Fatal(format!(
                "the server refuses the export `{name}`, error {}{words}",
                kind & 0xffff
            )),
            _ => RemoteError::Fatal("the server answers a request for an export with something else; check that it is an NBD server".to_owned()),
        }
    }
}

impl Export {
    /// The export, if a brick can use it.
    fn sound(self) -> Result<Export, RemoteError> {
        let wrong = |text: &str| Err(RemoteError::Fatal(text.to_owned()));
        let block = types::limits::BLOCK as u32;
        if self.flags & HAS_FLAGS == 0 || self.flags & SEND_FLUSH == 0 {
            return wrong("the server knows no flush, so nothing would ever be durable; use one that does");
        }
        if self.flags & READ_ONLY != 0 {
            return wrong("the export is read-only; start the server so that it may be written");
        }
        if !self.block.is_power_of_two() || self.block > block || self.most < block {
            return Err(RemoteError::Fatal(format!(
                "the server takes requests of {} to {} bytes only; blocks of {block} bytes are needed",
                self.block, self.most
            )));
        }
        Ok(self)
    }

    /// Usable bytes: whole blocks.
    pub(super) fn len(&self) -> u64 {
        self.size / u64::from(self.block) * u64::from(self.block)
    }

    /// Most bytes of one request, in whole blocks.
    pub(super) fn piece(&self) -> usize {
        (self.most.min(REQUEST_MAX) / types::limits::BLOCK as u32 * types::limits::BLOCK as u32) as usize
    }
}
