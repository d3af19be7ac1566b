//! What must be there, checked before anything is made.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::statfs::{TMPFS_MAGIC, statfs};

use super::scale::Scale;
use super::systems::KERNEL;
use crate::error::{LabError, Result, doing};

/// Programs, and Debian's packages of them.
const PROGRAMS: [(&str, &str); 3] = [("fio", "fio"), ("mkfs.ext4", "e2fsprogs"), ("ip", "iproute2")];
/// Bytes of the disk that stay free.
const SPARE: u64 = 1 << 30;

/// Checks that this user is root, and that programs, schedulers and space are there. `dir` is where the devices' files will be.
///
/// # Errors
/// What is missing.
pub fn check(dir: &Path, scale: &Scale) -> Result<()> {
    let cannot = |why: String| doing("measure with loop devices")(why);
    if !nix::unistd::geteuid().is_root() {
        return Err(cannot("only root may make them: the same command with sudo".into()));
    }
    let path = std::env::var("PATH").unwrap_or_default();
    for (program, package) in PROGRAMS {
        if !is_there(program, &path) {
            return Err(LabError::Missing { program: program.to_owned(), package });
        }
    }
    if !Path::new("/dev/loop-control").exists() {
        load("loop");
    }
    if !Path::new("/dev/loop-control").exists() {
        return Err(cannot(
            "there is no /dev/loop-control: this kernel has no loop devices, or may not load them".into(),
        ));
    }
    let missing: Vec<&str> = KERNEL.into_iter().filter_map(missing_scheduler).collect();
    if !missing.is_empty() {
        return Err(cannot(format!("this kernel has no scheduler {}", missing.join(", "))));
    }
    let disk = statfs(dir).map_err(doing(format!("look at {}", dir.display())))?;
    if disk.filesystem_type() == TMPFS_MAGIC {
        return Err(cannot(format!(
            "{} is in RAM: give a directory on a disk with --disk-dir",
            dir.display()
        )));
    }
    let free = disk.blocks_available() * disk.block_size().cast_unsigned();
    let wanted = 2 * scale.device + SPARE;
    if free < wanted {
        return Err(cannot(format!(
            "{} has {} MiB free, and {} are wanted: --disk-dir DIR for another disk",
            dir.display(),
            free >> 20,
            wanted >> 20
        )));
    }
    Ok(())
}

/// True if a directory of the search path has the program.
fn is_there(program: &str, path: &str) -> bool {
    let is_program = |dir: &str| {
        let found = std::fs::metadata(Path::new(dir).join(program));
        found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    path.split(':').any(is_program)
}

/// Asks the kernel to load a module; it may have it already, or no modules at all.
fn load(module: &str) {
    let mut command = Command::new("modprobe");
    let _ = command.arg(module).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// The scheduler, if no device of this machine can have it, also after its module was asked for.
fn missing_scheduler((name, module): (&'static str, &'static str)) -> Option<&'static str> {
    if known_schedulers().iter().any(|known| known == name) {
        return None;
    }
    load(module);
    (!known_schedulers().iter().any(|known| known == name)).then_some(name)
}

/// Names of all schedulers that some device of this machine can have.
fn known_schedulers() -> Vec<String> {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let lists =
        devices.filter_map(|device| std::fs::read_to_string(device.path().join("queue/scheduler")).ok());
    lists.flat_map(|list| names(&list)).collect()
}

/// The names of a list in which one is between brackets.
fn names(list: &str) -> Vec<String> {
    list.split_whitespace().map(|name| name.trim_matches(['[', ']']).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_in_the_search_path() {
        assert!(is_there("sh", "/nowhere:/usr/bin:/bin"));
        assert!(!is_there("sh", "/nowhere") && !is_there("no-such-program", "/usr/bin"));
    }

    #[test]
    fn all_schedulers_of_a_list_are_known() {
        assert_eq!(names("none [mq-deadline] bfq\n"), ["none", "mq-deadline", "bfq"]);
    }
}
