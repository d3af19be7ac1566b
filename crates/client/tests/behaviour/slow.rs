//! Slow requests are kept, with what they have waited for: a device, the network, room in the budget, or what was under way.

use std::cell::Cell;
use std::sync::Arc;

use client::{Mount, MountOptions, Server, Session, SlowKind, SlowRequest, SlowSpan};
use types::wire::Served;
use types::{BrickId, InodeId};
use world::trace::Stage;

use crate::fakes::{BUDGET, Cluster, OWNER, UNIT};
use crate::{ROOT, STRIPE, pattern};

struct Slow<'a> {
    cluster: &'a Cluster,
    mount: Arc<Mount>,
    session: Session,
    handle: u64,
    inode: InodeId,
}

impl<'a> Slow<'a> {
    /// A file of some stripes that is stable; nothing was slow.
    async fn new(cluster: &'a Cluster, stripes: usize, tuning: &str) -> Slow<'a> {
        let world = cluster.sim.node("client");
        let options = MountOptions { memory_budget: 64 << 20, ..cluster.options() };
        let mount = Mount::join(&world, options).await.unwrap();
        world.spawn("client", mount.clone().background(world.clone()));
        let session = mount.session(world);
        mount.tune(tuning).unwrap();
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 0, &pattern(stripes * STRIPE, 1)).await.unwrap();
        session.fsync(opened.handle).await.unwrap();
        let inode = session.lookup(ROOT, b"f").await.unwrap().inode;
        Slow { cluster, mount, session, handle: opened.handle, inode }
    }

    /// The slowest request of the file of this kind.
    fn slowest(&self, op: &str) -> Arc<SlowRequest> {
        let now = self.cluster.sim.node("client").now();
        let mut requests = self.mount.slow_requests(Some(self.inode), now).into_iter();
        requests.find(|request| request.asked.op == op).unwrap_or_else(|| panic!("no slow {op}"))
    }

    fn brick_of_first_unit(&self) -> BrickId {
        self.cluster.known().map.volumes[0].groups[0].slots[0].brick
    }
}

/// The longest wait or call.
fn longest(request: &SlowRequest) -> &SlowSpan {
    request.spans.iter().max_by_key(|span| span.took_us).expect("spans")
}

/// The brick of a call, and what it told.
fn call(span: &SlowSpan) -> (Server, Option<Served>) {
    match &span.kind {
        SlowKind::Call { server, served, .. } => (*server, *served),
        other => panic!("{other:?}"),
    }
}

/// No caches, so that each read asks a brick.
const PLAIN: &str = "io-cache=off read-ahead=off";

#[test]
fn a_slow_device_is_the_time_of_its_brick() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.run(async {
        let slow = Slow::new(&cluster, 2, PLAIN).await;
        let bricks: Vec<BrickId> = (1..=3).map(BrickId).collect();
        let slow_one = bricks[1];
        cluster.known().slow_device.insert(slow_one, 40_000);
        for unit in 0..4 {
            slow.session.read(slow.handle, unit * UNIT as u64, 100).await.unwrap();
        }
        let request = slow.slowest("read");
        assert_eq!((request.asked.len, request.failed), (100, false));
        let span = longest(&request);
        let (server, served) = call(span);
        assert_eq!(server, Server::Brick(slow_one));
        let own = served.expect("a slow brick tells").own;
        assert_eq!((own.total_us, own.device_us), (40_000, 40_000));
        assert!(span.took_us > 40_000 && span.took_us <= request.took_us, "{request:?}");
        let layers: Vec<&str> = request
            .spans
            .iter()
            .filter_map(|span| match span.kind {
                SlowKind::Layer(name) => Some(name),
                _ => None,
            })
            .collect();
        assert_eq!(layers, ["auto", "io-cache", "read-ahead", "write-behind"]);
        // The mount has it too, and the file has it when it is closed.
        slow.session.release(slow.handle).await.unwrap();
        assert!(!slow.mount.is_open(slow.inode));
        let now = cluster.sim.node("client").now();
        assert!(slow.mount.slow_requests(None, now).contains(&request));
        assert_eq!(slow.slowest("read"), request);
        assert_eq!(slow.mount.slow_requests(Some(InodeId(4711)), now), []);
    });
}

#[test]
fn a_slow_network_is_nobodys_time() {
    let cluster = Cluster::new(2, "2+1", 3);
    cluster.run(async {
        let slow = Slow::new(&cluster, 1, PLAIN).await;
        for brick in ["b1", "b2", "b3"] {
            cluster.sim.slow_link("client", brick, 200_000);
        }
        slow.session.read(slow.handle, 0, 100).await.unwrap();
        let request = slow.slowest("read");
        let span = longest(&request);
        assert!(matches!(call(span), (Server::Brick(_), None)), "{request:?}");
        assert!(span.took_us * 10 > request.took_us * 9, "{request:?}");
    });
}

#[test]
fn a_writer_without_room_waits_for_the_budget() {
    let cluster = Cluster::new(3, "2+1", 3);
    cluster.run(async {
        let slow = Slow::new(&cluster, 1, PLAIN).await;
        cluster.known().write_us = 50_000;
        slow.session.write(slow.handle, 0, &pattern(2 * BUDGET as usize, 2)).await.unwrap();
        let request = slow.slowest("write");
        let waits = request.spans.iter().filter(|span| span.kind == SlowKind::Wait(Stage::Queue));
        let waited: u64 = waits.map(|span| span.took_us).sum();
        assert!(waited * 10 > request.took_us * 9, "{request:?}");
    });
}

#[test]
fn a_read_that_waits_for_read_ahead_and_the_fetch_are_both_kept() {
    let cluster = Cluster::new(4, "2+1", 3);
    cluster.run(async {
        let slow = Slow::new(&cluster, 64, "io-cache=off read-ahead=on").await;
        let brick = slow.brick_of_first_unit();
        for id in 1..=3 {
            cluster
                .known()
                .slow_device
                .insert(BrickId(id), if BrickId(id) == brick { 90_000 } else { 30_000 });
        }
        for at in (0..64 * STRIPE).step_by(UNIT) {
            slow.session.read(slow.handle, at as u64, UNIT).await.unwrap();
        }
        let fetch = slow.slowest("fetch");
        assert!(matches!(call(longest(&fetch)), (Server::Brick(_), Some(_))), "{fetch:?}");
        let now = cluster.sim.node("client").now();
        let reads = slow.mount.slow_requests(None, now);
        let underway = |request: &Arc<SlowRequest>| {
            let is_it =
                |span: &SlowSpan| span.kind == SlowKind::Wait(Stage::Underway) && span.took_us > 1_000;
            request.asked.op == "read" && request.spans.iter().any(is_it)
        };
        assert!(reads.iter().any(underway), "{reads:?}");
    });
}

#[test]
fn a_slow_sync_is_in_the_fsync() {
    let cluster = Cluster::new(5, "2+1", 3);
    cluster.run(async {
        let slow = Slow::new(&cluster, 1, PLAIN).await;
        cluster.known().sync_us = 70_000;
        slow.session.write(slow.handle, 10, b"few").await.unwrap();
        slow.session.fsync(slow.handle).await.unwrap();
        let request = slow.slowest("fsync");
        let span = longest(&request);
        assert!(matches!(call(span), (Server::Brick(_), _)) && span.took_us >= 70_000, "{request:?}");
    });
}

#[test]
fn quick_requests_are_not_kept() {
    let cluster = Cluster::new(6, "2+1", 3);
    cluster.run(async {
        let slow = Slow::new(&cluster, 1, PLAIN).await;
        let kept = |op: &str| {
            let now = cluster.sim.node("client").now();
            slow.mount.slow_requests(None, now).iter().filter(|request| request.asked.op == op).count()
        };
        for _ in 0..10 {
            slow.session.write(slow.handle, 0, b"in a buffer").await.unwrap();
            slow.session.read(slow.handle, 0, 5).await.unwrap();
        }
        assert_eq!((kept("write"), kept("read")), (0, 0));
    });
}

/// Number of requests of which a sampler takes a part. Slow ones are all kept, with what they have waited for.
#[test]
fn on_a_busy_mount_no_slow_request_is_missed() {
    const SLOW: u64 = 8;
    let cluster = Cluster::new(7, "2+1", 3);
    cluster.run(async {
        let slow = Slow::new(&cluster, 16, PLAIN).await;
        // A few bytes of another file are written all the time.
        let busy = slow.session.create(ROOT, b"busy", OWNER).await.unwrap();
        let (world, is_over) = (cluster.sim.node("client"), Cell::new(false));
        let writing = async {
            while !is_over.get() {
                slow.session.write(busy.handle, 0, b"busy").await.unwrap();
                world.sleep(20).await;
            }
        };
        let reading = async {
            world.sleep(1_000_000).await;
            cluster.known().slow_device.extend((1..=3).map(|id| (BrickId(id), 40_000)));
            for stripe in 0..SLOW {
                slow.session.read(slow.handle, stripe * STRIPE as u64, 100).await.unwrap();
            }
            is_over.set(true);
        };
        futures_util::future::join(writing, reading).await;
        let requests = slow.mount.slow_requests(Some(slow.inode), world.now());
        let reads: Vec<_> = requests.iter().filter(|request| request.asked.op == "read").collect();
        assert_eq!(reads.len() as u64, SLOW, "{requests:?}");
        for read in reads {
            let (server, served) = call(longest(read));
            assert!(matches!(server, Server::Brick(_)), "{read:?}");
            assert_eq!(served.expect("a slow brick tells").own.device_us, 40_000);
            assert!(matches!(read.spans[0].kind, SlowKind::Layer(_)), "{read:?}");
            assert!(read.took_us > 40_000, "{read:?}");
        }
    });
}
