//! The protocol's numbers. Names follow the protocol's own, without its prefixes.

/// `NBDMAGIC`.
pub(super) const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: says newstyle, and begins every option.
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Begins every answer to an option.
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins every request.
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins every simple reply.
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Begins every chunk of a structured reply.
pub(super) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags of both sides: fixed newstyle.
pub(super) const FIXED_NEWSTYLE: u32 = 1;
/// Handshake flags of both sides: no 124 zeros at the end of the negotiation.
pub(super) const NO_ZEROES: u32 = 2;

pub(super) const OPT_EXPORT_NAME: u32 = 1;
pub(super) const OPT_ABORT: u32 = 2;
pub(super) const OPT_LIST: u32 = 3;
pub(super) const OPT_STARTTLS: u32 = 5;
pub(super) const OPT_INFO: u32 = 6;
pub(super) const OPT_GO: u32 = 7;
pub(super) const OPT_STRUCTURED_REPLY: u32 = 8;
pub(super) const OPT_LIST_META_CONTEXT: u32 = 9;
pub(super) const OPT_SET_META_CONTEXT: u32 = 10;

pub(super) const REP_ACK: u32 = 1;
pub(super) const REP_SERVER: u32 = 2;
pub(super) const REP_INFO: u32 = 3;
pub(super) const REP_META_CONTEXT: u32 = 4;
pub(super) const REP_ERR_UNSUP: u32 = (1 << 31) + 1;
pub(super) const REP_ERR_POLICY: u32 = (1 << 31) + 2;
pub(super) const REP_ERR_INVALID: u32 = (1 << 31) + 3;
pub(super) const REP_ERR_UNKNOWN: u32 = (1 << 31) + 6;
pub(super) const REP_ERR_TOO_BIG: u32 = (1 << 31) + 9;

pub(super) const INFO_EXPORT: u16 = 0;
pub(super) const INFO_NAME: u16 = 1;
pub(super) const INFO_BLOCK_SIZE: u16 = 3;

/// Transmission flags.
pub(super) const HAS_FLAGS: u16 = 1;
pub(super) const READ_ONLY: u16 = 1 << 1;
pub(super) const SEND_FLUSH: u16 = 1 << 2;
pub(super) const SEND_FUA: u16 = 1 << 3;
pub(super) const SEND_TRIM: u16 = 1 << 5;
pub(super) const SEND_WRITE_ZEROES: u16 = 1 << 6;
pub(super) const SEND_DF: u16 = 1 << 7;
pub(super) const CAN_MULTI_CONN: u16 = 1 << 8;
pub(super) const SEND_FAST_ZERO: u16 = 1 << 11;

pub(super) const CMD_READ: u16 = 0;
pub(super) const CMD_WRITE: u16 = 1;
pub(super) const CMD_DISC: u16 = 2;
pub(super) const CMD_FLUSH: u16 = 3;
pub(super) const CMD_TRIM: u16 = 4;
pub(super) const CMD_WRITE_ZEROES: u16 = 6;
pub(super) const CMD_BLOCK_STATUS: u16 = 7;

/// Flags of a request.
pub(super) const FLAG_FUA: u16 = 1;
pub(super) const FLAG_NO_HOLE: u16 = 1 << 1;
pub(super) const FLAG_DF: u16 = 1 << 2;
pub(super) const FLAG_REQ_ONE: u16 = 1 << 3;
pub(super) const FLAG_FAST_ZERO: u16 = 1 << 4;

/// The chunk is the reply's last.
pub(super) const REPLY_DONE: u16 = 1;
pub(super) const REPLY_NONE: u16 = 0;
pub(super) const REPLY_OFFSET_DATA: u16 = 1;
pub(super) const REPLY_OFFSET_HOLE: u16 = 2;
pub(super) const REPLY_BLOCK_STATUS: u16 = 5;
pub(super) const REPLY_ERROR: u16 = (1 << 15) + 1;

/// A hole that reads as zeros, in the context `base:allocation`.
pub(super) const STATE_HOLE_ZERO: u32 = 3;

/// Error numbers of replies.
pub(super) const CODE_NOT_PERMITTED: u32 = 1;
pub(crate) const CODE_IO: u32 = 5;
pub(super) const CODE_INVALID: u32 = 22;
pub(super) const CODE_NO_SPACE: u32 = 28;
pub(crate) const CODE_SHUTDOWN: u32 = 108;

/// Longest name of an export, and longest query, in bytes.
pub(super) const NAME_MAX: usize = 4096;
/// Largest data of an option that is looked at, in bytes; a larger one ends the connection.
pub(super) const OPTION_MAX: u32 = 16 << 10;
/// Options of one negotiation.
pub(super) const OPTIONS_MAX: u32 = 64;
/// Largest read or write, in bytes: what clients may assume that do not ask.
pub(super) const REQUEST_MAX: u32 = 32 << 20;
/// Requests of this size and alignment cost least: the grain of checksums.
pub(super) const REQUEST_PREFERRED: u32 = types::limits::BLOCK as u32;

/// The only metadata context.
pub(super) const CONTEXT_NAME: &str = "base:allocation";
/// Its number, once it is chosen.
pub(super) const CONTEXT_ID: u32 = 1;
