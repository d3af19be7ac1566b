//! The owner of a lab, in the background.

use std::fs::{self, File};
use std::process::Command;

use nix::unistd::Pid;

use super::place::Place;
use crate::error::{Result, doing};
use crate::sandbox::Sandbox;

/// Takes the lab's place, starts `first` as the first process of its sandbox, and gives the place up when that has ended.
/// `started` gets the first process.
///
/// # Errors
/// The place is taken, or no sandbox can be made.
pub fn run(place: &Place, first: &mut Command, started: impl FnOnce(Pid)) -> Result<()> {
    let claim = place.claim()?;
    let log = File::create(place.log()).map_err(doing(format!("make {}", place.log().display())))?;
    let mut sandbox = Sandbox::start(first.stderr(log))?;
    let pid = sandbox.init().id();
    started(Pid::from_raw(pid.cast_signed()));
    fs::write(place.first(), format!("{pid}\n"))
        .map_err(doing(format!("write {}", place.first().display())))?;
    let ended = sandbox.init().wait().map_err(doing("wait for the sandbox"));
    drop(sandbox);
    drop(claim);
    ended.map(drop)
}
