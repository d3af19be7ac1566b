//! Clients come, ask for news, go.

use types::limits::BEAT_US;
use types::messages::Done;
use types::messages::cluster::{
    ClientJoin, ClientJoined, ClientLeave, ClientNews, ClientPoll, ModeTaken, Stopped,
};
use types::{MapVersion, Refusal};

use super::Shared;

impl Shared {
    pub(super) fn client_join(&self, request: &ClientJoin) -> Result<ClientJoined, Refusal> {
        let purges = self.state.borrow().live.purges;
        let joined = self.state.borrow_mut().client_join(request, self.world.now(), self.world.wall());
        self.settled.notify();
        self.look_around(purges);
        joined
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

    pub(super) fn client_leave(&self, request: &ClientLeave) -> Result<Done, Refusal> {
        let purges = self.state.borrow().live.purges;
        self.state.borrow_mut().client_gone(request.client);
        self.settled.notify();
        self.departed.notify();
        self.look_around(purges);
        Ok(Done {})
    }
}
