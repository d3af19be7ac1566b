//! Codes and the arithmetic between a file's bytes, its stripes and its units.

use std::fmt;
use std::str::FromStr;

use crate::limits::{
    BLOCK, EXTENT_STRIPES_DEFAULT, EXTENT_STRIPES_MAX, EXTENT_WHOLE_FILE, K_MAX, M_MAX, STRIPE_MAX, UNIT_MAX,
    UNIT_MIN,
};

/// Why a code or a geometry is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// Not of the form `K+M`.
    #[error("`{0}` is not a code: write K+M, for example 8+2 (8 data and 2 parity units)")]
    NotACode(String),
    /// K or M outside the limits.
    #[error("code {k}+{m} is out of range: K is 1 to {K_MAX}, M is 0 to {M_MAX}")]
    CodeOutOfRange {
        /// Data units.
        k: u32,
        /// Parity units.
        m: u32,
    },
    /// Unit not a power of two within the limits.
    #[error("a unit of {0} bytes is out of range: choose a power of two from {UNIT_MIN} to {UNIT_MAX}")]
    UnitOutOfRange(u32),
    /// K units are more than the largest stripe.
    #[error("{k} units of {unit} bytes make a stripe of more than {STRIPE_MAX} bytes")]
    StripeTooLarge {
        /// Data units.
        k: u8,
        /// Bytes of a unit.
        unit: u32,
    },
    /// No stripe in an extent, or too many.
    #[error("an extent has 1 to {EXTENT_STRIPES_MAX} stripes, not {0}")]
    ExtentOutOfRange(u32),
}

/// A code `K+M`: K data and M parity units.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code {
    k: u8,
    m: u8,
}

impl Code {
    /// The code of `k` data and `m` parity units.
    pub fn new(k: u8, m: u8) -> Result<Code, GeometryError> {
        if k == 0 || k > K_MAX || m > M_MAX {
            return Err(GeometryError::CodeOutOfRange { k: k.into(), m: m.into() });
        }
        Ok(Code { k, m })
    }

    /// Data units.
    pub fn k(self) -> usize {
        self.k.into()
    }

    /// Parity units.
    pub fn m(self) -> usize {
        self.m.into()
    }

    /// Units of a stripe, and slots of a group.
    pub fn slots(self) -> usize {
        self.k() + self.m()
    }

    /// Fewest live slots with which a group accepts writes. With two or more parity units, one further loss must
    /// remain survivable.
    pub fn live_min(self) -> usize {
        if self.m >= 2 { self.k() + 1 } else { self.k() }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.k, self.m)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Code {
    type Err = GeometryError;

    fn from_str(text: &str) -> Result<Code, GeometryError> {
        let bad = || GeometryError::NotACode(text.chars().take(40).collect());
        let (k, m) = text.split_once('+').ok_or_else(bad)?;
        let k: u32 = k.parse().map_err(|_| bad())?;
        let m: u32 = m.parse().map_err(|_| bad())?;
        let range = GeometryError::CodeOutOfRange { k, m };
        match (u8::try_from(k), u8::try_from(m)) {
            (Ok(k), Ok(m)) => Code::new(k, m),
            _ => Err(range),
        }
    }
}

/// How the bytes of a volume's files become stripes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Geometry {
    code: Code,
    unit: u32,
    extent_stripes: u32,
}

impl Geometry {
    /// Stripes of `code` in units of `unit` bytes, placed by extents of `extent_stripes` stripes.
    pub fn new(code: Code, unit: u32, extent_stripes: u32) -> Result<Geometry, GeometryError> {
        if !unit.is_power_of_two() || !(UNIT_MIN..=UNIT_MAX).contains(&unit) {
            return Err(GeometryError::UnitOutOfRange(unit));
        }
        if code.k() * unit as usize > STRIPE_MAX {
            return Err(GeometryError::StripeTooLarge { k: code.k, unit });
        }
        if !(1..=EXTENT_STRIPES_MAX).contains(&extent_stripes) {
            return Err(GeometryError::ExtentOutOfRange(extent_stripes));
        }
        Ok(Geometry { code, unit, extent_stripes })
    }

    /// Stripes of `code` in units of `unit` bytes. Each file is one extent, so all its stripes are in one group.
    pub fn whole_files(code: Code, unit: u32) -> Result<Geometry, GeometryError> {
        let geometry = Geometry::new(code, unit, EXTENT_STRIPES_DEFAULT)?;
        Ok(Geometry { extent_stripes: EXTENT_WHOLE_FILE, ..geometry })
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Bytes of a unit.
    pub fn unit(&self) -> usize {
        self.unit as usize
    }

    /// 4-KiB blocks of a unit.
    pub fn unit_blocks(&self) -> usize {
        self.unit() / BLOCK
    }

    /// Bytes of data in a stripe.
    pub fn stripe(&self) -> usize {
        self.unit() * self.code.k()
    }

    /// Stripes of an extent, or [`EXTENT_WHOLE_FILE`].
    pub fn extent_stripes(&self) -> u32 {
        self.extent_stripes
    }

    /// Whether each file is one extent.
    pub fn has_whole_files(&self) -> bool {
        self.extent_stripes == EXTENT_WHOLE_FILE
    }

    /// Stripes that are searched together for bytes: those of an extent, or of a part of a whole file.
    pub fn search_stripes(&self) -> u32 {
        if self.has_whole_files() { EXTENT_STRIPES_DEFAULT } else { self.extent_stripes }
    }

    /// The stripe that holds byte `offset` of an object, and the byte's place in it.
    pub fn locate(&self, offset: u64) -> (u64, usize) {
        let stripe = self.stripe() as u64;
        (offset / stripe, (offset % stripe) as usize)
    }

    /// The data unit that holds byte `offset` of a stripe, and the byte's place in it.
    pub fn locate_unit(&self, offset: usize) -> (usize, usize) {
        (offset / self.unit(), offset % self.unit())
    }

    /// The extent of a stripe.
    pub fn extent(&self, stripe: u64) -> u64 {
        if self.has_whole_files() { 0 } else { stripe / u64::from(self.extent_stripes) }
    }

    /// Stripes that `size` bytes need.
    pub fn stripes(&self, size: u64) -> u64 {
        size.div_ceil(self.stripe() as u64)
    }

    /// Splits `len` bytes at `offset` of an object into `(stripe, offset in it, bytes)`.
    pub fn split(&self, offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> + use<> {
        let geometry = *self;
        let end = offset + len as u64;
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (stripe, within) = geometry.locate(at);
            let take = ((geometry.stripe() - within) as u64).min(end - at) as usize;
            at += take as u64;
            Some((stripe, within, take))
        })
    }

    /// Splits `len` bytes at `offset` of a stripe into `(data unit, offset in it, bytes)`.
    pub fn split_units(
        &self,
        offset: usize,
        len: usize,
    ) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let geometry = *self;
        let end = offset + len;
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (unit, within) = geometry.locate_unit(at);
            let take = (geometry.unit() - within).min(end - at);
            at += take;
            Some((unit, within, take))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{from_bytes, to_bytes};
    use proptest::prelude::*;

    #[test]
    fn codes_parse_and_refuse() {
        assert_eq!("8+2".parse::<Code>().map(|c| (c.k(), c.m(), c.slots(), c.live_min())), Ok((8, 2, 10, 9)));
        assert_eq!("2+1".parse::<Code>().map(Code::live_min), Ok(2));
        assert!(matches!("8".parse::<Code>(), Err(GeometryError::NotACode(_))));
        assert!(matches!("0+2".parse::<Code>(), Err(GeometryError::CodeOutOfRange { .. })));
        assert!(matches!("33+1".parse::<Code>(), Err(GeometryError::CodeOutOfRange { .. })));
        assert!(matches!("8+300".parse::<Code>(), Err(GeometryError::CodeOutOfRange { .. })));
        let code = Code::new(8, 2).expect("in range");
        assert!(matches!(Geometry::new(code, 5000, 64), Err(GeometryError::UnitOutOfRange(5000))));
        for stripes in [0, EXTENT_STRIPES_MAX + 1, u32::MAX] {
            assert_eq!(Geometry::new(code, 4096, stripes), Err(GeometryError::ExtentOutOfRange(stripes)));
        }
    }

    #[test]
    fn a_whole_file_is_one_extent_however_long_it_is() {
        let code = Code::new(1, 0).expect("in range");
        let geometry = Geometry::whole_files(code, 4096).expect("in range");
        assert_eq!(
            [0, 63, 64, EXTENT_WHOLE_FILE.into(), u64::MAX].map(|stripe| geometry.extent(stripe)),
            [0; 5]
        );
        assert!(geometry.has_whole_files() && geometry.search_stripes() <= EXTENT_STRIPES_MAX);
        assert_eq!(from_bytes::<Geometry>(&to_bytes(&geometry)), Ok(geometry));
        assert!(matches!(Geometry::whole_files(code, 5000), Err(GeometryError::UnitOutOfRange(5000))));
    }

    proptest! {
        #[test]
        fn split_covers_exactly(k in 1u8..=8, shift in 12u32..18, offset in 0u64..1 << 40, len in 0usize..4 << 20) {
            let geometry = Geometry::new(Code::new(k, 2).expect("k"), 1 << shift, 64).expect("unit");
            let mut at = offset;
            for (stripe, within, take) in geometry.split(offset, len) {
                prop_assert_eq!(stripe * geometry.stripe() as u64 + within as u64, at);
                prop_assert!(take > 0 && within + take <= geometry.stripe());
                let units: usize = geometry.split_units(within, take).map(|(_, _, n)| n).sum();
                prop_assert_eq!(units, take);
                at += take as u64;
            }
            prop_assert_eq!(at, offset + len as u64);
        }
    }
}
