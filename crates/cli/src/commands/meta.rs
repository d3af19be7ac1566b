//! `shoal meta`: the metadata service of a cluster, in the foreground.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use meta::{Engine, MetaError, MetaOptions, Service, kv::EngineError};
use types::ClusterId;
use types::messages::session::Role;
use types::wire::Key;
use world::{Identity, LOCK_POLL_US, LOCK_WAIT_US, World};

use crate::daemon::{self, DaemonArgs, LISTENING};
use crate::home::read_key;
use crate::lock_holder;
use crate::new_cluster::store_path;
use crate::problem::problem;
use crate::remote::real_world;
use crate::size::Size;

/// Serves the metadata of a cluster: names, leases, the map (a daemon; stop it with SIGTERM)
#[derive(Args)]
#[command(after_help = "\
Runs in the foreground and logs to standard error: let a service manager start it, once per cluster.
Without a key it listens on loopback only.

Example:
  shoal meta --dir /var/lib/shoal-meta --listen 10.0.0.1:7400 --key-file /var/lib/shoal-meta/key")]
pub(crate) struct MetaArgs {
    /// Directory made by `shoal cluster init`
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Where to listen, HOST:PORT
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7400")]
    listen: String,
    /// File with the cluster's key
    #[arg(long, value_name = "FILE", env = "SHOAL_KEY_FILE")]
    key_file: Option<PathBuf>,
    /// Memory budget
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    memory: Size,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub(crate) fn run(args: &MetaArgs) -> anyhow::Result<()> {
    let stop = daemon::stop_signal()?;
    daemon::begin(&args.daemon, args.memory.0)?;
    let key = args.key_file.as_deref().map(read_key).transpose()?.unwrap_or(Key::OPEN);
    daemon::check_listen(&args.listen, &key)?;
    let path = store_path(&args.dir);
    if !path.exists() {
        return Err(problem(
            format!("{} is not there", path.display()),
            format!("`shoal cluster init --dir {}` makes a new cluster", args.dir.display()),
        ));
    }
    let world = real_world()?;
    let engine = world.block_on(open_store(&world, &path, args.memory.0))?;
    let options = MetaOptions {
        listen: args.listen.clone(),
        identity: Identity { cluster: ClusterId::default(), key, role: Role::Meta },
        memory_budget: args.memory.0,
    };
    let work = async {
        let started = Service::start(world.clone(), engine, options).await;
        let service = started.map_err(|error| explain(error, &path))?;
        tracing::info!("metadata service of {} {LISTENING}{}", path.display(), service.address());
        service.run().await;
        anyhow::bail!("the metadata store {} failed; start the service again", path.display())
    };
    daemon::run_until_stopped(&world, stop, work).unwrap_or(Ok(()))
}

/// Opens the store. Waits a short time if it is locked, because a service that was just killed may not have ended
/// yet.
async fn open_store(world: &World, path: &Path, memory: u64) -> anyhow::Result<Engine> {
    let until = world.now() + LOCK_WAIT_US;
    let mut waits = false;
    loop {
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
        MetaError::Version { .. } => problem(
            format!("{}: {error}", path.display()),
            "start the build that wrote it; or begin with an empty directory: `shoal cluster init`, bricks formatted anew",
        ),
        other => anyhow::Error::new(other).context(path.display().to_string()),
    }
}
