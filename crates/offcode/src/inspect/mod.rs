//! Reads a module: whether it is valid and within limits, what it imports and exports, and how it
//! is to be placed in memory. Compiles and executes nothing.

mod bodies;
mod info;
mod reach;
mod resident;
#[cfg(test)]
mod tests;

use crate::abi::{DATA_START, ENV_MODULE, HOST_MODULE, SCRATCH_LEN};
use crate::error::LoadError;
use crate::hash::ModuleHash;
use crate::host;
use bodies::Bodies;
pub use info::{ExportedFunction, ModuleImport, ModuleInfo, ModuleShape, Signature};
pub(crate) use resident::{ResidentReading, read_resident};
use std::collections::BTreeMap;
use wasmparser::{
    CompositeInnerType, ConstExpr, DataKind, Dylink0Subsection, ElementItems, ElementKind,
    ExternalKind, KnownCustom, Operator, Parser, Payload, TypeRef, ValType, Validator,
    WasmFeatures,
};

/// What modules may use of WebAssembly. The engines are set to the same.
pub const FEATURES: WasmFeatures = WasmFeatures::WASM1
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::SIMD);

/// Limits of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleLimits {
    /// Bytes, with debug information.
    pub bytes: usize,
    /// Functions, imported ones too.
    pub functions: u64,
    /// Bytes of one function.
    pub body_bytes: u64,
    /// Locals of one function.
    pub locals: u64,
    /// Targets of one jump table.
    pub targets: u64,
    /// Of each of these: types, imports, exports, globals, segments.
    pub items: u64,
    /// Entries of the table.
    pub table: u64,
}

impl Default for ModuleLimits {
    fn default() -> Self {
        Self {
            bytes: 4 << 20,
            functions: 10_000,
            body_bytes: 256 << 10,
            locals: 2_000,
            targets: 10_000,
            items: 10_000,
            table: 10_000,
        }
    }
}

/// Reads a module. `other` says what another module exports under a name; `None` if there is no
/// such module.
///
/// # Errors
/// [`LoadError`].
pub fn inspect(
    bytes: &[u8],
    limits: &ModuleLimits,
    other: impl Fn(&ModuleHash, &str) -> Option<Option<ExportedFunction>>,
) -> Result<ModuleInfo, LoadError> {
    check_begin(bytes, limits)?;
    let mut reading = Reading::new(limits);
    for payload in Parser::new(0).parse_all(bytes) {
        reading.payload(payload.map_err(invalid)?)?;
    }
    Validator::new_with_features(FEATURES).validate_all(bytes).map_err(invalid)?;
    reading.finish(bytes, other)
}

/// Refuses what is too long, or no module at first sight.
fn check_begin(bytes: &[u8], limits: &ModuleLimits) -> Result<(), LoadError> {
    within("bytes", bytes.len() as u64, limits.bytes as u64)?;
    if !bytes.starts_with(MAGIC) {
        return Err(LoadError::Invalid("it does not begin as one, with \"\\0asm\"".into()));
    }
    Ok(())
}

/// What every module begins with.
const MAGIC: &[u8] = b"\0asm";

fn invalid(error: wasmparser::BinaryReaderError) -> LoadError {
    LoadError::Invalid(error.to_string())
}

fn within(what: &'static str, found: u64, limit: u64) -> Result<(), LoadError> {
    if found > limit { Err(LoadError::TooMuch { what, found, limit }) } else { Ok(()) }
}

fn shape(text: impl Into<String>) -> LoadError {
    LoadError::ModuleShape(text.into())
}

/// Where a data segment begins.
#[derive(Clone, Copy, Debug)]
enum DataStart {
    At(u32),
    MemoryBase,
}

/// What has been read of a module so far.
struct Reading<'a> {
    limits: &'a ModuleLimits,
    types: Vec<Option<Signature>>,
    /// The type of each function, imported ones first.
    functions: Vec<u32>,
    imports: Vec<ModuleImport>,
    /// What each imported function is.
    imported: Vec<ImportedFunction>,
    /// Mutable globals by index, imported ones too, and how many globals there are.
    globals: Vec<bool>,
    imported_globals: usize,
    memory_base: Option<u32>,
    has_memory: bool,
    has_table_base: bool,
    table_own: u64,
    memory_info: Option<wasmparser::MemInfo>,
    heap_base: Option<u32>,
    globals_init: Vec<Option<u32>>,
    exports: Vec<(String, ExternalKind, u32)>,
    data: Vec<(DataStart, u64)>,
    taken: Vec<u32>,
    elements_end: u64,
    bodies: Bodies,
}

/// An imported function.
#[derive(Clone, Debug)]
enum ImportedFunction {
    /// A host call that writes, or one that does not.
    Host { writes: bool },
    /// Another module's, by its place in the list.
    Module(usize),
}

impl<'a> Reading<'a> {
    fn new(limits: &'a ModuleLimits) -> Self {
        Self {
            limits,
            types: Vec::new(),
            functions: Vec::new(),
            imports: Vec::new(),
            imported: Vec::new(),
            globals: Vec::new(),
            imported_globals: 0,
            memory_base: None,
            has_memory: false,
            has_table_base: false,
            table_own: 0,
            memory_info: None,
            heap_base: None,
            globals_init: Vec::new(),
            exports: Vec::new(),
            data: Vec::new(),
            taken: Vec::new(),
            elements_end: 0,
            bodies: Bodies::default(),
        }
    }

    fn items(&self, what: &'static str, found: u32) -> Result<(), LoadError> {
        within(what, found.into(), self.limits.items)
    }

    fn payload(&mut self, payload: Payload<'_>) -> Result<(), LoadError> {
        match payload {
            Payload::TypeSection(types) => self.types(types)?,
            Payload::ImportSection(imports) => {
                self.items("imports", imports.count())?;
                for import in imports.into_imports() {
                    let import = import.map_err(invalid)?;
                    self.import(import.module, import.name, import.ty)?;
                }
            }
            Payload::FunctionSection(functions) => {
                let all = self.functions.len() as u64 + u64::from(functions.count());
                within("functions", all, self.limits.functions)?;
                for index in functions {
                    self.functions.push(index.map_err(invalid)?);
                }
            }
            Payload::TableSection(tables) => self.tables(tables)?,
            Payload::MemorySection(memories) if memories.count() > 0 => {
                return Err(shape(
                    "the module has a memory of its own: it must import env.memory (link it with \
                     --import-memory)",
                ));
            }
            Payload::GlobalSection(globals) => {
                self.items("globals", globals.count())?;
                for global in globals {
                    let global = global.map_err(invalid)?;
                    self.globals.push(global.ty.mutable);
                    self.globals_init.push(constant(&global.init_expr));
                }
            }
            Payload::ExportSection(exports) => {
                self.items("exports", exports.count())?;
                for export in exports {
                    let export = export.map_err(invalid)?;
                    self.exports.push((export.name.to_owned(), export.kind, export.index));
                }
            }
            Payload::ElementSection(elements) => self.elements(elements)?,
            Payload::DataSection(segments) => self.segments(segments)?,
            Payload::CodeSectionStart { count, .. } => {
                within("functions", count.into(), self.limits.functions)?;
            }
            Payload::CodeSectionEntry(body) => self.bodies.add(&body, self.limits)?,
            Payload::CustomSection(section) => self.custom(&section)?,
            _ => {}
        }
        Ok(())
    }

    fn types(&mut self, types: wasmparser::TypeSectionReader<'_>) -> Result<(), LoadError> {
        self.items("types", types.count())?;
        for group in types {
            for one in group.map_err(invalid)?.into_types() {
                self.types.push(match one.composite_type.inner {
                    CompositeInnerType::Func(of) => Some(Signature::from(&of)),
                    _ => None,
                });
            }
        }
        Ok(())
    }

    fn tables(&mut self, tables: wasmparser::TableSectionReader<'_>) -> Result<(), LoadError> {
        self.items("tables", tables.count())?;
        for table in tables {
            let initial = table.map_err(invalid)?.ty.initial;
            self.table_own = self.table_own.saturating_add(initial);
        }
        within("entries of tables", self.table_own, self.limits.table)
    }

    fn custom(&mut self, section: &wasmparser::CustomSectionReader<'_>) -> Result<(), LoadError> {
        let KnownCustom::Dylink0(sections) = section.as_known() else { return Ok(()) };
        for one in sections {
            if let Dylink0Subsection::MemInfo(info) = one.map_err(invalid)? {
                self.memory_info = Some(info);
            }
        }
        Ok(())
    }

    fn import(&mut self, module: &str, field: &str, of: TypeRef) -> Result<(), LoadError> {
        let wrong = || LoadError::Import { module: module.to_owned(), field: field.to_owned() };
        match (module, of) {
            (ENV_MODULE, of) => self.environment(field, of).ok_or_else(wrong),
            (HOST_MODULE, TypeRef::Func(index)) => {
                let found = self.signature_of_type(index)?;
                let expected = host::signature(field);
                if expected.as_ref() != Some(&found) {
                    let expected = expected.map_or_else(
                        || "there is no such call".into(),
                        |of| format!("it has the type {of}"),
                    );
                    let (field, found) = (field.to_owned(), found.to_string());
                    return Err(LoadError::HostCall { field, found, expected });
                }
                self.functions.push(index);
                self.imported.push(ImportedFunction::Host { writes: host::writes(field) });
                Ok(())
            }
            (_, TypeRef::Func(index)) => {
                let (name, hash) = module.split_once('#').ok_or_else(wrong)?;
                let hash = hash.parse().map_err(|_| wrong())?;
                let signature = self.signature_of_type(index)?;
                self.functions.push(index);
                self.imported.push(ImportedFunction::Module(self.imports.len()));
                let (name, field) = (name.to_owned(), field.to_owned());
                self.imports.push(ModuleImport { name, hash, field, signature });
                Ok(())
            }
            _ => Err(wrong()),
        }
    }

    /// What position-independent modules import, by the tools' conventions for dynamic linking.
    fn environment(&mut self, field: &str, of: TypeRef) -> Option<()> {
        match (field, of) {
            ("memory", TypeRef::Memory(memory)) => {
                let pages = u64::from(SCRATCH_LEN / crate::abi::PAGE);
                let fits = memory.initial <= pages && memory.maximum.is_none();
                (fits && !memory.shared).then(|| self.has_memory = true)
            }
            ("__indirect_function_table", TypeRef::Table(table)) => {
                let fits = table.initial <= self.limits.table && table.maximum.is_none();
                fits.then_some(())
            }
            ("__stack_pointer" | "__memory_base" | "__table_base", TypeRef::Global(global)) => {
                let is_right = global.content_type == ValType::I32
                    && global.mutable == (field == "__stack_pointer");
                let index = u32::try_from(self.globals.len()).ok()?;
                match field {
                    "__memory_base" => self.memory_base = Some(index),
                    "__table_base" => self.has_table_base = true,
                    _ => {}
                }
                self.globals.push(global.mutable);
                self.globals_init.push(None);
                self.imported_globals += 1;
                is_right.then_some(())
            }
            _ => None,
        }
    }

    fn elements(
        &mut self,
        elements: wasmparser::ElementSectionReader<'_>,
    ) -> Result<(), LoadError> {
        self.items("element segments", elements.count())?;
        for segment in elements {
            let segment = segment.map_err(invalid)?;
            let ElementItems::Functions(functions) = segment.items else {
                return Err(shape("the module has element segments of expressions"));
            };
            within("entries of tables", functions.count().into(), self.limits.table)?;
            let count = u64::from(functions.count());
            if let ElementKind::Active { offset_expr, .. } = &segment.kind
                && let Some(start) = constant(offset_expr)
            {
                self.elements_end = self.elements_end.max(u64::from(start) + count);
            }
            for function in functions {
                self.taken.push(function.map_err(invalid)?);
            }
        }
        Ok(())
    }

    fn segments(&mut self, segments: wasmparser::DataSectionReader<'_>) -> Result<(), LoadError> {
        self.items("data segments", segments.count())?;
        for segment in segments {
            let segment = segment.map_err(invalid)?;
            let DataKind::Active { offset_expr, .. } = segment.kind else { continue };
            let start = match (constant(&offset_expr), self.memory_base) {
                (Some(at), _) => DataStart::At(at),
                (None, Some(base)) if is_global(&offset_expr, base) => DataStart::MemoryBase,
                _ => {
                    return Err(shape(
                        "a data segment begins neither at a number nor at \
                                       __memory_base",
                    ));
                }
            };
            self.data.push((start, segment.data.len() as u64));
        }
        Ok(())
    }

    fn signature_of_type(&self, index: u32) -> Result<Signature, LoadError> {
        let found = self.types.get(index as usize).cloned().flatten();
        found.ok_or_else(|| LoadError::Invalid("a function without a type".into()))
    }

    fn finish(
        mut self,
        bytes: &[u8],
        other: impl Fn(&ModuleHash, &str) -> Option<Option<ExportedFunction>>,
    ) -> Result<ModuleInfo, LoadError> {
        if !self.has_memory {
            return Err(shape("the module does not import env.memory"));
        }
        let imported_writes = self.check_imports(other)?;
        let writes = reach::writers(&self.imported, &imported_writes, &self.bodies, &self.taken);
        let shape = self.shape()?;
        let mutable_globals = self.mutable_globals()?;
        let mut exports = BTreeMap::new();
        for (name, kind, index) in std::mem::take(&mut self.exports) {
            if kind != ExternalKind::Func {
                continue;
            }
            let of = self.functions.get(index as usize).copied();
            let signature = self.signature_of_type(of.unwrap_or(u32::MAX))?;
            let writes = writes.get(index as usize).copied().unwrap_or(true);
            exports.insert(name, ExportedFunction { signature, writes });
        }
        Ok(ModuleInfo {
            hash: ModuleHash::of(bytes),
            len: bytes.len(),
            shape,
            imports: self.imports,
            exports,
            mutable_globals,
            has_bulk_memory: self.bodies.has_bulk_memory,
        })
    }

    /// Whether each function of other modules writes.
    fn check_imports(
        &self,
        other: impl Fn(&ModuleHash, &str) -> Option<Option<ExportedFunction>>,
    ) -> Result<Vec<bool>, LoadError> {
        let check = |import: &ModuleImport| {
            let (name, hash) = (import.name.clone(), import.hash);
            let found = other(&hash, &import.field).ok_or(LoadError::Missing { name, hash })?;
            match found {
                Some(export) if export.signature == import.signature => Ok(export.writes),
                found => Err(LoadError::Function {
                    name: import.name.clone(),
                    field: import.field.clone(),
                    expected: import.signature.to_string(),
                    found: found.map_or_else(
                        || "no such function".into(),
                        |export| format!("{}{}", import.field, export.signature),
                    ),
                }),
            }
        };
        self.imports.iter().map(check).collect()
    }

    fn shape(&mut self) -> Result<ModuleShape, LoadError> {
        for (name, kind, index) in &self.exports {
            if (name.as_str(), *kind) == ("__heap_base", ExternalKind::Global) {
                self.heap_base = self.globals_init.get(*index as usize).copied().flatten();
            }
        }
        match (self.memory_info, self.memory_base) {
            (Some(info), Some(_)) => self.position_independent(info),
            (None, None) => self.fixed(),
            _ => Err(shape(
                "the module imports __memory_base and has no section dylink.0, or the reverse: \
                 link it with wasm-ld -shared",
            )),
        }
    }

    fn position_independent(&self, info: wasmparser::MemInfo) -> Result<ModuleShape, LoadError> {
        within("bytes of data", info.memory_size.into(), (SCRATCH_LEN / 2).into())?;
        within("entries of tables", info.table_size.into(), self.limits.table)?;
        within("bits of alignment", info.memory_alignment.into(), 16)?;
        if self.table_own > 0 {
            return Err(shape("a module with section dylink.0 has a table of its own"));
        }
        let fits = |(start, len): &(DataStart, u64)| {
            matches!(start, DataStart::MemoryBase) && *len <= u64::from(info.memory_size)
        };
        if !self.data.iter().all(fits) {
            return Err(shape("a data segment lies outside what section dylink.0 asks for"));
        }
        let (memory, table) = (info.memory_size, info.table_size);
        Ok(ModuleShape::PositionIndependent {
            memory,
            alignment: 1 << info.memory_alignment,
            table,
        })
    }

    fn fixed(&self) -> Result<ModuleShape, LoadError> {
        let mut data_end = u64::from(self.heap_base.unwrap_or(DATA_START));
        for (start, len) in &self.data {
            let DataStart::At(start) = start else {
                return Err(shape("a data segment begins at __memory_base, which is not there"));
            };
            if *start < DATA_START {
                return Err(shape(format!(
                    "data at address {start:#x}: static modules begin at {DATA_START:#x} (link \
                     with --global-base={DATA_START})"
                )));
            }
            data_end = data_end.max(u64::from(*start) + len);
        }
        within("bytes up to the end of its data", data_end, (SCRATCH_LEN / 2).into())?;
        within("entries of tables", self.elements_end, self.limits.table)?;
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let table = narrow(self.elements_end);
        Ok(ModuleShape::Static { data_end: narrow(data_end.max(DATA_START.into())), table })
    }

    fn mutable_globals(&self) -> Result<Vec<String>, LoadError> {
        let mut names = Vec::new();
        for (index, _) in self
            .globals
            .iter()
            .enumerate()
            .skip(self.imported_globals)
            .filter(|(_, mutable)| **mutable)
        {
            let exported = self
                .exports
                .iter()
                .find(|(_, kind, at)| *kind == ExternalKind::Global && *at as usize == index);
            let (name, ..) = exported.ok_or_else(|| {
                shape(format!(
                    "mutable global {index} is not exported, so that it cannot be restored \
                     between calls (link with --export=__stack_pointer)"
                ))
            })?;
            names.push(name.clone());
        }
        Ok(names)
    }
}

/// The number of an expression that is just a constant.
fn constant(expression: &ConstExpr<'_>) -> Option<u32> {
    let mut operators = expression.get_operators_reader();
    let first = operators.read().ok()?;
    let last = operators.read().ok()?;
    match (first, last) {
        (Operator::I32Const { value }, Operator::End) => Some(value.cast_unsigned()),
        _ => None,
    }
}

fn is_global(expression: &ConstExpr<'_>, index: u32) -> bool {
    let mut operators = expression.get_operators_reader();
    let first = operators.read();
    let last = operators.read();
    matches!(
        (first, last),
        (Ok(Operator::GlobalGet { global_index }), Ok(Operator::End)) if global_index == index
    )
}
