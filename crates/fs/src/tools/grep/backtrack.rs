//! Matching with back-references, by trying: the longest match at the first place that has one.
//!
//! It may take long, as such patterns do. How deep it calls itself is bounded, so that a main
//! thread's 8 MiB of stack are enough whatever lines there are.

use super::charset::{CharRules, CharSet};
use super::syntax::{GrepNode, GrepPlace};
use std::ops::Range;

/// A pattern with back-references.
#[derive(Debug)]
pub(super) struct Backtracking {
    node: GrepNode,
    rules: CharRules,
    word: CharSet,
}

/// Calls within calls, at most.
const DEPTH_MAX: usize = 10_000;

/// What bytes that are no UTF-8 are to words beside them: glibc's `\b` and its like take them for
/// the characters of these numbers, GNU grep's `-w` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BrokenBytes {
    Latin,
    Nothing,
}

/// What is still to be matched, the next first.
#[derive(Clone, Copy)]
enum Rest<'a> {
    End,
    Then(&'a GrepNode, &'a Self),
    Close(usize, usize, &'a Self),
    Again { what: &'a GrepNode, least: u32, most: Option<u32>, begun: usize, rest: &'a Self },
}

struct Trying<'a> {
    pattern: &'a Backtracking,
    line: &'a [u8],
    groups: [Option<(usize, usize)>; 10],
    longest: Option<usize>,
    depth: usize,
    /// Something was not tried.
    is_cut: bool,
}

/// More of a pattern is under way at once on a line than is tried: whether it matches is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line is too long for a pattern with back-references: make either shorter")]
pub struct TooManyParts;

impl Backtracking {
    pub(super) fn new(node: GrepNode, rules: CharRules) -> Self {
        Self { node, rules, word: CharSet::word(rules) }
    }

    /// Whether a line matches.
    pub(super) fn is_match(&self, line: &[u8]) -> Result<bool, TooManyParts> {
        let (mut start, mut is_cut) = (0, false);
        while start <= line.len() {
            let tried = self.tried_at(line, start);
            if tried.longest.is_some() {
                return Ok(true);
            }
            is_cut |= tried.is_cut;
            start = self.behind(line, start);
        }
        if is_cut { Err(TooManyParts) } else { Ok(false) }
    }

    /// The longest of the first matches from a byte on.
    pub(super) fn find(
        &self,
        line: &[u8],
        from: usize,
    ) -> Result<Option<Range<usize>>, TooManyParts> {
        let mut start = from;
        while start <= line.len() {
            let tried = self.tried_at(line, start);
            if tried.is_cut {
                return Err(TooManyParts);
            }
            if let Some(end) = tried.longest {
                return Ok(Some(start..end));
            }
            start = self.behind(line, start);
        }
        Ok(None)
    }

    fn tried_at<'a>(&'a self, line: &'a [u8], start: usize) -> Trying<'a> {
        let (groups, longest, depth, is_cut) = ([None; 10], None, 0, false);
        let mut trying = Trying { pattern: self, line, groups, longest, depth, is_cut };
        trying.step(&Rest::Then(&self.node, &Rest::End), start);
        trying
    }

    /// Where the next character begins.
    fn behind(&self, line: &[u8], at: usize) -> usize {
        at + self.char_at(line, at).map_or(1, |(_, len)| len)
    }

    /// The character that begins at a byte, and its length.
    fn char_at(&self, line: &[u8], at: usize) -> Option<(char, usize)> {
        let rest = line.get(at..).filter(|rest| !rest.is_empty())?;
        if !self.rules.is_utf8 {
            return Some((char::from(rest[0]), 1));
        }
        let chunk = rest[..rest.len().min(4)].utf8_chunks().next()?;
        chunk.valid().chars().next().map(|c| (c, c.len_utf8()))
    }

    fn is_word(&self, line: &[u8], at: usize, beside: BrokenBytes) -> bool {
        match (self.char_at(line, at), line.get(at)) {
            (Some((c, _)), _) => self.word.has(c),
            (None, Some(byte)) => self.is_word_byte(*byte, beside),
            (None, None) => false,
        }
    }

    /// A byte that is no UTF-8.
    fn is_word_byte(&self, byte: u8, beside: BrokenBytes) -> bool {
        beside == BrokenBytes::Latin && self.word.has(char::from(byte))
    }

    fn is_word_before(&self, line: &[u8], at: usize, beside: BrokenBytes) -> bool {
        let widths = 1..=if self.rules.is_utf8 { 4 } else { 1 };
        let mut ends = widths.filter_map(|width| {
            let start = at.checked_sub(width)?;
            self.char_at(line, start).filter(|(_, len)| *len == width)
        });
        match (ends.next(), at.checked_sub(1).and_then(|before| line.get(before))) {
            (Some((c, _)), _) => self.word.has(c),
            (None, Some(byte)) => self.is_word_byte(*byte, beside),
            (None, None) => false,
        }
    }

    fn holds(&self, place: GrepPlace, line: &[u8], at: usize) -> bool {
        let beside = match place {
            GrepPlace::NoWordBefore | GrepPlace::NoWordBehind => BrokenBytes::Nothing,
            _ => BrokenBytes::Latin,
        };
        let before = self.is_word_before(line, at, beside);
        let behind = self.is_word(line, at, beside);
        match place {
            GrepPlace::LineStart => at == 0,
            GrepPlace::LineEnd => at == line.len(),
            GrepPlace::WordStart => !before && behind,
            GrepPlace::WordEnd => before && !behind,
            GrepPlace::WordEdge => before != behind,
            GrepPlace::NoWordEdge => before == behind,
            GrepPlace::NoWordBefore => !before,
            GrepPlace::NoWordBehind => !behind,
        }
    }
}

impl Trying<'_> {
    fn deeper(&mut self, go: impl FnOnce(&mut Self)) {
        self.depth += 1;
        match self.depth < DEPTH_MAX {
            true => go(self),
            false => self.is_cut = true,
        }
        self.depth -= 1;
    }

    fn step(&mut self, rest: &Rest<'_>, at: usize) {
        self.deeper(|trying| trying.rest(rest, at));
    }

    fn rest(&mut self, rest: &Rest<'_>, at: usize) {
        match *rest {
            Rest::End => self.longest = self.longest.max(Some(at)),
            Rest::Then(node, rest) => self.node(node, rest, at),
            Rest::Close(group, begin, rest) => {
                let before = self.groups[group].replace((begin, at));
                self.step(rest, at);
                self.groups[group] = before;
            }
            Rest::Again { what, least, most, begun, rest } => {
                // An empty repetition says nothing more.
                if at == begun && least == 0 {
                    return self.step(rest, at);
                }
                self.repeat(what, (least, most), rest, at);
            }
        }
    }

    fn node(&mut self, node: &GrepNode, rest: &Rest<'_>, at: usize) {
        self.deeper(|trying| trying.part(node, rest, at));
    }

    fn part(&mut self, node: &GrepNode, rest: &Rest<'_>, at: usize) {
        match node {
            GrepNode::Empty => self.step(rest, at),
            GrepNode::Set(set) => {
                if let Some((c, len)) = self.pattern.char_at(self.line, at)
                    && set.has(c)
                {
                    self.step(rest, at + len);
                }
            }
            GrepNode::At(place) => {
                if self.pattern.holds(*place, self.line, at) {
                    self.step(rest, at);
                }
            }
            GrepNode::Sequence(nodes) => self.sequence(nodes, rest, at),
            GrepNode::Either(nodes) => nodes.iter().for_each(|node| self.node(node, rest, at)),
            GrepNode::Group(inner, number) if *number < self.groups.len() => {
                self.node(inner, &Rest::Close(*number, at, rest), at);
            }
            GrepNode::Group(inner, _) => self.node(inner, rest, at),
            GrepNode::BackReference(number) => {
                if let Some((begin, end)) = self.groups[*number]
                    && let Some(end) = self.repeats(&self.line[begin..end], at)
                {
                    self.step(rest, end);
                }
            }
            GrepNode::Repeat { what, least, most } => match &**what {
                GrepNode::Set(set) => self.repeat_set(set, (*least, *most), rest, at),
                what => self.repeat(what, (*least, *most), rest, at),
            },
        }
    }

    /// Where what was matched before ends, if it is here again.
    fn repeats(&self, before: &[u8], at: usize) -> Option<usize> {
        if !self.pattern.rules.folds {
            return self.line[at..].starts_with(before).then_some(at + before.len());
        }
        let (mut here, mut there) = (at, 0);
        while let Some((c, len)) = self.pattern.char_at(before, there) {
            let (other, width) = self.pattern.char_at(self.line, here)?;
            if !c.to_lowercase().eq(other.to_lowercase()) {
                return None;
            }
            (here, there) = (here + width, there + len);
        }
        (there == before.len()).then_some(here)
    }

    /// Without a call for each character.
    fn repeat_set(
        &mut self,
        set: &CharSet,
        (least, most): (u32, Option<u32>),
        rest: &Rest<'_>,
        mut at: usize,
    ) {
        let mut ends = vec![at];
        while most.is_none_or(|most| ends.len() <= most as usize)
            && let Some((c, len)) = self.pattern.char_at(self.line, at)
            && set.has(c)
        {
            at += len;
            ends.push(at);
        }
        for end in ends.into_iter().skip(least as usize).rev() {
            self.step(rest, end);
        }
    }

    fn sequence(&mut self, nodes: &[GrepNode], rest: &Rest<'_>, at: usize) {
        match nodes {
            [] => self.step(rest, at),
            [first] => self.node(first, rest, at),
            [first, others @ ..] => self.sequence_rest(first, others, rest, at),
        }
    }

    /// The rest of a sequence becomes a list, from its end.
    fn sequence_rest(&mut self, first: &GrepNode, others: &[GrepNode], rest: &Rest<'_>, at: usize) {
        match others {
            [] => self.node(first, rest, at),
            [others @ .., last] => {
                let rest = Rest::Then(last, rest);
                self.deeper(|trying| trying.sequence_rest(first, others, &rest, at));
            }
        }
    }

    fn repeat(
        &mut self,
        what: &GrepNode,
        (least, most): (u32, Option<u32>),
        rest: &Rest<'_>,
        at: usize,
    ) {
        if most != Some(0) {
            let (fewer, most) = (least.saturating_sub(1), most.map(|most| most - 1));
            let again = Rest::Again { what, least: fewer, most, begun: at, rest };
            self.node(what, &again, at);
        }
        if least == 0 {
            self.step(rest, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::GrepSyntax;
    use super::super::syntax::parse;
    use super::*;

    /// Runs on a stack like a main thread's.
    fn on_a_main_thread_s_stack(run: fn()) {
        let thread = std::thread::Builder::new().stack_size(8 << 20).spawn(run);
        thread.expect("a thread").join().expect("it is enough");
    }

    fn pattern(text: &[u8]) -> Backtracking {
        let rules = CharRules { is_utf8: true, folds: false };
        let node = parse(text, GrepSyntax::Basic, rules).expect("a pattern");
        Backtracking::new(node, rules)
    }

    #[test]
    fn what_was_not_tried_is_no_answer() {
        on_a_main_thread_s_stack(|| {
            let long = b"ab".repeat(20_000);
            let whole = pattern(br"^\(ab\)*\1$");
            assert_eq!(whole.is_match(&long[..200]), Ok(true));
            assert_eq!(whole.is_match(&long), Err(TooManyParts));
            assert_eq!(whole.find(&long, 0), Err(TooManyParts));
            let twice = pattern(br"\(ab\)\1");
            assert_eq!((twice.is_match(&long), twice.find(&long, 0)), (Ok(true), Ok(Some(0..4))));
        });
    }

    #[test]
    fn no_pattern_and_no_line_needs_more_stack() {
        on_a_main_thread_s_stack(|| {
            let long = b"ab".repeat(20_000);
            let wide = [&b"x".repeat(100_000)[..], br"\(a\)\1"].concat();
            let either = [br"^\(".as_slice(), &b"xy\\|".repeat(3_000), br"ab\)*\1$"].concat();
            for text in [&wide[..], &either, br"^\(\(\(ab\)\)*\)\1$", br"^\(a\|b\)*\1x"] {
                let _known_or_not = pattern(text).tried_at(&long, 0).longest;
            }
        });
    }
}
