//! What changes in a part when it is written into the merged module: numbers, and where its data
//! and its part of the table begin, which are known then.

use wasm_encoder::Instruction;
use wasm_encoder::reencode::{Error, Reencode, utils};
use wasmparser::Operator;

/// Why a part cannot be written: only if it was not valid.
pub(super) type ReencodeError = Error<UnknownNumber>;

/// A number of something that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the module names {what} {number}, which it may not")]
pub(super) struct UnknownNumber {
    what: &'static str,
    number: u32,
}

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct Renumbering {
    /// New numbers of functions, by the old ones.
    pub(super) functions: Vec<Option<u32>>,
    /// The same of globals.
    pub(super) globals: Vec<Option<u32>>,
    /// What imported globals are, if they are constants.
    pub(super) constants: Vec<Option<u32>>,
    /// What is added to the numbers of types, and of segments.
    pub(super) types: u32,
    pub(super) elements: u32,
    pub(super) data: u32,
}

fn find(all: &[Option<u32>], what: &'static str, number: u32) -> Result<u32, ReencodeError> {
    let found = all.get(number as usize).copied().flatten();
    found.ok_or(Error::UserError(UnknownNumber { what, number }))
}

impl Reencode for Renumbering {
    type Error = UnknownNumber;

    fn function_index(&mut self, function: u32) -> Result<u32, ReencodeError> {
        find(&self.functions, "function", function)
    }

    fn global_index(&mut self, global: u32) -> Result<u32, ReencodeError> {
        find(&self.globals, "global", global)
    }

    fn type_index(&mut self, of: u32) -> Result<u32, ReencodeError> {
        Ok(of.saturating_add(self.types))
    }

    fn element_index(&mut self, element: u32) -> Result<u32, ReencodeError> {
        Ok(element.saturating_add(self.elements))
    }

    fn data_index(&mut self, data: u32) -> Result<u32, ReencodeError> {
        Ok(data.saturating_add(self.data))
    }

    fn instruction<'a>(
        &mut self,
        operator: Operator<'a>,
    ) -> Result<Instruction<'a>, ReencodeError> {
        if let Operator::GlobalGet { global_index } = operator
            && let Some(Some(value)) = self.constants.get(global_index as usize)
        {
            return Ok(Instruction::I32Const(value.cast_signed()));
        }
        utils::instruction(self, operator)
    }
}
