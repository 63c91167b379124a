//! Cargo considers build dependencies of crates that have a build script.

fn main() {}
