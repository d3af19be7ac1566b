//! The handshake and its options.
//!
//! ```text
//! GREETING ──▶   client flags ──▶ Negotiation::new
//!   option ──▶   Negotiation::option ──▶ Answer: send, next option
//!                               ──▶ ExportRequest: find out the size (Info), or open the export (Go), then answer it
//!                               ──▶ End: send, close
//! ```

use world::nbd::{Input, OptionHeader, option_reply};

use super::consts::*;

/// The server's greeting: two magic numbers and flags.
pub(crate) const GREETING: [u8; 18] = greeting();
/// Bytes of the client's answer to it.
pub(crate) const CLIENT_FLAGS_LEN: usize = 4;

const fn greeting() -> [u8; 18] {
    let (magic, option) = (MAGIC.to_be_bytes(), OPTION_MAGIC.to_be_bytes());
    let flags = ((FIXED_NEWSTYLE | NO_ZEROES) as u16).to_be_bytes();
    let mut bytes = [0; 18];
    let mut at = 0;
    while at < 8 {
        bytes[at] = magic[at];
        bytes[8 + at] = option[at];
        at += 1;
    }
    bytes[16] = flags[0];
    bytes[17] = flags[1];
    bytes
}

/// The only export. It also has the empty name.
#[derive(Clone, Debug)]
pub(crate) struct ExportInfo {
    pub(crate) name: String,
    pub(crate) read_only: bool,
}

impl ExportInfo {
    fn is_meant(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }

    fn flags(&self, structured: bool) -> u16 {
        let access = if self.read_only {
            READ_ONLY
        } else {
            SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO
        };
        let unfragmented = if structured { SEND_DF } else { 0 };
        HAS_FLAGS | SEND_FLUSH | CAN_MULTI_CONN | access | unfragmented
    }
}

/// A request for the export or its properties. It must be answered by [`Negotiation::granted`] or
/// [`Negotiation::refused`] before the next option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExportRequest {
    option: u32,
    /// The kinds of information that the client asked for.
    wanted: Vec<u16>,
}

impl ExportRequest {
    /// Whether the export must be opened, because the transmission follows.
    pub(crate) fn enters_transmission(&self) -> bool {
        self.option != OPT_INFO
    }
}

/// The next step after an option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Send these bytes.
    Answer(Vec<u8>),
    /// The answer depends on the export.
    ExportRequest(ExportRequest),
    /// Send these bytes and close the connection.
    End(Vec<u8>),
}

/// The negotiated properties of the transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Agreed {
    /// Reads are answered by structured replies.
    pub(crate) structured: bool,
    /// The client may ask for block status.
    pub(crate) context: bool,
}

/// One negotiation.
#[derive(Debug)]
pub(crate) struct Negotiation {
    info: ExportInfo,
    no_zeroes: bool,
    options: u32,
    agreed: Agreed,
}

/// Option and length of its data. `None` if it is not an option, or is too long.
pub(crate) fn option_header(bytes: &[u8]) -> Option<(u32, usize)> {
    let OptionHeader { option, len } = OptionHeader::parse(bytes)?;
    (len <= OPTION_MAX).then_some((option, len as usize))
}

impl Negotiation {
    /// `None` if the client's flags were not offered.
    pub(crate) fn new(info: ExportInfo, flags: &[u8]) -> Option<Negotiation> {
        let flags = Input(flags).u32()?;
        let known = flags & !(FIXED_NEWSTYLE | NO_ZEROES) == 0;
        let agreed = Agreed { structured: false, context: false };
        known.then_some(Negotiation { info, no_zeroes: flags & NO_ZEROES != 0, options: 0, agreed })
    }

    pub(crate) fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// The next step after an option.
    pub(crate) fn option(&mut self, option: u32, data: &[u8]) -> Step {
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return Step::End(option_reply(option, REP_ERR_POLICY, b"too many options"));
        }
        let step = match option {
            OPT_EXPORT_NAME if self.info.is_meant(data) => {
                Ok(Step::ExportRequest(ExportRequest { option, wanted: Vec::new() }))
            }
            // This option has no error replies.
            OPT_EXPORT_NAME => Ok(Step::End(Vec::new())),
            OPT_ABORT => Ok(Step::End(option_reply(option, REP_ACK, b""))),
            OPT_LIST => self.list(data).map(Step::Answer),
            OPT_INFO | OPT_GO => self.ask(option, data).map(Step::ExportRequest),
            OPT_STRUCTURED_REPLY => self.structured(data).map(Step::Answer),
            OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => self.contexts(option, data).map(Step::Answer),
            OPT_STARTTLS => Err((REP_ERR_POLICY, "no TLS here: use a Unix socket")),
            _ => Err((REP_ERR_UNSUP, "not supported")),
        };
        step.unwrap_or_else(|(error, text)| Step::Answer(option_reply(option, error, text.as_bytes())))
    }

    fn list(&self, data: &[u8]) -> Result<Vec<u8>, (u32, &'static str)> {
        if !data.is_empty() {
            return Err((REP_ERR_INVALID, "a list takes no data"));
        }
        let name = self.info.name.as_bytes();
        let server = [&(name.len() as u32).to_be_bytes(), name].concat();
        Ok([option_reply(OPT_LIST, REP_SERVER, &server), option_reply(OPT_LIST, REP_ACK, b"")].concat())
    }

    fn ask(&self, option: u32, data: &[u8]) -> Result<ExportRequest, (u32, &'static str)> {
        let mut input = Input(data);
        let name = string(&mut input)?;
        let parsed = input.u16().and_then(|count| (0..count).map(|_| input.u16()).collect());
        let wanted: Vec<u16> = parsed.filter(|_| input.is_at_end()).ok_or(INVALID)?;
        if !self.info.is_meant(name) {
            return Err((REP_ERR_UNKNOWN, "there is no such export"));
        }
        Ok(ExportRequest { option, wanted })
    }

    fn structured(&mut self, data: &[u8]) -> Result<Vec<u8>, (u32, &'static str)> {
        if !data.is_empty() {
            return Err((REP_ERR_INVALID, "structured replies take no data"));
        }
        self.agreed.structured = true;
        Ok(option_reply(OPT_STRUCTURED_REPLY, REP_ACK, b""))
    }

    /// Lists or chooses metadata contexts.
    fn contexts(&mut self, option: u32, data: &[u8]) -> Result<Vec<u8>, (u32, &'static str)> {
        let set = option == OPT_SET_META_CONTEXT;
        if set {
            self.agreed.context = false;
        }
        if !self.agreed.structured {
            return Err((REP_ERR_INVALID, "structured replies come first"));
        }
        let mut input = Input(data);
        let name = string(&mut input)?;
        let count = input.u32().ok_or(INVALID)?;
        let mut found = !set && count == 0;
        for _ in 0..count {
            let query = string(&mut input)?;
            // In a list, the namespace alone matches all its contexts.
            found |= query == CONTEXT_NAME.as_bytes() || (!set && query == b"base:");
        }
        if !input.is_at_end() {
            return Err(INVALID);
        }
        if !self.info.is_meant(name) {
            return Err((REP_ERR_UNKNOWN, "there is no such export"));
        }
        self.agreed.context |= set && found;
        let ack = option_reply(option, REP_ACK, b"");
        if !found {
            return Ok(ack);
        }
        let id = if set { CONTEXT_ID } else { 0 };
        let context = [&id.to_be_bytes(), CONTEXT_NAME.as_bytes()].concat();
        Ok([option_reply(option, REP_META_CONTEXT, &context), ack].concat())
    }

    /// The answer to a request, if the export is available and has `size` bytes.
    pub(crate) fn granted(&self, ask: &ExportRequest, size: u64) -> Vec<u8> {
        let flags = self.info.flags(self.agreed.structured);
        if ask.option == OPT_EXPORT_NAME {
            let zeros: &[u8] = if self.no_zeroes { &[] } else { &[0; 124] };
            return [&size.to_be_bytes()[..], &flags.to_be_bytes(), zeros].concat();
        }
        let info = |kind: u16, data: &[u8]| {
            option_reply(ask.option, REP_INFO, &[&kind.to_be_bytes(), data].concat())
        };
        let export = [&size.to_be_bytes()[..], &flags.to_be_bytes()].concat();
        let mut bytes = info(INFO_EXPORT, &export);
        if ask.wanted.contains(&INFO_NAME) {
            bytes.extend(info(INFO_NAME, self.info.name.as_bytes()));
        }
        if ask.wanted.contains(&INFO_BLOCK_SIZE) {
            let sizes = [1, REQUEST_PREFERRED, REQUEST_MAX].map(u32::to_be_bytes).concat();
            bytes.extend(info(INFO_BLOCK_SIZE, &sizes));
        }
        bytes.extend(option_reply(ask.option, REP_ACK, b""));
        bytes
    }

    /// The answer to a request, if the export is not available. `None` if the connection must be closed without an
    /// answer.
    pub(crate) fn refused(&self, ask: &ExportRequest, why: &str) -> Option<Vec<u8>> {
        (ask.option != OPT_EXPORT_NAME).then(|| option_reply(ask.option, REP_ERR_POLICY, why.as_bytes()))
    }
}

const INVALID: (u32, &str) = (REP_ERR_INVALID, "malformed option");

/// A name or a query: its length, then its bytes.
fn string<'a>(input: &mut Input<'a>) -> Result<&'a [u8], (u32, &'static str)> {
    let len = input.u32().ok_or(INVALID)? as usize;
    if len > NAME_MAX {
        return Err((REP_ERR_TOO_BIG, "a name has at most 4096 bytes"));
    }
    input.bytes(len).ok_or(INVALID)
}
