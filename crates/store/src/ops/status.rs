//! The status report of a brick.

use pace::device::{Parameters, PolicyName};
use pace::{IoClass, Share};
use types::Refusal;
use types::messages::brick::BrickReport;
use types::messages::queue::{BrickTune, ClassReport, ClassShare, QueueParameter, QueueReport};
use world::direct::{QueueChange, QueueSettings};

use crate::read_cache::ReadCache;
use crate::server::Server;

/// Longest name of a class, a policy or a parameter, in bytes.
const NAME_MAX: usize = 32;

impl Server {
    /// The state of this brick.
    pub(crate) fn report(&self) -> BrickReport {
        let slot = self.slot.borrow();
        let (_, overlays) = slot.resident();
        let (capacity, free) = (self.capacity_bytes(), self.free_bytes());
        assert!(free <= capacity, "blocks counted twice as free would be promised to two writers");
        let described = self.described.get().unwrap_or(self.table.len());
        let units = (described + slot.new_units()).saturating_sub(slot.erased());
        BrickReport {
            brick: self.options.brick,
            cluster: self.superblock.cluster,
            pid: std::process::id(),
            disk: self.disk.name().to_owned(),
            capacity,
            free,
            units: units as u64,
            overlays: overlays as u64,
            decoded: self.counters.decoded.get(),
            damaged: self.counters.damaged.get(),
            ordered: self.counters.ordered.get(),
            folded: self.counters.folded.get(),
            patched: self.counters.patched.get(),
            joining: self.primary.borrow().join_reports(self.world.now()),
            primary_of: self.primary.borrow().served().map(|(id, _)| id).collect(),
            memory: self.world.memory(),
            memory_budget: self.options.memory_budget,
            turns: self.world.longest_turns(),
            window: self.world.window_report(),
            asked: self.asked.get(),
            device: self.disk.counts(),
            cache: self.cache.as_ref().map(ReadCache::report),
            queue: self.queue_report(),
        }
    }

    /// The queue in front of a direct device.
    fn queue_report(&self) -> Option<QueueReport> {
        let (counts, settings) = (self.disk.queue_counts()?, self.disk.queue_settings()?);
        let QueueSettings { depth, policy, parameters, shares } = settings;
        let report = |(at, class): (usize, IoClass)| {
            let Share { reservation, weight, limit } = shares[at];
            let share = ClassShare { class: class.word().to_owned(), reservation, weight, limit };
            ClassReport { share, requests: counts.requests[at], waited_us: counts.waited_us[at] }
        };
        // The depth is that of the queue.
        let parameter = |name: &'static str| {
            let value = parameters.get(name).filter(|_| name != "depth")?;
            Some(QueueParameter { name: name.to_owned(), value })
        };
        Some(QueueReport {
            depth,
            policy: policy.word().to_owned(),
            parameters: Parameters::names().filter_map(parameter).collect(),
            merges: counts.merges,
            expiries: counts.expiries,
            waiting: counts.waiting,
            at_device: counts.at_device,
            classes: IoClass::ALL.into_iter().enumerate().map(report).collect(),
            cache_used: counts.cache_used,
            cache_most: counts.cache_most,
            cached_bytes: counts.cached_bytes,
        })
    }

    /// Changes the queue in front of a direct device.
    pub(crate) fn tune(&self, request: &BrickTune) -> Result<QueueReport, Refusal> {
        // More would name a class or a parameter twice, and no name is so long.
        let names = request.shares.iter().map(|share| &share.class);
        let names =
            names.chain(request.parameters.iter().map(|parameter| &parameter.name)).chain(&request.policy);
        let (shares, parameters) = (request.shares.len(), request.parameters.len());
        let are_many = shares > IoClass::ALL.len() || parameters > Parameters::names().count();
        if are_many || { names }.any(|name| name.len() > NAME_MAX) {
            return Err(Refusal::Invalid);
        }
        let share = |wanted: &ClassShare| {
            let ClassShare { ref class, reservation, weight, limit } = *wanted;
            Ok((class.parse()?, Share { reservation, weight, limit }))
        };
        let parameters: Vec<(&str, u64)> =
            request.parameters.iter().map(|parameter| (parameter.name.as_str(), parameter.value)).collect();
        let tuned = || -> Result<(), String> {
            let shares: Vec<(IoClass, Share)> =
                request.shares.iter().map(share).collect::<Result<_, String>>()?;
            let policy: Option<PolicyName> = match &request.policy {
                Some(word) => Some(word.parse().map_err(|refusal| format!("{refusal}"))?),
                None => None,
            };
            let (depth, parameters, shares) = (request.depth, &*parameters, &*shares);
            self.disk.tune_queue(&QueueChange { depth, policy, parameters, shares })
        };
        tuned().map_err(|why| {
            tracing::info!(%why, "the queue cannot be tuned so");
            Refusal::Invalid
        })?;
        self.queue_report().ok_or(Refusal::Invalid)
    }
}
