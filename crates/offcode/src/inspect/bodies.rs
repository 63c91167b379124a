//! What the bodies of a module's functions call, and whether they are within limits.

use super::{ModuleLimits, invalid, within};
use crate::error::LoadError;
use wasmparser::{FunctionBody, Operator};

/// What one function calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    /// Functions by index.
    pub(super) direct: Vec<u32>,
    /// It calls through the table.
    pub(super) indirect: bool,
}

/// All bodies, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Bodies {
    pub(super) calls: Vec<Calls>,
    pub(super) has_bulk_memory: bool,
    /// Some instruction changes a table or drops a segment: state that is neither memory nor
    /// global.
    pub(super) changes_tables: bool,
}

impl Bodies {
    pub(super) fn add(
        &mut self,
        body: &FunctionBody<'_>,
        limits: &ModuleLimits,
    ) -> Result<(), LoadError> {
        let range = body.range();
        within("bytes in one function", (range.end - range.start) as u64, limits.body_bytes)?;
        let mut locals = 0_u64;
        for group in body.get_locals_reader().map_err(invalid)? {
            locals += u64::from(group.map_err(invalid)?.0);
            within("locals in one function", locals, limits.locals)?;
        }
        let mut calls = Calls::default();
        let mut operators = body.get_operators_reader().map_err(invalid)?;
        while !operators.eof() {
            match operators.read().map_err(invalid)? {
                Operator::Call { function_index } => calls.direct.push(function_index),
                Operator::CallIndirect { .. } => calls.indirect = true,
                Operator::BrTable { targets } => {
                    within("targets of a jump table", targets.len().into(), limits.targets)?;
                }
                Operator::MemoryCopy { .. }
                | Operator::MemoryFill { .. }
                | Operator::MemoryInit { .. } => self.has_bulk_memory = true,
                Operator::TableInit { .. }
                | Operator::TableCopy { .. }
                | Operator::ElemDrop { .. }
                | Operator::DataDrop { .. } => self.changes_tables = true,
                _ => {}
            }
        }
        calls.direct.sort_unstable();
        calls.direct.dedup();
        self.calls.push(calls);
        Ok(())
    }
}
