//! Settings of the client's translators, as people write them: `read-ahead=off io-cache.page=4K`.
//!
//! A setting can be made for a volume, for a mount and for an open file. The innermost one that is there counts: that of
//! the file, then of the mount, then of the volume. What nobody has set is `auto`: the client chooses it for each open
//! file by what it observes.

use std::fmt;
use std::str::FromStr;

/// Most bytes of settings as text.
pub const TUNING_MAX: usize = 512;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A setting of a translator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// Whether pages that were read are kept for the next read.
    IoCache,
    /// Bytes of a page of the cache, a power of two: a miss reads whole pages.
    IoCachePage,
    /// Most bytes of all cached pages of a mount.
    IoCacheSize,
    /// Whether bytes that were read are kept on the mount's local disk, if it has one for this.
    DiskCache,
    /// Whether bytes are fetched before a program asks for them.
    ReadAhead,
    /// Most bytes that are fetched ahead of one reader.
    ReadAheadWindow,
    /// Whether a write returns when its bytes are in a buffer of the client, and not only when bricks have them.
    WriteBehind,
    /// Bytes of a stripe that are gathered before they are sent.
    WriteBehindSize,
    /// How long bytes may be gathered, in milliseconds.
    WriteBehindAge,
    /// Whether what a brick does not send in time is decoded from the others.
    Hedge,
}

/// The value of a setting.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// The client chooses.
    Auto,
    /// On.
    On,
    /// Off.
    Off,
    /// A number: bytes or milliseconds.
    Number(u64),
}

/// What a key takes.
enum Kind {
    Switch,
    /// Bytes, from least to most; a power of two if the flag is set.
    Bytes(u64, u64, bool),
    /// Milliseconds, from least to most.
    Millis(u64, u64),
}

impl Key {
    /// All keys, in the order in which they are shown.
    pub const ALL: [Key; 10] = [
        Key::IoCache,
        Key::IoCachePage,
        Key::IoCacheSize,
        Key::DiskCache,
        Key::ReadAhead,
        Key::ReadAheadWindow,
        Key::WriteBehind,
        Key::WriteBehindSize,
        Key::WriteBehindAge,
        Key::Hedge,
    ];

    /// Its name in text.
    pub fn name(self) -> &'static str {
        match self {
            Key::IoCache => "io-cache",
            Key::IoCachePage => "io-cache.page",
            Key::IoCacheSize => "io-cache.size",
            Key::DiskCache => "disk-cache",
            Key::ReadAhead => "read-ahead",
            Key::ReadAheadWindow => "read-ahead.window",
            Key::WriteBehind => "write-behind",
            Key::WriteBehindSize => "write-behind.size",
            Key::WriteBehindAge => "write-behind.age",
            Key::Hedge => "hedge",
        }
    }

    /// Whether an open file may have a value of its own. The others are for a whole mount.
    pub fn is_per_file(self) -> bool {
        self != Key::IoCacheSize
    }

    /// The values that it takes, for messages and help texts.
    pub fn values(self) -> String {
        match self.kind() {
            Kind::Switch => "auto, on or off".to_owned(),
            Kind::Bytes(least, most, power) => {
                let power = if power { ", a power of two" } else { "" };
                format!("auto or {} to {}{power}", bytes(least), bytes(most))
            }
            Kind::Millis(least, most) => format!("auto or {least} to {most} ms"),
        }
    }

    fn kind(self) -> Kind {
        match self {
            Key::IoCache | Key::DiskCache | Key::ReadAhead | Key::WriteBehind | Key::Hedge => Kind::Switch,
            Key::IoCachePage => Kind::Bytes(4 * KIB, MIB, true),
            Key::IoCacheSize => Kind::Bytes(0, 1024 * GIB, false),
            Key::ReadAheadWindow => Kind::Bytes(64 * KIB, 64 * MIB, false),
            Key::WriteBehindSize => Kind::Bytes(4 * KIB, GIB, false),
            Key::WriteBehindAge => Kind::Millis(1, 60_000),
        }
    }

    /// Reads a value of this key.
    ///
    /// # Errors
    /// Says which values it takes.
    pub fn parse(self, text: &str) -> Result<Value, TuningError> {
        let wrong = || TuningError::Value { key: self, value: short(text) };
        match (text, self.kind()) {
            ("auto", _) => Ok(Value::Auto),
            ("on", Kind::Switch) => Ok(Value::On),
            ("off", Kind::Switch) => Ok(Value::Off),
            (_, Kind::Switch) => Err(wrong()),
            (_, Kind::Bytes(least, most, power)) => {
                let number = parse_bytes(text).ok_or_else(wrong)?;
                let good = (least..=most).contains(&number) && (!power || number.is_power_of_two());
                if good { Ok(Value::Number(number)) } else { Err(wrong()) }
            }
            (_, Kind::Millis(least, most)) => {
                let digits = text.strip_suffix("ms").unwrap_or(text);
                let number = digits.parse().ok().filter(|n| (least..=most).contains(n)).ok_or_else(wrong)?;
                Ok(Value::Number(number))
            }
        }
    }

    /// A value of this key as text, as [`Key::parse`] reads it.
    pub fn show(self, value: Value) -> String {
        match (value, self.kind()) {
            (Value::Auto, _) => "auto".to_owned(),
            (Value::On, _) => "on".to_owned(),
            (Value::Off, _) => "off".to_owned(),
            (Value::Number(number), Kind::Millis(..)) => format!("{number}ms"),
            (Value::Number(number), _) => bytes(number),
        }
    }
}

impl FromStr for Key {
    type Err = TuningError;

    fn from_str(text: &str) -> Result<Key, TuningError> {
        let named = Key::ALL.into_iter().find(|key| key.name() == text);
        named.ok_or_else(|| TuningError::Key(short(text)))
    }
}

/// Settings that somebody made: a value or nothing for each key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tuning([Option<Value>; Key::ALL.len()]);

impl Tuning {
    /// What was set for a key.
    pub fn get(&self, key: Key) -> Option<Value> {
        self.0[key as usize]
    }

    /// Sets a key, or removes its value.
    pub fn set(&mut self, key: Key, value: Option<Value>) {
        self.0[key as usize] = value;
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// The keys that are set, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Value)> {
        Key::ALL.into_iter().filter_map(|key| self.get(key).map(|value| (key, value)))
    }

    /// These settings, and where there is none, those of `outer`.
    #[must_use]
    pub fn or(&self, outer: &Tuning) -> Tuning {
        let mut joined = *outer;
        self.iter().for_each(|(key, value)| joined.set(key, Some(value)));
        joined
    }

    /// Makes the changes that `text` names: words `key=value`. The value `inherit` removes a setting. Either all of them
    /// are made or none.
    ///
    /// # Errors
    /// Says which word is wrong, and what it may be.
    pub fn change(&mut self, text: &str) -> Result<(), TuningError> {
        if text.len() > TUNING_MAX {
            return Err(TuningError::TooLong);
        }
        let mut changed = *self;
        for word in text.split_ascii_whitespace() {
            let (key, value) = word.split_once('=').ok_or_else(|| TuningError::Word(short(word)))?;
            let key: Key = key.parse()?;
            changed.set(key, if value == "inherit" { None } else { Some(key.parse(value)?) });
        }
        *self = changed;
        Ok(())
    }
}

/// Checks changes of an open file's settings: words `key=value`, with keys that a file may have a value of.
///
/// # Errors
/// Says which word is wrong, and what it may be.
pub fn check_file_changes(text: &str) -> Result<(), TuningError> {
    Tuning::default().change(text)?;
    let keys = text.split_ascii_whitespace().filter_map(|word| word.split_once('=')?.0.parse::<Key>().ok());
    let of_mounts = keys.into_iter().find(|key| !key.is_per_file());
    of_mounts.map_or(Ok(()), |key| Err(TuningError::NotPerFile(key)))
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in self.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{}={}", key.name(), key.show(value))?;
        }
        Ok(())
    }
}

impl FromStr for Tuning {
    type Err = TuningError;

    fn from_str(text: &str) -> Result<Tuning, TuningError> {
        let mut tuning = Tuning::default();
        tuning.change(text).map(|()| tuning)
    }
}

/// Why settings cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TuningError {
    /// No setting has this name.
    Key(String),
    /// The key does not take this value.
    Value {
        /// The key.
        key: Key,
        /// The value.
        value: String,
    },
    /// The key is for a whole mount, and a file cannot have a value of its own.
    NotPerFile(Key),
    /// A word is not of the form `key=value`.
    Word(String),
    /// The text is longer than [`TUNING_MAX`].
    TooLong,
    /// The mount has no disk for a cache.
    NoDiskCache,
    /// A cache would take more than is left of a mount's memory.
    Budget {
        /// Bytes that were asked for.
        bytes: u64,
        /// The most that there may be.
        most: u64,
    },
}

impl fmt::Display for TuningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TuningError::Key(key) => {
                let names = Key::ALL.map(Key::name).join(", ");
                write!(f, "there is no setting `{key}`; there are {names}")
            }
            TuningError::Value { key, value } => {
                write!(f, "`{}` cannot be `{value}`: it takes {}, or inherit", key.name(), key.values())
            }
            TuningError::NotPerFile(key) => {
                write!(
                    f,
                    "`{}` is for a whole mount: set it for the mount or the volume, not for a file",
                    key.name()
                )
            }
            TuningError::Word(word) => {
                write!(f, "`{word}` is not a setting: write key=value, for example read-ahead=off")
            }
            TuningError::NoDiskCache => write!(
                f,
                "`disk-cache` cannot be `on`: this mount has no disk for it; mount with --cache-dir DIR"
            ),
            TuningError::Budget { bytes: asked, most } => write!(
                f,
                "`io-cache.size` cannot be {}: with the buffers of writes, this mount's memory has room for {}; give the \
                 mount more with --memory",
                bytes(*asked),
                bytes(*most)
            ),
            TuningError::TooLong => write!(f, "the settings are longer than {TUNING_MAX} bytes"),
        }
    }
}

impl std::error::Error for TuningError {}

/// The start of a text that somebody else chose, for a message.
fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

/// The units of sizes: powers of 1024.
const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

fn bytes(number: u64) -> String {
    let unit = UNITS.into_iter().find(|(_, shift)| number > 0 && number.trailing_zeros() >= *shift);
    unit.map_or_else(|| number.to_string(), |(letter, shift)| format!("{}{letter}", number >> shift))
}

fn parse_bytes(text: &str) -> Option<u64> {
    let upper = text.to_ascii_uppercase();
    let upper = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
    for (letter, shift) in UNITS {
        if let Some(number) = upper.strip_suffix(letter) {
            return number.parse::<u64>().ok()?.checked_mul(1 << shift);
        }
    }
    upper.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn settings_are_read_and_shown() {
        let text = "io-cache=off io-cache.page=4K read-ahead.window=8M write-behind.age=200ms";
        let tuning: Tuning = text.parse().expect("it is good");
        assert_eq!(tuning.to_string(), text);
        assert_eq!(tuning.get(Key::IoCachePage), Some(Value::Number(4096)));
        assert_eq!(tuning.get(Key::ReadAhead), None);
    }

    #[test]
    fn what_is_wrong_is_named_and_changes_nothing() {
        let mut tuning: Tuning = "read-ahead=on".parse().expect("it is good");
        let wrong = [
            ("prefetch=on", "there is no setting `prefetch`; there are io-cache, io-cache.page"),
            (
                "read-ahead=off io-cache.page=5K",
                "`io-cache.page` cannot be `5K`: it takes auto or 4K to 1M, a power",
            ),
            ("io-cache.page=2M", "auto or 4K to 1M"),
            ("read-ahead=yes", "it takes auto, on or off"),
            ("write-behind.age=0", "auto or 1 to 60000 ms"),
            ("on", "`on` is not a setting"),
        ];
        for (text, said) in wrong {
            let error = tuning.change(text).expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert_eq!(tuning.change(&"x".repeat(TUNING_MAX + 1)), Err(TuningError::TooLong));
        assert_eq!(tuning.to_string(), "read-ahead=on");
    }

    #[test]
    fn the_inner_setting_counts() {
        let volume: Tuning = "read-ahead=off io-cache=on".parse().expect("it is good");
        let mut file: Tuning = "read-ahead=on".parse().expect("it is good");
        assert_eq!(file.or(&volume).to_string(), "io-cache=on read-ahead=on");
        file.change("read-ahead=inherit").expect("it is good");
        assert_eq!(file.or(&volume), volume);
    }

    #[test]
    fn a_file_has_no_setting_of_a_whole_mount() {
        assert_eq!(check_file_changes("read-ahead=off io-cache.page=inherit"), Ok(()));
        for text in ["io-cache.size=1G", "read-ahead=off io-cache.size=inherit"] {
            assert_eq!(check_file_changes(text), Err(TuningError::NotPerFile(Key::IoCacheSize)), "{text}");
        }
        assert!(matches!(check_file_changes("io-cache.size=x"), Err(TuningError::Value { .. })));
    }

    #[test]
    fn any_settings_fit_into_the_longest_text() {
        let longest = |key: Key| match key.kind() {
            Kind::Switch => Value::Auto,
            Kind::Bytes(_, most, _) => Value::Number(most - 1),
            Kind::Millis(_, most) => Value::Number(most),
        };
        let mut tuning = Tuning::default();
        Key::ALL.into_iter().for_each(|key| tuning.set(key, Some(longest(key))));
        assert!(tuning.to_string().len() <= TUNING_MAX, "{tuning}");
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_shown_as_it_was_meant(text in "[a-z.=0-9KM -]{0,80}") {
            if let Ok(tuning) = text.parse::<Tuning>() {
                prop_assert_eq!(tuning.to_string().parse(), Ok(tuning));
            }
        }
    }
}
