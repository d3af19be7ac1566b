//! A disk that an NBD server lends loses nothing for as long as the server keeps its word, and is given up with a
//! reason otherwise: the server dies, forgets, hangs and comes back, and bytes and texts are compared.

mod hostile;
mod server;
mod storm;
mod wrong;

use std::rc::Rc;

use types::Buf;

use self::server::{Behaviour, InjectedFault, Server};
use super::Disk;
use crate::nbd::consts::*;
use crate::{SimOptions, Simulation, World};

const SIZE: u64 = 1 << 20;
const SECOND: u64 = 1_000_000;
const URL: &str = "nbd://lender:10809/disk";

/// Starts the server's node, with the disk that it has or a new one.
async fn lend(sim: &Simulation, behaviour: Behaviour) -> Rc<Server> {
    let world = sim.node("lender");
    let disk = match world.open_disk("disk").await {
        Ok(disk) => disk,
        Err(_) => world.create_disk("disk", SIZE).await.unwrap(),
    };
    let server = Server::new(&world, disk, behaviour);
    server.listen(world.listen(":10809").await.unwrap());
    server
}

fn calm(seed: u64) -> Simulation {
    Simulation::new(seed, SimOptions::default())
}

fn block(byte: u8) -> Buf {
    Buf::copy_of(&[byte; 4096])
}

/// Runs a story of a brick's machine and an honest server.
fn story(tell: impl AsyncFn(&Simulation, World, Rc<Server>, Disk)) {
    let sim = calm(1);
    sim.block_on("brick", async {
        let server = lend(&sim, Behaviour::honest(SIZE)).await;
        let world = sim.node("brick");
        let disk = Disk::open(&world, URL, 0).await.unwrap();
        tell(&sim, world, server, disk).await;
    });
}

#[test]
fn bytes_come_back_through_any_server() {
    for (sizes, seed) in [[1, 1, 32 << 20], [512, 4096, 8192], [4096, 4096, 4096]].into_iter().zip(1..) {
        let sim = calm(seed);
        sim.block_on("brick", async {
            let server = lend(&sim, Behaviour { sizes, ..Behaviour::honest(SIZE) }).await;
            let disk = sim.node("brick").open_disk(URL).await.unwrap();
            assert_eq!((disk.len(), disk.name()), (SIZE, URL));
            let bytes: Vec<u8> = (0..50_000u32).map(|n| (n % 251) as u8).collect();
            let parts = [0..1, 1..20_000, 20_000..20_000, 20_000..50_000];
            disk.write(4_000, parts.map(|range| Buf::copy_of(&bytes[range])).to_vec()).await.unwrap();
            disk.write(3_990, vec![Buf::copy_of(&[7; 10])]).await.unwrap();
            disk.sync().await.unwrap();
            assert_eq!(*disk.read(4_000, 50_000).await.unwrap(), *bytes);
            assert_eq!(*disk.read(3_989, 12).await.unwrap(), [&[0][..], &[7; 10], &[0]].concat());
            assert_eq!(disk.read(54_000, 1).await.unwrap()[0], 0);
            assert!(disk.read(SIZE, 0).await.unwrap().is_empty());
            assert_eq!(server.flushes.get(), 1);
            let beyond = disk.read(SIZE - 1, 2).await.unwrap_err();
            assert_eq!(beyond.kind(), std::io::ErrorKind::UnexpectedEof);
            assert!(disk.write(SIZE, vec![block(1)]).await.is_err());
            // What is only half a block of the server's is out of reach.
            server.behaviour.borrow_mut().size = SIZE - 4097;
            let disk = sim.node("brick").open_disk(URL).await.unwrap();
            assert_eq!(disk.len(), (SIZE - 4097) / u64::from(sizes[0]) * u64::from(sizes[0]));
        });
    }
}

#[test]
fn a_server_that_forgets_is_told_again() {
    story(async |sim, world, server, disk| {
        disk.write(8192, vec![block(1)]).await.unwrap();
        disk.sync().await.unwrap();
        disk.write(8192, vec![block(2)]).await.unwrap();
        disk.write(8192 + 100, vec![Buf::copy_of(&[3; 10])]).await.unwrap();
        disk.write(65_536, vec![block(4)]).await.unwrap();
        drop(server);
        sim.power_cut("lender");
        world.sleep(5 * SECOND).await;
        lend(sim, Behaviour::honest(SIZE)).await;
        let mut right = block(2).to_vec();
        right[100..110].fill(3);
        assert_eq!(*disk.read(8192, 4096).await.unwrap(), *right);
        disk.sync().await.unwrap();
        sim.power_cut("lender");
        let server = lend(sim, Behaviour::honest(SIZE)).await;
        assert_eq!(*server.disk.read(8192, 4096).await.unwrap(), *right);
        assert_eq!(*server.disk.read(65_536, 4096).await.unwrap(), *block(4));
    });
}

#[test]
fn what_is_kept_for_a_server_that_forgets_is_bounded() {
    let (sim, size) = (calm(3), 128 << 20);
    sim.block_on("brick", async {
        let world = sim.node("lender");
        let server =
            Server::new(&world, world.create_disk("disk", size).await.unwrap(), Behaviour::honest(size));
        server.listen(world.listen(":10809").await.unwrap());
        let disk = Disk::open(&sim.node("brick"), URL, 0).await.unwrap();
        let large = types::BufMut::zeroed(4 << 20).freeze();
        for at in 0..20u64 {
            disk.write(at * (4 << 20), vec![large.clone()]).await.unwrap();
        }
        assert_eq!(server.flushes.get(), 2, "a flush for each 32 MiB that nobody has flushed");
    });
}

#[test]
fn a_pause_is_borne_and_a_long_one_is_the_end() {
    story(async |sim, world, server, disk| {
        drop(server);
        sim.kill("lender");
        let asked = world.now();
        let (later, again) = (world.clone(), async {
            world.sleep(20 * SECOND).await;
            lend(sim, Behaviour::honest(SIZE)).await
        });
        let (written, server) = futures_util::join!(disk.write(4096, vec![block(1)]), again);
        written.unwrap();
        assert!(later.now() - asked >= 20 * SECOND);
        assert_eq!(*server.disk.read(4096, 4096).await.unwrap(), *block(1));
        drop(server);
        sim.kill("lender");
        let asked = world.now();
        let lost = disk.sync().await.unwrap_err().to_string();
        let waited = world.now() - asked;
        assert!((30 * SECOND..34 * SECOND).contains(&waited), "{waited}");
        for words in [URL, "nothing came from it for 30 s", "connection refused", "start the brick again"] {
            assert!(lost.contains(words), "`{words}` is not in: {lost}");
        }
        // It stays lost, also when the server is back.
        lend(sim, Behaviour::honest(SIZE)).await;
        world.sleep(5 * SECOND).await;
        assert_eq!(disk.read(0, 1).await.unwrap_err().to_string(), lost);
        assert_eq!(disk.lost().await.to_string(), lost);
        assert!(Disk::open(&world, URL, 0).await.is_ok(), "for this holder only");
    });
}

#[test]
fn an_idle_disk_is_missed_too() {
    story(async |sim, world, server, disk| {
        drop(server);
        sim.power_cut("lender");
        let lost = world.timeout(60 * SECOND, disk.lost()).await.expect("somebody looks");
        assert!(lost.to_string().contains("nothing came from it"), "{lost}");
    });
}

#[test]
fn a_server_that_hangs_is_not_waited_for_for_ever() {
    for kind in [CMD_READ, CMD_WRITE, CMD_FLUSH] {
        story(async |_, world, server, disk| {
            server.behaviour.borrow_mut().fault = Some((kind, InjectedFault::Silence));
            let begun = world.now();
            let hung = match kind {
                CMD_READ => disk.read(0, 4096).await.unwrap_err(),
                CMD_WRITE => disk.write(4096, vec![block(1)]).await.unwrap_err(),
                _ => disk.sync().await.unwrap_err(),
            };
            assert!(hung.to_string().contains("it does not answer"), "{hung}");
            assert!(world.now() - begun < 40 * SECOND);
        });
    }
}

#[test]
fn a_connection_that_ends_anywhere_is_made_again() {
    for fault in [InjectedFault::Drop, InjectedFault::Cut, InjectedFault::Code(CODE_SHUTDOWN)] {
        for kind in [CMD_READ, CMD_WRITE, CMD_FLUSH] {
            story(async |_, world, server, disk| {
                disk.write(4096, vec![block(1)]).await.unwrap();
                server.behaviour.borrow_mut().fault = Some((kind, fault));
                let mended = async {
                    world.sleep(3 * SECOND).await;
                    server.behaviour.borrow_mut().fault = None;
                };
                let work = async {
                    disk.write(8192, vec![block(2)]).await?;
                    disk.sync().await?;
                    disk.read(4096, 8192).await
                };
                let (bytes, ()) = futures_util::join!(work, mended);
                assert_eq!(*bytes.unwrap(), [[1; 4096], [2; 4096]].concat(), "{fault:?} {kind}");
                assert!(server.entered.get() > 1);
            });
        }
    }
}

#[test]
fn whoever_gives_up_a_request_loses_nobody_elses() {
    story(async |_, world, server, disk| {
        server.behaviour.borrow_mut().fault = Some((CMD_WRITE, InjectedFault::Drop));
        assert!(world.timeout(SECOND / 10, disk.write(4096, vec![block(1)])).await.is_none());
        server.behaviour.borrow_mut().fault = None;
        disk.write(8192, vec![block(2)]).await.unwrap();
        disk.sync().await.unwrap();
        assert_eq!(*disk.read(8192, 4096).await.unwrap(), *block(2));
    });
}

#[test]
fn the_connection_ends_with_the_disk() {
    story(async |_, world, server, disk| {
        let again = disk.clone();
        drop(disk);
        again.write(4096, vec![block(1)]).await.unwrap();
        drop(again);
        world.sleep(60 * SECOND).await;
        assert_eq!(server.entered.get(), 1);
        assert_eq!(Rc::strong_count(&server), 2, "the listener has it, and no connection");
    });
}

/// The same on real sockets: TCP and a socket in the file system.
#[test]
fn bytes_come_back_over_real_sockets_also_after_a_break() {
    let folder = std::env::temp_dir().join(format!("shoal-remote-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let world = World::real().unwrap();
    world.block_on(async {
        let disk = world.create_disk(&path("disk"), SIZE).await.unwrap();
        let server = Server::new(&world, disk, Behaviour::honest(SIZE));
        let port = world.listen("127.0.0.1:0").await.unwrap();
        let tcp = format!("nbd://{}/disk", port.address());
        server.listen(port);
        server.listen(world.listen_at_path(&path("socket")).await.unwrap());
        let unix = format!("nbd+unix:///disk?socket={}", path("socket"));
        for (url, byte) in [(tcp, 5), (unix, 6)] {
            let disk = world.open_disk(&url).await.unwrap();
            let large = Buf::copy_of(&vec![byte; 300_000]);
            disk.write(8_000, vec![block(byte), large, block(byte)]).await.unwrap();
            server.behaviour.borrow_mut().fault = Some((CMD_FLUSH, InjectedFault::Drop));
            let mended = async {
                world.sleep(SECOND / 2).await;
                server.behaviour.borrow_mut().fault = None;
            };
            futures_util::join!(disk.sync(), mended).0.unwrap();
            assert!(disk.read(8_000, 308_192).await.unwrap().iter().all(|found| *found == byte));
        }
    });
    drop(world);
    std::fs::remove_dir_all(&folder).unwrap();
}
