//! One message to one node against the same bytes cut in four for four nodes (E3): the time until all receivers have
//! said that they have everything.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::chain::{Pair, connect};
use crate::error::{Result, doing};
use crate::node::Node;

/// Receivers of the cut message.
pub const PARTS: u32 = 4;
/// A message begins with its length.
const HEAD: usize = 4;
/// What comes before anything counts, so that TCP knows the way.
const WARM: (u32, u32) = (1 << 20, 8);
const PORT: u16 = 5001;

/// The times of a message size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SendRun {
    /// Bytes of the message.
    pub bytes: u32,
    /// Microseconds as one message: the median.
    pub single: f64,
    /// Microseconds in four parts: the median.
    pub parallel: f64,
}

/// Sends from a node to others messages of each size, as often as told.
///
/// # Errors
/// A connection breaks, or there are fewer than four receivers.
pub fn measure(from: &Node, to: &[&Node], sizes: &[u32], repetitions: u32) -> Result<Vec<SendRun>> {
    if to.len() < PARTS as usize {
        return Err(doing("send in parts")(format!("{} receivers instead of {PARTS}", to.len())));
    }
    let pairs: Vec<Pair> =
        to[..PARTS as usize].iter().map(|node| connect(from, node, PORT)).collect::<Result<_>>()?;
    over(pairs, sizes, repetitions).map_err(doing("send messages"))
}

fn over(pairs: Vec<Pair>, sizes: &[u32], repetitions: u32) -> std::io::Result<Vec<SendRun>> {
    thread::scope(|scope| {
        let (senders, receivers): (Vec<TcpStream>, Vec<TcpStream>) =
            pairs.into_iter().map(|pair| (pair.near, pair.far)).unzip();
        let receivers: Vec<_> = receivers.into_iter().map(|conn| scope.spawn(|| receive(conn))).collect();
        let done = send_all(&senders, sizes, repetitions);
        // The receivers see this end.
        drop(senders);
        for receiver in receivers {
            receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        done
    })
}

fn send_all(senders: &[TcpStream], sizes: &[u32], repetitions: u32) -> std::io::Result<Vec<SendRun>> {
    senders.iter().try_for_each(|conn| conn.set_nonblocking(true))?;
    for _ in 0..WARM.1 {
        send(senders, WARM.0)?;
        send(&senders[..1], WARM.0)?;
    }
    let run = |&bytes: &u32| {
        let (mut single, mut parallel) = (Vec::new(), Vec::new());
        for _ in 0..repetitions {
            single.push(send(&senders[..1], bytes)?);
            parallel.push(send(senders, bytes)?);
        }
        Ok(SendRun { bytes, single: median(single), parallel: median(parallel) })
    };
    sizes.iter().map(run).collect()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

/// The time until each connection's receiver has its equal part of a message.
fn send(conns: &[TcpStream], bytes: u32) -> std::io::Result<Duration> {
    let part = (bytes as usize / conns.len()).max(HEAD);
    let mut message = vec![7; part];
    message[..HEAD].copy_from_slice(&(part as u32).to_le_bytes());
    let (mut sent, mut is_told) = (vec![0; conns.len()], vec![false; conns.len()]);
    let start = Instant::now();
    loop {
        for ((mut conn, sent), told) in conns.iter().zip(&mut sent).zip(&mut is_told) {
            while *sent < part {
                match conn.write(&message[*sent..]) {
                    Ok(count) => *sent += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            if *sent == part && !*told {
                match conn.read_exact(&mut [0]) {
                    Ok(()) => *told = true,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
        if is_told.iter().all(|told| *told) {
            return Ok(start.elapsed());
        }
        let waits =
            conns.iter().zip(&sent).zip(&is_told).filter(|(_, told)| !**told).map(|((conn, sent), _)| {
                let wanted = if *sent < part { PollFlags::POLLOUT } else { PollFlags::POLLIN };
                PollFd::new(conn.as_fd(), wanted)
            });
        poll(&mut waits.collect::<Vec<_>>(), PollTimeout::NONE)?;
    }
}

/// Answers each message with a byte, until the sender ends.
fn receive(mut conn: TcpStream) -> std::io::Result<()> {
    let mut room = vec![0; WARM.0 as usize];
    let mut head = [0; HEAD];
    loop {
        match conn.read_exact(&mut head) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let rest = u32::from_le_bytes(head) as usize - HEAD;
        conn.read_exact(&mut room[..rest])?;
        conn.write_all(&[1])?;
    }
}

/// The first size from which on four parts are always faster, if there is one.
pub fn crossover(runs: &[SendRun]) -> Option<u32> {
    let slower = runs.iter().rposition(|run| run.parallel >= run.single);
    runs.get(slower.map_or(0, |at| at + 1)).map(|run| run.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn all_parts_arrive_and_are_told() {
        let pair = || {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
            let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
            Pair { near, far: listener.accept().expect("a connection").0 }
        };
        let pairs = (0..PARTS).map(|_| pair()).collect();
        let runs = over(pairs, &[8, 4096, 1 << 20], 3).expect("messages");
        assert_eq!(runs.iter().map(|run| run.bytes).collect::<Vec<_>>(), [8, 4096, 1 << 20]);
        assert!(runs.iter().all(|run| run.single > 0.0 && run.parallel > 0.0), "{runs:?}");
    }

    #[test]
    fn the_crossover_is_where_parts_begin_to_win_for_good() {
        let run = |(bytes, single, parallel)| SendRun { bytes, single, parallel };
        let runs = |times: [(u32, f64, f64); 3]| times.map(run);
        assert_eq!(crossover(&runs([(1, 5.0, 9.0), (2, 9.0, 8.0), (4, 9.0, 8.0)])), Some(2));
        assert_eq!(crossover(&runs([(1, 9.0, 5.0), (2, 8.0, 8.0), (4, 9.0, 8.0)])), Some(4));
        assert_eq!(crossover(&runs([(1, 9.0, 5.0), (2, 9.0, 8.0), (4, 9.0, 8.0)])), Some(1));
        assert_eq!(crossover(&runs([(1, 5.0, 9.0), (2, 8.0, 9.0), (4, 8.0, 9.0)])), None);
    }
}
