//! The slowest requests, as a mount or gate tells them (`gates/src/control/slow_text.rs`).

/// What a mount remembers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Remembered {
    /// Whether the file is open; `None` for a mount.
    pub(super) open: Option<bool>,
    /// Of programs, then of the background, the slowest first.
    pub(super) requests: Vec<Request>,
}

/// A request. Times are in microseconds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Request {
    pub(super) op: String,
    pub(super) inode: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// How long ago it reached the client.
    pub(super) age: u64,
    /// How long it had waited in the gate before.
    pub(super) gate: u64,
    /// How long it took, with the wait in the gate.
    pub(super) took: u64,
    pub(super) failed: bool,
    pub(super) spans: Vec<Span>,
}

impl Request {
    /// The mount's background does it.
    pub(super) fn is_background(&self) -> bool {
        ["fetch", "send"].contains(&self.op.as_str())
    }
}

/// A part of a request's time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) kind: Kind,
    /// Counted from when the gate had the request.
    pub(super) from: u64,
    pub(super) took: u64,
}

impl Span {
    pub(super) fn until(&self) -> u64 {
        self.from.saturating_add(self.took)
    }
}

/// What a part is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The request enters a layer.
    Layer(String),
    /// It waits.
    Wait(Wait),
    /// A server is asked.
    Call {
        request: String,
        server: Server,
        /// How long the answer, which was ready, waited for credit of the receive window here.
        credit: u64,
        served: Option<Served>,
    },
}

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Wait {
    Queue,
    Lane,
    Journal,
    Device,
    Pause,
    Underway,
}

impl Wait {
    const ALL: [(&'static str, Wait); 6] = [
        ("queue", Wait::Queue),
        ("lane", Wait::Lane),
        ("journal", Wait::Journal),
        ("device", Wait::Device),
        ("pause", Wait::Pause),
        ("underway", Wait::Underway),
    ];

    pub(super) fn name(self) -> &'static str {
        Wait::ALL.iter().find(|(_, wait)| *wait == self).map_or("", |(name, _)| name)
    }

    fn parse(word: &str) -> Option<Wait> {
        Wait::ALL.iter().find(|(name, _)| *name == word).map(|(_, wait)| *wait)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Server {
    Meta,
    Brick(u32),
    Unknown,
}

/// What a brick tells about its time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Served {
    pub(super) own: Times,
    /// The brick that it waited for, and how long.
    pub(super) other: Option<(u32, u64, Times)>,
}

/// The time of a request at a brick.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Times {
    pub(super) total: u64,
    pub(super) queue: u64,
    pub(super) lane: u64,
    pub(super) journal: u64,
    pub(super) device: u64,
}

impl Times {
    /// What is in no stage.
    pub(super) fn rest(&self) -> u64 {
        [self.queue, self.lane, self.journal, self.device].into_iter().fold(self.total, u64::saturating_sub)
    }
}

/// Words of a line, taken from the front.
struct Words<'a>(std::str::SplitAsciiWhitespace<'a>);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    fn number(&mut self) -> Option<u64> {
        self.next()?.parse().ok()
    }

    /// The number after a word.
    fn named(&mut self, name: &str) -> Option<u64> {
        (self.next()? == name).then(|| self.number())?
    }

    fn times(&mut self) -> Option<Times> {
        let (total, queue, lane) = (self.number()?, self.number()?, self.number()?);
        Some(Times { total, queue, lane, journal: self.number()?, device: self.number()? })
    }

    fn request(mut self) -> Option<Request> {
        Some(Request {
            op: self.next()?.to_owned(),
            inode: self.named("inode")?,
            offset: self.named("offset")?,
            len: self.named("len")?,
            age: self.named("age")?,
            gate: self.named("gate")?,
            took: self.named("took")?,
            failed: (self.next()? == "failed").then(|| self.next())?? == "yes",
            spans: Vec::new(),
        })
    }

    fn span(mut self) -> Option<Span> {
        let mut kind = match self.next()? {
            "layer" => Kind::Layer(self.next()?.to_owned()),
            "wait" => Kind::Wait(Wait::parse(self.next()?)?),
            "call" => {
                let request = self.next()?.to_owned();
                let server = match self.next()? {
                    "meta" => Server::Meta,
                    "brick" => Server::Brick(u32::try_from(self.number()?).ok()?),
                    _ => Server::Unknown,
                };
                Kind::Call { request, server, credit: 0, served: None }
            }
            _ => return None,
        };
        let (from, took) = (self.named("from")?, self.named("took")?);
        let mut word = self.next();
        if let (Kind::Call { credit, .. }, Some("credit")) = (&mut kind, word) {
            *credit = self.number()?;
            word = self.next();
        }
        if let (Kind::Call { served, .. }, Some("served")) = (&mut kind, word) {
            let own = self.times()?;
            let other = match self.next() {
                Some("other") => Some((u32::try_from(self.number()?).ok()?, self.number()?, self.times()?)),
                _ => None,
            };
            *served = Some(Served { own, other });
        }
        Some(Span { kind, from, took })
    }
}

impl Remembered {
    /// Reads the text. Spans that a newer build has are left out.
    ///
    /// # Errors
    /// The reason that the text gives.
    pub(super) fn parse(text: &str) -> Result<Remembered, String> {
        let mut remembered = Remembered::default();
        for (word, rest) in text.lines().filter_map(|line| line.split_once(' ')) {
            let words = Words(rest.split_ascii_whitespace());
            match word {
                "error" => return Err(rest.to_owned()),
                "open" => remembered.open = Some(rest == "yes"),
                "request" => remembered.requests.extend(words.request()),
                "span" => {
                    let last = remembered.requests.last_mut();
                    last.map(|request| request.spans.extend(words.span())).unwrap_or_default();
                }
                _ => {}
            }
        }
        Ok(remembered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_their_spans() {
        let text = "open no\n\
                    request read inode 12 offset 4096 len 512 age 500 gate 6 took 5000 failed yes\n\
                    span layer auto from 7 took 0\n\
                    span wait queue from 8 took 100\n\
                    span wait tea from 8 took 100\n\
                    span call GetAttr meta from 9 took 10\n\
                    span call ReadUnit brick 4 from 7 took 100 credit 8 served 90 1 2 3 4 other 5 80 70 1 2 3 4\n\
                    request fsync inode 13 offset 0 len 0 age 1 gate 0 took 1000 failed no\n";
        let found = Remembered::parse(text).expect("it is good");
        let times = |total| Times { total, queue: 1, lane: 2, journal: 3, device: 4 };
        let served = Some(Served { own: times(90), other: Some((5, 80, times(70))) });
        let call = |request: &str, server, credit, served| Kind::Call {
            request: request.into(),
            server,
            credit,
            served,
        };
        let span = |kind, from, took| Span { kind, from, took };
        assert_eq!((found.open, found.requests.len()), (Some(false), 2));
        assert!(found.requests[0].failed && found.requests[1].spans.is_empty());
        let expected = [
            span(Kind::Layer("auto".into()), 7, 0),
            span(Kind::Wait(Wait::Queue), 8, 100),
            span(call("GetAttr", Server::Meta, 0, None), 9, 10),
            span(call("ReadUnit", Server::Brick(4), 8, served), 7, 100),
        ];
        assert_eq!(found.requests[0].spans, expected);
        assert_eq!(Remembered::parse("error it is so\n"), Err("it is so".into()));
        assert_eq!(Remembered::parse(""), Ok(Remembered::default()));
    }
}
