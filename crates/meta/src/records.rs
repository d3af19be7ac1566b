//! The values behind the keys: the version byte, then the fields in the form that they have on the wire. They grow as messages do: a later
//! build adds fields at the end.

use types::messages::cluster::{BrickClass, BrickState, GroupConfig, TierInfo};
use types::messages::names::{Attr, FileKind, Owner};
use types::wire::{Codec, Unknown, from_bytes, from_plain_bytes};
use types::{Geometry, Incarnation, InodeId, NodeId, ObjectId, Refusal, ShardId, VolumeId};

/// The version of every value that is written. A build does not use a store with a version under the cluster's key that it cannot
/// read.
pub(crate) const VERSION: u8 = 3;
/// The version of values whose records did not grow. They are read; when such a store is served, its values become of [`VERSION`] as
/// they change.
pub(crate) const VERSION_PLAIN: u8 = 2;

/// Cookies below this are left to the gates, for `.` and `..`; 0 is the start of a directory.
pub(crate) const COOKIE_FIRST: u64 = 3;

types::records! {
    /// An inode.
    part Inode {
        /// What it is.
        kind: FileKind,
        /// Permission bits.
        mode: u32,
        /// Hard links.
        links: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Device number of a device.
        rdev: u32,
        /// Durable size: of a file's stable bytes, of a link's target, or entries of a directory.
        size: u64,
        /// Last access.
        atime: i64,
        /// Last change of the contents.
        mtime: i64,
        /// Last change of anything.
        ctime: i64,
        /// When `mtime` was set: writes from before do not change it.
        timed: i64,
        /// The bytes of a file.
        object: ObjectId,
        /// End of the bytes beyond `size` that must be zeroed before the file grows; 0 if there are none.
        stale_end: u64,
        /// How often a file was truncated. A new object counts as one more truncation.
        truncate_seq: u64,
        /// Grows with every change of the contents.
        changes: u64,
        /// Of a directory: the one that it is in (itself for the root).
        parent: InodeId,
        /// Of a directory: the cookie of its next new entry.
        cookie_next: u64,
        /// The target of a symbolic link. Of a file: room for its bytes, unused so far.
        inline: Vec<u8>,
        /// What a later build has added.
        unknown: Unknown = Unknown::default(),
    }
    /// An object to be purged, named by the key.
    part ToPurge {}
    /// A name in a directory.
    part Entry {
        /// What it names.
        inode: InodeId,
        /// Its place in the order of listing.
        cookie: u64,
    }
    /// A name at its place in the order of listing.
    part Listed {
        /// What it names.
        inode: InodeId,
        /// The name.
        name: Vec<u8>,
    }
    /// A client with a lease.
    part ClientRecord {
        /// The volume that it has mounted.
        volume: VolumeId,
        /// It is the only one of its volume.
        exclusive: bool,
        /// Where the volume is shown, for people.
        place: String,
        /// When it was mounted, in nanoseconds since 1970.
        since: i64,
        /// Its lease has run out, and some brick may not have fenced it yet.
        lost: bool,
    }
    /// A brick.
    part BrickRecord {
        /// The machine that it is in.
        node: NodeId,
        /// Where its server listens.
        address: String,
        /// Bytes that units can take.
        capacity: u64,
        /// Bytes free when it joined.
        free: u64,
        /// What it is to the cluster.
        state: BrickState,
        /// The life of its server.
        incarnation: Incarnation,
        /// Names the device.
        device: [u8; 16],
    }
    /// The tiers of a volume.
    part TiersRecord {
        /// The class of the bricks of the first tier.
        class: Option<BrickClass>,
        /// The further ones.
        tiers: Vec<TierInfo>,
    }
    /// Another shard of the cluster.
    part ShardRecord {
        /// Its metadata servers, with commas between them; empty until one has led.
        servers: String,
        /// It is not part of the cluster any more.
        removed: bool,
        /// For whom its number was given out; 0 if nobody knows.
        token: u64,
    }
    /// The shard that a store is of.
    #[derive(Default)]
    part OwnShard {
        /// Its number.
        shard: ShardId,
        /// The metadata servers of the first shard, with commas between them.
        first: String,
    }
    /// A volume.
    part VolumeRecord {
        /// Its name.
        name: String,
        /// How bytes become stripes.
        geometry: Geometry,
        /// The table of groups, as it was when this record was written. A group that has changed since has a record of its own.
        groups: Vec<GroupConfig>,
        /// Slots of one group may lie on one node.
        same_node: bool,
        /// The size in bytes of a block volume's disk; `None` for a volume of files.
        block: Option<u64>,
        /// It is deleted; its bytes are not all purged yet.
        deleted: bool,
    }
}

impl Inode {
    /// A new inode with one name, or a new directory with its two.
    pub(crate) fn new(kind: FileKind, owner: &Owner, now: i64) -> Inode {
        let directory = kind == FileKind::Directory;
        Inode {
            kind,
            mode: owner.mode & 0o7777,
            links: if directory { 2 } else { 1 },
            uid: owner.uid,
            gid: owner.gid,
            rdev: 0,
            size: 0,
            atime: now,
            mtime: now,
            ctime: now,
            timed: now,
            object: ObjectId(0),
            stale_end: 0,
            truncate_seq: 0,
            changes: 0,
            parent: InodeId(0),
            cookie_next: COOKIE_FIRST,
            inline: Vec::new(),
            unknown: Unknown::default(),
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    pub(crate) fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }

    /// The durable attributes.
    pub(crate) fn attr(&self, inode: InodeId) -> Attr {
        Attr {
            inode,
            kind: self.kind,
            mode: self.mode,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size: self.size,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            object: self.object,
            stale_end: self.stale_end,
            truncate_seq: self.truncate_seq,
            changes: self.changes,
        }
    }

    /// The file becomes shorter, but the bricks may hold bytes up to `end`. A zeroing in progress, begun after an
    /// earlier truncation, may not cover all of them.
    pub(crate) fn leave_stale(&mut self, end: u64) {
        self.stale_end = self.stale_end.max(end);
        self.truncate_seq += 1;
    }

    /// The file becomes empty and gets a new object.
    pub(crate) fn begin_anew(&mut self, object: ObjectId) {
        self.object = object;
        self.stale_end = 0;
        self.truncate_seq += 1;
    }

    /// The contents have changed at `now`.
    pub(crate) fn touch(&mut self, now: i64) {
        self.mtime = now;
        self.ctime = now;
        self.timed = now;
        self.changes += 1;
    }
}

/// The bytes of a value.
pub(crate) fn to_value<T: Codec>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    bytes.push(VERSION);
    value.encode_last(&mut bytes);
    bytes
}

/// Whether this build reads values of a version.
pub(crate) fn is_read(version: u8) -> bool {
    (VERSION_PLAIN..=VERSION).contains(&version)
}

/// A value from its bytes.
pub(crate) fn from_value<T: Codec>(bytes: &[u8]) -> Result<T, Refusal> {
    let value = match bytes.split_first() {
        Some((&VERSION, rest)) => from_bytes(rest),
        Some((&VERSION_PLAIN, rest)) => from_plain_bytes(rest),
        _ => {
            tracing::error!(version = bytes.first(), "a value of the metadata store has an unknown version");
            return Err(Refusal::MetaFailed);
        }
    };
    value.map_err(|error| {
        tracing::error!(%error, "a value of the metadata store is damaged");
        Refusal::MetaFailed
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use types::messages::replica::MetaMember;
    use types::wire::{Forms, at_head_of, check_document};

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").expect("writing to a string");
            hex
        })
    }

    /// A line with the bytes of a sample. `plain` are those of a build whose records did not grow.
    fn golden_line<T: Codec + PartialEq + std::fmt::Debug>(name: &str, plain: Option<&str>) -> String {
        let value = T::sample(&mut 0);
        let bytes = to_value(&value);
        assert_eq!(from_value(&bytes), Ok(value));
        if let Some(plain) = plain {
            let plain: Vec<u8> = (0..plain.len() / 2)
                .map(|at| u8::from_str_radix(&plain[2 * at..2 * at + 2], 16).expect("hexadecimal"))
                .collect();
            let read: T = from_value(&plain).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
            assert_eq!(hex(&to_value(&read)), hex(&bytes), "{name} of version 2");
        }
        format!("{name} {}", hex(&bytes))
    }

    #[test]
    fn golden_bytes_of_every_value_and_those_of_version_2_are_read() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
        let plain = std::fs::read_to_string(format!("{dir}/values-v2.txt")).unwrap_or_default();
        let plain: std::collections::BTreeMap<&str, &str> =
            plain.lines().filter_map(|line| line.split_once(' ')).collect();
        let mut lines = Vec::new();
        macro_rules! collect {
            ($($name:literal $value:ty,)*) => { $(lines.push(golden_line::<$value>($name, plain.get($name).copied()));)* };
        }
        collect!(
            "Inode" Inode, "ToPurge" ToPurge, "Entry" Entry, "Listed" Listed, "ClientRecord" ClientRecord,
            "BrickRecord" BrickRecord, "TiersRecord" TiersRecord, "ShardRecord" ShardRecord,
            "OwnShard" OwnShard, "VolumeRecord" VolumeRecord, "members" Vec<MetaMember>, "text" String,
            "bricks" Vec<types::BrickId>, "number" u64,
        );
        assert_eq!(plain.len(), lines.len(), "every value of version 2 is read");
        let text = lines.join("\n") + "\n";
        let path = format!("{dir}/values-v3.txt");
        if std::env::var_os("SHOAL_WRITE_GOLDEN").is_some() {
            std::fs::write(&path, &text).expect("the golden file can be written");
        }
        let golden = std::fs::read_to_string(&path).expect("the golden file exists");
        for (expected, found) in golden.lines().zip(text.lines()) {
            assert_eq!(found, expected, "the form of a value changed");
        }
        assert_eq!(golden.lines().count(), lines.len());
    }

    #[test]
    fn the_document_of_formats_has_every_value() {
        let mut forms = Forms::default();
        macro_rules! describe { ($($value:ident),*) => { $($value::describe(&mut forms);)* }; }
        describe!(
            Inode,
            ToPurge,
            Entry,
            Listed,
            ClientRecord,
            BrickRecord,
            TiersRecord,
            ShardRecord,
            OwnShard,
            VolumeRecord
        );
        check_document(
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats.md"),
            &[
                ("values", &forms.chapters()),
                ("keys", &at_head_of(include_str!("keys.rs"))),
                ("metadata journal", &at_head_of(include_str!("kv/record.rs"))),
                ("ballot", &at_head_of(include_str!("replicas/ballot.rs"))),
            ],
        );
    }

    #[test]
    fn a_change_keeps_what_a_later_build_has_added_to_an_inode() {
        let inode = Inode::new(FileKind::File, &Owner { uid: 1, gid: 2, mode: 0o644 }, 5);
        let later = [to_value(&inode), b"birth time".to_vec()].concat();
        let mut read: Inode = from_value(&later).expect("it grows");
        assert_ne!(read, inode);
        read.touch(9);
        assert!(to_value(&read).ends_with(b"birth time"));
    }

    #[test]
    fn values_have_a_version() {
        let entry = Entry { inode: InodeId(5), cookie: 9 };
        let bytes = to_value(&entry);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "0305000000000000000900000000000000");
        assert_eq!(from_value::<Entry>(&bytes), Ok(entry.clone()));
        let plain = [&[VERSION_PLAIN], &bytes[1..]].concat();
        assert_eq!(from_value::<Entry>(&plain), Ok(entry.clone()));
        assert_eq!(from_value::<Entry>(&[&bytes[..], b"more"].concat()), Ok(entry), "a later build's");
        assert_eq!(from_value::<Entry>(&[&plain[..], b"more"].concat()), Err(Refusal::MetaFailed));
        assert_eq!(from_value::<Entry>(&[1; 17]), Err(Refusal::MetaFailed));
        assert_eq!(from_value::<Entry>(&[]), Err(Refusal::MetaFailed));
    }
}
