use pace::device::{Direction, PolicyName};

use proptest::prelude::*;

use super::*;
use crate::setup::Ssd;
use crate::table3::score;

fn short(policy: PolicyName, time_ms: u64) -> Setup {
    Setup { ramp_ms: 200, time_ms, ..Setup::new(policy) }
}

fn run(setup: Setup, workload: WorkloadName) -> Report {
    Simulation::new(setup, workload).expect("a setup").run()
}

#[test]
fn the_same_setup_gives_the_same_report_and_another_seed_another_one() {
    for workload in WorkloadName::ALL {
        let setup = short(PolicyName::SlqAuto, 300);
        let report = run(setup, workload);
        assert!(report.kinds.iter().all(|kind| kind.latencies.count() > 0), "{workload}: {report:?}");
        assert_eq!(report, run(setup, workload), "{workload}");
        assert_ne!(report, run(Setup { seed: 2, ..setup }, workload), "{workload}");
    }
}

#[test]
fn a_closed_loop_obeys_littles_law() {
    for policy in PolicyName::ALL {
        let report = run(short(policy, 2_000), WorkloadName::FioB);
        let rate = report.rate(0) + report.rate(1);
        let in_flight = rate * report.latency_us(None) / 1e6;
        assert!((in_flight - 64.0).abs() < 2.0, "{policy}: {in_flight}");
    }
}

#[test]
fn no_policy_moves_more_than_the_link_does() {
    for policy in PolicyName::ALL {
        let setup = short(policy, 2_000);
        let report = run(setup, WorkloadName::FioA);
        let rate = report.device_bytes as f64 / report.seconds;
        assert!(rate < setup.ssd.link as f64, "{policy}: {rate}");
        assert!(rate > 0.8 * setup.ssd.link as f64, "{policy}: {rate}");
    }
}

#[test]
fn writes_are_limited_by_the_flash() {
    let mut setup = short(PolicyName::Noop, 3_000);
    setup.ssd.collect_per_million = 0;
    let flash = (setup.ssd.page * setup.ssd.channels) as f64 * 1e6 / setup.ssd.program_us as f64;
    let report = run(setup, WorkloadName::CompileCreate);
    let rate = report.device_bytes as f64 / report.seconds;
    assert!(rate <= 1.01 * flash && rate > 0.7 * flash, "{rate} {flash}");
}

#[test]
fn waiting_for_idle_processes_costs_an_ssd_bandwidth() {
    for policy in [PolicyName::Cfq, PolicyName::Bfq] {
        let mut setup = short(policy, 1_000);
        let busy = run(setup, WorkloadName::Blogbench).device_bytes;
        setup.parameters.slice_idle_us = 8_000;
        let idle = run(setup, WorkloadName::Blogbench).device_bytes;
        assert!(idle > 0 && idle < busy / 2, "{policy}: {idle} {busy}");
    }
}

#[test]
fn slq_auto_leaves_a_bad_priority() {
    let mut setup = short(PolicyName::SlqNearest, 6_000);
    (setup.ramp_ms, setup.parameters.read_priority, setup.parameters.write_priority) = (3_000, 0, 0);
    let of = |setup: Setup| {
        let report = run(setup, WorkloadName::CompileCreate);
        (score(WorkloadName::CompileCreate, &report), report.priorities[Direction::Write as usize])
    };
    let (bad, _) = of(setup);
    let (auto, priority) = of(Setup { policy: PolicyName::SlqAuto, ..setup });
    setup.parameters.write_priority = 512 << 10;
    let (good, _) = of(setup);
    assert!(bad < 0.75 * good, "{bad} {good}");
    assert!(auto > 0.95 * good && priority >= 256 << 10, "{auto} {good} {priority}");
}

#[test]
fn a_trace_is_replayed_at_its_times() {
    let text = "fio version 3 iolog\n0 /a write 0 4096\n2000 /a sync\n500000 /a read 1048576 65536\n";
    let trace = crate::trace::read(crate::trace::Format::FioIolog, text.as_bytes()).expect("a trace");
    for policy in PolicyName::ALL {
        let report = Simulation::replay(Setup::new(policy), trace.clone()).expect("a setup").run();
        let counters = report.counters;
        assert_eq!((counters.reads, counters.writes, counters.flushes), (1, 1, 1), "{policy}");
        assert_eq!((report.requests.count(), report.seconds), (3, 1.5), "{policy}");
        assert!(report.requests.percentile_us(1.0) < 1_500.0, "{policy}: {report:?}");
    }
}

#[test]
fn memory_is_that_of_what_is_in_flight() {
    let mut simulation =
        Simulation::new(short(PolicyName::Deadline, 4_000), WorkloadName::Dbench).expect("a setup");
    simulation.advance(1_000);
    let early = simulation.pending.len();
    simulation.advance(u64::MAX / SECOND);
    assert!(simulation.pending.len() < 2 * early.max(1_000), "{early} {}", simulation.pending.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the device is like: everything goes on, with every policy.
    #[test]
    fn any_device(
        (buffer, page) in (15u32..24, 12u32..20),
        (refill_us, command_us, read_us, program_us) in (0u64..500, 0u64..200, 1u64..200, 1u64..2000),
        (depth, channels, collect_per_million) in (1u64..40, 1u64..12, 0u64..100_000),
        (workload, policy) in (0usize..8, 0usize..8),
    ) {
        let ssd = Ssd {
            buffer: 1 << buffer,
            page: 1 << page,
            refill_us,
            command_us,
            read_us,
            program_us,
            depth,
            channels,
            collect_per_million,
            ..Ssd::SATA
        };
        let setup = Setup { ssd, ramp_ms: 100, ..short(PolicyName::ALL[policy], 1_500) };
        let report = run(setup, WorkloadName::ALL[workload]);
        prop_assert!(report.kinds.iter().any(|kind| kind.latencies.count() > 0), "{report:?}");
        prop_assert!(report.counters.reads + report.counters.writes > 0);
    }
}

#[test]
fn a_trace_that_would_take_too_much_is_refused() {
    let record = |at, length| Record { at, operation: Operation::Read, offset: 0, length, process: 0 };
    let refused = |records: Vec<Record>, largest: u64| {
        let mut setup = Setup::new(PolicyName::Noop);
        setup.parameters.largest = largest;
        Simulation::replay(setup, Trace { records, ..Trace::default() })
            .map(|_| ())
            .expect_err("too much")
            .what
    };
    let long = refused(vec![record(0, 4096), record(3_599_000 * MS, 4096)], 4096);
    assert!(long.contains("60 minutes: a run has at most 59"), "{long}");
    let many = refused(vec![record(0, 1 << 30); 100], 4096);
    assert!(many.contains("26214400 requests of at most 4096 bytes"), "{many}");
}
