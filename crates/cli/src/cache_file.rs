//! The file of a cache on a local disk: makes it, and gives it its size.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use client::CacheOwner;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, Flock, FlockArg, OFlag, fallocate};
use nix::sys::statvfs::fstatvfs;
use types::ClusterId;

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

    /// Makes the file and gives it its size, unless another mount uses it or it is somebody else's. Returns its path.
    /// `None` if no cache was asked for.
    pub(crate) fn prepare(&self, target: &Target) -> anyhow::Result<Option<String>> {
        let Some(dir) = &self.cache_dir else { return Ok(None) };
        let path = self.check(dir)?.join(NAME);
        let cluster = Remote::new(target)?.status()?.map.cluster;
        let file = lock(open(&path)?, &path)?;
        check_owner(&file, &path, cluster)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        resize(&file, &path, self.size())?;
        let path = path.into_os_string().into_string();
        path.map(Some)
            .map_err(|path| problem(format!("{} is not UTF-8", path.display()), "another --cache-dir"))
    }
}

fn open(path: &Path) -> anyhow::Result<File> {
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
            ErrorKind::ReadOnlyFilesystem => "--cache-dir with a directory on a disk that can be written",
            ErrorKind::StorageFull => "--cache-dir with a directory on a disk that has room",
            _ => "--cache-dir with a directory of this user on a local disk",
        };
        problem(what, remedy)
    })?;
    let found = file.metadata()?;
    if !found.is_file() || found.nlink() != 1 {
        let what = format!("{} is not a file, or has another name too", path.display());
        return Err(problem(what, "another --cache-dir"));
    }
    Ok(file)
}

/// Waits for a mount that was just killed.
fn lock(mut file: File, path: &Path) -> anyhow::Result<Flock<File>> {
    let until = Instant::now() + Duration::from_micros(world::LOCK_WAIT_US);
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => return Ok(locked),
            Err((back, Errno::EWOULDBLOCK)) if Instant::now() < until => file = back,
            Err((_, Errno::EWOULDBLOCK)) => {
                let what = format!("the cache {} is in use by another mount", path.display());
                return Err(problem(what, "--cache-dir with another directory: every mount needs its own"));
            }
            Err((_, error)) => return Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
        thread::sleep(Duration::from_micros(world::LOCK_POLL_US));
    }
}

fn check_owner(file: &File, path: &Path, cluster: ClusterId) -> anyhow::Result<()> {
    let mut start = Vec::new();
    file.take(PAGE).read_to_end(&mut start).with_context(|| format!("cannot read {}", path.display()))?;
    let what = match CacheOwner::of(&start) {
        CacheOwner::Nobody => return Ok(()),
        CacheOwner::Cluster(theirs) if theirs == cluster => return Ok(()),
        CacheOwner::Cluster(theirs) => format!("the cache {} belongs to cluster {theirs}", path.display()),
        CacheOwner::Foreign => format!("{} is not a cache of Shoal", path.display()),
    };
    Err(problem(what, "--cache-dir with another directory; or remove this file if nobody needs it"))
}

fn resize(file: &File, path: &Path, size: u64) -> anyhow::Result<()> {
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
        return Err(problem(what, "--cache with a smaller size, or another --cache-dir"));
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
            Err(problem(what, "--cache with a smaller size, or another --cache-dir"))
        }
    }
}
