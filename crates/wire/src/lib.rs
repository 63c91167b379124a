//! The byte layouts of iWARP: what MPA, DDP and RDMAP put on a TCP stream, and nothing else.
//!
//! Every header is a plain struct with `parse` (bytes to value, which is then always legal) and
//! `emit` (append the bytes to a `Vec`). Nothing here opens a socket, starts a thread, reads a
//! clock, keeps a connection's state or touches registered memory; no input makes it panic.
//!
//! Modules in reading order: [`crc`] (the check value), [`startup`] (MPA Request and Reply
//! frames, RFC 5044 §7.1 and RFC 6581), [`fpdu`] (framing, RFC 5044 §4), [`marker`] (framing with
//! markers, RFC 5044 §4.3), [`ddp`] (segment headers, RFC 5041), [`rdmap`] (opcodes and message
//! headers, RFC 5040 and RFC 7306), [`terminate`] (error reports, RFC 5040 §4.8).
//!
//! # Examples
//!
//! A Send of five bytes, framed and read back:
//!
//! ```
//! use outboard_wire::{ddp::{Header, Stag, Untagged, queue}, fpdu, rdmap::Opcode};
//!
//! let header = Header::Untagged(Untagged {
//!     opcode: Opcode::Send,
//!     last: true,
//!     invalidate: Stag(0),
//!     queue: queue::SEND,
//!     msn: 1,
//!     offset: 0,
//! });
//! let mut ulpdu = Vec::new();
//! header.emit(&mut ulpdu);
//! ulpdu.extend_from_slice(b"hello");
//! let mut stream = Vec::new();
//! fpdu::emit(&ulpdu, true, &mut stream);
//!
//! let (ulpdu, consumed) = fpdu::parse(&stream, true)?.expect("the whole FPDU is there");
//! let (found, header_len) = Header::parse(ulpdu)?;
//! assert_eq!(consumed, stream.len());
//! assert_eq!(found, header);
//! assert_eq!(&ulpdu[header_len..], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A peer that does not speak MPA is found out at its first wrong byte:
//!
//! ```
//! use outboard_wire::startup::StartupFrame;
//!
//! assert_eq!(StartupFrame::parse(b"MPA ID Re"), Ok(None));
//! assert!(StartupFrame::parse(b"GET").is_err());
//! ```

#![forbid(unsafe_code)]

mod bytes;
pub mod crc;
pub mod ddp;
pub mod fpdu;
pub mod marker;
pub mod rdmap;
pub mod startup;
pub mod terminate;

pub use ddp::HeaderError;
pub use fpdu::FramingError;
