//! The interface for mount(8): `mount -t fuse.shoal`, lines of /etc/fstab, `mount -o remount,ro`.
//!
//! For the type `fuse.shoal`, mount(8) first looks for the program `mount.fuse.shoal`, which may be a link to this
//! program. Otherwise it calls libfuse's `mount.fuse`, if installed, which calls `shoal` (the type without `fuse.`).
//! Both pass source, mount point and `-o OPTIONS`. Without either, mount(8) calls the kernel directly, which is
//! enough for a remount.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};

use crate::mountpoint::{FS_TYPE, Mounted, absolute, mounted_at};
use crate::problem::problem;

/// The program name that mount(8) looks for.
const PROGRAM: &str = "mount.fuse.shoal";
/// Start of the source of a Shoal mount in the kernel's list.
const SOURCE: &str = "shoal:";

const NONE: MsFlags = MsFlags::empty();
/// Mutually exclusive flags. A remount without any of them keeps the present one (`do_mount`, fs/namespace.c).
const ATIMES: MsFlags = MsFlags::MS_NOATIME.union(MsFlags::MS_STRICTATIME).union(MsFlags::MS_RELATIME);

/// Options for which the kernel has a flag: the name, the flags to clear, the flags to set after that.
const FLAGS: [(&str, MsFlags, MsFlags); 15] = [
    ("ro", NONE, MsFlags::MS_RDONLY),
    ("rw", MsFlags::MS_RDONLY, NONE),
    ("nosuid", NONE, MsFlags::MS_NOSUID),
    ("suid", MsFlags::MS_NOSUID, NONE),
    ("nodev", NONE, MsFlags::MS_NODEV),
    ("dev", MsFlags::MS_NODEV, NONE),
    ("noexec", NONE, MsFlags::MS_NOEXEC),
    ("exec", MsFlags::MS_NOEXEC, NONE),
    ("nodiratime", NONE, MsFlags::MS_NODIRATIME),
    ("diratime", MsFlags::MS_NODIRATIME, NONE),
    ("noatime", ATIMES, MsFlags::MS_NOATIME),
    ("relatime", ATIMES, MsFlags::MS_RELATIME),
    ("strictatime", ATIMES, MsFlags::MS_STRICTATIME),
    ("sync", NONE, MsFlags::MS_SYNCHRONOUS),
    ("async", MsFlags::MS_SYNCHRONOUS, NONE),
];
/// Words that a new mount gets by a remount, because the kernel takes them and this program has no option for them.
const BY_REMOUNT: [&str; 4] = ["noexec", "nodiratime", "strictatime", "sync"];
/// Options of `shoal mount` with a value, as mount(8) passes them.
const WITH_VALUE: [&str; 10] =
    ["meta", "key-file", "dir", "memory", "encode", "threads", "log", "cache-dir", "cache", "receive-window"];
/// Options without a value.
const PLAIN: [(&str, &str); 3] =
    [("ro", "--read-only"), ("noatime", "--noatime"), ("exclusive", "--exclusive")];
/// Options for mount(8) itself: when a line of /etc/fstab is used, or by whom. And what every mount of Shoal is anyway: a change
/// of names is durable when it returns (`dirsync`). Ignored
/// here.
const IGNORED: [&str; 30] = [
    "rw",
    "auto",
    "noauto",
    "defaults",
    "nofail",
    "_netdev",
    "relatime",
    "nosuid",
    "nodev",
    "suid",
    "dev",
    "exec",
    "dirsync",
    "async",
    "atime",
    "diratime",
    "norelatime",
    "nostrictatime",
    "nolazytime",
    "noiversion",
    "nomand",
    "silent",
    "loud",
    "user",
    "users",
    "nouser",
    "owner",
    "noowner",
    "group",
    "nogroup",
];
/// Beginnings of such options.
const IGNORED_STARTS: [&str; 4] = ["x-", "X-", "comment=", "user="];

/// A request of mount(8).
#[derive(Debug, PartialEq, Eq)]
struct Request {
    volume: String,
    dir: PathBuf,
    options: Vec<String>,
}

/// What mount(8) wants of this program.
pub(crate) struct Mounting {
    /// The equivalent `shoal` command line; empty if all is done.
    pub(crate) words: Vec<OsString>,
    dir: PathBuf,
    flags: Vec<String>,
}

impl Mounting {
    /// Gives the new mount the kernel's flags that it still lacks.
    pub(crate) fn finish(&self) -> anyhow::Result<()> {
        if self.flags.is_empty() { Ok(()) } else { remount(&self.dir, &self.flags) }
    }
}

/// If mount(8) has called this program: what it wants. A remount is done here.
pub(crate) fn translate(arguments: &[OsString]) -> Option<anyhow::Result<Mounting>> {
    let request = parse(arguments)?;
    let is_remount = request.options.iter().any(|option| option == "remount");
    let words = match is_remount {
        true => remount(&request.dir, &request.options).map(|()| Vec::new()),
        false => command(&request),
    };
    let by_remount = |option: &String| !is_remount && BY_REMOUNT.contains(&option.as_str());
    let flags = request.options.iter().filter(|option| by_remount(option)).cloned().collect();
    Some(words.map(|words| Mounting { words, dir: request.dir, flags }))
}

fn parse(arguments: &[OsString]) -> Option<Request> {
    let name = Path::new(arguments.first()?).file_name()?.to_str()?;
    let mut words = arguments[1..].iter().filter_map(|word| word.to_str());
    let source = words.next()?;
    let volume = match source.strip_prefix(SOURCE) {
        Some(volume) => volume,
        None if name == PROGRAM => source,
        None => return None,
    };
    let dir = PathBuf::from(words.next()?);
    let mut options = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "-o" => options.extend(words.next()?.split(',').map(str::to_owned)),
            "-t" | "-N" => drop(words.next()),
            _ => {}
        }
    }
    Some(Request { volume: volume.to_owned(), dir, options })
}

fn remount(dir: &Path, options: &[String]) -> anyhow::Result<()> {
    let dir = absolute(dir)?;
    let mounted = mounted_at(&dir)?.filter(|mounted| mounted.fs_type == FS_TYPE);
    let Some(Mounted { options: now, .. }) = mounted else {
        return Err(problem(
            format!("{} is not a Shoal mount", dir.display()),
            "`shoal status` lists the mounts",
        ));
    };
    // Include the present flags, because libfuse's mount.fuse does not pass some of them on.
    let flags = MsFlags::MS_REMOUNT | flags(&[&now[..], options].concat());
    mount(None::<&str>, &dir, None::<&str>, flags, None::<&str>).map_err(|error| {
        let what = format!("the kernel refuses to remount {}: {error}", dir.display());
        problem(what, "close the files that are open for writing there, and try again")
    })
}

/// The kernel's flags. If options contradict each other, the last one counts.
fn flags(options: &[String]) -> MsFlags {
    let mut flags = MsFlags::empty();
    for option in options {
        if let Some((_, clears, sets)) = FLAGS.iter().find(|(name, ..)| name == option) {
            flags = flags.difference(*clears).union(*sets);
        }
    }
    flags
}

fn command(request: &Request) -> anyhow::Result<Vec<OsString>> {
    let mut words: Vec<OsString> = vec!["shoal".into(), "mount".into()];
    for option in &request.options {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if let Some((_, word)) = PLAIN.iter().find(|(plain, _)| *plain == option) {
            words.push((*word).into());
        } else if WITH_VALUE.contains(&name) {
            words.extend([format!("--{name}").into(), value.into()]);
        } else if !IGNORED.contains(&option.as_str())
            && !BY_REMOUNT.contains(&option.as_str())
            && !IGNORED_STARTS.iter().any(|start| option.starts_with(start))
        {
            let known = PLAIN.iter().map(|(name, _)| (*name).to_owned());
            let known = known.chain(WITH_VALUE.iter().map(|name| format!("{name}=...")));
            let hint = known.collect::<Vec<_>>().join(", ");
            return Err(problem(format!("`{option}` is no option of a Shoal mount"), hint));
        }
    }
    words.extend([OsString::from("--"), (&request.volume).into(), (&request.dir).into()]);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn text(words: Vec<OsString>) -> String {
        words.join(&OsString::from(" ")).into_string().expect("text")
    }

    #[test]
    fn both_ways_of_being_called() {
        let own = parse(&words("/sbin/mount.fuse.shoal main /mnt -n -o rw,noatime")).expect("its name");
        assert_eq!((own.volume.as_str(), own.dir.as_path()), ("main", Path::new("/mnt")));
        assert_eq!(own.options, ["rw", "noatime"]);
        let libfuse = parse(&words("shoal shoal:main /mnt -o ro,remount")).expect("its source");
        assert_eq!((libfuse.volume.as_str(), libfuse.options.len()), ("main", 2));
        assert_eq!(parse(&words("shoal mount main /mnt")), None);
        assert_eq!(parse(&words("shoal")), None);
    }

    #[test]
    fn options_become_words_of_the_command() {
        let line = |options: &str| {
            let request =
                parse(&words(&format!("mount.fuse.shoal main /mnt -o {options}"))).expect("a request");
            command(&request).map(text).map_err(|error| error.to_string())
        };
        let expected = "shoal mount --read-only --meta 10.0.0.1:7400 --noatime -- main /mnt";
        assert_eq!(
            line("ro,_netdev,meta=10.0.0.1:7400,noatime,x-systemd.automount"),
            Ok(expected.to_owned())
        );
        assert_eq!(line("rw"), Ok("shoal mount -- main /mnt".to_owned()));
        let usual = "defaults,nodiratime,relatime,strictatime,nosuid,nodev,noexec,sync,dirsync,async,exec,user=me,X-mount.mkdir";
        assert_eq!(line(usual), Ok("shoal mount -- main /mnt".to_owned()));
        assert_eq!(line("dir=/srv/c"), Ok("shoal mount --dir /srv/c -- main /mnt".to_owned()));
        assert!(line("rw,compress").is_err_and(|error| error.contains("compress")));
    }

    #[test]
    fn the_last_of_contradicting_options_counts() {
        let options = |text: &str| flags(&text.split(',').map(str::to_owned).collect::<Vec<_>>());
        let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let usual = plain | MsFlags::MS_RELATIME;
        assert_eq!(options("rw,nosuid,nodev,relatime,user_id=0,remount"), usual);
        assert_eq!(options("rw,nosuid,nodev,relatime,remount,ro"), usual | MsFlags::MS_RDONLY);
        assert_eq!(options("ro,rw"), MsFlags::empty());
        assert_eq!(options("relatime,noatime"), MsFlags::MS_NOATIME);
        assert_eq!(options("noatime,relatime"), MsFlags::MS_RELATIME);
        assert_eq!(options("noatime,strictatime"), MsFlags::MS_STRICTATIME);
        assert_eq!(options("noexec,sync,async"), MsFlags::MS_NOEXEC);
    }
}
