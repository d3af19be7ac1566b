//! A client that does not reach a brick asks it by way of another one.

use crate::{BrickId, records};

records! {
    names REQUESTS;
    /// Client to any brick, the proxy: ask another brick this, and bring back what it answers. The frame's epoch and payload are
    /// those of the request.
    ///
    /// A proxy decides nothing. It passes on what clients ask primaries: [`Write`](super::brick::Write),
    /// [`Sync`](super::brick::Sync), [`ReadStripe`](super::brick::ReadStripe), [`FindBytes`](super::brick::FindBytes) and
    /// [`FindStripes`](super::brick::FindStripes). What the brick refuses is refused. `Unreached`: the proxy does not reach the
    /// brick either. `NotServing`: it has no room.
    144 Proxy {
        /// The brick that is meant.
        brick: BrickId,
        /// Kind of the request.
        kind: u16,
        /// The request's record.
        record: Vec<u8>,
        /// Most bytes of the answer's payload.
        reply_bytes: u32,
        /// How long the brick has for its answer, in microseconds.
        patience_us: u64,
    } => Proxied of reply_bytes;
    /// What the brick has answered. The payload is that of its answer.
    145 Proxied {
        /// The answer's record.
        record: Vec<u8>,
    };
}
