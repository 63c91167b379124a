//! Finds all of a compiler's files, given its name.

use super::elf::{self, Image};
use super::part::{self, Part, PartRole, PartSymlink, Premise};
use super::probe::{Directories, Probe};
use super::{CompilerFamily, Toolchain, ToolchainError};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Wrappers that are called through links with compilers' names and search for the compiler
/// themselves.
const STAND_INS: &[&str] =
    &["ccache", "sccache", "distcc", "icecc", "icecream", "outboard-cc", "buildcache", "nocc"];

/// Programs that drivers run for a compilation, or look for before one.
const GCC: &[(&str, PartRole)] = &[
    ("cc1", PartRole::Compiler),
    ("cc1plus", PartRole::Compiler),
    ("cc1obj", PartRole::Compiler),
    ("cc1objplus", PartRole::Compiler),
    ("as", PartRole::Assembler),
    ("objcopy", PartRole::Objcopy),
    ("collect2", PartRole::Linker),
    ("lto-wrapper", PartRole::Linker),
];
const CLANG: &[(&str, PartRole)] = &[("as", PartRole::Assembler), ("objcopy", PartRole::Objcopy)];

/// Names that the loader looks for in a directory, as patterns.
const LOADER_PROBES: &[&str] = &["lib*.so*", "glibc-hwcaps", "tls", "x86_64", "haswell"];

/// Files that the loader reads first.
const LOADER_FILES: &[&str] = &["/etc/ld.so.cache", "/etc/ld.so.preload"];

/// Where clang looks for configuration files by default.
const CLANG_CONFIGURATION: &[&str] = &["/etc/clang", "/usr/local/etc/clang"];

/// A compiler, and the state of all paths on which its identity depends: a file that changes,
/// appears or disappears there would make it another compiler.
#[derive(Clone, Debug)]
pub(crate) struct IdentifiedCompiler {
    pub(super) toolchain: Toolchain,
    pub(super) premises: Vec<Premise>,
}

/// Finds everything behind `compiler`, an absolute path, for a caller with this `PATH`.
pub(super) fn identify(
    compiler: &Path,
    path: &OsStr,
) -> Result<IdentifiedCompiler, ToolchainError> {
    let mut found = Found::default();
    let driver = found.add(compiler, PartRole::Driver)?;
    refuse_indirect(&driver)?;
    let probe = Probe { compiler, path };
    let (kind, machine, configuration) = probe.kind()?;
    let directories = probe.directories()?;
    let programs = match kind {
        CompilerFamily::Gcc => GCC,
        CompilerFamily::Clang => CLANG,
    };
    for (name, role) in programs {
        let places = probe.program_places(&directories.programs, kind, &machine, name);
        let places: Vec<_> =
            places.into_iter().map(|place| (Premise::nearest(place.clone()), place)).collect();
        let program = probe.program(name)?;
        found.note_places(places, program.as_deref());
        if let Some(program) = program {
            found.add(&program, *role)?;
        }
    }
    if let Some(file) = configuration {
        found.add(&file, PartRole::Specs)?;
    }
    found.note_configurations(&directories, kind, &machine, [compiler, &driver]);
    found.add_libraries()?;
    let mut probes_absent: Vec<PathBuf> = directories.absent().into_iter().collect();
    probes_absent.extend(found.library_probes()?);
    let mut install_dirs = directories.install;
    if kind == CompilerFamily::Clang {
        install_dirs = probe.clang_directories()?;
        // Of several installations of GCC it takes the newest.
        found.places.extend(install_dirs.iter().filter_map(|dir| newest_in(dir)));
        // Clang looks around in its installation; a directory that others share is not shown.
        let prefix = driver.parent().and_then(Path::parent).filter(|at| at.iter().count() > 3);
        install_dirs.extend(prefix.map(Path::to_owned));
    }
    // Taken before the files are read, so that the next check notices a change in between.
    let premises = found.premises();
    let (parts, links) = found.read()?;
    let hash = part::hash_of(&parts);
    let name = compiler.into();
    let toolchain =
        Toolchain { name, driver, kind, hash, parts, links, install_dirs, probes_absent };
    Ok(IdentifiedCompiler { toolchain, premises })
}

/// The directory with GCC's installations for one target, where further ones may appear.
fn newest_in(gcc: &Path) -> Option<PathBuf> {
    let targets = std::fs::read_dir(gcc).ok().filter(|_| gcc.ends_with("gcc"))?;
    targets.filter_map(Result::ok).map(|target| target.path()).find(|target| target.is_dir())
}

fn refuse_indirect(driver: &Path) -> Result<(), ToolchainError> {
    let indirect = |what| ToolchainError::Indirect { path: driver.into(), what };
    if driver.file_name().is_some_and(|name| STAND_INS.iter().any(|other| name == *other)) {
        return Err(indirect("a wrapper for compilers"));
    }
    match elf::image(driver).map_err(ToolchainError::system(driver))? {
        Image::Dynamic(_) | Image::Static => Ok(()),
        Image::Script => Err(indirect("a script")),
        Image::Other => Err(indirect("no program for this machine")),
    }
}

/// Real files with their roles, and the links to them.
#[derive(Debug, Default)]
struct Found {
    parts: BTreeMap<PathBuf, PartRole>,
    links: Vec<PartSymlink>,
    /// Paths at which a further file would be used instead, or as well.
    places: BTreeSet<PathBuf>,
    /// Such paths in the state in which they were before the compiler was asked: what appears there
    /// while it searches is noticed by the next check.
    searched: Vec<Premise>,
}

impl Found {
    /// Adds the file behind `path`. A file keeps the first role that it was found in.
    fn add(&mut self, path: &Path, role: PartRole) -> Result<PathBuf, ToolchainError> {
        let real = part::resolve(path, &mut self.links).map_err(ToolchainError::system(path))?;
        self.parts.entry(real.clone()).or_insert(role);
        Ok(real)
    }

    /// Notes the paths that are searched for a program before it is found; all if it is not found.
    fn note_places(&mut self, places: Vec<(Premise, PathBuf)>, found: Option<&Path>) {
        let before = places.into_iter().take_while(|(_, place)| Some(&**place) != found);
        for (premise, _) in before {
            if !self.searched.contains(&premise) {
                self.searched.push(premise);
            }
        }
    }

    /// Notes specs and configuration files that would be read if they existed.
    fn note_configurations(
        &mut self,
        directories: &Directories,
        kind: CompilerFamily,
        machine: &OsStr,
        programs: [&Path; 2],
    ) {
        if kind == CompilerFamily::Gcc {
            let above = directories.install.iter().filter_map(|dir| dir.parent());
            let all = directories.libraries.iter().map(PathBuf::as_path).chain(above);
            self.places.extend(all.map(|dir| dir.join("specs")));
            return;
        }
        let mut names: Vec<OsString> = vec!["clang".into(), "clang++".into(), machine.into()];
        names.extend(programs.iter().filter_map(|at| Some(at.file_name()?.to_owned())));
        let of_machine = |name: &OsString| [machine, OsStr::new("-"), name].into_iter().collect();
        names.extend(names.iter().map(of_machine).collect::<Vec<OsString>>());
        let own = programs.iter().filter_map(|at| at.parent());
        for dir in CLANG_CONFIGURATION.iter().map(Path::new).chain(own) {
            let file = |name: &OsString| {
                let mut name = name.clone();
                name.push(".cfg");
                dir.join(name)
            };
            self.places.extend(names.iter().map(file));
        }
    }

    /// The state of all paths on which the files found so far depend; a library depends on all
    /// directories that are searched before the one that has it.
    fn premises(&self) -> Vec<Premise> {
        let libraries = self.parts.iter().filter(|(_, role)| **role == PartRole::Library);
        let names: BTreeSet<&OsStr> = libraries.filter_map(|(path, _)| path.file_name()).collect();
        let mut paths = self.places.clone();
        paths.extend(LOADER_FILES.iter().map(PathBuf::from));
        for directory in self.parts.keys().filter_map(|part| elf::run_paths(part).ok()).flatten() {
            paths.insert(directory.join("glibc-hwcaps"));
            paths.extend(names.iter().map(|name| directory.join(name)));
        }
        paths.extend(self.parts.keys().cloned());
        let mut premises: Vec<Premise> = paths.into_iter().map(Premise::nearest).collect();
        premises.dedup();
        premises.retain(|premise| !self.searched.contains(premise));
        premises.extend(self.searched.iter().cloned());
        premises
    }

    fn add_libraries(&mut self) -> Result<(), ToolchainError> {
        let programs: Vec<PathBuf> = self.parts.keys().cloned().collect();
        for program in programs {
            let image = elf::image(&program).map_err(ToolchainError::system(&program))?;
            if let Image::Dynamic(loader) = image {
                self.add(&loader, PartRole::Loader)?;
                let libraries = elf::libraries(&loader, &program);
                for library in libraries.map_err(ToolchainError::system(&program))? {
                    self.add(&library, PartRole::Library)?;
                }
            }
        }
        Ok(())
    }

    /// Paths at which the loader looks for libraries and need not find any.
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

    fn read(mut self) -> Result<(Vec<Part>, Vec<PartSymlink>), ToolchainError> {
        self.links.sort();
        self.links.dedup();
        let parts: Result<Vec<_>, _> =
            self.parts.into_iter().map(|(path, role)| Part::read(path, role)).collect();
        Ok((parts?, self.links))
    }
}
