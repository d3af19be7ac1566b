//! The metadata service hears an earlier process of a brick after the present one. The present one joins once more. When it has served for
//! longer, it ends instead: then another process serves the brick.

use store::Superblock;
use types::messages::cluster::{BrickClass, BrickJoin};
use types::messages::session::Role;
use types::{BrickId, Buf, Epoch, Incarnation, NodeId, ShardId};
use world::sim::SimOptions;
use world::{CallError, Peers};

use crate::cluster::{Cluster, brick_address, brick_node, create_volume, identity, map, meta};

/// Time in which a brick beats twice, in microseconds.
const BEATS_US: u64 = 3_000_000;
/// Time after which a brick knows of no late join any more, in microseconds.
const LATE_US: u64 = 20_000_000;

pub(crate) fn run(seed: u64) {
    let cluster = Cluster::new(seed, SimOptions::default(), 3, 32 << 20, 8 << 20);
    let (brick, node) = (BrickId(1), brick_node(1));
    let disk_of = cluster.sim.node(&node);
    let device = cluster.sim.block_on(&node, async move {
        let disk = disk_of.open_disk("disk").await.expect("the disk is there");
        Superblock::read(&disk).await.expect("formatted").device
    });
    cluster.sim.kill(&node);
    cluster.start();
    let driver = cluster.sim.node("driver");
    cluster.sim.block_on("driver", async {
        driver.sleep(BEATS_US).await;
        create_volume(&driver, "2+1", 16 << 10, 4, 3).await;
        let peers = Peers::new(driver.clone(), identity(Role::Brick));
        let late = BrickJoin {
            brick,
            device,
            node: NodeId(1),
            address: brick_address(1),
            capacity: 1 << 20,
            free: 1 << 20,
            incarnation: Incarnation(seed + 1),
            class: BrickClass::Ssd,
            shard: ShardId::FIRST,
            shards: Vec::new(),
            restored: 0,
            reach: Default::default(),
        };
        let join = async |late: &BrickJoin| peers.call(meta(), Epoch(0), late, Buf::empty()).await.map(drop);
        assert_eq!(join(&late).await, Ok(()), "nobody knows that it is of an earlier life");
        driver.sleep(BEATS_US).await;
        assert!(cluster.ended.borrow().is_empty(), "seed {seed}: {:?}", cluster.ended.borrow());
        let all = map(&driver).await;
        assert!(all.is_up(brick) && all.brick(brick).is_some_and(|info| info.capacity > 1 << 20));
        // One at another address is another process.
        let other = BrickJoin {
            address: "elsewhere:1".to_owned(),
            incarnation: Incarnation(seed + 2),
            ..late.clone()
        };
        let refused = Err(CallError::Refused(types::Refusal::ServedTwice));
        assert_eq!(join(&other).await, refused);
        // No join is that late: two processes serve the brick at one address, and do not take it from each other for ever.
        driver.sleep(LATE_US).await;
        assert_eq!(join(&BrickJoin { incarnation: Incarnation(seed + 3), ..late }).await, Ok(()));
        driver.sleep(BEATS_US).await;
        assert!(cluster.ended.borrow().contains_key(&brick.0), "seed {seed}: two processes serve the brick");
    });
}
