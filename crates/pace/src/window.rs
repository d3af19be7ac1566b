//! The window: most bytes that may be on their way to a receiver.

use std::fmt;
use std::str::FromStr;

use crate::port::Told;

/// Smallest window, in bytes: two of the smallest grants.
pub const WINDOW_MIN: usize = 16 << 10;
/// Largest window, in bytes: 100 Gbit/s for 5 ms.
pub const WINDOW_MAX: usize = 64 << 20;
/// The window before anything is known: what the port of a shallow switch keeps for one receiver.
const START: usize = 32 << 10;
/// Least time in which a window that has lost nothing doubles. Until a sender notices a loss, some round trips pass.
const DOUBLING_US: u64 = 20_000;
/// Time between two steps of growth after the first loss.
const GROWTH_US: u64 = 100_000;
/// Losses within this time after a cut belong to what was on its way before it.
const CUT_US: u64 = 50_000;
/// Once losses show that a window is needed, what was sent without credit may be lost for so long: as long as TCP may need to
/// notice it.
pub const LATE_US: u64 = 250_000;
/// From this window on senders that ask for credit only delay themselves, as far as is known; twice that if packets are lost
/// then, and so on.
const WIDE: usize = 4 << 20;
/// A loss of fewer than one packet in so many is borne: TCP repairs it at little cost.
const BORNE: u64 = 1000;
/// The same of what is sent without credit: so few are repeated even where nothing is lost, by machines that are busy.
const BORNE_WITHOUT: u64 = 200;
/// Packets over which losses are counted.
const PERIOD: u64 = 8 * BORNE;
/// Payload of a packet, in bytes, to count them.
const PACKET: usize = 1448;
/// How long a window stays below one that has lost packets, at first. Doubles whenever a larger one loses packets again.
const PATIENCE_MIN_US: u64 = 2_000_000;
/// The longest such time.
const PATIENCE_MAX_US: u64 = 60_000_000;

/// What an operator wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WindowSetting {
    /// It follows what the network loses.
    #[default]
    Auto,
    /// Always so many bytes, [`WINDOW_MIN`] to [`WINDOW_MAX`].
    Fixed(usize),
    /// No window: everybody sends at once.
    Off,
}

impl fmt::Display for WindowSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WindowSetting::Auto => write!(f, "auto"),
            WindowSetting::Off => write!(f, "off"),
            WindowSetting::Fixed(bytes) => write!(f, "{bytes}"),
        }
    }
}

/// Bytes in flight, and how they follow the network.
///
/// It doubles every 20 ms while something has to wait for it, until packets are lost for the first time. After a loss it
/// becomes smaller by a fifth, returns to nineteen twentieths of the window that was too large, and stays there. Only after a
/// while is a larger one tried, in small steps. So a network with deep buffers is not slowed down for more than a tenth of
/// a second, and one with shallow buffers loses a few packets a minute.
#[derive(Debug)]
pub struct Window {
    setting: WindowSetting,
    bytes: usize,
    /// No packet was lost yet.
    is_new: bool,
    /// A window that was too large.
    ceiling: usize,
    /// From when on windows near `ceiling` are tried.
    probe_us: u64,
    patience_us: u64,
    cut_us: Option<u64>,
    grown_us: u64,
    /// Until the first loss: the end of this doubling.
    most: usize,
    cuts: u64,
    /// Packets were lost, with credit or without.
    has_lost: bool,
    /// From this window on no credit is needed.
    wide: usize,
    /// Bytes that arrived in this period, and packets that were lost in it.
    arrived: usize,
    lost: u64,
}

impl Window {
    /// A window that knows nothing.
    pub fn new(setting: WindowSetting) -> Window {
        let bytes = match setting {
            WindowSetting::Auto => START,
            WindowSetting::Fixed(bytes) => bytes.clamp(WINDOW_MIN, WINDOW_MAX),
            WindowSetting::Off => usize::MAX,
        };
        Window {
            setting,
            bytes,
            is_new: true,
            ceiling: usize::MAX,
            probe_us: 0,
            patience_us: PATIENCE_MIN_US,
            cut_us: None,
            grown_us: 0,
            most: START * 2,
            cuts: 0,
            has_lost: false,
            wide: WIDE,
            arrived: 0,
            lost: 0,
        }
    }

    /// Bytes that may be on their way.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What others at the same port should hear of it.
    pub(crate) fn told(&self) -> Told {
        let ceiling = if self.is_new { None } else { Some(self.ceiling) };
        Told { window: self.bytes, ceiling }
    }

    /// Takes over what another one has learned, unless it has learned something itself.
    pub(crate) fn believe(&mut self, now_us: u64, told: Told) {
        let Some(ceiling) = told.ceiling else { return };
        if !self.is_new {
            return;
        }
        self.bytes = told.window.clamp(WINDOW_MIN, WINDOW_MAX);
        self.ceiling = ceiling.clamp(WINDOW_MIN, WINDOW_MAX);
        (self.is_new, self.has_lost) = (false, true);
        self.grown_us = now_us;
        self.probe_us = now_us + self.patience_us;
    }

    /// What it was made with.
    pub fn setting(&self) -> WindowSetting {
        self.setting
    }

    /// How often it became smaller because packets were lost.
    pub fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Whether those who can send without credit should ask for it: packets were lost, and the window is not wide.
    pub fn is_needed(&self) -> bool {
        match self.setting {
            WindowSetting::Auto => self.has_lost && self.bytes < self.wide,
            WindowSetting::Fixed(_) => true,
            WindowSetting::Off => false,
        }
    }

    /// `arrived` bytes have come. `is_limited`: others waited for room in the window.
    pub fn arrived(&mut self, now_us: u64, arrived: usize, is_limited: bool) {
        self.arrived = self.arrived.saturating_add(arrived);
        if self.arrived > PERIOD as usize * PACKET {
            (self.arrived, self.lost) = (0, 0);
        }
        if self.setting != WindowSetting::Auto || !is_limited {
            return;
        }
        if self.is_new {
            if now_us >= self.grown_us + DOUBLING_US {
                (self.grown_us, self.most) = (now_us, (self.bytes * 2).min(WINDOW_MAX));
            }
            self.bytes = (self.bytes + arrived).min(self.most);
            return;
        }
        if now_us < self.grown_us + GROWTH_US {
            return;
        }
        self.grown_us = now_us;
        let known = self.known();
        if self.bytes < known {
            self.bytes = (self.bytes + self.bytes / 8).min(known).min(WINDOW_MAX);
        } else if now_us >= self.probe_us {
            self.bytes = (self.bytes + self.bytes / 32).min(WINDOW_MAX);
        }
    }

    /// A window that lost no packets, or few.
    fn known(&self) -> usize {
        self.ceiling / 20 * 19
    }

    /// A sender that had asked for no credit had to send `packets` once more. That says nothing of the window's size, only that
    /// one is needed.
    pub fn lost_without_credit(&mut self, now_us: u64, packets: u64) {
        if self.setting != WindowSetting::Auto
            || packets == 0
            || self.is_needed()
            || self.is_borne(packets, BORNE_WITHOUT)
        {
            return;
        }
        (self.arrived, self.lost) = (0, 0);
        if self.has_lost {
            self.wide = self.wide.saturating_mul(2);
        }
        self.has_lost = true;
        self.bytes = self.bytes.min(self.wide / 2);
        self.most = self.bytes * 2;
        self.cut_us = Some(now_us + LATE_US);
        self.grown_us = now_us + LATE_US;
    }

    /// Counts lost packets, and says whether they are fewer than one in `one_in`.
    fn is_borne(&mut self, packets: u64, one_in: u64) -> bool {
        self.lost = self.lost.saturating_add(packets);
        self.lost.saturating_mul(one_in) < PERIOD
    }

    /// A sender had to send `packets` once more.
    pub fn lost(&mut self, now_us: u64, packets: u64) {
        if self.setting != WindowSetting::Auto || packets == 0 {
            return;
        }
        // Sent without credit: it tells nothing of the window, also later.
        if self.cut_us.is_some_and(|cut| now_us < cut) {
            return;
        }
        if self.is_borne(packets, BORNE) || self.cut_us.is_some_and(|cut| now_us < cut + CUT_US) {
            return;
        }
        (self.arrived, self.lost) = (0, 0);
        let too_large = self.bytes;
        if self.is_new {
            // It has just doubled: what fits is more than half of it, and may be little more.
            self.bytes = too_large / 2;
            self.ceiling = too_large / 10 * 6;
        } else {
            if too_large > self.known() {
                self.patience_us = (self.patience_us * 2).min(PATIENCE_MAX_US);
            }
            self.bytes = too_large / 5 * 4;
            self.ceiling = too_large;
        }
        self.bytes = self.bytes.max(WINDOW_MIN);
        self.is_new = false;
        self.has_lost = true;
        self.cuts += 1;
        self.cut_us = Some(now_us);
        self.grown_us = now_us;
        self.probe_us = now_us + self.patience_us;
    }
}

/// Why a text is not a window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrongWindow(String);

impl fmt::Display for WrongWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: give auto, off, or bytes from 16K to 64M, such as 48K", self.0)
    }
}

impl std::error::Error for WrongWindow {}

impl FromStr for WindowSetting {
    type Err = WrongWindow;

    fn from_str(text: &str) -> Result<WindowSetting, WrongWindow> {
        match text {
            "auto" => return Ok(WindowSetting::Auto),
            "off" => return Ok(WindowSetting::Off),
            _ => {}
        }
        let (digits, unit) = match text.trim_end_matches(['K', 'M']) {
            digits if text.ends_with('K') => (digits, 1 << 10),
            digits if text.ends_with('M') => (digits, 1 << 20),
            digits => (digits, 1),
        };
        let bytes = digits.parse::<usize>().ok().and_then(|count| count.checked_mul(unit));
        match bytes {
            Some(bytes) if digits.len() + 1 >= text.len() && (WINDOW_MIN..=WINDOW_MAX).contains(&bytes) => {
                Ok(WindowSetting::Fixed(bytes))
            }
            Some(_) => Err(WrongWindow(format!("a window of {text} is out of range"))),
            None => Err(WrongWindow(format!("{text:?} is not a window"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_needed_from_the_first_losses_until_the_window_is_wide() {
        let mut window = Window::new(WindowSetting::Auto);
        assert!(!window.is_needed());
        window.arrived(5, 1 << 20, false);
        window.lost_without_credit(5, 39);
        assert!(!window.is_needed(), "39 packets of 8,000 are borne");
        window.lost_without_credit(6, 1);
        assert!(window.is_needed());
        // What comes late of that does not make it small, and it does not grow without knowing anything.
        window.lost(6 + LATE_US, 100);
        assert_eq!((window.bytes(), window.cuts()), (START, 0));
        let mut now = 7;
        while now < LATE_US {
            now += 300;
            window.arrived(now, window.bytes(), true);
        }
        assert!(window.bytes() <= 2 * START, "{}", window.bytes());
        while window.is_needed() {
            now += 300;
            assert!(now < 3 * LATE_US, "a network that loses nothing any more");
            window.arrived(now, window.bytes(), true);
        }
        window.lost(now, 100);
        assert!(window.is_needed() && window.cuts() == 1);
        // Each time it was not wide enough, more is.
        let mut window = Window::new(WindowSetting::Auto);
        for round in 0..8 {
            let from = round * 10_000_000;
            window.lost_without_credit(from, 40);
            assert!(window.is_needed(), "round {round}");
            for ms in 0..2_000 {
                window.arrived(from + LATE_US + ms * 1000, 1 << 20, true);
            }
        }
        assert!(window.is_needed(), "as large as it can be, and packets are lost");
        let of = |setting| Window::new(setting).is_needed();
        assert_eq!((of(WindowSetting::Fixed(WINDOW_MAX)), of(WindowSetting::Off)), (true, false));
    }

    #[test]
    fn it_doubles_until_packets_are_lost_and_stays_below_what_lost_them() {
        let mut window = Window::new(WindowSetting::Auto);
        let mut now = 0;
        while window.bytes() < 128 << 10 {
            now += 300;
            window.arrived(now, window.bytes(), true);
        }
        assert!(
            (DOUBLING_US..DOUBLING_US + 600).contains(&now),
            "two doublings from 32 to 128 KiB: {now} us"
        );
        window.lost(now, 8);
        let cut = window.bytes();
        assert_eq!(cut, 64 << 10);
        window.lost(now + CUT_US - 1, 8);
        assert_eq!(window.bytes(), cut, "what is lost now was sent before the cut");
        for _ in 0..15 {
            now += GROWTH_US;
            window.arrived(now, 1, true);
        }
        let calm = window.bytes();
        assert!(calm > cut && calm <= (128 << 10) * 6 / 10, "{calm}");
        // After a while larger windows are tried, and what loses packets again is left alone for longer.
        let from = now;
        while window.bytes() == calm {
            now += GROWTH_US;
            window.arrived(now, 1, true);
        }
        assert!(now - from <= PATIENCE_MIN_US);
        window.lost(now, 8);
        let probed = now;
        while window.bytes() <= calm {
            now += GROWTH_US;
            window.arrived(now, 1, true);
        }
        assert!(now - probed >= 2 * PATIENCE_MIN_US);
    }

    #[test]
    fn few_losses_are_borne() {
        let mut window = Window::new(WindowSetting::Auto);
        for number in 0..100 {
            window.lost(number * CUT_US, 7);
            window.arrived(number * CUT_US, PERIOD as usize * PACKET + 1, false);
        }
        assert_eq!((window.cuts(), window.bytes()), (0, START));
    }

    #[test]
    fn loss_never_stops_it() {
        let mut window = Window::new(WindowSetting::Auto);
        for number in 0..1000 {
            window.lost(number * CUT_US, 8);
        }
        assert_eq!(window.bytes(), WINDOW_MIN);
        assert_eq!(window.cuts(), 1000);
    }

    #[test]
    fn one_set_by_hand_stays() {
        let mut window = Window::new(WindowSetting::Fixed(50_000));
        window.lost(1, 8);
        window.arrived(2, 50_000, true);
        assert_eq!((window.bytes(), window.cuts()), (50_000, 0));
        assert_eq!(Window::new(WindowSetting::Off).bytes(), usize::MAX);
    }

    #[test]
    fn texts() {
        let parse = |text: &str| text.parse::<WindowSetting>();
        assert_eq!(parse("auto"), Ok(WindowSetting::Auto));
        assert_eq!(parse("off"), Ok(WindowSetting::Off));
        assert_eq!(parse("48K"), Ok(WindowSetting::Fixed(48 << 10)));
        assert_eq!(parse("1M"), Ok(WindowSetting::Fixed(1 << 20)));
        assert_eq!(parse("20000"), Ok(WindowSetting::Fixed(20_000)));
        for wrong in
            ["", "K", "15K", "65M", "1KK", "1MK", "-1", "ten", "99999999999999999999", "18014398509481984K"]
        {
            let said = parse(wrong).expect_err(wrong).to_string();
            assert!(said.contains("16K to 64M"), "{said}");
        }
    }
}
