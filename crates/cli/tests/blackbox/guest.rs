//! The Linux kernel's own clients of NBD and NFS lose nothing that they were promised: a virtual machine works over the
//! gates while its power fails and gates are killed. QEMU emulates it, the kernel is Debian's, and only `./dev test
//! --full` runs these tests.
//!
//! ```text
//!  test ──ttyS1── "attach 0 30123 vm" ──▶ init: a step of steps.sh
//!       ◀── "say attached nbd0 ...", "end 0" ──┤    └─▶ kernel ──user network, 10.0.2.2──▶ gate at 127.0.0.1
//!                         ttyS0: the console ──▶ a file of the fixture
//! ```
//!
//! | file | what |
//! |---|---|
//! | `guest/image.sh` | builds what the guest starts from: busybox, modules, programs with their libraries |
//! | `guest/init`, `guest/steps.sh` | run in the guest: the first process, and what it may be asked to do |
//! | `guest/disk.rs` | file systems on block volumes, and a power cut |
//! | `guest/files.rs` | a volume by NFS, and gates that are killed |
//! | `guest/raid.rs` | a RAID over block volumes, and exports that go away |

mod disk;
mod files;
mod raid;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::fixture::{Fixture, text};

/// Where `./dev test --full` has unpacked a kernel.
const KERNEL: &str = "SHOAL_GUEST_KERNEL";
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/blackbox/guest");
/// Longest time that a guest may take to come up. On a quiet machine: 10 s.
const BOOT: Duration = Duration::from_secs(120);
/// Longest time that one step may take. On a quiet machine: 15 s.
const STEP: Duration = Duration::from_secs(180);
/// Lines of the console that an error shows.
const TAIL: usize = 40;

/// What guests of a fixture start from.
struct Image {
    kernel: PathBuf,
    initrd: PathBuf,
}

impl Image {
    fn build(fixture: &Fixture) -> Image {
        let given = std::env::var_os(KERNEL);
        let kernel =
            PathBuf::from(given.unwrap_or_else(|| panic!("{KERNEL} is not set: see ./dev test --full")));
        let (root, initrd) = (fixture.path("guest-root"), fixture.path("guest-initrd"));
        fs::create_dir(&root).expect("a directory");
        let mut script = Command::new("sh");
        script.arg(Path::new(SOURCES).join("image.sh")).args([&kernel, &root, &initrd]);
        let ran = script.output().expect("a shell");
        assert!(ran.status.success(), "no image: {}", String::from_utf8_lossy(&ran.stderr));
        fs::remove_dir_all(&root).expect("only the image is needed");
        let boot = fs::read_dir(kernel.join("boot")).expect("an unpacked kernel").flatten();
        let is_kernel =
            |path: &PathBuf| path.file_name().is_some_and(|n| text(n.as_ref()).starts_with("vmlinuz-"));
        let kernel = boot.map(|entry| entry.path()).find(is_kernel).expect("a kernel");
        Image { kernel, initrd }
    }
}

/// A machine that runs. It ends with the value, and with the test's process at the latest.
struct Guest {
    name: &'static str,
    machine: Child,
    steps: ChildStdin,
    lines: Receiver<String>,
    console: PathBuf,
    /// The last numbered file that is stable, by directory: what `stable` of `steps.sh` has told.
    stable: BTreeMap<String, u64>,
}

impl Guest {
    /// Returns when the guest waits for steps.
    fn boot(fixture: &Fixture, image: &Image, name: &'static str) -> Guest {
        let (begun, console) = (Instant::now(), fixture.path(&format!("{name}.console")));
        // The parent's death is the machine's: also when the tests themselves are killed.
        let mut qemu = Command::new("setpriv");
        qemu.args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-nodefaults", "-no-user-config"])
            .args(["-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "1G", "-display", "none", "-no-reboot"])
            .args(["-kernel", text(&image.kernel), "-initrd", text(&image.initrd)])
            .args(["-append", "console=ttyS0 panic=-1 loglevel=5 mitigations=off rdinit=/init"])
            .args(["-serial", &format!("file:{}", text(&console))])
            .args(["-chardev", "stdio,id=steps,signal=off", "-serial", "chardev:steps"])
            .args(["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="]);
        let errors = fs::File::create(fixture.path(&format!("{name}.qemu"))).expect("a file");
        let machine = qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).spawn();
        let mut machine = machine.unwrap_or_else(|error| panic!("QEMU: {error}; see ./dev test --full"));
        let (steps, answers) = (machine.stdin.take(), machine.stdout.take().expect("piped"));
        let (tell, lines) = channel();
        thread::spawn(move || {
            // Ends with the machine, or when nobody listens any more.
            let mut answers = BufReader::new(answers).lines().map_while(Result::ok);
            answers.all(|line| tell.send(line.trim_end().to_owned()).is_ok())
        });
        let steps = steps.expect("piped");
        let mut guest = Guest { name, machine, steps, lines, console, stable: BTreeMap::new() };
        let ready = guest.hear(Instant::now() + BOOT, "its start");
        assert_eq!(ready, "ready", "{}", guest.tail());
        println!("{name}: up after {:.1?}", begun.elapsed());
        guest
    }

    /// Carries out a step, which must succeed.
    fn must(&mut self, step: &str) {
        let begun = Instant::now();
        println!("{}: {step}", self.name);
        writeln!(self.steps, "{step}").unwrap_or_else(|error| panic!("{step}: {error}\n{}", self.tail()));
        let ended = loop {
            let line = self.hear(begun + STEP, step);
            if let Some(status) = line.strip_prefix("end ") {
                break status.to_owned();
            }
        };
        assert_eq!(ended, "0", "`{step}` failed\n{}", self.tail());
        println!("{}: done after {:.1?}", self.name, begun.elapsed());
    }

    /// Waits until a directory's numbered files, up to this one, are told to be stable.
    fn wait_stable(&mut self, dir: &str, number: u64) {
        let end = Instant::now() + STEP;
        while self.stable.get(dir).is_none_or(|last| *last < number) {
            self.hear(end, &format!("{dir}/n-{number}"));
        }
    }

    /// The machine is off in the middle of whatever it does. The last numbered files that it has told to be stable.
    fn cut_power(mut self) -> BTreeMap<String, u64> {
        self.machine.kill().expect("it runs");
        self.machine.wait().expect("it ends");
        while let Ok(line) = self.lines.recv() {
            self.note(&line);
        }
        std::mem::take(&mut self.stable)
    }

    /// The next line that the guest says.
    fn hear(&mut self, end: Instant, what: &str) -> String {
        let line = match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("{}: {what} takes too long\n{}", self.name, self.tail()),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("{}: ended during {what}\n{}", self.name, self.tail())
            }
        };
        self.note(&line);
        line
    }

    fn note(&mut self, line: &str) {
        let Some(said) = line.strip_prefix("say ") else { return };
        match said.split(' ').collect::<Vec<_>>()[..] {
            ["stable", dir, number] => {
                self.stable.insert(dir.to_owned(), number.parse().expect("a number"));
            }
            _ => println!("{}: .. {said}", self.name),
        }
    }

    /// The end of what the console shows, and what QEMU itself has said.
    fn tail(&self) -> String {
        let said = fs::read(self.console.with_extension("qemu")).unwrap_or_default();
        let console = fs::read(&self.console).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        let lines: Vec<&str> = console.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
        format!("the console of {} ends with\n{tail}\n{}", self.name, String::from_utf8_lossy(&said))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.machine.kill();
        let _ = self.machine.wait();
    }
}

/// A gate of a block volume, at a port of this machine: a guest reaches no sockets of Unix.
struct NbdPort {
    port: u16,
    pid: i32,
}

impl Fixture {
    /// Makes a block volume.
    fn block_volume(&self, name: &str, code: &str, size: &str) {
        self.must(&["volume", "create", name, "--code", code, "--same-node", "--block", size]);
    }

    /// Opens a gate of a block volume.
    fn nbd_port(&self, volume: &str, log: &str) -> NbdPort {
        let log = self.path(&format!("{log}.log"));
        let words = ["nbd", volume, "--listen", "127.0.0.1:0", "--log", text(&log), "--json"];
        let answer = self.must(&words).json();
        let uri = answer["uri"].as_str().and_then(|uri| uri.strip_prefix("nbd://127.0.0.1:"));
        let port = uri.and_then(|uri| uri.split('/').next()?.parse().ok()).expect("a port");
        let ours = |pid: &i32| {
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.contains("\0nbd\0--foreground\0") && words.ends_with(&format!("\0--\0{volume}\0"))
        };
        let pids: Vec<i32> = self.processes().into_iter().filter(ours).collect();
        assert_eq!(pids.len(), 1, "one gate of {volume}");
        NbdPort { port, pid: pids[0] }
    }
}

/// What `content` of `steps.sh` writes.
fn content(number: u64) -> Vec<u8> {
    format!("file {number}, told to be stable\n").into_bytes().into_iter().cycle().take(65536).collect()
}
