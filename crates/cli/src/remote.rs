//! Requests to the servers of a cluster, from a command that waits for the answers.

mod explain;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::ops::Deref;
use std::path::PathBuf;

use cache::CacheError;
use clap::Args;
use futures_util::future::join_all;
use types::limits::{CALL_TIMEOUT_US, LEASE_MARGIN_US, LEASE_US};
use types::messages::brick::{BrickReport, BrickStatus};
use types::messages::cluster::{
    BrickInfo, BrickState, ClusterMap, ClusterReport, ClusterStatus, MapFetch, ShardInfo,
};
use types::messages::session::Role;
use types::wire::{Key, Request};
use types::{BrickId, Buf, ClusterId, Epoch, MapVersion, Refusal, ShardId};
use world::{CallError, Identity, Peers, World};

pub(crate) use explain::explain;

use crate::home::{Home, default_dir, read_key};
use crate::problem::problem;
use crate::size::Size;

/// The cluster that a command uses.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConnectionArgs {
    /// Address of the metadata service, HOST:PORT, or of all its servers (of the first shard) with commas between them; without it,
    /// the embedded cluster in --dir
    #[arg(long, value_name = "ADDR", env = "SHOAL_META", global = true)]
    pub(crate) meta: Option<String>,
    /// File with the cluster's key (see `shoal cluster init`)
    #[arg(long, value_name = "FILE", env = "SHOAL_KEY_FILE", global = true)]
    pub(crate) key_file: Option<PathBuf>,
    /// Directory of an embedded cluster (see `shoal up`)
    #[arg(long, value_name = "DIR", env = "SHOAL_DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
}

/// A cluster's metadata service and the key to it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) meta: String,
    pub(crate) key: Key,
    pub(crate) key_file: Option<PathBuf>,
}

impl ConnectionArgs {
    /// The directory of the embedded cluster that is used if no address is given.
    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(default_dir)
    }

    /// The metadata servers of the cluster that is meant, if the options name them, or the directory has a cluster.
    pub(crate) fn named_meta(&self) -> anyhow::Result<Option<String>> {
        match &self.meta {
            Some(meta) => Ok(Some(meta.clone())),
            None => Ok(Home::open(&self.dir())?.map(|home| home.meta_address())),
        }
    }

    /// Determines the cluster.
    pub(crate) fn target(&self) -> anyhow::Result<Target> {
        let Some(meta) = &self.meta else {
            return Target::embedded(&Home::require(&self.dir())?);
        };
        if let Some(wrong) = meta.split(',').find(|server| !is_address(server)) {
            let what = format!("--meta {meta}: `{wrong}` has no port, or none from 1 to 65535");
            return Err(problem(what, "HOST:PORT, as in 10.0.0.1:7400 or [fd00::1]:7400"));
        }
        let key = self.key_file.as_deref().map(read_key).transpose()?.unwrap_or(Key::OPEN);
        Ok(Target { meta: meta.clone(), key, key_file: self.key_file.clone() })
    }
}

/// Whether a text is HOST:PORT.
fn is_address(text: &str) -> bool {
    let bracketed = |host: &str| host.starts_with('[') && host.ends_with(']');
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_host = !host.is_empty() && (bracketed(host) || !host.contains([':', '[', ']']));
        is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

impl Target {
    /// An embedded cluster.
    pub(crate) fn embedded(home: &Home) -> anyhow::Result<Target> {
        let key_file = home.key_path();
        Ok(Target { meta: home.meta_address(), key: read_key(&key_file)?, key_file: Some(key_file) })
    }

    /// The same cluster, by the metadata servers of one of its shards.
    ///
    /// # Errors
    /// There is no such shard, or none of its servers has led yet.
    pub(crate) fn of_shard(self, shard: Option<u8>) -> anyhow::Result<Target> {
        let Some(shard) = shard else { return Ok(self) };
        let status = Remote::new(&self)?.status_of_shard()?;
        if shard == status.shard.0 {
            return Ok(self);
        }
        match status.map.shards.into_iter().find(|info| info.id.0 == shard) {
            Some(ShardInfo { servers, .. }) if !servers.is_empty() => Ok(Target { meta: servers, ..self }),
            Some(_) => Err(problem(
                format!("no metadata server of shard {shard} has led yet"),
                "start `shoal meta` with the directory that `shoal cluster init --shard-of` has made",
            )),
            None => Err(problem(
                format!("the cluster has no shard {shard}"),
                "`shoal meta list` shows the shards; --meta with the servers of the first one",
            )),
        }
    }

    /// The arguments with which a daemon finds this cluster.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["--meta".into(), self.meta.clone().into()];
        if let Some(key_file) = &self.key_file {
            let key_file = fs::canonicalize(key_file).unwrap_or_else(|_| key_file.clone());
            words.extend(["--key-file".into(), key_file.into()]);
        }
        words
    }

    /// Options of a client of one of its volumes; `place` says where the volume is mounted, for people to read.
    pub(crate) fn client(&self, volume: &str, memory: Size, place: String) -> client::MountOptions {
        let identity = Identity {
            cluster: ClusterId::default(),
            key: self.key.clone(),
            role: Role::Client,
            name: String::new(),
        };
        client::MountOptions {
            memory_budget: memory.0,
            place,
            ..client::MountOptions::new(&self.meta, volume, identity)
        }
    }
}

/// What to do about a cache that a mount cannot use.
fn explain_cache(error: &CacheError) -> &'static str {
    match error {
        CacheError::InUse(_) => "--cache-dir with another directory: every mount needs its own",
        CacheError::OtherCluster { .. } | CacheError::Foreign(_) => "--cache-dir with another directory",
        CacheError::TooSmall(_) => "--cache with a larger size",
        CacheError::Memory { .. } => "--memory with more, or --cache with a smaller size",
        CacheError::Open(_) | CacheError::Disk(_) => {
            "--cache-dir on another disk; the mount works without it"
        }
    }
}

/// The error for a client that the cluster refuses, with a remedy.
pub(crate) fn explain_join(error: &client::MountError) -> anyhow::Error {
    let hint = match error {
        client::MountError::Cache(error) => explain_cache(error).to_owned(),
        client::MountError::UnknownVolume(_) => "`shoal volume list` shows the volumes".to_owned(),
        client::MountError::AlreadyMounted { holders, .. } => {
            let lease = (LEASE_US + LEASE_MARGIN_US) as f64 / 1e6;
            let beside = holders.iter().all(|holder| !holder.exclusive);
            let beside = if beside { "; or the same without --exclusive" } else { "" };
            let there =
                "`shoal umount` or `shoal nbd --stop` there; if that machine is dead, wait until its lease";
            format!("{there} has run out ({lease} s){beside}")
        }
        _ => "check --meta and --key-file; `shoal status` asks the same service".to_owned(),
    };
    problem(error.to_string(), hint)
}

/// How long a brick may take to send its report, in microseconds.
const BRICK_US: u64 = 1_000_000;
/// Bricks that are asked at the same time.
const ASKED_AT_ONCE: usize = 64;

/// How long the metadata servers of another shard may take to answer, in microseconds: longer than an election.
const SHARD_US: u64 = 5_000_000;

/// Connections to a cluster's servers.
pub(crate) struct Remote {
    world: World,
    peers: Peers,
    meta: String,
    /// It was said that a shard does not answer.
    told: Cell<bool>,
}

/// The state of the cluster at one moment.
pub(crate) struct ClusterSnapshot {
    pub(crate) map: ClusterMap,
    report: ClusterReport,
    /// Shards that do not answer: their volumes and mounts are missing.
    pub(crate) missing: Vec<ShardInfo>,
}

impl Deref for ClusterSnapshot {
    type Target = ClusterReport;

    fn deref(&self) -> &ClusterReport {
        &self.report
    }
}

/// A world for this thread.
pub(crate) fn real_world() -> anyhow::Result<World> {
    World::real().map_err(|e| {
        problem(
            format!("this machine gives no ring for I/O: {e}"),
            "`ulimit -l unlimited`, or a kernel from 5.10 on",
        )
    })
}

/// Pause before metadata servers are asked again, in microseconds.
const RETRY_US: u64 = 200_000;

impl Remote {
    /// Prepares requests; connects at the first one.
    pub(crate) fn new(target: &Target) -> anyhow::Result<Remote> {
        Remote::as_role(target, Role::Client)
    }

    /// As [`Remote::new`], in this role.
    pub(crate) fn as_role(target: &Target, role: Role) -> anyhow::Result<Remote> {
        let world = real_world()?;
        let identity =
            Identity { cluster: ClusterId::default(), key: target.key.clone(), role, name: String::new() };
        let peers = Peers::new(world.clone(), identity);
        Ok(Remote { world, peers, meta: target.meta.clone(), told: Cell::new(false) })
    }

    /// Asks the metadata service. Of several servers none may lead for some seconds: waits for one.
    pub(crate) fn meta<R: Request>(&self, request: &R) -> Result<R::Reply, CallError> {
        self.meta_payload(request).map(|(reply, _)| reply)
    }

    /// As [`Remote::meta`], with the payload of the answer.
    pub(crate) fn meta_payload<R: Request>(&self, request: &R) -> Result<(R::Reply, Buf), CallError> {
        self.world.block_on(self.ask_leader(&self.meta, CALL_TIMEOUT_US, request))
    }

    /// Asks the metadata service. Returns a refusal as it is; other errors as an error to print.
    pub(crate) fn meta_or_refusal<R: Request>(
        &self,
        request: &R,
    ) -> anyhow::Result<Result<R::Reply, Refusal>> {
        match self.meta(request) {
            Ok(reply) => Ok(Ok(reply)),
            Err(CallError::Refused(refusal)) => Ok(Err(refusal)),
            Err(error) => Err(explain(error, &self.meta)),
        }
    }

    /// Asks the metadata service. Returns all errors as an error to print.
    pub(crate) fn meta_or_explain<R: Request>(&self, request: &R) -> anyhow::Result<R::Reply> {
        self.meta(request).map_err(|error| explain(error, &self.meta))
    }

    /// The id of the cluster that has answered; zeros before the first answer.
    pub(crate) fn cluster(&self) -> ClusterId {
        self.peers.cluster()
    }

    /// The metadata service's report about the cluster, and the map, with the volumes and mounts of all shards that answer. Says
    /// once which do not.
    pub(crate) fn status(&self) -> anyhow::Result<ClusterSnapshot> {
        let mut status = self.status_of_shard()?;
        let shards: Vec<ShardInfo> =
            status.map.shards.iter().filter(|shard| !shard.servers.is_empty()).cloned().collect();
        let asked = shards.iter().map(|shard| self.status_at(&shard.servers, SHARD_US));
        let answers = self.world.block_on(join_all(asked));
        for (shard, answer) in shards.into_iter().zip(answers) {
            match answer {
                Ok((report, map)) => {
                    status.map.volumes.extend(map.volumes);
                    status.report.mounts.extend(report.mounts);
                    status.report.purges += report.purges;
                    status.report.recovery = status.report.recovery.or(report.recovery);
                }
                Err(error) => {
                    if !self.told.replace(true) {
                        let ShardInfo { id, servers } = &shard;
                        eprintln!("shoal: without the volumes of shard {}, {servers}: {error}", id.0);
                    }
                    status.missing.push(shard);
                }
            }
        }
        Ok(status)
    }

    /// The report and the map of the shard whose servers were given, without other shards.
    pub(crate) fn status_of_shard(&self) -> anyhow::Result<ClusterSnapshot> {
        let asked = self.world.block_on(self.status_at(&self.meta, CALL_TIMEOUT_US));
        let (report, map) = asked.map_err(|error| explain(error, &self.meta))?;
        Ok(ClusterSnapshot { map, report, missing: Vec::new() })
    }

    /// As [`Remote::status`]; an error if a shard does not answer.
    pub(crate) fn whole_status(&self) -> anyhow::Result<ClusterSnapshot> {
        let status = self.status()?;
        match status.missing.first() {
            None => Ok(status),
            Some(ShardInfo { id, servers }) => Err(problem(
                format!("the metadata servers of shard {}, {servers}, do not answer", id.0),
                "`shoal meta list` shows them; then again",
            )),
        }
    }

    /// Says which other shards there are, to somebody who may take one for all.
    pub(crate) fn other_shards(&self) -> anyhow::Result<Option<String>> {
        let shards = self.status_of_shard()?.map.shards;
        let numbers: Vec<String> = shards.iter().map(|shard| shard.id.0.to_string()).collect();
        let said = || format!("this is one shard; the others: --shard {}", numbers.join(", --shard "));
        Ok((!numbers.is_empty()).then(said))
    }

    /// Refuses the servers of another shard than the first, which alone knows all.
    pub(crate) fn require_first_shard(&self) -> anyhow::Result<()> {
        match self.meta_or_explain(&ClusterStatus {})?.shard {
            ShardId::FIRST => Ok(()),
            shard => Err(problem(
                format!("{} serves shard {}, which does not know the others", self.meta, shard.0),
                "--meta with the metadata servers of the first shard",
            )),
        }
    }

    /// The report and the map of a shard. Of several servers none may lead for some seconds: waits for one, `us` microseconds.
    async fn status_at(&self, servers: &str, us: u64) -> Result<(ClusterReport, ClusterMap), CallError> {
        let report = self.ask_leader(servers, us, &ClusterStatus {}).await?.0;
        let mut fetch = MapFetch::new(MapVersion(0), None);
        while !fetch.answered(self.ask_leader(servers, us, fetch.request()).await?.0) {}
        let mut map = ClusterMap::empty(self.cluster());
        fetch.apply(&mut map);
        Ok((report, map))
    }

    /// Asks a metadata service. Of several servers none may lead for some seconds: waits for one, `us` microseconds.
    async fn ask_leader<R: Request>(
        &self,
        servers: &str,
        us: u64,
        request: &R,
    ) -> Result<(R::Reply, Buf), CallError> {
        let until = self.world.now() + us;
        loop {
            let call = self.peers.call_within(us, servers, Epoch::default(), request, Buf::empty());
            match call.await {
                Err(CallError::Unreachable) if servers.contains(',') && self.world.now() < until => {
                    self.world.sleep(RETRY_US).await;
                }
                answer => return answer,
            }
        }
    }

    /// Brings a map up to date.
    pub(crate) fn follow(&self, map: &mut ClusterMap) -> Result<(), CallError> {
        let mut fetch = MapFetch::new(map.version, None);
        while !fetch.answered(self.meta(fetch.request())?) {}
        fetch.apply(map);
        Ok(())
    }

    /// A brick's report; `None` if it does not answer soon.
    pub(crate) fn brick(&self, address: &str) -> Option<BrickReport> {
        self.ask(address, BRICK_US, &BrickStatus {}).ok()
    }

    /// The reports of the bricks that are Up and answer soon. Many are asked at the same time, so that silent ones do
    /// not add up.
    pub(crate) fn bricks(&self, map: &ClusterMap) -> BTreeMap<BrickId, BrickReport> {
        let up: Vec<_> = map.bricks.iter().filter(|info| info.state == BrickState::Up).collect();
        let ask = async |info: &BrickInfo| {
            let call = self.peers.call_within(
                BRICK_US,
                &info.address,
                Epoch::default(),
                &BrickStatus {},
                Buf::empty(),
            );
            call.await.ok().map(|(report, _)| (info.id, report))
        };
        let mut reports = BTreeMap::new();
        for some in up.chunks(ASKED_AT_ONCE) {
            let answers = self.world.block_on(join_all(some.iter().map(|info| ask(info))));
            reports.extend(answers.into_iter().flatten());
        }
        reports
    }

    /// Asks a group's primary, in a given epoch.
    pub(crate) fn primary<R: Request>(
        &self,
        address: &str,
        epoch: Epoch,
        request: &R,
    ) -> Result<R::Reply, CallError> {
        const PATIENCE_US: u64 = 30_000_000;
        self.ask_in(epoch, address, PATIENCE_US, request)
    }

    /// Asks any server.
    pub(crate) fn server<R: Request>(
        &self,
        address: &str,
        us: u64,
        request: &R,
    ) -> Result<R::Reply, CallError> {
        self.ask(address, us, request)
    }

    /// The connections themselves.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Runs requests until they are answered.
    pub(crate) fn block_on<T>(&self, asking: impl Future<Output = T>) -> T {
        self.world.block_on(asking)
    }

    /// Microseconds of a clock that never goes back.
    pub(crate) fn now(&self) -> u64 {
        self.world.now()
    }

    /// Waits for `us` microseconds.
    pub(crate) fn pause(&self, us: u64) {
        self.world.block_on(self.world.sleep(us));
    }

    fn ask<R: Request>(&self, address: &str, us: u64, request: &R) -> Result<R::Reply, CallError> {
        self.ask_in(Epoch::default(), address, us, request)
    }

    fn ask_in<R: Request>(
        &self,
        epoch: Epoch,
        address: &str,
        us: u64,
        request: &R,
    ) -> Result<R::Reply, CallError> {
        let call = self.peers.call_within(us, address, epoch, request, Buf::empty());
        self.world.block_on(call).map(|(reply, _)| reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        assert!(["localhost:7400", "10.0.0.1:1", "[::1]:7400", "a-b.c:65535"].into_iter().all(is_address));
        let wrong =
            ["localhost", "[::1]", "::1", "::1:7400", "[::1]:99999", ":7400", "a:0", "a:b", "", "a:7400 "];
        assert!(!wrong.into_iter().any(is_address));
    }
}
