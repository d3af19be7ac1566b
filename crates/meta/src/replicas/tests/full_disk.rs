//! The disks of one or two of three servers are full.

use super::*;

/// Records that are more than both halves of a journal hold.
const RECORDS: u64 = 150;
/// Records that are more than a half holds, and fewer than both.
const HALF_AND_MORE: u64 = 80;

fn set_full(servers: &Servers, node: &str, full: bool) {
    let Engine::Memory(engine) = servers.engines.borrow()[node].clone() else { panic!("it is in memory") };
    engine.set_full(full);
}

/// Waits until a server has all records that the leader has.
async fn until_level(world: &World, node: &str, leader: &str) {
    let peers = &Peers::new(world.clone(), identity(Role::Meta));
    for _ in 0..200 {
        let [ours, theirs] = [status(peers, node).await, status(peers, leader).await];
        if let (Some(ours), Some(theirs)) = (ours, theirs)
            && ours.last == theirs.last
        {
            return;
        }
        world.sleep(100_000).await;
    }
    panic!("{node} never has what {leader} has");
}

#[test]
fn a_follower_whose_disk_is_full_confirms_nothing_that_it_cannot_keep_and_goes_on_with_room() {
    let (servers, client) = Servers::together(61, SimOptions::default());
    servers.simulation.block_on("client", async {
        let peers = Peers::new(client.clone(), identity(Role::Client));
        let leading = leader(&client).await;
        let full = NODES.into_iter().find(|node| *node != leading).expect("three");
        set_full(&servers, full, true);
        for value in 0..RECORDS {
            set(&peers, value).await.expect("the two others are a majority");
        }
        let peers = Peers::new(client.clone(), identity(Role::Meta));
        let [follows, leads] = [status(&peers, full).await, status(&peers, &leading).await];
        let (follows, leads) = (follows.expect("it runs"), leads.expect("it runs"));
        assert_eq!(leads.leader, leads.id, "nothing has made it lead no more");
        assert!(follows.last.number < leads.chosen, "its journal has no room for them");
        set_full(&servers, full, false);
        until_level(&client, full, &leading).await;
    });
    servers.assert_none_has_ended();
}

#[test]
fn a_leader_whose_disk_is_full_leads_on_though_another_one_is_full_too() {
    let (servers, client) = Servers::together(62, SimOptions::default());
    servers.simulation.block_on("client", async {
        let peers = Peers::new(client.clone(), identity(Role::Client));
        let first = leader(&client).await;
        let second = NODES.into_iter().find(|node| *node != first).expect("three");
        let full = [&*first, second];
        full.iter().for_each(|node| set_full(&servers, node, true));
        for value in 0..HALF_AND_MORE {
            set(&peers, value).await.expect("the journals have room");
        }
        let before = get(&peers).await.expect("it is read");
        client.sleep(12_000_000).await;
        assert_eq!(leader(&client).await, first, "the next one may be full too");
        assert_eq!(get(&peers).await, Ok(before), "reads are answered");
        set(&peers, 10_000).await.expect("a decision of the service is taken");
        full.iter().for_each(|node| set_full(&servers, node, false));
        for value in 0..RECORDS {
            set(&peers, 20_000 + value).await.expect("all have room");
        }
        until_level(&client, second, &first).await;
    });
    servers.assert_none_has_ended();
}
