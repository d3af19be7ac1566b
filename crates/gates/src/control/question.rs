//! What may be asked at the socket of a gate: `xray`, `why`, `tune`, each also with ` file INODE`.

use client::Mount;
use types::InodeId;

use super::{Whole, layers_text, slow_text, tuning_text};

/// Most bytes of a question.
pub(super) const QUESTION_MAX: usize = 64;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Question {
    about: About,
    inode: Option<InodeId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    Xray,
    Why,
    Tune,
}

impl Question {
    /// Reads a line.
    pub(super) fn parse(line: &[u8]) -> Option<Question> {
        let words: Vec<&str> = std::str::from_utf8(line).ok()?.split_ascii_whitespace().collect();
        let (about, inode) = match words.as_slice() {
            [about] => (*about, None),
            [about, "file", inode] => (*about, Some(InodeId(inode.parse().ok()?))),
            _ => return None,
        };
        let about = match about {
            "xray" => About::Xray,
            "why" => About::Why,
            "tune" => About::Tune,
            _ => return None,
        };
        Some(Question { about, inode })
    }

    /// The answer, at the time `now` of the gate's clock.
    pub(super) fn answer(self, mount: &Mount, now: u64) -> String {
        let not_open = |inode: InodeId| {
            format!("error inode {} is not open at this gate; a file is counted while it is open\n", inode.0)
        };
        match (self.about, self.inode) {
            (About::Xray, None) => layers_text(&mount.layer_counters(), Whole::of(mount)),
            (About::Xray, Some(inode)) => mount
                .file_layer_counters(inode)
                .map_or_else(|| not_open(inode), |layers| layers_text(&layers, Whole::default())),
            (About::Why, inode) => slow_text(mount, inode, now),
            (About::Tune, inode) => tuning_text(&mount.tuning(inode), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_about_the_gate_or_a_file() {
        let why = |inode| Some(Question { about: About::Why, inode });
        assert_eq!(Question::parse(b"why\n"), why(None));
        assert_eq!(Question::parse(b"why file 12\n"), why(Some(InodeId(12))));
        for wrong in [&b""[..], b"what", b"why file", b"why file x", b"why file 1 2", b"\xff"] {
            assert_eq!(Question::parse(wrong), None);
        }
    }
}
