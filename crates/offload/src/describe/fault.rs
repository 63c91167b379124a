//! What can be wrong with a description, and where.
//!
//! Never names a peer: descriptions are files of this machine, and whoever wrote them is at fault
//! unless the file cannot be read.

use std::io;
use std::path::{Path, PathBuf};

/// A fault of a text: its line and, in words, what was found and what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct TextFault {
    /// The line, from 1.
    pub line: u32,
    /// What is wrong, and what to do.
    pub message: String,
}

impl TextFault {
    pub(super) fn new(line: u32, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }

    /// The same fault as one of a file.
    pub(super) fn at(self, path: &Path) -> DescribeError {
        DescribeError::Text { path: path.into(), fault: self }
    }
}

/// Why a description cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    /// This machine does not give the file, or the name in the description is wrong.
    #[error("{}: {source}{}", path.display(), advice(source, path))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Whoever wrote the file is at fault.
    #[error("{}:{}: {}", path.display(), fault.line, fault.message)]
    Text {
        /// The file.
        path: PathBuf,
        /// The line, and what is wrong there.
        fault: TextFault,
    },
}

impl DescribeError {
    pub(super) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.into(), source }
    }
}

/// What to do where a file that has to be built is not there.
fn advice(source: &io::Error, path: &Path) -> &'static str {
    let ending = path.extension().and_then(|ending| ending.to_str());
    match (source.kind(), ending) {
        (io::ErrorKind::NotFound, Some("wasm" | "o")) => "; build it, by make in its directory",
        _ => "",
    }
}

/// Lines of a text by positions in it.
#[derive(Debug)]
pub(super) struct LineIndex {
    /// Positions of the line feeds.
    ends: Vec<usize>,
}

impl LineIndex {
    pub(super) fn new(text: &str) -> Self {
        let feeds = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self { ends: feeds.map(|(at, _)| at).collect() }
    }

    /// The line of a byte, from 1.
    pub(super) fn line(&self, at: usize) -> u32 {
        let before = self.ends.partition_point(|end| *end < at);
        u32::try_from(before + 1).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_one() {
        let index = LineIndex::new("a\nbc\n\nd");
        let lines: Vec<u32> = (0..7).map(|at| index.line(at)).collect();
        assert_eq!(lines, [1, 1, 2, 2, 2, 3, 4]);
    }

    #[test]
    fn errors_say_where() {
        let error = TextFault::new(3, "no such key").at(Path::new("a/offcode.toml"));
        assert_eq!(error.to_string(), "a/offcode.toml:3: no such key");
        let error = DescribeError::file(Path::new("a.wasm"), io::ErrorKind::NotFound.into());
        assert_eq!(
            error.to_string(),
            "a.wasm: entity not found; build it, by make in its directory"
        );
    }
}
