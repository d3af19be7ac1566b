//! Loop devices without a page cache of their own, and a file system on one.
//!
//! A device's file has no name, and the kernel takes the device apart when it is closed for the last time. So nothing is left,
//! however the command ends.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::loop_control;
use crate::error::{LabError, Result, doing};

/// A loop device over a file without a name. Dropping it removes both.
pub struct LoopDevice {
    number: i32,
    /// The device lives as long as somebody has it open.
    _open: File,
}

impl LoopDevice {
    /// Makes one of `bytes` bytes, all of which are written, over a file in `dir`.
    ///
    /// # Errors
    /// There is no space, or the kernel refuses.
    pub fn make(dir: &Path, bytes: u64) -> Result<LoopDevice> {
        let file = filled(dir, bytes).map_err(doing(format!(
            "make a file of {} MiB in {}",
            bytes >> 20,
            dir.display()
        )))?;
        let (number, open) = loop_control::attach(&file)?;
        let device = LoopDevice { number, _open: open };
        if device.attribute("loop/dio")?.trim() != "1" {
            let what = format!("use direct I/O in {}", dir.display());
            return Err(doing(what)("its file system has none"));
        }
        Ok(device)
    }

    /// Its file in `/dev`.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/loop{}", self.number))
    }

    fn attribute_file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/loop{}/{name}", self.number))
    }

    fn attribute(&self, name: &str) -> Result<String> {
        let file = self.attribute_file(name);
        std::fs::read_to_string(&file).map_err(doing(format!("read {}", file.display())))
    }

    /// Sets the scheduler of the kernel in front of it.
    ///
    /// # Errors
    /// The kernel has no such scheduler.
    pub fn schedule_by(&self, scheduler: &str) -> Result<()> {
        let file = self.attribute_file("queue/scheduler");
        std::fs::write(&file, scheduler)
            .map_err(doing(format!("write {scheduler} to {}", file.display())))?;
        let now = self.attribute("queue/scheduler")?;
        if chosen(&now) == Some(scheduler) {
            return Ok(());
        }
        Err(doing(format!("use the scheduler {scheduler}"))(format!("the kernel has {}", now.trim())))
    }
}

/// The scheduler between brackets.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(name, _)| name)
}

/// A file without a name, all of whose bytes have their place on the disk.
fn filled(dir: &Path, bytes: u64) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).custom_flags(libc::O_TMPFILE).open(dir)?;
    let zeros = vec![0; 4 << 20];
    let mut left = bytes;
    while left > 0 {
        let part = left.min(zeros.len() as u64);
        file.write_all(&zeros[..part as usize])?;
        left -= part;
    }
    file.sync_all()?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(file)
}

/// A mounted ext4. Dropping it unmounts it.
pub struct Ext4 {
    dir: PathBuf,
}

impl Ext4 {
    /// Makes one on a device, and mounts it at a directory, which is made.
    ///
    /// # Errors
    /// What `mkfs.ext4` or the kernel said.
    pub fn make(device: &LoopDevice, dir: &Path) -> Result<Ext4> {
        let mut command = Command::new("mkfs.ext4");
        // All is written now, and nothing later, beside what is measured.
        command.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]);
        let made = command.arg(device.path()).output().map_err(doing("start mkfs.ext4"))?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr).trim().to_owned();
            return Err(LabError::Command { command: format!("{command:?}"), said });
        }
        std::fs::create_dir_all(dir).map_err(doing(format!("make {}", dir.display())))?;
        let source = device.path();
        mount(Some(&source), dir, Some("ext4"), MsFlags::MS_NOATIME, None::<&str>)
            .map_err(doing(format!("mount {} at {}", source.display(), dir.display())))?;
        Ok(Ext4 { dir: dir.to_owned() })
    }

    /// Where its files are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = umount2(&self.dir, MntFlags::MNT_DETACH);
    }
}

/// Threads that make files stable.
const STABLE_THREADS: usize = 8;

/// Makes all files below a directory stable, several at a time.
///
/// # Errors
/// A file cannot be made stable.
pub fn make_stable(dir: &Path) -> Result<()> {
    let what = format!("make {} stable", dir.display());
    let mut files = Vec::new();
    list(dir, &mut files).map_err(doing(&*what))?;
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            File::open(file)?.sync_all()?;
        }
        Ok::<_, std::io::Error>(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..STABLE_THREADS).map(|_| scope.spawn(work)).collect();
        let ends = threads.into_iter().map(|thread| match thread.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ends.collect::<std::io::Result<Vec<()>>>()
    })
    .map_err(doing(&*what))?;
    Ok(())
}

fn list(dir: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_scheduler_is_between_brackets() {
        assert_eq!(chosen("none [mq-deadline] kyber bfq\n"), Some("mq-deadline"));
        assert_eq!(chosen("none\n"), None);
    }

    #[test]
    fn every_file_below_a_directory_is_listed() {
        let dir = std::env::temp_dir().join(format!("shoal-stable-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("deep/er")).expect("a directory");
        for name in ["a", "deep/b", "deep/er/c"] {
            std::fs::write(dir.join(name), "x").expect("a file");
        }
        let mut files = Vec::new();
        list(&dir, &mut files).expect("a directory");
        let made = make_stable(&dir);
        std::fs::remove_dir_all(&dir).expect("the directory");
        assert_eq!(files.len(), 3);
        made.expect("a file system");
    }
}
