//! A connection between a thread of a client and a brick: the stream of answers, and the frames the other way.

use std::collections::{BTreeMap, VecDeque};

use pace::LossCounter;

use crate::packet::{Ask, FRAME, Up};
use crate::tcp::{Receiver, Sender};
use crate::time::Time;

/// A frame from a brick to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) transfer: u64,
    pub(crate) kind: FrameKind,
    /// Bytes of payload, or of what is announced.
    pub(crate) bytes: usize,
    /// Packets of the connection that were lost, if the frame tells.
    pub(crate) lost: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameKind {
    Whole,
    Announcement,
    Piece,
}

impl Frame {
    /// Bytes of payload that it has.
    pub(crate) fn payload(&self) -> usize {
        if self.kind == FrameKind::Announcement { 0 } else { self.bytes }
    }
}

/// An answer that its brick has, and may not send yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    pub(crate) bytes: usize,
    pub(crate) sent: usize,
}

/// Where the ports of a way stand in the list of all ways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) first: u32,
    pub(crate) hops: u8,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: u32,
    pub(crate) thread: u32,
    pub(crate) brick: u32,
    pub(crate) down: Way,
    pub(crate) up: Way,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    /// When the next timeout event comes, and the next acknowledgement that was held back.
    pub(crate) timer: Option<Time>,
    pub(crate) held_until: Option<Time>,
    pub(crate) losses: LossCounter,
    /// Packets that were lost, as the brick has said last.
    pub(crate) told: u32,
    /// Frames on their way, by the segment after their last one.
    pub(crate) coming: VecDeque<(u32, Frame)>,
    /// Those that have come, and at which the client has not looked.
    pub(crate) inbox: VecDeque<Frame>,
    pub(crate) look_at: Time,
    /// What the client's packets carry that are on their way, and the number of the next one.
    pub(crate) up_coming: VecDeque<Up>,
    pub(crate) up_next: u32,
    /// Frames at which the brick has not looked.
    pub(crate) asks: VecDeque<Ask>,
    pub(crate) serve_at: Time,
    /// Frames to the brick that were dropped.
    pub(crate) dropped: VecDeque<Ask>,
    /// Requests whose bytes the brick is reading, and their credit.
    pub(crate) reading: VecDeque<(u64, usize)>,
    pub(crate) announced: BTreeMap<u64, Announced>,
}

impl Connection {
    /// `round_trip`: what its handshake took.
    pub(crate) fn new(
        client: u32,
        thread: u32,
        brick: u32,
        down: Way,
        up: Way,
        round_trip: Time,
    ) -> Connection {
        Connection {
            client,
            thread,
            brick,
            down,
            up,
            sender: Sender::new(round_trip),
            receiver: Receiver::default(),
            timer: None,
            held_until: None,
            losses: LossCounter::default(),
            told: 0,
            coming: VecDeque::new(),
            inbox: VecDeque::new(),
            look_at: 0,
            up_coming: VecDeque::new(),
            up_next: 0,
            asks: VecDeque::new(),
            serve_at: 0,
            dropped: VecDeque::new(),
            reading: VecDeque::new(),
            announced: BTreeMap::new(),
        }
    }

    /// Gives a frame to the stream.
    pub(crate) fn write(&mut self, frame: Frame) {
        let end = self.sender.write(frame.payload() as u32 + FRAME);
        self.coming.push_back((end, frame));
    }

    /// What a packet of the client carries that leaves now.
    pub(crate) fn carry(&mut self, ask: Option<Ask>) -> Up {
        let up = Up { number: self.up_next, ack: self.receiver.ack(), ask };
        self.up_next = self.up_next.wrapping_add(1);
        self.up_coming.push_back(up);
        up
    }

    /// What a packet of the client carries that has come, or was dropped.
    pub(crate) fn unload(&mut self, number: u32) -> Option<Up> {
        let at = self.up_coming.iter().position(|up| up.number == number)?;
        self.up_coming.remove(at)
    }

    /// A frame that has come whole.
    pub(crate) fn next_frame(&mut self) -> Option<Frame> {
        let whole = self.receiver.next();
        self.coming.pop_front_if(|(end, _)| *end <= whole).map(|(_, frame)| frame)
    }
}
