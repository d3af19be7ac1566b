//! The world of real sockets, disks, timers and threads keeps the promises that the simulated one keeps: most tests run
//! on io_uring and on its fallback.

use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::thread;

use types::limits::{BLOCK, PAYLOAD_MAX, RECORD_MAX};
use types::wire::{Flags, HEADER_LEN};
use types::{Buf, BufMut, ClusterId, Epoch};

use super::*;
use crate::{DiskMode, Frame, Notify};

mod direct;
mod disks;
mod frames;
mod patience;
mod turns;
mod versions;

/// No bound for a frame.
const ANY: usize = usize::MAX;

/// Runs a test on the ring and on its fallback.
fn on_each<F: Future<Output = ()>>(test: impl Fn(World) -> F) {
    for world in [World::new(), World::polling()] {
        let world = world.unwrap();
        world.block_on("test", test(world.clone()));
    }
}

fn frame(request: u64, record: Vec<u8>, payload: Buf) -> Frame {
    Frame::new(7, request, ClusterId([1; 16]), Epoch(3), Flags::REQUEST, record, payload)
}

fn noise(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 253) as u8).collect()
}

async fn pair(world: &World) -> (Conn, Conn) {
    let listener = world.listen("127.0.0.1:0").await.unwrap();
    let out = world.connect(&listener.address()).await.unwrap();
    (out, listener.accept().await.unwrap())
}

/// Sends back every frame.
async fn echo(conn: Conn) {
    let (mut sender, mut receiver) = conn.split();
    while let Some(frame) = receiver.recv_within(ANY).await.unwrap() {
        sender.send(frame).await.unwrap();
    }
}

/// A folder that goes away with its content.
struct Folder(PathBuf);

impl Folder {
    fn new(on: &str, test: &str) -> Folder {
        let path = PathBuf::from(on).join(format!("shoal-world-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a test on a disk's file system and on one in memory, if there is one.
fn on_each_disk<F: Future<Output = ()>>(test: &str, run: impl Fn(World, String) -> F) {
    let temporary = std::env::temp_dir();
    for on in [temporary.to_str().unwrap(), "/dev/shm"] {
        if PathBuf::from(on).is_dir() {
            let folder = Folder::new(on, test);
            let count = Cell::new(0);
            on_each(|world| {
                count.set(count.get() + 1);
                run(world, folder.file(&format!("disk{}", count.get())))
            });
        }
    }
}

#[test]
fn a_hundred_tasks_at_once() {
    on_each(|world| async move {
        let listener = world.listen("127.0.0.1:0").await.unwrap();
        let address = listener.address();
        let (accepting, served) = (world.clone(), Rc::new(Cell::new(0)));
        world.spawn("test", async move {
            loop {
                accepting.spawn("test", echo(listener.accept().await.unwrap()));
            }
        });
        for task in 0..100 {
            let (world, address, served) = (world.clone(), address.clone(), served.clone());
            world.clone().spawn("test", async move {
                let (mut sender, mut receiver) = world.connect(&address).await.unwrap().split();
                for round in 0..20 {
                    let request = task * 1000 + round;
                    sender.send(frame(request, noise(10), Buf::from(noise(3000)))).await.unwrap();
                    assert_eq!(receiver.recv_within(ANY).await.unwrap().unwrap().header.request, request);
                    world.yield_now().await;
                }
                served.set(served.get() + 1);
            });
        }
        let all = async {
            while served.get() < 100 {
                world.sleep(1_000).await;
            }
        };
        assert!(world.timeout(20_000_000, all).await.is_some(), "{} of 100", served.get());
    });
}

#[test]
fn other_tasks_go_on_during_disk_work() {
    on_each_disk("beside", |world, path| async move {
        let disk = world.create_disk(&path, 8 << 20).await.unwrap();
        let done = Rc::new(Cell::new(0));
        for i in 0..100_u64 {
            let (disk, done) = (disk.clone(), done.clone());
            world.spawn("test", async move {
                let bytes = Buf::from(vec![i as u8; 65_536]);
                disk.write(i * 65_536, vec![bytes.clone()]).await.unwrap();
                if i % 10 == 0 {
                    disk.sync().await.unwrap();
                }
                assert_eq!(disk.read(i * 65_536, 65_536).await.unwrap(), bytes);
                done.set(done.get() + 1);
            });
        }
        while done.get() < 100 {
            world.sleep(500).await;
        }
    });
}

#[test]
fn another_thread_wakes_the_awaited_future_and_tasks() {
    on_each(|world| async move {
        let (ping, pong) = (Notify::new(), Notify::new());
        let far = (ping.clone(), pong.clone());
        let first = pong.wait();
        let other = thread::spawn(move || {
            let world = World::new().unwrap();
            world.block_on("test", async {
                let (ping, pong) = far;
                for _ in 0..2_000 {
                    let next = ping.wait();
                    pong.notify();
                    next.await;
                }
            });
        });
        let mut next = first;
        for _ in 0..2_000 {
            next.await;
            next = pong.wait();
            // From a task, so that both ways of waking are taken.
            let ping = ping.clone();
            world.spawn("test", async move { ping.notify() });
        }
        while !other.is_finished() {
            world.sleep(100).await;
        }
        other.join().unwrap();
    });
}

#[test]
fn another_thread_wakes_more_tasks_than_its_queue_holds() {
    on_each(|world| async move {
        let (start, woken) = (Notify::new(), Rc::new(Cell::new(0)));
        for _ in 0..3 * REMOTE_WAKES {
            let (wait, woken) = (start.wait(), woken.clone());
            world.spawn("test", async move {
                wait.await;
                woken.set(woken.get() + 1);
            });
        }
        world.sleep(1_000).await;
        let other = thread::spawn(move || start.notify());
        while woken.get() < 3 * REMOTE_WAKES {
            world.sleep(500).await;
        }
        other.join().unwrap();
    });
}

#[test]
fn timers_keep_time_and_order() {
    on_each(|world| async move {
        let start = world.now();
        world.sleep(20_000).await;
        assert!(world.now() - start >= 20_000);
        assert_eq!(world.timeout(1_000_000, async { 5 }).await, Some(5));
        assert_eq!(world.timeout(0, async { 6 }).await, Some(6));
        let dropped = Rc::new(Cell::new(false));
        let guard = SetOnDrop(dropped.clone());
        let slow = async {
            let _guard = guard;
            world.sleep(60_000_000).await;
        };
        assert_eq!(world.timeout(5_000, slow).await, None);
        assert!(dropped.get());
        let order = Rc::new(RefCell::new(Vec::new()));
        for us in [30_000, 10_000, 20_000] {
            let (world, order) = (world.clone(), order.clone());
            world.clone().spawn("test", async move {
                world.sleep(us).await;
                order.borrow_mut().push(us);
            });
        }
        world.sleep(100_000).await;
        assert_eq!(*order.borrow(), [10_000, 20_000, 30_000]);
        assert!(world.wall() > 1_700_000_000_000_000_000);
    });
}

struct SetOnDrop(Rc<Cell<bool>>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

#[test]
fn a_task_that_never_rests_does_not_starve_the_others() {
    on_each(|world| async move {
        let busy = world.clone();
        world.spawn("test", async move {
            loop {
                busy.yield_now().await;
            }
        });
        let (near, far) = pair(&world).await;
        world.spawn("test", echo(far));
        let (mut sender, mut receiver) = near.split();
        let exchange = async {
            for i in 0..100 {
                sender.send(frame(i, Vec::new(), Buf::empty())).await.unwrap();
                receiver.recv_within(ANY).await.unwrap().unwrap();
                world.sleep(100).await;
            }
        };
        assert!(world.timeout(10_000_000, exchange).await.is_some());
        // The same with the awaited future itself.
        let end = world.now() + 5_000_000;
        let waited = Rc::new(Cell::new(false));
        let (timer, set) = (world.clone(), waited.clone());
        world.spawn("test", async move {
            timer.sleep(1_000).await;
            set.set(true);
        });
        while !waited.get() && world.now() < end {
            world.yield_now().await;
        }
        assert!(waited.get());
    });
}

#[test]
fn tasks_go_on_at_the_next_block_on() {
    for world in [World::new().unwrap(), World::polling().unwrap()] {
        let (near, far) = world.block_on("test", pair(&world));
        world.spawn("test", echo(far));
        let (mut sender, mut receiver) = near.split();
        for i in 0..100 {
            world.block_on("test", sender.send(frame(i, Vec::new(), Buf::empty()))).unwrap();
            let back = world.block_on("test", receiver.recv_within(ANY)).unwrap().unwrap();
            assert_eq!(back.header.request, i);
        }
    }
}

#[test]
#[should_panic(expected = "block_on inside a future")]
fn one_block_on_at_a_time() {
    let world = World::new().unwrap();
    world.block_on("test", async { world.block_on("test", async {}) });
}

#[test]
fn work_on_another_thread_keeps_nobody_waiting() {
    on_each(|world| async move {
        let here = thread::current().id();
        let (tell, told) = std::sync::mpsc::channel();
        let other = world.clone();
        world.spawn("test", async move {
            other.sleep(1_000).await;
            tell.send(thread::current().id()).unwrap();
        });
        // It waits for a task of this thread, which must go on meanwhile.
        let met = world.off_thread(move || (told.recv(), thread::current().id())).await;
        assert_eq!(met.0, Ok(here));
        assert_ne!(met.1, here);
    });
}

#[test]
#[should_panic(expected = "over there")]
fn a_panic_on_another_thread_is_one_here() {
    let world = World::new().unwrap();
    world.block_on("test", world.off_thread(|| panic!("over there")));
}

#[test]
fn chance_does_not_repeat() {
    let world = World::new().unwrap();
    let drawn: std::collections::BTreeSet<u64> = (0..1_000).map(|_| world.random()).collect();
    assert_eq!(drawn.len(), 1_000);
    let mut bytes = [0; 1_000];
    world.random_bytes(&mut bytes);
    assert!(bytes.iter().any(|&byte| byte != 0));
}

#[test]
fn a_plain_client_sees_whole_frames() {
    on_each(|world| async move {
        let listener = world.listen("127.0.0.1:0").await.unwrap();
        let mut stream = TcpStream::connect(listener.address()).unwrap();
        let (mut sender, _receiver) = listener.accept().await.unwrap().split();
        sender.send(frame(9, b"record".to_vec(), Buf::copy_of(b"payload"))).await.unwrap();
        let mut bytes = [0; HEADER_LEN + 13];
        stream.read_exact(&mut bytes).unwrap();
        let header = Frame::decode_header(bytes.first_chunk().unwrap(), ANY).unwrap();
        assert_eq!((header.record_len, header.payload_len), (6, 7));
        assert_eq!(&bytes[HEADER_LEN..], b"recordpayload");
    });
}

#[test]
fn bytes_through_a_socket_in_the_file_system() {
    on_each(|world| async move {
        let path = std::env::temp_dir().join(format!("shoal-world-socket-{}", std::process::id()));
        let path = path.to_str().unwrap();
        let listener = crate::World(crate::WorldBody::Real(world)).streams_at(path).await;
        drop(listener);
        assert!(!Path::new(path).exists(), "the socket goes with its listener");
    });
}

impl crate::World {
    /// A few bytes and many, both ways, and the ends of it.
    async fn streams_at(&self, path: &str) -> crate::Listener {
        drop(std::os::unix::net::UnixListener::bind(path).unwrap());
        let listener = self.listen_at_path(path).await.expect("a dead one's socket is replaced");
        let taken = self.listen_at_path(path).await.err().map(|error| error.kind());
        assert_eq!(taken, Some(ErrorKind::AddrInUse));
        // It has looked whether somebody listens.
        drop(listener.accept().await.unwrap());
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let (near, far) = (self.connect_to_path(path).await.unwrap(), listener.accept().await.unwrap());
        let ((mut send, mut recv), (mut back, mut take)) = (near.split_stream(), far.split_stream());
        let many = noise(3 << 20);
        let body = Buf::copy_of(&many);
        self.spawn("test", async move {
            send.send(b"head", body).await.unwrap();
            send.send(b"", Buf::empty()).await.unwrap();
            assert_eq!(recv.head(2).await.unwrap(), Some(b"ok".to_vec()));
            assert_eq!(recv.head(1).await.unwrap(), None);
        });
        assert_eq!(take.head(3).await.unwrap(), Some(b"hea".to_vec()));
        assert_eq!(take.head(1).await.unwrap(), Some(b"d".to_vec()));
        assert_eq!(&*take.body(1 << 20).await.unwrap(), &many[..1 << 20]);
        assert!(take.body(0).await.unwrap().is_empty());
        assert_eq!(&*take.body(2 << 20).await.unwrap(), &many[1 << 20..]);
        back.send(b"ok", Buf::empty()).await.unwrap();
        drop((back, take));
        self.yield_now().await;
        listener
    }
}

#[test]
fn threads_share_a_place_and_the_last_one_gives_it_back() {
    let path = std::env::temp_dir().join(format!("shoal-place-{}", std::process::id()));
    let world = crate::World(crate::WorldBody::Real(World::new().unwrap()));
    let listener = world.block_on(world.listen_at_path(path.to_str().unwrap())).unwrap();
    let place = listener.listen_socket().expect("the real world has threads");
    let other = thread::spawn(move || {
        let world = crate::World(crate::WorldBody::Real(World::new().unwrap()));
        let listener = world.listen_shared(&place).unwrap();
        drop(place);
        world.block_on(async {
            let (mut send, _recv) = listener.accept().await.unwrap().split_stream();
            send.send(b"other", Buf::empty()).await.unwrap();
        });
    });
    drop(listener);
    let mut said = [0; 5];
    std::os::unix::net::UnixStream::connect(&path).unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"other");
    other.join().unwrap();
    assert!(!path.exists(), "nobody listens there any more");
}

#[test]
fn two_threads_accept_from_one_socket() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    // Each accepts one: none can have both.
    let accept_one = |world: io::Result<World>, socket| {
        let world = crate::World(crate::WorldBody::Real(world.unwrap()));
        world.block_on(async {
            let conn = world.listen_on(socket).unwrap().accept().await.unwrap();
            conn.split_stream().0.send(b"hello", Buf::empty()).await.unwrap();
        });
    };
    thread::scope(|scope| {
        let (first, second) = (socket.try_clone().unwrap(), socket.try_clone().unwrap());
        scope.spawn(|| accept_one(World::new(), first));
        scope.spawn(|| accept_one(World::new(), second));
        for _ in 0..2 {
            let mut said = [0; 5];
            TcpStream::connect(address).unwrap().read_exact(&mut said).unwrap();
            assert_eq!(&said, b"hello");
        }
    });
}
