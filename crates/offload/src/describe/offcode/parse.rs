//! Reads `offcode.toml`.

use super::super::fault::{LineIndex, TextFault};
use super::super::name::{AttributeName, NameError, PackagePath, QualifiedName};
use super::super::table::{Located, TableReader};
use super::{
    ATTRIBUTE_LEN_MAX, ATTRIBUTES_MAX, AttributeSet, BODIES_MAX, DeviceKind, IMPORTS_MAX,
    INTERFACES_MAX, LIBRARIES_MAX, LinkPlace, OFFCODE_FILE_LEN_MAX, OffcodeBody, OffcodeFile,
    OffcodeImport, OffcodeNeeds, PORTS_MAX, ReferenceKind,
};
use std::collections::{BTreeSet, HashSet};
use std::hash::Hash;
use std::str::FromStr;
use std::time::Duration;
use uuid::Uuid;

const KEYS: &[&str] = &[
    "name",
    "version",
    "guid",
    "interfaces",
    "paths",
    "ports",
    "body",
    "needs",
    "import",
    "attributes",
];
const NEEDS_KEYS: &[&str] = &["memory", "clock", "timers", "device", "cpu"];
const IMPORT_KEYS: &[&str] = &["name", "interface", "offcode", "guid", "reference", "priority"];
const BODY_KEYS: &[&str] = &["kind", "file", "libraries", "link", "program", "name"];

const REFERENCES: &[(&str, ReferenceKind)] = &[
    ("link", ReferenceKind::Link),
    ("pull", ReferenceKind::Pull),
    ("gang", ReferenceKind::Gang),
    ("gang-if", ReferenceKind::GangIf),
];

/// Directories of WIT files of a package, at most.
const PATHS_MAX: usize = 16;
/// Bytes of the path or name of an import's package.
const OFFCODE_LEN_MAX: usize = 1024;
/// Bytes of a program's name in an object.
const PROGRAM_LEN_MAX: usize = 255;

/// The description in a text.
pub(super) fn offcode(text: &str) -> Result<OffcodeFile, TextFault> {
    if text.len() > OFFCODE_FILE_LEN_MAX {
        let message = format!("it has more than {OFFCODE_FILE_LEN_MAX} bytes");
        return Err(TextFault::new(1, message));
    }
    let lines = LineIndex::new(text);
    let mut file = TableReader::document(text, &lines, KEYS)?;
    let name = file.required("name")?.name()?;
    let version = file.required("version")?.name()?;
    let guid = match file.text("guid")? {
        Some(text) => guid(&text)?,
        None => OffcodeFile::derived_guid(&name, &version),
    };
    let bodies = file.tables("body", BODY_KEYS, BODIES_MAX)?;
    if bodies.is_empty() {
        return Err(file.fault("the offcode has no body: add a table [[body]] with its kind"));
    }
    let needs_line = needs_line(&file);
    let offcode = OffcodeFile {
        name,
        version,
        guid,
        interfaces: names("interface", &file.texts("interfaces", INTERFACES_MAX)?)?,
        paths: paths(&mut file)?,
        ports: names("port", &file.texts("ports", PORTS_MAX)?)?,
        bodies: self::bodies(bodies)?,
        needs: file.table("needs", NEEDS_KEYS)?.map(needs).transpose()?.unwrap_or_default(),
        imports: imports(&mut file)?,
        attributes: file.any_table("attributes")?.map(attributes).transpose()?.unwrap_or_default(),
    };
    check_devices(&offcode, needs_line)?;
    Ok(offcode)
}

/// The line to name when needs and bodies disagree.
fn needs_line(file: &TableReader<'_>) -> u32 {
    file.line_of("needs").unwrap_or(file.line)
}

/// Names, each of them once.
fn names<T>(what: &str, texts: &[Located<String>]) -> Result<Vec<T>, TextFault>
where
    T: FromStr<Err = NameError> + Clone + Eq + Hash,
{
    let mut seen = HashSet::new();
    let mut names = Vec::new();
    for text in texts {
        let name: T = text.name()?;
        if !seen.insert(name.clone()) {
            return Err(text.fault(format!("the {what} {:?} is there twice", text.value)));
        }
        names.push(name);
    }
    Ok(names)
}

fn paths(file: &mut TableReader<'_>) -> Result<Vec<PackagePath>, TextFault> {
    let texts = file.texts("paths", PATHS_MAX)?;
    let default = || Located { line: file.line, value: "wit".to_owned() };
    match texts.is_empty() {
        true => Ok(vec![default().name()?]),
        false => names("path", &texts),
    }
}

/// A GUID: 32 hexadecimal digits, with or without hyphens.
fn guid(text: &Located<String>) -> Result<Uuid, TextFault> {
    Uuid::try_parse(&text.value).map_err(|_| {
        let example = "such as 6ba7b812-9dad-11d1-80b4-00c04fd430c8, or leave it out";
        text.fault(format!("{:?} is no GUID: write a UUID {example}", text.value))
    })
}

/// Bodies, one of each kind.
fn bodies(tables: Vec<TableReader<'_>>) -> Result<Vec<OffcodeBody>, TextFault> {
    let mut bodies: Vec<OffcodeBody> = Vec::new();
    for table in tables {
        let line = table.line;
        let body = body(table)?;
        if bodies.iter().any(|other| other.kind() == body.kind()) {
            let message = format!("the offcode has two bodies of the kind {}", body.kind());
            return Err(TextFault::new(line, message));
        }
        bodies.push(body);
    }
    Ok(bodies)
}

#[derive(Clone, Copy)]
enum BodyWord {
    Wasm,
    Bpf,
    Builtin,
}

fn body(mut table: TableReader<'_>) -> Result<OffcodeBody, TextFault> {
    let kinds = [("wasm", BodyWord::Wasm), ("bpf", BodyWord::Bpf), ("builtin", BodyWord::Builtin)];
    let body = match table.required("kind")?.choice(&kinds)? {
        BodyWord::Wasm => wasm(&mut table)?,
        BodyWord::Bpf => bpf(&mut table)?,
        BodyWord::Builtin => OffcodeBody::Builtin { name: table.required("name")?.name()? },
    };
    table.finish(&format!("a body of the kind {}", body.kind()))?;
    Ok(body)
}

fn wasm(table: &mut TableReader<'_>) -> Result<OffcodeBody, TextFault> {
    let places = [("device", LinkPlace::Device), ("host", LinkPlace::Host)];
    let link = table.text("link")?;
    Ok(OffcodeBody::Wasm {
        file: table.required("file")?.name()?,
        libraries: names("library", &table.texts("libraries", LIBRARIES_MAX)?)?,
        link: link.map(|word| word.choice(&places)).transpose()?.unwrap_or_default(),
    })
}

fn bpf(table: &mut TableReader<'_>) -> Result<OffcodeBody, TextFault> {
    let program = table.required("program")?;
    let is_symbol = program.value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_symbol || !(1..=PROGRAM_LEN_MAX).contains(&program.value.len()) {
        let message = format!("{:?} is no function's name in C", program.value);
        return Err(program.fault(message));
    }
    Ok(OffcodeBody::Bpf { file: table.required("file")?.name()?, program: program.value })
}

fn needs(mut table: TableReader<'_>) -> Result<OffcodeNeeds, TextFault> {
    let memory = table.bytes("memory")?;
    let kinds = DeviceKind::ALL.map(|kind| (kind.as_str(), kind));
    let devices = table.texts("device", kinds.len())?;
    let devices: BTreeSet<DeviceKind> =
        devices.iter().map(|word| word.choice(&kinds)).collect::<Result<_, _>>()?;
    if let Some(memory) = memory.as_ref().filter(|m| m.value > OffcodeNeeds::MEMORY_BYTES_MAX) {
        return Err(memory.fault("\"memory\" is more than 4GiB, which no body can address"));
    }
    let defaults = OffcodeNeeds::default();
    Ok(OffcodeNeeds {
        memory_bytes: memory.map_or(defaults.memory_bytes, |memory| memory.value),
        clock: table.flag("clock")?.unwrap_or(defaults.clock),
        timers: table.flag("timers")?.unwrap_or(defaults.timers),
        devices: (!devices.is_empty()).then_some(devices),
        cpu_permille: table.number("cpu", 0..=1000)?.unwrap_or(defaults.cpu_permille),
    })
}

/// Kinds of devices that a description asks for, and none of its bodies runs on.
fn check_devices(offcode: &OffcodeFile, line: u32) -> Result<(), TextFault> {
    let Some(devices) = &offcode.needs.devices else {
        return Ok(());
    };
    let runs =
        |kind: &&DeviceKind| offcode.bodies.iter().any(|body| body.device_kinds().contains(kind));
    match devices.iter().find(|kind| !runs(kind)) {
        None => Ok(()),
        Some(kind) => {
            let bodies: Vec<&str> = offcode.bodies.iter().map(OffcodeBody::kind).collect();
            let message = format!(
                "\"device\" has {:?}, where no body of the offcode runs (it has {}): add a body, \
                 or take the word away",
                kind.as_str(),
                bodies.join(", ")
            );
            Err(TextFault::new(line, message))
        }
    }
}

fn imports(file: &mut TableReader<'_>) -> Result<Vec<OffcodeImport>, TextFault> {
    let mut imports: Vec<OffcodeImport> = Vec::new();
    for table in file.tables("import", IMPORT_KEYS, IMPORTS_MAX)? {
        let import = import(table)?;
        if let Some(first) = imports.iter().find(|other| other.name == import.name) {
            let message = format!("the import {} is there since line {}", import.name, first.line);
            return Err(TextFault::new(import.line, message));
        }
        imports.push(import);
    }
    Ok(imports)
}

fn import(mut table: TableReader<'_>) -> Result<OffcodeImport, TextFault> {
    let interface: Located<String> = table.required("interface")?;
    let offcode = table.text("offcode")?;
    let is_path = |text: &str| {
        (1..=OFFCODE_LEN_MAX).contains(&text.len())
            && !text.contains('\0')
            && !text.starts_with('/')
    };
    if let Some(offcode) = offcode.as_ref().filter(|text| !is_path(&text.value)) {
        let message = "write a package's name, or a path such as ../checksum, from this directory";
        return Err(offcode.fault(message));
    }
    let pinned = table.text("guid")?;
    let reference = table.text("reference")?;
    Ok(OffcodeImport {
        name: table.required("name")?.name()?,
        interface: interface.name::<QualifiedName>()?,
        offcode: offcode.map(|text| text.value),
        guid: pinned.map(|text| guid(&text)).transpose()?,
        reference: reference.map(|word| word.choice(REFERENCES)).transpose()?.unwrap_or_default(),
        priority: table.priority("priority")?,
        line: table.line,
    })
}

/// Attributes: the three that HYDRA defines, and an offcode's own, which are texts.
pub(in super::super) fn attributes(mut table: TableReader<'_>) -> Result<AttributeSet, TextFault> {
    let mut attributes = AttributeSet {
        obsolete_time: time(&mut table, "OBSOLETE_TIME")?,
        watchdog_time: time(&mut table, "WATCHDOG_TIME")?,
        offload_priority: table.priority("OFFLOAD_PRIORITY")?,
        own: Default::default(),
    };
    for (name, text) in table.into_texts()? {
        let name: AttributeName = Located { line: text.line, value: name }.name()?;
        if text.value.len() > ATTRIBUTE_LEN_MAX {
            let message = format!("the attribute {name} has more than {ATTRIBUTE_LEN_MAX} bytes");
            return Err(text.fault(message));
        }
        check_attribute(&name, text.line)?;
        if attributes.own.len() == ATTRIBUTES_MAX {
            return Err(text.fault(format!("at most {ATTRIBUTES_MAX} attributes may be")));
        }
        attributes.own.insert(name, text.value);
    }
    Ok(attributes)
}

/// Refuses an own attribute that differs from one of HYDRA's by its spelling only.
fn check_attribute(name: &AttributeName, line: u32) -> Result<(), TextFault> {
    const DEFINED: [&str; 3] = ["OBSOLETE_TIME", "WATCHDOG_TIME", "OFFLOAD_PRIORITY"];
    let upper = name.as_str().to_ascii_uppercase().replace('-', "_");
    let near = DEFINED.into_iter().find(|defined| strsim::levenshtein(defined, &upper) <= 2);
    match near {
        None => Ok(()),
        Some(near) => {
            let message = format!("the attribute {name} is not known; did you mean {near}?");
            Err(TextFault::new(line, message))
        }
    }
}

fn time(table: &mut TableReader<'_>, key: &str) -> Result<Option<Duration>, TextFault> {
    table.text(key)?.map(|text| text.time()).transpose()
}
