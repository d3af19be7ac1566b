//! What the server does for each request: one file per request.

mod accepted;
mod decide;
mod fence;
mod fill;
mod find_bytes;
mod find_stripes;
mod fold;
mod list;
mod overlays;
mod patch;
mod prepare;
pub(crate) mod proxy;
mod purge;
mod read;
mod read_stripe;
mod relay;
mod stage;
mod status;
pub(crate) mod stripe;
mod sum;
mod sync;
mod unfolded;
mod verify;
mod write;

#[cfg(test)]
pub(crate) use prepare::prepare_record;
#[cfg(test)]
pub(crate) use read::UnitRead;
#[cfg(test)]
pub(crate) use write::empty_prepare;
