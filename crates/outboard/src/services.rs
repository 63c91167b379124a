//! The services that a node of this program can offer: a name and what its process does, a line
//! each.

use outboard_cluster::node::Entry;

/// Every service, by name. `status` is not among them: the supervisor itself answers that.
pub(crate) const SERVICES: &[(&str, Entry)] = &[];
