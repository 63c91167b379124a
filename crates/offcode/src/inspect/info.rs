//! What there is to know of a module, once it was read.

use crate::hash::ModuleHash;
use std::collections::BTreeMap;
use std::fmt;
use wasmparser::{FuncType, ValType};

/// The type of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub(crate) params: Vec<ValType>,
    pub(crate) results: Vec<ValType>,
}

impl Signature {
    pub(crate) fn new(params: &[ValType], results: &[ValType]) -> Self {
        Self { params: params.to_vec(), results: results.to_vec() }
    }

    /// Whether a function of this type can be executed by a request.
    #[must_use]
    pub fn is_entry(&self) -> bool {
        self.params.is_empty() && self.results == [ValType::I64]
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |types: &[ValType]| {
            types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        write!(f, "({}) -> ({})", list(&self.params), list(&self.results))
    }
}

impl From<&FuncType> for Signature {
    fn from(of: &FuncType) -> Self {
        Self::new(of.params(), of.results())
    }
}

/// How a module is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleShape {
    /// Anywhere: it imports where its data and its part of the table are.
    PositionIndependent {
        /// Bytes of data.
        memory: u32,
        /// To what they are aligned, in bytes.
        alignment: u32,
        /// Entries of the table.
        table: u32,
    },
    /// Where it was linked to: only the module that is executed can be so.
    Static {
        /// The end of its data.
        data_end: u32,
        /// Entries of the table, from 0 on.
        table: u32,
    },
}

/// An import of another module's function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleImport {
    /// The name that the importer uses, for people.
    pub name: String,
    /// Which module.
    pub hash: ModuleHash,
    /// The function.
    pub field: String,
    /// Its type.
    pub signature: Signature,
}

/// A function that a module exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedFunction {
    /// Its type.
    pub signature: Signature,
    /// Whether it may write into the region: otherwise a client may execute it, too.
    pub writes: bool,
}

/// What there is to know of a module.
#[derive(Clone, Debug)]
pub struct ModuleInfo {
    /// Its name.
    pub hash: ModuleHash,
    /// Its bytes' number.
    pub len: usize,
    /// How it is placed.
    pub shape: ModuleShape,
    /// What it imports of others.
    pub imports: Vec<ModuleImport>,
    /// What it exports.
    pub exports: BTreeMap<String, ExportedFunction>,
    /// Its own mutable globals, which it exports.
    pub mutable_globals: Vec<String>,
    /// Whether it uses instructions that the engine does not execute itself, so that page 0 must be
    /// accessible.
    pub has_bulk_memory: bool,
}

impl ModuleInfo {
    /// The functions that a request can execute.
    pub fn entries(&self) -> impl Iterator<Item = (&str, bool)> {
        let entries = self.exports.iter().filter(|(_, export)| export.signature.is_entry());
        entries.map(|(name, export)| (name.as_str(), export.writes))
    }
}
