//! The state of the whole model, and the steps that may happen next.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use stateright::{Model, Property};
use types::messages::brick::{Prepare, Tail};
use types::messages::cluster::{GroupConfig, SlotConfig, SlotState};
use types::{BrickId, Code, Epoch, ObjectId, Refusal, Seq, StripeKey};

use super::brick::{Brick, GROUP};
use super::bytes::{Cell, Code4};
use super::fingerprints::FingerprintSet;
use super::mutants::Mutant;
use super::oracle::Oracle;
use super::primary::Primary;
use crate::primary::Settlement;

/// What a client writes: to which stripe, which blocks of it.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) client: u8,
    pub(super) stripe: u64,
    pub(super) blocks: Vec<usize>,
    pub(super) zero: bool,
    /// Its bytes are zeros, and nobody says so.
    pub(super) blank: bool,
    /// As an overlay if possible; otherwise the stripe is read and written whole.
    pub(super) small: bool,
}

/// The scope of a search: the code, the writes, and how many faults may happen.
#[derive(Clone)]
pub(super) struct Scope {
    pub(super) code: Code,
    /// Blocks of a unit, and of a brick.
    pub(super) unit: usize,
    pub(super) data_blocks: u64,
    pub(super) writes: Vec<Write>,
    /// Bounds: ordered operations, folds among them, epochs, restarts, expulsions, new epochs on request.
    pub(super) orders: u64,
    pub(super) folds: u8,
    pub(super) epochs: usize,
    pub(super) crashes: u8,
    pub(super) expels: u8,
    pub(super) renews: u8,
    /// Copies of accepted writes that a proxy has kept for a while.
    pub(super) late: u8,
    /// Bricks that were expelled come back; their slots stay Out until they have joined.
    pub(super) rejoins: u8,
    /// Attempts to bring a slot level.
    pub(super) joins: u8,
    /// For all bricks together: checkpoints, and new journal segments other than those of restarts.
    pub(super) checkpoints: u8,
    pub(super) segments: u8,
    /// Syncs are steps of their own: a crash may come between a record and its sync.
    pub(super) lazy: bool,
    /// Slots that a crash may hit, as a mask.
    pub(super) frail: u64,
    pub(super) mutant: Option<Mutant>,
    pub(super) code4: Code4,
    /// Whether liveness is checked for each state.
    pub(super) with_liveness: bool,
    /// Fingerprints of states that [`invariants`](super::invariants) and [`liveness`](super::liveness) have found
    /// good.
    pub(super) known_safe: Arc<FingerprintSet>,
    pub(super) known_live: Arc<FingerprintSet>,
}

impl Scope {
    pub(super) fn new(k: u8, m: u8, writes: Vec<Write>) -> Scope {
        let code = Code::new(k, m).expect("a small code");
        Scope {
            code,
            unit: 1,
            data_blocks: 8,
            orders: writes.len() as u64,
            writes,
            folds: 0,
            epochs: 1,
            crashes: 0,
            expels: 0,
            renews: 0,
            late: 0,
            rejoins: 0,
            joins: 0,
            checkpoints: 0,
            segments: 0,
            lazy: false,
            frail: u64::MAX,
            mutant: None,
            code4: Code4::new(code),
            with_liveness: true,
            known_safe: Arc::default(),
            known_live: Arc::default(),
        }
    }

    pub(super) fn key(stripe: u64) -> StripeKey {
        StripeKey { object: ObjectId(1), stripe }
    }

    pub(super) fn keys(&self) -> Vec<StripeKey> {
        let mut keys: Vec<StripeKey> = self.writes.iter().map(|write| Scope::key(write.stripe)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The configuration of an epoch in which these slots are live.
    pub(super) fn config(&self, epoch: Epoch, live: u64) -> GroupConfig {
        let slot = |slot: usize| SlotConfig {
            brick: BrickId(slot as u32),
            state: if live & 1 << slot != 0 { SlotState::Live } else { SlotState::Out },
        };
        GroupConfig { epoch, slots: (0..self.code.slots()).map(slot).collect() }
    }

    pub(super) fn slots(&self) -> std::ops::Range<usize> {
        0..self.code.slots()
    }

    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

/// A message on its way. It stays after delivery as long as delivering it again could make a difference.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Prepare { prepare: Prepare, payload: Vec<Cell> },
    Prepared { seq: Seq, delta: Vec<Cell> },
    Refused { seq: Seq, refusal: Refusal },
    NewEpoch,
    Tail(Tail),
    Decide(Settlement),
    Settled,
}

/// The id of a message: its kind, the slot that gets or sent it, the epoch, and a number that distinguishes it from
/// others of these.
pub(super) type MessageId = (u8, usize, Epoch, u64);

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Action {
    /// A client's write reaches the primary on this slot's brick, and is accepted.
    Accept(usize, usize),
    /// Another copy of it comes later, by way of another brick.
    AcceptLate(usize, usize),
    /// The first write of a stripe's lane is ordered.
    Order(usize, u64),
    /// A stripe is folded: by a patch, or whole.
    Fold(usize, u64, bool),
    /// A client is told that a write is stable.
    Stable(usize, usize),
    /// A slot is told the decisions.
    Tell(usize, usize),
    Deliver(MessageId),
    Sync(usize),
    /// A brick's journal moves on to another segment; a checkpoint empties the oldest one.
    Segment(usize),
    Checkpoint(usize),
    /// A brick restarts. How many unsynced records survive, and whether their blocks do.
    Crash(usize, usize, bool),
    /// The arbiter puts a slot Out.
    Expel(usize),
    /// The brick of a slot that is Out comes back.
    Rejoin(usize),
    /// A brick gets the newest map.
    Fetch(usize),
    /// A primary asks for a new epoch.
    Renew(usize),
    /// A primary begins to bring a slot level; compares; fills a stripe; stops waiting for an operation; seals the
    /// group.
    Join(usize, usize),
    Compare(usize),
    Level(usize, u64),
    GiveUp(usize, Seq),
    Seal(usize),
    /// The arbiter admits the slot that a primary has brought level.
    Admit(usize),
}

/// The whole state.
#[derive(Clone)]
pub(super) struct State {
    pub(super) bricks: Vec<Arc<Brick>>,
    pub(super) primaries: Vec<Arc<Primary>>,
    /// The epoch of the map that each brick has.
    pub(super) maps: Vec<Epoch>,
    /// Bricks that hold a lease.
    pub(super) leases: u64,
    /// Live slots of every epoch, from the first.
    pub(super) configs: Vec<u64>,
    /// Answers that wait for a sync of the brick.
    pub(super) owed: Vec<BTreeMap<MessageId, Arc<Message>>>,
    pub(super) net: BTreeMap<MessageId, Arc<Message>>,
    pub(super) oracle: Arc<Oracle>,
    pub(super) spent: Spent,
    /// The first violation found.
    pub(super) wrong: Option<String>,
}

/// How much of the scope's bounds is used up.
#[derive(Clone, Copy, Default, Hash, Debug)]
pub(super) struct Spent {
    pub(super) folds: u8,
    pub(super) crashes: u8,
    pub(super) expels: u8,
    pub(super) renews: u8,
    pub(super) late: u8,
    pub(super) rejoins: u8,
    pub(super) joins: u8,
    pub(super) checkpoints: u8,
    pub(super) segments: u8,
}

impl State {
    /// The newest epoch, and its live slots.
    pub(super) fn config(&self) -> (Epoch, u64) {
        (Epoch(self.configs.len() as u32), self.configs[self.configs.len() - 1])
    }

    pub(super) fn live_in(&self, epoch: Epoch) -> u64 {
        self.configs[epoch.0 as usize - 1]
    }

    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn has_lease(&self, slot: usize) -> bool {
        self.leases & 1 << slot != 0
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bricks.iter().for_each(|brick| brick.fingerprint(state));
        for primary in &self.primaries {
            primary.core.fingerprint(state);
            (primary.epoch, &primary.lanes, primary.promised, primary.told, &primary.joining).hash(state);
            for busy in &primary.busy {
                (busy.seq, busy.acked, busy.refused, busy.patch.as_ref().map(|patch| patch.awaited))
                    .hash(state);
            }
        }
        (&self.maps, self.leases, &self.configs, self.spent, &self.wrong).hash(state);
        self.owed.iter().for_each(|owed| owed.keys().for_each(|message_id| message_id.hash(state)));
        for (message_id, message) in &self.net {
            message_id.hash(state);
            // Contents that the id does not determine: they depend on when the operation was ordered or refused.
            match &**message {
                Message::Prepare { prepare, .. } => (prepare.decided, &prepare.acked).hash(state),
                Message::Refused { refusal, .. } => std::mem::discriminant(refusal).hash(state),
                _ => {}
            }
        }
        self.oracle.fingerprint(state);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.fingerprint() == other.fingerprint()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (epoch, live) = self.config();
        writeln!(f, "{epoch} live {live:b} leases {:b} maps {:?} {:?}", self.leases, self.maps, self.wrong)?;
        for brick in &self.bricks {
            let core = &brick.now.core;
            writeln!(
                f,
                "  slot {}: promised {} served {:?} tail {:?} unsynced {} applied {:?} dropped {:?}",
                brick.slot,
                core.promised(GROUP),
                core.served(GROUP),
                core.tail(GROUP, 0).held.iter().map(|op| op.seq).collect::<Vec<_>>(),
                brick.unsynced(),
                brick.now.applied,
                brick.now.dropped,
            )?;
        }
        for (slot, primary) in
            self.primaries.iter().enumerate().filter(|(_, primary)| primary.epoch != Epoch(0))
        {
            let busy: Vec<_> = primary.busy.iter().map(|busy| (busy.seq, busy.acked)).collect();
            let serving = primary.is_serving();
            writeln!(
                f,
                "  primary on {slot}: {} serving {serving} lanes {:?} busy {busy:?}",
                primary.epoch, primary.lanes
            )?;
        }
        for (seq, op) in &self.oracle.ops {
            writeln!(f, "  {seq} write {:?} at {:?} {:?}", op.write, op.participants, op.fate)?;
        }
        writeln!(f, "  stable {:b} net {:?}", self.oracle.stable, self.net.keys().collect::<Vec<_>>())
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Accept(slot, write) => write!(f, "primary {slot} accepts write {write}"),
            Action::AcceptLate(slot, write) => {
                write!(f, "a copy of write {write} comes to primary {slot} by way of another brick")
            }
            Action::Order(slot, stripe) => {
                write!(f, "primary {slot} orders the next write of stripe {stripe}")
            }
            Action::Fold(slot, stripe, patch) => {
                write!(f, "primary {slot} folds stripe {stripe}, patch: {patch}")
            }
            Action::Stable(slot, write) => write!(f, "primary {slot} reports write {write} stable"),
            Action::Tell(slot, to) => write!(f, "primary {slot} tells slot {to} its decisions"),
            Action::Deliver((kind, slot, epoch, more)) => {
                let kind = ["", "prepare", "prepared", "refused", "new epoch", "tail", "decide", "settled"]
                    [*kind as usize];
                write!(f, "delivered: {kind}, slot {slot}, {epoch} ({more:x})")
            }
            Action::Sync(slot) => write!(f, "slot {slot} syncs"),
            Action::Crash(slot, kept, whole) => {
                write!(f, "slot {slot} restarts, {kept} records kept, blocks: {whole}")
            }
            Action::Segment(slot) => write!(f, "slot {slot} begins another segment"),
            Action::Checkpoint(slot) => write!(f, "slot {slot} makes a checkpoint"),
            Action::Expel(slot) => write!(f, "the arbiter expels slot {slot}"),
            Action::Rejoin(slot) => write!(f, "the brick of slot {slot} comes back"),
            Action::Fetch(slot) => write!(f, "slot {slot} gets the newest map"),
            Action::Join(slot, joining) => write!(f, "primary {slot} begins to bring slot {joining} level"),
            Action::Compare(slot) => write!(f, "primary {slot} compares"),
            Action::Level(slot, stripe) => write!(f, "primary {slot} levels stripe {stripe}"),
            Action::GiveUp(slot, seq) => {
                write!(f, "primary {slot} does not wait for the joining slot and {seq}")
            }
            Action::Seal(slot) => write!(f, "primary {slot} seals the group"),
            Action::Admit(slot) => write!(f, "the arbiter admits what primary {slot} brought level"),
            Action::Renew(slot) => write!(f, "primary {slot} asks for a new epoch"),
        }
    }
}

/// The properties that must hold, by the first word of a violation.
pub(super) const PROPERTIES: [(&str, &str); 11] = [
    ("I1", "I1 what was reported stable is there, whichever M bricks are lost"),
    ("I2", "I2 an operation is everywhere or nowhere"),
    ("I3", "I3 units and parity fit one another"),
    ("I4", "I4 no number is given twice"),
    ("I5", "I5 what was aborted never comes back"),
    ("I6", "I6 a reader sees what is committed, all of it and nothing else"),
    ("I8", "I8 a write takes effect once, in its order"),
    ("I9", "I9 a block has one owner, a taken one has one"),
    ("I11", "I11 overlays are on every live participant until folded"),
    ("L", "L all comes to rest when faults cease: writes are stable, lost slots are back"),
    ("assert", "no assertion of the code fails"),
];

impl Model for Scope {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.begin()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_none() {
            self.possible(state, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        self.step(last, action)
    }

    fn properties(&self) -> Vec<Property<Scope>> {
        macro_rules! always {
            ($($at:literal)*) => {
                vec![$(Property::always(PROPERTIES[$at].1, |_, state: &State| {
                    let first = state.wrong.as_deref().and_then(|wrong| wrong.split(' ').next());
                    first != Some(PROPERTIES[$at].0)
                })),*]
            };
        }
        always!(0 1 2 3 4 5 6 7 8 9 10)
    }
}
