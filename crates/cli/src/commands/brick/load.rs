//! A load on a disk: so many requests at a time.

use std::io;

use futures_util::future::join_all;
use world::World;

/// Keeps `depth` requests under way until `until`, in microseconds of the world's clock. `done` is told how long each has taken, in
/// microseconds.
pub(super) async fn keep_busy<F: Future<Output = io::Result<()>>>(
    world: &World,
    depth: u32,
    until: u64,
    request: impl Fn() -> F,
    done: impl Fn(u64),
) -> io::Result<()> {
    let one = |_| async {
        loop {
            let begun = world.now();
            if begun >= until {
                return Ok(());
            }
            request().await?;
            done(world.now() - begun);
        }
    };
    join_all((0..depth).map(one)).await.into_iter().collect()
}
