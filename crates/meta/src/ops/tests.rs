//! Each operation on names and inodes does what Linux expects, once, whole or not at all: it runs on every storage
//! engine, and what is there afterwards is compared.

use types::messages::cluster::OpenInode;
use types::messages::names::*;
use types::{InodeId, Refusal};

use crate::fixture::{Fixture, ROOT, on_all};
use crate::ops;
use crate::state::Change;

#[test]
fn files_come_and_go() {
    on_all(|mut tree| {
        let made = tree.create(ROOT, "a").expect("free");
        assert_eq!(
            (made.kind, made.links, made.mode, made.uid, made.gid),
            (FileKind::File, 1, 0o644, 10, 20)
        );
        assert_eq!((made.mtime, made.ctime, made.size), (tree.now, tree.now, 0));
        assert_eq!(tree.lookup(ROOT, "a"), Ok(made.clone()));
        assert_eq!(tree.getattr(made.inode), Ok(made.clone()));
        assert_eq!(tree.create(ROOT, "a"), Err(Refusal::Exists));
        assert_eq!(tree.lookup(ROOT, "b"), Err(Refusal::NotFound));
        assert_eq!(tree.create(made.inode, "b"), Err(Refusal::NotDirectory));
        assert_eq!(tree.create(InodeId(999), "b"), Err(Refusal::Stale));
        assert_eq!(tree.create(ROOT, &"n".repeat(256)), Err(Refusal::NameTooLong));
        assert_eq!(tree.create(ROOT, "x/y"), Err(Refusal::Invalid));
        let root = tree.getattr(ROOT).expect("root");
        assert_eq!((root.mtime, root.size, root.links), (made.mtime, 1, 2));
        assert_eq!(tree.inodes(), 2);

        assert_eq!(tree.rmdir(ROOT, "a"), Err(Refusal::NotDirectory));
        assert_eq!(tree.unlink(ROOT, "a"), Ok(()));
        assert_eq!(tree.getattr(ROOT).expect("root").mtime, tree.now);
        assert_eq!(tree.unlink(ROOT, "a"), Err(Refusal::NotFound));
        assert_eq!(tree.getattr(made.inode), Err(Refusal::Stale));
        assert_eq!(tree.purges(), vec![], "a file without bytes has nothing to purge");
        assert_eq!(tree.inodes(), 1);
    });
}

#[test]
fn special_files_keep_their_device_and_are_never_cut() {
    on_all(|mut tree| {
        let device = Create { kind: FileKind::CharDevice, rdev: 77, ..tree.create_request(ROOT, "null") };
        let caller = device.caller.clone();
        let attr = tree.once(caller, move |txn| ops::create(txn, &device)).expect("free").attr;
        assert_eq!((attr.kind, attr.rdev), (FileKind::CharDevice, 77));
        assert_eq!(tree.truncate(attr.inode, 0), Err(Refusal::Invalid));
        let fifo = Create { kind: FileKind::Fifo, open: true, ..tree.create_request(ROOT, "fifo") };
        let caller = fifo.caller.clone();
        assert_eq!(tree.once(caller, move |txn| ops::create(txn, &fifo)), Err(Refusal::Invalid));
        let directory = Create { kind: FileKind::Directory, ..tree.create_request(ROOT, "d") };
        let caller = directory.caller.clone();
        assert_eq!(tree.once(caller, move |txn| ops::create(txn, &directory)), Err(Refusal::Invalid));
    });
}

#[test]
fn directories_count_their_links() {
    on_all(|mut tree| {
        let a = tree.mkdir(ROOT, "a").expect("free").inode;
        let b = tree.mkdir(a, "b").expect("free").inode;
        tree.create(a, "f").expect("free");
        assert_eq!(tree.getattr(ROOT).expect("root").links, 3);
        assert_eq!(tree.getattr(a).expect("a").links, 3);
        assert_eq!(tree.getattr(b).expect("b").links, 2);
        assert_eq!(tree.rmdir(ROOT, "a"), Err(Refusal::NotEmpty));
        assert_eq!(tree.unlink(ROOT, "a"), Err(Refusal::IsDirectory));
        assert_eq!(tree.readdir(b, 0, 9).expect("b").parent, a);
        tree.rename((a, "b"), (ROOT, "b"), RenameHow::Replace).expect("it moves");
        assert_eq!(tree.readdir(b, 0, 9).expect("b").parent, ROOT);
        assert_eq!(tree.getattr(ROOT).expect("root").links, 4);
        assert_eq!(tree.getattr(a).expect("a").links, 2);
        tree.unlink(a, "f").expect("there");
        tree.rmdir(ROOT, "a").expect("empty");
        assert_eq!(tree.getattr(ROOT).expect("root").links, 3);
        assert_eq!(tree.create(a, "x"), Err(Refusal::Stale));
    });
}

/// Programs make trees that are deeper than any path is long.
#[test]
fn a_directory_is_not_moved_too_deep() {
    let mut tree = Fixture::new(crate::fixture::engines()[0].clone());
    let mut at = ROOT;
    let mut deep = Vec::new();
    for _ in 0..9000 {
        at = tree.mkdir(at, "d").expect("free").inode;
        deep.push(at);
    }
    tree.mkdir(ROOT, "moved").expect("free");
    assert_eq!(tree.rename((ROOT, "moved"), (at, "m"), RenameHow::Replace).err(), Some(Refusal::NameTooLong));
    tree.create(at, "file").expect("free");
    tree.rename((at, "file"), (deep[8999 / 2], "file"), RenameHow::Replace).expect("files may go anywhere");
    tree.rename((ROOT, "moved"), (deep[8000], "m"), RenameHow::Replace).expect("not too deep");
}

#[test]
fn a_directory_hands_down_its_group() {
    on_all(|mut tree| {
        let a = tree.mkdir(ROOT, "a").expect("free").inode;
        let request = SetAttr { mode: Some(0o2755), gid: Some(99), ..tree.setattr_request(a) };
        tree.setattr(request).expect("there");
        let file = tree.create(a, "f").expect("free");
        assert_eq!((file.gid, file.mode), (99, 0o644));
        let directory = tree.mkdir(a, "d").expect("free");
        assert_eq!((directory.gid, directory.mode), (99, 0o2755));
    });
}

#[test]
fn a_link_is_one_more_name_of_the_same_file() {
    on_all(|mut tree| {
        let a = tree.create(ROOT, "a").expect("free");
        let d = tree.mkdir(ROOT, "d").expect("free").inode;
        assert_eq!(tree.link(a.inode, d, "b").map(|attr| (attr.inode, attr.links)), Ok((a.inode, 2)));
        assert_eq!(tree.link(a.inode, d, "b"), Err(Refusal::Exists));
        assert_eq!(tree.link(d, ROOT, "e"), Err(Refusal::NotPermitted));
        tree.unlink(ROOT, "a").expect("there");
        let left = tree.lookup(d, "b").expect("the other name");
        assert_eq!((left.links, left.ctime), (1, tree.now));
        // As many as a file may have.
        let place = (tree.volume, a.inode);
        tree.idempotent(move |txn| {
            let mut inode = txn.inode(place)?;
            inode.links = types::limits::LINKS_MAX;
            txn.put_inode(place, &inode);
            Ok(0u8)
        })
        .expect("there");
        assert_eq!(tree.link(a.inode, ROOT, "more"), Err(Refusal::TooManyLinks));
    });
}

#[test]
fn a_symbolic_link_keeps_its_target() {
    on_all(|mut tree| {
        let link = tree.symlink(ROOT, "s", "over/there").expect("free");
        assert_eq!((link.kind, link.size), (FileKind::Symlink, 10));
        let request = ReadLink { volume: tree.volume, inode: link.inode };
        let target = tree.state.read(|txn| ops::readlink(txn, &request)).map(|reply| reply.target);
        assert_eq!(target, Ok(b"over/there".to_vec()));
        assert_eq!(tree.symlink(ROOT, "t", ""), Err(Refusal::Invalid));
        assert_eq!(tree.symlink(ROOT, "t", &"t".repeat(4096)), Err(Refusal::NameTooLong));
        let request = ReadLink { volume: tree.volume, inode: ROOT };
        assert_eq!(tree.state.read(|txn| ops::readlink(txn, &request)), Err(Refusal::Invalid));
        assert_eq!(tree.truncate(link.inode, 0), Err(Refusal::Invalid));
        tree.unlink(ROOT, "s").expect("there");
        assert_eq!(tree.purges(), vec![]);
    });
}

#[test]
fn a_rename_moves_replaces_or_exchanges_and_else_changes_nothing() {
    on_all(|mut tree| {
        let a = tree.create(ROOT, "a").expect("free");
        let b = tree.create(ROOT, "b").expect("free");
        let d = tree.mkdir(ROOT, "d").expect("free").inode;
        let e = tree.mkdir(d, "e").expect("free").inode;
        let replace = RenameHow::Replace;
        assert_eq!(tree.rename((ROOT, "a"), (ROOT, "b"), RenameHow::NoReplace), Err(Refusal::Exists));
        assert_eq!(tree.rename((ROOT, "a"), (ROOT, "z"), RenameHow::Exchange), Err(Refusal::NotFound));
        assert_eq!(tree.rename((ROOT, "z"), (ROOT, "a"), replace), Err(Refusal::NotFound));
        assert_eq!(tree.rename((ROOT, "a"), (ROOT, "d"), replace), Err(Refusal::IsDirectory));
        assert_eq!(tree.rename((ROOT, "d"), (ROOT, "a"), replace), Err(Refusal::NotDirectory));
        assert_eq!(tree.rename((ROOT, "d"), (e, "x"), replace), Err(Refusal::Invalid));
        assert_eq!(tree.rename((ROOT, "d"), (d, "x"), replace), Err(Refusal::Invalid));
        assert_eq!(tree.rename((ROOT, "d"), (d, "e"), RenameHow::Exchange), Err(Refusal::Invalid));
        assert_eq!(tree.rename((d, "e"), (ROOT, "d"), RenameHow::Exchange), Err(Refusal::Invalid));
        assert_eq!(tree.rename((d, "e"), (ROOT, "d"), replace), Err(Refusal::NotEmpty));
        assert_eq!(tree.rename((ROOT, "a"), (ROOT, ".."), replace), Err(Refusal::Invalid));

        tree.rename((ROOT, "a"), (ROOT, "b"), RenameHow::Exchange).expect("both there");
        assert_eq!(tree.lookup(ROOT, "a").expect("swapped").inode, b.inode);
        assert_eq!(tree.lookup(ROOT, "b").expect("swapped").inode, a.inode);
        tree.rename((d, "e"), (ROOT, "a"), RenameHow::Exchange).expect("both there");
        assert_eq!(tree.getattr(d).expect("d").links, 2);
        assert_eq!(tree.getattr(ROOT).expect("root").links, 4);
        assert_eq!(tree.readdir(e, 0, 9).expect("e").parent, ROOT);
        assert_eq!(tree.lookup(d, "e").expect("swapped").inode, b.inode);

        tree.rename((d, "e"), (ROOT, "b"), replace).expect("a file over a file");
        assert_eq!(tree.getattr(a.inode), Err(Refusal::Stale));
        assert_eq!(tree.lookup(ROOT, "b").map(|attr| (attr.inode, attr.ctime)), Ok((b.inode, tree.now)));
        tree.rename((ROOT, "a"), (ROOT, "d"), replace).expect("an empty directory over an empty one");
        assert_eq!(tree.getattr(ROOT).expect("root").links, 3);
        assert_eq!(tree.names(ROOT), ["b", "d"]);
        assert_eq!(tree.inodes(), 3);
        // Two names of one file.
        tree.link(b.inode, ROOT, "c").expect("free");
        tree.rename((ROOT, "b"), (ROOT, "c"), replace).expect("nothing to do");
        assert_eq!(tree.names(ROOT), ["b", "d", "c"]);
    });
}

#[test]
fn listing_goes_on_where_it_was() {
    on_all(|mut tree| {
        for name in ["a", "b", "c", "d", "e"] {
            tree.create(ROOT, name).expect("free");
        }
        let first = tree.readdir(ROOT, 0, 2).expect("root");
        assert_eq!((first.entries.len(), first.end), (2, false));
        let cookie = first.entries[1].cookie;
        assert!(first.entries[0].cookie >= 3, "1 and 2 are left for `.` and `..`");
        // What was listed goes; what comes, comes last; a name that changes is seen once.
        tree.unlink(ROOT, "b").expect("there");
        tree.rename((ROOT, "c"), (ROOT, "k"), RenameHow::Replace).expect("there");
        tree.create(ROOT, "new").expect("free");
        let rest = tree.readdir(ROOT, cookie, 100).expect("root");
        let names: Vec<_> = rest.entries.iter().map(|entry| entry.name.clone()).collect();
        assert_eq!(names, [&b"k"[..], b"d", b"e", b"new"]);
        assert!(rest.end);
        assert_eq!(rest.entries[0].attr, tree.lookup(ROOT, "k").expect("there"));
        let file = rest.entries[0].attr.inode;
        assert_eq!(tree.readdir(file, 0, 1), Err(Refusal::NotDirectory));
        let nothing = tree.readdir(ROOT, u64::MAX, 1).expect("root");
        assert_eq!((nothing.entries.len(), nothing.end), (0, true));
    });
}

#[test]
fn listing_begins_at_a_name() {
    on_all(|mut tree| {
        for name in ["e", "d", "c", "b", "a"] {
            tree.create(ROOT, name).expect("free");
        }
        let names = |listed: &DirEntries| -> Vec<_> {
            listed.entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect()
        };
        let some = tree.readdir_from(ROOT, "d", 3).expect("root");
        assert_eq!((names(&some), some.end), (vec!["d".into(), "c".into(), "b".into()], false));
        assert_eq!(some.entries[0].attr, tree.lookup(ROOT, "d").expect("there"));
        tree.unlink(ROOT, "c").expect("there");
        let rest = tree.readdir_from(ROOT, "d", 0).expect("one at least");
        assert_eq!((names(&rest), rest.end), (vec!["d".into()], false));
        let rest = tree.readdir_from(ROOT, "b", 9).expect("root");
        assert_eq!((names(&rest), rest.end), (vec!["b".into(), "a".into()], true));
        assert_eq!(tree.readdir_from(ROOT, "c", 9), Err(Refusal::NotFound));
        let file = rest.entries[0].attr.inode;
        assert_eq!(tree.readdir_from(file, "b", 1), Err(Refusal::NotDirectory));
        assert_eq!(tree.readdir_from(ROOT, "", 1), Err(Refusal::Invalid));
    });
}

#[test]
fn attributes_that_were_set_are_shown() {
    on_all(|mut tree| {
        let a = tree.create(ROOT, "a").expect("free").inode;
        let request = SetAttr {
            mode: Some(0o104_755),
            uid: Some(1),
            gid: Some(2),
            atime: Some(3),
            mtime: Some(4),
            ..tree.setattr_request(a)
        };
        let attr = tree.setattr(request).expect("there");
        assert_eq!((attr.mode, attr.uid, attr.gid, attr.atime, attr.mtime), (0o4755, 1, 2, 3, 4));
        assert_eq!(attr.ctime, tree.now);
        assert_eq!(tree.getattr(a), Ok(attr));
        assert_eq!(tree.truncate(ROOT, 0), Err(Refusal::IsDirectory));
        assert_eq!(tree.truncate(a, u64::MAX), Err(Refusal::FileTooLarge));
    });
}

#[test]
fn accesses_count_unless_the_time_is_another_one_by_now() {
    on_all(|mut tree| {
        let made = tree.create(ROOT, "a").expect("free");
        let a = made.inode;
        tree.accessed(a, made.atime, made.atime + 50).expect("taken");
        let read = tree.getattr(a).expect("there");
        assert_eq!(read, Attr { atime: made.atime + 50, ..made.clone() }, "nothing else changes");
        tree.accessed(a, made.atime, made.atime + 60).expect("not taken");
        assert_eq!(tree.getattr(a), Ok(read.clone()), "somebody else has read it since");
        let request = SetAttr { atime: Some(-7), mtime: Some(-8), ..tree.setattr_request(a) };
        let set = tree.setattr(request).expect("there");
        assert_eq!((set.atime, set.mtime), (-7, -8), "before 1970");
        tree.accessed(a, read.atime, made.atime + 70).expect("not taken");
        assert_eq!(tree.getattr(a), Ok(set.clone()), "or has set it");
        // A write counts, whatever was set before.
        tree.grow(&set, 100, true).expect("it grows");
        assert_eq!(tree.getattr(a).map(|attr| attr.mtime), Ok(tree.now));
        tree.unlink(ROOT, "a").expect("there");
        tree.accessed(a, -7, 90).expect("it is gone");
    });
}

#[test]
fn amendment_8_a_cut_file_must_be_zeroed_before_it_grows() {
    on_all(|mut tree| {
        let a = tree.create(ROOT, "a").expect("free");
        tree.grow(&a, 20_000, true).expect("new");
        let cut = tree.truncate(a.inode, 9000).expect("there");
        assert_eq!((cut.size, cut.stale_end, cut.object), (9000, 20_000, a.object));
        assert_eq!(tree.truncate(a.inode, 10_000), Err(Refusal::Busy));
        assert_eq!(tree.grow(&cut, 10_000, true), Err(Refusal::Busy));
        assert_eq!(tree.grow(&cut, 10_000, false), Err(Refusal::Busy));
        let again = tree.truncate(a.inode, 5000).expect("smaller still");
        // Somebody zeroed what the first cut left, not what the second did.
        tree.zeroed(&cut).expect("there");
        assert_eq!(tree.getattr(a.inode), Ok(again.clone()));
        assert_eq!((again.stale_end, again.truncate_seq), (20_000, cut.truncate_seq + 1));
        let mut tree = tree.restart(vec![]);
        assert_eq!(tree.getattr(a.inode), Ok(again.clone()));
        tree.zeroed(&again).expect("there");
        let grown = tree.truncate(a.inode, 30_000).expect("nothing stale");
        assert_eq!((grown.size, grown.stale_end), (30_000, 0));
        let cut = tree.truncate(a.inode, 1).expect("there");
        assert_eq!((cut.size, cut.stale_end), (1, 30_000));

        let empty = tree.truncate(a.inode, 0).expect("there");
        assert_eq!((empty.size, empty.stale_end), (0, 0));
        assert_ne!(empty.object, a.object);
        // 30,000 bytes in stripes of 8 KiB.
        assert_eq!(tree.purges(), vec![a.object]);
        tree.grow(&a, 7, true).expect("ignored");
        assert_eq!(tree.getattr(a.inode).expect("there").size, 0);
        tree.grow(&empty, 7, true).expect("its object");
        assert_eq!(tree.getattr(a.inode).expect("there").size, 7);
    });
}

#[test]
fn a_late_copy_of_a_report_leaves_a_cut_file_as_it_is() {
    on_all(|mut tree| {
        let a = tree.create(ROOT, "a").expect("free");
        tree.grow(&a, 20_000, true).expect("new");
        let cut = tree.truncate(a.inode, 9000).expect("there");
        tree.zeroed(&cut).expect("there");
        let clean = tree.getattr(a.inode).expect("there");
        assert_eq!((clean.size, clean.stale_end), (9000, 0));
        for stable in [true, false] {
            tree.grow(&a, 20_000, stable).expect("answered");
            assert_eq!(tree.getattr(a.inode), Ok(clean.clone()));
        }
        let mut tree = tree.restart(vec![]);
        let update =
            |truncate_seq, size| SizeUpdate { inode: a.inode, truncate_seq, size, mtime: 9, set_time: true };
        let grow = |tree: &mut Fixture, update| {
            let request = UpdateSizes {
                client: tree.client,
                volume: tree.volume,
                sizes: vec![update],
                stable: true,
                noting: false,
            };
            tree.idempotent(move |txn| ops::grow(txn, &request))
        };
        // Whoever is there to hear it learns what the file is now.
        let told = grow(&mut tree, update(a.truncate_seq, 20_000));
        assert_eq!(told, Ok(UpdateSizesReply { noting: false, cut: vec![clean.clone()] }));
        assert_eq!(
            grow(&mut tree, update(clean.truncate_seq, 9100)),
            Ok(UpdateSizesReply { noting: false, cut: vec![] })
        );

        // Cut at the same place again: what was zeroed for the first cut says nothing of the second.
        tree.grow(&clean, 20_000, true).expect("nothing stale");
        let again = tree.truncate(a.inode, 9000).expect("there");
        assert_eq!(again.stale_end, cut.stale_end);
        tree.zeroed(&cut).expect("answered");
        assert_eq!(tree.getattr(a.inode), Ok(again));
    });
}

#[test]
fn a_late_copy_of_a_report_leaves_an_emptied_file_empty() {
    on_all(|mut tree| {
        let a = tree.create(ROOT, "a").expect("free");
        tree.grow(&a, 100, true).expect("new");
        let place = (tree.volume, a.inode);
        let now = tree.now;
        let empty =
            tree.idempotent(move |txn| ops::open_truncated(txn, place, now).map(|attr| AttrReply { attr }));
        let empty = empty.expect("there").attr;
        assert!(empty.truncate_seq > a.truncate_seq && empty.object != a.object);
        tree.grow(&a, 100, true).expect("answered");
        tree.grow(&a, 100, false).expect("answered");
        assert_eq!(tree.getattr(a.inode), Ok(empty));
    });
}

#[test]
fn what_was_zeroed_before_a_client_was_lost_is_not_what_it_left() {
    on_all(|mut tree| {
        let a = tree.create(ROOT, "a").expect("free");
        tree.grow(&a, 9000, true).expect("there");
        let cut = tree.truncate(a.inode, 10).expect("there");
        tree.zeroed(&cut).expect("there");
        tree.grow(&cut, 9000, false).expect("there");
        tree.state.tear_down_client(tree.client);
        let left = tree.getattr(a.inode).expect("there");
        assert_eq!((left.size, left.stale_end), (10, 9000));
        tree.zeroed(&cut).expect("answered");
        assert_eq!(tree.getattr(a.inode), Ok(left));
    });
}

#[test]
fn unstable_growth_is_shown_and_forgotten() {
    on_all(|mut tree| {
        let a = tree.create(ROOT, "a").expect("free");
        tree.grow(&a, 100, false).expect("there");
        let shown = tree.getattr(a.inode).expect("there");
        assert_eq!((shown.size, shown.mtime), (100, tree.now));
        assert_eq!(tree.lookup(ROOT, "a"), Ok(shown.clone()));
        assert_eq!(tree.readdir(ROOT, 0, 9).expect("root").entries[0].attr, shown);
        tree.grow(&a, 60, true).expect("there");
        assert_eq!(tree.getattr(a.inode).expect("there").size, 100);
        // A time that is set stays, although stable growth is told of later.
        let early = SizeUpdate {
            inode: a.inode,
            truncate_seq: a.truncate_seq,
            size: 90,
            mtime: tree.now,
            set_time: false,
        };
        let request = SetAttr { mtime: Some(1), ..tree.setattr_request(a.inode) };
        assert_eq!(tree.setattr(request).map(|attr| (attr.size, attr.mtime)), Ok((100, 1)));
        let late = UpdateSizes {
            client: tree.client,
            volume: tree.volume,
            sizes: vec![early],
            stable: true,
            noting: false,
        };
        tree.idempotent(move |txn| ops::grow(txn, &late)).expect("there");
        assert_eq!(tree.getattr(a.inode).map(|attr| (attr.size, attr.mtime)), Ok((100, 1)));
        let mut tree = tree.restart(vec![]);
        let kept = tree.getattr(a.inode).expect("there");
        assert_eq!((kept.size, kept.mtime), (90, 1));
        // Unless the writer says that it counts, whatever it is and also if nothing has grown.
        let set =
            SizeUpdate { inode: a.inode, truncate_seq: a.truncate_seq, size: 0, mtime: 2, set_time: true };
        let set = UpdateSizes {
            client: tree.client,
            volume: tree.volume,
            sizes: vec![set],
            stable: true,
            noting: false,
        };
        tree.idempotent(move |txn| ops::grow(txn, &set)).expect("there");
        let found = tree.getattr(a.inode).expect("there");
        assert_eq!(found, Attr { mtime: 2, changes: found.changes, ..kept });
    });
}

#[test]
fn a_change_of_mode_before_the_report_of_a_write_keeps_the_time_of_the_write() {
    for stable in [true, false] {
        on_all(|mut tree| {
            let a = tree.create(ROOT, "a").expect("free");
            let written = tree.now + 5;
            let update =
                SizeUpdate { inode: a.inode, truncate_seq: 0, size: 100, mtime: written, set_time: false };
            let request = SetAttr { mode: Some(0o600), ..tree.setattr_request(a.inode) };
            let changed = tree.setattr(request).expect("there").ctime;
            assert!(changed > written);
            let late = UpdateSizes {
                client: tree.client,
                volume: tree.volume,
                sizes: vec![update],
                stable,
                noting: false,
            };
            if stable {
                tree.idempotent(move |txn| ops::grow(txn, &late)).expect("there");
            } else {
                tree.state.effect_only(|txn| ops::grow(txn, &late)).0.expect("there");
            }
            let found = tree.getattr(a.inode).expect("there");
            assert_eq!((found.size, found.mtime, found.ctime), (100, written, changed));
            // So does a change of mode after it.
            let request = SetAttr { mode: Some(0o644), ..tree.setattr_request(a.inode) };
            let found = tree.setattr(request).expect("there");
            assert_eq!((found.size, found.mtime, found.ctime), (100, written, tree.now));
            assert_eq!(tree.getattr(a.inode), Ok(found));
        });
    }
}

#[test]
fn a_file_that_was_written_differs_although_its_size_and_times_do_not() {
    on_all(|mut tree| {
        let a = tree.create(ROOT, "a").expect("free");
        tree.grow(&a, 100, true).expect("new");
        let before = tree.getattr(a.inode).expect("there");
        // The writer's clock is behind that of who wrote before.
        let update =
            SizeUpdate { inode: a.inode, truncate_seq: a.truncate_seq, size: 100, mtime: 1, set_time: false };
        let rewritten = UpdateSizes {
            client: tree.client,
            volume: tree.volume,
            sizes: vec![update],
            stable: true,
            noting: false,
        };
        tree.idempotent(move |txn| ops::grow(txn, &rewritten)).expect("there");
        let after = tree.getattr(a.inode).expect("there");
        assert!(after.changes > before.changes);
        assert_eq!(after, Attr { changes: after.changes, ..before });
        let request = SetAttr { mode: Some(0o600), ..tree.setattr_request(a.inode) };
        assert_eq!(
            tree.setattr(request).map(|attr| attr.changes),
            Ok(after.changes),
            "no bytes were written"
        );
        assert!(tree.truncate(a.inode, 200).expect("there").changes > after.changes);
    });
}

#[test]
fn cutting_counts_unstable_growth() {
    on_all(|mut tree| {
        let a = tree.create(ROOT, "a").expect("free");
        tree.grow(&a, 9000, false).expect("there");
        let cut = tree.truncate(a.inode, 10).expect("there");
        assert_eq!((cut.size, cut.stale_end), (10, 9000));
        assert_eq!(tree.getattr(a.inode), Ok(cut));
        tree.unlink(ROOT, "a").expect("there");
        assert_eq!(tree.purges(), vec![a.object]);
    });
}

#[test]
fn emptying_counts_what_was_sent_and_not_told() {
    on_all(|mut tree| {
        let a = tree.create(ROOT, "a").expect("free");
        let request = SetAttr { size: Some(0), sent_end: 9000, ..tree.setattr_request(a.inode) };
        let empty = tree.setattr(request).expect("there");
        assert_ne!(empty.object, a.object);
        // 9000 bytes in stripes of 8 KiB.
        assert_eq!(tree.purges(), vec![a.object]);
    });
}

#[test]
fn a_lost_client_leaves_its_growth_stale() {
    on_all(|mut tree| {
        let a = tree.create(ROOT, "a").expect("free");
        tree.grow(&a, 50, true).expect("there");
        tree.grow(&a, 9000, false).expect("there");
        tree.state.tear_down_client(tree.client);
        assert_eq!(tree.getattr(a.inode).map(|attr| (attr.size, attr.stale_end)), Ok((50, 9000)));
        assert_eq!(tree.create(ROOT, "b"), Err(Refusal::Fenced));
    });
}

#[test]
fn open_files_outlive_their_names() {
    on_all(|mut tree| {
        let a = tree.create_open(ROOT, "a").expect("free");
        tree.grow(&a, 10, true).expect("there");
        tree.unlink(ROOT, "a").expect("there");
        assert_eq!(tree.getattr(a.inode).map(|attr| attr.links), Ok(0));
        assert_eq!(tree.link(a.inode, ROOT, "again"), Err(Refusal::NotFound));
        // The service restarts; while its client is away, it keeps the file.
        let tree = tree.restart_without_clients();
        assert!(tree.state.volatile.in_grace);
        assert!(tree.getattr(a.inode).is_ok());
        let opens = vec![OpenInode { inode: a.inode, readers: 0, writers: 1, zeroing: None, note: None }];
        let mut tree = tree.restart(opens);
        assert!(!tree.state.volatile.in_grace);
        assert!(tree.getattr(a.inode).is_ok());
        let place = (tree.volume, a.inode);
        tree.state.volatile.opens.release(place, tree.client, true);
        tree.state.drop_orphans(&[place]);
        assert_eq!(tree.getattr(a.inode), Err(Refusal::Stale));
        assert_eq!(tree.purges(), vec![a.object]);

        let b = tree.create_open(ROOT, "b").expect("free");
        tree.grow(&b, 10, true).expect("there");
        tree.unlink(ROOT, "b").expect("there");
        let tree = tree.restart(vec![]);
        assert_eq!(tree.getattr(b.inode), Err(Refusal::Stale), "nobody says that it is open");
    });
}

#[test]
fn a_lost_clients_files_go() {
    on_all(|mut tree| {
        let a = tree.create_open(ROOT, "a").expect("free");
        tree.grow(&a, 10, false).expect("there");
        tree.unlink(ROOT, "a").expect("there");
        tree.state.tear_down_client(tree.client);
        assert_eq!(tree.getattr(a.inode), Err(Refusal::Stale));
        assert_eq!(tree.purges(), vec![a.object]);
    });
}

#[test]
fn repeated_changes_are_done_once() {
    on_all(|mut tree| {
        let request = tree.create_request(ROOT, "a");
        let ask = |tree: &mut Fixture, request: &Create| {
            let request = request.clone();
            tree.once(request.caller.clone(), move |txn| ops::create(txn, &request))
        };
        let first = ask(&mut tree, &request).expect("free");
        assert_eq!(ask(&mut tree, &request), Ok(first.clone()));
        let mut tree = tree.restart(vec![]);
        assert_eq!(ask(&mut tree, &request), Ok(first));
        // Both copies in one batch.
        let twice = tree.create_request(ROOT, "b");
        let changes = [twice.clone(), twice.clone()].map(|request| {
            let caller = request.caller.clone();
            Change::once(&caller, tree.volume, move |txn| ops::create(txn, &request))
        });
        let outcomes = tree.state.run_batch(changes.into());
        assert!(outcomes[0].is_ok());
        assert_eq!(outcomes[0], outcomes[1]);
        // Answers that the client knows are forgotten, in the store too; a copy that comes after that is late.
        for name in ["c", "d", "e", "f", "g"] {
            tree.create(ROOT, name).expect("free");
        }
        assert_eq!(ask(&mut tree, &twice), Err(Refusal::Stale));
        let prefix = crate::keys::done(tree.client, 0)[..9].to_vec();
        let end = crate::keys::after_all(&prefix);
        let kept = tree.state.read(|txn| txn.range(&prefix, &end, 100)).expect("readable");
        assert!(kept.len() <= 4, "{} kept", kept.len());
    });
}

#[test]
fn a_refused_change_leaves_nothing_in_its_batch() {
    on_all(|mut tree| {
        let volume = tree.volume;
        let [a, b] = ["a", "b"].map(|name| tree.create_request(ROOT, name));
        let broken = Change::idempotent(move |txn| {
            txn.put(crate::keys::usage(volume), &77u64);
            txn.new_id()?;
            Err::<u8, _>(Refusal::Invalid)
        });
        let change = |request: Create| {
            Change::once(&request.caller.clone(), volume, move |txn| ops::create(txn, &request))
        };
        let outcomes = tree.state.run_batch(vec![change(a), broken, change(b)]);
        assert_eq!(outcomes[1], Err(Refusal::Invalid));
        assert!(outcomes[0].is_ok() && outcomes[2].is_ok());
        assert_eq!(tree.names(ROOT), ["a", "b"]);
        assert_eq!(tree.inodes(), 3);
    });
}

#[test]
fn a_failed_commit_answers_nobody() {
    let mut tree = Fixture::new(crate::Engine::memory());
    let crate::Engine::Memory(memory) = tree.engine.clone() else { unreachable!("made of memory") };
    tree.create(ROOT, "a").expect("free");
    memory.set_failing(true);
    assert_eq!(tree.create(ROOT, "b"), Err(Refusal::MetaFailed));
    memory.set_failing(false);
    assert_eq!(
        tree.create(ROOT, "c"),
        Err(Refusal::MetaFailed),
        "what is in memory may be ahead of the store"
    );
    let mut tree = tree.restart(vec![]);
    assert_eq!(tree.names(ROOT), ["a"]);
    tree.create(ROOT, "b").expect("free");
}

#[test]
fn deleted_volumes_are_swept() {
    on_all(|mut tree| {
        let d = tree.mkdir(ROOT, "d").expect("free").inode;
        let a = tree.create(d, "a").expect("free");
        tree.grow(&a, 9000, true).expect("there");
        let b = tree.create(d, "b").expect("free");
        assert_eq!(tree.state.volume_delete("home"), Err(Refusal::Busy));
        tree.state.tear_down_client(tree.client);
        assert_eq!(tree.state.volume_delete("nowhere"), Err(Refusal::Unknown));
        tree.state.volume_delete("home").expect("nobody has it");
        assert_eq!(tree.lookup(ROOT, "d"), Err(Refusal::Unknown));
        let mut tree = tree.restart_without_clients();
        while tree.state.sweep_volume(tree.volume).expect("readable") {}
        // The empty file too: a lost client may have written bytes and not reported them.
        assert_eq!(tree.purges(), vec![a.object, b.object]);
        assert_eq!(tree.state.cluster.holders_of(tree.volume).len(), 4);
        assert_eq!(tree.state.forget_if_empty(tree.volume), Ok(false));
        let keys = [a.object, b.object].map(|object| crate::keys::purge(tree.volume, object));
        tree.idempotent(move |txn| {
            for key in keys {
                txn.remove(key);
            }
            txn.effect(crate::volatile::Effect::PurgesDone(2));
            Ok(0u8)
        })
        .expect("there");
        assert_eq!(tree.state.forget_if_empty(tree.volume), Ok(true));
        let left = tree.state.read(|txn| txn.range(&[0x10], &[0xff], 10)).expect("readable");
        assert_eq!(left, vec![]);
        let again = tree.state.volume_create(&crate::fixture::volume_create("home", "2+1"), 1);
        assert_ne!(again.expect("the name is free").id, tree.volume, "ids are not given twice");
    });
}
