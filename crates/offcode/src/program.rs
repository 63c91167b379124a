//! A program: a module with all that it imports, each with its place in memory. Knows no engine.

use crate::abi::{CALL_BLOCK, DATA_START, SCRATCH_LEN};
use crate::engine::{Linked, Placed};
use crate::error::LoadError;
use crate::hash::ModuleHash;
use crate::inspect::{ModuleInfo, ModuleShape};
use std::collections::HashSet;
use std::sync::Arc;

/// Modules of one program, at most.
const MODULES_MAX: usize = 64;
/// To what arguments and results are aligned, in bytes.
const ALIGNMENT: u32 = 16;

/// A module that is to be linked, in the engine's form.
#[derive(Debug)]
pub(crate) struct ProgramPart<M> {
    pub(crate) info: Arc<ModuleInfo>,
    pub(crate) module: Arc<M>,
}

impl<M> Clone for ProgramPart<M> {
    fn clone(&self) -> Self {
        Self { info: Arc::clone(&self.info), module: Arc::clone(&self.module) }
    }
}

/// Links a module with what it imports.
pub(crate) fn link<M>(
    hash: &ModuleHash,
    part: impl Fn(&ModuleHash) -> Option<ProgramPart<M>>,
) -> Result<Linked<M>, LoadError> {
    let mut order = Order { parts: Vec::new(), known: HashSet::new() };
    order.visit(hash, &part, 0)?;
    place(order.parts)
}

/// Modules in the order of linking: each after those that it imports.
struct Order<M> {
    parts: Vec<ProgramPart<M>>,
    known: HashSet<ModuleHash>,
}

impl<M> Order<M> {
    fn visit(
        &mut self,
        hash: &ModuleHash,
        part: &impl Fn(&ModuleHash) -> Option<ProgramPart<M>>,
        depth: usize,
    ) -> Result<(), LoadError> {
        if !self.known.insert(*hash) {
            return Ok(());
        }
        if depth >= MODULES_MAX || self.known.len() > MODULES_MAX {
            let (found, limit) = (self.known.len() as u64, MODULES_MAX as u64);
            return Err(LoadError::TooMuch { what: "modules to be linked", found, limit });
        }
        let missing = || LoadError::Missing { name: String::new(), hash: *hash };
        let found = part(hash).ok_or_else(missing)?;
        for import in &found.info.imports {
            self.visit(&import.hash, part, depth + 1)?;
        }
        self.parts.push(found);
        Ok(())
    }
}

fn place<M>(parts: Vec<ProgramPart<M>>) -> Result<Linked<M>, LoadError> {
    let last = parts.len().saturating_sub(1);
    let is_static = |part: &ProgramPart<M>| matches!(part.info.shape, ModuleShape::Static { .. });
    if let Some(library) = parts.iter().take(last).find(|part| is_static(part)) {
        return Err(LoadError::ModuleShape(format!(
            "module {} is imported, and is linked to fixed addresses: build it with -fPIC and \
             wasm-ld -shared",
            library.info.hash
        )));
    }
    // What is fixed has its place already.
    let (mut data, mut table) = match parts.last().map(|part| part.info.shape) {
        Some(ModuleShape::Static { data_end, table }) => (data_end, table),
        _ => (DATA_START, 0),
    };
    let mut modules = Vec::new();
    for ProgramPart { info, module } in parts {
        let (memory_base, table_base) = match info.shape {
            ModuleShape::PositionIndependent { memory, alignment, table: entries } => {
                data = data.next_multiple_of(alignment.max(ALIGNMENT));
                let bases = (data, table);
                (data, table) = (data.saturating_add(memory), table.saturating_add(entries));
                bases
            }
            ModuleShape::Static { .. } => (0, 0),
        };
        modules.push(Placed { info, module, memory_base, table_base });
    }
    let limit = u64::from(SCRATCH_LEN / 2);
    if u64::from(data) > limit {
        return Err(LoadError::TooMuch { what: "bytes of data in all", found: data.into(), limit });
    }
    let data_end = data.next_multiple_of(ALIGNMENT);
    Ok(Linked { modules, table, data_end })
}

/// Where the arguments and the result of a call are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallPlaces {
    pub(crate) args: u32,
    pub(crate) out: u32,
    pub(crate) out_cap: u32,
}

impl CallPlaces {
    /// Places for `args_len` bytes behind the data; `None` if there is no room. The result gets
    /// `out_cap` bytes, or all that is left.
    pub(crate) fn behind(data_end: u32, args_len: usize, out_cap: u32) -> Option<Self> {
        debug_assert!(data_end >= CALL_BLOCK);
        let len = u32::try_from(args_len).ok()?;
        let out = data_end.checked_add(len)?.checked_next_multiple_of(ALIGNMENT)?;
        let left = SCRATCH_LEN.checked_sub(out)?;
        Some(Self { args: data_end, out, out_cap: left.min(out_cap) })
    }
}
