//! `shoal brick bench`: random reads of a disk, as a direct brick makes them.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use clap::Args;
use pace::device::PolicyName;
use serde_json::json;
use types::limits::BLOCK;
use world::direct::{DEPTH, DEPTH_MAX, DirectOptions};
use world::{DiskMode, World};

use super::load::keep_busy;
use super::{explain_open, policy};
use crate::output::Output;
use crate::problem::problem;
use crate::remote::real_world;

/// Measures random reads of 4 KiB of a disk behind the queue of a direct brick, to compare with fio; changes nothing
#[derive(Args)]
#[command(after_help = "\
The disk need not hold a brick, and no brick may be using it. Nothing is kept in memory.

Examples:
  shoal brick bench /dev/sdb
  fio --name=r --filename=/dev/sdb --direct=1 --rw=randread --bs=4k --ioengine=io_uring --iodepth=32 --runtime=5 --time_based")]
pub(super) struct BenchArgs {
    /// Block device or file
    disk: PathBuf,
    /// Requests that the disk has at a time
    #[arg(long, value_name = "N", default_value_t = DEPTH,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)))]
    depth: u32,
    /// The order of requests
    #[arg(long, value_name = "POLICY", value_parser = policy, default_value = "noop")]
    scheduler: PolicyName,
    /// How long to measure, in seconds
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    let found = text.parse::<f64>().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    found.ok_or_else(|| "0.01 to 3600 seconds".to_owned())
}

pub(super) fn run(args: &BenchArgs, output: &Output) -> anyhow::Result<()> {
    let per_second = measure(args)?;
    let document = json!({
        "disk": args.disk.to_string_lossy(), "depth": args.depth, "scheduler": args.scheduler.word(),
        "seconds": args.seconds, "reads_per_s": per_second,
    });
    output.answer(&document, || {
        format!(
            "{per_second:.0} random reads of 4 KiB per second, {} at a time, {}",
            args.depth, args.scheduler
        )
    });
    Ok(())
}

/// Reads per second.
fn measure(args: &BenchArgs) -> anyhow::Result<f64> {
    let path = args.disk.to_string_lossy().into_owned();
    if !Path::new(&path).exists() {
        return Err(problem(format!("{path} is not there"), "a disk or a file that there is"));
    }
    let world: World = real_world()?;
    world.block_on(async {
        let opened = world.open_disk_as(&path, DiskMode::Direct).await;
        let disk = opened.map_err(|error| explain_open(&path, &error))?;
        let options =
            DirectOptions { cache_bytes: 0, depth: args.depth, policy: args.scheduler, priority: None };
        let (disk, done) = (disk.behind_queue(options), Cell::new(0_u64));
        let blocks = disk.len() / BLOCK as u64;
        if blocks == 0 {
            return Err(problem(format!("{path} has less than a block of 4 KiB"), "a larger one"));
        }
        let begun = world.now();
        let read = || async { disk.read(world.random() % blocks * BLOCK as u64, BLOCK).await.map(drop) };
        let until = begun + (args.seconds * 1e6) as u64;
        keep_busy(&world, args.depth, until, read, |_| done.set(done.get() + 1)).await?;
        Ok(done.get() as f64 * 1e6 / (world.now() - begun).max(1) as f64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::remedy;

    #[test]
    fn a_disk_that_is_not_there_is_told() {
        let args =
            BenchArgs { disk: "/no/disk".into(), depth: 1, scheduler: PolicyName::Noop, seconds: 0.01 };
        let error = measure(&args).expect_err("there is none");
        assert!(error.to_string().contains("/no/disk is not there") && remedy(&error).is_some());
    }

    #[test]
    fn a_time_is_one() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for text in ["0", "nan", "1e9", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
