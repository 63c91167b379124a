//! The server's side of the network.

mod roster;
