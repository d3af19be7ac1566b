//! Reads a connection: gives its answers to the calls that wait for them.

use types::messages::session::{Grant, Piece};
use types::wire::{self, Record};

use super::super::incoming::{BadPiece, refuse};
use super::{Link, Open};
use crate::{Frame, Receiver, World};

/// Delivers answers to the waiting calls, and sends what the server grants, until the connection ends or an invalid frame
/// arrives. It never waits for anything else, so a server need not wait for what it has granted.
pub(super) async fn read(world: &World, mut receiver: Receiver, link: &Link, open: &Open) {
    loop {
        let received = receiver.recv().await;
        link.heard_us.set(world.turn_began());
        match received {
            Ok(Some(frame)) if frame.header.flags.is_reply() && frame.header.cluster == open.cluster => {
                let taken = if frame.header.kind == Grant::KIND {
                    open.requests.granted(&frame, &open.send_queue).map_err(BadPiece::Record)
                } else {
                    if frame.header.kind != Piece::KIND {
                        open.requests.crowded(frame.header.flags.is_crowded());
                    }
                    deliver(frame, link, open)
                };
                if let Err(error) = taken {
                    return tracing::warn!(
                        server = &*link.address,
                        "the connection is closed, because the server breaks the protocol: {error}"
                    );
                }
            }
            Ok(Some(_)) => return tracing::debug!("a frame that is not an answer of this cluster"),
            Ok(None) => return,
            Err(error) => return tracing::debug!(%error, "cannot receive"),
        }
    }
}

/// Gives a frame to the call that waits for it. If no call does any more, it is dropped, or refused if it announces more.
fn deliver(frame: Frame, link: &Link, open: &Open) -> Result<(), BadPiece> {
    let request = frame.header.request;
    let arriving = match link.pending.borrow().get(&request) {
        Some(pending) => {
            if let Some(begun) = &pending.begun {
                begun.0.set(true);
            }
            pending.arriving.clone()
        }
        None => {
            if frame.header.flags.is_announced() {
                refuse(&frame, &open.send_queue);
            }
            return Ok(());
        }
    };
    let answer = match arriving {
        Some(arriving) => {
            if let Some(Piece { lost, timeouts }) = said(&frame) {
                open.meter.timeouts(timeouts);
                arriving.lost(open.meter.lost(lost));
            }
            open.meter.came(&frame);
            arriving.take(frame, &open.send_queue, &open.meter)?
        }
        None if frame.header.flags.is_announced() => return Err(BadPiece::Stray),
        None => Some(frame),
    };
    if let Some(answer) = answer
        && let Some(pending) = link.pending.borrow_mut().get_mut(&request)
    {
        pending.put(Ok(answer));
    }
    Ok(())
}

/// How many packets of the connection were lost so far, if the frame tells.
fn said(frame: &Frame) -> Option<Piece> {
    if frame.header.kind == Piece::KIND {
        return wire::from_bytes(&frame.record).ok();
    }
    // 0 tells nothing: small answers have it, too.
    let is_whole = !frame.header.flags.is_announced() && frame.header.bulk > 0;
    is_whole.then_some(Piece { lost: frame.header.bulk, timeouts: 0 })
}
