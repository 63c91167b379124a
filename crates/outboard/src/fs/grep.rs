//! `outboard fs grep`: lines of files, found at their server.

use super::at::{FoundPlace, FsServers};
use super::trees::{Printer, moment, say};
use crate::Outcome;
use clap::Args;
use outboard_fs::tools::{
    self, FindExpression, GrepBinary, GrepGoes, GrepMode, GrepPattern, GrepSyntax, GrepTeller,
    GrepTold, GrepTree, GrepWish, GrepWords, LastLink, LineMatcher, ToldError, TooManyParts,
    ToolError, errno_words,
};
use serde_json::json;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// Find lines in files at their server, as grep(1) does.
///
/// Paths are HOST:/path, or paths in a mount. A pattern becomes a WebAssembly module, which runs
/// where the files are; only what it finds crosses the link.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:
  outboard fs grep -rn 'fn [a-z_]*_now(' shared/src
  outboard fs grep -rlF memcpy --include '*.c' n01:/",
    disable_help_flag = true
)]
#[expect(clippy::struct_excessive_bools, reason = "as many switches as grep has")]
pub(crate) struct GrepArgs {
    /// Patterns are basic regular expressions (the default).
    #[arg(short = 'G', long, overrides_with_all = ["extended_regexp", "fixed_strings"])]
    basic_regexp: bool,
    /// Patterns are extended regular expressions.
    #[arg(short = 'E', long, overrides_with_all = ["basic_regexp", "fixed_strings"])]
    extended_regexp: bool,
    /// Patterns are strings.
    #[arg(short = 'F', long, overrides_with_all = ["basic_regexp", "extended_regexp"])]
    fixed_strings: bool,
    /// A pattern; as often as you like.
    #[arg(short = 'e', long = "regexp", value_name = "PATTERN", allow_hyphen_values = true)]
    regexp: Vec<OsString>,
    /// A file of this machine with patterns, one a line.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Vec<OsString>,
    /// Upper and lower case are the same.
    #[arg(short, long)]
    ignore_case: bool,
    /// Lines that do not match.
    #[arg(short = 'v', long)]
    invert_match: bool,
    /// Only whole words match.
    #[arg(short, long)]
    word_regexp: bool,
    /// Only whole lines match.
    #[arg(short = 'x', long)]
    line_regexp: bool,
    /// How many lines, of each file.
    #[arg(short, long)]
    count: bool,
    /// Names of files with a line.
    #[arg(short = 'l', long, overrides_with = "files_without_match")]
    files_with_matches: bool,
    /// Names of files without one.
    #[arg(short = 'L', long, overrides_with = "files_with_matches")]
    files_without_match: bool,
    /// Nothing but the exit status.
    #[arg(short, long, visible_alias = "silent")]
    quiet: bool,
    /// So many lines of each file, at most.
    #[arg(short, long, value_name = "NUM", allow_hyphen_values = true)]
    max_count: Option<i64>,
    /// Only what matches, each on a line.
    #[arg(short, long)]
    only_matching: bool,
    /// With line numbers.
    #[arg(short = 'n', long)]
    line_number: bool,
    /// With the place of the first byte.
    #[arg(short, long)]
    byte_offset: bool,
    /// With files' names.
    #[arg(short = 'H', long, overrides_with = "no_filename")]
    with_filename: bool,
    /// Without them.
    #[arg(short = 'h', long, overrides_with = "with_filename")]
    no_filename: bool,
    /// A byte of 0 behind files' names.
    #[arg(short = 'Z', long)]
    null: bool,
    /// What cannot be read is not told.
    #[arg(short = 's', long)]
    no_messages: bool,
    /// Directories, with all files below.
    #[arg(short, long)]
    recursive: bool,
    /// Binary files are text.
    #[arg(short = 'a', long, overrides_with = "without_binary")]
    text: bool,
    /// Binary files do not match.
    #[arg(short = 'I', overrides_with = "text")]
    without_binary: bool,
    /// Of directories only files with such names.
    #[arg(long, value_name = "GLOB")]
    include: Vec<OsString>,
    /// No files with such names.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<OsString>,
    /// Nothing in directories with such names.
    #[arg(long, value_name = "GLOB")]
    exclude_dir: Vec<OsString>,
    /// A line of JSON for each line.
    #[arg(long)]
    json: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The pattern, without -e and -f, then paths.
    words: Vec<OsString>,
}

type PatternsAndPaths = (Vec<Vec<u8>>, Vec<OsString>);

/// What is seen of a file's name before a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameShown {
    Always,
    Never,
    /// Where a directory was looked through.
    InDirectories,
}

struct Grepping<'a> {
    args: &'a GrepArgs,
    pattern: GrepPattern,
    wish: GrepWish,
    is_utf8: bool,
    shows: NameShown,
    /// For -o.
    matcher: Option<LineMatcher>,
    printer: Printer,
    /// A line was found; something failed.
    has_found: bool,
    has_failed: bool,
    /// In the file: a line is not shown because it is not text.
    is_hidden: bool,
    /// The path is a directory.
    is_tree: bool,
    /// What of paths is not shown.
    cut: usize,
}

pub(crate) fn grep(args: &GrepArgs) -> Result<ExitCode, Box<dyn Error>> {
    match run(args) {
        Ok(code) => Ok(code),
        Err(error) => {
            eprintln!("outboard: {error}");
            Ok(ExitCode::from(2))
        }
    }
}

fn run(args: &GrepArgs) -> Result<ExitCode, Box<dyn Error>> {
    let is_utf8 = moment().is_utf8;
    let (patterns, mut paths) = args.patterns()?;
    let is_implied = paths.is_empty() && args.recursive;
    if is_implied {
        paths.push(OsString::from("."));
    }
    if paths.is_empty() {
        return Err("name files: HOST:/path, or paths in a mount".into());
    }
    let words = GrepWords {
        patterns,
        syntax: args.syntax(),
        folds: args.ignore_case,
        is_word: args.word_regexp,
        is_line: args.line_regexp,
        is_utf8,
    };
    let pattern = GrepPattern::compile(&words)?;
    let files = args.files()?;
    let mut grepping = Grepping {
        args,
        wish: args.wish(),
        is_utf8,
        shows: args.shows(paths.len()),
        matcher: args.only_matching.then(|| pattern.matcher()).transpose()?,
        pattern,
        printer: Printer::new(),
        has_found: false,
        has_failed: false,
        is_hidden: false,
        is_tree: false,
        cut: if is_implied { 2 } else { 0 },
    };
    let mut servers = FsServers::default();
    for path in &paths {
        let ended = grepping.path(&mut servers, path, &files);
        let goes = *ended.as_ref().unwrap_or(&GrepGoes::On);
        grepping.ended(ended.map(drop));
        if goes == GrepGoes::Stop || grepping.printer.is_closed {
            break;
        }
    }
    Ok(grepping.code())
}

impl GrepArgs {
    /// The patterns, and the paths.
    fn patterns(&self) -> Result<PatternsAndPaths, Box<dyn Error>> {
        let mut patterns: Vec<Vec<u8>> =
            self.regexp.iter().map(|word| word.as_bytes().to_vec()).collect();
        for path in &self.file {
            let mut bytes =
                fs::read(path).map_err(|error| format!("{}: {error}", path.to_string_lossy()))?;
            // A file without lines has no pattern.
            if bytes.pop_if(|last| *last == b'\n').is_some() || !bytes.is_empty() {
                patterns.push(bytes);
            }
        }
        let mut paths = self.words.clone();
        if self.regexp.is_empty() && self.file.is_empty() {
            if paths.is_empty() {
                return Err("there is no pattern: outboard fs grep PATTERN PATH...".into());
            }
            patterns.push(paths.remove(0).as_bytes().to_vec());
        }
        Ok((patterns, paths))
    }

    fn syntax(&self) -> GrepSyntax {
        match self {
            Self { fixed_strings: true, .. } => GrepSyntax::Fixed,
            Self { extended_regexp: true, .. } => GrepSyntax::Extended,
            _ => GrepSyntax::Basic,
        }
    }

    fn wish(&self) -> GrepWish {
        let names = self.files_with_matches || self.files_without_match;
        let mode = match self {
            Self { quiet: true, .. } => GrepMode::First,
            _ if names => GrepMode::First,
            Self { count: true, .. } => GrepMode::Count,
            _ => GrepMode::Lines,
        };
        let binary = match self {
            Self { text: true, .. } => GrepBinary::Text,
            Self { without_binary: true, .. } => GrepBinary::Skipped,
            _ => GrepBinary::Binary,
        };
        let most = self.max_count.and_then(|most| u64::try_from(most).ok()).unwrap_or(u64::MAX);
        let (inverts, numbers) = (self.invert_match, self.line_number);
        GrepWish { mode, inverts, numbers, binary, most }
    }

    fn shows(&self, paths: usize) -> NameShown {
        match self {
            Self { with_filename: true, .. } => NameShown::Always,
            Self { no_filename: true, .. } => NameShown::Never,
            _ if paths > 1 => NameShown::Always,
            Self { recursive: true, .. } => NameShown::InDirectories,
            _ => NameShown::Never,
        }
    }

    /// Which files of directories are meant, in find's words.
    fn files(&self) -> Result<FindExpression, ToolError> {
        let mut words: Vec<OsString> = [".", "-mindepth", "1"].map(OsString::from).into();
        let any = |words: &mut Vec<OsString>, globs: &[OsString]| {
            words.push("(".into());
            words.push("-false".into());
            for glob in globs {
                words.extend(["-o", "-name"].map(OsString::from));
                words.push(glob.clone());
            }
            words.push(")".into());
        };
        words.extend(["-type", "d"].map(OsString::from));
        any(&mut words, &self.exclude_dir);
        words.extend(["-prune", "-o", "-type", "f", "!"].map(OsString::from));
        any(&mut words, &self.exclude);
        if !self.include.is_empty() {
            any(&mut words, &self.include);
        }
        words.push("-print".into());
        FindExpression::parse(&words, moment())
    }
}

impl Grepping<'_> {
    fn path(
        &mut self,
        servers: &mut FsServers,
        path: &OsStr,
        files: &FindExpression,
    ) -> Result<GrepGoes, Box<dyn Error>> {
        let found = servers.find_as(path, LastLink::IsFollowed)?;
        let FoundPlace { place, client, caller, root } = &found;
        self.is_tree = root.is_directory();
        if self.is_tree && !self.args.recursive {
            let (path, why) = (place.shown.clone(), errno_words(21));
            return Err(ToolError::Path { path, why }.into());
        }
        let tree = GrepTree { root, shown: &place.shown, files };
        let (pattern, wish) = (self.pattern.clone(), self.wish);
        let (mut has_failed, is_silent) = (false, self.args.no_messages);
        let mut failed = |error: ToldError<'_>| {
            has_failed = true;
            if !is_silent {
                say(error);
            }
        };
        let mut told = |told: &GrepTold<'_>| self.told(told);
        let teller = GrepTeller { told: &mut told, failed: &mut failed };
        let ended = tools::grep(client, caller, &tree, (&pattern, &wish), teller);
        self.has_failed |= has_failed;
        Ok(ended?)
    }

    fn ended(&mut self, ended: Outcome) {
        let is_silent = self.args.no_messages
            && matches!(&ended, Err(error) if error.downcast_ref::<ToolError>()
                .is_some_and(|error| !matches!(error, ToolError::Output(_))));
        if is_silent {
            self.has_failed = true;
            return;
        }
        self.has_failed |= self.printer.ended(ended);
    }

    fn code(&self) -> ExitCode {
        match self {
            Self { has_found: true, has_failed: true, .. } if self.args.quiet => ExitCode::SUCCESS,
            Self { has_failed: true, .. } => ExitCode::from(2),
            Self { has_found: true, .. } => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }

    fn told(&mut self, told: &GrepTold<'_>) -> Result<GrepGoes, ToolError> {
        match *told {
            GrepTold::Line { path, number, offset, bytes } => {
                self.line(path, (number, offset), bytes)?;
                Ok(GrepGoes::On)
            }
            GrepTold::Done { path, selected, is_binary } => self.done(path, selected, is_binary),
        }
    }

    fn is_shown(&self) -> bool {
        match self.shows {
            NameShown::Always => true,
            NameShown::Never => false,
            NameShown::InDirectories => self.is_tree,
        }
    }

    fn line(
        &mut self,
        path: &[u8],
        (number, offset): (u64, u64),
        bytes: &[u8],
    ) -> Result<(), ToolError> {
        if !self.args.only_matching {
            return self.put(path, (number, offset), bytes);
        }
        if self.args.invert_match {
            return Ok(());
        }
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let mut at = 0;
        while at <= line.len() {
            let Some(matcher) = &mut self.matcher else { return Ok(()) };
            let fault = |error: TooManyParts| ToolError::Path {
                path: path.to_vec(),
                why: error.to_string(),
            };
            let Some(found) = matcher.find(line, at).map_err(fault)? else { return Ok(()) };
            if !found.is_empty() {
                let piece = [&line[found.clone()], b"\n"].concat();
                self.put(path, (number, offset + found.start as u64), &piece)?;
            }
            at = found.end.max(found.start + 1);
        }
        Ok(())
    }

    /// A line, or a part of one.
    fn put(
        &mut self,
        path: &[u8],
        (number, offset): (u64, u64),
        bytes: &[u8],
    ) -> Result<(), ToolError> {
        let is_text = self.wish.binary == GrepBinary::Text || !self.is_utf8;
        if !is_text && std::str::from_utf8(bytes).is_err() {
            self.is_hidden = true;
            return Ok(());
        }
        let path = &path[self.cut.min(path.len())..];
        if self.args.json {
            let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
            let mut line = json!({
                "path": String::from_utf8_lossy(path),
                "offset": offset,
                "text": String::from_utf8_lossy(text),
            });
            if self.args.line_number {
                line["line"] = number.into();
            }
            return self.printer.line(&line);
        }
        if self.is_shown() {
            let end: &[u8] = if self.args.null { b"\0" } else { b":" };
            self.printer.put(&[path, end])?;
        }
        if self.args.line_number {
            self.printer.put(&[number.to_string().as_bytes(), b":"])?;
        }
        if self.args.byte_offset {
            self.printer.put(&[offset.to_string().as_bytes(), b":"])?;
        }
        self.printer.put(&[bytes])
    }

    fn done(&mut self, path: &[u8], selected: u64, is_binary: bool) -> Result<GrepGoes, ToolError> {
        let path = &path[self.cut.min(path.len())..];
        let is_hidden = std::mem::take(&mut self.is_hidden);
        self.has_found |= selected > 0;
        if self.args.quiet {
            return Ok(if selected > 0 { GrepGoes::Stop } else { GrepGoes::On });
        }
        if self.wish.mode == GrepMode::First {
            if (selected > 0) == self.args.files_with_matches {
                let end: &[u8] = if self.args.null { b"\0" } else { b"\n" };
                match self.args.json {
                    true => {
                        self.printer.line(&json!({ "path": String::from_utf8_lossy(path) }))?;
                    }
                    false => self.printer.put(&[path, end])?,
                }
            }
        } else if self.wish.mode == GrepMode::Count {
            self.count(path, selected)?;
        } else if (is_hidden && self.wish.binary == GrepBinary::Binary) || is_binary {
            self.printer.flush()?;
            eprintln!("grep: {}: binary file matches", String::from_utf8_lossy(path));
        }
        Ok(GrepGoes::On)
    }

    fn count(&mut self, path: &[u8], selected: u64) -> Result<(), ToolError> {
        if self.args.json {
            let path = String::from_utf8_lossy(path);
            return self.printer.line(&json!({ "path": path, "lines": selected }));
        }
        if self.is_shown() {
            let end: &[u8] = if self.args.null { b"\0" } else { b":" };
            self.printer.put(&[path, end])?;
        }
        self.printer.put(&[selected.to_string().as_bytes(), b"\n"])
    }
}
