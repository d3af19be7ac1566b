//! The handshake at the start of a connection, for both sides.
//!
//! ```text
//! caller                                  answerer
//!   | Hello { versions, role, nonce }  ->    |  header: the caller's cluster, or zeros
//!   |    <-  Welcome { cluster, nonce, proof }  or Refused
//!   | Prove { proof }                  ->    |
//!   |    <-  Proved { bulk, is_crowded }        or Refused
//! ```

use std::io;

use types::messages::Refused;
use types::messages::session::{Hello, Prove, Proved, Role, Welcome};
use types::wire::{self, Flags, HeaderError, Record, VERSION, VERSION_MIN, prove};
use types::{Buf, ClusterId, Epoch, Refusal};

use super::{CallError, Identity};
use crate::{Frame, Receiver, Sender, World};

/// How long the handshake may take, in microseconds.
pub(super) const HANDSHAKE_US: u64 = 5_000_000;
/// Most bytes of a frame of the handshake, about ten times what it needs.
const HANDSHAKE_MAX: usize = 1 << 10;

fn frame<R: Record>(record: &R, cluster: ClusterId, flags: Flags) -> Frame {
    Frame::new(R::KIND, 0, cluster, Epoch(0), flags, wire::to_bytes(record), Buf::empty())
}

/// Compares in constant time.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b))) == 0
}

fn nonce(world: &World) -> [u8; 32] {
    let mut nonce = [0; 32];
    world.random_bytes(&mut nonce);
    nonce
}

/// What large requests need on a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bulk {
    /// Requests with more bytes of payload are large.
    pub(super) bytes: usize,
    /// Whether they have to be announced now.
    pub(super) is_crowded: bool,
}

/// What a caller has heard of a server.
pub(super) struct Heard {
    pub(super) cluster: ClusterId,
    /// What large requests need.
    pub(super) bulk: Bulk,
    /// All its addresses, if it says them.
    pub(super) name: String,
}

/// The caller's side of the handshake.
pub(super) async fn initiate(
    world: &World,
    identity: &Identity,
    sender: &mut Sender,
    receiver: &mut Receiver,
) -> Result<Heard, CallError> {
    let asked = nonce(world);
    let hello = Hello { version_min: VERSION_MIN, version_max: VERSION, role: identity.role, nonce: asked };
    let welcome: Welcome = ask(identity.cluster, &hello, sender, receiver).await?;
    if !(VERSION_MIN..=VERSION).contains(&welcome.version) {
        return Err(CallError::Refused(Refusal::Unsupported));
    }
    if identity.cluster != ClusterId::default() && identity.cluster != welcome.cluster {
        return Err(CallError::WrongCluster { theirs: welcome.cluster });
    }
    let theirs = prove(&identity.key, false, &asked, &welcome.nonce, welcome.cluster);
    if !same(&theirs, &welcome.proof) {
        return Err(CallError::WrongKey);
    }
    let proof = prove(&identity.key, true, &asked, &welcome.nonce, welcome.cluster);
    let Proved { bulk, is_crowded, name } = ask(welcome.cluster, &Prove { proof }, sender, receiver).await?;
    Ok(Heard { cluster: welcome.cluster, bulk: Bulk { bytes: bulk as usize, is_crowded }, name })
}

/// Sends a record and reads the answer.
async fn ask<Q: Record, A: Record>(
    cluster: ClusterId,
    record: &Q,
    sender: &mut Sender,
    receiver: &mut Receiver,
) -> Result<A, CallError> {
    sender.send(frame(record, cluster, Flags::REQUEST)).await.map_err(|_| CallError::Unreachable)?;
    let answer = match receiver.recv_within(HANDSHAKE_MAX).await {
        Ok(Some(answer)) => answer,
        Err(error) if is_other_version(&error) => return Err(CallError::Refused(Refusal::Unsupported)),
        _ => return Err(CallError::Unreachable),
    };
    let theirs = answer.header.cluster;
    if answer.header.flags.is_refusal() {
        let refused = wire::from_bytes::<Refused>(&answer.record).map_err(|_| CallError::BadReply)?;
        return Err(match refused.reason {
            Refusal::AccessDenied => CallError::WrongKey,
            Refusal::Unknown => CallError::WrongCluster { theirs },
            reason => CallError::Refused(reason),
        });
    }
    if answer.header.kind != A::KIND {
        return Err(CallError::BadReply);
    }
    wire::from_bytes(&answer.record).map_err(|_| CallError::BadReply)
}

fn is_other_version(error: &io::Error) -> bool {
    let header = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(header, Some(HeaderError::Version(_)))
}

/// Why a server rejects a caller.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    /// The caller went away, or sent something that is not a handshake.
    #[error("no handshake: {0}")]
    Silent(io::Error),
    /// The server refused, and has sent the reason.
    #[error("refused: {0}")]
    Refused(Refusal),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        HandshakeError::Silent(error)
    }
}

/// The server's side of the handshake. Returns the caller's role once it has proved that it knows the key.
pub(super) async fn respond(
    world: &World,
    identity: &Identity,
    bulk: Bulk,
    sender: &mut Sender,
    receiver: &mut Receiver,
) -> Result<Role, HandshakeError> {
    let heard = hear(world, identity, bulk, sender, receiver).await;
    if let Err(HandshakeError::Refused(reason)) = heard {
        // The connection ends even if this message cannot be sent.
        let refused = frame(&Refused { reason }, identity.cluster, Flags::REFUSED);
        let _ = sender.send(refused).await;
    }
    heard
}

async fn hear(
    world: &World,
    identity: &Identity,
    bulk: Bulk,
    sender: &mut Sender,
    receiver: &mut Receiver,
) -> Result<Role, HandshakeError> {
    let (header_cluster, hello) = next::<Hello>(receiver).await?;
    if hello.version_max < VERSION_MIN || hello.version_min > VERSION {
        return Err(HandshakeError::Refused(Refusal::Unsupported));
    }
    if header_cluster != ClusterId::default() && header_cluster != identity.cluster {
        return Err(HandshakeError::Refused(Refusal::Unknown));
    }
    let answered = nonce(world);
    let welcome = Welcome {
        version: VERSION.min(hello.version_max),
        role: identity.role,
        cluster: identity.cluster,
        nonce: answered,
        proof: prove(&identity.key, false, &hello.nonce, &answered, identity.cluster),
    };
    sender.send(frame(&welcome, identity.cluster, Flags::REPLY)).await?;
    let (_, Prove { proof }) = next::<Prove>(receiver).await?;
    if !same(&proof, &prove(&identity.key, true, &hello.nonce, &answered, identity.cluster)) {
        return Err(HandshakeError::Refused(Refusal::AccessDenied));
    }
    // Metadata servers are each other's only callers until one leads.
    if identity.role == Role::MetaFollower && !matches!(hello.role, Role::Meta | Role::MetaFollower) {
        return Err(HandshakeError::Refused(Refusal::NotLeader));
    }
    let proved = Proved {
        bulk: u32::try_from(bulk.bytes).unwrap_or(u32::MAX),
        is_crowded: bulk.is_crowded,
        name: identity.name.clone(),
    };
    sender.send(frame(&proved, identity.cluster, Flags::REPLY)).await?;
    Ok(hello.role)
}

/// The next frame, which must hold an `R`, and the cluster in its header.
async fn next<R: Record>(receiver: &mut Receiver) -> Result<(ClusterId, R), HandshakeError> {
    let frame = match receiver.recv_within(HANDSHAKE_MAX).await {
        Ok(Some(frame)) => frame,
        Ok(None) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        Err(error) if is_other_version(&error) => return Err(HandshakeError::Refused(Refusal::Unsupported)),
        Err(error) => return Err(error.into()),
    };
    if frame.header.kind != R::KIND {
        return Err(HandshakeError::Refused(Refusal::Malformed));
    }
    let record = wire::from_bytes(&frame.record).map_err(|_| HandshakeError::Refused(Refusal::Malformed))?;
    Ok((frame.header.cluster, record))
}
