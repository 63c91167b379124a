//! The names and types of what an offcode's module exports and imports. Calls nothing.

use crate::inspect::Signature;
use wasmparser::ValType::{self, I32, I64};

/// The module name of everything that a resident imports.
pub(super) const MODULE: &str = "offcode";
/// The name by which errors call an offcode's module, as opposed to its libraries.
pub(super) const MAIN: &str = "the offcode";
/// The name of its memory.
pub(super) const MEMORY: &str = "memory";
/// What the names of entries begin with; others may not.
pub(super) const ENTRY_PREFIX: &str = "oc_";
/// What the names begin with under which a module exports what only this crate uses.
pub(super) const OWN_PREFIX: &str = "oc:";
/// The name of its start function, which runs when a resident is new, and not when it goes on.
pub(super) const START: &str = "oc:start";
/// The entry that gives the place for input.
pub(super) const BUFFER: &str = "oc_buffer";

/// The name of a mutable global.
pub(super) fn global(index: u32) -> String {
    format!("{OWN_PREFIX}global:{index}")
}

/// What an import needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbiNeed {
    Nothing,
    Clock,
    Timers,
}

/// A function's name, parameters and results.
type Of = (&'static str, &'static [ValType], &'static [ValType]);

/// Every import, and what it needs.
pub(super) const IMPORTS: &[(Of, AbiNeed)] = &[
    (("send", &[I32, I32, I32], &[I32]), AbiNeed::Nothing),
    (("call", &[I32, I32, I32, I32, I32], &[I64]), AbiNeed::Nothing),
    (("answer", &[I64, I32, I32], &[I32]), AbiNeed::Nothing),
    (("refuse", &[I64, I32, I32], &[I32]), AbiNeed::Nothing),
    (("hold", &[I32], &[]), AbiNeed::Nothing),
    (("release", &[I32], &[]), AbiNeed::Nothing),
    (("log", &[I32, I32, I32], &[]), AbiNeed::Nothing),
    (("fail", &[I32, I32], &[]), AbiNeed::Nothing),
    (("tell", &[I32, I32], &[I32]), AbiNeed::Nothing),
    (("attribute", &[I32, I32, I32, I32], &[I32]), AbiNeed::Nothing),
    (("clock", &[], &[I64]), AbiNeed::Clock),
    (("wall", &[], &[I64]), AbiNeed::Clock),
    (("timer", &[I32, I64], &[]), AbiNeed::Timers),
];

/// Every entry, and whether it has input, for which there must be a buffer.
pub(super) const ENTRIES: &[(Of, bool)] = &[
    ((BUFFER, &[I32], &[I32]), false),
    (("oc_initialize", &[], &[I32]), false),
    (("oc_start", &[], &[I32]), false),
    (("oc_stop", &[], &[]), false),
    (("oc_call", &[I32, I32, I64, I32, I32], &[]), true),
    (("oc_answer", &[I64, I32, I32, I32], &[]), true),
    (("oc_message", &[I32, I32, I32], &[]), true),
    (("oc_writable", &[I32], &[]), false),
    (("oc_timer", &[I32], &[]), false),
    (("oc_event", &[I32, I32, I32], &[]), true),
    (("oc_save", &[], &[I64]), false),
    (("oc_restore", &[I32, I32], &[I32]), true),
];

/// The type of a function of a table, by its name, and what else the table says of it.
pub(super) fn find<T: Copy>(table: &[(Of, T)], name: &str) -> Option<(Signature, T)> {
    let ((_, params, results), more) = table.iter().find(|((of, ..), _)| *of == name)?;
    Some((Signature::new(params, results), *more))
}
