//! Handles signals on one thread, instead of interrupting any thread.

use std::thread;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};

/// Calls `stop` with the signal when this process is asked to end (SIGINT, SIGTERM, SIGHUP), each time.
///
/// Must be called before other threads start, because they inherit the blocked signals.
pub(crate) fn on_stop(mut stop: impl FnMut(Signal) + Send + 'static) -> anyhow::Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block().context("cannot block the stop signals")?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            while let Ok(signal) = signals.wait() {
                stop(signal);
            }
        })
        .context("cannot start the thread for signals")?;
    Ok(())
}
