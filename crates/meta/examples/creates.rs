//! How many files a second the metadata service's own layers make: `creates PATH [BATCH] [COUNT]`.
//!
//! No network: changes are given to the batch in memory, so this is the store's cost and the operations'. Prints
//! changes per second, CPU per change and time per record, for a store at PATH with its journal beside it, or memory if
//! PATH is `memory`.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

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
    for (name, measured) in creates(&world, engine, batch, count, &clock)? {
        let Measured { changes, batches, wall, cpu } = measured;
        let per = |time: Duration, count: u64| time.as_secs_f64() * 1e6 / count as f64;
        let rate = changes as f64 / wall.as_secs_f64();
        let (cpu, commit) = (per(cpu, changes), per(wall, batches));
        println!("{name:>10} {batch:>6} {rate:>10.0} {cpu:>10.2} {commit:>12.0}");
    }
    Ok(())
}

/// Time that has passed, and CPU time that this process has taken.
fn clock() -> (Duration, Duration) {
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    // Nanoseconds on a CPU, first of three numbers.
    let cpu = text("/proc/self/schedstat").split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    (BEGUN.get_or_init(Instant::now).elapsed(), Duration::from_nanos(cpu))
}
