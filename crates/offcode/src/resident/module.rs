//! A module of residents: checked against the guest's ABI and compiled, once for many instances.

use super::abi::{self, AbiNeed};
use super::ended::ResidentError;
use super::engine::ResidentEngine;
use super::rewrite::rewrite;
use crate::engine::wasmtime::machine;
use crate::error::LoadError;
use crate::hash::ModuleHash;
use crate::inspect::{ModuleLimits, ResidentReading, read_resident};
use std::sync::Arc;
use wasmtime::Module;

/// Bytes of a page of WebAssembly's memory.
pub(super) const PAGE: u64 = 64 << 10;

/// What a module may have and import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResidentRules {
    /// Of the module as it is written down.
    pub module: ModuleLimits,
    /// Bytes of memory that it may begin with, and that a resident may grow to.
    pub memory_bytes: u64,
    /// Whether it may import `clock` and `wall`.
    pub has_clock: bool,
    /// Whether it may import `timer`.
    pub has_timers: bool,
}

impl Default for ResidentRules {
    fn default() -> Self {
        Self {
            module: ModuleLimits::default(),
            memory_bytes: 64 << 20,
            has_clock: false,
            has_timers: false,
        }
    }
}

/// See this file's first lines. Clones share what was compiled.
#[derive(Clone, Debug)]
pub struct ResidentModule(pub(super) Arc<ResidentInner>);

/// What clones of a module share.
#[derive(Debug)]
pub(super) struct ResidentInner {
    pub(super) engine: ResidentEngine,
    pub(super) hash: ModuleHash,
    pub(super) module: Module,
    pub(super) reading: ResidentReading,
    pub(super) memory_bytes: u64,
}

impl ResidentModule {
    /// Checks and compiles a module.
    ///
    /// # Errors
    /// [`ResidentError`]: what is wrong with it, and what its author can do.
    pub fn compile(
        engine: &ResidentEngine,
        bytes: &[u8],
        rules: &ResidentRules,
    ) -> Result<Self, ResidentError> {
        let reading = read_resident(bytes, &rules.module)?;
        check_imports(&reading, rules)?;
        check_exports(&reading)?;
        let found = reading.memory_pages.saturating_mul(PAGE);
        if found > rules.memory_bytes {
            return Err(ResidentError::Memory { found, limit: rules.memory_bytes });
        }
        let rewritten = rewrite(bytes, &reading)?;
        let module = Module::from_binary(engine.wasmtime(), &rewritten);
        let module = module.map_err(|error| machine(&error))?;
        Ok(Self(Arc::new(ResidentInner {
            engine: engine.clone(),
            hash: ModuleHash::of(bytes),
            module,
            reading,
            memory_bytes: rules.memory_bytes,
        })))
    }

    /// The hash of the module's bytes.
    #[must_use]
    pub fn hash(&self) -> ModuleHash {
        self.0.hash
    }

    /// Whether the module exports an entry, by its name in the ABI.
    #[must_use]
    pub fn has_entry(&self, name: &str) -> bool {
        name.starts_with(abi::ENTRY_PREFIX) && self.0.reading.functions.contains_key(name)
    }

    /// Whether the module imports a function of module `offcode`.
    #[must_use]
    pub fn has_import(&self, field: &str) -> bool {
        self.0.reading.imports.iter().any(|import| import.field == field)
    }

    /// Whether a resident can be taken to another place: all that it changes is in its memory and
    /// its globals.
    #[must_use]
    pub fn is_movable(&self) -> bool {
        !self.0.reading.changes_tables
    }
}

fn check_imports(reading: &ResidentReading, rules: &ResidentRules) -> Result<(), ResidentError> {
    for import in &reading.imports {
        let wrong = |what: String| ResidentError::Import {
            module: import.module.clone(),
            field: import.field.clone(),
            found: import.signature.to_string(),
            what,
        };
        if import.module != abi::MODULE {
            return Err(wrong(format!(
                "only functions of module `{}` can be imported (link libraries into the module)",
                abi::MODULE
            )));
        }
        let Some((expected, need)) = abi::find(abi::IMPORTS, &import.field) else {
            let names: Vec<_> = abi::IMPORTS.iter().map(|((name, ..), _)| *name).collect();
            return Err(wrong(format!("there is no such function, only {}", names.join(", "))));
        };
        if expected != import.signature {
            return Err(wrong(format!("its type is {expected}")));
        }
        match need {
            AbiNeed::Clock if !rules.has_clock => {
                return Err(wrong("its description must say `needs.clock = true`".into()));
            }
            AbiNeed::Timers if !rules.has_timers => {
                return Err(wrong("its description must say `needs.timers = true`".into()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_exports(reading: &ResidentReading) -> Result<(), ResidentError> {
    let wrong =
        |name: &str, what: String| Err(ResidentError::Export { name: name.to_owned(), what });
    if !reading.exports_memory {
        return wrong(abi::MEMORY, "is missing: export the module's memory by this name".into());
    }
    for name in &reading.names {
        if name.starts_with(abi::OWN_PREFIX) {
            return wrong(name, format!("names with `{}` are Outboard's own", abi::OWN_PREFIX));
        }
        if !name.starts_with(abi::ENTRY_PREFIX) {
            continue;
        }
        let Some((expected, has_input)) = abi::find(abi::ENTRIES, name) else {
            let names: Vec<_> = abi::ENTRIES.iter().map(|((name, ..), _)| *name).collect();
            return wrong(name, format!("no entry has this name, only {}", names.join(", ")));
        };
        match reading.functions.get(name) {
            Some(found) if *found == expected => {}
            Some(found) => return wrong(name, format!("has type {found}, must have {expected}")),
            None => return wrong(name, format!("must be a function of type {expected}")),
        }
        if has_input && !reading.functions.contains_key(abi::BUFFER) {
            return wrong(
                abi::BUFFER,
                format!("is missing, and `{name}` has input: export a function that gives a place"),
            );
        }
    }
    Ok(())
}

/// What a rewritten module's author did not write: an error of it is ours.
pub(super) fn unreadable(error: &wasmparser::BinaryReaderError) -> LoadError {
    LoadError::Invalid(error.to_string())
}
