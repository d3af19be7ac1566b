//! Nothing that was answered is lost: sixty runs of writes, flushes and reads, in which the server is killed, loses
//! power or is cut off every few seconds; then every byte is compared.

use std::collections::BTreeMap;

use super::*;

/// Sectors of 512 bytes that the story writes to; each write has its number in all of its sectors.
const SECTORS: u64 = 512;
const SECTOR: usize = 512;

fn sectors(first: u64, count: u64, number: u64) -> Vec<Buf> {
    (first..first + count).map(|_| Buf::copy_of(&number.to_le_bytes().repeat(SECTOR / 8))).collect()
}

async fn check(disk: &crate::Disk, right: &BTreeMap<u64, u64>, seed: u64) {
    let bytes = disk.read(0, SECTORS as usize * SECTOR).await.unwrap();
    for (sector, found) in bytes.chunks(SECTOR).enumerate() {
        let number = right.get(&(sector as u64)).copied().unwrap_or(0);
        let found: Vec<u64> = found.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        assert!(
            found.iter().all(|word| *word == number),
            "seed {seed}, sector {sector}: {number}, {found:?}"
        );
    }
}

/// One brick's machine writes, a few requests at a time; the lender's loses its power, is killed and is cut off.
fn storm(seed: u64) -> u64 {
    let options = SimOptions { drift_ppm_max: 0, ..SimOptions::drawn(seed) };
    let sim = Simulation::new(seed, options);
    let repeated = std::cell::Cell::new(0);
    sim.block_on("brick", async {
        let sizes = [[1, 4096, 32 << 20], [512, 512, 4096], [4096, 4096, 8192]][seed as usize % 3];
        let behaviour = Behaviour { sizes, ..Behaviour::honest(SIZE) };
        lend(&sim, behaviour.clone()).await;
        let world = sim.node("brick");
        // Opening may meet a break; whoever starts a brick does so again.
        let disk = loop {
            if let Ok(disk) = world.open_disk(URL).await {
                break disk;
            }
        };
        let done = std::cell::Cell::new(false);
        let nemesis = async {
            let chance = sim.node("fate");
            while !done.get() {
                world.sleep(chance.random() % (3 * SECOND)).await;
                repeated.set(repeated.get() + 1);
                match chance.random() % 3 {
                    0 => sim.kill("lender"),
                    1 => sim.power_cut("lender"),
                    _ => {
                        sim.partition("brick", "lender", true);
                        world.sleep(chance.random() % SECOND).await;
                        sim.partition("brick", "lender", false);
                        continue;
                    }
                }
                world.sleep(chance.random() % (4 * SECOND)).await;
                lend(&sim, behaviour.clone()).await;
                world.sleep(5 * SECOND).await;
            }
        };
        let work = async {
            let mut right = BTreeMap::new();
            for number in 1..=300u64 {
                // Two writes at once, to different 4-KiB blocks, and now and then a flush or a look at everything.
                let first = world.random() % (SECTORS / 2 - 40);
                let (a, b) = (first, SECTORS / 2 + first);
                let count = 1 + world.random() % 32;
                let (one, other) = futures_util::join!(
                    disk.write(a * SECTOR as u64, sectors(a, count, 2 * number)),
                    disk.write(b * SECTOR as u64, sectors(b, count, 2 * number + 1)),
                );
                one.and(other).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                right.extend((a..a + count).map(|sector| (sector, 2 * number)));
                right.extend((b..b + count).map(|sector| (sector, 2 * number + 1)));
                world.sleep(world.random() % (SECOND / 20)).await;
                match world.random() % 20 {
                    0 => check(&disk, &right, seed).await,
                    1..4 => disk.sync().await.unwrap_or_else(|error| panic!("seed {seed}: {error}")),
                    _ => {}
                }
            }
            disk.sync().await.unwrap();
            done.set(true);
            right
        };
        let (right, ()) = futures_util::join!(work, nemesis);
        check(&disk, &right, seed).await;
        drop(disk);
        sim.power_cut("lender");
        let server = lend(&sim, behaviour).await;
        check(&server.disk, &right, seed).await;
    });
    repeated.get()
}

#[test]
fn nothing_answered_is_lost_whatever_befalls_the_server() {
    let losses: u64 = (1..=60).map(storm).sum();
    assert!(losses > 100, "{losses} losses are no storm");
}
