//! A mover of files as the client of one command.

use std::collections::BTreeSet;
use std::rc::Rc;

use client::{ClientError, Mount, Session};
use mover::{MoveOutcome, Mover};
use serde_json::{Value, json};
use types::InodeId;
use types::messages::names::Attr;
use world::World;

use crate::daemon::{self, Stop};
use crate::output::Output;
use crate::remote::{Target, explain_join, real_world};
use crate::size::Size;

/// Memory of the mover's client.
const MEMORY: Size = Size(128 << 20);

/// What has become of the files so far.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) seen: u64,
    pub(crate) moved: u64,
    pub(crate) bytes: u64,
    pub(crate) in_place: u64,
    pub(crate) busy: u64,
}

impl Tally {
    pub(crate) fn count(&mut self, outcome: MoveOutcome) {
        match outcome {
            MoveOutcome::Moved { bytes } => {
                self.moved += 1;
                self.bytes += bytes;
            }
            MoveOutcome::InPlace => self.in_place += 1,
            MoveOutcome::Busy => self.busy += 1,
            MoveOutcome::Gone | MoveOutcome::NotAFile => {}
        }
    }

    pub(crate) fn document(&self) -> Value {
        json!({
            "seen": self.seen,
            "moved": self.moved,
            "bytes": self.bytes,
            "in_place": self.in_place,
            "busy": self.busy,
        })
    }

    pub(crate) fn words(&self) -> String {
        let busy = match self.busy {
            0 => String::new(),
            busy => format!("; {busy} are in use and stay where they are"),
        };
        format!(
            "{} moved ({}), {} were there already{busy}",
            files(self.moved),
            Size(self.bytes),
            self.in_place
        )
    }
}

/// A number of files, in words.
pub(crate) fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

/// Mounts a volume for a mover and runs `work` with it, until it ends or the command is stopped. Stopped or not, no
/// file is lost or half moved.
pub(crate) fn with_mover<T>(
    target: &Target,
    volume: &str,
    rate: Option<Size>,
    work: impl AsyncFnOnce(&World, &Session, &mut Mover) -> anyhow::Result<T>,
) -> anyhow::Result<Option<T>> {
    let stop: Stop = daemon::stop_signal()?;
    let world = real_world()?;
    let options = target.client(volume, MEMORY, format!("mover, process {}", std::process::id()));
    let mount = world.block_on(Mount::join(&world, options)).map_err(|error| explain_join(&error))?;
    world.spawn("client", mount.clone().background(world.clone()));
    let session = mount.session(world.clone());
    let mut mover = Mover::new(session.clone(), world.clone(), rate.map(|rate| rate.0));
    let done = daemon::run_until_stopped(&world, stop, work(&world, &session, &mut mover));
    let left = world.block_on(mount.leave(&world));
    let done = done.transpose()?;
    left?;
    Ok(done)
}

/// Moves files one by one and shows how far it is.
pub(crate) struct Run<'a> {
    pub(crate) mover: &'a mut Mover,
    pub(crate) output: &'a Output,
    pub(crate) tally: Tally,
    linked: Linked,
}

/// Most files with several names that are remembered. The others count once for each name.
const LINKED_MAX: usize = 65_536;

/// Files with several names that a walk has met.
#[derive(Default)]
pub(crate) struct Linked(BTreeSet<InodeId>);

impl Linked {
    /// Whether a file was met before, under another name.
    pub(crate) fn is_known(&mut self, attr: &Attr) -> bool {
        if attr.links < 2 {
            return false;
        }
        if self.0.len() >= LINKED_MAX {
            self.0.clear();
        }
        !self.0.insert(attr.inode)
    }
}

impl<'a> Run<'a> {
    pub(crate) fn new(mover: &'a mut Mover, output: &'a Output) -> Run<'a> {
        Run { mover, output, tally: Tally::default(), linked: Linked::default() }
    }

    /// Whether a file was met before, under another name.
    pub(crate) fn is_known(&mut self, attr: &Attr) -> bool {
        self.linked.is_known(attr)
    }

    /// Moves a file.
    pub(crate) async fn move_file(&mut self, attr: &Attr, tier: u8) -> Result<MoveOutcome, ClientError> {
        let bar = Rc::new(self.output.bytes_bar(&format!("inode {}", attr.inode.0), attr.size));
        let progress = bar.clone();
        let outcome = self.mover.move_file(attr.inode, tier, &mut |bytes| progress.inc(bytes)).await;
        bar.finish_and_clear();
        self.tally.count(outcome?);
        outcome
    }
}
