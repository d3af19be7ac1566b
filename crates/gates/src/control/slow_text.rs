//! The slowest requests of a mount or file, the slowest first, as lines:
//!
//! | line | what it says |
//! |---|---|
//! | `open yes` | whether the file is open here; not for a mount |
//! | `request OP inode N offset N len N age US gate US took US failed no` | a request: when it began, how long it waited in the gate, how long it took in all |
//! | `span layer NAME from US took 0` | it entered a layer, so long after the gate had it |
//! | `span wait STAGE from US took US` | it waited |
//! | `span call REQUEST meta from US took US` | it asked the metadata service |
//! | `span call REQUEST brick N from US took US` | it asked a brick, which was quick or did not answer |
//! | `... credit US` | how long the answer, which was ready, waited for credit of the receive window here |
//! | `... served TOTAL QUEUE LANE JOURNAL DEVICE` | how long the brick had it, and what it waited for there |
//! | `... other N TOOK TOTAL QUEUE LANE JOURNAL DEVICE` | the brick that this brick waited for |
//!
//! All times are in microseconds. Spans belong to the request above them.

use client::{Asked, Mount, Server, SlowKind, SlowRequest, SlowSpan};
use types::InodeId;
use types::wire::{Served, StageTimes};
use world::trace::Stage;

/// The slowest requests of the mount, or of a file, at the time `now` of the mount's clock.
pub(crate) fn slow_text(mount: &Mount, inode: Option<InodeId>, now: u64) -> String {
    let open = inode.map(|inode| format!("open {}\n", yes(mount.is_open(inode)))).unwrap_or_default();
    let requests = mount.slow_requests(inode, now);
    requests.iter().fold(open, |text, request| text + &request_text(request, now))
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

fn request_text(request: &SlowRequest, now: u64) -> String {
    let SlowRequest { asked: Asked { op, inode, offset, len }, begun, gate_us, took_us, failed, spans } =
        request;
    let (inode, age, failed) = (inode.0, now.saturating_sub(*begun), yes(*failed));
    let head = format!(
        "request {op} inode {inode} offset {offset} len {len} age {age} gate {gate_us} took {took_us} failed {failed}\n"
    );
    spans.iter().fold(head, |text, span| text + &span_text(span))
}

fn span_text(span: &SlowSpan) -> String {
    let when = format!("from {} took {}", span.from_us, span.took_us);
    match &span.kind {
        SlowKind::Layer(name) => format!("span layer {name} {when}\n"),
        SlowKind::Wait(stage) => format!("span wait {} {when}\n", stage_name(*stage)),
        SlowKind::Call { request, server, credit_us, served } => {
            let server = match server {
                Server::Meta => "meta".to_owned(),
                Server::Brick(brick) => format!("brick {}", brick.0),
                Server::Unknown => "unknown".to_owned(),
            };
            let credit = if *credit_us > 0 { format!(" credit {credit_us}") } else { String::new() };
            format!(
                "span call {request} {server} {when}{credit}{}\n",
                served.as_ref().map(served_text).unwrap_or_default()
            )
        }
    }
}

fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Queue => "queue",
        Stage::Lane => "lane",
        Stage::Journal => "journal",
        Stage::Device => "device",
        Stage::Pause => "pause",
        Stage::Underway => "underway",
    }
}

fn served_text(served: &Served) -> String {
    let times = |times: &StageTimes| {
        let StageTimes { total_us, queue_us, lane_us, journal_us, device_us } = times;
        format!("{total_us} {queue_us} {lane_us} {journal_us} {device_us}")
    };
    let other = served.other.as_ref();
    let other =
        other.map(|other| format!(" other {} {} {}", other.brick.0, other.took_us, times(&other.times)));
    format!(" served {}{}", times(&served.own), other.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::BrickId;
    use types::wire::OtherServed;

    #[test]
    fn a_request_and_each_of_its_spans_is_a_line() {
        let asked = Asked { op: "read", inode: InodeId(12), offset: 4096, len: 512 };
        let times = |total_us| StageTimes { total_us, queue_us: 1, lane_us: 2, journal_us: 3, device_us: 4 };
        let other = Some(OtherServed { brick: BrickId(5), took_us: 80, times: times(70) });
        let call =
            |server, credit_us, served| SlowKind::Call { request: "ReadUnit", server, credit_us, served };
        let kinds = [
            SlowKind::Layer("auto"),
            SlowKind::Wait(Stage::Queue),
            call(Server::Meta, 0, None),
            call(Server::Brick(BrickId(3)), 40, Some(Served { own: times(90), other: None })),
            call(Server::Brick(BrickId(4)), 0, Some(Served { own: times(90), other })),
        ];
        let spans = kinds.map(|kind| SlowSpan { kind, from_us: 7, took_us: 100 });
        let request = SlowRequest {
            asked,
            begun: 1_000,
            gate_us: 6,
            took_us: 5_000,
            failed: false,
            spans: spans.into(),
        };
        let expected = "request read inode 12 offset 4096 len 512 age 500 gate 6 took 5000 failed no\n\
                        span layer auto from 7 took 100\n\
                        span wait queue from 7 took 100\n\
                        span call ReadUnit meta from 7 took 100\n\
                        span call ReadUnit brick 3 from 7 took 100 credit 40 served 90 1 2 3 4\n\
                        span call ReadUnit brick 4 from 7 took 100 served 90 1 2 3 4 other 5 80 70 1 2 3 4\n";
        assert_eq!(request_text(&request, 1_500), expected);
    }
}
