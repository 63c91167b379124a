//! Patterns matched at the client: where in a line they match, and lines that no automaton decides.

use super::automaton::{HirFor, hir};
use super::backtrack::{Backtracking, TooManyParts};
use super::charset::CharRules;
use super::syntax::{GrepNode, GrepPlace};
use crate::scan::{LineFinder, ScanFault};
use regex_automata::nfa::thompson::{self, pikevm};
use regex_automata::{Anchored, Input, MatchKind};
use std::ops::Range;

/// Bytes of a pattern in memory, at most.
const SIZE_MAX: usize = 64 << 20;

/// See this file's first lines.
#[derive(Debug)]
pub struct LineMatcher(Matching);

#[derive(Debug)]
enum Matching {
    /// The library's: the first place, and the longest match there. What words are beside bytes
    /// that are no UTF-8, others say.
    Library { first: Box<Searching>, longest: Box<Searching>, broken: Option<Box<Backtracking>> },
    /// One with back-references.
    Back(Backtracking),
}

#[derive(Debug)]
struct Searching {
    vm: pikevm::PikeVM,
    cache: pikevm::Cache,
}

impl Searching {
    fn new(hir: &regex_syntax::hir::Hir, kind: MatchKind) -> Option<Self> {
        let config = thompson::Config::new().utf8(false).nfa_size_limit(Some(SIZE_MAX));
        let nfa = thompson::Compiler::new().configure(config).build_from_hir(hir).ok()?;
        let config = pikevm::Config::new().match_kind(kind);
        let vm = pikevm::Builder::new().configure(config).build_from_nfa(nfa).ok()?;
        let cache = vm.create_cache();
        Some(Self { vm, cache })
    }
}

impl LineMatcher {
    /// `None`: the pattern is too large for this machine.
    pub(super) fn new(node: &GrepNode, rules: CharRules) -> Option<Self> {
        if has_back_reference(node) {
            return Some(Self(Matching::Back(Backtracking::new(node.clone(), rules))));
        }
        let hir = hir(node, rules.is_utf8, HirFor::Client)?;
        let first = Box::new(Searching::new(&hir, MatchKind::LeftmostFirst)?);
        let longest = Box::new(Searching::new(&hir, MatchKind::All)?);
        let asks_others = rules.is_utf8 && has_word_place(node);
        let broken = asks_others.then(|| Box::new(Backtracking::new(node.clone(), rules)));
        Some(Self(Matching::Library { first, longest, broken }))
    }

    /// Whether a line matches.
    ///
    /// # Errors
    /// [`TooManyParts`].
    pub fn is_match(&mut self, line: &[u8]) -> Result<bool, TooManyParts> {
        match &mut self.0 {
            Matching::Library { broken: Some(broken), .. } if !is_text(line) => {
                broken.is_match(line)
            }
            Matching::Library { first, .. } => Ok(first.vm.is_match(&mut first.cache, line)),
            Matching::Back(back) => back.is_match(line),
        }
    }

    /// The longest of the first matches from a byte on.
    ///
    /// # Errors
    /// [`TooManyParts`].
    pub fn find(&mut self, line: &[u8], from: usize) -> Result<Option<Range<usize>>, TooManyParts> {
        match &mut self.0 {
            Matching::Library { broken: Some(broken), .. } if !is_text(line) => {
                broken.find(line, from)
            }
            Matching::Library { first, longest, .. } => {
                let input = Input::new(line).range(from..);
                let Some(found) = first.vm.find(&mut first.cache, input) else { return Ok(None) };
                let input = Input::new(line).range(found.start()..).anchored(Anchored::Yes);
                let found = longest.vm.find(&mut longest.cache, input).unwrap_or(found);
                Ok(Some(found.range()))
            }
            Matching::Back(back) => back.find(line, from),
        }
    }
}

impl LineFinder for LineMatcher {
    fn find_lines(
        &mut self,
        lines: &[u8],
        most: usize,
        found: &mut Vec<usize>,
    ) -> Result<usize, ScanFault> {
        let mut at = 0;
        while at < lines.len() && found.len() < most {
            let len = lines[at..].iter().position(|byte| *byte == b'\n');
            let end = len.map_or(lines.len(), |len| at + len);
            let is_match = self.is_match(&lines[at..end]);
            if is_match.map_err(|error| ScanFault::Finder(error.to_string()))? {
                found.push(at);
            }
            at = end + 1;
        }
        Ok(at.min(lines.len()))
    }
}

fn is_text(line: &[u8]) -> bool {
    std::str::from_utf8(line).is_ok()
}

fn has_word_place(node: &GrepNode) -> bool {
    match node {
        GrepNode::At(place) => !matches!(place, GrepPlace::LineStart | GrepPlace::LineEnd),
        GrepNode::Sequence(nodes) | GrepNode::Either(nodes) => nodes.iter().any(has_word_place),
        GrepNode::Group(inner, _) | GrepNode::Repeat { what: inner, .. } => has_word_place(inner),
        _ => false,
    }
}

pub(super) fn has_back_reference(node: &GrepNode) -> bool {
    match node {
        GrepNode::BackReference(_) => true,
        GrepNode::Sequence(nodes) | GrepNode::Either(nodes) => nodes.iter().any(has_back_reference),
        GrepNode::Group(inner, _) | GrepNode::Repeat { what: inner, .. } => {
            has_back_reference(inner)
        }
        _ => false,
    }
}
