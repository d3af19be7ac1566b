//! A file or block device, read and written through the page cache, or past it.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use compio::buf::{BufResult, IntoInner, IoVectoredBuf};
use compio::driver::op::{ReadAt, Sync, WriteVectoredAt};
use compio::runtime::submit;
use rustix::fs::{OFlags, fdatasync, fstatfs};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use types::limits::BLOCK;
use types::{Buf, BufMut};

use super::receive::ReadBuf;
use crate::DiskMode;
use crate::direct::joined;
use crate::file_lock::FileLock;
use crate::private_files;

/// Most pieces of one vectored write.
const PIECES_MAX: usize = 64;
/// A plain write of this duration was delayed by the kernel. Such writes would block the thread, and with it the
/// lease.
const HELD_UP: Duration = Duration::from_millis(20);
/// After such a write, writes go through the ring for this time.
const AROUND: Duration = Duration::from_secs(2);
/// File system type of tmpfs in `statfs` (linux/magic.h).
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// How requests reach the page cache, or the device.
#[derive(Clone, Copy)]
enum Way {
    /// A system call that may not block; requests that would block go through the ring. The cheapest way for cached
    /// bytes, and for writes to a device.
    NoWait,
    /// A plain system call, for tmpfs and for writes to a file. Both rarely block. A write to a file with `NOWAIT`
    /// would fail whenever the file's time must be updated; the ring's thread would then carry it out, and hold the
    /// file's lock against the next writes. If the disk is so far behind that the kernel delays writers, the next
    /// writes go through the ring for a while ([`HELD_UP`]).
    Plain,
    /// Everything goes through the ring, whose own threads may block.
    Ring,
}

impl Way {
    fn flags(self) -> Option<ReadWriteFlags> {
        match self {
            Way::NoWait => Some(ReadWriteFlags::NOWAIT),
            Way::Plain => Some(ReadWriteFlags::empty()),
            Way::Ring => None,
        }
    }

    /// The way for the next request, after `error`.
    fn after(self, error: Errno) -> Way {
        let unknown = matches!(error, Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS);
        if unknown { Way::Ring } else { self }
    }
}

/// A disk that is locked for this process. Clones share it.
#[derive(Clone)]
pub(crate) struct Disk {
    inner: Rc<Inner>,
}

struct Inner {
    file: Arc<OwnedFd>,
    path: String,
    len: u64,
    /// Opened with `O_DIRECT`: the kernel takes whole blocks only, from aligned memory.
    direct: bool,
    /// A file in a tmpfs.
    in_memory: bool,
    reads: Cell<Way>,
    writes: Cell<Way>,
    /// Until then writes go through the ring.
    around_until: Cell<Option<Instant>>,
    /// An exclusive claim on a block device, so that it cannot be mounted meanwhile.
    _claim: Option<Arc<File>>,
    _lock: Arc<FileLock>,
}

/// What other threads need to use a disk too.
#[derive(Clone)]
pub(crate) struct SharedDisk {
    file: Arc<OwnedFd>,
    path: String,
    len: u64,
    direct: bool,
    in_memory: bool,
    reads: Way,
    claim: Option<Arc<File>>,
    lock: Arc<FileLock>,
}

impl SharedDisk {
    /// The disk for this thread. Its writes never block the thread.
    pub(crate) fn disk(&self) -> Disk {
        let SharedDisk { file, path, len, direct, in_memory, reads, claim, lock } = self.clone();
        let (reads, writes) = (Cell::new(reads), Cell::new(Way::Ring));
        let around_until = Cell::new(None);
        let (_claim, _lock) = (claim, lock);
        let inner = Inner { file, path, len, direct, in_memory, reads, writes, around_until, _claim, _lock };
        Disk { inner: Rc::new(inner) }
    }
}

impl Disk {
    pub(crate) fn shared(&self) -> SharedDisk {
        let Inner { file, path, len, direct, in_memory, reads, _claim: claim, _lock: lock, .. } =
            &*self.inner;
        SharedDisk {
            file: file.clone(),
            path: path.clone(),
            len: *len,
            direct: *direct,
            in_memory: *in_memory,
            reads: reads.get(),
            claim: claim.clone(),
            lock: lock.clone(),
        }
    }

    /// # Errors
    /// `Unsupported` if it should be direct, and its file system or device cannot do that for blocks of [`BLOCK`].
    pub(super) fn open(path: &str, mode: DiskMode) -> io::Result<Disk> {
        let open = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            match mode {
                DiskMode::Buffered => {
                    Disk::new(private_file(path, &mut options, OFlags::empty())?, path, mode)
                }
                DiskMode::Direct => {
                    let opened = private_file(path, &mut options, OFlags::DIRECT);
                    let disk = Disk::new(opened.map_err(not_direct)?, path, mode)?;
                    let mut block = BufMut::dirty(BLOCK);
                    let read = preadv2(
                        &disk.inner.file,
                        &mut [IoSliceMut::new(&mut block)],
                        0,
                        ReadWriteFlags::empty(),
                    );
                    read.map(|_| disk).map_err(|error| not_direct(error.into()))
                }
            }
        };
        open().map_err(|error| about("open", path, &error))
    }

    pub(super) fn create(path: &str, len: u64) -> io::Result<Disk> {
        let is_device = Path::new(path).metadata().is_ok_and(|meta| meta.file_type().is_block_device());
        if is_device {
            return Disk::open(path, DiskMode::Buffered);
        }
        let create = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true);
            let file = private_file(path, &mut options, OFlags::empty())?;
            file.set_len(len)?;
            file.sync_all()?;
            // The name must survive a power cut too.
            let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
            Disk::new(file, path, DiskMode::Buffered)
        };
        create().map_err(|error| about("create", path, &error))
    }

    fn new(mut file: File, path: &str, mode: DiskMode) -> io::Result<Disk> {
        let lock = FileLock::take(&file, Path::new(path))?;
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is neither a file nor a block device",
            ));
        }
        let claim = if kind.is_block_device() { Some(Arc::new(claim(path)?)) } else { None };
        let len = file.seek(SeekFrom::End(0))?;
        let in_memory = kind.is_file() && fstatfs(&file)?.f_type as i64 == TMPFS_MAGIC;
        let direct = mode == DiskMode::Direct;
        let (reads, writes) = match (direct, in_memory, kind.is_file()) {
            // The device answers later: that is what the ring is for.
            (true, ..) => (Way::Ring, Way::Ring),
            (false, true, _) => (Way::Plain, Way::Plain),
            (false, false, true) => (Way::NoWait, Way::Plain),
            (false, false, false) => (Way::NoWait, Way::NoWait),
        };
        let (file, path, around_until) = (Arc::new(file.into()), path.to_owned(), Cell::new(None));
        let (reads, writes) = (Cell::new(reads), Cell::new(writes));
        let (_claim, _lock) = (claim, Arc::new(lock));
        let inner = Inner { file, path, len, direct, in_memory, reads, writes, around_until, _claim, _lock };
        Ok(Disk { inner: Rc::new(inner) })
    }

    /// Its path.
    pub(crate) fn name(&self) -> &str {
        &self.inner.path
    }

    /// Bytes that it holds.
    pub(crate) fn len(&self) -> u64 {
        self.inner.len
    }

    /// Reads exactly `len` bytes at `offset`; `UnexpectedEof` past the end.
    pub(crate) async fn read(&self, offset: u64, len: usize) -> io::Result<Buf> {
        let block = BLOCK as u64;
        let (before, end) = ((offset % block) as usize, offset + len as u64);
        if self.inner.direct && (before > 0 || !end.is_multiple_of(block)) {
            let whole =
                self.read_bytes(offset - before as u64, (before + len).next_multiple_of(BLOCK)).await?;
            return Ok(whole.slice(before..before + len));
        }
        self.read_bytes(offset, len).await
    }

    async fn read_bytes(&self, offset: u64, len: usize) -> io::Result<Buf> {
        if len == 0 {
            return Ok(Buf::empty());
        }
        let mut buf = BufMut::dirty(len);
        let mut filled = self.read_now(offset, &mut buf);
        while filled < len {
            let read_buf = ReadBuf { buf, from: filled };
            let op = ReadAt::new(self.inner.file.clone(), offset + filled as u64, read_buf);
            let BufResult(read, op) = submit(op).await;
            match read {
                Ok(0) => return Err(self.failed("read", offset, &io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => filled += read,
                Err(error) => return Err(self.failed("read", offset, &error)),
            }
            buf = op.into_inner().buf;
        }
        Ok(buf.freeze())
    }

    /// Reads as much as possible without blocking. Returns the number of bytes.
    fn read_now(&self, offset: u64, buf: &mut BufMut) -> usize {
        let reads = &self.inner.reads;
        let Some(flags) = reads.get().flags() else { return 0 };
        match preadv2(&self.inner.file, &mut [IoSliceMut::new(buf)], offset, flags) {
            Ok(read) => read,
            Err(error) => {
                // If it was a real error, the read through the ring reports it.
                reads.set(reads.get().after(error));
                0
            }
        }
    }

    /// Writes `parts` one after the other from `offset` on. They are durable after the next [`Disk::sync`]. A direct disk takes
    /// whole blocks only.
    ///
    /// # Cancel
    /// If it is dropped, any part of the bytes may be written, even later.
    pub(crate) async fn write(&self, offset: u64, parts: Vec<Buf>) -> io::Result<()> {
        let parts = if self.inner.direct { aligned(parts) } else { parts };
        let mut parts = Parts { parts, done: 0, partly: 0 };
        let mut at = offset;
        parts.advance(0);
        while !parts.is_empty() {
            let mut written = self.write_now(at, &parts);
            if written == 0 {
                let op = WriteVectoredAt::new(self.inner.file.clone(), at, parts);
                let BufResult(result, op) = submit(op).await;
                parts = op.into_inner();
                written = result.map_err(|error| self.failed("write", at, &error))?;
                if written == 0 {
                    return Err(self.failed("write", at, &io::ErrorKind::WriteZero.into()));
                }
            }
            parts.advance(written);
            at += written as u64;
        }
        Ok(())
    }

    /// Writes as much as possible without blocking. Returns the number of bytes.
    fn write_now(&self, offset: u64, parts: &Parts) -> usize {
        let writes = &self.inner.writes;
        let Some(flags) = writes.get().flags() else { return 0 };
        let begun = Instant::now();
        if self.inner.around_until.get().is_some_and(|until| begun < until) {
            return 0;
        }
        let written = parts.write_now(&self.inner.file, offset, flags);
        if begun.elapsed() >= HELD_UP {
            self.inner.around_until.set(Some(Instant::now() + AROUND));
        }
        match written {
            Ok(written) => written,
            Err(error) => {
                writes.set(writes.get().after(error));
                0
            }
        }
    }

    /// Waits until all written bytes are durable. After an error the disk counts as lost. A second sync proves
    /// nothing, because the kernel drops pages that it could not write.
    pub(crate) async fn sync(&self) -> io::Result<()> {
        // The ring has a thread of its own carry it out. In a tmpfs there is nothing to wait for.
        if self.inner.in_memory {
            return fdatasync(&self.inner.file)
                .map_err(|error| about("sync", &self.inner.path, &error.into()));
        }
        let BufResult(result, _) = submit(Sync::new(self.inner.file.clone(), true)).await;
        result.map(drop).map_err(|error| about("sync", &self.inner.path, &error))
    }

    fn failed(&self, what: &str, offset: u64, error: &io::Error) -> io::Error {
        let text = format!("cannot {what} {} at {offset}: {error}", self.inner.path);
        io::Error::new(error.kind(), text)
    }
}

/// Opens a disk. A file is for this user alone from then on.
fn private_file(path: &str, options: &mut OpenOptions, flags: OFlags) -> io::Result<File> {
    let (file, wide) = private_files::open_with(Path::new(path), options, flags)?;
    if let Some(wide) = wide {
        tracing::warn!("{wide}");
    }
    Ok(file)
}

/// Opens a block device as a mount does. Fails if it is mounted or otherwise claimed.
fn claim(path: &str) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::EXCL.bits().cast_signed()).open(path)
}

/// An error of a file or device without direct I/O, told as such.
fn not_direct(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::InvalidInput => io::Error::new(io::ErrorKind::Unsupported, "it has no direct I/O"),
        _ => error,
    }
}

/// The same bytes, each part in memory that is aligned to a block, and as long as some blocks.
fn aligned(parts: Vec<Buf>) -> Vec<Buf> {
    if parts.iter().all(|part| part.as_ptr().addr().is_multiple_of(BLOCK) && part.len().is_multiple_of(BLOCK))
    {
        return parts;
    }
    vec![joined(&parts)]
}

fn about(what: &str, path: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} {path}: {error}"))
}

/// The bytes of a write under way.
struct Parts {
    parts: Vec<Buf>,
    /// Parts written entirely.
    done: usize,
    /// Bytes written of the next part.
    partly: usize,
}

impl Parts {
    fn is_empty(&self) -> bool {
        self.done == self.parts.len()
    }

    fn advance(&mut self, len: usize) {
        self.partly += len;
        while let Some(part) = self.parts.get(self.done)
            && self.partly >= part.len()
        {
            self.partly -= part.len();
            self.done += 1;
        }
    }

    fn write_now(&self, file: &OwnedFd, offset: u64, flags: ReadWriteFlags) -> Result<usize, Errno> {
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        for (slot, bytes) in slices.iter_mut().zip(self.iter_slice()) {
            *slot = IoSlice::new(bytes);
            count += 1;
        }
        pwritev2(file, &slices[..count], offset, flags)
    }
}

impl IoVectoredBuf for Parts {
    fn iter_slice(&self) -> impl Iterator<Item = &[u8]> {
        let rest = self.parts[self.done..].iter().take(PIECES_MAX).enumerate();
        rest.map(|(i, part)| &part[if i == 0 { self.partly } else { 0 }..])
    }
}
