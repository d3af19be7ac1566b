//! Requests to the servers: the cluster map, bricks that do not answer, retries, and the client's lease from the
//! metadata service. Nothing here uses the contents of files: see [`Above`].

pub(crate) mod lease_state;
pub(crate) mod link;
pub(crate) mod network;
mod proxy;
mod reach;
pub(crate) mod retry;
pub(crate) mod route;
mod shared;
mod traced;
mod watch;

pub(crate) use shared::{Above, Routes};
