//! A metadata service of one directory, with leases that never run out unless a test says so.

use std::cell::RefCell;
use std::rc::Rc;

use types::limits::HEARTBEAT_US;
use types::messages::Done;
use types::messages::cluster::*;
use types::messages::names::*;
use types::messages::session::Role;
use types::wire::{Flags, Record, from_bytes, to_bytes};
use types::{Buf, ClientId, ClusterId, Epoch, InodeId, ObjectId, Refusal};
use world::{Answer, Call, Frame, World, serve};

use super::{Cluster, Known, META, VOLUME, identity};

/// An inode.
#[derive(Clone, Debug, Default)]
pub struct File {
    pub object: ObjectId,
    /// Kept for good.
    pub size: u64,
    /// Shown to others.
    pub volatile: u64,
    pub stale_end: u64,
    pub truncate_seq: u64,
    pub changes: u64,
    pub mtime: i64,
    pub atime: i64,
}

type Shared = Rc<RefCell<Known>>;

impl Cluster {
    /// Starts the service, for the first time or again: it has forgotten what is open.
    pub fn start_meta(&self) {
        let world = self.sim.node("meta");
        {
            let mut known = self.known();
            known.announced.clear();
            known.modes.clear();
            known.opens.clear();
            known.recalls.clear();
            known.files.values_mut().for_each(|f| f.volatile = 0);
        }
        let (known, own) = (self.known.clone(), world.clone());
        world.spawn("test", async move {
            let listener = own.listen(META).await.expect("listens");
            let handler_world = own.clone();
            let handler = Rc::new(move |call: Call| {
                let (known, world) = (known.clone(), handler_world.clone());
                Box::pin(async move { answer(known, world, call).await }) as world::LocalBoxFuture<'_, _>
            });
            serve(own, listener, identity(Role::Meta), handler).await;
        });
    }

    pub fn kill_meta(&self) {
        self.sim.kill("meta");
    }
}

fn reply<R: Record>(result: Result<R, Refusal>) -> Result<Answer, Refusal> {
    result.map(|reply| Answer::new(&reply, Buf::empty()))
}

async fn answer(known: Shared, world: World, call: Call) -> Result<Answer, Refusal> {
    macro_rules! now {
        ($($request:ident => $method:ident),*) => {
            match call.kind {
                $($request::KIND => {
                    let request: $request = call.parse()?;
                    let mut known = known.borrow_mut();
                    known.count($request::NAME);
                    return reply(known.$method(&request));
                })*
                _ => {}
            }
        };
    }
    macro_rules! once {
        ($($request:ident => $method:ident),*) => {
            match call.kind {
                $($request::KIND => {
                    let request: $request = call.parse()?;
                    return reply(once(&known, &request.caller.clone(), $request::NAME, |k| k.$method(&request)));
                })*
                _ => {}
            }
        };
    }
    if call.kind == Retract::KIND {
        let delay = known.borrow().retract_us;
        world.sleep(delay).await;
    }
    now!(MapGet => map_get, ClientJoin => join, RecallAck => recall_ack, ClientLeave => leave, Lookup => lookup,
         GetAttr => getattr, StatFs => statfs, UpdateSizes => grow, Retract => retract, Zeroed => zeroed,
         Accessed => accessed, ShardFind => find);
    if call.kind == SetAttr::KIND {
        let delay = known.borrow().setattr_us;
        world.sleep(delay).await;
        let request: SetAttr = call.parse()?;
        let set = once(&known, &request.caller, SetAttr::NAME, |k| k.setattr(&request));
        let delay = known.borrow().setattr_answer_us;
        world.sleep(delay).await;
        return reply(set);
    }
    once!(Create => create, Release => release, Unlink => unlink, ZeroBegin => zero);
    match call.kind {
        ClientPoll::KIND => reply(poll(&known, &world, &call.parse()?).await),
        Open::KIND => {
            let delay = known.borrow().open_us;
            world.sleep(delay).await;
            let opened = open(&known, &world, &call.parse()?).await;
            let delay = known.borrow().opened_us;
            world.sleep(delay).await;
            reply(opened)
        }
        _ => Err(Refusal::Unsupported),
    }
}

/// Does a change once for its caller.
fn once<R: Record>(
    known: &Shared,
    caller: &Caller,
    name: &'static str,
    f: impl FnOnce(&mut Known) -> Result<R, Refusal>,
) -> Result<R, Refusal> {
    let mut known = known.borrow_mut();
    known.count(name);
    known.check(caller.client)?;
    let key = (caller.client, caller.op);
    assert!(caller.op > caller.acked, "a change that its caller knows as done comes again");
    if let Some(frame) = known.done.get(&key) {
        return from_bytes(&frame.record).map_err(|_| Refusal::Malformed);
    }
    let reply = f(&mut known)?;
    let flags = Flags::REQUEST;
    let frame = Frame::new(R::KIND, 0, ClusterId::default(), Epoch(0), flags, to_bytes(&reply), Buf::empty());
    known.done.insert(key, frame);
    Ok(reply)
}

async fn poll(known: &Shared, world: &World, poll: &ClientPoll) -> Result<ClientPollReply, Refusal> {
    let until = world.now() + HEARTBEAT_US;
    loop {
        {
            let known = known.borrow();
            if !known.announced.contains(&poll.client) {
                return Err(Refusal::Unknown);
            }
            let mine = |((inode, client), mode): (&(InodeId, ClientId), &Mode)| {
                (*client == poll.client).then_some(Recall { inode: *inode, mode: *mode, number: 1 })
            };
            let recalls: Vec<Recall> = known.recalls.iter().filter_map(mine).collect();
            if known.map.version > poll.map || !recalls.is_empty() || world.now() > until {
                return Ok(ClientPollReply { map: known.map.version, recalls, quiesces: Vec::new() });
            }
        }
        world.sleep(2_000).await;
    }
}

async fn open(known: &Shared, world: &World, open: &Open) -> Result<Opened, Refusal> {
    loop {
        let ready = known.borrow_mut().give_way(open)?;
        if let Some(shared) = ready {
            return once(known, &open.caller, Open::NAME, |k| k.open(open, shared));
        }
        world.sleep(1_000).await;
    }
}

impl Known {
    fn check(&self, client: ClientId) -> Result<(), Refusal> {
        match (self.clients.contains(&client), self.announced.contains(&client)) {
            (true, true) => Ok(()),
            (true, false) => Err(Refusal::Unknown),
            _ => Err(Refusal::Fenced),
        }
    }

    /// The service gives a client up.
    pub fn fence(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.announced.remove(&client);
        // It may have changed bytes without a report.
        for ((inode, c), (_, writers)) in &self.opens {
            if let Some(file) = self.files.get_mut(inode).filter(|_| *c == client && *writers > 0) {
                file.changes += 1;
            }
        }
        self.opens.retain(|(_, c), _| *c != client);
        self.modes.retain(|(_, c), _| *c != client);
        self.recalls.retain(|(_, c), _| *c != client);
        for held in self.held.values_mut() {
            held.retain(|h| h.write.client != client);
        }
    }

    fn map_get(&mut self, request: &MapGet) -> Result<MapReply, Refusal> {
        let newer = self.map.version > request.have;
        Ok(MapReply { update: newer.then(|| MapUpdate::whole(self.map.clone())) })
    }

    fn find(&mut self, request: &ShardFind) -> Result<ShardFound, Refusal> {
        let servers = (request.volume == "v").then(String::new);
        Ok(ShardFound { servers })
    }

    fn join(&mut self, request: &ClientJoin) -> Result<ClientJoined, Refusal> {
        if request.volume != "v" {
            return Err(Refusal::Unknown);
        }
        let client = match request.client {
            Some(client) if self.clients.contains(&client) => client,
            Some(_) => return Err(Refusal::Fenced),
            None => {
                self.next += 1;
                ClientId(self.next)
            }
        };
        self.clients.insert(client);
        self.announced.insert(client);
        for open in &request.opens {
            self.opens.insert((open.inode, client), (open.readers, open.writers));
            let mode = if open.writers > 0 { Mode::Alone } else { Mode::Readers };
            self.modes.insert((open.inode, client), mode);
        }
        Ok(ClientJoined { client, volume: VOLUME, root: InodeId::ROOT })
    }

    fn leave(&mut self, request: &ClientLeave) -> Result<Done, Refusal> {
        self.fence(request.client);
        Ok(Done {})
    }

    fn recall_ack(&mut self, request: &RecallAck) -> Result<Done, Refusal> {
        let key = (request.inode, request.client);
        if let Some(mode) = self.recalls.remove(&key) {
            self.modes.insert(key, mode);
        }
        Ok(Done {})
    }

    /// Recalls what an open conflicts with; says whether it may go on, and whether the file is shared then.
    fn give_way(&mut self, open: &Open) -> Result<Option<bool>, Refusal> {
        let (inode, client) = (open.inode, open.caller.client);
        self.check(client)?;
        let conflicts = |((i, c), (_, writers)): (&(InodeId, ClientId), &(u32, u32))| {
            (*i == inode && *c != client && (open.write || *writers > 0)).then_some((*i, *c))
        };
        let others: Vec<_> = self.opens.iter().filter_map(conflicts).collect();
        let mut ready = true;
        for other in &others {
            if self.modes.get(other) != Some(&Mode::Shared) {
                self.recalls.insert(*other, Mode::Shared);
                ready = false;
            }
        }
        let mine = self.modes.get(&(inode, client)) == Some(&Mode::Shared);
        Ok(ready.then_some(mine || !others.is_empty()))
    }

    fn open(&mut self, open: &Open, shared: bool) -> Result<Opened, Refusal> {
        let (inode, client) = (open.inode, open.caller.client);
        if open.truncate {
            let object = self.object();
            let file = self.files.get_mut(&inode).ok_or(Refusal::Stale)?;
            let (truncate_seq, changes) = (file.truncate_seq + 1, file.changes + 1);
            *file = File { object, mtime: open.now, truncate_seq, changes, ..File::default() };
        }
        let attr = self.attr(inode)?;
        let count = self.opens.entry((inode, client)).or_default();
        *(if open.write { &mut count.1 } else { &mut count.0 }) += 1;
        let mode = match (shared, count.1) {
            (true, _) => Mode::Shared,
            (_, 0) => Mode::Readers,
            _ => Mode::Alone,
        };
        self.modes.insert((inode, client), mode);
        Ok(Opened { attr, mode })
    }

    fn release(&mut self, request: &Release) -> Result<Done, Refusal> {
        let key = (request.inode, request.caller.client);
        if let Some(count) = self.opens.get_mut(&key) {
            let of = if request.write { &mut count.1 } else { &mut count.0 };
            assert!(*of > 0, "a close without an open");
            *of -= 1;
            if *count == (0, 0) {
                self.opens.remove(&key);
                self.modes.remove(&key);
                self.recalls.remove(&key);
            }
        }
        Ok(Done {})
    }

    fn object(&mut self) -> ObjectId {
        self.next += 1;
        ObjectId(self.next)
    }

    fn attr(&self, inode: InodeId) -> Result<Attr, Refusal> {
        let file = self.files.get(&inode).ok_or(Refusal::Stale)?;
        Ok(Attr {
            inode,
            kind: FileKind::File,
            mode: 0o644,
            links: 1,
            uid: 1,
            gid: 2,
            rdev: 0,
            size: file.size.max(file.volatile),
            atime: file.atime,
            mtime: file.mtime,
            ctime: file.mtime,
            object: file.object,
            stale_end: file.stale_end,
            truncate_seq: file.truncate_seq,
            changes: file.changes,
        })
    }

    fn lookup(&mut self, request: &Lookup) -> Result<AttrReply, Refusal> {
        let inode = self.names.get(&(request.parent, request.name.clone())).ok_or(Refusal::NotFound)?;
        self.attr(*inode).map(|attr| AttrReply { attr })
    }

    fn getattr(&mut self, request: &GetAttr) -> Result<AttrReply, Refusal> {
        self.attr(request.inode).map(|attr| AttrReply { attr })
    }

    fn create(&mut self, request: &Create) -> Result<Created, Refusal> {
        let name = (request.parent, request.name.clone());
        if self.names.contains_key(&name) {
            return Err(Refusal::Exists);
        }
        let object = self.object();
        self.next += 1;
        let inode = InodeId(self.next);
        self.files.insert(inode, File { object, mtime: request.now, ..File::default() });
        self.names.insert(name, inode);
        if request.open {
            self.opens.insert((inode, request.caller.client), (0, 1));
            self.modes.insert((inode, request.caller.client), Mode::Alone);
        }
        let attr = self.attr(inode)?;
        Ok(Created { parent: root(request.now), attr, mode: Mode::Alone })
    }

    fn unlink(&mut self, request: &Unlink) -> Result<Unlinked, Refusal> {
        let name = (request.parent, request.name.clone());
        let inode = self.names.remove(&name).ok_or(Refusal::NotFound)?;
        self.files.remove(&inode);
        Ok(Unlinked { inode, parent: root(request.now) })
    }

    fn setattr(&mut self, request: &SetAttr) -> Result<AttrReply, Refusal> {
        let object = self.object();
        let file = self.files.get_mut(&request.inode).ok_or(Refusal::Stale)?;
        if let Some(size) = request.size {
            let shown = file.size.max(file.volatile);
            if size > shown && file.stale_end > shown {
                return Err(Refusal::Busy);
            }
            if size == 0 {
                let old = std::mem::replace(&mut file.object, object);
                if self.purges {
                    self.purged.insert(old);
                }
                file.stale_end = 0;
                file.truncate_seq += 1;
            } else if size < shown.max(request.sent_end) {
                file.stale_end = file.stale_end.max(shown).max(request.sent_end);
                file.truncate_seq += 1;
            }
            (file.size, file.volatile) = (size, 0);
            file.changes += 1;
            file.mtime = request.now;
        }
        file.mtime = request.mtime.unwrap_or(file.mtime);
        self.attr(request.inode).map(|attr| AttrReply { attr })
    }

    fn grow(&mut self, request: &UpdateSizes) -> Result<UpdateSizesReply, Refusal> {
        self.check(request.client)?;
        let mut cut = Vec::new();
        for update in &request.sizes {
            let Some(file) = self.files.get_mut(&update.inode) else { continue };
            if file.truncate_seq != update.truncate_seq {
                cut.push(self.attr(update.inode)?);
                continue;
            }
            let shown = file.size.max(file.volatile);
            if update.size > shown && file.stale_end > shown {
                return Err(Refusal::Busy);
            }
            let of = if request.stable { &mut file.size } else { &mut file.volatile };
            *of = (*of).max(update.size);
            file.changes += u64::from(request.stable);
            file.mtime = file.mtime.max(update.mtime);
        }
        Ok(UpdateSizesReply { noting: false, cut })
    }

    fn statfs(&mut self, _: &StatFs) -> Result<Space, Refusal> {
        let free = if self.full { 0 } else { 1 << 40 };
        Ok(Space { total: 1 << 40, free, inodes: 1 })
    }

    fn retract(&mut self, request: &Retract) -> Result<AttrReply, Refusal> {
        self.check(request.client)?;
        let file = self.files.get_mut(&request.inode).ok_or(Refusal::Stale)?;
        if file.truncate_seq == request.truncate_seq {
            assert_eq!(
                self.modes.get(&(request.inode, request.client)),
                Some(&Mode::Alone),
                "others may have it open"
            );
            if request.size > file.size && file.stale_end > file.size {
                return Err(Refusal::Busy);
            }
            let shown = file.size.max(file.volatile);
            file.stale_end = file.stale_end.max(shown).max(request.sent_end);
            (file.size, file.volatile) = (file.size.max(request.size), 0);
            file.truncate_seq += 1;
            file.changes += 1;
            file.mtime = if file.size == 0 { 0 } else { file.mtime };
        }
        self.attr(request.inode).map(|attr| AttrReply { attr })
    }

    /// No test has two clients that zero one file.
    fn zero(&mut self, _: &ZeroBegin) -> Result<ZeroBeginReply, Refusal> {
        Ok(ZeroBeginReply { granted: true })
    }

    fn accessed(&mut self, request: &Accessed) -> Result<Done, Refusal> {
        self.check(request.client)?;
        for time in &request.times {
            let file = self.files.get_mut(&time.inode).ok_or(Refusal::Stale)?;
            if file.atime == time.known {
                file.atime = time.atime;
            }
        }
        Ok(Done {})
    }

    fn zeroed(&mut self, request: &Zeroed) -> Result<Done, Refusal> {
        self.check(request.client)?;
        let file = self.files.get_mut(&request.inode).ok_or(Refusal::Stale)?;
        if file.truncate_seq == request.truncate_seq && file.stale_end == request.stale_end {
            file.stale_end = 0;
        }
        Ok(Done {})
    }
}

/// The one directory.
fn root(now: i64) -> Attr {
    Attr {
        inode: InodeId::ROOT,
        kind: FileKind::Directory,
        mode: 0o755,
        links: 2,
        uid: 1,
        gid: 2,
        rdev: 0,
        size: 0,
        atime: 0,
        mtime: now,
        ctime: now,
        object: ObjectId(0),
        stale_end: 0,
        truncate_seq: 0,
        changes: 0,
    }
}
