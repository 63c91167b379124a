//! Work requests built call by call (ibv_wr_post(3)).

use crate::abi::verbs_context;

/// Fills in this file's functions.
pub(crate) fn set_operations(_c: &mut verbs_context) {}
