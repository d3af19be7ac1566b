//! The state of a thread: a ring, connections, a client session, and requests that wait.
//!
//! A thread carries out a request inline and waits for its answer, for a short time only. A request that waits longer is
//! parked: it stays a task of this thread, and the thread reads the next request. While requests are parked, the thread
//! does not sleep in `read`: its runtime waits for `/dev/fuse` and for the parked requests ([`before_read`]).

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use client::{Mount, Session};
use fuser::Errno;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use types::messages::names::Attr;
use world::{FutureBox, World};

use super::gate::Gate;
use super::interrupts::OnInterrupt;

/// How long a thread waits for a request before it parks it, in microseconds. Parking costs some system calls.
pub(super) const PATIENCE_US: u64 = 20_000;
/// The same for a write to a file that no other mount has open. It waits for earlier writes to be sent, and parking copies its bytes.
pub(super) const PATIENCE_TO_WRITE_US: u64 = 50_000;
/// The same for a thread that has parked requests already: the next one probably waits for the same thing.
const PATIENCE_PARKED_US: u64 = 1_000;
/// How long a thread without a ring waits before it tries again to make one. Other threads read the requests meanwhile.
const RING_PAUSE: Duration = Duration::from_secs(1);

struct Local {
    mount: Arc<Mount>,
    world: World,
    session: Session,
    waiting: Rc<Waiting>,
}

/// What a thread has of requests that wait.
#[derive(Default)]
struct Waiting {
    /// For the parked requests.
    gate: RefCell<Option<Rc<Gate>>>,
    /// Number of parked requests.
    parked: Cell<usize>,
    /// While requests are parked: the thread's own descriptor of `/dev/fuse`, which does not block meanwhile.
    device: RefCell<Option<Rc<OwnedFd>>>,
    /// Whether the request that is being polled was answered already, because it was interrupted.
    is_late: Cell<bool>,
}

thread_local! {
    /// Not dropped at the thread's end, because other thread-local values that it needs may already be gone. The threads
    /// of a mount end with their process.
    static LOCAL: RefCell<ManuallyDrop<Option<Local>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// The client session of this thread.
pub(super) fn session(mount: &Arc<Mount>) -> Result<Session, Errno> {
    with(mount, |local| local.session.clone())
}

/// The world of this thread.
pub(super) fn world(mount: &Arc<Mount>) -> Result<World, Errno> {
    with(mount, |local| local.world.clone())
}

/// The time of the mount's clock, in microseconds.
pub(super) fn now(mount: &Arc<Mount>) -> u64 {
    world(mount).map(|world| world.now()).unwrap_or_default()
}

/// Remaining time of the mount's lease.
pub(super) fn lease_left(mount: &Arc<Mount>) -> Duration {
    session(mount).map(|session| Duration::from_micros(session.lease_left_us())).unwrap_or_default()
}

/// Whether an access to an inode with these attributes would be recorded.
pub(super) fn is_access_due(mount: &Arc<Mount>, attr: &Attr) -> bool {
    session(mount).is_ok_and(|session| session.is_access_due(attr))
}

/// Records an access if it counts. Returns whether it does.
pub(super) fn note_access(mount: &Arc<Mount>, attr: &Attr) -> bool {
    session(mount).is_ok_and(|session| session.note_access(attr))
}

/// Whether the request that is being polled was answered already, because it was interrupted.
pub(super) fn is_late(mount: &Arc<Mount>) -> bool {
    waiting(mount).is_ok_and(|waiting| waiting.is_late.get())
}

fn waiting(mount: &Arc<Mount>) -> Result<Rc<Waiting>, Errno> {
    with(mount, |local| Rc::clone(&local.waiting))
}

fn with<T>(mount: &Arc<Mount>, of: impl FnOnce(&Local) -> T) -> Result<T, Errno> {
    LOCAL.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|local| !Arc::ptr_eq(&local.mount, mount)) {
            let world = World::real().map_err(|error| {
                tracing::error!("a thread of the mount cannot make an io_uring: {error}");
                Errno::EIO
            })?;
            let session = mount.session(world.clone());
            **slot = Some(Local { mount: Arc::clone(mount), world, session, waiting: Rc::default() });
        }
        slot.as_ref().map(of).ok_or(Errno::EIO)
    })
}

/// The gate for the requests of this thread: cheaper to clone than one that threads share.
pub(super) fn gate(gate: &Gate) -> Rc<Gate> {
    let Ok(waiting) = waiting(&gate.mount) else { return Rc::new(gate.clone()) };
    Rc::clone(waiting.gate.borrow_mut().get_or_insert_with(|| Rc::new(gate.clone())))
}

/// Carries out a request on this thread, for as long as the thread waits for one: `patience_us`, or less if requests are parked.
/// `None`: it has to wait longer.
pub(super) fn attempt<F: Future>(
    mount: &Arc<Mount>,
    patience_us: u64,
    work: Pin<&mut F>,
) -> Option<F::Output> {
    match with(mount, |local| (local.world.clone(), local.waiting.parked.get())) {
        Ok((world, 0)) => world.block_on_for(patience_us, "fuse request", work),
        Ok((world, _)) => world.block_on_for(PATIENCE_PARKED_US, "fuse request", work),
        // It waits for nothing, because it has no session.
        Err(_) => work.now_or_never(),
    }
}

/// Parks a request with the kernel's number `unique`, of a program's `thread`, on this thread, until it ends or is interrupted.
pub(super) fn park(
    gate: &Rc<Gate>,
    (unique, thread): (u64, u32),
    on_interrupt: OnInterrupt,
    work: FutureBox,
) {
    let Ok((world, waiting)) = with(&gate.mount, |local| (local.world.clone(), Rc::clone(&local.waiting)))
    else {
        // As above; and its reply is an error if it is dropped.
        work.now_or_never();
        return;
    };
    let parked = Parked::begin(waiting);
    let interrupted = gate.interrupts.of(&world, unique, thread);
    world.spawn("fuse request", async move {
        let waiting = &parked.0;
        if on_interrupt == OnInterrupt::Wait {
            return work.await;
        }
        let due = pin!(interrupted.due());
        let Either::Right(((), work)) = select(work, due).await else { return };
        waiting.refuse(unique, Errno::EINTR);
        if on_interrupt == OnInterrupt::Finish {
            Late { waiting: Rc::clone(waiting), work }.await;
        }
    });
}

/// Called by a thread of the session before it reads the next request. Runs the parked requests until there is one.
pub(super) fn before_read(gate: &Gate, device: BorrowedFd<'_>) {
    let (world, waiting) = loop {
        match with(&gate.mount, |local| (local.world.clone(), Rc::clone(&local.waiting))) {
            Ok(local) => break local,
            Err(_) => thread::sleep(RING_PAUSE),
        }
    };
    let Some(device) = waiting.device(device) else { return };
    if let Err(error) = world.block_on_as("fuse requests", world.readable(device)) {
        tracing::warn!("cannot wait for requests of the kernel: {error}");
    }
}

impl Waiting {
    /// The thread's descriptor, if requests are parked. It does not block then, because another thread may read a
    /// request first.
    fn device(&self, device: BorrowedFd<'_>) -> Option<Rc<OwnedFd>> {
        let mut kept = self.device.borrow_mut();
        if self.parked.get() == 0 {
            if kept.take().is_some() {
                set_blocking(device, true);
            }
            return None;
        }
        if kept.is_none() {
            match device.try_clone_to_owned() {
                Ok(own) => {
                    set_blocking(device, false);
                    *kept = Some(Rc::new(own));
                }
                Err(error) => tracing::warn!("requests that wait hold up a thread of the mount: {error}"),
            }
        }
        kept.clone()
    }

    /// Answers a request of this thread with an error. A later answer to it is ignored by the kernel.
    fn refuse(&self, unique: u64, errno: Errno) {
        // `struct fuse_out_header` of the kernel's `include/uapi/linux/fuse.h`: length, error, number.
        let mut answer = [0; 16];
        answer[..4].copy_from_slice(&16_u32.to_ne_bytes());
        answer[4..8].copy_from_slice(&(-errno.code()).to_ne_bytes());
        answer[8..].copy_from_slice(&unique.to_ne_bytes());
        let written = self.device.borrow().as_ref().map(|device| nix::unistd::write(device, &answer));
        if let Some(Err(error)) = written {
            tracing::debug!("an interrupted request has ended: {error}");
        }
    }
}

fn set_blocking(device: BorrowedFd<'_>, blocking: bool) {
    let flags = if blocking { OFlag::empty() } else { OFlag::O_NONBLOCK };
    if let Err(error) = fcntl(device, FcntlArg::F_SETFL(flags)) {
        tracing::warn!("cannot change the flags of /dev/fuse: {error}");
    }
}

/// Counts a parked request.
struct Parked(Rc<Waiting>);

impl Parked {
    fn begin(waiting: Rc<Waiting>) -> Parked {
        waiting.parked.set(waiting.parked.get() + 1);
        Parked(waiting)
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.parked.set(self.0.parked.get() - 1);
    }
}

/// A request that was answered already, and is carried out to its end.
struct Late {
    waiting: Rc<Waiting>,
    work: FutureBox,
}

impl Future for Late {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        self.waiting.is_late.set(true);
        let polled = Pin::new(&mut self.work).poll(cx);
        self.waiting.is_late.set(false);
        polled
    }
}
