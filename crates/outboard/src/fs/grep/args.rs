//! What grep's command line says.

use super::names::NameGlobs;
use clap::Args;
use outboard_fs::tools::{GrepBinary, GrepMode, GrepSyntax, GrepWish};
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// Find lines in files at their server, as grep(1) does.
///
/// Paths are HOST:/path, or paths in a mount. A pattern becomes a WebAssembly module, which runs
/// where the files are; only what it finds crosses the link.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:
  outboard fs grep -rn 'fn [a-z_]*_now(' shared/src
  outboard fs grep -rlF memcpy --include '*.c' n01:/",
    disable_help_flag = true,
    args_override_self = true
)]
#[expect(clippy::struct_excessive_bools, reason = "as many switches as grep has")]
pub(crate) struct GrepArgs {
    /// Patterns are basic regular expressions (the default).
    #[arg(short = 'G', long, overrides_with_all = ["extended_regexp", "fixed_strings"])]
    pub(super) basic_regexp: bool,
    /// Patterns are extended regular expressions.
    #[arg(short = 'E', long, overrides_with_all = ["basic_regexp", "fixed_strings"])]
    pub(super) extended_regexp: bool,
    /// Patterns are strings.
    #[arg(short = 'F', long, overrides_with_all = ["basic_regexp", "extended_regexp"])]
    pub(super) fixed_strings: bool,
    /// A pattern; as often as you like.
    #[arg(short = 'e', long = "regexp", value_name = "PATTERN", allow_hyphen_values = true)]
    pub(super) regexp: Vec<OsString>,
    /// A file of this machine with patterns, one a line.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(super) file: Vec<OsString>,
    /// Upper and lower case are the same.
    #[arg(short, long)]
    pub(super) ignore_case: bool,
    /// Lines that do not match.
    #[arg(short = 'v', long)]
    pub(super) invert_match: bool,
    /// Only whole words match.
    #[arg(short, long)]
    pub(super) word_regexp: bool,
    /// Only whole lines match.
    #[arg(short = 'x', long)]
    pub(super) line_regexp: bool,
    /// How many lines, of each file.
    #[arg(short, long)]
    pub(super) count: bool,
    /// Names of files with a line.
    #[arg(short = 'l', long, overrides_with = "files_without_match")]
    pub(super) files_with_matches: bool,
    /// Names of files without one.
    #[arg(short = 'L', long, overrides_with = "files_with_matches")]
    pub(super) files_without_match: bool,
    /// Nothing but the exit status.
    #[arg(short, long, visible_alias = "silent")]
    pub(super) quiet: bool,
    /// So many lines of each file, at most.
    #[arg(short, long, value_name = "NUM", allow_hyphen_values = true)]
    pub(super) max_count: Option<i64>,
    /// So many lines behind each as well.
    #[arg(short = 'A', long, value_name = "NUM", value_parser = lines_of)]
    pub(super) after_context: Option<u32>,
    /// So many lines before each.
    #[arg(short = 'B', long, value_name = "NUM", value_parser = lines_of)]
    pub(super) before_context: Option<u32>,
    /// So many lines before and behind each.
    #[arg(short = 'C', long, value_name = "NUM", value_parser = lines_of)]
    pub(super) context: Option<u32>,
    /// Only what matches, each on a line.
    #[arg(short, long)]
    pub(super) only_matching: bool,
    /// With line numbers.
    #[arg(short = 'n', long)]
    pub(super) line_number: bool,
    /// With the place of the first byte.
    #[arg(short, long)]
    pub(super) byte_offset: bool,
    /// With files' names.
    #[arg(short = 'H', long, overrides_with = "no_filename")]
    pub(super) with_filename: bool,
    /// Without them.
    #[arg(short = 'h', long, overrides_with = "with_filename")]
    pub(super) no_filename: bool,
    /// A byte of 0 behind files' names.
    #[arg(short = 'Z', long)]
    pub(super) null: bool,
    /// What cannot be read is not told.
    #[arg(short = 's', long)]
    pub(super) no_messages: bool,
    /// Directories, with all files below.
    #[arg(short, long)]
    pub(super) recursive: bool,
    /// Binary files are text.
    #[arg(short = 'a', long, overrides_with = "without_binary")]
    pub(super) text: bool,
    /// Binary files do not match.
    #[arg(short = 'I', overrides_with = "text")]
    pub(super) without_binary: bool,
    #[command(flatten)]
    pub(super) names: NameGlobs,
    /// A line of JSON for each line.
    #[arg(long)]
    pub(super) json: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    pub(super) help: Option<bool>,
    /// The pattern, without -e and -f, then paths.
    pub(super) words: Vec<OsString>,
}

/// More lines than there can be are all.
fn lines_of(word: &str) -> Result<u32, String> {
    match word.bytes().all(|byte| byte.is_ascii_digit()) && !word.is_empty() {
        true => Ok(word.parse().unwrap_or(u32::MAX)),
        false => Err("a number of lines is meant".to_owned()),
    }
}

type PatternsAndPaths = (Vec<Vec<u8>>, Vec<OsString>);

/// What is seen of a file's name before a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameShown {
    Always,
    Never,
    /// Where a directory was looked through.
    InDirectories,
}

impl GrepArgs {
    /// The patterns, and the paths.
    pub(super) fn patterns(&self) -> Result<PatternsAndPaths, Box<dyn Error>> {
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

    pub(super) fn syntax(&self) -> GrepSyntax {
        match self {
            Self { fixed_strings: true, .. } => GrepSyntax::Fixed,
            Self { extended_regexp: true, .. } => GrepSyntax::Extended,
            _ => GrepSyntax::Basic,
        }
    }

    pub(super) fn wish(&self) -> GrepWish {
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
        let around = if mode == GrepMode::Lines { self.around() } else { (0, 0) };
        GrepWish { mode, inverts, numbers, binary, most, around }
    }

    /// Lines before each, and behind it.
    pub(super) fn around(&self) -> (u32, u32) {
        let lines = |own: Option<u32>| own.or(self.context).unwrap_or(0);
        (lines(self.before_context), lines(self.after_context))
    }

    /// Lines that are not beside each other are set apart.
    pub(super) fn sets_apart(&self) -> bool {
        [self.after_context, self.before_context, self.context].iter().any(Option::is_some)
    }

    pub(super) fn shows(&self, paths: usize) -> NameShown {
        match self {
            Self { with_filename: true, .. } => NameShown::Always,
            Self { no_filename: true, .. } => NameShown::Never,
            _ if paths > 1 => NameShown::Always,
            Self { recursive: true, .. } => NameShown::InDirectories,
            _ => NameShown::Never,
        }
    }
}
