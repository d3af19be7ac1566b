//! Bytes that were lost, and bytes of lost clients, are no part of a file: not of its size, and not when it grows.

use types::Refusal;
use types::limits::FILE_SIZE_MAX;

use crate::fixture::{ROOT, on_all};

/// A client has lost the end of what it wrote. Others were shown a part of it.
#[test]
fn an_end_that_was_lost_is_taken_back() {
    on_all(|mut tree| {
        let a = tree.create(ROOT, "a").expect("free");
        let place = (tree.volume, a.inode);
        tree.grow(&a, 1000, true).expect("new");
        tree.grow(&a, 5000, false).expect("shown");
        assert_eq!(tree.retract(&a, 3000, 6000), Err(Refusal::Busy), "it is not open");
        tree.state.volatile.opens.open(place, tree.client, true);
        tree.state.volatile.opens.granted(place, tree.client);
        assert_eq!(tree.retract(&a, 7000, 6000), Err(Refusal::Invalid), "it was never so long");
        let cut = tree.retract(&a, 3000, 6000).expect("alone");
        assert_eq!((cut.size, cut.stale_end, cut.object), (3000, 6000, a.object));
        assert_eq!(
            tree.getattr(a.inode).map(|attr| attr.size),
            Ok(3000),
            "the end that was shown is forgotten"
        );
        tree.grow(&a, 5000, true).expect("a late report changes nothing");
        assert_eq!(tree.retract(&a, 0, 9000), Ok(cut.clone()), "nor does a late copy");
        assert_eq!(tree.grow(&cut, 5000, true), Err(Refusal::Busy), "what bricks have is zeroed first");
        tree.zeroed(&cut).expect("there");
        tree.grow(&cut, 5000, true).expect("nothing stale");
        // What was stored stays, whatever was lost.
        let kept = tree.retract(&cut, 10, 5000).expect("alone");
        assert_eq!(kept.size, 5000);
    });
}

#[test]
fn a_file_keeps_the_time_of_the_bytes_that_it_has_and_an_empty_one_is_of_1970() {
    on_all(|mut tree| {
        let [empty, log] = ["empty", "log"].map(|name| tree.create_open(ROOT, name).expect("free"));
        for file in [&empty, &log] {
            tree.state.volatile.opens.granted((tree.volume, file.inode), tree.client);
        }
        tree.grow(&log, 1000, true).expect("new");
        let before = tree.getattr(log.inode).expect("there");
        let log = tree.retract(&log, 1000, 6000).expect("alone");
        assert_eq!((log.size, log.mtime), (1000, before.mtime), "an append that failed leaves it as it was");
        assert!(log.ctime > before.ctime);
        let empty = tree.retract(&empty, 0, 6000).expect("alone");
        assert_eq!((empty.size, empty.mtime), (0, 0));
        // The next write gives it a time again.
        tree.zeroed(&empty).expect("there");
        tree.grow(&empty, 10, true).expect("nothing stale");
        assert_eq!(tree.getattr(empty.inode).map(|attr| attr.mtime), Ok(tree.now));
    });
}

/// Nobody knows how far the bricks have bytes of a lost writer: it was told of none.
#[test]
fn what_a_lost_client_may_have_written_is_zeroed_before_the_file_grows() {
    on_all(|mut tree| {
        let [a, b] = ["a", "b"].map(|name| tree.create_open(ROOT, name).expect("free"));
        for file in [&a, &b] {
            tree.state.volatile.opens.granted((tree.volume, file.inode), tree.client);
        }
        tree.grow(&a, 100, true).expect("new");
        tree.state.tear_down_client(tree.client);
        let left = tree.getattr(a.inode).expect("there");
        assert_eq!((left.size, left.stale_end), (100, FILE_SIZE_MAX));
        tree.grow(&a, 200, true).expect("a late report changes nothing");
        assert_eq!(tree.getattr(a.inode), Ok(left.clone()));
        assert_eq!(tree.grow(&left, 200, true), Err(Refusal::Busy));
        tree.zeroed(&left).expect("there");
        tree.grow(&left, 200, true).expect("nothing stale");
        // A file without a byte that was told.
        assert_eq!(tree.getattr(b.inode).expect("there").stale_end, FILE_SIZE_MAX);
    });
}
