use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const BLOCK: u64 = 4096;

#[derive(Clone, Copy, Debug)]
enum Act {
    Add { operation: u8, block: u64, blocks: u64, process: u32, waited_for: bool },
    Dispatch,
    Complete(usize),
    Pass(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let add = (0u8..20, 0u64..96, 1u64..12, 0u32..4, any::<bool>());
    let add = add.prop_map(|(operation, block, blocks, process, waited_for)| Act::Add {
        operation,
        block,
        blocks,
        process,
        waited_for,
    });
    let act = prop_oneof![
        6 => add,
        4 => Just(Act::Dispatch),
        3 => any::<usize>().prop_map(Act::Complete),
        2 => (0u64..400_000).prop_map(Act::Pass),
    ];
    proptest::collection::vec(act, 1..400)
}

fn parameters() -> impl Strategy<Value = Parameters> {
    let priority = prop_oneof![Just(0u64), Just(8 << 10), Just(16 << 10), Just(4 << 20)];
    let largest = prop_oneof![Just(4u64 << 10), Just(16 << 10), Just(4 << 20)];
    (priority.clone(), priority, largest, 1u64..9, prop_oneof![Just(0u64), Just(8_000)]).prop_map(
        |(read_priority, write_priority, largest, depth, slice_idle_us)| Parameters {
            read_priority,
            write_priority,
            largest,
            depth,
            slice_idle_us,
            fifo_batch: 4,
            ..Parameters::default()
        },
    )
}

/// A scheduler, and beside it all that is known of its requests.
struct Checked {
    scheduler: Scheduler,
    now_us: u64,
    /// Requests that are not complete, with when they were added, and whether they are in flight.
    open: BTreeMap<u64, (Request, u64, bool)>,
    in_flight: Vec<Token>,
    /// Ids in the order of dispatch.
    order: Vec<u64>,
    added: u64,
    /// Dispatches while the oldest request of a direction had expired: reads, writes.
    late: [u64; 2],
}

fn overlap(one: &Request, other: &Request) -> bool {
    one.offset < other.offset + other.length && other.offset < one.offset + one.length
}

/// Whether `later` must not overtake `earlier`.
fn depends(later: &Request, earlier: &Request) -> bool {
    if later.operation == Operation::Flush {
        return earlier.operation == Operation::Write;
    }
    let writes = later.operation == Operation::Write || earlier.operation == Operation::Write;
    writes && earlier.operation != Operation::Flush && overlap(later, earlier)
}

impl Checked {
    fn new(name: PolicyName, parameters: Parameters) -> Checked {
        Checked {
            scheduler: Scheduler::new(name, parameters).expect("parameters in their ranges"),
            now_us: 0,
            open: BTreeMap::new(),
            in_flight: Vec::new(),
            order: Vec::new(),
            added: 0,
            late: [0; 2],
        }
    }

    fn act(&mut self, act: Act) -> Result<(), TestCaseError> {
        match act {
            Act::Add { operation, block, blocks, process, waited_for } => {
                let (operation, blocks) = match operation {
                    0 => (Operation::Flush, 0),
                    1..=9 => (Operation::Write, blocks),
                    _ => (Operation::Read, blocks),
                };
                self.added += 1;
                let request = Request {
                    id: self.added,
                    operation,
                    offset: block * BLOCK,
                    length: blocks * BLOCK,
                    process,
                    priority: (process + 2) as u8,
                    waited_for: waited_for || operation == Operation::Read,
                };
                self.open.insert(request.id, (request, self.now_us, false));
                prop_assert_eq!(self.scheduler.add(self.now_us, request), Ok(()));
            }
            Act::Dispatch => {
                self.dispatch()?;
            }
            Act::Complete(at) => self.complete(at)?,
            Act::Pass(us) => self.now_us += us,
        }
        Ok(())
    }

    /// Requests that wait and depend on nothing, by deadline.
    fn due(&self) -> Vec<(u64, u64)> {
        let parameters = self.scheduler.parameters();
        let waits = |(request, _, in_flight): &&(Request, u64, bool)| {
            let is_free = !self.open.range(..request.id).any(|(_, earlier)| depends(request, &earlier.0));
            !in_flight && request.operation != Operation::Flush && is_free
        };
        let expiry = |request: &Request| match request.operation {
            Operation::Read => parameters.read_expiry_us,
            _ => parameters.write_expiry_us,
        };
        let due = self.open.values().filter(waits).map(|(request, at, _)| (at + expiry(request), request.id));
        let mut due: Vec<(u64, u64)> = due.collect();
        due.sort_unstable();
        due
    }

    fn dispatch(&mut self) -> Result<bool, TestCaseError> {
        let due = self.due();
        let Some(dispatch) = self.scheduler.dispatch(self.now_us) else { return Ok(false) };
        let requests: Vec<Request> = self.scheduler.requests(dispatch.token).copied().collect();
        prop_assert!(!requests.is_empty());
        let mut at = dispatch.offset;
        for request in &requests {
            prop_assert_eq!((request.operation, request.offset), (dispatch.operation, at));
            at += request.length;
            let known = self.open.get_mut(&request.id);
            prop_assert!(known.as_ref().is_some_and(|known| known.0 == *request && !known.2), "{request:?}");
            if let Some(known) = known {
                known.2 = true;
            }
            for (_, (earlier, _, _)) in self.open.range(..request.id) {
                prop_assert!(!depends(request, earlier), "{request:?} overtakes {earlier:?}");
            }
            self.order.push(request.id);
        }
        prop_assert_eq!(at, dispatch.offset + dispatch.length);
        let parameters = *self.scheduler.parameters();
        prop_assert!(requests.len() == 1 || dispatch.length <= parameters.largest);
        self.in_flight.push(dispatch.token);
        prop_assert!(self.scheduler.in_flight() <= parameters.depth);
        if dispatch.operation != Operation::Flush {
            self.check_deadlines(&due, &requests)?;
        }
        Ok(true)
    }

    /// What the policy promises about deadlines; `due` is what waited.
    fn check_deadlines(&mut self, due: &[(u64, u64)], requests: &[Request]) -> Result<(), TestCaseError> {
        let (now_us, parameters) = (self.now_us, *self.scheduler.parameters());
        let has = |id: u64| requests.iter().any(|request| request.id == id);
        let name = self.scheduler.policy();
        if name.is_slq()
            && let Some(first) = due.first().filter(|first| first.0 <= now_us)
        {
            let earliest = due.iter().filter(|key| has(key.1)).map(|key| key.0).min();
            prop_assert_eq!(earliest, Some(first.0), "the earliest deadline goes first");
        }
        if name == PolicyName::Deadline {
            let is_read =
                |id: &u64| self.open.get(id).is_some_and(|known| known.0.operation == Operation::Read);
            let most = parameters.fifo_batch * (parameters.reads_per_write + 2);
            for (late, reads) in [(0, true), (1, false)] {
                let oldest = due.iter().find(|key| is_read(&key.1) == reads);
                let expired = oldest.is_some_and(|key| key.0 <= now_us && !has(key.1));
                self.late[late] = if expired { self.late[late] + 1 } else { 0 };
                prop_assert!(self.late[late] <= most, "{:?}", self.late);
            }
        }
        Ok(())
    }

    fn complete(&mut self, at: usize) -> Result<(), TestCaseError> {
        if self.in_flight.is_empty() {
            return Ok(());
        }
        let token = self.in_flight.swap_remove(at % self.in_flight.len());
        for request in self.scheduler.requests(token) {
            self.open.remove(&request.id);
        }
        prop_assert!(self.scheduler.complete(self.now_us, token));
        prop_assert!(!self.scheduler.complete(self.now_us, token), "twice");
        prop_assert_eq!(self.scheduler.requests(token).count(), 0);
        Ok(())
    }

    /// Lets everything that is open go, as a device does that is never idle.
    fn drain(&mut self) -> Result<(), TestCaseError> {
        while !self.open.is_empty() {
            if self.dispatch()? {
                continue;
            }
            if !self.in_flight.is_empty() {
                self.complete(0)?;
                continue;
            }
            // Nothing in flight and nothing to do: a process is waited for, and not for ever.
            let wakeup = self.scheduler.next_wakeup();
            prop_assert!(wakeup.is_some_and(|at| at > self.now_us), "{} wait for nothing", self.open.len());
            self.now_us = wakeup.unwrap_or(self.now_us);
        }
        prop_assert_eq!((self.scheduler.waiting(), self.scheduler.in_flight()), (0, 0));
        prop_assert_eq!(self.order.len() as u64, self.added);
        Ok(())
    }
}

fn run(name: PolicyName, parameters: Parameters, acts: &[Act]) -> Result<Vec<u64>, TestCaseError> {
    let mut checked = Checked::new(name, parameters);
    acts.iter().try_for_each(|act| checked.act(*act))?;
    checked.drain()?;
    Ok(checked.order)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// All policies: nothing is lost, doubled, or overtakes what it depends on; deadlines are kept where that is promised;
    /// the same calls give the same order.
    #[test]
    fn promises_are_kept(acts in acts(), parameters in parameters()) {
        for name in PolicyName::ALL {
            let order = run(name, parameters, &acts)?;
            prop_assert_eq!(order, run(name, parameters, &acts)?, "{} is not repeatable", name);
        }
    }
}

fn request(id: u64, operation: Operation, offset: u64, length: u64) -> Request {
    Request { id, operation, offset, length, process: 0, priority: 4, waited_for: true }
}

fn scheduler(name: PolicyName, change: impl FnOnce(&mut Parameters)) -> Scheduler {
    let mut parameters = Parameters::default();
    change(&mut parameters);
    Scheduler::new(name, parameters).expect("parameters in their ranges")
}

/// Adds requests at time 0 and returns their ids in the order of dispatch.
fn order(mut scheduler: Scheduler, requests: &[Request]) -> Vec<u64> {
    requests.iter().for_each(|request| scheduler.add(0, *request).expect("a request"));
    drained(&mut scheduler, 0)
}

fn drained(scheduler: &mut Scheduler, now_us: u64) -> Vec<u64> {
    let mut ids = Vec::new();
    while let Some(dispatch) = scheduler.dispatch(now_us) {
        ids.extend(scheduler.requests(dispatch.token).map(|request| request.id));
        scheduler.complete(now_us, dispatch.token);
    }
    ids
}

/// Reads of these sizes in KiB, far from each other; ids are sizes.
fn reads(sizes: &[u64]) -> Vec<Request> {
    let places = (1u64..).map(|number| number << 30);
    sizes.iter().zip(places).map(|(size, at)| request(*size, Operation::Read, at, size << 10)).collect()
}

#[test]
fn slq_orders_by_size_around_its_priority() {
    let sizes = [4, 2048, 600, 512, 64, 500, 4096];
    let at = |priority: u64| move |all: &mut Parameters| all.read_priority = priority << 10;
    for (name, priority, expected) in [
        (PolicyName::SlqNearest, 512, [512, 500, 600, 64, 4, 2048, 4096]),
        (PolicyName::SlqLisfFirst, 512, [512, 500, 64, 4, 600, 2048, 4096]),
        (PolicyName::SlqNearest, 0, [4, 64, 500, 512, 600, 2048, 4096]),
        (PolicyName::SlqLisfFirst, 0, [4, 64, 500, 512, 600, 2048, 4096]),
        (PolicyName::SlqLisfFirst, 4096, [4096, 2048, 600, 512, 500, 64, 4]),
    ] {
        assert_eq!(order(scheduler(name, at(priority)), &reads(&sizes)), expected, "{name} {priority}");
    }
}

#[test]
fn a_priority_changes_while_requests_wait() {
    let mut scheduler = scheduler(PolicyName::SlqNearest, |_| ());
    reads(&[4, 64, 512]).iter().for_each(|request| scheduler.add(0, *request).expect("a request"));
    assert_eq!(scheduler.tune("read-priority", 0), Ok(()));
    assert_eq!(scheduler.priority(Direction::Read), 0);
    assert_eq!(drained(&mut scheduler, 0), [4, 64, 512]);
}

#[test]
fn two_reads_go_for_each_write() {
    let mut requests = reads(&[8, 8, 8, 8, 8]);
    requests.extend((0u64..3).map(|number| request(100, Operation::Write, number << 20, 8192)));
    let ids = order(scheduler(PolicyName::SlqNearest, |_| ()), &requests);
    assert_eq!(ids, [8, 8, 100, 8, 8, 100, 8, 100]);
}

#[test]
fn requests_merge_at_both_ends_up_to_the_largest() {
    let mut scheduler = scheduler(PolicyName::Noop, |all| all.largest = 16 << 10);
    for (id, block) in [(1, 2), (2, 3), (3, 1), (4, 0), (5, 4)] {
        scheduler.add(0, request(id, Operation::Write, block * BLOCK, BLOCK)).expect("a request");
    }
    let counters = scheduler.counters();
    assert_eq!((counters.back_merges, counters.front_merges, scheduler.waiting()), (1, 2, 2));
    let dispatch = scheduler.dispatch(0).expect("a request");
    assert_eq!((dispatch.offset, dispatch.length), (0, 16 << 10));
    let ids: Vec<u64> = scheduler.requests(dispatch.token).map(|request| request.id).collect();
    assert_eq!(ids, [4, 3, 1, 2]);
}

#[test]
fn a_request_that_fills_a_gap_joins_its_neighbours() {
    let mut scheduler = scheduler(PolicyName::SlqNearest, |_| ());
    for (id, block) in [(1, 0), (2, 2), (3, 1)] {
        scheduler.add(0, request(id, Operation::Read, block * BLOCK, BLOCK)).expect("a request");
    }
    assert_eq!((scheduler.counters().joins, scheduler.waiting()), (1, 1));
    assert_eq!(drained(&mut scheduler, 0), [1, 3, 2]);
}

#[test]
fn a_merged_request_keeps_the_earlier_deadline() {
    let mut scheduler = scheduler(PolicyName::SlqNearest, |_| ());
    let small = request(1, Operation::Read, 0, BLOCK);
    scheduler.add(0, small).expect("a request");
    scheduler.add(400_000, request(2, Operation::Read, BLOCK, BLOCK)).expect("a request");
    scheduler.add(400_000, request(3, Operation::Read, 1 << 30, 512 << 10)).expect("a request");
    assert_eq!(drained(&mut scheduler, 500_000), [1, 2, 3]);
    assert_eq!(scheduler.counters().expiries, 1);
}

#[test]
fn requests_that_are_joined_keep_the_earliest_deadline() {
    let mut scheduler = scheduler(PolicyName::SlqNearest, |_| ());
    for (id, block, at_us) in [(1, 2, 0), (2, 0, 400_000), (3, 1, 400_000)] {
        scheduler.add(at_us, request(id, Operation::Read, block * BLOCK, BLOCK)).expect("a request");
    }
    scheduler.add(400_000, request(4, Operation::Read, 1 << 30, 512 << 10)).expect("a request");
    assert_eq!(drained(&mut scheduler, 500_000), [2, 3, 1, 4]);
}

#[test]
fn a_flush_waits_for_earlier_writes_and_later_ones_do_not_wait_for_it() {
    let mut scheduler = scheduler(PolicyName::Noop, |_| ());
    scheduler.add(0, request(1, Operation::Write, 0, BLOCK)).expect("a request");
    scheduler.add(0, request(2, Operation::Flush, 0, 0)).expect("a request");
    scheduler.add(0, request(3, Operation::Write, 1 << 20, BLOCK)).expect("a request");
    let first = scheduler.dispatch(0).expect("the first write");
    let second = scheduler.dispatch(0).expect("the second write");
    assert_eq!((first.offset, second.offset, scheduler.dispatch(0)), (0, 1 << 20, None));
    assert!(scheduler.complete(0, first.token));
    let flush = scheduler.dispatch(0).expect("the flush");
    assert_eq!((flush.operation, scheduler.waiting()), (Operation::Flush, 0));
}

#[test]
fn many_writes_of_one_place_go_one_after_the_other() {
    let requests: Vec<Request> = (0..2000).map(|id| request(id, Operation::Write, 0, BLOCK)).collect();
    for name in PolicyName::ALL {
        let ids = order(scheduler(name, |_| ()), &requests);
        assert_eq!(ids, (0..2000).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn what_no_device_can_do_is_refused() {
    let mut scheduler = scheduler(PolicyName::Noop, |_| ());
    for (refused, why) in [
        (request(1, Operation::Read, 0, 0), "0 bytes"),
        (request(1, Operation::Flush, 0, 1), "flushes none"),
        (request(1, Operation::Read, 0, LENGTH_MAX + 1), "at most"),
        (request(1, Operation::Write, u64::MAX, 2), "no device"),
        (Request { priority: 8, ..request(1, Operation::Read, 0, 1) }, "priority 8"),
    ] {
        let said = scheduler.add(0, refused).expect_err(why).to_string();
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(scheduler.waiting(), 0);
    assert!(scheduler.tune("read-priority", 5 << 20).is_err());
}

#[test]
fn deadline_goes_by_place_in_batches() {
    let at = |id: u64, operation, mib: u64| request(id, operation, mib << 20, BLOCK);
    let (read, write) = (Operation::Read, Operation::Write);
    let requests = [
        at(1, read, 50),
        at(2, read, 10),
        at(3, read, 60),
        at(4, write, 5),
        at(5, read, 70),
        at(6, read, 20),
    ];
    // The oldest read and the next by place; the next one, which ends the batch; writes after two batches; the oldest.
    let ids = order(scheduler(PolicyName::Deadline, |all| all.fifo_batch = 2), &requests);
    assert_eq!(ids, [1, 3, 5, 4, 2, 6]);
}

#[test]
fn a_batch_of_deadline_begins_with_what_has_expired() {
    let mut scheduler = scheduler(PolicyName::Deadline, |all| all.fifo_batch = 1);
    let read = |id: u64, mib: u64| request(id, Operation::Read, mib << 20, BLOCK);
    scheduler.add(0, read(1, 50)).expect("a request");
    assert_eq!(drained(&mut scheduler, 0), [1]);
    scheduler.add(1, read(2, 10)).expect("a request");
    scheduler.add(499_000, read(3, 60)).expect("a request");
    scheduler.add(499_000, read(4, 70)).expect("a request");
    assert_eq!(drained(&mut scheduler.clone(), 499_000), [3, 4, 2], "by place");
    assert_eq!(drained(&mut scheduler, 500_001), [2, 3, 4]);
}

#[test]
fn cfq_and_bfq_share_the_device_between_processes() {
    for name in [PolicyName::Cfq, PolicyName::Bfq] {
        let mut scheduler =
            scheduler(name, |all| (all.depth, all.slice_sync_us, all.budget) = (1, 5_000, 1 << 20));
        // One process has a lot to do, the other little; each request takes 1 ms.
        for id in 0..400u64 {
            let process = u32::from(id >= 300);
            let place = (id * 37 % 400) << 24;
            let request = Request { process, ..request(id, Operation::Read, place, 64 << 10) };
            scheduler.add(0, request).expect("a request");
        }
        let mut served = [0; 2];
        for ms in 0..150 {
            let dispatch = scheduler.dispatch(ms * 1000).expect("both have some");
            let id = scheduler.requests(dispatch.token).next().map_or(0, |request| request.id);
            served[usize::from(id >= 300)] += 1;
            scheduler.complete(ms * 1000 + 1000, dispatch.token);
        }
        assert!(served.iter().all(|count| (50..=100).contains(count)), "{name}: {served:?}");
    }
}

#[test]
fn bfq_serves_by_weight() {
    let mut scheduler = scheduler(PolicyName::Bfq, |all| (all.depth, all.budget) = (1, 1 << 20));
    // Priority 0 has a weight of 80, priority 6 one of 20.
    for id in 0..2000u64 {
        let (process, priority) = if id % 2 == 0 { (0, 0) } else { (1, 6) };
        let place = (id * 37 % 2000) << 24;
        let request = Request { process, priority, ..request(id, Operation::Read, place, 64 << 10) };
        scheduler.add(0, request).expect("a request");
    }
    let mut served = [0u32; 2];
    for ms in 0..1000 {
        let dispatch = scheduler.dispatch(ms * 100).expect("both have some");
        let process = scheduler.requests(dispatch.token).next().map_or(0, |request| request.process);
        served[process as usize] += 1;
        scheduler.complete(ms * 100 + 100, dispatch.token);
    }
    assert!((750..=850).contains(&served[0]), "{served:?}");
}

#[test]
fn write_back_of_cfq_waits_while_somebody_waits_for_the_device() {
    let mut scheduler = scheduler(PolicyName::Cfq, |_| ());
    scheduler.add(0, request(0, Operation::Read, 0, BLOCK)).expect("a request");
    let read = scheduler.dispatch(0).expect("the read");
    let write = Request { waited_for: false, ..request(1, Operation::Write, 1 << 20, BLOCK) };
    scheduler.add(0, write).expect("a request");
    assert_eq!(scheduler.dispatch(0), None);
    assert!(scheduler.complete(100, read.token));
    assert_eq!(scheduler.dispatch(100).map(|dispatch| dispatch.operation), Some(Operation::Write));
}

#[test]
fn cfq_lets_write_back_wait_but_not_for_ever() {
    let mut scheduler = scheduler(PolicyName::Cfq, |all| all.depth = 1);
    let write = Request { waited_for: false, ..request(0, Operation::Write, 0, BLOCK) };
    scheduler.add(0, write).expect("a request");
    let mut written_ms = None;
    for ms in 0..1000u64 {
        let read = Request { process: (ms % 3) as u32, ..request(1, Operation::Read, (ms + 1) << 24, BLOCK) };
        scheduler.add(ms * 1000, read).expect("a request");
        if let Some(dispatch) = scheduler.dispatch(ms * 1000) {
            if dispatch.operation == Operation::Write {
                written_ms = written_ms.or(Some(ms));
            }
            scheduler.complete(ms * 1000 + 900, dispatch.token);
        }
    }
    assert!(written_ms.is_some_and(|ms| ms < 700), "{written_ms:?}");
}

#[test]
fn kyber_lets_fewer_writes_in_while_reads_are_late() {
    let mut scheduler = scheduler(PolicyName::Kyber, |all| all.depth = 1000);
    let mut in_flight = std::collections::VecDeque::new();
    let mut fewest = usize::MAX;
    let writes = |all: &std::collections::VecDeque<(u64, Token, Operation)>| {
        all.iter().filter(|one| one.2 == Operation::Write).count()
    };
    for ms in 0..4000u64 {
        for number in 0..40 {
            let operation = if number % 2 == 0 { Operation::Read } else { Operation::Write };
            let id = ms * 40 + number;
            scheduler.add(ms * 1000, request(id, operation, id << 20, BLOCK)).expect("a request");
        }
        while let Some(dispatch) = scheduler.dispatch(ms * 1000) {
            // Reads take 5 ms and should take 2, writes take 1 ms and may take 10.
            let time = if dispatch.operation == Operation::Read { 5 } else { 1 };
            in_flight.push_back((ms + time, dispatch.token, dispatch.operation));
        }
        if ms == 0 {
            assert_eq!(writes(&in_flight), 20);
        }
        fewest = fewest.min(writes(&in_flight));
        let mut left = std::mem::take(&mut in_flight);
        for (at, token, operation) in left.drain(..) {
            if at <= ms + 1 {
                scheduler.complete(ms * 1000 + 1000, token);
            } else {
                in_flight.push_back((at, token, operation));
            }
        }
    }
    assert!(fewest <= 8, "{fewest}");
}

#[test]
fn schedulers_may_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Scheduler>();
}
