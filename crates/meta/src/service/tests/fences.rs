//! Nobody gets a lost client's files before every brick refuses that client: clients and bricks fall silent, and the
//! order of fences and grants is compared.

use super::*;

#[test]
fn amendment_7_nobody_is_let_in_before_every_brick_has_fenced_the_lost_one() {
    let house = House::new(14);
    house.run(async {
        let bricks = furnish(&house).await;
        let [mut lost, mut other] = house.silent_and_polling().await;
        let file = lost.create("f", true).await.expect("free").attr;
        lost.grow(&file, 5000, false).await.expect("open");
        bricks[1].carrying.set(true);
        let request = other.open_request(file.inode, true);
        let opening = Box::pin(other.ask(&request));
        assert!(other.world.timeout(3 * GONE, opening).await.is_none());
        for brick in &bricks {
            assert!(brick.fences.borrow().is_fenced(lost.client));
            assert!(!brick.fences.borrow().is_fenced(other.client));
        }
        assert_eq!(lost.create("g", false).await, Err(Refusal::Fenced));
        assert_eq!(other.ask(&VolumeDelete { name: "home".into(), shard: None }).await, Err(Refusal::Busy));
        // A service that restarts meanwhile still knows who is lost.
        house.simulation.kill("meta");
        house.start_meta();
        other.join(vec![]).await.expect("it has a lease");
        assert_eq!(lost.join(vec![]).await, Err(Refusal::Fenced));
        let opening = Box::pin(other.ask(&request));
        assert!(other.world.timeout(GONE, opening).await.is_none());
        bricks[1].carrying.set(false);
        assert_eq!(other.ask(&request).await.map(|opened| opened.mode), Ok(Mode::Alone));
        // Whoever joins is told.
        house.simulation.kill("n3");
        house.simulation.kill("n4");
        let back = house.brick(4);
        back.start(2).await.expect("from the same address");
        assert!(back.fences.borrow().is_fenced(lost.client));
        assert!(!back.fences.borrow().is_fenced(other.client));
    });
}

#[test]
fn a_brick_that_is_out_is_not_waited_for() {
    let house = House::new(15);
    house.run(async {
        furnish(&house).await;
        let [lost, other] = house.silent_and_polling().await;
        let file = lost.create("f", true).await.expect("free").attr;
        other.world.sleep(LEASE_US).await;
        house.simulation.kill("n2");
        let asked = other.world.now();
        other.open(file.inode, true).await.expect("the writer is lost");
        let took = other.world.now() - asked;
        assert!((GONE - HEARTBEAT_US..2 * GONE).contains(&took), "{took}: until the brick is out");
    });
}

#[test]
fn an_exclusive_mount_that_is_lost_keeps_others_out_until_the_bricks_know() {
    let house = House::new(16);
    house.run(async {
        let bricks = furnish(&house).await;
        let [mut lost, mut other] = ["a", "b"].map(|name| house.client(name));
        lost.join_as(vec![], true).await.expect("there is the volume");
        bricks[2].carrying.set(true);
        other.world.sleep(2 * GONE).await;
        assert_eq!(other.join(vec![]).await, Err(Refusal::MountedExclusively));
        assert_eq!(lost.join_as(vec![], true).await, Err(Refusal::Fenced));
        bricks[2].carrying.set(false);
        other.world.sleep(HEARTBEAT_US).await;
        other.join(vec![]).await.expect("nobody else has it");
    });
}

#[test]
fn a_mount_that_leaves_needs_no_fence_and_is_soon_forgotten() {
    let house = House::new(17);
    house.run(async {
        let bricks = furnish(&house).await;
        let [left, other] = house.silent_and_polling().await;
        let file = left.create("f", true).await.expect("free").attr;
        bricks[0].carrying.set(true);
        left.ask(&ClientLeave { client: left.client }).await.expect("always");
        assert_eq!(other.open(file.inode, true).await.map(|opened| opened.mode), Ok(Mode::Alone));
        other.world.sleep(HEARTBEAT_US).await;
        assert!(bricks.iter().all(|brick| !brick.is_done_with(left.client)));
        bricks[0].carrying.set(false);
        other.world.sleep(HEARTBEAT_US).await;
        assert!(bricks.iter().all(|brick| brick.is_done_with(left.client)));
        assert!(bricks.iter().all(|brick| !brick.is_done_with(other.client)));
    });
}

/// A lost writer may have changed bytes of which it has told nothing. So the file has another number of changes for
/// whoever opens it next, also after a restart of the service, which then does not know what the writer had open.
#[test]
fn a_file_that_a_lost_client_had_open_for_writing_counts_as_changed() {
    for restarts in [false, true] {
        let house = House::new(18);
        house.run(async {
            furnish(&house).await;
            let [lost, mut other] = house.silent_and_polling().await;
            let written = lost.create("written", false).await.expect("free").attr;
            let read = lost.create("read", false).await.expect("free").attr;
            lost.open(read.inode, false).await.expect("there");
            assert_eq!(lost.open(written.inode, true).await.map(|opened| opened.mode), Ok(Mode::Alone));
            let before = [other.getattr(written.inode).await, other.getattr(read.inode).await]
                .map(|attr| attr.expect("there").changes);
            if restarts {
                house.simulation.kill("meta");
                house.start_meta();
                other.join(vec![]).await.expect("it has a lease");
                other.keep_polling(Rc::default());
            }
            let opened = other.open(written.inode, false).await.expect("the writer is lost");
            assert_eq!(opened.mode, Mode::Readers);
            assert!(opened.attr.changes > before[0], "{restarts}: {} changes", opened.attr.changes);
            let read = other.open(read.inode, false).await.expect("there").attr.changes;
            assert_eq!(read > before[1], restarts, "what it had open only for reading is as it was");
            // The number never goes back.
            house.simulation.kill("meta");
            house.start_meta();
            let open = |inode| OpenInode { inode, readers: 1, writers: 0, zeroing: None, note: None };
            other.join(vec![open(written.inode)]).await.expect("it has a lease");
            let after = other.getattr(written.inode).await.expect("there").changes;
            assert_eq!(after, opened.attr.changes);
        });
    }
}

#[test]
fn a_file_that_a_mount_had_open_for_writing_when_it_left_counts_as_changed() {
    let house = House::new(19);
    house.run(async {
        furnish(&house).await;
        let [leaving, other] = [house.mounted("a").await, house.mounted("b").await];
        let file = leaving.create("f", true).await.expect("free").attr;
        leaving.ask(&ClientLeave { client: leaving.client }).await.expect("known");
        assert!(other.open(file.inode, false).await.expect("there").attr.changes > file.changes);
    });
}
