//! The connections of a caller.

use std::collections::BTreeMap;
use std::rc::Rc;

use types::messages::session::Meant;

use super::Link;

/// The connections by the server that is meant, and by its address. Every call looks one up, so that allocates nothing.
#[derive(Default)]
pub(super) struct Links(BTreeMap<Meant, BTreeMap<Rc<str>, Rc<Link>>>);

impl Links {
    /// The connection to a server.
    pub(super) fn get(&self, meant: Meant, address: &str) -> Option<&Rc<Link>> {
        self.0.get(&meant)?.get(address)
    }

    /// The connections to an address.
    pub(super) fn to(&self, address: &str) -> impl Iterator<Item = &Rc<Link>> {
        self.0.values().filter_map(move |links| links.get(address))
    }

    /// All connections.
    pub(super) fn each(&self) -> impl Iterator<Item = &Rc<Link>> {
        self.0.values().flat_map(BTreeMap::values)
    }

    /// Adds a connection, in place of an earlier one to the same server.
    pub(super) fn insert(&mut self, link: Rc<Link>) {
        self.0.entry(link.meant).or_default().insert(link.address.clone(), link);
    }

    /// Takes a connection out.
    pub(super) fn remove(&mut self, meant: Meant, address: &str) -> Option<Rc<Link>> {
        self.0.get_mut(&meant)?.remove(address)
    }
}
