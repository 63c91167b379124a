//! Segments into FPDUs (RFC 5044 §4, RFC 5041 §5). Small payloads are copied behind their header;
//! large ones go by reference unless markers must be put between their bytes.

use crate::Connection;
use crate::fault::{Fault, protection_code};
use outboard_mem::{Access, StagTable};
use outboard_wire::crc::{Crc32c, crc32c};
use outboard_wire::ddp::{Header, Stag, Untagged, queue};
use outboard_wire::fpdu::pad_len;
use outboard_wire::rdmap::Opcode;
use outboard_wire::terminate::TerminateCode;

/// Payloads up to this many bytes are copied next to their header: one span is cheaper to send
/// than three.
const COPY_MAX: usize = 2048;

/// Where an FPDU's payload comes from.
#[derive(Clone, Copy)]
pub(super) enum Payload {
    None,
    Local { seq: u64, offset: usize, len: usize },
    Response { stag: Stag, offset: u64, len: usize },
}

/// An FPDU whose header stands in the batch's buffer.
#[derive(Clone, Copy)]
struct Frame {
    /// Where it begins in the buffer.
    start: usize,
    ulpdu_len: usize,
}

impl Connection {
    /// Appends a message of one segment whose content is RDMAP's.
    pub(super) fn push_control(
        &mut self,
        opcode: Opcode,
        emit: impl FnOnce(&mut Vec<u8>),
        stags: &StagTable,
    ) -> Result<(), Fault> {
        let header = self.untagged(opcode, opcode.queue().unwrap_or(queue::SEND));
        let mut fixed = std::mem::take(&mut self.tx.scratch);
        fixed.clear();
        emit(&mut fixed);
        let result = self.push_fpdu(header, &fixed, Payload::None, stags);
        self.tx.scratch = fixed;
        result
    }

    pub(super) fn untagged(&mut self, opcode: Opcode, queue: u32) -> Header {
        let msn = self.tx.next_msn(queue);
        Header::Untagged(Untagged {
            opcode,
            last: true,
            invalidate: Stag(0),
            queue,
            msn,
            offset: 0,
        })
    }

    /// Appends one FPDU: length, header, `fixed` bytes, payload, pad and CRC.
    pub(super) fn push_fpdu(
        &mut self,
        header: Header,
        fixed: &[u8],
        payload: Payload,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        let start = self.batch.bytes.len();
        let frame = Frame { start, ulpdu_len: header.len() + fixed.len() + payload.len() };
        let length = u16::try_from(frame.ulpdu_len).unwrap_or(u16::MAX);
        self.batch.bytes.extend_from_slice(&length.to_be_bytes());
        header.emit(&mut self.batch.bytes);
        self.batch.bytes.extend_from_slice(fixed);
        let before = self.batch.len();
        let result = self.push_payload(frame, payload, stags);
        if result.is_err() {
            self.batch.bytes.truncate(start);
        }
        self.tx.queued += (self.batch.len() - before) as u64;
        result
    }

    fn push_payload(
        &mut self,
        frame: Frame,
        payload: Payload,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        match payload {
            Payload::Local { seq, offset, len } => self.push_local(frame, seq, offset, len),
            // RFC 5040 §7.2: a zero-length Read is not checked.
            Payload::Response { stag, offset, len } if len > 0 => {
                self.push_remote_read(frame, (stag, offset), len, stags)
            }
            Payload::None | Payload::Response { .. } => {
                self.seal(frame);
                Ok(())
            }
        }
    }

    fn push_local(
        &mut self,
        frame: Frame,
        seq: u64,
        offset: usize,
        len: usize,
    ) -> Result<(), Fault> {
        let Some(list) = self.sends.local(seq) else { return Ok(()) };
        let crc = match list.owned_slice(offset, len) {
            _ if !self.by_reference(len) => None,
            _ if !self.crc => Some(0),
            Some(bytes) => Some(self.crc_around(frame, bytes)),
            // Shared memory may change between the CRC and the sending: it is copied once.
            None => None,
        };
        if let Some(crc) = crc {
            self.batch.push_bytes(frame.start);
            self.batch.push_local(seq, offset..offset + len);
            self.seal_trailer(frame, crc);
            return Ok(());
        }
        if list.gather(offset, len, &mut self.batch.bytes).is_err() {
            self.sends.refuse(seq);
            return Err(Fault::local());
        }
        self.seal(frame);
        Ok(())
    }

    fn push_remote_read(
        &mut self,
        frame: Frame,
        (stag, offset): (Stag, u64),
        len: usize,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        let placement = stags
            .resolve(stag.0, self.pd, Access::REMOTE_READ, offset, len as u64)
            .map_err(|error| Fault::bare(protection_code(error)))?;
        if !self.crc && self.by_reference(len) {
            self.batch.push_bytes(frame.start);
            self.batch.push_response(stag, offset, len);
            self.seal_trailer(frame, 0);
            return Ok(());
        }
        placement
            .append_to(0..len, &mut self.batch.bytes)
            // Registered memory that is not there is as good as not registered.
            .map_err(|_| Fault::bare(TerminateCode::PROTECTION_INVALID_STAG))?;
        self.seal(frame);
        Ok(())
    }

    fn by_reference(&self, len: usize) -> bool {
        len > COPY_MAX && !self.tx.has_markers()
    }

    /// The CRC of a frame whose payload is sent where it lies.
    fn crc_around(&self, frame: Frame, payload: &[u8]) -> u32 {
        let mut crc = Crc32c::new();
        crc.update(&self.batch.bytes[frame.start..]);
        crc.update(payload);
        crc.update(&[0; 3][..pad_len(frame.ulpdu_len)]);
        crc.finish()
    }

    /// Ends an FPDU that lies in the buffer as a whole.
    fn seal(&mut self, frame: Frame) {
        let bytes = &mut self.batch.bytes;
        bytes.resize(bytes.len() + pad_len(frame.ulpdu_len), 0);
        if let Some(markers) = &mut self.tx.markers {
            let body = bytes.split_off(frame.start);
            markers.insert(&body, self.crc, bytes);
        } else {
            let crc = if self.crc { crc32c(&bytes[frame.start..]) } else { 0 };
            bytes.extend_from_slice(&crc.to_le_bytes());
        }
        self.batch.push_bytes(frame.start);
    }

    /// Ends an FPDU whose payload is sent by reference.
    fn seal_trailer(&mut self, frame: Frame, crc: u32) {
        let bytes = &mut self.batch.bytes;
        let start = bytes.len();
        bytes.resize(start + pad_len(frame.ulpdu_len), 0);
        bytes.extend_from_slice(&crc.to_le_bytes());
        self.batch.push_bytes(start);
    }
}

impl Payload {
    fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Local { len, .. } | Self::Response { len, .. } => len,
        }
    }
}

/// Payload of the next segment: a message is cut into as few as possible, all of about the same
/// length, so that no short one costs the receiver a system call of its own.
pub(super) fn cut(remaining: usize, max: usize) -> usize {
    let segments = remaining.div_ceil(max).max(1);
    remaining.div_ceil(segments).next_multiple_of(8).min(max).min(remaining)
}
