//! One file per command: its options with their help, and what it does.

pub(crate) mod brick;
pub(crate) mod cluster;
pub(crate) mod code;
pub(crate) mod convert;
pub(crate) mod demo;
pub(crate) mod down;
pub(crate) mod lab;
pub(crate) mod meta;
pub(crate) mod mount;
pub(crate) mod nbd;
pub(crate) mod net;
pub(crate) mod nfs;
pub(crate) mod paper;
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod tier;
pub(crate) mod topology;
pub(crate) mod tune;
pub(crate) mod umount;
pub(crate) mod up;
pub(crate) mod volume;
pub(crate) mod why;
pub(crate) mod xray;
