//! Keys and sessions without I/O: authentication for each service, and bytes that no third party
//! reads or alters.
//!
//! A cluster has one key; each service's key is derived from it and can be handed out alone. Two
//! ends that hold a service's key prove it to each other in a [`Handshake`], a Noise XXpsk3
//! exchange that also shows each end the other's static key, its identity. What comes out is a
//! [`SecureSession`], which turns plain bytes into records and back.
//!
//! Nothing here opens a socket, starts a thread or reads a clock; only [`ClusterKey`],
//! [`ServiceKey`], [`Identity`] and [`Revoked`] touch the file system, in the methods that take a
//! path. No input from a peer makes it panic or allocate more than a record. Our own copies of
//! keys are wiped when dropped and never printed; the libraries below do not wipe theirs.
//!
//! Modules in reading order: `name` (services' names), `secret` (32 secret bytes), `keyfile` (files
//! that only their owner reads), `key` (cluster and service keys), `identity` (static keys and node
//! ids), `revoked` (the list of revoked nodes), `credentials` (what an end proves itself with),
//! `noise` (the library behind the handshake), `cipher` (one direction after it), `handshake`
//! (messages and their order), `session` (records, and handing a session to another process).
//!
//! # Examples
//!
//! ```
//! use outboard_secure::{ClusterKey, Credentials, Fabric, Handshake, Identity, Revoked};
//! use std::sync::Arc;
//!
//! let cluster = ClusterKey::generate()?;
//! let compile = "compile".parse()?;
//! let end = || -> Result<_, Box<dyn std::error::Error>> {
//!     Ok(Arc::new(Credentials {
//!         identity: Identity::generate()?,
//!         keys: [cluster.service(&compile)].into_iter().collect(),
//!         fabric: Fabric::Untrusted,
//!         revoked: Revoked::default(),
//!     }))
//! };
//! let mut client = Handshake::initiator(end()?, &compile)?;
//! let mut server = Handshake::responder(end()?);
//! while !(client.is_done() && server.is_done()) {
//!     if let Some(bytes) = client.poll_transmit() {
//!         server.handle(&bytes)?;
//!     }
//!     if let Some(bytes) = server.poll_transmit() {
//!         client.handle(&bytes)?;
//!     }
//! }
//! let mut client = client.into_session().expect("it is done");
//! let mut server = server.into_session().expect("it is done");
//!
//! let (mut wire, mut plain) = (Vec::new(), Vec::new());
//! client.seal(b"int main() {}", &mut wire)?;
//! server.open(&wire, &mut plain)?;
//! assert_eq!(plain, b"int main() {}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod cipher;
mod credentials;
mod handshake;
mod identity;
mod key;
mod keyfile;
mod name;
mod noise;
mod revoked;
mod secret;
mod session;

pub use credentials::{Credentials, Fabric, Keyring, Mode};
pub use handshake::{Handshake, HandshakeError, Message};
pub use identity::{Identity, NodeId, NodeIdError};
pub use key::{ClusterKey, ServiceKey};
pub use keyfile::{Holding, KeyFileError};
pub use name::{ServiceName, ServiceNameError};
pub use revoked::{Revoked, RevokedError};
pub use secret::NoEntropy;
pub use session::{NotASession, RECORD_PLAIN_MAX, SecureSession, SessionError};
