//! How many files a second the metadata service's own layers make: `creates PATH [BATCH] [COUNT]`.
//!
//! No network: changes are given to the batch in memory, so this is the store's cost and the operations'. Prints
//! changes per second, CPU per change and time per record, for a store at PATH with its journal beside it, or memory if
//! PATH is `memory`.

use std::time::Duration;

use meta::measure::{Measured, creates};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: creates PATH|memory [BATCH] [COUNT]")?;
    let batch: usize = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let count: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let engine = match path.as_str() {
        "memory" => meta::Engine::memory(),
        path => meta::Engine::open_redb(path)?,
    };
    println!("{:>10} {:>6} {:>10} {:>10} {:>12}", "", "batch", "per second", "cpu us", "record us");
    let world = world::World::real()?;
    let clock = || (Duration::from_micros(world.now()), cpu_time());
    for (name, measured) in creates(&world, engine, batch, count, &clock)? {
        let Measured { changes, batches, wall, cpu } = measured;
        let per = |time: Duration, count: u64| time.as_secs_f64() * 1e6 / count as f64;
        let rate = changes as f64 / wall.as_secs_f64();
        let (cpu, commit) = (per(cpu, changes), per(wall, batches));
        println!("{name:>10} {batch:>6} {rate:>10.0} {cpu:>10.2} {commit:>12.0}");
    }
    Ok(())
}

/// CPU time that this process has taken.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    // Nanoseconds on a CPU, first of three numbers.
    Duration::from_nanos(text.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0))
}
