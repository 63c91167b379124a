//! Compilers that run on other machines.

#![forbid(unsafe_code)]

mod client;
mod protocol;
mod server;
