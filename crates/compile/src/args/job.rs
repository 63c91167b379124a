//! A compilation that may run remotely: the result of `classify`.
//!
//! Paths are as on the command line: they may be relative to [`Job::cwd`], need not exist and need
//! not be UTF-8.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// One compilation, of one source, that may run remotely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The real compiler, absolute.
    pub compiler: PathBuf,
    /// The remote command line; the first word is the compiler as it was called. These are the
    /// caller's words, and possibly an option that asks for colour.
    pub argv: Vec<OsString>,
    /// The working directory. Absolute.
    pub cwd: PathBuf,
    /// The variables that are sent with the job, in the caller's order.
    pub env: Vec<(OsString, OsString)>,
    /// The caller's `PATH`, where a compiler looks for its assembler. Its directories are absolute.
    /// It is not sent.
    pub path: OsString,
    /// The caller's file mode creation mask.
    pub umask: u32,
    /// The source, as the command line names it.
    pub source: PathBuf,
    /// The source's language.
    pub language: Language,
    /// The files that the command line is known to make, the object first. Compilers may make
    /// others: what comes back is every file that was made.
    pub outputs: Vec<Output>,
    /// Directories that the command line names: candidates for roots.
    pub directories: Vec<NamedDirectory>,
    /// Single files that the command line names besides the source: forced includes, macro files,
    /// response files.
    pub files: Vec<PathBuf>,
}

impl Job {
    /// `path` of this job's words as an absolute path; `.` and `..` stay as they are.
    #[must_use]
    pub fn absolute(&self, path: &Path) -> PathBuf {
        self.cwd.join(path)
    }

    /// The job's name for users: its source's file name.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.source.file_name().unwrap_or(self.source.as_os_str());
        name.to_string_lossy().into_owned()
    }
}

/// A file that the job is known to make.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// The object, or the assembly of `-S`.
    Object(PathBuf),
    /// Dependencies for make, of `-MD` and `-MMD`.
    Dependencies(PathBuf),
    /// Debug information apart from the object, of `-gsplit-dwarf`.
    SplitDebug(PathBuf),
    /// `-fstack-usage`.
    StackUsage(PathBuf),
    /// `-ftest-coverage` and `--coverage`.
    CoverageNotes(PathBuf),
}

impl Output {
    /// Its path, as the command line has it.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Object(path)
            | Self::Dependencies(path)
            | Self::SplitDebug(path)
            | Self::StackUsage(path)
            | Self::CoverageNotes(path) => path,
        }
    }
}

/// A directory that a command line names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedDirectory {
    /// As written; `=` and `$SYSROOT` in front stand for the system's root.
    pub path: PathBuf,
    /// The option that named it.
    pub role: DirectoryRole,
}

/// Why a directory belongs to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirectoryRole {
    /// `-I`.
    Include,
    /// `-iquote`.
    Quote,
    /// `-isystem`.
    System,
    /// `-idirafter`.
    After,
    /// `--sysroot`, `-isysroot`.
    Root,
    /// No option names it: the user has it shown, or the C library reads it.
    Shown,
    /// It is searched for libraries, not for headers.
    Libraries,
}

/// The language of a source, as compilers distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// C.
    C,
    /// C that is preprocessed already.
    PreprocessedC,
    /// C++.
    Cxx,
    /// C++ that is preprocessed already.
    PreprocessedCxx,
    /// Objective-C.
    ObjectiveC,
    /// Objective-C++.
    ObjectiveCxx,
    /// Assembly that is preprocessed first.
    AssemblyWithMacros,
    /// Assembly as it is.
    Assembly,
}

impl Language {
    /// Whether the preprocessor runs over the source.
    #[must_use]
    pub fn is_preprocessed_first(self) -> bool {
        !matches!(self, Self::PreprocessedC | Self::PreprocessedCxx | Self::Assembly)
    }

    /// Its name for the option `-x`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::PreprocessedC => "cpp-output",
            Self::Cxx => "c++",
            Self::PreprocessedCxx => "c++-cpp-output",
            Self::ObjectiveC => "objective-c",
            Self::ObjectiveCxx => "objective-c++",
            Self::AssemblyWithMacros => "assembler-with-cpp",
            Self::Assembly => "assembler",
        }
    }
}
