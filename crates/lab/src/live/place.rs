//! A lab's directory on the machine, outside of its sandbox, and who has it.
//!
//! ```text
//! /run/shoal/lab/NAME/lock      held by the lab's owner as long as it lives
//! /run/shoal/lab/NAME/control   the socket of its server
//! /run/shoal/lab/NAME/first     pid of the first process of its sandbox
//! /run/shoal/lab/NAME/log       what its processes have said
//! ```
//!
//! The kernel releases the lock however the owner ends. So what is left of an owner that was killed is recognised, and
//! replaced by the next lab of that name.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Result, doing, refused};

/// The directory of all labs.
const ROOT: &str = "/run/shoal/lab";
/// Longest name.
const NAME_MAX: usize = 32;
/// How long somebody who looks whether a lab is up may hold its lock.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    name: String,
    dir: PathBuf,
}

impl Place {
    /// The place of the lab with this name.
    ///
    /// # Errors
    /// The name has other characters than small letters, digits and `-`, or too many.
    pub fn named(name: &str) -> Result<Place> {
        Place::within(Path::new(ROOT), name)
    }

    fn within(root: &Path, name: &str) -> Result<Place> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(fits) {
            let remedy = format!("1 to {NAME_MAX} small letters, digits and `-`");
            return Err(refused(format!("`{name}` is no name of a lab"), remedy));
        }
        Ok(Place { name: name.to_owned(), dir: root.join(name) })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The socket of the lab's server.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("control")
    }

    /// The file with the pid of the first process of the lab's sandbox.
    pub fn first(&self) -> PathBuf {
        self.dir.join("first")
    }

    /// The log of its processes outside of the nodes.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Whether its owner lives.
    pub fn is_up(&self) -> bool {
        let Ok(lock) = File::open(self.dir.join("lock")) else { return false };
        matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// The error for a lab that is not up, with those that are.
    pub fn not_up(&self) -> crate::error::LabError {
        let others: Vec<String> =
            Place::all().into_iter().map(|other| format!("--name {}", other.name)).collect();
        let remedy = if others.is_empty() { "`shoal lab up`".to_owned() } else { others.join(" or ") };
        refused(format!("no lab `{}` is up", self.name), remedy)
    }

    /// The labs that are up.
    pub fn all() -> Vec<Place> {
        let entries = fs::read_dir(ROOT).into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| Place::named(entry.file_name().to_str()?).ok());
        let mut places: Vec<Place> = named.filter(Place::is_up).collect();
        places.sort_by(|a, b| a.name.cmp(&b.name));
        places
    }

    /// Takes the place for a new lab, whose owner is this process.
    ///
    /// # Errors
    /// A lab of this name is up already, or a file cannot be made.
    pub fn claim(&self) -> Result<Claim> {
        let end = Instant::now() + LOOK_PATIENCE;
        loop {
            self.make_dir().map_err(doing(format!("make {}", self.dir.display())))?;
            let path = self.dir.join("lock");
            let opened = File::options().create(true).truncate(false).write(true).open(&path);
            match opened {
                // An owner that has just ended took the directory away.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(doing(format!("make {}", path.display()))(error)),
                Ok(lock) => match lock.try_lock() {
                    Ok(()) if is_at(&lock, &path) => return self.taken(lock),
                    Ok(()) => continue,
                    Err(TryLockError::WouldBlock) if Instant::now() > end => {
                        let what = format!("a lab `{}` is up already", self.name);
                        let other =
                            format!("`shoal lab down --name {}`, or --name for another lab", self.name);
                        return Err(refused(what, other));
                    }
                    Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
                    Err(TryLockError::Error(error)) => {
                        return Err(doing(format!("lock {}", path.display()))(error));
                    }
                },
            }
        }
    }

    /// Makes the directory. Only its owner's user may see what is below that of all labs.
    fn make_dir(&self) -> std::io::Result<()> {
        let all = self.dir.parent().unwrap_or(&self.dir);
        fs::create_dir_all(all.parent().unwrap_or(all))?;
        let mut private = DirBuilder::new();
        private.recursive(true).mode(0o700).create(all)?;
        private.create(&self.dir)
    }

    /// Removes what an owner that was killed has left.
    fn taken(&self, lock: File) -> Result<Claim> {
        for path in [self.socket(), self.first(), self.log()] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(doing(format!("remove {}", path.display()))(error));
                }
                _ => {}
            }
        }
        Ok(Claim { place: self.clone(), _lock: lock })
    }
}

/// Whether a path still leads to a file that was opened there.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(opened), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return false };
    (opened.dev(), opened.ino()) == (there.dev(), there.ino())
}

/// A place that this process has; given up, with everything in it, when dropped.
pub struct Claim {
    place: Place,
    _lock: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.place.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_paths() {
        assert!(["lab", "a-1", "0"].iter().all(|name| Place::named(name).is_ok()));
        let long = "a".repeat(NAME_MAX + 1);
        assert!(["", "..", "a/b", "A", &long].iter().all(|name| Place::named(name).is_err()));
    }

    #[test]
    fn a_place_has_one_owner_and_what_a_dead_one_left_is_replaced() {
        let root = std::env::temp_dir().join(format!("lab-place-{}", std::process::id()));
        let place = Place::within(&root, "mine").expect("a name");
        assert!(!place.is_up());
        let claim = place.claim().expect("nobody has it");
        assert!(place.is_up() && place.claim().is_err());
        drop(claim);
        assert!(!place.is_up() && !root.join("mine").exists());
        // As after SIGKILL: the files are there, the lock is not.
        fs::create_dir_all(root.join("mine")).expect("a directory");
        fs::write(place.socket(), "").expect("a file");
        fs::write(root.join("mine/lock"), "").expect("a file");
        assert!(!place.is_up());
        let claim = place.claim().expect("nobody has it");
        assert!(!place.socket().exists() && place.is_up());
        drop(claim);
        fs::remove_dir_all(&root).expect("it can be removed");
    }
}
