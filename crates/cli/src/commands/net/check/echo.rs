//! Echo requests (RFC 792) to many addresses at once, each with a time to live and a size of its own.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

/// Requests that are sent before answers are read.
const BATCH: usize = 64;
/// Longest wait for one packet.
const POLL: Duration = Duration::from_millis(20);
/// Bytes of the headers: IPv4 without options, and ICMP.
const IP_HEADER: usize = 20;
const ICMP_HEADER: usize = 8;
const REQUEST: u8 = 8;
const REPLY: u8 = 0;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Question {
    pub(super) to: Ipv4Addr,
    /// How many hops the request may go: so many machines handle it, the target counted.
    pub(super) hops: u32,
    /// Bytes of the packet, headers counted.
    pub(super) size: usize,
}

/// A socket for echo requests.
pub(super) struct Echo {
    /// The calls of a UDP socket serve a raw one too.
    socket: UdpSocket,
    id: u16,
}

impl Echo {
    /// Opens a socket; what it sends comes from `source`.
    ///
    /// # Errors
    /// Only root may, or the address is not of this machine.
    pub(super) fn open(source: Option<Ipv4Addr>) -> io::Result<Echo> {
        let socket =
            socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::ICMP))?;
        if let Some(source) = source {
            rustix::net::bind(&socket, &SocketAddrV4::new(source, 0))?;
        }
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(POLL))?;
        Ok(Echo { socket, id: std::process::id() as u16 })
    }

    /// Those of `questions` that are answered, within about `patience` for each 64 of them.
    ///
    /// # Errors
    /// The socket failed. That there is no way to a target is no error, but no answer.
    pub(super) fn ask(&self, questions: &[Question], patience: Duration) -> io::Result<BTreeSet<Question>> {
        let mut answered = BTreeSet::new();
        for batch in questions.chunks(BATCH) {
            let mut open = BTreeSet::new();
            for (question, sequence) in batch.iter().zip(0..) {
                self.socket.set_ttl(question.hops)?;
                let packet = request(self.id, sequence, question.size);
                // No way, no neighbour that answers: there will be no answer.
                if self.socket.send_to(&packet, (question.to, 0)).is_ok() {
                    open.insert(sequence);
                }
            }
            let end = Instant::now() + patience;
            let mut packet = vec![0; 1 << 16];
            while !open.is_empty() && Instant::now() < end {
                let (length, from) = match self.socket.recv_from(&mut packet) {
                    Ok((length, SocketAddr::V4(from))) => (length, *from.ip()),
                    Ok(_) => continue,
                    Err(error) if is_pause(&error) => continue,
                    Err(error) => return Err(error),
                };
                let Some(sequence) = answer(&packet[..length], self.id) else { continue };
                let question = batch.get(usize::from(sequence)).filter(|question| question.to == from);
                if let Some(question) = question
                    && open.remove(&sequence)
                {
                    answered.insert(*question);
                }
            }
        }
        Ok(answered)
    }
}

/// Errors of a socket that tell of one packet only, or of none.
fn is_pause(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, Interrupted, NetworkUnreachable, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted | HostUnreachable | NetworkUnreachable)
}

/// A request of `size` bytes with the header of IP, which the kernel adds.
fn request(id: u16, sequence: u16, size: usize) -> Vec<u8> {
    let mut packet = vec![0; size.saturating_sub(IP_HEADER).max(ICMP_HEADER)];
    packet[0] = REQUEST;
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    let sum = checksum(&packet);
    packet[2..4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The sequence number of an answer to us; `packet` begins with the header of IP.
fn answer(packet: &[u8], id: u16) -> Option<u16> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    let icmp = packet.get(header..)?;
    let is_ours = icmp.len() >= ICMP_HEADER && icmp[0] == REPLY && icmp[4..6] == id.to_be_bytes();
    is_ours.then(|| u16::from_be_bytes([icmp[6], icmp[7]]))
}

/// The checksum of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_sums_up_and_its_answer_is_known() {
        for size in [0, 28, 29, 1500] {
            let packet = request(0xabcd, 77, size);
            assert_eq!(checksum(&packet), 0, "{size}");
            assert_eq!(packet.len(), size.max(IP_HEADER + ICMP_HEADER) - IP_HEADER);
        }
        let mut reply = vec![0x45; IP_HEADER];
        reply.extend(request(0xabcd, 77, 28));
        assert_eq!(answer(&reply, 0xabcd), None, "a request is no answer");
        reply[IP_HEADER] = REPLY;
        assert_eq!(answer(&reply, 0xabcd), Some(77));
        assert_eq!(answer(&reply, 0xabce), None);
        for length in 0..reply.len() {
            assert_eq!(answer(&reply[..length], 0xabcd), None);
        }
    }

    /// The example of RFC 1071, 3.
    #[test]
    fn the_checksum_is_that_of_the_book() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }
}
