//! The thread that takes packets from the router and gives them back when they leave their port.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::ports::Ports;
use super::tun;
use crate::error::{Result, doing};
use crate::iproute::Counts;
use crate::node::Space;
use crate::star::{self, Link, SHARED};

/// Longest packet, in bytes: the usual one of Ethernet.
const PACKET_MAX: usize = 1500;
/// Most packets that are taken from the router before others leave.
const TAKEN_MAX: usize = 64;
/// How seldom the thread looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);

/// Ports of a router that share one memory, from now until this is dropped.
pub struct SharedBuffer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    ports: Mutex<Ports>,
    /// Addresses behind the ports, in their order.
    addresses: Vec<Ipv4Addr>,
    is_over: AtomicBool,
    /// Why it forwards nothing any more.
    error: Mutex<Option<io::Error>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedBuffer {
    /// For ports to these nodes, each with the rate of `link`, whose queue is the memory of all of them. Makes the device of the
    /// router for them, which nothing goes through until it is told to ([`star::share`]), and which is gone with it.
    pub(crate) fn start(router: &Space, nodes: &[u32], link: Link) -> Result<SharedBuffer> {
        let ports = Ports::new(nodes.len(), link.mbit, link.burst(), link.queue);
        let device = router.enter(|| tun::open(SHARED))?.map_err(doing("open a tun device"))?;
        let shared = Arc::new(Shared {
            ports: Mutex::new(ports),
            addresses: nodes.iter().map(|node| star::address(*node)).collect(),
            is_over: AtomicBool::new(false),
            error: Mutex::default(),
        });
        let there = shared.clone();
        let forward = move || {
            if let Err(error) = there.forward(&device) {
                *lock(&there.error) = Some(error);
            }
        };
        let thread = thread::Builder::new().name("switch".into()).spawn(forward);
        Ok(SharedBuffer { shared, thread: Some(thread.map_err(doing("start a thread"))?) })
    }

    /// What each port has sent and dropped, in the order of the nodes.
    ///
    /// # Errors
    /// It forwards nothing any more.
    pub fn counts(&self) -> Result<Vec<Counts>> {
        match lock(&self.shared.error).as_ref() {
            Some(error) => Err(doing("forward packets")(error)),
            None => Ok(lock(&self.shared.ports).counts()),
        }
    }
}

impl Drop for SharedBuffer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn forward(&self, mut device: &File) -> io::Result<()> {
        let start = Instant::now();
        let now = || start.elapsed().as_nanos() as u64 * 1000;
        let mut packet = [0; PACKET_MAX];
        while !self.is_over.load(Relaxed) {
            let mut ports = lock(&self.ports);
            for _ in 0..TAKEN_MAX {
                match device.read(&mut packet) {
                    Ok(bytes) => {
                        if let Some(port) = self.port(&packet[..bytes]) {
                            ports.push(now(), port, packet[..bytes].to_vec());
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            while let Some(packet) = ports.pop(now()) {
                device.write_all(&packet)?;
            }
            let at = now();
            let wait =
                ports.next_ps().map_or(LOOK, |next| Duration::from_nanos(next.saturating_sub(at) / 1000));
            drop(ports);
            let mut ready = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut ready, Some(TimeSpec::from_duration(wait.min(LOOK))), None) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => (),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The port of a packet; `None` if it is for nobody: the kernel's own packets, of IPv6.
    fn port(&self, packet: &[u8]) -> Option<usize> {
        let is_v4 = packet.first()? >> 4 == 4;
        let to: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
        self.addresses.iter().position(|address| is_v4 && address.octets() == to)
    }
}
