//! The modules that a file system is made of, as they were built.

use outboard_active::ModuleHash;
use outboard_offcode::{LoadError, ModuleStore, WasmEngine};
use std::collections::HashSet;

/// Each after those that it imports.
pub(crate) const MODULES: [(&str, &[u8]); 7] = [
    ("alloc", include_bytes!("../../../../modules/built/alloc.wasm")),
    ("blocks", include_bytes!("../../../../modules/built/blocks.wasm")),
    ("table", include_bytes!("../../../../modules/built/table.wasm")),
    ("names", include_bytes!("../../../../modules/built/names.wasm")),
    ("inode", include_bytes!("../../../../modules/built/inode.wasm")),
    ("fs", FS),
    ("find", FIND),
];
/// The one that changes a tree.
const FS: &[u8] = include_bytes!("../../../../modules/built/fs.wasm");

/// The one that walks through one.
const FIND: &[u8] = include_bytes!("../../../../modules/built/find.wasm");

/// The hash of the module `find`.
pub(super) fn walks() -> ModuleHash {
    ModuleHash::of(FIND)
}

/// The hash of the module `fs`.
#[must_use]
pub fn fs_module() -> ModuleHash {
    ModuleHash::of(FS)
}

/// The hashes of all of them.
pub(super) fn hashes() -> HashSet<ModuleHash> {
    MODULES.iter().map(|(_, bytes)| ModuleHash::of(bytes)).collect()
}

/// Loads them for everybody, which takes seconds where their compiled code is not kept.
///
/// # Errors
/// [`LoadError`]: this machine's.
pub(super) fn load<E: WasmEngine>(store: &ModuleStore<E>) -> Result<(), LoadError> {
    MODULES.iter().try_for_each(|(name, bytes)| store.load(None, name, bytes).map(drop))
}
