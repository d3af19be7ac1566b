//! The first process of a lab's sandbox. It starts the server, and collects what has ended, as the first process of a machine
//! does: programs that people start at nodes leave children.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::Pid;

use crate::error::{Result, doing};
use crate::sandbox::{end_all, enter};

/// Makes the control socket, enters the sandbox with `size` bytes of RAM for files, and runs `server` there, whose standard
/// input is the socket. Ends with it, and all others with them.
///
/// # Errors
/// The socket, the sandbox or the server cannot be made.
pub fn run(size: u64, socket: &Path, server: &mut Command) -> Result<()> {
    // Before the machine's /run is out of sight.
    let listener = UnixListener::bind(socket).map_err(doing(format!("listen at {}", socket.display())))?;
    enter(size)?;
    let server = server.stdin(OwnedFd::from(listener)).spawn().map_err(doing("start the lab's server"))?;
    let server = Pid::from_raw(server.id().cast_signed());
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) if pid == server => end_all(),
            _ => {}
        }
    }
}
