//! Clients join, poll for news, and leave.

use types::limits::HEARTBEAT_US;
use types::messages::Done;
use types::messages::cluster::{
    ClientJoin, ClientJoined, ClientLeave, ClientPoll, ClientPollReply, Quiesced, RecallAck,
};
use types::{ClientId, MapVersion, Refusal};

use super::Shared;
use crate::clients::some_of;

impl Shared {
    pub(super) async fn client_join(&self, mut request: ClientJoin) -> Result<ClientJoined, Refusal> {
        while self.state.borrow_mut().reclaim_opens(&mut request, self.world.now())? {
            self.world.yield_now().await;
        }
        let joined = self.state.borrow_mut().client_join(&request, self.world.now(), self.world.wall());
        let mut orphans = self.state.borrow_mut().end_grace();
        self.settled.notify();
        while !orphans.is_empty() {
            let some = some_of(&mut orphans);
            self.state.borrow_mut().drop_orphans(&some);
            self.world.yield_now().await;
        }
        self.notify_tasks();
        joined
    }

    /// Tears a client down, in turns: its mount has ended, or every brick has fenced it.
    pub(super) async fn tear_down_client(&self, client: ClientId) {
        let Some(mut teardown) = self.state.borrow_mut().begin_client_teardown(client) else { return };
        while self.state.borrow_mut().continue_teardown(&mut teardown) {
            self.world.yield_now().await;
        }
    }

    /// Answers when there is news, and after a heartbeat interval in any case.
    pub(super) async fn client_poll(&self, request: ClientPoll) -> Result<ClientPollReply, Refusal> {
        let client = request.client;
        // The client has the map of a service that was restored since.
        if self.state.borrow().cluster.version().is_of_before(request.map) {
            return Err(Refusal::NotLeader);
        }
        {
            let (mut state, now) = (self.state.borrow_mut(), self.world.now());
            state.renew_client_lease(client, request.asked, now)?;
            state.cluster.client_reaches(client, &request.unreached, now);
        }
        let news = async {
            loop {
                let news = self.news.wait();
                if self.has_news(&request) {
                    break;
                }
                news.await;
            }
        };
        self.world.timeout(HEARTBEAT_US, news).await;
        let mut state = self.state.borrow_mut();
        state.sessions.get(client).ok_or(Refusal::Unknown)?;
        let map: MapVersion = state.cluster.version();
        let (recalls, stops) =
            (state.volatile.opens.recalls(client), state.volatile.truncations.stops(client));
        Ok(ClientPollReply { map, recalls, quiesces: stops })
    }

    fn has_news(&self, request: &ClientPoll) -> bool {
        let state = self.state.borrow();
        let volatile = &state.volatile;
        let asked = volatile.opens.has_news(request.client) || volatile.truncations.has_news(request.client);
        asked || state.cluster.version() > request.map
    }

    pub(super) fn recall_ack(&self, request: &RecallAck) -> Result<Done, Refusal> {
        let mut state = self.state.borrow_mut();
        let volume = state.sessions.get(request.client).ok_or(Refusal::Fenced)?.record.volume;
        state.volatile.opens.taken((volume, request.inode), request.client, request.number);
        self.settled.notify();
        Ok(Done {})
    }

    /// A client has quiesced a file. The answer is sent when the client may go on.
    pub(super) async fn has_stopped(&self, request: Quiesced) -> Result<Done, Refusal> {
        let place = {
            let mut state = self.state.borrow_mut();
            let volume = state.sessions.get(request.client).ok_or(Refusal::Fenced)?.record.volume;
            let place = (volume, request.inode);
            state.volatile.truncations.stopped(place, request.client, request.number);
            place
        };
        self.settled.notify();
        let is_over =
            |shared: &Shared| shared.state.borrow().volatile.truncations.is_over(place, request.number);
        self.wait_until(|shared| is_over(shared).then_some(())).await;
        Ok(Done {})
    }

    pub(super) async fn client_leave(&self, request: &ClientLeave) -> Result<Done, Refusal> {
        self.tear_down_client(request.client).await;
        self.settled.notify();
        self.departed.notify();
        self.notify_tasks();
        Ok(Done {})
    }
}
