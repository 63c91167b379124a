//! Patterns as automata: a table that says, byte by byte, whether lines match; and the bytes that
//! every match has.
//!
//! A table's size is bounded. It finds whether a line matches, not where.

use super::charset::CharSet;
use super::syntax::{GrepNode, GrepPlace};
use regex_automata::MatchKind;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson::{self, NFA};
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_syntax::hir::{Class, ClassBytes, ClassBytesRange, Hir, Look, Repetition};
use std::collections::HashMap;

/// Bytes that the library may use for the table, and while it makes it.
const BUILD_MAX: usize = 2 << 20;
/// Numbers of a table, at most: with the rest of a module it has half of an execution's memory.
const CELLS_MAX: usize = 64 << 10;
/// Bytes of a literal that is looked for, at most.
const LITERAL_MAX: usize = 64;
/// Nothing larger than this is even tried.
const NODES_MAX: u64 = 20_000;

/// The state in which a line matches. These two come before all others.
pub(super) const ACCEPTS: usize = 0;
/// The state in which a line has characters that the table does not know.
pub(super) const LEAVES: usize = 1;

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LineAutomaton {
    /// What a byte is to the table.
    pub(super) classes: [u8; 256],
    pub(super) class_count: usize,
    /// Of each state the next one, for each class.
    pub(super) rows: Vec<u16>,
    /// Where a line begins.
    pub(super) start: usize,
}

/// Bytes that every match has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequiredBytes {
    /// Each, in lower case where its case does not count.
    pub(super) bytes: Vec<u8>,
    /// Of each what is added before it is compared: 0x20 where its case does not count.
    pub(super) masks: Vec<u8>,
    /// A line with these matches.
    pub(super) is_all: bool,
}

/// Whom an expression is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HirFor {
    /// A table, which knows only ASCII of large sets.
    Table,
    /// Whoever has all characters' tables.
    Client,
}

/// A pattern as the library has it; `None`: it is too large, or has back-references.
pub(super) fn hir(node: &GrepNode, is_utf8: bool, whom: HirFor) -> Option<Hir> {
    let all = |nodes: &[GrepNode]| -> Option<Vec<Hir>> {
        nodes.iter().map(|node| hir(node, is_utf8, whom)).collect()
    };
    Some(match node {
        GrepNode::Empty => Hir::empty(),
        GrepNode::Set(set) => Hir::class(class(set, is_utf8, whom)),
        GrepNode::At(place) => Hir::look(look(*place, is_utf8 && whom == HirFor::Client)),
        GrepNode::Sequence(nodes) => Hir::concat(all(nodes)?),
        GrepNode::Either(nodes) => Hir::alternation(all(nodes)?),
        GrepNode::Group(inner, _) => hir(inner, is_utf8, whom)?,
        GrepNode::Repeat { what, least, most } => {
            let sub = Box::new(hir(what, is_utf8, whom)?);
            Hir::repetition(Repetition { min: *least, max: *most, greedy: true, sub })
        }
        GrepNode::BackReference(_) => return None,
    })
}

fn class(set: &CharSet, is_utf8: bool, whom: HirFor) -> Class {
    match (is_utf8, whom) {
        (true, HirFor::Table) if set.is_large => Class::Unicode(set.ascii()),
        (true, _) => Class::Unicode(set.class.clone()),
        (false, _) => {
            let byte = |c: char| u8::try_from(u32::from(c)).unwrap_or(u8::MAX);
            let ranges = set.class.ranges().iter();
            Class::Bytes(ClassBytes::new(
                ranges.map(|range| ClassBytesRange::new(byte(range.start()), byte(range.end()))),
            ))
        }
    }
}

fn look(place: GrepPlace, is_unicode: bool) -> Look {
    match (place, is_unicode) {
        (GrepPlace::LineStart, _) => Look::StartLF,
        (GrepPlace::LineEnd, _) => Look::EndLF,
        (GrepPlace::WordStart, false) => Look::WordStartAscii,
        (GrepPlace::WordEnd, false) => Look::WordEndAscii,
        (GrepPlace::WordEdge, false) => Look::WordAscii,
        (GrepPlace::NoWordEdge, false) => Look::WordAsciiNegate,
        (GrepPlace::NoWordBefore, false) => Look::WordStartHalfAscii,
        (GrepPlace::NoWordBehind, false) => Look::WordEndHalfAscii,
        (GrepPlace::WordStart, true) => Look::WordStartUnicode,
        (GrepPlace::WordEnd, true) => Look::WordEndUnicode,
        (GrepPlace::WordEdge, true) => Look::WordUnicode,
        (GrepPlace::NoWordEdge, true) => Look::WordUnicodeNegate,
        (GrepPlace::NoWordBefore, true) => Look::WordStartHalfUnicode,
        (GrepPlace::NoWordBehind, true) => Look::WordEndHalfUnicode,
    }
}

/// How large a pattern is when all repetitions are written out.
fn weight(node: &GrepNode) -> u64 {
    match node {
        GrepNode::Sequence(nodes) | GrepNode::Either(nodes) => {
            nodes.iter().map(weight).fold(1, u64::saturating_add)
        }
        GrepNode::Group(inner, _) => weight(inner),
        GrepNode::Repeat { what, least, most } => {
            let times = most.unwrap_or(*least).max(1);
            weight(what).saturating_mul(times.into())
        }
        _ => 1,
    }
}

/// Whether a table cannot know everything about characters beyond ASCII.
fn is_large(node: &GrepNode) -> bool {
    match node {
        GrepNode::Set(set) => set.is_large,
        GrepNode::At(place) => !matches!(place, GrepPlace::LineStart | GrepPlace::LineEnd),
        GrepNode::Sequence(nodes) | GrepNode::Either(nodes) => nodes.iter().any(is_large),
        GrepNode::Group(inner, _) | GrepNode::Repeat { what: inner, .. } => is_large(inner),
        GrepNode::Empty | GrepNode::BackReference(_) => false,
    }
}

impl LineAutomaton {
    /// A pattern's; `None`: it would be too large, or there is none.
    pub(super) fn of(node: &GrepNode, is_utf8: bool) -> Option<Self> {
        if weight(node) > NODES_MAX {
            return None;
        }
        let hir = hir(node, is_utf8, HirFor::Table)?;
        let config = thompson::Config::new().utf8(false).nfa_size_limit(Some(BUILD_MAX));
        let nfa: NFA = thompson::Compiler::new().configure(config).build_from_hir(&hir).ok()?;
        let mut config = dense::Config::new()
            .match_kind(MatchKind::All)
            .start_kind(StartKind::Unanchored)
            .accelerate(false)
            .dfa_size_limit(Some(BUILD_MAX))
            .determinize_size_limit(Some(BUILD_MAX));
        if is_utf8 && is_large(node) {
            for byte in 0x80..=0xff {
                config = config.quit(byte, true);
            }
        }
        let dfa = dense::Builder::new().configure(config).build_from_nfa(&nfa).ok()?;
        let begin = start::Config::new().look_behind(Some(b'\n'));
        let begin = dfa.start_state(&begin).ok()?;
        Self::read(&dfa, begin)
    }

    /// The library's table, as far as lines reach it.
    fn read(dfa: &dense::DFA<Vec<u32>>, begin: StateID) -> Option<Self> {
        let mut numbers = HashMap::from([(begin, 2)]);
        let mut open = vec![begin];
        let mut columns = vec![Vec::new(); 256];
        let representatives: Vec<u8> = {
            let all = dfa.byte_classes().representatives(0..=255);
            all.filter_map(regex_automata::util::alphabet::Unit::as_u8).collect()
        };
        let mut at = 0;
        while let Some(state) = open.get(at).copied() {
            at += 1;
            for byte in &representatives {
                let next = dfa.next_state(state, *byte);
                let number = if dfa.is_match_state(next) {
                    ACCEPTS
                } else if dfa.is_quit_state(next) {
                    LEAVES
                } else {
                    let new = numbers.len() + 2;
                    *numbers.entry(next).or_insert_with(|| {
                        open.push(next);
                        new
                    })
                };
                columns[usize::from(*byte)].push(u16::try_from(number).ok()?);
            }
            if at * representatives.len() > CELLS_MAX {
                return None;
            }
        }
        Some(Self::packed(dfa, &columns, at))
    }

    /// Bytes that every state takes alike are one class.
    fn packed(dfa: &dense::DFA<Vec<u32>>, columns: &[Vec<u16>], states: usize) -> Self {
        let mut known: HashMap<&[u16], u8> = HashMap::new();
        let (mut classes, mut kept): ([u8; 256], Vec<&[u16]>) = ([0; 256], Vec::new());
        let mut of_library: HashMap<u8, u8> = HashMap::new();
        for byte in 0..=255_u8 {
            let column = &columns[usize::from(byte)];
            let library = dfa.byte_classes().get(byte);
            if !column.is_empty() {
                let next = u8::try_from(kept.len()).unwrap_or(u8::MAX);
                let class = *known.entry(column).or_insert_with(|| {
                    kept.push(column);
                    next
                });
                of_library.insert(library, class);
            }
            classes[usize::from(byte)] = of_library.get(&library).copied().unwrap_or(0);
        }
        // Nothing follows the first two states.
        let mut rows = vec![0; 2 * kept.len()];
        for state in 0..states {
            rows.extend(kept.iter().map(|column| column[state]));
        }
        Self { classes, class_count: kept.len(), rows, start: 2 }
    }
}

/// Bytes that a match has one behind the other, as far as that is known.
#[derive(Default)]
struct LiteralRun {
    longest: RequiredBytes,
    now: RequiredBytes,
}

impl LiteralRun {
    fn end(&mut self) {
        let now = std::mem::take(&mut self.now);
        if now.bytes.len() > self.longest.bytes.len() {
            self.longest = now;
        }
    }

    fn take(&mut self, node: &GrepNode, is_utf8: bool) {
        match node {
            GrepNode::Sequence(nodes) => nodes.iter().for_each(|node| self.take(node, is_utf8)),
            GrepNode::Group(inner, _) => self.take(inner, is_utf8),
            GrepNode::Set(set) => match set.single() {
                Some(c) => self.push(c, set, is_utf8),
                None => self.end(),
            },
            GrepNode::Repeat { what, least, .. } => {
                self.end();
                if *least > 0 {
                    self.take(what, is_utf8);
                    self.end();
                }
            }
            GrepNode::Either(_) | GrepNode::BackReference(_) => self.end(),
            GrepNode::Empty | GrepNode::At(_) => {}
        }
    }

    fn push(&mut self, c: char, set: &CharSet, is_utf8: bool) {
        let mut encoded = [0; 4];
        let bytes: &[u8] = match is_utf8 {
            true => c.encode_utf8(&mut encoded).as_bytes(),
            false => {
                encoded[0] = u8::try_from(u32::from(c)).unwrap_or(0);
                &encoded[..1]
            }
        };
        let mask = if set.class.ranges().len() > 1 { 0x20 } else { 0 };
        if self.now.bytes.len() + bytes.len() > LITERAL_MAX {
            self.end();
        }
        self.now.bytes.extend_from_slice(bytes);
        self.now.masks.extend(bytes.iter().map(|_| mask));
    }
}

impl RequiredBytes {
    /// Of a pattern; `None`: nothing is in every match.
    pub(super) fn of(node: &GrepNode, is_utf8: bool) -> Option<Self> {
        let mut run = LiteralRun::default();
        run.take(node, is_utf8);
        run.end();
        let found = Some(run.longest).filter(|longest| !longest.bytes.is_empty())?;
        let is_all = match node {
            GrepNode::Set(_) => true,
            GrepNode::Sequence(nodes) => {
                let is_set = |node: &GrepNode| matches!(node, GrepNode::Set(_));
                let len = nodes.iter().filter_map(|node| match node {
                    GrepNode::Set(set) => set.single(),
                    _ => None,
                });
                let len: usize = len.map(|c| if is_utf8 { c.len_utf8() } else { 1 }).sum();
                nodes.iter().all(is_set) && len == found.bytes.len()
            }
            _ => false,
        };
        Some(Self { is_all: is_all && has_single(node), ..found })
    }
}

/// Whether every set of a sequence has one character.
fn has_single(node: &GrepNode) -> bool {
    match node {
        GrepNode::Set(set) => set.single().is_some(),
        GrepNode::Sequence(nodes) => nodes.iter().all(has_single),
        _ => false,
    }
}
