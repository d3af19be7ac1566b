//! Random reads of 4 KiB of a direct disk behind its queue, to compare with fio on the same device:
//!
//! ```text
//! cargo run --release -p world --example direct_reads -- PATH [SECONDS] [DEPTH]
//! fio --name=x --filename=PATH --direct=1 --rw=randread --bs=4k --ioengine=io_uring --iodepth=32 --runtime=5 --time_based
//! ```
//!
//! Nothing is kept in memory. Prints reads per second.

use std::cell::Cell;
use std::rc::Rc;

use futures_util::future::join_all;
use pace::device::PolicyName;
use types::limits::BLOCK;
use world::direct::{DEPTH, DirectOptions};
use world::{DiskMode, World};

fn main() -> std::io::Result<()> {
    let mut words = std::env::args().skip(1);
    let path = words.next().ok_or_else(|| std::io::Error::other("a path is missing"))?;
    let seconds: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(5);
    let depth: u32 = words.next().and_then(|word| word.parse().ok()).unwrap_or(DEPTH);
    let world = World::real()?;
    world.block_on(async {
        let disk = world.open_disk_as(&path, DiskMode::Direct).await?;
        let options = DirectOptions { cache_bytes: 0, depth, policy: PolicyName::Noop, priority: None };
        let (disk, done) = (disk.behind_queue(options), Rc::new(Cell::new(0_u64)));
        let blocks = disk.len() / BLOCK as u64;
        let until = world.now() + seconds * 1_000_000;
        let readers = (0..depth).map(|_| {
            let (world, disk, done) = (world.clone(), disk.clone(), done.clone());
            async move {
                while world.now() < until {
                    disk.read(world.random() % blocks * BLOCK as u64, BLOCK).await?;
                    done.set(done.get() + 1);
                }
                Ok::<(), std::io::Error>(())
            }
        });
        join_all(readers).await.into_iter().collect::<std::io::Result<Vec<()>>>()?;
        println!("{} reads/s", done.get() / seconds);
        Ok(())
    })
}
