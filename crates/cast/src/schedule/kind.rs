//! The kinds of schedules, by their names on the command line.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How chunks travel from the source to all. Steps are those of n nodes (the source among them)
/// and m chunks, each node sending at most one and receiving at most one chunk a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ScheduleKind {
    /// Pipelined along the edges of a hypercube whose corners are one node or two: m − 1 +
    /// ⌈log₂ n⌉ steps, which no schedule undercuts (Ganesan and Seshadri, ICDCS'05; RDMC, DSN'18).
    #[default]
    BinomialPipeline,
    /// Two binary trees, each node inside of one at most, for even and odd chunks: at most m +
    /// 2⌈log₂ n⌉ steps and 6 connections a node (Sanders, Speck and Träff, 2009).
    TwoTree,
    /// Each node to the next: m + n − 2 steps, two connections a node.
    Chain,
    /// A pipelined tree: at most k(m − 1 + d) steps for arity k and depth d.
    Tree {
        /// To how many nodes a node sends.
        arity: NonZeroU32,
    },
    /// The paper's tree: a node has the whole file before it sends it to one child after the
    /// other (Fast Startup §4.2): at most k·d·m steps.
    PaperTree {
        /// To how many nodes a node sends; the paper's figures are of 2.
        arity: NonZeroU32,
    },
    /// The source to each node: m(n − 1) steps, without relays.
    Star,
    /// A binomial pipeline below each switch; the last to be free hand each chunk to the next
    /// switch once. Needs [`Situation::switches`](super::Situation::switches).
    Switches,
}

impl ScheduleKind {
    /// Whether several nodes send to one in turn.
    pub(super) fn has_turns(self) -> bool {
        matches!(self, Self::BinomialPipeline | Self::TwoTree | Self::Switches)
    }
}

/// A schedule's name that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no schedule is called {found:?}: use binomial, two-tree, chain, tree:ARITY, paper:ARITY, \
     star or switches, ARITY being 1 or more"
)]
pub struct UnknownSchedule {
    /// What was asked for.
    pub found: String,
}

impl fmt::Display for ScheduleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BinomialPipeline => f.pad("binomial"),
            Self::TwoTree => f.pad("two-tree"),
            Self::Chain => f.pad("chain"),
            Self::Tree { arity } => f.pad(&format!("tree:{arity}")),
            Self::PaperTree { arity } => f.pad(&format!("paper:{arity}")),
            Self::Star => f.pad("star"),
            Self::Switches => f.pad("switches"),
        }
    }
}

impl FromStr for ScheduleKind {
    type Err = UnknownSchedule;

    fn from_str(name: &str) -> Result<Self, UnknownSchedule> {
        let unknown = || UnknownSchedule { found: name.to_owned() };
        let plain = match name {
            "binomial" => Self::BinomialPipeline,
            "two-tree" => Self::TwoTree,
            "chain" => Self::Chain,
            "star" => Self::Star,
            "switches" => Self::Switches,
            _ => {
                let (tree, arity) = name.split_once(':').ok_or_else(unknown)?;
                let arity = arity.parse().map_err(|_| unknown())?;
                return match tree {
                    "tree" => Ok(Self::Tree { arity }),
                    "paper" => Ok(Self::PaperTree { arity }),
                    _ => Err(unknown()),
                };
            }
        };
        Ok(plain)
    }
}
