//! An open names the names by which the file was found, and is refused if the file has lost one: operations run on every storage
//! engine.

use types::Refusal;
use types::messages::names::*;

use crate::fixture::{Fixture, ROOT, on_all};
use crate::ops;

fn open_as(tree: &Fixture, attr: &Attr, names: &[&str]) -> Result<(), Refusal> {
    let named = |name: &&str| NamedAs { parent: ROOT, name: (*name).into() };
    let names: Vec<_> = names.iter().map(named).collect();
    let place = (tree.volume, attr.inode);
    tree.state.read(|txn| ops::openable_as(txn, place, &names)).map(|_| ())
}

fn rename(tree: &mut Fixture, from: &str, to: &str, how: RenameHow) -> Renamed {
    let (caller, volume, now) = (tree.caller(), tree.volume, tree.now);
    let (from_name, to_name, meant) = (from.into(), to.into(), None);
    let request =
        Rename { caller: caller.clone(), volume, from: ROOT, from_name, to: ROOT, to_name, how, meant, now };
    tree.once(caller, move |txn| ops::rename(txn, &request)).expect("it can be renamed")
}

#[test]
fn a_file_is_opened_only_by_names_that_it_has() {
    on_all(|mut tree| {
        let a = tree.create_open(ROOT, "a").expect("free");
        let b = tree.create_open(ROOT, "b").expect("free");
        tree.link(a.inode, ROOT, "c").expect("free");
        assert_eq!(open_as(&tree, &a, &["a", "c"]), Ok(()));
        assert_eq!(open_as(&tree, &a, &[]), Ok(()), "it was found without names");
        assert_eq!(open_as(&tree, &a, &["a", "b"]), Err(Refusal::Stale));

        let told = rename(&mut tree, "a", "b", RenameHow::Exchange);
        assert_eq!((told.moved, told.exchanged), (a.inode, Some(b.inode)));
        assert_eq!(open_as(&tree, &a, &["a", "c"]), Err(Refusal::Stale));
        assert_eq!((open_as(&tree, &a, &["b", "c"]), open_as(&tree, &b, &["a"])), (Ok(()), Ok(())));

        // Open files live on without a name.
        let told = rename(&mut tree, "a", "b", RenameHow::Replace);
        assert_eq!((told.moved, told.exchanged), (b.inode, None));
        tree.unlink(ROOT, "c").expect("there");
        assert_eq!([["b"], ["c"]].map(|names| open_as(&tree, &a, &names)), [Err(Refusal::Stale); 2]);
        assert_eq!((open_as(&tree, &a, &[]), open_as(&tree, &b, &["b"])), (Ok(()), Ok(())));
    });
}
