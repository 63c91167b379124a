//! Links an offcode's module with libraries into one module, on whichever machine: the one that
//! sends the code, or the one that compiles it. Executes nothing.
//!
//! A library is a module that shares the main module's memory (`env.memory`). What it exports,
//! others import under the library's name. If it has data or a part of the table, it is
//! position-independent (clang with -fPIC -fvisibility=hidden, wasm-ld with -shared), as for active
//! code: its data come behind the main module's initial memory, which grows by as much, so that an
//! allocator of the main module must begin below the initial size that it was linked with
//! (`__heap_end`) or with what `memory.grow` gives.

mod part;
mod reencode;
#[cfg(test)]
mod tests;

use super::abi;
use super::module::PAGE;
use crate::error::LoadError;
use crate::inspect::{ModuleLimits, Signature};
use part::{Imported, ImportedGlobal, MergePart};
use reencode::Renumbering;
use wasm_encoder::reencode::Reencode;
use wasm_encoder::{
    CodeSection, DataCountSection, DataSection, ElementSection, EntityType, ExportSection,
    Function, FunctionSection, GlobalSection, ImportSection, Instruction, MemorySection, Module,
    NameMap, NameSection, RefType, StartSection, TableSection, TableType, TypeSection,
};

/// Libraries of one module, at most.
const LIBRARIES_MAX: usize = 64;
/// To what a library's data are aligned at least, in bytes.
const ALIGNMENT: u32 = 16;

/// A module that others import from.
#[derive(Clone, Copy, Debug)]
pub struct OffcodeLibrary<'a> {
    /// The name by which it is imported.
    pub name: &'a str,
    /// The module.
    pub bytes: &'a [u8],
}

/// Why modules are not linked: always their authors' fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// One of them is no module, or too large.
    #[error("{name}: {error}")]
    Load {
        /// Which one.
        name: String,
        /// What is wrong.
        error: LoadError,
    },
    /// One of them has a shape that cannot be linked.
    #[error("{name}: {what}")]
    Shape {
        /// Which one.
        name: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// It imports what no library exports.
    #[error("{name} imports {module}.{field}, which {found}")]
    Missing {
        /// Which one.
        name: String,
        /// The library's name.
        module: String,
        /// The function.
        field: String,
        /// What there is.
        found: String,
    },
}

/// Links a main module with its libraries; `main`'s exports are the result's.
///
/// # Errors
/// [`MergeError`].
pub fn merge(
    main: &[u8],
    libraries: &[OffcodeLibrary<'_>],
    limits: &ModuleLimits,
) -> Result<Vec<u8>, MergeError> {
    if libraries.len() > LIBRARIES_MAX {
        let what = format!("{} libraries, {LIBRARIES_MAX} at most", libraries.len());
        return Err(MergeError::Shape { name: abi::MAIN.into(), what });
    }
    let mut parts = vec![MergePart::read(abi::MAIN, main, limits)?];
    for (index, library) in libraries.iter().enumerate() {
        let name = library.name;
        let is_taken = libraries[..index].iter().any(|other| other.name == name);
        if is_taken || [abi::MAIN, abi::MODULE, part::ENVIRONMENT].contains(&name) {
            let what = "another module has this name".into();
            return Err(MergeError::Shape { name: name.into(), what });
        }
        parts.push(MergePart::read(name, library.bytes, limits)?);
    }
    let places = Places::of(&parts)?;
    let renumberings = renumber(&parts, &places)?;
    let malformed = |error: reencode::ReencodeError| MergeError::Load {
        name: abi::MAIN.into(),
        error: LoadError::Invalid(error.to_string()),
    };
    write(&parts, &places, renumberings).map_err(malformed)
}

/// Where the parts of libraries are.
struct Places {
    /// Of each part, where its data and its part of the table begin.
    bases: Vec<(u32, u32)>,
    /// Pages and table entries that come to the main module's own.
    more_pages: u64,
    more_entries: u64,
    /// Functions that are imported still.
    imports: u32,
}

impl Places {
    fn of(parts: &[MergePart<'_>]) -> Result<Self, MergeError> {
        let main = &parts[0];
        let too_large = || main.shape("its memory and its libraries' data are more than 4 GiB");
        let begin = main.memory.map_or(0, |memory| memory.initial).saturating_mul(PAGE);
        let mut data = u32::try_from(begin).map_err(|_| too_large())?;
        let table_begin = main.table.map_or(0, |table| table.initial);
        let mut table = u32::try_from(table_begin).map_err(|_| too_large())?;
        let mut bases = Vec::new();
        for part in parts {
            let aligned = data.checked_next_multiple_of(part.alignment.max(ALIGNMENT));
            data = aligned.ok_or_else(too_large)?;
            bases.push((data, table));
            data = data.checked_add(part.data_len).ok_or_else(too_large)?;
            table = table.checked_add(part.table_len).ok_or_else(too_large)?;
        }
        let more_pages = (u64::from(data) - begin).div_ceil(PAGE);
        let imports = parts.iter().flat_map(|part| &part.imported);
        let imports = imports.filter(|import| import.module == abi::MODULE).count();
        Ok(Self {
            bases,
            more_pages,
            more_entries: u64::from(table) - table_begin,
            imports: u32::try_from(imports).unwrap_or(u32::MAX),
        })
    }
}

/// The new numbers of everything.
fn renumber(parts: &[MergePart<'_>], places: &Places) -> Result<Vec<Renumbering>, MergeError> {
    let mut all = Vec::new();
    let (mut types, mut globals, mut elements, mut data) = (0, 0, 0, 0);
    let (mut imports, mut functions) = (0, places.imports);
    for (part, (memory_base, table_base)) in parts.iter().zip(&places.bases) {
        let mut numbers = Renumbering { types, elements, data, ..Renumbering::default() };
        for import in &part.imported {
            let is_kept = import.module == abi::MODULE;
            numbers.functions.push(is_kept.then_some(imports));
            imports += u32::from(is_kept);
        }
        for _ in 0..part.bodies.len() {
            numbers.functions.push(Some(functions));
            functions += 1;
        }
        for global in &part.imported_globals {
            if *global == ImportedGlobal::StackPointer && parts[0].stack_pointer.is_none() {
                return Err(parts[0].shape(
                    "a library uses its stack: export it (link with --export=__stack_pointer)",
                ));
            }
            numbers.constants.push(match global {
                ImportedGlobal::MemoryBase => Some(*memory_base),
                ImportedGlobal::TableBase => Some(*table_base),
                ImportedGlobal::StackPointer => None,
            });
            numbers.globals.push(parts[0].stack_pointer);
        }
        for _ in 0..part.own_globals {
            numbers.globals.push(Some(globals));
            globals += 1;
        }
        types += narrow(part.types.len());
        elements += part.elements.as_ref().map_or(0, |section| section.count());
        data += part.data.as_ref().map_or(0, |section| section.count());
        all.push(numbers);
    }
    resolve(parts, &mut all)?;
    Ok(all)
}

/// Imports of libraries' functions become these functions.
fn resolve(parts: &[MergePart<'_>], all: &mut [Renumbering]) -> Result<(), MergeError> {
    for (at, part) in parts.iter().enumerate() {
        for (index, import) in part.imported.iter().enumerate() {
            if import.module != abi::MODULE {
                all[at].functions[index] = Some(find(parts, all, part, import)?);
            }
        }
    }
    Ok(())
}

fn find(
    parts: &[MergePart<'_>],
    all: &[Renumbering],
    importer: &MergePart<'_>,
    import: &Imported,
) -> Result<u32, MergeError> {
    let missing = |found: String| MergeError::Missing {
        name: importer.name.clone(),
        module: import.module.clone(),
        field: import.field.clone(),
        found,
    };
    let library = parts.iter().zip(all).skip(1).find(|(part, _)| part.name == import.module);
    let Some((library, numbers)) = library else {
        return Err(missing("is neither the device's nor a library's that is given".into()));
    };
    let Some(index) = library.exported.get(&import.field) else {
        return Err(missing("it does not export as a function".into()));
    };
    let (expected, found) = (importer.signature(import.of), library.signature_of(*index));
    if expected != found {
        let text = |of: Option<&Signature>| of.map(ToString::to_string).unwrap_or_default();
        return Err(missing(format!("has type {}, not {}", text(found), text(expected))));
    }
    // What it only hands on has its number elsewhere.
    let handed_on = library.imported.get(*index as usize);
    let is_own = handed_on.is_none_or(|import| import.module == abi::MODULE);
    let number = numbers.functions.get(*index as usize).copied().flatten();
    let number = number.filter(|_| is_own);
    number.ok_or_else(|| missing("is another library's: import it from that one".into()))
}

/// Modules' limits are far below.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

type Written<T> = Result<T, reencode::ReencodeError>;

/// Writes the module: all sections in their order.
fn write(
    parts: &[MergePart<'_>],
    places: &Places,
    mut numbers: Vec<Renumbering>,
) -> Written<Vec<u8>> {
    let mut module = Module::new();
    let begin = beginning(parts, &numbers);
    types_and_imports(&mut module, parts, &mut numbers)?;
    let mut functions = FunctionSection::new();
    for (part, numbers) in parts.iter().zip(&mut numbers) {
        if let Some(section) = part.functions.clone() {
            numbers.parse_function_section(&mut functions, section)?;
        }
    }
    let types = parts.iter().map(|part| narrow(part.types.len())).sum();
    if !begin.is_empty() {
        functions.function(types);
    }
    module.section(&functions);
    memory_and_table(&mut module, parts, places);
    let mut globals = GlobalSection::new();
    for (part, numbers) in parts.iter().zip(&mut numbers) {
        if let Some(section) = part.globals.clone() {
            numbers.parse_global_section(&mut globals, section)?;
        }
    }
    module.section(&globals);
    let mut exports = ExportSection::new();
    if let Some(section) = parts[0].exports.clone() {
        numbers[0].parse_export_section(&mut exports, section)?;
    }
    module.section(&exports);
    if !begin.is_empty() {
        let bodies: usize = parts.iter().map(|part| part.bodies.len()).sum();
        let function_index = places.imports + narrow(bodies);
        module.section(&StartSection { function_index });
    }
    contents(&mut module, parts, &mut numbers, &begin)?;
    module.section(&names(parts, &numbers));
    Ok(module.finish())
}

/// What runs first: what libraries ask for, and the main module's start function at last.
fn beginning(parts: &[MergePart<'_>], numbers: &[Renumbering]) -> Vec<u32> {
    let mut all = Vec::new();
    for (part, numbers) in parts.iter().zip(numbers).skip(1) {
        let named = ["__wasm_apply_data_relocs", "__wasm_call_ctors"].into_iter();
        let exported = named.filter_map(|name| part.exported.get(name).copied());
        let functions = part.start.into_iter().chain(exported);
        all.extend(functions.filter_map(|index| numbers.functions.get(index as usize).copied()?));
    }
    let start =
        parts[0].start.and_then(|index| numbers[0].functions.get(index as usize).copied()?);
    all.extend(start);
    all
}

fn types_and_imports(
    module: &mut Module,
    parts: &[MergePart<'_>],
    numbers: &mut [Renumbering],
) -> Written<()> {
    let (mut types, mut imports) = (TypeSection::new(), ImportSection::new());
    for (part, numbers) in parts.iter().zip(numbers) {
        if let Some(section) = part.type_section.clone() {
            numbers.parse_type_section(&mut types, section)?;
        }
        for import in part.imported.iter().filter(|import| import.module == abi::MODULE) {
            let of = EntityType::Function(numbers.type_index(import.of)?);
            imports.import(&import.module, &import.field, of);
        }
    }
    // Of the function that runs first.
    types.ty().function([], []);
    module.section(&types);
    module.section(&imports);
    Ok(())
}

fn memory_and_table(module: &mut Module, parts: &[MergePart<'_>], places: &Places) {
    let main = &parts[0];
    let own = main.table;
    if own.is_some() || parts.iter().any(|part| part.imports_table) {
        let mut tables = TableSection::new();
        tables.table(TableType {
            element_type: RefType::FUNCREF,
            table64: false,
            minimum: own.map_or(0, |table| table.initial) + places.more_entries,
            maximum: own.and_then(|table| table.maximum).map(|max| max + places.more_entries),
            shared: false,
        });
        module.section(&tables);
    }
    let mut memories = MemorySection::new();
    if let Some(memory) = main.memory {
        memories.memory(wasm_encoder::MemoryType {
            minimum: memory.initial + places.more_pages,
            maximum: memory.maximum.map(|max| (max + places.more_pages).min(1 << 16)),
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
    }
    module.section(&memories);
}

/// Segments and code.
fn contents(
    module: &mut Module,
    parts: &[MergePart<'_>],
    numbers: &mut [Renumbering],
    begin: &[u32],
) -> Written<()> {
    let (mut elements, mut data) = (ElementSection::new(), DataSection::new());
    let mut code = CodeSection::new();
    for (part, numbers) in parts.iter().zip(numbers) {
        if let Some(section) = part.elements.clone() {
            numbers.parse_element_section(&mut elements, section)?;
        }
        for body in &part.bodies {
            numbers.parse_function_body(&mut code, body.clone())?;
        }
        if let Some(section) = part.data.clone() {
            numbers.parse_data_section(&mut data, section)?;
        }
    }
    if !begin.is_empty() {
        let mut first = Function::new([]);
        for index in begin {
            first.instruction(&Instruction::Call(*index));
        }
        first.instruction(&Instruction::End);
        code.function(&first);
    }
    module.section(&elements);
    module.section(&DataCountSection { count: data.len() });
    module.section(&code);
    module.section(&data);
    Ok(())
}

/// Names of functions, for the texts of traps.
fn names(parts: &[MergePart<'_>], numbers: &[Renumbering]) -> NameSection {
    let mut named: Vec<(u32, String)> = Vec::new();
    for (part, numbers) in parts.iter().zip(numbers) {
        for (index, name) in &part.names {
            let is_own = *index as usize >= part.imported.len();
            let number = numbers.functions.get(*index as usize).copied().flatten();
            if let Some(number) = number.filter(|_| is_own) {
                let is_main = part.name == abi::MAIN;
                let name = if is_main { name.clone() } else { format!("{}.{name}", part.name) };
                named.push((number, name));
            }
        }
    }
    named.sort_unstable_by_key(|(number, _)| *number);
    named.dedup_by_key(|(number, _)| *number);
    let mut functions = NameMap::new();
    for (number, name) in &named {
        functions.append(*number, name);
    }
    let mut section = NameSection::new();
    section.functions(&functions);
    section
}
