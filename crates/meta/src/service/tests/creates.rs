//! A create that opens its file is answered once more after a restart, as an open at that moment: the service dies
//! before its client has the answer, and another client is there first.

use super::*;

/// A client has created a file and not had the answer; the service has died since, and both clients are back.
async fn with_an_answer_lost(house: &House) -> ([Client; 2], Create, Created) {
    furnish(house).await;
    let [mut a, mut b] = ["a", "b"].map(|name| house.client(name));
    a.join(vec![]).await.expect("there is the volume");
    b.join(vec![]).await.expect("there is the volume");
    let request = a.create_request("f", true);
    let lost = a.ask(&request).await.expect("free");
    assert_eq!(lost.mode, Mode::Alone);
    house.simulation.kill("meta");
    house.start_meta();
    a.join(vec![]).await.expect("it has a lease");
    b.join(vec![]).await.expect("it has a lease");
    a.keep_polling(Rc::default());
    ([a, b], request, lost)
}

#[test]
fn a_repeated_create_gets_the_mode_that_others_allow() {
    let house = House::new(41);
    house.run(async {
        let ([a, b], request, lost) = with_an_answer_lost(&house).await;
        let inode = lost.attr.inode;
        assert_eq!(b.open(inode, true).await.map(|opened| opened.mode), Ok(Mode::Alone));
        b.grow(&lost.attr, 100, false).await.expect("open");
        // The other one does not give way yet, so the answer waits.
        let asking = Box::pin(a.ask(&request));
        assert!(a.world.timeout(HEARTBEAT_US, asking).await.is_none());
        let recalls = Rc::new(RefCell::new(Vec::new()));
        b.keep_polling(Rc::clone(&recalls));
        let created = a.ask(&request).await.expect("the other one gave way");
        assert_eq!((created.attr.inode, created.attr.size, created.mode), (inode, 100, Mode::Shared));
        let recalled: Vec<_> = recalls.borrow().iter().map(|recall| (recall.inode, recall.mode)).collect();
        assert_eq!(recalled, [(inode, Mode::Shared)]);
        // However often it is asked, it is one open.
        assert_eq!(a.ask(&request).await.map(|again| again.mode), Ok(Mode::Shared));
        b.release(inode, true).await.expect("open");
        a.release(inode, true).await.expect("open");
        assert_eq!(b.open(inode, true).await.map(|opened| opened.mode), Ok(Mode::Alone));
    });
}

#[test]
fn a_repeated_create_of_a_file_that_nobody_else_has_open_is_alone() {
    let house = House::new(42);
    house.run(async {
        let ([a, b], request, lost) = with_an_answer_lost(&house).await;
        b.keep_polling(Rc::default());
        assert_eq!(a.ask(&request).await, Ok(lost.clone()));
        assert_eq!(b.open(lost.attr.inode, false).await.map(|opened| opened.mode), Ok(Mode::Shared));
    });
}

#[test]
fn a_repeated_create_of_a_file_that_is_gone_opens_nothing() {
    let house = House::new(43);
    house.run(async {
        let ([a, b], request, lost) = with_an_answer_lost(&house).await;
        b.keep_polling(Rc::default());
        assert_eq!(b.open(lost.attr.inode, false).await.map(|opened| opened.mode), Ok(Mode::Readers));
        b.unlink("f").await.expect("there");
        b.release(lost.attr.inode, false).await.expect("open");
        // Its bytes are purged: what would be written now would be lost, and take space for ever.
        assert_eq!(a.ask(&request).await, Err(Refusal::Stale));
    });
}

/// The open has truncated the file, and the service has died before the client had the answer. The file has another name since.
#[test]
fn a_repeated_open_that_truncates_does_not_need_the_name_again() {
    let house = House::new(44);
    house.run(async {
        furnish(&house).await;
        let [mut a, mut b] = ["a", "b"].map(|name| house.client(name));
        a.join(vec![]).await.expect("there is the volume");
        b.join(vec![]).await.expect("there is the volume");
        let file = b.create("f", false).await.expect("free").attr;
        let names = vec![NamedAs { parent: ROOT, name: b"f".to_vec() }];
        let request = Open { truncate: true, names, ..a.open_request(file.inode, true) };
        let lost = a.ask(&request).await.expect("it has the name");
        house.simulation.kill("meta");
        house.start_meta();
        b.join(vec![]).await.expect("it has a lease");
        a.join(vec![]).await.expect("it has a lease");
        let (caller, volume, now) = (b.caller(), b.volume, b.world.wall());
        let (from_name, to_name, how) = (b"f".to_vec(), b"g".to_vec(), RenameHow::Replace);
        let rename =
            Rename { caller, volume, from: ROOT, from_name, to: ROOT, to_name, how, meant: None, now };
        b.ask(&rename).await.expect("there");
        for _ in 0..2 {
            let again = a.ask(&request).await.expect("truncated before");
            assert_eq!((again.attr.truncate_seq, again.mode), (lost.attr.truncate_seq, Mode::Alone));
        }
        // It is counted, once.
        a.keep_polling(Rc::default());
        assert_eq!(b.open(file.inode, false).await.map(|opened| opened.mode), Ok(Mode::Shared));
        b.release(file.inode, false).await.expect("open");
        a.release(file.inode, true).await.expect("open");
        assert_eq!(b.open(file.inode, true).await.map(|opened| opened.mode), Ok(Mode::Alone));
    });
}
