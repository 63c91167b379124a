//! Asks a compiler about itself, by options that compile nothing.
//!
//! The compiler runs in the root directory, with only `PATH` and the C locale in its environment.

use super::{CompilerFamily, Includes, ToolchainError, run};
use crate::args::{Job, Language};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A compiler that can be asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe<'a> {
    /// The compiler's path, as jobs call it.
    pub(super) compiler: &'a Path,
    /// The caller's `PATH`.
    pub(super) path: &'a OsStr,
}

/// The directories in which a compiler looks for files.
#[derive(Clone, Debug, Default)]
pub(super) struct Directories {
    /// Its own.
    pub(super) install: Vec<PathBuf>,
    /// For programs, before `PATH`.
    pub(super) programs: Vec<PathBuf>,
    /// For libraries, and for specs.
    pub(super) libraries: Vec<PathBuf>,
}

impl Directories {
    /// Directories in which it looks for programs and which do not exist.
    pub(super) fn absent(&self) -> BTreeSet<PathBuf> {
        self.programs.iter().filter(|dir| !dir.exists()).cloned().collect()
    }
}

impl Probe<'_> {
    fn ask<S: AsRef<OsStr>>(&self, words: &[S], cwd: &Path) -> Result<Output, ToolchainError> {
        let mut command = Command::new(self.compiler);
        command.args(words).current_dir(cwd);
        command.env_clear().env("PATH", self.path).env("LC_ALL", "C");
        run::output(&mut command).map_err(ToolchainError::system(self.compiler))
    }

    fn answer(&self, word: &str) -> Result<Vec<u8>, ToolchainError> {
        let output = self.ask(&[word], Path::new("/"))?;
        if output.status.success() { Ok(output.stdout) } else { Err(self.mute(word)) }
    }

    fn mute(&self, question: &str) -> ToolchainError {
        ToolchainError::Mute { path: self.compiler.into(), question: question.into() }
    }

    /// Its family, for which machine it compiles, and the specs or configuration file that it
    /// reads, if any.
    pub(super) fn kind(
        &self,
    ) -> Result<(CompilerFamily, OsString, Option<PathBuf>), ToolchainError> {
        let said = self.ask(&["-v"], Path::new("/"))?.stderr;
        let text = String::from_utf8_lossy(&said);
        let kind = if text.contains("clang version") {
            CompilerFamily::Clang
        } else if text.contains("gcc version") {
            CompilerFamily::Gcc
        } else {
            return Err(self.mute("-v"));
        };
        let after = |starts: &[&str]| {
            said.split(|byte| *byte == b'\n').find_map(|line| {
                starts.iter().find_map(|start| line.strip_prefix(start.as_bytes())).map(as_path)
            })
        };
        let machine = after(&["Target: "]).unwrap_or_default().into_os_string();
        Ok((kind, machine, after(&["Reading specs from ", "Configuration file: "])))
    }

    /// All paths at which it looks for the program `name`, in its order: first in `directories`,
    /// its own, then in those of `PATH`.
    pub(super) fn program_places(
        &self,
        directories: &[PathBuf],
        kind: CompilerFamily,
        machine: &OsStr,
        name: &str,
    ) -> Vec<PathBuf> {
        let of_machine = || [machine, OsStr::new("-"), OsStr::new(name)].into_iter().collect();
        let names: Vec<OsString> = match kind {
            CompilerFamily::Gcc => vec![name.into()],
            CompilerFamily::Clang => vec![of_machine(), name.into()],
        };
        let searched = std::env::split_paths(self.path).filter(|dir| dir.is_absolute());
        let all = directories.iter().cloned().chain(searched);
        all.flat_map(|dir| names.iter().map(move |name| dir.join(name)).collect::<Vec<_>>())
            .collect()
    }

    /// The program that it would run as `name`; `None` when there is none.
    pub(super) fn program(&self, name: &str) -> Result<Option<PathBuf>, ToolchainError> {
        let found = as_path(self.answer(&format!("-print-prog-name={name}"))?.trim_ascii());
        if found.is_absolute() {
            return Ok(found.is_file().then_some(found));
        }
        // A bare name: the compiler searches PATH when it runs the program.
        let directories = std::env::split_paths(self.path);
        Ok(directories
            .map(|dir| dir.join(&found))
            .find(|file| file.is_absolute() && file.is_file()))
    }

    /// Its own directory, and those in which it looks for programs, libraries and specs.
    pub(super) fn directories(&self) -> Result<Directories, ToolchainError> {
        let said = self.answer("-print-search-dirs")?;
        let mut found = Directories::default();
        let list = |list: &[u8]| -> Vec<PathBuf> {
            let all = list.split(|byte| *byte == b':').map(as_path);
            all.filter(|dir| dir.is_absolute()).collect()
        };
        for line in said.split(|byte| *byte == b'\n') {
            if let Some(dir) = line.strip_prefix(b"install: ") {
                found.install.push(as_path(dir));
            } else if let Some(dirs) = line.strip_prefix(b"programs: =") {
                found.programs.extend(list(dirs));
            } else if let Some(dirs) = line.strip_prefix(b"libraries: =") {
                found.libraries.extend(list(dirs));
            }
        }
        Ok(found)
    }

    /// The directories that clang's driver inspects: its own headers and libraries, and
    /// installations of GCC, of which it uses one for C++ headers.
    pub(super) fn clang_directories(&self) -> Result<Vec<PathBuf>, ToolchainError> {
        let resources = as_path(self.answer("-print-resource-dir")?.trim_ascii());
        let said = self.ask(&["-v"], Path::new("/"))?.stderr;
        let selected = said
            .split(|byte| *byte == b'\n')
            .find_map(|line| line.strip_prefix(b"Selected GCC installation: "))
            .and_then(|path| as_path(path).canonicalize().ok());
        let all = |selected: PathBuf| {
            let of_all = selected.ancestors().find(|at| at.ends_with("gcc")).map(Path::to_owned);
            of_all.unwrap_or(selected)
        };
        Ok([resources].into_iter().chain(selected.map(all)).collect())
    }

    /// The directories that are searched for headers by default, with these options.
    pub(super) fn includes(
        &self,
        language: Language,
        words: &[OsString],
        cwd: &Path,
    ) -> Result<Includes, ToolchainError> {
        let language = match language {
            Language::PreprocessedC | Language::Assembly => Language::C,
            Language::PreprocessedCxx => Language::Cxx,
            other => other,
        };
        let question = ["-E", "-v", "-x", language.name(), "/dev/null", "-o", "/dev/null"];
        let mut all: Vec<OsString> = words.to_vec();
        all.extend(question.map(OsString::from));
        let output = self.ask(&all, cwd)?;
        if !output.status.success() {
            return Err(self.mute("-E -v"));
        }
        let mut includes = read_includes(&output.stderr);
        if words.iter().any(|word| OTHER_LIBRARIES.iter().any(|other| word == other)) {
            includes.absent.extend(self.absent_libraries(words, cwd)?);
        }
        Ok(includes)
    }

    /// Directories in which the driver looks for libraries and which do not exist.
    fn absent_libraries(
        &self,
        words: &[OsString],
        cwd: &Path,
    ) -> Result<Vec<PathBuf>, ToolchainError> {
        let question = "-print-search-dirs";
        let all: Vec<OsString> = words.iter().cloned().chain([question.into()]).collect();
        let said = self.ask(&all, cwd)?.stdout;
        let mut lines = said.split(|byte| *byte == b'\n');
        let list = lines.find_map(|line| line.strip_prefix(b"libraries: =")).unwrap_or_default();
        let paths = list.split(|byte| *byte == b':').map(as_path);
        Ok(paths.filter(|path| path.is_absolute() && !path.exists()).collect())
    }
}

/// Options with which the driver looks for libraries in other directories than usual.
const OTHER_LIBRARIES: &[&str] = &["-m16", "-m32", "-mx32"];

/// The options of a job that determine where headers are searched for by default.
pub(super) fn words_for_includes(job: &Job) -> Vec<OsString> {
    const JOINED: &[&str] = &[
        "-m",
        "--sysroot=",
        "-isysroot",
        "-stdlib=",
        "--target=",
        "-nostdinc",
        "-nostdlibinc",
        "-nobuiltininc",
    ];
    const NEXT: &[&str] = &["--sysroot", "-isysroot", "-target"];
    let mut words = Vec::new();
    let mut argv = job.argv.iter().skip(1);
    while let Some(word) = argv.next() {
        if NEXT.iter().any(|name| word == name) {
            words.push(word.clone());
            words.extend(argv.next().cloned());
        } else if JOINED.iter().any(|start| word.as_bytes().starts_with(start.as_bytes())) {
            words.push(word.clone());
        }
    }
    words
}

fn read_includes(said: &[u8]) -> Includes {
    let mut includes = Includes::default();
    let mut is_list = false;
    for line in said.split(|byte| *byte == b'\n') {
        match line {
            b"#include \"...\" search starts here:" | b"#include <...> search starts here:" => {
                is_list = true;
            }
            b"End of search list." => is_list = false,
            [b' ', path @ ..] if is_list => {
                let path = path.strip_suffix(b" (framework directory)").unwrap_or(path);
                includes.found.push(as_path(path));
            }
            _ => {
                let absent = line.strip_prefix(b"ignoring nonexistent directory \"");
                let absent = absent.and_then(|rest| rest.strip_suffix(b"\""));
                includes.absent.extend(absent.map(as_path));
            }
        }
    }
    includes
}

fn as_path(bytes: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(bytes)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_list_is_read_with_what_is_not_there() {
        let said = b"ignoring nonexistent directory \"/no/where\"\n\
            ignoring duplicate directory \"/usr/include\"\n\
            #include \"...\" search starts here:\n /quote\n\
            #include <...> search starts here:\n /usr/include/c++/12\n /a b\n\
            End of search list.\n /not/this\n";
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let expected = Includes {
            found: paths(&["/quote", "/usr/include/c++/12", "/a b"]),
            absent: paths(&["/no/where"]),
        };
        assert_eq!(read_includes(said), expected);
    }
}
