//! Programs and connections at a node.

use std::fs::File;
use std::io::{Read, Seek};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{LabError, Result, doing};
use crate::star;

/// The algorithm of the paper's kernel. It is set explicitly, so that results do not depend on the machine's
/// settings.
const CONGESTION_CONTROL: &str = "reno";
/// How long a program may take to end; a mount makes everything stable first.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// A network namespace.
pub(crate) struct Space {
    name: String,
    file: File,
}

impl Space {
    /// The one with this name, already made by `ip`.
    pub(crate) fn find(name: &str) -> Result<Space> {
        let path = Path::new("/run/netns").join(name);
        let file = File::open(&path).map_err(doing(format!("open {}", path.display())))?;
        Ok(Space { name: name.to_owned(), file })
    }

    /// Runs `act` in it: sockets and programs belong to it.
    pub(crate) fn enter<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T> {
        // The network namespace is a property of a thread, so a new thread is enough.
        thread::scope(|scope| {
            let there = scope.spawn(|| {
                setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(doing(format!("enter {}", self.name)))?;
                Ok(act())
            });
            there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// A network namespace with one link.
pub struct Node {
    number: u32,
    space: Space,
    /// The kernel's counters of IP and of TCP there, `snmp` and `netstat`. They stay those of the node whoever reads them: to
    /// enter the node each time would take long where all cores are busy.
    counters: [File; 2],
}

impl Node {
    /// The node with this number, already made by `ip`.
    pub(crate) fn find(number: u32) -> Result<Node> {
        let space = Space::find(&star::name(number))?;
        // Of the thread that has entered the node, not of the process.
        let open = |name: &str| File::open(format!("/proc/thread-self/net/{name}"));
        let opened = space.enter(|| Ok::<_, std::io::Error>([open("snmp")?, open("netstat")?]))?;
        let counters = opened.map_err(doing("open the counters of TCP"))?;
        Ok(Node { number, space, counters })
    }

    /// Applies the settings of a node on a switch.
    pub(crate) fn configure(&self) -> Result<()> {
        let file = "/proc/sys/net/ipv4/tcp_congestion_control";
        self.inside(|| std::fs::write(file, CONGESTION_CONTROL))?.map_err(doing(format!("set {file}")))
    }

    /// Its number, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.space.name
    }

    /// Its namespace.
    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        star::address(self.number)
    }

    /// Runs `f` at the node: its sockets and programs belong to the node.
    ///
    /// # Errors
    /// The node cannot be entered.
    pub fn inside<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T> {
        self.space.enter(act)
    }

    /// What TCP has sent once more at this node since it was made.
    ///
    /// # Errors
    /// The kernel's counters cannot be read.
    pub fn repeated(&self) -> Result<Repeated> {
        let [snmp, netstat] = &self.counters;
        let read = |file| read_from_start(file).map_err(doing("read the counters of TCP"));
        let (snmp, netstat) = (read(snmp)?, read(netstat)?);
        let find = |text: &str, line: &str, name: &str| {
            counter(text, line, name).ok_or_else(|| doing("read the counters of TCP")(format!("no {name}")))
        };
        Ok(Repeated {
            packets: find(&snmp, "Tcp:", "RetransSegs")?,
            timeouts: find(&netstat, "TcpExt:", "TCPTimeouts")?,
        })
    }

    /// Starts a program at the node, with its output in `log`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, name: &str, command: &mut Command, log: &Path) -> Result<Program> {
        let file = File::create(log).map_err(doing(format!("make {}", log.display())))?;
        let errors = file.try_clone().map_err(doing(format!("use {}", log.display())))?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors).current_dir("/");
        let child = self.inside(|| command.spawn())?.map_err(cannot_start(command))?;
        Ok(Program { name: format!("{name} at {}", self.name()), child, log: log.to_owned() })
    }

    /// Runs a program at the node to its end. Returns its standard output.
    ///
    /// # Errors
    /// It cannot be started, or fails.
    pub fn run(&self, command: &mut Command) -> Result<Vec<u8>> {
        let ran = self.inside(|| command.stdin(Stdio::null()).output())?.map_err(cannot_start(command))?;
        if ran.status.success() {
            return Ok(ran.stdout);
        }
        let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
        Err(LabError::Command { command: format!("{command:?}"), said })
    }
}

/// What TCP sent once more.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Repeated {
    /// Packets.
    pub packets: u64,
    /// How often nothing at all came back for so long that the sender began anew (RTO, at least 200 ms).
    pub timeouts: u64,
}

impl Repeated {
    /// The difference since `before`.
    pub fn since(self, before: Repeated) -> Repeated {
        Repeated { packets: self.packets - before.packets, timeouts: self.timeouts - before.timeouts }
    }
}

impl std::iter::Sum for Repeated {
    fn sum<I: Iterator<Item = Repeated>>(all: I) -> Repeated {
        all.fold(Repeated::default(), |sum, one| Repeated {
            packets: sum.packets + one.packets,
            timeouts: sum.timeouts + one.timeouts,
        })
    }
}

pub(crate) fn read_from_start(mut file: &File) -> std::io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// A counter of `/proc/net/snmp` or `netstat`: a line of names, and one of numbers, both with the same first word.
pub(crate) fn counter(text: &str, line: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|words| words.starts_with(line));
    let (names, numbers) = (lines.next()?.split_whitespace(), lines.next()?.split_whitespace());
    names.zip(numbers).find(|(of, _)| *of == name)?.1.parse().ok()
}

fn cannot_start(command: &Command) -> impl FnOnce(std::io::Error) -> LabError {
    let program = command.get_program().to_string_lossy().into_owned();
    move |error| match (error.kind(), &*program) {
        (std::io::ErrorKind::NotFound, "qemu-nbd") => LabError::Missing { program, package: "qemu-utils" },
        (std::io::ErrorKind::NotFound, "nbdkit") => LabError::Missing { program, package: "nbdkit" },
        _ => doing(format!("start {program}"))(error),
    }
}

/// A program that runs at a node; killed when dropped.
pub struct Program {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Fails if the program has ended; the error has its last output.
    ///
    /// # Errors
    /// It has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.obituary(&status.to_string())),
            Err(error) => Err(doing(format!("wait for {}", self.name))(error)),
        }
    }

    /// Waits until `is_so` returns true, while the program runs.
    ///
    /// # Errors
    /// The program has ended, or `patience` has passed.
    pub fn wait_until(&mut self, patience: Duration, mut is_so: impl FnMut() -> bool) -> Result<()> {
        let end = Instant::now() + patience;
        while !is_so() {
            self.check()?;
            if Instant::now() > end {
                return Err(self.obituary(&format!("is not ready after {} s", patience.as_secs())));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Asks it to end, and waits for that.
    ///
    /// # Errors
    /// It ends with an error, or not at all.
    pub fn end(self) -> Result<()> {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        self.wait()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It ends with an error, or not in time.
    pub fn wait(mut self) -> Result<()> {
        let end = Instant::now() + END_PATIENCE;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.obituary(&status.to_string())),
                Ok(None) if Instant::now() > end => return Err(self.obituary("does not end")),
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(doing(format!("wait for {}", self.name))(error)),
            }
        }
    }

    /// Its process, while it runs.
    pub fn pid(&mut self) -> Option<Pid> {
        let runs = matches!(self.child.try_wait(), Ok(None));
        runs.then(|| Pid::from_raw(self.child.id().cast_signed()))
    }

    /// The file with its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Its output so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn obituary(&self, status: &str) -> LabError {
        let said = self.said();
        let lines: Vec<&str> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(5)..].join("; ");
        LabError::Command { command: self.name.clone(), said: format!("{status}; it said: {last}") }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
