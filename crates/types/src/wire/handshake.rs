//! Proofs of the cluster key, and the keys of a connection's frames. Each side shows that it knows the key without sending it.
//!
//! Everything that both sides say before a proof is its transcript: the cluster that the caller expects, its versions, role and
//! nonce, the server that it means, and the server's version and nonce. The proof of a side is `HMAC-SHA-256(key, "shoal proof" ||
//! side || transcript || what the side says with it)`. Because of the byte for the side, the proof of one side cannot be used as
//! that of the other. Because of the transcript, a proof is worth nothing at another server than the one that the caller meant.
//! The keys of the frames are made of the same transcript, once for each direction. Source: RFC 2104, RFC 5869 (labels).

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use super::Seal;
use crate::ClusterId;

/// The secret that all processes of a cluster share.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub [u8; 32]);

impl Key {
    /// Stands for the key of a cluster without a key. Such a cluster may listen on loopback only.
    pub const OPEN: Key = Key([0; 32]);
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Key::OPEN { "Key(open)" } else { "Key(secret)" })
    }
}

impl std::str::FromStr for Key {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Key, Self::Err> {
        const BAD: &str = "a cluster key has 64 hexadecimal digits";
        let text = text.trim();
        if text.len() != 64 || !text.is_ascii() {
            return Err(BAD);
        }
        let mut key = [0; 32];
        for (i, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| BAD)?;
        }
        Ok(Key(key))
    }
}

/// A proof that its sender knows the key.
pub type Proof = [u8; 32];

/// A side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The one that has connected.
    Caller = 1,
    /// The one that has accepted.
    Server = 2,
}

/// What both sides have said before the proofs, as one sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transcript([u8; 32]);

impl Transcript {
    /// Of the cluster that the caller expects (zeros: any), and the records of [`Hello`](crate::messages::session::Hello) and
    /// [`Welcome`](crate::messages::session::Welcome).
    pub fn of(expected: ClusterId, hello: &[u8], welcome: &[u8]) -> Transcript {
        let mut sum = Sha256::new();
        sum.update(expected.0);
        for part in [hello, welcome] {
            sum.update((part.len() as u64).to_le_bytes());
            sum.update(part);
        }
        Transcript(sum.finalize().into())
    }
}

fn keyed(key: &Key, label: &[u8], side: Side, transcript: &Transcript, said: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.0).expect("HMAC takes a key of any length");
    mac.update(label);
    mac.update(&[side as u8]);
    mac.update(&transcript.0);
    mac.update(said);
    mac.finalize().into_bytes().into()
}

/// The proof of a side, which also proves what it says with it.
pub fn prove(key: &Key, side: Side, transcript: &Transcript, said: &[u8]) -> Proof {
    keyed(key, b"shoal proof", side, transcript, said)
}

/// What authenticates the frames that a side sends after the handshake. [`None`] for a cluster without a key, where nobody has a
/// secret.
pub fn seal(key: &Key, sender: Side, transcript: &Transcript) -> Option<Seal> {
    (*key != Key::OPEN).then(|| Seal::new(keyed(key, b"shoal frames", sender, transcript, &[])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_depends_on_everything() {
        let key = Key([1; 32]);
        let cluster = ClusterId([2; 16]);
        let transcript = Transcript::of(cluster, b"hello", b"welcome");
        let proof = prove(&key, Side::Caller, &transcript, b"said");
        assert_ne!(proof, prove(&key, Side::Server, &transcript, b"said"));
        assert_ne!(proof, prove(&Key::OPEN, Side::Caller, &transcript, b"said"));
        assert_ne!(proof, prove(&key, Side::Caller, &transcript, b"more"));
        let others = [
            Transcript::of(ClusterId([0; 16]), b"hello", b"welcome"),
            Transcript::of(cluster, b"hellp", b"welcome"),
            Transcript::of(cluster, b"hello", b"welcomf"),
            Transcript::of(cluster, b"hellow", b"elcome"),
        ];
        for other in others {
            assert_ne!(proof, prove(&key, Side::Caller, &other, b"said"));
        }
        assert_eq!(format!("{key:?}"), "Key(secret)");
    }

    #[test]
    fn the_directions_of_a_connection_and_other_connections_have_other_keys() {
        let key = Key([1; 32]);
        let tag = |side, hello: &[u8]| {
            let transcript = Transcript::of(ClusterId([2; 16]), hello, b"welcome");
            seal(&key, side, &transcript).map(|mut seal| seal.tag([b"frame"]))
        };
        assert_ne!(tag(Side::Caller, b"a"), tag(Side::Server, b"a"));
        assert_ne!(tag(Side::Caller, b"a"), tag(Side::Caller, b"b"));
        assert_eq!(tag(Side::Caller, b"a"), tag(Side::Caller, b"a"));
        assert!(seal(&Key::OPEN, Side::Caller, &Transcript([0; 32])).is_none());
    }
}
