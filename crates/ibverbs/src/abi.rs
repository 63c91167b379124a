//! Layouts of rdma-core 44, as bindgen reads them from Debian 12's headers: each structure is
//! followed by compile-time assertions of its size, alignment and offsets. The file has no
//! handwritten code.
//!
//! `cargo xtask bindings` generates `bindings.rs` from what `headers.h` includes.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all)]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, dead_code)]
#![allow(
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    clippy::use_self,
    unsafe_op_in_unsafe_fn
)]

include!("abi/bindings.rs");
