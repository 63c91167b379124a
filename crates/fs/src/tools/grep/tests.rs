//! Patterns against GNU grep itself, over a corpus that is made up from a seed: the tree, the
//! table, the module by a compiler and by an interpreter, and the matchers at the client.

#[path = "../../../../offcode/tests/support/interpreter.rs"]
mod interpreter;

use super::*;
use crate::scan::LineFinder;
use crate::server::ModuleFinder;
use interpreter::Interpreter;
use outboard_mem::SharedRegion;
use outboard_offcode::engine::{Bounding, Budget};
use outboard_offcode::store::{StoreLimits, TenantId};
use outboard_offcode::{ModuleStore, WasmEngine, Wasmtime};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// A small generator of numbers, the same every time.
pub(super) struct Seeded(u64);

impl Seeded {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below as u64).expect("small")
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.next(of.len())]
    }
}

const ATOMS: &[&str] = &[
    "a",
    "b",
    "c",
    "é",
    "_",
    "1",
    ".",
    "[ab]",
    "[^a]",
    "[a-c1]",
    "[[:alpha:]]",
    "[[:digit:]_]",
    "\\w",
    "\\W",
    "\\<",
    "\\>",
    "\\b",
    "\\B",
    "^",
    "$",
    "ab",
    "\\s",
    "[]a]",
    "[^]b-]",
    "\\.",
    "B",
    "[[:upper:]]",
    "[[:space:]]",
    "É",
];

fn pattern(seed: &mut Seeded, is_extended: bool, depth: usize) -> String {
    let (open, close, or) = if is_extended { ("(", ")", "|") } else { ("\\(", "\\)", "\\|") };
    let mut text = String::new();
    for place in 0..1 + seed.next(4) {
        match seed.next(8) {
            0 if depth > 0 => {
                text += open;
                text += &pattern(seed, is_extended, depth - 1);
                text += close;
            }
            1 if depth > 0 && place > 0 => text += or,
            _ => text += seed.one(ATOMS),
        }
        let repeats: &[&str] = match is_extended {
            true => &["*", "+", "?", "{2}", "{1,2}", "{,2}"],
            false => &["*", "\\+", "\\?", "\\{2\\}", "\\{1,2\\}"],
        };
        // What places and alternatives repeat POSIX leaves open.
        let is_place = ["\\b", "\\B"].iter().any(|place| text.ends_with(place));
        let is_set = text.ends_with(|c: char| c.is_alphanumeric() || c == ']');
        if seed.next(4) == 0 && is_set && !is_place {
            text += seed.one(repeats);
        }
    }
    text
}

fn text(seed: &mut Seeded) -> String {
    const PIECES: &[&str] =
        &["a", "b", "c", "é", "É", "_", "1", " ", "ab", "B", ".", "-", "]", "\t", "ba"];
    let mut text = String::new();
    for _ in 0..60 {
        for _ in 0..seed.next(9) {
            text += seed.one(PIECES);
        }
        text.push('\n');
    }
    text
}

/// What GNU grep says of a text, with escapes; `None`: it takes no such pattern.
fn gnu(options: &[&str], locale: &str, pattern: &str, text: impl AsRef<[u8]>) -> Option<String> {
    let mut grep = Command::new("grep");
    grep.env("LC_ALL", locale).args(options).args(["-a", "-e", pattern]);
    grep.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = grep.spawn().expect("GNU grep");
    // Where it takes no such pattern it reads nothing.
    let _written = child.stdin.take().expect("piped").write_all(text.as_ref());
    let output = child.wait_with_output().expect("it ends");
    (output.status.code() != Some(2)).then(|| escaped(&output.stdout))
}

fn escaped(bytes: &[u8]) -> String {
    bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| format!("{}\n", line.escape_ascii()))
        .collect()
}

fn matching_lines(finder: &mut dyn LineFinder, text: impl AsRef<[u8]>) -> Option<String> {
    let (mut out, mut at) = (Vec::new(), 0);
    let bytes = text.as_ref();
    while at < bytes.len() {
        let mut found = Vec::new();
        let come = finder.find_lines(&bytes[at..], 7, &mut found);
        for place in found {
            let is_end = |byte: &u8| *byte == b'\n';
            let begin = bytes[..at + place].iter().rposition(is_end).map_or(0, |end| end + 1);
            let len = bytes[at + place..].iter().position(is_end).expect("lines end");
            out.extend_from_slice(&bytes[begin..=at + place + len]);
        }
        at += come.ok()?;
    }
    Some(escaped(&out))
}

/// The table walked through here, as the module does it.
struct TableFinder(automaton::LineAutomaton);

impl LineFinder for TableFinder {
    fn find_lines(
        &mut self,
        lines: &[u8],
        most: usize,
        found: &mut Vec<usize>,
    ) -> Result<usize, crate::scan::ScanFault> {
        let (mut at, table) = (0, &self.0);
        let mut state = table.start;
        while at < lines.len() && found.len() < most {
            let class = usize::from(table.classes[usize::from(lines[at])]);
            state = usize::from(table.rows[state * table.class_count + class]);
            match state {
                automaton::LEAVES => return Err(crate::scan::ScanFault::Undecided),
                automaton::ACCEPTS => {
                    found.push(at);
                    at += lines[at..].iter().position(|byte| *byte == b'\n').expect("an end") + 1;
                    state = table.start;
                }
                _ => at += 1,
            }
        }
        Ok(at)
    }
}

fn only_matching(matcher: &mut LineMatcher, text: impl AsRef<[u8]>) -> String {
    let mut out = Vec::new();
    for line in text.as_ref().split_inclusive(|byte| *byte == b'\n') {
        let (line, mut at) = (line.strip_suffix(b"\n").expect("whole lines"), 0);
        while let Some(found) = matcher.find(line, at).expect("few parts") {
            if !found.is_empty() {
                out.extend_from_slice(&line[found.clone()]);
                out.push(b'\n');
            }
            at = found.end.max(found.start + 1);
            if at > line.len() {
                break;
            }
        }
    }
    escaped(&out)
}

#[test]
fn patterns_mean_what_they_mean_to_gnu_grep() {
    let rounds = if std::env::var_os("OUTBOARD_FULL").is_some() { 3000 } else { 600 };
    let mut seed = Seeded(0x9e37_79b9_7f4a_7c15);
    let (mut compared, mut tables) = (0, 0);
    for round in 0..rounds {
        let is_extended = round % 2 == 0;
        let (is_utf8, folds) = (seed.next(2) == 0, seed.next(4) == 0);
        // GNU grep 3.8 -o writes one line end too many with both.
        let (is_word, is_line) = match seed.next(8) {
            0 => (false, true),
            1 => (true, false),
            _ => (false, false),
        };
        let (pattern, text) = (pattern(&mut seed, is_extended, 2), text(&mut seed));
        let syntax = if is_extended { GrepSyntax::Extended } else { GrepSyntax::Basic };
        let patterns = vec![pattern.clone().into_bytes()];
        let words = GrepWords { patterns, syntax, folds, is_word, is_line, is_utf8 };
        let mut options = vec![if is_extended { "-E" } else { "-G" }];
        options.extend(folds.then_some("-i").into_iter().chain(is_word.then_some("-w")));
        options.extend(is_line.then_some("-x"));
        let locale = if is_utf8 { "C.UTF-8" } else { "C" };
        let Some(expected) = gnu(&options, locale, &pattern, &text) else { continue };
        let about = format!("LC_ALL={locale} grep {options:?} -e '{pattern}'");
        let compiled =
            GrepPattern::compile(&words).unwrap_or_else(|error| panic!("{about}: {error}"));
        let mut matcher = compiled.matcher().expect("small");
        if is_word && is_utf8 && matcher.is_match(b"") == Ok(true) {
            // GNU grep 3.8 finds empty words within characters.
            continue;
        }
        assert_eq!(matching_lines(&mut matcher, &text).as_ref(), Some(&expected), "{about}");
        let parts = gnu(&[&options[..], &["-o"]].concat(), locale, &pattern, &text);
        // Of words GNU grep 3.8 leaves some shorter ones out.
        let is_alike = is_word || Some(only_matching(&mut matcher, &text)) == parts;
        assert!(is_alike, "{about} -o");
        let table = automaton::LineAutomaton::of(&compiled.node, is_utf8);
        let table = table.unwrap_or_else(|| panic!("{about}: no table"));
        if let Some(found) = matching_lines(&mut TableFinder(table), &text) {
            assert_eq!(found, expected, "{about}, by its table");
            tables += 1;
        }
        compared += 1;
    }
    assert!(compared > rounds / 2 && tables > rounds / 4, "{compared} patterns, {tables} tables");
}

/// A module's finder, as the service makes it.
fn finder<E: WasmEngine>(engine: E, module: &[u8]) -> ModuleFinder<E::Instance> {
    let (tenant, bound) = (TenantId([1; 32]), Bounding::Time);
    let store = ModuleStore::new(Arc::new(engine), StoreLimits::default());
    let info = store.load(Some(tenant), "scan", module).expect("a module");
    let program = store.program(tenant, &info.hash, bound).expect("linked");
    let budget = Budget::Time(Duration::from_secs(60), Arc::default());
    let nothing = SharedRegion::zeroed(0).expect("no memory");
    let instance = store.engine().instantiate(&program, (&nothing, 0), (bound, &budget));
    ModuleFinder::new(instance.expect("an instance"), program.data_end, budget)
}

#[test]
fn modules_find_what_gnu_grep_finds_on_every_engine() {
    let rounds = if std::env::var_os("OUTBOARD_FULL").is_some() { 400 } else { 24 };
    let mut seed = Seeded(0x2545_f491_4f6c_dd1d);
    for round in 0..rounds {
        let is_literal = round % 3 == 0;
        let (folds, is_word) = (seed.next(3) == 0, !is_literal && seed.next(4) == 0);
        let long = "ab_1".repeat(seed.next(6));
        let pattern = match is_literal {
            true => [seed.one(&["a", "ab", "b_", "1", "a-"]), &long[..]].concat(),
            false => pattern(&mut seed, true, 1),
        };
        let text = format!("{}{long}\n{}x{long}a\n", text(&mut seed), text(&mut seed));
        let mut options = vec!["-E"];
        options.extend(folds.then_some("-i").into_iter().chain(is_word.then_some("-w")));
        let Some(expected) = gnu(&options, "C", &pattern, &text) else { continue };
        let patterns = vec![pattern.clone().into_bytes()];
        let syntax = GrepSyntax::Extended;
        let words = GrepWords { patterns, syntax, folds, is_word, ..GrepWords::default() };
        let compiled = GrepPattern::compile(&words).expect("a pattern");
        let module = compiled.module().expect("small");
        let about = format!("grep {options:?} -e '{pattern}'");
        let compiler = Wasmtime::new(None).expect("an engine");
        let found = matching_lines(&mut finder(compiler, module), &text);
        assert_eq!(found.as_ref(), Some(&expected), "{about}, compiled");
        let found = matching_lines(&mut finder(Interpreter::default(), module), &text);
        assert_eq!(found.as_ref(), Some(&expected), "{about}, interpreted");
    }
}

#[test]
fn strings_and_back_references_mean_what_they_mean_to_gnu_grep() {
    let text = "abab\nAbaB\naXa\nxyyx\na*b\n\nab\nfoo.bar\nfooxbar\naaaa\nb\\1\n";
    for (options, pattern) in [
        ("-F", "a*b"),
        ("-F", "foo.bar\nxyyx"),
        ("-F", ""),
        ("-F", "b\\1"),
        ("-G", "\\(a.\\)\\1"),
        ("-Gi", "\\(a.\\)\\1"),
        ("-E", "(.)(.)\\2\\1"),
        ("-E", "^(.*)\\1$"),
        ("-Ex", "(a*)\\1"),
        ("-Ew", "(.)y\\1"),
        ("-E", "(a|b)\\1|foo"),
        ("-G", "*b"),
        ("-G", "^*"),
        ("-G", "a\\{1"),
        ("-E", "a{1"),
        ("-E", "[[:nothing:]]"),
        ("-E", "(a"),
        ("-E", "a)"),
        ("-G", "a\\)"),
        ("-E", "[b-a]"),
        ("-G", "a\\"),
        ("-E", "\\1(a)"),
    ] {
        let syntax = match &options[..2] {
            "-F" => GrepSyntax::Fixed,
            "-E" => GrepSyntax::Extended,
            _ => GrepSyntax::Basic,
        };
        let words = GrepWords {
            patterns: vec![pattern.as_bytes().to_vec()],
            syntax,
            folds: options.contains('i'),
            is_word: options.contains('w'),
            is_line: options.contains('x'),
            is_utf8: true,
        };
        let expected = gnu(&[options], "C.UTF-8", pattern, text);
        let found = GrepPattern::compile(&words).ok().map(|compiled| {
            let mut matcher = compiled.matcher().expect("small");
            matching_lines(&mut matcher, text).expect("decided")
        });
        assert_eq!(found, expected, "grep {options} '{pattern}'");
    }
}

const ODD_ATOMS: &[&str] = &[
    "a",
    "b",
    "é",
    "_",
    ".",
    "\\w",
    "\\W",
    "\\<",
    "\\>",
    "\\b",
    "\\B",
    "^",
    "$",
    "[^a]",
    "[[:alpha:]]",
    "\\s",
    "\\S",
    "ß",
    "Σ",
    "-",
];

/// A pattern with back-references, empty parts, and operators where there is nothing to repeat.
fn odd_pattern(seed: &mut Seeded, is_extended: bool, groups: &mut usize, depth: usize) -> String {
    let (open, close, or) = if is_extended { ("(", ")", "|") } else { ("\\(", "\\)", "\\|") };
    let mut text = String::new();
    if !is_extended && seed.next(12) == 0 {
        text += seed.one(&["\\{", "*", "\\{1\\}", "^*", "^\\{1\\}", "\\+", "^\\?"]);
    }
    for place in 0..seed.next(5) {
        match seed.next(7) {
            0 | 1 if depth > 0 => {
                *groups += 1;
                text += open;
                text += &odd_pattern(seed, is_extended, groups, depth - 1);
                text += close;
            }
            2 if place > 0 => text += or,
            3 if *groups > 0 => text += &format!("\\{}", 1 + seed.next(*groups)),
            _ => text += seed.one(ODD_ATOMS),
        }
        let repeats: &[&str] = match is_extended {
            true => &["*", "+", "?", "{2}", "{,2}", "{0}"],
            false => &["*", "\\+", "\\?", "\\{2\\}", "\\{,2\\}", "\\{0\\}"],
        };
        let is_set = text.ends_with(|c: char| c.is_alphanumeric() || c == ']');
        let is_place = ["\\b", "\\B"].iter().any(|place| text.ends_with(place));
        if seed.next(4) == 0 && is_set && !is_place {
            text += seed.one(repeats);
        }
    }
    text
}

fn odd_text(seed: &mut Seeded) -> Vec<u8> {
    const PIECES: &[&[u8]] = &[
        b"a",
        b"b",
        "é".as_bytes(),
        "É".as_bytes(),
        b"_",
        b" ",
        b"-",
        b"\xff",
        b"\xc3",
        b"\xa9",
        b"\xe9",
        b"ab",
        b"aa",
        b"{1}",
        b"*",
        b"\t",
        "Σ".as_bytes(),
        "ς".as_bytes(),
        b"\xe2\x82",
        b"+",
        b"?",
    ];
    let mut text = Vec::new();
    for _ in 0..40 {
        for _ in 0..seed.next(7) {
            text.extend_from_slice(PIECES[seed.next(PIECES.len())]);
        }
        text.push(b'\n');
    }
    text
}

/// A pattern, and how GNU grep is told of it.
struct OddCase {
    words: GrepWords,
    options: Vec<&'static str>,
    locale: &'static str,
    pattern: String,
}

fn odd_case(seed: &mut Seeded) -> OddCase {
    let is_extended = seed.next(2) == 0;
    let (is_utf8, folds) = (seed.next(2) == 0, seed.next(4) == 0);
    let (is_word, is_line) = match seed.next(8) {
        0 => (false, true),
        1 => (true, false),
        _ => (false, false),
    };
    let count = if seed.next(5) == 0 { 2 } else { 1 };
    let one = |_| odd_pattern(seed, is_extended, &mut 0, 2);
    let pattern = (0..count).map(one).collect::<Vec<_>>().join("\n");
    let syntax = if is_extended { GrepSyntax::Extended } else { GrepSyntax::Basic };
    let patterns = vec![pattern.clone().into_bytes()];
    let words = GrepWords { patterns, syntax, folds, is_word, is_line, is_utf8 };
    let mut options = vec![if is_extended { "-E" } else { "-G" }];
    options.extend(folds.then_some("-i").into_iter().chain(is_word.then_some("-w")));
    options.extend(is_line.then_some("-x"));
    OddCase { words, options, locale: if is_utf8 { "C.UTF-8" } else { "C" }, pattern }
}

/// In texts with bytes that are no UTF-8, too.
#[test]
fn odd_patterns_mean_what_they_mean_to_gnu_grep() {
    let rounds = if std::env::var_os("OUTBOARD_FULL").is_some() { 3000 } else { 150 };
    let mut seed = Seeded(0x51_7cc1_b727_220a);
    let mut compared = 0;
    for _ in 0..rounds {
        let (OddCase { words, options, locale, pattern }, text) =
            (odd_case(&mut seed), odd_text(&mut seed));
        let about = format!("LC_ALL={locale} grep {options:?} -e '{pattern}'");
        let expected = gnu(&options, locale, &pattern, &text);
        let compiled = GrepPattern::compile(&words);
        assert_eq!(compiled.is_ok(), expected.is_some(), "{about}: {compiled:?}");
        let (Some(expected), Ok(compiled)) = (expected, compiled) else { continue };
        let mut matcher = compiled.matcher().expect("small");
        if words.is_word && words.is_utf8 {
            // GNU grep 3.8 finds empty words within characters, and leaves some shorter ones out.
            continue;
        }
        assert_eq!(matching_lines(&mut matcher, &text).as_ref(), Some(&expected), "{about}");
        if !words.is_word {
            let parts = gnu(&[&options[..], &["-o"]].concat(), locale, &pattern, &text);
            assert_eq!(Some(only_matching(&mut matcher, &text)), parts, "{about} -o");
        }
        let has_table = !matcher::has_back_reference(&compiled.node);
        let table = has_table.then(|| automaton::LineAutomaton::of(&compiled.node, words.is_utf8));
        if let Some(table) = table.flatten()
            && let Some(found) = matching_lines(&mut TableFinder(table), &text)
        {
            assert_eq!(found, expected, "{about}, by its table");
        }
        compared += 1;
    }
    assert!(compared > rounds / 2, "{compared} patterns");
}
