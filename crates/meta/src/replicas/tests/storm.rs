//! Any faults at any time: servers die, are cut off, are removed, lose what they had, and come back.

use super::*;

impl Servers {
    /// A server loses its store, and perhaps was removed before. The others must have what it has: then any order of faults may
    /// follow. Half of the time its journal, and the file with its vote, are there still.
    async fn lose(&self, world: &World, node: &str) {
        if !is_level(world).await {
            return;
        }
        let random = world.random();
        if random.is_multiple_of(2) {
            let remove = MetaRemove { address: format!("{node}:1") };
            let peers = Peers::new(world.clone(), identity(Role::Client));
            // Nobody knows what became of it if it is not answered.
            drop(peers.call_within(3_000_000, LIST, Epoch(0), &remove, Buf::empty()).await);
            world.sleep(random % 1_000_000).await;
        }
        let journal = if random % 4 < 2 { JOURNAL.to_owned() } else { format!("journal {random}") };
        self.wipe(node, &journal);
        self.lost.set(self.lost.get() + 1);
    }

    /// Faults have ended: removed servers begin again.
    async fn heal(&self, world: &World) {
        let until = world.now() + 3 * RECOVERY_US;
        let removed = MetaError::Removed.to_string();
        while !is_level(world).await {
            assert!(world.now() < until, "three are never members: {:?}", self.ended.borrow());
            for node in NODES {
                if self.ended.borrow().get(node) == Some(&removed) {
                    self.wipe(node, JOURNAL);
                }
            }
            world.sleep(500_000).await;
        }
    }
}

/// Whether three servers are members, and have all that is chosen.
async fn is_level(world: &World) -> bool {
    let peers = Peers::new(world.clone(), identity(Role::Meta));
    for node in NODES {
        let Some(report) = status(&peers, node).await else { continue };
        let has_all = |member: &MemberReport| {
            let is_alive = member.heard_us.is_some_and(|heard| heard < 500_000);
            !member.is_joining && is_alive && member.last >= report.chosen
        };
        if report.leader == report.id && report.id != 0 {
            return report.members.iter().filter(|member| has_all(member)).count() == 3;
        }
    }
    false
}

async fn nemesis(servers: &Servers, world: &World, until: u64) {
    let began = world.now();
    let simulation = &servers.simulation;
    while world.now() < until {
        world.sleep(200_000 + world.random() % 3_000_000).await;
        let node = NODES[world.random() as usize % 3];
        let other = [NODES[(world.random() as usize) % 3], "client"][world.random() as usize % 2];
        let pause = world.random() % 3_000_000;
        match world.random() % 11 {
            // Another server is to lead, while the old one, or the new one, may die.
            7 | 8 => {
                let peers = Peers::new(world.clone(), identity(Role::Client));
                world.spawn("test", async move { drop(lead(&peers, node).await) });
                if world.random().is_multiple_of(2) {
                    world.sleep(world.random() % 20_000).await;
                    let node = NODES[world.random() as usize % 3];
                    simulation.power_cut(node);
                    world.sleep(pause).await;
                    servers.start(node);
                }
            }
            9 | 10 => servers.lose(world, node).await,
            0 => {
                simulation.kill(node);
                world.sleep(pause).await;
                servers.start(node);
            }
            1 | 2 => {
                simulation.kill_at(node, world.random() % 300, world.random().is_multiple_of(2));
                world.sleep(pause).await;
                if simulation.is_alive(node) {
                    simulation.power_cut(node);
                }
                servers.start(node);
            }
            3 if node != other => {
                simulation.partition(node, other, true);
                world.sleep(pause).await;
                simulation.partition(node, other, false);
            }
            4 => {
                let others: Vec<&str> = NODES.into_iter().filter(|other| *other != node).collect();
                let is_one_way = world.random().is_multiple_of(2);
                let cut = |cut| {
                    for other in &others {
                        match is_one_way {
                            true => simulation.cut_one_way(node, other, cut),
                            false => simulation.partition(node, other, cut),
                        }
                    }
                };
                cut(true);
                world.sleep(2 * pause).await;
                cut(false);
            }
            5 => {
                NODES.iter().for_each(|node| simulation.power_cut(node));
                world.sleep(pause / 4).await;
                NODES.iter().for_each(|node| servers.start(node));
            }
            // A server that has just begun may not have one yet.
            _ if world.now() > began + 15_000_000 => {
                simulation.slow_disk(node, JOURNAL, 100);
                world.sleep(pause).await;
                simulation.slow_disk(node, JOURNAL, 1);
            }
            _ => {}
        }
    }
}

/// Changes, reads, and stores that were lost.
fn storm(seed: u64) -> (u64, u64, u64) {
    // Every other time the faults begin before all three are members, or when two are.
    let begin = match seed % 4 {
        0 | 2 => Servers::together,
        1 => Servers::begun,
        _ => Servers::two,
    };
    let (servers, client) = begin(seed, SimOptions::drawn(seed));
    if seed % 4 == 3 {
        servers.start("mc");
    }
    let (seen, stop) = (Rc::new(RefCell::new(Seen::default())), Rc::new(Cell::new(false)));
    for number in 0..3 {
        let (seen, stop) = (Rc::clone(&seen), Rc::clone(&stop));
        client.spawn("test", work(client.clone(), seed, number, seen, stop));
    }
    servers.simulation.block_on("client", async {
        nemesis(&servers, &client, client.now() + 40_000_000).await;
        stop.set(true);
        servers.heal(&client).await;
        let peers = Peers::new(client.clone(), identity(Role::Client));
        let until = client.now() + RECOVERY_US;
        while set(&peers, 1_000_000).await.is_err() {
            assert!(client.now() < until, "seed {seed}: nobody leads");
            client.sleep(100_000).await;
        }
        // A server that is behind gets the rest.
        client.sleep(5_000_000).await;
        let floor = seen.borrow().newest;
        let found = loop {
            assert!(client.now() < until + RECOVERY_US, "seed {seed}: nobody leads");
            match get(&peers).await {
                Ok(found) => break found,
                Err(_) => client.sleep(100_000).await,
            }
        };
        seen.borrow_mut().see(seed, found, floor);
    });
    servers.assert_none_has_ended();
    NODES.iter().for_each(|node| servers.simulation.kill(node));
    // A start brings what only the journal has into the store, but for the last record, which another one settles.
    NODES.iter().for_each(|node| servers.start(node));
    servers.simulation.block_on("client", async {
        client.sleep(8_000_000).await;
    });
    NODES.iter().for_each(|node| servers.simulation.kill(node));
    NODES.iter().for_each(|node| servers.start(node));
    servers.simulation.block_on("client", async { client.sleep(1_000_000).await });
    let contents = servers.contents();
    assert!(contents.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}: the copies differ");
    let seen = seen.borrow();
    (seen.sets, seen.gets, servers.lost.get())
}

#[test]
fn what_was_answered_outlives_any_server() {
    let seeds = std::env::var("SHOAL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let (mut sets, mut gets, mut lost) = (0, 0, 0);
    for seed in 0..seeds {
        let (more_sets, more_gets, more_lost) = storm(seed);
        sets += more_sets;
        gets += more_gets;
        lost += more_lost;
    }
    assert!(sets > 50 * seeds && gets > 100 * seeds, "{sets} changes and {gets} reads are no storm");
    assert!(lost >= seeds / 4, "only {lost} stores were lost");
}
