//! A tree that many programs on two mounts change at random stays whole, also while bricks die: in the manner of
//! fsstress.
//!
//! Nobody knows what another one has just done to a name, so almost every error of a name is fine, and no other is. Bytes
//! tell more: whoever writes at an offset of a file writes what this offset of this file always has. So wherever somebody
//! reads, each byte is that or zero, whatever was written, cut and replaced meanwhile.
//!
//! When all is done both mounts show the same tree, new mounts show it again, link counts are the names that were found,
//! all of it can be removed, and then space and units are what they were.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::libc;
use nix::sys::stat::{Mode, SFlag};

use crate::fixture::{Fixture, Pages, Prng, wait_for, within};
use crate::nemesis::{Plan, is_long, under_nemesis};

/// Programs on each of the two mounts.
const ACTORS: u64 = 4;
/// Most directories above a name.
const DEPTH_MAX: u64 = 2;
/// Directories of one directory, as a rule; files besides.
const NAMES: [u64; 2] = [3, 6];
/// Files are not written beyond.
const LEN_MAX: u64 = 3 << 20;
/// Longest write, in bytes: more than a stripe.
const PIECE_MAX: u64 = 1200 << 10;
/// What a direct write begins and ends at.
const BLOCK: u64 = 4096;
/// Errors that somebody may see who does not know what others do to the same names.
const EXPECTED: [i32; 11] = [
    // A device: mounts open none.
    libc::EACCES,
    libc::ENOENT,
    libc::EEXIST,
    libc::ENOTDIR,
    libc::EISDIR,
    libc::ENOTEMPTY,
    // A directory into itself, and no directory any more.
    libc::EINVAL,
    libc::ELOOP,
    // A pipe that nobody reads.
    libc::ENXIO,
    // A link to a directory.
    libc::EPERM,
    // The other mount has replaced the directory of the name, and again while the kernel looked a second time.
    libc::ESTALE,
];
/// Why nothing is expected of a file that is open.
const OPEN: &str = "an open file works, whatever becomes of its names";

/// What a file has at each offset, if anybody has written there.
fn right(inode: u64, offset: u64) -> u8 {
    let mixed = (inode.rotate_left(32) ^ (offset / 8)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_le_bytes()[(offset % 8) as usize] | 1
}

fn fill(inode: u64, offset: u64, bytes: &mut [u8]) {
    bytes.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = right(inode, at));
}

/// Fails if a byte is neither right nor zero.
fn check(path: &Path, inode: u64, offset: u64, bytes: &[u8]) {
    let wrong = bytes.iter().zip(offset..).find(|(byte, at)| **byte != 0 && **byte != right(inode, *at));
    if let Some((byte, at)) = wrong {
        panic!("{} (inode {inode}): {byte:#x} at {at}, not {:#x}", path.display(), right(inode, at));
    }
}

/// One of the programs.
struct Actor {
    root: PathBuf,
    prng: Prng,
    done: BTreeMap<&'static str, [u64; 2]>,
    slowest: Duration,
}

impl Actor {
    fn new(root: &Path, seed: u64) -> Actor {
        Actor { root: root.to_owned(), prng: Prng::new(seed), done: BTreeMap::new(), slowest: Duration::ZERO }
    }

    /// A name somewhere in the tree, of a directory or of something else.
    fn path(&mut self, directory: bool) -> PathBuf {
        let mut path = self.root.clone();
        for _ in 0..self.prng.below(DEPTH_MAX + 1) {
            path.push(format!("d{}", self.prng.below(NAMES[0])));
        }
        path.push(if directory {
            format!("d{}", self.prng.below(NAMES[0]))
        } else {
            format!("f{}", self.prng.below(NAMES[1]))
        });
        path
    }

    /// Seldom a name that is of the other sort as a rule.
    fn either(&mut self, directory: bool) -> PathBuf {
        let other = self.prng.below(20) == 0;
        self.path(directory != other)
    }

    fn range(&mut self) -> (u64, usize) {
        let most = [100, 5000, 70_000, PIECE_MAX][self.prng.below(4) as usize];
        let len = 1 + self.prng.below(most);
        (self.prng.below(LEN_MAX), len as usize)
    }

    fn step(&mut self) {
        type Act = fn(&mut Actor) -> io::Result<()>;
        const ACTS: [(&str, u64, Act); 26] = [
            ("append", 3, Actor::append),
            ("chmod", 2, Actor::chmod),
            ("chown", 2, Actor::chown),
            ("create", 12, Actor::create),
            ("direct read", 2, Actor::read_direct),
            ("direct write", 4, Actor::write_direct),
            ("exchange", 2, Actor::exchange),
            ("link", 4, Actor::link),
            ("list", 3, Actor::list),
            ("mkdir", 9, Actor::mkdir),
            ("mknod", 2, Actor::mknod),
            ("open and unlink", 3, Actor::open_and_unlink),
            ("read", 6, Actor::read),
            ("readlink", 2, Actor::readlink),
            ("rename", 5, Actor::rename),
            ("rename a directory", 3, Actor::rename_directory),
            ("rename to a new name", 2, Actor::rename_new),
            ("rmdir", 5, Actor::rmdir),
            ("seek", 1, Actor::seek),
            ("stat", 4, Actor::stat),
            ("symlink", 4, Actor::symlink),
            ("sync", 3, Actor::sync),
            ("times", 2, Actor::times),
            ("truncate", 5, Actor::truncate),
            ("unlink", 5, Actor::unlink),
            ("write", 8, Actor::write),
        ];
        let mut at = self.prng.below(ACTS.iter().map(|(_, weight, _)| weight).sum());
        let next = ACTS.iter().find(|(_, weight, _)| {
            let found = at < *weight;
            at = at.saturating_sub(*weight);
            found
        });
        let (name, _, act) = next.expect("the weights are summed up");
        let begun = Instant::now();
        let seen = act(self);
        self.slowest = self.slowest.max(begun.elapsed());
        if let Err(error) = &seen {
            let expected = error.raw_os_error().is_some_and(|number| EXPECTED.contains(&number));
            assert!(expected, "{name}: {error:?}");
        }
        self.done.entry(name).or_default()[usize::from(seen.is_err())] += 1;
    }

    /// A regular file, and its inode. Pipes and devices are left alone.
    fn open(&mut self, create: bool, flags: i32) -> io::Result<(File, u64, PathBuf)> {
        let path = self.path(false);
        let flags = flags | libc::O_NONBLOCK;
        let file =
            OpenOptions::new().read(true).write(true).create(create).custom_flags(flags).open(&path)?;
        let meta = file.metadata().expect(OPEN);
        if !meta.is_file() {
            return Err(io::Error::from_raw_os_error(libc::ENXIO));
        }
        Ok((file, meta.ino(), path))
    }

    fn create(&mut self) -> io::Result<()> {
        let (offset, len) = self.range();
        let (file, inode, _) = self.open(true, 0)?;
        let mut bytes = vec![0; len];
        fill(inode, offset % 100_000, &mut bytes);
        file.write_all_at(&bytes, offset % 100_000).expect(OPEN);
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let (offset, len) = self.range();
        let (file, inode, path) = self.open(false, 0)?;
        let mut bytes = vec![0; len];
        fill(inode, offset, &mut bytes);
        file.write_all_at(&bytes, offset).expect(OPEN);
        // What somebody else has done meanwhile is zeros.
        bytes.fill(0xff);
        let n = file.read_at(&mut bytes, offset).expect(OPEN);
        check(&path, inode, offset, &bytes[..n]);
        Ok(())
    }

    fn write_direct(&mut self) -> io::Result<()> {
        let (file, inode, _) = self.open(true, libc::O_DIRECT)?;
        let mut pages = Pages::new();
        let offset = self.prng.below(LEN_MAX / BLOCK) * BLOCK;
        let len = (1 + self.prng.below(pages.0.len() as u64 / BLOCK)) * BLOCK;
        let bytes = &mut pages.0[..len as usize];
        fill(inode, offset, bytes);
        file.write_all_at(bytes, offset).expect(OPEN);
        Ok(())
    }

    fn append(&mut self) -> io::Result<()> {
        let len = self.range().1;
        let (file, inode, _) = self.open(true, 0)?;
        let offset = file.metadata().expect(OPEN).len();
        let mut bytes = vec![0; len];
        fill(inode, offset, &mut bytes);
        if offset < LEN_MAX {
            file.write_all_at(&bytes, offset).expect(OPEN);
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<()> {
        let (offset, len) = self.range();
        let (file, inode, path) = self.open(false, 0)?;
        let mut bytes = vec![0xff; len];
        let n = file.read_at(&mut bytes, offset).expect(OPEN);
        check(&path, inode, offset, &bytes[..n]);
        Ok(())
    }

    fn read_direct(&mut self) -> io::Result<()> {
        let (file, inode, path) = self.open(false, libc::O_DIRECT)?;
        let mut pages = Pages::new();
        let offset = self.prng.below(LEN_MAX / BLOCK) * BLOCK;
        let n = file.read_at(&mut pages.0, offset).expect(OPEN);
        check(&path, inode, offset, &pages.0[..n]);
        Ok(())
    }

    fn truncate(&mut self) -> io::Result<()> {
        let len = if self.prng.below(3) == 0 { 0 } else { self.prng.below(LEN_MAX) };
        self.open(false, 0)?.0.set_len(len).expect(OPEN);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let data = self.prng.below(2) == 0;
        let file = self.open(false, 0)?.0;
        if data { file.sync_data() } else { file.sync_all() }.expect(OPEN);
        Ok(())
    }

    /// What has no name any more is written, read, cut and synced all the same.
    fn open_and_unlink(&mut self) -> io::Result<()> {
        let (offset, len) = self.range();
        let (file, inode, path) = self.open(true, 0)?;
        fs::remove_file(&path)?;
        let mut bytes = vec![0; len];
        fill(inode, offset, &mut bytes);
        file.write_all_at(&bytes, offset).expect(OPEN);
        file.sync_data().expect(OPEN);
        bytes.fill(0xff);
        let n = file.read_at(&mut bytes, offset).expect(OPEN);
        check(&path, inode, offset, &bytes[..n]);
        file.set_len(offset / 2).expect(OPEN);
        assert_eq!(file.metadata().expect(OPEN).ino(), inode, "a file without a name");
        Ok(())
    }

    fn chmod(&mut self) -> io::Result<()> {
        let (path, mode) = (self.either(false), self.prng.below(0o10000) as u32 | 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
    }

    fn chown(&mut self) -> io::Result<()> {
        let (path, owner) = (self.either(false), self.prng.below(3) as u32);
        std::os::unix::fs::lchown(&path, Some(owner), Some(owner))
    }

    fn times(&mut self) -> io::Result<()> {
        let time = Duration::from_millis(self.prng.below(1 << 40));
        let file = self.open(false, 0)?.0;
        file.set_modified(std::time::UNIX_EPOCH + time).expect(OPEN);
        Ok(())
    }

    fn mkdir(&mut self) -> io::Result<()> {
        fs::create_dir(self.path(true))
    }

    fn rmdir(&mut self) -> io::Result<()> {
        fs::remove_dir(self.either(true))
    }

    fn unlink(&mut self) -> io::Result<()> {
        fs::remove_file(self.either(false))
    }

    fn mknod(&mut self) -> io::Result<()> {
        let path = self.path(false);
        let kind = [SFlag::S_IFIFO, SFlag::S_IFCHR, SFlag::S_IFSOCK][self.prng.below(3) as usize];
        Ok(nix::sys::stat::mknod(&path, kind, Mode::S_IRWXU, libc::makedev(1, 3))?)
    }

    fn link(&mut self) -> io::Result<()> {
        fs::hard_link(self.either(false), self.path(false))
    }

    fn symlink(&mut self) -> io::Result<()> {
        let target = format!("f{}", self.prng.below(NAMES[1]));
        symlink(target, self.path(false))
    }

    fn readlink(&mut self) -> io::Result<()> {
        fs::read_link(self.path(false)).map(drop)
    }

    fn rename(&mut self) -> io::Result<()> {
        fs::rename(self.either(false), self.either(false))
    }

    fn rename_directory(&mut self) -> io::Result<()> {
        fs::rename(self.path(true), self.path(true))
    }

    fn rename_new(&mut self) -> io::Result<()> {
        let directory = self.prng.below(4) == 0;
        let (from, to) = (self.path(directory), self.path(directory));
        Ok(renameat2(AT_FDCWD, &from, AT_FDCWD, &to, RenameFlags::RENAME_NOREPLACE)?)
    }

    fn exchange(&mut self) -> io::Result<()> {
        let (from, to) = (self.either(false), self.either(true));
        Ok(renameat2(AT_FDCWD, &from, AT_FDCWD, &to, RenameFlags::RENAME_EXCHANGE)?)
    }

    fn stat(&mut self) -> io::Result<()> {
        self.either(false).symlink_metadata().map(drop)
    }

    /// Names may go while they are listed; what is listed has a name and a kind.
    fn list(&mut self) -> io::Result<()> {
        for entry in fs::read_dir(self.path(true))? {
            let entry = entry?;
            assert!(!entry.file_name().is_empty());
            entry.file_type()?;
        }
        Ok(())
    }

    fn seek(&mut self) -> io::Result<()> {
        let file = self.open(false, 0)?.0;
        for whence in [libc::SEEK_DATA, libc::SEEK_HOLE] {
            // SAFETY: numbers only.
            let at = unsafe { libc::lseek(file.as_raw_fd(), 0, whence) };
            assert!(at <= (LEN_MAX + PIECE_MAX) as i64, "a place beyond every file");
        }
        Ok(())
    }
}

/// What a name stands for, and what must be the same wherever it is looked at.
#[derive(Debug, PartialEq)]
struct Found {
    inode: u64,
    mode: u32,
    owner: u32,
    links: u64,
    len: u64,
    /// Of a symbolic link.
    target: Option<PathBuf>,
}

/// Everything below a directory. Every byte is looked at.
fn survey(root: &Path) -> BTreeMap<PathBuf, Found> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    let mut wrong = Vec::new();
    while let Some(dir) = open.pop() {
        let parent = fs::metadata(&dir).expect("a directory").ino();
        let mut subdirectories = 0;
        for entry in fs::read_dir(&dir).expect("a directory can be listed") {
            let path = entry.expect("an entry").path();
            let meta = path.symlink_metadata().expect("what is listed is there");
            if meta.is_dir() {
                subdirectories += 1;
                let above = fs::metadata(path.join("..")).expect("every directory has a parent");
                assert_eq!(above.ino(), parent, "the parent of {}", path.display());
                open.push(path.clone());
            } else if meta.is_file() {
                let bytes = fs::read(&path).expect("a file can be read");
                assert_eq!(bytes.len() as u64, meta.len(), "the length of {}", path.display());
                check(&path, meta.ino(), 0, &bytes);
            }
            let kind = meta.file_type();
            let special = kind.is_fifo() || kind.is_socket() || kind.is_char_device();
            assert!(meta.is_dir() || meta.is_file() || meta.is_symlink() || special, "{}", path.display());
            let what = Found {
                inode: meta.ino(),
                mode: meta.mode(),
                owner: meta.uid(),
                links: meta.nlink(),
                len: if meta.is_dir() { 0 } else { meta.len() },
                target: fs::read_link(&path).ok(),
            };
            let name = path.strip_prefix(root).expect("below the root").to_owned();
            assert!(found.insert(name, what).is_none(), "{} is listed twice", path.display());
        }
        let meta = fs::metadata(&dir).expect("a directory");
        if meta.nlink() != 2 + subdirectories {
            let (links, len) = (meta.nlink(), meta.len());
            let listed = found.keys().filter(|name| root.join(name).parent() == Some(&dir));
            let listed: Vec<_> = listed.filter_map(|name| name.file_name()).collect();
            wrong.push(format!("{}: {links} links, {len} names, listed: {listed:?}", dir.display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "directories whose links are not those of their directories:\n{}",
        wrong.join("\n")
    );
    found
}

/// Every file has as many links as names.
fn check_links(found: &BTreeMap<PathBuf, Found>) {
    let mut names: BTreeMap<u64, Vec<(&PathBuf, &Found)>> = BTreeMap::new();
    for (path, what) in found {
        names.entry(what.inode).or_default().push((path, what));
    }
    for names in names.values().filter(|names| names[0].1.mode & libc::S_IFMT != libc::S_IFDIR) {
        for (path, what) in names {
            assert_eq!(what.links, names.len() as u64, "the links of {}: {names:?}", path.display());
            assert_eq!(*what, names[0].1, "two names of one file");
        }
    }
}

/// What is in use: units and bytes of each brick.
fn in_use(fixture: &Fixture) -> Vec<(u64, u64)> {
    let status = fixture.status();
    let bricks = status["bricks"].as_array().expect("bricks");
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    bricks.iter().map(|b| (number(&b["units"]), number(&b["capacity"]) - number(&b["free"]))).collect()
}

/// Makes everything stable that a mount has.
fn sync_all(mount: &Path) {
    let path = CString::new(mount.as_os_str().as_bytes()).expect("a path");
    let file = File::open(mount).expect("the mount");
    // SAFETY: a file that is open.
    assert_eq!(unsafe { libc::syncfs(file.as_raw_fd()) }, 0, "syncfs of {path:?}");
}

/// Lets a mount's kernel forget what it may believe of names and attributes that another mount has changed: a second.
fn outlast_beliefs() {
    thread::sleep(Duration::from_millis(1200));
}

/// Directories to begin with: most names then have one to be in.
fn plant(root: &Path) {
    for (a, b) in (0..NAMES[0]).flat_map(|a| (0..NAMES[0]).map(move |b| (a, b))) {
        fs::create_dir_all(root.join(format!("d{a}/d{b}"))).expect("directories");
    }
}

fn stress(name: &str, steps: u64, plan: Option<&Plan>) {
    let fixture = Fixture::new(name);
    fixture.up(6, "4+2", "1G");
    let before = in_use(&fixture);
    let mounts = [fixture.mount("mnt-0"), fixture.mount("mnt-1")];
    plant(&mounts[0]);
    let seed = std::env::var("SHOAL_SEED").map_or(1, |text| text.parse().expect("a number"));
    let work = || {
        thread::scope(|scope| {
            let start = |number: u64| {
                let mount = &mounts[(number % 2) as usize];
                scope.spawn(move || {
                    let mut actor = Actor::new(mount, seed * 1000 + number);
                    (0..steps).for_each(|_| actor.step());
                    actor
                })
            };
            let actors: Vec<_> = (0..2 * ACTORS).map(start).collect();
            let join = |actor: thread::ScopedJoinHandle<'_, Actor>| {
                actor.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            actors.into_iter().map(join).collect::<Vec<Actor>>()
        })
    };
    let begun = Instant::now();
    let (actors, faults) =
        within(Duration::from_secs(if is_long() { 7200 } else { 300 }), name, || match plan {
            Some(plan) => under_nemesis(&fixture, plan, seed, work),
            None => (work(), 0),
        });
    report(name, &actors, begun.elapsed(), faults);
    let slowest = actors.iter().map(|actor| actor.slowest).max().expect("there are actors");
    assert!(plan.is_none_or(|plan| slowest < plan.pause_max()), "a call took {slowest:?}");

    mounts.iter().for_each(|mount| sync_all(mount));
    outlast_beliefs();
    let found = survey(&mounts[0]);
    check_links(&found);
    assert_eq!(survey(&mounts[1]), found, "the other mount");
    mounts.iter().for_each(|mount| fixture.umount(mount));
    fixture.verified();
    let mounts = [fixture.mount("mnt-2"), fixture.mount("mnt-3")];
    assert_eq!(survey(&mounts[0]), found, "a new mount");
    remove(&mounts[0]);
    outlast_beliefs();
    assert_eq!(survey(&mounts[1]), BTreeMap::new(), "all of it is removed");
    let back = wait_for(Duration::from_secs(60), || in_use(&fixture) == before);
    assert!(
        back,
        "units and bytes in use were {before:?} and are {:?}: {}",
        in_use(&fixture),
        fixture.status()
    );
    fixture.verified();
}

fn report(name: &str, actors: &[Actor], took: Duration, faults: usize) {
    let mut all: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for (act, [done, refused]) in actors.iter().flat_map(|actor| &actor.done) {
        let sum = all.entry(act).or_default();
        *sum = [sum[0] + done, sum[1] + refused];
    }
    let slowest = actors.iter().map(|actor| actor.slowest).max().unwrap_or_default();
    let sum: u64 = all.values().flatten().sum();
    println!("{name}: {sum} operations in {took:?}; {faults} faults, the slowest took {slowest:?}");
    println!("{name}: done and refused: {all:?}");
    // In short runs chance may leave something out.
    let short = sum < 5_000;
    assert!(short || all.values().all(|[done, _]| *done > 0), "something has never worked: {all:?}");
}

/// `rm -rf` of everything below a directory.
fn remove(root: &Path) {
    for entry in fs::read_dir(root).expect("a listing").flatten() {
        let path = entry.path();
        let is_dir = entry.file_type().expect("a kind").is_dir();
        let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// `SHOAL_STEPS` says another number, of each program.
fn steps() -> u64 {
    let usual = if is_long() { 20_000 } else { 800 };
    std::env::var("SHOAL_STEPS").map_or(usual, |text| text.parse().expect("a number"))
}

#[test]
fn a_tree_that_everybody_changes_stays_whole() {
    stress("tree", steps(), None);
}

#[test]
fn a_tree_that_everybody_changes_stays_whole_while_bricks_die() {
    let victims = (1..=6).map(|brick| format!("b{brick}")).collect();
    let plan = Plan { victims, ..Plan::harsh(6) };
    stress("tree-nemesis", steps(), Some(&plan));
}

/// A kernel that removes or replaces a directory takes the one that it knows by the name for dead. Another mount may have
/// given the name to another directory meanwhile.
#[test]
fn a_directory_lives_on_after_another_one_has_lost_its_old_name() {
    let fixture = Fixture::new("tree-names");
    fixture.up(1, "1+0", "256M");
    let mounts = [fixture.mount("mnt-0"), fixture.mount("mnt-1")];
    type Remove = fn(&Path, &Path) -> io::Result<()>;
    let rmdir: Remove = |name, _| fs::remove_dir(name);
    let replace: Remove = |name, other| fs::rename(other, name);
    for (test, remove) in [("rmdir", rmdir), ("rename", replace)] {
        let there = |mount: usize, name: &str| mounts[mount].join(format!("{test}-{name}"));
        fs::create_dir(there(0, "name")).expect("a directory");
        fs::create_dir(there(0, "name").join("child")).expect("a directory");
        fs::create_dir(there(1, "other")).expect("a directory");
        let inode = fs::metadata(there(1, "name")).expect("seen by the other mount").ino();
        fs::rename(there(0, "name"), there(0, "elsewhere")).expect("moved");
        fs::create_dir(there(0, "name")).expect("another one under its name");
        remove(&there(1, "name"), &there(1, "other")).expect("it is empty");
        let elsewhere = there(1, "elsewhere");
        assert_eq!(fs::metadata(&elsewhere).expect("it lives").ino(), inode, "{test}");
        let names: Vec<_> = fs::read_dir(&elsewhere)
            .expect("a listing")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert_eq!(names, ["child"], "{test}: it lists what is in it");
        fs::create_dir(elsewhere.join("new")).expect("it takes a new name");
    }
}
