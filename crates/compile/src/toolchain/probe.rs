//! What a compiler says about itself, by questions that compile nothing.
//!
//! It runs in the root directory with an environment that holds `PATH` and the C locale only.

use super::{Includes, Kind, ToolchainError, run};
use crate::args::{Job, Language};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A compiler that can be asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe<'a> {
    /// The compiler, as it will be called.
    pub(super) compiler: &'a Path,
    /// The caller's `PATH`.
    pub(super) path: &'a OsStr,
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

    /// Its family, and the specs or configuration file that it reads, if any.
    pub(super) fn kind(&self) -> Result<(Kind, Option<PathBuf>), ToolchainError> {
        let said = self.ask(&["-v"], Path::new("/"))?.stderr;
        let text = String::from_utf8_lossy(&said);
        let kind = if text.contains("clang version") {
            Kind::Clang
        } else if text.contains("gcc version") {
            Kind::Gcc
        } else {
            return Err(self.mute("-v"));
        };
        let files = ["Reading specs from ", "Configuration file: "];
        let file = said.split(|octet| *octet == b'\n').find_map(|line| {
            files.iter().find_map(|start| line.strip_prefix(start.as_bytes())).map(as_path)
        });
        Ok((kind, file))
    }

    /// The program that it would run as `name`; `None` when there is none.
    pub(super) fn program(&self, name: &str) -> Result<Option<PathBuf>, ToolchainError> {
        let found = as_path(self.answer(&format!("-print-prog-name={name}"))?.trim_ascii());
        if found.is_absolute() {
            return Ok(found.is_file().then_some(found));
        }
        // A bare name: it looks in PATH when the time comes.
        let directories = std::env::split_paths(self.path);
        Ok(directories
            .map(|dir| dir.join(&found))
            .find(|file| file.is_absolute() && file.is_file()))
    }

    /// Where its own files are, and where it looks for programs in vain.
    pub(super) fn directories(&self) -> Result<(Vec<PathBuf>, Vec<PathBuf>), ToolchainError> {
        let said = self.answer("-print-search-dirs")?;
        let mut install = Vec::new();
        let mut absent = Vec::new();
        for line in said.split(|octet| *octet == b'\n') {
            if let Some(dir) = line.strip_prefix(b"install: ") {
                install.push(as_path(dir));
            } else if let Some(list) = line.strip_prefix(b"programs: =") {
                let dirs = list.split(|octet| *octet == b':').map(as_path);
                absent.extend(dirs.filter(|dir| dir.is_absolute() && !dir.exists()));
            }
        }
        absent.dedup();
        Ok((install, absent))
    }

    /// What clang's driver wants to see: its own headers and libraries, and the installations of
    /// GCC, of which it takes one for its C++ headers.
    pub(super) fn clang_directories(&self) -> Result<Vec<PathBuf>, ToolchainError> {
        let resources = as_path(self.answer("-print-resource-dir")?.trim_ascii());
        let said = self.ask(&["-v"], Path::new("/"))?.stderr;
        let selected = said
            .split(|octet| *octet == b'\n')
            .find_map(|line| line.strip_prefix(b"Selected GCC installation: "))
            .and_then(|path| as_path(path).canonicalize().ok());
        let all = |selected: PathBuf| {
            let of_all = selected.ancestors().find(|at| at.ends_with("gcc")).map(Path::to_owned);
            of_all.unwrap_or(selected)
        };
        Ok([resources].into_iter().chain(selected.map(all)).collect())
    }

    /// The directories that are searched for headers by themselves, with these words.
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
        Ok(read_includes(&output.stderr))
    }
}

/// The words of a job that decide where headers are searched for by themselves.
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
    for line in said.split(|octet| *octet == b'\n') {
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

fn as_path(octets: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(octets)).into()
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
