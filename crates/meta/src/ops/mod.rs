//! One file per operation of the name space.
//!
//! Each is a function over a transaction. It reads and refuses first and writes last, so a refused one leaves nothing.

mod accessed;
mod create;
mod getattr;
mod grow;
mod link;
mod lookup;
mod mkdir;
mod open;
mod place;
mod readdir;
mod readlink;
mod release;
mod rename;
mod repair;
mod retract;
mod rmdir;
mod setattr;
mod statfs;
mod swap;
mod sweep;
mod symlink;
mod temporary;
mod truncate;
mod unlink;
mod zeroed;

pub(crate) use accessed::accessed;
pub(crate) use create::create;
pub(crate) use getattr::getattr;
pub(crate) use grow::{
    count_change_of_all, count_changes, end_noting, grow, keep_note, leave_unreported, settle_growth,
};
pub(crate) use link::link;
pub(crate) use lookup::lookup;
pub(crate) use mkdir::mkdir;
pub(crate) use open::{open_truncated, openable, openable_as};
pub(crate) use readdir::{readdir, readdir_from};
pub(crate) use readlink::readlink;
pub(crate) use release::drop_orphans;
pub(crate) use rename::rename;
pub(crate) use repair::repair;
pub(crate) use retract::retract;
pub(crate) use rmdir::rmdir;
pub(crate) use setattr::setattr;
pub(crate) use statfs::statfs;
pub(crate) use swap::swap_objects;
pub(crate) use sweep::sweep;
pub(crate) use symlink::symlink;
pub(crate) use temporary::create_temporary;
pub(crate) use unlink::unlink;
pub(crate) use zeroed::zeroed;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_losses;
#[cfg(test)]
mod tests_of_moves;
#[cfg(test)]
mod tests_of_opens;
