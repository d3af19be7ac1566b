//! Packets as bytes: a tun device that exists already.

#![allow(unsafe_code, reason = "a tun device is chosen with an ioctl, which no safe function does")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::libc::{self, c_char, c_int, c_short};

// `TUNSETIFF` of the kernel's if_tun.h. It is declared for an int, and takes an ifreq.
nix::ioctl_write_ptr_bad!(tun_set_iff, nix::request_code_write!(b'T', 202, size_of::<c_int>()), libc::ifreq);

/// Opens the device with this name in the network namespace of the calling thread. A read returns one IP packet, or
/// `WouldBlock`; a write sends one.
pub(super) fn open(name: &str) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as c_short;
    let mut request =
        libc::ifreq { ifr_name: [0; _], ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags } };
    // The last byte stays 0.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    // SAFETY: the descriptor is open, and the kernel reads and writes nothing but the whole ifreq that `request` is.
    unsafe { tun_set_iff(file.as_raw_fd(), &request) }?;
    Ok(file)
}
