//! The queue in front of the device of a direct brick.

use crate::records;

records! {
    /// Any process to brick: changes the queue in front of its device, until the brick restarts. Refused with `Invalid` if the
    /// device is not direct, and for anything out of range; then nothing changes.
    135 BrickTune {
        /// Requests that the device has at a time, besides those of the journal.
        depth: Option<u32>,
        /// In which order requests of a class go, as `pace::device::PolicyName` names it.
        policy: Option<String>,
        /// Parameters of the policy.
        parameters: Vec<QueueParameter>,
        /// Classes with new shares.
        shares: Vec<ClassShare>,
    } => QueueReport;
    /// A parameter of the policy of a queue.
    part QueueParameter {
        /// Its name, as `pace::device::Parameters` has it.
        name: String,
        /// Its value, in bytes, microseconds or requests.
        value: u64,
    }
    /// The share of the device's time that requests of a class have.
    part ClassShare {
        /// The class, as `pace::IoClass` names it.
        class: String,
        /// Thousandths that it gets whenever it asks.
        reservation: u32,
        /// Its part of the rest, in proportion to the weights of other classes.
        weight: u32,
        /// Thousandths that it gets at most.
        limit: u32,
    }
    /// What a class has asked of the queue.
    part ClassReport {
        /// Its share.
        share: ClassShare,
        /// Requests since the start.
        requests: u64,
        /// How long they have waited in the queue, in microseconds.
        waited_us: u64,
    }
    /// The queue in front of a direct device, and the blocks in memory.
    136 QueueReport {
        /// Requests that the device has at a time, besides those of the journal.
        depth: u32,
        /// In which order requests of a class go.
        policy: String,
        /// What the policy goes by.
        parameters: Vec<QueueParameter>,
        /// Requests that went together with a neighbour.
        merges: u64,
        /// Requests that went after their deadlines.
        expiries: u64,
        /// Requests that wait now.
        waiting: u32,
        /// Requests at the device now.
        at_device: u32,
        /// The classes.
        classes: Vec<ClassReport>,
        /// Bytes of blocks in memory.
        cache_used: u64,
        /// Bytes that they may take.
        cache_most: u64,
        /// Bytes that were read from them since the start.
        cached_bytes: u64,
    };
}
