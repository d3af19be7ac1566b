//! The events, one after the other: programs, page cache, journal, scheduler, device.

use std::collections::VecDeque;

use pace::device::{Direction, Operation, Request, Scheduler, Token};

use crate::cache::Cache;
use crate::device::{Command, Device};
use crate::events::{Event, Events};
use crate::random::Random;
use crate::report::{Kind, Latencies, Report, seconds};
use crate::setup::{RUN_MAX_MS, Refused, Setup};
use crate::time::{MS, SECOND, Time, US};
use crate::trace::{Record, Trace};
use crate::workload::{Program, Step, WorkloadName};

/// Most bytes of one request before it is merged: 256 pages, as Linux 3.13 has it.
const REQUEST_MAX: u64 = 1 << 20;
/// Most requests of a trace, cut as the device takes them: a bound of the memory for what waits.
const PIECES_MAX: u64 = 20_000_000;
/// Requests of each direction that the scheduler and the device have; others wait before them. Linux: `nr_requests`.
const QUEUED_MAX: u64 = 128;
/// Bytes that are read ahead at once, and pieces of that size on their way for one file.
const AHEAD: u64 = 128 << 10;
const PIECES: u32 = 2;
/// Write-back looks for old bytes so often.
const LOOK: Time = 1_000 * MS;
/// The journal of the file system: its place, its bytes, and bytes that a commit has besides those of each file.
const JOURNAL_AT: u64 = 60 << 30;
const JOURNAL: u64 = 128 << 20;
const COMMIT: u64 = 8 << 10;
/// Priority of all requests: the usual one.
const PRIORITY: u8 = 4;
/// Who writes back, and who writes the journal, as the scheduler knows them.
const WRITE_BACK: u32 = u32::MAX;
const JOURNALIST: u32 = u32::MAX - 1;

/// Who waits for a request.
#[derive(Clone, Copy, Debug)]
enum Waiter {
    Process(u32),
    /// Bytes of write-back.
    WriteBack(u64),
    Journal,
    Replay,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    waiter: Waiter,
    submitted: Time,
}

#[derive(Debug)]
struct Process {
    /// Its own chance, so that it plans the same whatever others do.
    random: Random,
    steps: VecDeque<Step>,
    /// Requests that it waits for.
    pending: u32,
    /// What of a file is still to be read.
    rest: (u64, u64),
    /// Whether it joins the journal's next commit when its requests are complete.
    commits: bool,
    /// When its operation began.
    begun: Time,
}

impl Process {
    fn new(seed: u64, number: u32) -> Process {
        let random = Random::new(seed.rotate_left(32) ^ u64::from(number));
        let steps = VecDeque::new();
        Process { random, steps, pending: 0, rest: (0, 0), commits: false, begun: 0 }
    }
}

/// Commits of the journal: one at a time, for all who wait when it begins.
#[derive(Default, Debug)]
struct Journal {
    at: u64,
    /// Requests of the record that is written.
    pending: u32,
    waiting: Vec<u32>,
    committing: Vec<u32>,
}

/// A run.
#[derive(Debug)]
pub struct Simulation {
    setup: Setup,
    now: Time,
    events: Events,
    scheduler: Scheduler,
    device: Device,
    cache: Cache,
    journal: Journal,
    program: Program,
    processes: Vec<Process>,
    /// Processes that wait until fewer bytes are dirty.
    throttled: VecDeque<u32>,
    /// Requests that wait before the scheduler: reads, writes.
    before: [VecDeque<Request>; 2],
    /// Items of each direction that the scheduler and the device have.
    queued: [u64; 2],
    pending: Vec<Pending>,
    free: Vec<u64>,
    /// What is left of a trace.
    replay: VecDeque<Record>,
    kinds: Vec<Kind>,
    requests: Latencies,
    submitted: u64,
    device_bytes: u64,
    /// When the scheduler last wanted to be asked again.
    wakeup: Time,
    busy_before: Time,
    complete: Vec<u64>,
}

impl Simulation {
    /// A run of a workload.
    pub fn new(setup: Setup, workload: WorkloadName) -> Result<Simulation, Refused> {
        Simulation::begin(setup, Program::new(workload, setup.seed), VecDeque::new())
    }

    /// A run of a trace: each request comes at its time, whatever became of those before it.
    pub fn replay(setup: Setup, trace: Trace) -> Result<Simulation, Refused> {
        let records = VecDeque::from(trace.records);
        let end = records.back().map_or(0, |record| record.at);
        let (minutes, most) = (end / (60_000 * MS), RUN_MAX_MS / 60_000 - 1);
        if minutes >= most {
            let what = format!("the trace has {} minutes: a run has at most {most}", minutes + 1);
            return Err(Refused { what, remedy: "a part of the trace".into() });
        }
        let largest = REQUEST_MAX.min(setup.parameters.largest.max(1));
        let pieces =
            records.iter().fold(0_u64, |sum, record| sum.saturating_add(record.length.div_ceil(largest)));
        if pieces > PIECES_MAX {
            let what = format!(
                "the trace has {pieces} requests of at most {largest} bytes: a run has at most {PIECES_MAX}"
            );
            return Err(Refused { what, remedy: "a larger --largest, or a part of the trace".into() });
        }
        // All of it counts, and what is late at its end has a second more.
        let setup = Setup { ramp_ms: 0, time_ms: end / MS + 1_000, ..setup };
        let mut simulation = Simulation::begin(setup, Program::Nothing, records)?;
        if let Some(first) = simulation.replay.front() {
            simulation.events.push(first.at, Event::Replay);
        }
        Ok(simulation)
    }

    fn begin(setup: Setup, program: Program, replay: VecDeque<Record>) -> Result<Simulation, Refused> {
        setup.check()?;
        let mut setup = setup;
        setup.parameters.depth = setup.ssd.depth;
        let mut events = Events::default();
        let processes = program.processes();
        (0..processes).for_each(|process| events.push(u64::from(process) * US, Event::Wake(process)));
        events.push(LOOK, Event::WriteBack);
        let kind = |name: &&'static str| Kind { name, bytes: 0, latencies: Latencies::default() };
        Ok(Simulation {
            setup,
            now: 0,
            events,
            scheduler: Scheduler::new(setup.policy, setup.parameters)?,
            device: Device::new(setup.ssd, setup.seed ^ 0x51),
            cache: Cache::default(),
            journal: Journal::default(),
            kinds: program.kinds().iter().map(kind).collect(),
            processes: (0..processes).map(|process| Process::new(setup.seed, process)).collect(),
            program,
            throttled: VecDeque::new(),
            before: [VecDeque::new(), VecDeque::new()],
            queued: [0; 2],
            pending: Vec::new(),
            free: Vec::new(),
            replay,
            requests: Latencies::default(),
            submitted: 0,
            device_bytes: 0,
            wakeup: 0,
            busy_before: 0,
            complete: Vec::new(),
        })
    }

    fn ramp(&self) -> Time {
        self.setup.ramp_ms * MS
    }

    /// How long the run is, in milliseconds.
    pub fn length_ms(&self) -> u64 {
        self.setup.ramp_ms + self.setup.time_ms
    }

    /// Goes on until this moment, in milliseconds, or the end of the run.
    pub fn advance(&mut self, until_ms: u64) {
        let until = until_ms.min(self.length_ms()) * MS;
        while let Some((now, event)) = self.events.pop(until) {
            if self.now < self.ramp() && now >= self.ramp() {
                self.busy_before = self.device.busy;
            }
            self.now = now;
            self.step(event);
            self.dispatch();
        }
        self.now = until;
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Wake(process) => self.go_on(process),
            Event::Ready(slot) => self.device.ready(self.now, slot, &mut self.events),
            Event::Room => self.device.room(self.now, &mut self.events),
            Event::Moved(slot) => {
                if let Some(command) = self.device.moved(self.now, slot, &mut self.events) {
                    self.ended(command);
                }
            }
            Event::Flushed(slot) => {
                if let Some(command) = self.device.end(slot) {
                    self.ended(command);
                }
            }
            Event::Dispatch => {}
            Event::WriteBack => {
                self.events.push(self.now + LOOK, Event::WriteBack);
                self.write_back();
            }
            Event::Replay => self.replay_next(),
        }
    }

    /// Gives the device all that it may have.
    fn dispatch(&mut self) {
        while let Some(dispatch) = self.scheduler.dispatch(self.now / US) {
            let (token, operation) = (dispatch.token, dispatch.operation);
            let command =
                Command { token: Some(token), operation, offset: dispatch.offset, length: dispatch.length };
            self.device.begin(self.now, command, &mut self.events);
        }
        let wakeup = self.scheduler.next_wakeup().map_or(0, |at_us| at_us * US);
        if wakeup > self.now && wakeup != self.wakeup {
            self.wakeup = wakeup;
            self.events.push(wakeup, Event::Dispatch);
        }
    }

    /// Cuts what is asked into requests. Returns how many.
    fn submit(
        &mut self,
        waiter: Waiter,
        operation: Operation,
        offset: u64,
        length: u64,
        process: u32,
    ) -> u32 {
        let most = REQUEST_MAX.min(self.setup.parameters.largest);
        let waited_for = !matches!(waiter, Waiter::WriteBack(_));
        let (mut at, end, mut count) = (offset, offset + length, 0);
        while at < end || count == 0 {
            let length = most.min(end - at);
            let waiter = if let Waiter::WriteBack(_) = waiter { Waiter::WriteBack(length) } else { waiter };
            let pending = Pending { waiter, submitted: self.now };
            let id = match self.free.pop() {
                Some(id) => {
                    self.pending[id as usize] = pending;
                    id
                }
                None => {
                    self.pending.push(pending);
                    self.pending.len() as u64 - 1
                }
            };
            let request =
                Request { id, operation, offset: at, length, process, priority: PRIORITY, waited_for };
            let side = side_of(operation);
            if operation != Operation::Flush
                && (self.queued[side] >= QUEUED_MAX || !self.before[side].is_empty())
            {
                self.before[side].push_back(request);
            } else {
                self.add(request);
            }
            self.submitted += 1;
            count += 1;
            at += length;
        }
        count
    }

    fn add(&mut self, request: Request) {
        let items = self.scheduler.waiting();
        let side = side_of(request.operation);
        if self.scheduler.add(self.now / US, request).is_err() {
            // Workloads ask for nothing like that; of a trace it has been checked.
            return;
        }
        // A merged request takes no place, and one that fills a gap frees one.
        match self.scheduler.waiting().cmp(&items) {
            std::cmp::Ordering::Greater => self.queued[side] += 1,
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Less => self.queued[side] -= 1,
        }
    }

    fn ended(&mut self, command: Command) {
        match command.token {
            Some(token) => self.completed(token),
            None => self.committed(),
        }
    }

    fn completed(&mut self, token: Token) {
        let mut complete = std::mem::take(&mut self.complete);
        complete.clear();
        let (mut bytes, mut side) = (0, 0);
        for request in self.scheduler.requests(token) {
            complete.push(request.id);
            bytes += request.length;
            side = side_of(request.operation);
        }
        self.scheduler.complete(self.now / US, token);
        self.queued[side] -= 1;
        if self.now >= self.ramp() {
            self.device_bytes += bytes;
        }
        for &id in &complete {
            let Pending { waiter, submitted } = self.pending[id as usize];
            self.free.push(id);
            if self.now >= self.ramp() {
                self.requests.note(self.now - submitted);
            }
            self.answered(waiter);
        }
        self.complete = complete;
        while self.queued[side] < QUEUED_MAX
            && let Some(request) = self.before[side].pop_front()
        {
            self.add(request);
        }
        self.write_back();
    }

    fn answered(&mut self, waiter: Waiter) {
        match waiter {
            Waiter::Process(process) => {
                let state = &mut self.processes[process as usize];
                state.pending -= 1;
                if state.rest.1 > 0 {
                    self.read_ahead(process);
                } else if state.pending == 0 {
                    if std::mem::take(&mut state.commits) {
                        self.join_commit(process);
                    } else {
                        self.go_on(process);
                    }
                }
            }
            Waiter::WriteBack(bytes) => {
                self.cache.left(bytes);
                while !self.cache.is_full()
                    && let Some(process) = self.throttled.pop_front()
                {
                    self.go_on(process);
                }
            }
            Waiter::Journal => {
                self.journal.pending -= 1;
                if self.journal.pending == 0 {
                    // Flushes go past the scheduler, as on Linux.
                    let flush = Command { token: None, operation: Operation::Flush, offset: 0, length: 0 };
                    self.device.begin(self.now, flush, &mut self.events);
                }
            }
            Waiter::Replay => {}
        }
    }

    /// Gives the scheduler what write-back should write now.
    fn write_back(&mut self) {
        let write = side_of(Operation::Write);
        while self.queued[write] < QUEUED_MAX
            && self.before[write].is_empty()
            && let Some(ranges) = self.cache.next(self.now)
        {
            for (offset, length) in ranges {
                self.submit(Waiter::WriteBack(0), Operation::Write, offset, length, WRITE_BACK);
            }
        }
    }

    fn read_ahead(&mut self, process: u32) {
        loop {
            let state = &mut self.processes[process as usize];
            let (offset, rest) = state.rest;
            if rest == 0 || state.pending >= PIECES {
                return;
            }
            let piece = rest.min(AHEAD);
            state.rest = (offset + piece, rest - piece);
            let owner = self.program.owner(process);
            let count = self.submit(Waiter::Process(process), Operation::Read, offset, piece, owner);
            self.processes[process as usize].pending += count;
        }
    }

    fn join_commit(&mut self, process: u32) {
        self.journal.waiting.push(process);
        if self.journal.committing.is_empty() {
            self.commit();
        }
    }

    /// Writes a record for all that wait, and then flushes.
    fn commit(&mut self) {
        self.journal.committing = std::mem::take(&mut self.journal.waiting);
        let files = self.journal.committing.len() as u64;
        if files == 0 {
            return;
        }
        let length = COMMIT + files * 4096;
        let at = if self.journal.at + length > JOURNAL { 0 } else { self.journal.at };
        self.journal.at = at + length;
        let count = self.submit(Waiter::Journal, Operation::Write, JOURNAL_AT + at, length, JOURNALIST);
        self.journal.pending = count;
    }

    /// The record of a commit is durable.
    fn committed(&mut self) {
        for process in std::mem::take(&mut self.journal.committing) {
            self.go_on(process);
        }
        if self.journal.committing.is_empty() {
            self.commit();
        }
    }

    /// Lets a process do its next steps, until it has to wait.
    fn go_on(&mut self, process: u32) {
        loop {
            let at = process as usize;
            let Some(step) = self.processes[at].steps.pop_front() else {
                let state = &mut self.processes[at];
                self.program.plan(process, &mut state.random, &mut state.steps);
                if state.steps.is_empty() {
                    return;
                }
                continue;
            };
            match step {
                Step::Compute(time) => {
                    self.events.push(self.now + time, Event::Wake(process));
                    return;
                }
                Step::Read { offset, length } => {
                    self.processes[at].rest = (offset, length);
                    self.read_ahead(process);
                    return;
                }
                Step::Direct { operation, offset, length } => {
                    let owner = self.program.owner(process);
                    let count = self.submit(Waiter::Process(process), operation, offset, length, owner);
                    self.processes[at].pending += count;
                    return;
                }
                Step::Write { file, offset, length } => {
                    if self.cache.is_full() {
                        self.processes[at].steps.push_front(step);
                        self.throttled.push_back(process);
                        return;
                    }
                    self.cache.write(self.now, file, offset, length);
                    self.write_back();
                }
                Step::Sync { file } => {
                    let ranges = self.cache.take(file);
                    self.processes[at].commits = true;
                    let owner = self.program.owner(process);
                    for (offset, length) in &ranges {
                        let waiter = Waiter::Process(process);
                        let count = self.submit(waiter, Operation::Write, *offset, *length, owner);
                        self.processes[at].pending += count;
                    }
                    if ranges.is_empty() {
                        self.processes[at].commits = false;
                        self.join_commit(process);
                    }
                    return;
                }
                Step::Delete { file } => self.cache.forget(file),
                Step::Done { kind, bytes } => {
                    if self.now >= self.ramp()
                        && let Some(kind) = self.kinds.get_mut(kind)
                    {
                        kind.bytes += bytes;
                        kind.latencies.note(self.now - self.processes[at].begun.min(self.now));
                    }
                    self.processes[at].begun = self.now;
                }
            }
        }
    }

    fn replay_next(&mut self) {
        while let Some(record) = self.replay.front().copied() {
            if record.at > self.now {
                self.events.push(record.at, Event::Replay);
                return;
            }
            self.replay.pop_front();
            let Record { operation, offset, length, process, .. } = record;
            self.submit(Waiter::Replay, operation, offset, length, process);
        }
    }

    /// What was seen.
    pub fn report(&self) -> Report {
        let time = self.now.saturating_sub(self.ramp()).max(1);
        let busy = self.device.busy - self.busy_before;
        Report {
            seconds: seconds(time),
            kinds: self.kinds.clone(),
            requests: self.requests.clone(),
            submitted: self.submitted,
            counters: self.scheduler.counters(),
            device_bytes: self.device_bytes,
            busy: (busy as f64 / time as f64).min(1.0),
            priorities: Direction::BOTH.map(|direction| self.scheduler.priority(direction)),
        }
    }

    /// Runs to the end.
    pub fn run(mut self) -> Report {
        self.advance(u64::MAX / SECOND);
        self.report()
    }
}

/// Where requests of an operation wait: reads, or writes and flushes.
fn side_of(operation: Operation) -> usize {
    usize::from(operation != Operation::Read)
}

#[cfg(test)]
#[path = "simulation_tests.rs"]
mod tests;
