//! A brick is whole again after a crash at any write: every short sequence of messages runs on one brick, and for each
//! state that a crash may leave its disk in, the brick is opened and compared.
//!
//! ```text
//! workload ──▶ what the disk was asked to do ──▶ every crash image ──▶ recover, take over, compare
//!                                                                          └──▶ every crash image of that ──▶ ...
//! ```
//!
//! Between two syncs any of the writes may have reached the disk, also in part ([`images`]). What was answered as
//! durable must be there with the right bytes; anything else is there whole or not at all ([`oracle`]); every block
//! belongs to one unit or is free. A second crash, while the brick recovers, must come to the same.

mod bit_rot;
mod brick;
mod images;
mod journal_full;
mod oracle;
mod pages;

use std::cell::RefCell;
use std::rc::Rc;

use types::limits::BLOCK;
use types::messages::brick::{OpKind, ReadBase, Span};
use types::{ClientSeq, Epoch, Refusal, Seq, StripeKey};

use super::GROUP;
use crate::server::Server;
use crate::slot::touched_rows;
use brick::{Crashed, FIRST, OTHER, Rig, Role, examine};
use images::{Crash, crash_images};
use oracle::{History, Op, Settled};

const UNIT: usize = 16 << 10;

macro_rules! letters {
    ($($(#[$doc:meta])* $letter:ident,)*) => {
        /// A message, or a few that belong together.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        enum Letter { $($(#[$doc])* $letter,)* }

        use Letter::*;
        const LETTERS: &[Letter] = &[$($letter,)*];
    };
}

letters! {
    /// The unit written whole.
    Full,
    /// The other object's unit, one block of it.
    Short,
    /// The unit whole, its bytes laid on the brick before.
    Staged,
    Overlay,
    /// Over two spans, in two blocks.
    OverlayTwo,
    /// Over the other object's unit.
    OverlayOther,
    Zero,
    /// What lies over the unit becomes part of it.
    Patch,
    /// The primary reads, and tells what is decided.
    Read,
    /// Everything held becomes durable.
    Sync,
    /// Everything held becomes durable and is decided.
    Decided,
    /// A new epoch, everything held decided.
    TakeOver,
    /// A new epoch, everything held aborted.
    Abort,
    Purge,
    /// The slot is brought level: its unit is what the primary computed, of a write that it has missed.
    Fill,
    /// The journal goes on in its next segment, so that a checkpoint frees one.
    Segment,
    Checkpoint,
}

/// What the test knows while it sends.
struct Session {
    server: Rc<Server>,
    role: Role,
    recording: world::sim::Recording,
    history: Rc<RefCell<History>>,
    epoch: Epoch,
    counter: u64,
    origin: u64,
}

impl Session {
    fn new(server: Rc<Server>, role: Role, recording: world::sim::Recording) -> Session {
        let history = Rc::default();
        Session { server, role, recording, history, epoch: Epoch(1), counter: 0, origin: 0 }
    }

    /// Whether the letter means anything here. Nothing is waited for at its end.
    async fn run(&mut self, letter: Letter) -> bool {
        match letter {
            Full | Staged => self.order(FIRST, OpKind::Full, &[], UNIT, letter == Staged).await,
            Short => self.order(OTHER, OpKind::Full, &[], BLOCK, false).await,
            Overlay => self.order(FIRST, OpKind::Overlay, &[(100, 300)], 300, false).await,
            OverlayTwo => self.order(FIRST, OpKind::Overlay, &[(300, 200), (8000, 2500)], 2700, false).await,
            OverlayOther => self.order(OTHER, OpKind::Overlay, &[(0, 4096)], 4096, false).await,
            Zero => self.order(FIRST, OpKind::Zero, &[(200, 5000)], 0, false).await,
            Patch => return self.patch().await,
            Read => self.read().await,
            Sync => self.sync().await,
            Decided => {
                self.sync().await;
                let decision = brick::decided(self.epoch, Seq::new(self.epoch, self.counter));
                self.server.apply_decisions(&[decision]).await.expect("the disk works");
            }
            TakeOver => self.take_over(false).await,
            Abort => self.take_over(true).await,
            Purge => self.purge().await,
            Fill => self.fill().await,
            Segment => return brick::next_segment(&self.server),
            Checkpoint => self.server.checkpoint().await.expect("a checkpoint"),
        }
        true
    }

    /// The operations of this stripe have ended; its primary sends one at a time.
    async fn turn(&self, key: Option<StripeKey>) {
        let open = || {
            let history = self.history.borrow();
            history
                .ops
                .iter()
                .any(|op| key.is_none_or(|key| op.key == key) && op.acked.is_none() && !op.refused)
        };
        while open() {
            self.server.world.sleep(100).await;
        }
    }

    async fn order(&mut self, key: StripeKey, kind: OpKind, spans: &[(u32, u32)], len: usize, staged: bool) {
        let spans = spans.iter().map(|(offset, len)| Span { offset: *offset, len: *len }).collect();
        self.origin += 1;
        let origin = self.origin;
        let bytes = (0..len).map(|i| (i as u64 * 7 + origin * 31 + i as u64 / 509) as u8).collect();
        self.send(key, kind, spans, bytes, Vec::new(), Some(ClientSeq(origin)), staged).await;
    }

    /// Folds what lies over the first unit, if anything does.
    async fn patch(&mut self) -> bool {
        self.turn(None).await;
        let (spans, has_base) = {
            let history = self.history.borrow();
            let remains =
                |op: &&Op| op.key == FIRST && !op.refused && !history.is_aborted(op.seq, Seq(u64::MAX));
            let bases = history.ops.iter().filter(remains);
            let last =
                bases.enumerate().filter(|(_, op)| matches!(op.kind, OpKind::Full | OpKind::Patch)).last();
            let over = history.ops.iter().filter(remains).skip(last.map_or(0, |(at, _)| at + 1));
            (over.flat_map(|op| op.spans.clone()).collect::<Vec<_>>(), last.is_some())
        };
        if spans.is_empty() || !has_base || self.history.borrow().purged.is_some() {
            return false;
        }
        let only = (self.role == Role::Data).then_some(0);
        let rows = touched_rows(spans.iter().map(Span::range), UNIT, only);
        // Of a data slot the brick itself knows what changes.
        let len = if self.role == Role::Data { 0 } else { rows.len() * BLOCK };
        let bytes = (0..len).map(|i| (i * 13) as u8).collect();
        self.send(FIRST, OpKind::Patch, Vec::new(), bytes, rows, None, false).await;
        true
    }

    /// Sends an operation and does not wait for its answer.
    async fn send(
        &mut self,
        key: StripeKey,
        kind: OpKind,
        spans: Vec<Span>,
        bytes: Vec<u8>,
        rows: Vec<u32>,
        origin: Option<ClientSeq>,
        staged: bool,
    ) {
        self.turn(Some(key)).await;
        self.counter += 1;
        let seq = Seq::new(self.epoch, self.counter);
        let issued = self.recording.len();
        let op = Op {
            seq,
            key,
            kind,
            spans,
            bytes,
            rows,
            origin,
            issued,
            acked: None,
            refused: false,
            gone: None,
            filled: false,
        };
        self.issue(op, staged).await;
    }

    /// Sends an operation that has its number.
    async fn issue(&mut self, op: Op, staged: bool) {
        let (key, seq) = (op.key, op.seq);
        let base = self.base_of(key);
        self.history.borrow_mut().ops.push(op.clone());
        let (server, role) = (self.server.clone(), self.role);
        let (history, recording) = (self.history.clone(), self.recording.clone());
        self.server.world.spawn("test", async move {
            let answer = brick::send(&server, role, &op, base, [seq, base], staged).await;
            let mut history = history.borrow_mut();
            let op = history.ops.iter_mut().find(|known| known.seq == op.seq).expect("noted before");
            match answer {
                Ok(()) => op.acked = Some(recording.len()),
                Err(refusal) if is_expected(refusal) => op.refused = true,
                Err(refusal) => panic!("{}: {refusal}", op.seq),
            }
        });
        // Some operations overlap with the next message, some do not.
        self.server.world.sleep(self.server.world.random() % 3 * 30).await;
    }

    /// Everything held is decided, with a write that the slot has missed; then it is given the unit.
    async fn fill(&mut self) {
        self.sync().await;
        self.counter += 1;
        self.origin += 1;
        let (seq, salt) = (Seq::new(self.epoch, self.counter), self.origin);
        let bytes = (0..UNIT).map(|i| (i as u64 * 11 + salt * 17 + i as u64 / 257) as u8).collect();
        let (kind, issued) = (OpKind::Full, self.recording.len());
        let op = Op {
            seq,
            key: FIRST,
            kind,
            spans: Vec::new(),
            bytes,
            rows: Vec::new(),
            origin: None,
            issued,
            acked: None,
            refused: false,
            gone: None,
            filled: true,
        };
        self.issue(op, false).await;
    }

    /// Identity of a stripe's base as its primary knows it.
    fn base_of(&self, key: StripeKey) -> Seq {
        let history = self.history.borrow();
        let remains = |op: &&Op| op.key == key && !op.refused && !history.is_aborted(op.seq, Seq(u64::MAX));
        let mut bases =
            history.ops.iter().filter(remains).filter(|op| matches!(op.kind, OpKind::Full | OpKind::Patch));
        bases.next_back().map_or(Seq::NONE, |op| op.seq)
    }

    async fn read(&self) {
        let read = ReadBase {
            group: GROUP,
            key: FIRST,
            slot: self.role.slot(),
            offset: 0,
            len: UNIT as u32,
            identity: None,
            upto: Seq::NONE,
            decided: Vec::new(),
        };
        match self.server.read_base(self.epoch, read).await {
            Ok(_) | Err(Refusal::Pending | Refusal::ObjectRemoved) => {}
            Err(refusal) => panic!("a read is refused: {refusal}"),
        }
    }

    async fn sync(&self) {
        self.server.nudge().await.expect("synced");
        self.turn(None).await;
    }

    async fn take_over(&mut self, abort: bool) {
        self.epoch = self.epoch.next();
        self.counter = 0;
        let tail = brick::promise(&self.server, self.role, self.epoch).await;
        let held = tail.held.iter().map(|op| op.seq);
        let aborted: Vec<Seq> = if abort { held.collect() } else { Vec::new() };
        let upto = Seq::new(self.epoch, 0);
        let issued = self.recording.len();
        self.history.borrow_mut().settled.push(Settled {
            upto,
            aborted: aborted.clone(),
            issued,
            acked: None,
        });
        brick::decide(&self.server, self.epoch, &tail, &aborted).await;
        let acked = Some(self.recording.len());
        self.history.borrow_mut().settled.last_mut().expect("just noted").acked = acked;
    }

    async fn purge(&mut self) {
        let issued = self.recording.len();
        self.history.borrow_mut().purged.get_or_insert((issued, None));
        let purge = types::messages::brick::Purge { objects: vec![FIRST.object] };
        self.server.purge(purge).await.expect("purged");
        if let Some((_, acked @ None)) = &mut self.history.borrow_mut().purged {
            *acked = Some(self.recording.len());
        }
    }
}

/// What a slot may say to an operation that comes too late, or finds the brick full.
fn is_expected(refusal: Refusal) -> bool {
    use Refusal::*;
    matches!(refusal, StaleEpoch | NotServing | ObjectRemoved | NotStaged | NoSpace)
}

/// What to try of every workload.
#[derive(Clone, Copy)]
struct Depth {
    /// Of so many crash images one is crashed again while it recovers.
    second_of: usize,
    /// Of so many crash images one is looked at.
    one_of: usize,
    /// Of so many that a killed process leaves one is looked at, and crashed again: what is in the page cache is worth it.
    kill_of: usize,
}

/// Says where it happened if a comparison fails.
struct Label(RefCell<String>);

impl Drop for Label {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("crash point: {}", self.0.borrow());
        }
    }
}

/// Runs a workload and looks at the crash images that it leaves: their number, `None` if the workload means nothing.
fn explore(role: Role, is_blank: bool, letters: &[Letter], seed: u64, depth: Depth) -> Option<u64> {
    let label = Label(RefCell::new(format!("{role:?} blank {is_blank} {letters:?} seed {seed}")));
    let rig = Rig::new(seed, role);
    let crashed = rig.sim.block_on("test", workload(&rig, is_blank, letters))?;
    let (mut states, mut number) = (0, seed as usize);
    crash_images(&crashed.start, &crashed.events, |crash| {
        number += 1;
        let is_kill = !crash.cached.is_empty() && number.is_multiple_of(depth.kill_of);
        if !number.is_multiple_of(depth.one_of) && !is_kill {
            return;
        }
        states += 1;
        let first = format!("{role:?} blank {is_blank} {letters:?} seed {seed}: {crash}");
        label.0.replace(first.clone());
        let forward = number % 3 > 0;
        let again = look(&rig, &crash, &crashed.history, 0, forward);
        if !number.is_multiple_of(depth.second_of) && !is_kill {
            return;
        }
        crash_images(&again.start, &again.events, |crash| {
            states += 1;
            label.0.replace(format!("{first}; forward {forward}; then {crash}"));
            look(&rig, &crash, &again.history, 1, true);
        });
    });
    Some(states)
}

fn look(rig: &Rig, crash: &Crash<'_>, history: &History, turn: usize, forward: bool) -> Crashed {
    rig.restore(&crash.image);
    rig.sim.block_on("test", examine(rig, history, crash, turn, forward))
}

/// Runs a workload on a brick that is new, or has a unit at rest and an overlay in its journal.
async fn workload(rig: &Rig, is_blank: bool, letters: &[Letter]) -> Option<Crashed> {
    let server = rig.open().await;
    let mut session = Session::new(server.clone(), rig.role, world::sim::Recording::default());
    let tail = brick::promise(&server, rig.role, session.epoch).await;
    brick::decide(&server, session.epoch, &tail, &[]).await;
    let before: &[Letter] = if is_blank { &[] } else { &[Full, Decided, Checkpoint, Overlay, Decided] };
    for letter in before {
        session.run(*letter).await;
    }
    server.nudge().await.expect("synced");
    let (start, recording) = rig.record();
    session.recording = recording.clone();
    let past = session.history.borrow().until(0);
    session.history.replace(past);
    for letter in letters {
        if !session.run(*letter).await {
            return None;
        }
    }
    session.turn(None).await;
    // Decisions that nobody waits for become durable.
    server.world.sleep(30_000).await;
    let history = session.history.borrow().clone();
    Some(Crashed { start, events: recording.events(), history })
}

/// Every workload of `len` letters.
fn workloads(len: u32) -> impl Iterator<Item = Vec<Letter>> {
    (0..LETTERS.len().pow(len)).map(move |number| {
        (0..len).map(|place| LETTERS[number / LETTERS.len().pow(place) % LETTERS.len()]).collect()
    })
}

/// Workloads of 3 to 7 letters, drawn.
fn drawn(count: usize) -> impl Iterator<Item = Vec<Letter>> {
    let mut state = 1u64;
    let mut below = move |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    };
    (0..count).map(move |_| (0..3 + below(5)).map(|_| LETTERS[below(LETTERS.len())]).collect())
}

fn explore_all(workloads: impl Iterator<Item = Vec<Letter>>, depth: Depth) -> (u64, u64) {
    let (mut done, mut states) = (0, 0);
    for (number, letters) in workloads.enumerate() {
        for (role, is_blank) in [(Role::Data, false), (Role::Parity, false), (Role::Data, true)] {
            if let Some(found) = explore(role, is_blank, &letters, number as u64, depth) {
                done += 1;
                states += found;
            }
        }
    }
    (done, states)
}

/// A checkpoint frees the segment in which a letter has its records; then something else comes.
fn freed_segments() -> impl Iterator<Item = Vec<Letter>> {
    let behind = [Full, OverlayOther, TakeOver, Purge];
    LETTERS.iter().flat_map(move |first| behind.map(|last| vec![*first, Decided, Segment, Checkpoint, last]))
}

/// Every pair of letters with a third behind it.
fn pairs_and(last: Letter) -> impl Iterator<Item = Vec<Letter>> {
    workloads(2).map(move |letters| [letters, vec![last]].concat())
}

#[test]
fn a_crash_at_every_point_of_short_workloads() {
    let (done, states) =
        explore_all((1..=2).flat_map(workloads), Depth { second_of: 61, one_of: 4, kill_of: 2 });
    println!("{done} workloads, {states} crash states");
    assert!(done > 500 && states > 5_000, "the workloads do something: {done}, {states}");
}

#[test]
fn a_crash_at_some_points_of_longer_workloads() {
    let longer = pairs_and(Checkpoint).chain(drawn(60));
    let (done, states) = explore_all(longer, Depth { second_of: 301, one_of: 7, kill_of: 5 });
    println!("{done} workloads, {states} crash states");
    assert!(done > 500 && states > 5_000, "the workloads do something: {done}, {states}");
}

/// The journal goes on in another segment during a checkpoint of the only one: overlays and states in that are still needed.
#[test]
fn a_segment_that_was_current_when_a_checkpoint_began_stays() {
    let depth = Depth { second_of: 1000, one_of: 1, kill_of: 1 };
    for seed in 0..20 {
        for letters in [[Segment, Full, Checkpoint], [Segment, Checkpoint, Full]] {
            explore(Role::Data, false, &letters, seed, depth).expect("it means something");
        }
    }
}

#[test]
fn a_crash_at_some_points_of_a_checkpoint_that_frees_a_segment() {
    let (done, states) = explore_all(freed_segments(), Depth { second_of: 301, one_of: 7, kill_of: 5 });
    println!("{done} workloads, {states} crash states");
    assert!(done > 100 && states > 5_000, "the workloads do something: {done}, {states}");
}

/// `./dev crash` runs it and prints the time.
#[test]
#[ignore = "takes many minutes"]
fn a_crash_at_every_point_of_all_workloads() {
    let (done, states) = explore_all(
        (1..=3).flat_map(workloads).chain(freed_segments()).chain(drawn(3000)),
        Depth { second_of: 16, one_of: 1, kill_of: 1 },
    );
    println!("{done} workloads, {states} crash states");
}
