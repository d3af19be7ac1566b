//! The file of a backup: all keys and values of a metadata store, as they were at one moment.
//!
//! ```text
//! | "SHOALbak" 8 | format 4 | cluster 16 | record 8 | made 8 | crc32c 4 |      made: nanoseconds since 1970
//! | length 4 | crc32c 4 | pairs |        again and again: keys and values as the service sends them
//! | 0 4 | pairs 8 | crc32c 4 |           the end: without it the file is not whole
//! ```
//!
//! Numbers are little-endian. The last checksum covers the number of pairs.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use meta::check::unpacked_pairs;
use meta::kv::KeyValue;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use types::ClusterId;
use types::checksum::crc;

const MAGIC: [u8; 8] = *b"SHOALbak";
const FORMAT: u32 = 1;
/// Bytes of the head, without its checksum.
const HEAD: usize = 44;
/// Most bytes of a part. Services send about half a mebibyte and one value.
const PART_MAX: u32 = 64 << 20;

/// What a backup is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) cluster: ClusterId,
    /// The last record of the store.
    pub(super) record: u64,
    /// When it was made, in nanoseconds since 1970.
    pub(super) made: u64,
}

/// Why a backup cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is no backup of metadata")]
    Foreign,
    #[error("it was written in format {0}, and this build reads {FORMAT}")]
    Format(u32),
    #[error("it is damaged after {0} pairs")]
    Damaged(u64),
    #[error("its end is missing: the backup was not finished, or the file was cut")]
    Cut,
}

/// A backup that is being written. The file has its name only when it is whole.
pub(super) struct Writer {
    out: BufWriter<File>,
    path: PathBuf,
    unfinished: PathBuf,
    pairs: u64,
    bytes: u64,
}

impl Writer {
    /// Begins a file that must not exist. Only its owner may read it: it has the names of all files.
    pub(super) fn create(path: &Path, head: Head) -> io::Result<Writer> {
        if path.exists() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut unfinished = path.as_os_str().to_owned();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        unfinished.push(format!(".unfinished-{}-{}", std::process::id(), now.as_nanos()));
        let unfinished = PathBuf::from(unfinished);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        let mut writer =
            Writer { out: BufWriter::new(file), path: path.to_owned(), unfinished, pairs: 0, bytes: 0 };
        let mut bytes = Vec::with_capacity(HEAD);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&head.cluster.0);
        bytes.extend_from_slice(&head.record.to_le_bytes());
        bytes.extend_from_slice(&head.made.to_le_bytes());
        let sum = crc(&bytes);
        writer.put(&bytes)?;
        writer.put(&sum.to_le_bytes())?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Adds a part of so many pairs.
    pub(super) fn add(&mut self, part: &[u8], pairs: usize) -> io::Result<()> {
        if part.is_empty() {
            return Ok(());
        }
        let len = u32::try_from(part.len()).ok().filter(|len| *len <= PART_MAX);
        let len = len.ok_or_else(|| io::Error::other("a part of the store is too long"))?;
        self.put(&len.to_le_bytes())?;
        self.put(&crc(part).to_le_bytes())?;
        self.put(part)?;
        self.pairs += pairs as u64;
        Ok(())
    }

    /// Ends the file, durably, and gives it its name. Returns how many pairs and bytes it has.
    pub(super) fn finish(mut self) -> io::Result<(u64, u64)> {
        let pairs = self.pairs.to_le_bytes();
        self.put(&0u32.to_le_bytes())?;
        self.put(&pairs)?;
        self.put(&crc(&pairs).to_le_bytes())?;
        self.out.flush()?;
        self.out.get_ref().sync_all()?;
        // A file that has come meanwhile stays. Not every file system can promise that.
        let (from, to) = (&self.unfinished, &self.path);
        match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
            Ok(()) => {}
            Err(Errno::EEXIST) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) if to.exists() => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => std::fs::rename(from, to)?,
        }
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()?;
        Ok((self.pairs, self.bytes))
    }
}

impl Drop for Writer {
    /// What has not got its name goes.
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.unfinished));
    }
}

/// A backup that is being read.
pub(super) struct Reader {
    input: BufReader<File>,
    pub(super) head: Head,
    pairs: u64,
}

impl Reader {
    pub(super) fn open(path: &Path) -> Result<Reader, ReadError> {
        let mut input = BufReader::new(File::open(path)?);
        let mut bytes = [0; HEAD + 4];
        input.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ReadError::Foreign,
            _ => error.into(),
        })?;
        if bytes[..8] != MAGIC {
            return Err(ReadError::Foreign);
        }
        let format = u32::from_le_bytes(four(&bytes[8..12]));
        if format != FORMAT {
            return Err(ReadError::Format(format));
        }
        if crc(&bytes[..HEAD]).to_le_bytes() != bytes[HEAD..] {
            return Err(ReadError::Damaged(0));
        }
        let mut cluster = ClusterId::default();
        cluster.0.copy_from_slice(&bytes[12..28]);
        let head = Head {
            cluster,
            record: u64::from_le_bytes(eight(&bytes[28..36])),
            made: u64::from_le_bytes(eight(&bytes[36..44])),
        };
        Ok(Reader { input, head, pairs: 0 })
    }

    /// The pairs of the next part; `None` at the end of a file that is whole.
    pub(super) fn part(&mut self) -> Result<Option<Vec<KeyValue>>, ReadError> {
        let len = u32::from_le_bytes(self.bytes::<4>()?);
        if len == 0 {
            let pairs = self.bytes::<8>()?;
            let is_whole =
                crc(&pairs).to_le_bytes() == self.bytes::<4>()? && pairs == self.pairs.to_le_bytes();
            let is_end = is_whole && self.input.read(&mut [0])? == 0;
            return if is_end { Ok(None) } else { Err(ReadError::Damaged(self.pairs)) };
        }
        if len > PART_MAX {
            return Err(ReadError::Damaged(self.pairs));
        }
        let sum = self.bytes::<4>()?;
        let mut part = Vec::new();
        // Not more than the file has, whatever a damaged length says.
        (&mut self.input).take(u64::from(len)).read_to_end(&mut part)?;
        if part.len() < len as usize {
            return Err(ReadError::Cut);
        }
        let found = unpacked_pairs(&part).filter(|_| crc(&part).to_le_bytes() == sum);
        let found = found.ok_or(ReadError::Damaged(self.pairs))?;
        self.pairs += found.len() as u64;
        Ok(Some(found))
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let mut bytes = [0; N];
        match self.input.read_exact(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ReadError::Cut),
            read => Ok(read.map(|()| bytes)?),
        }
    }
}

fn four(bytes: &[u8]) -> [u8; 4] {
    bytes.try_into().expect("four bytes")
}

fn eight(bytes: &[u8]) -> [u8; 8] {
    bytes.try_into().expect("eight bytes")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const PART: &[u8] = b"\x02\x00\x03\x00\x00\x00kkvvv";

    #[test]
    fn the_document_of_formats_has_the_backup() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats.md");
        types::wire::check_document(
            path,
            &[("backup", &types::wire::at_head_of(include_str!("backup_file.rs")))],
        );
    }

    fn head() -> Head {
        Head { cluster: ClusterId([3; 16]), record: 77, made: 1_700_000_000_000_000_000 }
    }

    /// A directory that goes with its test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Scratch {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let dir = std::env::temp_dir().join(format!("shoal-backup-{}-{number}", std::process::id()));
            std::fs::create_dir(&dir).expect("new");
            Scratch(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    fn written(dir: &Path) -> PathBuf {
        let path = dir.join("names.bak");
        let mut writer = Writer::create(&path, head()).expect("room");
        writer.add(PART, 1).expect("room");
        writer.add(PART, 1).expect("room");
        assert!(!path.exists(), "it is not whole yet");
        assert_eq!(writer.finish().expect("room").0, 2);
        path
    }

    fn read(path: &Path) -> Result<usize, ReadError> {
        let mut reader = Reader::open(path)?;
        assert_eq!(reader.head, head());
        let mut pairs = 0;
        while let Some(part) = reader.part()? {
            assert!(part.iter().all(|pair| *pair == (b"kk".to_vec(), b"vvv".to_vec())));
            pairs += part.len();
        }
        Ok(pairs)
    }

    #[test]
    fn what_is_written_is_read_again() {
        let dir = Scratch::new();
        let path = written(dir.0.as_path());
        assert_eq!(read(&path).expect("whole"), 2);
        let again = Writer::create(&path, head());
        assert!(again.is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists));
        assert_eq!(std::fs::read_dir(dir.0.as_path()).expect("a directory").count(), 1, "nothing else stays");
    }

    #[test]
    fn a_file_that_is_cut_or_changed_anywhere_is_refused() {
        let dir = Scratch::new();
        let bytes = std::fs::read(written(dir.0.as_path())).expect("readable");
        let path = dir.0.as_path().join("bad.bak");
        for len in 0..bytes.len() {
            std::fs::write(&path, &bytes[..len]).expect("room");
            assert!(read(&path).is_err(), "cut after {len} bytes");
        }
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            std::fs::write(&path, &bad).expect("room");
            assert!(read(&path).is_err(), "byte {at} is another one");
        }
        std::fs::write(&path, [&bytes[..], b"x"].concat()).expect("room");
        assert!(read(&path).is_err(), "something follows");
    }
}
