//! Bricks have two addresses, in two networks. One of the networks is cut, both ways or one: clients and bricks go on over the other
//! one, and nobody is put Out.

use client::Encode;
use types::messages::cluster::SlotState;
use types::messages::names::Owner;
use types::{Epoch, InodeId};
use world::World;
use world::sim::SimOptions;

use crate::cluster::{Client, Cluster, RAILS, brick_node, create_volume, map, rail};
use crate::scenario::bytes_of;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const BRICKS: u32 = 4;
const LEN: usize = 256 << 10;
/// A cut rail is noticed after 3.5 s: by a client at a brick, by a brick at another, and by who asks the one that is left once more.
/// Where it is not, a unit is not staged in 5 s, and then the primary does not answer in 10 s.
const LONGEST_US: u64 = 12_000_000;
/// How long a rail is left alone at most when it works again, in microseconds.
const ALONE_US: u64 = 16_000_000;

/// Epochs of all groups, whose slots are all live.
async fn epochs(world: &World) -> Vec<Epoch> {
    let volume = map(world).await.volumes.remove(0);
    let is_live = |group: &types::messages::cluster::GroupConfig| {
        group.slots.iter().all(|slot| slot.state == SlotState::Live)
    };
    assert!(volume.groups.iter().all(is_live), "a cut rail put a brick Out");
    volume.groups.iter().map(|group| group.epoch).collect()
}

pub(crate) fn run(seed: u64) {
    // Nobody tells the ends of a connection that it is cut.
    let options = SimOptions { break_us: 60_000_000..120_000_000, ..SimOptions::default() };
    let mut cluster = Cluster::new(seed, options, BRICKS, 64 << 20, 8 << 20);
    cluster.with_rails();
    cluster.start();
    let world = cluster.sim.node("clienta");
    let mut callers: Vec<String> = (0..BRICKS).map(brick_node).collect();
    callers.extend(["clienta", "meta"].map(str::to_owned));
    let set = |which: char, how: usize, cut: bool| {
        for brick in 0..BRICKS {
            for caller in callers.iter().filter(|caller| **caller != brick_node(brick)) {
                let rail = rail(brick, which);
                match how {
                    0 => cluster.sim.partition(caller, &rail, cut),
                    1 => cluster.sim.cut_one_way(caller, &rail, cut),
                    _ => cluster.sim.cut_one_way(&rail, caller, cut),
                }
            }
        }
    };
    cluster.sim.block_on("clienta", async {
        world.sleep(2_000_000).await;
        create_volume(&world, "2+1", 32 << 10, 4, 6).await;
        let client = Client::mount(world.clone(), 1 << 20, Encode::Client).await;
        client.mount.tune("io-cache=off read-ahead=off hedge=off").expect("settings");
        let before = epochs(&world).await;
        let handle = client.session.create(InodeId::ROOT, b"file", OWNER).await.expect("created").handle;
        let mut version = 0;
        for which in RAILS {
            for how in 0..3 {
                set(which, how, true);
                let until = world.now() + 2 * LONGEST_US;
                while world.now() < until {
                    version += 1;
                    let (begun, bytes) = (world.now(), bytes_of(version, LEN));
                    client.session.write(handle, 0, &bytes).await.expect("written");
                    client.session.fsync(handle).await.expect("synced");
                    let written = world.now();
                    let found = client.session.read(handle, 0, LEN).await.expect("read");
                    assert!(*found == bytes, "seed {seed}: {which} {how}: not what was written");
                    let longest = (written - begun).max(world.now() - written);
                    assert!(longest < LONGEST_US, "seed {seed}: {which} {how}: {longest} us");
                    world.sleep(50_000).await;
                }
                set(which, how, false);
                world.sleep(ALONE_US).await;
            }
        }
        assert_eq!(epochs(&world).await, before, "seed {seed}: a cut rail cost an epoch");
    });
}
