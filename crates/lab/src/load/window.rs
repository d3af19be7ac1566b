//! Does what a kernel does between a program and a remote server: gathers small writes and sends them in the
//! background, and reads ahead. Both use a window of requests in flight.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::Sink;

/// Bytes of a request: about what Linux makes of small sequential ones.
const REQUEST: usize = 64 << 10;
/// Most requests in flight.
const REQUESTS: usize = 16;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// Connects to a server: what is sent, what is received.
pub(super) fn connect(address: SocketAddr) -> io::Result<(TcpStream, BufReader<TcpStream>)> {
    let to = TcpStream::connect(address)?;
    to.set_nodelay(true)?;
    to.set_read_timeout(Some(PATIENCE))?;
    to.set_write_timeout(Some(PATIENCE))?;
    let from = BufReader::with_capacity(128 << 10, to.try_clone()?);
    Ok((to, from))
}

/// A connection to a server of bytes: requests go out, answers come back in any order.
pub(super) trait Wire {
    /// Sends bytes to be written.
    fn send_write(&mut self, id: u64, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Asks for bytes.
    fn send_read(&mut self, id: u64, at: u64, len: usize) -> io::Result<()>;
    /// The next answer: the request's number, and its bytes if they were asked for.
    fn answer(&mut self) -> io::Result<(u64, Vec<u8>)>;
    /// Returns when everything written is stable. No other request may be in flight.
    fn stable(&mut self) -> io::Result<()>;
}

/// Writes bytes in order.
pub(super) struct Writer<W> {
    wire: W,
    at: u64,
    gathered: Vec<u8>,
    next: u64,
    under_way: usize,
}

impl<W: Wire> Writer<W> {
    pub(super) fn new(wire: W, at: u64) -> Writer<W> {
        Writer { wire, at, gathered: Vec::with_capacity(REQUEST), next: 1, under_way: 0 }
    }

    fn send(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        while self.under_way >= REQUESTS {
            self.take_answer()?;
        }
        self.wire.send_write(self.next, self.at, &self.gathered)?;
        self.at += self.gathered.len() as u64;
        self.gathered.clear();
        self.next += 1;
        self.under_way += 1;
        Ok(())
    }

    fn take_answer(&mut self) -> io::Result<()> {
        self.wire.answer()?;
        self.under_way -= 1;
        Ok(())
    }
}

impl<W: Wire> Write for Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = REQUEST - self.gathered.len();
        let taken = bytes.len().min(room);
        self.gathered.extend_from_slice(&bytes[..taken]);
        if self.gathered.len() == REQUEST {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Wire> Sink for Writer<W> {
    fn finish(&mut self) -> io::Result<()> {
        self.send()?;
        while self.under_way > 0 {
            self.take_answer()?;
        }
        self.wire.stable()
    }
}

/// Reads bytes in order, with read-ahead.
pub(super) struct Reader<W> {
    wire: W,
    /// The next offset to request, and the end.
    at: u64,
    end: u64,
    asked: u64,
    /// Number of the request whose bytes are read next.
    wanted: u64,
    came: BTreeMap<u64, Vec<u8>>,
    bytes: Vec<u8>,
    used: usize,
}

impl<W: Wire> Reader<W> {
    pub(super) fn new(wire: W, start: u64, end: u64) -> Reader<W> {
        let (came, bytes) = (BTreeMap::new(), Vec::new());
        Reader { wire, at: start, end, asked: 0, wanted: 1, came, bytes, used: 0 }
    }

    fn ask_ahead(&mut self) -> io::Result<()> {
        while self.at < self.end && self.asked + 1 - self.wanted < REQUESTS as u64 {
            let len = (self.end - self.at).min(REQUEST as u64);
            self.asked += 1;
            self.wire.send_read(self.asked, self.at, len as usize)?;
            self.at += len;
        }
        Ok(())
    }

    /// The bytes of the next request; false at the end.
    fn advance(&mut self) -> io::Result<bool> {
        self.ask_ahead()?;
        if self.wanted > self.asked {
            return Ok(false);
        }
        let bytes = loop {
            if let Some(bytes) = self.came.remove(&self.wanted) {
                break bytes;
            }
            let (id, bytes) = self.wire.answer()?;
            self.came.insert(id, bytes);
        };
        (self.bytes, self.used) = (bytes, 0);
        self.wanted += 1;
        Ok(true)
    }
}

impl<W: Wire> Read for Reader<W> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.used == self.bytes.len() && !self.advance()? {
            return Ok(0);
        }
        let rest = &self.bytes[self.used..];
        let taken = rest.len().min(into.len());
        into[..taken].copy_from_slice(&rest[..taken]);
        self.used += taken;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers in pairs, the later first.
    #[derive(Default)]
    struct Echo {
        disk: Vec<u8>,
        open: Vec<(u64, Vec<u8>)>,
        most: usize,
        is_stable: bool,
    }

    impl Wire for Echo {
        fn send_write(&mut self, id: u64, at: u64, bytes: &[u8]) -> io::Result<()> {
            assert_eq!(at as usize, self.disk.len());
            self.disk.extend_from_slice(bytes);
            self.open.push((id, Vec::new()));
            self.most = self.most.max(self.open.len());
            Ok(())
        }

        fn send_read(&mut self, id: u64, at: u64, len: usize) -> io::Result<()> {
            self.open.push((id, self.disk[at as usize..at as usize + len].to_vec()));
            self.most = self.most.max(self.open.len());
            Ok(())
        }

        fn answer(&mut self) -> io::Result<(u64, Vec<u8>)> {
            Ok(self.open.remove(self.open.len().min(2) - 1))
        }

        fn stable(&mut self) -> io::Result<()> {
            self.is_stable = self.open.is_empty();
            Ok(())
        }
    }

    #[test]
    fn bytes_keep_their_order_whatever_order_answers_have() {
        let bytes: Vec<u8> = (0..40 * REQUEST + 777).map(|at| (at / 5) as u8).collect();
        let mut writer = Writer::new(Echo::default(), 0);
        writer.write_all(&bytes).expect("written");
        writer.finish().expect("stable");
        let echo = writer.wire;
        assert!(echo.is_stable && echo.most == REQUESTS && echo.disk == bytes);
        let echo = Echo { disk: echo.disk, ..Echo::default() };
        let mut reader = Reader::new(echo, 0, bytes.len() as u64);
        let mut read = Vec::new();
        reader.read_to_end(&mut read).expect("read");
        assert!(read == bytes && reader.wire.most == REQUESTS);
    }
}
