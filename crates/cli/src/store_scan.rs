//! The metadata store as it was at one moment, read over the network part by part.

use meta::check::{Pairs, unpacked_pairs};
use types::Refusal;
use types::checksum::crc;
use types::messages::replica::MetaScan;
use world::CallError;

use crate::remote::Remote;

/// Bytes of a part where many follow, and where one value is wanted.
const PART: u32 = 512 << 10;
const ONE: u32 = 1;

/// Why a store could not be read to its end.
#[derive(Debug)]
pub(crate) enum ScanError {
    /// The moment is forgotten: another server leads now, or there are too many checks at the same time.
    Forgotten,
    Call(CallError),
}

/// A store at one moment.
pub(crate) struct StoreScan<'a> {
    remote: &'a Remote,
    /// Names the moment; 0 until it is known.
    scan: u64,
    /// The last record that the store has.
    pub(crate) record: u64,
    /// The last part that came: from where, and its pairs. It has all keys up to `until`; `None` is the end of the store.
    from: Vec<u8>,
    until: Option<Vec<u8>>,
    part: Vec<(Vec<u8>, Vec<u8>)>,
}

impl StoreScan<'_> {
    pub(crate) fn begin(remote: &Remote) -> StoreScan<'_> {
        let (from, part) = (vec![0xff], Vec::new());
        StoreScan { remote, scan: 0, record: 0, from, until: Some(Vec::new()), part }
    }

    /// Gets the part that begins with a key.
    fn get(&mut self, from: &[u8], bytes: u32) -> Result<(), ScanError> {
        let request = MetaScan { scan: self.scan, from: from.to_vec(), bytes };
        let (answer, payload) = self.remote.meta_payload(&request).map_err(|error| match error {
            CallError::Refused(Refusal::Unknown) => ScanError::Forgotten,
            other => ScanError::Call(other),
        })?;
        let pairs = unpacked_pairs(&payload).filter(|_| crc(&payload) == answer.sum);
        let pairs = pairs.ok_or(ScanError::Call(CallError::BadReply))?;
        let is_same = (answer.scan, answer.record) == (self.scan, self.record);
        if self.scan != 0 && !is_same {
            return Err(ScanError::Forgotten);
        }
        (self.scan, self.record) = (answer.scan, answer.record);
        let last = pairs.last().map(|(key, _)| key.clone());
        self.until = if answer.is_last { None } else { last };
        self.from = from.to_vec();
        self.part = pairs;
        Ok(())
    }

    /// Whether the part that is here has a key, if it exists.
    fn covers(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && self.until.as_ref().is_none_or(|until| key <= until.as_slice())
    }
}

impl Pairs for StoreScan<'_> {
    type Error = ScanError;

    fn range(
        &mut self,
        from: &[u8],
        to: &[u8],
        f: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), ScanError> {
        let mut at = from.to_vec();
        while at.as_slice() < to {
            if !self.covers(&at) {
                let is_one = to.strip_prefix(from).is_some_and(|rest| rest == [0]);
                self.get(&at, if is_one { ONE } else { PART })?;
            }
            let begin = self.part.partition_point(|(key, _)| *key < at);
            for (key, value) in &self.part[begin..] {
                if key.as_slice() >= to || !f(key, value) {
                    return Ok(());
                }
            }
            let Some(until) = &self.until else { return Ok(()) };
            at = [until.as_slice(), &[0]].concat();
        }
        Ok(())
    }
}
