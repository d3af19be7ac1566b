//! A server that does as it is told: the protocol over a disk, right or wrong.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use types::Buf;

use crate::nbd::consts::*;
use crate::nbd::{
    OPTION_LEN, OPTION_REPLY_LEN, OptionHeader, REQUEST_LEN, Request, SimpleReply, option_reply,
};
use crate::{Conn, Disk, Listener, StreamReceiver, StreamSender, World};

/// How a server behaves from now on.
#[derive(Clone, Debug)]
pub(super) struct Behaviour {
    pub(super) greeting: Vec<u8>,
    pub(super) size: u64,
    pub(super) flags: u16,
    /// Smallest, preferred and largest request.
    pub(super) sizes: [u32; 3],
    /// Answers the request for an export with this and these words.
    pub(super) refusal: Option<(u32, Vec<u8>)>,
    /// Does this to requests of this kind.
    pub(super) fault: Option<(u16, InjectedFault)>,
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InjectedFault {
    /// The reply bears another cookie.
    Cookie,
    /// The reply is none.
    Magic,
    /// The reply is a structured one.
    Structured,
    /// The connection ends before the request is looked at.
    Drop,
    /// The connection ends in the middle of the reply.
    Cut,
    /// The reply is this error.
    Code(u32),
    /// No reply ever.
    Silence,
}

pub(super) fn greeting(flags: u16) -> Vec<u8> {
    [&MAGIC.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &flags.to_be_bytes()].concat()
}

impl Behaviour {
    pub(super) fn honest(size: u64) -> Behaviour {
        Behaviour {
            greeting: greeting(3),
            size,
            flags: HAS_FLAGS | SEND_FLUSH | SEND_FUA,
            sizes: [1, 4096, 32 << 20],
            refusal: None,
            fault: None,
        }
    }
}

/// A server's life.
pub(super) struct Server {
    pub(super) world: World,
    pub(super) disk: Disk,
    pub(super) behaviour: RefCell<Behaviour>,
    /// Flushes answered.
    pub(super) flushes: Cell<u64>,
    /// Connections made.
    pub(super) entered: Cell<u64>,
}

impl Server {
    pub(super) fn new(world: &World, disk: Disk, behaviour: Behaviour) -> Rc<Server> {
        let (world, behaviour) = (world.clone(), RefCell::new(behaviour));
        Rc::new(Server { world, disk, behaviour, flushes: Cell::new(0), entered: Cell::new(0) })
    }

    /// Serves whoever connects, until the listener fails.
    pub(super) fn listen(self: &Rc<Server>, listener: Listener) {
        let server = self.clone();
        self.world.spawn("test", async move {
            while let Ok(conn) = listener.accept().await {
                server.world.spawn("test", server.clone().serve(conn));
            }
        });
    }

    async fn serve(self: Rc<Server>, conn: Conn) {
        let (sender, mut receiver) = conn.split_stream();
        let sender = Rc::new(async_lock::Mutex::new(sender));
        let _ = self.transmit(&sender, &mut receiver).await;
    }

    /// `None` when the connection ends.
    async fn transmit(
        self: &Rc<Server>,
        sender: &Rc<async_lock::Mutex<StreamSender>>,
        receiver: &mut StreamReceiver,
    ) -> Option<()> {
        self.negotiate(&mut *sender.lock().await, receiver).await?;
        self.entered.set(self.entered.get() + 1);
        loop {
            let request = Request::parse(&receiver.head(REQUEST_LEN).await.ok()??)?;
            let payload = receiver.body(request.payload()?).await.ok()?;
            let fault = self.behaviour.borrow().fault.filter(|(kind, _)| *kind == request.kind);
            let fault = fault.map(|(_, fault)| fault);
            match fault {
                _ if request.is_disconnect() => return None,
                Some(InjectedFault::Drop) => return None,
                Some(InjectedFault::Silence) => continue,
                Some(InjectedFault::Cut) => {
                    let reply = SimpleReply { cookie: request.cookie, code: 0 }.encode();
                    let half = if request.kind == CMD_READ { 100 } else { 0 };
                    let _ = sender.lock().await.send(&reply[..9 + half.min(7)], Buf::empty()).await;
                    return None;
                }
                _ => {}
            }
            // Requests go on side by side, and past the end of their connection, as with every real server.
            let (server, sender) = (self.clone(), sender.clone());
            self.world.spawn("test", async move {
                let (code, body) = match fault {
                    Some(InjectedFault::Code(code)) => (code, Buf::empty()),
                    _ => server.carry_out(&request, payload).await,
                };
                let mut head = SimpleReply { cookie: request.cookie, code }.encode();
                match fault {
                    Some(InjectedFault::Cookie) => head[9] ^= 1,
                    Some(InjectedFault::Magic) => head[0] ^= 1,
                    Some(InjectedFault::Structured) => {
                        head[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
                    }
                    _ => {}
                }
                let _ = sender.lock().await.send(&head, body).await;
            });
        }
    }

    async fn negotiate(&self, sender: &mut StreamSender, receiver: &mut StreamReceiver) -> Option<()> {
        let Behaviour { greeting, size, flags, sizes, refusal, .. } = self.behaviour.borrow().clone();
        sender.send(&greeting, Buf::empty()).await.ok()?;
        receiver.head(4).await.ok()??;
        let OptionHeader { option, len } = OptionHeader::parse(&receiver.head(OPTION_LEN).await.ok()??)?;
        let data = receiver.head(len as usize).await.ok()??;
        assert_eq!((option, &data[..4], &data[4..8]), (OPT_GO, &[0, 0, 0, 4][..], &b"disk"[..]));
        if let Some((kind, words)) = refusal {
            return sender.send(&option_reply(OPT_GO, kind, &words), Buf::empty()).await.ok();
        }
        let export = [&INFO_EXPORT.to_be_bytes()[..], &size.to_be_bytes(), &flags.to_be_bytes()].concat();
        let [least, preferred, most] = sizes.map(u32::to_be_bytes);
        let blocks = [&INFO_BLOCK_SIZE.to_be_bytes()[..], &least, &preferred, &most].concat();
        let answers = [
            option_reply(OPT_GO, REP_INFO, &export),
            option_reply(OPT_GO, REP_INFO, &blocks),
            option_reply(OPT_GO, REP_ACK, b""),
        ];
        assert_eq!(answers[2].len(), OPTION_REPLY_LEN);
        sender.send(&answers.concat(), Buf::empty()).await.ok()
    }

    async fn carry_out(&self, request: &Request, payload: Buf) -> (u32, Buf) {
        let [least, _, most] = self.behaviour.borrow().sizes;
        let (offset, len) = (request.offset, request.len);
        if offset % u64::from(least) != 0 || len % least != 0 || len > most {
            return (CODE_INVALID, Buf::empty());
        }
        let done = match request.kind {
            CMD_READ => self.disk.read(offset, len as usize).await,
            CMD_WRITE => self.disk.write(offset, vec![payload]).await.map(|()| Buf::empty()),
            CMD_FLUSH => {
                let synced = self.disk.sync().await;
                self.flushes.set(self.flushes.get() + 1);
                synced.map(|()| Buf::empty())
            }
            _ => return (CODE_INVALID, Buf::empty()),
        };
        done.map_or((CODE_IO, Buf::empty()), |bytes| (0, bytes))
    }
}
