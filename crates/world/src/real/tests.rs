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

#[test]
fn frames_of_every_size_come_back() {
    on_each(|world| async move {
        let (near, far) = pair(&world).await;
        assert_eq!(near.peer().split(':').next(), Some("127.0.0.1"));
        world.spawn("test", echo(far));
        let (mut sender, mut receiver) = near.split();
        let sizes = [0, 1, 63, 4096, 8128, 8129, 8192, 8193, 131_072, 1 << 20, PAYLOAD_MAX];
        for (i, payload) in sizes.into_iter().enumerate() {
            for record in [0, 1, 1024, 1025, 9000, RECORD_MAX] {
                if record == RECORD_MAX && payload > 8193 {
                    continue;
                }
                let (record, payload) = (noise(record), Buf::from(noise(payload)));
                sender.send(frame(i as u64, record.clone(), payload.clone())).await.unwrap();
                let back = receiver.recv_within(ANY).await.unwrap().unwrap();
                assert_eq!((back.header.request, back.header.kind), (i as u64, 7));
                assert!(
                    back.record == record && back.payload == payload,
                    "{} {}",
                    record.len(),
                    payload.len()
                );
                assert!(back.payload.is_empty() || (back.payload.as_ptr() as usize).is_multiple_of(BLOCK));
            }
        }
    });
}

#[test]
fn a_batch_arrives_in_order() {
    on_each(|world| async move {
        let (near, far) = pair(&world).await;
        let (mut sender, _open) = near.split();
        world.spawn("test", async move {
            let batch = |i: u64| frame(i, noise(i as usize * 20), Buf::from(noise(i as usize * 700)));
            sender.send_all((0..300).map(batch).collect()).await.unwrap();
            sender.send_all(Vec::new()).await.unwrap();
            sender.send(frame(300, noise(6000), Buf::empty())).await.unwrap();
        });
        let (_sender, mut receiver) = far.split();
        for i in 0..=300 {
            let got = receiver.recv_within(ANY).await.unwrap().unwrap();
            assert_eq!(got.header.request, i);
            assert_eq!(got.payload.len() as u64, if i == 300 { 0 } else { i * 700 });
        }
    });
}

#[test]
fn too_large_a_frame_is_not_sent() {
    on_each(|world| async move {
        let (near, far) = pair(&world).await;
        world.spawn("test", echo(far));
        let (mut sender, mut receiver) = near.split();
        let error = sender.send(frame(1, vec![0; RECORD_MAX + 1], Buf::empty())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        sender.send(frame(2, Vec::new(), Buf::empty())).await.unwrap();
        assert_eq!(receiver.recv_within(ANY).await.unwrap().unwrap().header.request, 2);
    });
}

#[test]
fn what_is_no_frame_is_an_error() {
    let mut good = frame(1, noise(100), Buf::from(noise(20_000)));
    let mut bytes = good.encode_header(None).unwrap().to_vec();
    bytes.extend_from_slice(&good.record);
    bytes.extend_from_slice(&good.payload);
    let damaged = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 4;
        bytes
    };
    let cases = [
        (noise(5000), Some(ErrorKind::InvalidData)),
        (damaged(0), Some(ErrorKind::InvalidData)),
        (damaged(40), Some(ErrorKind::InvalidData)),
        (damaged(100), Some(ErrorKind::InvalidData)),
        (damaged(19_000), Some(ErrorKind::InvalidData)),
        (bytes[..1].to_vec(), Some(ErrorKind::UnexpectedEof)),
        (bytes[..63].to_vec(), Some(ErrorKind::UnexpectedEof)),
        (bytes[..64].to_vec(), Some(ErrorKind::UnexpectedEof)),
        (bytes[..164].to_vec(), Some(ErrorKind::UnexpectedEof)),
        (bytes[..bytes.len() - 1].to_vec(), Some(ErrorKind::UnexpectedEof)),
        (Vec::new(), None),
    ];
    on_each(|world| {
        let cases = cases.clone();
        async move {
            let listener = world.listen("127.0.0.1:0").await.unwrap();
            for (bytes, expected) in cases {
                let mut stream = TcpStream::connect(listener.address()).unwrap();
                stream.write_all(&bytes).unwrap();
                drop(stream);
                let (_sender, mut receiver) = listener.accept().await.unwrap().split();
                let got = receiver.recv_within(ANY).await;
                match expected {
                    Some(kind) => {
                        assert_eq!(got.unwrap_err().kind(), kind);
                        assert_eq!(
                            receiver.recv_within(ANY).await.unwrap_err().kind(),
                            ErrorKind::BrokenPipe
                        );
                    }
                    None => {
                        assert!(got.unwrap().is_none());
                        assert!(receiver.recv_within(ANY).await.unwrap().is_none());
                    }
                }
            }
        }
    });
}

#[test]
fn a_header_that_announces_too_much_is_refused_before_the_rest_comes() {
    on_each(|world| async move {
        let listener = world.listen("127.0.0.1:0").await.unwrap();
        let mut stream = TcpStream::connect(listener.address()).unwrap();
        let header = frame(1, noise(1000), Buf::from(noise(2000))).encode_header(None).unwrap();
        stream.write_all(&header).unwrap();
        let (_sender, mut receiver) = listener.accept().await.unwrap().split();
        assert_eq!(receiver.recv_within(2999).await.unwrap_err().kind(), ErrorKind::InvalidData);
    });
}

#[test]
fn dropping_both_halves_closes_even_under_a_waiting_receive() {
    on_each(|world| async move {
        let (near, far) = pair(&world).await;
        let (sender, mut receiver) = near.split();
        assert!(world.timeout(20_000, receiver.recv_within(ANY)).await.is_none());
        assert_eq!(receiver.recv_within(ANY).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        drop((sender, receiver));
        let (mut sender, mut receiver) = far.split();
        assert!(world.timeout(2_000_000, receiver.recv_within(ANY)).await.unwrap().unwrap().is_none());
        // The first write after the end may still go out, later ones cannot.
        let mut failed = false;
        for _ in 0..100 {
            failed |= sender.send(frame(1, Vec::new(), Buf::empty())).await.is_err();
            world.sleep(1_000).await;
        }
        assert!(failed);
    });
}

#[test]
fn an_abandoned_send_spoils_the_sender() {
    on_each(|world| async move {
        let (near, _far) = pair(&world).await;
        let (mut sender, _receiver) = near.split();
        let big = BufMut::zeroed(PAYLOAD_MAX).freeze();
        let batch = (0..4).map(|i| frame(i, Vec::new(), big.clone())).collect();
        assert!(world.timeout(200_000, sender.send_all(batch)).await.is_none(), "nobody reads it");
        let error = sender.send(frame(9, Vec::new(), Buf::empty())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn connecting_to_nobody_fails_with_the_address() {
    on_each(|world| async move {
        let listener = world.listen("127.0.0.1:0").await.unwrap();
        let address = listener.address();
        drop(listener);
        let error = world.connect(&address).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains(&address), "{error}");
        assert!(world.connect("no port").await.is_err());
        assert!(world.listen("256.0.0.1:1").await.is_err());
    });
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
fn a_disk_keeps_what_is_written() {
    on_each_disk("keeps", |world, path| async move {
        let disk = world.create_disk(&path, 1 << 20).await.unwrap();
        assert_eq!(disk.len(), 1 << 20);
        assert!(disk.read(0, 1 << 20).await.unwrap().iter().all(|&byte| byte == 0));
        // More parts than one system call takes, some of them empty.
        let bytes = noise(100_000);
        let mut parts: Vec<Buf> = bytes.chunks(700).map(Buf::copy_of).collect();
        parts.insert(0, Buf::empty());
        parts.insert(70, Buf::empty());
        parts.push(Buf::empty());
        disk.write(1234, parts).await.unwrap();
        disk.write(5, Vec::new()).await.unwrap();
        disk.write(1 << 19, vec![Buf::copy_of(b"shoal")]).await.unwrap();
        disk.sync().await.unwrap();
        let again = disk.clone();
        assert_eq!(*again.read(1234, bytes.len()).await.unwrap(), *bytes);
        drop((disk, again));
        let disk = world.open_disk(&path, DiskMode::Buffered).await.unwrap();
        assert_eq!((*disk.read(1 << 19, 5).await.unwrap()).to_vec(), b"shoal");
        assert_eq!(disk.read(99, 0).await.unwrap().len(), 0);
        let read = disk.read(0, 1 << 20).await.unwrap();
        assert_eq!(read.as_ptr() as usize % BLOCK, 0);
    });
}

#[test]
fn a_disk_ends_where_it_ends() {
    on_each_disk("ends", |world, path| async move {
        let disk = world.create_disk(&path, 10_000).await.unwrap();
        for (offset, len) in [(9_999, 2), (10_000, 1), (0, 10_001), (1 << 40, 4096)] {
            let error = disk.read(offset, len).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
            assert!(error.to_string().contains(&path), "{error}");
        }
        assert_eq!(disk.read(9_999, 1).await.unwrap().len(), 1);
    });
}

#[test]
fn a_disk_is_shared_by_threads_and_locked_while_any_has_it() {
    on_each_disk("shared", |world, path| async move {
        let disk = world.create_disk(&path, 1 << 20).await.unwrap();
        let shared = disk.shared();
        drop(disk);
        assert_eq!(
            world.open_disk(&path, DiskMode::Buffered).await.err().unwrap().kind(),
            ErrorKind::WouldBlock
        );
        let other = thread::spawn(move || {
            let disk = shared.disk();
            World::new().unwrap().block_on("other", async {
                disk.write(5000, vec![Buf::copy_of(b"shoal")]).await.unwrap();
                (disk.len(), disk.read(5000, 5).await.unwrap().to_vec())
            })
        });
        assert_eq!(other.join().unwrap(), (1 << 20, b"shoal".to_vec()));
        let disk = world.open_disk(&path, DiskMode::Buffered).await.unwrap();
        assert_eq!(*disk.read(5000, 5).await.unwrap(), *b"shoal");
    });
}

#[test]
fn a_disk_has_one_owner() {
    on_each_disk("owner", |world, path| async move {
        let disk = world.create_disk(&path, 4096).await.unwrap();
        assert_eq!(world.create_disk(&path, 4096).await.err().unwrap().kind(), ErrorKind::AlreadyExists);
        let error = world.open_disk(&path, DiskMode::Buffered).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(error.to_string().contains(&path), "{error}");
        drop(disk);
        world.open_disk(&path, DiskMode::Buffered).await.unwrap();
        let missing = world.open_disk(&format!("{path}x"), DiskMode::Buffered).await.err().unwrap();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(world.open_disk("/", DiskMode::Buffered).await.is_err());
        assert_eq!(
            world.open_disk("/dev/null", DiskMode::Buffered).await.err().unwrap().kind(),
            ErrorKind::InvalidInput
        );
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
