//! A frame in memory, and the checks of sending and receiving that both bodies share.

use std::io;

use types::checksum::crc;
use types::wire::{Flags, FrameHeader, HEADER_LEN, HeaderError, Seal, TAGGED_LEN, Tag, VERSION};
use types::{Buf, ClusterId, Epoch};

/// One message on a connection: a header, a small record, and a separate aligned payload.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its lengths, checksums and tag are set by `send` and valid after `recv`.
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
            bulk: 0,
            tag: Tag::default(),
        };
        Frame { header, record, payload }
    }

    /// Fills in lengths, and checksums or the tag. Returns the header's bytes, which are sent before record and payload.
    ///
    /// # Errors `InvalidInput` if the frame is larger than a receiver accepts.
    pub(crate) fn encode_header(&mut self, seal: Option<&mut Seal>) -> io::Result<[u8; HEADER_LEN]> {
        use types::limits::{PAYLOAD_MAX, RECORD_MAX};
        if self.record.len() > RECORD_MAX || self.payload.len() > PAYLOAD_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the frame to send is larger than the protocol allows",
            ));
        }
        self.header.record_len = u32::try_from(self.record.len()).expect("a record is below RECORD_MAX");
        self.header.payload_len = u32::try_from(self.payload.len()).expect("a payload is below PAYLOAD_MAX");
        self.header.tag = Tag::default();
        if let Some(seal) = seal {
            // The tag shows damage too.
            (self.header.record_crc, self.header.payload_crc) = (0, 0);
            let mut bytes = self.header.encode();
            self.header.tag = seal.tag([&bytes[..TAGGED_LEN], &self.record, &self.payload]);
            bytes[TAGGED_LEN..].copy_from_slice(&self.header.tag);
            return Ok(bytes);
        }
        self.header.record_crc = crc(&self.record);
        let covered = self.header.flags.is_covered();
        self.header.payload_crc = if covered { 0 } else { crc(&self.payload) };
        Ok(self.header.encode())
    }

    /// Whether a tag shows that the other side has sent exactly these bytes, if the frame was received.
    pub(crate) fn is_sealed(&self) -> bool {
        self.header.tag != Tag::default()
    }

    /// Decodes a received header of a frame of at most `most` bytes. An error contains the [`HeaderError`].
    pub(crate) fn decode_header(bytes: &[u8; HEADER_LEN], most: usize) -> io::Result<FrameHeader> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let header = FrameHeader::decode(bytes).map_err(invalid)?;
        let (record, payload) = (header.record_len, header.payload_len);
        if record as usize + payload as usize > most {
            return Err(invalid(HeaderError::TooLarge { record, payload }));
        }
        Ok(header)
    }

    /// The frame of a received header, which is `head` as it came, and the bytes that followed it. With a seal, the tag must be that of
    /// the next frame; without one, there must be no tag, and the checksums must match. If the record has the checksums of the
    /// payload, the reader of the record compares them.
    pub(crate) fn from_parts(
        (header, head): (FrameHeader, &[u8; HEADER_LEN]),
        record: Vec<u8>,
        payload: Buf,
        seal: Option<&mut Seal>,
    ) -> io::Result<Frame> {
        assert_eq!(record.len(), header.record_len as usize, "a record was read to its length");
        assert_eq!(payload.len(), header.payload_len as usize, "a payload was read to its length");
        if let Some(seal) = seal {
            if !seal.matches([&head[..TAGGED_LEN], &record, &payload], &header.tag) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a received frame is not the one that the other side has sent: its tag does not match",
                ));
            }
            return Ok(Frame { header, record, payload });
        }
        let payload_crc = if header.flags.is_covered() { 0 } else { crc(&payload) };
        let is_whole = crc(&record) == header.record_crc && payload_crc == header.payload_crc;
        if !is_whole || header.tag != Tag::default() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a received frame is damaged: its checksum does not match",
            ));
        }
        Ok(Frame { header, record, payload })
    }
}
