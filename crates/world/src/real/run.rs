//! The loop of one thread: poll the caller's future, run woken tasks, check the ring.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use compio::runtime::Runtime;

use crate::turns;

/// How often a future that wakes itself is polled before the ring is checked anyway.
const POLLS_PER_LOOK: u32 = 16;
/// How long woken tasks may wake others before the ring is checked. A request passes from task to task, in a few microseconds each: they
/// need not enter the kernel in between. A task that sends calls the kernel itself, so its message leaves before the writes to disks that
/// wait in the ring.
const LOOK_AFTER_US: u64 = 20;

/// Wakes the future given to `block_on`. compio's own loop would poll that future in every round, and enter the
/// kernel once more for every wake. For wakes from the same thread this flag avoids both.
struct Flag {
    woken: AtomicBool,
    thread: ThreadId,
    driver: Waker,
}

thread_local! {
    static THREAD: ThreadId = thread::current().id();
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

impl Wake for Flag {
    fn wake(self: Arc<Flag>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Flag>) {
        // The loop checks the flag after the tasks have run and before it sleeps, so its own thread need not wake the
        // driver. Another thread always must, because the loop may be about to sleep.
        if !self.woken.swap(true, Ordering::AcqRel) && THREAD.with(|id| *id != self.thread) {
            self.driver.wake_by_ref();
        }
    }
}

/// Marks the thread as running a future, to detect a nested `block_on`.
struct Running;

impl Running {
    fn begin() -> Running {
        assert!(!RUNNING.replace(true), "block_on inside a future that this thread already runs");
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(false);
    }
}

/// Runs `future` to its end on `runtime`, as a task of the kind `name`, with the tasks spawned there.
pub(super) fn block_on<F: Future>(runtime: &Runtime, name: &'static str, future: F) -> F::Output {
    let output = run(runtime, name, None, pin!(future));
    output.expect("without a limit it runs to its end")
}

/// As [`block_on`], but for `limit_us` microseconds at most, unless the thread has more to do then. `None` if the future has not ended:
/// it can be polled further, as a task too.
pub(super) fn block_on_for<F: Future>(
    runtime: &Runtime,
    name: &'static str,
    limit_us: u64,
    future: Pin<&mut F>,
) -> Option<F::Output> {
    run(runtime, name, Some(limit_us), future)
}

fn run<F: Future>(
    runtime: &Runtime,
    name: &'static str,
    limit_us: Option<u64>,
    mut future: Pin<&mut F>,
) -> Option<F::Output> {
    let _running = Running::begin();
    runtime.enter(|| {
        let flag = Arc::new(Flag {
            woken: AtomicBool::new(true),
            thread: THREAD.with(|id| *id),
            driver: runtime.waker(),
        });
        let waker = Waker::from(flag.clone());
        let mut context = Context::from_waker(&waker);
        let mut again = 0;
        let began = turns::begin();
        let mut looked = began;
        loop {
            if flag.woken.swap(false, Ordering::AcqRel) {
                let polled = future.as_mut().poll(&mut context);
                turns::end(name);
                if let Poll::Ready(output) = polled {
                    return Some(output);
                }
            }
            if runtime.run() {
                if turns::since() - looked < LOOK_AFTER_US {
                    continue;
                }
                runtime.poll_with(Some(Duration::ZERO));
            } else if flag.woken.load(Ordering::Acquire) && again < POLLS_PER_LOOK {
                again += 1;
                continue;
            } else if again == POLLS_PER_LOOK {
                runtime.poll_with(Some(Duration::ZERO));
            } else {
                let left =
                    limit_us.map(|us| Duration::from_micros(us.saturating_sub(turns::since() - began)));
                let timer = runtime.current_timeout();
                runtime.poll_with(left.into_iter().chain(timer).min());
            }
            again = 0;
            looked = turns::begin();
            if limit_us.is_some_and(|us| looked - began >= us) && !flag.woken.load(Ordering::Acquire) {
                return None;
            }
        }
    })
}
