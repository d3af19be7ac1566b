//! A server that does as it is told: the protocol over a disk, right or wrong.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use types::Buf;

use crate::nbd::words::*;
use crate::nbd::{ANSWER_LEN, OPTION_LEN, OptionHeader, REQUEST_LEN, Request, SimpleReply, answer};
use crate::{Conn, Disk, Listener, StreamReceiver, StreamSender, World};

/// How a server behaves from now on.
#[derive(Clone, Debug)]
pub(super) struct Manner {
    pub(super) greeting: Vec<u8>,
    pub(super) size: u64,
    pub(super) flags: u16,
    /// Smallest, preferred and largest request.
    pub(super) sizes: [u32; 3],
    /// Answers the request for an export with this and these words.
    pub(super) refusal: Option<(u32, Vec<u8>)>,
    /// Does this to requests of this kind.
    pub(super) spoil: Option<(u16, Spoil)>,
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spoil {
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

impl Manner {
    pub(super) fn honest(size: u64) -> Manner {
        Manner {
            greeting: greeting(3),
            size,
            flags: HAS_FLAGS | SEND_FLUSH | SEND_FUA,
            sizes: [1, 4096, 32 << 20],
            refusal: None,
            spoil: None,
        }
    }
}

/// A server's life.
pub(super) struct Server {
    pub(super) world: World,
    pub(super) disk: Disk,
    pub(super) manner: RefCell<Manner>,
    /// Flushes answered.
    pub(super) flushes: Cell<u64>,
    /// Connections made.
    pub(super) entered: Cell<u64>,
}

impl Server {
    pub(super) fn new(world: &World, disk: Disk, manner: Manner) -> Rc<Server> {
        let (world, manner) = (world.clone(), RefCell::new(manner));
        Rc::new(Server { world, disk, manner, flushes: Cell::new(0), entered: Cell::new(0) })
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
            let spoil = self.manner.borrow().spoil.filter(|(kind, _)| *kind == request.kind);
            let spoil = spoil.map(|(_, spoil)| spoil);
            match spoil {
                _ if request.is_disconnect() => return None,
                Some(Spoil::Drop) => return None,
                Some(Spoil::Silence) => continue,
                Some(Spoil::Cut) => {
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
                let (code, body) = match spoil {
                    Some(Spoil::Code(code)) => (code, Buf::empty()),
                    _ => server.carry_out(&request, payload).await,
                };
                let mut head = SimpleReply { cookie: request.cookie, code }.encode();
                match spoil {
                    Some(Spoil::Cookie) => head[9] ^= 1,
                    Some(Spoil::Magic) => head[0] ^= 1,
                    Some(Spoil::Structured) => {
                        head[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
                    }
                    _ => {}
                }
                let _ = sender.lock().await.send(&head, body).await;
            });
        }
    }

    async fn negotiate(&self, sender: &mut StreamSender, receiver: &mut StreamReceiver) -> Option<()> {
        let Manner { greeting, size, flags, sizes, refusal, .. } = self.manner.borrow().clone();
        sender.send(&greeting, Buf::empty()).await.ok()?;
        receiver.head(4).await.ok()??;
        let OptionHeader { option, len } = OptionHeader::parse(&receiver.head(OPTION_LEN).await.ok()??)?;
        let data = receiver.head(len as usize).await.ok()??;
        assert_eq!((option, &data[..4], &data[4..8]), (OPT_GO, &[0, 0, 0, 4][..], &b"disk"[..]));
        if let Some((kind, words)) = refusal {
            return sender.send(&answer(OPT_GO, kind, &words), Buf::empty()).await.ok();
        }
        let export = [&INFO_EXPORT.to_be_bytes()[..], &size.to_be_bytes(), &flags.to_be_bytes()].concat();
        let [least, preferred, most] = sizes.map(u32::to_be_bytes);
        let blocks = [&INFO_BLOCK_SIZE.to_be_bytes()[..], &least, &preferred, &most].concat();
        let answers = [
            answer(OPT_GO, REP_INFO, &export),
            answer(OPT_GO, REP_INFO, &blocks),
            answer(OPT_GO, REP_ACK, b""),
        ];
        assert_eq!(answers[2].len(), ANSWER_LEN);
        sender.send(&answers.concat(), Buf::empty()).await.ok()
    }

    async fn carry_out(&self, request: &Request, payload: Buf) -> (u32, Buf) {
        let [least, _, most] = self.manner.borrow().sizes;
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
