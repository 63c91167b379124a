//! A wrapper that does nothing, to measure a build in which no compiler runs.
#![forbid(unsafe_code)]

fn main() {}
