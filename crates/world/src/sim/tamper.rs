//! Servers that do not do as they should: a test looks at every frame before it is sent, and says what becomes of it.
//!
//! A liar has the key of its cluster, so its frames are sound as frames: only their contents are not what they should be.

use std::io;
use std::rc::Rc;

use types::Buf;
use types::wire::Record;

use super::faults::Fault;
use super::net::LinkEnd;
use super::state::State;
use crate::Frame;

/// A frame that is about to be sent.
pub struct Passing<'a> {
    /// The node that sends it.
    pub from: &'a str,
    /// The node to which it goes.
    pub to: &'a str,
    /// What is sent.
    pub frame: &'a Frame,
}

/// What becomes of a frame.
#[derive(Debug)]
pub enum Tampering {
    /// Its payload is exchanged.
    Payload(Buf),
    /// Its record is exchanged.
    Record(Vec<u8>),
    /// A request is not sent. Its sender gets this answer.
    Answer(Frame),
    /// It leaves so many microseconds later. What is sent after it overtakes it.
    Late(u64),
    /// Its receiver dies before this poll of its tasks, counted from now.
    Kill(u64),
    /// Somebody on the way, who does not have the key, changes what has left.
    OnTheWay(Forgery),
}

/// What somebody without the key does with a frame on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgery {
    /// One bit of its record is flipped, or of its payload if it has one. Its checksums are made right.
    Flip,
    /// It comes twice.
    Repeat,
    /// It does not come.
    LeaveOut,
    /// It goes back to its sender.
    Reflect,
}

impl Tampering {
    /// The answer `reply` to a request, without a payload.
    pub fn answer<R: Record>(request: &Frame, reply: &R) -> Tampering {
        let header = &request.header;
        let record = types::wire::to_bytes(reply);
        let flags = types::wire::Flags::REPLY;
        let answer =
            Frame::new(R::KIND, header.request, header.cluster, header.epoch, flags, record, Buf::empty());
        Tampering::Answer(answer)
    }
}

/// Decides for every frame.
pub(super) type Tamper = Box<dyn FnMut(&Passing<'_>) -> Option<Tampering>>;

fn tampering(state: &State, from: LinkEnd, frame: &Frame) -> Option<Tampering> {
    let mut tamper = state.tamper.borrow_mut();
    let tamper = tamper.as_mut()?;
    let nodes = state.net.borrow_mut().nodes_of(from)?;
    let names = state.nodes.borrow();
    let [from, to] = nodes.map(|node| &*names.at(node).name);
    tamper(&Passing { from, to, frame })
}

/// A frame as it is sent, after the test has had its way with it, and what happens to it then; [`None`] if it is not sent now.
pub(super) fn pass(
    state: &Rc<State>,
    from: LinkEnd,
    mut frame: Frame,
) -> io::Result<Option<(Frame, Option<Forgery>)>> {
    match tampering(state, from, &frame) {
        Some(Tampering::OnTheWay(forgery)) => {
            state.faults.add(Fault::Forged, 1);
            return Ok(Some((frame, Some(forgery))));
        }
        None => {}
        Some(Tampering::Payload(payload)) => {
            state.faults.add(Fault::OtherPayload, 1);
            frame.payload = payload;
        }
        Some(Tampering::Record(record)) => {
            state.faults.add(Fault::OtherRecord, 1);
            frame.record = record;
        }
        Some(Tampering::Answer(answer)) => {
            state.faults.add(Fault::FalseAnswer, 1);
            state.net.borrow_mut().send_frame(state, from.other(), answer, None)?;
            return Ok(None);
        }
        Some(Tampering::Late(us)) => {
            state.faults.add(Fault::Overtaken, 1);
            if let Some([node, _]) = state.net.borrow_mut().nodes_of(from) {
                let (on, until) = (state.clone(), state.executor.now() + us);
                let later = async move {
                    on.executor.until(until).await;
                    on.net.borrow_mut().send_if_open(&on, from, frame);
                };
                // A task of the node that sends: it ends with it.
                state.executor.spawn(node, "late", Box::pin(later));
            }
            return Ok(None);
        }
        Some(Tampering::Kill(polls)) => {
            let nodes = state.net.borrow_mut().nodes_of(from);
            nodes.into_iter().for_each(|[_, to]| state.schedule_kill(to, polls, false));
        }
    }
    Ok(Some((frame, None)))
}
