//! What the mount holds that is not stable yet: the room it takes, what of it is to be sent, and what waits for
//! stability. Nothing here sends anything.

pub(crate) mod flow;
mod pieces;

pub(crate) use pieces::Unstable;
