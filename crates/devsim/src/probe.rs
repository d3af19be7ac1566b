//! How long single reads take: the figures by which the paper found the buffer of its device.

use pace::device::Operation;

use crate::device::{Command, Device};
use crate::events::{Event, Events};
use crate::setup::{Refused, Setup, Ssd};
use crate::time::{Time, US, span};

/// A single read of a device that is idle.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Probe {
    /// Its bytes.
    pub length: u64,
    /// How long it takes, in microseconds.
    pub us: f64,
    /// How much of that is not the command, the flash and the bytes, in microseconds.
    pub extra_us: f64,
}

/// Reads of these lengths, one at a time.
pub fn probe(setup: &Setup, lengths: &[u64]) -> Result<Vec<Probe>, Refused> {
    setup.check()?;
    let ssd = setup.ssd;
    let one = |&length: &u64| {
        let time = alone(ssd, length);
        let plain = (ssd.command_us + ssd.read_us) * US + span(length, ssd.link);
        Probe { length, us: time as f64 / 1e3, extra_us: (time as f64 - plain as f64) / 1e3 }
    };
    Ok(lengths.iter().filter(|length| **length > 0).map(one).collect())
}

fn alone(ssd: Ssd, length: u64) -> Time {
    let (mut device, mut events) = (Device::new(ssd, 0), Events::default());
    let command = Command { token: None, operation: Operation::Read, offset: 0, length };
    device.begin(0, command, &mut events);
    let mut ended = 0;
    while let Some((now, event)) = events.pop(Time::MAX) {
        ended = now;
        match event {
            Event::Ready(slot) => device.ready(now, slot, &mut events),
            Event::Moved(slot) => {
                device.moved(now, slot, &mut events);
            }
            _ => {}
        }
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use pace::device::PolicyName;

    #[test]
    fn what_is_longer_than_the_buffer_takes_longer_as_the_paper_has_measured() {
        let lengths = [4 << 10, 512 << 10, (512 << 10) + 4096, 2_300 << 10];
        let found = probe(&Setup::new(PolicyName::Noop), &lengths).expect("the defaults");
        let extra: Vec<f64> = found.iter().map(|probe| probe.extra_us.round()).collect();
        assert_eq!(extra, [0.0, 0.0, 125.0, 500.0], "100 to 150 us; 400 to 600 us for 2.3 MB");
    }
}
