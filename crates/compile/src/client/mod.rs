//! The client's side of the network.

mod board;
