//! `shoal meta check`: all names against each other, and repairs.

use clap::Args;
use meta::check::{CheckError, Checked, FAULTS_MAX, Found, check};
use serde_json::{Value, json};

use super::held_objects::HeldObjects;
use super::now_ns;
use crate::output::Output;
use crate::problem::problem;
use crate::remote::{ConnectionArgs, Remote, explain};
use crate::size::Size;
use crate::store_scan::{ScanError, StoreScan};

/// Faults that are shown as text.
const SHOWN: usize = 40;
/// How often the store is checked again after repairs: some faults hide others.
const ROUNDS: usize = 6;
/// How often a check begins anew because another server leads.
const RESTARTS: usize = 3;

/// Compares all names, links, counts and objects with each other, while they are in use
#[derive(Args)]
#[command(after_help = "\
Reads the metadata store as it is at one moment: what changes meanwhile is not seen, and nobody waits. Takes about 40
bytes of this machine's memory for each file, and 140 for each directory. Says nothing of the bytes of files: that is
`shoal volume verify`. With --bricks, it also asks the bricks what they hold, and finds what no file has, and which files have
no bytes: those may be sparse, or lost.

With --repair, each fault is repaired that can be repaired without losing a file: a name comes back if it is still listed,
and what has lost its name gets one in `lost+found` in the root of its volume (but not a disk). A fault in something that
has changed since it was read is left, and looked at again. The exit code is 1 if anything is left wrong.

Examples:
  shoal meta check
  shoal meta check --bricks --repair                        gives the space back that no file has
  shoal meta check --repair --meta 10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400 --key-file /etc/shoal/key
  shoal meta check --shard 1                                the names of another shard
  shoal meta check --json | jq '.faults[].fault'")]
pub(crate) struct CheckArgs {
    /// Repairs what it finds
    #[arg(long)]
    repair: bool,
    /// Also finds bytes on bricks that no file has
    #[arg(long)]
    bricks: bool,
    /// Memory that it may take
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    memory: Size,
    /// Of this shard; without it, of the one whose servers --meta names
    #[arg(long, value_name = "N")]
    shard: Option<u8>,
    #[command(flatten)]
    cluster: ConnectionArgs,
}

/// A check, and its moment.
struct Round {
    checked: Checked,
    record: u64,
}

pub(super) fn run(args: &CheckArgs, output: &Output) -> anyhow::Result<()> {
    let target = args.cluster.target()?.of_shard(args.shard)?;
    let remote = Remote::new(&target)?;
    let others = remote.other_shards()?;
    let look = Look { remote: &remote, args, output, address: &target.meta };
    let (mut round, mut repaired, mut refused) = (look.one()?, Vec::new(), Vec::new());
    for _ in 1..ROUNDS {
        if !args.repair || round.checked.found.iter().all(|found| found.repair.is_none()) {
            break;
        }
        let done = look.repair(&round.checked)?;
        let is_stuck = done.repaired.is_empty();
        repaired.extend(done.repaired);
        refused = done.refused;
        round = look.one()?;
        if is_stuck {
            break;
        }
    }
    let left = round.checked.found.len();
    output.answer_by(|| document(&round, &repaired), || words(&round, &repaired, args.repair));
    refused.iter().for_each(|refused| output.say(&format!("not repaired: {refused}")));
    if let Some(others) = others {
        output.say(&others);
    }
    if left == 0 {
        return Ok(());
    }
    if output.is_json() {
        std::process::exit(1);
    }
    let hint = match (args.repair, round.checked.found.iter().any(|found| found.repair.is_some())) {
        (false, true) => "`shoal meta check --repair`",
        (true, true) => "again: some faults hide others, or are in what has changed while it was looked at",
        (_, false) => "what is said of each of them",
    };
    let what = if left == 1 { "1 fault".to_owned() } else { format!("{left} faults") };
    Err(problem(format!("{what} in the metadata of cluster {}", remote.cluster()), hint))
}

/// What a check looks at, and how.
struct Look<'a> {
    remote: &'a Remote,
    args: &'a CheckArgs,
    output: &'a Output,
    address: &'a str,
}

impl Look<'_> {
    /// Checks the store as it is now.
    fn one(&self) -> anyhow::Result<Round> {
        let memory = usize::try_from(self.args.memory.0).unwrap_or(usize::MAX);
        let begun = now_ns();
        // What bricks hold comes first: each of it has an owner in the store by then, or is to be purged.
        let mut held = HeldObjects::default();
        if self.args.bricks {
            let bar = self.output.spinner("asking the bricks");
            let told = |groups| bar.set_message(format!("asking the bricks: {groups} groups"));
            held = HeldObjects::ask(self.remote, memory, &told)?;
            bar.finish_and_clear();
        }
        let memory = memory.saturating_sub(held.bytes());
        let by_volume = self.args.bricks.then_some(&held.by_volume);
        let bar = self.output.spinner("reading the metadata");
        for _ in 0..RESTARTS {
            let mut scan = StoreScan::begin(self.remote);
            let told = |keys: u64| bar.set_message(format!("reading the metadata: {keys} keys"));
            match check(&mut scan, memory, begun, by_volume, &mut { told }) {
                Ok(mut checked) => {
                    held.confirm(self.remote, &mut checked.found)?;
                    bar.finish_and_clear();
                    return Ok(Round { checked, record: scan.record });
                }
                // Another server leads now, and has its own moments.
                Err(CheckError::Pairs(ScanError::Forgotten)) => {}
                Err(CheckError::Pairs(ScanError::Call(error))) => return Err(explain(error, self.address)),
                Err(CheckError::Memory { volume, given }) => {
                    return Err(problem(
                        format!(
                            "volume `{volume}` has more files than can be checked in {}",
                            Size(given as u64)
                        ),
                        "--memory with more, about 40 bytes for each file and 140 for each directory",
                    ));
                }
            }
        }
        Err(problem(
            "the server that leads has changed again and again while the metadata was read, or others check it too",
            "`shoal meta list`; then again",
        ))
    }

    /// Makes repairs.
    fn repair(&self, checked: &Checked) -> anyhow::Result<Done> {
        let mut done = Done::default();
        for found in &checked.found {
            let Some(repair) = &found.repair else { continue };
            match self.remote.meta_or_refusal(repair)? {
                Ok(answer) if answer.is_done => done.repaired.push(found.clone()),
                Ok(_) => {}
                Err(refusal) => done.refused.push(format!("{}: {refusal}", found.fault)),
            }
        }
        Ok(done)
    }
}

/// What became of repairs, but for those that were not made because something has changed meanwhile.
#[derive(Default)]
struct Done {
    repaired: Vec<Found>,
    /// Those that the service has refused, and why.
    refused: Vec<String>,
}

fn fault(found: &Found) -> Value {
    json!({
        "fault": found.fault.word(),
        "volume": found.volume,
        "text": found.fault.to_string(),
        "can_be_repaired": found.repair.is_some(),
    })
}

fn document(round: &Round, repaired: &[Found]) -> Value {
    let Round { checked, record } = round;
    json!({
        "record": record,
        "volumes": checked.volumes,
        "inodes": checked.inodes,
        "directories": checked.directories,
        "names": checked.names,
        "purges": checked.purges,
        "repaired": repaired.iter().map(fault).collect::<Vec<_>>(),
        "faults": checked.found.iter().map(fault).collect::<Vec<_>>(),
        "is_cut": checked.is_cut,
        "empty_files": checked.empty_files,
        "empty": checked.empty.iter().map(|(volume, inode)| json!({ "volume": volume, "inode": inode.0 }))
            .collect::<Vec<_>>(),
    })
}

fn words(round: &Round, repaired: &[Found], repairs: bool) -> String {
    let Checked { volumes, inodes, directories, names, purges, .. } = round.checked;
    let mut text = String::new();
    lines(&mut text, repaired, "repaired: ", true);
    lines(&mut text, &round.checked.found, "", !repairs);
    if round.checked.is_cut {
        text += &format!("These are {FAULTS_MAX}; there may be more.\n");
    }
    if round.checked.empty_files > 0 {
        let inodes = round.checked.empty.iter().take(SHOWN);
        let inodes: Vec<String> =
            inodes.map(|(volume, inode)| format!("{} in `{volume}`", inode.0)).collect();
        text += &format!(
            "note: no brick has a byte of {} files with a length: they are nothing but holes, or lost. \
             Their inodes (find MOUNT -inum N): {}\n",
            round.checked.empty_files,
            inodes.join(", ")
        );
    }
    text += &format!(
        "volumes {volumes}, inodes {inodes} (directories {directories}), names {names}, objects to purge {purges}: "
    );
    text + match round.checked.found.is_empty() {
        true => "all is well",
        false => "not all is well",
    }
}

/// A line for each fault, with what its repair does.
fn lines(text: &mut String, found: &[Found], head: &str, with_remedy: bool) {
    for found in found.iter().take(SHOWN) {
        let volume = found.volume.as_ref().map_or(String::new(), |volume| format!("volume `{volume}`: "));
        let remedy = if with_remedy || found.repair.is_none() {
            format!(" ({})", found.fault.remedy())
        } else {
            String::new()
        };
        *text += &format!("{head}{volume}{}{remedy}\n", found.fault);
    }
    if found.len() > SHOWN {
        *text += &format!("{head}and {} more\n", found.len() - SHOWN);
    }
}
