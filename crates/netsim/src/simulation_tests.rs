use pace::WindowSetting;
use proptest::prelude::*;

use super::*;
use crate::setup::{Delays, Shape};
use crate::time::Rate;

const DELAYS: Delays = Delays { host_us: 10, jitter_us: 40, brick_us: 20, record_us: 100, cable_ns: 1000 };

fn star(window: WindowSetting, buffer: u64) -> Setup {
    Setup {
        shape: Shape::Star { inside: None },
        burst: 0,
        ramp_us: 500_000,
        time_us: 1_000_000,
        delays: DELAYS,
        ..Setup::lab(8, 2, buffer, window)
    }
}

fn run(setup: Setup) -> Report {
    let mut simulation = Simulation::new(setup).expect("a setup");
    simulation.advance(u64::MAX);
    simulation.report()
}

#[test]
fn behind_a_large_buffer_the_wire_is_busy_and_nothing_is_lost() {
    for window in [WindowSetting::Off, WindowSetting::Auto] {
        let report = run(star(window, 16 << 20));
        assert!(report.share() > 0.95 && report.share() < 1.01, "{window:?}: {}", report.share());
        assert_eq!((report.dropped_last, report.timeouts), (0, 0), "{window:?}");
        assert!(report.records.percentile_us(0.5) < 1.2 * report.ideal_us, "{report:?}");
    }
}

#[test]
fn behind_a_shallow_port_reads_wait_for_timeouts_unless_there_is_a_window() {
    let without = run(star(WindowSetting::Off, 32 << 10));
    assert!(without.share() < 0.6 && without.timeouts > 0, "{} {}", without.share(), without.timeouts);
    assert!(without.records.percentile_us(0.99) > 200_000.0);
    let with = run(star(WindowSetting::Auto, 32 << 10));
    assert!(with.share() > 0.85, "{}", with.share());
    assert!(with.dropped_last * 20 < without.dropped_last, "{} {}", with.dropped_last, without.dropped_last);
}

#[test]
fn the_clients_of_a_fat_tree_have_equal_shares() {
    let setup = Setup {
        shape: Shape::FatTree { ports: 32, leaf: 8, oversubscription: 1 },
        clients: 4,
        bricks: 28,
        ramp_us: 50_000,
        time_us: 100_000,
        ..star(WindowSetting::Auto, 256 << 10)
    };
    let report = run(setup.clone());
    assert_eq!(report.bytes.len(), 4);
    assert!(report.share() > 0.9 && report.fairness() > 0.98, "{report:?}");
    assert_eq!(report, run(setup.clone()), "the same arguments give the same run");
    assert_ne!(report, run(Setup { seed: 2, ..setup }));
}

#[test]
fn memory_that_ports_share_helps_one_that_is_alone_and_not_all_at_once() {
    let setup = Setup {
        clients: 4,
        buffer: 1 << 20,
        shared_buffer: Some(256 << 10),
        client_rate: Rate::mbit(200),
        ..star(WindowSetting::Off, 0)
    };
    let alone = run(Setup { clients: 1, ..setup.clone() });
    let together = run(setup);
    let each = |report: &Report| report.dropped_last as f64 / report.bytes.len() as f64;
    assert!(each(&together) > each(&alone), "{} {}", each(&together), each(&alone));
}

impl Simulation {
    /// What must be so at any time.
    fn check(&mut self) {
        let now = self.now;
        let mut waiting = 0;
        for port in &mut self.ports {
            assert!(port.held(now) <= port.kind().buffer);
            waiting += port.packets().count() as u64;
        }
        for (memory, limit) in self.memories.iter_mut().zip(self.topology.memories()) {
            assert!(memory.held(now) <= *limit);
        }
        let dropped: u64 = self.ports.iter().map(Port::dropped).sum();
        assert_eq!(self.packets, self.received + dropped + waiting, "packets are conserved");
        for (client, number) in self.clients.iter().zip(0..) {
            if let WindowSetting::Fixed(window) = self.setup.window {
                assert!(client.held() <= window, "{} of {window}", client.held());
                // Small answers need no credit.
                if self.setup.unit as usize <= BULK_MIN {
                    continue;
                }
                let of_client = self.connections.iter().filter(|one| one.client == number);
                let frames =
                    of_client.flat_map(|one| one.coming.iter().map(|(_, frame)| frame).chain(&one.inbox));
                let coming: usize = frames.map(|frame| frame.payload()).sum();
                assert!(coming <= window, "{coming} of {window} on their way");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the network: packets are conserved, no port and no memory holds more than it has, time goes on, and
    /// with a window no more than that is in flight of answers that need credit.
    #[test]
    fn any_network(
        is_tree in any::<bool>(),
        clients in 1u32..4, width in 1u32..7, tasks in 1u32..4, threads in 1u32..4,
        kib in 4u64..200, shared in proptest::option::of(16u64..400), burst in 0u64..20_000,
        unit in prop_oneof![Just(4096u32), Just(65536), Just(128 << 10), Just(1 << 20)],
        window in proptest::option::of(16usize..300), seed in any::<u64>(),
    ) {
        let shape = match is_tree {
            true => Shape::FatTree { ports: 16, leaf: 4, oversubscription: 2 },
            false => Shape::Star { inside: None },
        };
        let window = window.map_or(WindowSetting::Off, |kib| WindowSetting::Fixed(kib << 10));
        let setup = Setup {
            shape, clients, bricks: 8, width, tasks, threads, unit, burst, window, seed,
            shared_buffer: shared.map(|kib| kib << 10),
            ramp_us: 0,
            time_us: 30_000,
            ..star(WindowSetting::Off, kib << 10)
        };
        let mut simulation = Simulation::new(setup).expect("a setup");
        for at_us in (0..=30_000).step_by(500) {
            simulation.advance(at_us);
            prop_assert_eq!(simulation.now, at_us * US);
            simulation.check();
        }
        // Events are of ports, timers and frames that exist: none is left over.
        let bound = simulation.ports.len() + 12 * simulation.connections.len() + 200;
        prop_assert!(simulation.queue.len() <= bound, "{} events", simulation.queue.len());
    }
}
