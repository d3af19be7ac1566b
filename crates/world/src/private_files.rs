//! Files and directories that are ours alone: directories are made with mode 0700, files with 0600.
//!
//! What is wider when it is opened is repaired, and the caller is told. Where the mode cannot be changed, because root owns it or
//! because the file system has no modes, it is taken as it is, unless other users may write. What belongs to another user is refused,
//! because that user may have put it there and may still change it. Root may own everything. A symbolic link is followed only if root or
//! this user has made it. A block device keeps its mode and its owner.

use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Mode of a directory that is ours alone.
const DIR_MODE: u32 = 0o700;
/// Mode of a file that is ours alone.
const FILE_MODE: u32 = 0o600;
/// Mode bits of a directory that everybody shares, such as `/tmp`.
const STICKY: u32 = 0o1000;
/// Mode bits that let other users write.
const OTHERS_WRITE: u32 = 0o022;
/// The directory for the files of root's daemons while they run.
const ROOT_RUN_DIR: &str = "/run/shoal";

/// A mode that was too wide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TooWide {
    path: PathBuf,
    before: u32,
    /// What it is now. `None` if it cannot be changed.
    after: Option<u32>,
}

impl fmt::Display for TooWide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooWide { path, before, after } = self;
        let path = path.display();
        match after {
            Some(after) => {
                write!(f, "{path} was open to other users (mode {before:04o}): its mode is now {after:04o}")
            }
            None => {
                write!(f, "{path} is open to other users (mode {before:04o}), and its mode cannot be changed")
            }
        }
    }
}

/// The directory for the files of this user's daemons while they run. It is made if it is not there.
///
/// # Errors
/// It belongs to another user, or cannot be made.
pub fn run_dir() -> io::Result<PathBuf> {
    let dir = run_dir_path();
    make_dir(&dir, |_| true)?;
    Ok(dir)
}

/// Where [`run_dir`] is: `/run/shoal` for root; `shoal` in `XDG_RUNTIME_DIR` or in `/run/user/UID`, if that is this user's; else
/// `shoal-UID` in the directory for temporary files.
fn run_dir_path() -> PathBuf {
    let user = user();
    if user == 0 {
        return PathBuf::from(ROOT_RUN_DIR);
    }
    // `su` passes on the directory of somebody else.
    let is_ours = |dir: &PathBuf| fs::metadata(dir).is_ok_and(|found| found.is_dir() && found.uid() == user);
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(is_ours);
    let session = session.or_else(|| Some(PathBuf::from(format!("/run/user/{user}"))).filter(is_ours));
    session.map_or_else(|| std::env::temp_dir().join(format!("shoal-{user}")), |dir| dir.join("shoal"))
}

/// Makes a directory that was not there.
///
/// # Errors
/// `AlreadyExists`, or it cannot be made.
pub fn make_new_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIR_MODE).create(path)
}

/// Makes a directory, or takes the one that is there. One that is wider than 0700 gets this mode, if `is_ours` holds for the
/// names of all its entries. If others have files in it, its mode stays.
///
/// # Errors
/// `PermissionDenied` if it belongs to another user, or if other users may write in it and it is not ours alone. Or it cannot be
/// made.
pub fn make_dir(path: &Path, is_ours: impl Fn(&str) -> bool) -> io::Result<Option<TooWide>> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    match make_new_dir(path) {
        Ok(()) => return Ok(None),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let path = &followed(path)?;
    let dir =
        File::options().read(true).custom_flags(flags(OFlags::DIRECTORY | OFlags::NOFOLLOW)).open(path)?;
    let found = dir.metadata()?;
    check_owner(path, &found)?;
    if found.mode() & 0o077 == 0 {
        return Ok(None);
    }
    let all_ours = found.mode() & STICKY == 0
        && fs::read_dir(path)?
            .all(|entry| entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(&is_ours)));
    match all_ours {
        true => narrow(&dir, path, &found, DIR_MODE).map(Some),
        false if found.mode() & OTHERS_WRITE == 0 => Ok(None),
        false => Err(others_write(path, &found)),
    }
}

/// Opens a file with these options. A file that they make has mode 0600; one that is wider gets this mode.
///
/// # Errors
/// `PermissionDenied` if it belongs to another user, or is a symbolic link that another user has made. And those of `open`.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<(File, Option<TooWide>)> {
    open_with(path, options, OFlags::empty())
}

/// As [`open`], with further flags.
pub(crate) fn open_with(
    path: &Path,
    options: &mut OpenOptions,
    custom: OFlags,
) -> io::Result<(File, Option<TooWide>)> {
    let path = &followed(path)?;
    let file = options.mode(FILE_MODE).custom_flags(flags(custom | OFlags::NOFOLLOW)).open(path)?;
    let wide = secure(&file, path)?;
    Ok((file, wide))
}

/// Takes the rights of other users away from an open file.
///
/// # Errors
/// `PermissionDenied` if it belongs to another user, or if other users may write in it and that cannot be changed.
pub fn secure(file: &File, path: &Path) -> io::Result<Option<TooWide>> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Ok(None);
    }
    check_owner(path, &found)?;
    if found.mode() & 0o077 == 0 {
        return Ok(None);
    }
    narrow(file, path, &found, FILE_MODE).map(Some)
}

/// Writes a file with mode 0600 in place of what has this name: a reader finds the old bytes or the new ones.
///
/// # Errors
/// It cannot be written.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}.new", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    let _ = fs::remove_file(&unfinished);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&unfinished)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// Refuses what belongs to neither this user nor root. A device belongs to the system.
///
/// # Errors
/// `PermissionDenied`.
pub fn check_owner(path: &Path, found: &Metadata) -> io::Result<()> {
    let (owner, user) = (found.uid(), user());
    if owner == user || owner == 0 || found.file_type().is_block_device() {
        return Ok(());
    }
    Err(denied(format!(
        "{} belongs to user {owner}, and this is user {user}: `chown {user}` it if you trust what is in it",
        path.display()
    )))
}

/// The user with whose rights this process opens files.
pub fn user() -> u32 {
    // SAFETY: it takes nothing, cannot fail, and changes nothing.
    unsafe { libc::geteuid() }
}

/// The path without a symbolic link as its last part.
fn followed(path: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_symlink() => {
            check_owner(path, &found)?;
            fs::canonicalize(path)
        }
        _ => Ok(path.to_owned()),
    }
}

/// Makes a mode narrower, if this user can.
fn narrow(file: &File, path: &Path, found: &Metadata, after: u32) -> io::Result<TooWide> {
    let told = |after| TooWide { path: path.to_owned(), before: found.mode() & 0o7777, after };
    let changed = match found.uid() == user() {
        true => file.set_permissions(Permissions::from_mode(after)),
        false => Err(ErrorKind::PermissionDenied.into()),
    };
    match changed {
        // File systems without modes may also say that it is done.
        Ok(()) if file.metadata()?.mode() & 0o077 == 0 => return Ok(told(Some(after))),
        Err(error) if !is_fixed(error.kind()) => {
            let text = format!("the mode of {} cannot be made {after:04o}: {error}", path.display());
            return Err(io::Error::new(error.kind(), text));
        }
        _ => {}
    }
    if found.mode() & OTHERS_WRITE == 0 { Ok(told(None)) } else { Err(others_write(path, found)) }
}

/// Whether an error says that this user, or this file system, cannot change a mode.
fn is_fixed(error: ErrorKind) -> bool {
    matches!(error, ErrorKind::PermissionDenied | ErrorKind::Unsupported | ErrorKind::ReadOnlyFilesystem)
}

fn others_write(path: &Path, found: &Metadata) -> io::Error {
    let (place, way) = match found.is_dir() {
        true => ("in ", "choose a directory that is for Shoal alone, or "),
        false => ("", ""),
    };
    denied(format!(
        "other users may write {place}{} (mode {:04o}): {way}take their right away with `chmod go-w`",
        path.display(),
        found.mode() & 0o7777
    ))
}

fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

fn denied(what: String) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, what)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// Some user who is not this one.
    const STRANGER: u32 = 65_534;

    struct TempDir(PathBuf);

    impl TempDir {
        fn new(name: &str) -> TempDir {
            let dir = std::env::temp_dir().join(format!("shoal-private-{name}-{}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            TempDir(dir)
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn create(path: &Path) -> io::Result<(File, Option<TooWide>)> {
        open(path, File::options().read(true).write(true).create(true))
    }

    #[test]
    fn what_is_made_is_private_and_what_is_wider_is_repaired() {
        let temp = TempDir::new("modes");
        let (dir, file) = (temp.0.join("dir"), temp.0.join("dir/file"));
        assert_eq!(make_dir(&dir, |_| true).unwrap(), None);
        assert!(create(&file).unwrap().1.is_none());
        assert_eq!((mode(&dir), mode(&file)), (0o700, 0o600));
        chmod(&dir, 0o755);
        chmod(&file, 0o644);
        let said = make_dir(&dir, |_| true).unwrap().expect("it was wider").to_string();
        assert!(said.contains("0755") && said.contains("0700") && said.contains("dir"), "{said}");
        let said = create(&file).unwrap().1.expect("it was wider").to_string();
        assert!(said.contains("0644") && said.contains("0600"), "{said}");
        assert_eq!((mode(&dir), mode(&file)), (0o700, 0o600));
    }

    #[test]
    fn a_directory_with_files_of_others_keeps_its_mode() {
        let temp = TempDir::new("shared");
        let dir = temp.0.join("srv");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("website"), "x").unwrap();
        chmod(&dir, 0o755);
        assert_eq!(make_dir(&dir, |name| name == "meta.redb").unwrap(), None);
        assert_eq!(mode(&dir), 0o755);
        for shared in [0o777, 0o1777, 0o775] {
            chmod(&dir, shared);
            let error = make_dir(&dir, |name| name == "meta.redb").unwrap_err();
            assert!(error.to_string().contains("other users may write"), "{error}");
            assert_eq!(mode(&dir), shared);
        }
        fs::remove_file(dir.join("website")).unwrap();
        chmod(&dir, 0o1777);
        assert!(
            make_dir(&dir, |_| true).unwrap_err().to_string().contains("other users"),
            "it is shared: sticky"
        );
    }

    #[test]
    fn what_belongs_to_somebody_else_is_refused() {
        if user() != 0 {
            return;
        }
        let temp = TempDir::new("owners");
        let (dir, file, link) = (temp.0.join("dir"), temp.0.join("file"), temp.0.join("link"));
        fs::create_dir(&dir).unwrap();
        fs::write(&file, "x").unwrap();
        symlink(temp.0.join("target"), &link).unwrap();
        for path in [&dir, &file] {
            chown(path, Some(STRANGER), None).unwrap();
        }
        std::os::unix::fs::lchown(&link, Some(STRANGER), None).unwrap();
        let refused =
            [make_dir(&dir, |_| true).unwrap_err(), create(&file).unwrap_err(), create(&link).unwrap_err()];
        for error in refused {
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("belongs to user 65534"), "{error}");
        }
        assert!(!temp.0.join("target").exists(), "the link was not followed");
    }

    #[test]
    fn what_root_owns_is_taken_as_it_is_unless_others_may_write() {
        if user() != 0 {
            return;
        }
        let temp = TempDir::new("roots");
        let (dir, file) = (temp.0.join("dir"), temp.0.join("file"));
        fs::create_dir(&dir).unwrap();
        fs::write(&file, "x").unwrap();
        chmod(&dir, 0o755);
        chmod(&file, 0o644);
        let as_stranger = |test: &(dyn Fn() + Sync)| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // SAFETY: the bare system call takes no memory, and changes this thread alone, which ends here.
                    let set = unsafe { libc::syscall(libc::SYS_setresuid, -1, STRANGER, -1) };
                    assert_eq!(set, 0);
                    test();
                });
            });
        };
        as_stranger(&|| {
            let dir = make_dir(&dir, |_| true).unwrap().expect("it is wide").to_string();
            let (_, file) = open(&file, File::options().read(true)).unwrap();
            let file = file.expect("it is wide").to_string();
            assert!(dir.contains("0755") && dir.contains("cannot be changed"), "{dir}");
            assert!(file.contains("0644") && file.contains("cannot be changed"), "{file}");
        });
        assert_eq!((mode(&dir), mode(&file)), (0o755, 0o644));
        chmod(&dir, 0o777);
        chmod(&file, 0o666);
        as_stranger(&|| {
            let refused = [make_dir(&dir, |_| true).unwrap_err(), create(&file).unwrap_err()];
            for error in refused {
                assert_eq!(error.kind(), ErrorKind::PermissionDenied);
                assert!(error.to_string().contains("other users may write"), "{error}");
            }
        });
    }

    #[test]
    fn a_link_of_ours_leads_to_its_file_and_is_replaced_as_a_name() {
        let temp = TempDir::new("links");
        let (target, link) = (temp.0.join("target"), temp.0.join("link"));
        fs::write(&target, "old").unwrap();
        symlink(&target, &link).unwrap();
        create(&link).unwrap();
        assert_eq!(mode(&target), 0o600);
        replace(&link, b"new").unwrap();
        assert_eq!(
            (fs::read(&target).unwrap(), fs::read(&link).unwrap()),
            (b"old".to_vec(), b"new".to_vec())
        );
        assert_eq!(mode(&link), 0o600);
        assert_eq!(fs::read_dir(&temp.0).unwrap().count(), 2, "nothing unfinished is left");
    }
}
