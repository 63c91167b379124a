//! Replays what a compiler did.
//!
//! Reads and look-ups come first and take the time they take; then the emulated processor is held
//! for the recorded time; then the outputs are written. An answer of the file system that differs
//! from the recorded one is an error, so a benchmark also detects a distributor that shows a
//! compiler the wrong files.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::Access;

use crate::command::{Command, Source, origin};
use crate::place::{Fault, ReplayDir};
use crate::record::{Kind, Lookup, Output, Record};

/// Replays the record of a command.
///
/// # Errors
/// When this compilation was not recorded, or the file system differs.
pub fn play(place: &ReplayDir, command: &Command) -> Result<(), Fault> {
    let record = match &command.source {
        Source::Plain(path) => {
            let record = place.record(command.key(&relative(path)))?;
            record.lookups.iter().try_for_each(look_up)?;
            record
        }
        // A compilation of preprocessed text looks up no other files.
        Source::Preprocessed(path) => {
            let text = fs::read(path).map_err(fault(path))?;
            place.record(command.key(&source_of(&text, path)?))?
        }
        Source::Input => {
            let (path, mut text) = (Path::new("standard input"), Vec::new());
            io::stdin().read_to_end(&mut text).map_err(fault(path))?;
            place.record(command.key(&source_of(&text, path)?))?
        }
    };
    compute(place, &record)?;
    record.outputs.iter().try_for_each(|output| write(output, &command.object))?;
    io::stderr().write_all(&record.diagnostics).map_err(fault(Path::new("standard error")))
}

/// Holds the emulated processor for the recorded time, asleep.
fn compute(place: &ReplayDir, record: &Record) -> Result<(), Fault> {
    let time = record.cpu.mul_f64(place.factor()?);
    if !time.is_zero() {
        let _held = place.processor()?;
        thread::sleep(time);
    }
    Ok(())
}

fn source_of(text: &[u8], path: &Path) -> Result<PathBuf, Fault> {
    let origin = origin(text).ok_or_else(|| Fault::Nameless { path: path.to_owned() })?;
    Ok(relative(origin))
}

/// The path relative to the project's root, which is where a compiler is started.
fn relative(path: &Path) -> PathBuf {
    let root = env::current_dir().unwrap_or_default();
    path.strip_prefix(&root).unwrap_or(path).to_owned()
}

fn write(output: &Output, object: &Path) -> Result<(), Fault> {
    let path = object.with_extension(&output.ending);
    fs::write(&path, &output.content).map_err(fault(&path))
}

fn look_up(lookup: &Lookup) -> Result<(), Fault> {
    let path = lookup.path.as_path();
    match lookup.kind {
        Kind::Read { size } => read(path, size),
        Kind::OpenAbsent => absent(path, File::open(path)),
        Kind::StatAbsent => absent(path, fs::metadata(path)),
        Kind::AccessAbsent => absent(path, rustix::fs::access(path, Access::EXISTS)),
        Kind::LinkAbsent => absent(path, fs::read_link(path)),
    }
}

fn read(path: &Path, size: u64) -> Result<(), Fault> {
    let content = fs::read(path).map_err(fault(path))?;
    if content.len() as u64 == size {
        return Ok(());
    }
    Err(differs(path, &format!("{size} bytes"), &format!("{} bytes", content.len())))
}

fn absent<T>(path: &Path, asked: Result<T, impl Into<io::Error>>) -> Result<(), Fault> {
    match asked.map_err(Into::into) {
        Err(error) if is_absence(&error) => Ok(()),
        Err(error) => Err(differs(path, "nothing", &error.to_string())),
        Ok(_) => Err(differs(path, "nothing", "a file")),
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn differs(path: &Path, expected: &str, found: &str) -> Fault {
    let (expected, found) = (expected.to_owned(), found.to_owned());
    Fault::Differs { path: path.to_owned(), expected, found }
}

fn fault(path: &Path) -> impl FnOnce(io::Error) -> Fault {
    let path = path.to_owned();
    move |cause| Fault::File { path, cause }
}

#[cfg(test)]
mod tests;
