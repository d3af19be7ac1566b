//! Clients come, ask for news, go.

use types::limits::BEAT_US;
use types::messages::Done;
use types::messages::cluster::{
    ClientJoin, ClientJoined, ClientLeave, ClientNews, ClientPoll, ModeTaken, Stopped,
};
use types::{ClientId, MapVersion, Refusal};

use super::Shared;
use crate::clients::some_of;

impl Shared {
    pub(super) async fn client_join(&self, mut request: ClientJoin) -> Result<ClientJoined, Refusal> {
        let purges = self.state.borrow().live.purges;
        while self.state.borrow_mut().hear_opens(&mut request, self.world.now())? {
            self.world.yield_now().await;
        }
        let joined = self.state.borrow_mut().client_join(&request, self.world.now(), self.world.wall());
        let mut orphans = self.state.borrow_mut().opens_settled();
        self.settled.notify();
        while !orphans.is_empty() {
            let some = some_of(&mut orphans);
            self.state.borrow_mut().drop_orphans(&some);
            self.world.yield_now().await;
        }
        self.look_around(purges);
        joined
    }

    /// A mount has ended, or every brick refuses it: does what that brings with it, in turns.
    pub(super) async fn client_gone(&self, client: ClientId) {
        let Some(mut parting) = self.state.borrow_mut().client_goes(client) else { return };
        while self.state.borrow_mut().go_on(&mut parting) {
            self.world.yield_now().await;
        }
    }

    /// Answers when there is news, and after a beat in any case.
    pub(super) async fn client_poll(&self, request: ClientPoll) -> Result<ClientNews, Refusal> {
        let client = request.client;
        self.state.borrow_mut().client_heard(client, self.world.now())?;
        let news = async {
            loop {
                let news = self.news.wait();
                if self.has_news(&request) {
                    break;
                }
                news.await;
            }
        };
        self.world.timeout(BEAT_US, news).await;
        let mut state = self.state.borrow_mut();
        state.sessions.get(client).ok_or(Refusal::Unknown)?;
        let map: MapVersion = state.cluster.version();
        let (recalls, stops) = (state.live.opens.recalls(client), state.live.cuts.stops(client));
        Ok(ClientNews { map, recalls, stops })
    }

    fn has_news(&self, request: &ClientPoll) -> bool {
        let state = self.state.borrow();
        let live = &state.live;
        let asked = live.opens.has_news(request.client) || live.cuts.has_news(request.client);
        asked || state.cluster.version() > request.map
    }

    pub(super) fn mode_taken(&self, request: &ModeTaken) -> Result<Done, Refusal> {
        let mut state = self.state.borrow_mut();
        let volume = state.sessions.get(request.client).ok_or(Refusal::Fenced)?.record.volume;
        state.live.opens.taken((volume, request.inode), request.client, request.number);
        self.settled.notify();
        Ok(Done {})
    }

    /// A client has stopped reading and writing a file; answers when it may go on.
    pub(super) async fn has_stopped(&self, request: Stopped) -> Result<Done, Refusal> {
        let place = {
            let mut state = self.state.borrow_mut();
            let volume = state.sessions.get(request.client).ok_or(Refusal::Fenced)?.record.volume;
            let place = (volume, request.inode);
            state.live.cuts.stopped(place, request.client, request.number);
            place
        };
        self.settled.notify();
        let is_over = |shared: &Shared| shared.state.borrow().live.cuts.is_over(place, request.number);
        self.settle(|shared| is_over(shared).then_some(())).await;
        Ok(Done {})
    }

    pub(super) async fn client_leave(&self, request: &ClientLeave) -> Result<Done, Refusal> {
        let purges = self.state.borrow().live.purges;
        self.client_gone(request.client).await;
        self.settled.notify();
        self.departed.notify();
        self.look_around(purges);
        Ok(Done {})
    }
}
