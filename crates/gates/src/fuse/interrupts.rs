//! Interrupted requests: the kernel's `FUSE_INTERRUPT`.
//!
//! A signal interrupts a request that its program waits for. A program that is killed ends only when its request does,
//! so an interrupted request that waits is answered with `EINTR`. But most signals that a program gets concern something
//! else, and it does not expect `EINTR` of a disk. So this is done only after [`PATIENCE_US`], which no request takes when
//! all is well.
//!
//! | a request | is |
//! |---|---|
//! | that reads, looks something up, opens, or makes a name | carried out to its end, after its answer ([`OnInterrupt::Finish`]): a file that is opened then is closed again, and a name that is made late replaces nothing |
//! | `fsync` and `close` | given up: the bytes stay buffered, and errors stay unreported for the next call |
//! | a write to a file that no other mount has open | given up: its bytes are buffered up to a place, in the order of the writes, or not at all |
//! | that removes, replaces, truncates or changes attributes, and a write to a shared file | waited for: done after its answer, it could undo a later change |

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use world::{Notify, World};

/// How long a request must have waited before an interrupt ends it, in microseconds.
const PATIENCE_US: u64 = 1_000_000;
/// Most interrupts of requests that are not parked (yet) that are remembered; the oldest are forgotten.
const EARLY_MAX: usize = 1024;

/// What becomes of a request that waits and is interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OnInterrupt {
    /// It is answered, and carried out to its end.
    Finish,
    /// It is answered and given up.
    GiveUp,
    /// It is not answered before its end.
    Wait,
}

/// The parked requests of all threads of a mount.
#[derive(Default)]
pub(super) struct Interrupts(Mutex<State>);

#[derive(Default)]
struct State {
    parked: BTreeMap<u64, Arc<Signal>>,
    early: VecDeque<u64>,
}

#[derive(Default)]
struct Signal {
    is_set: AtomicBool,
    changed: Notify,
}

/// The bit of SIGKILL in the masks of `/proc/PID/status`. The kernel sends it to each thread of a program that any signal ends.
const KILLED: u64 = 1 << 8;

/// A parked request.
pub(super) struct Interrupted {
    interrupts: Arc<Interrupts>,
    unique: u64,
    /// The thread that waits for it; 0 if there is none.
    thread: u32,
    signal: Arc<Signal>,
    world: World,
    parked_at: u64,
}

impl Interrupts {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel says that a request was interrupted.
    pub(super) fn interrupt(&self, unique: u64) {
        let mut state = self.lock();
        if let Some(signal) = state.parked.get(&unique) {
            signal.is_set.store(true, Ordering::Release);
            signal.changed.notify();
            return;
        }
        if state.early.len() >= EARLY_MAX {
            state.early.pop_front();
        }
        state.early.push_back(unique);
    }

    /// A request that is parked now, until this is dropped.
    pub(super) fn of(self: &Arc<Interrupts>, world: &World, unique: u64, thread: u32) -> Interrupted {
        let mut state = self.lock();
        let signal = Arc::new(Signal::default());
        if state.early.contains(&unique) {
            state.early.retain(|early| *early != unique);
            signal.is_set.store(true, Ordering::Release);
        }
        state.parked.insert(unique, Arc::clone(&signal));
        drop(state);
        let (interrupts, world, parked_at) = (Arc::clone(self), world.clone(), world.now());
        Interrupted { interrupts, unique, thread, signal, world, parked_at }
    }
}

impl Interrupted {
    /// Returns when the request was interrupted and has waited for long enough. The kernel does not say so of requests past
    /// the page cache, which it sends in the background. So this also looks whether the program is to end.
    pub(super) async fn due(&self) {
        loop {
            let changed = self.signal.changed.wait();
            if self.signal.is_set.load(Ordering::Acquire) {
                break;
            }
            if self.world.timeout(PATIENCE_US, changed).await.is_none() && is_killed(self.thread) {
                break;
            }
        }
        let due = self.parked_at + PATIENCE_US;
        self.world.sleep(due.saturating_sub(self.world.now())).await;
    }
}

/// Whether a thread ends as soon as it does not wait any more.
fn is_killed(thread: u32) -> bool {
    // Source: proc(5), signals that are pending for this thread, as a mask in hexadecimal digits.
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & KILLED != 0)
}

impl Drop for Interrupted {
    fn drop(&mut self) {
        self.interrupts.lock().parked.remove(&self.unique);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_ends_a_wait_also_if_it_came_before_the_request_was_parked() {
        let (world, interrupts) = (World::real().expect("a ring"), Arc::new(Interrupts::default()));
        interrupts.interrupt(7);
        world.block_on(async {
            let (early, late, never) =
                (interrupts.of(&world, 7, 0), interrupts.of(&world, 8, 0), interrupts.of(&world, 9, 0));
            let from = world.now();
            early.due().await;
            assert!(world.now() - from >= PATIENCE_US, "most signals do not concern the request");
            interrupts.interrupt(8);
            late.due().await;
            assert!(world.timeout(1_000, never.due()).await.is_none());
        });
        assert_eq!(interrupts.lock().parked.len(), 0);
        assert_eq!(interrupts.lock().early.len(), 0);
    }

    #[test]
    fn interrupts_of_requests_that_have_ended_are_forgotten() {
        let interrupts = Interrupts::default();
        (0..10 * EARLY_MAX as u64).for_each(|unique| interrupts.interrupt(unique));
        assert_eq!(interrupts.lock().early.len(), EARLY_MAX);
    }
}
