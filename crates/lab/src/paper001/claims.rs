//! The paper's findings, compared with the results here.

use super::runs::{Measured, Point};
use super::scale::{FAST, SLOW};
use super::service::AccessPath;
use super::small_write::CLASSIC;
use crate::load::Item;
use crate::verdict::judge;
pub use crate::verdict::{Claim, Judged, Verdict};

/// Least growth from one number of clients to the next that counts as growth.
const GROWTH: f64 = 1.10;

impl Measured {
    /// Clients beside the server's node, peer to peer.
    pub fn peers(&self, clients: u32, mbit: u32) -> Point {
        Point { way: AccessPath::FileGate, nodes: self.scale.nodes(), clients, first: 2, mbit }
    }

    /// Clients of the centralised arrangement.
    pub fn central(&self, clients: u32) -> Point {
        Point { way: AccessPath::Centralised, ..self.peers(clients, FAST.mbit) }
    }

    /// The server's node works, with this number of nodes in the RAID.
    pub fn width(&self, nodes: u32) -> Point {
        Point { way: AccessPath::FileGate, nodes, clients: 1, first: 1, mbit: FAST.mbit }
    }

    /// The same, with the bricks gathered at that node.
    pub fn gathered(&self, nodes: u32) -> Point {
        Point { way: AccessPath::GatheredFileGate, ..self.width(nodes) }
    }

    /// The point of a row of Table 3.
    pub fn service(&self, way: AccessPath) -> Point {
        match way {
            AccessPath::Local => Point { way, nodes: 1, clients: 1, first: 1, mbit: 0 },
            AccessPath::GatheredFileGate => self.gathered(self.scale.nodes()),
            _ => Point { way, ..self.peers(1, FAST.mbit) },
        }
    }

    /// The rate of one point over that of another; 0 if one of them is missing.
    pub fn ratio(&self, item: Item, over: Point, under: Point) -> f64 {
        let rates = self.rate(over, item).zip(self.rate(under, item));
        rates.filter(|(_, under)| *under > 0.0).map_or(0.0, |(over, under)| over / under)
    }

    /// The most that the centralised arrangement reaches, with any number of clients, in MB/s.
    pub fn central_best(&self, item: Item) -> f64 {
        (1..=self.scale.clients).filter_map(|n| self.rate(self.central(n), item)).fold(0.0, f64::max)
    }

    /// The rate of all clients together, peer to peer, over the best centralised rate.
    pub fn gain(&self, item: Item) -> f64 {
        let all = self.rate(self.peers(self.scale.clients, FAST.mbit), item).unwrap_or_default();
        all / self.central_best(item).max(f64::MIN_POSITIVE)
    }

    /// The least number of clients at which one more brings no growth; `None` if each brings growth.
    pub fn saturation(&self, item: Item, point: impl Fn(u32) -> Point) -> Option<u32> {
        (1..self.scale.clients).find(|n| self.ratio(item, point(n + 1), point(*n)) < GROWTH)
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// All findings, in the order of the paper.
pub fn claims(measured: &Measured) -> Vec<Claim> {
    let mut claims = services(measured);
    claims.extend(links(measured));
    claims.extend(together(measured));
    claims.extend(widths(measured));
    claims.extend(small_write(measured));
    claims
}

/// 001-E1, Table 3.
fn services(measured: &Measured) -> Vec<Claim> {
    let of = |way: AccessPath, under: AccessPath| {
        [Item::WriteBlocks, Item::ReadBlocks]
            .map(|item| measured.ratio(item, measured.service(way), measured.service(under)))
    };
    let [local_write, local_read] = of(AccessPath::NfsGate, AccessPath::Local);
    let [block_write, block_read] = of(AccessPath::BlockGate, AccessPath::NfsGate);
    let over_file = of(AccessPath::Centralised, AccessPath::NfsGate);
    let over_block = of(AccessPath::Centralised, AccessPath::BlockGate);
    vec![
        Claim {
            id: "001-E1",
            paper: "every service over the network is far below the local disk: 14 to 27 % of its writes, 24 to 31 % of its reads",
            here: format!(
                "NFS gate: {} of the writes, {} of the reads",
                percent(local_write),
                percent(local_read)
            ),
            verdict: (
                Verdict::NotComparable,
                "so it is, but the local disk here is RAM: shares of it say nothing, shares of the wire do (Table 3)",
            ),
        },
        order(measured),
        Claim {
            id: "001-E1",
            paper: "block service (ENBD) reaches 94 % of file service (NFS) in writes, 85 % in reads",
            here: format!("{} and {}", percent(block_write), percent(block_read)),
            verdict: match block_write.min(block_read) {
                share if share >= 0.94 => (
                    Verdict::Better,
                    "both gates are translations of one client, which finds the bricks by itself",
                ),
                share if share >= 0.80 => (Verdict::Reproduced, "the block gate costs a little more"),
                _ => (Verdict::NotReproduced, "the block gate falls further behind than the paper's"),
            },
        },
        Claim {
            id: "001-E1",
            paper: "file service over remote disks (NFS + ENBD) writes at 52 to 55 % of either alone, reads at 78 to 92 %",
            here: format!(
                "{} and {} of the NFS gate, {} and {} of the block gate, both peer to peer",
                percent(over_file[0]),
                percent(over_file[1]),
                percent(over_block[0]),
                percent(over_block[1])
            ),
            verdict: match (over_file[0].min(over_block[0]), over_file[1].min(over_block[1])) {
                (write, read) if write > 0.65 && read > 0.75 => (
                    Verdict::Better,
                    "every byte passes the gate's link twice, but once in each direction, and links are full duplex; stripes are written whole, so that nothing is read to make parity",
                ),
                (write, read) if write > 0.40 && read > 0.75 => {
                    (Verdict::Reproduced, "every byte passes the gate's link twice")
                }
                _ => (Verdict::NotReproduced, "the detour costs more than it did in the paper"),
            },
        },
    ]
}

/// The paper's four paths, fastest first: in its writes and in its reads.
const PATHS: [(AccessPath, &str); 4] = [
    (AccessPath::Local, "local disk"),
    (AccessPath::NfsGate, "file service"),
    (AccessPath::BlockGate, "block service"),
    (AccessPath::Centralised, "file over block"),
];

/// The order of the four paths.
fn order(measured: &Measured) -> Claim {
    let rates = |item| PATHS.map(|(way, _)| measured.rate(measured.service(way), item).unwrap_or_default());
    let told = |rates: [f64; 4]| {
        let mut paths: Vec<(f64, &str)> = rates.into_iter().zip(PATHS.map(|(_, name)| name)).collect();
        // The sort is stable: equal rates stay in the paper's order.
        paths.sort_by(|one, other| other.0.total_cmp(&one.0));
        let words: Vec<String> = paths.iter().map(|(rate, name)| format!("{name} {rate:.1}")).collect();
        words.join(", ")
    };
    let (writes, reads) = (rates(Item::WriteBlocks), rates(Item::ReadBlocks));
    Claim {
        id: "001-E1",
        paper: "the order of the four paths, in writes and in reads: local disk (28.8 and 42.1 MB/s), file service (7.7 and 12.9), block service (7.2 and 11.0), file service over remote disks (4.0 and 10.1)",
        here: format!("writes: {}; reads: {} MB/s", told(writes), told(reads)),
        verdict: judge_order(writes, reads),
    }
}

/// Rates that differ by less count as equal, because repetitions of one point differ by as much.
const LEVEL: f64 = 0.9;

/// By the rates of [`PATHS`].
fn judge_order(writes: [f64; 4], reads: [f64; 4]) -> Judged {
    let both = |so: &dyn Fn([f64; 4]) -> bool| so(writes) && so(reads);
    let detour = |[_, file, block, over]: [f64; 4]| over / file.min(block);
    if !both(&|rates| rates.iter().all(|rate| *rate > 0.0)) {
        (Verdict::NotMeasured, "one of the four is missing")
    } else if !both(&|[local, file, block, over]| local > file.max(block).max(over)) {
        (Verdict::NotReproduced, "the disk that needs no link is not the fastest")
    } else if detour(writes) > LEVEL || detour(reads) >= 1.0 {
        (
            Verdict::Better,
            "the local disk is first here too, but file service over remote disks is no clear last: the detour, which halved the paper's writes, costs less than a tenth of them, or nothing in reads",
        )
    } else if both(&|[_, file, block, _]| file > block * LEVEL) {
        (Verdict::Reproduced, "what needs no link is fastest, a detour over another node slowest")
    } else {
        (
            Verdict::NotReproduced,
            "the first and the last are the paper's, but block service is faster than file service: a disk has no names and attributes to ask for",
        )
    }
}

/// 001-E2, Fig. 7.
fn links(measured: &Measured) -> Vec<Claim> {
    let (fast, slow) = (measured.peers(1, FAST.mbit), measured.peers(1, SLOW.mbit));
    let gains = Item::ALL.map(|item| measured.ratio(item, fast, slow));
    let [char_write, block_write, char_read, block_read] = gains;
    let share = |point: Point, chars: Item, blocks: Item| {
        measured.rate(point, chars).zip(measured.rate(point, blocks)).map_or(0.0, |(c, b)| c / b)
    };
    let shares = |point| {
        [(Item::PutChars, Item::WriteBlocks), (Item::GetChars, Item::ReadBlocks)]
            .map(|(chars, blocks)| share(point, chars, blocks))
    };
    let ([fast_write, fast_read], [slow_write, slow_read]) = (shares(fast), shares(slow));
    vec![
        Claim {
            id: "001-E2",
            paper: "from 10 to 100 Mbit/s, character items become 4 times as fast",
            here: format!("{char_write:.1} times (write), {char_read:.1} times (read)"),
            verdict: judge(
                char_write.min(char_read) > 4.5,
                (
                    Verdict::Better,
                    "a character cost the paper's processors more than its bytes cost the link; it costs some nanoseconds now",
                ),
                (Verdict::Reproduced, "characters cost more than their bytes on the link"),
            ),
        },
        Claim {
            id: "001-E2",
            paper: "block items become 12 to 14 times as fast",
            here: format!("{block_write:.1} times (write), {block_read:.1} times (read)"),
            verdict: judge(
                block_write.min(block_read) >= 11.0,
                (Verdict::Reproduced, "the slow links lose more than their rate"),
                (
                    Verdict::NotReproduced,
                    "links ten times as fast give ten times; in the paper something else was wrong at 10 Mbit/s too",
                ),
            ),
        },
        Claim {
            id: "001-E2",
            paper: "at 100 Mbit/s character items reach about 30 % of block items",
            here: format!("{} (write), {} (read)", percent(fast_write), percent(fast_read)),
            verdict: judge(
                fast_write.min(fast_read) > 0.45,
                (Verdict::Better, "the processor is no limit any more, the link is"),
                (Verdict::Reproduced, "characters cost more than their bytes on the link"),
            ),
        },
        Claim {
            id: "001-E2",
            paper: "at 10 Mbit/s the network hides all else",
            here: format!(
                "character items at {} (write) and {} (read) of block items",
                percent(slow_write),
                percent(slow_read)
            ),
            verdict: judge(
                slow_write.min(slow_read) > 0.85,
                (Verdict::Reproduced, "everything waits for the link"),
                (Verdict::NotReproduced, "the way the bytes come in shows even so"),
            ),
        },
    ]
}

/// Where growth ends, in words.
fn end_of_growth(saturation: Option<u32>) -> String {
    match saturation {
        None => "goes on".to_owned(),
        Some(1) => "ends with 1 node".to_owned(),
        Some(clients) => format!("ends with {clients} nodes"),
    }
}

/// 001-E3, Fig. 8.
fn together(measured: &Measured) -> Vec<Claim> {
    let most = measured.scale.clients;
    let peers = |n| measured.peers(n, FAST.mbit);
    let central = |n| measured.central(n);
    let rate = |point, item| measured.rate(point, item).unwrap_or_default();
    let row = |point: &dyn Fn(u32) -> Point, item| {
        let rates: Vec<String> = (1..=most).map(|n| format!("{:.1}", rate(point(n), item))).collect();
        rates.join(", ")
    };
    let at = |point: &dyn Fn(u32) -> Point| measured.saturation(Item::WriteBlocks, point);
    let (central_end, peers_end) = (at(&central), at(&peers));
    vec![
        Claim {
            id: "001-E3",
            paper: "with 1 to 5 nodes at once total writes rise, not in proportion, and saturate at 4 nodes or more: the server's network is the bottleneck",
            here: format!(
                "centralised: {} MB/s; growth {}",
                row(&central, Item::WriteBlocks),
                end_of_growth(central_end)
            ),
            verdict: judge(
                central_end.is_some(),
                (
                    Verdict::Reproduced,
                    "the gate's one link carries everything; one client of today fills it, where the paper's needed four",
                ),
                (Verdict::NotReproduced, "the gate's link is not the limit yet"),
            ),
        },
        Claim {
            id: "001-E3",
            paper: "the same, as a flaw to be beaten: writes must not saturate at 4 nodes",
            here: format!(
                "peer to peer: {} MB/s; growth {}",
                row(&peers, Item::WriteBlocks),
                end_of_growth(peers_end)
            ),
            verdict: judge(
                peers_end.is_none(),
                (
                    Verdict::Better,
                    "each node sends its units straight to the bricks' nodes; no link is everybody's",
                ),
                (Verdict::NotReproduced, "growth ends here too; see below how busy the cores were"),
            ),
        },
    ]
}

/// The verdict on each comparison with CDD.
const STAND_IN: Judged = (
    Verdict::NotComparable,
    "CDD cannot be had; in its place stands the paper's own arrangement, which had beaten it",
);
/// The verdict on each row of the paper's slower cluster.
const SLOW_NODES: Judged = (
    Verdict::NotMeasured,
    "neither CDD nor slow nodes can be had: all nodes share the cores of one machine and have disks of RAM; less time on the cores would not make a processor of 180 MHz with 64 MB and a disk of 11 MB/s",
);

/// 001-E4, Fig. 9.
fn widths(measured: &Measured) -> Vec<Claim> {
    let widths = &measured.scale.widths;
    let rate = |nodes: u32, item| measured.rate(measured.width(nodes), item).unwrap_or_default();
    let names: Vec<String> = widths.iter().map(u32::to_string).collect();
    let row = |item| {
        let rates: Vec<String> = widths.iter().map(|nodes| format!("{:.1}", rate(*nodes, item))).collect();
        format!("{} MB/s with {} nodes", rates.join(", "), names.join(", "))
    };
    // The node's rate over its rate with the bricks gathered at it, at each width that has both.
    let over = |item| {
        let both = widths.iter().filter(|nodes| measured.rate(measured.gathered(**nodes), item).is_some());
        let told = |nodes: &u32| {
            let ratio = measured.ratio(item, measured.width(*nodes), measured.gathered(*nodes));
            format!("{ratio:.2} times with {nodes} nodes")
        };
        both.map(told).collect::<Vec<_>>().join(", ")
    };
    let (first, last) = (widths.first().copied().unwrap_or(2), measured.scale.nodes());
    let few = rate(first, Item::ReadBlocks) / rate(last, Item::ReadBlocks).max(f64::MIN_POSITIVE);
    let most = measured.scale.clients;
    let (peer, central) = (measured.peers(1, FAST.mbit), measured.central(1));
    vec![
        Claim {
            id: "001-E4",
            paper: "5.5 times the block writes of CDD, 2.3 times its block reads (beyond 4 nodes)",
            here: format!(
                "peer to peer with {most} nodes at work: {:.1} times the writes and {:.1} times the reads of the centralised arrangement's best; with 1: {:.2} and {:.2} times",
                measured.gain(Item::WriteBlocks),
                measured.gain(Item::ReadBlocks),
                measured.ratio(Item::WriteBlocks, peer, central),
                measured.ratio(Item::ReadBlocks, peer, central),
            ),
            verdict: STAND_IN,
        },
        Claim {
            id: "001-E4",
            paper: "the same, where only the node that is the server works",
            here: format!(
                "peer to peer against bricks gathered at that node: writes {}; reads {}",
                over(Item::WriteBlocks),
                over(Item::ReadBlocks)
            ),
            verdict: (
                Verdict::NotComparable,
                "CDD cannot be had; both ways send the same bytes over that node's link: what peer to peer gains shows where several nodes work",
            ),
        },
        Claim {
            id: "001-E4",
            paper: "the node that is the server gains far more in block reads with 2 and 4 nodes than with more",
            here: row(Item::ReadBlocks),
            verdict: judge(
                few > 1.2,
                (
                    Verdict::Reproduced,
                    "of N nodes' bricks one is the reader's own: that share of the bytes needs no link",
                ),
                (Verdict::NotReproduced, "few nodes gain no more than many"),
            ),
        },
        Claim {
            id: "001-E4",
            paper: "twice the character writes of CDD",
            here: format!(
                "{}; against bricks gathered at that node {}",
                row(Item::PutChars),
                over(Item::PutChars)
            ),
            verdict: STAND_IN,
        },
        Claim {
            id: "001-E4",
            paper: "character reads above those of CDD with up to 12 nodes, slightly below beyond",
            here: format!(
                "{}; against bricks gathered at that node {}",
                row(Item::GetChars),
                over(Item::GetChars)
            ),
            verdict: STAND_IN,
        },
        Claim {
            id: "001-E4",
            paper: "on slow nodes (Pentium Pro, 180 MHz) characters at 31 to 56 % of CDD",
            here: "-".to_owned(),
            verdict: SLOW_NODES,
        },
        Claim {
            id: "001-E4",
            paper: "on slow nodes blocks at 1.2 to 2 times CDD",
            here: "-".to_owned(),
            verdict: SLOW_NODES,
        },
    ]
}

/// The small write: its cost until it is durable, and its total cost.
fn small_write(measured: &Measured) -> [Claim; 2] {
    let small = &measured.small_write;
    let (durable, later) = (small.durable, small.later);
    let at_once = small.each(durable.reads + durable.writes);
    let all = at_once + small.each(later.reads + later.writes);
    let classic = f64::from(CLASSIC);
    let paper = "a small write costs RAID-5 four accesses of disks: old data and old parity are read, both are written";
    [
        Claim {
            id: "001-M2",
            paper,
            here: format!(
                "{at_once:.1} until it is durable: {:.1} reads, {:.1} writes",
                small.each(durable.reads),
                small.each(durable.writes)
            ),
            verdict: judge(
                at_once < classic,
                (
                    Verdict::Better,
                    "the bytes go to the journals of one data disk and the parity disk, and nothing is read",
                ),
                (Verdict::NotReproduced, "more than the journals of two disks are touched"),
            ),
        },
        Claim {
            id: "001-M2",
            paper: "the same",
            here: format!("{all:.1} with what is put off until a stripe's overwrites are folded"),
            verdict: judge(
                all < classic,
                (Verdict::Better, "overwrites of one stripe are folded together"),
                (
                    Verdict::NotReproduced,
                    "as many or more: folding reads what was journalled and writes it to its place, in the background",
                ),
            ),
        },
    ]
}
