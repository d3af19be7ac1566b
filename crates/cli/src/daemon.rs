//! The common parts of all daemons: logs, a clean stop at SIGTERM, listening on loopback only without a key.

use std::ffi::OsString;
use std::future::Future;
use std::net::{TcpListener, ToSocketAddrs};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use anyhow::Context;
use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::Level;
use types::wire::Key;
use world::{Notify, WindowSetting, World};

use crate::problem::problem;
use crate::run_files::receive_window_file;
use crate::signals;

/// The words in a daemon's log once it can be reached.
pub(crate) const LISTENING: &str = "listening at ";

/// Options of every daemon.
#[derive(Args, Clone, Debug)]
pub(crate) struct DaemonArgs {
    /// Detail of the log: error, warn, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: Level,
    /// Most bytes of large messages that may be on their way from other machines at once: auto (as many as the network does not
    /// lose), off, or 16K to 64M
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    receive_window: WindowSetting,
    /// Leaves the terminal and starts a new session
    #[arg(long, hide = true)]
    detached: bool,
    /// Dies with the process that started it
    #[arg(long, hide = true)]
    tied: bool,
}

impl DaemonArgs {
    /// The options of a daemon that this process starts.
    pub(crate) fn words(&self) -> [OsString; 4] {
        let (level, window) = (self.log_level.to_string().to_lowercase(), self.receive_window.to_string());
        ["--log-level".into(), level.into(), "--receive-window".into(), window.into()]
    }
}

/// Closes what this process has inherited, if another one has started it as a daemon: files that a shell has open would
/// keep their file system busy. Must be called before anything is opened.
pub(crate) fn close_inherited() {
    if std::env::args_os().all(|word| word != "--detached") {
        return;
    }
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // Fails for the directory that has just been read.
        let _ = nix::unistd::close(fd);
    }
}

/// Allows this process as many descriptors as it may allow itself. The soft limit is 1,024 on most machines, for the sake of
/// programs that use `select`.
fn raise_descriptors() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!("cannot raise the limit of descriptors (RLIMIT_NOFILE): {error}");
    }
}

/// Sets the process up as a daemon with a budget of `memory` bytes. Must be called before other threads start.
pub(crate) fn begin(args: &DaemonArgs, memory: u64) -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_max_level(args.log_level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // A line for which the log's disk has no room is lost. To say so there would end the process.
        .log_internal_errors(false)
        .init();
    raise_descriptors();
    keep_within(memory);
    world::set_receive_window(args.receive_window, receive_window_file().ok().as_deref());
    if args.detached {
        // Fails only for the leader of a process group, which needs no new session.
        let _ = nix::unistd::setsid();
    }
    if args.tied {
        let signal = nix::sys::signal::Signal::SIGKILL;
        nix::sys::prctl::set_pdeathsig(signal).context("cannot tie this process to its parent")?;
    }
    Ok(())
}

/// Allocations of at least this many bytes go back to the system when they are freed, wherever they lie.
#[cfg(target_env = "gnu")]
const ALLOCATION_LARGE: i32 = 128 << 10;
/// Most heaps of the allocator. A heap keeps memory that it once had, so one heap for each thread would be too many.
#[cfg(target_env = "gnu")]
const HEAPS_MAX: i32 = 4;
/// Payload pages up to which a daemon keeps free ones; used ones count. In bytes.
const PAGES_KEPT_MAX: u64 = 96 << 20;

/// Makes the process return unused memory to the system.
fn keep_within(memory: u64) {
    types::buf::set_pool_limit((memory / 8 * 3).min(PAGES_KEPT_MAX) as usize);
    #[cfg(target_env = "gnu")]
    {
        use nix::libc::{M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, mallopt};
        let settings = [
            // Once it is set, the allocator no longer raises it by itself.
            (M_MMAP_THRESHOLD, ALLOCATION_LARGE),
            (M_TRIM_THRESHOLD, ALLOCATION_LARGE),
            (M_ARENA_MAX, HEAPS_MAX),
        ];
        for (parameter, value) in settings {
            // SAFETY: it takes two numbers and changes only the allocator's settings.
            if unsafe { mallopt(parameter, value) } == 0 {
                tracing::warn!("the allocator does not know its parameter {parameter}");
            }
        }
    }
}

/// A daemon that can be asked to end, by SIGTERM and the like.
pub(crate) struct Stop {
    asked: Pin<Box<dyn Future<Output = ()>>>,
    is_starting: Arc<AtomicBool>,
}

/// Handles stop signals. Until [`run_until_stopped`] is called, a stop signal ends the process at once, like a crash;
/// after that it ends in order. Must be called before other threads start.
pub(crate) fn stop_signal() -> anyhow::Result<Stop> {
    let (given, is_starting) = (Notify::new(), Arc::new(AtomicBool::new(true)));
    let stop = Stop { asked: Box::pin(given.wait()), is_starting: Arc::clone(&is_starting) };
    signals::on_stop(move |signal| {
        tracing::info!("stopping: {signal}");
        if is_starting.load(Ordering::Acquire) {
            std::process::exit(1);
        }
        given.notify();
    })?;
    Ok(stop)
}

/// Runs `work` until it ends or a stop signal comes.
pub(crate) fn run_until_stopped<T>(world: &World, stop: Stop, work: impl Future<Output = T>) -> Option<T> {
    run_until_stopped_then(world, stop, work, std::future::ready(()))
}

/// As [`run_until_stopped`]. After the signal, `work` goes on until `last` ends.
pub(crate) fn run_until_stopped_then<T>(
    world: &World,
    stop: Stop,
    work: impl Future<Output = T>,
    last: impl Future<Output = ()>,
) -> Option<T> {
    stop.is_starting.store(false, Ordering::Release);
    let mut stopped = pin!(async {
        stop.asked.await;
        last.await;
    });
    let mut work = pin!(work);
    world.block_on(std::future::poll_fn(|cx| {
        if let Poll::Ready(output) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        stopped.as_mut().poll(cx).map(|()| None)
    }))
}

/// Refuses an address that other machines can reach, if the cluster has no key.
pub(crate) fn check_listen(address: &str, key: &Key) -> anyhow::Result<()> {
    let addresses = address.to_socket_addrs().map_err(|error| {
        problem(format!("--listen {address} is not an address of this machine: {error}"), "HOST:PORT")
    })?;
    if *key == Key::OPEN && addresses.into_iter().any(|a| !a.ip().is_loopback()) {
        return Err(problem(
            format!(
                "will not listen at {address} without a key: everybody on the network could read and write"
            ),
            "--key-file FILE (`shoal cluster init` makes one), or listen at 127.0.0.1",
        ));
    }
    Ok(())
}

/// Refuses an address that stands for all addresses of a machine where it would be told to `callers`: they would call themselves.
pub(crate) fn check_callable(address: &str, callers: &str) -> anyhow::Result<()> {
    // A name that is unknown here may be known to them.
    let mut addresses = address.to_socket_addrs().into_iter().flatten();
    if addresses.any(|address| address.ip().to_canonical().is_unspecified()) {
        return Err(problem(
            format!("{callers} cannot call {address}"),
            "--advertise HOST:PORT with an address of this machine, or --listen at one",
        ));
    }
    Ok(())
}

/// Refuses an address at which this machine cannot listen, before anything is done that cannot be undone.
pub(crate) fn check_bind(address: &str) -> anyhow::Result<()> {
    TcpListener::bind(address).map(drop).map_err(|error| explain_listen(&error, address))
}

/// The error for an address at which a daemon cannot listen.
pub(crate) fn explain_listen(error: &std::io::Error, address: &str) -> anyhow::Error {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => problem(
            format!("{address} is in use by another process"),
            format!(
                "another port, or `ss -ltnp 'sport = :{}'` to see who",
                address.rsplit(':').next().unwrap_or(address)
            ),
        ),
        std::io::ErrorKind::AddrNotAvailable => problem(
            format!("{address} is not an address of this machine"),
            "`ip addr` shows the addresses that it has",
        ),
        _ => anyhow::anyhow!("cannot listen at {address}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_nobody_can_call_is_not_told() {
        for any in ["0.0.0.0:7411", "[::]:7411", "[::ffff:0.0.0.0]:7411"] {
            let error = check_callable(any, "mounts").expect_err("everybody would call himself").to_string();
            assert!(error.contains("mounts cannot call") && error.contains(any), "{error}");
        }
        for fine in ["127.0.0.1:7411", "[::1]:7411", "10.0.0.2:7411", "no.such.name.invalid:7411"] {
            assert!(check_callable(fine, "mounts").is_ok(), "{fine}");
        }
    }

    #[test]
    fn without_a_key_only_loopback() {
        assert!(check_listen("127.0.0.1:7400", &Key::OPEN).is_ok());
        assert!(check_listen("[::1]:7400", &Key::OPEN).is_ok());
        assert!(check_listen("0.0.0.0:7400", &Key::OPEN).is_err());
        assert!(check_listen("0.0.0.0:7400", &Key([1; 32])).is_ok());
        assert!(check_listen("nowhere", &Key([1; 32])).is_err());
    }
}
