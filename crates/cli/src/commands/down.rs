//! `shoal down`: stops the embedded cluster.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::commands::umount;
use crate::embedded::{self, StopReport};
use crate::gate::gates_of;
use crate::home::{Home, default_dir};
use crate::mountpoint::mount_daemons;
use crate::output::Output;
use crate::problem::problem;

/// Stops the cluster that `shoal up` started, with its mounts and gates on this machine; keeps the data
#[derive(Args)]
#[command(after_help = "\
Examples:
  shoal down
  shoal down --dir ~/shoal")]
pub(crate) struct DownArgs {
    /// Directory of the cluster [default: /var/lib/shoal for root, ~/.local/share/shoal otherwise]
    #[arg(long, value_name = "DIR", env = "SHOAL_DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &DownArgs, output: &Output) -> anyhow::Result<()> {
    let home = Home::require(&args.dir.clone().unwrap_or_else(default_dir))?;
    let mounts: Vec<_> = mount_daemons().into_iter().filter(|m| m.meta == home.meta_address()).collect();
    for mount in &mounts {
        umount::umount(&mount.dir, false, output)?;
    }
    let gates = gates_of(&home.meta_address());
    for gate in &gates {
        gate.stop(output)?;
    }
    let StopReport { killed, running } = embedded::stop(&home, output);
    if let Some((_, why)) = running.first() {
        let names: Vec<&str> = running.iter().map(|(name, _)| name.as_str()).collect();
        let what = format!(
            "the cluster in {} is not down: {} still run: {why}",
            home.dir().display(),
            names.join(", ")
        );
        return Err(problem(what, "the same command by the user who has started them, or with sudo"));
    }
    let unmounted: Vec<_> = mounts.iter().map(|m| m.dir.to_string_lossy().into_owned()).collect();
    let exports: Vec<_> = gates.iter().map(|gate| &gate.uri).collect();
    let document = json!({ "dir": home.dir().to_string_lossy(), "unmounted": unmounted, "exports": exports, "killed": killed });
    output.answer(&document, || {
        let mut text = String::new();
        for dir in &unmounted {
            text += &format!("unmounted {dir}\n");
        }
        for uri in &exports {
            text += &format!("{uri} is closed\n");
        }
        for name in &killed {
            text += &format!("{name} did not stop by itself and was killed\n");
        }
        text + &format!("the cluster in {} is down; `shoal up` starts it again", home.dir().display())
    });
    Ok(())
}
