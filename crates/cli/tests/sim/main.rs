//! What an fsync confirmed survives M lost bricks, crashes, power cuts and partitions: whole clusters run in one thread
//! of a simulated world under faults, and every byte is compared.
//!
//! `SHOAL_SEEDS=N` runs so many seeds of the storm, from `SHOAL_SEED=S` on, `SHOAL_JOBS=J` of them at a time. A seed and
//! a commit are one run. `SHOAL_LONG_FILES=1` gives every seed a long file (`long.rs`), `SHOAL_LONG_FILES=0` none.

mod alone;
mod check;
mod cluster;
mod cuts;
mod fence;
mod halves;
mod late_join;
mod late_reports;
mod long;
mod lost_writes;
mod names;
mod nbd;
mod nemesis;
mod network;
mod noted;
mod prng;
mod rails;
mod read_during_cut;
mod relays;
mod replacement;
mod restarted_create;
mod restored;
mod scenario;
mod shards;
mod shared;
mod slow_brick;
mod storm;
mod swarm;
mod tally;
mod tiers;
mod unreachable;
mod unreached;
mod workload;

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use cluster::Cluster;
use tally::Tally;
use types::code_probe::{CodeProbe, count};
use world::sim::SimOptions;

/// Seeds from which on every kind of fault and every rare branch must have been reached.
const SEEDS_FOR_ALL: u64 = 800;
/// Seeds after which the run says how far it is.
const PROGRESS: u64 = 50;

/// Writes, reads, reads degraded, loses power, recovers. One seed gives one trace, two seeds two.
#[test]
fn one_seed_gives_one_trace() {
    let hash = |seed| {
        let cluster = Cluster::new(seed, SimOptions::default(), 10, 32 << 20, 8 << 20);
        scenario::run(&cluster);
        cluster.sim.trace_hash()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

/// So with all its faults.
#[test]
fn one_storm_gives_one_trace() {
    let traces = |_| [3, 5, 8].map(|seed| storm::run(seed).trace);
    assert_eq!(traces(()), traces(()));
}

/// One brick whose disk is twenty times slower is hardly noticed by readers.
#[test]
fn a_slow_brick_costs_readers_little() {
    (1..=2).for_each(slow_brick::run);
}

/// Two volumes whose names are in two shards. `SHOAL_SHARDS_SEEDS=N` for other numbers of runs.
#[test]
fn two_shards_fail_apart() {
    log_if_asked();
    let (first, seeds) = (number("SHOAL_SEED", 1), number("SHOAL_SHARDS_SEEDS", 12));
    (first..first + seeds).for_each(|seed| shards::run(seed, 6));
}

/// Clients work on the same names while metadata servers die: a million operations and 500 crashes. `SHOAL_NAMES_SEEDS=N` for
/// other numbers of runs, of `SHOAL_CRASHES=N` each.
#[test]
fn names_have_one_history() {
    let crashes = number("SHOAL_CRASHES", 40);
    let (first, runs) = (number("SHOAL_SEED", 1), number("SHOAL_NAMES_SEEDS", 13));
    let operations: usize = (first..first + runs).map(|seed| names::run(seed, crashes)).sum();
    println!("{operations} operations on names");
    assert!(operations as u64 > 1000 * crashes * runs, "only {operations} operations in {runs} runs");
}

/// What was synced is as long as it was synced, although only bricks knew it. `SHOAL_NOTED_SEEDS=N` for more runs.
#[test]
fn what_only_bricks_know_of_sizes_is_not_lost() {
    log_if_asked();
    let before = [CodeProbe::SyncNoted, CodeProbe::NoteStored].map(count);
    let (first, seeds) = (number("SHOAL_SEED", 1), number("SHOAL_NOTED_SEEDS", 8));
    (first..first + seeds).for_each(|seed| noted::run(seed, 6));
    let after = [CodeProbe::SyncNoted, CodeProbe::NoteStored].map(count);
    println!("{} syncs noted, {} sizes learnt from bricks", after[0] - before[0], after[1] - before[1]);
    let is_enough = after[0] > before[0] + 1000 && after[1] > before[1] + 5;
    assert!(is_enough || seeds < 8, "hardly anything was noted");
}

/// The metadata comes back from a backup that is older than what the bricks know: what they have is read.
/// `SHOAL_RESTORED_SEEDS=N` for more runs.
#[test]
fn a_restored_cluster_has_the_newest_bytes() {
    log_if_asked();
    let first = number("SHOAL_SEED", 1);
    (first..first + number("SHOAL_RESTORED_SEEDS", restored::SEEDS)).for_each(restored::run);
}

/// A brick that the others do not reach, and that renews its lease, costs a pause.
#[test]
fn a_brick_that_nobody_reaches_costs_seconds() {
    log_if_asked();
    let (first, seeds) = (number("SHOAL_SEED", 1), number("SHOAL_UNREACHABLE_SEEDS", 7));
    (first..first + seeds).for_each(unreachable::run);
}

/// A brick whose earlier life is heard late joins once more.
#[test]
fn a_late_join_of_an_earlier_life_ends_no_brick() {
    (1..=4).for_each(late_join::run);
}

/// A client that alone does not reach a brick asks it by way of others. `SHOAL_ALONE_SEEDS=N` for more runs.
#[test]
fn a_client_that_alone_does_not_reach_a_brick_goes_round() {
    log_if_asked();
    let (first, seeds) = (number("SHOAL_SEED", 1), number("SHOAL_ALONE_SEEDS", 6));
    (first..first + seeds).for_each(alone::run);
}

/// What no brick took is no part of a size. `SHOAL_LOST_SEEDS=N` for more runs.
#[test]
fn bytes_that_no_brick_took_are_no_part_of_a_size() {
    log_if_asked();
    let (first, seeds) = (number("SHOAL_SEED", 1), number("SHOAL_LOST_SEEDS", 12));
    let lost = (first..first + seeds).filter(|seed| lost_writes::run(*seed)).count();
    assert!(lost > 0 || seeds < 12, "nothing was lost");
}

/// A network that falls apart for longer than leases last: one side stops, and none diverges.
#[test]
fn of_two_halves_one_stops_and_none_diverges() {
    (1..=4).for_each(halves::run);
}

/// One of two rails may be cut, one way as well: everything goes on over the other one.
#[test]
fn a_cut_rail_costs_seconds_and_nothing_else() {
    (1..=2).for_each(rails::run);
}

/// What was flushed is on the disk after its gate has died.
#[test]
fn a_disk_survives_its_gates() {
    let (first, seeds) = (number("SHOAL_SEED", 1), number("SHOAL_SEEDS", 8).clamp(4, 100));
    let flushes: u64 = (first..first + seeds).map(nbd::run).sum();
    assert!(flushes > seeds, "{flushes} flushes");
}

#[test]
fn a_request_that_waited_for_a_client_that_went_is_not_begun() {
    (1..=8).for_each(nbd::a_request_that_waited);
}

#[test]
fn who_comes_to_a_disk_after_a_lost_lease_finds_the_others_gone() {
    let late = (1..=16).filter(|seed| nbd::a_lost_lease(*seed)).count();
    assert!(late > 0, "none is let in when the gate has its new lease");
}

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a number"))
}

/// With `SHOAL_LOG` set, what everybody does; for one seed.
fn log_if_asked() {
    if std::env::var_os("SHOAL_LOG").is_some() {
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_test_writer();
        // Another test of this process may have been first.
        let _ = log.try_init();
    }
}

/// What all jobs share.
#[derive(Default)]
struct Progress {
    sum: Tally,
    failed: Vec<u64>,
}

/// Random work under random faults.
#[test]
fn storms() {
    log_if_asked();
    let (first, seeds) = (number("SHOAL_SEED", 1), number("SHOAL_SEEDS", 50));
    let jobs = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let (next, progress) = (AtomicU64::new(first), Mutex::new(Progress::default()));
    // A simulation never leaves its thread; what seeds share is only counted.
    std::thread::scope(|scope| {
        for _ in 0..number("SHOAL_JOBS", jobs).min(seeds) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        break;
                    }
                    run_one(seed, &progress);
                }
            });
        }
    });
    let Progress { sum, mut failed } = progress.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{sum}");
    println!("  never happened    {}", sum.missing().join("; "));
    failed.sort_unstable();
    assert!(failed.is_empty(), "failed: {failed:?}; repeat one of them with ./dev sim --seed {}", failed[0]);
    assert!(sum.inconclusive * 4 <= seeds || seeds < 20, "most seeds run to their end");
    let missing = if seeds >= SEEDS_FOR_ALL { sum.missing() } else { Vec::new() };
    assert!(missing.is_empty(), "never reached in {seeds} seeds:\n  {}", missing.join("\n  "));
}

fn run_one(seed: u64, progress: &Mutex<Progress>) {
    let run = catch_unwind(|| storm::run(seed));
    let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
    match run {
        Ok(tally) => progress.sum.add(&tally),
        Err(_) => {
            println!("seed {seed} FAILED; repeat it with: ./dev sim --seed {seed}");
            progress.failed.push(seed);
        }
    }
    let (sum, failed) = (&progress.sum, progress.failed.len() as u64);
    if (sum.seeds + failed).is_multiple_of(PROGRESS) {
        println!(
            "{} seeds, {} operations, {} faults, {failed} failed",
            sum.seeds + failed,
            sum.operations,
            sum.faults_in_all()
        );
    }
}
