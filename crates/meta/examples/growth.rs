//! What a store of many names costs: `growth DIR [IN_A_DIRECTORY] [COUNT...]`.
//!
//! Makes files, so many in each directory, without a network, 64 changes to a record. At each count: operations a second on
//! more files, the time of a start, of a check of all names, the size of the store, and the memory that this process has taken
//! at most so far. DIR must be empty.

use std::path::Path;
use std::time::Duration;

use meta::Engine;
use meta::measure::{Grown, growth};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: growth DIR [IN_A_DIRECTORY] [COUNT...]")?;
    let in_directory: usize = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let counts: Vec<usize> = arguments.map(|text| text.parse()).collect::<Result<_, _>>()?;
    let counts = if counts.is_empty() { vec![10_000, 100_000, 1_000_000] } else { counts };
    let path = Path::new(&dir).join("meta.redb");
    let open = || Ok(Engine::open_redb(&path)?);
    let head = [
        "files",
        "create/s",
        "unlink/s",
        "lookup/s",
        "list/s",
        "start ms",
        "check s",
        "store B/file",
        "RAM MiB",
    ];
    println!("{}", head.map(|word| format!("{word:>13}")).concat());
    let world = world::World::real()?;
    let clock = || (Duration::from_micros(world.now()), cpu_time());
    let mut told = |grown: &Grown| {
        let Grown { files, creates, unlinks, lookups, listed, start, check } = grown;
        let store = std::fs::metadata(&path).map_or(0, |store| store.len());
        println!(
            "{files:>13}{creates:>13.0}{unlinks:>13.0}{lookups:>13.0}{listed:>13.0}{:>13.1}{:>13.2}{:>13}{:>13}",
            start.as_secs_f64() * 1e3,
            check.as_secs_f64(),
            store / files,
            peak_mib()
        );
    };
    growth(&world, &open, &counts, in_directory, &clock, &mut told)?;
    Ok(())
}

/// Most memory that this process has had so far, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) >> 10
}

/// CPU time that this process has taken.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    // Nanoseconds on a CPU, first of three numbers.
    Duration::from_nanos(text.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0))
}
