//! The way along a chain (E1): small messages there and back, and a stream, over each number of hops. As the paper counts them,
//! neighbours have no hop between them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::document::MB;
use crate::error::{Result, doing};
use crate::meter::CpuTimes;
use crate::node::Node;

/// Bytes of a small message.
const SMALL: usize = 64;
/// Small messages over one number of hops before the next has its turn: what changes with time then changes all of them.
const TURN: u32 = 100;
/// Bytes of one write of a stream.
const PIECE: usize = 64 << 10;
const PORT: u16 = 5000;

/// What was measured over a number of hops.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HopRun {
    /// Nodes between the ends.
    pub hops: u32,
    /// Half of the time there and back of a small message, in microseconds: the median.
    pub micros: f64,
    /// The same: the shortest.
    pub least: f64,
    /// Payload of a stream, in MB/s.
    pub rate: f64,
    /// Share of their time for which the cores were busy with the stream, 0 to 1.
    pub busy: f64,
}

/// A connection between two nodes.
pub(super) struct Pair {
    pub near: TcpStream,
    pub far: TcpStream,
}

/// Connects two nodes.
pub(super) fn connect(near: &Node, far: &Node, port: u16) -> Result<Pair> {
    let at = SocketAddr::from((far.address(), port));
    let what = || doing(format!("connect {} with {}", near.name(), far.name()));
    let listener = far.inside(|| TcpListener::bind(at))?.map_err(what())?;
    let there = near.inside(|| TcpStream::connect(at))?.map_err(what())?;
    let (here, _) = listener.accept().map_err(what())?;
    for conn in [&there, &here] {
        conn.set_nodelay(true).map_err(what())?;
    }
    Ok(Pair { near: there, far: here })
}

/// Measures a chain from its first node; the nodes are in their order.
///
/// # Errors
/// A connection breaks.
pub fn measure(nodes: &[Node], pings: u32, stream: Duration) -> Result<Vec<HopRun>> {
    let [first, others @ ..] = nodes else { return Ok(Vec::new()) };
    let pairs: Vec<Pair> = others.iter().map(|node| connect(first, node, PORT)).collect::<Result<_>>()?;
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); pairs.len()];
    // The first turn teaches caches and does not count.
    for turn in 0..=pings.div_ceil(TURN) {
        for (pair, times) in pairs.iter().zip(&mut times) {
            let took = ping(pair, TURN.min(pings)).map_err(doing("send small messages"))?;
            if turn > 0 {
                times.extend(took);
            }
        }
    }
    let run = |((hops, pair), times): ((u32, &Pair), &mut Vec<Duration>)| {
        times.sort_unstable();
        let half = |at: usize| times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6 / 2.0);
        let (rate, busy) = flow(pair, stream)?;
        Ok(HopRun { hops, micros: half(times.len() / 2), least: half(0), rate, busy })
    };
    (0..).zip(&pairs).zip(&mut times).map(run).collect()
}

/// The times there and back of some messages.
fn ping(Pair { near, far }: &Pair, count: u32) -> std::io::Result<Vec<Duration>> {
    let (mut near, mut far) = (near, far);
    thread::scope(|scope| {
        let echo = scope.spawn(move || {
            let mut message = [0; SMALL];
            (0..count).try_for_each(|_| far.read_exact(&mut message).and_then(|()| far.write_all(&message)))
        });
        let mut message = [7; SMALL];
        let one = |_| {
            let start = Instant::now();
            near.write_all(&message)?;
            near.read_exact(&mut message)?;
            Ok(start.elapsed())
        };
        let times = (0..count).map(one).collect();
        echo.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(times)
    })
}

/// MB/s of a stream, and how busy the cores were with it. The first third of the time does not count.
fn flow(Pair { near, far }: &Pair, time: Duration) -> Result<(f64, f64)> {
    let (mut near, is_over) = (near, AtomicBool::new(false));
    thread::scope(|scope| {
        let is_over = &is_over;
        let receive = scope.spawn(move || {
            let done = receive(far, time);
            is_over.store(true, Ordering::Relaxed);
            // The sender is in the middle of a piece.
            let rest = std::io::copy(&mut &*far, &mut std::io::sink()).map_err(doing("receive a stream"));
            rest.and(done)
        });
        let piece = vec![7; PIECE];
        let mut sent = Ok(());
        while sent.is_ok() && !is_over.load(Ordering::Relaxed) {
            sent = near.write_all(&piece);
        }
        let ended = sent.and_then(|()| near.shutdown(Shutdown::Write)).map_err(doing("send a stream"));
        let received = receive.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ended.and(received)
    })
}

fn receive(mut far: &TcpStream, time: Duration) -> Result<(f64, f64)> {
    let mut room = vec![0; PIECE];
    let (start, mut begin, mut bytes) = (Instant::now(), None, 0);
    loop {
        let count = far.read(&mut room).map_err(doing("receive a stream"))?;
        let now = Instant::now();
        match begin {
            None if now - start >= time / 3 => begin = Some((now, CpuTimes::now()?)),
            None => {}
            Some((from, cpu)) => {
                bytes += count;
                if now - from >= time {
                    let rate = bytes as f64 / MB / (now - from).as_secs_f64();
                    return Ok((rate, CpuTimes::now()?.busy_since(cpu)));
                }
            }
        }
    }
}

/// A straight line through points, by least squares, and how well it fits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Line {
    /// Its height at 0.
    pub at_0: f64,
    /// What it rises per step.
    pub slope: f64,
    /// Share of the points' variance that it explains, 0 to 1 (r squared).
    pub fit: f64,
}

impl Line {
    /// The line through at least two points that do not lie above each other.
    pub fn through(points: &[(f64, f64)]) -> Option<Line> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(a, b)| of(a - x, b - y)).sum::<f64>();
        let (xx, xy, yy) = (sum(&|a, _| a * a), sum(&|a, b| a * b), sum(&|_, b| b * b));
        if points.len() < 2 || xx == 0.0 {
            return None;
        }
        let fit = if yy == 0.0 { 1.0 } else { xy * xy / (xx * yy) };
        Some(Line { at_0: y - xy / xx * x, slope: xy / xx, fit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_its_points_and_says_how_well() {
        let line = Line::through(&[(0.0, 5.0), (1.0, 7.0), (2.0, 9.0)]).expect("a line");
        assert!((line.at_0 - 5.0).abs() < 1e-9 && (line.slope - 2.0).abs() < 1e-9);
        assert!((line.fit - 1.0).abs() < 1e-9);
        let bent = Line::through(&[(0.0, 0.0), (1.0, 4.0), (2.0, 0.0)]).expect("a line");
        assert_eq!((bent.slope, bent.fit), (0.0, 0.0));
        assert_eq!(Line::through(&[(1.0, 1.0)]), None);
        assert_eq!(Line::through(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(Line::through(&[(1.0, 3.0), (2.0, 3.0)]).expect("a line").fit, 1.0);
    }

    fn pair() -> Pair {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        Pair { near, far: listener.accept().expect("a connection").0 }
    }

    #[test]
    fn messages_come_back_and_a_stream_ends() {
        let pair = pair();
        assert_eq!(ping(&pair, 5).expect("answers").len(), 5);
        let (rate, busy) = flow(&pair, Duration::from_millis(20)).expect("a stream");
        assert!(rate > 0.0 && (0.0..=1.0).contains(&busy));
    }
}
