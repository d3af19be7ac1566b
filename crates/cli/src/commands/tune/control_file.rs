//! The files `.shoal/tune`, `.shoal/xray` and `.shoal/why` of a mount, as its daemon shows them (`gates/src/fuse/tune.rs`,
//! `xray.rs`, `why.rs`).

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use types::Tuning;

use crate::problem::problem;

/// The control files of a mount.
#[derive(Clone, Copy)]
pub(crate) enum Control {
    Tune,
    Xray,
    Why,
}

impl Control {
    fn name(self) -> &'static str {
        match self {
            Control::Tune => ".shoal/tune",
            Control::Xray => ".shoal/xray",
            Control::Why => ".shoal/why",
        }
    }

    /// What to do about a mount that is read-only.
    fn if_read_only(self) -> &'static str {
        match self {
            Control::Tune => "settings of its volume",
            Control::Xray | Control::Why => "the directory of the mount instead of a file",
        }
    }
}

/// An open control file.
pub(crate) struct ControlFile {
    control: Control,
    file: File,
    dir: PathBuf,
}

/// What `.shoal/tune` says.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Contents {
    pub(crate) volume: Tuning,
    pub(crate) mount: Tuning,
    pub(crate) file: Tuning,
    pub(crate) effective: Tuning,
    /// What kind of work is done on the file.
    pub(crate) work: Option<String>,
    /// Why the last write failed.
    pub(crate) error: Option<String>,
}

impl Contents {
    /// Reads the text.
    pub(crate) fn parse(text: &str) -> Contents {
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
    /// Opens a control file of the mount at `dir`, to read it or to write as well.
    pub(crate) fn open(dir: &Path, control: Control, write: bool) -> anyhow::Result<ControlFile> {
        let path = dir.join(control.name());
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
                    format!(
                        "{}; or `mount -o remount,rw {place}`, and `ro` afterwards",
                        control.if_read_only()
                    ),
                ),
                ErrorKind::NotFound => problem(
                    format!("the mount at {place} has no file {}", control.name()),
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
        Ok(ControlFile { control, file, dir: dir.to_owned() })
    }

    /// Writes a line. Returns the daemon's reason if it refuses it.
    pub(crate) fn write(&mut self, line: &str) -> anyhow::Result<Result<(), String>> {
        match self.file.write(line.as_bytes()) {
            Ok(_) => Ok(Ok(())),
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                let text = self.text()?;
                let reason = text.lines().find_map(|line| line.strip_prefix("error "));
                Ok(Err(reason.map_or_else(|| error.to_string(), str::to_owned)))
            }
            Err(error) => Err(error).with_context(|| self.place("write")),
        }
    }

    /// Reads all of `.shoal/tune`.
    pub(crate) fn read(&mut self) -> anyhow::Result<Contents> {
        self.text().map(|text| Contents::parse(&text))
    }

    /// Reads all of it.
    pub(crate) fn text(&mut self) -> anyhow::Result<String> {
        let mut text = String::new();
        self.file.rewind().with_context(|| self.place("read"))?;
        self.file.read_to_string(&mut text).with_context(|| self.place("read"))?;
        Ok(text)
    }

    fn place(&self, what: &str) -> String {
        format!("cannot {what} {}", self.dir.join(self.control.name()).display())
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
