//! Which addresses the machine at the other end of a cable has.
//!
//! The question is an ARP probe (RFC 5227, 2.1.1): a request whose sender has no address. It needs no address here and no
//! route there. Linux answers at any port for any address of its own, unless `arp_ignore` is 1 there, as the plan sets it:
//! then only for those of the port that the request comes in at (`arp_ignore` in the kernel's net/ipv4/arp.c).

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::LinkAddr;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, eth, recv, send, socket_with,
};

/// Requests that are sent before answers are read.
const BATCH: usize = 64;
/// Longest wait for one packet.
const POLL: Duration = Duration::from_millis(20);
/// Bytes of a frame: of Ethernet's header, and of ARP for IPv4 behind it (RFC 826).
const HEADER: usize = 14;
const FRAME: usize = HEADER + 28;
/// The type of frame, and what follows up to the operation: Ethernet, IPv4 and the lengths of their addresses.
const TYPE: [u8; 2] = [0x08, 0x06];
const KIND: [u8; 6] = [0, 1, 0x08, 0, 6, 4];
const REQUEST: [u8; 2] = [0, 1];
const REPLY: [u8; 2] = [0, 2];

/// A port that questions leave through.
pub(super) struct Prober {
    socket: OwnedFd,
    mac: [u8; 6],
}

impl Prober {
    /// Opens a port.
    ///
    /// # Errors
    /// Only root may, or the interface is down.
    pub(super) fn open(link: &LinkAddr) -> io::Result<Prober> {
        let socket =
            socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, Some(eth::ARP))?;
        // The address has no protocol: that of the socket stays.
        nix::sys::socket::bind(socket.as_raw_fd(), link)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(POLL))?;
        Ok(Prober { socket, mac: link.addr().unwrap_or_default() })
    }

    /// Those of `addresses` that the other end has, as far as it says so within about `patience` for each 64 of them.
    ///
    /// # Errors
    /// The interface went down.
    pub(super) fn ask(&self, addresses: &[Ipv4Addr], patience: Duration) -> io::Result<BTreeSet<Ipv4Addr>> {
        let mut found = BTreeSet::new();
        for batch in addresses.chunks(BATCH) {
            for &address in batch {
                send(&self.socket, &request(self.mac, address), SendFlags::empty())?;
            }
            let mut open: BTreeSet<Ipv4Addr> = batch.iter().copied().collect();
            let end = Instant::now() + patience;
            while !open.is_empty() && Instant::now() < end {
                let mut frame = [0; 128];
                match recv(&self.socket, &mut frame, RecvFlags::empty()) {
                    Ok((_, length)) => {
                        let held = answer(&frame[..length.min(frame.len())]).filter(|held| open.remove(held));
                        found.extend(held);
                    }
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(found)
    }
}

fn request(mac: [u8; 6], target: Ipv4Addr) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    let parts: [(usize, &[u8]); 7] = [
        (0, &[0xff; 6]),
        (6, &mac),
        (12, &TYPE),
        (HEADER, &KIND),
        (HEADER + 6, &REQUEST),
        (HEADER + 8, &mac),
        (HEADER + 24, &target.octets()),
    ];
    for (at, part) in parts {
        frame[at..at + part.len()].copy_from_slice(part);
    }
    frame
}

/// The address whose holder has answered.
fn answer(frame: &[u8]) -> Option<Ipv4Addr> {
    let is_reply = frame.len() >= FRAME
        && frame[12..14] == TYPE
        && frame[HEADER..HEADER + 6] == KIND
        && frame[HEADER + 6..HEADER + 8] == REPLY;
    let sender = frame.get(HEADER + 14..HEADER + 18)?;
    is_reply.then(|| Ipv4Addr::new(sender[0], sender[1], sender[2], sender[3]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_has_no_sender_and_an_answer_has_one() {
        let target = Ipv4Addr::new(198, 18, 0, 129);
        let mut frame = request([2, 0, 0, 0, 0, 1], target);
        assert_eq!(frame[HEADER + 14..HEADER + 18], [0; 4]);
        assert_eq!(frame[HEADER + 24..], target.octets());
        assert_eq!(answer(&frame), None, "a request is no answer");
        frame[HEADER + 7] = 2;
        frame[HEADER + 14..HEADER + 18].copy_from_slice(&target.octets());
        assert_eq!(answer(&frame), Some(target));
        for length in 0..FRAME {
            assert_eq!(answer(&frame[..length]), None);
        }
    }
}
