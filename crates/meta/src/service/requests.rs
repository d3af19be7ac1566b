//! Dispatches requests.

use std::rc::Rc;

use types::messages::cluster::*;
use types::messages::names::*;
use types::messages::replica::*;
use types::wire::{Record, Request};
use types::{Buf, InodeId, Refusal, VolumeId};
use world::{Answer, Call};

use super::Shared;
use crate::kv::Txn;
use crate::ops;
use crate::state::Change;

/// A change that its caller numbers, so that it is done once.
pub(super) trait Numbered: Request + 'static {
    fn caller(&self) -> (&Caller, VolumeId);

    /// Whether it frees more of the store than it takes.
    const FREES: bool;
}

macro_rules! numbered {
    ($($request:ident: $frees:literal),*) => {$(
        impl Numbered for $request {
            const FREES: bool = $frees;

            fn caller(&self) -> (&Caller, VolumeId) {
                (&self.caller, self.volume)
            }
        }
    )*};
}
numbered!(
    SetAttr: true, Create: false, CreateTemporary: false, Mkdir: false, Symlink: false, Link: false, Unlink: true,
    Rmdir: true, Rename: false, SwapObjects: false
);

/// Answers a request.
pub(super) async fn answer(shared: Rc<Shared>, call: Call) -> Result<Answer, Refusal> {
    if shared.state.borrow().has_failed() {
        return Err(Refusal::MetaFailed);
    }
    if (Vote::KIND..=MetaStatus::KIND).contains(&call.kind) || call.kind == MetaLead::KIND {
        return answer_server(shared, call).await;
    }
    shared.load.count();
    let answer = answer_name_space(Rc::clone(&shared), call).await;
    // What was read was true if this server led when it was read.
    shared.may_answer().await?;
    answer
}

/// Answers about the metadata servers.
async fn answer_server(shared: Rc<Shared>, call: Call) -> Result<Answer, Refusal> {
    match (call.kind, &shared.leading) {
        (Vote::KIND, Some(leading)) => reply(leading.vote(&call.parse()?)),
        (Append::KIND, Some(leading)) => reply(leading.append(&call.parse()?)),
        (MetaStatus::KIND, Some(leading)) => reply(Ok(leading.report())),
        (MetaStatus::KIND, None) => reply(Ok(shared.report_alone())),
        (MetaJoin::KIND, Some(leading)) => {
            let MetaJoin { member } = call.parse()?;
            reply(shared.meta_join(leading, member).await)
        }
        (MetaJoin::KIND, None) => reply(shared.stop_being_alone().await),
        (MetaRemove::KIND, Some(leading)) => {
            let MetaRemove { address } = call.parse()?;
            reply(shared.meta_remove(leading, &address).await)
        }
        (MetaLead::KIND, Some(leading)) => {
            let MetaLead { address } = call.parse()?;
            reply(Ok(shared.lead(leading, &address)))
        }
        (MetaLead::KIND, None) => {
            let error = "this shard has one metadata server".to_owned();
            reply(Ok(MetaLed { error: Some(error) }))
        }
        (MetaRemove::KIND, None) => {
            let error = "this cluster has one metadata server".to_owned();
            reply(Ok(MetaRemoved { error: Some(error) }))
        }
        _ => Err(Refusal::Unsupported),
    }
}

async fn answer_name_space(shared: Rc<Shared>, call: Call) -> Result<Answer, Refusal> {
    match call.kind {
        Lookup::KIND => {
            let request: Lookup = call.parse()?;
            shared.read_size(request.volume, &request, ops::lookup, |reply| Some(reply.attr.inode)).await
        }
        GetAttr::KIND => {
            let request: GetAttr = call.parse()?;
            shared.read_size(request.volume, &request, ops::getattr, |reply| Some(reply.attr.inode)).await
        }
        ReadLink::KIND => shared.read(&call.parse()?, ops::readlink).await,
        ReadDir::KIND => {
            let request: ReadDir = call.parse()?;
            shared.wait_for_sizes(request.volume).await;
            shared.read(&request, ops::readdir).await
        }
        ReadDirFrom::KIND => {
            let request: ReadDirFrom = call.parse()?;
            let first = |reply: &DirEntries| reply.entries.first().map(|entry| entry.attr.inode);
            shared.read_size(request.volume, &request, ops::readdir_from, first).await
        }
        StatFs::KIND => {
            let space = shared.statfs(&call.parse()?);
            reply(shared.when_durable(space).await)
        }
        Create::KIND => reply(shared.create(call.parse()?).await),
        CreateTemporary::KIND => reply(shared.create_temporary(call.parse()?).await),
        SwapObjects::KIND => reply(shared.swap_objects(call.parse()?).await),
        SetAttr::KIND => reply(shared.setattr(call.parse()?).await),
        Mkdir::KIND => shared.change(&call, ops::mkdir).await,
        Symlink::KIND => shared.change(&call, ops::symlink).await,
        Link::KIND => {
            let request: Link = call.parse()?;
            shared.wait_for_size((request.volume, request.inode)).await?;
            reply(shared.change_once(request, ops::link).await)
        }
        Unlink::KIND => shared.change(&call, ops::unlink).await,
        Rmdir::KIND => shared.change(&call, ops::rmdir).await,
        Rename::KIND => shared.change(&call, ops::rename).await,
        Open::KIND => reply(shared.open(call.parse()?).await),
        Release::KIND => reply(shared.release(call.parse()?).await),
        UpdateSizes::KIND => reply(shared.grow(call.parse()?).await),
        ZeroBegin::KIND => reply(shared.zero(call.parse()?).await),
        Retract::KIND => reply(shared.retract(call.parse()?).await),
        Zeroed::KIND => reply(shared.zeroed(call.parse()?).await),
        Accessed::KIND => reply(shared.accessed(call.parse()?).await),
        _ => answer_arbiter(shared, call).await,
    }
}

/// Answers may contain decisions of this request or of others, so each waits until all decisions are durable.
async fn answer_arbiter(shared: Rc<Shared>, call: Call) -> Result<Answer, Refusal> {
    let answer = arbitrate(&shared, call).await;
    let decided = shared.state.borrow().decided;
    shared.when_durable((answer, decided)).await
}

async fn arbitrate(shared: &Rc<Shared>, call: Call) -> Result<Answer, Refusal> {
    match call.kind {
        MapGet::KIND => reply(shared.map_get(&call.parse()?)),
        BrickJoin::KIND => reply(shared.brick_join(&call.parse()?)),
        BrickHeartbeat::KIND => reply(shared.brick_beat(&call.parse()?)),
        GroupRenew::KIND => reply(shared.group_renew(&call.parse()?)),
        GroupAdmit::KIND => reply(shared.group_admit(&call.parse()?)),
        BrickReplace::KIND => reply(shared.replace_in_all_shards(&call.parse()?).await),
        ClientJoin::KIND => reply(shared.client_join(call.parse()?).await),
        ClientPoll::KIND => reply(shared.client_poll(call.parse()?).await),
        RecallAck::KIND => reply(shared.recall_ack(&call.parse()?)),
        Quiesced::KIND => reply(shared.has_stopped(call.parse()?).await),
        ClientLeave::KIND => reply(shared.client_leave(&call.parse()?).await),
        VolumeCreate::KIND => reply(shared.create_in_some_shard(call.parse()?).await),
        VolumeGrow::KIND => {
            let request: VolumeGrow = call.parse()?;
            reply(shared.in_its_shard(&request.name, &request, Shared::volume_grow).await)
        }
        VolumeTune::KIND => {
            let request: VolumeTune = call.parse()?;
            reply(shared.in_its_shard(&request.name, &request, Shared::volume_tune).await)
        }
        VolumeAddTier::KIND => {
            let request: VolumeAddTier = call.parse()?;
            reply(shared.in_its_shard(&request.name, &request, Shared::volume_add_tier).await)
        }
        VolumeDelete::KIND => reply(shared.delete_in_its_shard(&call.parse()?).await),
        TopologySet::KIND => reply(shared.topology_set(&call.parse()?)),
        ShardAdd::KIND => reply(shared.shard_add(&call.parse()?)),
        ShardAnnounce::KIND => reply(shared.shard_announce(&call.parse()?)),
        ShardFind::KIND => reply(shared.shard_find(&call.parse()?).await),
        ShardServers::KIND => reply(shared.shard_servers(&call.parse()?)),
        ShardStatus::KIND => reply(Ok(shared.shard_status(&call.parse()?))),
        ShardRemove::KIND => reply(shared.shard_remove(&call.parse()?).await),
        ClusterStatus::KIND => reply(shared.cluster_status()),
        MetaScan::KIND => shared.scan(&call.parse()?).await,
        MetaRepair::KIND => reply(shared.repair(call.parse()?).await),
        _ => Err(Refusal::Unsupported),
    }
}

fn reply<R: Record>(result: Result<R, Refusal>) -> Result<Answer, Refusal> {
    result.map(|reply| Answer::new(&reply, Buf::default()))
}

impl Shared {
    async fn read<R: Request>(
        &self,
        request: &R,
        f: fn(&Txn<'_>, &R) -> Result<R::Reply, Refusal>,
    ) -> Result<Answer, Refusal> {
        let seen = self.state.borrow().read_with_record(|txn| f(txn, request));
        reply(self.when_durable(seen).await)
    }

    /// As [`Shared::read`], once the size of the (first) file in the answer is known.
    async fn read_size<R: Request>(
        &self,
        volume: VolumeId,
        request: &R,
        f: fn(&Txn<'_>, &R) -> Result<R::Reply, Refusal>,
        inode: fn(&R::Reply) -> Option<InodeId>,
    ) -> Result<Answer, Refusal> {
        loop {
            let seen = self.state.borrow().read_with_record(|txn| f(txn, request));
            let place = seen.0.as_ref().ok().and_then(inode).map(|inode| (volume, inode));
            match place.filter(|place| self.state.borrow().volatile.noting.is_unknown(*place)) {
                Some(place) => self.wait_for_size(place).await?,
                None => return reply(self.when_durable(seen).await),
            }
        }
    }

    async fn change<R: Numbered>(
        &self,
        call: &Call,
        f: fn(&mut Txn<'_>, &R) -> Result<R::Reply, Refusal>,
    ) -> Result<Answer, Refusal> {
        reply(self.change_once(call.parse::<R>()?, f).await)
    }

    /// Makes a change once for its caller.
    pub(super) async fn change_once<R>(
        &self,
        request: R,
        f: fn(&mut Txn<'_>, &R) -> Result<R::Reply, Refusal>,
    ) -> Result<R::Reply, Refusal>
    where
        R: Numbered,
    {
        let (caller, volume) = request.caller();
        let (caller, volume) = (caller.clone(), volume);
        let change = Change::once(&caller, volume, move |txn| f(txn, &request));
        self.submit(if R::FREES { change.freeing() } else { change }).await
    }
}
