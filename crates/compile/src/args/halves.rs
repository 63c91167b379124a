//! Splits a compilation into two halves: local preprocessing, and remote compilation of the result.
//!
//! A job whose two halves would not give the result of the whole is not split, but handed over as
//! it is. Column numbers are lost in any case, so debug information and coverage notes differ in
//! them, and diagnostics quote no source.

use super::classify::{option, value};
use super::table::{Means, Opt};
use super::words::{self, Words};
use super::{Job, Language, Output};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Options that prevent splitting: they change the preprocessor's output, or go into the object.
const WHOLE: &[&str] = &[
    "-P",
    "-C",
    "-CC",
    "-H",
    "-traditional",
    "-traditional-cpp",
    "-fdebug-cpp",
    "-fdirectives-only",
    "-fno-working-directory",
    "-fpreprocessed",
    "-fuse-line-directives",
];
/// Options that only the preprocessor reads.
const PREPROCESSOR: &[&str] = &["-D", "-U", "-MT", "-MQ", "-MP", "-MV"];

/// The command lines of the two halves, without the compiler's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Halves {
    /// Preprocesses to standard output, and writes the file of dependencies.
    pub local: Vec<OsString>,
    /// Compiles the preprocessed source, which has the source's path.
    pub remote: Vec<OsString>,
}

impl Job {
    /// The job's halves, if it can be split: only C and C++ for GCC can.
    #[must_use]
    pub fn halves(&self) -> Option<Halves> {
        let language = match self.language {
            Language::C => "cpp-output",
            Language::Cxx => "c++-cpp-output",
            _ => return None,
        };
        let driver = self.compiler.file_name().map_or(&b""[..], OsStrExt::as_bytes);
        // Another path to the working directory does not exist on the server.
        let elsewhere = |(name, value): &(OsString, OsString)| name == "PWD" && value != &self.cwd;
        if driver.windows(5).any(|part| part == b"clang") || self.env.iter().any(elsewhere) {
            return None;
        }
        let Words { words, .. } = words::expand(self.argv.get(1..)?, &self.cwd).ok()?;
        let mut making =
            Making { job: self, language, halves: Halves::default(), to: false, of: None };
        making.read(&words)?;
        Some(making.finish())
    }
}

struct Making<'a> {
    job: &'a Job,
    language: &'a str,
    halves: Halves,
    /// Whether the file of dependencies is named.
    to: bool,
    /// Whether dependencies are wanted; if so, whether their target is named.
    of: Option<bool>,
}

impl Making<'_> {
    fn read(&mut self, words: &[OsString]) -> Option<()> {
        let mut named = false;
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            if !matches!(word.as_bytes(), [b'-', _, ..]) {
                self.add_source(word);
                continue;
            }
            if WHOLE.iter().any(|whole| word == whole) {
                return None;
            }
            let (opt, before) = (option(word).ok()?, rest.as_slice());
            value(&opt, word, &mut rest).ok()?;
            named |= matches!(opt.name, "-MT" | "-MQ");
            let next = before.first().filter(|_| rest.len() < before.len());
            self.add(&opt, [Some(word), next].into_iter().flatten())?;
        }
        self.of = self.of.map(|_| named);
        Some(())
    }

    fn add_source(&mut self, word: &OsStr) {
        self.halves.local.push(word.into());
        self.halves.remote.extend(["-x".into(), self.language.into(), word.into()]);
    }

    fn add<'a>(
        &mut self,
        opt: &Opt,
        words: impl Iterator<Item = &'a OsString> + Clone,
    ) -> Option<()> {
        let (local, remote) = match opt.means {
            Means::Recorded => return None,
            Means::Compile | Means::Assemble | Means::Output => (false, true),
            Means::Directory(_) | Means::File | Means::ForPreprocessor | Means::Language => {
                (true, false)
            }
            Means::Dependencies => {
                self.of = Some(false);
                (true, false)
            }
            Means::DependenciesTo => {
                self.to = true;
                (true, false)
            }
            _ => (true, !PREPROCESSOR.contains(&opt.name)),
        };
        self.halves.local.extend(words.clone().filter(|_| local).cloned());
        self.halves.remote.extend(words.filter(|_| remote).cloned());
        Some(())
    }

    /// Names the file of dependencies and their target as the whole compilation would.
    fn finish(self) -> Halves {
        let Halves { mut local, mut remote } = self.halves;
        let dependencies = self.job.outputs.iter().find_map(|output| match output {
            Output::Dependencies(path) => Some(path.as_path()),
            _ => None,
        });
        let mut name = |option: &str, path: &Path| local.extend([option.into(), path.into()]);
        if let (Some(named), Some(dependencies)) = (self.of, dependencies) {
            if !self.to {
                name("-MF", dependencies);
            }
            if !named {
                name("-MQ", self.job.object());
            }
        }
        local.push("-E".into());
        // The remote compiler has no file with the lines that diagnostics would quote.
        remote.push("-fno-diagnostics-show-caret".into());
        Halves { local, remote }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Classification, CompilerCall, classify};
    use super::*;

    fn halves(line: &str) -> Option<[String; 2]> {
        let argv: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let compiler = Path::new("/usr/bin").join(&argv[0]);
        let env = vec![("PWD".into(), "/src".into())];
        let call =
            CompilerCall { compiler, argv, cwd: "/src".into(), env, ..CompilerCall::default() };
        let Classification::Remote(job) = classify(call) else { panic!("{line} runs locally") };
        let Halves { local, remote } = job.halves()?;
        let line = |words: Vec<OsString>| {
            words.join(OsStr::new(" ")).into_string().expect("it was a text")
        };
        Some([line(local), line(remote)])
    }

    #[test]
    fn each_half_has_the_options_that_it_needs() {
        let cases = [
            (
                "gcc -O2 -g -DA=1 -D B -I inc -Iother -include x.h -c a.c -o o/a.o",
                "-O2 -g -DA=1 -D B -I inc -Iother -include x.h a.c -E",
                "-O2 -g -c -x cpp-output a.c -o o/a.o",
            ),
            (
                "g++ -MD -MP -std=c++17 -S a.cc",
                "-MD -MP -std=c++17 a.cc -MF a.d -MQ a.s -E",
                "-std=c++17 -S -x c++-cpp-output a.cc",
            ),
            (
                "gcc -MMD -MF d/a -MT all -x c -c a.inc -o a.o",
                "-MMD -MF d/a -MT all -x c a.inc -E",
                "-c -x cpp-output a.inc -o a.o",
            ),
            ("gcc -Wp,-MD,.a.d -c a.c", "-Wp,-MD,.a.d a.c -E", "-c -x cpp-output a.c"),
        ];
        for (line, local, remote) in cases {
            let remote = format!("{remote} -fno-diagnostics-show-caret");
            assert_eq!(halves(line), Some([local.to_owned(), remote]), "{line}");
        }
    }

    #[test]
    fn jobs_that_cannot_be_split_stay_whole() {
        for line in [
            "gcc -c a.i",
            "gcc -c a.S",
            "gcc -P -c a.c",
            "gcc -frecord-gcc-switches -c a.c",
            "gcc -fdirectives-only -c a.c",
            "clang -c a.c",
        ] {
            assert_eq!(halves(line), None, "{line}");
        }
    }
}
