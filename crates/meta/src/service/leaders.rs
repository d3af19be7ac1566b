//! Leaders of shards spread over the machines that have their servers, by load.
//!
//! Leaders tell the first shard where they lead, how many requests they serve, and which of their followers could lead instead. The
//! leader of the first shard adds up what each machine serves, and has one leader at a time move to where less is served. It stays
//! itself where it is: the others move away from it.

use std::collections::BTreeMap;

use types::ShardId;
use types::limits::LEASE_US;
use types::messages::cluster::ShardAnnounce;

/// Requests per second that a shard counts for besides those that it serves: so shards without work spread, too.
const IDLE: u64 = 100;
/// Least time between two moves, and for which a leader leads before it is moved, whoever had it lead, in microseconds.
const SETTLE_US: u64 = 30_000_000;
/// After a move, the busier one of two machines must have less than so many hundredths of what it had.
const WORTH: u64 = 80;

/// Who leads which shard.
#[derive(Default)]
pub(super) struct Leaders {
    by_shard: BTreeMap<ShardId, Leads>,
    /// When a leader was asked to move; or since when this server leads.
    moved_us: u64,
}

struct Leads {
    address: String,
    since_us: u64,
    load: u64,
    heard_us: u64,
}

/// The machine of a server, without the port.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

impl Leaders {
    /// None is known at `now`.
    pub(super) fn since(now: u64) -> Leaders {
        Leaders { by_shard: BTreeMap::new(), moved_us: now }
    }

    /// The leader of a shard was heard. Returns which of its followers should lead instead; the one at `own`, with `own_load`, is
    /// this server.
    pub(super) fn heard(
        &mut self,
        now: u64,
        (own, own_load): (&str, u32),
        announce: &ShardAnnounce,
    ) -> Option<String> {
        self.by_shard.retain(|_, leads| now < leads.heard_us + 2 * LEASE_US);
        let before = self.by_shard.remove(&announce.shard).filter(|leads| leads.address == announce.leader);
        let since_us = before.map_or(now, |leads| leads.since_us);
        let (address, load) = (announce.leader.clone(), IDLE + u64::from(announce.load));
        self.by_shard.insert(announce.shard, Leads { address, since_us, load, heard_us: now });
        if now < self.moved_us.max(since_us) + SETTLE_US {
            return None;
        }
        let on = |host: &str| -> u64 {
            let theirs = self.by_shard.values().filter(|leads| self::host(&leads.address) == host);
            let here = if self::host(own) == host { IDLE + u64::from(own_load) } else { 0 };
            here + theirs.map(|leads| leads.load).sum::<u64>()
        };
        let from = host(&announce.leader);
        let others = announce.followers.iter().filter(|follower| host(follower) != from);
        let (after, to) = others.map(|follower| (on(host(follower)) + load, follower)).min()?;
        let before = on(from);
        if after.max(before - load) >= before * WORTH / 100 {
            return None;
        }
        self.moved_us = now;
        Some(to.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announce(shard: u8, leader: &str, load: u32, followers: &[&str]) -> ShardAnnounce {
        ShardAnnounce {
            shard: ShardId(shard),
            servers: String::new(),
            leader: leader.to_owned(),
            load,
            followers: followers.iter().map(|follower| (*follower).to_owned()).collect(),
        }
    }

    #[test]
    fn leaders_move_to_where_less_is_served() {
        let (own, now) = ("a:1", 2 * SETTLE_US);
        let ask = |leaders: &mut Leaders, now, own_load, announce: &ShardAnnounce| {
            leaders.heard(now, (own, own_load), announce)
        };
        let both = ["b:2", "c:2"];
        let mut leaders = Leaders::since(now);
        let idle = announce(1, "a:2", 0, &both);
        assert_eq!(ask(&mut leaders, now + SETTLE_US - 1, 0, &idle), None, "it has just begun");
        let others = [announce(3, "b:4", 7, &[]), announce(2, "a:3", 0, &["c:3"])];
        let keep = |leaders: &mut Leaders, from: u64, more: &[&ShardAnnounce]| {
            for now in (from..from + SETTLE_US).step_by(LEASE_US as usize) {
                more.iter().for_each(|said| assert_eq!(leaders.heard(now, (own, 0), said), None));
            }
            from + SETTLE_US
        };
        let now = keep(&mut leaders, now + SETTLE_US, &[&others[0], &others[1], &idle]);
        assert_eq!(ask(&mut leaders, now, 0, &others[0]), None, "it has one server");
        assert_eq!(ask(&mut leaders, now, 0, &idle), Some("c:2".into()), "one each, of those without load");
        assert_eq!(ask(&mut leaders, now + 1, 0, &others[1]), None, "one at a time");
        let busy = announce(1, "c:2", 9000, &["a:2"]);
        let now = keep(&mut leaders, now, &[&others[1], &busy]);
        assert_eq!(ask(&mut leaders, now, 0, &busy), None, "it is alone there");
        // Nothing is won where one shard has all the load, or where the others have as much.
        assert_eq!(ask(&mut leaders, now, 9000, &announce(2, "a:3", 0, &["c:3"])), None);
        assert_eq!(ask(&mut leaders, now, 9000, &announce(2, "a:3", 3000, &["c:3"])), None);
        assert_eq!(
            ask(&mut leaders, now, 9000, &announce(2, "a:3", 3000, &["c:3", "d:3"])),
            Some("d:3".into())
        );
        // Whoever had it lead elsewhere, it leads there for a while. A shard that is not heard any more leads nowhere.
        let again = announce(2, "a:3", 3000, &["c:3"]);
        assert_eq!(ask(&mut leaders, now + SETTLE_US, 9000, &announce(2, "d:3", 0, &[])), None);
        let now = keep(&mut leaders, now + SETTLE_US + 1, &[&again]);
        assert_eq!(ask(&mut leaders, now, 9000, &announce(2, "a:3", 3000, &["c:3"])), Some("c:3".into()));
    }

    /// However it begins, it ends: nothing moves for ever.
    #[test]
    fn moves_come_to_an_end() {
        proptest::proptest!(|(loads in proptest::collection::vec(0u32..10_000, 8), begin in proptest::collection::vec(0usize..3, 8))| {
            const HOSTS: [&str; 3] = ["a:1", "b:1", "c:1"];
            let (mut at, mut leaders, mut now) = (begin, Leaders::since(0), SETTLE_US);
            let mut moves = 0;
            for round in 0..2400 {
                // They are heard meanwhile.
                now += SETTLE_US / 30;
                for shard in 1..8 {
                    let others: Vec<&str> = HOSTS.into_iter().filter(|host| *host != HOSTS[at[shard]]).collect();
                    let said = announce(shard as u8, HOSTS[at[shard]], loads[shard], &others);
                    if let Some(to) = leaders.heard(now, (HOSTS[at[0]], loads[0]), &said) {
                        at[shard] = HOSTS.iter().position(|host| *host == to).expect("it is one of them");
                        moves += 1;
                        proptest::prop_assert!(round < 1600, "it moves in round {}", round);
                    }
                }
            }
            proptest::prop_assert!(moves <= 40);
        });
    }
}
