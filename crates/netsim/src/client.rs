//! A client: tasks that read records, threads that ask for their units, and who may send how much to them. As
//! `incoming.rs` of the product's calls; the window is the product's own ([`pace`]).

use std::collections::{BTreeMap, VecDeque};

use pace::{BULK_MIN, Member, Port, Receiver, Sender, Transfer, WindowSetting};

use crate::connection::{Frame, FrameKind};
use crate::packet::FRAME;
use crate::time::Time;

/// Most bytes that a thread reads at once: a request of the kernel. Longer records are several.
pub(crate) const REQUEST_MAX: u64 = 1 << 20;

/// A record, or a part of one, for a thread.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    task: u32,
    pub(crate) bricks: Vec<u32>,
}

/// A task: it reads record after record from the same bricks, as from a file.
#[derive(Debug)]
struct Task {
    bricks: Vec<u32>,
    begun: Time,
    /// Parts of the record that are not complete.
    parts: usize,
}

/// A unit on its way.
#[derive(Debug)]
struct Arriving {
    connection: u32,
    left: usize,
}

/// A thread, and the units that it waits for.
#[derive(Debug)]
struct Thread {
    receiver: Receiver,
    arriving: BTreeMap<u64, Arriving>,
    /// Without a window nobody else numbers transfers.
    count: u64,
    work: Option<Work>,
    units: usize,
    /// When it gives out credit by itself.
    wake_at: Option<Time>,
}

/// A record that is complete: its task, and when it was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) task: u32,
    pub(crate) begun: Time,
}

/// What a frame has brought.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Grants to send, and on which connections.
    pub(crate) grants: Vec<(u32, u64, usize)>,
    /// Other threads that have room now.
    pub(crate) relieved: Vec<u32>,
    /// Bytes of the work that has come whole.
    pub(crate) whole: Option<u64>,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    port: Port,
    threads: Vec<Thread>,
    tasks: Vec<Task>,
    /// Threads without work, the one that waits longest first; and work without a thread.
    idle: VecDeque<u32>,
    queue: VecDeque<Work>,
    unit: usize,
    /// Bytes of streams that have come, each once; of them heads of frames.
    received: u64,
    heads: u64,
}

impl Client {
    /// A client whose tasks read from so many bricks each.
    pub(crate) fn new(window: WindowSetting, threads: u32, unit: usize, tasks: Vec<Vec<u32>>) -> Client {
        let mut port = Port::new(window, BULK_MIN);
        let thread = |_| Thread {
            receiver: Receiver::new(&mut port),
            arriving: BTreeMap::new(),
            count: 0,
            work: None,
            units: 0,
            wake_at: None,
        };
        let threads: Vec<Thread> = (0..threads).map(thread).collect();
        let tasks = tasks.into_iter().map(|bricks| Task { bricks, begun: 0, parts: 0 }).collect();
        let (idle, queue) = ((0..threads.len() as u32).collect(), VecDeque::new());
        Client { port, threads, tasks, idle, queue, unit, received: 0, heads: 0 }
    }

    /// The window, in bytes; `None` if there is none.
    pub(crate) fn window(&self) -> Option<usize> {
        let window = self.port.window();
        (window.setting() != WindowSetting::Off).then(|| window.bytes())
    }

    /// How often the window became smaller.
    pub(crate) fn cuts(&self) -> u64 {
        self.port.window().cuts()
    }

    /// A segment has come for the first time.
    pub(crate) fn receive(&mut self, bytes: u32) {
        self.received += u64::from(bytes);
    }

    /// Payload that has come, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.received.saturating_sub(self.heads)
    }

    /// Tasks.
    pub(crate) fn tasks(&self) -> u32 {
        self.tasks.len() as u32
    }

    fn is_off(&self) -> bool {
        self.port.window().setting() == WindowSetting::Off
    }

    /// A task begins its next record.
    pub(crate) fn begin(&mut self, now: Time, task: u32) {
        let units = (REQUEST_MAX / self.unit as u64).max(1) as usize;
        let one = &mut self.tasks[task as usize];
        one.begun = now;
        for bricks in one.bricks.chunks(units) {
            one.parts += 1;
            self.queue.push_back(Work { task, bricks: bricks.to_vec() });
        }
    }

    /// Work for a thread that has none.
    pub(crate) fn next_work(&mut self) -> Option<(u32, Work)> {
        if self.idle.is_empty() {
            return None;
        }
        let work = self.queue.pop_front()?;
        let thread = self.idle.pop_front()?;
        let one = &mut self.threads[thread as usize];
        one.units = work.bricks.len();
        one.work = Some(work.clone());
        Some((thread, work))
    }

    /// A thread asks for a unit. Returns the number of the transfer, and the credit that goes with the request.
    pub(crate) fn open(&mut self, now_us: u64, thread: u32, connection: u32) -> (u64, usize) {
        let is_off = self.is_off();
        let one = &mut self.threads[thread as usize];
        let (transfer, credit) = if is_off {
            one.count += 1;
            (one.count, usize::MAX)
        } else {
            let (transfer, credit) = {
                let sender = Sender(u64::from(connection));
                one.receiver.open(&mut self.port, now_us, sender, self.unit)
            };
            (transfer.0, credit)
        };
        one.arriving.insert(transfer, Arriving { connection, left: self.unit });
        (transfer, credit)
    }

    /// A thread looks at a frame. `lost`: packets of its connection that were lost, and were not told of before.
    pub(crate) fn take(&mut self, now_us: u64, thread: u32, frame: Frame, lost: u32) -> Taken {
        let mut taken = Taken::default();
        self.heads += u64::from(FRAME);
        let one = &mut self.threads[thread as usize];
        let Some(arriving) = one.arriving.get_mut(&frame.transfer) else { return taken };
        arriving.left -= frame.payload().min(arriving.left);
        let is_whole = arriving.left == 0;
        if !self.is_off() {
            self.port.lost(now_us, u64::from(lost));
            let one = &mut self.threads[thread as usize];
            let transfer = Transfer(frame.transfer);
            let arrived = one.receiver.arrived(&mut self.port, now_us, transfer, frame.payload());
            debug_assert_eq!(arrived, Ok(()), "bricks send what is granted");
            if frame.kind == FrameKind::Announcement {
                one.receiver.announced(&mut self.port, transfer, frame.bytes);
            }
            self.pump(now_us, thread, &mut taken);
            // As a rule all of it has come, and others have its credit already.
            if is_whole && self.threads[thread as usize].receiver.close(&mut self.port, transfer) > 0 {
                self.pump(now_us, thread, &mut taken);
            }
        }
        if is_whole {
            self.end(thread, frame.transfer, &mut taken);
        }
        taken
    }

    /// A unit is complete.
    fn end(&mut self, thread: u32, transfer: u64, taken: &mut Taken) {
        let one = &mut self.threads[thread as usize];
        one.arriving.remove(&transfer);
        one.units -= 1;
        if one.units == 0 {
            let units = one.work.as_ref().map_or(0, |work| work.bricks.len());
            taken.whole = Some((units * self.unit) as u64);
        }
    }

    /// A thread has given the bytes of its work away. Returns the record that is complete with it.
    pub(crate) fn finish(&mut self, thread: u32) -> Option<Record> {
        let work = self.threads[thread as usize].work.take()?;
        self.idle.push_back(thread);
        let task = &mut self.tasks[work.task as usize];
        task.parts -= 1;
        (task.parts == 0).then_some(Record { task: work.task, begun: task.begun })
    }

    /// Gives out what the window allows.
    pub(crate) fn pump(&mut self, now_us: u64, thread: u32, taken: &mut Taken) {
        let one = &mut self.threads[thread as usize];
        while let Some(grant) = one.receiver.grant(&mut self.port, now_us) {
            if let Some(arriving) = one.arriving.get(&grant.transfer.0) {
                taken.grants.push((arriving.connection, grant.transfer.0, grant.bytes));
            }
        }
        let member = one.receiver.member();
        let relieved: Vec<Member> = self.port.relieved(member).collect();
        let threads = self.threads.iter().zip(0u32..);
        let named = threads.filter(|(thread, _)| relieved.contains(&thread.receiver.member()));
        taken.relieved.extend(named.map(|(_, number)| number));
    }

    /// When a thread must give out credit by itself, if that was not planned.
    pub(crate) fn plan(&mut self, thread: u32) -> Option<u64> {
        let one = &mut self.threads[thread as usize];
        let at = one.receiver.wake_at()?;
        if one.wake_at.is_some_and(|planned| planned <= at) {
            return None;
        }
        one.wake_at = Some(at);
        Some(at)
    }

    /// A thread was woken.
    pub(crate) fn woken(&mut self, now_us: u64, thread: u32) {
        let one = &mut self.threads[thread as usize];
        if one.wake_at.is_some_and(|at| at <= now_us) {
            one.wake_at = None;
        }
    }

    /// Credit that was given and has not arrived, in bytes.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.port.held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: usize = 128 << 10;

    fn client(window: WindowSetting, width: u32) -> Client {
        Client::new(window, 2, UNIT, vec![(0..width).collect()])
    }

    fn whole(transfer: u64) -> Frame {
        Frame { transfer, kind: FrameKind::Whole, bytes: UNIT, lost: None }
    }

    #[test]
    fn a_long_record_is_read_by_several_threads() {
        let mut client = client(WindowSetting::Off, 10);
        client.begin(77, 0);
        let (first, work) = client.next_work().expect("work");
        assert_eq!((first, work.bricks.len()), (0, 8));
        let (second, rest) = client.next_work().expect("work");
        assert_eq!((second, rest.bricks.as_slice()), (1, [8, 9].as_slice()));
        assert!(client.next_work().is_none());
        for brick in 0..2 {
            assert_eq!(client.open(0, second, brick), (u64::from(brick) + 1, usize::MAX));
        }
        for brick in 0..8 {
            client.open(0, first, brick);
        }
        let done: Vec<Taken> = (1..=8).map(|unit| client.take(9, first, whole(unit), 0)).collect();
        assert_eq!(done[7].whole, Some(1 << 20));
        assert!(done[..7].iter().all(|taken| taken.whole.is_none()));
        assert_eq!(client.finish(first), None);
        client.take(9, second, whole(1), 0);
        client.take(9, second, whole(2), 0);
        assert_eq!(client.finish(second), Some(Record { task: 0, begun: 77 }));
        client.receive(10 * (UNIT as u32 + FRAME));
        assert_eq!(client.bytes(), 10 * UNIT as u64);
    }

    #[test]
    fn a_unit_comes_in_pieces_within_the_window() {
        let mut client = client(WindowSetting::Fixed(64 << 10), 1);
        client.begin(0, 0);
        client.next_work().expect("work");
        let (transfer, credit) = client.open(0, 0, 5);
        assert_eq!(credit, 0);
        let announcement = Frame { transfer, kind: FrameKind::Announcement, bytes: UNIT, lost: None };
        let taken = client.take(1, 0, announcement, 0);
        assert_eq!(taken.grants, [(5, transfer, 16 << 10); 4]);
        assert_eq!(client.held(), 64 << 10);
        assert_eq!(client.plan(0), Some(300_001), "credit expires");
        assert_eq!(client.plan(0), None, "that is planned");
        let piece = Frame { transfer, kind: FrameKind::Piece, bytes: 16 << 10, lost: Some(0) };
        for _ in 0..7 {
            let taken = client.take(2, 0, piece, 0);
            assert!(taken.grants.len() <= 1 && taken.whole.is_none());
        }
        let last = client.take(3, 0, piece, 0);
        assert_eq!(last.whole, Some(UNIT as u64));
        assert!(client.finish(0).is_some());
        assert_eq!(client.held(), 0);
    }
}
