//! Keeps a connection to the server, and makes a new one when it breaks, while the disk is open.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use types::Buf;
use types::limits::BLOCK;

use super::completion::Completion;
use super::error::{RemoteError, protocol_error};
use super::negotiation::{Export, GREETING_LEN, Negotiation};
use super::replay_log::{ReplayLog, Task};
use super::url::{Endpoint, Url};
use crate::nbd::consts::{CMD_DISC, CMD_READ};
use crate::nbd::{OPTION_REPLY_LEN, REPLY_LEN, Request, SimpleReply};
use crate::{Notify, StreamReceiver, StreamSender, World};

/// How long a server may take to negotiate, in microseconds.
const NEGOTIATION_US: u64 = 10_000_000;
/// Pause before each connect, in microseconds. A server may still carry out writes of an earlier connection, of this
/// process or of one that was killed. These must end before newer writes arrive.
pub(super) const PAUSE_US: u64 = 1_000_000;
/// Time between two checks for timeouts, in microseconds.
const LOOK_US: u64 = 1_000_000;
/// Most checks for which an answer may be missing. Counted instead of timed, so that time in which this process
/// itself stands still does not count.
const TIMEOUT_LOOKS: u64 = 30;

/// Why a server may be silent.
const BUSY: &str = "it may serve only one client at a time and have another one, or one that died unnoticed: then restart the server";

/// The shared state of a disk and its link.
pub(super) struct Shared {
    pub(super) world: World,
    pub(super) url: Url,
    pub(super) export: Export,
    pub(super) replay_log: RefCell<ReplayLog>,
    /// The first block, if it was read and has not been written since: it identifies the disk.
    pub(super) first: RefCell<Option<Buf>>,
    /// Notified when there is something to send, or the disk has been closed.
    pub(super) news: Notify,
    /// Notified when a flush has ended.
    pub(super) flushed: Notify,
    /// Notified when the disk is lost.
    pub(super) lost: Notify,
    /// The disk has been closed.
    pub(super) over: Cell<bool>,
    /// Checks for timeouts so far.
    looks: Cell<u64>,
    /// While there is no connection: the check at which it was lost, and why.
    down: RefCell<Option<(u64, String)>>,
}

/// A connection with an export.
pub(super) struct Link {
    sender: StreamSender,
    receiver: StreamReceiver,
}

impl Shared {
    pub(super) fn new(world: World, url: Url, export: Export) -> Shared {
        Shared {
            world,
            url,
            export,
            replay_log: RefCell::default(),
            first: RefCell::default(),
            news: Notify::new(),
            flushed: Notify::new(),
            lost: Notify::new(),
            over: Cell::new(false),
            looks: Cell::new(0),
            down: RefCell::default(),
        }
    }

    pub(super) fn ask(&self, task: Task) -> std::io::Result<Rc<Completion>> {
        let completion = self.replay_log.borrow_mut().ask(task, self.looks.get())?;
        self.news.notify();
        Ok(completion)
    }

    fn lose(&self, text: &str) {
        let text = format!("{}: {text}", self.url.text);
        tracing::error!("{text}: the disk is lost for this process");
        self.replay_log.borrow_mut().lose(text);
        self.lost.notify();
        self.flushed.notify();
    }
}

/// Serves the disk until it is closed or lost.
pub(super) async fn run(shared: Rc<Shared>, link: Link) {
    let (serving, watching) = (pin!(serve(&shared, link)), pin!(watch(&shared)));
    let why = match select(serving, watching).await {
        Either::Left((None, _)) => return,
        Either::Left((Some(why), _)) | Either::Right((why, _)) => why,
    };
    if !shared.over.get() {
        shared.lose(&why);
    }
}

/// Ends when the server has been silent for too long. Returns the error message.
async fn watch(shared: &Shared) -> String {
    loop {
        shared.world.sleep(LOOK_US).await;
        shared.looks.set(shared.looks.get() + 1);
        let down = shared.down.borrow().clone();
        let oldest = shared.replay_log.borrow().oldest();
        let since = down.iter().map(|(since, _)| *since).chain(oldest).min();
        if since.is_some_and(|since| shared.looks.get() - since > TIMEOUT_LOOKS) {
            let why = down.map_or_else(|| "it does not answer".to_owned(), |(_, why)| why);
            return format!(
                "nothing came from it for {TIMEOUT_LOOKS} s ({why}); see that the server runs, then start the brick again"
            );
        }
    }
}

/// Serves on one connection after the other. Returns why no further one is possible, or [`None`] if the disk was
/// closed.
async fn serve(shared: &Shared, mut link: Link) -> Option<String> {
    loop {
        let why = match talk(shared, link).await {
            Ok(()) => return None,
            Err(RemoteError::Fatal(why)) => return Some(why),
            Err(RemoteError::Transient(why)) => why,
        };
        tracing::warn!("{}: {why}; connecting again", shared.url.text);
        *shared.down.borrow_mut() = Some((shared.looks.get(), why));
        link = loop {
            shared.replay_log.borrow_mut().broken();
            shared.world.sleep(PAUSE_US).await;
            if shared.over.get() {
                return None;
            }
            match again(shared).await {
                Ok(link) => break link,
                Err(RemoteError::Fatal(why)) => return Some(why),
                Err(RemoteError::Transient(why)) => {
                    tracing::debug!("{}: {why}", shared.url.text);
                    shared.down.borrow_mut().iter_mut().for_each(|(_, last)| last.clone_from(&why));
                }
            }
        };
        *shared.down.borrow_mut() = None;
    }
}

/// Connects again and repeats the writes that the server may have lost.
async fn again(shared: &Shared) -> Result<Link, RemoteError> {
    let (mut link, export) = connect(&shared.world, &shared.url).await?;
    let old = shared.export;
    if export.len() < old.len() {
        let (now, before) = (export.len(), old.len());
        return Err(RemoteError::Fatal(format!(
            "the export has {now} bytes now and had {before}; give it its size back, then start the brick again"
        )));
    }
    if export.block > old.block || export.most < old.most {
        return Err(RemoteError::Fatal(
            "the server's block sizes have changed; start the brick again".to_owned(),
        ));
    }
    let first = shared.first.borrow().clone();
    if let Some(first) = first {
        let read = Request { flags: 0, kind: CMD_READ, cookie: 0, offset: 0, len: BLOCK as u32 };
        let reply = link.exchange(read, Vec::new()).await?;
        if reply.code != 0 {
            return Err(RemoteError::Transient(format!(
                "the server cannot read its first block: error {}",
                reply.code
            )));
        }
        if link.receiver.body(BLOCK).await? != first {
            let text = "another disk is exported under this name: its first 4 KiB are different; correct the server or the URL";
            return Err(RemoteError::Fatal(text.to_owned()));
        }
    }
    let writes = shared.replay_log.borrow().to_repeat();
    for cookie in &writes {
        let again = shared.replay_log.borrow_mut().repeat(*cookie);
        let Some((request, parts)) = again else { continue };
        let reply = link.exchange(request, parts).await?;
        shared.replay_log.borrow_mut().repeated(reply)?;
    }
    tracing::info!("{}: connected again, {} writes repeated", shared.url.text, writes.len());
    Ok(link)
}

/// Connects and negotiates.
pub(super) async fn connect(world: &World, url: &Url) -> Result<(Link, Export), RemoteError> {
    let conn = match &url.endpoint {
        Endpoint::Tcp(address) => world.connect(address).await?,
        Endpoint::Unix(path) => world.connect_to_path(path).await?,
    };
    let (sender, receiver) = conn.split_stream();
    let mut link = Link { sender, receiver };
    let export = world.timeout(NEGOTIATION_US, link.negotiate(&url.export)).await;
    let export = export
        .unwrap_or_else(|| Err(RemoteError::Transient(format!("the server does not negotiate; {BUSY}"))))?;
    Ok((link, export))
}

/// Sends requests and takes replies until the connection ends or the disk is closed.
async fn talk(shared: &Shared, link: Link) -> Result<(), RemoteError> {
    let Link { mut sender, mut receiver } = link;
    let (asking, hearing) = (pin!(ask(shared, &mut sender)), pin!(hear(shared, &mut receiver)));
    match select(asking, hearing).await {
        Either::Left((ended, _)) | Either::Right((ended, _)) => ended,
    }
}

async fn ask(shared: &Shared, sender: &mut StreamSender) -> Result<(), RemoteError> {
    loop {
        let news = shared.news.wait();
        let next = shared.replay_log.borrow_mut().next_request();
        match next {
            Some((request, parts)) => sender.send_parts(&request.encode(), parts).await?,
            None if shared.over.get() => {
                let goodbye = Request { flags: 0, kind: CMD_DISC, cookie: 0, offset: 0, len: 0 };
                return Ok(sender.send(&goodbye.encode(), Buf::empty()).await?);
            }
            None => news.await,
        }
    }
}

async fn hear(shared: &Shared, receiver: &mut StreamReceiver) -> Result<(), RemoteError> {
    loop {
        let reply = reply(receiver).await?;
        let len = shared.replay_log.borrow().payload(reply)?;
        let body = receiver.body(len).await?;
        let flushing = shared.replay_log.borrow().is_flushing();
        shared.replay_log.borrow_mut().answered(reply, body)?;
        if flushing && !shared.replay_log.borrow().is_flushing() {
            shared.flushed.notify();
        }
    }
}

async fn reply(receiver: &mut StreamReceiver) -> Result<SimpleReply, RemoteError> {
    match SimpleReply::parse(&head(receiver, REPLY_LEN).await?) {
        Some(reply) => Ok(reply),
        None => protocol_error("its reply has a wrong format"),
    }
}

/// The next `len` bytes, which must come.
async fn head(receiver: &mut StreamReceiver, len: usize) -> Result<Vec<u8>, RemoteError> {
    let head = receiver.head(len).await?;
    head.ok_or_else(|| RemoteError::Transient("the server closed the connection".to_owned()))
}

impl Link {
    async fn negotiate(&mut self, name: &str) -> Result<Export, RemoteError> {
        let mut negotiation = Negotiation::new(name);
        let greeting = self.receiver.head(GREETING_LEN).await?;
        let greeting = greeting.ok_or_else(|| {
            RemoteError::Transient(format!("the server closes the connection before its greeting; {BUSY}"))
        })?;
        self.sender.send(&negotiation.greeted(&greeting)?, Buf::empty()).await?;
        loop {
            let (kind, len) = negotiation.data_len(&head(&mut self.receiver, OPTION_REPLY_LEN).await?)?;
            let data = if len == 0 { Vec::new() } else { head(&mut self.receiver, len).await? };
            if let Some(export) = negotiation.answered(kind, &data)? {
                return Ok(export);
            }
        }
    }

    /// Sends a request and waits for its reply; the caller reads the payload.
    async fn exchange(&mut self, request: Request, parts: Vec<Buf>) -> Result<SimpleReply, RemoteError> {
        self.sender.send_parts(&request.encode(), parts).await?;
        let reply = reply(&mut self.receiver).await?;
        if reply.cookie == request.cookie {
            Ok(reply)
        } else {
            protocol_error("it answers a request that it was not sent")
        }
    }
}
