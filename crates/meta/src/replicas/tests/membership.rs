//! Servers come and go, and lose what they had, while others fail.

use super::super::LEASE_US;
use super::*;

/// Has a server removed, whoever hears of it.
fn remove_unheard(client: &World, node: &str, asked: &str) {
    let (on, remove) = (client.clone(), MetaRemove { address: format!("{node}:1") });
    let asked = format!("{asked}:1");
    client.spawn("test", async move {
        let peers = Peers::new(on, identity(Role::Client));
        drop(peers.call_within(3_000_000, &asked, Epoch(0), &remove, Buf::empty()).await);
    });
}

async fn ended(servers: &Servers, client: &World, node: &str, with: &MetaError) {
    let until = client.now() + RECOVERY_US;
    while servers.ended.borrow().get(node) != Some(&with.to_string()) {
        assert!(client.now() < until, "{node} has not ended with {with}: {:?}", servers.ended.borrow());
        client.sleep(10_000).await;
    }
}

/// The record that makes a server the only member is not chosen: the leader that it removes may still answer.
#[test]
fn the_last_member_waits_for_the_lease_of_the_removed_leader() {
    for seed in 0..4 {
        let (servers, client) = Servers::two(seed, SimOptions::default());
        servers.simulation.block_on("client", async {
            let peers = Peers::new(client.clone(), identity(Role::Client));
            while leader(&client).await != "ma" {
                lead(&peers, "ma").await.expect("somebody leads");
                client.sleep(1_000_000).await;
            }
            set(&peers, 1).await.expect("somebody leads");
            servers.simulation.slow_link("ma", "mb", 60_000);
            remove_unheard(&client, "ma", "ma");
            let servers_only = Peers::new(client.clone(), identity(Role::Meta));
            while status(&servers_only, "mb").await.is_none_or(|report| report.members.len() > 1) {
                client.sleep(1_000).await;
            }
            // Its answer is still on the way.
            servers.simulation.kill("mb");
            servers.simulation.cut_one_way("mb", "ma", true);
            servers.start("mb");
            let until = client.now() + 6_000_000;
            let (mut changed, mut leads) = (false, false);
            while client.now() < until {
                let set = TopologySet { topology: "mesh\nnode 2\n".to_owned(), may_move: true };
                let asked = peers.call_within(100_000, "mb:1", Epoch(0), &set, Buf::empty()).await;
                changed |= asked.is_ok();
                let report = status(&servers_only, "ma").await;
                let may_answer = report.is_some_and(|report| {
                    let heard = report.members.iter().filter_map(|member| member.heard_us).max();
                    report.leader == report.id && heard.is_some_and(|heard| heard < LEASE_US)
                });
                assert!(!changed || !may_answer, "seed {seed}: two servers may answer");
                leads |= may_answer;
                client.sleep(10_000).await;
            }
            assert!(changed && leads, "seed {seed}: the last one never leads, or the first one never did");
        });
    }
}

/// It was elected before the record was chosen that removes it.
#[test]
fn a_leader_that_is_no_member_any_more_ends() {
    let (servers, client) = Servers::together(8, SimOptions::default());
    servers.simulation.block_on("client", async {
        let leads = leader(&client).await;
        let others: Vec<_> = NODES.into_iter().filter(|node| *node != leads).collect();
        others.iter().for_each(|other| servers.simulation.partition(&leads, other, true));
        remove_unheard(&client, &leads, &leads);
        client.sleep(200_000).await;
        NODES.iter().for_each(|node| servers.simulation.kill(node));
        others.iter().for_each(|other| servers.simulation.partition(&leads, other, false));
        // No other one can get a majority.
        servers.simulation.partition(others[0], others[1], true);
        NODES.iter().for_each(|node| servers.start(node));
        ended(&servers, &client, &leads, &MetaError::Removed).await;
        servers.simulation.partition(others[0], others[1], false);
        until_members(&client, 2).await;
        servers.ended.borrow_mut().clear();
        servers.start(&leads);
        ended(&servers, &client, &leads, &MetaError::Removed).await;
        until_members(&client, 2).await;
    });
}

/// It dies between the record that removes it and the note that it was removed. It has `--join` still.
#[test]
fn a_removed_server_does_not_join_again() {
    let (servers, client) = Servers::together(9, SimOptions::default());
    servers.simulation.block_on("client", async {
        let peers = Peers::new(client.clone(), identity(Role::Client));
        if leader(&client).await == "mc" {
            lead(&peers, "ma").await.expect("somebody leads");
            client.sleep(1_000_000).await;
        }
        let leads = leader(&client).await;
        remove_unheard(&client, "mc", &leads);
        let servers_only = Peers::new(client.clone(), identity(Role::Meta));
        loop {
            let report = status(&servers_only, "mc").await.expect("it runs");
            if report.members.len() == 2 && report.chosen == report.last.number {
                break;
            }
            client.sleep(1_000).await;
        }
        assert!(servers.ended.borrow().is_empty(), "it was too fast for this test");
        servers.simulation.kill("mc");
        client.sleep(3_000_000).await;
        servers.start("mc");
        ended(&servers, &client, "mc", &MetaError::Removed).await;
        until_members(&client, 2).await;
    });
}

/// The file with its vote is there still, as after a damaged store was deleted.
#[test]
fn a_server_that_lost_its_store_gets_another_id() {
    let (servers, client) = Servers::together(10, SimOptions::default());
    let peers = Peers::new(client.clone(), identity(Role::Meta));
    let id = servers.simulation.block_on("client", async { status(&peers, "mc").await.expect("it runs").id });
    servers.simulation.kill("mc");
    servers.engines.borrow_mut().insert("mc".to_owned(), Engine::memory_with_journal(JOURNAL));
    servers.start("mc");
    servers.simulation.block_on("client", async {
        client.sleep(3_000_000).await;
        until_members(&client, 3).await;
        let report = status(&peers, "mc").await.expect("it runs");
        assert_ne!(report.id, id, "what the old one has said is not true of the new one");
    });
    servers.assert_none_has_ended();
}

/// A snapshot of its machine took its place: the leader has counted records that it lacks.
#[test]
fn a_directory_of_an_earlier_time_is_refused() {
    let (servers, client) = Servers::together(11, SimOptions::default());
    let peers = Peers::new(client.clone(), identity(Role::Client));
    let vote = format!("{JOURNAL}.vote");
    let (leads, node) = servers.simulation.block_on("client", async {
        let leads = leader(&client).await;
        let node = NODES.into_iter().find(|node| *node != leads).expect("there are three");
        set(&peers, 1).await.expect("somebody leads");
        client.sleep(1_000_000).await;
        (leads, node)
    });
    servers.simulation.kill(node);
    let images = [JOURNAL, &vote].map(|disk| (disk, servers.simulation.record_disk(node, disk).0));
    let earlier = Engine::memory_with_journal(JOURNAL);
    let pairs = servers.engines.borrow()[node].pairs().expect("readable");
    let pairs: Vec<_> = pairs.into_iter().map(|(key, value)| (key, Some(value))).collect();
    earlier.damage(&pairs).expect("it works");
    servers.start(node);
    servers.simulation.block_on("client", async {
        client.sleep(500_000).await;
        for value in 2..20 {
            set(&peers, value).await.expect("somebody leads");
        }
        client.sleep(1_000_000).await;
    });
    servers.simulation.kill(node);
    images.iter().for_each(|(disk, image)| servers.simulation.restore_disk(node, disk, image));
    servers.engines.borrow_mut().insert(node.to_owned(), earlier);
    servers.start(node);
    servers.simulation.block_on("client", async {
        ended(&servers, &client, node, &MetaError::SetBack).await;
        servers.ended.borrow_mut().clear();
        servers.start(node);
        ended(&servers, &client, node, &MetaError::SetBack).await;
        assert_eq!(leader(&client).await, leads);
        // It is as good as lost: it begins again with nothing.
        servers.ended.borrow_mut().clear();
    });
    servers.engines.borrow_mut().insert(node.to_owned(), Engine::memory_with_journal(JOURNAL));
    servers.start(node);
    servers.simulation.block_on("client", async {
        client.sleep(3_000_000).await;
        until_members(&client, 3).await;
    });
    servers.assert_none_has_ended();
}

/// More is written while its store comes than a leader keeps in memory.
#[test]
fn a_whole_store_arrives_under_load() {
    let (servers, client) = Servers::two(12, SimOptions::default());
    let peers = Peers::new(client.clone(), identity(Role::Client));
    NODES[..2].iter().for_each(|node| servers.simulation.kill(node));
    // Keys that the service has no use for: the parts of the store take long.
    let many = |at: u32| ([&[0x20][..], &at.to_be_bytes()].concat(), Some(vec![at as u8; 64 << 10]));
    let many: Vec<_> = (0..200).map(many).collect();
    NODES[..2].iter().for_each(|node| servers.engines.borrow()[*node].damage(&many).expect("it works"));
    NODES[..2].iter().for_each(|node| servers.start(node));
    let stop = Rc::new(Cell::new(false));
    let (on, stopped) = (client.clone(), Rc::clone(&stop));
    client.spawn("test", async move {
        let peers = Peers::new(on.clone(), identity(Role::Client));
        for value in 1u64.. {
            if stopped.get() {
                break;
            }
            let topology = format!("mesh\nnode {value}\n# {}\n", "x".repeat(20_000));
            let set = TopologySet { topology, may_move: true };
            drop(peers.call_within(3_000_000, LIST, Epoch(0), &set, Buf::empty()).await);
            on.sleep(10_000).await;
        }
    });
    servers.simulation.block_on("client", async {
        leader(&client).await;
        servers.start("mc");
        NODES[..2].iter().for_each(|node| servers.simulation.slow_link(node, "mc", 30_000));
        let servers_only = Peers::new(client.clone(), identity(Role::Meta));
        let until = client.now() + RECOVERY_US;
        let leads = leader(&client).await;
        // The store alone is older than the records that the leader still has.
        let is_level = async || {
            let (first, new) = (status(&servers_only, &leads).await, status(&servers_only, "mc").await);
            let (Some(first), Some(new)) = (first, new) else { return false };
            !new.is_incomplete && new.last.number + 40 > first.last.number
        };
        while !is_level().await {
            assert!(client.now() < until, "the store never arrives");
            client.sleep(10_000).await;
        }
        stop.set(true);
        NODES[..2].iter().for_each(|node| servers.simulation.slow_link(node, "mc", 0));
        until_members(&client, 3).await;
        set(&peers, 7).await.expect("somebody leads");
        client.sleep(2_000_000).await;
    });
    servers.assert_none_has_ended();
    // A start brings all but the last record to the engine.
    for _ in 0..2 {
        NODES.iter().for_each(|node| servers.simulation.kill(node));
        NODES.iter().for_each(|node| servers.start(node));
        servers.simulation.block_on("client", async { client.sleep(8_000_000).await });
    }
    NODES.iter().for_each(|node| servers.simulation.kill(node));
    NODES.iter().for_each(|node| servers.start(node));
    servers.simulation.block_on("client", async { client.sleep(1_000_000).await });
    let contents = servers.contents();
    assert!(contents.windows(2).all(|pair| pair[0] == pair[1]), "the copies differ");
}

/// The rest could not agree on the record that removes it, and could elect nobody.
#[test]
fn a_member_that_is_needed_is_not_removed() {
    let (servers, client) = Servers::together(13, SimOptions::default());
    servers.simulation.block_on("client", async {
        let peers = Peers::new(client.clone(), identity(Role::Client));
        let leads = leader(&client).await;
        let others: Vec<_> = NODES.into_iter().filter(|node| *node != leads).collect();
        servers.simulation.kill(others[0]);
        client.sleep(3_000_000).await;
        for needed in [leads.as_str(), others[1]] {
            let remove = MetaRemove { address: format!("{needed}:1") };
            let asked = peers.call_within(3_000_000, LIST, Epoch(0), &remove, Buf::empty()).await;
            let error = asked.expect("two of three are there").0.error;
            assert!(error.is_some_and(|error| error.contains("too few members answer")), "{needed}");
        }
        set(&peers, 1).await.expect("two of three are there");
        // The one that is away may go.
        let remove = MetaRemove { address: format!("{}:1", others[0]) };
        let asked = peers.call_within(3_000_000, LIST, Epoch(0), &remove, Buf::empty()).await;
        assert_eq!(asked.map(|(removed, _)| removed.error), Ok(None));
        set(&peers, 2).await.expect("two of two are there");
    });
    servers.assert_none_has_ended();
}
