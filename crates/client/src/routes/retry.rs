//! What happens when a brick does not do what it was asked: how long to wait, whom to ask instead, when to give up.

use types::{Refusal, RetryAction};
use world::{CallError, World};

use crate::error::ClientError;

/// How long the client goes on trying before it says that nobody answers, in microseconds.
pub(crate) const RETRY_BUDGET_US: u64 = 60_000_000;
/// First pause between two tries; each is twice as long as the one before.
const PAUSE_MIN_US: u64 = 5_000;
/// Longest pause between two tries.
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
            // A primary that serves again may do so in a new epoch.
            RetryAction::Wait => Verdict::Refresh,
            RetryAction::AskPrimary if refusal == Refusal::Corrupt => Verdict::GiveUp(error.into()),
            RetryAction::AskPrimary => Verdict::Again,
            RetryAction::GiveUp => Verdict::GiveUp(error.into()),
        },
        other => Verdict::GiveUp(other.into()),
    }
}

/// The pause before try number `tries + 1`.
pub(crate) fn backoff_us(tries: u32, chance: u64) -> u64 {
    let whole = (PAUSE_MIN_US << tries.min(10)).min(PAUSE_MAX_US);
    whole / 2 + chance % (whole / 2)
}

/// One caller's patience.
pub(crate) struct RetryBudget {
    world: World,
    until: u64,
    tries: u32,
}

impl RetryBudget {
    pub(crate) fn new(world: &World) -> RetryBudget {
        RetryBudget { world: world.clone(), until: world.now() + RETRY_BUDGET_US, tries: 0 }
    }

    /// Fails when patience has run out.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        if self.world.now() < self.until { Ok(()) } else { Err(ClientError::Unreachable) }
    }

    /// Waits a little longer each time; fails when patience has run out.
    pub(crate) async fn backoff(&mut self) -> Result<(), ClientError> {
        self.check()?;
        self.world.sleep(backoff_us(self.tries, self.world.random())).await;
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
