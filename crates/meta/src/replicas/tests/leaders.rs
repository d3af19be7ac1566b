//! Leaders lead, die, hand over and move; followers follow.

use super::*;

#[test]
fn one_follower_gets_records_at_once_and_the_other_soon() {
    const TIMES: u64 = 100;
    let (servers, client) = Servers::together(11, SimOptions::default());
    servers.simulation.block_on("client", async {
        let peers = Peers::new(client.clone(), identity(Role::Client));
        let leads = leader(&client).await;
        // Which followers have all that the leader has.
        let level = async || {
            let report = status(&peers, &leads).await.expect("it leads");
            let others = report.members.into_iter().filter(|member| member.member.id != report.id);
            let has_all = others.filter(|member| member.last == report.last.number);
            has_all.map(|member| member.member.address).collect::<Vec<_>>()
        };
        let rate = async |first: u64| {
            let begun_us = client.now();
            for value in first..first + TIMES {
                set(&peers, value).await.expect("a majority is there");
            }
            client.now() - begun_us
        };
        let mut both = 0;
        for value in 0..TIMES {
            set(&peers, 100 + value).await.expect("a majority is there");
            both += u64::from(level().await.len() == 2);
        }
        assert!(both <= TIMES / 4, "both followers had {both} of {TIMES} records at once");
        let usual_us = rate(200).await;
        client.sleep(50_000).await;
        assert_eq!(level().await.len(), 2, "the other one does not get them");
        // The one that is waited for dies.
        set(&peers, 300).await.expect("a majority is there");
        let first = level().await.pop().expect("a majority has it");
        servers.simulation.kill(first.trim_end_matches(":1"));
        let without_us = rate(400).await;
        assert!(without_us < 2 * usual_us + 50_000, "{without_us} us without it, {usual_us} us with it");
    });
}

#[test]
fn a_killed_leader_is_followed_by_another_one() {
    let (servers, client) = Servers::together(1, SimOptions::default());
    servers.simulation.block_on("client", async {
        let peers = Peers::new(client.clone(), identity(Role::Client));
        for round in 0..20 {
            set(&peers, round + 1).await.expect("somebody leads");
            let leads = leader(&client).await;
            let at = client.now();
            servers.simulation.kill(&leads);
            while get(&peers).await.is_err() {
                client.sleep(10_000).await;
            }
            let pause = client.now() - at;
            assert!(pause < 6_000_000, "{pause} us without a leader");
            let (_, text) = get(&peers).await.expect("somebody leads");
            assert_eq!(text, format!("mesh\nnode {}\n", round + 1));
            servers.start(&leads);
            client.sleep(1_000_000).await;
        }
    });
    servers.assert_none_has_ended();
}

/// Programs wait for much less than an election takes, however busy the leader is, and nothing is lost.
#[test]
fn a_leader_lets_another_one_lead() {
    let (servers, client) = Servers::together(6, SimOptions::default());
    servers.simulation.block_on("client", async {
        let (peers, stop) = (Peers::new(client.clone(), identity(Role::Client)), Rc::new(Cell::new(false)));
        let servers_only = Peers::new(client.clone(), identity(Role::Meta));
        let seen = Rc::new(RefCell::new(Seen::default()));
        for number in 0..4 {
            let (seen, stop) = (Rc::clone(&seen), Rc::clone(&stop));
            client.spawn("test", work(client.clone(), 6, number, seen, stop));
        }
        let mut pauses = Vec::new();
        for round in 0..20 {
            let leads = leader(&client).await;
            let next = *NODES.iter().filter(|node| **node != leads).nth(round % 2).expect("there are three");
            let at = client.now();
            let led = lead(&peers, next).await;
            assert!(!matches!(&led, Ok(MetaLed { error: Some(_) })), "{led:?}");
            let status_of =
                async || status(&servers_only, next).await.is_some_and(|report| report.leader == report.id);
            while !status_of().await || get(&peers).await.is_err() {
                assert!(client.now() < at + RECOVERY_US, "{next} never leads");
                client.sleep(10_000).await;
            }
            pauses.push(client.now() - at);
            assert_eq!(lead(&peers, next).await, Ok(MetaLed { error: None }), "it leads already");
            client.sleep(1_000_000).await;
        }
        pauses.sort_unstable();
        assert!(pauses[18] < 1_000_000, "{pauses:?}");
        let unknown = lead(&peers, "mx").await.expect("somebody leads").error;
        assert!(unknown.is_some_and(|error| error.contains("mx:1 is not a member")));
        // One that does not answer is not asked to lead.
        let leads = leader(&client).await;
        let away = *NODES.iter().find(|node| **node != leads).expect("there are three");
        servers.simulation.kill(away);
        client.sleep(3_000_000).await;
        let silent = lead(&peers, away).await.expect("somebody leads").error;
        assert!(silent.is_some_and(|error| error.contains("does not answer the leader")));
        assert_eq!(leader(&client).await, leads);
        servers.start(away);
        stop.set(true);
        client.sleep(1_000_000).await;
    });
    servers.assert_none_has_ended();
}

/// One follower knows that the last record is chosen, the other one, which may lead next, does not.
#[test]
fn a_follower_may_know_more_than_the_next_leader() {
    let (servers, client) = Servers::together(4, SimOptions::default());
    servers.simulation.block_on("client", async {
        let peers = Peers::new(client.clone(), identity(Role::Client));
        for round in 0..10 {
            let leads = leader(&client).await;
            let unknowing = NODES.iter().find(|node| **node != leads).expect("there are three");
            set(&peers, round + 1).await.expect("somebody leads");
            client.sleep(2_000).await;
            servers.simulation.partition(&leads, unknowing, true);
            client.sleep(500_000).await;
            servers.simulation.kill(&leads);
            servers.simulation.partition(&leads, unknowing, false);
            let at = client.now();
            while get(&peers).await.is_err() {
                assert!(client.now() < at + RECOVERY_US, "round {round}: nobody leads");
                client.sleep(10_000).await;
            }
            servers.start(&leads);
            client.sleep(1_000_000).await;
        }
    });
    servers.assert_none_has_ended();
}

#[test]
fn a_server_that_lost_its_store_gets_everything_again() {
    let (servers, client) = Servers::together(2, SimOptions::default());
    let peers = Peers::new(client.clone(), identity(Role::Client));
    servers.simulation.block_on("client", async {
        for value in 1..400 {
            set(&peers, value).await.expect("somebody leads");
        }
    });
    servers.wipe("mc", "another journal");
    servers.simulation.block_on("client", async {
        client.sleep(3_000_000).await;
        until_members(&client, 3).await;
        // The new one is as good as the others.
        servers.simulation.kill("ma");
        client.sleep(5_000_000).await;
        set(&peers, 500).await.expect("two of three are there");
        assert_eq!(get(&peers).await.expect("somebody leads").1, "mesh\nnode 500\n");
    });
    servers.assert_none_has_ended();
}

#[test]
fn a_removed_server_ends_and_the_last_one_stays() {
    let (servers, client) = Servers::together(3, SimOptions::default());
    servers.simulation.block_on("client", async {
        let peers = Peers::new(client.clone(), identity(Role::Client));
        let remove = async |address: &str| {
            let remove = MetaRemove { address: address.to_owned() };
            loop {
                match peers.call_within(3_000_000, LIST, Epoch(0), &remove, Buf::empty()).await {
                    Ok((removed, _)) => return removed.error,
                    Err(_) => client.sleep(100_000).await,
                }
            }
        };
        let leads = leader(&client).await;
        let follows = NODES.iter().find(|node| **node != leads).expect("there are three");
        assert!(remove("mx:1").await.is_some_and(|error| error.contains("mx:1 is not a member")));
        assert_eq!(remove(&format!("{follows}:1")).await, None);
        assert!(remove(&format!("{follows}:1")).await.is_some(), "it is gone already");
        client.sleep(3_000_000).await;
        let removed = MetaError::Removed.to_string();
        assert_eq!(servers.ended.borrow().get(*follows), Some(&removed));
        // The leader itself.
        remove(&format!("{leads}:1")).await;
        client.sleep(6_000_000).await;
        assert_eq!(servers.ended.borrow().get(&leads), Some(&removed));
        let last = leader(&client).await;
        let error = remove(&format!("{last}:1")).await;
        assert!(error.is_some_and(|error| error.contains("is the only member")));
        set(&peers, 7).await.expect("one is enough, if it is the only one");
    });
}

#[test]
fn leaders_of_shards_move_to_machines_that_serve_less() {
    let (servers, client) = Servers::together(7, SimOptions::default());
    let other = servers.of_another_shard();
    NODES.iter().for_each(|node| other.start(node));
    servers.simulation.block_on("client", async {
        let peers = Peers::new(client.clone(), identity(Role::Meta));
        let operator = Peers::new(client.clone(), identity(Role::Client));
        let until = async |what: &str, is_so: &dyn Fn(&str) -> bool| {
            let end = client.now() + 100_000_000;
            while !leader_of_other_shard(&peers).await.is_some_and(|node| is_so(&node)) {
                assert!(client.now() < end, "{what}");
                client.sleep(500_000).await;
            }
        };
        until("three servers", &|_| true).await;
        for round in 0..3 {
            let first = leader(&client).await;
            let lead = MetaLead { address: format!("{first}:2") };
            let all = LIST.replace(":1", ":2");
            let end = client.now() + 100_000_000;
            loop {
                let asked = operator.call_within(3_000_000, &all, Epoch(0), &lead, Buf::empty()).await;
                let error = asked.expect("there is a leader").0.error;
                let Some(error) = error else { break };
                assert!(error.ends_with("again, later") && client.now() < end, "round {round}: {error}");
                client.sleep(500_000).await;
            }
            until("the command", &|node| node == first).await;
            until("it leads elsewhere", &|node| node != first).await;
            // Two machines, one leader each: nothing moves any more.
            let settled = leader_of_other_shard(&peers).await;
            client.sleep(100_000_000).await;
            assert_eq!(leader_of_other_shard(&peers).await, settled, "round {round}");
        }
    });
    servers.assert_none_has_ended();
    other.assert_none_has_ended();
}

/// The journal of one follower is so slow that it could not take records one by one.
#[test]
fn a_slow_follower_keeps_up() {
    let (servers, client) = Servers::together(5, SimOptions::default());
    let seen = servers.simulation.block_on("client", async {
        let leads = leader(&client).await;
        let slow = NODES.into_iter().find(|node| *node != leads).expect("there are three");
        servers.simulation.slow_disk(slow, JOURNAL, 200);
        let stop = Rc::new(Cell::new(false));
        for number in 0..8 {
            let (on, stop) = (client.clone(), Rc::clone(&stop));
            client.spawn("test", async move {
                let peers = Peers::new(on.clone(), identity(Role::Client));
                for value in (0..).map(|round: u64| 10 * round + number) {
                    if stop.get() || set(&peers, value).await.is_err() {
                        break;
                    }
                }
            });
        }
        let peers = Peers::new(client.clone(), identity(Role::Meta));
        let (mut most, mut last) = (0, 0);
        let until = client.now() + 20_000_000;
        while client.now() < until {
            client.sleep(100_000).await;
            let (Some(first), Some(behind)) = (status(&peers, &leads).await, status(&peers, slow).await)
            else {
                continue;
            };
            last = first.last.number;
            most = most.max(last.saturating_sub(behind.last.number));
        }
        stop.set(true);
        client.sleep(2_000_000).await;
        let level = status(&peers, slow).await.expect("it is there").last.number;
        assert!(level >= last, "two seconds later it has {level} of {last}");
        (most, last)
    });
    servers.assert_none_has_ended();
    let (most, last) = seen;
    assert!(last > 5_000, "there were only {last} records");
    assert!(most < 1_000, "it was {most} records behind, of {last}");
}
