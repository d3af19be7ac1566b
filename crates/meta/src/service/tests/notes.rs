//! What a lost client has noted with the bricks is stored before anybody else opens its files, whenever bricks and services die.

use types::messages::notes::SizeNote;

use super::*;

fn note(attr: &Attr, size: u64) -> SizeNote {
    let (inode, truncate_seq) = (attr.inode, attr.truncate_seq);
    SizeNote { inode, truncate_seq, size, mtime: attr.mtime, told: types::ClientSeq(0) }
}

#[test]
fn the_bricks_are_asked_before_a_lost_clients_file_is_opened() {
    for (seed, restarts) in [(41, false), (42, true)] {
        let house = House::new(seed);
        house.run(async {
            let bricks = furnish(&house).await;
            let [lost, mut other] = house.silent_and_polling().await;
            let [plain, noted, cut] = ["plain", "noted", "cut"];
            let [plain, noted, cut] = [
                lost.create(plain, true).await.expect("free").attr,
                lost.create(noted, true).await.expect("free").attr,
                lost.create(cut, true).await.expect("free").attr,
            ];
            for (file, noting) in [(&noted, true), (&cut, true), (&plain, false)] {
                let told = lost.grow_noting(file, 100, true, noting).await.expect("open");
                assert_eq!(told, UpdateSizesReply { noting, cut: vec![] });
            }
            // Shown, and not stored.
            lost.grow(&noted, 700, false).await.expect("open");
            lost.truncate(cut.inode, 10).await.expect("open");
            assert_eq!(other.getattr(noted.inode).await.map(|attr| attr.size), Ok(700));
            bricks.iter().for_each(|brick| *brick.notes.borrow_mut() = None);
            if restarts {
                house.simulation.kill("meta");
                house.start_meta();
                other.join(vec![]).await.expect("it has a lease");
                other.keep_polling(Rc::default());
            }
            // The group is not served: only files with notes wait for it.
            let opened = other.open(plain.inode, true).await.expect("the writer is lost");
            assert_eq!(opened.attr.size, 100);
            let request = other.open_request(noted.inode, true);
            let asked = other.world.now();
            assert_eq!(other.ask(&request).await, Err(Refusal::NotServing));
            assert!(other.world.now() - asked <= 4 * GONE, "no request waits for ever");
            assert!(bricks.iter().all(|brick| !brick.is_done_with(lost.client)), "they keep the notes");
            let seen = other.getattr(noted.inode).await.map(|attr| attr.size);
            assert_eq!(seen, if restarts { Err(Refusal::NotServing) } else { Ok(700) });
            let from = |name: &[u8]| {
                let (volume, name) = (other.volume, name.to_vec());
                ReadDirFrom { volume, parent: ROOT, name, count: 9 }
            };
            let seen = other.ask(&from(b"plain")).await.expect("its size is known");
            assert_eq!(seen.entries.len(), if restarts { 1 } else { 3 });
            assert_eq!(seen.end, !restarts);
            let seen = other.ask(&from(b"noted")).await.map(|listed| listed.entries[0].attr.size);
            assert_eq!(seen, if restarts { Err(Refusal::NotServing) } else { Ok(700) });
            // Once more: the client is in nobody's memory, and its files are in the store.
            house.simulation.kill("meta");
            house.start_meta();
            let open = |attr: &Attr| OpenInode {
                inode: attr.inode,
                readers: 0,
                writers: 1,
                zeroing: None,
                note: None,
            };
            other.join(vec![open(&plain)]).await.expect("it has a lease");
            other.keep_polling(Rc::default());
            assert_eq!(other.ask(&request).await, Err(Refusal::NotServing));
            let (caller, volume, now) = (other.caller(), other.volume, other.world.wall());
            let listing = ReadDir { volume, inode: ROOT, cookie: 0, count: 10 };
            let asked = other.world.now();
            assert_eq!(other.ask(&listing).await.map(|listed| listed.entries.len()), Ok(3));
            assert!(
                other.world.now() - asked < HEARTBEAT_US,
                "one file that is not known holds up no listing for ever"
            );
            let mode = SetAttr {
                caller,
                volume,
                inode: noted.inode,
                mode: Some(0o600),
                uid: None,
                gid: None,
                size: None,
                atime: None,
                mtime: None,
                sent_end: 0,
                now,
            };
            assert_eq!(other.ask(&mode).await, Err(Refusal::NotServing), "its answer has the size");
            let of = |note| LostNote { client: lost.client, note };
            let told = vec![of(note(&noted, 900)), of(note(&cut, 5000)), of(note(&plain, 4000))];
            bricks.iter().for_each(|brick| *brick.notes.borrow_mut() = Some(told.clone()));
            assert_eq!(other.ask(&request).await.map(|opened| opened.attr.size), Ok(900));
            let cut = other.open(cut.inode, true).await.expect("the writer is gone").attr;
            assert_eq!(cut.size, 10, "noted before it was cut");
            let plain = other.getattr(plain.inode).await.expect("there");
            assert_eq!(plain.size, 100, "somebody else had it since");
            other.world.sleep(HEARTBEAT_US).await;
            assert!(bricks.iter().all(|brick| brick.is_done_with(lost.client)));
        });
    }
}

#[test]
fn the_right_to_note_ends_with_the_last_close() {
    let house = House::new(43);
    house.run(async {
        let bricks = furnish(&house).await;
        let [lost, other] = house.silent_and_polling().await;
        let file = lost.create("f", true).await.expect("free").attr;
        assert!(lost.grow_noting(&file, 100, true, true).await.expect("open").noting);
        lost.open(file.inode, true).await.expect("once more");
        lost.release(file.inode, true).await.expect("open");
        lost.release(file.inode, true).await.expect("open");
        // Not open: nobody would be asked to give it up.
        assert!(!lost.grow_noting(&file, 200, true, true).await.expect("there").noting);
        bricks.iter().for_each(|brick| *brick.notes.borrow_mut() = None);
        other.open(file.inode, true).await.expect("nobody has it");
        other.world.sleep(2 * GONE).await;
        assert!(bricks.iter().all(|brick| brick.is_done_with(lost.client)), "nothing is to be learnt");
        // With another client that has the file, the right is not given.
        let third = house.mounted("third").await;
        let both = third.open(file.inode, false);
        let _ = third.world.timeout(HEARTBEAT_US, Box::pin(both)).await;
        assert!(!other.grow_noting(&file, 300, true, true).await.expect("open").noting);
    });
}

#[test]
fn a_client_notes_few_files() {
    let house = House::new(44);
    house.run(async {
        furnish(&house).await;
        let client = house.mounted("a").await;
        for n in 0..=types::limits::NOTES_MAX {
            let file = client.create(&format!("f{n}"), true).await.expect("free").attr;
            let told = client.grow_noting(&file, 100, true, true).await.expect("open");
            assert_eq!(told.noting, n < types::limits::NOTES_MAX);
        }
    });
}
