//! Proof of the cluster key: each side shows that it knows the key without sending it.
//!
//! Both sides send a nonce; each then sends `HMAC-SHA-256(key, role || caller's nonce || server's nonce || cluster
//! id)`. Because of the role byte, the proof of one side cannot be replayed as that of the other. Source: RFC 2104.

use hmac::{Hmac, Mac};
use sha2::Sha256;

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

/// The proof of the caller (`asker`) or of the server, over both nonces and the cluster id.
pub fn prove(key: &Key, asker: bool, asked: &[u8; 32], answered: &[u8; 32], cluster: ClusterId) -> Proof {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.0).expect("HMAC takes a key of any length");
    mac.update(&[u8::from(asker)]);
    mac.update(asked);
    mac.update(answered);
    mac.update(&cluster.0);
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_depends_on_everything() {
        let key = Key([1; 32]);
        let cluster = ClusterId([2; 16]);
        let proof = prove(&key, true, &[3; 32], &[4; 32], cluster);
        assert_ne!(proof, prove(&key, false, &[3; 32], &[4; 32], cluster));
        assert_ne!(proof, prove(&Key::OPEN, true, &[3; 32], &[4; 32], cluster));
        assert_ne!(proof, prove(&key, true, &[4; 32], &[3; 32], cluster));
        assert_ne!(proof, prove(&key, true, &[3; 32], &[4; 32], ClusterId([0; 16])));
        assert_eq!(format!("{key:?}"), "Key(secret)");
    }
}
