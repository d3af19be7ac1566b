//! One client: the handshake, then its requests, each a task of its own. Replies go out as they are ready.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use client::{ClientError, Session};
use futures_util::future::{Either, select};
use types::Buf;
use world::nbd::{OPTION_LEN, REQUEST_LEN, Request};
use world::{Conn, Notify, StreamReceiver, StreamSender};

use super::credits::{Credit, Credits};
use super::export::{Export, Opened, is_fenced};
use super::proto::{
    Agreed, CLIENT_FLAGS_LEN, CODE_IO, CODE_SHUTDOWN, Command, GREETING, Job, Negotiation, Replies, Reply,
    Step, TransmissionParams, option_header,
};
use super::shared::Server;
use crate::errno::nbd_code;
use crate::reply_queue::ReplyQueue;
use crate::seats::Seat;

/// How long a client may take for its next message of the negotiation, in microseconds.
const NEGOTIATION_US: u64 = 10_000_000;
/// How long the whole negotiation may take, in microseconds.
const ENTER_US: u64 = 60_000_000;
/// A client that has the export makes room for another one only after it has asked for nothing for so long, in microseconds:
/// most clients give the disk up when their connection ends.
const IDLE_US: u64 = 600_000_000;
/// Bytes of a refused write that are read and discarded at a time.
const DISCARD: usize = 64 << 10;
/// Most stripes whose state one answer describes.
const STATUS_STRIPES: u64 = 4096;

/// Why a connection is closed.
const ENDED: &str = "the gate or its lease has ended";
/// How long a client may take to receive its last answers after its file is lost, in microseconds.
const PARTING_US: u64 = 2_000_000;
/// How long a connection survives a silent network, in microseconds. A switch takes a minute or two to restart, and
/// most clients give the disk up when their connection ends.
const SILENCE_US: u64 = 150_000_000;

/// State that a connection's tasks share.
struct Connection {
    server: Rc<Server>,
    seat: Rc<Seat>,
    params: TransmissionParams,
    replies: Replies,
    // Declared before the open file, so that the connection is closed before the file counts as closed.
    reply_queue: ReplyQueue<Credit>,
    opened: Arc<Opened>,
    credits: Rc<Credits>,
    /// Losses that have been reported to this client.
    told: Cell<u64>,
    /// The connection cannot go on.
    over: Cell<bool>,
    /// Notified when the connection cannot go on.
    ended: Notify,
}

/// The result of a negotiation.
struct Entered {
    opened: Arc<Opened>,
    size: u64,
    agreed: Agreed,
}

/// Serves a client until it goes, or its seat is needed.
pub(super) async fn serve(server: Rc<Server>, conn: Conn, seat: Rc<Seat>) {
    let peer = conn.peer();
    if let Err(error) = conn.set_user_timeout(SILENCE_US) {
        return tracing::debug!(%peer, %error, "the connection ended at once");
    }
    let (mut sender, mut receiver) = conn.split_stream();
    let entering = server.world().timeout(ENTER_US, negotiate(&server, &mut sender, &mut receiver));
    let entered = match select(pin!(entering), pin!(seat.over())).await {
        Either::Left((entered, _)) => entered.flatten(),
        Either::Right(_) => None,
    };
    let Some(Entered { opened, size, agreed }) = entered else {
        tracing::debug!(%peer, "the connection ended before the client had the export");
        return;
    };
    seat.set_patience(IDLE_US);
    let Agreed { structured, context } = agreed;
    tracing::info!(%peer, size, structured, context, "a client has opened the export");
    let connection = Rc::new(Connection {
        told: Cell::new(opened.losses_told()),
        opened,
        params: TransmissionParams {
            size,
            read_only: server.shared.export.info.read_only,
            structured,
            context,
        },
        replies: Replies { structured },
        reply_queue: ReplyQueue::new(server.world().clone(), sender),
        credits: Rc::default(),
        over: Cell::new(false),
        ended: Notify::new(),
        server,
        seat,
    });
    let why = connection.receive(&mut receiver).await;
    // Requests in progress are carried out, even if the client no longer waits for the answers.
    if connection.opened.is_over()
        && connection.server.world().timeout(PARTING_US, connection.credits.idle()).await.is_none()
    {
        // This client receives no answers, and others wait until it is gone.
        receiver.hang_up();
    }
    connection.credits.idle().await;
    drop(receiver);
    tracing::info!(%peer, "the client is gone: {why}");
}

/// Negotiates until the client has the export. `None` if the connection must be closed.
async fn negotiate(
    server: &Server,
    sender: &mut StreamSender,
    receiver: &mut StreamReceiver,
) -> Option<Entered> {
    let export = &server.shared.export;
    say(server, sender, &GREETING).await?;
    let flags = next(server, receiver, CLIENT_FLAGS_LEN).await?;
    let mut negotiation = Negotiation::new(export.info.clone(), &flags)?;
    loop {
        let (option, len) = option_header(&next(server, receiver, OPTION_LEN).await?)?;
        let data = server.world().timeout(NEGOTIATION_US, receiver.body(len)).await?.ok()?;
        match negotiation.option(option, &data) {
            Step::Answer(answer) => say(server, sender, &answer).await?,
            Step::End(answer) => {
                say(server, sender, &answer).await?;
                return None;
            }
            Step::ExportRequest(ask) if server.is_closing() => {
                say(server, sender, &negotiation.refused(&ask, "the server is going down")?).await?;
            }
            Step::ExportRequest(ask) => {
                let found = match ask.enters_transmission() {
                    true => export
                        .open(server.world(), &server.session)
                        .await
                        .map(|(opened, size)| (Some(opened), size)),
                    false => export.size(&server.session).await.map(|size| (None, size)),
                };
                let answer = match &found {
                    Ok((_, size)) => negotiation.granted(&ask, *size),
                    Err(error) => {
                        if let Some(left_out) = server.shared.not_opened.admits(server.world().now()) {
                            tracing::warn!(%error, left_out, "a client cannot open the export");
                        }
                        negotiation.refused(&ask, &error.to_string())?
                    }
                };
                say(server, sender, &answer).await?;
                if let Ok((Some(opened), size)) = found {
                    return Some(Entered { opened, size, agreed: negotiation.agreed() });
                }
            }
        }
    }
}

/// The next bytes of a negotiation; `None` if they do not arrive in time.
async fn next(server: &Server, receiver: &mut StreamReceiver, len: usize) -> Option<Vec<u8>> {
    server.world().timeout(NEGOTIATION_US, receiver.head(len)).await?.ok()?
}

/// Sends a message of the negotiation; `None` if the client does not receive it.
async fn say(server: &Server, sender: &mut StreamSender, answer: &[u8]) -> Option<()> {
    server.world().timeout(NEGOTIATION_US, sender.send(answer, Buf::empty())).await?.ok()
}

impl Connection {
    fn export(&self) -> &Export {
        &self.server.shared.export
    }

    fn session(&self) -> &Session {
        &self.server.session
    }

    /// Receives requests and starts them. Returns why the connection has ended.
    async fn receive(self: &Rc<Connection>, receiver: &mut StreamReceiver) -> &'static str {
        let (mine, opened) = (pin!(self.ended.wait()), pin!(self.opened.ended.wait()));
        let all = pin!(self.server.shared.ended.wait());
        let needed = pin!(self.seat.over());
        let mut ended = select(select(select(mine, opened), all), needed);
        loop {
            if self.seat.is_over() {
                return "it was idle for longest, and its seat is needed";
            }
            if self.over.get() || self.opened.is_over() || self.server.is_closing() {
                return ENDED;
            }
            let head = match select(pin!(receiver.head(REQUEST_LEN)), &mut ended).await {
                Either::Left((Ok(Some(head)), _)) => head,
                Either::Left((Ok(None), _)) => return "it closed the connection",
                Either::Left((Err(_), _)) => return "the connection broke",
                Either::Right(_) if self.seat.is_over() => continue,
                Either::Right(_) => return ENDED,
            };
            self.seat.touch();
            let Some(request) = Request::parse(&head) else { return "it does not speak the protocol" };
            if request.is_disconnect() {
                return "it disconnected";
            }
            let Some(payload) = request.payload() else { return "its request is too large" };
            match select(pin!(self.take(request, payload, receiver)), &mut ended).await {
                Either::Left((Some(()), _)) => {}
                Either::Left((None, _)) => return "the connection broke",
                Either::Right(_) => return ENDED,
            }
        }
    }

    /// Reads a request's payload and starts the request. `None` if the connection cannot go on.
    async fn take(
        self: &Rc<Connection>,
        request: Request,
        payload: usize,
        receiver: &mut StreamReceiver,
    ) -> Option<()> {
        let checked = if self.server.is_closing() { Err(CODE_SHUTDOWN) } else { self.params.check(&request) };
        let bytes = checked.as_ref().map_or(0, Job::bytes);
        let credit = self.credits.take(bytes).await;
        let job = match checked {
            Ok(job) => job,
            Err(code) => {
                discard(receiver, payload).await?;
                self.reply(self.replies.error(request.cookie, code), credit);
                return Some(());
            }
        };
        let body = receiver.body(payload).await.ok()?;
        if job.command.has_effects() && receiver.is_hung_up() {
            // The request waited here for too long: its client may have repeated it on another connection, and sent
            // later requests there.
            return None;
        }
        let connection = Rc::clone(self);
        self.server.world().spawn("nbd request", async move {
            let _request = connection.seat.begin();
            let reply = connection.carry_out(&job, body).await;
            connection.send(reply, credit).await;
        });
        Some(())
    }

    /// Sends a reply in a task of its own, so that the next request need not wait.
    fn reply(self: &Rc<Connection>, reply: Reply, credit: Credit) {
        let connection = Rc::clone(self);
        self.server.world().spawn("nbd answer", async move { connection.send(reply, credit).await });
    }

    /// Sends a reply, and returns the credit when the reply has been sent.
    async fn send(&self, reply: Reply, credit: Credit) {
        if self.reply_queue.send([(reply.head, reply.body)], credit).await.is_err() {
            self.end();
        }
    }

    /// Stops receiving requests.
    fn end(&self) {
        self.over.set(true);
        self.ended.notify();
    }

    /// Carries out a request, and returns the reply.
    async fn carry_out(&self, job: &Job, body: Buf) -> Reply {
        let cookie = job.cookie;
        let done = match job.command {
            Command::Read => self.read(job).await,
            Command::Write => self.write(job, &body).await.map(|()| self.replies.done(cookie)),
            Command::Zero => self.zero(job).await.map(|()| self.replies.done(cookie)),
            Command::Flush => self.flush().await.map(|()| self.replies.done(cookie)),
            Command::BlockStatus { one } => self.block_status(job, one).await,
        };
        done.unwrap_or_else(|error| {
            tracing::warn!(?job, %error, "a request failed");
            self.export().note(error);
            if is_fenced(error) {
                self.opened.end();
            }
            self.replies.error(cookie, nbd_code(error))
        })
    }

    async fn read(&self, job: &Job) -> Result<Reply, ClientError> {
        let len = (job.range.end - job.range.start) as usize;
        let bytes = self.session().read(self.opened.handle, job.range.start, len).await?;
        if bytes.len() < len {
            // The file was truncated after the client had connected.
            return Ok(self.replies.error(job.cookie, CODE_IO));
        }
        Ok(self.replies.read(job.cookie, job.range.start, bytes))
    }

    async fn write(&self, job: &Job, body: &[u8]) -> Result<(), ClientError> {
        let written = self.session().write(self.opened.handle, job.range.start, body).await;
        written.inspect_err(|error| self.opened.failed(*error))?;
        self.settle(job).await
    }

    async fn zero(&self, job: &Job) -> Result<(), ClientError> {
        let zeroed = self.session().zero(self.opened.handle, job.range.clone()).await;
        zeroed.inspect_err(|error| self.opened.failed(*error))?;
        self.settle(job).await
    }

    /// Makes a change stable, if the client or the gate's options ask for it.
    async fn settle(&self, job: &Job) -> Result<(), ClientError> {
        if !job.stable && !self.export().write_through {
            return Ok(());
        }
        self.make_stable().await
    }

    async fn make_stable(&self) -> Result<(), ClientError> {
        let stable = self.session().fsync(self.opened.handle).await;
        stable.inspect_err(|error| self.opened.failed(*error))
    }

    /// Makes everything stable that this gate has answered to any client. Fails if bytes of any client were lost since
    /// this client's last flush.
    async fn flush(&self) -> Result<(), ClientError> {
        let stable = self.make_stable().await;
        let (count, lost) = self.opened.tell_losses(self.told.get());
        self.told.set(count);
        stable?;
        lost.map_or(Ok(()), Err)
    }

    async fn block_status(&self, job: &Job, one: bool) -> Result<Reply, ClientError> {
        let most = STATUS_STRIPES * self.server.stripe();
        let range = job.range.start..job.range.end.min(job.range.start.saturating_add(most));
        let found = self.session().find_bytes(self.opened.handle, range.clone()).await?;
        Ok(self.replies.block_status(job.cookie, &range, &found, one))
    }
}

/// Reads and discards bytes. `None` if the connection broke.
async fn discard(receiver: &mut StreamReceiver, mut bytes: usize) -> Option<()> {
    while bytes > 0 {
        let some = bytes.min(DISCARD);
        receiver.body(some).await.ok()?;
        bytes -= some;
    }
    Some(())
}
