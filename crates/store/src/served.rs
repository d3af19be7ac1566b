//! What an answer tells about its time: how long the request waited here, for what, and for which other brick.
//!
//! A write is committed by a task of its own, and others wait for it: its client's Sync, or the Write itself. So slow commits
//! are remembered for a while, and who has waited tells of the slowest one that ended meanwhile.

use std::collections::VecDeque;
use std::rc::Rc;

use types::messages::brick::Write;
use types::wire::{OtherServed, SERVED_MIN_US, Served, StageTimes};
use types::{Buf, ClientId, Epoch, Refusal};
use world::trace::{Span, SpanKind, Stage, Trace, late, span, take_waited};
use world::{Answer, Call};

use crate::lane::Ticket;
use crate::server::Server;

/// Most slow commits that are remembered.
const COMMITS_MAX: usize = 64;

struct SlowCommit {
    client: ClientId,
    until: u64,
    served: Served,
}

/// Slow commits, in the order in which they ended.
#[derive(Default)]
pub(crate) struct SlowCommits(VecDeque<SlowCommit>);

impl SlowCommits {
    fn note(&mut self, client: ClientId, until: u64, served: Served) {
        if self.0.len() == COMMITS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(SlowCommit { client, until, served });
    }

    /// The slowest commit of a client that has ended since `from`.
    pub(crate) fn slowest_since(&self, client: ClientId, from: u64) -> Option<Served> {
        let recent = self.0.iter().rev().take_while(|commit| commit.until >= from);
        let own = recent.filter(|commit| commit.client == client);
        own.map(|commit| commit.served).max_by_key(|served| served.own.total_us)
    }
}

impl Server {
    /// Answers one request. If the caller wants to know, an answer that took long tells where its time went.
    pub(crate) async fn answer_in_time(self: Rc<Server>, call: Call) -> Result<Answer, Refusal> {
        if !call.traced {
            return self.answer(call).await;
        }
        let (server, queued_us) = (self.clone(), take_waited());
        let (answer, waited) = late(&server.world, self.answer(call)).await;
        let answer = answer?;
        // A request that has waited neither here nor before is not slow.
        if waited.is_none() && queued_us < SERVED_MIN_US {
            return Ok(answer);
        }
        let now = server.world.turn_began();
        let (trace, begun) = waited.unwrap_or_else(|| (Trace::new(), now));
        let from = begun.saturating_sub(queued_us);
        let us = now.saturating_sub(from);
        if us < SERVED_MIN_US {
            return Ok(answer);
        }
        if from < begun {
            trace.add(Span { kind: SpanKind::Wait(Stage::Queue), from, until: begun });
        }
        Ok(answer.with_served(server.served(&trace, us)))
    }

    /// Carries an accepted write to its commit when it is its turn in the lane. If that is slow, it is remembered.
    pub(crate) async fn commit_in_turn(&self, epoch: Epoch, w: Write, payload: Buf, ticket: &Ticket) {
        let (client, trace, from) = (w.client, Trace::new(), self.world.now());
        let committing = async {
            span(&self.world, Stage::Lane, ticket.wait()).await;
            self.commit(epoch, w, payload).await;
        };
        trace.run(committing).await;
        self.note_commit(client, &trace, from);
    }

    /// Remembers a commit that began at `from`, if it was slow.
    fn note_commit(&self, client: ClientId, trace: &Trace, from: u64) {
        let now = self.world.now();
        let us = now.saturating_sub(from);
        if us >= SERVED_MIN_US {
            self.commits.borrow_mut().note(client, now, self.served(trace, us));
        }
    }

    /// What a request of `us` microseconds has waited for.
    fn served(&self, trace: &Trace, us: u64) -> Served {
        let map = self.shards.first().map.borrow().clone();
        let brick =
            |address: &str| map.bricks.iter().find(|info| info.address == address).map(|info| info.id);
        let other = |span: &Span| match &span.kind {
            SpanKind::Call { address, served, .. } => Some(OtherServed {
                brick: brick(address)?,
                took_us: short(span.us()),
                times: served.as_deref().map(|served| served.own).unwrap_or_default(),
            }),
            _ => None,
        };
        summed(us, &trace.take(), other, trace.take_served())
    }

    /// A client asks for bytes of a unit or stripe.
    pub(crate) fn count_asked_read(&self, len: u32) {
        let mut asked = self.asked.get();
        asked.reads += 1;
        asked.read_bytes += u64::from(len);
        self.asked.set(asked);
    }

    /// A client sends bytes.
    pub(crate) fn count_asked_write(&self, len: usize) {
        let mut asked = self.asked.get();
        asked.writes += 1;
        asked.written_bytes += len as u64;
        self.asked.set(asked);
    }
}

fn short(us: u64) -> u32 {
    u32::try_from(us).unwrap_or(u32::MAX)
}

/// Sums up the spans of a request of `us` microseconds; `commit` is what a task of its own has waited for. Spans at the same
/// time may add up to more than all: then they are cut to it.
fn summed(
    us: u64,
    spans: &[Span],
    other: impl Fn(&Span) -> Option<OtherServed>,
    commit: Option<Served>,
) -> Served {
    let sum = |stage: Stage| -> u64 {
        let is_it = |span: &&Span| matches!(&span.kind, SpanKind::Wait(this) if *this == stage);
        spans.iter().filter(is_it).map(Span::us).sum()
    };
    let commit = commit.unwrap_or_default();
    let mut rest = short(us);
    let mut part = |us: u64, more: u32| {
        let taken = short(us).saturating_add(more).min(rest);
        rest -= taken;
        taken
    };
    let own = StageTimes {
        total_us: short(us),
        device_us: part(sum(Stage::Device), commit.own.device_us),
        journal_us: part(sum(Stage::Journal), commit.own.journal_us),
        lane_us: part(sum(Stage::Lane), commit.own.lane_us),
        queue_us: part(sum(Stage::Queue), commit.own.queue_us),
    };
    let asked = spans.iter().filter_map(other).chain(commit.other);
    let other = asked.max_by_key(|other| other.took_us);
    Served { own, other }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::BrickId;

    fn wait(stage: Stage, us: u64) -> Span {
        Span { kind: SpanKind::Wait(stage), from: 5, until: 5 + us }
    }

    fn call(address: &str, us: u64) -> Span {
        let kind = SpanKind::Call { address: address.into(), request: "Prepare", credit_us: 0, served: None };
        Span { kind, from: 5, until: 5 + us }
    }

    fn other(span: &Span) -> Option<OtherServed> {
        let SpanKind::Call { address, .. } = &span.kind else { return None };
        let brick = BrickId(address.parse().ok()?);
        Some(OtherServed { brick, took_us: short(span.us()), times: StageTimes::default() })
    }

    #[test]
    fn waits_are_summed_and_the_slowest_brick_is_named() {
        let spans = [
            wait(Stage::Device, 10),
            wait(Stage::Lane, 5),
            wait(Stage::Device, 7),
            call("2", 30),
            call("3", 40),
        ];
        let served = summed(100, &spans, other, None);
        let expected = StageTimes { total_us: 100, queue_us: 0, lane_us: 5, journal_us: 0, device_us: 17 };
        assert_eq!(served.own, expected);
        assert_eq!(served.other.map(|other| (other.brick, other.took_us)), Some((BrickId(3), 40)));
        assert_eq!(summed(100, &[call("meta", 9)], other, None).other, None);
    }

    #[test]
    fn a_commit_that_was_waited_for_counts_and_no_sum_exceeds_the_whole() {
        let own = StageTimes { total_us: 90, queue_us: 0, lane_us: 60, journal_us: 30, device_us: 0 };
        let commit = Served { own, other: other(&call("4", 20)) };
        let served = summed(70, &[wait(Stage::Device, 10)], other, Some(commit));
        let expected = StageTimes { total_us: 70, queue_us: 0, lane_us: 30, journal_us: 30, device_us: 10 };
        assert_eq!((served.own, served.other), (expected, commit.other));
    }

    #[test]
    fn the_slowest_commit_of_late_is_found_and_few_are_kept() {
        let mut commits = SlowCommits::default();
        let served = |us| Served { own: StageTimes { total_us: us, ..StageTimes::default() }, other: None };
        for n in 0..1_000 {
            commits.note(ClientId(n % 2), n, served(1_000 - n as u32));
        }
        assert_eq!(commits.0.len(), COMMITS_MAX);
        assert_eq!(commits.slowest_since(ClientId(1), 990), Some(served(9)));
        assert_eq!(commits.slowest_since(ClientId(3), 0), None);
        assert_eq!(commits.slowest_since(ClientId(1), 1_000), None);
    }
}
