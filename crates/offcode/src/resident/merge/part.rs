//! One of the modules that are linked, as it was read. Only valid ones are.

use super::MergeError;
use crate::error::LoadError;
use crate::inspect::{FEATURES, ModuleLimits, Signature};
use crate::resident::abi;
use std::collections::BTreeMap;
use wasmparser::{
    CompositeInnerType, DataKind, DataSectionReader, Dylink0Subsection, ElementKind,
    ElementSectionReader, ExportSectionReader, ExternalKind, FunctionBody, FunctionSectionReader,
    GlobalSectionReader, KnownCustom, MemoryType, Name, Operator, Parser, Payload, TableType,
    TypeRef, TypeSectionReader, ValType, Validator,
};

/// The module name of what a library shares with the main module.
pub(super) const ENVIRONMENT: &str = "env";
/// Bits of a library's alignment, at most.
const ALIGNMENT_BITS_MAX: u32 = 16;

/// A function that is imported.
#[derive(Debug)]
pub(super) struct Imported {
    pub(super) module: String,
    pub(super) field: String,
    /// The number of its type.
    pub(super) of: u32,
}

/// A global that a library imports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImportedGlobal {
    StackPointer,
    MemoryBase,
    TableBase,
}

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct MergePart<'a> {
    pub(super) name: String,
    pub(super) types: Vec<Signature>,
    pub(super) type_section: Option<TypeSectionReader<'a>>,
    pub(super) imported: Vec<Imported>,
    pub(super) imported_globals: Vec<ImportedGlobal>,
    pub(super) imports_table: bool,
    /// The types of its own functions.
    own_types: Vec<u32>,
    pub(super) functions: Option<FunctionSectionReader<'a>>,
    pub(super) table: Option<TableType>,
    pub(super) memory: Option<MemoryType>,
    pub(super) own_globals: u32,
    pub(super) globals: Option<GlobalSectionReader<'a>>,
    pub(super) exports: Option<ExportSectionReader<'a>>,
    /// Its exported functions.
    pub(super) exported: BTreeMap<String, u32>,
    /// Of the main module: the global that it exports as its stack pointer.
    pub(super) stack_pointer: Option<u32>,
    pub(super) start: Option<u32>,
    pub(super) elements: Option<ElementSectionReader<'a>>,
    pub(super) bodies: Vec<FunctionBody<'a>>,
    pub(super) data: Option<DataSectionReader<'a>>,
    /// Names of functions.
    pub(super) names: Vec<(u32, String)>,
    /// Bytes of a library's data, to what they are aligned, and its part of the table.
    pub(super) data_len: u32,
    pub(super) alignment: u32,
    pub(super) table_len: u32,
}

fn invalid(error: wasmparser::BinaryReaderError) -> LoadError {
    LoadError::Invalid(error.to_string())
}

impl<'a> MergePart<'a> {
    pub(super) fn read(
        name: &str,
        bytes: &'a [u8],
        limits: &ModuleLimits,
    ) -> Result<Self, MergeError> {
        let mut part = MergePart { name: name.to_owned(), ..MergePart::default() };
        part.read_sections(bytes, limits).map_err(|error| match error {
            LoadError::ModuleShape(what) => part.shape(what),
            error => MergeError::Load { name: name.to_owned(), error },
        })?;
        part.check()?;
        Ok(part)
    }

    pub(super) fn shape(&self, what: impl Into<String>) -> MergeError {
        MergeError::Shape { name: self.name.clone(), what: what.into() }
    }

    pub(super) fn signature(&self, of: u32) -> Option<&Signature> {
        self.types.get(of as usize)
    }

    /// Of a function by its number.
    pub(super) fn signature_of(&self, function: u32) -> Option<&Signature> {
        let index = function as usize;
        let of = match self.imported.get(index) {
            Some(import) => import.of,
            None => *self.own_types.get(index - self.imported.len())?,
        };
        self.signature(of)
    }

    fn is_main(&self) -> bool {
        self.name == abi::MAIN
    }

    fn read_sections(&mut self, bytes: &'a [u8], limits: &ModuleLimits) -> Result<(), LoadError> {
        if bytes.len() > limits.bytes {
            let (found, limit) = (bytes.len() as u64, limits.bytes as u64);
            return Err(LoadError::TooMuch { what: "bytes", found, limit });
        }
        Validator::new_with_features(FEATURES).validate_all(bytes).map_err(invalid)?;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.map_err(invalid)? {
                Payload::TypeSection(section) => self.read_types(section)?,
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import.map_err(invalid)?;
                        self.import((import.module, import.name), import.ty)?;
                    }
                }
                Payload::FunctionSection(section) => {
                    let types = section.clone().into_iter().collect::<Result<_, _>>();
                    self.own_types = types.map_err(invalid)?;
                    self.functions = Some(section);
                }
                Payload::TableSection(section) => {
                    for table in section {
                        self.table = Some(table.map_err(invalid)?.ty);
                    }
                }
                Payload::MemorySection(section) => {
                    for memory in section {
                        self.memory = Some(memory.map_err(invalid)?);
                    }
                }
                Payload::GlobalSection(section) => {
                    self.own_globals = section.count();
                    self.globals = Some(section);
                }
                Payload::ExportSection(section) => self.read_exports(section)?,
                Payload::StartSection { func, .. } => self.start = Some(func),
                Payload::ElementSection(section) => self.elements = Some(section),
                Payload::CodeSectionEntry(body) => self.bodies.push(body),
                Payload::DataSection(section) => self.data = Some(section),
                Payload::CustomSection(section) => self.custom(section.as_known())?,
                _ => {}
            }
        }
        Ok(())
    }

    fn read_types(&mut self, section: TypeSectionReader<'a>) -> Result<(), LoadError> {
        for group in section.clone() {
            for one in group.map_err(invalid)?.into_types() {
                let CompositeInnerType::Func(of) = one.composite_type.inner else {
                    return Err(LoadError::Invalid("a type that is no function's".into()));
                };
                self.types.push(Signature::from(&of));
            }
        }
        self.type_section = Some(section);
        Ok(())
    }

    fn import(&mut self, (module, field): (&str, &str), of: TypeRef) -> Result<(), LoadError> {
        let is_library = !self.is_main() && module == ENVIRONMENT;
        match (of, field) {
            (TypeRef::Func(of), _) => {
                let (module, field) = (module.to_owned(), field.to_owned());
                self.imported.push(Imported { module, field, of });
            }
            (TypeRef::Memory(_), "memory") if is_library => {}
            (TypeRef::Table(_), "__indirect_function_table") if is_library => {
                self.imports_table = true;
            }
            (TypeRef::Global(of), _) if is_library && of.content_type == ValType::I32 => {
                let global = match (field, of.mutable) {
                    ("__stack_pointer", true) => ImportedGlobal::StackPointer,
                    ("__memory_base", false) => ImportedGlobal::MemoryBase,
                    ("__table_base", false) => ImportedGlobal::TableBase,
                    _ => return Err(unlinkable(module, field)),
                };
                self.imported_globals.push(global);
            }
            _ => return Err(unlinkable(module, field)),
        }
        Ok(())
    }

    fn read_exports(&mut self, section: ExportSectionReader<'a>) -> Result<(), LoadError> {
        for export in section.clone() {
            let export = export.map_err(invalid)?;
            match (export.kind, export.name) {
                (ExternalKind::Func, name) => {
                    self.exported.insert(name.to_owned(), export.index);
                }
                (ExternalKind::Global, "__stack_pointer") => {
                    self.stack_pointer = Some(export.index);
                }
                _ => {}
            }
        }
        self.exports = Some(section);
        Ok(())
    }

    fn custom(&mut self, known: KnownCustom<'_>) -> Result<(), LoadError> {
        match known {
            KnownCustom::Name(sections) => {
                // Names are for people: what cannot be read is left out.
                for one in sections.into_iter().flatten() {
                    let Name::Function(names) = one else { continue };
                    let names = names.into_iter().flatten();
                    self.names.extend(names.map(|naming| (naming.index, naming.name.to_owned())));
                }
            }
            KnownCustom::Dylink0(sections) if !self.is_main() => {
                for one in sections {
                    let Dylink0Subsection::MemInfo(info) = one.map_err(invalid)? else { continue };
                    if info.memory_alignment > ALIGNMENT_BITS_MAX {
                        return Err(LoadError::ModuleShape("its data are aligned too much".into()));
                    }
                    self.data_len = info.memory_size;
                    self.table_len = info.table_size;
                    self.alignment = 1 << info.memory_alignment;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check(&self) -> Result<(), MergeError> {
        if self.is_main() {
            return match self.memory {
                Some(_) => Ok(()),
                None => Err(self.shape("it has no memory: define one and export it as `memory`")),
            };
        }
        if self.memory.is_some() || self.table.is_some() {
            return Err(self.shape(
                "it has a memory or a table of its own: a library shares the main module's (build \
                 it with -fPIC and wasm-ld -shared)",
            ));
        }
        if !self
            .are_segments_movable()
            .map_err(|error| MergeError::Load { name: self.name.clone(), error: invalid(error) })?
        {
            return Err(self.shape(
                "it has data or table entries at fixed places: build it with -fPIC and wasm-ld \
                 -shared",
            ));
        }
        Ok(())
    }

    fn are_segments_movable(&self) -> Result<bool, wasmparser::BinaryReaderError> {
        let is_moved = |expression: &wasmparser::ConstExpr<'_>| {
            let first = expression.get_operators_reader().read();
            matches!(first, Ok(Operator::GlobalGet { .. }))
        };
        for segment in self.data.clone().into_iter().flatten() {
            if let DataKind::Active { offset_expr, .. } = segment?.kind
                && !is_moved(&offset_expr)
            {
                return Ok(false);
            }
        }
        for segment in self.elements.clone().into_iter().flatten() {
            if let ElementKind::Active { offset_expr, .. } = segment?.kind
                && !is_moved(&offset_expr)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn unlinkable(module: &str, field: &str) -> LoadError {
    LoadError::ModuleShape(format!(
        "it imports {module}.{field}, which cannot be linked: functions of `{}` and of libraries \
         can, and a library's env.memory and its kind (build libraries with -fvisibility=hidden)",
        abi::MODULE
    ))
}
