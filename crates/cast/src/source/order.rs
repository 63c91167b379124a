//! In which order nodes are numbered: as they are listed, or by the switches above them.

use crate::schedule::Topology;
use rustix::system::uname;

/// The switches above a cast's nodes.
#[derive(Clone, Debug)]
pub struct NodeTopology {
    /// What is below which switch.
    pub topology: Topology,
    /// What the nodes are called in it, in the order of the request's list. A port is read over,
    /// and so is a domain if the topology has the name without it.
    pub names: Vec<String>,
}

impl NodeTopology {
    /// Indices into the names that follow `here`, and how many nodes are below each switch, the
    /// first of which counts the source.
    #[must_use]
    pub fn order(&self, here: &str) -> (Vec<usize>, Vec<u32>) {
        let known = |name| if self.topology.has_node(name) { name } else { short(name) };
        let names = self.names.iter().map(|name| without_port(name));
        let names: Vec<&str> = std::iter::once(here).chain(names).map(known).collect();
        let order = self.topology.order(&names);
        // Index 0 of the names is the source, which has no place in the list.
        let places = order.order.iter().filter_map(|index| index.checked_sub(1)).collect();
        (places, order.switches)
    }
}

/// Nodes by number, from 1 on, and what is above them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NodeNumbers {
    /// For each node but the source, its index in the list.
    pub(super) places: Vec<usize>,
    /// As in [`Situation::switches`](crate::schedule::Situation::switches).
    pub(super) switches: Vec<u32>,
}

impl NodeNumbers {
    pub(super) fn new(nodes: usize, topology: Option<&NodeTopology>) -> Self {
        match topology {
            Some(topology) if topology.names.len() == nodes => {
                let (places, switches) = topology.order(&this_machine());
                Self { places, switches }
            }
            _ => Self { places: (0..nodes).collect(), switches: Vec::new() },
        }
    }
}

/// What this machine is called.
#[must_use]
pub fn this_machine() -> String {
    uname().nodename().to_string_lossy().into_owned()
}

fn without_port(name: &str) -> &str {
    match name.split_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => name,
    }
}

/// A topology file has hosts' names without domains.
fn short(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_below_one_switch_have_neighbouring_numbers() {
        let expand = |list: &str| Some(list.split(',').map(str::to_owned).collect());
        let text = "SwitchName=a Nodes=n1,n3\nSwitchName=b Nodes=n2,n4,me\n\
                    SwitchName=t Switches=a,b\n";
        let topology = Topology::parse(text, expand).expect("a topology");
        let order = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            NodeTopology { topology: topology.clone(), names }.order("me.here.org")
        };
        let whole = order(&["n1", "n2", "n3", "n4", "other"]);
        assert_eq!(whole, (vec![1, 3, 0, 2, 4], vec![3, 2, 1]));
        assert_eq!(order(&["n1.here.org:7411", "n2.here.org"]).0, [1, 0]);
        let listed = NodeNumbers::new(3, None);
        assert_eq!((listed.places, listed.switches), (vec![0, 1, 2], vec![]));
    }
}
