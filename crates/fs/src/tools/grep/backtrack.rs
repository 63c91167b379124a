//! Matching with back-references, by trying: the longest match at the first place that has one.
//!
//! It may take long, as such patterns do; it uses no more stack than a pattern and a line have
//! parts.

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

/// Parts of a pattern that are under way at once, at most: what needs more does not match.
const DEPTH_MAX: usize = 5_000;

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
}

impl Backtracking {
    pub(super) fn new(node: GrepNode, rules: CharRules) -> Self {
        Self { node, rules, word: CharSet::word(rules) }
    }

    pub(super) fn find(&self, line: &[u8], from: usize) -> Option<Range<usize>> {
        let mut start = from;
        while start <= line.len() {
            let (groups, longest, depth) = ([None; 10], None, 0);
            let mut trying = Trying { pattern: self, line, groups, longest, depth };
            trying.step(&Rest::Then(&self.node, &Rest::End), start);
            if let Some(end) = trying.longest {
                return Some(start..end);
            }
            start += self.char_at(line, start).map_or(1, |(_, len)| len);
        }
        None
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

    fn is_word(&self, line: &[u8], at: usize) -> bool {
        self.char_at(line, at).is_some_and(|(c, _)| self.word.has(c))
    }

    fn is_word_before(&self, line: &[u8], at: usize) -> bool {
        let widths = 1..=if self.rules.is_utf8 { 4 } else { 1 };
        let mut ends = widths.filter_map(|width| {
            let start = at.checked_sub(width)?;
            self.char_at(line, start).filter(|(_, len)| *len == width)
        });
        ends.next().is_some_and(|(c, _)| self.word.has(c))
    }

    fn holds(&self, place: GrepPlace, line: &[u8], at: usize) -> bool {
        let (before, behind) = (self.is_word_before(line, at), self.is_word(line, at));
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
    fn step(&mut self, rest: &Rest<'_>, at: usize) {
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
        self.depth += 1;
        if self.depth < DEPTH_MAX {
            self.part(node, rest, at);
        }
        self.depth -= 1;
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
                self.sequence_rest(first, others, &Rest::Then(last, rest), at);
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
