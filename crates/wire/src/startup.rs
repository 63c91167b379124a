//! MPA Request and Reply frames: how a TCP connection becomes an iWARP stream.
//!
//! RFC 5044 §7.1.1 gives the frame, RFC 6581 §6 and §9 the enhanced form that also negotiates
//! read depths and the first message. This module reads and writes frames; it never decides what
//! to negotiate, which revision to refuse or how long to wait.
//!
//! ```text
//!  0..16  "MPA ID Req Frame" or "MPA ID Rep Frame"
//! 16      M 0x80 | C 0x40 | R 0x20 | S 0x10 | reserved
//! 17      revision
//! 18..20  length of the private data
//! 20..    with S: A B IRD(14), C D ORD(14); then the ULP's private data
//! ```

use crate::bytes::u16_at;

/// Most private data a frame may carry, in bytes, including the 4 enhanced ones (RFC 5044 §7.1.1).
pub const MAX_PRIVATE_DATA: usize = 512;
/// Bytes of a frame before its private data.
pub const HEADER_LEN: usize = 20;
/// Bytes the enhanced data takes from the start of the private data (RFC 6581 §9).
pub const ENHANCED_LEN: usize = 4;
/// Deepest read queue that fits the 14-bit fields (RFC 6581 §9).
pub const MAX_DEPTH: u16 = 0x3fff;
/// Newest MPA revision this crate reads (RFC 6581 §6).
pub const MAX_REVISION: u8 = 2;

const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";

mod at {
    pub(super) const FLAGS: usize = 16;
    pub(super) const REVISION: usize = 17;
    pub(super) const LENGTH: usize = 18;
}

mod flag {
    pub(super) const MARKERS: u8 = 0x80;
    pub(super) const CRC: u8 = 0x40;
    pub(super) const REJECT: u8 = 0x20;
    pub(super) const ENHANCED: u8 = 0x10;
    /// A with IRD, C with ORD.
    pub(super) const HIGH: u16 = 0x8000;
    /// B with IRD, D with ORD.
    pub(super) const LOW: u16 = 0x4000;
}

/// Which of the two frames: the initiator's or the responder's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// MPA Request Frame.
    Request,
    /// MPA Reply Frame.
    Reply,
}

/// Zero-length messages that may serve as the ready-to-receive indication (RFC 6581 §9, B C D).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RtrModes {
    /// B: a zero-length Send.
    pub send: bool,
    /// C: a zero-length RDMA Write.
    pub write: bool,
    /// D: a zero-length RDMA Read.
    pub read: bool,
}

/// The enhanced connection establishment data (RFC 6581 §9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Enhanced {
    /// Inbound read queue depth, in requests, at most [`MAX_DEPTH`] (which means "not negotiated").
    pub ird: u16,
    /// Outbound read queue depth, in requests, at most [`MAX_DEPTH`].
    pub ord: u16,
    /// A: the peer-to-peer model, in which the initiator first sends an RTR indication.
    pub peer_to_peer: bool,
    /// The RTR messages offered (Request) or chosen (Reply).
    pub rtr: RtrModes,
}

impl Enhanced {
    fn parse(bytes: &[u8; ENHANCED_LEN]) -> Self {
        let (inbound, outbound) = (u16_at(bytes, 0), u16_at(bytes, 2));
        Self {
            ird: inbound & MAX_DEPTH,
            ord: outbound & MAX_DEPTH,
            peer_to_peer: inbound & flag::HIGH != 0,
            rtr: RtrModes {
                send: inbound & flag::LOW != 0,
                write: outbound & flag::HIGH != 0,
                read: outbound & flag::LOW != 0,
            },
        }
    }

    fn emit(self, out: &mut Vec<u8>) {
        let inbound = self.ird | bit(self.peer_to_peer, flag::HIGH) | bit(self.rtr.send, flag::LOW);
        let outbound = self.ord | bit(self.rtr.write, flag::HIGH) | bit(self.rtr.read, flag::LOW);
        out.extend_from_slice(&inbound.to_be_bytes());
        out.extend_from_slice(&outbound.to_be_bytes());
    }
}

fn bit(set: bool, value: u16) -> u16 {
    if set { value } else { 0 }
}

/// One MPA Request or Reply Frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupFrame {
    /// Request or Reply.
    pub kind: FrameKind,
    /// M: the frame's sender wants markers in what it receives.
    pub markers: bool,
    /// C: the frame's sender wants CRCs in both directions.
    pub crc: bool,
    /// R: the connection is refused. Only in a Reply; a Request has it neither set nor read.
    pub reject: bool,
    /// MPA revision: 0, 1 or 2. Which of them to speak is the caller's decision.
    pub revision: u8,
    /// The enhanced data, present when S is set and the revision is at least 2.
    pub enhanced: Option<Enhanced>,
    /// The ULP's private data, without the enhanced bytes.
    pub private_data: Vec<u8>,
}

impl StartupFrame {
    /// Reads a frame from the start of `bytes`: the frame and its length in bytes, or `None` when
    /// more bytes are needed.
    ///
    /// Reserved bits are not checked (RFC 5044 §7.1.1); siw sets one of them.
    ///
    /// # Errors
    /// At the first byte that cannot belong to a frame, before the rest has come.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, StartupFrameError> {
        check_key(bytes)?;
        check_revision(bytes)?;
        check_length(bytes)?;
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let Some(private) = rest.get(..usize::from(u16_at(header, at::LENGTH))) else {
            return Ok(None);
        };
        Ok(Some((Self::from_parts(header, private), HEADER_LEN + private.len())))
    }

    fn from_parts(header: &[u8; HEADER_LEN], private: &[u8]) -> Self {
        let is_set = |bit: u8| header[at::FLAGS] & bit != 0;
        let kind = match header.starts_with(REQUEST_KEY) {
            true => FrameKind::Request,
            false => FrameKind::Reply,
        };
        let enhanced = match private.split_first_chunk() {
            Some(split) if is_enhanced(header[at::FLAGS], header[at::REVISION]) => Some(split),
            _ => None,
        };
        Self {
            kind,
            markers: is_set(flag::MARKERS),
            crc: is_set(flag::CRC),
            reject: kind == FrameKind::Reply && is_set(flag::REJECT),
            revision: header[at::REVISION],
            enhanced: enhanced.map(|(words, _)| Enhanced::parse(words)),
            private_data: enhanced.map_or(private, |(_, rest)| rest).to_vec(),
        }
    }

    /// Appends the frame to `out`.
    ///
    /// # Errors
    /// When a value does not fit its field; `out` is unchanged then.
    pub fn emit(&self, out: &mut Vec<u8>) -> Result<(), StartupFrameError> {
        let length = self.check()?;
        out.extend_from_slice(match self.kind {
            FrameKind::Request => REQUEST_KEY,
            FrameKind::Reply => REPLY_KEY,
        });
        out.extend_from_slice(&[self.flags(), self.revision]);
        out.extend_from_slice(&length.to_be_bytes());
        if let Some(enhanced) = self.enhanced {
            enhanced.emit(out);
        }
        out.extend_from_slice(&self.private_data);
        Ok(())
    }

    fn flags(&self) -> u8 {
        let bit = |set: bool, value: u8| if set { value } else { 0 };
        bit(self.markers, flag::MARKERS)
            | bit(self.crc, flag::CRC)
            | bit(self.reject && self.kind == FrameKind::Reply, flag::REJECT)
            | bit(self.enhanced.is_some(), flag::ENHANCED)
    }

    /// The length field's value, when the frame can be sent.
    fn check(&self) -> Result<u16, StartupFrameError> {
        let revision = self.revision;
        if revision > MAX_REVISION {
            return Err(StartupFrameError::Revision { found: revision });
        }
        if self.enhanced.is_some() && revision < 2 {
            return Err(StartupFrameError::EnhancedRevision { revision });
        }
        if let Some(Enhanced { ird, ord, .. }) = self.enhanced
            && ird.max(ord) > MAX_DEPTH
        {
            return Err(StartupFrameError::Depth { found: ird.max(ord) });
        }
        let enhanced_len = if self.enhanced.is_some() { ENHANCED_LEN } else { 0 };
        let len = enhanced_len + self.private_data.len();
        match u16::try_from(len) {
            Ok(length) if len <= MAX_PRIVATE_DATA => Ok(length),
            _ => Err(StartupFrameError::PrivateDataTooLong { found: len }),
        }
    }
}

/// S only means something from revision 2 on; before, it is a reserved bit.
fn is_enhanced(flags: u8, revision: u8) -> bool {
    flags & flag::ENHANCED != 0 && revision >= 2
}

fn check_key(bytes: &[u8]) -> Result<(), StartupFrameError> {
    let wrong = |key: &[u8]| bytes.iter().zip(key).position(|(byte, expected)| byte != expected);
    match (wrong(REQUEST_KEY), wrong(REPLY_KEY)) {
        (Some(request), Some(reply)) => {
            let at = request.max(reply);
            Err(StartupFrameError::Key { at, found: bytes[at] })
        }
        _ => Ok(()),
    }
}

fn check_revision(bytes: &[u8]) -> Result<(), StartupFrameError> {
    match bytes.get(at::REVISION) {
        Some(&found) if found > MAX_REVISION => Err(StartupFrameError::Revision { found }),
        _ => Ok(()),
    }
}

/// Works on half a length field, too: its first byte alone can be too large.
fn check_length(bytes: &[u8]) -> Result<(), StartupFrameError> {
    let Some(&high) = bytes.get(at::LENGTH) else {
        return Ok(());
    };
    let low = bytes.get(at::LENGTH + 1).copied();
    let at_least = usize::from(u16::from_be_bytes([high, low.unwrap_or(0)]));
    if at_least > MAX_PRIVATE_DATA {
        return Err(StartupFrameError::PrivateDataTooLong { found: at_least });
    }
    let enhanced = is_enhanced(bytes[at::FLAGS], bytes[at::REVISION]);
    if enhanced && low.is_some() && at_least < ENHANCED_LEN {
        return Err(StartupFrameError::EnhancedMissing { found: at_least });
    }
    Ok(())
}

/// Why a startup frame cannot be read (the peer's fault) or written (the caller's).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartupFrameError {
    /// The peer does not speak MPA.
    #[error(
        "peer does not speak MPA: byte {at} of its first frame is {found:#04x}, not part of \
         \"MPA ID Req Frame\" or \"MPA ID Rep Frame\"; close the connection"
    )]
    Key {
        /// Index of the first wrong byte.
        at: usize,
        /// The byte found there.
        found: u8,
    },
    /// An MPA revision above [`MAX_REVISION`], read or about to be sent.
    #[error("MPA revision {found} is not known, expected at most {MAX_REVISION}; use 1 or 2")]
    Revision {
        /// The revision.
        found: u8,
    },
    /// More private data than [`MAX_PRIVATE_DATA`], read or about to be sent.
    #[error(
        "{found} bytes of private data (with the enhanced bytes) do not fit an MPA frame, \
         expected at most {MAX_PRIVATE_DATA}; shorten them"
    )]
    PrivateDataTooLong {
        /// Its length in bytes (for half a length field: the least it can be).
        found: usize,
    },
    /// The peer set S but sent too little private data to hold the enhanced data.
    #[error(
        "peer announced enhanced MPA data but sends {found} bytes of private data, expected at \
         least {ENHANCED_LEN}; close the connection"
    )]
    EnhancedMissing {
        /// Length of the private data in bytes.
        found: usize,
    },
    /// The caller wants a read queue depth that does not fit 14 bits.
    #[error("caller's IRD or ORD is {found}, expected at most {MAX_DEPTH}; lower it")]
    Depth {
        /// The larger of the two depths.
        found: u16,
    },
    /// The caller wants enhanced data in a frame of a revision that has none.
    #[error("caller's frame has enhanced data but revision {revision}, expected 2; set it to 2")]
    EnhancedRevision {
        /// The frame's revision.
        revision: u8,
    },
}

#[cfg(test)]
mod tests;
