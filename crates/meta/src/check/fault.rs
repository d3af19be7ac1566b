//! What may be wrong, in words.

use std::fmt;

use types::messages::replica::MetaRepair;
use types::{InodeId, ObjectId, VolumeId};

/// Something that is wrong, and how to repair it.
#[derive(Clone, Debug)]
pub struct Found {
    /// The volume in which it is; `None` if it is in none.
    pub volume: Option<String>,
    /// What is wrong.
    pub fault: Fault,
    /// The repair; `None` if there is none that loses nothing.
    pub repair: Option<MetaRepair>,
}

/// What may be wrong. Names are shown as far as they are text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A name leads to an inode that does not exist.
    NameWithoutInode {
        /// The directory.
        directory: InodeId,
        /// The name.
        name: Vec<u8>,
        /// What it should lead to.
        inode: InodeId,
    },
    /// A name lies in a directory that does not exist.
    NameWithoutDirectory {
        /// The directory.
        directory: InodeId,
        /// The name.
        name: Vec<u8>,
        /// What it leads to.
        inode: InodeId,
    },
    /// A directory has more than one name, or the root has one.
    SecondName {
        /// The directory with the name.
        directory: InodeId,
        /// The name.
        name: Vec<u8>,
        /// The directory that has it.
        inode: InodeId,
    },
    /// A directory lies, over others, in itself.
    Loop {
        /// The directory.
        inode: InodeId,
    },
    /// A name cannot be listed.
    NotListed {
        /// The directory.
        directory: InodeId,
        /// The name.
        name: Vec<u8>,
    },
    /// A name is listed that is not there.
    ListedOnly {
        /// The directory.
        directory: InodeId,
        /// The name.
        name: Vec<u8>,
    },
    /// A name is listed that is not there, and what it led to has no other one.
    NameLost {
        /// The directory.
        directory: InodeId,
        /// The name.
        name: Vec<u8>,
        /// What it led to.
        inode: InodeId,
    },
    /// A directory does not exist, but there are names in it; or it is the root.
    LostDirectory {
        /// The directory.
        inode: InodeId,
    },
    /// An inode has no name, and nobody has removed it.
    NoName {
        /// The inode.
        inode: InodeId,
    },
    /// Something that an inode counts, or its parent, is another one than was found.
    Counts {
        /// The inode.
        inode: InodeId,
        /// What differs.
        differences: Vec<Difference>,
    },
    /// An inode has a name, but is kept as one without names, and would be removed.
    NamedOrphan {
        /// The inode.
        inode: InodeId,
    },
    /// An inode is kept that does not exist.
    OrphanWithoutInode {
        /// The inode.
        inode: InodeId,
    },
    /// The bytes of a file wait to be purged.
    Purged {
        /// The file.
        inode: InodeId,
        /// Its object.
        object: ObjectId,
    },
    /// Two files have the same bytes.
    SharedObject {
        /// Both.
        inodes: [InodeId; 2],
        /// The object.
        object: ObjectId,
    },
    /// Bricks hold bytes that no file has.
    Unowned {
        /// Whose bytes they are.
        object: ObjectId,
    },
    /// A volume has another number of inodes than it says.
    Inodes {
        /// What it says.
        stored: u64,
        /// What was found.
        found: u64,
    },
    /// Ids that are in use would be given again.
    Ids {
        /// The last id that was given.
        stored: u64,
        /// The last one in use.
        found: u64,
    },
    /// A key or its value cannot be read.
    Unreadable {
        /// The key.
        key: Vec<u8>,
    },
    /// Something belongs to a volume that does not exist.
    UnknownVolume {
        /// The volume.
        volume: VolumeId,
    },
}

/// Something that an inode has in another way than was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Difference {
    /// What.
    pub what: &'static str,
    /// As the inode has it.
    pub stored: u64,
    /// As it was found.
    pub found: u64,
}

impl Fault {
    /// One word for scripts.
    pub fn word(&self) -> &'static str {
        match self {
            Fault::NameWithoutInode { .. } => "name-without-inode",
            Fault::NameWithoutDirectory { .. } => "name-without-directory",
            Fault::SecondName { .. } => "second-name",
            Fault::Loop { .. } => "loop",
            Fault::NotListed { .. } => "not-listed",
            Fault::ListedOnly { .. } => "listed-only",
            Fault::NameLost { .. } => "name-lost",
            Fault::LostDirectory { .. } => "lost-directory",
            Fault::NoName { .. } => "no-name",
            Fault::Counts { .. } => "counts",
            Fault::NamedOrphan { .. } => "named-orphan",
            Fault::OrphanWithoutInode { .. } => "orphan-without-inode",
            Fault::Purged { .. } => "purged",
            Fault::SharedObject { .. } => "shared-object",
            Fault::Unowned { .. } => "unowned",
            Fault::Inodes { .. } => "inodes",
            Fault::Ids { .. } => "ids",
            Fault::Unreadable { .. } => "unreadable",
            Fault::UnknownVolume { .. } => "unknown-volume",
        }
    }

    /// What a repair does, in words.
    pub fn remedy(&self) -> &'static str {
        match self {
            Fault::NameWithoutInode { .. } => {
                "with --bricks the name is removed, if no brick has bytes without a file: they may be this one's"
            }
            Fault::NameWithoutDirectory { .. } => "the name is removed",
            Fault::SecondName { .. } => "this name is removed",
            Fault::Loop { .. } | Fault::NoName { .. } => {
                "it gets a name in lost+found, but not in a disk's volume"
            }
            Fault::NotListed { .. } => "it is listed",
            Fault::ListedOnly { .. } => "it is listed no more",
            Fault::NameLost { .. } => "the name comes back",
            Fault::LostDirectory { .. } => "it is made anew, for root only",
            Fault::Counts { .. } | Fault::Inodes { .. } => "what was found is written down",
            Fault::NamedOrphan { .. } => "it is kept as what it is",
            Fault::OrphanWithoutInode { .. } => "it is forgotten",
            Fault::Purged { .. } => "they are not purged; what is purged already is lost",
            Fault::Unowned { .. } => {
                "its bytes are purged, if no name has lost its inode: they may be that one's"
            }
            Fault::Ids { .. } => "these ids are not given again",
            Fault::SharedObject { .. } => {
                "copy both files, then remove both: what is purged for one is gone for the other"
            }
            Fault::Unreadable { .. } => {
                "start the build that wrote it, if it was a newer one; nothing in the volume is repaired"
            }
            Fault::UnknownVolume { .. } => "nothing: it takes some space and does no harm",
        }
    }
}

/// A name as people read it.
struct Text<'a>(&'a [u8]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NameWithoutInode { directory, name, inode } => {
                write!(
                    f,
                    "{} in directory {} leads to inode {}, which does not exist",
                    Text(name),
                    directory.0,
                    inode.0
                )
            }
            Fault::NameWithoutDirectory { directory, name, inode } => write!(
                f,
                "{}, a name of inode {}, lies in directory {}, which does not exist",
                Text(name),
                inode.0,
                directory.0
            ),
            Fault::SecondName { directory, name, inode } => write!(
                f,
                "{} in directory {} is one name too many of directory {}",
                Text(name),
                directory.0,
                inode.0
            ),
            Fault::Loop { inode } => write!(f, "directory {} lies in itself", inode.0),
            Fault::NotListed { directory, name } => {
                write!(f, "{} in directory {} is not listed", Text(name), directory.0)
            }
            Fault::ListedOnly { directory, name } => {
                write!(f, "{} is listed in directory {}, and is not there", Text(name), directory.0)
            }
            Fault::NameLost { directory, name, inode } => write!(
                f,
                "{} in directory {} is listed and not there; it was the name of inode {}",
                Text(name),
                directory.0,
                inode.0
            ),
            Fault::LostDirectory { inode } => {
                write!(f, "directory {} does not exist, but there are names in it", inode.0)
            }
            Fault::NoName { inode } => write!(f, "inode {} has no name", inode.0),
            Fault::Counts { inode, differences } => {
                write!(f, "inode {}: ", inode.0)?;
                for (at, Difference { what, stored, found }) in differences.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    write!(f, "{comma}{what} {stored} where {found} was found")?;
                }
                Ok(())
            }
            Fault::NamedOrphan { inode } => {
                write!(f, "inode {} has a name, but would be removed as one that has none", inode.0)
            }
            Fault::OrphanWithoutInode { inode } => {
                write!(f, "inode {} is kept for who has it open, and does not exist", inode.0)
            }
            Fault::Purged { inode, object } => {
                write!(f, "the bytes of inode {} (object {:x}) wait to be purged", inode.0, object.0)
            }
            Fault::SharedObject { inodes: [first, second], object } => {
                write!(f, "inodes {} and {} have the same bytes (object {:x})", first.0, second.0, object.0)
            }
            Fault::Unowned { object } => {
                write!(f, "bricks have bytes of object {:x}, which no file has", object.0)
            }
            Fault::Inodes { stored, found } => {
                write!(f, "{stored} inodes are counted where {found} were found")
            }
            Fault::Ids { stored, found } => write!(f, "ids up to {stored} are given, but {found} is in use"),
            Fault::Unreadable { key } => {
                write!(f, "the value of key ")?;
                key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                write!(f, " cannot be read")
            }
            Fault::UnknownVolume { volume } => {
                write!(f, "there are keys of volume {}, which does not exist", volume.0)
            }
        }
    }
}
