//! Attributes, permissions, the targets of links, space and limits.

use client::SetAttrs;
use types::limits::{BLOCK, FILE_SIZE_MAX, LINKS_MAX, NAME_MAX};
use types::messages::names::FileKind;

use crate::nfs::access::Caller;
use crate::nfs::gate::Gate;
use crate::nfs::wire::{IO_MAX, NewAttributes, Results, SetTime, Status, Writer};

/// Best size of a directory's page, in bytes.
const PAGE: u32 = 64 << 10;
/// Hard links, symbolic links, the same answers for all files, and times that can be set. Source: RFC 1813, 3.3.19.
const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;

impl Gate {
    pub(super) async fn get_attr(&self, object: &[u8]) -> Result<Results, Status> {
        let attr = self.attr_of(object).await?;
        let mut writer = Writer::default();
        self.attributes().put(&mut writer, &attr);
        Ok(writer.into())
    }

    pub(super) async fn set_attr(
        &self,
        caller: &Caller,
        object: &[u8],
        new: NewAttributes,
        guard: Option<i64>,
    ) -> Result<Results, Status> {
        self.check_writable()?;
        let attr = self.attr_of(object).await?;
        if guard.is_some_and(|ctime| ctime != attr.ctime) {
            return Err(Status::NotSync);
        }
        let granted = caller.check_change(&attr, &new)?;
        let changes = self.changes(&granted);
        if changes != SetAttrs::default() {
            let changed = self.session.setattr(attr.inode, changes).await?;
            self.shared.files.cache_attr(&changed, self.world.now());
        }
        let after = self.attr_after(attr.inode).await;
        let mut writer = Writer::default();
        self.attributes().put_wcc_data(&mut writer, after.as_ref());
        Ok(writer.into())
    }

    /// Attributes to set, as the client wants them.
    pub(super) fn changes(&self, new: &NewAttributes) -> SetAttrs {
        let time = |time| match time {
            SetTime::Keep => None,
            SetTime::Now => Some(self.world.wall()),
            SetTime::To(time) => Some(time),
        };
        SetAttrs {
            mode: new.mode.map(|mode| mode & 0o7777),
            uid: new.uid,
            gid: new.gid,
            size: new.size,
            atime: time(new.atime),
            mtime: time(new.mtime),
            ctime: None,
        }
    }

    pub(super) async fn access(
        &self,
        caller: &Caller,
        object: &[u8],
        wanted: u32,
    ) -> Result<Results, Status> {
        let attr = self.attr_of(object).await?;
        let mut writer = Writer::default();
        self.attributes().put_post_op_attr(&mut writer, Some(&attr));
        writer.u32(caller.allowed(&attr, wanted, self.shared.read_only));
        Ok(writer.into())
    }

    pub(super) async fn read_link(&self, object: &[u8]) -> Result<Results, Status> {
        let attr = self.attr_of(object).await?;
        if attr.kind != FileKind::Symlink {
            return Err(Status::Invalid);
        }
        let target = self.session.readlink(attr.inode).await?;
        let mut writer = Writer::default();
        self.attributes().put_post_op_attr(&mut writer, Some(&attr));
        writer.opaque(&target);
        Ok(writer.into())
    }

    pub(super) async fn fs_stat(&self, object: &[u8]) -> Result<Results, Status> {
        let attr = self.attr_of(object).await?;
        let space = self.session.statfs().await?;
        // There is no limit of inodes, so the number of free blocks is reported.
        let inodes_free = space.free / BLOCK as u64;
        let mut writer = Writer::default();
        self.attributes().put_post_op_attr(&mut writer, Some(&attr));
        writer.u64(space.total).u64(space.free).u64(space.free);
        writer.u64(space.inodes.saturating_add(inodes_free)).u64(inodes_free).u64(inodes_free);
        // These values may change at any time.
        writer.u32(0);
        Ok(writer.into())
    }

    pub(super) async fn fs_info(&self, object: &[u8]) -> Result<Results, Status> {
        let attr = self.attr_of(object).await?;
        let block = BLOCK as u32;
        let mut writer = Writer::default();
        self.attributes().put_post_op_attr(&mut writer, Some(&attr));
        writer.u32(IO_MAX).u32(IO_MAX).u32(block).u32(IO_MAX).u32(IO_MAX).u32(block).u32(PAGE);
        // Times are exact to a nanosecond.
        writer.u64(FILE_SIZE_MAX).u32(0).u32(1).u32(PROPERTIES);
        Ok(writer.into())
    }

    pub(super) async fn path_conf(&self, object: &[u8]) -> Result<Results, Status> {
        let attr = self.attr_of(object).await?;
        let mut writer = Writer::default();
        self.attributes().put_post_op_attr(&mut writer, Some(&attr));
        writer.u32(LINKS_MAX).u32(NAME_MAX as u32);
        // Too long names are refused and not truncated; only root may give files away; names keep their case and are
        // compared by it.
        writer.bool(true).bool(true).bool(false).bool(true);
        Ok(writer.into())
    }
}
