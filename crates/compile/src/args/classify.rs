//! Decides from a command line where a call may run: first all words are looked up in the table and
//! noted, then the notes decide.

use super::environment;
use super::language::{self, Driver};
use super::outputs::Wanted;
use super::table::{self, Means, Opt, Shape};
use super::words::{self, Words};
use super::{Cause, DirectoryRole, Job, Language, NamedDirectory, Output, Reason};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A compiler's call, as its wrapper received it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompilerCall {
    /// The real compiler.
    pub compiler: PathBuf,
    /// The command line, the compiler's name first.
    pub argv: Vec<OsString>,
    /// The working directory, absolute.
    pub cwd: PathBuf,
    /// The variables of the environment that compilers read.
    pub env: Vec<(OsString, OsString)>,
    /// The variable `PATH`, in which the compiler searches for its assembler.
    pub path: OsString,
    /// The file mode creation mask.
    pub umask: u32,
    /// Standard error is a terminal, so that the compiler would use colour locally.
    pub terminal: bool,
}

impl CompilerCall {
    /// The call's name for users: that of its source, or else of its output, or else of the
    /// compiler.
    #[must_use]
    pub fn name(&self) -> String {
        let words = || self.argv.iter().skip(1);
        let made = words().skip_while(|word| *word != "-o").nth(1);
        let source = words().rfind(|word| {
            let extension = Path::new(word).extension();
            Some(*word) != made && extension.is_some() && !word.as_bytes().starts_with(b"-")
        });
        let source = source.filter(|_| words().any(|word| word == "-c" || word == "-S"));
        let path = source.or(made).map_or(self.compiler.as_path(), Path::new);
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    }
}

/// Where a call may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Classification {
    /// It may run remotely.
    Remote(Box<Job>),
    /// It must run locally.
    Local(Reason),
}

/// Decides where a call may run. Reads the response files that the call names, checks whether `PWD`
/// names the working directory, and looks at no other file.
#[must_use]
pub fn classify(call: CompilerCall) -> Classification {
    match plan(call) {
        Ok(job) => Classification::Remote(Box::new(job)),
        Err(reason) => Classification::Local(reason),
    }
}

fn plan(call: CompilerCall) -> Result<Job, Reason> {
    let name = || Reason::with(Cause::UnknownCompiler, call.compiler.as_os_str());
    let driver = language::driver(&call.compiler).ok_or_else(name)?;
    let Words { words, files, .. } = words::expand(call.argv.get(1..).unwrap_or(&[]), &call.cwd)?;
    let mut noted = Noted { files, ..Noted::default() };
    purpose(&words)?;
    noted.read(&words, driver)?;
    let (env, headers) = environment::choose(&call.env, &call.cwd)?;
    noted.directories.extend(headers);
    let path = environment::search_path(&call.path, &call.cwd)?;
    let (source, language) = noted.decide()?;
    let argv = noted.coloured(&call, &env);
    let outputs = noted.wanted.outputs(&source);
    let Noted { directories, files, .. } = noted;
    let CompilerCall { compiler, cwd, umask, .. } = call;
    let compiler = cwd.join(compiler);
    Ok(Job { compiler, argv, cwd, env, path, umask, source, language, outputs, directories, files })
}

/// A call that is no compilation runs locally for that reason, whatever its other words are.
fn purpose(words: &[OsString]) -> Result<(), Reason> {
    let has = |wanted: &[&str]| words.iter().any(|word| wanted.iter().any(|other| word == other));
    if has(&["-E", "-M", "-MM"]) {
        return Err(Cause::Preprocess.into());
    }
    if has(&["-c", "-S", "--compile", "-fsyntax-only"]) {
        return Ok(());
    }
    let asks = |word: &OsString| {
        let row = table::find(word.as_bytes()).filter(|_| word.as_bytes().starts_with(b"-"));
        row.filter(|row| row.means == Means::Local(Cause::Query))
    };
    Err(words.iter().find_map(asks).map_or(Cause::Link, |_| Cause::Query).into())
}

/// Everything that the words of a command line mean for the job.
#[derive(Debug, Default)]
struct Noted {
    sources: Vec<(OsString, Language)>,
    language: Option<Language>,
    wanted: Wanted,
    directories: Vec<NamedDirectory>,
    files: Vec<PathBuf>,
    colour: bool,
    recorded: bool,
    /// Why the first source that cannot be compiled remotely cannot be.
    local: Option<Reason>,
}

impl Noted {
    fn read(&mut self, words: &[OsString], driver: Driver) -> Result<(), Reason> {
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_bytes() {
                b"-" => return Err(Cause::StandardInput.into()),
                [b'-', _, ..] => {
                    let opt = option(word)?;
                    let value = value(&opt, word, &mut words)?;
                    self.note(opt.means, word, value)?;
                }
                _ => self.note_source(word, driver)?,
            }
        }
        Ok(())
    }

    fn note(&mut self, means: Means, word: &OsStr, value: &OsStr) -> Result<(), Reason> {
        match means {
            Means::Plain | Means::Compile => {}
            Means::Assemble => self.wanted.assembly = true,
            Means::Output => self.wanted.object = Some(value.into()),
            Means::Language => self.language = language::of_option(value)?,
            Means::Directory(role) => self.directories.push(directory(value, role)),
            Means::File => self.files.push(value.into()),
            Means::Dependencies => self.wanted.dependencies = true,
            Means::DependenciesTo => self.wanted.dependencies_to = Some(value.into()),
            Means::SplitDebug => self.wanted.split_debug = true,
            Means::StackUsage => self.wanted.stack_usage = true,
            Means::CoverageNotes => self.wanted.coverage_notes = true,
            Means::Colour => self.colour = true,
            Means::Recorded => self.recorded = true,
            Means::Tuning if value == "native" => return Err(Reason::with(Cause::Native, word)),
            Means::Tuning => {}
            Means::ForPreprocessor => self.note_preprocessor(word, value)?,
            Means::ForAssembler => self.note_assembler(word, value)?,
            Means::Local(cause) => return Err(Reason::with(cause, word)),
        }
        Ok(())
    }

    fn note_source(&mut self, word: &OsStr, driver: Driver) -> Result<(), Reason> {
        let by_name = || language::of_source(word, driver);
        match self.language.map_or_else(by_name, Ok) {
            Ok(language) => self.sources.push((word.to_owned(), language)),
            Err(cause) => {
                self.local = self.local.take().or_else(|| Some(Reason::with(cause, word)))
            }
        }
        Ok(())
    }

    /// `-Wp,-MD,FILE`: the file is the option's value there, as it is in the preprocessor itself.
    fn note_preprocessor(&mut self, word: &OsStr, value: &OsStr) -> Result<(), Reason> {
        let mut parts = value.as_bytes().split(|byte| *byte == b',').map(OsStr::from_bytes);
        while let Some(part) = parts.next() {
            match part.as_bytes() {
                b"-MD" | b"-MMD" => {
                    self.wanted.dependencies = true;
                    let file = parts.next().ok_or_else(|| malformed(word))?;
                    self.wanted.dependencies_to = Some(file.into());
                }
                b"-MT" | b"-MQ" => drop(parts.next()),
                b"-MP" => {}
                [b'-', b'D' | b'U', _, ..] => {}
                _ => return Err(Reason::with(Cause::UnknownOption, word)),
            }
        }
        Ok(())
    }

    fn note_assembler(&mut self, word: &OsStr, value: &OsStr) -> Result<(), Reason> {
        for part in value.as_bytes().split(|byte| *byte == b',') {
            let known = table::ASSEMBLER.iter().any(|known| match known.strip_suffix('*') {
                Some(start) => part.starts_with(start.as_bytes()),
                None => part == known.as_bytes(),
            });
            match part {
                _ if known => {}
                [b'-', b'I', path @ ..] if !path.is_empty() => {
                    self.directories
                        .push(directory(OsStr::from_bytes(path), DirectoryRole::Include));
                }
                _ => return Err(Reason::with(Cause::UnknownOption, word)),
            }
        }
        Ok(())
    }

    /// The source, if there is exactly one and it may be compiled remotely.
    fn decide(&mut self) -> Result<(PathBuf, Language), Reason> {
        if let Some(reason) = self.local.take() {
            return Err(reason);
        }
        if !self.wanted.is_ordinary() {
            return Err(Cause::StandardOutput.into());
        }
        let mut sources = self.sources.drain(..);
        match (sources.next(), sources.next()) {
            (Some((source, language)), None) => Ok((source.into(), language)),
            (None, _) => Err(Cause::NoSource.into()),
            (Some(_), Some(_)) => Err(Cause::ManySources.into()),
        }
    }

    /// The command line for the remote compiler. Its standard error is no terminal, so an option
    /// asks for colour if the local compiler would use it; not if the command line goes into the
    /// object.
    fn coloured(&self, call: &CompilerCall, env: &[(OsString, OsString)]) -> Vec<OsString> {
        let mut argv = call.argv.clone();
        let set = |name: &str, value: &str| env.iter().any(|(n, v)| n == name && v == value);
        let wanted = call.terminal && !set("TERM", "dumb") && !set("GCC_COLORS", "");
        if wanted && !self.colour && !self.recorded {
            argv.insert(1, "-fdiagnostics-color=always".into());
        }
        argv
    }
}

pub(super) fn option(word: &OsStr) -> Result<Opt, Reason> {
    let unknown = || Reason::with(Cause::UnknownOption, word);
    if let Some(opt) = table::find(word.as_bytes()) {
        return Ok(opt);
    }
    if table::is_flag(word.to_str().ok_or_else(unknown)?) {
        return Ok(Opt { name: "-f", shape: Shape::Joined, means: Means::Plain });
    }
    Err(unknown())
}

/// The option's argument: the rest of its word, or the next word.
pub(super) fn value<'a>(
    opt: &Opt,
    word: &'a OsStr,
    words: &mut std::slice::Iter<'a, OsString>,
) -> Result<&'a OsStr, Reason> {
    let rest = OsStr::from_bytes(&word.as_bytes()[opt.name.len()..]);
    let separate = opt.shape == Shape::Next || opt.shape == Shape::Either && rest.is_empty();
    if separate {
        words.next().map(OsString::as_os_str).ok_or_else(|| malformed(word))
    } else {
        Ok(rest)
    }
}

fn malformed(word: &OsStr) -> Reason {
    Reason::with(Cause::Malformed, word)
}

fn directory(path: &OsStr, role: DirectoryRole) -> NamedDirectory {
    NamedDirectory { path: Path::new(path).into(), role }
}

impl Job {
    /// The object's path, as the command line has it.
    #[must_use]
    pub fn object(&self) -> &Path {
        self.outputs.first().map_or_else(|| Path::new(""), Output::path)
    }
}
