//! A process that is stopped again and again, so that its answers are late.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Result, doing};

/// The process runs for this part of the time of a pause before the next one.
const RUN_PART: u32 = 4;
/// The shortest time for which it runs.
const RUN_MIN: Duration = Duration::from_millis(1);

/// See the module. Dropping it ends the slowness.
pub struct Slow {
    pause: Duration,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Slow {
    /// Begins to stop a process for `pause`, let it run for a quarter of that, and so on.
    ///
    /// # Errors
    /// No thread for it.
    pub fn start(process: Pid, pause: Duration) -> Result<Slow> {
        let (end, ended) = channel();
        let thread = thread::Builder::new().name("slow".into()).spawn(move || repeat(process, pause, &ended));
        let thread = Some(thread.map_err(doing("start a thread"))?);
        Ok(Slow { pause, end: Some(end), thread })
    }

    /// How long each pause is.
    pub fn pause(&self) -> Duration {
        self.pause
    }
}

fn repeat(process: Pid, pause: Duration, ended: &Receiver<()>) {
    let run = RUN_MIN.max(pause / RUN_PART);
    let passes = |time| ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
    // If the process has ended, so does this.
    while kill(process, Signal::SIGSTOP).is_ok() {
        let goes_on = passes(pause);
        if kill(process, Signal::SIGCONT).is_err() || !goes_on || !passes(run) {
            return;
        }
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.end.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn a_slow_process_is_stopped_and_runs_again_once_it_may() {
        let mut child = Command::new("sleep").arg("100").spawn().expect("sleep runs");
        let process = Pid::from_raw(child.id().cast_signed());
        let state = || {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
            stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).expect("a state")
        };
        let becomes = |wanted| {
            let is_so = |_| {
                thread::sleep(RUN_MIN);
                state() == wanted
            };
            (0..10_000).any(is_so)
        };
        let slow = Slow::start(process, Duration::from_secs(1000)).expect("a thread");
        assert_eq!(slow.pause(), Duration::from_secs(1000));
        assert!(becomes('T'), "it is not stopped");
        drop(slow);
        assert!(becomes('S'), "it does not run again");
        child.kill().and_then(|()| child.wait()).expect("it is killed");
    }
}
