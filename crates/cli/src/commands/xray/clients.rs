//! What programs ask each mount and gate of a cluster for.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use types::ClientId;
use types::messages::brick::AskedCounts;

use crate::output::table;
use crate::remote::ClusterSnapshot;

const MIB: f64 = 1_048_576.0;

/// A mount or gate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Client {
    place: String,
    volume: String,
    asked: AskedCounts,
}

/// The mounts and gates of a cluster, as the metadata service has heard of them: each tells once a second.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Clients(BTreeMap<ClientId, Client>);

impl Clients {
    pub(super) fn of(cluster: &ClusterSnapshot) -> Clients {
        let volume = |id| cluster.map.volume(id).map(|volume| volume.name.clone()).unwrap_or_default();
        let one = |mount: &types::messages::cluster::MountInfo| {
            let client =
                Client { place: mount.place.clone(), volume: volume(mount.volume), asked: mount.asked };
            (mount.client, client)
        };
        Clients(cluster.mounts.iter().map(one).collect())
    }

    /// What was asked since `past`, without clients that are new: what they have asked for is older than that.
    pub(super) fn since(&self, past: &Clients) -> Clients {
        let one = |(id, client): (&ClientId, &Client)| {
            let before = past.0.get(id)?.asked;
            let (now, less) = (client.asked, u64::saturating_sub);
            let asked = AskedCounts {
                reads: less(now.reads, before.reads),
                read_bytes: less(now.read_bytes, before.read_bytes),
                writes: less(now.writes, before.writes),
                written_bytes: less(now.written_bytes, before.written_bytes),
            };
            Some((*id, Client { asked, ..client.clone() }))
        };
        Clients(self.0.iter().filter_map(one).collect())
    }

    /// Those that ask for most bytes first.
    fn sorted(&self) -> Vec<(&ClientId, &Client)> {
        let mut clients: Vec<_> = self.0.iter().collect();
        let bytes = |client: &Client| client.asked.read_bytes.saturating_add(client.asked.written_bytes);
        clients.sort_by_key(|(id, client)| (std::cmp::Reverse(bytes(client)), **id));
        clients
    }

    /// A table; numbers of an interval are for a second.
    pub(super) fn text(&self, time: Option<Duration>) -> String {
        if self.0.is_empty() {
            return "no mount or gate uses the cluster".to_owned();
        }
        let (seconds, per) = time.map_or((1.0, ""), |time| (time.as_secs_f64().max(0.001), "/s"));
        let count = |count: u64| format!("{:.0}", count as f64 / seconds);
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / MIB / seconds);
        let head = |word: &str| format!("{word}{per}");
        let mut rows = vec![vec![
            "at".to_owned(),
            "volume".to_owned(),
            head("reads"),
            head("MiB"),
            head("writes"),
            head("MiB"),
        ]];
        for (id, Client { place, volume, asked }) in self.sorted() {
            let place = if place.is_empty() { id.to_string() } else { place.clone() };
            let AskedCounts { reads, read_bytes, writes, written_bytes } = *asked;
            rows.push(vec![
                place,
                volume.clone(),
                count(reads),
                mib(read_bytes),
                count(writes),
                mib(written_bytes),
            ]);
        }
        let when = time
            .map_or_else(|| "all since each began".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()));
        format!("what programs ask the mounts and gates of the cluster for, {when}\n\n{}", table(&rows))
    }

    pub(super) fn document(&self, time: Option<Duration>) -> Value {
        let one = |(id, Client { place, volume, asked }): (&ClientId, &Client)| {
            json!({
                "client": id.to_string(), "at": place, "volume": volume,
                "reads": asked.reads, "read_bytes": asked.read_bytes,
                "writes": asked.writes, "written_bytes": asked.written_bytes,
            })
        };
        let clients: Vec<Value> = self.sorted().into_iter().map(one).collect();
        json!({ "seconds": time.map(|time| time.as_secs_f64()), "clients": clients })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(all: &[(u64, u64)]) -> Clients {
        let one = |&(id, times): &(u64, u64)| {
            let asked =
                AskedCounts { reads: times, read_bytes: times << 20, writes: 2 * times, written_bytes: 0 };
            (ClientId(id), Client { place: format!("host:/mnt/{id}"), volume: "main".into(), asked })
        };
        Clients(all.iter().map(one).collect())
    }

    #[test]
    fn rates_are_of_the_interval_and_the_busiest_comes_first() {
        let passed = clients(&[(1, 12), (2, 30), (3, 4)]).since(&clients(&[(1, 10), (2, 10)]));
        assert_eq!(passed, clients(&[(1, 2), (2, 20)]), "of a new one it is not known when it asked");
        let text = passed.text(Some(Duration::from_secs(2)));
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[2], ["at", "volume", "reads/s", "MiB/s", "writes/s", "MiB/s"]);
        assert_eq!(rows[3], ["host:/mnt/2", "main", "10", "10.0", "20", "0.0"]);
        assert_eq!(passed.document(None)["clients"][1]["reads"], 2);
        assert!(Clients::default().text(None).contains("no mount or gate"));
    }
}
