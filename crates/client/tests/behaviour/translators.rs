//! The stack of translators: what each saves the bricks, that settings count at once, that nothing old is read, and that
//! a translator of somebody else's fits in.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use client::{
    Answer, Below, Class, Encode, Flush, Flushed, Mount, MountOptions, Read, SetAttrs, Translator, Until,
    Write,
};
use types::Buf;
use types::messages::cluster::Mode;

use crate::fakes::{Cluster, OWNER, UNIT};
use crate::{ROOT, STRIPE, pattern};

/// Records the requests that pass it.
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn record(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }
}

impl Translator for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn read<'a>(&'a self, read: Read<'a>, below: Below<'a>) -> Answer<'a, Buf> {
        Box::pin(async move {
            let answer = below.read(read).await?;
            self.record(format!("read {:?}: {} bytes", read.range(), answer.len()));
            Ok(answer)
        })
    }

    fn write<'a>(&'a self, write: Write<'a>, below: Below<'a>) -> Answer<'a, ()> {
        self.record(format!("write {:?}", write.range()));
        below.write(write)
    }

    fn flush<'a>(&'a self, flush: Flush<'a>, below: Below<'a>) -> Answer<'a, Flushed> {
        self.record(if flush.until == Until::Stable { "sync".into() } else { "flush".into() });
        below.flush(flush)
    }
}

#[test]
fn a_translator_of_ones_own_sees_every_request() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.run(async {
        let world = cluster.sim.node("client");
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let records = seen.clone();
        let recorder = Box::new(move || Rc::new(Recorder(records.clone())) as Rc<dyn Translator>);
        let mount = Mount::join_with(&world, cluster.options(), vec![recorder]).await.unwrap();
        world.spawn("client", mount.clone().background(world.clone()));
        let session = mount.session(world.clone());
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 5, b"bytes").await.unwrap();
        session.flush(opened.handle).await.unwrap();
        session.fsync(opened.handle).await.unwrap();
        assert_eq!(*session.read(opened.handle, 0, 100).await.unwrap(), *b"\0\0\0\0\0bytes");
        assert_eq!(*seen.lock().unwrap(), ["write 5..10", "flush", "sync", "read 0..100: 10 bytes"]);
        let layers = mount.layer_counters();
        let names: Vec<&str> = layers.iter().map(|layer| layer.name).collect();
        assert_eq!(names, ["recorder", "auto", "io-cache", "read-ahead", "write-behind", "bricks"]);
        assert_eq!((layers[0].reads, layers[0].read_bytes, layers[0].written_bytes), (1, 100, 5));
    });
}

/// A file of some stripes that is stable, at the first mount; `tuning` is in effect.
async fn file(
    cluster: &Cluster,
    stripes: usize,
    tuning: &str,
) -> (Arc<Mount>, client::Session, u64, Vec<u8>) {
    let world = cluster.sim.node("client");
    let options = MountOptions { memory_budget: 64 << 20, ..cluster.options() };
    let mount = Mount::join(&world, options).await.unwrap();
    world.spawn("client", mount.clone().background(world.clone()));
    let session = mount.session(world);
    mount.tune(tuning).unwrap();
    let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
    let bytes = pattern(stripes * STRIPE, 1);
    session.write(opened.handle, 0, &bytes).await.unwrap();
    session.fsync(opened.handle).await.unwrap();
    (mount, session, opened.handle, bytes)
}

#[test]
fn io_cache_answers_what_was_read_before() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.run(async {
        let (mount, session, handle, bytes) =
            file(&cluster, 8, "read-ahead=off io-cache=on io-cache.page=4K").await;
        let reads = || cluster.calls("ReadUnit");
        let read = async |at: usize, len: usize| {
            assert!(*session.read(handle, at as u64, len).await.unwrap() == bytes[at..at + len]);
        };
        read(UNIT, UNIT).await;
        let before = reads();
        read(UNIT, UNIT).await;
        read(UNIT + 100, 500).await;
        assert_eq!(reads(), before, "all of it is in the cache");
        read(0, 4 * UNIT).await;
        assert_eq!(reads(), before + 3, "only the pages that are missing are read");
        assert!(mount.counters().cache_bytes >= 4 * UNIT as u64);

        mount.tune("io-cache=off").unwrap();
        read(UNIT, UNIT).await;
        assert_eq!(reads(), before + 4, "off counts from the next request on");
        mount.tune_file(mount_inode(&session).await, "io-cache=on").unwrap();
        read(UNIT, UNIT).await;
        assert_eq!(reads(), before + 4, "the file's own setting counts more, and its pages are still right");
        mount.tune_file(mount_inode(&session).await, "io-cache.page=8K").unwrap();
        read(UNIT, UNIT).await;
        assert_eq!(reads(), before + 6, "a page of another size is read whole: two units");
        read(0, UNIT).await;
        assert_eq!(reads(), before + 6);
    });
}

async fn mount_inode(session: &client::Session) -> types::InodeId {
    session.lookup(ROOT, b"f").await.unwrap().inode
}

/// Reads, bytes read, writes and bytes written of the last layer.
fn of_bricks(layers: &[client::LayerCounters]) -> [u64; 4] {
    let bricks = layers.last().unwrap();
    assert_eq!(bricks.name, "bricks");
    [bricks.reads, bricks.read_bytes, bricks.writes, bricks.written_bytes]
}

#[test]
fn the_last_layer_is_what_bricks_are_asked() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.known().encode = Encode::Client;
    cluster.run(async {
        let (mount, session, handle, _) = file(&cluster, 8, "io-cache=off read-ahead=off").await;
        let inode = mount_inode(&session).await;
        let unit = UNIT as u64;
        // Each whole stripe is staged as two units of data and one of parity.
        assert_eq!(cluster.calls("Stage"), 24);
        assert_eq!(of_bricks(&mount.layer_counters()), [0, 0, 24, 24 * unit]);
        let other = session.create(ROOT, b"other", OWNER).await.unwrap();
        let before = cluster.known().written;
        session.write(other.handle, 100, &[1; 1000]).await.unwrap();
        let gathered = of_bricks(&mount.file_layer_counters(other.attr.inode).unwrap());
        assert_eq!(gathered, [0; 4], "it is gathered");
        session.fsync(other.handle).await.unwrap();
        assert_eq!(cluster.known().written - before, 1000);
        assert_eq!(of_bricks(&mount.file_layer_counters(other.attr.inode).unwrap()), [0, 0, 1, 1000]);

        session.read(handle, 0, 3 * UNIT).await.unwrap();
        session.read(handle, 10, 100).await.unwrap();
        assert_eq!(cluster.calls("ReadUnit"), 4);
        assert_eq!(of_bricks(&mount.file_layer_counters(inode).unwrap()), [4, 3 * unit + 100, 24, 24 * unit]);
        assert_eq!(of_bricks(&mount.layer_counters()), [4, 3 * unit + 100, 25, 24 * unit + 1000]);

        // A page that is larger than the reads, at places that share none.
        mount.tune_file(inode, "io-cache=on io-cache.page=8K").unwrap();
        let before = mount.file_layer_counters(inode).unwrap();
        for page in 0..4 {
            session.read(handle, page * 8192, 512).await.unwrap();
        }
        let after = mount.file_layer_counters(inode).unwrap();
        let bytes = |layer: usize| after[layer].read_bytes - before[layer].read_bytes;
        assert_eq!([0, 1, 2, 3, 4].map(bytes), [4 * 512, 4 * 512, 4 * 8192, 4 * 8192, 4 * 8192]);
        assert_eq!(after[4].reads, cluster.calls("ReadUnit"));

        // Bricks that do not answer: what they have is asked of primaries.
        mount.tune_file(inode, "io-cache=off").unwrap();
        let world = cluster.sim.node("client");
        for group in 0..3 {
            let silent = cluster.known().map.volumes[0].groups[group].slots[0].brick;
            cluster.known().mute = [silent].into();
            session.read(handle, 0, STRIPE).await.unwrap();
            world.sleep(2_000_000).await;
            cluster.known().mute.clear();
        }
        assert!(cluster.calls("ReadStripe") > 0);
        let answered = cluster.calls("ReadUnit") + cluster.calls("ReadStripe");
        let unanswered = of_bricks(&mount.layer_counters())[0] - answered;
        assert!((1..=3).contains(&unanswered), "what nobody answered is counted too: {unanswered}");

        session.release(handle).await.unwrap();
        session.release(other.handle).await.unwrap();
        world.sleep(3_000_000).await;
        assert_eq!(mount.file_layer_counters(inode), None, "it is closed");
    });
}

#[test]
fn nothing_old_is_read_from_a_cache() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.run(async {
        let on = "io-cache=on io-cache.page=16K read-ahead=on";
        let (mount, session, handle, mut bytes) = file(&cluster, 8, on).await;
        let inode = mount_inode(&session).await;
        let all = async |bytes: &[u8]| {
            for (n, part) in bytes.chunks(UNIT).enumerate() {
                assert!(*session.read(handle, (n * UNIT) as u64, UNIT).await.unwrap() == *part, "unit {n}");
            }
        };
        all(&bytes).await;
        // A write, while it is in a buffer and when it is stable.
        session.write(handle, 5000, &[7; 3000]).await.unwrap();
        bytes[5000..8000].fill(7);
        all(&bytes).await;
        session.fsync(handle).await.unwrap();
        all(&bytes).await;
        // A hole, and another end.
        session.zero(handle, 100..20_000).await.unwrap();
        bytes[100..20_000].fill(0);
        all(&bytes).await;
        for size in [30_000, 60_000] {
            let changes = SetAttrs { size: Some(size), ..SetAttrs::default() };
            session.setattr(inode, changes).await.unwrap();
            bytes.resize(size as usize, 0);
            all(&bytes).await;
        }
        // Another mount writes.
        let (_, other) = cluster.mount("other").await;
        let theirs = other.open(inode, true, false).await.unwrap().handle;
        other.write(theirs, 0, &[9; 2000]).await.unwrap();
        bytes[..2000].fill(9);
        all(&bytes).await;
        assert_eq!(mount.mode(inode), Mode::Shared);
        let before = cluster.calls("ReadUnit");
        all(&bytes).await;
        assert!(cluster.calls("ReadUnit") > before, "a shared file is not cached");
    });
}

#[test]
fn read_ahead_fetches_before_it_is_asked() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.run(async {
        let (mount, session, handle, bytes) = file(&cluster, 64, "io-cache=off read-ahead=on").await;
        let world = cluster.sim.node("client");
        let read = async |at: usize| {
            let began = world.now();
            assert!(*session.read(handle, at as u64, UNIT).await.unwrap() == bytes[at..at + UNIT]);
            world.now() - began
        };
        let alone = read(0).await;
        read(UNIT).await;
        read(2 * UNIT).await;
        world.sleep(100_000).await;
        assert!(mount.counters().cache_bytes > 0, "it is there before it is asked for");
        let mut us = Vec::new();
        for n in 3..60 {
            us.push(read(n * UNIT).await);
        }
        assert!(us.iter().filter(|us| **us == 0).count() > 50, "alone {alone} us, then {us:?}");
        let layers = mount.layer_counters();
        assert!(layers[3].reads < 20, "many reads became few: {layers:?}");
        for n in (60..120).rev() {
            read(n * UNIT).await;
        }
        assert!(mount.layer_counters()[3].reads < 50, "backward too");
        mount.tune("read-ahead=off").unwrap();
        world.sleep(100_000).await;
        let before = mount.layer_counters()[3].reads;
        for n in 0..10 {
            read(n * UNIT).await;
        }
        assert_eq!(mount.layer_counters()[3].reads, before + 10);
    });
}

#[test]
fn write_behind_can_be_switched_and_sized() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let world = cluster.sim.node("client");
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let writes = || cluster.known().written;
        let write = async |at: u64| assert_eq!(session.write(opened.handle, at, &[1; 1000]).await, Ok(1000));
        write(0).await;
        assert_eq!(writes(), 0, "it is gathered");
        mount.tune("write-behind=off").unwrap();
        write(1000).await;
        assert_eq!(writes(), 2000, "both have left");
        mount.tune("write-behind=on write-behind.age=50ms").unwrap();
        write(2000).await;
        world.sleep(200_000).await;
        assert_eq!(writes(), 3000, "its time is over");
        mount.tune("write-behind.age=auto write-behind.size=4K").unwrap();
        for n in 3..7 {
            write(n * 1000).await;
        }
        world.sleep(100_000).await;
        assert_eq!(writes(), 3000, "4,000 bytes are less than 4 KiB");
        write(7000).await;
        world.sleep(100_000).await;
        assert_eq!(writes(), 8000);
        let error = mount.tune("io-cache.size=1T").unwrap_err().to_string();
        assert!(error.contains("give the mount more"), "{error}");
    });
}

#[test]
fn auto_follows_the_work() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.run(async {
        let (mount, session, handle, _) = file(&cluster, 400, "io-cache=auto").await;
        let inode = mount_inode(&session).await;
        let places: RefCell<u64> = RefCell::new(0);
        let random = async |len: usize| {
            for _ in 0..100 {
                *places.borrow_mut() += 1;
                let at = places.borrow().wrapping_mul(0x9E37_79B9_7F4A_7C15) % 780 * UNIT as u64;
                session.read(handle, at, len).await.unwrap();
            }
        };
        random(UNIT).await;
        let report = mount.tuning(Some(inode));
        assert_eq!(report.class, Class::Random);
        let shown = report.effective.to_string();
        assert!(
            shown.contains("io-cache=on io-cache.page=4K") && shown.contains("read-ahead=off"),
            "{shown}"
        );
        for n in 0..100u64 {
            session.read(handle, n * 2 * UNIT as u64, 2 * UNIT).await.unwrap();
        }
        assert_eq!(mount.tuning(Some(inode)).class, Class::Sequential);
        let shown = mount.tuning(Some(inode)).effective.to_string();
        assert!(shown.contains("read-ahead=on"), "{shown}");
        mount.tune("read-ahead=off").unwrap();
        let shown = mount.tuning(Some(inode)).effective.to_string();
        assert!(shown.contains("read-ahead=off"), "what was set counts: {shown}");
    });
}
