//! Connections by TCP, or by a socket in the file system: listening, accepting, connecting, socket options.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use compio::buf::{BufResult, IntoInner};
use compio::driver::op::Accept;
use compio::runtime::{Runtime, submit};
use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, listen, shutdown, socket_with,
    sockopt,
};

use super::receive::Receiver;
use super::send::Sender;
use crate::Resent;

/// Timeout of a connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Silence before the first keepalive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// Time between keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// Unanswered probes after which the connection counts as broken.
const KEEPALIVE_PROBES: u32 = 3;
/// How long sent bytes may stay unacknowledged, in milliseconds.
const UNACKNOWLEDGED_MS: u32 = 10_000;

/// Send buffer of a connection by a socket in the file system, in bytes.
const LOCAL_BUFFER: usize = 2 << 20;

/// Most connections that wait to be accepted at a socket in the file system.
const BACKLOG: i32 = 128;

/// Accepts connections on one address, for one thread.
pub(crate) struct Listener {
    listen_socket: Arc<ListenSocket>,
    polls: bool,
}

/// A listening address; freed when the last thread that accepts there has ended.
pub(crate) struct ListenSocket {
    socket: Arc<OwnedFd>,
    at: At,
}

/// A listening address.
enum At {
    Port(SocketAddr),
    Path(String),
}

/// Listens at `host:port`. A process that was just killed keeps its port until the kernel has removed its ring. So if
/// the port is in use, this retries for two seconds, and blocks the thread meanwhile.
pub fn bind_port(address: &str) -> io::Result<TcpListener> {
    let mut left = 40;
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && left > 0 => {
                left -= 1;
                std::thread::sleep(Duration::from_millis(50));
            }
            bound => return bound,
        }
    }
}

impl Drop for ListenSocket {
    fn drop(&mut self) {
        if let At::Path(path) = &self.at {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Listener {
    pub(super) fn bind(address: &str, polls: bool) -> io::Result<Listener> {
        Listener::on(bind_port(address).map_err(|error| about("listen on", address, &error))?, polls)
    }

    /// Accepts from a socket that is already bound.
    pub(super) fn on(socket: TcpListener, polls: bool) -> io::Result<Listener> {
        socket.set_nonblocking(polls)?;
        let at = At::Port(socket.local_addr()?);
        Ok(Listener { listen_socket: Arc::new(ListenSocket { socket: Arc::new(socket.into()), at }), polls })
    }

    /// Accepts from an address where another thread accepts too.
    pub(super) fn shared(listen_socket: Arc<ListenSocket>, polls: bool) -> Listener {
        Listener { listen_socket, polls }
    }

    /// A handle with which other threads accept here too.
    pub(crate) fn listen_socket(&self) -> Arc<ListenSocket> {
        Arc::clone(&self.listen_socket)
    }

    /// Listens at a path. Replaces the socket of a dead process.
    pub(super) fn bind_path(path: &str, polls: bool) -> io::Result<Listener> {
        let flags = if polls { SocketFlags::CLOEXEC | SocketFlags::NONBLOCK } else { SocketFlags::CLOEXEC };
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The socket's file is created with this mode, so others can never connect.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        let address = SocketAddrUnix::new(path)?;
        let mut bound = bind(&socket, &address);
        if bound == Err(rustix::io::Errno::ADDRINUSE) && is_left_behind(path) {
            std::fs::remove_file(path)?;
            bound = bind(&socket, &address);
        }
        bound.map_err(|error| about("listen at", path, &error.into()))?;
        let listen_socket = ListenSocket { socket: Arc::new(socket), at: At::Path(path.to_owned()) };
        listen(&listen_socket.socket, BACKLOG)?;
        Ok(Listener { listen_socket: Arc::new(listen_socket), polls })
    }

    /// The listening address with its actual port, or the path.
    pub(crate) fn address(&self) -> String {
        match &self.listen_socket.at {
            At::Port(address) => address.to_string(),
            At::Path(path) => path.clone(),
        }
    }

    fn conn(&self, socket: OwnedFd) -> io::Result<Conn> {
        match &self.listen_socket.at {
            At::Port(_) => Conn::new(TcpStream::from(socket), self.polls),
            At::Path(path) => Conn::local(UnixStream::from(socket), path, self.polls),
        }
    }

    /// Waits for the next connection.
    ///
    /// # Cancel
    /// A connection that arrives while the future is dropped may be lost; its other end sees it closed.
    pub(crate) async fn accept(&self) -> io::Result<Conn> {
        loop {
            let BufResult(result, accept) = submit(Accept::new(self.listen_socket.socket.clone())).await;
            match result {
                Ok(_) => {}
                // The connection was gone before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            }
            let (socket, _) = accept.into_inner();
            match self.conn(OwnedFd::from(socket)) {
                Ok(conn) => return Ok(conn),
                // It went while it was being prepared; that is no trouble of the listener.
                Err(error) => tracing::debug!(%error, "connection lost while accepting it"),
            }
        }
    }
}

/// A connection, not yet split into its two directions.
pub(crate) struct Conn {
    socket: Rc<Socket>,
    peer: String,
    /// Whether it uses a socket in the file system.
    local: bool,
    /// Whether both ends are on this machine.
    same_machine: bool,
}

/// The socket of a connection; closed when both directions are dropped.
pub(super) struct Socket(Arc<OwnedFd>);

impl Socket {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(super) fn hang_up(&self) {
        // An error means that the connection is already gone.
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// For an operation. It must keep the socket open until it ends: the kernel may use the socket even after the
    /// operation's future was dropped.
    pub(super) fn shared(&self) -> Arc<OwnedFd> {
        self.0.clone()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A dropped operation may keep the socket open for a long time, but the other end must see the close now.
        self.hang_up();
    }
}

impl Conn {
    pub(super) async fn connect(address: &str, runtime: &Runtime, polls: bool) -> io::Result<Conn> {
        let name = address.to_owned();
        // On its own thread, because resolving a name blocks. Connections are few and live long.
        let connected = runtime.spawn_blocking(move || connect_blocking(&name)).await;
        let stream = connected.unwrap_or_else(|error| Err(error.into()));
        stream
            .and_then(|stream| Conn::new(stream, polls))
            .map_err(|error| about("connect to", address, &error))
    }

    fn new(stream: TcpStream, polls: bool) -> io::Result<Conn> {
        let peer = stream.peer_addr()?;
        let same_machine = stream.local_addr()?.ip() == peer.ip();
        // The kernel grows the buffers as needed. Fixed ones of 1 to 4 MiB measured no faster.
        stream.set_nodelay(true)?;
        stream.set_nonblocking(polls)?;
        // Without these, a receive from a machine that lost its power would wait for ever.
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_PROBES)?;
        sockopt::set_tcp_user_timeout(&stream, UNACKNOWLEDGED_MS)?;
        let socket = Rc::new(Socket(Arc::new(stream.into())));
        Ok(Conn { socket, peer: peer.to_string(), local: false, same_machine })
    }

    pub(super) fn connect_path(path: &str, polls: bool) -> io::Result<Conn> {
        let stream = UnixStream::connect(path).map_err(|error| about("connect to", path, &error))?;
        Conn::local(stream, path, polls)
    }

    fn local(stream: UnixStream, path: &str, polls: bool) -> io::Result<Conn> {
        stream.set_nonblocking(polls)?;
        // Unlike TCP buffers, these do not grow. With the usual 208 KiB, a large answer would need many wake-ups of
        // both ends. Only root may exceed the system's limit.
        if sockopt::set_socket_send_buffer_size_force(&stream, LOCAL_BUFFER).is_err() {
            sockopt::set_socket_send_buffer_size(&stream, LOCAL_BUFFER)?;
        }
        let socket = Rc::new(Socket(Arc::new(stream.into())));
        Ok(Conn { socket, peer: path.to_owned(), local: true, same_machine: true })
    }

    pub(crate) fn set_user_timeout(&self, silence_us: u64) -> io::Result<()> {
        if self.local {
            return Ok(());
        }
        // This option also limits how long keepalive probes may stay unanswered.
        let milliseconds = u32::try_from(silence_us / 1000).unwrap_or(u32::MAX);
        Ok(sockopt::set_tcp_user_timeout(self.socket.fd(), milliseconds)?)
    }

    /// Whether both ends are on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.same_machine
    }

    /// What it has sent more than once.
    pub(crate) fn losses(&self) -> Losses {
        Losses(Rc::downgrade(&self.socket))
    }

    /// The address of the other end.
    pub(crate) fn peer(&self) -> String {
        self.peer.clone()
    }

    /// The two directions, for two tasks. The connection closes when both are dropped.
    pub(crate) fn split(self) -> (Sender, Receiver) {
        (Sender::new(self.socket.clone()), Receiver::new(self.socket))
    }
}

/// Knows what the kernel says of a connection.
#[derive(Clone)]
pub(crate) struct Losses(Weak<Socket>);

/// Bytes of `struct tcp_info` (include/uapi/linux/tcp.h) that are asked for; older kernels write fewer.
const TCP_INFO_LEN: usize = 244;
type TcpInfo = [u8; TCP_INFO_LEN];

/// Offsets of counters of 32 bits in it: the smoothed round trip, all packets that were sent once more, the least round trip,
/// and packets that were sent once more and had arrived all the same (from Linux 4.19 on).
const RTT: usize = 68;
const TOTAL_RETRANS: usize = 100;
const MIN_RTT: usize = 148;
const DSACK_DUPS: usize = 216;
/// Offset of a counter of 16 bits: timeouts (from Linux 6.7 on).
const TOTAL_RTO: usize = 240;

impl Losses {
    /// What was sent once more; nothing if the connection has ended.
    pub(crate) fn resent(&self) -> Resent {
        let Some(info) = self.info() else { return Resent::default() };
        let packets = counter(&info, TOTAL_RETRANS).saturating_sub(counter(&info, DSACK_DUPS));
        let timeouts = u16::from_ne_bytes([info[TOTAL_RTO], info[TOTAL_RTO + 1]]);
        Resent { packets, timeouts: timeouts.into() }
    }

    /// The smoothed round trip and the least one, in microseconds; 0 if the connection has ended.
    pub(crate) fn round_trips(&self) -> (u64, u64) {
        self.info().map_or((0, 0), |info| (counter(&info, RTT).into(), counter(&info, MIN_RTT).into()))
    }

    fn info(&self) -> Option<TcpInfo> {
        let socket = self.0.upgrade()?;
        let mut info = [0u8; TCP_INFO_LEN];
        let mut len = TCP_INFO_LEN as libc::socklen_t;
        // SAFETY: the socket is open, and the kernel writes at most `len` bytes, which `info` has.
        let got = unsafe {
            libc::getsockopt(
                socket.fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &mut len,
            )
        };
        (got == 0).then_some(info)
    }
}

fn counter(info: &TcpInfo, at: usize) -> u32 {
    info[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Whether the path is a socket at which no process listens any more.
fn is_left_behind(path: &str) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn connect_blocking(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn about(what: &str, address: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} {address}: {error}"))
}
