//! A compilation in two halves: preprocessing at home, and everything else elsewhere.
//!
//! What cannot be taken apart so that both halves make what the whole makes is not: such a job is
//! handed over as it is. Columns are lost in any case, so debug information and coverage notes
//! differ in them, and diagnostics quote no source.

use super::classify::{option, value};
use super::table::{Means, Opt};
use super::words::{self, Words};
use super::{Job, Language, Output};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Words that change what the preprocessor writes, or that go into the object as they are.
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

/// The two halves' words, without the compiler's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Halves {
    /// What preprocesses, to standard output; it makes the file of dependencies as well.
    pub home: Vec<OsString>,
    /// What compiles the preprocessed source, which has the source's path.
    pub away: Vec<OsString>,
}

impl Job {
    /// The job's halves, if it has any: a source of C or C++ that gcc compiles.
    #[must_use]
    pub fn halves(&self) -> Option<Halves> {
        let language = match self.language {
            Language::C => "cpp-output",
            Language::Cxx => "c++-cpp-output",
            _ => return None,
        };
        let driver = self.compiler.file_name().map_or(&b""[..], OsStrExt::as_bytes);
        // What the working directory is called otherwise does not exist elsewhere.
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
    /// The dependencies' file was named.
    to: bool,
    /// Dependencies are wanted; true: their target was named.
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
        self.halves.home.push(word.into());
        self.halves.away.extend(["-x".into(), self.language.into(), word.into()]);
    }

    fn add<'a>(
        &mut self,
        opt: &Opt,
        words: impl Iterator<Item = &'a OsString> + Clone,
    ) -> Option<()> {
        let (home, away) = match opt.means {
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
        self.halves.home.extend(words.clone().filter(|_| home).cloned());
        self.halves.away.extend(words.filter(|_| away).cloned());
        Some(())
    }

    /// Dependencies are called, and are of, what they would be if one compiler did everything.
    fn finish(self) -> Halves {
        let Halves { mut home, mut away } = self.halves;
        let dependencies = self.job.outputs.iter().find_map(|output| match output {
            Output::Dependencies(path) => Some(path.as_path()),
            _ => None,
        });
        let mut name = |option: &str, path: &Path| home.extend([option.into(), path.into()]);
        if let (Some(named), Some(dependencies)) = (self.of, dependencies) {
            if !self.to {
                name("-MF", dependencies);
            }
            if !named {
                name("-MQ", self.job.object());
            }
        }
        home.push("-E".into());
        // The lines that diagnostics would quote are in no file elsewhere.
        away.push("-fno-diagnostics-show-caret".into());
        Halves { home, away }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Call, Plan, classify};
    use super::*;

    fn halves(line: &str) -> Option<[String; 2]> {
        let argv: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let compiler = Path::new("/usr/bin").join(&argv[0]);
        let env = vec![("PWD".into(), "/src".into())];
        let call = Call { compiler, argv, cwd: "/src".into(), env, ..Call::default() };
        let Plan::Remote(job) = classify(call) else { panic!("{line} stays at home") };
        let Halves { home, away } = job.halves()?;
        let line = |words: Vec<OsString>| {
            words.join(OsStr::new(" ")).into_string().expect("it was a text")
        };
        Some([line(home), line(away)])
    }

    #[test]
    fn each_half_has_the_words_that_it_needs() {
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
        for (line, home, away) in cases {
            let away = format!("{away} -fno-diagnostics-show-caret");
            assert_eq!(halves(line), Some([home.to_owned(), away]), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_taken_apart_stays_whole() {
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
