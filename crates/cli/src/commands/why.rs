//! `shoal why`: the slowest requests of a file or a mount, and what each of them has waited for.

mod cause;
mod report;
mod requests;
mod shares;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::commands::tune::control_file::{Control, ControlFile};
use crate::commands::tune::place;
use crate::gate;
use crate::output::Output;
use crate::problem::problem;
use crate::remote::ConnectionArgs;

use self::report::{Report, Subject};
use self::requests::Remembered;

/// Shows the slowest requests of a file, or of a mount, and what each of them has waited for
#[derive(Args)]
#[command(after_help = "\
A mount remembers its 32 slowest requests of the last ten minutes, and the 8 slowest ones of each file, none below 1 ms. The
file need not be open any more. Fetches of read-ahead and what write-behind sends are shown only if no program's request was
slow.

A bar is a part of the request's time: the layers that it has passed, waits in the mount, and calls to the metadata service
and bricks. Below a call to a brick is what the brick tells: its waits for room (queue), for earlier operations on the stripe
(lane), for its journal and its device, and the time at another brick that it had asked. The network is what is left. So the
clocks of machines need not agree. A sentence below says where most of the time went, and what can be done.

Examples:
  shoal why /mnt/shoal/vm/disk          the slowest requests of a file
  shoal why --slow /mnt/shoal           those of the whole mount
  shoal why --gate nbd:vm               those of a gate of this machine
  shoal why /mnt/shoal/vm/disk --count 8 --json")]
pub(crate) struct WhyArgs {
    /// A file of a mount; with --slow a directory of a mount, which means the whole mount
    #[arg(required_unless_present = "gate", conflicts_with = "gate")]
    target: Option<String>,
    /// Shows the slowest requests of the whole mount
    #[arg(long)]
    slow: bool,
    /// A gate of this machine: its URI as `shoal status` shows it, or KIND:VOLUME, such as nbd:vm
    #[arg(long, value_name = "GATE")]
    gate: Option<String>,
    #[command(flatten)]
    cluster: ConnectionArgs,
    /// Number of requests that are shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=32))]
    count: u16,
}

pub(crate) fn run(args: &WhyArgs, output: &Output) -> anyhow::Result<()> {
    let (subject, text) = match (&args.gate, &args.target) {
        (Some(name), _) => {
            let gate = gate::find(name, &args.cluster)?;
            let text = gate.ask("why")?;
            (Subject::Gate(gate.uri), text)
        }
        (None, Some(target)) => look(target, args.slow)?,
        (None, None) => unreachable!("clap asks for a target"),
    };
    let remembered = Remembered::parse(&text).map_err(|reason| {
        let remedy = "the same version of `shoal` here and for the mount or gate";
        problem(format!("cannot look at {}: {reason}", subject.name()), remedy)
    })?;
    let report = Report { subject, remembered, count: args.count.into() };
    output.answer_by(|| report.document(), || report.text());
    Ok(())
}

/// What the mount of a path remembers of it.
fn look(target: &str, slow: bool) -> anyhow::Result<(Subject, String)> {
    let path = fs::canonicalize(Path::new(target)).map_err(|error| match error.kind() {
        ErrorKind::NotFound => problem(
            format!("there is no {target}"),
            "a file of a mount, or `shoal why --slow DIR` for the slowest requests of a whole mount",
        ),
        _ => anyhow::Error::new(error).context(format!("cannot find {target}")),
    })?;
    let (mount, inode) = place("why --slow", target, &path)?;
    let dir: PathBuf = mount.dir;
    let inode = match inode {
        None if !slow => {
            let remedy = format!("`shoal why --slow {target}` for the whole mount, or a file");
            return Err(problem(format!("{target} is a directory"), remedy));
        }
        inode => inode.filter(|_| !slow),
    };
    let mut file = ControlFile::open(&dir, Control::Why, inode.is_some())?;
    if let Some(inode) = inode {
        file.write(&format!("file {inode}\n"))?.map_err(|reason| {
            let remedy = format!("`shoal why --slow {}` for the whole mount", dir.display());
            problem(format!("cannot look at {target}: {reason}"), remedy)
        })?;
    }
    let text = file.text()?;
    Ok((if inode.is_some() { Subject::File(path) } else { Subject::Mount(dir) }, text))
}
