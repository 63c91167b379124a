//! How other processes of the same user see and steer a running application: a socket in a
//! directory of the user's, one line of JSON for each question and each answer.
//!
//! Only the same user, or root, is answered.
//!
//! Files in reading order: [`place`] (where sockets are), [`question`] (what is said), `server`
//! (in the application), [`client`].

pub mod client;
pub mod place;
pub mod question;
mod server;

pub use client::ControlClient;
pub use question::ControlQuestion;
pub use server::{ControlServer, Hosted};
