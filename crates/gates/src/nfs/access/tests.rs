//! An NFS client may do what the mode of a file allows and nothing more: rights are compared case by case, and ACCESS
//! with what the requests themselves allow.

use super::*;
use proptest::prelude::*;
use types::{InodeId, ObjectId};

fn attr(kind: FileKind, mode: u32) -> Attr {
    Attr {
        inode: InodeId(5),
        kind,
        mode,
        links: 1,
        uid: 10,
        gid: 20,
        rdev: 0,
        size: 0,
        atime: 0,
        mtime: 0,
        ctime: 0,
        object: ObjectId(1),
        stale_end: 0,
        truncate_seq: 0,
        changes: 0,
    }
}

fn file(mode: u32) -> Attr {
    attr(FileKind::File, mode)
}

fn user(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller::new(&Credential::Sys(uid, gid, groups.to_vec()), true)
}

fn root() -> Caller {
    Caller::new(&Credential::Sys(0, 0, vec![]), false)
}

#[test]
fn root_is_nobody_unless_told_otherwise() {
    assert_eq!(user(0, 0, &[0, 5]), user(NOBODY, NOBODY, &[]));
    assert_eq!(user(7, 0, &[0, 5]), user(7, NOBODY, &[NOBODY, 5]));
    assert_eq!(Caller::new(&Credential::None, false).uid, NOBODY);
    assert_eq!(root().uid, 0);
}

#[test]
fn the_first_class_that_fits_decides() {
    assert!(!user(10, 20, &[]).may(&file(0o077), READ), "the owner is not one of the others");
    assert!(!user(11, 20, &[]).may(&file(0o707), READ), "nor is a member of the group");
    assert!(user(11, 21, &[20]).may(&file(0o070), READ | WRITE | SEARCH));
    assert!(user(11, 21, &[22]).may(&file(0o001), SEARCH));
    assert!(!user(11, 21, &[22]).may(&file(0o001), SEARCH | READ));
}

#[test]
fn root_may_all_but_run_what_nobody_may() {
    assert!(root().may(&file(0), READ | WRITE));
    assert!(!root().may(&file(0o666), SEARCH));
    assert!(root().may(&file(0o100), SEARCH));
    assert!(root().may(&attr(FileKind::Directory, 0), SEARCH));
}

#[test]
fn files_are_read_by_owners_and_by_whoever_runs_them() {
    assert_eq!(user(10, 20, &[]).check_file(&file(0), READ), Ok(()));
    assert_eq!(user(11, 21, &[]).check_file(&file(0o001), READ), Ok(()));
    assert_eq!(user(11, 21, &[]).check_file(&file(0o001), WRITE), Err(Status::Access));
    assert_eq!(root().check_file(&attr(FileKind::Directory, 0o777), READ), Err(Status::IsDirectory));
    assert_eq!(root().check_file(&attr(FileKind::Fifo, 0o777), READ), Err(Status::Invalid));
}

#[test]
fn a_sticky_directory_keeps_names_for_their_owners() {
    let directory = Attr { uid: 1, ..attr(FileKind::Directory, 0o1777) };
    assert_eq!(user(11, 21, &[]).check_sticky(&directory, &file(0o777)), Err(Status::NotOwner));
    assert_eq!(user(10, 21, &[]).check_sticky(&directory, &file(0)), Ok(()));
    assert_eq!(user(1, 21, &[]).check_sticky(&directory, &file(0)), Ok(()));
    assert_eq!(root().check_sticky(&directory, &file(0)), Ok(()));
    let loose = Attr { mode: 0o777, ..directory };
    assert_eq!(user(11, 21, &[]).check_sticky(&loose, &file(0)), Ok(()));
}

#[test]
fn access_tells_the_truth() {
    let all = 0x3f;
    assert_eq!(user(10, 20, &[]).allowed(&file(0o640), all, false), 0x0d);
    assert_eq!(user(10, 20, &[]).allowed(&file(0o640), all, true), 0x01);
    assert_eq!(user(11, 20, &[]).allowed(&file(0o650), all, false), 0x21);
    assert_eq!(user(11, 21, &[]).allowed(&file(0o640), all, false), 0);
    let directory = attr(FileKind::Directory, 0o751);
    assert_eq!(user(10, 20, &[]).allowed(&directory, all, false), 0x1f);
    assert_eq!(user(11, 20, &[]).allowed(&directory, all, false), 0x03);
    assert_eq!(user(11, 21, &[]).allowed(&directory, all, false), 0x02);
    assert_eq!(user(10, 20, &[]).allowed(&directory, 0x02, false), 0x02);
}

#[test]
fn attributes_belong_to_the_owner() {
    let change = |caller: &Caller, new: NewAttributes| caller.check_change(&file(0o6755), &new);
    let mode = NewAttributes { mode: Some(0o600), ..NewAttributes::default() };
    assert_eq!(change(&user(11, 20, &[]), mode), Err(Status::NotOwner));
    assert_eq!(change(&user(10, 20, &[]), mode), Ok(mode));
    let owner = NewAttributes { uid: Some(11), ..NewAttributes::default() };
    assert_eq!(change(&user(10, 20, &[]), owner), Err(Status::NotOwner));
    assert_eq!(change(&root(), owner), Ok(owner));
    let group = NewAttributes { gid: Some(21), ..NewAttributes::default() };
    assert_eq!(change(&user(10, 20, &[]), group), Err(Status::NotOwner));
    let granted = change(&user(10, 20, &[21]), group).expect("a group of the owner's");
    assert_eq!(granted.mode, Some(0o755), "another group must not inherit rights");
    let given = NewAttributes { mtime: SetTime::To(5), ..NewAttributes::default() };
    assert_eq!(change(&user(11, 20, &[]), given), Err(Status::NotOwner));
    let now = NewAttributes { mtime: SetTime::Now, ..NewAttributes::default() };
    assert_eq!(user(11, 21, &[]).check_change(&file(0o602), &now), Ok(now));
    assert_eq!(user(11, 21, &[]).check_change(&file(0o604), &now), Err(Status::Access));
    let size = NewAttributes { size: Some(0), ..NewAttributes::default() };
    assert_eq!(user(11, 21, &[]).check_change(&file(0o604), &size), Err(Status::Access));
    assert_eq!(user(11, 21, &[]).check_change(&file(0o4612), &size).map(|new| new.mode), Ok(Some(0o612)));
}

#[test]
fn lent_rights_end_with_a_write() {
    assert_eq!(user(11, 21, &[]).mode_after_write(&file(0o6777)), Some(0o777));
    assert_eq!(user(11, 21, &[]).mode_after_write(&file(0o2706)), None);
    assert_eq!(user(11, 21, &[]).mode_after_write(&file(0o644)), None);
    assert_eq!(root().mode_after_write(&file(0o6777)), None);
}

proptest! {
    /// Whatever ACCESS promises is what the checks of the procedures allow.
    #[test]
    fn access_and_the_checks_agree(mode in 0u32..0o10000, uid in 9u32..12, gid in 19u32..22, group in 19u32..22) {
        let caller = user(uid, gid, &[group]);
        let bits = caller.allowed(&file(mode), 0x3f, false);
        if bits & ACCESS_READ != 0 {
            prop_assert_eq!(caller.check_file(&file(mode), READ), Ok(()));
        }
        prop_assert!(bits & ACCESS_MODIFY == 0 || caller.check_file(&file(mode), WRITE) == Ok(()));
        let directory = attr(FileKind::Directory, mode);
        let bits = caller.allowed(&directory, 0x3f, false);
        prop_assert_eq!(bits & ACCESS_LOOKUP != 0, caller.check_directory(&directory, SEARCH).is_ok());
        prop_assert_eq!(bits & ACCESS_DELETE != 0, caller.check_directory(&directory, WRITE | SEARCH).is_ok());
    }
}
