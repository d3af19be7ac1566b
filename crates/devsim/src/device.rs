//! The SSD: a link, a buffer, and channels with flash.
//!
//! ```text
//!  command --> [command time] link: chunks of 128 KiB, one after the other, writes first
//!                               |  a command that has moved a buffer's worth pauses for `refill_us`; others go on
//!              read:  flash pages of its channels first, then the link
//!              write: the link, if the buffer has room; complete when the last byte is in the buffer
//!                               '--> pages of 32 KiB, to the next channel each: programmed, then the buffer has room
//!              flush: complete when all pages are programmed
//! ```
//!
//! A command of L bytes alone takes `command + flash + L / link + refill * (ceil(L / buffer) - 1)`: formula 1 of Lee, Ju and
//! Jeon 2014, as far as the text has it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use pace::device::{Operation, Token};

use crate::events::{Event, Events};
use crate::random::Random;
use crate::setup::Ssd;
use crate::time::{Time, US, span};

/// Bytes that the link moves for one command before it looks at others.
const CHUNK: u64 = 128 << 10;
/// Chances are of a million.
const MILLION: u64 = 1_000_000;

/// What a command is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    /// The scheduler's name of it; a flush of the file system goes past the scheduler and has none.
    pub(crate) token: Option<Token>,
    pub(crate) operation: Operation,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    command: Command,
    /// Bytes that the link has moved.
    moved: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Channel {
    /// When the last program ends that was begun or waits.
    programs_until: Time,
    /// When the last read ends.
    reads_until: Time,
    /// When the last collection of garbage ends.
    collects_until: Time,
}

#[derive(Debug)]
pub(crate) struct Device {
    ssd: Ssd,
    running: Vec<Option<Running>>,
    free: Vec<u32>,
    is_moving: bool,
    /// Commands with bytes to move: writes, reads.
    writes: VecDeque<u32>,
    reads: VecDeque<u32>,
    /// Bytes in the buffer, and when pages of it are programmed.
    filled: u64,
    programs: BinaryHeap<Reverse<(Time, u64)>>,
    /// Bytes that do not fill a page yet.
    open: u64,
    channels: Vec<Channel>,
    next_channel: usize,
    /// Whether an event tells when the buffer has room.
    waits_for_room: bool,
    random: Random,
    /// How long the link moved bytes or commands.
    pub(crate) busy: Time,
}

impl Device {
    pub(crate) fn new(ssd: Ssd, seed: u64) -> Device {
        Device {
            ssd,
            running: Vec::new(),
            free: Vec::new(),
            is_moving: false,
            writes: VecDeque::new(),
            reads: VecDeque::new(),
            filled: 0,
            programs: BinaryHeap::new(),
            open: 0,
            channels: vec![Channel::default(); ssd.channels as usize],
            next_channel: 0,
            waits_for_room: false,
            random: Random::new(seed),
            busy: 0,
        }
    }

    /// Takes a command.
    pub(crate) fn begin(&mut self, now: Time, command: Command, events: &mut Events) {
        let running = Some(Running { command, moved: 0 });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.running[slot as usize] = running;
                slot
            }
            None => {
                self.running.push(running);
                (self.running.len() - 1) as u32
            }
        };
        match command.operation {
            Operation::Read => {
                let ready = self.sense(now, command.offset, command.length);
                events.push(ready, Event::Ready(slot));
            }
            Operation::Write => self.ready(now, slot, events),
            Operation::Flush => {
                self.program(now, self.open);
                self.open = 0;
                let done = self.channels.iter().map(|channel| channel.programs_until).max().unwrap_or(now);
                events.push(done.max(now) + self.ssd.command_us * US, Event::Flushed(slot));
            }
        }
    }

    /// Reads flash pages. Returns when the first of each channel is there: the link is slower than all channels together.
    fn sense(&mut self, now: Time, offset: u64, length: u64) -> Time {
        let (page, count) = (self.ssd.page, self.channels.len() as u64);
        let (first, last) = (offset / page, (offset + length - 1) / page);
        let (pages, read) = (last - first + 1, self.ssd.read_us * US);
        let program = self.ssd.program_us * US;
        let mut ready = now;
        for number in first..first + pages.min(count) {
            // The controller spreads pages in the order of their writes, which is not known: by a hash.
            let at = if pages == 1 { number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 } else { number };
            let channel = &mut self.channels[(at % count) as usize];
            let reads = (first + pages - number).div_ceil(count) * read;
            // A read waits for the program that runs, not for those behind it.
            let program = channel.programs_until.saturating_sub(now) % program.max(1);
            let start = (now + program).max(channel.reads_until).max(channel.collects_until);
            channel.reads_until = start + reads;
            if channel.programs_until > now {
                channel.programs_until += reads;
            }
            ready = ready.max(start + read);
        }
        ready
    }

    /// Programs so many bytes, a page or less, on the next channel.
    fn program(&mut self, now: Time, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let channel = &mut self.channels[self.next_channel];
        self.next_channel = (self.next_channel + 1) % self.ssd.channels as usize;
        let start = channel.programs_until.max(now).max(channel.reads_until);
        channel.programs_until = start + self.ssd.program_us * US;
        if self.random.below(MILLION) < self.ssd.collect_per_million {
            let collects = self.random.within(self.ssd.collect_min_us, self.ssd.collect_max_us) * US;
            channel.programs_until += collects;
            channel.collects_until = channel.programs_until;
        }
        self.programs.push(Reverse((channel.programs_until, bytes)));
    }

    /// A command has bytes to move.
    pub(crate) fn ready(&mut self, now: Time, slot: u32, events: &mut Events) {
        match self.running[slot as usize].map(|running| running.command.operation) {
            Some(Operation::Write) => self.writes.push_back(slot),
            Some(_) => self.reads.push_back(slot),
            None => {}
        }
        self.start(now, events);
    }

    /// The bytes of a command's next chunk.
    fn chunk(&self, slot: u32) -> u64 {
        let Some(Running { command, moved }) = self.running[slot as usize] else { return 0 };
        let to_pause = self.ssd.buffer - moved % self.ssd.buffer;
        CHUNK.min(to_pause).min(command.length - moved)
    }

    /// The buffer has room again.
    pub(crate) fn room(&mut self, now: Time, events: &mut Events) {
        self.waits_for_room = false;
        self.start(now, events);
    }

    /// Lets the link move the next chunk, if it is free.
    fn start(&mut self, now: Time, events: &mut Events) {
        if self.is_moving {
            return;
        }
        while let Some(Reverse((_, bytes))) = self.programs.peek().copied().filter(|top| top.0.0 <= now) {
            self.programs.pop();
            self.filled -= bytes;
        }
        let write = self.writes.front().copied();
        let has_room = write.is_some_and(|slot| {
            self.filled + self.chunk(slot) <= self.ssd.buffer || self.programs.is_empty()
        });
        let slot = match write.filter(|_| has_room) {
            Some(slot) => {
                self.writes.pop_front();
                self.filled += self.chunk(slot);
                slot
            }
            None => match self.reads.pop_front() {
                Some(slot) => slot,
                None => {
                    if let (Some(_), Some(Reverse((at, _))), false) =
                        (write, self.programs.peek(), self.waits_for_room)
                    {
                        self.waits_for_room = true;
                        events.push(*at, Event::Room);
                    }
                    return;
                }
            },
        };
        let is_first = self.running[slot as usize].is_some_and(|running| running.moved == 0);
        let command = if is_first { self.ssd.command_us * US } else { 0 };
        let time = command + span(self.chunk(slot), self.ssd.link);
        self.is_moving = true;
        self.busy += time;
        events.push(now + time, Event::Moved(slot));
    }

    /// The link has moved a chunk of a command. Returns the command if it is complete.
    pub(crate) fn moved(&mut self, now: Time, slot: u32, events: &mut Events) -> Option<Command> {
        self.is_moving = false;
        let bytes = self.chunk(slot);
        let running = self.running[slot as usize].as_mut()?;
        running.moved += bytes;
        let Running { command, moved } = *running;
        if command.operation == Operation::Write {
            self.open += bytes;
            while self.open >= self.ssd.page {
                self.open -= self.ssd.page;
                self.program(now, self.ssd.page);
            }
        }
        if moved == command.length {
            self.end(slot);
        } else if moved.is_multiple_of(self.ssd.buffer) {
            events.push(now + self.ssd.refill_us * US, Event::Ready(slot));
        } else if command.operation == Operation::Write {
            self.writes.push_front(slot);
        } else {
            self.reads.push_front(slot);
        }
        self.start(now, events);
        (moved == command.length).then_some(command)
    }

    /// A command is complete.
    pub(crate) fn end(&mut self, slot: u32) -> Option<Command> {
        let running = self.running[slot as usize].take()?;
        self.free.push(slot);
        Some(running.command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    /// How long commands take that begin together.
    fn times(ssd: Ssd, commands: &[(Operation, u64, u64)]) -> Vec<Time> {
        let (mut device, mut events) = (Device::new(ssd, 1), Events::default());
        for &(operation, offset, length) in commands {
            device.begin(0, Command { token: None, operation, offset, length }, &mut events);
        }
        let mut ends = vec![0; commands.len()];
        while let Some((now, event)) = events.pop(SECOND) {
            match event {
                Event::Ready(slot) => device.ready(now, slot, &mut events),
                Event::Moved(slot) => {
                    if device.moved(now, slot, &mut events).is_some() {
                        ends[slot as usize] = now;
                    }
                }
                Event::Room => device.room(now, &mut events),
                Event::Flushed(slot) => {
                    device.end(slot);
                    ends[slot as usize] = now;
                }
                other => panic!("{other:?}"),
            }
        }
        ends
    }

    #[test]
    fn a_read_alone_takes_what_the_formula_says() {
        let ssd = Ssd::SATA;
        for length in [4 << 10, 512 << 10, (512 << 10) + 4096, 2300 << 10, 8 << 20] {
            let [time] = times(ssd, &[(Operation::Read, 0, length)])[..] else { panic!("one command") };
            let expected = (ssd.command_us + ssd.read_us) * US
                + span(length, ssd.link)
                + (length.div_ceil(ssd.buffer) - 1) * ssd.refill_us * US;
            assert!(time.abs_diff(expected) < US, "{length}: {time} {expected}");
        }
    }

    #[test]
    fn others_fill_the_pauses_of_a_long_command() {
        let alone = times(Ssd::SATA, &[(Operation::Read, 0, 4 << 20)])[0];
        let both = times(Ssd::SATA, &[(Operation::Read, 0, 4 << 20), (Operation::Read, 1 << 30, 4 << 20)]);
        let ended = both.into_iter().max().unwrap_or(0);
        assert!(ended < 2 * alone - 6 * Ssd::SATA.refill_us * US, "{ended} {alone}");
    }

    #[test]
    fn a_write_is_complete_in_the_buffer_and_a_flush_on_the_flash() {
        let ends = times(Ssd::SATA, &[(Operation::Write, 0, 4096)]);
        assert!(ends[0] < 100 * US, "{ends:?}");
        let mut ssd = Ssd::SATA;
        ssd.collect_per_million = 0;
        // 16 MiB at the rate of all channels, less what is still in the buffer.
        let ends = times(ssd, &[(Operation::Write, 0, 16 << 20)]);
        let flash = ssd.page * ssd.channels * 1_000_000 / ssd.program_us;
        let expected = span((16 << 20) - ssd.buffer, flash);
        assert!(ends[0] > expected && ends[0] < expected * 11 / 10, "{ends:?} {expected}");
    }

    #[test]
    fn collections_of_garbage_delay_some() {
        let mut ssd = Ssd::SATA;
        (ssd.collect_per_million, ssd.collect_min_us) = (1_000_000, ssd.collect_max_us);
        let slow = times(ssd, &[(Operation::Write, 0, 8 << 20)])[0];
        ssd.collect_per_million = 0;
        assert!(slow > 2 * times(ssd, &[(Operation::Write, 0, 8 << 20)])[0]);
    }
}
