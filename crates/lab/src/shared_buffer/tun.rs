//! Packets as bytes: a tun device.

#![allow(unsafe_code, reason = "a tun device is chosen with an ioctl, which no safe function does")]

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc::{self, c_char, c_int, c_short};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::sandbox::SANDBOX_DIR;

// `TUNSETIFF` of the kernel's if_tun.h. It is declared for an int, and takes an ifreq.
nix::ioctl_write_ptr_bad!(tun_set_iff, nix::request_code_write!(b'T', 202, size_of::<c_int>()), libc::ifreq);

/// The file by which the kernel makes tun devices, as a new one.
fn made() -> io::Result<PathBuf> {
    let path = Path::new(SANDBOX_DIR).join("tun");
    match mknod(&path, SFlag::S_IFCHR, Mode::S_IRUSR | Mode::S_IWUSR, makedev(10, 200)) {
        Ok(()) | Err(Errno::EEXIST) => Ok(path),
        Err(error) => Err(error.into()),
    }
}

/// Makes the device with this name in the network namespace of the calling thread; it is gone when the file is closed. A read returns
/// one IP packet, or `WouldBlock`; a write sends one.
pub(super) fn open(name: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let file = match options.open("/dev/net/tun") {
        // A container may have none of its own.
        Err(error) if error.kind() == ErrorKind::NotFound => options.open(made()?)?,
        opened => opened?,
    };
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
