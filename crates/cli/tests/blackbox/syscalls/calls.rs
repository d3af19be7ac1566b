//! System calls as a program makes them, each with the kernel's own answer, and what a file's attributes are.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;

use nix::errno::Errno;
use nix::libc;

/// What a system call came to.
pub(crate) type SysResult<T = ()> = Result<T, Errno>;

/// An owner or group that a call leaves as it is.
pub(crate) const SAME: u32 = u32::MAX;
/// The same of a time, in place of nanoseconds.
pub(crate) const OMIT: (i64, i64) = (0, libc::UTIME_OMIT);
/// In place of nanoseconds: the present.
pub(crate) const NOW: (i64, i64) = (0, libc::UTIME_NOW);

/// Where a call is told that a path lies.
#[derive(Clone, Copy)]
pub(crate) enum PathArg<'a> {
    Path(&'a str),
    /// Not in the memory of this process.
    Address(usize),
}

impl<'a> From<&'a str> for PathArg<'a> {
    fn from(path: &'a str) -> PathArg<'a> {
        PathArg::Path(path)
    }
}

impl<'a> From<&'a String> for PathArg<'a> {
    fn from(path: &'a String) -> PathArg<'a> {
        PathArg::Path(path)
    }
}

/// One argument of a system call. A path lives as long as it.
enum Word {
    Path(CString),
    Number(usize),
}

impl Word {
    fn value(&self) -> usize {
        match self {
            Word::Path(path) => path.as_ptr() as usize,
            Word::Number(number) => *number,
        }
    }
}

impl<'a, P: Into<PathArg<'a>>> From<P> for Word {
    fn from(place: P) -> Word {
        match place.into() {
            PathArg::Path(path) => Word::Path(CString::new(path).expect("no path has a zero byte")),
            PathArg::Address(address) => Word::Number(address),
        }
    }
}

fn call(number: libc::c_long, words: &[Word]) -> SysResult<usize> {
    let word = |at: usize| words.get(at).map_or(0, Word::value);
    // SAFETY: the kernel checks every address that it is given; what it writes to belongs to the callers below.
    let answer = unsafe { libc::syscall(number, word(0), word(1), word(2), word(3), word(4)) };
    usize::try_from(answer).map_err(|_| Errno::last())
}

/// Relative paths begin at the working directory.
fn here() -> Word {
    Word::Number(libc::AT_FDCWD as usize)
}

fn n(number: impl TryInto<i64>) -> Word {
    Word::Number(number.try_into().unwrap_or_default() as usize)
}

pub(crate) fn chmod<'a>(path: impl Into<PathArg<'a>>, mode: u32) -> SysResult {
    call(libc::SYS_fchmodat, &[here(), path.into().into(), n(mode)]).map(drop)
}

fn chown_with<'a>(path: impl Into<PathArg<'a>>, uid: u32, gid: u32, flags: i32) -> SysResult {
    call(libc::SYS_fchownat, &[here(), path.into().into(), n(uid), n(gid), n(flags)]).map(drop)
}

pub(crate) fn chown<'a>(path: impl Into<PathArg<'a>>, uid: u32, gid: u32) -> SysResult {
    chown_with(path, uid, gid, 0)
}

pub(crate) fn lchown<'a>(path: impl Into<PathArg<'a>>, uid: u32, gid: u32) -> SysResult {
    chown_with(path, uid, gid, libc::AT_SYMLINK_NOFOLLOW)
}

pub(crate) fn link<'a>(from: impl Into<PathArg<'a>>, to: impl Into<PathArg<'a>>) -> SysResult {
    call(libc::SYS_linkat, &[here(), from.into().into(), here(), to.into().into(), n(0)]).map(drop)
}

pub(crate) fn mkdir<'a>(path: impl Into<PathArg<'a>>, mode: u32) -> SysResult {
    call(libc::SYS_mkdirat, &[here(), path.into().into(), n(mode)]).map(drop)
}

/// Of any kind; the device is told of block and character devices only.
pub(crate) fn mknod<'a>(
    path: impl Into<PathArg<'a>>,
    kind: Kind,
    mode: u32,
    device: (u32, u32),
) -> SysResult {
    let device = libc::makedev(device.0, device.1);
    call(libc::SYS_mknodat, &[here(), path.into().into(), n(kind.bits() | mode), n(device)]).map(drop)
}

pub(crate) fn mkfifo<'a>(path: impl Into<PathArg<'a>>, mode: u32) -> SysResult {
    mknod(path, Fifo, mode, (0, 0))
}

pub(crate) fn symlink<'a>(target: impl Into<PathArg<'a>>, path: impl Into<PathArg<'a>>) -> SysResult {
    call(libc::SYS_symlinkat, &[target.into().into(), here(), path.into().into()]).map(drop)
}

pub(crate) fn unlink<'a>(path: impl Into<PathArg<'a>>) -> SysResult {
    call(libc::SYS_unlinkat, &[here(), path.into().into(), n(0)]).map(drop)
}

pub(crate) fn rmdir<'a>(path: impl Into<PathArg<'a>>) -> SysResult {
    call(libc::SYS_unlinkat, &[here(), path.into().into(), n(libc::AT_REMOVEDIR)]).map(drop)
}

pub(crate) fn rename<'a>(from: impl Into<PathArg<'a>>, to: impl Into<PathArg<'a>>) -> SysResult {
    call(libc::SYS_renameat2, &[here(), from.into().into(), here(), to.into().into(), n(0)]).map(drop)
}

pub(crate) fn truncate<'a>(path: impl Into<PathArg<'a>>, length: i64) -> SysResult {
    call(libc::SYS_truncate, &[path.into().into(), n(length)]).map(drop)
}

pub(crate) fn ftruncate(file: &File, length: i64) -> SysResult {
    call(libc::SYS_ftruncate, &[n(file.as_raw_fd()), n(length)]).map(drop)
}

pub(crate) fn open<'a>(path: impl Into<PathArg<'a>>, flags: i32, mode: u32) -> SysResult<File> {
    let words = [here(), path.into().into(), n(flags | libc::O_CLOEXEC), n(mode)];
    let fd = call(libc::SYS_openat, &words)? as i32;
    // SAFETY: the kernel has just given this number to us alone.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Access and modification time, in seconds and nanoseconds.
pub(crate) fn utimensat<'a>(
    path: impl Into<PathArg<'a>>,
    accessed: (i64, i64),
    modified: (i64, i64),
    flags: i32,
) -> SysResult {
    let time = |(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec };
    let times = [time(accessed), time(modified)];
    let words = [here(), path.into().into(), n(times.as_ptr() as usize as i64), n(flags)];
    call(libc::SYS_utimensat, &words).map(drop)
}

/// The error is the function's own answer, not `errno`.
pub(crate) fn posix_fallocate(file: &File, offset: i64, length: i64) -> SysResult {
    // SAFETY: numbers only.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), offset, length) } {
        0 => Ok(()),
        error => Err(Errno::from_raw(error)),
    }
}

pub(crate) fn flock(file: &File, how: i32) -> SysResult {
    call(libc::SYS_flock, &[n(file.as_raw_fd()), n(how)]).map(drop)
}

/// A file's attributes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Attr {
    pub(crate) kind: Kind,
    /// Permissions, with the bits for another user, another group and sticky directories.
    pub(crate) mode: u32,
    pub(crate) links: u64,
    /// User and group.
    pub(crate) owner: (u32, u32),
    /// Bytes.
    pub(crate) size: i64,
    pub(crate) inode: u64,
    /// Seconds and nanoseconds, as all times.
    pub(crate) atime: (i64, i64),
    pub(crate) mtime: (i64, i64),
    pub(crate) ctime: (i64, i64),
    /// Major and minor number.
    pub(crate) device: (u32, u32),
}

impl Attr {
    fn of(file: &libc::stat) -> Attr {
        Attr {
            kind: Kind::of_mode(file.st_mode),
            mode: file.st_mode & 0o7777,
            links: file.st_nlink,
            owner: (file.st_uid, file.st_gid),
            size: file.st_size,
            inode: file.st_ino,
            atime: (file.st_atime, file.st_atime_nsec),
            mtime: (file.st_mtime, file.st_mtime_nsec),
            ctime: (file.st_ctime, file.st_ctime_nsec),
            device: (libc::major(file.st_rdev), libc::minor(file.st_rdev)),
        }
    }
}

fn stat_with<'a>(path: impl Into<PathArg<'a>>, flags: i32) -> SysResult<Attr> {
    // SAFETY: all zeros are a `stat`.
    let mut file: libc::stat = unsafe { std::mem::zeroed() };
    let into = &raw mut file as usize;
    call(libc::SYS_newfstatat, &[here(), path.into().into(), n(into as i64), n(flags)])?;
    Ok(Attr::of(&file))
}

pub(crate) fn stat<'a>(path: impl Into<PathArg<'a>>) -> SysResult<Attr> {
    stat_with(path, 0)
}

pub(crate) fn lstat<'a>(path: impl Into<PathArg<'a>>) -> SysResult<Attr> {
    stat_with(path, libc::AT_SYMLINK_NOFOLLOW)
}

pub(crate) fn fstat(file: &File) -> SysResult<Attr> {
    // SAFETY: all zeros are a `stat`.
    let mut attr: libc::stat = unsafe { std::mem::zeroed() };
    let into = &raw mut attr as usize;
    call(libc::SYS_fstat, &[n(file.as_raw_fd()), n(into as i64)])?;
    Ok(Attr::of(&attr))
}

/// What a name may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular,
    Dir,
    Fifo,
    Block,
    Char,
    Socket,
    Symlink,
}

use Kind::{Block, Char, Dir, Fifo, Regular, Socket, Symlink};

/// Every kind.
pub(crate) const ALL: [Kind; 7] = [Regular, Dir, Fifo, Block, Char, Socket, Symlink];
/// Those that a call which follows symbolic links can end at.
pub(crate) const ENDS: [Kind; 6] = [Regular, Dir, Fifo, Block, Char, Socket];
/// Those that are not directories.
pub(crate) const LEAVES: [Kind; 6] = [Regular, Fifo, Block, Char, Socket, Symlink];
/// Those that are neither directories nor symbolic links.
pub(crate) const FILES: [Kind; 5] = [Regular, Fifo, Block, Char, Socket];

impl Kind {
    fn bits(self) -> u32 {
        match self {
            Regular => libc::S_IFREG,
            Dir => libc::S_IFDIR,
            Fifo => libc::S_IFIFO,
            Block => libc::S_IFBLK,
            Char => libc::S_IFCHR,
            Socket => libc::S_IFSOCK,
            Symlink => libc::S_IFLNK,
        }
    }

    fn of_mode(mode: u32) -> Kind {
        let found = ALL.into_iter().find(|kind| kind.bits() == mode & libc::S_IFMT);
        found.expect("every file is of a kind")
    }

    /// Makes one: 0644, directories 0755.
    pub(crate) fn make(self, path: &str) -> SysResult {
        match self {
            Regular => open(path, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, 0o644).map(drop),
            Dir => mkdir(path, 0o755),
            Fifo => mkfifo(path, 0o644),
            Block | Char => mknod(path, self, 0o644, (1, 2)),
            Socket => UnixListener::bind(path)
                .map(drop)
                .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))),
            Symlink => symlink("test", path),
        }
    }

    pub(crate) fn remove(self, path: &str) -> SysResult {
        if self == Dir { rmdir(path) } else { unlink(path) }
    }
}
