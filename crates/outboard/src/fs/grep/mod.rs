//! `outboard fs grep`: lines of files, found at their server.

mod args;
mod clusters;
mod names;

pub(crate) use args::GrepArgs;
pub(crate) use clusters::of_program as words_of_program;

use super::at::{FoundPlace, FsServers};
use super::trees::{Printer, moment, say};
use crate::Outcome;
use args::NameShown;
use outboard_fs::tools::{
    self, FindExpression, GrepBinary, GrepGoes, GrepMode, GrepPattern, GrepTeller, GrepTold,
    GrepTree, GrepWish, GrepWords, LastLink, LineMatcher, ToldError, TooManyParts, ToolError,
    errno_words,
};
use serde_json::json;
use std::collections::VecDeque;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

/// What was shown before the next line.
#[derive(Debug, Default)]
struct ShownBefore {
    /// Something was, in any file.
    is_there: bool,
    /// Where the last line that was shown ends, in this file.
    end: Option<u64>,
    /// A line since then cannot be shown, because it is not text: GNU grep shows none behind it for
    /// the sake of a line before.
    is_stuck: bool,
    /// Lines since then that may be shown for the sake of the next one.
    held: VecDeque<(FoundLine, Vec<u8>)>,
}

/// A line that was found, or stands beside one.
#[derive(Clone, Copy, Debug)]
struct FoundLine {
    number: u64,
    offset: u64,
    is_context: bool,
}

struct Grepping<'a> {
    args: &'a GrepArgs,
    pattern: GrepPattern,
    wish: GrepWish,
    is_utf8: bool,
    shows: NameShown,
    /// For -o.
    matcher: Option<LineMatcher>,
    before: ShownBefore,
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
    let can_match = args.max_count != Some(0) && (!patterns.is_empty() || args.invert_match);
    if !can_match && !args.files_without_match {
        // As GNU grep: no pattern and no path is looked at.
        return Ok(ExitCode::FAILURE);
    }
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
    let files = args.names.0.expression(moment())?;
    let mut grepping = Grepping {
        args,
        wish: args.wish(),
        is_utf8,
        shows: args.shows(paths.len()),
        matcher: args.only_matching.then(|| pattern.matcher()).transpose()?,
        pattern,
        before: ShownBefore::default(),
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
        let is_implied = self.cut > 0;
        let names = &self.args.names.0;
        if !is_implied && names.leaves_out(&place.shown, self.is_tree, self.is_utf8) {
            return Ok(GrepGoes::On);
        }
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
            GrepTold::Line { path, number, offset, bytes, is_context } => {
                let line = FoundLine { number, offset, is_context };
                self.next(path, line, bytes)?;
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

    /// A line that was found, or stands beside one.
    fn next(&mut self, path: &[u8], line: FoundLine, bytes: &[u8]) -> Result<(), ToolError> {
        if line.is_context && self.before.is_stuck {
            self.hold(line, bytes);
            return Ok(());
        }
        let held = std::mem::take(&mut self.before.held);
        let first = held.front().map_or(line.offset, |(line, _)| line.offset);
        self.set_apart(first)?;
        for (line, bytes) in &held {
            self.show(path, *line, bytes)?;
        }
        self.show(path, line, bytes)
    }

    /// Shows a line, or holds it.
    fn show(&mut self, path: &[u8], line: FoundLine, bytes: &[u8]) -> Result<(), ToolError> {
        self.before.is_there = true;
        if self.line(path, line, bytes)? {
            self.before.end = Some(line.offset + bytes.len() as u64);
            self.before.is_stuck = false;
            self.before.held.clear();
        } else {
            self.before.is_stuck = true;
            self.hold(line, bytes);
        }
        Ok(())
    }

    fn hold(&mut self, line: FoundLine, bytes: &[u8]) {
        let held = &mut self.before.held;
        held.push_back((FoundLine { is_context: true, ..line }, bytes.to_vec()));
        if held.len() > self.wish.around.0 as usize {
            held.pop_front();
        }
    }

    /// Between lines that are not beside each other.
    fn set_apart(&mut self, offset: u64) -> Result<(), ToolError> {
        let is_apart = self.before.is_there && self.before.end != Some(offset);
        match is_apart && self.args.sets_apart() && !self.args.json {
            true => self.printer.put(&[b"--\n"]),
            false => Ok(()),
        }
    }

    /// A line, or what matches in it; false if it is not text.
    fn line(&mut self, path: &[u8], line: FoundLine, bytes: &[u8]) -> Result<bool, ToolError> {
        if !self.args.only_matching {
            return self.put(path, line, bytes);
        }
        if self.args.invert_match || line.is_context {
            return Ok(true);
        }
        let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let mut at = 0;
        while at <= text.len() {
            let Some(matcher) = &mut self.matcher else { break };
            let fault = |error: TooManyParts| ToolError::Path {
                path: path.to_vec(),
                why: error.to_string(),
            };
            let Some(found) = matcher.find(text, at).map_err(fault)? else { break };
            if !found.is_empty() {
                let piece = [&text[found.clone()], b"\n"].concat();
                let offset = line.offset + found.start as u64;
                if !self.put(path, FoundLine { offset, ..line }, &piece)? {
                    return Ok(false);
                }
            }
            at = found.end.max(found.start + 1);
        }
        Ok(true)
    }

    /// A line, or a part of one; false if it is not text.
    fn put(&mut self, path: &[u8], line: FoundLine, bytes: &[u8]) -> Result<bool, ToolError> {
        let is_text = self.wish.binary == GrepBinary::Text || !self.is_utf8;
        if !is_text && std::str::from_utf8(bytes).is_err() {
            self.is_hidden = true;
            return Ok(false);
        }
        let path = &path[self.cut.min(path.len())..];
        match self.args.json {
            true => self.put_json(path, line, bytes)?,
            false => self.put_line(path, line, bytes)?,
        }
        Ok(true)
    }

    fn put_json(&mut self, path: &[u8], line: FoundLine, bytes: &[u8]) -> Result<(), ToolError> {
        let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let mut told = json!({
            "path": String::from_utf8_lossy(path),
            "offset": line.offset,
            "text": String::from_utf8_lossy(text),
        });
        if self.args.line_number {
            told["line"] = line.number.into();
        }
        if line.is_context {
            told["context"] = true.into();
        }
        self.printer.line(&told)
    }

    fn put_line(&mut self, path: &[u8], line: FoundLine, bytes: &[u8]) -> Result<(), ToolError> {
        let end: &[u8] = if line.is_context { b"-" } else { b":" };
        if self.is_shown() {
            self.printer.put(&[path, if self.args.null { b"\0" } else { end }])?;
        }
        if self.args.line_number {
            self.printer.put(&[line.number.to_string().as_bytes(), end])?;
        }
        if self.args.byte_offset {
            self.printer.put(&[line.offset.to_string().as_bytes(), end])?;
        }
        self.printer.put(&[bytes])
    }

    fn done(&mut self, path: &[u8], selected: u64, is_binary: bool) -> Result<GrepGoes, ToolError> {
        let path = &path[self.cut.min(path.len())..];
        let is_hidden = std::mem::take(&mut self.is_hidden);
        self.before = ShownBefore { is_there: self.before.is_there, ..ShownBefore::default() };
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
