//! A file that several clients have open is truncated when nobody uses it any more, and exactly one client zeroes what
//! is left: clients answer, fall silent or come late.

use super::*;

impl Client {
    async fn stops(&self) -> Vec<Quiesce> {
        self.ask(&ClientPoll {
            client: self.client,
            map: MapVersion(1 << 30),
            asked: AskedCounts::default(),
            unreached: Vec::new(),
        })
        .await
        .expect("known")
        .quiesces
    }

    fn zero_request(&self, inode: InodeId) -> ZeroBegin {
        ZeroBegin { caller: self.caller(), volume: self.volume, inode }
    }

    async fn may_zero(&self, request: &ZeroBegin) -> bool {
        self.ask(request).await.expect("open").granted
    }

    async fn zeroed(&self, attr: &Attr, zero: &ZeroBegin) {
        let (client, volume, number) = (self.client, self.volume, Some(zero.caller.op));
        let Attr { inode, truncate_seq, stale_end, .. } = *attr;
        self.ask(&Zeroed { client, volume, inode, number, truncate_seq, stale_end }).await.expect("there");
    }
}

/// A file of 100 bytes that two clients have open, the second one for writing too or not. That one answers no news by
/// itself.
async fn shared(house: &House, writes: bool) -> (Client, Client, Attr) {
    furnish(house).await;
    let a = house.mounted("a").await;
    let file = a.create("f", true).await.expect("free").attr;
    a.grow(&file, 100, true).await.expect("open");
    let mut b = house.client("b");
    b.join(vec![]).await.expect("there is the volume");
    assert_eq!(b.open(file.inode, writes).await.map(|opened| opened.mode), Ok(Mode::Shared));
    (a, b, file)
}

#[test]
fn a_shared_file_is_cut_when_everybody_has_stopped() {
    let house = House::new(41);
    house.run(async {
        let (a, b, file) = shared(&house, true).await;
        let cutting = a.clone();
        let cut = Rc::new(Cell::new(false));
        let done = Rc::clone(&cut);
        a.world.spawn("test", async move {
            cutting.truncate(file.inode, 10).await.expect("there");
            done.set(true);
        });
        let stops = b.stops().await;
        assert_eq!((stops.len(), stops[0].inode), (1, file.inode));
        let number = stops[0].number;
        // A copy of an answer to an earlier cut says nothing, and is not made to wait.
        let stopped = |number| Quiesced { client: b.client, inode: file.inode, number };
        b.ask(&stopped(number.wrapping_sub(1))).await.expect("known");
        assert_eq!(b.stops().await, stops, "told again until it has stopped");
        // Nobody is let in meanwhile.
        let c = house.mounted("c").await;
        let request = c.open_request(file.inode, true);
        assert!(c.world.timeout(HEARTBEAT_US, Box::pin(c.ask(&request))).await.is_none());
        assert_eq!((cut.get(), c.getattr(file.inode).await.map(|attr| attr.size)), (false, Ok(100)));
        b.ask(&stopped(number)).await.expect("known");
        assert_eq!(
            b.getattr(file.inode).await.map(|attr| attr.size),
            Ok(10),
            "the answer comes after the cut"
        );
        assert_eq!(c.ask(&request).await.map(|opened| opened.attr.size), Ok(10));
        b.ask(&stopped(number)).await.expect("whoever asks again is not made to wait");
        assert!(b.stops().await.is_empty());
    });
}

#[test]
fn a_cut_waits_for_nobody_longer_than_a_lease() {
    let house = House::new(42);
    house.run(async {
        let (a, b, file) = shared(&house, false).await;
        let asked = a.world.now();
        a.truncate(file.inode, 10).await.expect("there");
        let took = a.world.now() - asked;
        assert!((LEASE_US / 2..2 * GONE).contains(&took), "{took}");
        assert_eq!(
            b.ask(&ClientPoll {
                client: b.client,
                map: MapVersion(0),
                asked: AskedCounts::default(),
                unreached: Vec::new()
            })
            .await,
            Err(Refusal::Unknown)
        );
    });
}

#[test]
fn one_client_zeroes_also_over_a_restart() {
    let house = House::new(43);
    house.run(async {
        let (mut a, mut b, file) = shared(&house, true).await;
        b.keep_polling(Rc::default());
        let attr = a.truncate(file.inode, 10).await.expect("there");
        let (ours, theirs) = (a.zero_request(file.inode), b.zero_request(file.inode));
        assert!(a.may_zero(&ours).await && !b.may_zero(&theirs).await);
        house.simulation.kill("meta");
        house.start_meta();
        let open = |zeroing| OpenInode { inode: file.inode, readers: 0, writers: 1, zeroing, note: None };
        b.join(vec![open(None)]).await.expect("it has a lease");
        b.keep_polling(Rc::default());
        let theirs = b.zero_request(file.inode);
        let early = b.world.timeout(HEARTBEAT_US / 2, Box::pin(b.ask(&theirs))).await;
        assert!(early.is_none(), "what the other one does is not known yet");
        a.join(vec![open(Some(ours.caller.op))]).await.expect("it has a lease");
        a.keep_polling(Rc::default());
        assert!(!b.may_zero(&theirs).await);
        a.zeroed(&attr, &ours).await;
        assert_eq!(b.getattr(file.inode).await.map(|attr| attr.stale_end), Ok(0));
        assert!(!b.may_zero(&theirs).await, "the same question has the same answer");
        let again = b.zero_request(file.inode);
        assert!(b.may_zero(&again).await);
        a.zeroed(&attr, &ours).await;
        let theirs = a.zero_request(file.inode);
        assert!(!a.may_zero(&theirs).await, "a late copy ends nothing");
        b.release(file.inode, true).await.expect("open");
        assert!(a.may_zero(&a.zero_request(file.inode)).await, "it has closed");
    });
}
