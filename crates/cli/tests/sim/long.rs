//! A file of a million stripes, of which few exist: the beginning, some in the middle, the last. Clients write it, cut it,
//! zero it, search it and remove it under faults as they do their other files, and every byte of it that exists is
//! compared. What it costs depends on the stripes that exist. So whatever walks from its start to its end does not end
//! in time.
//!
//! At rest such a file is made and removed once more: then every brick has the units and the free space of before.

use client::{ClientError, Seek, SetAttrs};
use types::messages::names::Owner;
use types::{InodeId, Refusal};
use world::World;

use crate::check::content::{Content, difference};
use crate::check::space;
use crate::cluster::Client;
use crate::storm::Storm;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
/// Length of the file in stripes.
const STRIPES: u64 = 1_000_000;
/// Parts of the file that exist, apart from its beginning and its end.
const MIDDLE: u64 = 4;
/// Stripes of each part that exists.
const PART: u64 = 2;

/// The model of one long file.
#[derive(Clone)]
pub(crate) struct LongFile {
    /// The parts that exist: the first byte, and the content.
    parts: Vec<(u64, Content)>,
    /// Every size since the last fsync, the present one last.
    sizes: Vec<u64>,
    /// Its writer has closed it: others may compare it.
    pub(crate) closed: bool,
}

impl LongFile {
    fn size(&self) -> u64 {
        self.sizes.last().copied().unwrap_or(0)
    }

    /// Only zeros are left in a range.
    fn zeroed(&mut self, from: u64, to: u64) {
        for (start, content) in &mut self.parts {
            let end = *start + content.now.len() as u64;
            let range = from.clamp(*start, end) - *start..to.clamp(*start, end) - *start;
            content.now[range.start as usize..range.end as usize].fill(0);
        }
    }

    /// The content or the size has changed.
    fn changed(&mut self, size: u64) {
        self.sizes.push(size);
        self.parts.iter_mut().for_each(|(_, content)| content.changed());
    }

    fn synced(&mut self) {
        self.sizes = vec![self.size()];
        self.parts.iter_mut().for_each(|(_, content)| content.synced());
    }

    /// The first byte from `offset` on that is not zero.
    fn first_byte(&self, offset: u64) -> Option<u64> {
        self.parts.iter().find_map(|(start, content)| {
            let skipped = offset.saturating_sub(*start) as usize;
            let found = content.now.iter().skip(skipped).position(|byte| *byte != 0)?;
            Some(*start + (skipped + found) as u64)
        })
    }

    /// The stripes that may exist.
    pub(crate) fn stripes(&self, stripe: usize) -> impl Iterator<Item = u64> {
        self.parts.iter().flat_map(move |(start, _)| {
            let first = start / stripe as u64;
            first..first + PART
        })
    }
}

/// A long file that is open for writing.
struct OpenLong<'a> {
    client: &'a Client,
    name: &'a str,
    handle: u64,
    inode: InodeId,
    file: LongFile,
}

impl Storm<'_> {
    /// A new long file. Where its parts are is drawn.
    fn new_long(&self) -> LongFile {
        let middle = (1..=MIDDLE).map(|part| {
            let share = STRIPES / (MIDDLE + 1);
            part * share + self.prng.below(share / 2)
        });
        let firsts = [0].into_iter().chain(middle).chain([STRIPES - PART]);
        let empty = || {
            let mut content = Content::made();
            content.now = vec![0; PART as usize * self.stripe];
            content.synced();
            content
        };
        let parts = firsts.map(|first| (first * self.stripe as u64, empty())).collect();
        LongFile { parts, sizes: vec![0], closed: false }
    }

    /// The model stands as it is even if the next step fails.
    fn note_long(&self, open: &OpenLong<'_>) {
        self.long.borrow_mut().insert(open.name.to_owned(), open.file.clone());
    }

    /// A step with the client's long file: opened, changed a few times, synced or not, closed; or removed.
    pub(crate) async fn long_step(&self, client: &Client, who: &str) -> Result<(), ClientError> {
        let name = &*format!("long-{who}");
        let known = self.long.borrow().get(name).cloned();
        if known.is_some() && self.prng.below(8) == 0 {
            self.long.borrow_mut().remove(name);
            return client.session.unlink(InodeId::ROOT, name.as_bytes()).await.map(drop);
        }
        let mut open = self.open_long(client, name, known).await?;
        for _ in 0..1 + self.prng.below(4) {
            match self.prng.below(12) {
                0 | 1 => self.cut_long(&mut open).await?,
                2 => self.zero_long(&mut open).await?,
                3 => self.seek_long(&open).await?,
                4..=6 => self.read_long(&open).await?,
                _ => self.write_long(&mut open).await?,
            }
        }
        if self.prng.coin() {
            client.session.fsync(open.handle).await?;
            if self.lost_a_lease() {
                return Err(ClientError::Refused(Refusal::Fenced));
            }
            open.file.synced();
        }
        client.session.flush(open.handle).await?;
        client.session.release(open.handle).await?;
        open.file.closed = true;
        self.note_long(&open);
        Ok(())
    }

    async fn open_long<'a>(
        &self,
        client: &'a Client,
        name: &'a str,
        known: Option<LongFile>,
    ) -> Result<OpenLong<'a>, ClientError> {
        let session = &client.session;
        let opened = match known {
            Some(_) => {
                let attr = session.lookup(InodeId::ROOT, name.as_bytes()).await?;
                session.open(attr.inode, true, false).await?
            }
            None => session.create(InodeId::ROOT, name.as_bytes(), OWNER).await?,
        };
        let mut file = known.unwrap_or_else(|| self.new_long());
        file.closed = false;
        let open = OpenLong { client, name, handle: opened.handle, inode: opened.attr.inode, file };
        self.note_long(&open);
        Ok(open)
    }

    async fn write_long(&self, open: &mut OpenLong<'_>) -> Result<(), ClientError> {
        let part = self.prng.below(open.file.parts.len() as u64) as usize;
        let within = self.prng.below(PART * self.stripe as u64);
        let len = 1 + self.prng.below(PART * self.stripe as u64 - within);
        let value = self.prng.next_u64() as u8 | 1;
        self.write_part(open, part, within, &vec![value; len as usize]).await
    }

    async fn write_part(
        &self,
        open: &mut OpenLong<'_>,
        part: usize,
        within: u64,
        bytes: &[u8],
    ) -> Result<(), ClientError> {
        let (start, content) = &mut open.file.parts[part];
        let at = *start + within;
        let written = open.client.session.write(open.handle, at, bytes).await;
        content.now[within as usize..within as usize + bytes.len()].copy_from_slice(bytes);
        open.file.changed(open.file.size().max(at + bytes.len() as u64));
        self.tally.borrow_mut().bytes += bytes.len() as u64;
        self.note_long(open);
        written.map(drop)
    }

    /// A place in a part, at its end, or anywhere.
    fn long_place(&self, file: &LongFile) -> u64 {
        let part = self.prng.below(file.parts.len() as u64) as usize;
        match self.prng.below(3) {
            0 => self.prng.below(STRIPES * self.stripe as u64),
            1 => file.parts[part].0 + PART * self.stripe as u64,
            _ => file.parts[part].0 + self.prng.below(PART * self.stripe as u64),
        }
    }

    async fn cut_long(&self, open: &mut OpenLong<'_>) -> Result<(), ClientError> {
        let size = self.long_place(&open.file);
        let changes = SetAttrs { size: Some(size), ..SetAttrs::default() };
        let cut = open.client.session.setattr(open.inode, changes).await;
        open.file.zeroed(size, u64::MAX);
        open.file.changed(size);
        self.note_long(open);
        cut.map(drop)
    }

    async fn zero_long(&self, open: &mut OpenLong<'_>) -> Result<(), ClientError> {
        let (one, other) = (self.long_place(&open.file), self.long_place(&open.file));
        let (from, to) = (one.min(other), one.max(other));
        let zeroed = open.client.session.zero(open.handle, from..to).await;
        open.file.zeroed(from, to);
        open.file.changed(open.file.size());
        self.note_long(open);
        zeroed
    }

    /// What a search passes over is zeros.
    async fn seek_long(&self, open: &OpenLong<'_>) -> Result<(), ClientError> {
        let from = self.long_place(&open.file);
        let found = open.client.session.seek(open.handle, from, Seek::Data).await?;
        let first = open.file.first_byte(from);
        let passed = first.is_some_and(|first| found.is_none_or(|found| found > first));
        if passed && self.lost_a_lease() {
            return Err(ClientError::Refused(Refusal::Fenced));
        }
        let why = || {
            format!("{}: a search from {from} finds {found:?}, and there are bytes at {first:?}", open.name)
        };
        self.must(if passed { Err(why()) } else { Ok(()) });
        Ok(())
    }

    /// Reads a part, or somewhere between the parts.
    async fn read_long(&self, open: &OpenLong<'_>) -> Result<(), ClientError> {
        let session = &open.client.session;
        let at = self.long_place(&open.file);
        let len = 1 + self.prng.below(2 * self.stripe as u64);
        let expected: Vec<u8> =
            (at..(at + len).min(open.file.size())).map(|at| byte_at(&open.file, at)).collect();
        let found = session.read(open.handle, at, len as usize).await?;
        if *found != *expected && self.lost_a_lease() {
            return Err(ClientError::Refused(Refusal::Fenced));
        }
        let why = || format!("{} read at {at}: {}", open.name, difference(&expected, &found));
        self.must(if *found == *expected { Ok(()) } else { Err(why()) });
        Ok(())
    }

    /// Reads all parts of the long files. `exact`: nothing was lost, and files that are open are left out.
    pub(crate) async fn compare_long(&self, client: &Client, exact: bool) -> Result<(), ClientError> {
        let files: Vec<(String, LongFile)> = self.long.borrow().clone().into_iter().collect();
        for (name, file) in files.into_iter().filter(|(_, file)| file.closed || !exact) {
            let exact = exact && !self.lost_a_lease();
            let Err(why) = self.compare_parts(client, &name, &file, exact).await? else { continue };
            // Its writer may have given up since: a reader can be the first to notice.
            let world = &client.world;
            if exact && (self.exceeds_tolerance(world).await || self.soon_lost_a_lease(world).await) {
                return Ok(());
            }
            panic!("seed {}: {name}: {why} (exact: {exact})", self.seed);
        }
        Ok(())
    }

    async fn compare_parts(
        &self,
        client: &Client,
        name: &str,
        file: &LongFile,
        exact: bool,
    ) -> Result<Result<(), String>, ClientError> {
        let attr = client.session.lookup(InodeId::ROOT, name.as_bytes()).await?;
        let opened = client.session.open(attr.inode, false, false).await?;
        let size = opened.attr.size;
        let sizes = if exact { &file.sizes[file.sizes.len() - 1..] } else { &file.sizes[..] };
        let mut verdict = Ok(());
        if Some(&size) < sizes.iter().min() || Some(&size) > sizes.iter().max() {
            verdict = Err(format!("{size} bytes, and its sizes were {sizes:?}"));
        }
        for (start, content) in &file.parts {
            let mut found = read_all(client, opened.handle, *start, content.now.len()).await?;
            // Beyond the end of the file there is nothing to read.
            found.resize(content.now.len(), 0);
            let right = match exact {
                true if found == content.now => Ok(()),
                true => Err(difference(&content.now, &found)),
                false => content.allows(&found),
            };
            verdict = verdict.and(right.map_err(|why| format!("from {start} on: {why}")));
            self.tally.borrow_mut().compared += found.len() as u64;
        }
        client.session.release(opened.handle).await?;
        Ok(verdict)
    }

    /// At rest: a long file is written, cut, written again and removed. Then all bricks have what they had before.
    pub(crate) async fn long_file_comes_and_goes(
        &self,
        world: &World,
        client: &Client,
    ) -> Result<(), ClientError> {
        let bricks = self.config.bricks;
        let before = self.must(space::at_rest(world, bricks).await);
        let name = "long-at-rest";
        let mut open = self.open_long(client, name, None).await?;
        for round in 1..=2 {
            let whole = vec![round; PART as usize * self.stripe];
            for part in 0..open.file.parts.len() {
                self.write_part(&mut open, part, 0, &whole).await?;
            }
            client.session.fsync(open.handle).await?;
            let held = space::held(world, bricks).await;
            let more = held
                .iter()
                .any(|(brick, held)| before.get(brick).is_some_and(|before| held.units > before.units));
            self.must(if more { Ok(()) } else { Err(format!("{name} takes no unit: {held:?}")) });
            if round == 1 {
                self.cut_long(&mut open).await?;
            }
        }
        client.session.flush(open.handle).await?;
        client.session.release(open.handle).await?;
        self.long.borrow_mut().remove(name);
        client.session.unlink(InodeId::ROOT, name.as_bytes()).await?;
        self.must(space::all_back(world, bricks, &before).await.map_err(|why| format!("{name}: {why}")));
        self.tally.borrow_mut().long_removed += 1;
        Ok(())
    }
}

/// What the model has at a byte.
fn byte_at(file: &LongFile, at: u64) -> u8 {
    let part =
        file.parts.iter().find(|(start, content)| (*start..*start + content.now.len() as u64).contains(&at));
    part.map_or(0, |(start, content)| content.now[(at - start) as usize])
}

/// Reads up to `len` bytes, or to the end of the file.
async fn read_all(client: &Client, handle: u64, at: u64, len: usize) -> Result<Vec<u8>, ClientError> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let part = client.session.read(handle, at + bytes.len() as u64, len - bytes.len()).await?;
        if part.is_empty() {
            break;
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}
