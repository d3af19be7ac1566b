//! The arguments of the procedures of NFS version 3 (RFC 1813), taken out of a record without copying.

use types::messages::names::FileKind;

use super::xdr::{Garbage, Reader};

/// Longest file handle, in bytes.
const HANDLE_MAX: usize = 64;
/// Longest name that is parsed. A name too long for a volume is refused later, with its own error.
const NAME_READ_MAX: usize = 8192;
/// Longest target of a symbolic link that is parsed.
const TARGET_READ_MAX: usize = 64 << 10;
/// Nanoseconds of a second.
const SECOND: u32 = 1_000_000_000;

/// A name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirOpArgs<'a> {
    pub(crate) directory: &'a [u8],
    pub(crate) name: &'a [u8],
}

/// A new time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum SetTime {
    /// The time does not change.
    #[default]
    Keep,
    /// The server's time.
    Now,
    /// The client's time, in nanoseconds since 1970.
    To(i64),
}

/// Attributes to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NewAttributes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: SetTime,
    pub(crate) mtime: SetTime,
}

/// What a CREATE does if the file exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CreateHow {
    /// It uses the file.
    Unchecked(NewAttributes),
    /// It fails.
    Guarded(NewAttributes),
    /// It fails, unless the same client created the file with the same number.
    Exclusive(u64),
}

/// How durable written bytes must be before the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StableHow {
    /// Not durable: the server may lose them until a COMMIT.
    Unstable,
    /// Durable, with the metadata that is needed to read them.
    DataSync,
    /// Durable, with all metadata.
    FileSync,
}

/// A procedure with its arguments. File handles are the received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arguments<'a> {
    Null,
    GetAttr {
        object: &'a [u8],
    },
    SetAttr {
        object: &'a [u8],
        new: NewAttributes,
        guard: Option<i64>,
    },
    Lookup {
        at: DirOpArgs<'a>,
    },
    Access {
        object: &'a [u8],
        wanted: u32,
    },
    ReadLink {
        object: &'a [u8],
    },
    Read {
        file: &'a [u8],
        offset: u64,
        count: u32,
    },
    Write {
        file: &'a [u8],
        offset: u64,
        count: u32,
        stable: StableHow,
        data: &'a [u8],
    },
    Create {
        at: DirOpArgs<'a>,
        how: CreateHow,
    },
    MakeDirectory {
        at: DirOpArgs<'a>,
        new: NewAttributes,
    },
    Symlink {
        at: DirOpArgs<'a>,
        new: NewAttributes,
        target: &'a [u8],
    },
    /// The kind is `None` if MKNOD cannot make it.
    MakeNode {
        at: DirOpArgs<'a>,
        kind: Option<FileKind>,
        new: NewAttributes,
        device: (u32, u32),
    },
    Remove {
        at: DirOpArgs<'a>,
    },
    RemoveDirectory {
        at: DirOpArgs<'a>,
    },
    Rename {
        from: DirOpArgs<'a>,
        to: DirOpArgs<'a>,
    },
    Link {
        file: &'a [u8],
        at: DirOpArgs<'a>,
    },
    ReadDir {
        directory: &'a [u8],
        cookie: u64,
        count: u32,
    },
    ReadDirPlus {
        directory: &'a [u8],
        cookie: u64,
        count: u32,
    },
    FsStat {
        object: &'a [u8],
    },
    FsInfo {
        object: &'a [u8],
    },
    PathConf {
        object: &'a [u8],
    },
    Commit {
        file: &'a [u8],
    },
}

/// Why the arguments cannot be parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotParsed {
    ProcUnavail,
    Garbage,
}

impl From<Garbage> for NotParsed {
    fn from(_: Garbage) -> NotParsed {
        NotParsed::Garbage
    }
}

/// Parses the arguments of a procedure.
pub(crate) fn parse(procedure: u32, mut reader: Reader<'_>) -> Result<Arguments<'_>, NotParsed> {
    let from = &mut reader;
    Ok(match procedure {
        0 => Arguments::Null,
        1 => Arguments::GetAttr { object: handle(from)? },
        2 => Arguments::SetAttr { object: handle(from)?, new: attributes(from)?, guard: from.option(time)? },
        3 => Arguments::Lookup { at: place(from)? },
        4 => Arguments::Access { object: handle(from)?, wanted: from.u32()? },
        5 => Arguments::ReadLink { object: handle(from)? },
        6 => Arguments::Read { file: handle(from)?, offset: from.u64()?, count: from.u32()? },
        7 => write(from)?,
        8 => Arguments::Create { at: place(from)?, how: how(from)? },
        9 => Arguments::MakeDirectory { at: place(from)?, new: attributes(from)? },
        10 => Arguments::Symlink {
            at: place(from)?,
            new: attributes(from)?,
            target: from.opaque(TARGET_READ_MAX)?,
        },
        11 => node(from)?,
        12 => Arguments::Remove { at: place(from)? },
        13 => Arguments::RemoveDirectory { at: place(from)? },
        14 => Arguments::Rename { from: place(from)?, to: place(from)? },
        15 => Arguments::Link { file: handle(from)?, at: place(from)? },
        16 => {
            let (directory, cookie, _verifier) = (handle(from)?, from.u64()?, from.u64()?);
            Arguments::ReadDir { directory, cookie, count: from.u32()? }
        }
        17 => {
            let (directory, cookie, _verifier) = (handle(from)?, from.u64()?, from.u64()?);
            let _names = from.u32()?;
            Arguments::ReadDirPlus { directory, cookie, count: from.u32()? }
        }
        18 => Arguments::FsStat { object: handle(from)? },
        19 => Arguments::FsInfo { object: handle(from)? },
        20 => Arguments::PathConf { object: handle(from)? },
        21 => Arguments::Commit { file: handle(from)? },
        _ => return Err(NotParsed::ProcUnavail),
    })
}

/// Whether a procedure has the same result when it is carried out twice.
pub(crate) fn is_idempotent(procedure: u32) -> bool {
    !matches!(procedure, 2 | 8..=15)
}

fn handle<'a>(from: &mut Reader<'a>) -> Result<&'a [u8], Garbage> {
    from.opaque(HANDLE_MAX)
}

fn place<'a>(from: &mut Reader<'a>) -> Result<DirOpArgs<'a>, Garbage> {
    Ok(DirOpArgs { directory: handle(from)?, name: from.opaque(NAME_READ_MAX)? })
}

/// Nanoseconds since 1970.
fn time(from: &mut Reader<'_>) -> Result<i64, Garbage> {
    let (seconds, nanoseconds) = (from.u32()?, from.u32()?);
    if nanoseconds >= SECOND {
        return Err(Garbage);
    }
    Ok(i64::from(seconds) * i64::from(SECOND) + i64::from(nanoseconds))
}

fn new_time(from: &mut Reader<'_>) -> Result<SetTime, Garbage> {
    match from.u32()? {
        0 => Ok(SetTime::Keep),
        1 => Ok(SetTime::Now),
        2 => time(from).map(SetTime::To),
        _ => Err(Garbage),
    }
}

fn attributes(from: &mut Reader<'_>) -> Result<NewAttributes, Garbage> {
    Ok(NewAttributes {
        mode: from.option(Reader::u32)?,
        uid: from.option(Reader::u32)?,
        gid: from.option(Reader::u32)?,
        size: from.option(Reader::u64)?,
        atime: new_time(from)?,
        mtime: new_time(from)?,
    })
}

fn how(from: &mut Reader<'_>) -> Result<CreateHow, Garbage> {
    match from.u32()? {
        0 => attributes(from).map(CreateHow::Unchecked),
        1 => attributes(from).map(CreateHow::Guarded),
        2 => from.u64().map(CreateHow::Exclusive),
        _ => Err(Garbage),
    }
}

fn write<'a>(from: &mut Reader<'a>) -> Result<Arguments<'a>, Garbage> {
    let (file, offset, count) = (handle(from)?, from.u64()?, from.u32()?);
    let stable = match from.u32()? {
        0 => StableHow::Unstable,
        1 => StableHow::DataSync,
        2 => StableHow::FileSync,
        _ => return Err(Garbage),
    };
    // The length of the record bounds the data.
    let data = from.opaque(usize::MAX)?;
    Ok(Arguments::Write { file, offset, count, stable, data })
}

fn node<'a>(from: &mut Reader<'a>) -> Result<Arguments<'a>, Garbage> {
    let at = place(from)?;
    let kind = match from.u32()? {
        3 => Some(FileKind::BlockDevice),
        4 => Some(FileKind::CharDevice),
        6 => Some(FileKind::Socket),
        7 => Some(FileKind::Fifo),
        _ => None,
    };
    let new = if kind.is_some() { attributes(from)? } else { NewAttributes::default() };
    let device = match kind {
        Some(FileKind::BlockDevice | FileKind::CharDevice) => (from.u32()?, from.u32()?),
        _ => (0, 0),
    };
    Ok(Arguments::MakeNode { at, kind, new, device })
}

#[cfg(test)]
mod tests {
    use super::super::xdr::Writer;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_write_is_read() {
        let mut writer = Writer::default();
        writer.opaque(b"handle").u64(1 << 33).u32(3).u32(2).opaque(b"abc");
        let bytes = writer.into_bytes();
        let expected = Arguments::Write {
            file: b"handle",
            offset: 1 << 33,
            count: 3,
            stable: StableHow::FileSync,
            data: b"abc",
        };
        assert_eq!(parse(7, Reader::new(&bytes)), Ok(expected));
        assert_eq!(parse(7, Reader::new(&bytes[..bytes.len() - 4])), Err(NotParsed::Garbage));
        assert_eq!(parse(22, Reader::new(&bytes)), Err(NotParsed::ProcUnavail));
    }

    #[test]
    fn attributes_are_read() {
        let mut writer = Writer::default();
        writer.opaque(b"h").bool(true).u32(0o644).bool(false).bool(true).u32(7).bool(true).u64(9);
        writer.u32(1).u32(2).u32(5).u32(6).bool(true).u32(1).u32(2);
        let bytes = writer.into_bytes();
        let new = NewAttributes {
            mode: Some(0o644),
            uid: None,
            gid: Some(7),
            size: Some(9),
            atime: SetTime::Now,
            mtime: SetTime::To(5_000_000_006),
        };
        let expected = Arguments::SetAttr { object: b"h", new, guard: Some(1_000_000_002) };
        assert_eq!(parse(2, Reader::new(&bytes)), Ok(expected));
    }

    #[test]
    fn handles_and_times_are_bounded() {
        let long = |bytes: &[u8]| {
            let mut writer = Writer::default();
            writer.opaque(bytes);
            parse(1, Reader::new(&writer.into_bytes())).is_err()
        };
        assert!(!long(&[0; 64]) && long(&[0; 65]));
        let mut writer = Writer::default();
        writer.u32(0).u32(SECOND);
        assert_eq!(time(&mut Reader::new(&writer.into_bytes())), Err(Garbage));
    }

    proptest! {
        #[test]
        fn any_arguments_are_read_without_harm(
            procedure in 0u32..24,
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let _ = parse(procedure, Reader::new(&bytes));
        }

        /// Small words make it past the first lengths and choices.
        #[test]
        fn nearly_right_arguments_are_read_without_harm(
            procedure in 0u32..24,
            words in proptest::collection::vec(0u32..5, 0..80),
        ) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let _ = parse(procedure, Reader::new(&bytes));
        }
    }
}
