//! All names, links, counts and objects against each other, as `shoal meta check` compares them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Bound;

use meta::check::{Checked, Pairs, check, unpacked_pairs};
use types::messages::replica::MetaScan;
use types::messages::session::Role;
use types::{Buf, Epoch};
use world::{Peers, World};

use super::liveness::RECOVERY_US;
use crate::cluster::{identity, meta};

/// Bytes of a part: so few that there are many parts.
const PART: u32 = 4096;
const CALL_US: u64 = 5_000_000;
const PAUSE_US: u64 = 200_000;
const MEMORY: usize = 16 << 20;

/// A whole store.
struct Copy(BTreeMap<Vec<u8>, Vec<u8>>);

impl Pairs for Copy {
    type Error = Infallible;

    fn range(
        &mut self,
        from: &[u8],
        to: &[u8],
        f: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Infallible> {
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let _ended = self.0.range::<[u8], _>(bounds).all(|(key, value)| f(key, value));
        Ok(())
    }
}

/// Checks the store of the server that leads.
pub(crate) async fn all_well(world: &World) -> Result<Checked, String> {
    let deadline = world.now() + RECOVERY_US;
    let mut copy = loop {
        match copy(world).await {
            Ok(copy) => break copy,
            Err(error) if world.now() > deadline => return Err(format!("the names cannot be read: {error}")),
            Err(_) => world.sleep(PAUSE_US).await,
        }
    };
    let checked = check(&mut copy, MEMORY, 0, None, &mut |_| {}).map_err(|error| error.to_string())?;
    match checked.found.first() {
        None => Ok(checked),
        Some(found) => Err(format!("the metadata has a fault: {}", found.fault)),
    }
}

async fn copy(world: &World) -> Result<Copy, String> {
    let peers = Peers::new(world.clone(), identity(Role::Client));
    let (mut pairs, mut scan, mut from) = (BTreeMap::new(), 0, Vec::new());
    loop {
        let request = MetaScan { scan, from, bytes: PART };
        let answer = peers.call_within(CALL_US, meta(), Epoch(0), &request, Buf::empty()).await;
        let (answer, payload) = answer.map_err(|error| error.to_string())?;
        let part = unpacked_pairs(&payload).ok_or("a part that makes no sense")?;
        scan = answer.scan;
        from = part.last().map(|(key, _)| [key.as_slice(), &[0]].concat()).unwrap_or_default();
        pairs.extend(part);
        if answer.is_last {
            return Ok(Copy(pairs));
        }
    }
}
