//! The files of a new offcode: `outboard offload new`.
//!
//! Never overwrites a file.

#[cfg(test)]
mod tests;

use super::fault::DescribeError;
use super::name::OffcodeName;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The header of guests in C.
pub const OFFCODE_H: &str = include_str!("../../guest/offcode.h");

/// Words of WIT, which are no names there unless `%` is in front.
const WIT_WORDS: &str = "\
    as async bool borrow char constructor enum export f32 f64 flags from func future import \
    include interface list map option own package record resource result s16 s32 s64 s8 \
    static stream string tuple type u16 u32 u64 u8 use variant with world";

/// The language of a new offcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SkeletonLanguage {
    /// C, by clang and lld.
    #[default]
    C,
    /// Rust, by Debian's rustc and lld.
    Rust,
}

/// The files of a new offcode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skeleton {
    /// Paths in the new directory, and their texts.
    pub files: Vec<(PathBuf, String)>,
}

impl Skeleton {
    /// An offcode of this name.
    ///
    /// # Errors
    /// The caller's fault: the name, which its interface has, too, is no name in WIT.
    pub fn new(name: &OffcodeName, language: SkeletonLanguage) -> Result<Self, SkeletonNameError> {
        let text = name.as_str();
        let is_word =
            text.split('-').all(|part| part.starts_with(|c: char| c.is_ascii_lowercase()));
        if !is_word {
            return Err(SkeletonNameError { name: name.clone() });
        }
        let wit = if WIT_WORDS.split(' ').any(|word| word == text) {
            format!("%{text}")
        } else {
            text.to_owned()
        };
        let source = match language {
            SkeletonLanguage::C => format!("{text}.c"),
            SkeletonLanguage::Rust => "lib.rs".to_owned(),
        };
        let fill = |template: &str| {
            template.replace("WITNAME", &wit).replace("SOURCE", &source).replace("NAME", text)
        };
        let mut files = vec![
            ("offcode.toml".to_owned(), fill(include_str!("../../guest/offcode.toml"))),
            (format!("wit/{text}.wit"), fill(include_str!("../../guest/NAME.wit"))),
            ("README.md".to_owned(), fill(include_str!("../../guest/README.md.txt"))),
        ];
        files.extend(match language {
            SkeletonLanguage::C => [
                ("Makefile".to_owned(), fill(include_str!("../../guest/c/Makefile"))),
                (source.clone(), fill(include_str!("../../guest/c/NAME.c"))),
                ("offcode.h".to_owned(), OFFCODE_H.to_owned()),
            ],
            SkeletonLanguage::Rust => [
                ("Makefile".to_owned(), fill(include_str!("../../guest/rust/Makefile"))),
                (source.clone(), fill(include_str!("../../guest/rust/lib.rs.txt"))),
                ("offcode.rs".to_owned(), include_str!("../../guest/rust/offcode.rs.txt").into()),
            ],
        });
        let files = files.into_iter().map(|(path, text)| (PathBuf::from(path), text)).collect();
        Ok(Self { files })
    }

    /// Writes the files into a directory, which is made if it is not there.
    ///
    /// # Errors
    /// [`DescribeError::File`]: a file is there already, or cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), DescribeError> {
        // First all that could be in the way, so that nothing is written then.
        for (path, _) in &self.files {
            let path = directory.join(path);
            if path.symlink_metadata().is_ok() {
                return Err(DescribeError::file(&path, io::ErrorKind::AlreadyExists.into()));
            }
        }
        for (path, text) in &self.files {
            let path = directory.join(path);
            write_new(&path, text).map_err(|source| DescribeError::file(&path, source))?;
        }
        Ok(())
    }
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

/// A name that an offcode may have, and an interface may not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name} would be no name in WIT: let each part between hyphens begin with a letter, as in \
     packet-filter2"
)]
pub struct SkeletonNameError {
    name: OffcodeName,
}
