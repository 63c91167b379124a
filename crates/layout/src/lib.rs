//! Where offcodes run: pure values that are given devices, offcodes, constraints and costs, and say
//! which offcode belongs on which device, and why.
//!
//! Never does I/O, never starts a thread and never reads a clock: a caller's closure says when to
//! stop. The same problem always gets the same answer, unless the closure stops it earlier.
//!
//! What a layout is measured by, each only where all before it are equal: the constraints hold;
//! as many offcodes as possible are offloaded, by priority class; the processor time of the whole
//! machine for channels and offcodes is least; the fewest offcodes move; the order of names.
//!
//! Modules in reading order: `problem` (what is asked), `contract` (the problem as a network of
//! variables and tables), `network`, `bound` (what no placement can beat), `local` (a good
//! placement, soon), `search` (the best placement, exactly), `solve` (one level after another),
//! `conflict` (why there is none), `reasons` (why there), `draw` (for people).

#![forbid(unsafe_code)]

mod bound;
mod conflict;
mod contract;
mod draw;
mod local;
mod network;
mod problem;
mod reasons;
mod search;
mod solve;

pub use conflict::{ConflictPart, LayoutConflict};
pub use draw::{draw_svg, draw_text};
pub use problem::{
    DeviceIndex, Eligibility, LayoutChannel, LayoutConstraint, LayoutDevice, LayoutOffcode,
    LayoutProblem, OffcodeIndex, ProblemError,
};
pub use reasons::{CapacityKind, Explanation, Refusal, WhyThere};
pub use solve::{ClassCount, LayoutError, LayoutSolution, solve};
