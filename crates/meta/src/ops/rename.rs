//! Moves a name, or swaps two.

use types::messages::names::{Rename, RenameHow, Renamed};
use types::{InodeId, Refusal, VolumeId};

use crate::kv::Txn;
use crate::records::{Entry, Inode};
use crate::tree::{Directory, check_meant, check_name, check_not_reserved};

/// A name with its entry and inode.
struct Side<'a> {
    name: &'a [u8],
    entry: Entry,
    inode: Inode,
}

/// One or two directories, each loaded once.
struct Directories {
    from: Directory,
    to: Option<Directory>,
}

impl Directories {
    fn to(&mut self) -> &mut Directory {
        self.to.as_mut().unwrap_or(&mut self.from)
    }

    fn same(&self) -> bool {
        self.to.is_none()
    }

    /// The answer, made when both directories are final.
    fn renamed(&self, directories: bool, moved: InodeId, exchanged: Option<InodeId>) -> Renamed {
        let to = self.to.as_ref().unwrap_or(&self.from);
        Renamed { from: self.from.attr(), to: to.attr(), directories, moved, exchanged }
    }
}

pub(crate) fn rename(txn: &mut Txn<'_>, request: &Rename) -> Result<Renamed, Refusal> {
    let volume = request.volume;
    let (from, entry, inode) = txn.named((volume, request.from), &request.from_name)?;
    let source = Side { name: &request.from_name, entry, inode };
    let to = match request.to == request.from {
        true => None,
        false => Some(txn.directory((volume, request.to))?),
    };
    let mut directories = Directories { from, to };
    check_name(&request.to_name)?;
    check_not_reserved(directories.to().place, &request.to_name)?;
    if request.how == RenameHow::Exchange {
        check_not_reserved(directories.from.place, &request.from_name)?;
    }
    let target = match txn.entry(directories.to(), &request.to_name)? {
        Some(entry) => {
            let inode = txn.inode((volume, entry.inode))?;
            Some(Side { name: &request.to_name, entry, inode })
        }
        None => None,
    };
    check_meant(request.meant, target.as_ref().map(|target| &target.entry))?;
    match (request.how, &target) {
        (RenameHow::NoReplace, Some(_)) => return Err(Refusal::Exists),
        (RenameHow::Exchange, None) => return Err(Refusal::NotFound),
        _ => {}
    }
    refuse_loop(txn, volume, &source, request.to)?;
    // Two names of one file: nothing to do.
    if target.as_ref().is_some_and(|target| target.entry.inode == source.entry.inode) {
        return Ok(directories.renamed(false, source.entry.inode, None));
    }
    let moved = source.entry.inode;
    let is_exchange = request.how == RenameHow::Exchange;
    let exchanged = target.as_ref().filter(|_| is_exchange).map(|target| target.entry.inode);
    let sides = [Some(&source), target.as_ref()];
    let moves_directories = sides.into_iter().flatten().any(|side| side.inode.is_directory());
    match target {
        Some(target) if is_exchange => {
            refuse_loop(txn, volume, &target, request.from)?;
            exchange(txn, &mut directories, source, target, request.now);
        }
        target => {
            if let Some(target) = &target {
                refuse_replace(&source.inode, &target.inode)?;
            }
            replace(txn, &mut directories, source, target, request)?;
        }
    }
    directories.from.inode.touch(request.now);
    directories.to().inode.touch(request.now);
    txn.put_directory(&directories.from);
    if let Some(to) = &directories.to {
        txn.put_directory(to);
    }
    Ok(directories.renamed(moves_directories, moved, exchanged))
}

/// Greatest depth to which a directory can be moved: the walk up to the root is one turn.
const DEPTH_MAX: usize = 8192;

/// Refuses to move a directory into itself: it must not be on the way from its new place up to the root.
fn refuse_loop(txn: &Txn<'_>, volume: VolumeId, moved: &Side<'_>, to: InodeId) -> Result<(), Refusal> {
    if !moved.inode.is_directory() {
        return Ok(());
    }
    let mut at = to;
    for _ in 0..DEPTH_MAX {
        if at == InodeId::ROOT {
            return Ok(());
        }
        if at == moved.entry.inode {
            return Err(Refusal::Invalid);
        }
        at = txn.inode((volume, at))?.parent;
    }
    Err(Refusal::NameTooLong)
}

fn refuse_replace(source: &Inode, target: &Inode) -> Result<(), Refusal> {
    match (source.is_directory(), target.is_directory()) {
        (true, false) => Err(Refusal::NotDirectory),
        (false, true) => Err(Refusal::IsDirectory),
        (true, true) if target.size > 0 => Err(Refusal::NotEmpty),
        _ => Ok(()),
    }
}

fn replace(
    txn: &mut Txn<'_>,
    directories: &mut Directories,
    source: Side<'_>,
    target: Option<Side<'_>>,
    request: &Rename,
) -> Result<(), Refusal> {
    let volume = request.volume;
    txn.remove_entry(&mut directories.from, source.name, &source.entry);
    // A name that stays in its directory, or replaces another, keeps a cookie: a listing in progress shows it once.
    let mut cookie = directories.same().then_some(source.entry.cookie);
    if let Some(target) = target {
        cookie = Some(target.entry.cookie);
        txn.remove_entry(directories.to(), target.name, &target.entry);
        let place = (volume, target.entry.inode);
        if target.inode.is_directory() {
            directories.to().inode.links -= 1;
            txn.forget_inode(place, &target.inode)?;
        } else {
            txn.drop_link(place, target.inode, request.now)?;
        }
    }
    txn.add_entry(directories.to(), &request.to_name, source.entry.inode, cookie);
    let mut inode = source.inode;
    if inode.is_directory() {
        directories.from.inode.links -= 1;
        directories.to().inode.links += 1;
        inode.parent = request.to;
    }
    inode.ctime = request.now;
    txn.put_inode((volume, source.entry.inode), &inode);
    Ok(())
}

fn exchange(txn: &mut Txn<'_>, directories: &mut Directories, source: Side<'_>, target: Side<'_>, now: i64) {
    let (from, to) = (directories.from.place, directories.to().place);
    txn.remove_entry(&mut directories.from, source.name, &source.entry);
    txn.remove_entry(directories.to(), target.name, &target.entry);
    txn.add_entry(&mut directories.from, source.name, target.entry.inode, Some(source.entry.cookie));
    txn.add_entry(directories.to(), target.name, source.entry.inode, Some(target.entry.cookie));
    for (side, parent) in [(source, to), (target, from)] {
        let mut inode = side.inode;
        if inode.is_directory() {
            inode.parent = parent.1;
            if parent == to {
                directories.from.inode.links -= 1;
                directories.to().inode.links += 1;
            } else {
                directories.to().inode.links -= 1;
                directories.from.inode.links += 1;
            }
        }
        inode.ctime = now;
        txn.put_inode((from.0, side.entry.inode), &inode);
    }
}
