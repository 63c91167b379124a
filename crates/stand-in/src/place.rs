//! The directory of a stand-in, and the errors of a replay.
//!
//! ```text
//! DIR/bin/gcc    this program, under as many names as needed
//! DIR/record/    a file for each compilation
//! DIR/factor     the factor by which recorded times are multiplied, such as 0.6
//! DIR/lock       held by the stand-in that computes: one emulated processor
//! DIR/real       the directory of the real compilers
//! ```
//!
//! The directory is only read, and the lock needs no write access, so a sandbox may show it
//! read-only.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process;

use thiserror::Error;

use crate::record::Record;

/// Why a stand-in could not replay a command.
#[derive(Debug, Error)]
pub enum Fault {
    /// The stand-in's own directory is incomplete or unreadable.
    #[error("the benchmark's {path} cannot be used: {cause}")]
    ReplayDir {
        /// The file in question.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// A compilation that was not recorded.
    #[error("the benchmark has no record of \"{}\"", key.display())]
    Unknown {
        /// The record's name.
        key: OsString,
    },
    /// Preprocessed text whose first line names no source.
    #[error("{}: no first line that names the source", path.display())]
    Nameless {
        /// The file with the text.
        path: PathBuf,
    },
    /// The file system differs from the recorded one.
    #[error("{}: found {found}, where {expected} was recorded", path.display())]
    Differs {
        /// The path that was looked up.
        path: PathBuf,
        /// What the compiler found when it was recorded.
        expected: String,
        /// What was found now.
        found: String,
    },
    /// A file that cannot be read or written.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
}

/// A stand-in's directory.
#[derive(Clone, Debug)]
pub struct ReplayDir(PathBuf);

impl ReplayDir {
    /// The directory of the running program, which was started as `program`.
    ///
    /// # Errors
    /// When the program cannot be found.
    pub fn of(program: &OsStr) -> Result<Self, Fault> {
        // A sandbox may lack /proc; programs in it are then started by their paths.
        let path = env::current_exe().unwrap_or_else(|_| PathBuf::from(program));
        match path.parent().and_then(Path::parent) {
            Some(directory) => Ok(Self(directory.to_owned())),
            None => Err(Fault::ReplayDir { path, cause: io::ErrorKind::NotFound.into() }),
        }
    }

    /// The stand-in in `directory`.
    #[must_use]
    pub fn at(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// Executes the real compiler in this process; returns only on failure.
    pub fn become_real(&self, program: &OsStr, words: &[OsString]) -> Fault {
        let real = match self.setting("real") {
            Ok(directory) => Path::new(&directory).join(named(program)),
            Err(fault) => return fault,
        };
        let cause = process::Command::new(&real).args(words).exec();
        Fault::ReplayDir { path: real, cause }
    }

    /// The record with the name `key`.
    ///
    /// # Errors
    /// When there is none, or it cannot be parsed.
    pub fn record(&self, key: OsString) -> Result<Record, Fault> {
        let file = fs::read(self.0.join("record").join(&key)).ok();
        file.and_then(|file| Record::parse(&file)).ok_or(Fault::Unknown { key })
    }

    /// The factor by which recorded times are multiplied.
    ///
    /// # Errors
    /// When the file has no such number.
    pub fn factor(&self) -> Result<f64, Fault> {
        let text = self.setting("factor")?;
        let factor = text.parse().ok().filter(|factor: &f64| (0.0..1000.0).contains(factor));
        let cause = io::ErrorKind::InvalidData.into();
        factor.ok_or_else(|| Fault::ReplayDir { path: self.0.join("factor"), cause })
    }

    /// Waits for the emulated processor, which is released when the result is dropped.
    ///
    /// # Errors
    /// When the file is not there.
    pub fn processor(&self) -> Result<File, Fault> {
        let path = self.0.join("lock");
        let locked = File::open(&path).and_then(|file| file.lock().map(|()| file));
        locked.map_err(|cause| Fault::ReplayDir { path, cause })
    }

    fn setting(&self, name: &str) -> Result<String, Fault> {
        let path = self.0.join(name);
        let text = fs::read_to_string(&path).map(|text| text.trim().to_owned());
        text.map_err(|cause| Fault::ReplayDir { path, cause })
    }
}

fn named(program: &OsStr) -> &OsStr {
    Path::new(program).file_name().unwrap_or(program)
}
