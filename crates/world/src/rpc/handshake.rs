//! The handshake at the start of a connection, for both sides.
//!
//! ```text
//! caller                                  server
//!   | Hello { versions, role, nonce, meant, address } ->  |  header: the caller's cluster, or zeros
//!   |               <-  Welcome { version, nonce }           or Refused; of another version: the nearest one, and the end
//!   | Prove { proof }                              ->  |
//!   |   <-  Proved { proof, cluster, bulk, is_crowded, name } or Refused
//! ```
//!
//! The proofs cover everything before them ([`types::wire::Transcript`]), so nobody on the way can change a word of it. The caller
//! says which server it means: somebody who has the port of a server that is down can pass the handshake on to another server, which
//! then refuses. He can also pass it on to the right one. Then he can pass on what both say, and nothing of his own: after the
//! handshake every frame has a tag, under a key that both ends make of the cluster's key and the transcript
//! ([`types::wire::Seal`]). In a cluster without a key frames have checksums instead, and everybody on the machine may call.
//!
//! Until the caller has proved the key, a server tells it the wire version, and nothing else.

use std::io;

use types::messages::Refused;
use types::messages::session::{Hello, Meant, Prove, Proved, Role, Welcome};
use types::wire::{self, Flags, HeaderError, Record, Side, Transcript, VERSION, VERSION_MIN, prove, seal};
use types::{Buf, ClusterId, Epoch, RAIL, Refusal};

use super::{CallError, Identity, spoken};
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

/// The server that a caller means.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) meant: Meant,
    /// The address that is called.
    pub(super) address: &'a str,
}

impl Target<'_> {
    /// Whether that is a server with this identity. A brick, and a metadata server as others of its kind know it, is called at one
    /// of its own addresses.
    fn is(self, server: &Identity) -> bool {
        let is_meta = matches!(server.role, Role::Meta | Role::MetaFollower);
        let is_its_own = || server.name.split(RAIL).any(|own| own == self.address);
        match self.meant {
            Meant::Any => true,
            Meant::Brick => server.role == Role::Brick && is_its_own(),
            Meant::Meta => is_meta,
            Meant::MetaMember => is_meta && is_its_own(),
        }
    }
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
    target: Target<'_>,
    sender: &mut Sender,
    receiver: &mut Receiver,
) -> Result<Heard, CallError> {
    let hello = Hello {
        version_min: VERSION_MIN,
        version_max: VERSION,
        role: identity.role,
        nonce: nonce(world),
        meant: target.meant,
        address: target.address.to_owned(),
    };
    let expected = identity.cluster;
    let (welcome, welcomed): (Welcome, _) = ask(expected, &hello, sender, receiver).await?;
    if !(VERSION_MIN..=VERSION).contains(&welcome.version) {
        return Err(CallError::OtherVersion { theirs: welcome.version });
    }
    let transcript = Transcript::of(expected, &wire::to_bytes(&hello), &welcomed);
    let proof = prove(&identity.key, Side::Caller, &transcript, &[]);
    let (proved, said): (Proved, _) = match ask(expected, &Prove { proof }, sender, receiver).await {
        Err(CallError::Refused(Refusal::OtherServer)) => {
            let (address, meant) = (target.address, target.meant);
            tracing::warn!(address, ?meant, "the address leads to another server of the cluster");
            return Err(CallError::Unreachable);
        }
        answer => answer?,
    };
    if !same(&proof_of_server(identity, &transcript, said), &proved.proof) {
        return Err(CallError::WrongKey);
    }
    let Proved { cluster, bulk, is_crowded, name, .. } = proved;
    if expected != ClusterId::default() && expected != cluster {
        return Err(CallError::WrongCluster { theirs: cluster });
    }
    if let Some(seal) = seal(&identity.key, Side::Caller, &transcript) {
        sender.seal(seal);
    }
    if let Some(seal) = seal(&identity.key, Side::Server, &transcript) {
        receiver.seal(seal);
    }
    Ok(Heard { cluster, bulk: Bulk { bytes: bulk as usize, is_crowded }, name })
}

/// The proof that a server with the key gives with the bytes of a [`Proved`], in which the proof comes first.
fn proof_of_server(identity: &Identity, transcript: &Transcript, mut said: Vec<u8>) -> [u8; 32] {
    said.iter_mut().take(32).for_each(|byte| *byte = 0);
    prove(&identity.key, Side::Server, transcript, &said)
}

/// Sends a record and reads the answer, also as its bytes: a proof covers fields of later builds too.
async fn ask<Q: Record, A: Record>(
    cluster: ClusterId,
    record: &Q,
    sender: &mut Sender,
    receiver: &mut Receiver,
) -> Result<(A, Vec<u8>), CallError> {
    sender.send(frame(record, cluster, Flags::REQUEST)).await.map_err(|_| CallError::Unreachable)?;
    let answer = match receiver.recv_within(HANDSHAKE_MAX).await {
        Ok(Some(answer)) => answer,
        Err(error) => return Err(other_version(&error).unwrap_or(CallError::Unreachable)),
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
    let record = wire::from_bytes(&answer.record).map_err(|_| CallError::BadReply)?;
    Ok((record, answer.record))
}

/// The version of a frame that this build cannot read.
fn version_of(error: &io::Error) -> Option<u16> {
    match error.get_ref()?.downcast_ref()? {
        HeaderError::Version(theirs) => Some(*theirs),
        _ => None,
    }
}

fn other_version(error: &io::Error) -> Option<CallError> {
    version_of(error).map(|theirs| CallError::OtherVersion { theirs })
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
    /// The caller speaks none of the server's wire versions. It has heard the nearest one.
    #[error("the caller speaks wire versions {oldest} to {newest}, this server {}", spoken())]
    OtherVersion {
        /// The caller's oldest version.
        oldest: u16,
        /// The caller's newest version.
        newest: u16,
    },
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
    let mut has_proved = false;
    let heard = hear(world, identity, bulk, sender, receiver, &mut has_proved).await;
    if let Err(HandshakeError::Refused(reason)) = heard {
        // A stranger does not learn the cluster. The connection ends even if this message cannot be sent.
        let cluster = if has_proved { identity.cluster } else { ClusterId::default() };
        let refused = frame(&Refused { reason }, cluster, Flags::REFUSED);
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
    has_proved: &mut bool,
) -> Result<Role, HandshakeError> {
    let (expected, hello, said) = next::<Hello>(receiver).await?;
    let (oldest, newest) = (hello.version_min, hello.version_max);
    let welcome = Welcome { version: newest.clamp(VERSION_MIN, VERSION), nonce: nonce(world) };
    sender.send(frame(&welcome, ClusterId::default(), Flags::REPLY)).await?;
    if !(oldest..=newest).contains(&welcome.version) {
        return Err(HandshakeError::OtherVersion { oldest, newest });
    }
    let transcript = Transcript::of(expected, &said, &wire::to_bytes(&welcome));
    let (_, Prove { proof }, _) = next::<Prove>(receiver).await?;
    if !same(&proof, &prove(&identity.key, Side::Caller, &transcript, &[])) {
        return Err(HandshakeError::Refused(Refusal::AccessDenied));
    }
    *has_proved = true;
    if expected != ClusterId::default() && expected != identity.cluster {
        return Err(HandshakeError::Refused(Refusal::Unknown));
    }
    if !(Target { meant: hello.meant, address: &hello.address }).is(identity) {
        let (address, meant, name) = (&*hello.address, hello.meant, &*identity.name);
        tracing::warn!(address, ?meant, name, "a caller means another server: turned away");
        return Err(HandshakeError::Refused(Refusal::OtherServer));
    }
    // Metadata servers are each other's only callers until one leads.
    if identity.role == Role::MetaFollower && !matches!(hello.role, Role::Meta | Role::MetaFollower) {
        return Err(HandshakeError::Refused(Refusal::NotLeader));
    }
    let mut proved = Proved {
        proof: [0; 32],
        cluster: identity.cluster,
        bulk: u32::try_from(bulk.bytes).unwrap_or(u32::MAX),
        is_crowded: bulk.is_crowded,
        name: identity.name.clone(),
    };
    proved.proof = proof_of_server(identity, &transcript, wire::to_bytes(&proved));
    sender.send(frame(&proved, identity.cluster, Flags::REPLY)).await?;
    if let Some(seal) = seal(&identity.key, Side::Server, &transcript) {
        sender.seal(seal);
    }
    if let Some(seal) = seal(&identity.key, Side::Caller, &transcript) {
        receiver.seal(seal);
    }
    Ok(hello.role)
}

/// The next frame, which must hold an `R`: the cluster in its header, the record, and the record's bytes.
async fn next<R: Record>(receiver: &mut Receiver) -> Result<(ClusterId, R, Vec<u8>), HandshakeError> {
    let frame = match receiver.recv_within(HANDSHAKE_MAX).await {
        Ok(Some(frame)) => frame,
        Ok(None) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        Err(error) if version_of(&error).is_some() => {
            return Err(HandshakeError::Refused(Refusal::Unsupported));
        }
        Err(error) => return Err(error.into()),
    };
    if frame.header.kind != R::KIND {
        return Err(HandshakeError::Refused(Refusal::Malformed));
    }
    let record = wire::from_bytes(&frame.record).map_err(|_| HandshakeError::Refused(Refusal::Malformed))?;
    Ok((frame.header.cluster, record, frame.record))
}
