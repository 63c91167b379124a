//! What crosses the links between switches, counted in bytes as they pass.

use super::detour::{Towards, detour};
use super::sessions::{self, credentials};
use super::*;
use outboard_cast::schedule::Topology;
use outboard_cast::source::{NodeTopology, this_machine};
use outboard_cluster::hosts::Host;
use outboard_secure::ClusterKey;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// What nodes are called, in the list's order: the letter is the switch that each is below.
const NAMES: [&str; 8] = ["b1", "a1", "c1", "c2", "b2", "a2", "b3", "c3"];

/// Nodes' switches, and bytes that have gone from one switch to another.
#[derive(Default)]
struct Meter {
    switches: Mutex<BTreeMap<SocketAddr, char>>,
    crossed: Mutex<BTreeMap<(char, char), u64>>,
}

impl Meter {
    fn switch_of(&self, node: SocketAddr) -> char {
        self.switches.lock().expect("no panic")[&node]
    }

    /// Where a node below one switch dials a node below another: once.
    fn crossing(self: &Arc<Self>, (here, there): (char, char), address: SocketAddr) -> SocketAddr {
        let meter = Arc::clone(self);
        detour(address, move |towards, count| {
            let way = if towards == Towards::Node { (here, there) } else { (there, here) };
            *meter.crossed.lock().expect("no panic").entry(way).or_default() += count as u64;
            true
        })
    }

    /// The dialling of a node below a switch.
    fn dial(self: &Arc<Self>, key: &ClusterKey, switch: char) -> DialNode {
        let (own, meter) = (credentials(key, "cast"), Arc::clone(self));
        Arc::new(move |host: &Host, limit: Duration| {
            let address: SocketAddr = host.to_string().parse().map_err(|e| format!("{e}"))?;
            let there = meter.switch_of(address);
            let address = match there == switch {
                true => address,
                false => meter.crossing((switch, there), address),
            };
            sessions::dial(&own, "cast", address, limit)
        })
    }

    /// Bytes that have come to the nodes below a switch from other switches.
    fn came_to(&self, switch: char) -> u64 {
        let crossed = self.crossed.lock().expect("no panic");
        crossed.iter().filter(|((_, to), _)| *to == switch).map(|(_, bytes)| bytes).sum()
    }
}

fn first(name: &str) -> char {
    name.chars().next().expect("a letter")
}

/// Casts to nodes below three switches, the first of which is the source's too.
fn cast_across(kind: ScheduleKind, topology: Option<NodeTopology>) -> (Arc<Meter>, u64) {
    let meter = Arc::new(Meter::default());
    let mut lab = Lab::new(0);
    for name in NAMES {
        let root = tempfile::tempdir().expect("a directory");
        let dial = meter.dial(&lab.key, first(name));
        let node = Node::start_dialling(&lab.key, root, (Arc::default(), dial));
        meter.switches.lock().expect("no panic").insert(node.address, first(name));
        lab.nodes.push(node);
    }
    lab.fill(6_000_000);
    let dial = meter.dial(&lab.key, 'a');
    let request = lab.request(kind, Path::new(ROOT));
    let outcome = cast(CastRequest { topology, dial, ..request }).expect("a cast");
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..NAMES.len()).for_each(|node| lab.check(node));
    (meter, outcome.stream_len)
}

#[test]
fn each_byte_comes_to_each_switch_once() {
    let here = this_machine();
    let text = format!(
        "SwitchName=a Nodes={here},a1,a2\nSwitchName=b Nodes=b1,b2,b3\n\
         SwitchName=c Nodes=c1,c2,c3\nSwitchName=top Switches=a,b,c\n"
    );
    let expand = |list: &str| Some(list.split(',').map(str::to_owned).collect());
    let topology = Topology::parse(&text, expand).expect("a topology");
    let names = NAMES.map(str::to_owned).into();
    let (meter, len) = cast_across(ScheduleKind::Switches, Some(NodeTopology { topology, names }));
    for switch in ['b', 'c'] {
        let came = meter.came_to(switch);
        assert!(came >= len && came < len + len / 8, "{came} of {len} came to {switch}");
    }
    // Nothing but messages goes back.
    assert!(meter.came_to('a') < len / 8, "{}", meter.came_to('a'));
}

#[test]
fn without_a_topology_chunks_cross_again_and_again() {
    let (meter, len) = cast_across(ScheduleKind::BinomialPipeline, None);
    let all: u64 = ['a', 'b', 'c'].into_iter().map(|switch| meter.came_to(switch)).sum();
    assert!(all > 4 * len, "{all} of {len}");
}
