//! Starts and ends a mount.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use client::{ClientError, Mount, MountError, MountOptions, Recalled};
use fuser::{BackgroundSession, Config, InitFlags, KernelConfig, MountOption, Session, SessionACL};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use world::World;

use super::gate::Gate;
use super::invalidate::Invalidator;
use super::kernel_cache::KernelCache;
use super::mount_flags::MountFlags;

/// Largest request of the kernel, in bytes: one stripe of the default geometry at 8+2.
const REQUEST_MAX: u32 = 1 << 20;
/// How far the kernel reads ahead, in KiB.
const READ_AHEAD_KB: u32 = 1024;
/// Most background requests of the kernel, for which no program waits.
const BACKGROUND_MAX: u16 = 64;

/// Options of a FUSE mount.
#[derive(Clone, Debug)]
pub struct FuseOptions {
    /// The mount point.
    pub dir: PathBuf,
    /// Threads that serve requests.
    pub threads: usize,
    /// The mount is read-only, until `mount -o remount,rw`.
    pub read_only: bool,
    /// Reads do not change access times, until `mount -o remount,relatime`.
    pub noatime: bool,
}

/// Why a mount failed, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// The cluster refuses this client.
    #[error(transparent)]
    Join(#[from] MountError),
    /// An io_uring or a thread cannot be made.
    #[error("cannot make an io_uring or a thread on this machine: {0}")]
    Machine(#[source] io::Error),
    /// The kernel refuses to mount.
    #[error("the kernel refuses to mount at {dir}: {error}")]
    Kernel {
        /// The mount point.
        dir: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A thread that serves requests has failed.
    #[error("a thread of the mount has failed: {0}")]
    Thread(#[source] io::Error),
    /// Not everything written became stable.
    #[error("bytes that were written did not become stable: {0}")]
    Unstable(#[source] ClientError),
}

/// A volume that is mounted.
pub struct FuseMount {
    dir: PathBuf,
    mount: Arc<Mount>,
    session: BackgroundSession,
    background: JoinHandle<()>,
}

/// Ends a mount from another thread.
pub struct Stopper {
    dir: PathBuf,
    mount: Arc<Mount>,
}

/// Mounts a volume. Returns when it can be used.
pub fn mount(client: MountOptions, options: &FuseOptions) -> Result<FuseMount, FuseError> {
    let world = World::real().map_err(FuseError::Machine)?;
    let volume = client.volume.clone();
    let client = MountOptions { keeps_times: client.exclusive, ..client };
    let mount = world.block_on(Mount::join(&world, client))?;
    let background = start_background(&mount).map_err(FuseError::Machine)?;
    let session = match show(&mount, &volume, options) {
        Ok(session) => session,
        Err(error) => {
            // Nothing has been written yet, so an error here loses nothing.
            let _ = world.block_on(mount.leave(&world));
            let _ = background.join();
            return Err(error);
        }
    };
    if let Err(error) = read_ahead(&options.dir) {
        tracing::warn!("cannot set the kernel's read-ahead, so reads may be slower: {error}");
    }
    Ok(FuseMount { dir: options.dir.clone(), mount, session, background })
}

/// The client's own thread.
fn start_background(mount: &Arc<Mount>) -> io::Result<JoinHandle<()>> {
    let mount = Arc::clone(mount);
    thread::Builder::new().name("client".into()).spawn(move || match World::real() {
        Ok(world) => world.block_on_as("client", mount.background(world.clone())),
        Err(error) => tracing::error!("the mount's background thread cannot make an io_uring: {error}"),
    })
}

fn show(mount: &Arc<Mount>, volume: &str, options: &FuseOptions) -> Result<BackgroundSession, FuseError> {
    let refused = |error| FuseError::Kernel { dir: options.dir.clone(), error };
    let gate = Gate {
        mount: Arc::clone(mount),
        kernel_cache: Arc::new(KernelCache::new(mount.is_exclusive())),
        interrupts: Arc::default(),
        dir_attrs: Arc::default(),
        dir_names: Arc::default(),
        file_names: Arc::default(),
        names_ahead: Arc::default(),
        open_dirs: Arc::default(),
        retries: Arc::default(),
        special: Arc::default(),
        dot_shoal: Arc::default(),
        invalidator: Arc::new(OnceLock::new()),
    };
    let session = Session::new(gate.clone(), &options.dir, &config(volume, options)).map_err(refused)?;
    let invalidator = Invalidator::new(session.notifier()).map_err(FuseError::Machine)?;
    let (kernel_cache, names_ahead) = (Arc::clone(&gate.kernel_cache), Arc::clone(&gate.names_ahead));
    let kernel = invalidator.clone();
    mount.on_recall(Box::new(move |inode, recalled| {
        kernel_cache.recall(inode, recalled);
        names_ahead.file_told(inode);
        match recalled {
            Recalled::To(_) | Recalled::EndLost => kernel.everything(inode),
            // This is called for every open file at once, so do not wait for each.
            Recalled::Lost => drop(kernel.soon(inode)),
        }
    }));
    let flags = MountFlags::new(&options.dir);
    mount.set_atime_filter(Box::new(move |kind| flags.updates_atime(kind)));
    assert!(gate.invalidator.set(invalidator).is_ok(), "a mount begins once");
    session.spawn().map_err(refused)
}

fn config(volume: &str, options: &FuseOptions) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(format!("shoal:{volume}")),
        MountOption::CUSTOM("subtype=shoal".to_owned()),
        MountOption::DefaultPermissions,
    ];
    if options.read_only {
        config.mount_options.push(MountOption::RO);
    }
    if options.noatime {
        config.mount_options.push(MountOption::NoAtime);
    }
    config.acl = SessionACL::All;
    config.n_threads = Some(options.threads.max(2));
    config.clone_fd = true;
    config
}

/// Negotiates capabilities with the kernel.
///
/// # Errors
/// The mount is exclusive and the kernel has no write-back cache.
pub(super) fn agree(config: &mut KernelConfig, exclusive: bool) -> io::Result<()> {
    let wanted = [
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        InitFlags::FUSE_ATOMIC_O_TRUNC,
        InitFlags::FUSE_AUTO_INVAL_DATA,
        InitFlags::FUSE_ASYNC_DIO,
        InitFlags::FUSE_CACHE_SYMLINKS,
        InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        InitFlags::FUSE_EXPORT_SUPPORT,
    ];
    for flag in wanted {
        if config.add_capabilities(flag).is_err() {
            tracing::debug!("the kernel does not know {flag:?}");
        }
    }
    if exclusive && config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE).is_err() {
        return Err(io::Error::other(
            "its FUSE has no write-back cache, which an exclusive mount needs; mount without --exclusive",
        ));
    }
    // The kernel limits both values, so errors do not matter.
    let _ = config.set_max_write(REQUEST_MAX);
    if let Err(granted) = config.set_max_readahead(REQUEST_MAX) {
        let _ = config.set_max_readahead(granted);
    }
    let _ = config.set_max_background(BACKGROUND_MAX);
    Ok(())
}

/// Sets the read-ahead after the mount, when the kernel accepts a larger value than during the negotiation.
fn read_ahead(dir: &Path) -> io::Result<()> {
    let device = fs::metadata(dir)?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), READ_AHEAD_KB.to_string())
}

/// What a thread of the session ended with. A thread that has taken a request at the moment of an unmount gets
/// `ECONNABORTED`, and not the usual `ENODEV`, which the session knows as an end (`fuse_dev_do_read` in the kernel's
/// `fs/fuse/dev.c`).
fn ended(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(Errno::ECONNABORTED as i32) { Ok(()) } else { Err(error) }
}

impl FuseMount {
    /// A handle that ends the mount from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper { dir: self.dir.clone(), mount: Arc::clone(&self.mount) }
    }

    /// Serves until the mount point is unmounted; then makes everything stable.
    ///
    /// # Errors
    /// If something written did not become stable.
    pub fn wait(self) -> Result<(), FuseError> {
        let served = self.session.join().or_else(ended).map_err(FuseError::Thread);
        let world = World::real().map_err(FuseError::Machine)?;
        let left = world.block_on(self.mount.leave(&world)).map_err(FuseError::Unstable);
        if self.background.join().is_err() {
            tracing::error!("the client's background thread has panicked");
        }
        served.and(left)
    }
}

impl Stopper {
    /// Unmounts; [`FuseMount::wait`] does the rest. False if programs still use the mount: then it is detached,
    /// everything written so far is stable, and the process can end.
    pub fn stop(&self) -> bool {
        if umount2(&self.dir, MntFlags::empty()) != Err(Errno::EBUSY) {
            return true;
        }
        tracing::warn!("{} is in use, so it is detached", self.dir.display());
        if let Err(error) = umount2(&self.dir, MntFlags::MNT_DETACH) {
            tracing::warn!("{} cannot be detached: {error}", self.dir.display());
        }
        match World::real() {
            Ok(world) => {
                if let Err(error) = world.block_on(self.mount.leave(&world)) {
                    tracing::error!("bytes that were written did not become stable: {error}");
                }
            }
            Err(error) => tracing::error!("cannot make an io_uring to make the last bytes stable: {error}"),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unmount_amid_a_request_is_an_end() {
        assert!(ended(Errno::ECONNABORTED.into()).is_ok());
        assert!(ended(Errno::EIO.into()).is_err());
        assert!(ended(io::Error::other("Invalid request")).is_err());
    }
}
