//! The daemons of this machine: started detached, found again by their pid files, stopped by pid.
//!
//! A pid file has the pid and the process's start time. So if the kernel has reused the pid for another process, that
//! process is never signalled.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// One run of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Daemon {
    pid: i32,
    started: u64,
}

impl Daemon {
    /// The running process with this pid.
    pub(crate) fn running(pid: u32) -> Option<Daemon> {
        let pid = i32::try_from(pid).ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, started) = parse_stat(&stat)?;
        (state != "Z" && state != "X").then_some(Daemon { pid, started })
    }

    /// The process in a pid file, if it still runs.
    pub(crate) fn read(pid_file: &Path) -> Option<Daemon> {
        let text = fs::read_to_string(pid_file).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        let daemon = Daemon { pid: pid.parse().ok()?, started: started.parse().ok()? };
        daemon.is_running().then_some(daemon)
    }

    /// Writes a pid file.
    pub(crate) fn write(&self, pid_file: &Path) -> anyhow::Result<()> {
        fs::write(pid_file, format!("{} {}\n", self.pid, self.started))
            .with_context(|| format!("cannot write {}", pid_file.display()))
    }

    /// Its pid.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether this same process still runs.
    pub(crate) fn is_running(&self) -> bool {
        u32::try_from(self.pid).ok().and_then(Daemon::running).is_some_and(|now| now == *self)
    }

    /// Sends a signal. It is not an error if the process has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.is_running() {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    /// Waits until it has ended; false if it still runs after `patience`.
    pub(crate) fn wait_gone(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while self.is_running() {
            if Instant::now() > end {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// Asks it to end, and kills it after `patience`. True if it ended by itself.
    pub(crate) fn stop(&self, patience: Duration) -> bool {
        self.signal(Signal::SIGTERM);
        if self.wait_gone(patience) {
            return true;
        }
        self.signal(Signal::SIGKILL);
        self.wait_gone(Duration::from_secs(5));
        false
    }
}

/// State and start time from `/proc/PID/stat`. The process name before them may have any characters.
fn parse_stat(stat: &str) -> Option<(&str, u64)> {
    let (_, after) = stat.rsplit_once(") ")?;
    let mut fields = after.split(' ');
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    Some((state, started))
}

/// A daemon that this process has started.
pub(crate) struct Started {
    /// Its name in messages.
    pub(crate) name: String,
    child: Child,
    log: PathBuf,
    log_start: u64,
}

/// Starts this binary as a daemon with its own log for standard output and errors.
pub(crate) fn start(name: &str, args: &[OsString], log: &Path) -> anyhow::Result<Started> {
    let binary = std::env::current_exe().context("cannot find this program's own file")?;
    let file = open_log(log)?;
    let log_start = file.metadata().map(|m| m.len()).unwrap_or(0);
    let errors = file.try_clone().with_context(|| format!("cannot use {}", log.display()))?;
    let child = Command::new(&binary)
        .args(args)
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .current_dir("/")
        .spawn()
        .with_context(|| format!("cannot start {} as {name}", binary.display()))?;
    Ok(Started { name: name.to_owned(), child, log: log.to_owned(), log_start })
}

fn open_log(log: &Path) -> anyhow::Result<File> {
    if let Some(dir) = log.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let file = OpenOptions::new().create(true).append(true).open(log);
    file.with_context(|| format!("cannot open the log {}", log.display()))
}

impl Started {
    /// The process.
    pub(crate) fn daemon(&self) -> Option<Daemon> {
        Daemon::running(self.child.id())
    }

    /// Fails if the daemon has ended; the error has its last log message.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.obituary(&status.to_string())),
            Err(error) => Err(error).with_context(|| format!("cannot wait for {}", self.name)),
        }
    }

    fn obituary(&self, status: &str) -> anyhow::Error {
        let said = self.said();
        let last =
            said.lines().rfind(|line| line.starts_with("error:")).map(|l| l.trim_start_matches("error: "));
        let remedy =
            said.lines().rfind(|line| line.starts_with("  try:")).map(|l| l.trim_start_matches("  try: "));
        let what = match last {
            Some(last) => format!("{}: {last}", self.name),
            None => format!("{} ended at once ({status})", self.name),
        };
        let fallback = || format!("its log, {}", self.log.display());
        crate::problem::problem(what, remedy.map_or_else(fallback, str::to_owned))
    }

    /// The text that this run of the daemon has written to its log.
    pub(crate) fn said(&self) -> String {
        let mut text = Vec::new();
        if let Ok(mut file) = File::open(&self.log)
            && file.seek(SeekFrom::Start(self.log_start)).is_ok()
        {
            let _ = file.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_file_names_one_life_of_a_process() {
        let me = Daemon::running(std::process::id()).expect("this process runs");
        assert!(me.is_running());
        let other = Daemon { started: me.started + 1, ..me };
        assert!(!other.is_running());
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(parse_stat(stat), Some(("S", 4242)));
    }
}
