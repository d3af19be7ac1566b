//! Lines of traces.
//!
//! Sources: blkparse(1), default output: `8,0 3 1 0.000000000 697 Q W 223490 + 8 [kjournald]`; fio(1), trace file formats
//! v2 and v3.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, Read};
use std::str::{FromStr, SplitWhitespace};

use pace::device::{LENGTH_MAX, Operation};

use crate::setup::Refused;
use crate::time::{SECOND, Time, US};

/// Bytes of a line.
const LINE_MAX: u64 = 4096;
/// Requests of a trace: 400 MB of memory, and as much again while it is replayed.
const RECORDS_MAX: usize = 10_000_000;
/// Files that a log of fio names; each has a part of the device.
const FILES_MAX: usize = 4096;
const FILE_PART: u64 = 1 << 40;
/// Bytes of a sector of blkparse.
const SECTOR: u64 = 512;

/// How a trace is written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// The text of blkparse; its lines with action Q count.
    Blkparse,
    /// A log of fio (`write_iolog`), version 2 or 3.
    FioIolog,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 2] = [Format::Blkparse, Format::FioIolog];

    /// The name in commands.
    pub fn word(self) -> &'static str {
        match self {
            Format::Blkparse => "blkparse",
            Format::FioIolog => "fio-iolog",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        let found = Format::ALL.into_iter().find(|format| format.word() == text);
        found.ok_or_else(|| {
            format!("`{text}` is no format of a trace: {}", Format::ALL.map(Format::word).join(", "))
        })
    }
}

/// A request of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// When it came, in nanoseconds from the first one.
    pub at: u64,
    /// What it does.
    pub operation: Operation,
    /// Its first byte.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// Who asked.
    pub process: u32,
}

/// A trace, in the order of time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Trace {
    /// Its requests.
    pub records: Vec<Record>,
    /// Lines that say nothing about a request.
    pub skipped: u64,
}

/// Reads a trace. A line that cannot be understood is refused with its number.
pub fn read(format: Format, mut input: impl BufRead) -> Result<Trace, Refused> {
    let (mut trace, mut line, mut number) = (Trace::default(), String::new(), 0u64);
    let mut log = Iolog::default();
    loop {
        line.clear();
        number += 1;
        let refuse = |why: String| Refused {
            what: format!("line {number}: {why}"),
            remedy: format!("a text in the format {format}"),
        };
        let bytes =
            input.by_ref().take(LINE_MAX).read_line(&mut line).map_err(|why| refuse(why.to_string()))?;
        if bytes == 0 {
            break;
        }
        if bytes as u64 == LINE_MAX && !line.ends_with('\n') {
            return Err(refuse(format!("longer than {LINE_MAX} bytes")));
        }
        let found = match format {
            Format::Blkparse => blkparse(&line),
            Format::FioIolog => log.line(&line),
        };
        let Some(record) = found.map_err(refuse)? else {
            trace.skipped += 1;
            continue;
        };
        if record.length > LENGTH_MAX {
            return Err(refuse(format!("{} bytes, at most {LENGTH_MAX}", record.length)));
        }
        if record.offset.checked_add(record.length).is_none() {
            return Err(refuse(format!("no device has a byte {}", record.offset)));
        }
        if trace.records.len() == RECORDS_MAX {
            return Err(refuse(format!("more than {RECORDS_MAX} requests")));
        }
        trace.records.push(record);
    }
    // Lines of several CPUs may be a little out of order.
    trace.records.sort_by_key(|record| record.at);
    let first = trace.records.first().map_or(0, |record| record.at);
    trace.records.iter_mut().for_each(|record| record.at -= first);
    Ok(trace)
}

fn number<T: FromStr>(word: Option<&str>, what: &str) -> Result<T, String> {
    let word = word.ok_or_else(|| format!("no {what}"))?;
    word.parse().map_err(|_| format!("`{word}` is no {what}"))
}

/// A line of blkparse, if it is about a request that came.
fn blkparse(line: &str) -> Result<Option<Record>, String> {
    let mut words = line.split_whitespace();
    let is_event = words.next().is_some_and(|word| {
        word.split_once(',')
            .is_some_and(|(major, minor)| major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok())
    });
    // Behind the events comes a summary.
    if !is_event {
        return Ok(None);
    }
    let (_, _) = (number::<u32>(words.next(), "CPU")?, number::<u64>(words.next(), "sequence number")?);
    let at = time(words.next().ok_or("no time")?)?;
    let process = number(words.next(), "process")?;
    let (action, kind) = (words.next().ok_or("no action")?, words.next().unwrap_or_default());
    if action != "Q" {
        return Ok(None);
    }
    let operation = match kind {
        kind if kind.contains('D') => return Ok(None),
        kind if kind.contains('R') => Operation::Read,
        kind if kind.contains('W') || kind.starts_with('F') => Operation::Write,
        _ => return Ok(None),
    };
    let flush = Record { at, operation: Operation::Flush, offset: 0, length: 0, process };
    let word = words.next();
    // A flush without a write has no sectors.
    if kind.starts_with('F') && word.is_none_or(|word| word.parse::<u64>().is_err()) {
        return Ok(Some(flush));
    }
    let sector: u64 = number(word, "sector")?;
    if words.next() != Some("+") {
        return Err("no `+` between sector and sectors".into());
    }
    let sectors: u64 = number(words.next(), "number of sectors")?;
    let (offset, length) = (sector.checked_mul(SECTOR), sectors.checked_mul(SECTOR));
    let (Some(offset), Some(length)) = (offset, length) else {
        return Err(format!("no device has a sector {sector}"));
    };
    Ok(Some(if length == 0 { flush } else { Record { operation, offset, length, ..flush } }))
}

/// Seconds with up to nine digits behind the point.
fn time(word: &str) -> Result<Time, String> {
    let bad = || format!("`{word}` is no time");
    let (whole, part) = word.split_once('.').unwrap_or((word, "0"));
    if part.is_empty() || part.len() > 9 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    let nanos: Time = part.parse().map_err(|_| bad())?;
    let nanos = nanos * 10u64.pow(9 - part.len() as u32);
    let whole: Time = whole.parse().map_err(|_| bad())?;
    whole.checked_mul(SECOND).and_then(|whole| whole.checked_add(nanos)).ok_or_else(bad)
}

/// What is known of a log of fio so far.
#[derive(Default, Debug)]
struct Iolog {
    version: Option<u32>,
    /// Files by name; each has a part of the device.
    files: BTreeMap<String, u64>,
    now: Time,
}

impl Iolog {
    fn line(&mut self, line: &str) -> Result<Option<Record>, String> {
        let Some(version) = self.version else {
            self.version = Some(match line.trim_end() {
                "fio version 2 iolog" => 2,
                "fio version 3 iolog" => 3,
                other => return Err(format!("`{other}` is no first line: `fio version 2 iolog`, or 3")),
            });
            return Ok(None);
        };
        if line.trim().is_empty() {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        if version == 3 {
            let at: u64 = number(words.next(), "timestamp")?;
            self.now = at.checked_mul(US).ok_or_else(|| format!("`{at}` is no timestamp"))?;
        }
        let name = words.next().ok_or("no file")?;
        let action = words.next().ok_or("no action")?;
        match action {
            "add" | "open" | "close" | "trim" => Ok(None),
            "wait" if version == 2 => {
                let us: u64 = number(words.next(), "time to wait")?;
                let until = us.checked_mul(US).and_then(|wait| self.now.checked_add(wait));
                self.now = until.ok_or_else(|| format!("`{us}` is no time to wait"))?;
                Ok(None)
            }
            "sync" | "datasync" => Ok(Some(Record {
                at: self.now,
                operation: Operation::Flush,
                offset: 0,
                length: 0,
                process: 0,
            })),
            "read" => self.transfer(name, Operation::Read, words),
            "write" => self.transfer(name, Operation::Write, words),
            other => Err(format!("`{other}` is no action of version {version}")),
        }
    }

    fn transfer(
        &mut self,
        name: &str,
        operation: Operation,
        mut words: SplitWhitespace<'_>,
    ) -> Result<Option<Record>, String> {
        let offset: u64 = number(words.next(), "offset")?;
        let length: u64 = number(words.next(), "length")?;
        if length == 0 {
            return Err("a request of 0 bytes".into());
        }
        let known = self.files.len();
        let file = match self.files.get(name) {
            Some(file) => *file,
            None if known < FILES_MAX => {
                self.files.insert(name.to_owned(), known as u64);
                known as u64
            }
            None => return Err(format!("more than {FILES_MAX} files")),
        };
        if offset.checked_add(length).is_none_or(|end| end > FILE_PART) {
            return Err(format!("{length} bytes at {offset}: files have at most {FILE_PART} bytes"));
        }
        let offset = file * FILE_PART + offset;
        Ok(Some(Record { at: self.now, operation, offset, length, process: file as u32 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(format: Format, text: &str) -> Vec<(u64, Operation, u64, u64)> {
        let trace = read(format, text.as_bytes()).expect(text);
        trace.records.iter().map(|of| (of.at, of.operation, of.offset, of.length)).collect()
    }

    fn refused(format: Format, text: &str) -> String {
        read(format, text.as_bytes()).expect_err(text).to_string()
    }

    #[test]
    fn queued_requests_of_blkparse_count() {
        let text = "\
  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]
  8,0    1        1     0.500000000   701  Q   R 16 + 1024 [cat]
  8,0    1        2     0.250000000   701  Q  WS 8 + 8 [cat]
  8,0    1        3     0.600000000   701  Q FWS [jbd2]
  8,0    1        4     0.700000000   701  Q   D 8 + 8 [fstrim]
CPU0 (8,0):
 Reads Queued:           1,      512KiB\n";
        let found = records(Format::Blkparse, text);
        let expected = [
            (0, Operation::Write, 223_490 * 512, 4096),
            (250_000_000, Operation::Write, 4096, 4096),
            (500_000_000, Operation::Read, 8192, 512 << 10),
        ];
        assert_eq!(found[..3], expected);
        assert_eq!(found[3], (600_000_000, Operation::Flush, 0, 0));
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn both_versions_of_a_log_of_fio_are_read() {
        let text = "fio version 2 iolog\n/a add\n/a open\n/a read 4096 8192\n/a wait 500 0\n/b write 0 512\n/a sync\n";
        let (read, write) = (Operation::Read, Operation::Write);
        let expected =
            [(0, read, 4096, 8192), (500_000, write, 1 << 40, 512), (500_000, Operation::Flush, 0, 0)];
        assert_eq!(records(Format::FioIolog, text), expected);
        let text = "fio version 3 iolog\n0 /a add\n10 /a open\n1000 /a write 0 4096\n3000 /a read 0 4096\n";
        let expected = [(0, write, 0, 4096), (2_000_000, read, 0, 4096)];
        assert_eq!(records(Format::FioIolog, text), expected);
    }

    #[test]
    fn a_bad_line_is_refused_with_its_number() {
        let good = "8,0 3 1 0.0 697 Q W 1 + 8 [a]\n";
        for (bad, why) in [
            ("8,0 3 2 0.x 697 Q W 1 + 8 [a]", "line 2: `0.x` is no time"),
            ("8,0 3 2 0.1 697 Q W 1 8 [a]", "line 2: no `+`"),
            ("8,0 3 2 0.1 697 Q W -1 + 8 [a]", "line 2: `-1` is no sector"),
            ("8,0 3 2 0.1 697 Q W 36028797018963968 + 8", "line 2: no device has a sector"),
            ("8,0 3 2 0.1 697 Q W 1 + 4000000 [a]", "line 2: 2048000000 bytes, at most"),
            ("8,0 3", "line 2: no sequence number"),
        ] {
            let found = refused(Format::Blkparse, &format!("{good}{bad}\n"));
            assert!(found.starts_with(why), "{bad}: {found}");
        }
        for (bad, why) in [
            ("fio version 1 iolog", "line 1: `fio version 1 iolog` is no first line"),
            ("fio version 3 iolog\nx /a read 0 1", "line 2: `x` is no timestamp"),
            ("fio version 3 iolog\n1 /a wait 5 0", "line 2: `wait` is no action of version 3"),
            ("fio version 2 iolog\n/a read 0", "line 2: no length"),
            ("fio version 2 iolog\n/a read 0 0", "line 2: a request of 0 bytes"),
            ("fio version 2 iolog\n/a read 2000000000000 1", "line 2: 1 bytes at 2000000000000"),
        ] {
            let found = refused(Format::FioIolog, &format!("{bad}\n"));
            assert!(found.starts_with(why), "{bad}: {found}");
        }
        let long = refused(Format::Blkparse, &format!("{good}{}\n", "x".repeat(1 << 20)));
        assert!(long.starts_with("line 2: longer than 4096 bytes"), "{long}");
        assert!("csv".parse::<Format>().is_err_and(|why| why.contains("blkparse, fio-iolog")));
    }
}
