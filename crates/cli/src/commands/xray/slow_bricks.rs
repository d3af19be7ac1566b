//! Bricks that answer much later than the others, as `.shoal/xray` tells of them.

use serde_json::{Value, json};

use super::findings::Finding;

/// A brick that a mount or gate avoids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SlowBrick {
    /// Its id, as `b3`.
    brick: String,
    answers_us: u64,
    usual_us: u64,
}

impl SlowBrick {
    /// Reads the lines `slow-brick ID answers_us N usual_us N`.
    pub(super) fn parse_all(text: &str) -> Vec<SlowBrick> {
        text.lines().filter_map(SlowBrick::parse).collect()
    }

    fn parse(line: &str) -> Option<SlowBrick> {
        let mut words = line.strip_prefix("slow-brick ")?.split_ascii_whitespace();
        let brick = words.next()?.to_owned();
        let mut number = |name: &str| {
            let is_named = words.next() == Some(name);
            words.next()?.parse().ok().filter(|_| is_named)
        };
        Some(SlowBrick { brick, answers_us: number("answers_us")?, usual_us: number("usual_us")? })
    }

    pub(super) fn finding(&self) -> Finding {
        let millis = |us: u64| us as f64 / 1e3;
        let sentence = format!(
            "{} takes {:.1} ms or more to answer reads, other bricks {:.1}: what it has is decoded from the others; look at \
             its disk, its machine and its network",
            self.brick,
            millis(self.answers_us),
            millis(self.usual_us)
        );
        Finding { sentence, setting: None, is_wrong: true }
    }

    pub(super) fn document(&self) -> Value {
        json!({ "brick": self.brick, "answers_us": self.answers_us, "usual_us": self.usual_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_brick_is_a_finding() {
        let text =
            "layer auto reads 1\nslow-brick b3 answers_us 6049 usual_us 320\nslow-brick b4 answers_us x\n";
        let slow = SlowBrick::parse_all(text);
        assert_eq!(slow.len(), 1, "{slow:?}");
        let said = slow[0].finding().sentence;
        assert!(
            said.starts_with(
                "b3 takes 6.0 ms or more to answer reads, other bricks 0.3: what it has is decoded"
            ),
            "{said}"
        );
        assert_eq!(slow[0].document()["answers_us"], 6049);
    }
}
