//! This brick passes a client's request on to a brick that the client does not reach.
//!
//! ```text
//!   client ──x──▶ primary
//!      │            ▲
//!      └── Proxy ──▶ this brick: the same request, the same epoch, the client's own number in it
//! ```
//!
//! It decides nothing. The primary compares the epoch, looks for the client among the fenced ones, and recognises a write that has
//! also come another way. To pass requests on in a client's name takes the cluster's key, and with that key anybody can
//! call the primary. Only what clients ask primaries is passed on, and only to bricks of the map: nobody gets by this at a request
//! that is for members of a group.

use std::cell::Cell;
use std::pin::pin;

use futures_util::future::{Either, select};
use types::code_probe::{CodeProbe, hit};
use types::messages::brick::{FindBytes, FindStripes, ReadStripe, Sync, Write};
use types::messages::proxy::{Proxied, Proxy};
use types::wire::{self, Record, Request};
use types::{BrickId, Buf, Epoch, Refusal};
use world::{Answer, CallError};

use crate::server::Server;

/// Most requests that are passed on at a time, and most bytes of them or of their answers. One request may have more.
const REQUESTS_MAX: usize = 256;
const BYTES_MAX: usize = 8 << 20;
/// Longest time for an answer, in microseconds.
const PATIENCE_MAX_US: u64 = 60_000_000;
/// Time between two looks whether the other brick is reached, in microseconds.
const LOOK_US: u64 = 250_000;

/// What is being passed on.
#[derive(Default)]
pub(crate) struct Proxies {
    requests: Cell<usize>,
    bytes: Cell<usize>,
}

/// The room of one request.
struct Room<'a>(&'a Proxies, usize);

impl Proxies {
    fn take(&self, bytes: usize) -> Option<Room<'_>> {
        let (requests, taken) = (self.requests.get(), self.bytes.get());
        let is_full = requests >= REQUESTS_MAX || taken + bytes > BYTES_MAX;
        if requests > 0 && is_full {
            return None;
        }
        self.requests.set(requests + 1);
        self.bytes.set(taken + bytes);
        Some(Room(self, bytes))
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.requests.set(self.0.requests.get() - 1);
        self.0.bytes.set(self.0.bytes.get() - self.1);
    }
}

impl Server {
    /// Asks another brick what a client wants to ask it.
    pub(crate) async fn proxy(&self, epoch: Epoch, proxy: Proxy, payload: Buf) -> Result<Answer, Refusal> {
        match proxy.kind {
            Write::KIND => self.pass_on::<Write>(epoch, proxy, payload).await,
            Sync::KIND => self.pass_on::<Sync>(epoch, proxy, payload).await,
            ReadStripe::KIND => self.pass_on::<ReadStripe>(epoch, proxy, payload).await,
            FindBytes::KIND => self.pass_on::<FindBytes>(epoch, proxy, payload).await,
            FindStripes::KIND => self.pass_on::<FindStripes>(epoch, proxy, payload).await,
            _ => Err(Refusal::Unsupported),
        }
    }

    async fn pass_on<R: Request>(&self, epoch: Epoch, proxy: Proxy, payload: Buf) -> Result<Answer, Refusal> {
        let request: R = wire::from_bytes(&proxy.record).map_err(|_| Refusal::Malformed)?;
        let reply_bytes = request.reply_bytes();
        if proxy.brick == self.options.brick || reply_bytes > proxy.reply_bytes as usize {
            return Err(Refusal::Malformed);
        }
        let address = self.address_of(proxy.brick).ok_or(Refusal::Unreached)?;
        let _room = self.proxies.take(payload.len().max(reply_bytes)).ok_or(Refusal::NotServing)?;
        hit(CodeProbe::Proxied);
        let patience_us = proxy.patience_us.min(PATIENCE_MAX_US);
        // It is dropped when the time is over: a timeout of its own would break the connection, on which others wait.
        let call = pin!(self.peers.call_within(2 * PATIENCE_MAX_US, &address, epoch, &request, payload));
        let given_up = pin!(self.world.timeout(patience_us, self.until_unreached(proxy.brick)));
        match select(call, given_up).await {
            Either::Left((Ok((reply, payload)), _)) => {
                Ok(Answer::new(&Proxied { record: wire::to_bytes(&reply) }, payload))
            }
            Either::Left((Err(CallError::Refused(refusal)), _)) => Err(refusal),
            Either::Left((Err(_), _)) | Either::Right(_) => {
                hit(CodeProbe::ProxyFailed);
                tracing::debug!(brick = %proxy.brick, request = R::NAME, "was not passed on");
                Err(Refusal::Unreached)
            }
        }
    }

    /// Ends when this brick does not reach another one.
    async fn until_unreached(&self, brick: BrickId) {
        while !self.reach.borrow().is_unreached(brick) {
            self.world.sleep(LOOK_US).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_on_takes_bounded_memory() {
        let proxies = Proxies::default();
        let large = proxies.take(4 * BYTES_MAX).expect("one may be larger than all");
        assert!(proxies.take(0).is_none());
        drop(large);
        let rooms: Vec<Room<'_>> = (0..8).map_while(|_| proxies.take(BYTES_MAX / 8)).collect();
        assert!(rooms.len() == 8 && proxies.take(1).is_none());
        drop(rooms);
        let rooms: Vec<Room<'_>> = (0..REQUESTS_MAX + 1).map_while(|_| proxies.take(1)).collect();
        assert_eq!(rooms.len(), REQUESTS_MAX);
        drop(rooms);
        assert_eq!((proxies.requests.get(), proxies.bytes.get()), (0, 0));
    }
}
