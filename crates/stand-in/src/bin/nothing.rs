//! A wrapper that does nothing: what a build costs that compiles nothing at all.
#![forbid(unsafe_code)]

fn main() {}
