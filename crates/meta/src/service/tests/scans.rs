//! The store is read as it was at one moment, while it changes.

use std::collections::BTreeMap;

use types::messages::replica::{MetaPatch, MetaRepair, MetaScan};

use super::*;
use crate::check::unpacked_pairs;
use crate::keys::{self, NameKey};

/// The rest of a moment of the store, in small parts.
async fn rest(tool: &Client, scan: u64, mut from: Vec<u8>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut pairs = BTreeMap::new();
    loop {
        let request = MetaScan { scan, from, bytes: 300 };
        let answer = tool.peers.call(META, Epoch(0), &request, Buf::default()).await;
        let (answer, payload) = answer.expect("the moment is kept");
        let part = unpacked_pairs(&payload).expect("whole");
        from = part.last().map(|(key, _)| [key.as_slice(), &[0]].concat()).expect("each part has something");
        pairs.extend(part);
        if answer.is_last {
            return pairs;
        }
    }
}

fn names(pairs: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<String> {
    let named = pairs.keys().filter_map(|key| match keys::name_key(key) {
        Some(NameKey::Entry(_, name)) => Some(String::from_utf8(name).expect("text")),
        _ => None,
    });
    named.collect()
}

#[test]
fn a_moment_stays_while_names_change() {
    let house = House::new(71);
    house.run(async {
        furnish(&house).await;
        let (tool, client) = (house.client("tool"), house.mounted("a").await);
        for name in ["a", "b", "c"] {
            client.create(name, false).await.expect("free");
        }
        let first = MetaScan { scan: 0, from: Vec::new(), bytes: 1 };
        let begun = tool.ask(&first).await.expect("it works");
        assert!(begun.record > 0, "what was answered is in the moment");
        client.unlink("b").await.expect("there");
        client.create("d", false).await.expect("free");
        assert_eq!(names(&rest(&tool, begun.scan, Vec::new()).await), ["a", "b", "c"]);
        let again = tool.ask(&first).await.expect("it works");
        assert!(again.record > begun.record);
        let pairs = rest(&tool, again.scan, Vec::new()).await;
        assert_eq!(names(&pairs), ["a", "c", "d"]);

        // Who was lost with a moment is told so, and begins anew.
        assert_eq!(tool.ask(&MetaScan { scan: 99, ..first.clone() }).await, Err(Refusal::Unknown));
        house.simulation.kill("meta");
        house.start_meta();
        let more = MetaScan { scan: again.scan, from: vec![0x10], bytes: 1 };
        assert_eq!(tool.ask(&more).await, Err(Refusal::Unknown));
        let third = tool.ask(&first).await.expect("it works");
        house.simulation.node("test").sleep(120_000_000).await;
        let late = MetaScan { scan: third.scan, ..more };
        assert_eq!(tool.ask(&late).await, Err(Refusal::Unknown), "nobody has used it for long");
    });
}

#[test]
fn what_has_changed_meanwhile_is_not_repaired() {
    let house = House::new(72);
    house.run(async {
        furnish(&house).await;
        let (tool, client) = (house.client("tool"), house.mounted("a").await);
        let made = client.create("a", false).await.expect("free");
        let begun = tool.ask(&MetaScan { scan: 0, from: Vec::new(), bytes: 1 }).await.expect("it works");
        let pairs = rest(&tool, begun.scan, Vec::new()).await;
        let key = keys::inode(client.volume, made.attr.inode);
        let patch = MetaPatch { key: key.clone(), expected: pairs.get(&key).cloned(), value: None };
        let repair =
            MetaRepair { patches: vec![patch], inodes: None, ids_up_to: 0, adopt: None, purge: None };
        client.grow(&made.attr, 4096, true).await.expect("known");
        assert!(!tool.ask(&repair).await.expect("answered").is_done);
        assert_eq!(client.getattr(made.attr.inode).await.map(|attr| attr.size), Ok(4096));
    });
}
