//! Slurm's `topology.conf` (topology/tree): which node is below which switch, and from it an order
//! of nodes in which neighbours are near each other.
//!
//! Lines are `SwitchName=s1 Nodes=n[1-4]` or `SwitchName=top Switches=s[1-2]`, `LinkSpeed` is read
//! over, `#` begins a comment, a backslash continues a line. Knows nothing of rates, and leaves it
//! to the caller to expand lists of names.

use std::collections::{BTreeMap, BTreeSet};

/// A topology file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// A word that is not `Name=value`, or has no such name.
    #[error(
        "line {line}: found {found:?} where SwitchName=, Nodes=, Switches= or LinkSpeed= was \
         expected; correct the topology file"
    )]
    Word {
        /// Line number, from 1.
        line: usize,
        /// The word.
        found: String,
    },
    /// A line that does not say of which switch.
    #[error("line {line}: SwitchName= is missing; correct the topology file")]
    Nameless {
        /// Line number, from 1.
        line: usize,
    },
    /// A list that cannot be expanded.
    #[error(
        "line {line}: {found:?} is no list of names such as n[1-4,07-09],big; correct the \
         topology file"
    )]
    Names {
        /// Line number, from 1.
        line: usize,
        /// The list.
        found: String,
    },
    /// One switch on two lines, or one node or switch below two.
    #[error("line {line}: {name} was given a place before; leave one of the two lines")]
    Twice {
        /// Line number, from 1.
        line: usize,
        /// The node or the switch.
        name: String,
    },
    /// Switches below each other in a ring.
    #[error("switch {name} is below itself; correct its Switches= in the topology file")]
    Ring {
        /// One of the switches.
        name: String,
    },
}

/// What is below a switch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Switch {
    nodes: Vec<String>,
    switches: Vec<String>,
}

/// A tree of switches, or several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// Switches by name.
    switches: BTreeMap<String, Switch>,
    /// For a node or a switch, the switch above it.
    above: BTreeMap<Below, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Below {
    Node(String),
    Switch(String),
}

/// Nodes in an order for a [`Situation`](super::Situation).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOrder {
    /// Indices into the names that were asked for, the source's first.
    pub order: Vec<usize>,
    /// How many of them follow each other below each switch.
    pub switches: Vec<u32>,
}

impl Topology {
    /// Reads the text of a topology file. `expand` makes names of a list such as
    /// `n[1-4,07-09],big`, nothing of what is no list, and bounds how many there can be.
    ///
    /// # Errors
    /// What is wrong with it, and in which line.
    pub fn parse(
        text: &str,
        expand: impl Fn(&str) -> Option<Vec<String>>,
    ) -> Result<Self, TopologyError> {
        let mut topology = Self::default();
        let mut joined = String::new();
        let add = |topology: &mut Self, line, text: &str| topology.add_line(line, text, &expand);
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim_end();
            if let Some(begin) = line.strip_suffix('\\') {
                joined.push_str(begin);
                joined.push(' ');
                continue;
            }
            joined.push_str(line);
            add(&mut topology, index + 1, &std::mem::take(&mut joined))?;
        }
        add(&mut topology, text.lines().count(), &joined)?;
        topology.check_rings()?;
        Ok(topology)
    }

    /// Whether it names such a node.
    #[must_use]
    pub fn has_node(&self, name: &str) -> bool {
        self.above.contains_key(&Below::Node(name.to_owned()))
    }

    /// Orders `names`, of which the first is the source: its switch comes first, then the switches
    /// nearest to it, so that each switch's nodes follow each other, and so do those of all
    /// switches below one. Nodes that are below no switch come last.
    #[must_use]
    pub fn order(&self, names: &[&str]) -> NodeOrder {
        let mut left: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, name) in names.iter().enumerate().skip(1) {
            left.entry(name).or_default().push(index);
        }
        let mut walk = Walk { topology: self, left, order: vec![], switches: vec![], seen: vec![] };
        if !names.is_empty() {
            walk.order.push(0);
        }
        let source = names.first().map(|name| Below::Node((*name).to_owned()));
        let mut above = source.and_then(|source| self.above.get(&source));
        while let Some(switch) = above {
            walk.visit(switch);
            walk.close_source();
            above = self.above.get(&Below::Switch(switch.clone()));
        }
        for switch in self.switches.keys() {
            if !self.above.contains_key(&Below::Switch(switch.clone())) {
                walk.visit(switch);
            }
        }
        walk.finish()
    }

    fn add_line(
        &mut self,
        line: usize,
        text: &str,
        expand: &dyn Fn(&str) -> Option<Vec<String>>,
    ) -> Result<(), TopologyError> {
        let names = |list: &str| {
            expand(list).ok_or_else(|| TopologyError::Names { line, found: list.to_owned() })
        };
        let mut name = None;
        let mut switch = Switch::default();
        for word in text.split_whitespace() {
            let unknown = || TopologyError::Word { line, found: word.to_owned() };
            let (key, value) = word.split_once('=').ok_or_else(unknown)?;
            match key.to_ascii_lowercase().as_str() {
                "switchname" => name = Some(value.to_owned()),
                "nodes" => switch.nodes = names(value)?,
                "switches" => switch.switches = names(value)?,
                "linkspeed" => {}
                _ => return Err(unknown()),
            }
        }
        match name {
            Some(name) => self.add_switch(line, name, switch),
            None if text.trim().is_empty() => Ok(()),
            None => Err(TopologyError::Nameless { line }),
        }
    }

    fn add_switch(
        &mut self,
        line: usize,
        name: String,
        switch: Switch,
    ) -> Result<(), TopologyError> {
        let nodes = switch.nodes.iter().cloned().map(Below::Node);
        for below in nodes.chain(switch.switches.iter().cloned().map(Below::Switch)) {
            if self.above.insert(below.clone(), name.clone()).is_some() {
                let (Below::Node(name) | Below::Switch(name)) = below;
                return Err(TopologyError::Twice { line, name });
            }
        }
        match self.switches.insert(name.clone(), switch) {
            Some(_) => Err(TopologyError::Twice { line, name }),
            None => Ok(()),
        }
    }

    fn check_rings(&self) -> Result<(), TopologyError> {
        let mut sound = BTreeSet::new();
        for name in self.switches.keys() {
            let mut path = BTreeSet::new();
            let mut at = Some(name);
            while let Some(name) = at.filter(|name| !sound.contains(*name)) {
                if !path.insert(name) {
                    return Err(TopologyError::Ring { name: name.clone() });
                }
                at = self.above.get(&Below::Switch(name.clone()));
            }
            sound.extend(path);
        }
        Ok(())
    }
}

/// Depth first over the switches, each once.
#[derive(Debug)]
struct Walk<'a> {
    topology: &'a Topology,
    /// Names that have no place yet, and their indices.
    left: BTreeMap<&'a str, Vec<usize>>,
    order: Vec<usize>,
    switches: Vec<u32>,
    /// Switches that were visited, sorted.
    seen: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn visit(&mut self, switch: &'a str) {
        let mut stack = vec![switch];
        while let Some(name) = stack.pop() {
            let Err(place) = self.seen.binary_search(&name) else { continue };
            self.seen.insert(place, name);
            let Some(switch) = self.topology.switches.get(name) else { continue };
            let here = switch.nodes.iter().filter_map(|node| self.left.remove(node.as_str()));
            let here: Vec<usize> = here.flatten().collect();
            self.add(&here);
            stack.extend(switch.switches.iter().rev().map(String::as_str));
        }
    }

    /// One switch's nodes; the source is with the first that has any.
    fn add(&mut self, nodes: &[usize]) {
        if !nodes.is_empty() {
            let begin = if self.switches.is_empty() { 0 } else { self.order.len() };
            self.order.extend(nodes);
            self.switches.push(u32::try_from(self.order.len() - begin).unwrap_or(u32::MAX));
        }
    }

    /// The source is alone below its switch.
    fn close_source(&mut self) {
        if self.switches.is_empty() && !self.order.is_empty() {
            self.switches.push(1);
        }
    }

    fn finish(mut self) -> NodeOrder {
        let mut rest: Vec<usize> = std::mem::take(&mut self.left).into_values().flatten().collect();
        rest.sort_unstable();
        self.add(&rest);
        self.close_source();
        NodeOrder { order: self.order, switches: self.switches }
    }
}
