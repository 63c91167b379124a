//! In which order nodes are numbered: as they are listed, or by the switches above them.

use crate::schedule::Topology;
use outboard_cluster::hosts::{Host, HostList};
use rustix::system::uname;

/// Nodes by number, from 1 on, and what is above them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NodeNumbers {
    /// For each node but the source, its index in the list.
    pub(super) places: Vec<usize>,
    /// As in [`Situation::switches`](crate::schedule::Situation::switches).
    pub(super) switches: Vec<u32>,
}

impl NodeNumbers {
    pub(super) fn new(nodes: &HostList, topology: Option<&Topology>) -> Self {
        let here = uname().nodename().to_string_lossy().into_owned();
        Self::from(&here, nodes, topology)
    }

    /// The same for a source of that name.
    fn from(here: &str, nodes: &HostList, topology: Option<&Topology>) -> Self {
        let Some(topology) = topology else {
            return Self { places: (0..nodes.hosts().len()).collect(), switches: Vec::new() };
        };
        let named = |name| if topology.has_node(name) { name } else { short(name) };
        let hosts = nodes.iter().map(Host::name);
        let names: Vec<&str> = std::iter::once(here).chain(hosts).map(named).collect();
        let order = topology.order(&names);
        // Index 0 of the names is the source, which has no place in the list.
        let places = order.order.iter().filter_map(|index| index.checked_sub(1)).collect();
        Self { places, switches: order.switches }
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
        let nodes: HostList = "n[1-4],other".parse().expect("hosts");
        let numbers = NodeNumbers::from("me.here.org", &nodes, Some(&topology));
        assert_eq!(numbers, NodeNumbers { places: vec![1, 3, 0, 2, 4], switches: vec![3, 2, 1] });
        let listed = NodeNumbers::from("me", &nodes, None);
        assert_eq!((listed.places, listed.switches), (vec![0, 1, 2, 3, 4], vec![]));
        let far: HostList = "n1.here.org:7411,n2.here.org".parse().expect("hosts");
        assert_eq!(NodeNumbers::from("me", &far, Some(&topology)).places, [1, 0]);
    }
}
