//! Prints the speed of the code on this machine: `cargo run --release -p layout --example code_bench -- 8+2,2+1
//! 4096,1048576 0.1` (codes, bytes of data in a stripe, seconds for each row).

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use layout::{Operation, code_bench};
use types::Code;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let codes = arguments.next().unwrap_or_else(|| "2+1,4+1,4+2,8+2,8+3,10+4".into());
    let stripes = arguments.next().unwrap_or_else(|| "4096,32768,524288,1048576,8388608".into());
    let seconds: f64 = arguments.next().unwrap_or_else(|| "0.1".into()).parse()?;
    let codes = codes.split(',').map(str::parse).collect::<Result<Vec<Code>, _>>()?;
    let stripes = stripes.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    #[expect(clippy::disallowed_methods, reason = "a program, not the library: it owns the clock")]
    let start = Instant::now();
    let rows = code_bench(&codes, &stripes, seconds, &|| start.elapsed().as_micros() as u64);
    let mut lines: BTreeMap<_, BTreeMap<_, String>> = BTreeMap::new();
    for row in rows {
        let speed = row.speed.map_or_else(|error| error.to_string(), |speed| format!("{speed:.1}"));
        let line = lines.entry((row.code, row.stripe, row.backend.name(), row.access.name())).or_default();
        line.insert(row.operation.name(), speed);
    }
    let operations = [Operation::Encode, Operation::DecodeOne, Operation::DecodeTwo].map(Operation::name);
    println!("| code | stripe | backend | access | {} |", operations.join(" | "));
    println!("|---|---|---|---|---|---|---|");
    for ((code, stripe, backend, access), speeds) in lines {
        let speeds = operations.map(|name| speeds.get(name).map_or("", String::as_str));
        println!("| {code} | {stripe} | {backend} | {access} | {} |", speeds.join(" | "));
    }
    Ok(())
}
