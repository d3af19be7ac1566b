//! `shoal brick probe`: measures a device once, for bricks with `--io direct`.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use futures_util::future::join_all;
use indicatif::ProgressBar;
use store::{BrickError, Superblock};
use types::limits::BLOCK;
use types::{Buf, BufMut};
use world::{Disk, DiskMode, World};

use super::explain_open;
use super::load::keep_busy;
use crate::device_profile::{DeviceIdentity, DeviceProfile, DirectionProfile, Pair, find_step};
use crate::output::{Output, table};
use crate::problem::problem;
use crate::remote::real_world;
use crate::size::Size;

/// Requests at a time that are tried.
const DEPTHS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// How long each of them is measured, in microseconds.
const TURN_US: u64 = 600_000;
/// How long single requests are measured.
const ALONE_US: u64 = 1_000_000;
/// How long requests in sequence are measured.
const RATE_US: u64 = 1_500_000;
/// Bytes of requests in sequence, and how many of them at a time.
const LARGE: (usize, u32) = (1 << 20, 8);
/// Single reads of each size and of 4 KiB more, to find the buffer.
const PAIR_READS: usize = 21;
/// How long all of these may take, in microseconds.
const PAIRS_US: u64 = 10_000_000;
/// Smallest part of a device that is measured.
const SIZE_MIN: u64 = 64 << 20;

/// Measures a device once, and keeps what it found for bricks that are started with --io direct on it
#[derive(Args)]
#[command(after_help = "\
Takes about 20 seconds: latency, random requests of 4 KiB with 1 to 256 at a time, requests in sequence, and single reads of
32 KiB to 4 MiB, whose times step where the device's buffer ends (paper 003). A brick takes from it how many requests the
device has at a time (--depth), and the size around which the slq policies order (--scheduler).

PATH is a file, also one that is not there yet, or a directory: a file of --size is made beside or in it, measured and removed;
reads and writes are measured. A directory's profile is for a brick called `brick` in it, unless --profile is given.
PATH is a block device: only reads are measured, and nothing is changed. A new SSD answers reads of what was never
written without asking its flash: --erase writes --size at its beginning first, and measures writes too. It refuses a device
that is not empty.

Examples:
  shoal brick probe /srv/brick4                  beside a brick that is a file
  shoal brick probe /dev/sdb                     a device with data
  shoal brick probe /dev/sdb --erase             a new device, before --format")]
pub(super) struct ProbeArgs {
    /// Block device, file or directory
    path: PathBuf,
    /// Bytes that are written and measured
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    size: Size,
    /// Writes over the beginning of a block device
    #[arg(long)]
    erase: bool,
    /// Where to keep what was found [default: beside a file; /var/lib/shoal for a device]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
}

pub(super) fn run(args: &ProbeArgs, output: &Output) -> anyhow::Result<()> {
    let path = &args.path;
    if args.size.0 < SIZE_MIN {
        return Err(problem(format!("--size {} is too little to measure", args.size), "64M or more"));
    }
    // A brick's file may not be there yet.
    let there = match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        _ if path.exists() => path,
        Some(parent) => parent,
        None => Path::new("."),
    };
    let meta = std::fs::metadata(there).with_context(|| format!("{} cannot be measured", path.display()))?;
    let is_dir = meta.is_dir() && there == path;
    let is_device = std::os::unix::fs::FileTypeExt::is_block_device(&meta.file_type());
    if args.erase && !is_device {
        return Err(problem(
            "--erase is for a block device, and this is none",
            "leave it out: a file of its own is measured",
        ));
    }
    let device = DeviceIdentity::of(there)?;
    let world = real_world()?;
    let target = Target { world: &world, size: args.size.0 };
    let bar = output.spinner("measuring");
    let profile = world.block_on(async {
        let (disk, may_write) = match is_device {
            true => (target.open_device(path, args.erase).await?, args.erase),
            false => (target.make_file(path, is_dir).await?, true),
        };
        let bytes = if is_device && !args.erase { disk.len() } else { disk.len().min(args.size.0) };
        let probe = Probe { world: &world, disk, bytes: bytes / BLOCK as u64 * BLOCK as u64, bar: &bar };
        probe.measure(device, may_write).await.context("the device cannot be measured")
    });
    bar.finish_and_clear();
    let profile = profile?;
    let place = args.profile.clone().unwrap_or_else(|| match is_dir {
        true => DeviceProfile::place_of(&path.join("brick")),
        false => DeviceProfile::place_of(path),
    });
    let written = profile.write(&place);
    output.answer(&profile.json(), || words(&profile, &place));
    written
}

/// What is measured.
struct Target<'a> {
    world: &'a World,
    size: u64,
}

impl Target<'_> {
    async fn open_device(&self, path: &Path, erase: bool) -> anyhow::Result<Disk> {
        let text = path.to_str().context("the path must be UTF-8")?;
        let disk = self.open(text).await?;
        if erase && !matches!(Superblock::read(&disk).await, Err(BrickError::NotABrick)) {
            return Err(problem(
                format!("{text} holds a brick, or one that is damaged"),
                "leave --erase out; or wipe its first MiB, if what is there may be lost",
            ));
        }
        if erase && disk.read(0, LARGE.0).await?.iter().any(|byte| *byte != 0) {
            return Err(problem(
                format!("{text} is not empty: there is something in its first MiB"),
                format!(
                    "leave --erase out; or `wipefs -a {text}` and zeros over its first MiB, if all of it may be lost"
                ),
            ));
        }
        if disk.len() < SIZE_MIN {
            return Err(problem(
                format!("{text} has only {} bytes", disk.len()),
                "a device of 64 MiB or more",
            ));
        }
        Ok(disk)
    }

    /// A file that has no name any more, so it is gone when this process ends.
    async fn make_file(&self, path: &Path, is_dir: bool) -> anyhow::Result<Disk> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let dir = if is_dir { path } else { parent.unwrap_or(Path::new(".")) };
        let free = nix::sys::statvfs::statvfs(dir).with_context(|| format!("{}", dir.display()))?;
        let free = free.blocks_available() as u64 * free.fragment_size() as u64;
        if free < self.size + self.size / 8 {
            return Err(problem(
                format!("{} has {} free, and {} are measured", dir.display(), Size(free), Size(self.size)),
                "a smaller --size",
            ));
        }
        let file = dir.join(format!(".shoal-probe-{:016x}", self.world.random()));
        let text = file.to_str().context("the path must be UTF-8")?;
        let made = self.world.create_disk(text, self.size / BLOCK as u64 * BLOCK as u64).await.map(drop);
        let opened = match made {
            Ok(()) => self.open(text).await,
            Err(error) => Err(error).with_context(|| format!("{text} cannot be made")),
        };
        match std::fs::remove_file(&file) {
            Err(error) if opened.is_ok() => Err(error).with_context(|| format!("{text} cannot be removed")),
            _ => opened,
        }
    }

    async fn open(&self, path: &str) -> anyhow::Result<Disk> {
        self.world.open_disk_when_free(path, DiskMode::Direct).await.map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => problem(
                format!("{path} has no direct I/O: what would be measured is the page cache"),
                "a device, or a file on XFS, ext4 or btrfs",
            ),
            _ => explain_open(path, &error),
        })
    }
}

/// Which way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

struct Probe<'a> {
    world: &'a World,
    disk: Disk,
    /// Bytes of it that are measured, whole blocks.
    bytes: u64,
    bar: &'a ProgressBar,
}

impl Probe<'_> {
    async fn measure(&self, device: DeviceIdentity, may_write: bool) -> io::Result<DeviceProfile> {
        // First everything is written: reads of what was never written tell nothing.
        let rate = match may_write {
            true => Some(self.fill().await?),
            false => None,
        };
        let reads =
            DirectionProfile { rate: self.read_rate().await?, ..self.direction(Direction::Read).await? };
        let buffer = find_step(&self.pairs().await?);
        let writes = match rate {
            Some(rate) => Some(DirectionProfile { rate, ..self.direction(Direction::Write).await? }),
            None => None,
        };
        Ok(DeviceProfile { device, reads, writes, buffer })
    }

    /// Everything but the rate.
    async fn direction(&self, direction: Direction) -> io::Result<DirectionProfile> {
        let word = if direction == Direction::Read { "reads" } else { "writes" };
        self.bar.set_message(format!("single {word} of 4 KiB"));
        let mut times = self.random(direction, 1, ALONE_US).await?;
        times.sort_unstable();
        let at = |part: usize| times.get(times.len() * part / 100).map_or(0.0, |us| f64::from(*us));
        let mut by_depth = Vec::new();
        for depth in DEPTHS {
            self.bar.set_message(format!("{word} of 4 KiB, {depth} at a time"));
            let begun = self.world.now();
            let done = self.random(direction, depth, TURN_US).await?.len();
            by_depth.push((depth, done as f64 * 1e6 / (self.world.now() - begun).max(1) as f64));
        }
        Ok(DirectionProfile { median_us: at(50), p99_us: at(99), rate: 0.0, by_depth })
    }

    /// Random requests of 4 KiB, so many at a time. How long each has taken, in microseconds.
    async fn random(&self, direction: Direction, depth: u32, for_us: u64) -> io::Result<Vec<u32>> {
        let (until, blocks) = (self.world.now() + for_us, self.bytes / BLOCK as u64);
        let (times, block) = (RefCell::new(Vec::new()), self.noise(BLOCK));
        let request = || async {
            let offset = self.world.random() % blocks * BLOCK as u64;
            match direction {
                Direction::Read => self.disk.read(offset, BLOCK).await.map(drop),
                Direction::Write => self.disk.write(offset, vec![block.clone()]).await,
            }
        };
        keep_busy(self.world, depth, until, request, |us| times.borrow_mut().push(us as u32)).await?;
        Ok(times.into_inner())
    }

    /// Writes everything in sequence, and makes it stable: bytes per second.
    async fn fill(&self) -> io::Result<f64> {
        self.bar.set_message("writes in sequence");
        let bytes = self.noise(LARGE.0);
        let begun = self.world.now();
        self.in_sequence(u64::MAX, |offset, len| {
            let part = bytes.slice(0..len);
            async move { self.disk.write(offset, vec![part]).await }
        })
        .await?;
        self.disk.sync().await?;
        Ok(self.bytes as f64 * 1e6 / (self.world.now() - begun).max(1) as f64)
    }

    async fn read_rate(&self) -> io::Result<f64> {
        self.bar.set_message("reads in sequence");
        let begun = self.world.now();
        let until = begun + RATE_US;
        let read = |offset, len| async move { self.disk.read(offset, len).await.map(drop) };
        let bytes = self.in_sequence(until, read).await?;
        Ok(bytes as f64 * 1e6 / (self.world.now() - begun).max(1) as f64)
    }

    /// Goes through all bytes once, in large pieces, until a time. How many bytes that were.
    async fn in_sequence<F: Future<Output = io::Result<()>>>(
        &self,
        until: u64,
        piece: impl Fn(u64, usize) -> F,
    ) -> io::Result<u64> {
        let (next, done) = (Cell::new(0u64), Cell::new(0u64));
        let one = |_| async {
            while next.get() < self.bytes && self.world.now() < until {
                let offset = next.get();
                let len = (self.bytes - offset).min(LARGE.0 as u64);
                next.set(offset + len);
                piece(offset, len as usize).await?;
                done.set(done.get() + len);
            }
            Ok(())
        };
        join_all((0..LARGE.1).map(one)).await.into_iter().collect::<io::Result<Vec<()>>>()?;
        Ok(done.get())
    }

    /// Single reads of powers of two and of 4 KiB more, in turns.
    async fn pairs(&self) -> io::Result<Vec<Pair>> {
        let sizes: Vec<u64> =
            (15..=22).map(|power| 1 << power).filter(|size| size * 4 < self.bytes).collect();
        let mut times: Vec<[Vec<u64>; 2]> = vec![Default::default(); sizes.len()];
        let until = self.world.now() + PAIRS_US;
        for turn in 0..PAIR_READS {
            self.bar.set_message(format!("single reads of 32 KiB to 4 MiB: {turn} of {PAIR_READS}"));
            for (size, times) in sizes.iter().zip(&mut times) {
                for (len, times) in [*size, size + BLOCK as u64].into_iter().zip(times) {
                    let blocks = (self.bytes - len) / BLOCK as u64;
                    let offset = self.world.random() % blocks * BLOCK as u64;
                    let begun = self.world.now();
                    self.disk.read(offset, len as usize).await?;
                    times.push(self.world.now() - begun);
                }
            }
            if self.world.now() >= until {
                break;
            }
        }
        let pair = |(bytes, [plain, more]): (u64, &mut [Vec<u64>; 2])| {
            let turns = plain.len() as f64;
            let [(plain, plain_noise), (more, more_noise)] = [plain, more].map(|times| median(times));
            Pair { bytes, more_us: more - plain, noise_us: (plain_noise + more_noise) / turns.sqrt() }
        };
        Ok(sizes.into_iter().zip(&mut times).map(pair).collect())
    }

    /// Bytes that no device can make smaller.
    fn noise(&self, len: usize) -> Buf {
        let mut bytes = BufMut::dirty(len);
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.world.random().to_le_bytes()[..part.len()]);
        }
        bytes.freeze()
    }
}

/// The median, and the median distance from it.
fn median(times: &mut [u64]) -> (f64, f64) {
    times.sort_unstable();
    let middle = times[times.len() / 2];
    let mut distances: Vec<u64> = times.iter().map(|time| time.abs_diff(middle)).collect();
    distances.sort_unstable();
    (middle as f64, distances[distances.len() / 2] as f64)
}

fn words(profile: &DeviceProfile, place: &Path) -> String {
    let mut rows =
        vec![["", "4 KiB alone", "p99", "most IOPS", "with", "in sequence"].map(str::to_owned).to_vec()];
    let directions = [("reads", Some(&profile.reads)), ("writes", profile.writes.as_ref())];
    for (word, direction) in directions {
        rows.push(match direction {
            None => [word, "not measured", "", "", "", ""].map(str::to_owned).to_vec(),
            Some(direction) => vec![
                word.to_owned(),
                format!("{:.0} us", direction.median_us),
                format!("{:.0} us", direction.p99_us),
                format!("{:.0}", direction.iops()),
                format!("{} at a time", direction.parallelism()),
                format!("{:.0} MB/s", direction.rate / 1e6),
            ],
        });
    }
    let buffer = match &profile.buffer {
        Some(step) => format!(
            "Single reads take {:.0} us longer after each {}, as with a buffer of that size: the slq policies order around it.",
            step.us,
            Size(step.bytes)
        ),
        None => "The times of single reads have no step at any size: the device's buffer does not show."
            .to_owned(),
    };
    format!(
        "{}, {}\n\n{}\n{buffer}\nA brick gives it {} requests at a time. Kept in {}.",
        profile.device,
        Size(profile.device.bytes),
        table(&rows),
        profile.depth(),
        place.display()
    )
}
