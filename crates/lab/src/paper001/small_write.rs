//! Counts the cost of an overwrite of 4 KiB: accesses to disks, and traffic on the links.
//!
//! RAID-5 reads the old data and the old parity, and writes both: four accesses. Here every brick's disk is an NBD
//! server that logs each request, so everything is counted: the journal, its syncs, and deferred work.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::error::{Result, doing};
use crate::network::Traffic;

/// Bytes of an overwrite.
const PIECE: usize = 4 << 10;
/// Bytes of the file: whole stripes, many of them.
const FILE: u64 = 24 << 20;
/// Distance between overwrites, in pieces: a prime, so that they are spread over the file.
const STRIDE: u64 = 1223;
/// Accesses of the classic RAID-5 small write.
pub const CLASSIC: u32 = 4;
/// Time without accesses after which all deferred work counts as done.
const QUIET: Duration = Duration::from_secs(2);
/// How long deferred work may take.
const QUIET_PATIENCE: Duration = Duration::from_secs(30);

/// Accesses to all disks together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Accesses {
    /// Requests that read.
    pub reads: u64,
    /// Requests that write, zero or trim.
    pub writes: u64,
    /// Requests that make what was written durable; a write that does so counts here too.
    pub syncs: u64,
}

impl Accesses {
    fn since(self, before: Accesses) -> Accesses {
        Accesses {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            syncs: self.syncs - before.syncs,
        }
    }

    fn and(self, other: Accesses) -> Accesses {
        Accesses {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            syncs: self.syncs + other.syncs,
        }
    }

    /// Counts the accesses in a log of nbdkit: one line for each request, and one that begins with dots for its end.
    fn of_log(log: &str) -> Accesses {
        let mut accesses = Accesses::default();
        for line in log.lines() {
            let Some(request) = line.split_whitespace().find(|word| REQUESTS.contains(word)) else {
                continue;
            };
            match request {
                "Read" => accesses.reads += 1,
                "Flush" => accesses.syncs += 1,
                _ => {
                    accesses.writes += 1;
                    accesses.syncs += u64::from(line.contains(" fua=1"));
                }
            }
        }
        accesses
    }

    fn to_json(self) -> Value {
        json!({ "reads": self.reads, "writes": self.writes, "syncs": self.syncs })
    }

    fn from_json(value: &Value) -> Option<Accesses> {
        let number = |name: &str| value[name].as_u64();
        Some(Accesses { reads: number("reads")?, writes: number("writes")?, syncs: number("syncs")? })
    }
}

const REQUESTS: [&str; 5] = ["Read", "Write", "Flush", "Zero", "Trim"];

/// The cost of some overwrites.
#[derive(Clone, PartialEq, Debug)]
pub struct SmallWrite {
    /// How many there were, each made durable before the next.
    pub overwrites: u64,
    /// Until the last one was durable.
    pub durable: Accesses,
    /// After that, until all deferred work was done.
    pub later: Accesses,
    /// Packets over all links, minus those of an idle period of the same length.
    pub packets: u64,
    /// The same in bytes, headers counted.
    pub wire: u64,
    /// How long the overwrites took together, in seconds.
    pub seconds: f64,
}

impl SmallWrite {
    /// The mean per overwrite.
    pub fn each(&self, count: u64) -> f64 {
        count as f64 / self.overwrites.max(1) as f64
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "overwrites": self.overwrites,
            "until_durable": self.durable.to_json(),
            "later": self.later.to_json(),
            "packets": self.packets,
            "wire_bytes": self.wire,
            "seconds": self.seconds,
            "classic_accesses": CLASSIC,
        })
    }

    pub(crate) fn from_json(value: &Value) -> Option<SmallWrite> {
        Some(SmallWrite {
            overwrites: value["overwrites"].as_u64()?,
            durable: Accesses::from_json(&value["until_durable"])?,
            later: Accesses::from_json(&value["later"])?,
            packets: value["packets"].as_u64()?,
            wire: value["wire_bytes"].as_u64()?,
            seconds: value["seconds"].as_f64()?,
        })
    }
}

/// Overwrites pieces of a file through a mount at `node`, and counts.
///
/// # Errors
/// A write failed, or the disks do not come to rest.
pub fn count(cluster: &Cluster<'_>, node: u32, overwrites: u64) -> Result<SmallWrite> {
    let mount = cluster.mount(node)?;
    let path = mount.dir().join("small");
    let file = make(&path).map_err(doing(format!("write {}", path.display())))?;
    let network = cluster.network();
    let disks = rest(cluster)?;
    let (traffic, start) = (network.forwarded()?, Instant::now());
    overwrite(&file, overwrites).map_err(doing(format!("overwrite {}", path.display())))?;
    let took = start.elapsed();
    let traffic = network.forwarded()?.since(traffic);
    let durable = accesses(cluster)?;
    drop(file);
    let after = rest(cluster)?;
    let idle = idle(cluster, took)?;
    mount.unmount()?;
    Ok(SmallWrite {
        overwrites,
        durable: durable.since(disks),
        later: after.since(durable),
        packets: traffic.packets.saturating_sub(idle.packets),
        wire: traffic.received.saturating_sub(idle.received),
        seconds: took.as_secs_f64(),
    })
}

fn make(path: &std::path::Path) -> std::io::Result<File> {
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    let block = vec![0x5a; 1 << 20];
    for _ in 0..FILE / block.len() as u64 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    Ok(file)
}

fn overwrite(file: &File, overwrites: u64) -> std::io::Result<()> {
    let pieces = FILE / PIECE as u64;
    for number in 0..overwrites {
        file.write_all_at(&[number as u8; PIECE], number * STRIDE % pieces * PIECE as u64)?;
        file.sync_data()?;
    }
    Ok(())
}

/// The accesses of all disks until now.
fn accesses(cluster: &Cluster<'_>) -> Result<Accesses> {
    let mut all = Accesses::default();
    for number in 1..=cluster.plan().nodes {
        let path = cluster.accesses(number);
        let log = std::fs::read_to_string(&path).map_err(doing(format!("read {}", path.display())))?;
        all = all.and(Accesses::of_log(&log));
    }
    Ok(all)
}

/// Waits until no disk has been accessed for a while. Returns the accesses until then.
fn rest(cluster: &Cluster<'_>) -> Result<Accesses> {
    let start = Instant::now();
    let mut last = (accesses(cluster)?, Instant::now());
    while last.1.elapsed() < QUIET {
        if start.elapsed() > QUIET_PATIENCE {
            return Err(doing("count the accesses of disks")("they do not come to rest"));
        }
        std::thread::sleep(Duration::from_millis(100));
        let now = accesses(cluster)?;
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    Ok(last.0)
}

/// The traffic of an idle cluster.
fn idle(cluster: &Cluster<'_>, time: Duration) -> Result<Traffic> {
    let before = cluster.network().forwarded()?;
    std::thread::sleep(time);
    Ok(cluster.network().forwarded()?.since(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_and_their_ends_are_not() {
        let log = "2026-01-01 00:00:00.0 Preconnect id=1 readonly=0 ...\n\
                   2026-01-01 00:00:00.1 connection=1 Connect export=brick tls=0 size=0x100000 write=1 flush=1\n\
                   2026-01-01 00:00:00.2 connection=1 Read id=1 offset=0x0 count=0x1000 ...\n\
                   2026-01-01 00:00:00.3 connection=1 ...Read id=1 return=0\n\
                   2026-01-01 00:00:00.4 connection=1 Write id=2 offset=0x0 count=0x1000 fua=1 ...\n\
                   2026-01-01 00:00:00.5 connection=1 ...Write id=2 return=0\n\
                   2026-01-01 00:00:00.6 connection=1 Zero id=3 offset=0x0 count=0x1000 trim=1 fua=0 fast=0 ...\n\
                   2026-01-01 00:00:00.7 connection=1 Flush id=4 ...\n";
        assert_eq!(Accesses::of_log(log), Accesses { reads: 1, writes: 2, syncs: 2 });
    }
}
