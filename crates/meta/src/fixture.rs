//! A cluster of a few bricks with one volume and one client, for tests: everything but the service.

use types::messages::Done;
use types::messages::cluster::{BrickClass, BrickJoin, ClientJoin, OpenInode, VolumeCreate};
use types::messages::names::*;
use types::wire::{Codec, from_bytes};
use types::{
    BrickId, ClientId, ClusterId, Code, Geometry, Incarnation, InodeId, NodeId, ObjectId, Refusal, VolumeId,
};

use crate::kv::{Engine, RedbEngine, Txn};
use crate::ops;
use crate::state::{Change, State};

pub(crate) const ROOT: InodeId = InodeId::ROOT;

/// Runs a test on every engine.
pub(crate) fn on_all(test: impl Fn(Fixture)) {
    for engine in engines() {
        test(Fixture::new(engine));
    }
}

pub(crate) fn engines() -> [Engine; 2] {
    [Engine::memory(), Engine::Redb(RedbEngine::in_memory().expect("memory does not fail"))]
}

pub(crate) fn brick_join(brick: u32, incarnation: u64) -> BrickJoin {
    BrickJoin {
        brick: BrickId(brick),
        device: [brick as u8; 16],
        node: NodeId(brick),
        address: format!("n{brick}:7000"),
        capacity: 1 << 30,
        free: 1 << 29,
        incarnation: Incarnation(incarnation),
        class: BrickClass::Ssd,
        shard: types::ShardId::FIRST,
        shards: Vec::new(),
        restored: 0,
        reach: Default::default(),
    }
}

pub(crate) fn volume_create(name: &str, code: &str) -> VolumeCreate {
    let code: Code = code.parse().expect("a code");
    let geometry = Geometry::new(code, 4096, 64).expect("a geometry");
    VolumeCreate {
        name: name.into(),
        geometry,
        groups: 4,
        same_node: false,
        block: None,
        class: None,
        tiers: Vec::new(),
        placement: None,
        near_writer: false,
        shard: None,
        token: 0,
    }
}

pub(crate) struct Fixture {
    pub(crate) engine: Engine,
    pub(crate) state: State,
    pub(crate) volume: VolumeId,
    pub(crate) client: ClientId,
    pub(crate) op: u64,
    pub(crate) now: i64,
}

impl Fixture {
    pub(crate) fn new(engine: Engine) -> Fixture {
        crate::create_cluster(&engine, ClusterId([7; 16])).expect("the engine is empty");
        let mut state = State::load(engine.clone(), 0).expect("there is a cluster");
        for brick in 1..=4 {
            let writes = state.cluster.join(&brick_join(brick, 1), 0).expect("new");
            assert!(state.commit(writes));
        }
        let volume = state.volume_create(&volume_create("home", "2+1"), 5).expect("it fits").id;
        let join = ClientJoin {
            volume: "home".into(),
            client: None,
            opens: Vec::new(),
            exclusive: false,
            place: String::new(),
        };
        let client = state.client_join(&join, 0, 0).expect("there is the volume").client;
        Fixture { engine, state, volume, client, op: 0, now: 1000 }
    }

    /// The service dies and starts again; its client comes back with `opens`.
    pub(crate) fn restart(mut self, opens: Vec<OpenInode>) -> Fixture {
        self = self.restart_without_clients();
        let join = ClientJoin {
            volume: "home".into(),
            client: Some(self.client),
            opens,
            exclusive: false,
            place: String::new(),
        };
        self.state.client_join(&join, 0, 0).expect("it has a lease");
        let orphans = self.state.end_grace();
        self.state.drop_orphans(&orphans);
        self
    }

    pub(crate) fn restart_without_clients(mut self) -> Fixture {
        self.state = State::load(self.engine.clone(), 0).expect("there is a cluster");
        self
    }

    pub(crate) fn caller(&mut self) -> Caller {
        self.op += 1;
        self.now += 10;
        Caller { client: self.client, op: self.op, acked: self.op.saturating_sub(3) }
    }

    pub(crate) fn once<R: types::wire::Record>(
        &mut self,
        caller: Caller,
        f: impl FnOnce(&mut Txn<'_>) -> Result<R, Refusal> + 'static,
    ) -> Result<R, Refusal> {
        let change = Change::once(&caller, self.volume, f);
        self.run(change)
    }

    pub(crate) fn idempotent<R: Codec>(
        &mut self,
        f: impl FnOnce(&mut Txn<'_>) -> Result<R, Refusal> + 'static,
    ) -> Result<R, Refusal> {
        self.run(Change::idempotent(f))
    }

    fn run<R: Codec>(&mut self, change: Change) -> Result<R, Refusal> {
        let answer = self.state.run_batch(vec![change]).pop().expect("one answer")?;
        Ok(from_bytes(&answer).expect("its own record"))
    }

    pub(crate) fn create_request(&mut self, parent: InodeId, name: &str) -> Create {
        Create {
            caller: self.caller(),
            volume: self.volume,
            parent,
            name: name.into(),
            kind: FileKind::File,
            owner: Owner { uid: 10, gid: 20, mode: 0o644 },
            rdev: 0,
            open: false,
            near: Vec::new(),
            now: self.now,
        }
    }

    /// A directory is as the answer to a change in it has told.
    fn check_told(&mut self, told: &Attr) {
        assert_eq!(self.getattr(told.inode).as_ref(), Ok(told));
    }

    pub(crate) fn create(&mut self, parent: InodeId, name: &str) -> Result<Attr, Refusal> {
        let request = self.create_request(parent, name);
        let made = self.once(request.caller.clone(), move |txn| ops::create(txn, &request))?;
        self.check_told(&made.parent);
        Ok(made.attr)
    }

    pub(crate) fn create_open(&mut self, parent: InodeId, name: &str) -> Result<Attr, Refusal> {
        let request = Create { open: true, ..self.create_request(parent, name) };
        let made = self.once(request.caller.clone(), move |txn| ops::create(txn, &request))?;
        self.check_told(&made.parent);
        Ok(made.attr)
    }

    pub(crate) fn mkdir(&mut self, parent: InodeId, name: &str) -> Result<Attr, Refusal> {
        let owner = Owner { uid: 10, gid: 20, mode: 0o755 };
        let (caller, volume, now) = (self.caller(), self.volume, self.now);
        let request = Mkdir { caller: caller.clone(), volume, parent, name: name.into(), owner, now };
        let made = self.once(caller, move |txn| ops::mkdir(txn, &request))?;
        self.check_told(&made.parent);
        Ok(made.attr)
    }

    pub(crate) fn symlink(&mut self, parent: InodeId, name: &str, target: &str) -> Result<Attr, Refusal> {
        let owner = Owner { uid: 10, gid: 20, mode: 0o777 };
        let (caller, volume, now) = (self.caller(), self.volume, self.now);
        let (name, target) = (name.into(), target.into());
        let request = Symlink { caller: caller.clone(), volume, parent, name, target, owner, now };
        let made = self.once(caller, move |txn| ops::symlink(txn, &request))?;
        self.check_told(&made.parent);
        Ok(made.attr)
    }

    pub(crate) fn link(&mut self, inode: InodeId, parent: InodeId, name: &str) -> Result<Attr, Refusal> {
        let (caller, volume, now) = (self.caller(), self.volume, self.now);
        let request = Link { caller: caller.clone(), volume, inode, parent, name: name.into(), now };
        let made = self.once(caller, move |txn| ops::link(txn, &request))?;
        self.check_told(&made.parent);
        Ok(made.attr)
    }

    pub(crate) fn unlink(&mut self, parent: InodeId, name: &str) -> Result<(), Refusal> {
        let (caller, volume, now) = (self.caller(), self.volume, self.now);
        let request = Unlink { caller: caller.clone(), volume, parent, name: name.into(), now };
        let gone = self.once(caller, move |txn| ops::unlink(txn, &request))?;
        self.check_told(&gone.parent);
        Ok(())
    }

    pub(crate) fn rmdir(&mut self, parent: InodeId, name: &str) -> Result<(), Refusal> {
        let (caller, volume, now) = (self.caller(), self.volume, self.now);
        let request = Rmdir { caller: caller.clone(), volume, parent, name: name.into(), meant: None, now };
        let gone = self.once(caller, move |txn| ops::rmdir(txn, &request))?;
        self.check_told(&gone.parent);
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        (from, from_name): (InodeId, &str),
        (to, to_name): (InodeId, &str),
        how: RenameHow,
    ) -> Result<(), Refusal> {
        let (caller, volume, now) = (self.caller(), self.volume, self.now);
        let (from_name, to_name) = (from_name.into(), to_name.into());
        let request =
            Rename { caller: caller.clone(), volume, from, from_name, to, to_name, how, meant: None, now };
        let renamed = self.once(caller, move |txn| ops::rename(txn, &request))?;
        [&renamed.from, &renamed.to].into_iter().for_each(|told| self.check_told(told));
        Ok(())
    }

    pub(crate) fn setattr_request(&mut self, inode: InodeId) -> SetAttr {
        let (caller, volume, now) = (self.caller(), self.volume, self.now);
        let (mode, uid, gid, size, atime, mtime) = (None, None, None, None, None, None);
        SetAttr { caller, volume, inode, mode, uid, gid, size, sent_end: 0, atime, mtime, now }
    }

    pub(crate) fn setattr(&mut self, request: SetAttr) -> Result<Attr, Refusal> {
        self.once(request.caller.clone(), move |txn| ops::setattr(txn, &request)).map(|reply| reply.attr)
    }

    pub(crate) fn truncate(&mut self, inode: InodeId, size: u64) -> Result<Attr, Refusal> {
        let request = SetAttr { size: Some(size), ..self.setattr_request(inode) };
        self.setattr(request)
    }

    pub(crate) fn grow(&mut self, attr: &Attr, size: u64, stable: bool) -> Result<(), Refusal> {
        self.now += 10;
        let update = SizeUpdate {
            inode: attr.inode,
            truncate_seq: attr.truncate_seq,
            size,
            mtime: self.now,
            set_time: false,
        };
        let request = UpdateSizes {
            client: self.client,
            volume: self.volume,
            sizes: vec![update],
            stable,
            noting: false,
        };
        if stable {
            self.idempotent(move |txn| ops::grow(txn, &request)).map(|_| ())
        } else {
            self.state.effect_only(|txn| ops::grow(txn, &request)).0.map(|_| ())
        }
    }

    /// The client has lost what it wrote after `size`.
    pub(crate) fn retract(&mut self, attr: &Attr, size: u64, sent_end: u64) -> Result<Attr, Refusal> {
        self.now += 10;
        let (client, volume, now) = (self.client, self.volume, self.now);
        let Attr { inode, truncate_seq, .. } = *attr;
        let request = Retract { client, volume, inode, truncate_seq, size, sent_end, now };
        self.idempotent(move |txn| ops::retract(txn, &request)).map(|reply| reply.attr)
    }

    /// What `attr` tells as stale is zeroed.
    pub(crate) fn zeroed(&mut self, attr: &Attr) -> Result<(), Refusal> {
        let (client, volume) = (self.client, self.volume);
        let Attr { inode, truncate_seq, stale_end, .. } = *attr;
        let request = Zeroed { client, volume, inode, number: None, truncate_seq, stale_end };
        self.idempotent(move |txn| ops::zeroed(txn, &request)).map(|_| ())
    }

    pub(crate) fn lookup(&self, parent: InodeId, name: &str) -> Result<Attr, Refusal> {
        let request = Lookup { volume: self.volume, parent, name: name.into() };
        self.state.read(|txn| ops::lookup(txn, &request)).map(|reply| reply.attr)
    }

    pub(crate) fn accessed(&mut self, inode: InodeId, known: i64, atime: i64) -> Result<Done, Refusal> {
        let times = vec![AccessTime { inode, known, atime }];
        let request = Accessed { client: self.client, volume: self.volume, times };
        self.idempotent(move |txn| ops::accessed(txn, &request))
    }

    pub(crate) fn getattr(&self, inode: InodeId) -> Result<Attr, Refusal> {
        let request = GetAttr { volume: self.volume, inode };
        self.state.read(|txn| ops::getattr(txn, &request)).map(|reply| reply.attr)
    }

    pub(crate) fn readdir(&self, inode: InodeId, cookie: u64, count: u32) -> Result<DirEntries, Refusal> {
        let request = ReadDir { volume: self.volume, inode, cookie, count };
        self.state.read(|txn| ops::readdir(txn, &request))
    }

    pub(crate) fn readdir_from(
        &self,
        parent: InodeId,
        name: &str,
        count: u32,
    ) -> Result<DirEntries, Refusal> {
        let request = ReadDirFrom { volume: self.volume, parent, name: name.into(), count };
        self.state.read(|txn| ops::readdir_from(txn, &request))
    }

    pub(crate) fn names(&self, inode: InodeId) -> Vec<String> {
        let entries = self.readdir(inode, 0, 1000).expect("a directory").entries;
        entries.into_iter().map(|entry| String::from_utf8(entry.name).expect("text")).collect()
    }

    /// The queue of objects to purge.
    pub(crate) fn purges(&self) -> Vec<ObjectId> {
        let prefix = crate::keys::all::purges();
        let end = crate::keys::after_all(&prefix);
        let pairs = self.state.read(|txn| txn.range(&prefix, &end, 10_000)).expect("readable");
        let purges: Vec<_> =
            pairs.iter().map(|(key, _)| ObjectId(crate::keys::last_u64(key).expect("an object"))).collect();
        assert_eq!(self.state.volatile.purges, purges.len() as u64);
        purges
    }

    pub(crate) fn inodes(&self) -> u64 {
        let request = StatFs { volume: self.volume };
        self.state.read(|txn| ops::statfs(txn, self.state.cluster.map(), &request)).expect("known").inodes
    }
}
