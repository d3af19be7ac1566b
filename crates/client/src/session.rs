//! The use of a mount by one thread: its world, its connections, and requests to the metadata service.

use std::rc::Rc;
use std::sync::Arc;

use types::messages::names::Caller;
use types::wire::Request;
use types::{Buf, Epoch, Refusal, RetryAction};
use world::{CallError, Peers, World};

use crate::error::ClientError;
use crate::mount::Mount;
use crate::retry::RetryBudget;

/// The use of a mount by one thread, with its own connections. Cheap to clone; stays on its thread.
#[derive(Clone)]
pub struct Session {
    pub(crate) mount: Arc<Mount>,
    pub(crate) world: World,
    pub(crate) peers: Rc<Peers>,
}

/// The number of a change. Finished when dropped, also if the caller is cancelled.
struct Op<'a> {
    mount: &'a Mount,
    number: u64,
}

impl Drop for Op<'_> {
    fn drop(&mut self) {
        self.mount.ops().finish(self.number);
    }
}

impl Session {
    pub(crate) fn new(mount: Arc<Mount>, world: World) -> Session {
        let peers = Rc::new(Peers::new(world.clone(), mount.options.identity.clone()));
        Session { mount, world, peers }
    }

    /// The mount.
    pub fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// Bytes of data in a stripe.
    pub(crate) fn stripe_bytes(&self) -> usize {
        self.mount.geometry().stripe()
    }

    /// Asks the metadata service once.
    pub(crate) async fn ask_once<R: Request>(&self, us: u64, request: &R) -> Result<R::Reply, CallError> {
        let meta = &self.mount.options.meta;
        let answer = self.peers.call_within(us, meta, Epoch::default(), request, Buf::empty()).await;
        answer.map(|(reply, _)| reply)
    }

    /// Asks the metadata service, with retries; joins again if it has restarted.
    pub(crate) async fn ask<R: Request>(&self, request: &R) -> Result<R::Reply, ClientError> {
        let mut budget = RetryBudget::new(&self.world);
        let client = self.mount.client();
        loop {
            if self.mount.lease.has_left() {
                return Err(ClientError::Unmounted);
            }
            if self.mount.lease.is_lost() {
                return Err(ClientError::Refused(Refusal::Fenced));
            }
            let generation = self.mount.lease.generation();
            let error = match self.ask_once(types::limits::CALL_TIMEOUT_US, request).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            tracing::debug!(request = R::NAME, %error, "a request to the metadata service failed");
            match error {
                CallError::Unreachable => {}
                CallError::Refused(Refusal::Unknown | Refusal::Fenced) => {
                    let is_another = || client != self.mount.client();
                    let joined = if is_another() { Ok(()) } else { self.rejoin(generation).await };
                    if joined.is_err_and(|e| e != ClientError::Unreachable) {
                        return Err(error.into());
                    }
                    // The request names the old client id, which is fenced.
                    if is_another() {
                        return Err(ClientError::Refused(Refusal::Fenced));
                    }
                }
                CallError::Refused(refusal) if refusal.retry_action() == RetryAction::Wait => {}
                other => return Err(other.into()),
            }
            budget.backoff().await?;
        }
    }

    /// Asks the metadata service for a change. All retries use the same number.
    pub(crate) async fn change<R: Request>(
        &self,
        request: impl FnOnce(Caller) -> R,
    ) -> Result<R::Reply, ClientError> {
        let (op, acked) = {
            let mut ops = self.mount.ops();
            (ops.begin(), ops.finished())
        };
        let op = Op { mount: &self.mount, number: op };
        let caller = Caller { client: self.mount.lease.client(), op: op.number, acked };
        self.ask(&request(caller)).await
    }
}
