//! `shoal down`: stops the embedded cluster.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::commands::{nbd, nfs, umount};
use crate::embedded;
use crate::home::{Home, default_dir};
use crate::mountpoint::mount_daemons;
use crate::output::Output;

/// Unmounts, closes the gates and stops the cluster that `shoal up` started; its data stays
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
    let gates: Vec<_> = nbd::gates().into_iter().filter(|gate| gate.meta == home.meta_address()).collect();
    for gate in &gates {
        nbd::stop(gate, output)?;
    }
    let nfs_gates: Vec<_> =
        nfs::gates().into_iter().filter(|gate| gate.meta == home.meta_address()).collect();
    for gate in &nfs_gates {
        nfs::stop(gate, output)?;
    }
    let killed = embedded::stop(&home, output);
    let unmounted: Vec<_> = mounts.iter().map(|m| m.dir.to_string_lossy().into_owned()).collect();
    let disks = gates.iter().map(|gate| gate.uri.clone());
    let exports: Vec<_> = disks.chain(nfs_gates.iter().map(nfs::GateDaemon::export)).collect();
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
