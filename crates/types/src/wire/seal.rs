//! Authenticates the frames of one direction of a connection, with a key that only its two ends have.
//!
//! A tag is AEGIS-128X4 as a MAC over the number of the frame (8 bytes, little-endian), header, record and payload. The numbers are not
//! sent: both ends count. So a frame that was changed, repeated, left out, moved or sent back to its sender has a wrong tag.
//! Source: draft-irtf-cfrg-aegis-aead, section "AEGISMAC"; why this one: docs/decisions/0044.

use aegis::aegis128x4::Aegis128X4Mac;

use crate::cost;

/// Bytes of a tag.
pub const TAG_LEN: usize = 16;

/// What authenticates a frame.
pub type Tag = [u8; TAG_LEN];

/// Most bytes of small parts that are put together: the MAC loads and stores its state, a kilobyte, for each part.
const TOGETHER: usize = 512;

/// The keyed MAC of one direction of a connection, and the number of its next frame.
pub struct Seal {
    /// As it is before a frame. In a box: it is large, and stays where it is.
    mac: Box<Aegis128X4Mac<TAG_LEN>>,
    next: u64,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seal").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Seal {
    /// Of the first frame. The first half of the secret is the key.
    pub(super) fn new(secret: [u8; 32]) -> Seal {
        let mut key = [0; 16];
        key.copy_from_slice(&secret[..16]);
        Seal { mac: Box::new(Aegis128X4Mac::new(&key)), next: 0 }
    }

    /// The tag of the next frame, which has these bytes. Their lengths must follow from the bytes.
    pub fn tag<const N: usize>(&mut self, parts: [&[u8]; N]) -> Tag {
        let mut together = [0; TOGETHER];
        let mut len = size_of::<u64>();
        together[..len].copy_from_slice(&self.next.to_le_bytes());
        self.next += 1;
        for part in parts {
            cost::bytes(part.len());
            if len + part.len() <= TOGETHER {
                together[len..len + part.len()].copy_from_slice(part);
                len += part.len();
            } else {
                self.mac.update(&together[..len]);
                self.mac.update(part);
                len = 0;
            }
        }
        self.mac.update(&together[..len]);
        self.mac.finalize_and_reset()
    }

    /// Whether the next frame has these bytes and this tag. Compares in constant time.
    #[must_use]
    pub fn matches<const N: usize>(&mut self, parts: [&[u8]; N], tag: &Tag) -> bool {
        let own = self.tag(parts);
        std::hint::black_box(own.iter().zip(tag).fold(0, |sum, (own, tag)| sum | (own ^ tag))) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mac_is_that_of_the_draft() {
        // From the test vectors of the draft: AEGISMAC-128X4.
        let key = [0x10, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let nonce = [0x10, 0, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let data: [u8; 35] = std::array::from_fn(|i| i as u8);
        let mut mac = Aegis128X4Mac::<16>::new_with_nonce(&key, &nonce);
        mac.update(&data[..7]);
        mac.update(&data[7..]);
        let hex: String = mac.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "c45a98fd9ab8956ce616eb008cfe4e53");
    }

    /// How a frame is cut into parts is not in its tag; its number is.
    #[test]
    fn a_tag_is_the_mac_of_the_number_and_all_parts() {
        let bytes: Vec<u8> = (0..3 * TOGETHER).map(|i| (i * 31 % 253) as u8).collect();
        let mut seal = Seal::new([7; 32]);
        for number in 0..60_u64 {
            let (first, second) = (number as usize * 9, number as usize * 13 + 300);
            let mut mac = Aegis128X4Mac::<TAG_LEN>::new(&[7; 16]);
            mac.update(&number.to_le_bytes());
            mac.update(&bytes);
            let parts = [&bytes[..first], &bytes[first..second], &bytes[second..], &[]];
            assert_eq!(seal.tag(parts), mac.finalize(), "frame {number}");
        }
    }

    #[test]
    fn only_the_next_frame_as_it_was_sent_is_accepted() {
        let seal = || Seal::new([7; 32]);
        let (mut sender, mut receiver) = (seal(), seal());
        let (first, second) = (sender.tag([b"head", b"one"]), sender.tag([b"head", b"two"]));
        assert!(receiver.matches([b"head", b"one"], &first));
        assert!(receiver.matches([b"head", b"two"], &second));
        let refuses = |skipped: usize, bytes: &[u8], tag: &Tag| {
            let mut receiver = seal();
            for _ in 0..skipped {
                receiver.tag([]);
            }
            !receiver.matches([b"head", bytes], tag)
        };
        assert!(refuses(1, b"one", &first), "repeated");
        assert!(refuses(0, b"two", &second), "left out or moved");
        assert!(refuses(0, b"onf", &first), "changed");
        for bit in 0..8 * TAG_LEN {
            let mut other = first;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(refuses(0, b"one", &other), "another tag");
        }
        let mut reflected = Seal::new([8; 32]);
        assert!(
            !reflected.matches([b"head", b"one"], &first),
            "sent back: the other direction has another key"
        );
    }
}
