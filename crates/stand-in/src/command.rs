//! The parts of a compiler's command line that a stand-in needs.
//!
//! Understands one kind of command line only: one source compiled to one object (`-c`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Options whose value is a separate argument.
const WITH_VALUE: &[&str] = &[
    "-D",
    "-I",
    "-MF",
    "-MQ",
    "-MT",
    "-U",
    "-idirafter",
    "-imacros",
    "-include",
    "-iquote",
    "-isystem",
    "-o",
    "--param",
];
/// Options that distinguish compilations of one source and that no distributor removes.
const TELLING: &[&str] = &["-O", "-g", "-std="];
/// How preprocessed sources are called, and what `-x` says of those that are called otherwise.
const PREPROCESSED: &[&str] = &["i", "ii"];
const PREPROCESSED_LANGUAGES: &[&str] = &["cpp-output", "c++-cpp-output"];

/// A compilation of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The source's path as given.
    pub source: Source,
    /// The path of the object.
    pub object: PathBuf,
    /// The options that distinguish compilations of one source, in order.
    options: Vec<OsString>,
}

/// The input of a compilation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file of the project.
    Plain(PathBuf),
    /// A preprocessed file whose first line names its source.
    Preprocessed(PathBuf),
    /// A preprocessed text on standard input.
    Input,
}

impl Command {
    /// The compilation that the arguments ask for; `None` if they ask for something else.
    #[must_use]
    pub fn parse(words: &[OsString]) -> Option<Self> {
        let mut words = words.iter();
        let (mut compiles, mut source, mut object) = (false, None, None);
        let (mut options, mut preprocessed) = (Vec::new(), false);
        while let Some(word) = words.next() {
            match word.as_bytes() {
                b"-c" => compiles = true,
                b"-E" | b"-S" => return None,
                b"-x" => preprocessed = words.next().is_some_and(|word| is_preprocessed(word)),
                b"-o" => object = words.next().map(PathBuf::from),
                b"-" => source = Some(Source::Input),
                _ if WITH_VALUE.iter().any(|option| word == option) => drop(words.next()),
                _ if is_telling(word) => options.push(word.clone()),
                [b'-', ..] => {}
                _ if preprocessed => source = Some(Source::Preprocessed(word.into())),
                _ => source = Some(Source::of(Path::new(word))),
            }
        }
        let source = source.filter(|_| compiles)?;
        let object = object.or_else(|| source.default_object())?;
        Some(Self { source, object, options })
    }

    /// The name of the record for this compilation of `source`, a path relative to the project's
    /// root.
    #[must_use]
    pub fn key(&self, source: &Path) -> OsString {
        let mut key = flat(source.as_os_str());
        for option in &self.options {
            key.push(" ");
            key.push(flat(option));
        }
        key
    }
}

/// The text with all characters replaced that a file name cannot have.
fn flat(text: &OsStr) -> OsString {
    let bytes = text.as_bytes().iter().map(|byte| if *byte == b'/' { b'%' } else { *byte });
    OsString::from_vec(bytes.collect())
}

fn is_preprocessed(language: &OsStr) -> bool {
    PREPROCESSED_LANGUAGES.iter().any(|preprocessed| language == *preprocessed)
}

fn is_telling(word: &OsStr) -> bool {
    TELLING.iter().any(|option| word.as_bytes().starts_with(option.as_bytes()))
}

impl Source {
    fn of(path: &Path) -> Self {
        let preprocessed = PREPROCESSED.iter().any(|e| path.extension() == Some(OsStr::new(e)));
        let make = if preprocessed { Self::Preprocessed } else { Self::Plain };
        make(path.to_owned())
    }

    fn default_object(&self) -> Option<PathBuf> {
        match self {
            Self::Plain(path) | Self::Preprocessed(path) => {
                Some(Path::new(path.file_name()?).with_extension("o"))
            }
            Self::Input => None,
        }
    }
}

/// The source of a preprocessed text, named in its first line: `# 0 "src/server.c"`.
#[must_use]
pub fn origin(text: &[u8]) -> Option<&Path> {
    let line = text.split(|byte| *byte == b'\n').next()?;
    let from = line.iter().position(|byte| *byte == b'"')? + 1;
    let to = line.iter().rposition(|byte| *byte == b'"')?;
    line.get(from..to).map(|name| Path::new(OsStr::from_bytes(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Command> {
        Command::parse(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn options_that_distributors_take_away_do_not_matter() {
        let given = parse("-O2 -g -Isrc -I deps -DX -MF x.d -c src/a.c -o out/a.o").unwrap();
        let sent = parse("-O2 -g -c -o /tmp/1.o /tmp/1.i").unwrap();
        assert_eq!(given.source, Source::Plain("src/a.c".into()));
        assert_eq!(sent.source, Source::Preprocessed("/tmp/1.i".into()));
        assert_eq!(given.key(Path::new("src/a.c")), "src%a.c -O2 -g");
        assert_eq!(given.key(Path::new("src/a.c")), sent.key(Path::new("src/a.c")));
        let named = parse("-O2 -g -c -x cpp-output src/a.c -o a.o").unwrap();
        assert_eq!(named.source, Source::Preprocessed("src/a.c".into()));
        assert_ne!(given.key(Path::new("src/a.c")), parse("-O3 -c a.c").unwrap().key("".as_ref()));
    }

    #[test]
    fn the_source_may_come_on_standard_input() {
        let command = parse("-O2 -c --param ggc-min-expand=30 - -o a.o").unwrap();
        assert_eq!(command.source, Source::Input);
        assert_eq!(command.object, Path::new("a.o"));
    }

    #[test]
    fn without_an_object_the_compilers_default_is_used() {
        assert_eq!(parse("-c src/a.c").unwrap().object, Path::new("a.o"));
    }

    #[test]
    fn other_commands_are_not_replayed() {
        for line in ["-E -c a.c", "a.o -o a", "--version", "-c"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn preprocessed_text_says_where_it_is_from() {
        assert_eq!(origin(b"# 0 \"src/a.c\"\n# 0 \"b\"\n"), Some(Path::new("src/a.c")));
        assert_eq!(origin(b"int a;\n"), None);
    }
}
