//! `shoal lab shell`: a shell, or a command, at a node.

use std::env;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::Context;
use clap::Args;
use lab::fabric::cable::find_node;
use lab::live::{Place, visit};
use lab::star;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use types::NodeId;

use super::{About, explain};
use crate::output::Output;
use crate::problem::problem;
use crate::signals;

/// Runs a shell, or a command, at a node; its exit code is this command's
#[derive(Args)]
#[command(after_help = "\
It begins in the directory where the volume is mounted. All files of the machine are there too, except those in /run.
`shoal status` and all other commands find the lab's cluster without options. The mount belongs to one node, whose cables carry
its bytes: `shoal mount main DIR` makes another one where the shell is.

Examples:
  shoal lab shell 1
  shoal lab shell 6 shoal status
  shoal lab shell 6 ping -c 3 198.18.0.1
  shoal lab shell 1 fio --name=x --rw=randrw --size=64m --verify=crc32c")]
pub(super) struct ShellArgs {
    /// The node
    node: String,
    /// The command with its arguments [default: $SHELL]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A shell where nothing says which.
const SHELL_DEFAULT: &str = "/bin/sh";

pub(super) fn run(args: &ShellArgs, place: &Place, output: &Output) -> anyhow::Result<()> {
    let about = About::of(place)?;
    let node = find_node(&about.plan.topology, &args.node).map_err(explain)?;
    if output.is_json() && args.command.is_empty() {
        return Err(problem("a shell has no JSON", "a command after the node, or no --json"));
    }
    let mut command = command(args, &about, node)?;
    if output.is_json() {
        return captured(&mut command, place, node, output);
    }
    if args.command.is_empty() && std::io::stdin().is_terminal() {
        let address = star::address(node.0);
        output.say(&format!("node {} ({address}) of lab `{}`; `exit` leaves it", node.0, place.name()));
    }
    let mut child = visit::start(place, node, &mut command).map_err(explain)?;
    let pid = Pid::from_raw(child.id().cast_signed());
    signals::on_stop(move |signal| {
        // A terminal sends SIGINT to the command itself.
        if signal != Signal::SIGINT {
            let _ = kill(pid, signal);
        }
    })?;
    let status = child.wait().context("cannot wait for the command")?;
    std::process::exit(code(status));
}

/// Runs the command with its output as parts of one document.
fn captured(command: &mut Command, place: &Place, node: NodeId, output: &Output) -> anyhow::Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = visit::start(place, node, command).map_err(explain)?;
    let ran = child.wait_with_output().context("cannot wait for the command")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = code(ran.status);
    let document = json!({
        "node": node.0, "exit_code": code, "stdout": text(&ran.stdout), "stderr": text(&ran.stderr),
    });
    output.answer(&document, String::new);
    std::process::exit(code);
}

fn command(args: &ShellArgs, about: &About, node: NodeId) -> anyhow::Result<Command> {
    let shell = || vec![env::var_os("SHELL").unwrap_or_else(|| SHELL_DEFAULT.into())];
    let words = if args.command.is_empty() { shell() } else { args.command.clone() };
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(&about.mount);
    command.env("SHOAL_META", &about.meta).env("SHOAL_KEY_FILE", &about.key_file);
    command.env_remove("SHOAL_DIR").env("SHOAL_LAB_NODE", node.0.to_string());
    // `shoal` is this program, wherever it lies.
    let own = env::current_exe().context("cannot find this program's own file")?;
    let dirs = own.parent().map(std::path::Path::to_owned).into_iter();
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(dirs.chain(env::split_paths(&path))).context("cannot extend PATH")?;
    command.env("PATH", path);
    Ok(command)
}

/// The exit code as shells tell it.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_a_code_above_128() {
        assert_eq!(code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(code(ExitStatus::from_raw(9)), 137);
    }
}
