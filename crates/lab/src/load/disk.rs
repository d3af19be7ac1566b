//! A client for a disk of an NBD server: the part of the protocol that a load needs (`doc/proto.md` of the NBD
//! project). It shares no code with the gate that it measures, not even the protocol's numbers.

use std::io::{self, BufReader, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::Sink;
use super::window::{Reader, Wire, Writer, connect};

const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// Fixed newstyle, no zeros after the negotiation.
const CLIENT_FLAGS: u32 = 3;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_ERROR: u32 = 1 << 31;
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;

/// An export, seen from one connection.
pub struct NbdDisk {
    to: TcpStream,
    from: BufReader<TcpStream>,
    /// Bytes that requests in flight ask for, by number.
    asked: std::collections::BTreeMap<u64, usize>,
}

fn bad(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("the NBD server {what}"))
}

fn number<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl NbdDisk {
    /// Connects to the export `name`.
    ///
    /// # Errors
    /// No connection, or the server has no such export.
    pub fn connect(address: SocketAddr, name: &str) -> io::Result<NbdDisk> {
        let (to, from) = connect(address)?;
        let mut disk = NbdDisk { to, from, asked: Default::default() };
        disk.negotiate(name)?;
        Ok(disk)
    }

    fn negotiate(&mut self, name: &str) -> io::Result<()> {
        if u64::from_be_bytes(number(&mut self.from)?) != MAGIC
            || u64::from_be_bytes(number(&mut self.from)?) != OPTION_MAGIC
        {
            return Err(bad("is none"));
        }
        let _flags: [u8; 2] = number(&mut self.from)?;
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(name.as_bytes());
        data.extend_from_slice(&0u16.to_be_bytes());
        let mut hello = CLIENT_FLAGS.to_be_bytes().to_vec();
        hello.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        hello.extend_from_slice(&OPTION_GO.to_be_bytes());
        hello.extend_from_slice(&(data.len() as u32).to_be_bytes());
        hello.extend_from_slice(&data);
        self.to.write_all(&hello)?;
        loop {
            if u64::from_be_bytes(number(&mut self.from)?) != OPTION_REPLY_MAGIC {
                return Err(bad("answers without the protocol's magic"));
            }
            let _option: [u8; 4] = number(&mut self.from)?;
            let kind = u32::from_be_bytes(number(&mut self.from)?);
            let len = u32::from_be_bytes(number(&mut self.from)?);
            let mut about = vec![0; len.min(1 << 16) as usize];
            self.from.read_exact(&mut about)?;
            match kind {
                REPLY_ACK => return Ok(()),
                kind if kind & REPLY_ERROR != 0 => return Err(bad("has no such export")),
                _ => {}
            }
        }
    }

    /// Writes sequentially from `at` on.
    pub fn writer(self, at: u64) -> impl Sink {
        Writer::new(self, at)
    }

    /// Reads sequentially from `at` up to `end`.
    pub fn reader(self, at: u64, end: u64) -> impl Read {
        Reader::new(self, at, end)
    }

    fn request(&mut self, command: u16, id: u64, at: u64, len: usize) -> io::Result<()> {
        let mut head = REQUEST_MAGIC.to_be_bytes().to_vec();
        head.extend_from_slice(&0u16.to_be_bytes());
        head.extend_from_slice(&command.to_be_bytes());
        head.extend_from_slice(&id.to_be_bytes());
        head.extend_from_slice(&at.to_be_bytes());
        head.extend_from_slice(&(len as u32).to_be_bytes());
        self.to.write_all(&head)
    }
}

impl Wire for NbdDisk {
    fn send_write(&mut self, id: u64, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.request(WRITE, id, at, bytes.len())?;
        self.to.write_all(bytes)
    }

    fn send_read(&mut self, id: u64, at: u64, len: usize) -> io::Result<()> {
        self.asked.insert(id, len);
        self.request(READ, id, at, len)
    }

    fn answer(&mut self) -> io::Result<(u64, Vec<u8>)> {
        if u32::from_be_bytes(number(&mut self.from)?) != REPLY_MAGIC {
            return Err(bad("answers without the protocol's magic"));
        }
        let error = u32::from_be_bytes(number(&mut self.from)?);
        let id = u64::from_be_bytes(number(&mut self.from)?);
        if error != 0 {
            return Err(bad(&format!("says error {error}")));
        }
        let mut bytes = vec![0; self.asked.remove(&id).unwrap_or_default()];
        self.from.read_exact(&mut bytes)?;
        Ok((id, bytes))
    }

    fn stable(&mut self) -> io::Result<()> {
        self.request(FLUSH, 0, 0, 0)?;
        self.answer().map(drop)
    }
}
