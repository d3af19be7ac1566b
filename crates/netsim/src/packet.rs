//! Packets: what they carry, and their lengths on the wire.

/// Payload of a full packet, in bytes.
pub(crate) const PAYLOAD: u32 = 1448;
/// Bytes of headers: Ethernet 14, IPv4 20, TCP 20 and its timestamps 12. What a switch's port and a token bucket count.
pub(crate) const HEADERS: u32 = 66;
/// Length of a full packet, in bytes.
pub(crate) const FULL: u32 = PAYLOAD + HEADERS;
/// Bytes of a selective acknowledgement: its head, and each block.
const SACK_HEAD: u32 = 4;
const SACK_BLOCK: u32 = 8;
/// Most blocks of one, beside timestamps (RFC 2018).
pub(crate) const BLOCKS: usize = 3;

/// Bytes of a frame that carries no payload of a record: a request, an announcement, a grant, and the head of an answer
/// or a piece. The header of the product's frames has 64; the records of these have 10 to 60.
pub(crate) const FRAME: u32 = 100;

/// Segments `from..to` of a stream.
pub(crate) type Block = (u32, u32);

/// What a receiver has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ack {
    /// All segments before this one have come.
    pub(crate) next: u32,
    /// Later ones that have, the newest first. Blocks without segments say nothing.
    pub(crate) blocks: [Block; BLOCKS],
    /// Segments that have come twice, since the begin (DSACK, RFC 2883).
    pub(crate) twice: u32,
}

impl Ack {
    /// Its bytes on the wire.
    pub(crate) fn wire(&self) -> u32 {
        match self.blocks.iter().filter(|(from, to)| from < to).count() as u32 {
            0 => HEADERS,
            blocks => HEADERS + SACK_HEAD + blocks * SACK_BLOCK,
        }
    }
}

/// A frame from a client to a brick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// A unit is wanted. `credit`: bytes that may come without an announcement.
    Unit { transfer: u64, credit: usize },
    /// So much of an announced answer may come.
    Grant { transfer: u64, bytes: usize },
}

/// What a packet of a client carries: what it has of the brick's stream, and a frame, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Up {
    pub(crate) number: u32,
    pub(crate) ack: Ack,
    pub(crate) ask: Option<Ask>,
}

impl Up {
    /// Its bytes on the wire.
    pub(crate) fn wire(&self) -> u32 {
        self.ack.wire() + if self.ask.is_some() { FRAME } else { 0 }
    }
}

/// A packet on its way. Small, because most of the time goes into moving them: what a client's packet carries waits at
/// its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packet {
    pub(crate) connection: u32,
    /// Where the ports that are before it stand in the list of ways, and how many they are.
    pub(crate) way: u32,
    pub(crate) hops: u8,
    /// From the client to the brick.
    pub(crate) is_up: bool,
    /// Bytes on the wire.
    pub(crate) wire: u16,
    /// A segment of the brick's stream, or the number of what the client's packet carries.
    pub(crate) number: u32,
}
