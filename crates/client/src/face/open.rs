//! Opening and closing files.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use types::messages::cluster::Mode;
use types::messages::names::{
    self, Attr, AttrReply, Create, CreateTemporary, Created, FileKind, GetAttr, NamedAs, Owner, SwapObjects,
};
use types::{InodeId, Refusal};

use crate::error::ClientError;
use crate::face::session::Session;
use crate::modes::ModeState;
use crate::paths::attrs::SetAttrs;
use crate::state::open_file::OpenFile;
use crate::state::open_files::{Handle, OpenFiles};
use crate::state::wb_errors::ErrorCursor;

/// An open file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The handle for reads and writes.
    pub handle: u64,
    /// The file's attributes.
    pub attr: Attr,
    /// The initial mode: see [`Mount::mode`](crate::Mount::mode).
    pub mode: Mode,
    /// If the file was created: the attributes of its directory.
    pub parent: Option<Attr>,
}

/// An open in progress. It records recalls that overtake its answer.
struct Opening<'a> {
    modes: &'a ModeState,
    number: Option<u64>,
}

impl<'a> Opening<'a> {
    fn begin(modes: &'a ModeState) -> Opening<'a> {
        let number = Some(modes.inflight_opens().begin());
        Opening { modes, number }
    }

    /// The granted mode, reduced by recalls so far.
    fn left(&self, attr: &Attr, granted: Mode) -> Mode {
        self.number.map_or(granted, |number| self.modes.inflight_opens().left(number, attr.inode, granted))
    }

    /// The granted mode, reduced by recalls so far. The caller holds the file's lock, so later recalls see the state
    /// that it leaves.
    fn end(mut self, attr: &Attr, granted: Mode) -> Mode {
        let mode = self.left(attr, granted);
        if let Some(number) = self.number.take() {
            self.modes.inflight_opens().finish(number);
        }
        mode
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number.take() {
            self.modes.inflight_opens().finish(number);
        }
    }
}

/// A use of a file before it has a handle.
struct Entered<'a> {
    files: &'a OpenFiles,
    file: Option<Arc<OpenFile>>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.files.put_file(&file);
        }
    }
}

impl Session {
    /// Opens a file, after clients with a conflicting mode have given it up.
    pub async fn open(&self, inode: InodeId, write: bool, truncate: bool) -> Result<Opened, ClientError> {
        self.open_as(inode, Vec::new(), write, truncate).await
    }

    /// Opens a file that was found by some of these names, of which there are at most
    /// [`OPEN_NAMES_MAX`](types::limits::OPEN_NAMES_MAX). If one of them is not the file's any more, this is refused with `Stale`.
    pub async fn open_as(
        &self,
        inode: InodeId,
        names: Vec<NamedAs>,
        write: bool,
        truncate: bool,
    ) -> Result<Opened, ClientError> {
        self.mount.files.check_open_files(Some(inode))?;
        let (file, fresh) = self.mount.files.get_file(inode);
        let mut entered = Entered { files: &self.mount.files, file: Some(file.clone()) };
        let opening = Opening::begin(&self.modes.state);
        let (quiet, was_alone) = {
            let state = file.lock();
            (state.quiet(), state.mode() == Mode::Alone)
        };
        let (volume, now) = (self.link.routes.volume, self.link.world.wall());
        // If this mount has bytes of the file, it must drop them together with the service's truncation, below.
        let at_once = truncate && fresh;
        let request = |caller| names::Open { caller, volume, inode, write, truncate: at_once, names, now };
        let names::Opened { attr, mode } = self.link.change(request).await?;
        // Before anything else: if the service restarts now, it must be told of this open too.
        file.lock().count_open(write);
        let left = opening.left(&attr, mode);
        let attr = match self.yield_to(&file, attr, left, was_alone).await {
            Ok(attr) => self.link.learn_tier_of(attr.object).await.map(|()| attr),
            Err(error) => Err(error),
        };
        let attr = match attr {
            Ok(attr) => attr,
            Err(error) => {
                self.report_close(&file, write);
                return Err(error);
            }
        };
        entered.file = None;
        let mut opened = self.opened(file, attr, mode, opening, write, quiet);
        if truncate && !at_once {
            let changes = SetAttrs { size: Some(0), ..SetAttrs::default() };
            let handle = self.handle(opened.handle)?;
            match self.cuts.truncate(&handle.file, 0, &changes).await {
                Ok(attr) => opened.attr = attr,
                Err(error) => {
                    self.release(opened.handle).await?;
                    return Err(error);
                }
            }
        }
        Ok(opened)
    }

    /// Before a mode that lets other clients in: makes stable what was written in mode Alone. The recall for this
    /// change may not have arrived yet. Returns the attributes after that.
    ///
    /// `was_alone`: the file was in mode Alone when the service was asked. If it is not any more, its last close was reported
    /// meanwhile, and the answer may be older than what that has told.
    async fn yield_to(
        &self,
        file: &Arc<OpenFile>,
        attr: Attr,
        mode: Mode,
        was_alone: bool,
    ) -> Result<Attr, ClientError> {
        let must_flush = {
            let mut state = file.lock();
            let is_alone = state.mode() == Mode::Alone;
            if is_alone == was_alone && (!is_alone || mode == Mode::Alone) {
                return Ok(attr);
            }
            state.yielding = is_alone && mode != Mode::Alone;
            state.yielding
        };
        if must_flush {
            self.modes.flush_for_recall(file).await;
            self.modes.adopt_mode(file, mode, None).await;
            file.lock().yielding = false;
        }
        let AttrReply { attr } =
            self.link.ask(&GetAttr { volume: self.link.routes.volume, inode: file.inode }).await?;
        Ok(attr)
    }

    /// Lets the background report a close to the service.
    fn report_close(&self, file: &Arc<OpenFile>, write: bool) {
        {
            let mut state = file.lock();
            if !state.fenced {
                state.releases.push(write);
            }
        }
        self.mount.unstable.flow.queue_report(file);
    }

    /// Creates a file and opens it for writing.
    pub async fn create(&self, parent: InodeId, name: &[u8], owner: Owner) -> Result<Opened, ClientError> {
        self.mount.files.check_open_files(None)?;
        let opening = Opening::begin(&self.modes.state);
        let (volume, name, now) = (self.link.routes.volume, name.to_vec(), self.link.world.wall());
        let (kind, near) = (FileKind::File, self.link.near_groups());
        let request =
            |caller| Create { caller, volume, parent, name, kind, owner, rdev: 0, open: true, near, now };
        let Created { attr, mode, parent } = self.link.change(request).await?;
        let (file, _) = self.mount.files.get_file(attr.inode);
        file.lock().count_open(true);
        Ok(Opened { parent: Some(parent), ..self.opened(file, attr, mode, opening, true, None) })
    }

    /// As [`Session::create`], for an open that makes its file. The service may restart between the creation and its answer, and another
    /// client may remove the file before this one asks again. Then it is made once more, as an open that came a little later would do.
    pub async fn open_new(&self, parent: InodeId, name: &[u8], owner: Owner) -> Result<Opened, ClientError> {
        let made = self.create(parent, name, owner.clone()).await;
        if made != Err(ClientError::Refused(Refusal::Stale)) {
            return made;
        }
        // Seldom, and large: not in every request's future.
        Box::pin(self.create(parent, name, owner)).await
    }

    /// Makes a file without a name in a tier, and opens it for writing. It is gone when it is closed.
    pub async fn create_temporary(&self, tier: u8) -> Result<Opened, ClientError> {
        self.mount.files.check_open_files(None)?;
        let opening = Opening::begin(&self.modes.state);
        let (volume, now) = (self.link.routes.volume, self.link.world.wall());
        let request = |caller| CreateTemporary { caller, volume, tier, now };
        let names::Opened { attr, mode } = self.link.change(request).await?;
        let (file, _) = self.mount.files.get_file(attr.inode);
        file.lock().count_open(true);
        if let Err(error) = self.link.learn_tier_of(attr.object).await {
            self.report_close(&file, true);
            self.mount.files.put_file(&file);
            return Err(error);
        }
        Ok(self.opened(file, attr, mode, opening, true, None))
    }

    /// Lets a file swap its bytes' object with a copy: a file of [`Session::create_temporary`] whose bytes are stable.
    /// Both are open for writing in this session. Afterwards close both, and use neither handle for anything else.
    ///
    /// # Errors
    /// `Busy` if the file has been changed since `seen`, or another client has it open for writing.
    pub async fn swap_objects(&self, seen: &Attr, temporary: InodeId) -> Result<Attr, ClientError> {
        let (volume, inode) = (self.link.routes.volume, seen.inode);
        let (changes, truncate_seq) = (seen.changes, seen.truncate_seq);
        let request = |caller| SwapObjects { caller, volume, inode, temporary, changes, truncate_seq };
        let attr = self.link.change(request).await?.attr;
        // In mode Alone nobody tells this mount what it has done itself. Another handle may be opened before the close of
        // this one is reported.
        if let Some(file) = self.mount.files.file(inode) {
            file.lock().has_moved(&attr);
        }
        Ok(attr)
    }

    /// Records an open in the mount's state. `quiet` is that of the file before the service was asked.
    fn opened(
        &self,
        file: Arc<OpenFile>,
        attr: Attr,
        granted: Mode,
        opening: Opening<'_>,
        write: bool,
        quiet: Option<u64>,
    ) -> Opened {
        let attr = self.mount.atimes.with_access(attr);
        let mut state = file.lock();
        let mode = opening.end(&attr, granted);
        state.adopt(&attr);
        // A change from `Alone` to another mode is made by the code that makes the buffered bytes stable: `yield_to`,
        // which has done so, or a later recall, which will.
        if state.mode() != Mode::Alone || mode == Mode::Alone {
            state.set_mode(mode);
        }
        state.set_version(&attr, quiet);
        tracing::debug!(inode = %file.inode, write, size = attr.size, ?mode, own = state.size, "opened");
        state.write_handles += u32::from(write);
        let attr = state.view(attr);
        let error_cursor = ErrorCursor::begin(&state.wb_errors);
        drop(state);
        let handle = self.mount.files.add_handle(Handle {
            file,
            write,
            error_cursor,
            noatime: AtomicBool::new(false),
            in_kernel: AtomicBool::new(false),
        });
        Opened { handle, attr, mode, parent: None }
    }

    /// Closes a handle. Afterwards, the background makes its bytes stable and reports the close to the service.
    pub async fn release(&self, handle: u64) -> Result<(), ClientError> {
        let handle = self.mount.files.take_handle(handle)?;
        let (file, write) = (&handle.file, handle.write);
        if write {
            self.mount.unstable.seal_all(file);
            self.mount.unstable.enqueue_all(file);
            if !file.lock().is_stable() {
                self.mount.unstable.flow.closed(self.link.world.now());
            }
        }
        file.lock().write_handles -= u32::from(write);
        self.report_close(file, write);
        self.mount.files.put_file(file);
        self.mount.unstable.flow.queue_report(file);
        Ok(())
    }
}
