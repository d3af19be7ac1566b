//! The parts of the procedures' results (RFC 1813, 2.5 and 2.6).

use types::Buf;
use types::messages::names::{Attr, FileKind};

use super::xdr::Writer;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// The results of a procedure that worked, after its status.
#[derive(Default, Debug)]
pub(crate) struct Results {
    pub(crate) head: Writer,
    /// Bytes of a file, which are not copied; padding follows them.
    pub(crate) data: Buf,
}

impl From<Writer> for Results {
    fn from(head: Writer) -> Results {
        Results { head, data: Buf::empty() }
    }
}

/// Number of zero words after the status of a failed procedure: each is an absent attribute.
pub(crate) fn failure_words(procedure: u32) -> usize {
    match procedure {
        0 | 1 => 0,
        2 | 7..=13 | 21 => 2,
        14 => 4,
        15 => 3,
        _ => 1,
    }
}

/// The protocol's number of a file's kind.
pub(crate) fn file_type(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharDevice => 4,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

/// Writes attributes. Each volume has its own file system id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttrWriter {
    pub(crate) fsid: u64,
}

impl AttrWriter {
    /// Bytes that [`AttrWriter::put_post_op_attr`] takes with attributes.
    pub(crate) const POST_OP_ATTR_LEN: usize = 88;

    /// Attributes.
    pub(crate) fn put(self, writer: &mut Writer, attr: &Attr) {
        writer.u32(file_type(attr.kind)).u32(attr.mode & 0o7777).u32(attr.links);
        writer.u32(attr.uid).u32(attr.gid);
        let used = attr.size.div_ceil(512).saturating_mul(512);
        let (major, minor) = numbers_of_device(attr.rdev);
        writer.u64(attr.size).u64(used).u32(major).u32(minor);
        writer.u64(self.fsid).u64(attr.inode.0);
        [attr.atime, attr.mtime, attr.ctime].into_iter().for_each(|time| put_time(writer, time));
    }

    /// Attributes after an operation, if they are known.
    pub(crate) fn put_post_op_attr(self, writer: &mut Writer, attr: Option<&Attr>) {
        writer.bool(attr.is_some());
        if let Some(attr) = attr {
            self.put(writer, attr);
        }
    }

    /// Attributes before and after a change. Those from before are never sent: they would have to be exactly from the
    /// moment of the change, but other gates and mounts change files too. With wrong ones, a client would keep a stale
    /// cache.
    pub(crate) fn put_wcc_data(self, writer: &mut Writer, after: Option<&Attr>) {
        writer.bool(false);
        self.put_post_op_attr(writer, after);
    }
}

/// The protocol's times begin in 1970 and end in 2106. Others are shown as the nearest of these.
fn put_time(writer: &mut Writer, nanoseconds: i64) {
    let nanoseconds = u64::try_from(nanoseconds).unwrap_or(0);
    let seconds = u32::try_from(nanoseconds / SECOND).unwrap_or(u32::MAX);
    writer.u32(seconds).u32((nanoseconds % SECOND) as u32);
}

/// Major and minor number of a device in Linux's 32 bits. Source: linux/kdev_t.h, `new_decode_dev`.
fn numbers_of_device(device: u32) -> (u32, u32) {
    ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xfff00))
}

/// A device in Linux's 32 bits; `None` if its numbers are too large.
pub(crate) fn device_of_numbers((major, minor): (u32, u32)) -> Option<u32> {
    let fits = major < 1 << 12 && minor < 1 << 20;
    fits.then_some((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{InodeId, ObjectId};

    #[test]
    fn attributes_have_their_places() {
        let attr = Attr {
            inode: InodeId(9),
            kind: FileKind::CharDevice,
            mode: 0o4755,
            links: 2,
            uid: 1,
            gid: 2,
            rdev: device_of_numbers((4, 64)).expect("small numbers"),
            size: 1025,
            atime: i64::MAX,
            mtime: 1_700_000_000_123_456_789,
            ctime: 7,
            object: ObjectId(8),
            stale_end: 0,
            truncate_seq: 0,
            changes: 0,
        };
        let mut writer = Writer::default();
        AttrWriter { fsid: 77 }.put_post_op_attr(&mut writer, Some(&attr));
        let bytes = writer.into_bytes();
        assert_eq!(bytes.len(), AttrWriter::POST_OP_ATTR_LEN);
        let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
        assert_eq!(words[..10], [1, 4, 0o4755, 2, 1, 2, 0, 1025, 0, 1536]);
        assert_eq!(words[10..16], [4, 64, 0, 77, 0, 9]);
        assert_eq!(words[16..], [u32::MAX, words[17], 1_700_000_000, 123_456_789, 0, 7]);
    }

    #[test]
    fn devices_come_back() {
        for numbers in [(0, 0), (8, 1), (259, 700), (4095, (1 << 20) - 1)] {
            assert_eq!(device_of_numbers(numbers).map(numbers_of_device), Some(numbers));
        }
        assert_eq!(device_of_numbers((4096, 0)), None);
    }
}
