//! `shoal meta restore`: a metadata server out of a backup, or out of what one of several servers has left.

use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use indicatif::ProgressBar;
use meta::restore::{RestoredStore, Restoring, read_store};
use meta::{Engine, MetaError};
use serde_json::json;
use types::BrickId;

use super::backup_file::{Head, ReadError, Reader};
use super::{explain, now_ns, open_store};
use crate::commands::brick::replace::brick_id;
use crate::new_cluster::store_path;
use crate::output::Output;
use crate::private;
use crate::problem::problem;
use crate::remote::real_world;
use crate::size::Size;

/// How long an old server may take to take a connection.
const ALIVE: Duration = Duration::from_secs(1);

/// Makes a new metadata server out of a backup, or out of the directory of a server that has lost the others
#[derive(Args)]
#[command(after_help = "\
For a cluster that has lost its metadata servers, or more than half of them. All that are left must be stopped, and must
not be started again. The new server is alone; others join it as they joined the first one. It waits until every brick has
told it what became of the groups since the backup was made: `shoal status` says which are missing. A brick that is gone
for good is named with --without. Files that were written since have their new bytes. New and renamed files have the names
that they had, or none; removed and replaced ones are back with holes for bytes. Programs lose what they have open.

Examples:
  shoal meta restore names.bak --dir /var/lib/shoal-meta
  shoal meta restore names.bak --dir /var/lib/shoal-meta --without 4,7      bricks 4 and 7 are gone for good
  shoal meta restore /var/lib/shoal-meta --dir /var/lib/shoal-alone         the only one left of three servers")]
pub(super) struct RestoreArgs {
    /// A file made by `shoal meta backup`, or the directory of a stopped metadata server
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// Directory of the new server; nothing may be there yet
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Bricks that are gone for good: nobody waits for them
    #[arg(long, value_name = "ID[,ID...]", value_delimiter = ',', value_parser = brick_id)]
    without: Vec<BrickId>,
    /// Memory budget
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    memory: Size,
}

pub(super) fn run(args: &RestoreArgs, output: &Output) -> anyhow::Result<()> {
    let path = store_path(&args.dir);
    private::make_dir(&args.dir)?;
    // A journal without its store counts too: its records would be taken for those of the new one.
    if let Some(there) = parts_of_store(&args.dir)?.first() {
        return Err(problem(
            format!("{} is there already", there.display()),
            "--dir with a new directory: nothing that exists is replaced",
        ));
    }
    let engine = Engine::open_redb_within(&path, args.memory.0)
        .with_context(|| format!("cannot make {}", path.display()))?;
    let now = now_ns().cast_unsigned() / 1_000_000_000;
    let restoring = match Restoring::begin(&engine, now) {
        Ok(restoring) => restoring,
        Err(error) => {
            // A store with a cluster in it is somebody else's.
            if !matches!(error, MetaError::Exists) {
                drop(std::fs::remove_file(&path));
            }
            return Err(explain(error, &path));
        }
    };
    let made = make(args, restoring, now, output);
    drop(engine);
    if made.is_err() {
        // Only what was made here: the directory may be somebody's.
        drop(std::fs::remove_file(&path));
    }
    let found = made?;
    output.answer_by(|| document(args, &found), || words(args, &found));
    Ok(())
}

fn make(
    args: &RestoreArgs,
    mut restoring: Restoring,
    now: u64,
    output: &Output,
) -> anyhow::Result<RestoredStore> {
    let bar = output.spinner("restoring");
    if args.source.is_dir() {
        from_server(args, &mut restoring, &bar)?;
    } else {
        let head = from_file(args, &mut restoring, &bar)?;
        let minutes = now.saturating_sub(head.made / 1_000_000_000) / 60;
        let (days, hours, minutes) = (minutes / 1440, minutes / 60 % 24, minutes % 60);
        output.say(&format!(
            "the backup was made {days} days {hours} h {minutes} min ago, and has everything up to record {}",
            head.record
        ));
    }
    let found = restoring.found();
    if let Some(alive) = found.members.iter().find(|address| is_alive(address)) {
        return Err(problem(
            format!("a metadata server of this cluster is still there, at {alive}"),
            "stop it for good first: two clusters would use the same bricks; or, if more than half of the servers are \
             there, nothing has to be restored",
        ));
    }
    let found = restoring.finish(&args.without).map_err(|error| explain(error, &args.source))?;
    bar.finish_and_clear();
    Ok(found)
}

fn from_file(args: &RestoreArgs, restoring: &mut Restoring, bar: &ProgressBar) -> anyhow::Result<Head> {
    let cannot = |error: ReadError| {
        let hint = match error {
            ReadError::Io(_) => "a file that can be read",
            ReadError::Foreign => "a file made by `shoal meta backup`, or the directory of a metadata server",
            ReadError::Format(_) => "the build that wrote it",
            ReadError::Damaged(_) | ReadError::Cut => "another backup, or another copy of this one",
        };
        problem(format!("{} cannot be restored: {error}", args.source.display()), hint)
    };
    let mut reader = Reader::open(&args.source).map_err(cannot)?;
    while let Some(pairs) = reader.part().map_err(cannot)? {
        restoring.add(pairs).map_err(|error| explain(error, &args.source))?;
        bar.set_message(format!("restoring: {} keys", restoring.found().keys));
    }
    if restoring.found().cluster != reader.head.cluster {
        return Err(cannot(ReadError::Damaged(restoring.found().keys)));
    }
    Ok(reader.head)
}

fn from_server(args: &RestoreArgs, restoring: &mut Restoring, bar: &ProgressBar) -> anyhow::Result<()> {
    let path = store_path(&args.source);
    if !path.exists() {
        return Err(problem(
            format!("{} has no metadata store", args.source.display()),
            "the --dir of a metadata server, or a file made by `shoal meta backup`",
        ));
    }
    let world = real_world()?;
    let engine = world.block_on(open_store(&world, &path, args.memory.0))?;
    let mut add = |pairs| {
        let added = restoring.add(pairs);
        bar.set_message(format!("restoring: {} keys", restoring.found().keys));
        added
    };
    let read = world.block_on(read_store(&world, engine, &mut add));
    read.map_err(|error| match error {
        MetaError::Incomplete => problem(
            format!("{}: {error}", path.display()),
            "the directory of another server, or a backup: this one had not got all names yet",
        ),
        error => explain(error, &path),
    })
}

/// What is left in a directory of the store of a metadata server.
fn parts_of_store(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let begins = store_path(Path::new("")).to_string_lossy().into_owned();
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", dir.display()))?;
        if entry.file_name().to_string_lossy().starts_with(&begins) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Whether somebody takes connections there.
fn is_alive(address: &str) -> bool {
    let Ok(addresses) = address.to_socket_addrs() else { return false };
    let mut addresses = addresses.take(4);
    addresses.any(|address| TcpStream::connect_timeout(&address, ALIVE).is_ok())
}

fn document(args: &RestoreArgs, found: &RestoredStore) -> serde_json::Value {
    json!({
        "dir": args.dir,
        "cluster": found.cluster.to_string(),
        "volumes": found.volumes,
        "inodes": found.inodes,
        "bricks": found.bricks.iter().map(|brick| brick.0).collect::<Vec<_>>(),
        "without": args.without.iter().map(|brick| brick.0).collect::<Vec<_>>(),
    })
}

fn words(args: &RestoreArgs, found: &RestoredStore) -> String {
    let waited: Vec<String> =
        found.bricks.iter().filter(|brick| !args.without.contains(brick)).map(BrickId::to_string).collect();
    let dir = args.dir.display();
    let unknown = args.without.iter().filter(|brick| !found.bricks.contains(brick));
    let notes: String =
        unknown.map(|id| format!("note: {id} of --without is not known to what was restored\n")).collect();
    notes
        + &format!(
            "restored cluster {}: volumes {}, {} inodes\n\
         next:  shoal meta --dir {dir} --listen HOST:PORT --key-file FILE     the key is not in {dir}\n\
         then start the bricks, with this server as --meta if it is of the first shard: it waits for {}\n\
         then   shoal status                                                  says what is still missing\n\
         then   shoal meta check --bricks                                     says which bytes have no file any more",
            found.cluster,
            found.volumes.join(", "),
            found.inodes,
            waited.join(", "),
        )
}
