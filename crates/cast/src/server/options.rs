//! What a node's service is started with.

use super::policy::{CastPolicy, CastRoot};
use crate::member::DialNode;
use std::fmt;

/// What a node allows, and how it reaches others.
pub struct CastServiceOptions {
    /// Directories below which files may be published.
    pub roots: Vec<CastRoot>,
    /// Bytes of memory for the windows of all casts, at most.
    pub memory: u64,
    /// What sources may do there.
    pub policy: CastPolicy,
    /// Reaches other nodes.
    pub dial: DialNode,
}

impl CastServiceOptions {
    /// Bytes for the windows of all casts, unless an administrator says something else.
    pub const MEMORY_DEFAULT: u64 = 256 << 20;
}

impl fmt::Debug for CastServiceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CastServiceOptions").field("roots", &self.roots).finish_non_exhaustive()
    }
}
