//! Threads for requests that may wait long.
//!
//! An open may wait until another client has given up its mode, a read or write until a truncation is done. If all
//! threads of the pool waited like this, none could serve the reads and writes that the other client may need to
//! finish first, and all other files would wait too. So at most half of the pool may wait; further requests go to
//! spare threads, which are started on demand and end when idle.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Most spare threads; further requests queue.
const THREADS_MAX: usize = 64;
/// How long an idle spare thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// A pool of spare threads. Clones share it.
#[derive(Clone)]
pub(super) struct Spare {
    shared: Arc<Shared>,
}

struct Shared {
    inline_max: usize,
    /// Jobs that run on threads of the FUSE pool.
    inline: AtomicUsize,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Spare {
    /// For a pool of `threads` threads.
    pub(super) fn new(threads: usize) -> Spare {
        let shared = Shared {
            inline_max: threads / 2,
            inline: AtomicUsize::new(0),
            state: Mutex::default(),
            work: Condvar::new(),
        };
        Spare { shared: Arc::new(shared) }
    }

    /// Runs `job` on this thread if the limit allows it, otherwise on a spare thread.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let shared = &self.shared;
        if shared.inline.fetch_add(1, Ordering::AcqRel) < shared.inline_max {
            job();
            shared.inline.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        shared.inline.fetch_sub(1, Ordering::AcqRel);
        let mut state = shared.lock();
        state.jobs.push_back(Box::new(job));
        if state.idle < state.jobs.len() && state.threads < THREADS_MAX {
            state.threads += 1;
            let shared = Arc::clone(shared);
            let started = thread::Builder::new().name("fuse-spare".into()).spawn(move || shared.serve());
            if let Err(error) = started {
                state.threads -= 1;
                tracing::warn!("cannot start a spare thread: {error}");
                // If another spare thread exists, it will run the job. Otherwise run it here.
                if state.threads == 0
                    && let Some(job) = state.jobs.pop_back()
                {
                    drop(state);
                    job();
                }
                return;
            }
        }
        drop(state);
        self.shared.work.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let (woken, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                drop(state);
                super::local::forget();
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn waiting_requests_never_hold_more_than_half_of_the_pool() {
        let spare = Spare::new(4);
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let (done, finished) = mpsc::channel();
        // Each of these callers is a thread of the pool; all jobs wait.
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let (spare, gate, done) = (spare.clone(), Arc::clone(&gate), done.clone());
                thread::spawn(move || {
                    spare.run(move || {
                        let gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
                        gate.recv().expect("the test releases every job");
                        done.send(()).expect("the test counts every job");
                    });
                })
            })
            .collect();
        let back = |callers: &Vec<thread::JoinHandle<()>>| callers.iter().filter(|c| c.is_finished()).count();
        for _ in 0..500 {
            if back(&callers) >= 2 {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(back(&callers), 2, "two callers are free although all four jobs wait");
        for _ in 0..4 {
            release.send(()).expect("jobs wait");
            finished.recv_timeout(Duration::from_secs(10)).expect("every job ends");
        }
        for caller in callers {
            caller.join().expect("callers end");
        }
    }
}
