//! A service from before a restoration, whose servers were thought to be lost.

use futures_util::future::join;
use types::messages::cluster::BrickJoin;
use types::messages::session::Role;
use types::wire::Key;
use types::{ClusterId, Refusal};
use world::{Identity, SimOptions, Simulation};

use crate::fixture::brick_join;
use crate::kv::Engine;
use crate::service::{Ended, MetaOptions, Service};

#[test]
fn a_service_of_before_a_restoration_ends() {
    let cluster = ClusterId([7; 16]);
    let engine = Engine::memory();
    crate::create_cluster(&engine, cluster).expect("empty");
    let identity = Identity { cluster, key: Key([1; 32]), role: Role::Meta, name: String::new() };
    let options = MetaOptions {
        listen: "meta:1".into(),
        identity,
        memory_budget: 1 << 20,
        first_shard: None,
        keeps_leaders: false,
    };
    let simulation = Simulation::new(1, SimOptions::default());
    let world = simulation.node("meta");
    let seen = simulation.block_on("meta", async {
        let service = Service::start(world.clone(), engine, options).await.expect("it starts");
        let shared = std::rc::Rc::clone(service.shared());
        let asked = async {
            let first = shared.brick_join(&brick_join(1, 1));
            // This brick has joined the restored cluster.
            let second = shared.brick_join(&BrickJoin { restored: 7, ..brick_join(2, 1) });
            (first.is_ok(), second.err())
        };
        join(service.run(), asked).await
    });
    assert_eq!(seen, (Ended::Overruled, (true, Some(Refusal::NotServing))));
}
