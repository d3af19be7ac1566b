//! A frame in memory, and the checks of its way out and in that both bodies share.

use std::io;

use types::checksum::crc;
use types::wire::{Flags, FrameHeader, HEADER_LEN, HeaderError, VERSION};
use types::{Buf, ClusterId, Epoch};

/// What a connection carries: a header, a small record, and an aligned payload apart from it.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Lengths and checksums in it count only after a `recv`; `send` fills them in.
    pub header: FrameHeader,
    /// The record's bytes.
    pub record: Vec<u8>,
    /// The payload's bytes.
    pub payload: Buf,
}

impl Frame {
    /// A frame to send.
    pub fn new(
        kind: u16,
        request: u64,
        cluster: ClusterId,
        epoch: Epoch,
        flags: Flags,
        record: Vec<u8>,
        payload: Buf,
    ) -> Frame {
        let header = FrameHeader {
            version: VERSION,
            kind,
            request,
            cluster,
            epoch,
            flags,
            record_len: 0,
            payload_len: 0,
            record_crc: 0,
            payload_crc: 0,
        };
        Frame { header, record, payload }
    }

    /// Fills in lengths and checksums; the header's bytes, to be sent before record and payload.
    ///
    /// # Errors
    /// `InvalidInput` if the frame is larger than a receiver would take.
    pub(crate) fn encode_header(&mut self) -> io::Result<[u8; HEADER_LEN]> {
        use types::limits::{PAYLOAD_MAX, RECORD_MAX};
        if self.record.len() > RECORD_MAX || self.payload.len() > PAYLOAD_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "frame larger than allowed"));
        }
        self.header.record_len = u32::try_from(self.record.len()).expect("a record is below RECORD_MAX");
        self.header.payload_len = u32::try_from(self.payload.len()).expect("a payload is below PAYLOAD_MAX");
        self.header.record_crc = crc(&self.record);
        let covered = self.header.flags.is_covered();
        self.header.payload_crc = if covered { 0 } else { crc(&self.payload) };
        Ok(self.header.encode())
    }

    /// Reads a header off the wire, of a frame of `most` bytes at most; an error carries the [`HeaderError`].
    pub(crate) fn decode_header(bytes: &[u8; HEADER_LEN], most: usize) -> io::Result<FrameHeader> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let header = FrameHeader::decode(bytes).map_err(invalid)?;
        let (record, payload) = (header.record_len, header.payload_len);
        if record as usize + payload as usize > most {
            return Err(invalid(HeaderError::TooLarge { record, payload }));
        }
        Ok(header)
    }

    /// The frame of a received header and the bytes that followed it, if they are what was sent. A payload that its record
    /// covers is left to whoever reads the record.
    pub(crate) fn from_parts(header: FrameHeader, record: Vec<u8>, payload: Buf) -> io::Result<Frame> {
        assert_eq!(record.len(), header.record_len as usize, "a record was read to its length");
        assert_eq!(payload.len(), header.payload_len as usize, "a payload was read to its length");
        let payload_crc = if header.flags.is_covered() { 0 } else { crc(&payload) };
        if crc(&record) != header.record_crc || payload_crc != header.payload_crc {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "frame damaged on its way"));
        }
        Ok(Frame { header, record, payload })
    }
}
