//! rping's message and its data. Both sides send messages of the same form; the server's mean "go
//! ahead" and have no content.

use crate::Failure;
use outboard_verbs::{Remote, Stag};
use std::ops::RangeInclusive;

/// Bytes of a message.
pub(crate) const MESSAGE_LEN: usize = 16;
/// What a server says.
pub(crate) const GO_AHEAD: [u8; MESSAGE_LEN] = [0; MESSAGE_LEN];
/// Buffers that the stock program takes.
pub(crate) const SIZES: RangeInclusive<usize> = 23..=65_535;

/// A client's buffer: where it is and how large.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advert {
    pub(crate) remote: Remote,
    pub(crate) size: usize,
}

impl Advert {
    pub(crate) fn to_bytes(self) -> [u8; MESSAGE_LEN] {
        let size = u32::try_from(self.size).unwrap_or(u32::MAX);
        let mut bytes = [0; MESSAGE_LEN];
        bytes[..8].copy_from_slice(&self.remote.offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.remote.stag.0.to_be_bytes());
        bytes[12..].copy_from_slice(&size.to_be_bytes());
        bytes
    }

    /// Refuses sizes that no rping has, before a buffer is made for them.
    pub(crate) fn parse(bytes: &[u8; MESSAGE_LEN]) -> Result<Self, Failure> {
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let [high, low, stag, size] = [0, 4, 8, 12].map(word);
        let size = usize::try_from(size)?;
        if !SIZES.contains(&size) {
            return Err(format!("the client offers {size} bytes; rping has {SIZES:?}").into());
        }
        let offset = u64::from(high) << 32 | u64::from(low);
        Ok(Self { remote: Remote { stag: Stag(stag), offset }, size })
    }
}

/// The buffer of one iteration: its number, then letters that start one further on each time,
/// then a zero byte.
pub(crate) fn ping_data(ping: usize, size: usize) -> Vec<u8> {
    let letters = b'A'..=b'z';
    let start = ping % letters.clone().count();
    let mut data = format!("rdma-ping-{ping}: ").into_bytes();
    data.extend(letters.cycle().skip(start).take(size.saturating_sub(data.len() + 1)));
    data.push(0);
    data
}
