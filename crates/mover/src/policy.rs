//! Which tier a file belongs in, by its last use.

use types::messages::names::{Attr, FileKind};

/// Moves files between the first tier of a volume and its last one. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The number of the tier for files that are not used.
    pub cold: u8,
    /// A file goes to the cold tier when nobody has read or written it for so long.
    pub cold_after: i64,
    /// A file comes back to the first tier when somebody has used it within this time. [`None`]: it stays.
    pub hot_within: Option<i64>,
}

impl Policy {
    /// The tier to move a file to, at this time; [`None`] if it stays. Use is what its times say: access times follow
    /// the rule of `relatime`, so they may be a day old for a file that is read all the time. A file is therefore taken
    /// for unused only if it was not read in the day before either: choose `cold_after` longer than a day.
    pub fn target(&self, attr: &Attr, now: i64) -> Option<u8> {
        if attr.kind != FileKind::File {
            return None;
        }
        let idle = now.saturating_sub(attr.atime.max(attr.mtime));
        match attr.object.tier() {
            0 if idle >= self.cold_after => Some(self.cold),
            0 => None,
            _ if self.hot_within.is_some_and(|within| idle < within) => Some(0),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{InodeId, ObjectId};

    fn file(tier: u8, atime: i64, mtime: i64) -> Attr {
        Attr {
            inode: InodeId(5),
            kind: FileKind::File,
            mode: 0o644,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 10,
            atime,
            mtime,
            ctime: 0,
            object: ObjectId::in_tier(5, tier),
            stale_end: 0,
            truncate_seq: 0,
            changes: 0,
        }
    }

    #[test]
    fn files_follow_their_last_use() {
        let policy = Policy { cold: 1, cold_after: 100, hot_within: Some(10) };
        assert_eq!(policy.target(&file(0, 800, 901), 1000), None, "written 99 ago");
        assert_eq!(policy.target(&file(0, 901, 0), 1000), None, "read 99 ago");
        assert_eq!(policy.target(&file(0, 900, 900), 1000), Some(1));
        assert_eq!(policy.target(&file(1, 900, 900), 1000), None);
        assert_eq!(policy.target(&file(1, 991, 0), 1000), Some(0));
        assert_eq!(policy.target(&file(2, 991, 0), 1000), Some(0));
        let stays = Policy { hot_within: None, ..policy.clone() };
        assert_eq!(stays.target(&file(1, 1000, 0), 1000), None);
        let directory = Attr { kind: FileKind::Directory, ..file(0, 0, 0) };
        assert_eq!(policy.target(&directory, 1000), None);
        assert_eq!(policy.target(&file(0, i64::MAX, 0), 0), None, "a time that is still to come");
    }
}
