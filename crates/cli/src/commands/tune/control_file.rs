//! The file `.shoal/tune` of a mount, as its daemon shows it (`gates/src/fuse/tune.rs`).

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use types::Tuning;

use crate::problem::problem;

/// An open control file.
pub(super) struct ControlFile {
    file: File,
    dir: PathBuf,
}

/// What a control file says.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Contents {
    pub(super) volume: Tuning,
    pub(super) mount: Tuning,
    pub(super) file: Tuning,
    pub(super) effective: Tuning,
    /// What kind of work is done on the file.
    pub(super) work: Option<String>,
    /// Why the last write failed.
    pub(super) error: Option<String>,
}

impl Contents {
    fn parse(text: &str) -> Contents {
        let mut contents = Contents::default();
        for (scope, rest) in text.lines().filter_map(|line| line.split_once(' ')) {
            let tuning = match scope {
                "volume" => &mut contents.volume,
                "mount" => &mut contents.mount,
                "file" => &mut contents.file,
                "effective" => &mut contents.effective,
                "work" => {
                    contents.work = Some(rest.to_owned());
                    continue;
                }
                "error" => {
                    contents.error = Some(rest.to_owned());
                    continue;
                }
                _ => continue,
            };
            // A daemon of a newer build may have settings that this command does not know.
            let _ = rest.split_once(' ').map(|(key, value)| tuning.change(&format!("{key}={value}")));
        }
        contents
    }
}

impl ControlFile {
    /// Opens the control file of the mount at `dir`, to read it or to write as well.
    pub(super) fn open(dir: &Path, write: bool) -> anyhow::Result<ControlFile> {
        let path = dir.join(".shoal/tune");
        let place = dir.display();
        let file =
            OpenOptions::new().read(true).write(write).open(&path).map_err(|error| match error.kind() {
                ErrorKind::PermissionDenied => problem(
                    format!("{} can be opened by root only", path.display()),
                    "the same command with sudo",
                ),
                ErrorKind::ReadOnlyFilesystem => problem(
                    format!(
                        "the mount at {place} is read-only, so nothing can be written to {}",
                        path.display()
                    ),
                    format!("settings of its volume; or `mount -o remount,rw {place}`, and `ro` afterwards"),
                ),
                ErrorKind::NotFound => problem(
                    format!("the mount at {place} has no file .shoal/tune"),
                    format!(
                        "if the mount is older than this command: `shoal umount {place}`, and mount it again"
                    ),
                ),
                ErrorKind::NotConnected => problem(
                    format!("the daemon of the mount at {place} has ended"),
                    format!("`shoal umount {place}`, and mount it again"),
                ),
                _ => anyhow::Error::new(error).context(format!("cannot open {}", path.display())),
            })?;
        Ok(ControlFile { file, dir: dir.to_owned() })
    }

    /// Writes a line. Returns the daemon's reason if it refuses it.
    pub(super) fn write(&mut self, line: &str) -> anyhow::Result<Result<(), String>> {
        match self.file.write(line.as_bytes()) {
            Ok(_) => Ok(Ok(())),
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                let reason = self.read()?.error;
                Ok(Err(reason.unwrap_or_else(|| error.to_string())))
            }
            Err(error) => Err(error).with_context(|| self.place("write")),
        }
    }

    /// Reads all of it.
    pub(super) fn read(&mut self) -> anyhow::Result<Contents> {
        let mut text = String::new();
        self.file.rewind().with_context(|| self.place("read"))?;
        self.file.read_to_string(&mut text).with_context(|| self.place("read"))?;
        Ok(Contents::parse(&text))
    }

    fn place(&self, what: &str) -> String {
        format!("cannot {what} {}", self.dir.join(".shoal/tune").display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_those_of_a_newer_build_are_left_out() {
        let text = "volume read-ahead on\nmount prefetch 7\nmount io-cache.page 4K\nepoch 7\n\n\
                    effective io-cache.page 4K\neffective read-ahead soon\nwork random\nerror there is no setting `x`\n";
        let expected = Contents {
            volume: "read-ahead=on".parse().expect("it is good"),
            mount: "io-cache.page=4K".parse().expect("it is good"),
            file: Tuning::default(),
            effective: "io-cache.page=4K".parse().expect("it is good"),
            work: Some("random".to_owned()),
            error: Some("there is no setting `x`".to_owned()),
        };
        assert_eq!(Contents::parse(text), expected);
    }
}
