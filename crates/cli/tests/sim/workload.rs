//! What a client does with files of its own: everything at every boundary, and the model of what must come of it.

use client::{ClientError, SetAttrs};
use types::messages::names::{Owner, RenameHow};
use types::{InodeId, Refusal};

use crate::check::content::{Content, difference};
use crate::cluster::Client;
use crate::storm::Storm;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
/// Files of each client.
const FILES: u64 = 6;
/// Stripes of a file that is long in name only.
const FAR_STRIPES: u64 = 1_000_000;
/// Small writes in a row.
const SCATTERED_MAX: u64 = 60;

/// An open file, under its name as long as it has one.
struct Opened {
    handle: u64,
    inode: InodeId,
    name: Option<String>,
    content: Content,
}

impl Storm<'_> {
    /// One file: opened, changed a few times, synced or not, closed.
    pub(crate) async fn step(&self, client: &Client, who: &str, step: u32) -> Result<(), ClientError> {
        let name = format!("{who}{}", self.prng.below(FILES));
        let session = &client.session;
        match self.prng.below(12) {
            0 => return self.unlink(client, &name).await,
            2 => return self.far_out(client, &format!("far-{who}")).await,
            1 => {
                let handed = self.handed.borrow().clone();
                if let Some(other) = handed.get(self.prng.below(handed.len() as u64 + 1) as usize) {
                    return self.compare(client, other, true).await;
                }
            }
            _ => {}
        }
        let mut file = self.open(client, name).await?;
        for change in 0..1 + self.prng.below(5) {
            match self.prng.below(14) {
                0 => self.truncate(client, &mut file).await?,
                1 | 2 => self.read_back(client, &file).await?,
                3 => self.lose_its_name(client, &mut file, who).await?,
                4 => self.scatter(client, &mut file, step as usize).await?,
                _ => self.write(client, &mut file, step as usize * 7 + change as usize * 13).await?,
            }
        }
        if self.prng.coin() {
            session.fsync(file.handle).await?;
            if self.lost_a_lease() {
                // What was written before may be gone: the model does not know what was made stable now.
                return Err(ClientError::Refused(Refusal::Fenced));
            }
            file.content.synced();
        }
        session.flush(file.handle).await?;
        session.release(file.handle).await?;
        if let Some(name) = file.name {
            self.files.borrow_mut().insert(name.clone(), file.content);
            self.handed.borrow_mut().push(name);
        }
        Ok(())
    }

    async fn open(&self, client: &Client, name: String) -> Result<Opened, ClientError> {
        let known = self.files.borrow().get(&name).cloned();
        let opened = match known {
            Some(_) => {
                let attr = client.session.lookup(InodeId::ROOT, name.as_bytes()).await?;
                client.session.open(attr.inode, true, false).await?
            }
            None => client.session.create(InodeId::ROOT, name.as_bytes(), OWNER).await?,
        };
        self.handed.borrow_mut().retain(|handed| *handed != name);
        let content = known.unwrap_or_else(Content::made);
        Ok(Opened { handle: opened.handle, inode: opened.attr.inode, name: Some(name), content })
    }

    /// The content has changed. It stands in the model even if the next step fails.
    fn note(&self, file: &mut Opened) {
        file.content.changed();
        if let Some(name) = &file.name {
            self.files.borrow_mut().insert(name.clone(), file.content.clone());
        }
    }

    async fn truncate(&self, client: &Client, file: &mut Opened) -> Result<(), ClientError> {
        let size = match self.prng.below(3) {
            0 => self.near_an_edge(file.content.now.len()),
            _ => self.prng.below(file.content.now.len() as u64 + self.stripe as u64) as usize,
        };
        let changes = SetAttrs { size: Some(size as u64), ..SetAttrs::default() };
        let changed = client.session.setattr(file.inode, changes).await;
        // Whose lease has run out over it was not told whether it was done.
        file.content.now.resize(size, 0);
        self.note(file);
        changed.map(drop)
    }

    async fn write(&self, client: &Client, file: &mut Opened, salt: usize) -> Result<(), ClientError> {
        let (at, len) = self.range(file.content.now.len());
        self.write_at(client, file, at, len, salt).await
    }

    async fn write_at(
        &self,
        client: &Client,
        file: &mut Opened,
        at: usize,
        len: usize,
        salt: usize,
    ) -> Result<(), ClientError> {
        let byte = |i: usize| (self.seed as usize + salt + i) as u8 | 1;
        let bytes: Vec<u8> = (0..len).map(byte).collect();
        let written = client.session.write(file.handle, at as u64, &bytes).await;
        let now = &mut file.content.now;
        if now.len() < at + len {
            now.resize(at + len, 0);
        }
        now[at..at + len].copy_from_slice(&bytes);
        self.tally.borrow_mut().bytes += len as u64;
        // Of one that failed, some of the bytes may have left.
        self.note(file);
        written.map(drop)
    }

    /// A file of a length that no walk from its start to its end would survive: a few bytes far out, seen again, cut, gone.
    async fn far_out(&self, client: &Client, name: &str) -> Result<(), ClientError> {
        let session = &client.session;
        let opened = match session.create(InodeId::ROOT, name.as_bytes(), OWNER).await {
            Err(ClientError::Refused(Refusal::Exists)) => {
                return session.unlink(InodeId::ROOT, name.as_bytes()).await.map(|_| ());
            }
            opened => opened?,
        };
        let at = (FAR_STRIPES + self.prng.below(FAR_STRIPES)) * self.stripe as u64
            + self.prng.below(self.stripe as u64);
        let bytes = vec![self.seed as u8 | 1; 1 + self.prng.below(2 * self.stripe as u64) as usize];
        session.write(opened.handle, at, &bytes).await?;
        if self.prng.coin() {
            session.fsync(opened.handle).await?;
        }
        let found = session.read(opened.handle, at, bytes.len()).await?;
        if found[..] != bytes[..] && self.lost_a_lease() {
            return Err(ClientError::Refused(Refusal::Fenced));
        }
        let why = || format!("{name} read at {at}: {}", difference(&bytes, &found));
        self.must(if found[..] == bytes[..] { Ok(()) } else { Err(why()) });
        if self.prng.coin() {
            let cut = SetAttrs { size: Some(self.prng.below(at)), ..SetAttrs::default() };
            session.setattr(opened.attr.inode, cut).await?;
            session.write(opened.handle, self.prng.below(at), &bytes).await?;
        }
        session.unlink(InodeId::ROOT, name.as_bytes()).await?;
        session.flush(opened.handle).await?;
        session.release(opened.handle).await
    }

    /// Many small writes all over the file, as a database does: each becomes an overlay, and journals fill.
    async fn scatter(&self, client: &Client, file: &mut Opened, salt: usize) -> Result<(), ClientError> {
        for n in 0..self.prng.below(SCATTERED_MAX) as usize {
            let at = self.prng.below(file.content.now.len() as u64 + 1) as usize;
            self.write_at(client, file, at, 1 + self.prng.below(100) as usize, salt + n).await?;
        }
        Ok(())
    }

    async fn read_back(&self, client: &Client, file: &Opened) -> Result<(), ClientError> {
        let now = &file.content.now;
        let (at, len) =
            (self.prng.below(now.len() as u64 + 1), self.prng.below(2 * self.stripe as u64) as usize);
        let found = client.session.read(file.handle, at, len).await?;
        let expected = &now[at as usize..now.len().min(at as usize + len)];
        if *found != *expected && self.lost_a_lease() {
            return Err(ClientError::Refused(Refusal::Fenced));
        }
        let why = || format!("{:?} read at {at}: {}", file.name, difference(expected, &found));
        self.must(if *found == *expected { Ok(()) } else { Err(why()) });
        Ok(())
    }

    /// An open file is renamed, over another one or not, or removed; its writer goes on.
    async fn lose_its_name(&self, client: &Client, file: &mut Opened, who: &str) -> Result<(), ClientError> {
        let Some(name) = file.name.take() else { return Ok(()) };
        let other = format!("{who}{}", self.prng.below(FILES));
        let removed = other == name;
        // Until it is done, neither name's content is known.
        self.files.borrow_mut().remove(&name);
        self.files.borrow_mut().remove(&other);
        self.handed.borrow_mut().retain(|handed| *handed != name && *handed != other);
        if removed {
            return client.session.unlink(InodeId::ROOT, name.as_bytes()).await.map(|_| ());
        }
        client
            .session
            .rename(
                (InodeId::ROOT, name.as_bytes()),
                (InodeId::ROOT, other.as_bytes()),
                RenameHow::Replace,
                None,
            )
            .await?;
        self.files.borrow_mut().insert(other.clone(), file.content.clone());
        file.name = Some(other);
        Ok(())
    }

    /// A place at a boundary of block, unit, stripe, extent or file, or next to it.
    fn near_an_edge(&self, size: usize) -> usize {
        let extent = self.stripe * self.config.extent_stripes as usize;
        let edges = [4096, self.config.unit as usize, self.stripe, 2 * self.stripe, extent, size, 0];
        (self.prng.pick(&edges) + self.prng.below(3) as usize).saturating_sub(1)
    }

    /// A range to write, near a boundary more often than not. Small stripes get long files, which cross extents.
    fn range(&self, size: usize) -> (usize, usize) {
        let at = match self.prng.below(3) {
            0 => self.prng.below(size as u64 + self.stripe as u64) as usize,
            _ => self.near_an_edge(size),
        };
        let len = match self.prng.below(4) {
            0 => self.near_an_edge(0).min(2 * self.stripe),
            1 => self.prng.below(64) as usize,
            _ => self.prng.below(self.stripe as u64 * 2) as usize,
        };
        (at.min((6 * self.stripe).max(200_000)), len.max(1))
    }

    async fn unlink(&self, client: &Client, name: &str) -> Result<(), ClientError> {
        let known = self.files.borrow_mut().remove(name).is_some();
        self.handed.borrow_mut().retain(|handed| handed != name);
        if known {
            client.session.unlink(InodeId::ROOT, name.as_bytes()).await?;
        }
        Ok(())
    }

    /// Reads a closed file whole. Nobody writes it meanwhile unless its model changes.
    pub(crate) async fn compare(&self, client: &Client, name: &str, exact: bool) -> Result<(), ClientError> {
        let before = self.files.borrow().get(name).cloned();
        let found = read_whole(client, name).await;
        let Some(model) = before else { return Ok(()) };
        let unchanged = self.files.borrow().get(name).is_some_and(|after| after.now == model.now)
            && self.handed.borrow().iter().any(|handed| handed == name);
        if !unchanged && exact {
            return Ok(());
        }
        let found = found?;
        let exact = exact && !self.lost_a_lease();
        let verdict = match exact {
            true if found == model.now => Ok(()),
            true => Err(difference(&model.now, &found)),
            false => model.allows(&found),
        };
        if let Err(why) = verdict {
            // Its writer may have given up since: a reader can be the first to notice.
            let world = &client.world;
            if exact && (self.exceeds_tolerance(world).await || self.soon_lost_a_lease(world).await) {
                return Ok(());
            }
            panic!("seed {}: {name}: {why} (exact: {exact})", self.seed);
        }
        self.tally.borrow_mut().compared += found.len() as u64;
        Ok(())
    }

    pub(crate) async fn compare_all(&self, client: &Client, exact: bool) {
        let names: Vec<String> = self.files.borrow().keys().cloned().collect();
        for name in names {
            // A file whose last step failed may be open still; then only its names are sure.
            if exact && !self.handed.borrow().contains(&name) {
                continue;
            }
            if let Err(error) = self.compare(client, &name, exact).await {
                if self.inconclusive.get() || self.exceeds_tolerance_after_loss(&client.world).await {
                    self.inconclusive.set(true);
                    return;
                }
                panic!("seed {}: {name} cannot be read: {error}", self.seed);
            }
        }
        let mut compared = self.compare_long(client, exact).await;
        if compared == Err(ClientError::Refused(Refusal::Fenced)) {
            // The client was cut off for longer than its lease. It has a new one.
            compared = self.compare_long(client, exact).await;
        }
        if let Err(error) = compared {
            if self.exceeds_tolerance_after_loss(&client.world).await {
                return;
            }
            panic!("seed {}: a long file cannot be read: {error}", self.seed);
        }
    }

    /// Removes every file.
    pub(crate) async fn remove_all(&self, client: &Client) {
        let mut names: Vec<Vec<u8>> = Vec::new();
        for _ in 0..2 {
            let listed = client.session.readdir(InodeId::ROOT, 0, 1000).await;
            names = self
                .must(listed.map_err(|error| error.to_string()))
                .entries
                .into_iter()
                .map(|e| e.name)
                .collect();
            for name in names.iter().filter(|name| !name.starts_with(b".")) {
                let removed = client.session.unlink(InodeId::ROOT, name).await;
                self.must(removed.map_err(|error| format!("{}: {error}", String::from_utf8_lossy(name))));
            }
        }
        names.retain(|name| !name.starts_with(b"."));
        assert!(names.is_empty(), "seed {}: {names:?} are left", self.seed);
    }
}

/// Reads a file whole. Connections break without a nemesis too, and over two that do a client may lose its lease: it
/// opens the file anew, once.
pub(crate) async fn read_whole(client: &Client, name: &str) -> Result<Vec<u8>, ClientError> {
    match read_once(client, name).await {
        Err(ClientError::Refused(Refusal::Fenced)) => read_once(client, name).await,
        outcome => outcome,
    }
}

async fn read_once(client: &Client, name: &str) -> Result<Vec<u8>, ClientError> {
    let attr = client.session.lookup(InodeId::ROOT, name.as_bytes()).await?;
    let opened = client.session.open(attr.inode, false, false).await?;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < opened.attr.size {
        let part = client.session.read(opened.handle, bytes.len() as u64, 50_000).await?;
        if part.is_empty() {
            break;
        }
        bytes.extend_from_slice(&part);
    }
    client.session.release(opened.handle).await?;
    Ok(bytes)
}
