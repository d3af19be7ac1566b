//! Many open files of one client stop neither the service nor the others: a client with more files than one record
//! holds is lost, or comes back.

use types::limits::SIZE_UPDATES_MAX;

use super::*;

/// Files whose inodes do not fit into one record of the shortest journal.
const FILES: usize = 2500;

#[test]
fn a_lost_client_with_many_files_does_not_take_the_service_with_it() {
    let house = House::with_budget(21, 1 << 20);
    house.run(async {
        furnish(&house).await;
        let maker = house.mounted("maker").await;
        let mut files = Vec::new();
        for n in 0..FILES {
            files.push(maker.create(&format!("f{n}"), false).await.expect("free").attr);
        }
        let mut lost = house.client("lost");
        lost.join(vec![]).await.expect("there is the volume");
        let update = |attr: &Attr| SizeUpdate {
            inode: attr.inode,
            truncate_seq: attr.truncate_seq,
            size: 9000,
            mtime: attr.mtime + 1,
            set_time: false,
        };
        for some in files.chunks(SIZE_UPDATES_MAX) {
            let sizes = some.iter().map(update).collect();
            let grow =
                UpdateSizes { client: lost.client, volume: lost.volume, sizes, stable: false, noting: false };
            lost.ask(&grow).await.expect("there");
        }
        let sizes: Vec<SizeUpdate> = files.iter().map(update).collect();
        let grow =
            UpdateSizes { client: lost.client, volume: lost.volume, sizes, stable: true, noting: false };
        assert_eq!(lost.ask(&grow).await, Err(Refusal::Malformed), "more than one record may hold");

        maker.world.sleep(3 * GONE).await;
        for file in [&files[0], &files[FILES - 1]] {
            let attr = maker.getattr(file.inode).await.expect("there");
            assert_eq!((attr.size, attr.stale_end), (0, 9000), "what it told of is stale");
        }
    });
}

#[test]
fn a_client_that_comes_back_with_many_open_files_has_them_all() {
    let house = House::new(22);
    house.run(async {
        furnish(&house).await;
        let maker = house.mounted("maker").await;
        let mut files = Vec::new();
        for n in 0..FILES {
            files.push(maker.create(&format!("f{n}"), true).await.expect("free").attr.inode);
        }
        house.simulation.kill("meta");
        house.start_meta();
        let open =
            |inode: &InodeId| OpenInode { inode: *inode, readers: 0, writers: 1, zeroing: None, note: None };
        let mut maker = maker.clone();
        maker.join(files.iter().map(open).collect()).await.expect("it has a lease");
        let other = house.mounted("other").await;
        for inode in [files[0], files[FILES / 2], files[FILES - 1]] {
            maker
                .unlink(&format!("f{}", files.iter().position(|i| *i == inode).expect("one")))
                .await
                .expect("there");
            assert!(other.getattr(inode).await.is_ok(), "it is open");
            maker.release(inode, true).await.expect("open");
            assert_eq!(other.getattr(inode).await, Err(Refusal::Stale));
        }
    });
}

#[test]
fn a_start_with_many_objects_to_purge_stops_nobody() {
    let house = House::new(23);
    house.run(async { drop(furnish(&house).await) });
    house.simulation.kill("meta");
    let purges: Vec<Vec<u8>> =
        (0..200_000).map(|object| crate::keys::purge(VolumeId(1), ObjectId(object))).collect();
    let value = crate::records::to_value(&[0u8; 0]);
    let pairs = purges.iter().map(|key| (key.as_slice(), Some(value.as_slice())));
    house.engine.commit(pairs).expect("memory does not fail");
    let longest = Rc::new(Cell::new(0));
    let (world, told) = (house.simulation.node("meta"), Rc::clone(&longest));
    let ticks = world.clone();
    world.spawn("test", async move {
        loop {
            let before = ticks.now();
            ticks.sleep(1000).await;
            told.set(told.get().max(ticks.now() - before));
        }
    });
    house.start_meta();
    house.run(async { house.client("tool").status().await });
    assert!(longest.get() < 20_000, "others waited for {} us", longest.get());
}

#[test]
fn many_changes_share_a_commit_and_runs_repeat() {
    let run =
        || {
            let house = House::new(9);
            house.run(async {
                furnish(&house).await;
                let mut clients: Vec<Client> = (0..4).map(|id| house.client(&format!("c{id}"))).collect();
                let mut all = Vec::new();
                for (id, client) in clients.iter_mut().enumerate() {
                    client.join(vec![]).await.expect("there is the volume");
                    let client = client.clone();
                    all.extend((0..50).map(|file| {
                        let client = client.clone();
                        async move {
                            client.create(&format!("f{id}-{file}"), false).await.map(|made| made.attr.inode)
                        }
                    }));
                }
                let made = futures_util::future::join_all(all).await;
                let made: BTreeSet<InodeId> = made.into_iter().map(|made| made.expect("free")).collect();
                assert_eq!(made.len(), 200);
            });
            house.simulation.trace_hash()
        };
    assert_eq!(run(), run());
}
