//! `shoal meta`: a metadata server of a cluster, in the foreground, and commands about them.

mod backup;
mod backup_file;
mod check;
mod held_objects;
mod lead;
mod list;
mod remove;
mod remove_shard;
mod restore;

use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::{Args, Subcommand};
use meta::kv::{EngineError, JournalError};
use meta::{Engine, MetaError, MetaOptions, Server, ServerOptions};
use types::messages::session::Role;
use types::wire::Key;
use types::{ClusterId, ShardId};
use world::{Identity, LOCK_POLL_US, LOCK_WAIT_US, World};

use crate::daemon::{self, DaemonArgs, LISTENING};
use crate::damage::{self, damaged_store};
use crate::home::read_key;
use crate::lock_holder;
use crate::new_cluster::store_path;
use crate::output::Output;
use crate::private;
use crate::problem::problem;
use crate::remote::real_world;
use crate::size::Size;

/// Serves the metadata of a cluster: names, leases, the map (a daemon; stop it with SIGTERM)
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Runs in the foreground and logs to standard error: let a service manager start it. The key is the file `key` in --dir, which
`shoal cluster init` makes, or --key-file.

One server is enough to begin with. With three, on three machines, any one may be lost: they have the same store, one
of them leads, and another one takes over within seconds. Give all of them to everything else: --meta A,B,C. A server
whose disk is lost joins again with an empty directory.

Examples:
  shoal meta --dir /var/lib/shoal-meta --listen 10.0.0.1:7400 --key-file /var/lib/shoal-meta/key
  shoal meta --dir /var/lib/shoal-meta --listen 10.0.0.2:7400 --join 10.0.0.1:7400 --key-file /etc/shoal/key
  shoal meta list --meta 10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400 --key-file /etc/shoal/key
  shoal meta lead 10.0.0.2:7400                             lets this one lead
  shoal meta remove 10.0.0.2:7400                           one less, for good
  shoal cluster init --dir /var/lib/shoal-meta-1 --shard-of 10.0.0.1:7400   a shard: servers for a part of the volumes
  shoal meta check --meta 10.0.0.1:7400                     compares all names with each other, while they are in use
  shoal meta backup names.bak --meta 10.0.0.1:7400          copies all names, while they are in use
  shoal meta restore names.bak --dir /var/lib/shoal-new     makes a server of it, when all others are lost"
)]
pub(crate) struct MetaArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Directory made by `shoal cluster init`; with --join, a new one
    #[arg(long, value_name = "DIR", required = true)]
    dir: Option<PathBuf>,
    /// Where to listen, HOST:PORT
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7400")]
    listen: String,
    /// Address at which others reach it, if that differs from --listen
    #[arg(long, value_name = "ADDR")]
    advertise: Option<String>,
    /// Becomes one more server of a cluster: any of its metadata servers, HOST:PORT, or several with commas between them. Says
    /// nothing once it is one
    #[arg(long, value_name = "ADDR[,ADDR...]")]
    join: Option<String>,
    /// Of another shard than the first: the metadata servers of the first one, if they have moved since the shard was made
    #[arg(long, value_name = "ADDR[,ADDR...]")]
    shard_of: Option<String>,
    /// Of the first shard: leaves the leaders of other shards where they are. As a rule they move to machines that serve less.
    /// Give it to each server of the first shard
    #[arg(long)]
    keep_leaders: bool,
    /// File with the cluster's key [default: `key` in --dir]
    #[arg(long, value_name = "FILE", env = "SHOAL_KEY_FILE")]
    key_file: Option<PathBuf>,
    /// Serves without a key: everybody who reaches the address can read and write everything
    #[arg(long, conflicts_with = "key_file")]
    no_key: bool,
    /// Memory budget
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    memory: Size,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(Subcommand)]
enum Action {
    Backup(backup::BackupArgs),
    Check(check::CheckArgs),
    Lead(lead::LeadArgs),
    List(list::ListArgs),
    Remove(remove::RemoveArgs),
    RemoveShard(remove_shard::RemoveShardArgs),
    Restore(restore::RestoreArgs),
}

pub(crate) fn run(args: &MetaArgs, output: &Output) -> anyhow::Result<()> {
    match &args.action {
        Some(Action::Backup(backup)) => backup::run(backup, output),
        Some(Action::Check(check)) => check::run(check, output),
        Some(Action::Lead(lead)) => lead::run(lead, output),
        Some(Action::List(list)) => list::run(list, output),
        Some(Action::Remove(remove)) => remove::run(remove, output),
        Some(Action::RemoveShard(remove)) => remove_shard::run(remove, output),
        Some(Action::Restore(restore)) => restore::run(restore, output),
        None => serve(args),
    }
}

fn serve(args: &MetaArgs) -> anyhow::Result<()> {
    let stop = daemon::stop_signal()?;
    daemon::begin(&args.daemon, args.memory.0)?;
    let dir = args.dir.as_deref().expect("--dir is required");
    let path = store_path(dir);
    let advertise = args.advertise.clone().unwrap_or_else(|| args.listen.clone());
    if args.join.is_some() {
        check_advertised(&advertise)?;
    } else if !path.exists() {
        return Err(problem(
            format!("{} is not there", path.display()),
            format!(
                "`shoal cluster init --dir {}` makes a new cluster; --join ADDR for one more server of a cluster that exists",
                dir.display()
            ),
        ));
    }
    private::make_dir(dir)?;
    let key = key(args, dir)?;
    daemon::check_listen(&args.listen, &key)?;
    let world = real_world()?;
    let engine = world.block_on(open_store(&world, &path, args.memory.0))?;
    if args.join.is_none() && meta::shard_of(&engine).is_ok_and(|shard| shard != ShardId::FIRST) {
        // The first shard tells everybody where this one is.
        check_advertised(&advertise)?;
    }
    let service = MetaOptions {
        listen: args.listen.clone(),
        identity: Identity { cluster: ClusterId::default(), key, role: Role::Meta, name: String::new() },
        memory_budget: args.memory.0,
        first_shard: args.shard_of.clone(),
        keeps_leaders: args.keep_leaders,
    };
    let options = ServerOptions { service, advertise, join: args.join.clone() };
    let listening =
        |address: &str| tracing::info!("metadata service of {} {LISTENING}{address}", path.display());
    let server = Server::new(world.clone(), engine, options);
    let work = async { Err(explain(server.run(&listening).await, &path)) };
    daemon::run_until_stopped_then(&world, stop, work, server.step_down()).unwrap_or(Ok(()))
}

/// The key with which a store is served. Every cluster has one.
fn key(args: &MetaArgs, dir: &Path) -> anyhow::Result<Key> {
    let own_key = dir.join("key");
    match &args.key_file {
        Some(file) => read_key(file),
        None if args.no_key => {
            tracing::warn!(
                "without a key, everybody who reaches {} reads and writes everything",
                args.listen
            );
            Ok(Key::OPEN)
        }
        None if own_key.exists() => {
            private::secure(&own_key)?;
            read_key(&own_key)
        }
        None => Err(problem(
            format!(
                "no key is given, and {} is not there: a cluster is not served without its key",
                own_key.display()
            ),
            "--key-file FILE with the key that `shoal cluster init` made; --no-key only if everybody may read and write",
        )),
    }
}

/// Refuses an address under which other machines cannot call this one.
fn check_advertised(address: &str) -> anyhow::Result<()> {
    address
        .to_socket_addrs()
        .map_err(|error| problem(format!("{address} is no address: {error}"), "--advertise HOST:PORT"))?;
    daemon::check_callable(address, "other metadata servers")
}

/// Opens the store. Waits a short time if it is locked, because a service that was just killed may not have ended
/// yet.
async fn open_store(world: &World, path: &Path, memory: u64) -> anyhow::Result<Engine> {
    let until = world.now() + LOCK_WAIT_US;
    let mut waits = false;
    loop {
        damage::reads_store(path);
        match Engine::open_redb_within(path, memory) {
            Err(EngineError::InUse) if world.now() < until => {
                if !waits {
                    let holder = lock_holder::of(path);
                    tracing::warn!("{} is in use by {holder}: waiting until it is free", path.display());
                    waits = true;
                }
                world.sleep(LOCK_POLL_US).await;
            }
            Err(EngineError::InUse) => {
                return Err(problem(
                    format!("{} is served already, by {}", path.display(), lock_holder::of(path)),
                    "leave that one alone, or stop it first: a store has one service",
                ));
            }
            Err(EngineError::Damaged(why)) => return Err(damaged_store(&path.display().to_string(), &why)),
            Err(EngineError::File(error)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(problem(
                    format!("{} cannot be opened: {error}", path.display()),
                    "the user whose store it is",
                ));
            }
            opened => return opened.with_context(|| format!("cannot open {}", path.display())),
        }
    }
}

fn explain(error: MetaError, path: &Path) -> anyhow::Error {
    match error {
        MetaError::Listen { address, error } => daemon::explain_listen(&error, &address),
        MetaError::NoCluster => problem(
            format!("{} holds no cluster", path.display()),
            "`shoal cluster init` in another directory: this one was not made by it",
        ),
        MetaError::Removed => problem(
            "this metadata server was removed from the cluster",
            format!(
                "nothing, if that was meant; `shoal meta --join` with an empty directory in place of {} to add it again",
                path.parent().unwrap_or(path).display()
            ),
        ),
        MetaError::SetBack => problem(
            error.to_string(),
            format!(
                "`shoal meta --join` with an empty directory in place of {}: a snapshot or a copy of a server's directory cannot take its place",
                path.parent().unwrap_or(path).display()
            ),
        ),
        MetaError::Overruled => problem(
            error.to_string(),
            format!(
                "keep {} until nobody needs what only it has; `shoal meta --join` with an empty directory makes a server of the restored cluster",
                path.parent().unwrap_or(path).display()
            ),
        ),
        MetaError::Moved { ref known, .. } => problem(
            error.to_string(),
            format!(
                "--listen {known} or --advertise {known}; or `shoal meta remove {known}`, and --join with an empty directory"
            ),
        ),
        MetaError::Join { .. } => problem(
            error.to_string(),
            "--join with a metadata server of the cluster, --key-file with its key",
        ),
        MetaError::Alone => problem(
            format!(
                "{} is the store of a cluster with one metadata server: it cannot join others",
                path.display()
            ),
            "no --join here, and --join with this server's address for the others; or another, empty directory",
        ),
        MetaError::Damaged => damaged_store(&path.display().to_string(), "it has values that cannot be read"),
        MetaError::Engine(EngineError::Damaged(why)) => damaged_store(&path.display().to_string(), &why),
        MetaError::Journal { ref error, .. }
            if matches!(
                error,
                JournalError::Missing | JournalError::Unreadable | JournalError::Damaged { .. }
            ) =>
        {
            damaged_store(&path.display().to_string(), &format!("of its journal, {error}"))
        }
        MetaError::Stopped => {
            anyhow::anyhow!("the metadata store {} failed; start the service again", path.display())
        }
        MetaError::Version { .. } => problem(
            format!("{}: {error}", path.display()),
            "start the build that wrote it; or begin with an empty directory: `shoal cluster init`, bricks formatted anew",
        ),
        other => anyhow::Error::new(other).context(path.display().to_string()),
    }
}

/// The time, in nanoseconds since 1970.
fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
