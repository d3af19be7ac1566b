//! Which clients may no longer write.

use super::cluster::Fences;
use crate::{ClientId, ShardId};

impl Fences {
    /// Nobody is fenced.
    pub fn none() -> Fences {
        Fences { upto: ClientId(0), mounted: Vec::new() }
    }

    /// Whether a client may no longer write. A list says nothing about clients of other shards.
    pub fn is_fenced(&self, client: ClientId) -> bool {
        client.shard() == self.shard() && client <= self.upto && self.mounted.binary_search(&client).is_err()
    }

    /// The shard whose clients these are.
    pub fn shard(&self) -> ShardId {
        self.upto.shard()
    }

    /// Fences every client that one of the two fences. The order of merges does not matter.
    ///
    /// # Panics
    /// If they are of two shards.
    pub fn merge(&mut self, other: &Fences) {
        assert_eq!(self.shard(), other.shard(), "clients of one shard would no longer be fenced");
        let both = self.mounted.iter().chain(&other.mounted);
        let mut mounted: Vec<ClientId> =
            both.filter(|client| !self.is_fenced(**client) && !other.is_fenced(**client)).copied().collect();
        mounted.sort_unstable();
        mounted.dedup();
        *self = Fences { upto: self.upto.max(other.upto), mounted };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fences(upto: u64, mounted: &[u64]) -> Fences {
        Fences { upto: ClientId(upto), mounted: mounted.iter().map(|id| ClientId(*id)).collect() }
    }

    #[test]
    fn a_client_once_fenced_stays_so_in_whatever_order_it_is_told() {
        let told = [fences(0, &[]), fences(9, &[3, 5, 9]), fences(20, &[5, 9, 12]), fences(15, &[9, 12])];
        for first in &told {
            for second in &told {
                for third in &told {
                    let mut all = first.clone();
                    all.merge(second);
                    all.merge(third);
                    for id in 0..25 {
                        let client = ClientId(id);
                        let by_any = [first, second, third].iter().any(|fences| fences.is_fenced(client));
                        assert_eq!(all.is_fenced(client), by_any, "{client}: {first:?} {second:?} {third:?}");
                    }
                }
            }
        }
        let other = fences(ShardId(1).numbers().start + 9, &[]);
        assert!(!other.is_fenced(ClientId(4)), "a client of another shard");
        assert!(!fences(0, &[]).is_fenced(ClientId(1)) && fences(9, &[3]).is_fenced(ClientId(4)));
    }
}
