//! `shoal meta backup`: all names of a cluster in a file, while they are in use.

use std::path::PathBuf;

use clap::Args;
use meta::check::unpacked_pairs;
use serde_json::json;
use types::Refusal;
use types::checksum::crc;
use types::messages::replica::MetaScan;
use world::CallError;

use super::backup_file::{Head, Writer};
use super::now_ns;
use crate::output::Output;
use crate::problem::problem;
use crate::remote::{ConnectionArgs, Remote, explain};
use crate::size::Size;

/// Bytes of a part.
const PART: u32 = 512 << 10;
/// How often a backup begins anew because another server leads.
const RESTARTS: usize = 3;

/// Copies all names, volumes and bricks that a cluster knows into a file, as they are at one moment
#[derive(Args)]
#[command(after_help = "\
Nobody waits meanwhile. The file has the whole metadata, and none of the bytes of files: these stay on the bricks. It takes
about 240 bytes for each file. Keep it on another machine, and the file with the cluster's key too: the backup does not
have the key.

Examples:
  shoal meta backup /mnt/elsewhere/names-$(date +%F).bak
  shoal meta backup names.bak --meta 10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400 --key-file /etc/shoal/key
  shoal meta backup names-1.bak --shard 1                   of another shard: each has a backup of its own")]
pub(super) struct BackupArgs {
    /// The file to make
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Of this shard; without it, of the one whose servers --meta names
    #[arg(long, value_name = "N")]
    shard: Option<u8>,
    #[command(flatten)]
    cluster: ConnectionArgs,
}

pub(super) fn run(args: &BackupArgs, output: &Output) -> anyhow::Result<()> {
    let target = args.cluster.target()?.of_shard(args.shard)?;
    let remote = Remote::new(&target)?;
    if args.file.exists() {
        return Err(problem(
            format!("{} is there already", args.file.display()),
            "another name; older backups are worth keeping",
        ));
    }
    let others = remote.other_shards()?;
    let bar = output.spinner("reading the metadata");
    for _ in 0..RESTARTS {
        let told = |keys: u64| bar.set_message(format!("reading the metadata: {keys} keys"));
        let Some((pairs, bytes, record)) = write(args, &remote, &target.meta, &told)? else { continue };
        bar.finish_and_clear();
        let cluster = remote.cluster().to_string();
        let document = || json!({ "file": args.file, "cluster": cluster, "record": record, "keys": pairs, "bytes": bytes });
        output.answer_by(document, || {
            format!(
                "{}: {pairs} keys of cluster {} in {}; the bytes of files stay on the bricks",
                args.file.display(),
                cluster,
                Size(bytes),
            )
        });
        if let Some(others) = others {
            output.say(&others);
        }
        return Ok(());
    }
    Err(problem(
        "the server that leads has changed again and again while the metadata was read, or others read it too",
        "`shoal meta list`; then again",
    ))
}

/// Writes a backup: how many keys and bytes it has, and the last record. `None` if another server leads now.
fn write(
    args: &BackupArgs,
    remote: &Remote,
    address: &str,
    told: &dyn Fn(u64),
) -> anyhow::Result<Option<(u64, u64, u64)>> {
    let cannot = |error: std::io::Error| {
        problem(format!("cannot write {}: {error}", args.file.display()), "a place with room and rights")
    };
    let (mut writer, mut request) = (None, MetaScan { scan: 0, from: Vec::new(), bytes: PART });
    let (mut keys, mut record) = (0, 0);
    loop {
        let part = remote.meta_payload(&request).and_then(|(answer, payload)| {
            let pairs = unpacked_pairs(&payload).filter(|_| crc(&payload) == answer.sum);
            Ok((answer, pairs.ok_or(CallError::BadReply)?, payload))
        });
        let is_same = |answer: &types::messages::replica::MetaScanned| {
            request.scan == 0 || (answer.scan, answer.record) == (request.scan, record)
        };
        let (answer, pairs, payload) = match part {
            Ok(part) if is_same(&part.0) => part,
            Ok(_) | Err(CallError::Refused(Refusal::Unknown)) => return Ok(None),
            Err(error) => return Err(explain(error, address)),
        };
        (request.scan, record) = (answer.scan, answer.record);
        let out = match &mut writer {
            Some(writer) => writer,
            None => {
                let head = Head { cluster: remote.cluster(), record, made: now_ns().cast_unsigned() };
                writer.insert(Writer::create(&args.file, head).map_err(cannot)?)
            }
        };
        out.add(&payload, pairs.len()).map_err(cannot)?;
        keys += pairs.len() as u64;
        told(keys);
        let Some((last, _)) = pairs.last().filter(|_| !answer.is_last) else { break };
        request.from = [last.as_slice(), &[0]].concat();
    }
    let Some(writer) = writer else { return Ok(None) };
    let (pairs, bytes) = writer.finish().map_err(cannot)?;
    Ok(Some((pairs, bytes, record)))
}
