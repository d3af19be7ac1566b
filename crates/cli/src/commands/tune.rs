//! `shoal tune`: shows and changes the settings of the client's translators, while they are in use.

pub(crate) mod control_file;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde_json::{Map, Value, json};
use types::messages::cluster::{ClusterMap, VolumeTune};
use types::tuning::{Key, TuningError, check_file_changes};
use types::{Refusal, Tuning};

use crate::commands::volume::unknown;
use crate::mountpoint::{FS_TYPE, Mounted, mount_of, mounted};
use crate::output::{Output, table};
use crate::problem::problem;
use crate::remote::{ConnectionArgs, Remote};

use self::control_file::{Contents, Control, ControlFile};

/// Shows and changes how a volume, a mount or an open file caches, reads ahead and writes behind
#[derive(Args)]
#[command(after_help = "\
TARGET is the name of a volume, a directory of a mount, which means the whole mount, or a file that
is open at a mount. A name without `/` is a volume; write ./NAME for a file or directory.

The setting of the file counts, then that of the mount, then that of the volume. Without any, or
with the value `auto`, the client chooses. The value `inherit` removes a setting. Those of a volume
stay, and every mount and gate has them within seconds. Those of a mount last until it ends, those
of a file until it is closed.

Settings:
  io-cache=on|off|auto             keeps what was read for the next read
  io-cache.page=4K..1M             bytes that a miss reads at least, a power of two
  io-cache.size=SIZE               most bytes that a mount keeps; not for a file
  read-ahead=on|off|auto           fetches bytes before a program asks for them
  read-ahead.window=64K..64M       most bytes that are fetched ahead of one reader
  write-behind=on|off|auto         a write returns when its bytes are in a buffer of the client
  write-behind.size=4K..1G         bytes of a stripe that are gathered before they are sent
  write-behind.age=1ms..60000ms    how long bytes are gathered
  hedge=on|off|auto                decodes from others what a brick does not send in time

Examples:
  shoal tune main                                          a volume's settings, and what they take
  shoal tune main read-ahead.window=8M                     for every mount of it, also later ones
  shoal tune /mnt/shoal read-ahead=off io-cache.page=4K    for this mount
  shoal tune /mnt/shoal/vm/disk write-behind.age=200ms     for a file that is open there
  shoal tune /mnt/shoal read-ahead=inherit                 what the volume has counts again
  shoal tune /mnt/shoal --json")]
pub(crate) struct TuneArgs {
    /// A volume, a directory of a mount, or an open file of a mount
    target: String,
    /// What to change; nothing shows the settings
    #[arg(value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// Shows all settings after a change
    #[arg(long)]
    show: bool,
    #[command(flatten)]
    cluster: ConnectionArgs,
}

pub(crate) fn run(args: &TuneArgs, output: &Output) -> anyhow::Result<()> {
    let words: Vec<&str> = args.changes.iter().flat_map(|word| word.split_ascii_whitespace()).collect();
    let changes = words.join(" ");
    Tuning::default().change(&changes).map_err(|error| refused(&error, &args.target))?;
    let tuned = match find(args)? {
        Found::Volume(remote, map) => tune_volume(&args.target, &changes, &remote, &map)?,
        Found::Path(path) => tune_path(&args.target, &changes, &path)?,
    };
    output.answer_by(
        || tuned.document(),
        || if changes.is_empty() || args.show { tuned.table() } else { tuned.sentence() },
    );
    Ok(())
}

/// What a target means.
enum Found {
    Volume(Remote, ClusterMap),
    Path(PathBuf),
}

fn find(args: &TuneArgs) -> anyhow::Result<Found> {
    let name = &args.target;
    let path = Path::new(name);
    if is_path(name) {
        let missing = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => problem(
                format!("there is no {name}"),
                "a directory of a mount, a file that is open there, or the name of a volume, which has no `/`",
            ),
            _ => anyhow::Error::new(error).context(format!("cannot find {name}")),
        };
        return Ok(Found::Path(fs::canonicalize(path).map_err(missing)?));
    }
    let ask = || {
        let remote = Remote::new(&args.cluster.target()?)?;
        let map = remote.status()?.map;
        anyhow::Ok((remote, map))
    };
    // A name may also be that of a file or directory here.
    let here = fs::canonicalize(path).ok().filter(|path| {
        mounted().is_ok_and(|mounts| mount_of(path, &mounts).is_some_and(|mount| mount.fs_type == FS_TYPE))
    });
    match (ask(), here) {
        (Ok((remote, map)), here) if here.is_none() || map.volume_named(name).is_some() => {
            if here.is_some() {
                eprintln!("`{name}` is taken for the volume; ./{name} means the path");
            }
            Ok(Found::Volume(remote, map))
        }
        (_, Some(here)) => Ok(Found::Path(here)),
        (Ok((remote, map)), None) => Ok(Found::Volume(remote, map)),
        (Err(error), None) => Err(error),
    }
}

/// Whether a target can only be a path.
fn is_path(target: &str) -> bool {
    target.contains('/') || target == "." || target == ".."
}

fn tune_volume(name: &str, changes: &str, remote: &Remote, map: &ClusterMap) -> anyhow::Result<Tuned> {
    let volume = map.volume_named(name).ok_or_else(|| unknown(name, map))?;
    let text = if changes.is_empty() {
        volume.tuning.clone()
    } else {
        let request = VolumeTune { name: name.to_owned(), changes: changes.to_owned() };
        match remote.meta_or_refusal(&request)? {
            Ok(reply) => reply.volume.tuning,
            Err(Refusal::Unknown) => return Err(unknown(name, map)),
            Err(Refusal::Invalid) => {
                return Err(problem(
                    format!(
                        "the metadata service cannot read these settings of volume `{name}`, or those that it has"
                    ),
                    "the same version of `shoal` here and at the metadata service",
                ));
            }
            Err(refusal) => anyhow::bail!("cannot change the settings of volume `{name}`: {refusal}"),
        }
    };
    let tuning = text.parse().map_err(|error| {
        let what = format!("volume `{name}` has settings that this command cannot read: {error}");
        problem(what, "the version of `shoal` that the metadata service has")
    })?;
    Ok(Tuned { level: Level::Volume, volume: name.to_owned(), volume_tuning: tuning, ..Tuned::default() })
}

/// The mount that a path is on, and the inode if it is a file and not a directory. The path has no symbolic links; a
/// command's user has called it `target`.
pub(crate) fn place(command: &str, target: &str, path: &Path) -> anyhow::Result<(Mounted, Option<u64>)> {
    let mount = mount_of(path, &mounted()?).filter(|mount| mount.fs_type == FS_TYPE).cloned();
    let mount = mount.ok_or_else(|| {
        let what = format!("{target} is not on a mount of Shoal");
        problem(what, "a directory of a mount or a file that is open there; `shoal status` shows the mounts")
    })?;
    let attr = fs::metadata(path).with_context(|| format!("cannot look at {target}"))?;
    match attr.file_type() {
        kind if kind.is_dir() => Ok((mount, None)),
        kind if kind.is_file() => Ok((mount, Some(attr.ino()))),
        _ => {
            let what = format!("{target} is neither a directory nor a regular file");
            Err(problem(what, format!("`shoal {command} {}` for the mount", mount.dir.display())))
        }
    }
}

fn tune_path(target: &str, changes: &str, path: &Path) -> anyhow::Result<Tuned> {
    let (Mounted { dir, source, .. }, inode) = place("tune", target, path)?;
    let scope = inode.map(|inode| format!("file {inode} ")).unwrap_or_default();
    if inode.is_some() {
        check_file_changes(changes).map_err(|error| refused(&error, target))?;
    }
    // For a file the daemon is told which one to show.
    let mut control = ControlFile::open(&dir, Control::Tune, inode.is_some() || !changes.is_empty())?;
    if inode.is_some() || !changes.is_empty() {
        control.write(&format!("{scope}{changes}\n"))?.map_err(|reason| {
            let place = dir.display();
            let remedy = match inode {
                Some(_) => {
                    format!("the settings of the mount or the volume instead: `shoal tune {place} KEY=VALUE`")
                }
                None => {
                    format!("`shoal tune {place}` shows the settings; its daemon may be of another version")
                }
            };
            problem(format!("cannot tune {target}: {reason}"), remedy)
        })?;
    }
    let Contents { volume, mount, file, effective, work, .. } = control.read()?;
    Ok(Tuned {
        level: if inode.is_some() { Level::File } else { Level::Mount },
        volume: source.strip_prefix("shoal:").unwrap_or(&source).to_owned(),
        dir: Some(dir.clone()),
        path: inode.map(|_| path.to_owned()),
        volume_tuning: volume,
        mount_tuning: mount,
        file_tuning: file,
        effective,
        work,
    })
}

/// The error for changes that cannot be read.
fn refused(error: &TuningError, target: &str) -> anyhow::Error {
    let remedy = match error {
        TuningError::NotPerFile(_) => "`shoal tune DIR KEY=VALUE` for the whole mount".to_owned(),
        TuningError::TooLong => "fewer changes at once".to_owned(),
        _ => format!("`shoal tune {target}` shows the settings and the values that they take"),
    };
    problem(format!("cannot tune {target}: {error}"), remedy)
}

/// What was tuned.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Level {
    #[default]
    Volume,
    Mount,
    File,
}

/// The settings that apply to a target.
#[derive(Default)]
struct Tuned {
    level: Level,
    volume: String,
    /// The mount point.
    dir: Option<PathBuf>,
    /// The file.
    path: Option<PathBuf>,
    volume_tuning: Tuning,
    mount_tuning: Tuning,
    file_tuning: Tuning,
    effective: Tuning,
    /// What kind of work is done on the file.
    work: Option<String>,
}

impl Tuned {
    /// The levels that the target has: their names in the table and in JSON, and their settings.
    fn levels(&self) -> Vec<(&'static str, &'static str, &Tuning)> {
        let all = [
            ("volume", "volume", &self.volume_tuning),
            ("mount", "mount", &self.mount_tuning),
            ("file", "file", &self.file_tuning),
            ("in effect", "effective", &self.effective),
        ];
        let shown = |name: &str| match name {
            "volume" => true,
            "file" => self.level == Level::File,
            _ => self.level != Level::Volume,
        };
        all.into_iter().filter(|(_, name, _)| shown(name)).collect()
    }

    fn document(&self) -> Value {
        let levels = self.levels();
        let setting = |key: Key| {
            let value = |name: &str| {
                let level = levels.iter().find(|(_, level, _)| *level == name);
                level.and_then(|(_, _, tuning)| tuning.get(key)).map(|value| key.show(value))
            };
            let document = json!({
                "volume": value("volume"),
                "mount": value("mount"),
                "file": value("file"),
                "effective": value("effective"),
                "takes": key.values(),
            });
            (key.name().to_owned(), document)
        };
        let text = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
        json!({
            "level": match self.level {
                Level::Volume => "volume",
                Level::Mount => "mount",
                Level::File => "file",
            },
            "volume": self.volume,
            "mount": text(&self.dir),
            "file": text(&self.path),
            "work": self.work,
            "settings": Map::from_iter(Key::ALL.map(setting)),
        })
    }

    fn table(&self) -> String {
        let levels = self.levels();
        let head = ["setting"].into_iter().chain(levels.iter().map(|(name, _, _)| *name)).chain(["takes"]);
        let mut rows = vec![head.map(str::to_owned).collect()];
        for key in Key::ALL {
            let value = |tuning: &Tuning| tuning.get(key).map_or("-".to_owned(), |value| key.show(value));
            let mut row = vec![key.name().to_owned()];
            row.extend(levels.iter().map(|(_, _, tuning)| value(tuning)));
            row.push(key.values());
            rows.push(row);
        }
        let work = self.work.as_ref().map(|work| format!("\nwork on the file: {work}"));
        table(&rows) + &work.unwrap_or_default()
    }

    /// What the changed level has now.
    fn sentence(&self) -> String {
        let shown = |path: &Option<PathBuf>| path.as_deref().unwrap_or(Path::new("")).display().to_string();
        let (what, tuning) = match self.level {
            Level::Volume => (format!("volume `{}`", self.volume), &self.volume_tuning),
            Level::Mount => (format!("the mount at {}", shown(&self.dir)), &self.mount_tuning),
            Level::File => (format!("the open file {}", shown(&self.path)), &self.file_tuning),
        };
        if tuning.is_empty() {
            format!("{what} has no settings of its own any more")
        } else {
            format!("{what} has the settings {tuning}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuned(level: Level) -> Tuned {
        let read = |text: &str| text.parse::<Tuning>().expect("it is good");
        Tuned {
            level,
            volume: "main".to_owned(),
            dir: Some("/mnt".into()),
            path: Some("/mnt/disk".into()),
            volume_tuning: read("read-ahead=on"),
            mount_tuning: read("read-ahead=off"),
            file_tuning: read("io-cache.page=4K"),
            effective: read("read-ahead=off io-cache.page=4K"),
            work: None,
        }
    }

    #[test]
    fn names_are_volumes_and_what_has_a_slash_is_a_path() {
        assert!(["/mnt", "./main", "main/", ".", ".."].into_iter().all(is_path));
        assert!(!["main", ".main", "a.b"].into_iter().any(is_path));
    }

    #[test]
    fn a_target_shows_the_levels_that_it_has() {
        let row = |level| {
            let text = tuned(level).table();
            let line = text.lines().find(|line| line.starts_with("  read-ahead ")).expect("its row");
            line.split_whitespace().skip(1).take_while(|word| *word != "auto,").collect::<Vec<_>>().join(" ")
        };
        assert_eq!([Level::Volume, Level::Mount, Level::File].map(row), ["on", "on off off", "on off - off"]);
        let page = |level| tuned(level).document()["settings"]["io-cache.page"].clone();
        assert_eq!(page(Level::Volume)["file"], Value::Null);
        assert_eq!(page(Level::File)["file"], "4K");
        assert_eq!(page(Level::Mount)["effective"], "4K");
        assert!(page(Level::Mount)["takes"].as_str().is_some_and(|takes| takes.contains("4K to 1M")));
    }

    #[test]
    fn a_change_says_what_is_set_now() {
        assert_eq!(tuned(Level::Volume).sentence(), "volume `main` has the settings read-ahead=on");
        let file = Tuned { file_tuning: Tuning::default(), ..tuned(Level::File) };
        assert_eq!(file.sentence(), "the open file /mnt/disk has no settings of its own any more");
    }
}
