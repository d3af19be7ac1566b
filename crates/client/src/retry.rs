//! Retries after a failed request: how long to wait, which server to ask instead, when to give up.

use futures_util::future::join_all;
use types::messages::brick::ReadStripe;
use types::wire::Request;
use types::{Buf, GroupId, Refusal, RetryAction, StripeKey};
use world::{CallError, World};

use crate::error::ClientError;
use crate::mount::Counter;
use crate::read::Part;
use crate::session::Session;

/// How long the client retries before it reports that no server answers, in microseconds.
pub(crate) const RETRY_BUDGET_US: u64 = 60_000_000;
/// First pause between two tries, in microseconds; each further one is twice as long.
const PAUSE_MIN_US: u64 = 5_000;
/// Longest pause between two tries, in microseconds.
const PAUSE_MAX_US: u64 = 400_000;

/// What to do after a call that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Fetch the map, pause, try again.
    Refresh,
    /// Pause, try again.
    Again,
    /// The error is final.
    GiveUp(ClientError),
}

/// What to do after `error` from a primary.
pub(crate) fn verdict(error: CallError) -> Verdict {
    match error {
        CallError::Unreachable => Verdict::Refresh,
        CallError::Refused(refusal) => match refusal.retry_action() {
            RetryAction::RefreshMap => Verdict::Refresh,
            // When a primary serves again, the epoch may be new.
            RetryAction::Wait => Verdict::Refresh,
            RetryAction::AskPrimary if refusal == Refusal::Corrupt => Verdict::GiveUp(error.into()),
            RetryAction::AskPrimary => Verdict::Again,
            RetryAction::GiveUp => Verdict::GiveUp(error.into()),
        },
        other => Verdict::GiveUp(other.into()),
    }
}

/// The pause before try number `tries + 1`, in microseconds.
pub(crate) fn backoff_us(tries: u32, chance: u64) -> u64 {
    let whole = (PAUSE_MIN_US << tries.min(10)).min(PAUSE_MAX_US);
    whole / 2 + chance % (whole / 2)
}

/// The time that one caller may spend on retries.
pub(crate) struct RetryBudget {
    world: World,
    until: u64,
    tries: u32,
}

impl RetryBudget {
    pub(crate) fn new(world: &World) -> RetryBudget {
        RetryBudget { world: world.clone(), until: world.now() + RETRY_BUDGET_US, tries: 0 }
    }

    /// Fails when the time has run out.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        if self.world.now() < self.until { Ok(()) } else { Err(ClientError::Unreachable) }
    }

    /// Pauses, longer each time; fails when the time has run out.
    pub(crate) async fn backoff(&mut self) -> Result<(), ClientError> {
        self.check()?;
        self.world.sleep(backoff_us(self.tries, self.world.random())).await;
        self.tries += 1;
        Ok(())
    }
}

impl Session {
    /// Reads parts that could not be read from their own bricks: one request per stripe to its primary, which
    /// decodes.
    pub(crate) async fn read_degraded(&self, parts: Vec<Part>) -> Result<Vec<(Part, Buf)>, ClientError> {
        let mut stripes: Vec<Vec<Part>> = Vec::new();
        for part in parts {
            match stripes.last_mut() {
                Some(same) if same[0].key == part.key => same.push(part),
                _ => stripes.push(vec![part]),
            }
        }
        let each = join_all(stripes.into_iter().map(|parts| self.read_span(parts))).await;
        each.into_iter().collect::<Result<Vec<_>, _>>().map(|stripes| stripes.into_iter().flatten().collect())
    }

    /// Reads the range that spans some parts of one stripe, and splits it into the parts.
    async fn read_span(&self, parts: Vec<Part>) -> Result<Vec<(Part, Buf)>, ClientError> {
        let key = parts[0].key;
        let start = parts.iter().map(|p| p.in_stripe).min().unwrap_or(0);
        let end = parts.iter().map(|p| p.in_stripe + p.len).max().unwrap_or(0);
        let span = self.read_at_primary(key, start, end - start).await?;
        let cut = |part: Part| {
            let from = (part.in_stripe - start).min(span.len());
            let to = (part.in_stripe - start + part.len).min(span.len());
            (part, span.slice(from..to))
        };
        Ok(parts.into_iter().map(cut).collect())
    }

    /// Reads a range of a stripe through the primary, with retries.
    async fn read_at_primary(&self, key: StripeKey, offset: usize, len: usize) -> Result<Buf, ClientError> {
        let (offset, len) = (offset as u32, len as u32);
        let request = |group| ReadStripe { group, key, offset, len };
        let (reply, bytes) = self.ask_primary_again(key, request).await?;
        if bytes.len() > len as usize {
            return Err(ClientError::BadReply);
        }
        self.mount.count(Counter::PrimaryBytes, u64::from(len));
        self.mount.count(Counter::DecodedUnits, u64::from(reply.decoded));
        Ok(bytes)
    }

    /// Sends an idempotent request to the primary of a stripe, with retries.
    pub(crate) async fn ask_primary_again<R: Request>(
        &self,
        key: StripeKey,
        request: impl Fn(GroupId) -> R,
    ) -> Result<(R::Reply, Buf), ClientError> {
        let mut budget = RetryBudget::new(&self.world);
        loop {
            let route = self.mount.route(key);
            let error = match self.ask_primary(&route, &request(route.group), Buf::empty()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            tracing::debug!(%key, %error, request = R::NAME, "no answer from the primary");
            self.mount.count(Counter::Retries, 1);
            match verdict(error) {
                Verdict::Refresh => self.refresh_map(route.map_version()).await,
                Verdict::Again => {}
                Verdict::GiveUp(error) => return Err(error),
            }
            budget.backoff().await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit() {
        assert!(backoff_us(0, 7) < PAUSE_MIN_US);
        assert!((0..40).all(|tries| backoff_us(tries, u64::MAX) <= PAUSE_MAX_US));
        assert!(backoff_us(40, 0) >= PAUSE_MAX_US / 2);
    }

    #[test]
    fn only_what_may_change_is_tried_again() {
        assert_eq!(verdict(CallError::Refused(Refusal::StaleEpoch)), Verdict::Refresh);
        assert_eq!(verdict(CallError::Refused(Refusal::NotServing)), Verdict::Refresh);
        assert_eq!(verdict(CallError::Unreachable), Verdict::Refresh);
        let full = ClientError::Refused(Refusal::NoSpace);
        assert_eq!(verdict(CallError::Refused(Refusal::NoSpace)), Verdict::GiveUp(full));
        assert_eq!(verdict(CallError::WrongKey), Verdict::GiveUp(ClientError::WrongKey));
    }
}
