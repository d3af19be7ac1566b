//! Measures how busy the machine was.

use crate::error::{Result, doing};

/// Times of all cores since the machine started, in clock ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuTimes {
    busy: u64,
    all: u64,
}

impl CpuTimes {
    /// The times until now. They include all work on the machine, because work for the network belongs to no process.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read.
    pub fn now() -> Result<CpuTimes> {
        let file = "/proc/stat";
        let text = std::fs::read_to_string(file).map_err(doing(format!("read {file}")))?;
        CpuTimes::parse(&text).ok_or("it has no line of all cores").map_err(doing(format!("read {file}")))
    }

    /// `cpu user nice system idle iowait irq softirq steal guest guest_nice`; guests are in user already.
    fn parse(text: &str) -> Option<CpuTimes> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
        let all: u64 = ticks.iter().sum();
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(CpuTimes { busy: all - idle, all })
    }

    /// The share of time for which the cores were busy since `before`, 0 to 1.
    pub fn busy_since(self, before: CpuTimes) -> f64 {
        let all = self.all.saturating_sub(before.all);
        if all == 0 { 0.0 } else { self.busy.saturating_sub(before.busy) as f64 / all as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_idle_and_guests_count_once() {
        let of = |line: &str| CpuTimes::parse(line).expect("ticks");
        let before = of("cpu  10 0 10 70 10 0 0 0 10 0\ncpu0 1 2");
        let after = of("cpu  40 0 20 120 20 0 0 0 40 0\n");
        assert_eq!(after.busy_since(before), 0.4);
        assert_eq!(before.busy_since(before), 0.0);
        assert_eq!(CpuTimes::parse("cpu0 1 2"), None);
    }
}
