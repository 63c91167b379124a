//! The project's own tools, for development only: nothing that ships depends on this crate.
//!
//! In reading order:
//! - `tidy`: rules about the source that the compiler and clippy do not check;
//! - `test`: the table of test suites and the runner behind `cargo xtask test`;
//! - `siw`: Linux's own iWARP in a virtual machine, for one of the suites;
//! - `ibverbs`: stock RDMA programs on the C libraries, for another;
//! - `libs`: linking libibverbs.so.1 and librdmacm.so.1;
//! - `bindings`: regenerating C layouts from headers;
//! - `sources`: other people's projects, for tests and benchmarks that compile something real;
//! - `lab`: several emulated hosts on this machine, in network namespaces;
//! - `compile`: `outboard cc` in network namespaces, for another suite;
//! - `cast`: `outboard cast` in network namespaces, for another;
//! - `modules`: building the shipped modules of active code, and running them natively;
//! - `bench`: running Outboard and its rivals in turn, and drawing the result;
//! - `slurm`: the files and commands of Slurm's daemons, for a suite and a benchmark;
//! - `scratch`: a directory for the files of one run;
//! - `process`: a program that is started, waited for, and killed when dropped;
//! - `builds`: what suites and benchmarks build;
//! - `command`: the few ways in which all of these start other programs.
#![forbid(unsafe_code)]

pub mod bench;
pub mod bindings;
mod builds;
pub mod cast;
pub mod command;
pub mod compile;
pub mod ibverbs;
pub mod lab;
pub mod libs;
pub mod modules;
mod process;
mod scratch;
pub mod siw;
mod slurm;
pub mod sources;
pub mod test;
pub mod tidy;
