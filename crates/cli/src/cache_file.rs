//! The caches of mounts and bricks on local disks: makes their files, and gives them their sizes.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use cache::{CacheError, CacheFile, CacheOwner};
use clap::Args;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, Flock, FlockArg, OFlag, fallocate};
use nix::sys::statvfs::fstatvfs;
use store::Superblock;
use types::ClusterId;
use world::{DiskMode, World};

use crate::problem::problem;
use crate::remote::{Remote, Target};
use crate::size::Size;

/// The file in the cache directory.
const NAME: &str = "shoal-cache";
/// Its size if nobody says it, and the smallest one, in bytes.
const USUAL: u64 = 1 << 30;
const LEAST: u64 = 64 << 20;
/// What a file takes whole numbers of, in bytes.
const PAGE: u64 = 4096;

/// Options of a cache on a local disk.
#[derive(Args)]
pub(crate) struct CacheArgs {
    /// Keeps bytes that were read in a file in this directory, on a local disk, for later reads and mounts
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Size of this file [default: 1G]
    #[arg(long, value_name = "SIZE", requires = "cache_dir")]
    cache: Option<Size>,
}

impl CacheArgs {
    fn size(&self) -> u64 {
        self.cache.map_or(USUAL, |size| size.0) / PAGE * PAGE
    }

    /// The same options for the daemon.
    pub(crate) fn words(&self) -> anyhow::Result<Vec<OsString>> {
        let Some(dir) = &self.cache_dir else { return Ok(Vec::new()) };
        let dir = self.check(dir)?;
        Ok(vec!["--cache-dir".into(), dir.into(), "--cache".into(), self.size().to_string().into()])
    }

    /// Looks at what can be known without the file. Returns the directory, whatever directory a daemon works in.
    fn check(&self, dir: &Path) -> anyhow::Result<PathBuf> {
        if self.size() < LEAST {
            let what = format!("a cache of {} is too small: the least is {}", Size(self.size()), Size(LEAST));
            return Err(problem(what, "--cache with a larger size, such as 20G"));
        }
        let found = fs::canonicalize(dir).map_err(|error| {
            let what = format!("the cache directory {} cannot be used: {error}", dir.display());
            problem(what, format!("`mkdir -p {}`, on a local disk", dir.display()))
        })?;
        if !found.is_dir() {
            let what = format!("{} is not a directory", dir.display());
            return Err(problem(what, "--cache-dir with a directory on a local disk"));
        }
        Ok(found)
    }

    /// Makes the file and gives it its size, unless another process uses it or it is somebody else's. Returns its path.
    /// `None` if no cache was asked for.
    pub(crate) fn prepare(&self, target: &Target) -> anyhow::Result<Option<String>> {
        let Some(dir) = &self.cache_dir else { return Ok(None) };
        let path = self.check(dir)?.join(NAME);
        let cluster = Remote::new(target)?.status()?.map.cluster;
        let file = lock(open(&path, OF_MOUNT)?, &path, OF_MOUNT)?;
        check_owner(&file, &path, cluster, OF_MOUNT)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        resize(&file, &path, self.size(), OF_MOUNT)?;
        let path = path.into_os_string().into_string();
        path.map(Some)
            .map_err(|path| problem(format!("{} is not UTF-8", path.display()), "another --cache-dir"))
    }
}

/// Options of the cache of a brick.
#[derive(Args)]
pub(crate) struct BrickCacheArgs {
    /// Keeps what clients read in a file or block device on a faster disk, which may be lost at any moment
    #[arg(long, value_name = "PATH")]
    cache: Option<PathBuf>,
    /// Size of this file, which is made if it is not there. A block device is taken whole
    #[arg(long, value_name = "SIZE", requires = "cache")]
    cache_size: Option<Size>,
    /// Makes the file or block device an empty cache; what is on it is lost
    #[arg(long, requires = "cache")]
    format_cache: bool,
}

impl BrickCacheArgs {
    /// Opens the cache, if there should be one, and makes its file if it is not there. A disk that fails is no reason to
    /// refuse it: the brick does without. Also whether the file was made.
    pub(crate) async fn open(
        &self,
        world: &World,
        cluster: ClusterId,
    ) -> anyhow::Result<(Option<CacheFile>, bool)> {
        let Some(path) = &self.cache else { return Ok((None, false)) };
        let name = path.to_str().context("--cache must be UTF-8")?;
        if let Some(size) = self.cache_size
            && size.0 < LEAST
        {
            let what = format!("a cache of {size} is too small: the least is {}", Size(LEAST));
            return Err(problem(what, "--cache-size with a larger size, such as 100G"));
        }
        let found = match fs::metadata(path) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("the cache {name} cannot be used")),
        };
        if self.format_cache && found.is_some() {
            refuse_brick(world, name).await?;
        }
        let is_new = match &found {
            Some(found) if found.file_type().is_block_device() => {
                if self.cache_size.is_some() {
                    let what = format!("{name} is a block device: a cache takes all of it");
                    return Err(problem(what, "without --cache-size, or a partition of the right size"));
                }
                false
            }
            Some(found) if found.is_file() => {
                self.resize_file(path, cluster)?;
                found.len() == 0
            }
            Some(_) => {
                let what = format!("{name} is neither a file nor a block device");
                return Err(problem(what, "--cache with a file on a fast disk, or with a block device"));
            }
            None if self.cache_size.is_some() => {
                self.resize_file(path, cluster)?;
                true
            }
            None => {
                let what = format!("there is no cache {name}");
                let remedy = "--cache-size SIZE to make it; or without --cache, if its disk is gone";
                return Err(problem(what, remedy));
            }
        };
        let file = match self.format_cache {
            true => CacheFile::format(world, name).await,
            false => CacheFile::open(world, name).await,
        };
        let file = file.map_err(explain_brick_cache)?;
        if file.is_blank() && !is_new && !self.format_cache {
            // Many a disk with data begins with zeros.
            return Err(explain_brick_cache(CacheError::Foreign(name.to_owned())));
        }
        Ok((Some(file), found.is_none()))
    }

    /// Removes a file that was made for nothing: the next start would take it for somebody's.
    pub(crate) fn remove_made(&self) {
        if let Some(path) = &self.cache {
            let _ = fs::remove_file(path);
        }
    }

    /// Makes the file if it is not there, and gives it the size that was asked for, unless it is somebody else's.
    fn resize_file(&self, path: &Path, cluster: ClusterId) -> anyhow::Result<()> {
        let Some(size) = self.cache_size else { return Ok(()) };
        let size = size.0 / PAGE * PAGE;
        let file = lock(open(path, OF_BRICK)?, path, OF_BRICK)?;
        if file.metadata()?.len() == size {
            return Ok(());
        }
        if !self.format_cache {
            check_owner(&file, path, cluster, OF_BRICK)?;
        }
        resize(&file, path, size, OF_BRICK)
    }
}

/// A disk that holds a brick does not become a cache by a slip of the finger.
async fn refuse_brick(world: &World, name: &str) -> anyhow::Result<()> {
    let Ok(disk) = world.open_disk_when_free(name, DiskMode::Buffered).await else { return Ok(()) };
    match Superblock::read(&disk).await {
        Ok(found) => {
            let what = format!("{name} is brick {} of cluster {}", found.brick, found.cluster);
            Err(problem(
                what,
                "--cache with another file or block device; to give the brick up, wipe its first MiB",
            ))
        }
        Err(_) => Ok(()),
    }
}

/// What the options are called.
#[derive(Clone, Copy)]
struct Words {
    place: &'static str,
    size: &'static str,
    own: &'static str,
    /// What to do about a file that is somebody else's.
    foreign: &'static str,
    /// Whether a file that begins with zeros counts as somebody else's: the name may be any file's.
    refuses_blank: bool,
}

const OF_MOUNT: Words = Words {
    place: "--cache-dir with another directory",
    size: "--cache",
    own: "--cache-dir with another directory: every mount needs its own",
    foreign: "--cache-dir with another directory; or remove this file if nobody needs it",
    refuses_blank: false,
};
const OF_BRICK: Words = Words {
    place: "--cache with another file or block device",
    size: "--cache-size",
    own: "--cache with another file or block device: every brick needs its own",
    foreign: "--cache with another file or block device; --format-cache makes it a cache, and what is on it is lost",
    refuses_blank: true,
};

/// Says what to do about a cache that a brick cannot use.
pub(crate) fn explain_brick_cache(error: CacheError) -> anyhow::Error {
    let remedy = match &error {
        CacheError::InUse(_) => OF_BRICK.own.to_owned(),
        CacheError::OtherCluster { .. } | CacheError::Foreign(_) => OF_BRICK.foreign.to_owned(),
        CacheError::TooSmall(_) => "--cache with a larger file or block device".to_owned(),
        // A quarter of the memory may be the cache's.
        CacheError::Memory { needed, .. } => {
            format!("--memory {}M, or a smaller cache", needed.saturating_mul(4).div_ceil(1 << 20))
        }
        CacheError::Open(_) | CacheError::Disk(_) => OF_BRICK.place.to_owned(),
    };
    problem(error.to_string(), remedy)
}

fn open(path: &Path, words: Words) -> anyhow::Result<File> {
    // Nobody may lead us to another file.
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits() | OFlag::O_NONBLOCK.bits())
        .open(path);
    let file = opened.map_err(|error| {
        let what = format!("cannot make or open the cache {}: {error}", path.display());
        let remedy = match error.kind() {
            ErrorKind::ReadOnlyFilesystem => "on a disk that can be written",
            ErrorKind::StorageFull => "on a disk that has room",
            _ => "of this user, on a local disk",
        };
        problem(what, format!("{}, {remedy}", words.place))
    })?;
    let found = file.metadata()?;
    if !found.is_file() || found.nlink() != 1 {
        let what = format!("{} is not a file, or has another name too", path.display());
        return Err(problem(what, words.place));
    }
    Ok(file)
}

/// Waits for a process that was just killed.
fn lock(mut file: File, path: &Path, words: Words) -> anyhow::Result<Flock<File>> {
    let until = Instant::now() + Duration::from_micros(world::LOCK_WAIT_US);
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => return Ok(locked),
            Err((back, Errno::EWOULDBLOCK)) if Instant::now() < until => file = back,
            Err((_, Errno::EWOULDBLOCK)) => {
                let what = format!("the cache {} is in use by another process", path.display());
                return Err(problem(what, words.own));
            }
            Err((_, error)) => return Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
        thread::sleep(Duration::from_micros(world::LOCK_POLL_US));
    }
}

/// Refuses a file that is somebody else's.
fn check_owner(file: &File, path: &Path, cluster: ClusterId, words: Words) -> anyhow::Result<()> {
    let mut start = Vec::new();
    file.take(PAGE).read_to_end(&mut start).with_context(|| format!("cannot read {}", path.display()))?;
    let is_blank = !start.is_empty() && start.iter().all(|byte| *byte == 0);
    let what = match CacheOwner::of(&start) {
        CacheOwner::Cluster(theirs) if theirs == cluster => return Ok(()),
        CacheOwner::Cluster(theirs) => format!("the cache {} belongs to cluster {theirs}", path.display()),
        CacheOwner::Nobody if !(is_blank && words.refuses_blank) => return Ok(()),
        CacheOwner::Nobody | CacheOwner::Foreign => format!("{} is not a cache of Shoal", path.display()),
    };
    Err(problem(what, words.foreign))
}

fn resize(file: &File, path: &Path, size: u64, words: Words) -> anyhow::Result<()> {
    let before = file.metadata()?;
    let disk = fstatvfs(file)?;
    let free = (disk.blocks_available() * disk.fragment_size()).saturating_add(before.blocks() * 512);
    if size > free {
        let what = format!(
            "there is no room for a cache of {}: the disk of {} has {}",
            Size(size),
            path.display(),
            Size(free / PAGE * PAGE)
        );
        return Err(problem(what, format!("{} with a smaller size; or {}", words.size, words.place)));
    }
    file.set_len(size).with_context(|| format!("cannot give {} its size", path.display()))?;
    match fallocate(file, FallocateFlags::empty(), 0, size.cast_signed()) {
        Ok(()) => Ok(()),
        Err(Errno::EOPNOTSUPP) => {
            tracing::info!("the file system of {} cannot reserve space for the cache", path.display());
            Ok(())
        }
        Err(error) => {
            file.set_len(before.len().min(size))?;
            let what = format!("cannot reserve {} for the cache {}: {error}", Size(size), path.display());
            Err(problem(what, format!("{} with a smaller size; or {}", words.size, words.place)))
        }
    }
}
