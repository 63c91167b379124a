//! The directory that a stand-in lives in, and what can go wrong there.
//!
//! ```text
//! DIR/bin/gcc    this program, under as many names as needed
//! DIR/record/    a file for each compilation
//! DIR/factor     by what the recorded time is multiplied, such as 0.6
//! DIR/lock       whose holder is the one that computes: one emulated processor
//! DIR/real       the directory of the real compilers
//! ```
//!
//! It is only read, and the lock is one that does not write, so a sandbox may show it read-only.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process;

use thiserror::Error;

use crate::record::Record;

/// Why a stand-in could not do its work.
#[derive(Debug, Error)]
pub enum Fault {
    /// The stand-in's own directory is not as it must be.
    #[error("the benchmark's {path} cannot be used: {cause}")]
    Place {
        /// The file in question.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A compilation that was never watched.
    #[error("the benchmark has no record of \"{}\"", key.display())]
    Unknown {
        /// The record's name.
        key: OsString,
    },
    /// Preprocessed text whose first line names no file.
    #[error("{}: no first line that names the source", path.display())]
    Nameless {
        /// The text.
        path: PathBuf,
    },
    /// A file system that answers otherwise than the one that was recorded.
    #[error("{}: found {found}, where {expected} was recorded", path.display())]
    Differs {
        /// What was looked up.
        path: PathBuf,
        /// What the recorded compiler found.
        expected: String,
        /// What is here.
        found: String,
    },
    /// A file that cannot be read or written.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

/// A stand-in's directory.
#[derive(Clone, Debug)]
pub struct Place(PathBuf);

impl Place {
    /// The directory of the running program, which was started as `program`.
    ///
    /// # Errors
    /// When the program cannot be found.
    pub fn of(program: &OsStr) -> Result<Self, Fault> {
        // A sandbox may lack /proc; whoever lacks it starts programs by their paths.
        let path = env::current_exe().unwrap_or_else(|_| PathBuf::from(program));
        match path.parent().and_then(Path::parent) {
            Some(directory) => Ok(Self(directory.to_owned())),
            None => Err(Fault::Place { path, cause: io::ErrorKind::NotFound.into() }),
        }
    }

    /// The place that is `directory`.
    #[must_use]
    pub fn at(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// Turns into the real compiler; returns only when that cannot be.
    pub fn become_real(&self, program: &OsStr, words: &[OsString]) -> Fault {
        let real = match self.setting("real") {
            Ok(directory) => Path::new(&directory).join(named(program)),
            Err(fault) => return fault,
        };
        let cause = process::Command::new(&real).args(words).exec();
        Fault::Place { path: real, cause }
    }

    /// The record called `key`.
    ///
    /// # Errors
    /// When there is none, or it is no record.
    pub fn record(&self, key: OsString) -> Result<Record, Fault> {
        let file = fs::read(self.0.join("record").join(&key)).ok();
        file.and_then(|file| Record::parse(&file)).ok_or(Fault::Unknown { key })
    }

    /// By what recorded times are multiplied.
    ///
    /// # Errors
    /// When there is no such number.
    pub fn factor(&self) -> Result<f64, Fault> {
        let text = self.setting("factor")?;
        let factor = text.parse().ok().filter(|factor: &f64| (0.0..1000.0).contains(factor));
        let cause = io::ErrorKind::InvalidData.into();
        factor.ok_or_else(|| Fault::Place { path: self.0.join("factor"), cause })
    }

    /// Waits for the emulated processor, which is free again when the result is dropped.
    ///
    /// # Errors
    /// When the file is not there.
    pub fn processor(&self) -> Result<File, Fault> {
        let path = self.0.join("lock");
        let locked = File::open(&path).and_then(|file| file.lock().map(|()| file));
        locked.map_err(|cause| Fault::Place { path, cause })
    }

    fn setting(&self, name: &str) -> Result<String, Fault> {
        let path = self.0.join(name);
        let text = fs::read_to_string(&path).map(|text| text.trim().to_owned());
        text.map_err(|cause| Fault::Place { path, cause })
    }
}

fn named(program: &OsStr) -> &OsStr {
    Path::new(program).file_name().unwrap_or(program)
}
