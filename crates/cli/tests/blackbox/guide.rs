//! The commands of README.md and of the guide in docs/guide, run page by page as a user would run them.
//!
//! Each line of a fenced block with the info string `sh` is a command. The commands of a page go to one shell, one after
//! the other, and the first that fails ends it. The shell has a world of its own, which ends with it however it ends:
//!
//! | of the page | in the test |
//! |---|---|
//! | the machines A to D, 10.0.0.1 to 10.0.0.4 | addresses of loopback in a network namespace: [`MACHINES`] |
//! | `/dev/sdb` and `/dev/sdc` of the machine that a comment names (`# on B`) | files: [`DISKS`] |
//! | `/var/lib/shoal`, `/mnt/shoal`, ... | directories in memory, empty at first: [`EMPTY`] |
//! | `/etc/fstab`, `/etc/shoal/key`, `/sbin/mount.fuse.shoal` | those of the system, with a layer over them: [`COVERED`] |
//! | `~/Pictures` | some files |
//! | a daemon in a terminal of its own | in the background, and the shell goes on when it serves |
//!
//! Everything runs in a pid namespace. With the shell, its first process, all others end, and with them the mounts.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::fixture::{Fixture, text};

/// The machines that comments name, and their addresses.
const MACHINES: [(&str, &str); 4] =
    [("A", "10.0.0.1"), ("B", "10.0.0.2"), ("C", "10.0.0.3"), ("D", "10.0.0.4")];
/// The disks of each machine.
const DISKS: [&str; 2] = ["/dev/sdb", "/dev/sdc"];
/// Bytes of such a disk, as truncate(1) takes them. Only what is written takes memory.
const DISK_SIZE: &str = "1G";
/// Directories that a page finds empty.
const EMPTY: [&str; 4] = ["/mnt", "/run", "/var/lib", "/var/log"];
/// Directories that a page finds as they are, and changes for itself only.
const COVERED: [&str; 3] = ["/etc", "/sbin", "/usr/local/bin"];
/// How commands begin that stay in the foreground.
const DAEMONS: [&str; 2] = ["shoal meta --", "shoal brick --"];

/// How commands begin that cannot run here, and why. Each is needed.
const NOT_HERE: [(&str, &str); 11] = [
    ("./dev demo", "demo.rs plays the demo"),
    ("./dev test", "this is a part of it"),
    ("apt-get install ", "there is no network; ./dev test installs what it needs"),
    ("cargo build ", "whoever runs this test has built it"),
    ("qemu-system-x86_64 ", "there is no image to boot; guest/disk.rs has virtual machines"),
    ("mount -t nfs ", "not every kernel has an NFS client; guest/files.rs has one"),
    ("umount /mnt/nfs", "as above"),
    ("ssh ", "there is no other machine"),
    ("scp ", "there is no other machine, and the key is there already"),
    ("shoal demo", "demo.rs plays the demo"),
    ("shoal net check ", "there are no cables; net_plan.rs has some"),
];

/// Pages that go on where another one ends.
const AFTER: [(&str, &str); 7] = [
    ("docs/guide/block.md", "docs/guide/one-machine.md"),
    ("docs/guide/lent-disks.md", "docs/guide/several-machines.md"),
    ("docs/guide/mount-options.md", "docs/guide/several-machines.md"),
    ("docs/guide/network.md", "docs/guide/several-machines.md"),
    ("docs/guide/shards.md", "docs/guide/several-machines.md"),
    ("docs/guide/nfs.md", "docs/guide/several-machines.md"),
    ("docs/guide/replace-a-disk.md", "docs/guide/several-machines.md"),
];

/// The page that only leads to others.
const INDEX: &str = "docs/guide/index.md";
/// Longest time for the commands of a page. On a quiet machine: half a minute.
const PAGE: Duration = Duration::from_secs(600);
/// Lines of a shell's words that an error shows.
const TAIL: usize = 60;

/// Names the pages, and makes a test for each.
macro_rules! pages {
    ($($test:ident $page:literal)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $test() {
                run($page);
            }
        )*
    };
}

pages! {
    readme "README.md"
    backup "docs/guide/backup.md"
    block "docs/guide/block.md"
    cache "docs/guide/cache.md"
    disks "docs/guide/disks.md"
    install "docs/guide/install.md"
    lab "docs/guide/lab.md"
    lent_disks "docs/guide/lent-disks.md"
    limits "docs/guide/limits.md"
    memory "docs/guide/memory.md"
    metadata_servers "docs/guide/metadata-servers.md"
    mount_options "docs/guide/mount-options.md"
    network "docs/guide/network.md"
    nfs "docs/guide/nfs.md"
    no_switch "docs/guide/no-switch.md"
    one_machine "docs/guide/one-machine.md"
    replace_a_disk "docs/guide/replace-a-disk.md"
    several_machines "docs/guide/several-machines.md"
    shards "docs/guide/shards.md"
    tiers "docs/guide/tiers.md"
    topology "docs/guide/topology.md"
    tune "docs/guide/tune.md"
    xray "docs/guide/xray.md"
}

/// The beginning of each shell. Its environment has the rest of this file's tables.
const BEGINNING: &str = r#"
# What the daemons have said goes where the fixture looks for it; loop devices are of no namespace.
ended() {
  set +e
  for disk in /mnt/*/disk; do
    for device in $(losetup --associated "$disk" | cut -d: -f1); do
      umount "$device"
      losetup --detach "$device"
    done
  done
  mkdir -p "$SAID/home"
  cp -r /var/lib/shoal/log "$SAID/home/"
  cp /var/log/shoal/*.log "$SAID/"
} 2> /dev/null

step() { printf '\n%s\n' "$1"; }

# Starts a daemon, and returns when it serves: what somebody at another terminal would see.
begin() {
  local log address='' deadline=$((SECONDS + 60))
  daemons=$((daemons + 1))
  log=$SAID/daemon-$daemons.log
  "$@" < /dev/null > /dev/null 2> "$log" &
  until grep -q 'listening at' "$log"; do
    if ! kill -0 "$!" 2> /dev/null || [ "$SECONDS" -gt "$deadline" ]; then cat "$log"; exit 1; fi
    sleep 0.1
  done
  if [ "$2" != brick ] || ! shoal status > /dev/null 2>&1; then return; fi
  while [ $# -gt 1 ]; do
    if [ "$1" = --listen ]; then address=$2; fi
    shift
  done
  until shoal status | grep -q " up.* $address "; do
    if [ "$SECONDS" -gt "$deadline" ]; then cat "$log"; exit 1; fi
    sleep 0.1
  done
}

# Returns when what was asked to end has ended.
pkill() {
  command pkill "$@"
  while command pkill -0 "$@"; do sleep 0.1; done
}

mount -t tmpfs -o size=12g room "$ROOM"
mkdir "$ROOM/bin" "$ROOM/home" "$ROOM/tmp"
touch "$ROOM/bin/shoal"
mount --bind "$BINARY" "$ROOM/bin/shoal"
for dir in $EMPTY; do
  mkdir -p "$ROOM/empty$dir"
  mount --bind "$ROOM/empty$dir" "$dir"
done
for dir in $COVERED; do
  mkdir -p "$ROOM/over$dir" "$ROOM/work$dir"
  mount -t overlay over -o "lowerdir=$dir,upperdir=$ROOM/over$dir,workdir=$ROOM/work$dir" "$dir"
done
ip link set lo up
for address in $ADDRESSES; do ip address add "$address/32" dev lo; done
for disk in $DISKS; do
  mkdir -p "${disk%/*}"
  truncate -s "$DISK_SIZE" "$disk"
done
export HOME=$ROOM/home TMPDIR=$ROOM/tmp PATH=$ROOM/bin:$PATH
mkdir -p ~/Pictures/older "$ROOM/checkout/target/dist"
for picture in a.jpg b.jpg older/c.jpg; do head -c 2500001 /dev/urandom > ~/Pictures/$picture; done
ln -s "$ROOM/bin/shoal" "$ROOM/checkout/target/dist/shoal"
cd "$ROOM/checkout"
daemons=0
trap ended EXIT
"#;

/// A command of a page.
struct Line {
    page: &'static str,
    number: usize,
    text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.page, self.number, self.text)
    }
}

impl Line {
    /// Why it cannot run here, if it cannot.
    fn not_here(&self) -> Option<&'static str> {
        NOT_HERE.iter().find(|(words, _)| self.text.starts_with(words)).map(|(_, why)| *why)
    }

    /// The machine that its comment names.
    fn machine(&self) -> Option<&'static str> {
        let (_, comment) = self.text.rsplit_once("# on ")?;
        MACHINES.iter().map(|(name, _)| *name).find(|name| comment.starts_with(name))
    }

    /// What the shell gets instead, in a room of its own.
    fn words(&self, room: &Path) -> String {
        let mut words = self.text.clone();
        for disk in DISKS.into_iter().filter(|disk| self.text.contains(disk)) {
            let machine =
                self.machine().unwrap_or_else(|| panic!("{self}: `# on A` would say whose disk it is"));
            words = words.replace(disk, text(&file_of(room, machine, disk)));
        }
        if DAEMONS.iter().any(|daemon| words.starts_with(daemon)) { format!("begin {words}") } else { words }
    }
}

/// The file that is a disk of a machine.
fn file_of(room: &Path, machine: &str, disk: &str) -> PathBuf {
    room.join(machine).join(disk.rsplit('/').next().expect("a disk has a name"))
}

/// The checkout.
fn root() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.ancestors().nth(2).expect("crates/cli lies two levels below the root").to_owned()
}

fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// The commands of a page, those that a backslash continues as one.
fn commands(page: &'static str, text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let (mut inside, mut goes_on) = (false, false);
    for (line, number) in text.lines().zip(1..) {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if goes_on {
            let last = lines.last_mut().expect("a line before this one goes on");
            last.text = format!("{}\n{line}", last.text);
            goes_on = line.ends_with('\\');
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            lines.push(Line { page, number, text: line.to_owned() });
            goes_on = line.ends_with('\\');
        }
    }
    lines
}

/// The commands of a page, after those of the page that it goes on from.
fn story(page: &'static str) -> Vec<Line> {
    let before = AFTER.iter().find(|(after, _)| *after == page).map(|(_, before)| *before);
    before.into_iter().chain([page]).flat_map(|page| commands(page, &read(page))).collect()
}

/// What the shell of a page runs.
fn script(lines: &[Line], room: &Path) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let each = lines.iter().map(|line| {
        let step = quoted(&line.to_string());
        match line.not_here() {
            Some(why) => format!("step {step}\nstep {}\n", quoted(&format!("not here: {why}"))),
            None => format!("step {step}\n{}\n", line.words(room)),
        }
    });
    std::iter::once(BEGINNING.to_owned()).chain(each).collect()
}

/// Runs a page; fails with what its shell has said last.
fn run(page: &'static str) {
    let name = page.rsplit('/').next().and_then(|name| name.strip_suffix(".md")).expect("a page's name");
    let fixture = Fixture::new(&format!("guide-{name}"));
    let (room, file, said) = (fixture.path("room"), fixture.path("page.sh"), fixture.path("page.said"));
    fs::create_dir(&room).expect("a directory");
    fs::write(&file, script(&story(page), &room)).expect("a script");
    let output = File::create(&said).expect("a file");
    // The end of the test's process is the shell's: also when the tests themselves are killed.
    let mut shell = Command::new("setpriv");
    shell.args([
        "--pdeathsig",
        "KILL",
        "unshare",
        "--fork",
        "--kill-child",
        "--pid",
        "--mount",
        "--mount-proc",
    ]);
    shell.args(["--net", "bash", "-eu", text(&file)]).stdin(Stdio::null());
    shell.stdout(output.try_clone().expect("a handle")).stderr(output);
    shell.env_remove("SHOAL_DIR").env_remove("SHOAL_META").env_remove("SHOAL_KEY_FILE");
    let names = MACHINES.map(|(name, _)| name).into_iter();
    let disks = names.flat_map(|name| DISKS.map(|disk| text(&file_of(&room, name, disk)).to_owned()));
    shell.env("ROOM", &room).env("SAID", fixture.path("")).env("BINARY", env!("CARGO_BIN_EXE_shoal"));
    shell.env("EMPTY", EMPTY.join(" ")).env("COVERED", COVERED.join(" "));
    shell.env("ADDRESSES", MACHINES.map(|(_, address)| address).join(" "));
    shell.env("DISKS", disks.collect::<Vec<_>>().join(" ")).env("DISK_SIZE", DISK_SIZE);
    let (begun, status) = (Instant::now(), end_of(&mut shell, PAGE));
    let words = fs::read_to_string(&said).unwrap_or_default();
    let skipped = words.lines().count().saturating_sub(TAIL);
    let tail: Vec<&str> = words.lines().skip(skipped).collect();
    let how = status.map_or(format!("did not end within {PAGE:?}"), |status| status.to_string());
    assert!(status.is_some_and(|status| status.success()), "{page}: {how}\n{}", tail.join("\n"));
    println!("{page}: {:.0?}", begun.elapsed());
}

/// How a program ends. It is killed if it has not within `time`.
fn end_of(command: &mut Command, time: Duration) -> Option<ExitStatus> {
    let mut child = command.spawn().expect("setpriv runs: it is in util-linux, as unshare is");
    let until = Instant::now() + time;
    loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return Some(status);
        }
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn every_page_is_run_and_every_exception_is_needed() {
    let entries = fs::read_dir(root().join("docs/guide")).expect("the guide").flatten();
    let names = entries.map(|entry| format!("docs/guide/{}", entry.file_name().to_string_lossy()));
    let mut found: Vec<String> = names.filter(|name| name.ends_with(".md") && name != INDEX).collect();
    found.push("README.md".to_owned());
    found.sort();
    assert_eq!(found, PAGES, "each page has its test");
    let lines: Vec<Line> = PAGES.iter().flat_map(|page| commands(page, &read(page))).collect();
    for page in PAGES {
        let runs = lines.iter().any(|line| line.page == *page && line.not_here().is_none());
        assert!(runs, "{page} has no command that runs");
    }
    for (words, _) in NOT_HERE {
        assert!(lines.iter().any(|line| line.text.starts_with(words)), "no page has `{words}...` any more");
    }
    for (page, before) in AFTER {
        let link = format!("({})", before.rsplit('/').next().expect("a page's name"));
        assert!(read(page).contains(&link), "{page} does not say that it goes on from {before}");
    }
}

#[test]
fn lines_are_commands_on_machines() {
    let page = "```sh\nshoal status   # all\n# on B\nshoal brick --disk /dev/sdb \\\n  --node 2   # on B: its disk\n```\n\
                ```text\nno\n```\n";
    let lines = commands("README.md", page);
    let numbers: Vec<usize> = lines.iter().map(|line| line.number).collect();
    assert_eq!(numbers, [2, 4]);
    assert_eq!(lines[0].words(Path::new("/room")), "shoal status   # all");
    let brick = "begin shoal brick --disk /room/B/sdb \\\n  --node 2   # on B: its disk";
    assert_eq!(lines[1].words(Path::new("/room")), brick);
}
