//! Replaces response files (`@file`) on a command line by the words in them, as compilers do.
//!
//! Words are split as libiberty's `buildargv` splits them: white space separates, quotes of both
//! kinds hold together, a backslash takes the next byte as it is. A response file may name others.

use super::{Cause, Reason};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Response files that one command line may name; a compiler stops at 2000.
const FILES_MAX: usize = 64;
/// Bytes of all response files together.
const BYTES_MAX: u64 = 4 << 20;

/// The words after expansion, and the files that they came from.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// What the compiler will see.
    pub(super) words: Vec<OsString>,
    /// The response files, as named.
    pub(super) files: Vec<PathBuf>,
    bytes: u64,
}

/// Expands `words`; relative names are relative to `cwd`.
pub(super) fn expand(words: &[OsString], cwd: &Path) -> Result<Words, Reason> {
    let mut all = Words::default();
    all.words.reserve(words.len());
    words.iter().try_for_each(|word| all.add(word, cwd))?;
    Ok(all)
}

impl Words {
    fn add(&mut self, word: &OsStr, cwd: &Path) -> Result<(), Reason> {
        match word.as_bytes() {
            [b'@', name @ ..] if !name.is_empty() => self.add_file(OsStr::from_bytes(name), cwd),
            _ => {
                self.words.push(word.to_owned());
                Ok(())
            }
        }
    }

    fn add_file(&mut self, name: &OsStr, cwd: &Path) -> Result<(), Reason> {
        let unusable = || Reason::with(Cause::Malformed, name);
        if self.files.len() == FILES_MAX {
            return Err(unusable());
        }
        let text = self.read(&cwd.join(name)).ok_or_else(unusable)?;
        self.files.push(name.into());
        split(&text).into_iter().try_for_each(|word| self.add(&OsString::from_vec(word), cwd))
    }

    /// The file's bytes; `None` when it is no ordinary file or too large.
    fn read(&mut self, path: &Path) -> Option<Vec<u8>> {
        // A fifo would wait for its writer.
        if !std::fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let left = BYTES_MAX - self.bytes;
        let mut text = Vec::new();
        let read = File::open(path).ok()?.take(left + 1).read_to_end(&mut text).ok()? as u64;
        self.bytes += read.min(left);
        (read <= left).then_some(text)
    }
}

fn split(text: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\\', _) => word.get_or_insert_default().extend(bytes.next()),
            (_, Some(open)) if byte == open => quote = None,
            (_, Some(_)) => word.get_or_insert_default().push(byte),
            (b'\'' | b'"', None) => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, None) => words.extend(word.take()),
            (_, None) => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_compilers_split_them() {
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            ("  -c\tx.c\r\n", &["-c", "x.c"]),
            (r#"-DA="a b" '-DB="x"'"#, &["-DA=a b", r#"-DB="x""#]),
            (r"-D\ a\\b \'", &[r"-D a\b", "'"]),
            (r#""" ''"#, &["", ""]),
            (r#""a\"b""#, &[r#"a"b"#]),
            ("'open to the end", &["open to the end"]),
        ];
        for (text, words) in cases {
            let split: Vec<String> =
                split(text.as_bytes()).into_iter().map(|w| String::from_utf8(w).unwrap()).collect();
            assert_eq!(&split, words, "{text}");
        }
    }

    #[test]
    fn response_files_name_others_and_end_when_they_name_themselves() {
        let dir = std::env::temp_dir().join(format!("outboard-words-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("a"), "-O2 @b -g").unwrap();
        std::fs::write(dir.join("b"), "-Wall").unwrap();
        std::fs::write(dir.join("loop"), "@loop").unwrap();
        let words = |word: &str| expand(&["-c".into(), word.into()], &dir);
        let expanded = words("@a").unwrap();
        assert_eq!(expanded.words, ["-c", "-O2", "-Wall", "-g"]);
        assert_eq!(expanded.files, [Path::new("a"), Path::new("b")]);
        for bad in ["@loop", "@absent", "@/dev/null", "@."] {
            assert_eq!(words(bad).unwrap_err().cause, Cause::Malformed, "{bad}");
        }
        assert_eq!(words("@").unwrap().words, ["-c", "@"]);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
