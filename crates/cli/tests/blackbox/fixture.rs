//! A directory for one test. Everything in it ends with the test, also if it panics.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc::O_DIRECT;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::descriptors::leaks;
use crate::turns::{overlong_turns, own_work};

/// One test of a process at a time: each may use any port and mount anything. `./dev test` runs each in namespaces of its own.
static TURN: Mutex<()> = Mutex::new(());

/// See the module.
pub(crate) struct Fixture {
    dir: PathBuf,
    /// Turns that took too long, by logs that other daemons have taken over since.
    overlong: Mutex<Vec<String>>,
    children: Mutex<Vec<Child>>,
    _turn: MutexGuard<'static, ()>,
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) ok: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandOutput {
    pub(crate) fn of(output: Output) -> CommandOutput {
        CommandOutput {
            ok: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The answer of a command that must succeed, as JSON.
    pub(crate) fn json(&self) -> Value {
        assert!(self.ok, "the command failed:\n{}\n{}", self.stdout, self.stderr);
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    /// Asserts that it failed, saying all of `words`.
    pub(crate) fn refused(&self, words: &[&str]) {
        assert!(!self.ok, "it should have failed:\n{}", self.stdout);
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not in:\n{}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }
}

impl Fixture {
    /// A new fixture; fails loudly where nothing can be mounted.
    pub(crate) fn new(name: &str) -> Fixture {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(nix::unistd::geteuid().is_root(), "the black-box tests mount file systems: run them as root");
        assert!(Path::new("/dev/fuse").exists(), "/dev/fuse is missing: the black-box tests need FUSE");
        let dir = std::env::temp_dir().join(format!("shoal-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).expect("a temporary directory");
        Fixture { dir, overlong: Mutex::default(), children: Mutex::default(), _turn: turn }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The home of the fixture's embedded cluster.
    pub(crate) fn home(&self) -> PathBuf {
        self.path("home")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
        command
            .args(args)
            .env("SHOAL_DIR", self.home())
            .env_remove("SHOAL_META")
            .env_remove("SHOAL_KEY_FILE");
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn shoal(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(args).output().expect("the binary runs"))
    }

    /// As [`Fixture::shoal`], in a network namespace.
    pub(crate) fn shoal_in(&self, space: &str, args: &[&str]) -> CommandOutput {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", space, env!("CARGO_BIN_EXE_shoal")]).args(args);
        command.env("SHOAL_DIR", self.home()).stdin(Stdio::null());
        CommandOutput::of(command.output().expect("ip runs"))
    }

    /// Runs a command that must succeed.
    pub(crate) fn must(&self, args: &[&str]) -> CommandOutput {
        let ran = self.shoal(args);
        assert!(ran.ok, "shoal {args:?} failed:\n{}\n{}", ran.stdout, ran.stderr);
        ran
    }

    /// Starts a daemon whose standard error goes to a file of the fixture.
    pub(crate) fn daemon(&self, name: &str, args: &[&str]) -> u32 {
        self.start(name, self.command(args))
    }

    /// As [`Fixture::daemon`], in a network namespace.
    pub(crate) fn daemon_in(&self, space: &str, name: &str, args: &[&str]) -> u32 {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", space, env!("CARGO_BIN_EXE_shoal")]).args(args);
        self.start(name, command)
    }

    /// Starts any program as [`Fixture::daemon`] does ours.
    pub(crate) fn start(&self, name: &str, mut command: Command) -> u32 {
        let log = self.path(&format!("{name}.log"));
        self.overlong.lock().unwrap_or_else(PoisonError::into_inner).extend(overlong_turns(&log));
        let log = File::create(log).expect("a log");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child =
            command.spawn().unwrap_or_else(|e| panic!("{name}: {e}; see ./dev test for what it needs"));
        let pid = child.id();
        self.children.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        pid
    }

    /// What a daemon of [`Fixture::daemon`] has said.
    pub(crate) fn said(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    /// Brings an embedded cluster up.
    pub(crate) fn up(&self, bricks: u32, code: &str, size: &str) {
        self.must(&["up", "--bricks", &bricks.to_string(), "--code", code, "--size", size]);
    }

    /// Mounts the volume `main` at a directory of the fixture.
    pub(crate) fn mount(&self, name: &str) -> PathBuf {
        self.mount_with(name, &[])
    }

    /// As [`Fixture::mount`], with more options.
    pub(crate) fn mount_with(&self, name: &str, options: &[&str]) -> PathBuf {
        let (dir, ran) = self.try_mount(name, options);
        assert!(ran.ok, "no mount at {name}:\n{}\n{}", ran.stdout, ran.stderr);
        dir
    }

    /// As [`Fixture::mount_with`], but it may be refused.
    pub(crate) fn try_mount(&self, name: &str, options: &[&str]) -> (PathBuf, CommandOutput) {
        let dir = self.path(name);
        fs::create_dir_all(&dir).expect("a mount point");
        let log = self.path(&format!("{name}.log"));
        let ran = self.shoal(&[&["mount", "main", text(&dir), "--log", text(&log)], options].concat());
        (dir, ran)
    }

    /// The pid of the daemon that serves a mount.
    pub(crate) fn mount_pid(&self, mount: &Path) -> i32 {
        let status = fs::read_to_string(mount.join(".shoal/status")).expect("status");
        status.lines().find_map(|l| l.strip_prefix("pid ")?.parse().ok()).expect("a pid")
    }

    pub(crate) fn umount(&self, dir: &Path) {
        self.must(&["umount", text(dir)]);
    }

    pub(crate) fn status(&self) -> Value {
        self.must(&["status", "--json"]).json()
    }

    /// The pid of a daemon of the embedded cluster.
    pub(crate) fn pid(&self, name: &str) -> i32 {
        let file = self.home().join("run").join(format!("{name}.pid"));
        let text = fs::read_to_string(file).expect("a pid file");
        text.split(' ').next().and_then(|pid| pid.parse().ok()).expect("a pid")
    }

    /// Kills a daemon of the embedded cluster with SIGKILL.
    pub(crate) fn kill(&self, name: &str) {
        kill_now(self.pid(name));
    }

    /// Everything that runs with this fixture's directory among its arguments.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let mine = text(&self.dir);
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
        let others = pids.filter(|pid| u32::try_from(*pid) != Ok(std::process::id()));
        let ours = others.filter(|pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(mine)
        });
        ours.collect()
    }

    /// Mount points in the fixture's directory, the newest first.
    pub(crate) fn mount_points(&self) -> Vec<PathBuf> {
        let table = fs::read_to_string("/proc/self/mounts").expect("/proc/self/mounts");
        let dirs = table.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
        let mut ours: Vec<PathBuf> = dirs.filter(|dir| dir.starts_with(&self.dir)).collect();
        ours.reverse();
        ours
    }

    /// Fails if a daemon of the embedded cluster has said something that a human should look at, other than `known`.
    pub(crate) fn check_logs(&self, known: &[&str]) {
        for log in self.logs() {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let worry = |line: &&str| {
                let bad = [" WARN ", " ERROR ", "panicked"].iter().any(|word| line.contains(word));
                // How long turns may be is watched in every test, see `overlong`.
                bad && own_work(line).is_none() && !known.iter().any(|known| line.contains(known))
            };
            let worries: Vec<&str> = said.lines().filter(worry).collect();
            assert!(worries.is_empty(), "{}:\n{}", log.display(), worries.join("\n"));
        }
    }
}

impl Fixture {
    /// The logs of all daemons.
    fn logs(&self) -> Vec<PathBuf> {
        let dirs = [self.home().join("log"), self.dir.clone()];
        let entries = dirs.iter().flat_map(fs::read_dir).flatten().flatten();
        entries.map(|e| e.path()).filter(|p| p.extension() == Some(OsStr::new("log"))).collect()
    }

    /// Turns for which a daemon kept its thread busy for too long: everything else of it waited.
    fn overlong(&self) -> Vec<String> {
        let before = std::mem::take(&mut *self.overlong.lock().unwrap_or_else(PoisonError::into_inner));
        before.into_iter().chain(self.logs().iter().flat_map(|log| overlong_turns(log))).collect()
    }

    /// Loop devices over files of the fixture.
    fn loops(&self) -> Vec<PathBuf> {
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let over = |device: &Path| {
            let file = fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
            file.starts_with(text(&self.dir))
        };
        let names = devices.map(|device| device.path()).filter(|device| over(device));
        names.filter_map(|device| Some(Path::new("/dev").join(device.file_name()?))).collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let leaks: Vec<String> = self.processes().into_iter().filter_map(leaks).collect();
        for dir in self.mount_points() {
            let _ = umount2(&dir, MntFlags::MNT_DETACH);
        }
        for device in self.loops() {
            let _ = Command::new("losetup").arg("--detach").arg(&device).output();
        }
        for child in self.children.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for pid in self.processes() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let overlong = self.overlong();
        if (thread::panicking() || !overlong.is_empty()) && self.home().join("log").exists() {
            let kept = std::env::temp_dir().join(format!("shoal-evidence-{}", std::process::id()));
            let name = self.dir.file_name().expect("a fixture's directory has a name");
            let _ = fs::create_dir_all(&kept);
            let logs = kept.join(name);
            let _ = Command::new("cp").arg("-r").arg(self.home().join("log")).arg(&logs).output();
            eprintln!("the daemons' logs are kept in {}", logs.display());
        }
        let _ = wait_for(Duration::from_secs(10), || self.processes().is_empty());
        let _ = fs::remove_dir_all(&self.dir);
        // A test that fails anyway says why itself.
        let faults = [overlong, leaks].concat();
        assert!(thread::panicking() || faults.is_empty(), "{}", faults.join("\n"));
    }
}

/// A path that is text, as all of the tests' are.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("the tests' paths are text")
}

/// Kills a process with SIGKILL and waits until it has gone.
pub(crate) fn kill_now(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("the process runs");
    let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let dead = || stat().rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'));
    // Its sockets go with the last of its threads.
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    let gone = || dead() && threads() <= 1;
    assert!(wait_for(Duration::from_secs(10), gone), "process {pid} survives SIGKILL");
}

/// True as soon as `condition` holds, false if it does not in time.
pub(crate) fn wait_for(time: Duration, condition: impl Fn() -> bool) -> bool {
    let end = Instant::now() + time;
    while !condition() {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Fails the test from inside if it takes longer than it may: a hang is told from slowness by a clock only.
pub(crate) fn within<T: Send>(time: Duration, what: &str, act: impl FnOnce() -> T + Send) -> T {
    let (done, wait) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let result = act();
            let _ = done.send(());
            result
        });
        if wait.recv_timeout(time) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            // The scope cannot end while the thread hangs: the whole test binary must.
            eprintln!("{what} hangs for {time:?}");
            std::process::exit(101);
        }
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Memory that the kernel may read and write around its page cache.
#[repr(align(4096))]
pub(crate) struct Pages(pub(crate) [u8; Pages::LEN]);

impl Pages {
    /// In bytes.
    pub(crate) const LEN: usize = 64 << 10;

    pub(crate) fn new() -> Box<Pages> {
        Box::new(Pages([0xff; Pages::LEN]))
    }
}

/// The first `len` bytes of a file, or all that there are, without the kernel's cache; `step` bytes at a time.
pub(crate) fn read_direct(path: &Path, len: usize, step: usize) -> Vec<u8> {
    let file = File::options().read(true).custom_flags(O_DIRECT).open(path).expect("the file");
    let (mut bytes, mut buffer) = (Vec::new(), Pages::new());
    for at in (0..len).step_by(step) {
        let read = file.read_at(&mut buffer.0[..step], at as u64).expect("bytes");
        bytes.extend_from_slice(&buffer.0[..read]);
    }
    bytes
}

/// Makes a file whose bytes are stable.
pub(crate) fn make_stable(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).expect("a file");
    file.write_all(bytes).and_then(|()| file.sync_all()).expect("stable bytes");
}

/// Numbers that look random, the same ones for the same seed.
pub(crate) struct Prng(u64);

impl Prng {
    pub(crate) fn new(seed: u64) -> Prng {
        Prng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(len).collect()
    }
}
