//! All of a compiler's files, from its name.

use super::elf::{self, Image};
use super::part::{self, Link, Part, Role};
use super::probe::Probe;
use super::{Kind, Toolchain, ToolchainError};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What looks like a compiler by a link to it and looks for the real one itself.
const STAND_INS: &[&str] =
    &["ccache", "sccache", "distcc", "icecc", "icecream", "outboard-cc", "buildcache", "nocc"];

/// Programs that drivers run for a compilation, or look for before one.
const GCC: &[(&str, Role)] = &[
    ("cc1", Role::Compiler),
    ("cc1plus", Role::Compiler),
    ("cc1obj", Role::Compiler),
    ("cc1objplus", Role::Compiler),
    ("as", Role::Assembler),
    ("objcopy", Role::Objcopy),
    ("collect2", Role::Linker),
    ("lto-wrapper", Role::Linker),
];
const CLANG: &[(&str, Role)] = &[("as", Role::Assembler), ("objcopy", Role::Objcopy)];

/// What the loader looks for in a directory, as patterns of names.
const LOADER_PROBES: &[&str] = &["lib*.so*", "glibc-hwcaps", "tls", "x86_64", "haswell"];

/// Finds everything behind `compiler`, an absolute path, for a caller with this `PATH`.
pub(super) fn identify(compiler: &Path, path: &OsStr) -> Result<Toolchain, ToolchainError> {
    let mut found = Found::default();
    let driver = found.add(compiler, Role::Driver)?;
    refuse_indirect(&driver)?;
    let probe = Probe { compiler, path };
    let (kind, configuration) = probe.kind()?;
    let programs = match kind {
        Kind::Gcc => GCC,
        Kind::Clang => CLANG,
    };
    for (name, role) in programs {
        if let Some(program) = probe.program(name)? {
            found.add(&program, *role)?;
        }
    }
    if let Some(file) = configuration {
        found.add(&file, Role::Specs)?;
    }
    found.add_libraries()?;
    let (mut install_dirs, mut probes_absent) = probe.directories()?;
    probes_absent.extend(found.library_probes()?);
    if kind == Kind::Clang {
        install_dirs = probe.clang_directories()?;
        // It looks around where it is installed; a directory of everybody's is not for showing.
        let prefix = driver.parent().and_then(Path::parent).filter(|at| at.iter().count() > 3);
        install_dirs.extend(prefix.map(Path::to_owned));
    }
    let (parts, links) = found.read()?;
    let hash = part::hash_of(&parts);
    let name = compiler.into();
    Ok(Toolchain { name, driver, kind, hash, parts, links, install_dirs, probes_absent })
}

fn refuse_indirect(driver: &Path) -> Result<(), ToolchainError> {
    let indirect = |what| ToolchainError::Indirect { path: driver.into(), what };
    if driver.file_name().is_some_and(|name| STAND_INS.iter().any(|other| name == *other)) {
        return Err(indirect("a stand-in for a compiler"));
    }
    match elf::image(driver).map_err(ToolchainError::system(driver))? {
        Image::Dynamic(_) | Image::Static => Ok(()),
        Image::Script => Err(indirect("a script")),
        Image::Other => Err(indirect("no program of this machine's")),
    }
}

/// Real files with their roles, and the links to them.
#[derive(Debug, Default)]
struct Found {
    parts: BTreeMap<PathBuf, Role>,
    links: Vec<Link>,
}

impl Found {
    /// Adds the file behind `path`. A file keeps the first role that it was found in.
    fn add(&mut self, path: &Path, role: Role) -> Result<PathBuf, ToolchainError> {
        let real = part::resolve(path, &mut self.links).map_err(ToolchainError::system(path))?;
        self.parts.entry(real.clone()).or_insert(role);
        Ok(real)
    }

    fn add_libraries(&mut self) -> Result<(), ToolchainError> {
        let programs: Vec<PathBuf> = self.parts.keys().cloned().collect();
        for program in programs {
            let image = elf::image(&program).map_err(ToolchainError::system(&program))?;
            if let Image::Dynamic(loader) = image {
                self.add(&loader, Role::Loader)?;
                let libraries = elf::libraries(&loader, &program);
                for library in libraries.map_err(ToolchainError::system(&program))? {
                    self.add(&library, Role::Library)?;
                }
            }
        }
        Ok(())
    }

    /// Where the loader looks for libraries, as far as it need not find any.
    fn library_probes(&self) -> Result<BTreeSet<PathBuf>, ToolchainError> {
        let mut probes = BTreeSet::new();
        for part in self.parts.keys() {
            for directory in elf::run_paths(part).map_err(ToolchainError::system(part))? {
                if !directory.exists() {
                    probes.insert(directory);
                    continue;
                }
                probes.extend(LOADER_PROBES.iter().map(|name| directory.join(name)));
            }
        }
        Ok(probes)
    }

    fn read(mut self) -> Result<(Vec<Part>, Vec<Link>), ToolchainError> {
        self.links.sort();
        self.links.dedup();
        let parts: Result<Vec<_>, _> =
            self.parts.into_iter().map(|(path, role)| Part::read(path, role)).collect();
        Ok((parts?, self.links))
    }
}
