//! find's arguments: which names, how deep, and what is done with them.

use super::ToolError;
use super::numbers::{count, days, later, minutes, size};
use super::program::{
    Characters, FindTest, Joined, NumberComparison, NumberField, PatternOf, TimeField, program_of,
};
use super::{accounts, rights};
use crate::protocol::{MAY_EXECUTE, MAY_READ, MAY_WRITE};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

/// What is done with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindAction {
    /// Its path on a line.
    Print,
    /// Its path, and a byte of 0.
    PrintZero,
    /// It is removed.
    Delete,
}

/// When and where an expression is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FindMoment {
    /// Nanoseconds since 1970.
    pub now_ns: i64,
    /// Whether names are in UTF-8.
    pub is_utf8: bool,
}

/// See this file's first lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindExpression {
    /// Where it begins.
    pub paths: Vec<OsString>,
    /// As `modules/find/find.h` says.
    pub(super) program: Vec<u8>,
    /// By their places.
    pub(super) actions: Vec<FindAction>,
    pub(super) min_depth: u32,
    pub(super) max_depth: u32,
    /// What is in a directory comes before it.
    pub(super) is_depth_first: bool,
}

struct Parser<'a> {
    words: &'a [OsString],
    at: usize,
    moment: FindMoment,
    actions: Vec<FindAction>,
    min_depth: u32,
    max_depth: u32,
    is_depth_first: bool,
}

fn fault(text: impl Into<String>) -> ToolError {
    ToolError::Words(text.into())
}

fn begins_expression(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    (bytes.starts_with(b"-") && bytes.len() > 1) || matches!(bytes, b"(" | b")" | b"," | b"!")
}

impl FindExpression {
    /// Takes find's arguments: paths, then an expression.
    ///
    /// # Errors
    /// [`ToolError::Words`]: they are none.
    pub fn parse(words: &[OsString], moment: FindMoment) -> Result<Self, ToolError> {
        let begin = words.iter().position(|word| begins_expression(word)).unwrap_or(words.len());
        let (paths, words) = words.split_at(begin);
        let paths = if paths.is_empty() { vec![".".into()] } else { paths.to_vec() };
        let mut parser = Parser {
            words,
            at: 0,
            moment,
            actions: Vec::new(),
            min_depth: 0,
            max_depth: u32::MAX,
            is_depth_first: false,
        };
        let mut joined = match words.is_empty() {
            true => Joined::One(FindTest::Always(true)),
            false => parser.sequence()?,
        };
        if let Some(word) = parser.peek() {
            return Err(fault(format!("{}: nothing is open there", word.display())));
        }
        if parser.actions.is_empty() {
            let print = Joined::One(FindTest::Action(0));
            joined = Joined::All(vec![joined, print]);
            parser.actions.push(FindAction::Print);
        }
        let characters = if moment.is_utf8 { Characters::Utf8 } else { Characters::Bytes };
        if parser.is_depth_first {
            without_prune(&mut joined);
        }
        let program = program_of(&joined, characters);
        let program = program.ok_or_else(|| fault("the expression is too long"))?;
        let Parser { actions, min_depth, max_depth, is_depth_first, .. } = parser;
        Ok(Self { paths, program, actions, min_depth, max_depth, is_depth_first })
    }
}

/// What is in a directory has been looked at before it: nothing is left out any more.
fn without_prune(joined: &mut Joined) {
    match joined {
        Joined::One(test) if *test == FindTest::Prune => *test = FindTest::Always(true),
        Joined::One(_) => {}
        Joined::Not(inner) => without_prune(inner),
        Joined::All(all) | Joined::Any(all) | Joined::Each(all) => {
            all.iter_mut().for_each(without_prune);
        }
    }
}

impl Parser<'_> {
    fn peek(&self) -> Option<&OsStr> {
        self.words.get(self.at).map(OsString::as_os_str)
    }

    fn takes(&mut self, words: &[&str]) -> bool {
        let is_one = self.peek().is_some_and(|next| words.iter().any(|word| next == *word));
        self.at += usize::from(is_one);
        is_one
    }

    /// Expressions of which the last one counts.
    fn sequence(&mut self) -> Result<Joined, ToolError> {
        let mut all = vec![self.any()?];
        while self.takes(&[","]) {
            all.push(self.any()?);
        }
        Ok(joined(all, Joined::Each))
    }

    fn any(&mut self) -> Result<Joined, ToolError> {
        let mut all = vec![self.all()?];
        while self.takes(&["-o", "-or"]) {
            all.push(self.all()?);
        }
        Ok(joined(all, Joined::Any))
    }

    fn all(&mut self) -> Result<Joined, ToolError> {
        let mut all = vec![self.not()?];
        while self.takes(&["-a", "-and"])
            || self
                .peek()
                .is_some_and(|next| !matches!(next.as_bytes(), b"," | b")" | b"-o" | b"-or"))
        {
            all.push(self.not()?);
        }
        Ok(joined(all, Joined::All))
    }

    fn not(&mut self) -> Result<Joined, ToolError> {
        if self.takes(&["!", "-not"]) {
            return Ok(Joined::Not(Box::new(self.not()?)));
        }
        if self.takes(&["("]) {
            let inner = self.sequence()?;
            return match self.takes(&[")"]) {
                true => Ok(inner),
                false => Err(fault("a bracket is not closed: write \\) behind what is in it")),
            };
        }
        self.test().map(Joined::One)
    }

    fn test(&mut self) -> Result<FindTest, ToolError> {
        let Some(word) = self.peek() else { return Err(fault("the expression ends too early")) };
        let word = word.to_string_lossy().into_owned();
        self.at += 1;
        if let Some(test) = self.plain(&word) {
            return test;
        }
        let unknown = || {
            fault(format!(
                "{word}: outboard fs find does not know this; see its --help for what it does"
            ))
        };
        let name = word.strip_prefix('-').ok_or_else(unknown)?;
        let Some(value) = self.words.get(self.at) else {
            return Err(if takes_value(name) {
                fault(format!("{word} needs an argument"))
            } else {
                unknown()
            });
        };
        self.at += 1;
        let wrong = || fault(format!("{word} {}: this is no argument of it", value.display()));
        match self.with_value(name, value)? {
            Some(Some(test)) => Ok(test),
            Some(None) => Err(wrong()),
            None => Err(unknown()),
        }
    }

    /// Those without an argument.
    fn plain(&mut self, word: &str) -> Option<Result<FindTest, ToolError>> {
        Some(Ok(match word {
            "-true"
            | "-xdev"
            | "-mount"
            | "-noleaf"
            | "-ignore_readdir_race"
            | "-noignore_readdir_race"
            | "-nowarn"
            | "-warn" => FindTest::Always(true),
            "-false" => FindTest::Always(false),
            "-depth" | "-d" => {
                self.is_depth_first = true;
                FindTest::Always(true)
            }
            "-empty" => FindTest::Empty,
            "-readable" => FindTest::May(MAY_READ),
            "-writable" => FindTest::May(MAY_WRITE),
            "-executable" => FindTest::May(MAY_EXECUTE),
            "-print" => return Some(self.action(FindAction::Print)),
            "-print0" => return Some(self.action(FindAction::PrintZero)),
            "-delete" => {
                self.is_depth_first = true;
                return Some(self.action(FindAction::Delete));
            }
            "-prune" => FindTest::Prune,
            "-quit" => FindTest::Quit,
            _ => return None,
        }))
    }

    fn action(&mut self, action: FindAction) -> Result<FindTest, ToolError> {
        let place = u8::try_from(self.actions.len()).ok().filter(|place| *place < 32);
        self.actions.push(action);
        place.map(FindTest::Action).ok_or_else(|| fault("there are more than 32 actions"))
    }

    /// Those with an argument: `None`: there is none of that name; `Some(None)`: the argument is
    /// wrong.
    fn with_value(
        &mut self,
        name: &str,
        value: &OsStr,
    ) -> Result<Option<Option<FindTest>>, ToolError> {
        if let Some(test) = pattern(name, value) {
            return Ok(Some(Some(test)));
        }
        if let Some((field, of)) = newer(name) {
            return reference(value, of).map(|than| Some(Some(later(field, than))));
        }
        let (now, text) = (self.moment.now_ns, &*value.to_string_lossy());
        Ok(Some(match name {
            "type" => kinds(text).map(FindTest::Kind),
            "size" => size(text),
            "links" => count(NumberField::Links, text),
            "inum" => count(NumberField::Inode, text),
            "uid" => count(NumberField::User, text),
            "gid" => count(NumberField::Group, text),
            "user" => accounts::user(text).map(|id| owned_by(NumberField::User, id)),
            "group" => accounts::group(text).map(|id| owned_by(NumberField::Group, id)),
            "atime" => days(TimeField::Access, text, now),
            "mtime" => days(TimeField::Bytes, text, now),
            "ctime" => days(TimeField::Change, text, now),
            "amin" => minutes(TimeField::Access, text, now),
            "mmin" => minutes(TimeField::Bytes, text, now),
            "cmin" => minutes(TimeField::Change, text, now),
            "perm" => rights::parse_perm(text).map(|(how, bits)| FindTest::Rights { how, bits }),
            "mindepth" => depth(text).map(|depth| self.limit(depth, 0)),
            "maxdepth" => depth(text).map(|depth| self.limit(0, depth.min(u32::MAX - 1) + 1)),
            _ => return Ok(None),
        }))
    }

    fn limit(&mut self, min: u32, max: u32) -> FindTest {
        match max {
            0 => self.min_depth = min,
            max => self.max_depth = max - 1,
        }
        FindTest::Always(true)
    }
}

/// One stands for itself.
fn joined(mut all: Vec<Joined>, how: fn(Vec<Joined>) -> Joined) -> Joined {
    if all.len() == 1
        && let Some(one) = all.pop()
    {
        one
    } else {
        how(all)
    }
}

fn pattern(name: &str, value: &OsStr) -> Option<FindTest> {
    let (of, folds) = match name {
        "name" => (PatternOf::Name, false),
        "iname" => (PatternOf::Name, true),
        "path" | "wholename" => (PatternOf::Path, false),
        "ipath" | "iwholename" => (PatternOf::Path, true),
        "lname" => (PatternOf::Target, false),
        "ilname" => (PatternOf::Target, true),
        _ => return None,
    };
    Some(FindTest::Pattern { of, folds, pattern: value.as_bytes().to_vec() })
}

fn takes_value(name: &str) -> bool {
    const NAMES: [&str; 18] = [
        "type", "size", "links", "inum", "uid", "gid", "user", "group", "atime", "mtime", "ctime",
        "amin", "mmin", "cmin", "perm", "mindepth", "maxdepth", "newer",
    ];
    NAMES.contains(&name) || pattern(name, OsStr::new("")).is_some() || newer(name).is_some()
}

fn owned_by(field: NumberField, id: u32) -> FindTest {
    FindTest::Number { field, how: NumberComparison::Equal, unit: 1, number: id.into() }
}

fn depth(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Kinds by their letters, with commas between them.
fn kinds(text: &str) -> Option<u16> {
    text.split(',').try_fold(0, |all, letter| {
        let kind = match letter {
            "p" => 1,
            "c" => 2,
            "d" => 4,
            "b" => 6,
            "f" => 8,
            "l" => 10,
            "s" => 12,
            _ => return None,
        };
        Some(all | 1 << kind)
    })
}

/// `-newer`, `-anewer`, `-cnewer`, `-newerXY`: which time, and which one of the other file.
fn newer(name: &str) -> Option<(TimeField, TimeField)> {
    let of = |letter| match letter {
        'a' => Some(TimeField::Access),
        'c' => Some(TimeField::Change),
        'm' => Some(TimeField::Bytes),
        'B' => Some(TimeField::Birth),
        _ => None,
    };
    match name {
        "newer" => Some((TimeField::Bytes, TimeField::Bytes)),
        "anewer" => Some((TimeField::Access, TimeField::Bytes)),
        "cnewer" => Some((TimeField::Change, TimeField::Bytes)),
        _ => {
            let mut letters = name.strip_prefix("newer")?.chars();
            let both = (of(letters.next()?)?, of(letters.next()?)?);
            letters.next().is_none().then_some(both)
        }
    }
}

/// A time of a file of this machine.
fn reference(file: &OsStr, which: TimeField) -> Result<i64, ToolError> {
    let fault = |error: io::Error| ToolError::Path {
        path: file.as_bytes().to_vec(),
        why: error.raw_os_error().map_or_else(|| error.to_string(), super::errno_words),
    };
    let about = fs::symlink_metadata(file).map_err(fault)?;
    let (seconds, ns) = match which {
        TimeField::Access => (about.atime(), about.atime_nsec()),
        TimeField::Bytes => (about.mtime(), about.mtime_nsec()),
        TimeField::Change => (about.ctime(), about.ctime_nsec()),
        TimeField::Birth => {
            let born = about.created().map_err(fault)?.duration_since(UNIX_EPOCH);
            let born = born.unwrap_or_default();
            (i64::try_from(born.as_secs()).unwrap_or(i64::MAX), born.subsec_nanos().into())
        }
    };
    Ok(seconds.saturating_mul(1_000_000_000).saturating_add(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: FindMoment = FindMoment { now_ns: 1_700_000_000_000_000_000, is_utf8: false };

    fn parse(words: &str) -> Result<FindExpression, String> {
        let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        FindExpression::parse(&words, MOMENT).map_err(|error| error.to_string())
    }

    #[test]
    fn paths_come_before_the_expression() {
        let found = parse("a b -name x").expect("right");
        assert_eq!(found.paths, ["a", "b"]);
        assert_eq!(parse("").expect("right").paths, ["."]);
        assert_eq!(parse("! -name x").expect("right").paths, ["."]);
        assert_eq!(parse("-maxdepth 0").expect("right").max_depth, 0);
    }

    #[test]
    fn and_binds_more_than_or() {
        let one = parse("-true -o -false -print").expect("right");
        let same = parse("( -true ) -o ( -false -a -print )").expect("right");
        assert_eq!((one.program, one.actions), (same.program, same.actions));
        let implicit = parse("-true -o -false").expect("right");
        let explicit = parse("( -true -o -false ) -print").expect("right");
        assert_eq!(implicit.program, explicit.program);
    }

    #[test]
    fn mistakes_are_told() {
        for (words, why) in [
            ("-name", "-name needs an argument"),
            ("-nonsense x", "-nonsense: outboard fs find does not know"),
            ("-size 1x", "-size 1x: this is no argument"),
            ("-type z", "-type z: this is no argument"),
            ("( -true", "a bracket is not closed"),
            ("-true )", "): nothing is open there"),
            ("-true -o", "the expression ends too early"),
            ("-newer /nothing/there", "'/nothing/there': No such file"),
        ] {
            let found = parse(words).expect_err("a mistake");
            assert!(found.contains(why), "{found}, not {why}");
        }
    }

    #[test]
    fn what_is_deleted_is_looked_at_after_what_is_in_it() {
        let found = parse("-prune -o -delete").expect("right");
        assert!(found.is_depth_first);
        assert_eq!(found.program, parse("-true -o -delete").expect("right").program);
    }
}
