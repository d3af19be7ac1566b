//! `shoal brick tune`: shows and changes the queue in front of a brick's device.

use clap::Args;
use pace::device::PolicyName;
use pace::{IoClass, Share};
use serde_json::{Value, json};
use types::messages::cluster::BrickState;
use types::messages::queue::{BrickTune, ClassReport, ClassShare, QueueParameter, QueueReport};
use types::{BrickId, Epoch, Refusal};
use world::CallError;
use world::direct::DEPTH_MAX;

use super::replace::brick_id;
use crate::output::{Output, table};
use crate::problem::problem;
use crate::remote::{ConnectionArgs, Remote};
use crate::size::Size;

/// Shows and changes the queue in front of the device of a brick with --io direct, until the brick restarts
#[derive(Args)]
#[command(after_help = "\
KEY=VALUE is one of:
  depth=N              requests that the device has at a time, besides those of the journal
  CLASS.reservation=N  thousandths of the device's time that a class gets whenever it asks
  CLASS.weight=N       its part of what is left, in proportion to the weights of other classes
  CLASS.limit=N        thousandths that it gets at most
  scheduler=POLICY     in which order requests of a class go: noop, deadline, cfq, bfq, kyber, slq-nearest,
                       slq-lisf-first, slq-auto (see `shoal sim sched`)
  PARAMETER=N          what the policy goes by: --json without a change shows all. Sizes such as 512K are bytes, times are
                       microseconds
CLASS is read, write (both by clients), fold, rebuild or scrub. The journal goes first, always. To cfq and bfq all requests
of a class are those of one process.

Examples:
  shoal brick tune b3                                   shows the queue
  shoal brick tune b3 depth=8 rebuild.weight=50
  shoal brick tune b3 rebuild.reservation=300           a rebuild that must end soon")]
pub(super) struct TuneArgs {
    /// The brick
    #[arg(value_parser = brick_id)]
    brick: BrickId,
    /// What to change; nothing to show it
    #[arg(value_name = "KEY=VALUE")]
    changes: Vec<String>,
    #[command(flatten)]
    cluster: ConnectionArgs,
}

pub(super) fn run(args: &TuneArgs, output: &Output) -> anyhow::Result<()> {
    let remote = Remote::new(&args.cluster.target()?)?;
    let map = remote.status()?.map;
    let brick = args.brick;
    let info = map.brick(brick).ok_or_else(|| {
        problem(format!("the cluster has no brick {brick}"), "`shoal status` shows its bricks")
    })?;
    if info.state != BrickState::Up {
        return Err(problem(format!("{brick} is not up"), "start its process first"));
    }
    let report = remote.bricks(&map).remove(&brick);
    let report = report.ok_or_else(|| problem(format!("{brick} does not answer"), "`shoal status`"))?;
    let mut queue = report.queue.ok_or_else(|| {
        let what = format!("{brick} has no queue of its own: its I/O is buffered");
        problem(what, "start it with --io direct; if it was, its log says why its disk cannot do that")
    })?;
    if !args.changes.is_empty() {
        let request = changed(&queue, &args.changes)?;
        queue = remote.primary(&info.address, Epoch::default(), &request).map_err(|error| match error {
            CallError::Refused(Refusal::Invalid) => {
                problem(format!("{brick} does not take these settings"), "its log says why")
            }
            error => anyhow::anyhow!("{brick}: {error}"),
        })?;
    }
    output.answer(&document(brick, &queue), || words(&queue));
    Ok(())
}

/// The request that makes the changes.
fn changed(queue: &QueueReport, changes: &[String]) -> anyhow::Result<BrickTune> {
    let (mut depth, mut policy, mut parameters) = (None, None, Vec::new());
    let mut shares: Vec<ClassShare> = Vec::new();
    for change in changes {
        let wrong =
            |why: String| problem(format!("`{change}`: {why}"), "`shoal brick tune --help` has the keys");
        let (key, value) = change.split_once('=').ok_or_else(|| wrong("it has no `=`".to_owned()))?;
        if key == "scheduler" {
            let known: PolicyName = value.parse().map_err(|refusal| wrong(format!("{refusal}")))?;
            policy = Some(known.word().to_owned());
            continue;
        }
        if queue.parameters.iter().any(|known| known.name == key) {
            let size: Size =
                value.parse().map_err(|_| wrong(format!("`{value}` is no number and no size")))?;
            pace::device::Parameters::default()
                .set(key, size.0)
                .map_err(|refusal| wrong(format!("{refusal}")))?;
            parameters.push(QueueParameter { name: key.to_owned(), value: size.0 });
            continue;
        }
        let value: u32 = value.parse().map_err(|_| wrong(format!("`{value}` is no whole number")))?;
        if key == "depth" {
            if !(1..=DEPTH_MAX).contains(&value) {
                return Err(wrong(format!("a depth is 1 to {DEPTH_MAX}")));
            }
            depth = Some(value);
            continue;
        }
        let (class, what) = key.split_once('.').ok_or_else(|| wrong(format!("there is no key `{key}`")))?;
        let class: IoClass = class.parse().map_err(wrong)?;
        let at = match shares.iter().position(|share| share.class == class.word()) {
            Some(at) => at,
            None => {
                let known = queue.classes.iter().find(|report| report.share.class == class.word());
                let known = known.ok_or_else(|| wrong(format!("the brick has no class `{class}`")))?;
                shares.push(known.share.clone());
                shares.len() - 1
            }
        };
        match what {
            "reservation" => shares[at].reservation = value,
            "weight" => shares[at].weight = value,
            "limit" => shares[at].limit = value,
            _ => return Err(wrong(format!("a class has reservation, weight and limit, not `{what}`"))),
        }
    }
    // The brick would only say that it is wrong.
    let mut classes = pace::Classes::default();
    let new = |report: &ClassReport| {
        let share = shares.iter().find(|share| share.class == report.share.class).unwrap_or(&report.share);
        let class: IoClass = share.class.parse().ok()?;
        let ClassShare { reservation, weight, limit, .. } = *share;
        let is_fixed = class == IoClass::Journal && *share == report.share;
        (!is_fixed).then_some((class, Share { reservation, weight, limit }))
    };
    let all: Vec<(IoClass, Share)> = queue.classes.iter().filter_map(new).collect();
    classes
        .set_shares(&all, 0)
        .map_err(|why| problem(why, "`shoal brick tune` without changes shows all shares"))?;
    Ok(BrickTune { depth, policy, parameters, shares })
}

fn document(brick: BrickId, queue: &QueueReport) -> Value {
    let class = |report: &ClassReport| {
        json!({
            "class": report.share.class,
            "reservation": report.share.reservation,
            "weight": report.share.weight,
            "limit": report.share.limit,
            "requests": report.requests,
            "waited_us": report.waited_us,
        })
    };
    let parameters: serde_json::Map<String, Value> =
        queue.parameters.iter().map(|known| (known.name.clone(), known.value.into())).collect();
    json!({
        "brick": brick.to_string(),
        "depth": queue.depth,
        "scheduler": queue.policy,
        "parameters": parameters,
        "merges": queue.merges,
        "expiries": queue.expiries,
        "waiting": queue.waiting,
        "at_device": queue.at_device,
        "cache_used": queue.cache_used,
        "cache_most": queue.cache_most,
        "cached_bytes": queue.cached_bytes,
        "classes": queue.classes.iter().map(class).collect::<Vec<_>>(),
    })
}

fn words(queue: &QueueReport) -> String {
    let head = ["class", "reserved", "weight", "limit", "requests", "mean wait"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for report in &queue.classes {
        let ClassShare { class, reservation, weight, limit } = &report.share;
        let wait = report.waited_us.checked_div(report.requests).unwrap_or(0);
        let share = match class.parse() {
            Ok(IoClass::Journal) => ["first, always".to_owned(), String::new(), String::new()],
            _ => [per_cent(*reservation), weight.to_string(), per_cent(*limit)],
        };
        let mut row = vec![class.clone()];
        row.extend(share);
        row.extend([report.requests.to_string(), format!("{wait} us")]);
        rows.push(row);
    }
    format!(
        "{} requests wait, {} are at the device, which has {} at a time; order within a class: {}\n{} of {} of blocks in memory; {} were read from there\n\n{}",
        queue.waiting,
        queue.at_device,
        queue.depth,
        queue.policy,
        Size(queue.cache_used),
        Size(queue.cache_most),
        Size(queue.cached_bytes),
        table(&rows)
    )
}

fn per_cent(thousandths: u32) -> String {
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::remedy;

    fn queue() -> QueueReport {
        let class = |class: IoClass| {
            let Share { reservation, weight, limit } = Share::of(class);
            let share = ClassShare { class: class.word().to_owned(), reservation, weight, limit };
            ClassReport { share, requests: 3, waited_us: 300 }
        };
        QueueReport {
            depth: 32,
            policy: "noop".to_owned(),
            parameters: vec![QueueParameter { name: "read-priority".to_owned(), value: 512 << 10 }],
            merges: 0,
            expiries: 0,
            waiting: 0,
            at_device: 1,
            classes: IoClass::ALL.map(class).to_vec(),
            cache_used: 0,
            cache_most: 1 << 26,
            cached_bytes: 0,
        }
    }

    fn asked(changes: &[&str]) -> anyhow::Result<BrickTune> {
        changed(&queue(), &changes.iter().map(|change| (*change).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn changes_of_a_class_go_together_and_the_rest_of_its_share_stays() {
        let words = [
            "rebuild.weight=50",
            "depth=8",
            "scrub.limit=100",
            "rebuild.reservation=20",
            "scheduler=slq-auto",
        ];
        let request = asked(&[&words[..], &["read-priority=64K"]].concat()).expect("sound");
        assert_eq!((request.depth, request.policy.as_deref()), (Some(8), Some("slq-auto")));
        assert_eq!(
            request.parameters,
            [QueueParameter { name: "read-priority".to_owned(), value: 64 << 10 }]
        );
        let found: Vec<(&str, u32, u32, u32)> = request
            .shares
            .iter()
            .map(|share| (&*share.class, share.reservation, share.weight, share.limit))
            .collect();
        assert_eq!(found, [("rebuild", 20, 50, 1_000), ("scrub", 0, 20, 100)]);
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for (changes, words) in [
            (&["depth"][..], "it has no `=`"),
            (&["depth=0"], "a depth is 1 to 1024"),
            (&["depth=many"], "`many` is no whole number"),
            (&["scheduler=lottery"], "`lottery` is no policy: noop, deadline"),
            (&["read-priority=fast"], "`fast` is no number and no size"),
            (&["read-priority=1G"], "out of range"),
            (&["speed=3"], "there is no key `speed`"),
            (&["tape.weight=3"], "there is no class `tape`"),
            (&["fold.height=3"], "not `height`"),
            (&["fold.weight=0"], "a weight is 1 to 10000, not 0"),
            (&["journal.weight=9"], "the journal goes first"),
            (&["read.reservation=900"], "thousandths together"),
        ] {
            let error = asked(changes).expect_err(words);
            assert!(format!("{error:#}").contains(words), "{changes:?}: {error:#}");
            assert!(remedy(&error).is_some(), "{changes:?}");
        }
    }

    #[test]
    fn the_table_has_every_class() {
        let text = words(&queue());
        assert!(IoClass::ALL.into_iter().all(|class| text.contains(class.word())), "{text}");
        assert!(
            text.contains("first, always") && text.contains("25.0 %") && text.contains("100 us"),
            "{text}"
        );
    }
}
