//! Reads a module of a resident: within the limits that all modules have, with a memory of its own
//! and imports of one module's functions only. What these are called is its caller's matter.

use super::{
    DataStart, ExternalKind, FEATURES, ImportedFunction, LoadError, ModuleLimits, Parser, Payload,
    Reading, Signature, TypeRef, Validator, check_begin, invalid, shape,
};
use std::collections::BTreeMap;

/// An import that is a function: its module, its name, its type.
#[derive(Clone, Debug)]
pub(crate) struct FunctionImport {
    pub(crate) module: String,
    pub(crate) field: String,
    pub(crate) signature: Signature,
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResidentReading {
    pub(crate) imports: Vec<FunctionImport>,
    /// Names and types of the exported functions.
    pub(crate) functions: BTreeMap<String, Signature>,
    /// All exports' names.
    pub(crate) names: Vec<String>,
    /// Initial pages of its memory.
    pub(crate) memory_pages: u64,
    pub(crate) exports_memory: bool,
    /// The indices of its mutable globals.
    pub(crate) mutable_globals: Vec<u32>,
    pub(crate) start: Option<u32>,
    /// Where its data end.
    pub(crate) data_end: u64,
    /// It changes tables or drops segments while it runs.
    pub(crate) changes_tables: bool,
}

/// See this file's first lines.
///
/// # Errors
/// [`LoadError`].
pub(crate) fn read_resident(
    bytes: &[u8],
    limits: &ModuleLimits,
) -> Result<ResidentReading, LoadError> {
    check_begin(bytes, limits)?;
    let mut reading = Reading::new(limits);
    let mut resident = ResidentReading::default();
    let mut memories = 0;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(invalid)? {
            Payload::ImportSection(imports) => {
                reading.items("imports", imports.count())?;
                for import in imports.into_imports() {
                    let import = import.map_err(invalid)?;
                    resident.import(&mut reading, (import.module, import.name), import.ty)?;
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    memories += 1;
                    resident.memory_pages = memory.map_err(invalid)?.initial;
                }
            }
            Payload::StartSection { func, .. } => resident.start = Some(func),
            other => reading.payload(other)?,
        }
    }
    Validator::new_with_features(FEATURES).validate_all(bytes).map_err(invalid)?;
    if memories != 1 {
        return Err(shape(
            "the module has no memory of its own: define one and export it as `memory` (link it \
             without --import-memory)",
        ));
    }
    resident.finish(reading)
}

impl ResidentReading {
    fn import(
        &mut self,
        reading: &mut Reading<'_>,
        (module, field): (&str, &str),
        of: TypeRef,
    ) -> Result<(), LoadError> {
        let TypeRef::Func(index) = of else {
            return Err(shape(format!(
                "the module imports {module}.{field}, which is no function: an offcode's memory, \
                 table and globals are its own (link it without --import-memory and \
                 --import-table)"
            )));
        };
        let signature = reading.signature_of_type(index)?;
        reading.functions.push(index);
        reading.imported.push(ImportedFunction::Host { writes: false });
        let (module, field) = (module.to_owned(), field.to_owned());
        self.imports.push(FunctionImport { module, field, signature });
        Ok(())
    }

    fn finish(mut self, reading: Reading<'_>) -> Result<Self, LoadError> {
        for (name, kind, index) in &reading.exports {
            self.names.push(name.clone());
            match kind {
                ExternalKind::Func => {
                    let of = reading.functions.get(*index as usize).copied();
                    let signature = reading.signature_of_type(of.unwrap_or(u32::MAX))?;
                    self.functions.insert(name.clone(), signature);
                }
                ExternalKind::Memory => self.exports_memory |= name == "memory",
                _ => {}
            }
        }
        for (start, len) in &reading.data {
            if let DataStart::At(start) = start {
                self.data_end = self.data_end.max(u64::from(*start) + len);
            }
        }
        let globals = reading.globals.iter().zip(0..);
        self.mutable_globals = globals.filter(|(is, _)| **is).map(|(_, index)| index).collect();
        self.changes_tables = reading.bodies.changes_tables;
        Ok(self)
    }
}
