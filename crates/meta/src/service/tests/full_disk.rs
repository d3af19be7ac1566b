//! The disk of the store is full, or the journal's: changes are refused or wait, all else goes on, and nothing has to be
//! started again.

use world::sim::DiskFaults;

use super::*;

/// The shortest journal: a half holds 64 records of one block.
const MEMORY: u64 = 1 << 20;
const HALF: usize = 64;

fn set_full(house: &House, full: bool) {
    let Engine::Memory(engine) = &house.engine else { panic!("it is in memory") };
    engine.set_full(full);
}

/// Makes files until one is refused. Returns how many were made.
async fn make_until_refused(client: &Client) -> usize {
    for n in 0..3 * HALF {
        match client.create(&format!("f{n}"), false).await {
            Ok(_) => {}
            Err(refusal) => {
                assert_eq!(refusal, Refusal::NoSpace);
                return n;
            }
        }
    }
    panic!("nothing is refused");
}

#[test]
fn on_a_full_disk_changes_are_refused_and_all_else_goes_on() {
    let house = House::with_budget(61, MEMORY);
    house.run(async {
        furnish(&house).await;
        let client = house.mounted("a").await;
        let kept = client.create("kept", false).await.expect("free").attr;
        set_full(&house, true);
        let made = make_until_refused(&client).await;
        assert!(made > 0, "the journal still had room");
        // Leases are kept, sizes are told, names are read; a new client joins.
        client.world.sleep(3 * GONE).await;
        assert_eq!(client.getattr(kept.inode).await.map(|attr| attr.size), Ok(0));
        client.grow(&kept, 7, true).await.expect("a size is taken");
        let other = house.mounted("b").await;
        assert_eq!(other.getattr(kept.inode).await.map(|attr| attr.size), Ok(7));
        assert_eq!(other.create("g", false).await.map(|_| ()), Err(Refusal::NoSpace));
        // Neither reads nor new volumes use up what is kept.
        let (asking, volume) = (other.client, other.volume);
        let times = vec![AccessTime { inode: kept.inode, known: 0, atime: 1 }];
        let read = Accessed { client: asking, volume, times };
        assert_eq!(other.ask(&read).await.map(|_| ()), Err(Refusal::NoSpace));
        assert_eq!(other.ask(&volume_create("more", "2+1")).await.map(|_| ()), Err(Refusal::NoSpace));
        // A removal is taken, as long as the journal has room to spare.
        let mut removed = 0;
        while removed < made && client.unlink(&format!("f{removed}")).await.is_ok() {
            removed += 1;
        }
        assert!(removed > 0 && removed < HALF, "the rest of the journal is kept: {removed}");
        client.grow(&kept, 8, true).await.expect("a size is taken");

        set_full(&house, false);
        client.world.sleep(1_000_000).await;
        client.create("again", false).await.expect("there is room");
        for n in removed..made {
            client.unlink(&format!("f{n}")).await.expect("it was made, and is there");
        }
        assert_eq!(client.getattr(kept.inode).await.map(|attr| attr.size), Ok(8));
    });
}

#[test]
fn a_repetition_of_a_change_that_was_made_is_answered_on_a_full_disk() {
    let house = House::with_budget(62, MEMORY);
    house.run(async {
        furnish(&house).await;
        let (client, other) = (house.mounted("a").await, house.mounted("b").await);
        let request = client.create_request("first", false);
        let made = client.ask(&request).await.expect("free");
        set_full(&house, true);
        make_until_refused(&other).await;
        assert_eq!(client.ask(&request).await, Ok(made));
    });
}

#[test]
fn a_service_that_dies_on_a_full_disk_has_all_that_it_has_answered() {
    let house = House::with_budget(63, MEMORY);
    house.run(async {
        furnish(&house).await;
        let mut client = house.mounted("a").await;
        set_full(&house, true);
        let made = make_until_refused(&client).await;
        house.simulation.kill("meta");
        house.start_meta();
        let request = GetAttr { volume: client.volume, inode: ROOT };
        let asking = Box::pin(client.ask(&request));
        assert!(client.world.timeout(2_000_000, asking).await.is_none(), "it waits for room");
        set_full(&house, false);
        client.join(vec![]).await.expect("it has a lease");
        client.keep_polling(Rc::default());
        for n in 0..made {
            client.unlink(&format!("f{n}")).await.expect("it was made, and is there");
        }
        assert_eq!(client.unlink(&format!("f{made}")).await.map(|_| ()), Err(Refusal::NotFound));
    });
}

#[test]
fn a_journal_without_room_keeps_changes_waiting_and_reads_go_on() {
    let house = House::with_budget(64, MEMORY);
    house.run(async {
        furnish(&house).await;
        let (client, mut other) = (house.mounted("a").await, house.mounted("b").await);
        let kept = client.create("kept", false).await.expect("free").attr;
        let full = |full| {
            house.simulation.disk_faults("meta", "journal", DiskFaults { full, ..DiskFaults::default() });
        };
        full(true);
        let request = client.create_request("waits", false);
        let mut asking = Box::pin(client.ask(&request));
        assert!(client.world.timeout(1_000_000, asking.as_mut()).await.is_none());
        assert_eq!(client.getattr(kept.inode).await.map(|attr| attr.size), Ok(0));
        assert_eq!(other.create("g", false).await.map(|_| ()), Err(Refusal::NoSpace));
        full(false);
        let made = asking.await.expect("there is room");
        other.create("g", false).await.expect("there is room");

        // The record is once in the journal, and before the later one.
        house.simulation.kill("meta");
        house.start_meta();
        let mut client = client.clone();
        client.join(vec![]).await.expect("it has a lease");
        assert_eq!(client.ask(&request).await.map(|again| again.attr.inode), Ok(made.attr.inode));
        other.join(vec![]).await.expect("it has a lease");
        other.unlink("g").await.expect("there");
    });
}

#[test]
fn a_service_that_dies_while_its_journal_has_no_room_has_no_part_of_the_change() {
    let house = House::with_budget(65, MEMORY);
    house.run(async {
        furnish(&house).await;
        let mut client = house.mounted("a").await;
        client.create("kept", false).await.expect("free");
        let faults = DiskFaults { full: true, ..DiskFaults::default() };
        house.simulation.disk_faults("meta", "journal", faults);
        let asking = Box::pin(client.create("lost", false));
        assert!(client.world.timeout(1_000_000, asking).await.is_none());
        house.simulation.kill("meta");
        house.simulation.disk_faults("meta", "journal", DiskFaults::default());
        house.start_meta();
        client.join(vec![]).await.expect("it has a lease");
        client.unlink("kept").await.expect("there");
        assert_eq!(client.unlink("lost").await.map(|_| ()), Err(Refusal::NotFound));
    });
}
