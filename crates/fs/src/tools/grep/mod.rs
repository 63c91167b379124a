//! grep: lines of files that match a pattern, found at the server by a module that is made for the
//! pattern here, on the fly.
//!
//! What no automaton of a bounded size does, back-references above all, is done at the client,
//! which reads the files then. Where in a line a pattern matches the client says as well.
//!
//! Modules in reading order: `syntax` and `charset` (patterns as people write them), `automaton`
//! (tables), `wasm` (tables as modules), `matcher` and `backtrack` (at the client), `names` (which
//! files), `search` (whole trees).

mod automaton;
mod backtrack;
mod charset;
mod matcher;
mod names;
mod search;
mod syntax;
#[cfg(test)]
mod tests;
mod wasm;

pub use backtrack::TooManyParts;
pub use matcher::LineMatcher;
pub use names::{GrepNameRule, GrepNames};
pub use search::{GrepBinary, GrepGoes, GrepMode, GrepTeller, GrepTold, GrepTree, GrepWish, grep};
pub use syntax::GrepSyntax;

use super::ToolError;
use automaton::{LineAutomaton, RequiredBytes};
use charset::CharRules;
use syntax::{GrepNode, GrepPlace};

/// Patterns as a command line has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrepWords {
    /// Each may have several lines, each of them a pattern.
    pub patterns: Vec<Vec<u8>>,
    /// How they are written.
    pub syntax: GrepSyntax,
    /// Letters' cases are the same.
    pub folds: bool,
    /// A match is a whole word.
    pub is_word: bool,
    /// A match is a whole line.
    pub is_line: bool,
    /// Characters are those of UTF-8; else bytes.
    pub is_utf8: bool,
}

/// See this file's first lines.
#[derive(Clone, Debug)]
pub struct GrepPattern {
    node: GrepNode,
    rules: CharRules,
    module: Option<Vec<u8>>,
}

impl GrepPattern {
    /// Makes a pattern of what a command line says.
    ///
    /// # Errors
    /// [`ToolError`]: the caller's.
    pub fn compile(words: &GrepWords) -> Result<Self, ToolError> {
        let rules = CharRules { is_utf8: words.is_utf8, folds: words.folds };
        let mut all = Vec::new();
        for pattern in &words.patterns {
            for line in pattern.split(|byte| *byte == b'\n') {
                all.push(syntax::parse(line, words.syntax, rules)?);
            }
        }
        all.dedup();
        // No pattern at all matches nothing.
        let node = if all.len() == 1 { all.remove(0) } else { GrepNode::Either(all) };
        let around = |before, behind| {
            let (before, behind) = (GrepNode::At(before), GrepNode::At(behind));
            GrepNode::Sequence(vec![before, node.clone(), behind])
        };
        let node = match (words.is_line, words.is_word) {
            (true, _) => around(GrepPlace::LineStart, GrepPlace::LineEnd),
            (false, true) => around(GrepPlace::NoWordBefore, GrepPlace::NoWordBehind),
            (false, false) => node,
        };
        let automaton = match matcher::has_back_reference(&node) {
            true => None,
            false => LineAutomaton::of(&node, words.is_utf8),
        };
        let module = automaton.map(|automaton| {
            let required = RequiredBytes::of(&node, words.is_utf8);
            wasm::module(&automaton, required.as_ref())
        });
        Ok(Self { node, rules, module })
    }

    /// The module that finds its lines; `None`: there is none, and files are read.
    #[must_use]
    pub fn module(&self) -> Option<&[u8]> {
        self.module.as_deref()
    }

    /// What finds its matches at the client.
    ///
    /// # Errors
    /// [`ToolError`]: it is too large.
    pub fn matcher(&self) -> Result<LineMatcher, ToolError> {
        let matcher = LineMatcher::new(&self.node, self.rules);
        matcher.ok_or_else(|| ToolError::Words("the pattern is too large for this machine".into()))
    }
}
