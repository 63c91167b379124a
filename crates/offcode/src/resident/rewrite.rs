//! What is compiled in place of a module: the same, but that it exports its mutable globals, which
//! are part of a resident's state, and its start function, which a resident that goes on elsewhere
//! must not run again. Reads only modules that were checked before.

use super::abi;
use super::module::unreadable;
use crate::error::LoadError;
use crate::inspect::ResidentReading;
use std::ops::Range;
use wasm_encoder::{ExportKind, ExportSection, Module, RawSection};
use wasmparser::{ExportSectionReader, ExternalKind, Parser, Payload};

/// Numbers of sections.
const EXPORTS: u8 = 7;
const START: u8 = 8;

/// See this file's first lines.
///
/// # Errors
/// [`LoadError::Invalid`].
pub(super) fn rewrite(bytes: &[u8], reading: &ResidentReading) -> Result<Vec<u8>, LoadError> {
    let mut module = Module::new();
    let mut exports = ExportSection::new();
    let mut are_written = false;
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| unreadable(&error))?;
        if let Payload::ExportSection(section) = &payload {
            copy_exports(&mut exports, section)?;
        }
        let Some((id, range)) = payload.as_section() else { continue };
        if id >= EXPORTS && !are_written {
            add_exports(&mut exports, reading);
            module.section(&exports);
            are_written = true;
        }
        if id != EXPORTS && id != START {
            module.section(&RawSection { id, data: section(bytes, range)? });
        }
    }
    if !are_written {
        add_exports(&mut exports, reading);
        module.section(&exports);
    }
    Ok(module.finish())
}

fn section(bytes: &[u8], range: Range<usize>) -> Result<&[u8], LoadError> {
    let found = bytes.get(range);
    found.ok_or_else(|| LoadError::Invalid("a section beyond the module's end".into()))
}

fn copy_exports(
    exports: &mut ExportSection,
    section: &ExportSectionReader<'_>,
) -> Result<(), LoadError> {
    for export in section.clone() {
        let export = export.map_err(|error| unreadable(&error))?;
        let kind = match export.kind {
            ExternalKind::Func => ExportKind::Func,
            ExternalKind::Table => ExportKind::Table,
            ExternalKind::Memory => ExportKind::Memory,
            ExternalKind::Global => ExportKind::Global,
            other => return Err(LoadError::Invalid(format!("an export of kind {other:?}"))),
        };
        exports.export(export.name, kind, export.index);
    }
    Ok(())
}

fn add_exports(exports: &mut ExportSection, reading: &ResidentReading) {
    for index in &reading.mutable_globals {
        exports.export(&abi::global(*index), ExportKind::Global, *index);
    }
    if let Some(start) = reading.start {
        exports.export(abi::START, ExportKind::Func, start);
    }
}
