//! Why a request was slow, in a sentence, and what can be done.

use super::requests::{Remembered, Request};
use super::shares::{Cause, Stage, shares, underway};

/// Why a request was slow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    pub(super) cause: Cause,
    /// The time that it had, in microseconds.
    pub(super) us: u64,
    /// It held up another request, and this one had to wait for that.
    pub(super) via: Option<String>,
    pub(super) sentence: String,
    pub(super) remedy: String,
}

/// Why a request was slow. `None` if it took no time. `target` is how the user has named the mount, file or gate.
pub(super) fn verdict(remembered: &Remembered, request: &Request, target: &str) -> Option<Verdict> {
    let (cause, us) = shares(request).into_iter().next()?;
    let linked = match &cause {
        Cause::Underway(_) => underway(remembered, request)
            .and_then(|other| Some((other.op.clone(), shares(other).into_iter().next()?.0)))
            // That one waited for a third request: this says no more.
            .filter(|(_, cause)| !matches!(cause, Cause::Underway(_))),
        _ => None,
    };
    let (via, cause) = linked.map_or((None, cause), |(op, cause)| (Some(op), cause));
    let head = if us * 2 >= request.took {
        format!("{} of {} were spent", short_ms(us), ms(request.took))
    } else {
        format!("the longest part, {} of {}, was spent", short_ms(us), ms(request.took))
    };
    let (what, remedy) = explained(&cause, target);
    let waiting = match via.as_deref() {
        Some("fetch") => " waiting for bytes that read-ahead was fetching, and that fetch was slow:",
        Some("send") => " waiting for a write that was already under way, and that write was slow:",
        Some(_) => " waiting for another request of the same file, which was slow:",
        None => "",
    };
    Some(Verdict { us, sentence: format!("{head}{waiting} {what}"), remedy, via, cause })
}

/// What a cause means, and what can be done.
fn explained(cause: &Cause, target: &str) -> (String, String) {
    let both = |what: &str, remedy: String| (what.to_owned(), remedy);
    match cause {
        Cause::Gate => both(
            "waiting for a free thread of the mount or gate",
            "`--threads` with a greater number when it is started".into(),
        ),
        Cause::Room => both(
            "waiting for room in the budget for bytes that are not stable yet: programs write faster than the bricks take it",
            "`--memory` with more when it is mounted; what the bricks were slow at stands beside: `shoal why --slow`".into(),
        ),
        Cause::Pause => both(
            "in pauses before a request was repeated: a brick or the metadata service refused or did not answer",
            "`shoal status` shows which bricks are silent or out".into(),
        ),
        Cause::Underway(layer) if layer == "read-ahead" => both(
            "waiting for bytes that read-ahead was fetching",
            format!("`shoal tune {target} read-ahead.window=...` with more, if a program reads on for long"),
        ),
        Cause::Underway(_) => both(
            "waiting for writes of the same file that were already under way",
            "programs that write less between two waits; `shoal why` again shows what those writes waited for".into(),
        ),
        Cause::Meta => both(
            "waiting for the metadata service, with the way there",
            "`shoal status` shows its longest turn; a faster disk for its --store, or no other load on its machine".into(),
        ),
        Cause::Unknown => both("at a server that is in the cluster no more", "`shoal status` shows the bricks".into()),
        Cause::Layer(layer) if layer == "the mount" => both(
            "in the mount itself, before the request entered the first layer: its CPU was busy, or another client held the file",
            "`top` on this machine; `shoal status` for other mounts".into(),
        ),
        Cause::Layer(layer) => (
            format!("in the mount itself, in the layer {layer}: its CPU was busy, or the layer waited"),
            format!("`top` on this machine; `shoal tune {target}` shows what the layer is set to"),
        ),
        Cause::Credit => (
            "in waiting for credit: the answer was ready, and the receive window of this machine was full".into(),
            format!("`shoal xray {target}` says how large the window is and why; `shoal net probe` measures the way here"),
        ),
        Cause::Network(brick) => (
            format!("on the network to brick b{brick} and back, or before its process looked at the request"),
            format!("`ping` from here to the address that `shoal status` has for b{brick}; there, `longest turn` and `top` show a busy process"),
        ),
        Cause::Brick(brick, stage) => at_brick(*brick, *stage),
    }
}

fn at_brick(brick: u32, stage: Stage) -> (String, String) {
    match stage {
        Stage::Device => (
            format!("waiting for the device of brick b{brick}"),
            format!("`iostat -x 1` on its machine shows whether the device is busy or slow; `shoal brick replace b{brick} NEW` once it is stopped for good"),
        ),
        Stage::Journal => (
            format!("waiting until brick b{brick} had synced its journal, which its device does"),
            format!("fewer fsyncs, or a device for b{brick} that syncs faster, such as an SSD with power-loss protection: `shoal brick replace b{brick} NEW`"),
        ),
        Stage::Queue => (
            format!("waiting for room at brick b{brick}: it had accepted many writes, or its journal was full"),
            format!("`shoal status` shows whether b{brick} is slower than the others; more bricks spread the writes"),
        ),
        Stage::Lane => (
            format!("at brick b{brick}, waiting for earlier operations on the same stripe"),
            "programs and machines that do not write the same 64 KiB to 2 MiB at the same time; larger writes".into(),
        ),
        Stage::Process => (
            format!("in the process of brick b{brick}: its CPU was busy"),
            format!("`shoal status` shows the longest turn of b{brick}, `top` on its machine what else runs there"),
        ),
    }
}

/// A time for people.
pub(super) fn ms(us: u64) -> String {
    format!("{} ms", short_number(us))
}

/// The same without the unit.
fn short_ms(us: u64) -> String {
    short_number(us)
}

fn short_number(us: u64) -> String {
    if us >= 10_000 { (us / 1_000).to_string() } else { format!("{:.1}", us as f64 / 1_000.0) }
}

#[cfg(test)]
mod tests {
    use super::super::requests::{Kind, Served, Server, Times, Wait};
    use super::super::shares::tests::{call, device, layer, read, span};
    use super::*;

    fn said(spans: Vec<super::super::requests::Span>) -> Verdict {
        let request = read(52_000, spans);
        let remembered = Remembered { open: None, requests: vec![request.clone()] };
        verdict(&remembered, &request, "/mnt/a").expect("a verdict")
    }

    #[test]
    fn every_cause_has_its_sentence_and_remedy() {
        let served = |own: Times| Some(Served { own, other: None });
        let brick = |own: Times| vec![call(Server::Brick(3), 0, 52_000, served(own))];
        let total = 52_000;
        let wait = |kind| vec![layer("write-behind", 0), span(Kind::Wait(kind), 0, total)];
        let table: [(Vec<super::super::requests::Span>, &str, &str); 12] = [
            (
                brick(device(total, 41_000).own),
                "41 of 52 ms were spent waiting for the device of brick b3",
                "shoal brick replace b3",
            ),
            (
                brick(Times { total, journal: 30_000, ..Times::default() }),
                "until brick b3 had synced its journal",
                "fewer fsyncs",
            ),
            (
                brick(Times { total, queue: 30_000, ..Times::default() }),
                "for room at brick b3",
                "shoal status",
            ),
            (
                brick(Times { total, lane: 30_000, ..Times::default() }),
                "earlier operations on the same stripe",
                "larger writes",
            ),
            (brick(Times { total, ..Times::default() }), "in the process of brick b3", "longest turn"),
            (vec![call(Server::Brick(3), 0, 52_000, None)], "on the network to brick b3", "ping"),
            (vec![call(Server::Meta, 0, 52_000, None)], "waiting for the metadata service", "--store"),
            (vec![call(Server::Unknown, 0, 52_000, None)], "in the cluster no more", "shoal status"),
            (wait(Wait::Queue), "room in the budget", "--memory"),
            (wait(Wait::Pause), "before a request was repeated", "silent or out"),
            (wait(Wait::Underway), "writes of the same file that were already under way", "shoal why"),
            (vec![layer("io-cache", 0)], "in the layer io-cache", "shoal tune /mnt/a"),
        ];
        for (spans, sentence, remedy) in table {
            let found = said(spans);
            assert!(found.sentence.contains(sentence), "{}", found.sentence);
            assert!(found.remedy.contains(remedy), "{}", found.remedy);
        }
        let gate = Request { gate: 9_000, ..read(10_000, Vec::new()) };
        let found = verdict(&Remembered::default(), &gate, "/mnt/a").expect("a verdict");
        assert!(found.remedy.contains("--threads"), "{found:?}");
        assert_eq!(verdict(&Remembered::default(), &read(0, Vec::new()), ""), None);
    }

    #[test]
    fn a_part_that_is_less_than_half_is_only_the_longest() {
        let calls =
            (0..4).map(|n| call(Server::Brick(n), u64::from(n) * 13_000, 12_000 + u64::from(n), None));
        let found = said(calls.collect());
        assert!(
            found.sentence.starts_with("the longest part, 12 of 52 ms, was spent on the network"),
            "{found:?}"
        );
    }

    #[test]
    fn what_held_up_a_request_that_was_waited_for_is_named() {
        let waiting = read(50_000, vec![layer("read-ahead", 0), span(Kind::Wait(Wait::Underway), 0, 50_000)]);
        let spans = vec![call(Server::Brick(4), 0, 49_000, Some(device(48_000, 48_000)))];
        let fetch = Request { op: "fetch".into(), age: 50_000, ..read(49_000, spans) };
        let remembered = Remembered { open: None, requests: vec![waiting.clone(), fetch] };
        let found = verdict(&remembered, &waiting, "/mnt/a").expect("a verdict");
        assert_eq!((found.cause, found.via.as_deref()), (Cause::Brick(4, Stage::Device), Some("fetch")));
        assert!(
            found.sentence.contains("read-ahead was fetching")
                && found.sentence.contains("device of brick b4")
        );
    }
}
