//! `shoal meta list`: the metadata servers of a cluster, shard by shard.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;
use types::ShardId;
use types::messages::cluster::ShardInfo;
use types::messages::replica::{MemberReport, MetaReport, MetaStatus};
use types::messages::session::Role;
use world::CallError;

use crate::output::{Output, table};
use crate::remote::{ConnectionArgs, Remote, explain};

/// How long a server may take to answer, in microseconds.
const ANSWER_US: u64 = 1_500_000;
/// Most servers that are asked, whatever others name.
const SERVERS_MAX: usize = 32;
const MS_PER_US: f64 = 1e-3;

/// Lists the metadata servers: who leads, and how far the others are
#[derive(Args)]
#[command(after_help = "\
Asks all servers in --meta and all that these name. While none leads, names wait; that is so for some seconds after
a leader is lost, and for good while fewer than half of the servers are there.

Example:
  shoal meta list --meta 10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400 --key-file /etc/shoal/key")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    cluster: ConnectionArgs,
}

/// A server, as the table shows it.
struct Row {
    address: String,
    state: &'static str,
    report: Option<MetaReport>,
    /// What the leader says.
    member: Option<MemberReport>,
}

/// The servers of a shard.
struct ShardRows {
    shard: ShardId,
    rows: Vec<Row>,
    is_led: bool,
}

pub(super) fn run(args: &ListArgs, output: &Output) -> anyhow::Result<()> {
    let target = args.cluster.target()?;
    let remote = Remote::as_role(&target, Role::MetaFollower)?;
    let mut shards = vec![look(&remote, &target.meta).map_err(|error| explain(error, &target.meta))?];
    // Only a leader knows the others.
    if shards[0].is_led || shards[0].rows.iter().any(|row| row.state == "alone") {
        let map = Remote::new(&target)?.status_of_shard()?.map;
        for ShardInfo { id, servers } in map.shards {
            let silent = || ShardRows { shard: id, rows: Vec::new(), is_led: false };
            let seen = if servers.is_empty() { None } else { look(&remote, &servers).ok() };
            shards.push(ShardRows { shard: id, ..seen.unwrap_or_else(silent) });
        }
    }
    output.answer(&document(&shards), || {
        let one = |shard: &ShardRows| match (shards.len(), shard.rows.is_empty()) {
            (1, _) => words(&shard.rows, shard.is_led),
            (_, true) => {
                format!("shard {}\nNone of its servers answers, or none has led yet.\n", shard.shard.0)
            }
            (_, false) => format!("shard {}\n{}", shard.shard.0, words(&shard.rows, shard.is_led)),
        };
        shards.iter().map(one).collect::<Vec<_>>().join("\n")
    });
    Ok(())
}

/// Asks the servers of a shard, and those that they name.
fn look(remote: &Remote, meta: &str) -> Result<ShardRows, CallError> {
    let mut reports: BTreeMap<String, Result<MetaReport, CallError>> = BTreeMap::new();
    let mut wanted: Vec<String> = meta.split(',').map(str::to_owned).collect();
    while let Some(address) = wanted.pop().filter(|_| reports.len() < SERVERS_MAX) {
        if reports.contains_key(&address) {
            continue;
        }
        let report = remote.server(&address, ANSWER_US, &MetaStatus {});
        let members = report.iter().flat_map(|report| report.members.iter());
        wanted.extend(members.map(|known| known.member.address.clone()));
        reports.insert(address, report);
    }
    let answered: Vec<&MetaReport> = reports.values().flatten().collect();
    if answered.is_empty() {
        return Err(reports.into_values().find_map(Result::err).unwrap_or(CallError::Unreachable));
    }
    // Who was deposed may not know it yet; the newer term counts.
    let leader = answered.iter().filter(|report| report.id != 0 && report.leader == report.id);
    let leader = leader.max_by_key(|report| report.term).copied().cloned();
    let rows = reports.into_iter().map(|(address, report)| row(address, report.ok(), &leader)).collect();
    Ok(ShardRows { shard: ShardId::FIRST, rows, is_led: leader.is_some() })
}

fn row(address: String, report: Option<MetaReport>, leader: &Option<MetaReport>) -> Row {
    let members = leader.iter().flat_map(|leader| &leader.members);
    let member = members.into_iter().find(|known| known.member.address == address).cloned();
    let state = match (&report, &member) {
        (Some(report), _) if report.id == 0 => "alone",
        (Some(report), _) if leader.as_ref().is_some_and(|leader| leader.id == report.id) => "leads",
        (None, _) => "silent",
        (Some(report), _) if report.is_incomplete => "joins",
        (_, Some(member)) if member.is_joining => "joins",
        (_, None) if leader.is_some() => "no member",
        _ => "follows",
    };
    Row { address, state, report, member }
}

fn document(shards: &[ShardRows]) -> serde_json::Value {
    let server = |(shard, row): (ShardId, &Row)| {
        json!({
            "shard": shard.0,
            "address": row.address,
            "state": row.state,
            "term": row.report.as_ref().map(|report| report.term),
            "last_record": row.report.as_ref().map(|report| report.last.number),
            "chosen_record": row.report.as_ref().map(|report| report.chosen),
            "heard_us": row.member.as_ref().and_then(|member| member.heard_us),
        })
    };
    let rows = shards.iter().flat_map(|shard| shard.rows.iter().map(|row| (shard.shard, row)));
    json!({ "servers": rows.map(server).collect::<Vec<_>>() })
}

fn words(rows: &[Row], is_led: bool) -> String {
    let newest = rows.iter().filter_map(|row| row.report.as_ref()).map(|report| report.last.number).max();
    let newest = newest.unwrap_or(0);
    let mut lines =
        vec![["server", "state", "term", "records", "behind", "heard"].map(str::to_owned).to_vec()];
    for row in rows {
        let of = |f: &dyn Fn(&MetaReport) -> u64| {
            row.report.as_ref().map_or("-".to_owned(), |report| f(report).to_string())
        };
        let heard = row.member.as_ref().and_then(|member| member.heard_us).filter(|_| row.state != "leads");
        lines.push(vec![
            row.address.clone(),
            row.state.to_owned(),
            of(&|report| report.term),
            of(&|report| report.last.number),
            of(&|report| newest - report.last.number),
            heard.map_or("-".to_owned(), |us| format!("{:.0} ms ago", us as f64 * MS_PER_US)),
        ]);
    }
    let is_alone = rows.iter().any(|row| row.state == "alone");
    let note = match (is_led || is_alone, rows.len()) {
        (false, _) => {
            "\nNo server leads: fewer than half of them are there, or they have just lost their leader.\n"
        }
        (true, 1) => {
            "\nOne server: if its machine is lost, so are all names. `shoal meta --help` shows how to add two.\n"
        }
        (true, 2) => "\nTwo servers: neither can go on without the other. Add a third one.\n",
        _ => "",
    };
    format!("{}{note}", table(&lines))
}
