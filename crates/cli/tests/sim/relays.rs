//! Members that send on units of others and do not do as they should: they lie, stall, or die in the middle of it.
//!
//! A liar is looked at from outside: what leaves it, or what it answers, is exchanged on its way. So its frames are sound, as those
//! of a member that lies would be, and the code of the brick knows nothing of it. Not drawn: a member that sends on other bytes
//! *and* their checksums, or computes parity wrong. Nobody notices that; a primary that encodes is trusted as much.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use types::messages::Done;
use types::messages::brick::{Relay, Stage, SumUnits};
use types::wire::{self, Record};
use types::{Buf, BufMut};
use world::sim::{Forgery, Passing, Tampering};

use crate::prng::Prng;

/// What relays do for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RelayFault {
    /// They send on other bytes.
    OtherBytes,
    /// They send on the bytes with other checksums.
    OtherSums,
    /// They say that all have their units, and have sent on nothing; some keep not even their own.
    SaysDone,
    /// They take longer than anyone waits: units come when their stripe has gone another way.
    Stalls,
    /// One of them dies when it has been given units, before or after it has sent on some.
    Dies,
    /// Somebody without the key changes, repeats, leaves out or sends back what they send.
    Forged,
}

impl RelayFault {
    pub(crate) const ALL: [RelayFault; 6] = [
        RelayFault::OtherBytes,
        RelayFault::OtherSums,
        RelayFault::SaysDone,
        RelayFault::Stalls,
        RelayFault::Dies,
        RelayFault::Forged,
    ];
}

/// Polls within which one dies: some for each member behind it.
const DEATH_POLLS: u64 = 60;
/// Least and most time of a stall, in microseconds: a client waits for 5 s, and a call lasts for 10 s.
const STALL_US: (u64, u64) = (3_000_000, 9_500_000);

/// The relays of a storm.
pub(crate) struct Relays {
    prng: Prng,
    fault: Cell<Option<RelayFault>>,
    /// The one that dies.
    victim: RefCell<Option<String>>,
    /// The last brick that was given units of others.
    last: RefCell<Option<String>>,
}

impl Relays {
    pub(crate) fn new(seed: u64) -> Rc<Relays> {
        let prng = Prng::new(seed ^ 0x5245_4c41_5900);
        Rc::new(Relays { prng, fault: Cell::default(), victim: RefCell::default(), last: RefCell::default() })
    }

    /// The last brick that was given units of others.
    pub(crate) fn last(&self) -> Option<String> {
        self.last.borrow().clone()
    }

    /// From now on relays do so; `victim` is who dies.
    pub(crate) fn begin(&self, fault: RelayFault, victim: Option<String>) {
        self.fault.set(Some(fault));
        self.victim.replace(victim);
    }

    /// They are honest again.
    pub(crate) fn end(&self) {
        self.fault.set(None);
    }

    /// What becomes of a frame.
    pub(crate) fn look(&self, passing: &Passing<'_>) -> Option<Tampering> {
        let Passing { from, to, frame } = *passing;
        let (kind, flags) = (frame.header.kind, frame.header.flags);
        let is_relay = kind == Relay::KIND && !flags.is_reply();
        let is_sent_on = from.starts_with("brick") && (is_relay || kind == Stage::KIND && !flags.is_reply());
        if is_relay {
            self.last.replace(Some(to.to_owned()));
        }
        let fault = self.fault.get()?;
        if fault == RelayFault::Dies {
            let is_victim = is_relay && self.victim.borrow().as_deref() == Some(to);
            return is_victim.then(|| Tampering::Kill(self.prng.below(DEATH_POLLS)));
        }
        let is_sum = kind == SumUnits::KIND && !flags.is_reply();
        if is_sum && fault == RelayFault::Stalls && self.prng.coin() {
            return Some(self.late());
        }
        // The bytes of an announced request come later.
        let is_whole = !flags.is_announced() && !frame.payload.is_empty();
        if !is_whole || !(is_relay || is_sent_on) || self.prng.coin() {
            return None;
        }
        match fault {
            RelayFault::OtherBytes if is_sent_on => {
                Some(Tampering::Payload(self.with_a_flip(&frame.payload)))
            }
            RelayFault::OtherSums if is_sent_on => self.with_other_sums(kind, &frame.record),
            RelayFault::SaysDone => Some(Tampering::answer(frame, &Done {})),
            RelayFault::Stalls => Some(self.late()),
            RelayFault::Forged => {
                let ways = [Forgery::Flip, Forgery::Repeat, Forgery::LeaveOut, Forgery::Reflect];
                Some(Tampering::OnTheWay(ways[self.prng.below(4) as usize]))
            }
            RelayFault::OtherBytes | RelayFault::OtherSums | RelayFault::Dies => None,
        }
    }

    fn late(&self) -> Tampering {
        let (least, most) = STALL_US;
        Tampering::Late(least + self.prng.below(most - least))
    }

    fn with_a_flip(&self, payload: &Buf) -> Buf {
        let mut bytes = BufMut::zeroed(payload.len());
        bytes.copy_from_slice(payload);
        bytes[self.prng.below(payload.len() as u64) as usize] ^= 1 << self.prng.below(8);
        bytes.freeze()
    }

    fn with_other_sums(&self, kind: u16, record: &[u8]) -> Option<Tampering> {
        let flip = |crcs: &mut Vec<u32>| {
            let at = self.prng.below(crcs.len() as u64) as usize;
            crcs[at] ^= 1 << self.prng.below(32);
        };
        let other = if kind == Relay::KIND {
            let mut relay = wire::from_bytes::<Relay>(record).ok()?;
            flip(&mut relay.crcs);
            wire::to_bytes(&relay)
        } else {
            let mut stage = wire::from_bytes::<Stage>(record).ok()?;
            flip(&mut stage.crcs);
            wire::to_bytes(&stage)
        };
        Some(Tampering::Record(other))
    }
}
