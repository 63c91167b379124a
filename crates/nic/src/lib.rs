//! The receive path of a network interface as a device: code for BPF is checked, verified by the
//! kernel, attached to an interface, and read.
//!
//! A body is an ELF object from clang with one program and maps whose names say what they are for
//! (`bpf/offcode_bpf.h`, [`templates::HEADER`]): configuration, counters, records to user space,
//! state. [`BpfBody::parse`] looks at the object without asking the kernel; [`LoadedBody::load`]
//! has the kernel verify it and make its maps; [`LoadedBody::attach`] puts it into an interface's
//! path, where it stays as long as this process and its [`AttachedBody`]: the kernel takes it off
//! when they end, however they end.
//!
//! Knows nothing of offcodes and channels, pins nothing, changes no interface's settings, and never
//! attaches to a loopback interface, through which a machine's own services speak. It asks about
//! interfaces in the network namespace of the thread that calls.
//!
//! Modules in reading order: [`body`], [`loaded`], [`attached`], [`record`], [`templates`] (bodies
//! that are shipped), [`xsk`] (AF_XDP), [`interface`], [`watch`], `route` (rtnetlink),
//! [`verifier`], [`error`].

#![forbid(unsafe_code)]

pub mod attached;
pub mod body;
pub mod error;
pub mod interface;
pub mod loaded;
pub mod record;
mod route;
pub mod templates;
pub mod verifier;
pub mod watch;
pub mod xsk;

pub use attached::{AttachMode, AttachState, AttachedBody};
pub use body::{BpfBody, ProgramKind};
pub use error::NicError;
pub use interface::{NetInterface, NicDevice, Unusable, devices};
pub use loaded::{BodyCounter, BodyStart, LoadedBody, PacketVerdict};
pub use record::PacketRecord;
pub use verifier::VerifierRefusal;
pub use watch::{InterfaceEvent, InterfaceWatch};
pub use xsk::XdpSocket;
