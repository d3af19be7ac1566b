//! What runs did, added up.

use std::fmt;

use types::code_probe::{self, CodeProbe};
use world::sim::Fault;

use crate::unreached::Apart;

/// Branches that a storm reaches by a bug only, or hardly ever, each with who reaches it.
///
/// - An operation that all held goes with an earlier one only if a primary has placed it behind one that was open, which
///   none does (`store`: `a_take_over_forwards_what_all_hold_and_aborts_the_rest_with_its_followers`,
///   `what_comes_after_an_open_operation_waits`).
/// - Every live slot holds what parity was made of, and hears with the question what is decided. That it looks at the
///   identity all the same is the last guard against a silent wrong decode (`store`: `slot/tests`).
/// - Clients of storms seldom sync a file that they have open alone three times, and hardly ever die within the second in which only
///   bricks know a size (`noted.rs`, here).
/// - A storm has too few requests at once, and too small ones, for what bounds them (`world`: `rpc/tests/announced.rs`).
const NOT_BY_CHANCE: [CodeProbe; 7] = [
    CodeProbe::AbortedFollower,
    CodeProbe::OtherIdentity,
    CodeProbe::SyncNoted,
    CodeProbe::NoteStored,
    CodeProbe::RequestHeldBack,
    CodeProbe::RequestWaited,
    CodeProbe::ReaderStopped,
];

/// What one seed did, or several.
#[derive(Clone, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) seeds: u64,
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    /// Simulated time.
    pub(crate) virtual_us: u64,
    pub(crate) faults: [u64; Fault::ALL.len()],
    pub(crate) decoded: u64,
    pub(crate) retries: u64,
    /// Requests that went by way of another brick.
    pub(crate) proxied: u64,
    /// How often daemons did not reach each other, by [`Apart`].
    pub(crate) unreached: [u64; Apart::ALL.len()],
    /// Whole stripes that clients encoded.
    pub(crate) staged: u64,
    pub(crate) relayed: u64,
    /// Members that died when they had been given units of others.
    pub(crate) relays_died: u64,
    /// Cables that were cut: around which there was another way, and without which there were two parts.
    pub(crate) cables_around: u64,
    pub(crate) cables_apart: u64,
    /// Whole stripes that primaries encoded.
    pub(crate) sent: u64,
    /// Stripes folded by a patch, and written whole; by bricks since their last start.
    pub(crate) patched: u64,
    pub(crate) folded: u64,
    /// Bytes of files compared with what they should be.
    pub(crate) compared: u64,
    /// Block reads that were fitted into their block's history.
    pub(crate) reads_checked: u64,
    /// Writes within one stripe that were found whole or not at all.
    pub(crate) writes_whole: u64,
    /// Stripes read at rest, units of them computed again, and units that could not be read.
    pub(crate) stripes_compared: u64,
    pub(crate) units_compared: u64,
    pub(crate) units_damaged: u64,
    /// Runs whose space was compared at their end.
    pub(crate) spaces_compared: u64,
    /// Names that were compared with inodes, links and counts.
    pub(crate) names_checked: u64,
    /// Long files that were made and removed at rest, bricks that others have replaced, and stripes that were verified then.
    pub(crate) long_removed: u64,
    /// Files that went to another tier, and movers that were killed at it.
    pub(crate) moved: u64,
    pub(crate) movers_killed: u64,
    pub(crate) replaced: u64,
    pub(crate) stripes_verified: u64,
    /// The run ended early: more bricks were put Out than writes bear, or a client lost its lease.
    pub(crate) inconclusive: u64,
    /// A sum over the runs' traces.
    pub(crate) trace: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        let Tally { seeds, operations, bytes, virtual_us, faults, decoded, retries, staged, sent, .. } =
            other;
        self.seeds += seeds;
        self.operations += operations;
        self.bytes += bytes;
        self.virtual_us += virtual_us;
        self.faults.iter_mut().zip(faults).for_each(|(sum, count)| *sum += count);
        self.decoded += decoded;
        self.retries += retries;
        self.proxied += other.proxied;
        self.unreached.iter_mut().zip(other.unreached).for_each(|(sum, count)| *sum += count);
        self.staged += staged;
        self.relayed += other.relayed;
        self.relays_died += other.relays_died;
        self.cables_around += other.cables_around;
        self.cables_apart += other.cables_apart;
        self.sent += sent;
        self.patched += other.patched;
        self.folded += other.folded;
        self.compared += other.compared;
        self.reads_checked += other.reads_checked;
        self.writes_whole += other.writes_whole;
        self.stripes_compared += other.stripes_compared;
        self.units_compared += other.units_compared;
        self.units_damaged += other.units_damaged;
        self.spaces_compared += other.spaces_compared;
        self.names_checked += other.names_checked;
        self.long_removed += other.long_removed;
        self.moved += other.moved;
        self.movers_killed += other.movers_killed;
        self.replaced += other.replaced;
        self.stripes_verified += other.stripes_verified;
        self.inconclusive += other.inconclusive;
        self.trace = self.trace.wrapping_add(other.trace);
    }

    /// Faults of every kind.
    pub(crate) fn faults_in_all(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// What a run of so many seeds should have reached and has not.
    pub(crate) fn missing(&self) -> Vec<String> {
        let none = |count: u64, what: String| (count == 0).then_some(what);
        let faults =
            Fault::ALL.iter().zip(self.faults).filter_map(|(fault, n)| none(n, format!("fault {fault:?}")));
        let branches = CodeProbe::ALL.iter().filter(|branch| !NOT_BY_CHANCE.contains(branch));
        let branches =
            branches.filter_map(|b| none(code_probe::count(*b), format!("branch {b:?}: {}", b.text())));
        let ways = [
            (self.staged, "a stripe that a client encoded"),
            (self.relayed, "a stripe that went along a tree of members"),
            (self.relays_died, "a member that died at sending on units"),
            (self.cables_around, "a cut cable around which there is another way"),
            (self.cables_apart, "a cut cable without which there are two parts"),
            (self.sent, "a stripe that a primary encoded"),
            (self.proxied, "a request that went by way of another brick"),
            (self.patched, "a stripe folded by a patch"),
            (self.folded, "a stripe folded whole"),
            (self.units_damaged, "a unit found damaged at rest"),
            (self.writes_whole, "a write looked at as a whole"),
            (self.spaces_compared, "space compared"),
            (self.names_checked, "names checked"),
            (self.long_removed, "a long file removed at rest"),
            (self.replaced, "a brick replaced by another one"),
            (self.stripes_verified, "a stripe verified"),
            (self.moved, "a file moved to another tier"),
            (self.movers_killed, "a mover killed"),
        ];
        let ways = ways.into_iter().filter_map(|(count, what)| none(count, what.to_owned()));
        let apart = Apart::ALL.iter().zip(self.unreached);
        let apart = apart.filter_map(|(apart, n)| none(n, format!("fault Unreached: {apart:?}")));
        faults.chain(branches).chain(ways).chain(apart).collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.virtual_us as f64 / 3.6e9;
        writeln!(f, "{} seeds, {} operations, {} faults", self.seeds, self.operations, self.faults_in_all())?;
        writeln!(f, "  simulated time    {hours:.2} hours; {} inconclusive runs", self.inconclusive)?;
        writeln!(f, "  written           {} MiB; compared {} MiB", self.bytes >> 20, self.compared >> 20)?;
        writeln!(f, "  histories         {} reads, {} writes whole", self.reads_checked, self.writes_whole)?;
        writeln!(
            f,
            "  parity at rest    {} stripes, {} units computed again, {} damaged",
            self.stripes_compared, self.units_compared, self.units_damaged
        )?;
        writeln!(f, "  space at the end  {} runs", self.spaces_compared)?;
        writeln!(f, "  names checked     {}", self.names_checked)?;
        writeln!(
            f,
            "  long files        {} removed at rest, {} bricks replaced, {} stripes verified",
            self.long_removed, self.replaced, self.stripes_verified
        )?;
        writeln!(f, "  tiers             {} files moved, {} movers killed", self.moved, self.movers_killed)?;
        writeln!(
            f,
            "  ways              {} staged, {} of them along a tree, {} sent, {} patched, {} folded, {} decoded, {} retries",
            self.staged, self.relayed, self.sent, self.patched, self.folded, self.decoded, self.retries
        )?;
        writeln!(
            f,
            "  network           {} cut cables with another way, {} without; {} relays died",
            self.cables_around, self.cables_apart, self.relays_died
        )?;
        writeln!(
            f,
            "  unreached         {:?}: {:?}; {} requests proxied",
            Apart::ALL,
            self.unreached,
            self.proxied
        )?;
        writeln!(f, "  faults")?;
        for (fault, count) in Fault::ALL.iter().zip(self.faults) {
            writeln!(f, "    {count:>9}  {fault:?}")?;
        }
        writeln!(f, "  rare branches")?;
        for branch in CodeProbe::ALL {
            writeln!(f, "    {:>9}  {}", code_probe::count(*branch), branch.text())?;
        }
        write!(f, "  trace             {:016x}", self.trace)
    }
}
