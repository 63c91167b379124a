//! The recording of one compilation, and its file format.
//!
//! A file is a row of fields: a tag of one byte, the length of the value as 8 bytes, least
//! significant first, the value. It is written and read on one machine, so it has no version: a
//! file that does not parse is recorded again.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One compilation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The compiler's processor time.
    pub cpu: Duration,
    /// The files it read, each once, and every look-up that failed, in order. Relative paths are
    /// relative to the project's root, where the compiler was started.
    pub lookups: Vec<Lookup>,
    /// The files it made.
    pub outputs: Vec<Output>,
    /// Its standard error.
    pub diagnostics: Vec<u8>,
}

/// A request to the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The kind of request.
    pub kind: Kind,
    /// The path.
    pub path: PathBuf,
}

/// How the file system was asked, and what it answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `open`, followed by reads of the whole file.
    Read {
        /// Size of the file.
        size: u64,
    },
    /// `open` of an absent path.
    OpenAbsent,
    /// `stat` of an absent path.
    StatAbsent,
    /// `access` to an absent path.
    AccessAbsent,
    /// `readlink` of an absent path.
    LinkAbsent,
}

/// A file that the compilation made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The end of its name, which stands where the object's name has its final `o`.
    pub ending: OsString,
    /// Its contents.
    pub content: Vec<u8>,
}

const CPU: u8 = b'c';
const DIAGNOSTICS: u8 = b'e';
const ENDING: u8 = b'n';
const CONTENT: u8 = b'o';
const READ: u8 = b'r';

/// The kinds of look-ups without a size.
const PLAIN: &[(u8, Kind)] = &[
    (b'O', Kind::OpenAbsent),
    (b'S', Kind::StatAbsent),
    (b'A', Kind::AccessAbsent),
    (b'L', Kind::LinkAbsent),
];

impl Record {
    /// The record as the bytes of its file.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut file = Vec::new();
        let micros = u64::try_from(self.cpu.as_micros()).unwrap_or(u64::MAX);
        field(&mut file, CPU, &micros.to_le_bytes());
        self.lookups.iter().for_each(|lookup| lookup.emit(&mut file));
        for output in &self.outputs {
            field(&mut file, ENDING, output.ending.as_bytes());
            field(&mut file, CONTENT, &output.content);
        }
        field(&mut file, DIAGNOSTICS, &self.diagnostics);
        file
    }

    /// Parses the output of [`Record::emit`]; `None` for anything else.
    #[must_use]
    pub fn parse(mut file: &[u8]) -> Option<Self> {
        let mut record = Self::default();
        while let Some((tag, rest)) = file.split_first() {
            let (length, rest) = rest.split_first_chunk()?;
            let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
            let (value, rest) = rest.split_at_checked(length)?;
            record.add(*tag, value)?;
            file = rest;
        }
        Some(record)
    }

    fn add(&mut self, tag: u8, value: &[u8]) -> Option<()> {
        match tag {
            CPU => self.cpu = Duration::from_micros(u64::from_le_bytes(value.try_into().ok()?)),
            DIAGNOSTICS => self.diagnostics = value.to_vec(),
            ENDING => {
                let ending = OsStr::from_bytes(value).to_owned();
                self.outputs.push(Output { ending, content: Vec::new() });
            }
            CONTENT => self.outputs.last_mut()?.content = value.to_vec(),
            _ => self.lookups.push(Lookup::parse(tag, value)?),
        }
        Some(())
    }
}

impl Lookup {
    fn emit(&self, file: &mut Vec<u8>) {
        let path = self.path.as_os_str().as_bytes();
        match self.kind {
            Kind::Read { size } => field(file, READ, &[&size.to_le_bytes(), path].concat()),
            kind => {
                let tag = PLAIN.iter().find(|(_, plain)| *plain == kind);
                field(file, tag.map_or(0, |(tag, _)| *tag), path);
            }
        }
    }

    fn parse(tag: u8, value: &[u8]) -> Option<Self> {
        let (kind, path) = if tag == READ {
            let (size, path) = value.split_first_chunk()?;
            (Kind::Read { size: u64::from_le_bytes(*size) }, path)
        } else {
            (PLAIN.iter().find(|(plain, _)| *plain == tag)?.1, value)
        };
        Some(Self { kind, path: Path::new(OsStr::from_bytes(path)).to_owned() })
    }
}

fn field(file: &mut Vec<u8>, tag: u8, value: &[u8]) {
    file.push(tag);
    file.extend((value.len() as u64).to_le_bytes());
    file.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Record {
        let kinds = [Kind::Read { size: 7 }].into_iter().chain(PLAIN.iter().map(|(_, kind)| *kind));
        Record {
            cpu: Duration::from_millis(284),
            lookups: kinds.map(|kind| Lookup { kind, path: "src/a.h".into() }).collect(),
            outputs: vec![
                Output { ending: "o".into(), content: b"\x7fELF".to_vec() },
                Output { ending: "dwo".into(), content: Vec::new() },
            ],
            diagnostics: b"a.c:1: warning".to_vec(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Record::parse(&sample().emit()), Some(sample()));
    }

    #[test]
    fn what_is_cut_off_is_no_record() {
        let file = sample().emit();
        assert_eq!(Record::parse(&file[..file.len() - 1]), None);
        assert_eq!(Record::parse(b"not a record"), None);
    }
}
