//! What the translators and paths do for one request: the settings that somebody made, completed by what the client has chosen.

use types::Tuning;
use types::tuning::{Key, Value};

/// Settings of the translators for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Bytes of a page of io-cache; `None` if it is off.
    pub io_cache: Option<u64>,
    /// What the cache on a disk does, if the mount has one.
    pub disk_cache: DiskCaching,
    /// Most bytes that read-ahead fetches ahead of a reader; `None` if it is off.
    pub read_ahead: Option<u64>,
    /// How write-behind gathers; `None` if it is off.
    pub write_behind: Option<Gathering>,
    /// What a brick does not send in time is decoded from the others.
    pub hedge: bool,
}

/// What the cache on a disk does with a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskCaching {
    /// Nothing.
    Off,
    /// Answers what it has, and adds the rest if the file is not larger than half of the cache: a program that reads large
    /// files once, from one end to the other, would only wear the disk out.
    UnlessLarge,
    /// Answers what it has, and adds the rest.
    On,
}

/// How long and how much write-behind gathers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gathering {
    /// Bytes of a stripe from which on they are sent. A whole stripe is sent at once in any case.
    pub size: u64,
    /// Longest time until a part of a stripe is sent, in microseconds.
    pub age_us: u64,
}

impl Gathering {
    /// What is chosen if nobody has set anything: whole stripes, for at most a second.
    pub(crate) const AUTO: Gathering = Gathering { size: u64::MAX, age_us: 1_000_000 };
    /// Nothing is gathered.
    pub(crate) const NONE: Gathering = Gathering { size: 0, age_us: 0 };
}

/// What the client chooses where nothing is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    pub(crate) io_cache: bool,
    pub(crate) page: u64,
    pub(crate) disk_cache: DiskCaching,
    pub(crate) read_ahead: bool,
    pub(crate) window: u64,
}

impl Settings {
    /// Of a request that has not yet come to the translator which settles them.
    pub(crate) const UNSETTLED: Settings = Settings {
        io_cache: None,
        disk_cache: DiskCaching::Off,
        read_ahead: None,
        write_behind: Some(Gathering::AUTO),
        hedge: true,
    };

    /// The settings made, completed by a choice.
    pub(crate) fn resolve(made: &Tuning, choice: Choice) -> Settings {
        let is_on = |key, auto| match made.get(key) {
            Some(Value::On) => true,
            Some(Value::Off) => false,
            _ => auto,
        };
        let number = |key, auto| match made.get(key) {
            Some(Value::Number(number)) => number,
            _ => auto,
        };
        let age_us = match made.get(Key::WriteBehindAge) {
            Some(Value::Number(millis)) => millis.saturating_mul(1000),
            _ => Gathering::AUTO.age_us,
        };
        let gathering = Gathering { size: number(Key::WriteBehindSize, Gathering::AUTO.size), age_us };
        Settings {
            io_cache: is_on(Key::IoCache, choice.io_cache).then(|| number(Key::IoCachePage, choice.page)),
            disk_cache: match made.get(Key::DiskCache) {
                Some(Value::On) => DiskCaching::On,
                Some(Value::Off) => DiskCaching::Off,
                _ => choice.disk_cache,
            },
            read_ahead: is_on(Key::ReadAhead, choice.read_ahead)
                .then(|| number(Key::ReadAheadWindow, choice.window)),
            write_behind: is_on(Key::WriteBehind, true).then_some(gathering),
            hedge: is_on(Key::Hedge, true),
        }
    }

    /// The same as settings that somebody could have made, at a mount with or without a cache on a disk.
    pub(crate) fn as_tuning(&self, stripe: u64, has_disk_cache: bool) -> Tuning {
        let mut tuning = Tuning::default();
        let mut put = |key, on: bool| tuning.set(key, Some(if on { Value::On } else { Value::Off }));
        if has_disk_cache {
            put(Key::DiskCache, self.disk_cache != DiskCaching::Off);
        }
        put(Key::IoCache, self.io_cache.is_some());
        put(Key::ReadAhead, self.read_ahead.is_some());
        put(Key::WriteBehind, self.write_behind.is_some());
        if let Some(page) = self.io_cache {
            tuning.set(Key::IoCachePage, Some(Value::Number(page)));
        }
        if let Some(window) = self.read_ahead {
            tuning.set(Key::ReadAheadWindow, Some(Value::Number(window)));
        }
        if let Some(gathering) = self.write_behind {
            tuning.set(Key::WriteBehindSize, Some(Value::Number(gathering.size.min(stripe))));
            tuning.set(Key::WriteBehindAge, Some(Value::Number(gathering.age_us / 1000)));
        }
        tuning.set(Key::Hedge, Some(if self.hedge { Value::On } else { Value::Off }));
        tuning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHOICE: Choice = Choice {
        io_cache: true,
        page: 4096,
        disk_cache: DiskCaching::On,
        read_ahead: false,
        window: 1 << 20,
    };

    #[test]
    fn what_was_set_counts_before_what_was_chosen() {
        let made: Tuning = "io-cache=off read-ahead=on write-behind.age=50ms".parse().expect("it is good");
        let settings = Settings::resolve(&made, CHOICE);
        assert_eq!((settings.io_cache, settings.read_ahead), (None, Some(1 << 20)));
        assert_eq!(settings.write_behind, Some(Gathering { size: u64::MAX, age_us: 50_000 }));
        let settings = Settings::resolve(&Tuning::default(), CHOICE);
        assert_eq!((settings.io_cache, settings.read_ahead), (Some(4096), None));
        assert_eq!(
            settings.as_tuning(1 << 21, false).to_string(),
            "io-cache=on io-cache.page=4K read-ahead=off write-behind=on write-behind.size=2M write-behind.age=1000ms hedge=on"
        );
    }
}
