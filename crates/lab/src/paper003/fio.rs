//! Runs fio, and reads what it says.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::error::{LabError, Result, doing};

/// What a job of fio did in one direction.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Direction {
    /// Bytes.
    pub bytes: u64,
    /// Operations.
    pub operations: u64,
    /// Mean time of an operation, in microseconds.
    pub mean_us: f64,
}

/// What a job of fio did.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Its reads.
    pub reads: Direction,
    /// Its writes.
    pub writes: Direction,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// What all jobs of a run did.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Found {
    /// Each job; one that was started several times is there several times.
    pub jobs: Vec<Job>,
}

impl Found {
    /// From the start to the end of the last job, in seconds.
    pub fn seconds(&self) -> f64 {
        self.jobs.iter().map(|job| job.seconds).fold(0.0, f64::max)
    }

    /// Bytes that were read and written.
    pub fn bytes(&self) -> u64 {
        self.jobs.iter().map(|job| job.reads.bytes + job.writes.bytes).sum()
    }

    /// Reads and writes per second.
    pub fn rates(&self) -> [f64; 2] {
        let seconds = self.seconds().max(f64::MIN_POSITIVE);
        let all = |direction: fn(&Job) -> Direction| {
            self.jobs.iter().map(|job| direction(job).operations).sum::<u64>() as f64 / seconds
        };
        [all(|job| job.reads), all(|job| job.writes)]
    }

    /// Mean times of reads and of writes, in microseconds; 0 if there were none.
    pub fn mean_us(&self) -> [f64; 2] {
        let mean = |direction: fn(&Job) -> Direction| {
            let each = self.jobs.iter().map(direction);
            let (time, count) = each.fold((0.0, 0), |(time, count), of| {
                (time + of.mean_us * of.operations as f64, count + of.operations)
            });
            if count == 0 { 0.0 } else { time / count as f64 }
        };
        [mean(|job| job.reads), mean(|job| job.writes)]
    }
}

/// Runs the jobs of a job file, of which nothing is kept but what they did.
///
/// # Errors
/// fio cannot be started, or a job fails.
pub fn run(jobs: &str, work: &Path, words: &[&str]) -> Result<Found> {
    let file = work.join("jobs.fio");
    std::fs::write(&file, jobs).map_err(doing(format!("write {}", file.display())))?;
    let mut command = Command::new("fio");
    command.args(["--output-format=json", "--eta=never"]).args(words).arg(&file);
    let ran = command.current_dir(work).stdin(Stdio::null()).output().map_err(doing("start fio"))?;
    let said = String::from_utf8_lossy(&ran.stdout);
    let failed = |said: String| LabError::Command { command: format!("{command:?}"), said };
    if !ran.status.success() {
        let errors = String::from_utf8_lossy(&ran.stderr);
        // As many jobs say the same as there are.
        return Err(failed(errors.lines().chain(said.lines()).take(2).collect::<Vec<_>>().join("; ")));
    }
    parse(&said).ok_or_else(|| failed("it did not say what its jobs did, or one of them failed".to_owned()))
}

/// Reads fio's report in JSON, before which it may have put warnings. `None` if it is no such report, or a job failed.
pub fn parse(text: &str) -> Option<Found> {
    let document: Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let jobs = document["jobs"].as_array()?.iter().map(job).collect::<Option<Vec<Job>>>()?;
    Some(Found { jobs })
}

fn job(value: &Value) -> Option<Job> {
    if value["error"].as_i64()? != 0 {
        return None;
    }
    let direction = |name: &str| {
        let of = &value[name];
        Some(Direction {
            bytes: of["io_bytes"].as_u64()?,
            operations: of["total_ios"].as_u64()?,
            mean_us: of["lat_ns"]["mean"].as_f64()? / 1e3,
        })
    };
    Some(Job {
        name: value["jobname"].as_str()?.to_owned(),
        reads: direction("read")?,
        writes: direction("write")?,
        seconds: value["job_runtime"].as_u64()? as f64 / 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = r#"note: a warning
{ "fio version": "fio-3.33", "jobs": [
  { "jobname": "readers", "error": 0, "job_runtime": 2000,
    "read": { "io_bytes": 8192, "total_ios": 2, "lat_ns": { "mean": 5000.0 } },
    "write": { "io_bytes": 0, "total_ios": 0, "lat_ns": { "mean": 0.0 } } },
  { "jobname": "writers", "error": 0, "job_runtime": 1500,
    "read": { "io_bytes": 4096, "total_ios": 2, "lat_ns": { "mean": 7000.0 } },
    "write": { "io_bytes": 65536, "total_ios": 1, "lat_ns": { "mean": 90000.0 } } } ] }"#;

    #[test]
    fn the_report_of_fio_is_read() {
        let found = parse(SAID).expect("a report");
        assert_eq!(found.jobs.iter().map(|job| &*job.name).collect::<Vec<_>>(), ["readers", "writers"]);
        assert_eq!((found.seconds(), found.bytes()), (2.0, 77_824));
        assert_eq!((found.rates(), found.mean_us()), ([2.0, 0.5], [6.0, 90.0]));
    }

    #[test]
    fn what_failed_or_is_no_report_is_none() {
        assert_eq!(parse(&SAID.replacen("\"error\": 0", "\"error\": 5", 1)), None);
        assert_eq!(parse(&SAID.replace("total_ios", "ios")), None);
        assert_eq!(parse("fio: pid=0, err=2"), None);
        assert_eq!(parse("{ \"jobs\": 3 }"), None);
    }
}
