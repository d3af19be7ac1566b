//! A client for a file of an NFS server, version 3 over TCP: the parts of RFC 1813 and RFC 5531 that a load needs.

use std::io::{self, BufReader, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::Sink;
use super::window::{Reader, Wire, Writer, connect};

const MOUNT: u32 = 100_005;
const NFS: u32 = 100_003;
const VERSION: u32 = 3;
const MOUNT_MNT: u32 = 1;
const LOOKUP: u32 = 3;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const COMMIT: u32 = 21;
/// `stable_how` of a write that a COMMIT makes stable.
const UNSTABLE: u32 = 0;
/// Bytes of a file's attributes, and of those that a change is compared by.
const ATTRIBUTES: usize = 84;
const ATTRIBUTES_BEFORE: usize = 24;
/// Longest record that a server may answer with, in bytes.
const RECORD_MAX: usize = 2 << 20;

/// A file, seen from one connection.
pub struct NfsFile {
    to: TcpStream,
    from: BufReader<TcpStream>,
    handle: Vec<u8>,
    /// The verifier in the answer to the first write. A different one means that the server has lost bytes.
    verifier: Option<[u8; 8]>,
    /// Requests in flight: whether they read, and how many bytes.
    asked: std::collections::BTreeMap<u64, (bool, usize)>,
}

fn bad(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidData, format!("the NFS server {}", what.into()))
}

/// Encodes arguments in XDR.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn number(mut self, number: u32) -> Words {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    fn long(mut self, number: u64) -> Words {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    /// Bytes with their length in front, filled up to a multiple of four.
    fn bytes(mut self, bytes: &[u8]) -> Words {
        self = self.number(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

/// Decodes results in XDR.
struct Answer<'a>(&'a [u8]);

impl<'a> Answer<'a> {
    fn take(&mut self, len: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or_else(|| bad("answers too briefly"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> io::Result<u32> {
        let bytes = self.take(4)?.try_into().map_err(|_| bad("answers too briefly"))?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let len = self.number()? as usize;
        let bytes = self.take(len)?;
        self.take(len.next_multiple_of(4) - len)?;
        Ok(bytes)
    }

    /// An optional value of `len` bytes.
    fn maybe(&mut self, len: usize) -> io::Result<()> {
        if self.number()? != 0 {
            self.take(len)?;
        }
        Ok(())
    }

    /// The status; the results follow only if it is success.
    fn ok(&mut self, what: &str) -> io::Result<()> {
        match self.number()? {
            0 => Ok(()),
            status => Err(bad(format!("fails to {what}: status {status}"))),
        }
    }
}

impl NfsFile {
    /// A new file in the root of `volume`.
    ///
    /// # Errors
    /// No connection, or the server refuses.
    pub fn create(address: SocketAddr, volume: &str, name: &str) -> io::Result<NfsFile> {
        let mut file = NfsFile::connect(address, volume)?;
        // Unchecked, mode 0644, nothing else set.
        let how = Words::default().bytes(&file.handle).bytes(name.as_bytes());
        let how = how.number(0).number(1).number(0o644).number(0).number(0).number(0).number(0).number(0);
        let answer = file.call(NFS, CREATE, how)?;
        let mut answer = Answer(&answer);
        answer.ok("make the file")?;
        if answer.number()? == 0 {
            return Err(bad("does not say which file it has made"));
        }
        file.handle = answer.bytes()?.to_vec();
        Ok(file)
    }

    /// A file in the root of `volume`.
    ///
    /// # Errors
    /// No connection, or the server has no such file.
    pub fn open(address: SocketAddr, volume: &str, name: &str) -> io::Result<NfsFile> {
        let mut file = NfsFile::connect(address, volume)?;
        let place = Words::default().bytes(&file.handle).bytes(name.as_bytes());
        let answer = file.call(NFS, LOOKUP, place)?;
        let mut answer = Answer(&answer);
        answer.ok("find the file")?;
        file.handle = answer.bytes()?.to_vec();
        Ok(file)
    }

    /// A connection whose handle is the root of `volume`.
    fn connect(address: SocketAddr, volume: &str) -> io::Result<NfsFile> {
        let (to, from) = connect(address)?;
        let mut file = NfsFile { to, from, handle: Vec::new(), verifier: None, asked: Default::default() };
        let answer = file.call(MOUNT, MOUNT_MNT, Words::default().bytes(format!("/{volume}").as_bytes()))?;
        let mut answer = Answer(&answer);
        answer.ok("show the volume")?;
        file.handle = answer.bytes()?.to_vec();
        Ok(file)
    }

    /// Writes the file from its start.
    pub fn writer(self) -> impl Sink {
        Writer::new(self, 0)
    }

    /// Reads the first `bytes` bytes.
    pub fn reader(self, bytes: u64) -> impl Read {
        Reader::new(self, 0, bytes)
    }

    /// Sends a call: the record's mark, the head of RFC 5531 with the credential of root, the arguments.
    fn send(&mut self, id: u64, program: u32, procedure: u32, arguments: Words) -> io::Result<()> {
        let root = Words::default().number(0).bytes(b"lab").number(0).number(0).number(0);
        let head = Words::default().number(id as u32).number(0).number(2);
        let head = head.number(program).number(VERSION).number(procedure);
        let head = head.number(1).bytes(&root.0).number(0).number(0);
        let len = (head.0.len() + arguments.0.len()) as u32;
        let mut record = (len | 1 << 31).to_be_bytes().to_vec();
        record.extend_from_slice(&head.0);
        record.extend_from_slice(&arguments.0);
        self.to.write_all(&record)
    }

    /// The next answer: its number, and the results.
    fn receive(&mut self) -> io::Result<(u64, Vec<u8>)> {
        let mut mark = [0; 4];
        self.from.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        let len = (mark & !(1 << 31)) as usize;
        if mark >> 31 != 1 || len > RECORD_MAX {
            return Err(bad("answers in pieces"));
        }
        let mut record = vec![0; len];
        self.from.read_exact(&mut record)?;
        let mut answer = Answer(&record);
        let id = answer.number()?;
        let (is_reply, is_denied) = (answer.number()? == 1, answer.number()? != 0);
        let _verifier = (answer.number()?, answer.bytes()?);
        if !is_reply || is_denied || answer.number()? != 0 {
            return Err(bad("does not carry the call out"));
        }
        Ok((id.into(), answer.0.to_vec()))
    }

    fn call(&mut self, program: u32, procedure: u32, arguments: Words) -> io::Result<Vec<u8>> {
        self.send(0, program, procedure, arguments)?;
        self.receive().map(|(_, results)| results)
    }

    fn check_verifier(&mut self, verifier: &[u8]) -> io::Result<()> {
        let verifier = verifier.try_into().map_err(|_| bad("answers too briefly"))?;
        if *self.verifier.get_or_insert(verifier) != verifier {
            return Err(bad("has lost bytes before they were stable"));
        }
        Ok(())
    }
}

impl Wire for NfsFile {
    fn send_write(&mut self, id: u64, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.asked.insert(id, (false, bytes.len()));
        let arguments = Words::default().bytes(&self.handle).long(at).number(bytes.len() as u32);
        self.send(id, NFS, WRITE, arguments.number(UNSTABLE).bytes(bytes))
    }

    fn send_read(&mut self, id: u64, at: u64, len: usize) -> io::Result<()> {
        self.asked.insert(id, (true, len));
        let arguments = Words::default().bytes(&self.handle).long(at).number(len as u32);
        self.send(id, NFS, READ, arguments)
    }

    fn answer(&mut self) -> io::Result<(u64, Vec<u8>)> {
        let (id, results) = self.receive()?;
        let mut answer = Answer(&results);
        let (reads, len) = self.asked.remove(&id).ok_or_else(|| bad("answers what was not asked"))?;
        answer.ok(if reads { "read" } else { "write" })?;
        if !reads {
            answer.maybe(ATTRIBUTES_BEFORE)?;
        }
        answer.maybe(ATTRIBUTES)?;
        if answer.number()? as usize != len {
            return Err(bad("carries a part of the call out"));
        }
        let _eof_or_committed = answer.number()?;
        if reads {
            return Ok((id, answer.bytes()?.to_vec()));
        }
        self.check_verifier(answer.take(8)?)?;
        Ok((id, Vec::new()))
    }

    fn stable(&mut self) -> io::Result<()> {
        let arguments = Words::default().bytes(&self.handle).long(0).number(0);
        let results = self.call(NFS, COMMIT, arguments)?;
        let mut answer = Answer(&results);
        answer.ok("commit")?;
        answer.maybe(ATTRIBUTES_BEFORE)?;
        answer.maybe(ATTRIBUTES)?;
        self.check_verifier(answer.take(8)?)
    }
}
