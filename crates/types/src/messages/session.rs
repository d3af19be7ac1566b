//! Frames that belong to a connection and not to what is asked over it: the first ones agree on a wire version, and each side
//! proves that it has the key; later ones carry large payloads in pieces.

use crate::wire::Record;
use crate::{coded_enum, records};

coded_enum! {
    /// What a process is.
    pub enum Role: u8 {
        /// A mount or a tool.
        Client = 1,
        /// A server of a brick.
        Brick = 2,
        /// The metadata service; of several servers, the one that leads.
        Meta = 3,
        /// A metadata server that follows another one. It serves only its like.
        MetaFollower = 4,
    }
}

coded_enum! {
    /// The server that a caller means.
    pub enum Meant: u8 {
        /// Any server of the cluster: a probe of the network.
        Any = 1,
        /// The brick that has the address as one of its own.
        Brick = 2,
        /// A metadata server, under any address that leads to it: people choose the names by which they call it.
        Meta = 3,
        /// The metadata server that has the address as its own: others know it by that, and count its vote.
        MetaMember = 4,
    }
}

impl Meant {
    /// The server to which requests of this kind go.
    pub fn by(kind: u16) -> Meant {
        use super::replica::{Append, Install, TermEnded, Vote};
        match kind {
            Vote::KIND | Append::KIND | Install::KIND | TermEnded::KIND => Meant::MetaMember,
            100..150 => Meant::Brick,
            150..400 => Meant::Meta,
            _ => Meant::Any,
        }
    }
}

records! {
    /// Opens a connection. A caller that does not know its cluster yet sends a cluster id of zeros.
    10 Hello {
        /// Oldest wire version that the caller speaks.
        version_min: u16,
        /// Newest wire version that the caller speaks.
        version_max: u16,
        /// What the caller is.
        role: Role,
        /// Random.
        nonce: [u8; 32],
        /// The server that it means.
        meant: Meant,
        /// The address that it has called.
        address: String,
    } => Welcome;
    /// The answer: the version for this connection. A stranger learns nothing else.
    11 Welcome {
        /// The wire version from here on.
        version: u16,
        /// Random.
        nonce: [u8; 32],
    };
    /// The caller's proof. The server serves no request before it.
    12 Prove {
        /// [`prove`](crate::wire::prove) of the caller.
        proof: [u8; 32],
    } => Proved;
    /// The server has accepted the caller's proof, and gives its own.
    13 Proved {
        /// [`prove`](crate::wire::prove) of the server, over this record with zeros in this place.
        proof: [u8; 32],
        /// The server's cluster.
        cluster: crate::ClusterId,
        /// Payloads of requests of more bytes are large: they are announced while the server is crowded
        /// ([`Flags::CROWDED`](crate::wire::Flags::CROWDED)). The largest number: none are.
        bulk: u32,
        /// Whether the server is crowded now.
        is_crowded: bool,
        /// Where others reach the server, if it says so: all its addresses, joined by [`RAIL`](crate::RAIL).
        name: String,
    };
    /// The receiver of an announced payload allows its sender this many bytes more. The payload has this request id. The pieces are the only
    /// answer. A caller sends a grant as a request: it is about the answer. A server sends one as an answer: it is about the request.
    /// With 0 a caller gives the call up: it sends no further piece of its request, and does not want the answer.
    14 Grant {
        /// Bytes.
        bytes: u32,
    };
    /// The next bytes of an announced payload, as this frame's payload: as a request those of a request, as an answer those of
    /// an answer.
    15 Piece {
        /// Packets that the sender's kernel has sent once more on this connection, and that were really lost, since its start.
        lost: u32,
        /// How often it has waited for a timeout of TCP on it.
        timeouts: u32,
    };
    /// The caller asks for this many zeros at once, without credit, to learn what the network does with them. The connection itself
    /// answers: the server's handler does not see the request. More than [`NET_PROBE_MAX`](crate::limits::NET_PROBE_MAX) are refused.
    16 NetProbe {
        /// Bytes.
        bytes: u32,
    } => NetProbed of bytes;
    /// The bytes, as this frame's payload.
    17 NetProbed {
        /// Packets that the server's kernel has sent once more on this connection, since its start, without those of which it
        /// knows by now that they had arrived.
        resent: u32,
    };
}
