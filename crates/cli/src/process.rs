//! The daemons of this machine: started detached, found again by their pid files, stopped by pid.
//!
//! A pid file has the pid and the process's start time. So if the kernel has reused the pid for another process, that
//! process is never signalled.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::private;

/// Longest pid file, in bytes.
const PID_FILE_MAX: u64 = 64;
/// Words of a command line among which the command of a daemon is.
const COMMAND_WORDS: usize = 4;
/// The commands that run as daemons.
const DAEMONS: [&str; 5] = ["meta", "brick", "mount", "nbd", "nfs"];
/// How long a killed process may take to be gone.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// What became of a daemon that was to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stopped {
    ByItself,
    Killed,
    /// It still runs, for this reason.
    Runs(&'static str),
}

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

    /// The process in a pid file, if it still runs, is a daemon of Shoal, and belongs to the user who has written the file: nobody
    /// can make us signal another one.
    pub(crate) fn read(pid_file: &Path) -> Option<Daemon> {
        let mut file =
            File::options().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(pid_file).ok()?;
        let mut text = String::new();
        file.by_ref().take(PID_FILE_MAX).read_to_string(&mut text).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        let daemon = Daemon { pid: pid.parse().ok()?, started: started.parse().ok()? };
        let writer = file.metadata().ok()?.uid();
        let user = fs::metadata(format!("/proc/{}", daemon.pid)).ok()?.uid();
        // Last: a process that has ended before may have been followed by another one with its pid.
        (user == writer && is_daemon(&daemon.command()) && daemon.is_running()).then_some(daemon)
    }

    /// The first words of its command line.
    fn command(&self) -> Vec<String> {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words = line.split(|byte| *byte == 0).take(COMMAND_WORDS);
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    /// Writes a pid file.
    pub(crate) fn write(&self, pid_file: &Path) -> anyhow::Result<()> {
        private::write(pid_file, &format!("{} {}\n", self.pid, self.started))
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
    ///
    /// # Errors
    /// This user may not.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        match self.is_running().then(|| kill(Pid::from_raw(self.pid), signal)) {
            None | Some(Ok(()) | Err(Errno::ESRCH)) => Ok(()),
            Some(Err(error)) => Err(error),
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

    /// Whether a signal (SIGSTOP) or a debugger has stopped it.
    pub(crate) fn is_stopped(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        // A thread that waits in the kernel stops only afterwards.
        let is_stopped = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            parse_stat(&stat).is_some_and(|(state, _)| matches!(state, "T" | "t"))
        };
        self.is_running() && tasks.into_iter().any(is_stopped)
    }

    /// For how long its threads have run, in nanoseconds; [`None`] if the kernel does not say.
    pub(crate) fn ran_ns(&self) -> Option<u64> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).ok()?.flatten();
        // Source: the kernel's Documentation/scheduler/sched-stats.rst, first field.
        let ran = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        tasks.map(ran).sum()
    }

    /// Asks it to end, and kills it after `patience`.
    pub(crate) fn stop(&self, patience: Duration) -> Stopped {
        if let Err(error) = self.signal(Signal::SIGTERM) {
            return Stopped::Runs(error.desc());
        }
        if self.wait_gone(patience) {
            return Stopped::ByItself;
        }
        if let Err(error) = self.signal(Signal::SIGKILL) {
            return Stopped::Runs(error.desc());
        }
        if self.wait_gone(KILL_PATIENCE) { Stopped::Killed } else { Stopped::Runs("it waits in the kernel") }
    }
}

/// Whether a command line is that of a daemon.
fn is_daemon(words: &[String]) -> bool {
    words.iter().skip(1).any(|word| DAEMONS.contains(&word.as_str()))
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
        private::make_log_dir(dir)?;
    }
    private::open_log(log)
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
        // It is no daemon of Shoal, so a pid file that names it names nobody.
        let file = std::env::temp_dir().join(format!("shoal-pid-{}", std::process::id()));
        me.write(&file).expect("a pid file");
        assert_eq!(Daemon::read(&file), None);
        fs::remove_file(&file).expect("made above");
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(
            is_daemon(&words("/usr/bin/shoal brick --disk x"))
                && is_daemon(&words("shoal --json mount main"))
        );
        assert!(!is_daemon(&words("meta -x")) && !is_daemon(&words("sleep 300")));
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(parse_stat(stat), Some(("S", 4242)));
    }
}
