//! How many requests the model takes per second of a core: every policy on every workload.
//!
//! `cargo run --release -p devsim --example rate`

use devsim::{Setup, Simulation, WorkloadName};
use pace::device::PolicyName;

/// User time of this process, in seconds; Linux counts hundredths.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name of the program, which may have blanks, the 12th field.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().nth(11).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0) / 100.0
}

fn main() {
    let mut all = (0, 0.0);
    for policy in PolicyName::ALL {
        let (mut requests, begun) = (0, cpu_seconds());
        for workload in WorkloadName::ALL {
            match Simulation::new(Setup { time_ms: 20_000, ..Setup::new(policy) }, workload) {
                Ok(simulation) => requests += simulation.run().submitted,
                Err(refused) => return eprintln!("error: {refused}"),
            }
        }
        let seconds = cpu_seconds() - begun;
        println!(
            "{policy:15} {requests:9} requests {seconds:5.2} s {:5.2} million/s",
            requests as f64 / seconds / 1e6
        );
        all = (all.0 + requests, all.1 + seconds);
    }
    println!(
        "{:15} {:9} requests {:5.2} s {:5.2} million/s",
        "all",
        all.0,
        all.1,
        all.0 as f64 / all.1 / 1e6
    );
}
