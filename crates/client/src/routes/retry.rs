//! Retries after a failed request: how long to wait, which server to ask instead, when to give up.

use types::{Refusal, RetryAction};
use world::trace::{Stage, span};
use world::{CallError, World};

use crate::error::ClientError;

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
        let pause = self.world.sleep(backoff_us(self.tries, self.world.random()));
        span(&self.world, Stage::Pause, pause).await;
        self.tries += 1;
        Ok(())
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
