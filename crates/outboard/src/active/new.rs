//! `outboard active new` and `outboard active modules`: files that authors and operators start
//! with.

use crate::Outcome;
use clap::Args;
use serde_json::json;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The header of all modules.
const HEADER: &str = include_str!("../../../../modules/include/outboard.h");

/// A new module's files; `NAME` in names and texts is the module's.
const TEMPLATE: &[(&str, &str)] = &[
    ("NAME.c", include_str!("../../../../modules/template/NAME.c")),
    ("NAME.test.toml", include_str!("../../../../modules/template/NAME.test.toml")),
    ("Makefile", include_str!("../../../../modules/template/Makefile")),
    ("README.md", include_str!("../../../../modules/template/README.md")),
    ("outboard.h", HEADER),
];

/// A shipped module: its name, its bytes, and its header, with arguments and results.
type Shipped = (&'static str, &'static [u8], Option<&'static str>);

macro_rules! shipped {
    ($name:literal) => {
        (
            $name,
            include_bytes!(concat!("../../../../modules/built/", $name, ".wasm")),
            Some(include_str!(concat!("../../../../modules/", $name, "/", $name, ".h"))),
        )
    };
}

/// The modules that come with this program.
const SHIPPED: &[Shipped] = &[
    shipped!("alloc"),
    ("empty", include_bytes!("../../../../modules/built/empty.wasm"), None),
    shipped!("list"),
    shipped!("lock"),
    shipped!("script"),
    shipped!("table"),
    shipped!("topk"),
];

/// The names and bytes of the modules that come with this program.
pub(crate) fn shipped() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    SHIPPED.iter().map(|(name, bytes, _)| (*name, *bytes))
}

/// The hashes by which modules import the shipped ones.
const HASHES: &str = include_str!("../../../../modules/built/hashes.h");

/// Begin a module: C source, tests, and what builds them.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard active new counter
  make -C counter test")]
pub(crate) struct NewArgs {
    /// The module's name: letters, digits and _; a directory of this name is made.
    name: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Write the modules that come with Outboard, and their headers, into a directory.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard active modules shipped
  outboard node --serve active --region kv=64MiB --modules shipped")]
pub(crate) struct ModulesArgs {
    /// The directory; it is made if it is missing.
    directory: PathBuf,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn new(args: &NewArgs) -> Outcome {
    let name = &args.name;
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_rest = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !name.starts_with(is_first) || !name.chars().all(is_rest) || name.len() > 64 {
        return Err(format!("{name:?}: a module's name is a C identifier").into());
    }
    let directory = Path::new(name);
    std::fs::create_dir(directory).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => format!("{name} is there already: choose another name"),
        _ => format!("{name}: {error}"),
    })?;
    let mut files = Vec::new();
    for (file, text) in TEMPLATE {
        let own = *file != "outboard.h";
        let text = if own { text.replace("NAME", name) } else { (*text).to_owned() };
        files.push(write(&directory.join(file.replace("NAME", name)), text.as_bytes())?);
    }
    tell(args.json, &files, &format!("made {name}: `make -C {name} test` builds and tests it"))
}

pub(crate) fn modules(args: &ModulesArgs) -> Outcome {
    let directory = &args.directory;
    std::fs::create_dir_all(directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut files = vec![
        write(&directory.join("outboard.h"), HEADER.as_bytes())?,
        write(&directory.join("hashes.h"), HASHES.as_bytes())?,
    ];
    for (name, bytes, header) in SHIPPED {
        files.push(write(&directory.join(format!("{name}.wasm")), bytes)?);
        if let Some(header) = header {
            files.push(write(&directory.join(format!("{name}.h")), header.as_bytes())?);
        }
    }
    let names: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.0).collect();
    tell(args.json, &files, &format!("{}: {}", directory.display(), names.join(", ")))
}

fn write(path: &Path, bytes: &[u8]) -> Result<String, String> {
    std::fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path.display().to_string())
}

fn tell(as_json: bool, files: &[String], text: &str) -> Outcome {
    let mut out = std::io::stdout();
    match as_json {
        true => writeln!(out, "{}", json!({ "files": files }))?,
        false => writeln!(out, "{text}")?,
    }
    Ok(())
}
