//! Threads for requests that may wait long.
//!
//! An open may have to wait until another client has given way, a read or write until a file has been cut. If all threads
//! of the pool waited so, nobody would carry out the reads and writes on which that other client's giving way may depend,
//! and every other file would wait too. So at most half of the pool waits inline; further ones are carried out by spare
//! threads, which come as needed and go when idle.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Most spare threads; further requests queue.
const THREADS_MAX: usize = 64;
/// How long a spare thread stays without work.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// See the module. Clones are the same pool.
#[derive(Clone)]
pub(super) struct Spare {
    shared: Arc<Shared>,
}

struct Shared {
    inline_max: usize,
    /// Requests that wait on a thread of the pool.
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

    /// Carries `job` out: here if the pool can bear it, otherwise on a spare thread.
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
                tracing::warn!("no thread to spare: {error}");
                // With others at work the job's turn comes; without any it is done here.
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
