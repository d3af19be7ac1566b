//! The way to the servers: the map, who is suspected of being away, how long to try, and this client's life at the
//! metadata service. Nothing here knows what a file holds: see [`Above`].

pub(crate) mod lease_state;
pub(crate) mod link;
pub(crate) mod retry;
pub(crate) mod route;
mod shared;

pub(crate) use shared::{Above, Routes};
