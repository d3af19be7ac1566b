//! A brick: its work for units, and what of its answers may be sent. As `outgoing.rs` of the product's calls.

use crate::connection::{Announced, Connection, Frame, FrameKind};
use crate::packet::Ask;
use crate::time::{Time, US};

/// Most bytes of one connection's answers that wait for credit. Further ones are sent without.
const WAITING_MAX: usize = 8 << 20;
/// The same of all connections of a brick.
const WAITING_ALL_MAX: usize = 64 << 20;

/// What a brick does.
#[derive(Debug, Default)]
pub(crate) struct Brick {
    /// When it has done the work that it has.
    free_at: Time,
    /// Bytes that wait for credit.
    waiting: usize,
}

impl Brick {
    /// A frame has come. Returns when the bytes for it will be in RAM, if it asks for some.
    pub(crate) fn take(
        &mut self,
        now: Time,
        ask: Ask,
        work: Time,
        connection: &mut Connection,
    ) -> Option<Time> {
        match ask {
            Ask::Unit { transfer, credit } => {
                connection.reading.push_back((transfer, credit));
                self.free_at = self.free_at.max(now) + work;
                Some(self.free_at)
            }
            Ask::Grant { transfer, bytes } => {
                self.granted(now, transfer, bytes, connection);
                None
            }
        }
    }

    /// The bytes of the oldest request are in RAM: sends them, or announces them.
    pub(crate) fn answer(&mut self, now: Time, unit: usize, bulk_min: usize, connection: &mut Connection) {
        let Some((transfer, credit)) = connection.reading.pop_front() else { return };
        let of_connection: usize = connection.announced.values().map(|one| one.bytes - one.sent).sum();
        let is_free = unit <= bulk_min.max(credit);
        let is_full = of_connection + unit > WAITING_MAX || self.waiting + unit > WAITING_ALL_MAX;
        if is_free || is_full {
            let tells = is_free && unit > bulk_min && credit != usize::MAX;
            let lost = if tells { lost(now, connection) } else { 0 };
            let lost = (lost > 0).then_some(lost);
            return connection.write(Frame { transfer, kind: FrameKind::Whole, bytes: unit, lost });
        }
        self.waiting += unit;
        connection.announced.insert(transfer, Announced { bytes: unit, sent: 0 });
        connection.write(Frame { transfer, kind: FrameKind::Announcement, bytes: unit, lost: None });
    }

    fn granted(&mut self, now: Time, transfer: u64, bytes: usize, connection: &mut Connection) {
        let Some(answer) = connection.announced.get_mut(&transfer) else { return };
        let left = answer.bytes - answer.sent;
        let bytes = bytes.min(left);
        answer.sent += bytes;
        self.waiting -= bytes;
        if bytes == left {
            connection.announced.remove(&transfer);
        }
        let lost = Some(lost(now, connection));
        connection.write(Frame { transfer, kind: FrameKind::Piece, bytes, lost });
    }
}

/// Packets of a connection that were lost, as its brick knows.
fn lost(now: Time, connection: &mut Connection) -> u32 {
    connection.losses.settle(now / US, connection.sender.resent())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Way;

    const UNIT: usize = 128 << 10;
    const BULK_MIN: usize = 16 << 10;

    fn connection() -> Connection {
        let way = Way { first: 0, hops: 0 };
        Connection::new(0, 0, 0, way, way, US)
    }

    fn frames(connection: &Connection) -> Vec<(FrameKind, usize)> {
        connection.coming.iter().map(|(_, frame)| (frame.kind, frame.bytes)).collect()
    }

    #[test]
    fn what_has_no_credit_is_announced_and_comes_as_it_is_granted() {
        let (mut brick, mut connection) = (Brick::default(), connection());
        let ready = brick.take(5, Ask::Unit { transfer: 7, credit: 0 }, 10, &mut connection);
        assert_eq!(ready, Some(15));
        assert_eq!(brick.take(6, Ask::Unit { transfer: 8, credit: UNIT }, 10, &mut connection), Some(25));
        brick.answer(15, UNIT, BULK_MIN, &mut connection);
        brick.answer(25, UNIT, BULK_MIN, &mut connection);
        brick.take(26, Ask::Grant { transfer: 7, bytes: 16 << 10 }, 10, &mut connection);
        brick.take(27, Ask::Grant { transfer: 7, bytes: UNIT }, 10, &mut connection);
        brick.take(28, Ask::Grant { transfer: 7, bytes: UNIT }, 10, &mut connection);
        let expected = [
            (FrameKind::Announcement, UNIT),
            (FrameKind::Whole, UNIT),
            (FrameKind::Piece, 16 << 10),
            (FrameKind::Piece, UNIT - (16 << 10)),
        ];
        assert_eq!(frames(&connection), expected);
        assert_eq!((brick.waiting, connection.announced.len()), (0, 0));
    }

    #[test]
    fn a_client_that_grants_nothing_bounds_what_waits() {
        let (mut brick, mut connection) = (Brick::default(), connection());
        for transfer in 0..80 {
            brick.take(0, Ask::Unit { transfer, credit: 0 }, 1, &mut connection);
            brick.answer(0, UNIT, BULK_MIN, &mut connection);
        }
        assert_eq!(brick.waiting, WAITING_MAX);
        let whole = frames(&connection).iter().filter(|(kind, _)| *kind == FrameKind::Whole).count();
        assert_eq!(whole, 80 - WAITING_MAX / UNIT);
    }
}
