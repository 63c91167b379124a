//! The body of an offcode: its code with its state, whatever kind it is of.
//!
//! Entries run to their end and are never entered twice at a time.

use super::context::OffcodeContext;
use crate::request::CallResult;
use std::fmt;

/// Why an offcode is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyEnd {
    /// It failed: it trapped, ran too long, or said so itself.
    #[error("{0}")]
    Failed(String),
    /// It refused a step of its start, with a number of its own.
    #[error("it says {0}")]
    Refused(i32),
}

/// What can be called of an offcode. The default is an offcode that does nothing.
pub trait LiveBody: Send + fmt::Debug {
    /// What it reaches.
    fn context(&mut self) -> &mut OffcodeContext;

    /// The first phase: it takes local resources.
    ///
    /// # Errors
    /// [`BodyEnd`], as of all entries.
    fn initialize(&mut self) -> Result<(), BodyEnd>;

    /// The second phase.
    ///
    /// # Errors
    /// As [`Self::initialize`].
    fn start(&mut self) -> Result<(), BodyEnd>;

    /// It is to end its work.
    ///
    /// # Errors
    /// As [`Self::initialize`].
    fn stop(&mut self) -> Result<(), BodyEnd>;

    /// A Call.
    ///
    /// # Errors
    /// As [`Self::initialize`].
    fn call(
        &mut self,
        interface: u32,
        method: u32,
        call: u64,
        params: &[u8],
    ) -> Result<(), BodyEnd>;

    /// An answer to a call of its own.
    ///
    /// # Errors
    /// As [`Self::initialize`].
    fn answer(&mut self, call: u64, result: &CallResult) -> Result<(), BodyEnd>;

    /// A message of a channel.
    ///
    /// # Errors
    /// As [`Self::initialize`].
    fn message(&mut self, port: u16, bytes: &[u8]) -> Result<(), BodyEnd>;

    /// A port has room again.
    ///
    /// # Errors
    /// As [`Self::initialize`].
    fn writable(&mut self, port: u16) -> Result<(), BodyEnd>;

    /// A timer is due.
    ///
    /// # Errors
    /// As [`Self::initialize`].
    fn timer(&mut self, timer: u32) -> Result<(), BodyEnd>;

    /// An event on the out-of-band channel.
    ///
    /// # Errors
    /// As [`Self::initialize`].
    fn event(&mut self, kind: u32, bytes: &[u8]) -> Result<(), BodyEnd>;

    /// All of its state, for the same code elsewhere.
    ///
    /// # Errors
    /// Why it cannot be had.
    fn whole_state(&mut self) -> Result<Vec<u8>, BodyEnd>;

    /// What other code is to go on from.
    ///
    /// # Errors
    /// As [`Self::whole_state`].
    fn save(&mut self) -> Result<Vec<u8>, BodyEnd>;

    /// Goes on from what other code has saved.
    ///
    /// # Errors
    /// As [`Self::initialize`].
    fn restore(&mut self, saved: &[u8]) -> Result<(), BodyEnd>;

    /// Bytes of memory that it uses.
    fn memory_bytes(&self) -> u64;
}
