//! Who had a request's time: each moment counts for one cause, so that the shares add up to the whole.
//!
//! Of several waits at the same time, the one that ends last counts: the request went on when that one was over. Where nothing
//! is waited for, the layer counts that the request has entered last.

use std::collections::BTreeMap;

use super::requests::{Kind, Remembered, Request, Served, Server, Span, Times, Wait};

/// What a part of the time was spent on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Cause {
    /// Before the client had the request.
    Gate,
    /// A layer's own work, or a wait that is not measured.
    Layer(String),
    /// Room in the mount's budget for bytes that are not stable.
    Room,
    /// Pauses before a request was repeated.
    Pause,
    /// Something that was already under way for the file: `read-ahead`, or else writes.
    Underway(String),
    /// The metadata service, with the way there.
    Meta,
    /// A server that is in the cluster no more.
    Unknown,
    /// An answer that was ready waited for credit of the receive window.
    Credit,
    /// The way to a brick and back, and what came before the brick looked at the request.
    Network(u32),
    /// A stage at a brick.
    Brick(u32, Stage),
}

/// Where in a brick.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stage {
    Queue,
    Lane,
    Journal,
    Device,
    /// The work of its process.
    Process,
}

/// The shares of a request's time in microseconds, the greatest first.
pub(super) fn shares(request: &Request) -> Vec<(Cause, u64)> {
    let mut sums: BTreeMap<Cause, u64> = BTreeMap::new();
    let mut add = |cause: Cause, us: u64| *sums.entry(cause).or_default() += us;
    add(Cause::Gate, request.gate.min(request.took));
    for (from, until) in moments(request) {
        let is_open = |span: &&Span| span.from <= from && span.until() >= until;
        let waits = request.spans.iter().filter(|span| !matches!(span.kind, Kind::Layer(_)));
        match waits.filter(is_open).max_by_key(|span| span.until()) {
            Some(span) => {
                for (cause, us) in of_span(span, layer_at(request, span.from)) {
                    add(cause, scaled(us, until - from, span.took));
                }
            }
            None => add(Cause::Layer(layer_at(request, from)), until - from),
        }
    }
    let mut shares: Vec<(Cause, u64)> = sums.into_iter().filter(|(_, us)| *us > 0).collect();
    shares.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
    shares
}

/// The time from the gate to the end, cut wherever a span begins or ends.
fn moments(request: &Request) -> Vec<(u64, u64)> {
    let ends = request.spans.iter().flat_map(|span| [span.from, span.until()]);
    let (first, last) = (request.gate.min(request.took), request.took);
    let mut cuts: Vec<u64> = ends.chain([first, last]).map(|cut| cut.clamp(first, last)).collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// The layer that the request had entered last.
pub(super) fn layer_at(request: &Request, at: u64) -> String {
    let entered = request.spans.iter().filter_map(|span| match &span.kind {
        Kind::Layer(name) if span.from <= at => Some((span.from, name)),
        _ => None,
    });
    // Of several at the same time, the last one.
    let before = match request.op.as_str() {
        "send" => "write-behind",
        "fetch" => "read-ahead",
        _ => "the mount",
    };
    entered.max_by_key(|(from, _)| *from).map_or(before, |(_, name)| name.as_str()).to_owned()
}

/// `us` of `whole`, as a part of `part`.
fn scaled(us: u64, part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { (u128::from(us) * u128::from(part) / u128::from(whole)) as u64 }
}

fn of_span(span: &Span, layer: String) -> Vec<(Cause, u64)> {
    let one = |cause| vec![(cause, span.took)];
    match &span.kind {
        Kind::Layer(_) => Vec::new(),
        Kind::Wait(Wait::Queue) => one(Cause::Room),
        Kind::Wait(Wait::Pause) => one(Cause::Pause),
        Kind::Wait(Wait::Underway) => one(Cause::Underway(layer)),
        Kind::Wait(Wait::Lane | Wait::Journal | Wait::Device) => one(Cause::Layer(layer)),
        Kind::Call { server: Server::Meta, .. } => one(Cause::Meta),
        Kind::Call { server: Server::Unknown, .. } => one(Cause::Unknown),
        Kind::Call { server: Server::Brick(brick), credit, served, .. } => {
            of_call(*brick, span.took, *credit, served.as_ref())
        }
    }
}

/// The parts of a call that took so long. What a brick does itself and what it asks another one for go on at the same time: the
/// longer of the two counts.
pub(super) fn of_call(brick: u32, took: u64, credit: u64, served: Option<&Served>) -> Vec<(Cause, u64)> {
    let credit = credit.min(took);
    let (credited, took) = ((Cause::Credit, credit), took - credit);
    let Some(Served { own, other }) = served else { return vec![(Cause::Network(brick), took), credited] };
    let at = |brick: u32, times: &Times| {
        let stages = [
            (Stage::Queue, times.queue),
            (Stage::Lane, times.lane),
            (Stage::Journal, times.journal),
            (Stage::Device, times.device),
            (Stage::Process, times.rest()),
        ];
        stages.map(|(stage, us)| (Cause::Brick(brick, stage), us))
    };
    let total = own.total.min(took);
    let mut parts = vec![(Cause::Network(brick), took - total)];
    match other {
        Some((other, other_took, times)) if *other_took > own.journal.saturating_add(own.device) => {
            let before = own.queue.saturating_add(own.lane);
            let theirs = (*other_took).min(total.saturating_sub(before));
            let rest = total.saturating_sub(before.saturating_add(theirs));
            let own = Times { total: before.saturating_add(rest), journal: 0, device: 0, ..*own };
            parts.extend(at(brick, &own));
            parts.push((Cause::Network(*other), theirs.saturating_sub(times.total)));
            let inside = times.total.min(theirs);
            parts.extend(at(*other, times).map(|(cause, us)| (cause, scaled(us, inside, times.total))));
        }
        _ => parts.extend(at(brick, own)),
    }
    // What a brick tells may exceed the whole: stages at the same time, or a brick that is wrong.
    let sum: u64 = parts.iter().map(|(_, us)| *us).fold(0, u64::saturating_add);
    if sum > took {
        parts.iter_mut().for_each(|(_, us)| *us = scaled(*us, took, sum));
    }
    parts.push(credited);
    parts
}

/// What a request has waited for that was already under way: the request of the same file that took most of that time.
pub(super) fn underway<'a>(remembered: &'a Remembered, request: &Request) -> Option<&'a Request> {
    let waits = request.spans.iter().filter(|span| span.kind == Kind::Wait(Wait::Underway));
    let wait = waits.max_by_key(|span| span.took)?;
    let (from, until) = (clock(request, wait.from), clock(request, wait.until()));
    let overlap = |other: &&Request| {
        let (begun, ended) = (clock(other, 0), clock(other, other.took));
        until.min(ended) - from.max(begun)
    };
    let others = remembered.requests.iter().filter(|other| *other != request && other.inode == request.inode);
    others.filter(|other| overlap(other) > 0).max_by_key(|other| overlap(other))
}

/// A time of a request, counted from now.
fn clock(request: &Request, at: u64) -> i128 {
    i128::from(at) - i128::from(request.age) - i128::from(request.gate)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn span(kind: Kind, from: u64, took: u64) -> Span {
        Span { kind, from, took }
    }

    pub(in super::super) fn layer(name: &str, from: u64) -> Span {
        span(Kind::Layer(name.to_owned()), from, 0)
    }

    pub(in super::super) fn call(server: Server, from: u64, took: u64, served: Option<Served>) -> Span {
        span(Kind::Call { request: "ReadUnit".into(), server, credit: 0, served }, from, took)
    }

    pub(in super::super) fn read(took: u64, spans: Vec<Span>) -> Request {
        Request { op: "read".into(), inode: 7, len: 4096, age: took, took, spans, ..Request::default() }
    }

    pub(in super::super) fn device(total: u64, device: u64) -> Served {
        Served { own: Times { total, device, ..Times::default() }, other: None }
    }

    fn at(brick: u32, stage: Stage) -> Cause {
        Cause::Brick(brick, stage)
    }

    #[test]
    fn each_moment_counts_once() {
        let brick = Server::Brick(3);
        let spans = vec![
            layer("auto", 10),
            layer("write-behind", 20),
            call(Server::Meta, 30, 100, None),
            call(brick, 130, 800, Some(device(720, 640))),
            // At the same time, and sooner over.
            call(Server::Brick(4), 130, 300, Some(device(300, 300))),
        ];
        let request = Request { gate: 10, ..read(1_000, spans) };
        let expected = [
            (at(3, Stage::Device), 640),
            (Cause::Meta, 100),
            (Cause::Network(3), 80),
            (at(3, Stage::Process), 80),
            (Cause::Layer("write-behind".into()), 80),
            (Cause::Gate, 10),
            (Cause::Layer("auto".into()), 10),
        ];
        let mut found = shares(&request);
        assert_eq!(found.iter().map(|(_, us)| us).sum::<u64>(), 1_000);
        found.sort_by_key(|(cause, us)| (std::cmp::Reverse(*us), cause.clone()));
        let mut expected = expected.to_vec();
        expected.sort_by_key(|(cause, us)| (std::cmp::Reverse(*us), cause.clone()));
        assert_eq!(found, expected);
    }

    #[test]
    fn waits_of_the_mount_have_their_causes() {
        let wait = |wait| vec![layer("read-ahead", 0), span(Kind::Wait(wait), 0, 1_000)];
        for (kind, cause) in [
            (Wait::Queue, Cause::Room),
            (Wait::Pause, Cause::Pause),
            (Wait::Underway, Cause::Underway("read-ahead".into())),
        ] {
            assert_eq!(shares(&read(1_000, wait(kind))), [(cause, 1_000)]);
        }
        assert_eq!(shares(&read(5, Vec::new())), [(Cause::Layer("the mount".into()), 5)]);
    }

    #[test]
    fn the_brick_that_another_brick_waits_for_is_found() {
        let own = Times { total: 900, lane: 100, journal: 300, ..Times::default() };
        let times = Times { total: 700, journal: 650, ..Times::default() };
        let served = Served { own, other: Some((5, 750, times)) };
        let mut parts = of_call(3, 1_000, 0, Some(&served));
        parts.retain(|(_, us)| *us > 0);
        let expected = [
            (Cause::Network(3), 100),
            (at(3, Stage::Lane), 100),
            (at(3, Stage::Process), 50),
            (Cause::Network(5), 50),
            (at(5, Stage::Journal), 650),
            (at(5, Stage::Process), 50),
        ];
        assert_eq!(parts, expected);
        // A quicker one does not count.
        let served = Served { own, other: Some((5, 200, times)) };
        assert!(
            of_call(3, 1_000, 0, Some(&served))
                .iter()
                .all(|(cause, us)| *us == 0 || *cause != Cause::Network(5))
        );
        assert_eq!(of_call(3, 1_000, 300, None), [(Cause::Network(3), 700), (Cause::Credit, 300)]);
        // A brick cannot claim more than the whole.
        let sum: u64 = of_call(3, 10, 0, Some(&device(9_999, 9_999))).iter().map(|(_, us)| us).sum();
        assert!(sum <= 10);
        let request = read(10, vec![call(Server::Brick(3), 0, 10, Some(device(9_999, 9_999)))]);
        assert_eq!(shares(&request)[0].0, at(3, Stage::Device));
    }

    #[test]
    fn what_was_under_way_is_the_request_of_the_file_at_that_time() {
        let waiting = read(1_000, vec![layer("write-behind", 0), span(Kind::Wait(Wait::Underway), 100, 900)]);
        let other = |op: &str, inode, age| Request { op: op.into(), inode, age, ..read(800, Vec::new()) };
        let (long_ago, send, elsewhere) =
            (other("send", 7, 50_000), other("send", 7, 900), other("send", 8, 900));
        let requests = vec![waiting.clone(), elsewhere, long_ago, send.clone()];
        let remembered = Remembered { open: None, requests };
        assert_eq!(underway(&remembered, &waiting), Some(&send));
        assert_eq!(underway(&remembered, &send), None);
    }
}
