//! What has entered the layers of a mount, and what follows from it.

/// What has entered a layer.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Layer {
    pub(super) name: String,
    pub(super) reads: Flow,
    pub(super) writes: Flow,
}

/// Requests of one kind, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Flow {
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

impl Flow {
    fn since(self, past: Flow) -> Flow {
        Flow {
            requests: self.requests.saturating_sub(past.requests),
            bytes: self.bytes.saturating_sub(past.bytes),
        }
    }

    /// Bytes of a request; `None` without requests.
    pub(super) fn mean(self) -> Option<f64> {
        ratio(self.bytes, self.requests)
    }
}

/// Which of a layer's flows.
pub(super) type Kind = fn(&Layer) -> Flow;

pub(super) const READS: Kind = |layer| layer.reads;
pub(super) const WRITES: Kind = |layer| layer.writes;

/// The layers, from the top down. The last one is the bricks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Layers(pub(super) Vec<Layer>);

impl Layers {
    /// Reads the text of `.shoal/xray`.
    ///
    /// # Errors
    /// The reason that the text gives.
    pub(super) fn parse(text: &str) -> Result<Layers, String> {
        if let Some(error) = text.lines().find_map(|line| line.strip_prefix("error ")) {
            return Err(error.to_owned());
        }
        Ok(Layers(text.lines().filter_map(parse_line).collect()))
    }

    /// What has entered since `past`.
    pub(super) fn since(&self, past: &Layers) -> Layers {
        let one = |layer: &Layer| {
            let before = past.named(&layer.name).cloned().unwrap_or_default();
            let (reads, writes) = (layer.reads.since(before.reads), layer.writes.since(before.writes));
            Layer { name: layer.name.clone(), reads, writes }
        };
        Layers(self.0.iter().map(one).collect())
    }

    pub(super) fn named(&self, name: &str) -> Option<&Layer> {
        self.0.iter().find(|layer| layer.name == name)
    }

    /// What programs asked for.
    pub(super) fn asked(&self, kind: Kind) -> Flow {
        self.0.first().map(kind).unwrap_or_default()
    }

    /// What this client asked of bricks and sent to them.
    pub(super) fn bricks(&self, kind: Kind) -> Flow {
        self.0.last().map(kind).unwrap_or_default()
    }

    /// What enters a layer, and what leaves it downward.
    pub(super) fn through(&self, name: &str, kind: Kind) -> Option<(Flow, Flow)> {
        let at = self.0.iter().position(|layer| layer.name == name)?;
        Some((kind(&self.0[at]), kind(self.0.get(at + 1)?)))
    }

    /// Bytes that leave a layer downward, for each byte that programs asked for. `None` for the bricks, and if programs
    /// asked for nothing.
    pub(super) fn amplification(&self, at: usize, kind: Kind) -> Option<f64> {
        self.0.get(at + 1).and_then(|below| ratio(kind(below).bytes, self.asked(kind).bytes))
    }
}

/// `None` if `of` is 0.
pub(super) fn ratio(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

/// `layer NAME reads N read_bytes N writes N written_bytes N`
fn parse_line(line: &str) -> Option<Layer> {
    let mut words = line.split_ascii_whitespace();
    if words.next()? != "layer" {
        return None;
    }
    let mut layer = Layer { name: words.next()?.to_owned(), ..Layer::default() };
    while let Some(key) = words.next() {
        let number = words.next()?.parse().ok()?;
        match key {
            "reads" => layer.reads.requests = number,
            "read_bytes" => layer.reads.bytes = number,
            "writes" => layer.writes.requests = number,
            "written_bytes" => layer.writes.bytes = number,
            // A daemon of a newer build may count more.
            _ => {}
        }
    }
    Some(layer)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Layers with these `[requests, bytes]` of reads and of writes.
    pub(in super::super) fn layers(flows: [[u64; 4]; 5]) -> Layers {
        let names = ["auto", "io-cache", "read-ahead", "write-behind", "bricks"];
        let one = |(name, [reads, read_bytes, writes, written_bytes]): (&str, [u64; 4])| Layer {
            name: name.to_owned(),
            reads: Flow { requests: reads, bytes: read_bytes },
            writes: Flow { requests: writes, bytes: written_bytes },
        };
        Layers(names.into_iter().zip(flows).map(one).collect())
    }

    #[test]
    fn lines_are_read_and_what_is_new_in_them_is_left_out() {
        let text = "layer auto reads 1 read_bytes 2 flushes 7 writes 3 written_bytes 4\nclient 9\n\
                    layer bricks reads 5 read_bytes 6 writes 7 written_bytes 8\nlayer broken reads x\n";
        let one = |name: &str, [a, b, c, d]: [u64; 4]| Layer {
            name: name.to_owned(),
            reads: Flow { requests: a, bytes: b },
            writes: Flow { requests: c, bytes: d },
        };
        assert_eq!(
            Layers::parse(text),
            Ok(Layers(vec![one("auto", [1, 2, 3, 4]), one("bricks", [5, 6, 7, 8])]))
        );
        assert_eq!(Layers::parse("error it is closed\n"), Err("it is closed".to_owned()));
    }

    #[test]
    fn an_interval_is_what_came_since() {
        let past = layers([[1, 10, 2, 20]; 5]);
        let now = layers([[4, 50, 2, 20]; 5]);
        assert_eq!(now.since(&past), layers([[3, 40, 0, 0]; 5]));
        assert_eq!(now.since(&Layers::default()), now);
        assert_eq!(past.since(&now), layers([[0; 4]; 5]), "the file was closed and opened again");
    }

    #[test]
    fn amplification_is_what_leaves_a_layer_for_each_byte_that_programs_ask_for() {
        let seen = layers([
            [10, 40_960, 1, 100],
            [10, 40_960, 1, 100],
            [10, 1_310_720, 1, 100],
            [10, 1_310_720, 1, 100],
            [20, 655_360, 3, 150],
        ]);
        let reads: Vec<_> = (0..5).map(|at| seen.amplification(at, READS)).collect();
        assert_eq!(reads, [Some(1.0), Some(32.0), Some(32.0), Some(16.0), None]);
        assert_eq!(seen.amplification(3, WRITES), Some(1.5));
        assert_eq!(layers([[0; 4]; 5]).amplification(0, READS), None);
        assert_eq!((seen.asked(READS).mean(), seen.bricks(WRITES).mean()), (Some(4096.0), Some(50.0)));
        assert_eq!(Flow::default().mean(), None);
    }
}
