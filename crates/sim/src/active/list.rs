//! A linked list (`modules/list/list.h`) at a client's hands: get and put behind so many nodes, by
//! plain verbs with a Read for each hop, or by one execution.

use super::node::{Call, SimulatedNode};
use super::operation::{Moment, Operation, Program, Step, word, words};

/// Where the list begins.
pub const ROOT: u64 = 4096;
const HEAD: u64 = ROOT + 8;
const NODE: usize = 64;
/// What a client takes at a time that puts by plain verbs.
const TAKEN: u64 = 256;
const VALUE: [u8; 40] = [7; 40];

/// Makes a list of so many nodes, whose keys are their places.
pub fn prepare(node: &mut SimulatedNode, nodes: u64) {
    let len = node.region().memory().len() as u64 - ROOT;
    node.execute(&Call::new("list", "init", &[ROOT, len], b""), 0);
    // In front: so that making the list does not walk it.
    for key in (0..nodes).rev() {
        node.execute(&Call::new("list", "put", &[ROOT, 0, key], &VALUE), 0);
    }
}

/// What is done to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListWork {
    /// Reads the node behind so many.
    Get,
    /// Puts one there.
    Put,
}

/// By one execution.
#[derive(Clone, Copy, Debug)]
pub struct ActiveList {
    work: ListWork,
    hops: u64,
}

impl ActiveList {
    /// Works behind so many nodes.
    #[must_use]
    pub fn new(work: ListWork, hops: u64) -> Self {
        Self { work, hops }
    }
}

impl Program for ActiveList {
    fn step(&mut self, moment: Moment<'_>) -> Step {
        match (moment.answer, self.work) {
            (None, ListWork::Get) => {
                Step::one(Operation::Execute(Call::new("list", "at", &[ROOT, self.hops], b"")))
            }
            (None, ListWork::Put) => {
                let call = Call::new("list", "put", &[ROOT, self.hops, 1], &VALUE);
                Step::one(Operation::Execute(call))
            }
            (Some(answer), ListWork::Get) => {
                assert_eq!((word(answer, 0), word(answer, 8)), (1, self.hops), "found behind");
                Step::Finished
            }
            (Some(_), ListWork::Put) => Step::Finished,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum ListState {
    Idle,
    /// Nodes for later puts were asked for.
    Taking,
    /// The head was asked for.
    Head,
    /// A node was asked for, to which the word at `link` leads.
    Node {
        link: u64,
        node: u64,
        left: u64,
    },
    /// The link from one node to another was to be replaced.
    Linking {
        from: u64,
    },
}

/// By plain verbs.
#[derive(Clone, Debug)]
pub struct PlainList {
    work: ListWork,
    hops: u64,
    taken: Vec<u64>,
    state: ListState,
}

impl PlainList {
    /// Works behind so many nodes.
    #[must_use]
    pub fn new(work: ListWork, hops: u64) -> Self {
        Self { work, hops, taken: Vec::new(), state: ListState::Idle }
    }

    fn begin(&mut self) -> Step {
        if self.work == ListWork::Put && self.taken.is_empty() {
            self.state = ListState::Taking;
            return Step::one(Operation::Execute(Call::new("list", "take", &[ROOT, TAKEN], b"")));
        }
        self.state = ListState::Head;
        Step::one(Operation::Read { at: HEAD, len: 8 })
    }

    fn read(&mut self, link: u64, node: u64, left: u64) -> Step {
        self.state = ListState::Node { link, node, left };
        Step::one(Operation::Read { at: node, len: NODE })
    }

    /// The node in question is there.
    fn arrived(&mut self, link: u64, node: u64) -> Step {
        if self.work == ListWork::Get {
            return Step::Finished;
        }
        let fresh = self.taken.pop().expect("a node was taken");
        let bytes = words(&[node, 1, VALUE.len() as u64], &VALUE);
        self.state = ListState::Linking { from: node };
        Step::Post(vec![
            Operation::Write { at: fresh, bytes },
            Operation::CompareSwap { at: link, compare: node, swap: fresh },
        ])
    }
}

impl Program for PlainList {
    fn step(&mut self, moment: Moment<'_>) -> Step {
        match (moment.answer, self.state) {
            (None, _) | (_, ListState::Idle) => self.begin(),
            (Some(answer), ListState::Taking) => {
                self.taken = answer.chunks(8).map(|node| word(node, 0)).collect();
                self.begin()
            }
            (Some(answer), ListState::Head) => self.read(HEAD, word(answer, 0), self.hops),
            (Some(_), ListState::Node { link, node, left: 0 }) => self.arrived(link, node),
            (Some(answer), ListState::Node { node, left, .. }) => {
                self.read(node, word(answer, 0), left - 1)
            }
            // Another client was faster: a node that was written is used next time.
            (Some(answer), ListState::Linking { from }) if word(answer, 0) != from => self.begin(),
            (Some(_), ListState::Linking { .. }) => Step::Finished,
        }
    }
}
