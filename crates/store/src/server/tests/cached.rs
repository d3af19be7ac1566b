//! A brick with a cache: what it saves the disk, that a restart finds it again, that nothing old or wrong comes from it, and
//! that reads go on when its disk fails.

use cache::{CHUNK, CacheError, Fill};
use types::Seq;
use types::messages::brick::CacheReport;
use world::sim::DiskFaults;

use super::*;
use crate::read_cache::BaseName;

const CACHE: &str = "cache";
const CACHE_BYTES: u64 = 4 << 20;
const UNIT: usize = 4 * CHUNK as usize;
const KEY: StripeKey = StripeKey { object: ObjectId(1), stripe: 0 };
const SECOND: u64 = 1_000_000;

/// A brick with an empty cache that serves one unit, and the bytes of this unit.
async fn begin(bench: &Bench, client: &mut Client) -> Vec<u8> {
    drop(bench.sim.node("brick").create_disk(CACHE, CACHE_BYTES).await.expect("a new disk"));
    bench.start_brick_with(Some(CACHE));
    write(client, 0, UNIT, 1, &mut [0; UNIT]).await
}

fn bench(seed: u64) -> Bench {
    Bench::new(seed, small(2048), UNIT as u32)
}

/// Writes to the unit, durably. Returns its bytes.
async fn write(client: &mut Client, at: usize, len: usize, fill: u8, bytes: &mut [u8]) -> Vec<u8> {
    let mut patch = client.patch(at, len, Some(fill));
    // No two blocks are alike.
    patch.bytes = Some((0..len).map(|i| fill ^ (i as u8).rotate_left(3) ^ (i >> 12) as u8).collect());
    client.write(KEY, &patch).await.expect("room");
    client.sync().await;
    patch.apply(bytes);
    bytes.to_vec()
}

/// Part of the unit, by a direct read, and its identity.
async fn read(client: &Client, at: usize, len: usize) -> (Seq, Vec<u8>) {
    let read = ReadUnit { group: GROUP, key: KEY, slot: 0, offset: at as u32, len: len as u32 };
    loop {
        let (answer, payload) = match client.call(&read, Buf::empty()).await {
            // The decision of the last write comes soon.
            Err(Refusal::Pending) => {
                client.world.sleep(5_000).await;
                continue;
            }
            answered => answered.expect("readable"),
        };
        let mut bytes = payload.to_vec();
        bytes.resize(len, 0);
        return (answer.identity, bytes);
    }
}

/// Reads the whole unit and waits until the cache has it. Returns its identity.
async fn fill(client: &Client, expected: &[u8]) -> Seq {
    let (identity, bytes) = read(client, 0, UNIT).await;
    assert!(bytes == *expected);
    client.world.sleep(SECOND).await;
    identity
}

async fn seen(client: &Client) -> CacheReport {
    client.report().await.cache.expect("there is a cache")
}

#[test]
fn what_was_read_comes_from_the_cache() {
    let bench = bench(1);
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let bytes = begin(&bench, &mut client).await;
        assert_eq!(seen(&client).await.filled_bytes, 0, "writes are not added");
        // A part first: only its blocks are added.
        assert!(read(&client, CHUNK as usize - 4096, 8192).await.1 == bytes[CHUNK as usize - 4096..][..8192]);
        client.world.sleep(SECOND).await;
        assert_eq!((seen(&client).await.filled_bytes, seen(&client).await.misses), (8192, 2));
        fill(&client, &bytes).await;
        let before = (client.report().await.device.reads, seen(&client).await);
        for (at, len) in [(0, UNIT), (1, 5), (65_000, 70_000), (UNIT - 4096, 4096), (131_071, 2)] {
            assert!(read(&client, at, len).await.1 == bytes[at..at + len], "{at} {len}");
        }
        let after = seen(&client).await;
        assert_eq!(client.report().await.device.reads, before.0, "the disk is not read");
        assert_eq!((after.misses, after.hits), (before.1.misses, before.1.hits + 4 + 1 + 3 + 1 + 2));
        assert_eq!((&*after.state, after.damaged, after.bytes), ("on", 0, 4 * CHUNK));

        // Nothing else uses the cache: what reads through the primary finds the damage of the disk.
        let data = bench.superblock.data_blocks * BLOCK as u64;
        bench.sim.damage("brick", "disk", bench.superblock.data_start, data);
        assert!(read(&client, 0, UNIT).await.1 == bytes);
        assert_eq!(client.report().await.damaged, 0);
        client.read_stripe(KEY).await.expect_err("the disk is damaged");
        assert!(client.report().await.damaged > 0);
    });
}

#[test]
fn an_overwritten_unit_is_read_as_it_is_now() {
    let bench = bench(2);
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let mut bytes = begin(&bench, &mut client).await;
        let first = fill(&client, &bytes).await;
        let hits = seen(&client).await.hits;
        // An overlay lies over what the cache has.
        write(&mut client, 5000, 100, 2, &mut bytes).await;
        let (identity, found) = read(&client, 0, UNIT).await;
        assert!(found == bytes && identity == first);
        assert!(seen(&client).await.hits > hits, "the base comes from the cache");
        // Folded, it is another base.
        client.world.sleep(5 * SECOND).await;
        assert!(fill(&client, &bytes).await > first);
        // Written whole, many times, and read in between and afterwards.
        for fill in 3..20 {
            write(&mut client, 0, UNIT, fill, &mut bytes).await;
            assert!(read(&client, 0, UNIT).await.1 == bytes, "{fill}");
            if fill % 3 == 0 {
                client.world.sleep(SECOND).await;
            }
            assert!(read(&client, 0, UNIT).await.1 == bytes, "{fill}");
        }
    });
}

#[test]
fn a_restart_finds_the_cache_again() {
    for power in [false, true] {
        let bench = bench(3);
        let mut client = bench.client();
        bench.sim.block_on("client", async {
            let mut bytes = begin(&bench, &mut client).await;
            fill(&client, &bytes).await;
            client.world.sleep(3 * SECOND).await;
            if power {
                // What the table and the cells lose by this is not found, and no more.
                bench.sim.power_cut("brick");
            } else {
                bench.sim.kill("brick");
            }
            bench.start_brick_with(Some(CACHE));
            assert!(read(&client, 0, UNIT).await.1 == bytes);
            let found = seen(&client).await;
            assert!(power || (found.hit_bytes, found.misses) == (UNIT as u64, 0), "{found:?}");
            assert!(read(&client, 0, UNIT).await.1 == bytes);

            // Written by a life without a cache: the next one with it knows.
            bench.sim.kill("brick");
            bench.start_brick();
            write(&mut client, 0, UNIT, 9, &mut bytes).await;
            bench.sim.kill("brick");
            bench.start_brick_with(Some(CACHE));
            assert!(read(&client, 0, UNIT).await.1 == bytes);
            assert_eq!(seen(&client).await.hits, 0);
        });
    }
}

#[test]
fn wrong_bytes_in_the_cache_are_read_from_the_disk() {
    let bench = bench(4);
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let bytes = begin(&bench, &mut client).await;
        let identity = fill(&client, &bytes).await;
        bench.sim.damage("brick", CACHE, 8192, CACHE_BYTES - 8192);
        let hits = seen(&client).await.hits;
        assert!(read(&client, 0, UNIT).await.1 == bytes);
        let found = seen(&client).await;
        assert_eq!((found.damaged, found.hits, &*found.state), (4, hits, "on"));
        client.world.sleep(SECOND).await;
        fill(&client, &bytes).await;
        assert!(seen(&client).await.hits > hits, "it was added again");

        // Other bytes under the right key, with the right checksum of the cache.
        bench.sim.kill("brick");
        let world = bench.sim.node("poisoner");
        drop(world.create_disk(CACHE, CACHE_BYTES).await.expect("a new disk"));
        let file = CacheFile::open(&world, CACHE).await.expect("a cache");
        let poisoned = file.load(&world, CLUSTER, 1 << 20).await.expect("an empty cache");
        let disk = poisoned.disk_for(&world).expect("its disk");
        let base = BaseName { volume: GROUP.volume, slot: 0, key: KEY, identity };
        poisoned.queue(Fill { key: base.chunk(1), first: 0, bytes: Buf::copy_of(&bytes[..CHUNK as usize]) });
        world.timeout(3 * SECOND, poisoned.serve(&world)).await;
        let image = disk.read(0, CACHE_BYTES as usize).await.expect("bytes");
        let there = bench.sim.node("brick");
        let cache = there.open_disk(CACHE).await.expect("nobody has it");
        cache.write(0, vec![image]).await.expect("written");
        drop(cache);
        bench.sim.kill("brick");
        bench.start_brick_with(Some(CACHE));
        assert!(read(&client, 0, UNIT).await.1 == bytes, "the descriptor has the last word");
        let found = seen(&client).await;
        assert_eq!((found.damaged, found.hits, found.misses), (1, 0, 4), "{found:?}");
    });
}

#[test]
fn reads_go_on_without_the_cache() {
    for (state, how) in [("full", 0), ("off", 1), ("off", 2), ("off", 3)] {
        let bench = bench(5);
        let mut client = bench.client();
        bench.sim.block_on("client", async {
            let mut bytes = begin(&bench, &mut client).await;
            fill(&client, &bytes).await;
            match how {
                0 => {
                    bench.sim.disk_faults("brick", CACHE, DiskFaults { full: true, ..DiskFaults::default() })
                }
                1 => bench.sim.fail_disk("brick", CACHE, true),
                _ => bench.sim.slow_disk("brick", CACHE, 1_000_000),
            }
            // It fails with a read, or, in the last case, with a write first.
            if how != 3 {
                let began = client.world.now();
                assert!(read(&client, 0, UNIT).await.1 == bytes);
                assert!(client.world.now() - began < 4 * SECOND, "a reader does not wait for long");
            }
            write(&mut client, 0, UNIT, 3, &mut bytes).await;
            assert!(read(&client, 0, UNIT).await.1 == bytes);
            client.world.sleep(30 * SECOND).await;
            let began = client.world.now();
            assert!(read(&client, 0, UNIT).await.1 == bytes);
            assert!(client.world.now() - began < SECOND / 10);
            let found = seen(&client).await;
            assert_eq!(&*found.state, state, "{found:?}");
            assert!(found.reason.is_some(), "{found:?}");

            // Without its cache's disk the brick starts all the same.
            if how == 1 {
                bench.sim.kill("brick");
                bench.start_brick_with(Some(CACHE));
                assert!(read(&client, 0, UNIT).await.1 == bytes);
                let found = seen(&client).await;
                assert!(found.state == "off" && found.reason.is_some(), "{found:?}");
            }
        });
    }
}

#[test]
fn a_cache_that_is_set_up_wrongly_is_refused() {
    let bench = bench(6);
    bench.sim.block_on("brick", async {
        let world = bench.sim.node("brick");
        let start = async |path: &str| {
            let disk = world.open_disk("disk").await.expect("nobody has it");
            let file = match CacheFile::open(&world, path).await {
                Ok(file) => file,
                Err(error) => return Some(error),
            };
            match Brick::start(world.clone(), disk, Some(file), bench.options()).await {
                Ok(_) => None,
                Err(BrickError::Cache(error)) => Some(error),
                Err(error) => panic!("{error}"),
            }
        };
        assert!(matches!(start("nothing").await, Some(CacheError::Open(_))));
        drop(world.create_disk("small", 4096).await.expect("a new disk"));
        assert_eq!(start("small").await, Some(CacheError::TooSmall("small".into())));
        drop(world.create_disk("large", 1 << 30).await.expect("a new disk"));
        let error = start("large").await;
        let Some(CacheError::Memory { needed, room }) = error else { panic!("{error:?}") };
        assert_eq!(room, 256 << 10, "a quarter of 1 MiB");
        assert!(
            (1 << 20..2 << 20).contains(&needed),
            "96 bytes for each of 15,400 chunks, and more: {needed}"
        );
        let theirs = world.create_disk("theirs", CACHE_BYTES).await.expect("a new disk");
        drop(theirs);
        let file = CacheFile::open(&world, "theirs").await.expect("a cache");
        assert!(file.is_blank());
        let other = ClusterId([9; 16]);
        drop(file.load(&world, other, 1 << 20).await.expect("a cache of another cluster"));
        let refused = CacheError::OtherCluster { path: "theirs".into(), theirs: other };
        assert_eq!(start("theirs").await, Some(refused));
        let foreign = world.create_disk("foreign", CACHE_BYTES).await.expect("a new disk");
        let mut block = types::BufMut::zeroed(BLOCK);
        block[..8].copy_from_slice(b"precious");
        foreign.write(0, vec![block.freeze()]).await.expect("written");
        drop(foreign);
        assert_eq!(start("foreign").await, Some(CacheError::Foreign("foreign".into())));
        // Who says so gives up what is there.
        drop(CacheFile::format(&world, "foreign").await.expect("it may be given up"));
        assert_eq!(start("foreign").await, None);
        assert!(!CacheFile::open(&world, "foreign").await.expect("a cache").is_blank());
    });
}
