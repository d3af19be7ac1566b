//! Namespaces that the kernel removes when their owner ends, for any reason.
//!
//! ```text
//!   owner ──pipe──▶ first process of a pid namespace ──▶ programs of the nodes
//!                   own mounts, own network, /run in RAM
//! ```
//!
//! The owner starts this program again as the first process of a new pid namespace ([`Sandbox::start`]); that process
//! gives itself private mounts and a network of its own ([`enter`]), and everything else is started and mounted
//! there. When the owner ends, by whatever signal, the pipe between them closes and the first process kills all others and
//! ends; the kernel kills what is left of the namespace, and with the last of them go mounts, network namespaces
//! and the RAM below [`SANDBOX_DIR`]. So a later run never has anything to clean up.

use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{LabError, Result, doing};

/// Directory of a sandbox's files: in RAM, invisible outside.
pub const SANDBOX_DIR: &str = "/run/lab";

/// How long the first process may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A sandbox, seen from its owner; it ends when this is dropped.
pub struct Sandbox {
    first: Child,
    /// Kept open here, because waiting for a child would close its standard input first.
    pipe: Option<ChildStdin>,
}

impl Sandbox {
    /// Starts `command` as the first process of a new pid namespace; it must call [`enter`] before all else.
    ///
    /// Later children of the calling thread would be in the namespace too. So start none, or call this from a
    /// separate thread that lives as long as the sandbox.
    ///
    /// # Errors
    /// No namespaces for this user, or `command` cannot be started.
    pub fn start(command: &mut Command) -> Result<Sandbox> {
        if !nix::unistd::geteuid().is_root() {
            let why = "only root may: the same command with sudo".to_owned();
            return Err(LabError::Failed { doing: "make namespaces".into(), why });
        }
        unshare(CloneFlags::CLONE_NEWPID).map_err(doing("make a pid namespace"))?;
        let first = command.stdin(Stdio::piped()).spawn();
        let mut first = first.map_err(doing("start the first process of a sandbox"))?;
        let pipe = first.stdin.take();
        Ok(Sandbox { first, pipe })
    }

    /// The first process, whose output can be read.
    pub fn init(&mut self) -> &mut Child {
        &mut self.first
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // It kills the others and ends.
        self.pipe.take();
        let end = Instant::now() + PATIENCE;
        while matches!(self.first.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Returns when every process of the namespace has ended.
        let _ = self.first.kill();
        let _ = self.first.wait();
    }
}

/// Gives this process, the first of a sandbox, its own mounts and network, and `size` bytes of RAM below
/// [`SANDBOX_DIR`] at most. Standard input must be the owner's pipe. Call it before other threads start.
///
/// # Errors
/// This process is not the first of a pid namespace, or the kernel refuses.
pub fn enter(size: u64) -> Result<()> {
    if std::process::id() != 1 {
        let why = "this process is not the first of a pid namespace".to_owned();
        return Err(LabError::Failed { doing: "enter a sandbox".into(), why });
    }
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).map_err(doing("make namespaces"))?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(doing("make mounts private"))?;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none).map_err(doing("mount /proc"))?;
    let size = format!("size={size}");
    mount(Some("lab"), "/run", Some("tmpfs"), MsFlags::empty(), Some(&*size))
        .map_err(doing("mount a tmpfs at /run"))?;
    std::fs::create_dir(Path::new(SANDBOX_DIR)).map_err(doing(format!("make {SANDBOX_DIR}")))?;
    end_with_owner()
}

/// Ends all other processes of the sandbox, and then this one, which must be its first.
///
/// To end this one alone is not enough. A thread of it that waits for a mount cannot be killed; the mount waits for bricks that may
/// be gone; and the kernel ends the mount only when the last thread of this process has ended.
pub fn end_all() -> ! {
    if std::process::id() == 1 {
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    }
    std::process::exit(1)
}

/// Ends this process, and so the sandbox, when the owner's end of the pipe closes.
fn end_with_owner() -> Result<()> {
    let watch = || {
        let mut end = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut end);
        end_all();
    };
    let thread = std::thread::Builder::new().name("owner".into()).spawn(watch);
    thread.map(drop).map_err(doing("start a thread"))
}
