//! `shoal code`: measures the codes.

use std::time::Instant;

use anyhow::Context;
use clap::{Args, Subcommand};
use layout::{Operation, Row, code_bench};
use serde_json::{Value, json};
use types::{Code, limits};

use crate::output::{Output, table};
use crate::size::Size;

/// Measures the codes on this machine
#[derive(Args)]
pub(crate) struct CodeArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Bench(BenchArgs),
}

/// Measures how fast data is encoded and lost units are decoded, by code, stripe size and implementation
#[derive(Args)]
#[command(after_help = "\
Uses one core. GB/s (10^9 bytes/s) counts bytes of data, not of parity. `hot` repeats one stripe, `memory` goes through
64 MiB of stripes. `scalar` is the simple implementation against which the fast one is checked.

Examples:
  shoal code bench
  shoal code bench --code 8+2 --code 10+4 --stripe 1M --json")]
struct BenchArgs {
    /// Codes to measure
    #[arg(long, value_name = "K+M", default_value = "8+2")]
    code: Vec<Code>,
    /// Bytes of data in a stripe
    #[arg(long, value_name = "SIZE", default_values = ["16K", "64K", "256K", "1M", "8M"])]
    stripe: Vec<Size>,
    /// Milliseconds for each figure
    #[arg(long, value_name = "MS", default_value_t = 150, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    time: u64,
}

pub(crate) fn run(args: &CodeArgs, output: &Output) -> anyhow::Result<()> {
    let Action::Bench(args) = &args.action;
    let stripes: Vec<usize> = args
        .stripe
        .iter()
        .map(|s| usize::try_from(s.0))
        .collect::<Result<_, _>>()
        .context("--stripe is too large")?;
    if let Some(large) = stripes.iter().find(|s| **s > limits::STRIPE_MAX) {
        anyhow::bail!("--stripe of {large} bytes is too large: at most {}", Size(limits::STRIPE_MAX as u64));
    }
    let spinner = output.spinner("measuring");
    let began = Instant::now();
    let now = || u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    let rows = code_bench(&args.code, &stripes, args.time as f64 / 1e3, &now);
    spinner.finish_and_clear();
    let document: Vec<Value> = rows.iter().map(row_document).collect();
    output.answer(&document.into(), || words(&rows));
    match rows.iter().find_map(|row| row.speed.as_ref().err().map(|e| (row, e))) {
        Some((row, error)) => {
            anyhow::bail!("{} by {} failed: {error}", row.operation.name(), row.backend.name())
        }
        None => Ok(()),
    }
}

fn row_document(row: &Row) -> Value {
    json!({
        "code": row.code.to_string(),
        "stripe": row.stripe,
        "backend": row.backend.name(),
        "data": row.access.name(),
        "operation": row.operation.name(),
        "gb_per_s": row.speed.as_ref().ok(),
        "error": row.speed.as_ref().err().map(ToString::to_string),
    })
}

/// One line for each code, stripe, place and backend; the operations side by side.
fn words(rows: &[Row]) -> String {
    let operations = [Operation::Encode, Operation::DecodeOne, Operation::DecodeTwo];
    let mut head = ["code", "stripe", "data", "backend"].map(str::to_owned).to_vec();
    head.extend(operations.map(|o| o.name().to_owned()));
    let mut lines = vec![head];
    let same =
        |a: &Row, b: &Row| (a.code, a.stripe, a.backend, a.access) == (b.code, b.stripe, b.backend, b.access);
    for group in rows.chunk_by(same) {
        let Some(first) = group.first() else { continue };
        let mut line = vec![
            first.code.to_string(),
            Size(first.stripe as u64).to_string(),
            first.access.name().to_owned(),
            first.backend.name().to_owned(),
        ];
        line.extend(operations.map(|operation| {
            let row = group.iter().find(|row| row.operation == operation);
            row.map_or("-".into(), |row| {
                row.speed.as_ref().map_or("failed".into(), |s| format!("{s:.2} GB/s"))
            })
        }));
        lines.push(line);
    }
    table(&lines)
}
