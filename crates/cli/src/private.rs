//! The directories and files of this machine's clusters and daemons: for their owner alone. `world::private_files` has the rules.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use world::private_files::{self, TooWide};

use crate::problem::problem;

/// Beginnings of the names that Shoal gives in a directory of its own. A directory with other names has other uses too.
const OWN_NAMES: [&str; 7] = ["meta", "key", "cluster.json", "bricks", "run", "log", "lost+found"];

/// Where the logs of mounts and gates are, unless `--log` names another place.
pub(crate) const LOG_DIR: &str = "/var/log/shoal";

/// Makes a directory that only its owner can enter, or takes this right away from others.
///
/// # Errors
/// It belongs to somebody else, or others may write in it.
pub(crate) fn make_dir(path: &Path) -> anyhow::Result<()> {
    let is_ours = |name: &str| OWN_NAMES.iter().any(|own| name.starts_with(own));
    tell(private_files::make_dir(path, is_ours), path, "made")
}

/// As [`make_dir`], for a directory in which everything is ours.
pub(crate) fn make_part(path: &Path) -> anyhow::Result<()> {
    tell(private_files::make_dir(path, |_| true), path, "made")
}

/// Makes the directory of a log. One that is there for other files too keeps its mode.
pub(crate) fn make_log_dir(path: &Path) -> anyhow::Result<()> {
    if path == Path::new(LOG_DIR) || !path.exists() { make_part(path) } else { Ok(()) }
}

/// Writes a file that only its owner can read, in place of what has its name.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    private_files::replace(path, text.as_bytes()).map_err(|error| refused(&error, path, "written"))
}

/// Opens a log to write at its end; makes it if it is not there.
pub(crate) fn open_log(path: &Path) -> anyhow::Result<File> {
    let opened = private_files::open(path, File::options().create(true).append(true));
    let (file, wide) = opened.map_err(|error| refused(&error, path, "opened"))?;
    warn(wide);
    Ok(file)
}

/// Takes the rights of others away from a file that is there already.
pub(crate) fn secure(path: &Path) -> anyhow::Result<()> {
    let opened = private_files::open(path, File::options().read(true));
    let (_, wide) = opened.map_err(|error| refused(&error, path, "opened"))?;
    warn(wide);
    Ok(())
}

fn tell(done: io::Result<Option<TooWide>>, path: &Path, what: &str) -> anyhow::Result<()> {
    warn(done.map_err(|error| refused(&error, path, what))?);
    Ok(())
}

/// Says that a mode was too wide: in the log of a daemon, or on standard error.
fn warn(wide: Option<TooWide>) {
    match wide {
        Some(wide) if tracing::dispatcher::has_been_set() => tracing::warn!("{wide}"),
        Some(wide) => drop(writeln!(io::stderr(), "warning: {wide}")),
        None => {}
    }
}

fn refused(error: &io::Error, path: &Path, what: &str) -> anyhow::Error {
    match error.kind() {
        ErrorKind::PermissionDenied => problem(
            format!("{} cannot be {what}: {error}", path.display()),
            "the user whose it is; or another place, which only this user can change",
        ),
        _ => anyhow::anyhow!("{} cannot be {what}: {error}", path.display()),
    }
}
