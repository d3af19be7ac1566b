//! What the numbers of the layers mean: one sentence for each finding, with the setting to change.

use types::Tuning;
use types::tuning::{Key, Value};

use crate::commands::tune::control_file::Contents;

use super::layers::{Layers, READS, WRITES, ratio};

/// Fewer requests say nothing.
const REQUESTS_MIN: u64 = 16;
/// A layer that asks for this many times what it is asked for is worth a sentence.
const AMPLIFIED_MIN: f64 = 2.0;
/// The share of bytes from a cache that is worth a sentence.
const SHARE_MIN: f64 = 0.1;
/// Mean bytes of a write to a brick that cost little beside what each request costs.
const PIECE_MIN: f64 = 65_536.0;
/// Bytes that read-ahead may have fetched ahead if its window is not known.
const WINDOW: u64 = 8 << 20;

/// A finding.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Finding {
    pub(super) sentence: String,
    /// The setting that changes it, if one does.
    pub(super) setting: Option<String>,
    /// It should be otherwise.
    pub(super) is_wrong: bool,
}

/// All findings.
pub(super) fn findings(layers: &Layers, settings: &Contents) -> Vec<Finding> {
    let made = settings.file.or(&settings.mount).or(&settings.volume);
    let all = [
        page(layers, &settings.effective),
        cached(layers, "io-cache"),
        cached(layers, "disk-cache"),
        not_cached(layers, settings, &made),
        sequential(layers, settings, &made),
        ahead(layers, &settings.effective),
        pieces(layers, &made),
    ];
    all.into_iter().flatten().collect()
}

fn wrong(sentence: String, setting: impl Into<String>) -> Option<Finding> {
    Some(Finding { sentence, setting: Some(setting.into()), is_wrong: true })
}

/// Io-cache reads much more than programs ask for. At the end of a short file a page has more bytes than there are: so
/// what bricks are asked for counts too.
fn page(layers: &Layers, effective: &Tuning) -> Option<Finding> {
    let (asked, below) = layers.through("io-cache", READS)?;
    let (times, mean) = (ratio(below.bytes, asked.bytes)?, asked.mean()?);
    let really = ratio(layers.bricks(READS).bytes, asked.bytes)?;
    if asked.requests < REQUESTS_MIN || times < AMPLIFIED_MIN || really < AMPLIFIED_MIN {
        return None;
    }
    let (head, reads) =
        (format!("io-cache reads {} times what programs ask for", rounded(times)), short(mean));
    let fitting = (mean.ceil() as u64).next_power_of_two().clamp(4 << 10, 1 << 20);
    let setting = Key::IoCachePage.show(Value::Number(fitting));
    match effective.get(Key::IoCachePage) {
        Some(Value::Number(page)) if page <= fitting => {
            let page = short(page as f64);
            wrong(format!("{head}: its page of {page} does not fit their {reads} reads"), "io-cache=off")
        }
        Some(Value::Number(page)) => {
            let page = short(page as f64);
            let setting = format!("io-cache.page={setting}");
            wrong(format!("{head}: its page of {page} is larger than their {reads} reads"), setting)
        }
        _ => wrong(
            format!("{head}: its pages are larger than their {reads} reads"),
            format!("io-cache.page={setting}"),
        ),
    }
}

/// The share of bytes that come from a cache.
fn cached(layers: &Layers, cache: &str) -> Option<Finding> {
    let (asked, below) = layers.through(cache, READS)?;
    let share = ratio(asked.bytes.saturating_sub(below.bytes), layers.asked(READS).bytes)?;
    let sentence = format!("{:.0} % of the bytes that programs read come from {cache}", share * 100.0);
    (share >= SHARE_MIN).then_some(Finding { sentence, setting: None, is_wrong: false })
}

/// The same bytes are read again, and io-cache is off.
fn not_cached(layers: &Layers, settings: &Contents, made: &Tuning) -> Option<Finding> {
    let again = settings.work.as_ref()?.ends_with("read again");
    let is_off = made.get(Key::IoCache) == Some(Value::Off);
    if !again || !is_off || layers.asked(READS).requests < REQUESTS_MIN {
        return None;
    }
    wrong("io-cache is off and programs read the same bytes again".to_owned(), "io-cache=on")
}

/// Reads are sequential, and read-ahead is off.
fn sequential(layers: &Layers, settings: &Contents, made: &Tuning) -> Option<Finding> {
    let is_sequential = settings.work.as_ref()?.starts_with("sequential");
    let is_off = made.get(Key::ReadAhead) == Some(Value::Off);
    if !is_sequential || !is_off || layers.asked(READS).requests < REQUESTS_MIN {
        return None;
    }
    wrong("read-ahead is off and reads are sequential".to_owned(), "read-ahead=on")
}

/// Read-ahead fetches what nobody reads. What is still ahead of a reader is no waste.
fn ahead(layers: &Layers, effective: &Tuning) -> Option<Finding> {
    let (asked, below) = layers.through("read-ahead", READS)?;
    let times = ratio(below.bytes, asked.bytes)?;
    let really = ratio(layers.bricks(READS).bytes, asked.bytes)?;
    let window = match effective.get(Key::ReadAheadWindow) {
        Some(Value::Number(window)) => window,
        _ => WINDOW,
    };
    let spare = below.bytes.saturating_sub(asked.bytes);
    if times < AMPLIFIED_MIN || really < AMPLIFIED_MIN || spare <= window.saturating_mul(2) {
        return None;
    }
    let sentence =
        format!("read-ahead fetches {} times what is read: programs do not read on", rounded(times));
    wrong(sentence, "read-ahead=off")
}

/// Writes are sent in small pieces because of the settings.
fn pieces(layers: &Layers, made: &Tuning) -> Option<Finding> {
    let sent = layers.bricks(WRITES);
    let mean = sent.mean()?;
    if sent.requests < REQUESTS_MIN || mean >= PIECE_MIN {
        return None;
    }
    let head = format!("writes are sent in pieces of {}", short(mean));
    if made.get(Key::WriteBehind) == Some(Value::Off) {
        return wrong(format!("{head}: write-behind is off"), "write-behind=on");
    }
    match made.get(Key::WriteBehindSize) {
        Some(Value::Number(size)) if (size as f64) < PIECE_MIN => {
            let setting = "write-behind.size=auto";
            wrong(format!("{head}: write-behind gathers no more than {}", short(size as f64)), setting)
        }
        _ => None,
    }
}

/// `32`, or `2.5` if that says more.
fn rounded(times: f64) -> String {
    if times < 10.0 { decimal(times) } else { format!("{times:.0}") }
}

/// A mean number of bytes as people write it: `512`, `4K`, `1.5M`.
pub(super) fn short(bytes: f64) -> String {
    match bytes {
        b if b < 1024.0 => format!("{b:.0}"),
        b if b < 1_048_576.0 => format!("{}K", decimal(b / 1024.0)),
        b => format!("{}M", decimal(b / 1_048_576.0)),
    }
}

/// One decimal, unless it is 0.
fn decimal(number: f64) -> String {
    let text = format!("{number:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::super::layers::tests::layers;
    use super::*;

    fn made(mount: &str, work: Option<&str>) -> Contents {
        let mount: Tuning = mount.parse().expect("it is good");
        Contents { mount, effective: mount, work: work.map(str::to_owned), ..Contents::default() }
    }

    /// The only finding: its sentence and the setting.
    fn only(flows: [[u64; 4]; 5], settings: &Contents) -> (String, Option<String>) {
        let mut found = findings(&layers(flows), settings);
        let last = found.pop().expect("one finding");
        assert_eq!(found, []);
        (last.sentence, last.setting)
    }

    fn none(flows: [[u64; 4]; 5], settings: &Contents) {
        assert_eq!(findings(&layers(flows), settings), []);
    }

    /// `requests` reads of `size` bytes, of which io-cache makes `page` bytes each.
    fn reads(requests: u64, size: u64, page: u64) -> [[u64; 4]; 5] {
        let flow = |bytes| [requests, requests * bytes, 0, 0];
        [flow(size), flow(size), flow(page), flow(page), flow(page)]
    }

    fn writes(requests: u64, size: u64) -> [[u64; 4]; 5] {
        [[0, 0, requests, requests * size]; 5]
    }

    #[test]
    fn a_page_that_is_larger_than_the_reads_is_found() {
        let (sentence, setting) =
            only(reads(100, 4096, 131_072), &made("io-cache=on io-cache.page=128K", None));
        let said =
            "io-cache reads 32 times what programs ask for: its page of 128K is larger than their 4K reads";
        assert_eq!((sentence.as_str(), setting.as_deref()), (said, Some("io-cache.page=4K")));
        let (sentence, setting) = only(reads(100, 5000, 16_384), &Contents::default());
        assert!(
            sentence.ends_with("3.3 times what programs ask for: its pages are larger than their 4.9K reads")
        );
        assert_eq!(setting.as_deref(), Some("io-cache.page=8K"));
        let (sentence, setting) = only(reads(100, 512, 4096), &made("io-cache.page=4K", None));
        assert!(
            sentence.ends_with("8 times what programs ask for: its page of 4K does not fit their 512 reads")
        );
        assert_eq!(setting.as_deref(), Some("io-cache=off"));
        none(reads(15, 4096, 131_072), &Contents::default());
        none(reads(100, 4096, 4096), &Contents::default());
        let mut short_files = reads(100, 4096, 131_072);
        short_files[4][1] = 100 * 4096;
        none(short_files, &Contents::default());
    }

    #[test]
    fn the_share_of_the_cache_is_told_and_is_not_wrong() {
        let mut flows = reads(100, 4096, 4096);
        flows[2..].fill([8, 8 * 4096, 0, 0]);
        let told = ("92 % of the bytes that programs read come from io-cache".to_owned(), None);
        assert_eq!(only(flows, &Contents::default()), told);
    }

    #[test]
    fn bytes_that_are_read_again_without_a_cache_are_found() {
        let off = made("io-cache=off", Some("random, read again"));
        let (sentence, setting) = only(reads(100, 4096, 4096), &off);
        assert_eq!(sentence, "io-cache is off and programs read the same bytes again");
        assert_eq!(setting.as_deref(), Some("io-cache=on"));
        none(reads(100, 4096, 4096), &made("io-cache=off", Some("random")));
        none(reads(100, 4096, 4096), &made("", Some("random, read again")));
    }

    #[test]
    fn sequential_reads_without_read_ahead_are_found() {
        let (sentence, setting) = only(reads(100, 4096, 4096), &made("read-ahead=off", Some("sequential")));
        assert_eq!(sentence, "read-ahead is off and reads are sequential");
        assert_eq!(setting.as_deref(), Some("read-ahead=on"));
        none(reads(100, 4096, 4096), &made("read-ahead=off", Some("random")));
        none(reads(100, 4096, 4096), &made("read-ahead=on", Some("sequential")));
        none(reads(3, 4096, 4096), &made("read-ahead=off", Some("sequential")));
    }

    #[test]
    fn read_ahead_that_nobody_reads_is_found() {
        let flow = |bytes| [100, bytes, 0, 0];
        let flows = |fetched| [flow(1 << 20), flow(1 << 20), flow(1 << 20), flow(fetched), flow(fetched)];
        let window = made("read-ahead=on read-ahead.window=1M", None);
        let (sentence, setting) = only(flows(4 << 20), &window);
        assert_eq!(sentence, "read-ahead fetches 4 times what is read: programs do not read on");
        assert_eq!(setting.as_deref(), Some("read-ahead=off"));
        none(flows(3 << 20), &window);
        none(flows(4 << 20), &Contents::default());
    }

    #[test]
    fn writes_in_small_pieces_are_found_if_settings_make_them_small() {
        let (sentence, setting) = only(writes(100, 4096), &made("write-behind=off", None));
        assert_eq!(sentence, "writes are sent in pieces of 4K: write-behind is off");
        assert_eq!(setting.as_deref(), Some("write-behind=on"));
        let (sentence, setting) = only(writes(100, 8192), &made("write-behind.size=8K", None));
        assert_eq!(sentence, "writes are sent in pieces of 8K: write-behind gathers no more than 8K");
        assert_eq!(setting.as_deref(), Some("write-behind.size=auto"));
        none(writes(100, 4096), &Contents::default());
        none(writes(100, 1 << 20), &made("write-behind=off", None));
        none(writes(3, 4096), &made("write-behind=off", None));
    }

    #[test]
    fn numbers_of_bytes_are_short() {
        let shown = [512.0, 4096.0, 5000.0, 131_072.0, 1_572_864.0].map(short);
        assert_eq!(shown, ["512", "4K", "4.9K", "128K", "1.5M"]);
    }
}
