//! What an answer tells about the time that a brick needed for it.

use crate::{BrickId, records};

/// An answer that took the brick at least this long tells where the time went, in microseconds. Quicker answers stay small.
pub const SERVED_MIN_US: u64 = 500;

records! {
    /// How long a request was at a brick, and what it waited for there, in microseconds. What is in no field is the work of the
    /// brick's process.
    #[derive(Copy, Default)]
    part StageTimes {
        /// From the first look at the request to its answer.
        total_us: u32,
        /// Waiting for room: other accepted writes, or a journal that is full.
        queue_us: u32,
        /// Waiting in the stripe's lane for earlier operations.
        lane_us: u32,
        /// Waiting until the journal was synced.
        journal_us: u32,
        /// Reading from and writing to the device.
        device_us: u32,
    }
    /// The request that a brick sent to another brick meanwhile. If there were several, the one that took longest.
    #[derive(Copy)]
    part OtherServed {
        /// The other brick.
        brick: BrickId,
        /// From sending the request to its answer, in microseconds.
        took_us: u32,
        /// What the other brick says of it. All zeros if it was quick.
        times: StageTimes,
    }
    /// Where the time of an answer went. In front of the record, if the frame has [`Flags::TIMED`](super::Flags::TIMED).
    #[derive(Copy, Default)]
    part Served {
        /// At the brick that answers.
        own: StageTimes,
        /// At another brick that it waited for.
        other: Option<OtherServed>,
    }
}

impl StageTimes {
    /// Time in none of the stages, in microseconds.
    pub fn rest_us(&self) -> u32 {
        let stages = [self.queue_us, self.lane_us, self.journal_us, self.device_us];
        stages.iter().fold(self.total_us, |rest, us| rest.saturating_sub(*us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Codec, Reader, to_bytes};

    #[test]
    fn it_is_read_off_the_front_of_a_record() {
        let served = Served::sample(&mut 0);
        let mut bytes = Vec::new();
        served.encode(&mut bytes);
        bytes.extend([7; 3]);
        let mut reader = Reader::new(&bytes);
        assert_eq!(Served::decode(&mut reader), Ok(served));
        assert_eq!(reader.remaining(), 3);
        assert_eq!(to_bytes(&Served::default()).len(), 22);
    }

    #[test]
    fn stages_never_take_more_than_all() {
        let times = StageTimes { total_us: 10, queue_us: 1, lane_us: 2, journal_us: 3, device_us: 1 };
        assert_eq!(times.rest_us(), 3);
        assert_eq!(StageTimes { device_us: 100, ..times }.rest_us(), 0);
    }
}
