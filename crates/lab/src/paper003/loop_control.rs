//! Loop devices as the kernel makes them.

#![allow(unsafe_code, reason = "loop devices are made with ioctls, which no safe function does")]

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

use crate::error::{Result, doing};

// `LOOP_CTL_GET_FREE` and `LOOP_CONFIGURE` of the kernel's loop.h, whose numbers say nothing about their arguments.
nix::ioctl_none_bad!(loop_ctl_get_free, 0x4c82);
nix::ioctl_write_ptr_bad!(loop_configure, 0x4c0a, LoopConfig);

/// Taken apart when it is closed.
const AUTOCLEAR: u32 = 4;
/// Past the page cache of the file.
const DIRECT_IO: u32 = 16;
/// How often another program may take the device that was free.
const TRIES: u32 = 20;

/// `loop_config` of the kernel.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// `loop_info64` of the kernel.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// Makes a free loop device one over the file, and returns its number, and it, open. It is taken apart when nobody has it open.
pub(super) fn attach(file: &File) -> Result<(i32, File)> {
    const MAKING: &str = "make a loop device";
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    let control = options.open("/dev/loop-control").map_err(doing("open /dev/loop-control"))?;
    for _ in 0..TRIES {
        // SAFETY: the descriptor is open, and the request has no argument.
        let number = unsafe { loop_ctl_get_free(control.as_raw_fd()) }.map_err(doing(MAKING))?;
        let open = options.open(format!("/dev/loop{number}")).map_err(doing(MAKING))?;
        let config = configuration(file);
        // SAFETY: the descriptors are open, and the kernel reads nothing but the whole structure.
        match unsafe { loop_configure(open.as_raw_fd(), &config) } {
            Ok(_) => return Ok((number, open)),
            Err(nix::errno::Errno::EBUSY) => {}
            Err(error) => return Err(doing(MAKING)(error)),
        }
    }
    Err(doing(MAKING)("others take each that is free"))
}

fn configuration(file: &File) -> LoopConfig {
    let info = LoopInfo {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: AUTOCLEAR | DIRECT_IO,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    LoopConfig { fd: file.as_raw_fd().cast_unsigned(), block_size: 512, info, reserved: [0; 8] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_large_as_the_kernels() {
        assert_eq!((size_of::<LoopInfo>(), size_of::<LoopConfig>()), (232, 304));
    }
}
