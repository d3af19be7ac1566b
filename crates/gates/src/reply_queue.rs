//! The sending direction of a client's connection, shared by the tasks that answer.

use std::cell::{Cell, RefCell};
use std::io;

use types::Buf;
use world::{StreamSender, World};

/// Sends the answers of many tasks. Answers that are ready in the same turn of the thread are sent with one write, so
/// the client wakes up once for all of them. `K` is dropped after its answer was sent: it holds the credits of the
/// request.
pub(crate) struct ReplyQueue<K> {
    world: World,
    /// [`None`] while a task sends, and after the connection broke.
    sender: Cell<Option<StreamSender>>,
    broken: Cell<bool>,
    messages: RefCell<Vec<(Vec<u8>, Buf)>>,
    kept: RefCell<Vec<K>>,
}

impl<K> ReplyQueue<K> {
    pub(crate) fn new(world: World, sender: StreamSender) -> ReplyQueue<K> {
        let (messages, kept) = (RefCell::default(), RefCell::default());
        ReplyQueue { world, sender: Cell::new(Some(sender)), broken: Cell::new(false), messages, kept }
    }

    /// Sends an answer, made of heads and bodies. If another task is sending, that task also sends this answer, and
    /// this call returns at once.
    ///
    /// # Errors
    /// If the connection is broken: for the task that notices it, and for all later calls.
    pub(crate) async fn send(
        &self,
        answer: impl IntoIterator<Item = (Vec<u8>, Buf)>,
        kept: K,
    ) -> io::Result<()> {
        if self.broken.get() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.messages.borrow_mut().extend(answer);
        self.kept.borrow_mut().push(kept);
        let Some(mut sender) = self.sender.take() else { return Ok(()) };
        // After this, tasks that were woken together with this one have their answers ready.
        self.world.yield_now().await;
        let sent = self.send_queued(&mut sender).await;
        match &sent {
            Ok(()) => self.sender.set(Some(sender)),
            Err(_) => {
                self.broken.set(true);
                self.messages.take();
                drop(self.kept.take());
            }
        }
        sent
    }

    /// Sends all queued answers, also those that are added meanwhile.
    async fn send_queued(&self, sender: &mut StreamSender) -> io::Result<()> {
        loop {
            let (messages, kept) = (self.messages.take(), self.kept.take());
            if messages.is_empty() {
                return Ok(());
            }
            sender.send_all(messages).await?;
            drop(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use world::sim::{SimOptions, Simulation};

    use super::*;

    fn message(number: u8) -> [(Vec<u8>, Buf); 2] {
        [(vec![number; 3], Buf::copy_of(&[number; 5])), (vec![number], Buf::empty())]
    }

    #[test]
    fn answers_leave_whole_and_what_is_kept_is_let_go() {
        let simulation = Simulation::new(1, SimOptions::default());
        let (server, client) = (simulation.node("server"), simulation.node("client"));
        simulation.block_on("server", async {
            let listener = server.listen("server:1").await.expect("a port");
            let near = client.connect("server:1").await.expect("a listener");
            let (sender, receiver) = listener.accept().await.expect("a client").split_stream();
            let (near_sender, mut received) = near.split_stream();
            let (reply_queue, room) = (Rc::new(ReplyQueue::new(server.clone(), sender)), Rc::new(()));
            for number in 0..9u8 {
                let (reply_queue, kept) = (Rc::clone(&reply_queue), Rc::clone(&room));
                server.spawn("test", async move {
                    reply_queue.send(message(number), kept).await.expect("a connection")
                });
            }
            let mut seen = Vec::new();
            for _ in 0..9 {
                let bytes = received.body(9).await.expect("bytes");
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "one answer in another: {bytes:?}");
                seen.push(bytes[0]);
            }
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
            server.sleep(1_000_000).await;
            assert_eq!(Rc::strong_count(&room), 1, "all have left");
            drop((near_sender, received, receiver));
            while reply_queue.send(message(0), Rc::clone(&room)).await.is_ok() {
                server.sleep(1_000_000).await;
            }
            assert!(reply_queue.send(message(0), Rc::clone(&room)).await.is_err());
            assert_eq!(Rc::strong_count(&room), 1, "nothing is kept for a client that has gone");
        });
    }
}
