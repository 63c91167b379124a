//! Relays, and queues between them in place of connections, from which events come in any order.

use super::super::*;
use crate::schedule::{NodeRole, ScheduleKind, Situation};

#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    Wanted {
        chunk: u32,
        want: ChunkWant,
    },
    Dropped {
        slot: u32,
    },
    Arrived {
        chunk: u32,
        slot: u32,
        mine: u32,
    },
    Kept {
        chunk: u32,
        slot: u32,
    },
    Loaded {
        chunk: u32,
        slot: u32,
    },
    Lost {
        peer: u32,
    },
    Replan {
        number: usize,
    },
    /// What the node may have by itself is known.
    Claims,
    Checked {
        chunk: u32,
    },
    Hurried {
        chunk: u32,
    },
    Demanded {
        chunk: u32,
        from: DemandFrom,
    },
}

/// From which node events come that no node sends: ends of connections, and schedules.
pub(super) const OUTSIDE: u32 = u32::MAX;

/// By node, the chunks that it takes to be here before it is sent them, and those that are.
pub(super) type NodeClaims = BTreeMap<u32, (ChunkSet, ChunkSet)>;

/// Nodes, and a queue from each to each; a queue of a node to itself is its disk.
pub(super) struct World {
    pub(super) relays: Vec<Option<Relay>>,
    /// Those after the first.
    schedules: Vec<Arc<Schedule>>,
    pub(super) queues: BTreeMap<(u32, u32), VecDeque<Event>>,
    pub(super) chunks: u32,
    random: u64,
    /// Chunks that were sent, by receiver and chunk.
    pub(super) sent: BTreeMap<(u32, u32), u32>,
    claims: NodeClaims,
}

impl World {
    /// Nodes know what they may have when they hold chunk 0.
    pub(super) fn with_claims(mut self, slots: u32, claims: NodeClaims) -> Self {
        for (node, relay) in (0..).zip(&mut self.relays).skip(1) {
            let schedule = Arc::clone(&relay.as_ref().expect("alive").schedule);
            *relay = Some(Relay::claiming(node, &schedule, slots, (1..self.chunks).collect()));
        }
        self.claims = claims;
        self
    }

    pub(super) fn claim(&mut self, node: u32) {
        let (claimed, _) = self.claims.get(&node).cloned().unwrap_or_default();
        for chunk in (0..self.chunks).filter(|chunk| claimed.contains(*chunk)) {
            self.push(node, node, Event::Checked { chunk });
        }
        if let Some(relay) = self.relay(node) {
            relay.claim(claimed);
        }
    }

    pub(super) fn new(kind: ScheduleKind, nodes: u32, chunks: u32, slots: u32, seed: u64) -> Self {
        let schedule = Schedule::new(kind, Situation::fresh(nodes, chunks)).expect("a schedule");
        let relays = (0..nodes).map(|node| Some(Relay::new(node, &schedule, slots))).collect();
        let queues = BTreeMap::new();
        Self {
            relays,
            schedules: Vec::new(),
            queues,
            chunks,
            random: seed | 1,
            sent: BTreeMap::new(),
            claims: BTreeMap::new(),
        }
    }

    pub(super) fn random(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % below as u64).expect("small")
    }

    pub(super) fn push(&mut self, from: u32, to: u32, event: Event) {
        self.queues.entry((from, to)).or_default().push_back(event);
    }

    pub(super) fn act(&mut self, node: u32) {
        while let Some(action) = self.relay(node).and_then(Relay::next_action) {
            match action {
                Action::Tell { to, chunk, want } => {
                    self.push(node, to, Event::Wanted { chunk, want });
                }
                Action::Hurry { to, chunk } => self.push(node, to, Event::Hurried { chunk }),
                Action::Drop { to, slot } => self.push(node, to, Event::Dropped { slot }),
                Action::Keep { chunk, slot } => self.push(node, node, Event::Kept { chunk, slot }),
                Action::Load { chunk, slot } => {
                    self.push(node, node, Event::Loaded { chunk, slot });
                }
                Action::Send { to, chunk, from, into } => {
                    *self.sent.entry((to, chunk)).or_default() += 1;
                    self.push(node, to, Event::Arrived { chunk, slot: into, mine: from });
                }
            }
        }
    }

    pub(super) fn relay(&mut self, node: u32) -> Option<&mut Relay> {
        self.relays[node as usize].as_mut()
    }

    /// Delivers one event; false if there is none.
    pub(super) fn step(&mut self) -> bool {
        self.queues.retain(|_, queue| !queue.is_empty());
        if self.queues.is_empty() {
            return false;
        }
        let at = self.random(self.queues.len());
        let (&(from, to), queue) = self.queues.iter_mut().nth(at).expect("in range");
        let event = queue.pop_front().expect("not empty");
        if let Event::Arrived { mine, .. } = event
            && let Some(sender) = self.relay(from)
        {
            sender.sent(to, mine);
            self.act(from);
        }
        if let Event::Claims = event {
            self.claim(to);
        } else if let Event::Kept { chunk: 0, .. } = event {
            self.push(to, to, Event::Claims);
        }
        let schedules = self.schedules.clone();
        let is_here = |chunk| self.claims.get(&to).is_some_and(|(_, here)| here.contains(chunk));
        let is_here = matches!(event, Event::Checked { chunk } if is_here(chunk));
        let Some(relay) = self.relay(to) else { return true };
        match event {
            Event::Dropped { slot } => relay.dropped(from, slot).expect("cancelled"),
            Event::Hurried { chunk } => relay.hurried(from, chunk).expect("a peer"),
            Event::Demanded { chunk, from } => relay.demand(chunk, from),
            Event::Wanted { chunk, want } => relay.wanted(from, chunk, want).expect("a peer"),
            Event::Arrived { chunk, slot, .. } => relay.arrived(from, chunk, slot).expect("asked"),
            Event::Kept { chunk, slot } => relay.kept(chunk, slot, true),
            Event::Loaded { chunk, slot } => relay.loaded(chunk, slot),
            Event::Lost { peer } => relay.lost(peer),
            Event::Replan { number } => relay.replan(&schedules[number]),
            Event::Claims => {}
            Event::Checked { chunk } => relay.checked(chunk, is_here),
        }
        self.act(to);
        true
    }

    pub(super) fn start(&mut self) {
        (0..self.relays.len()).for_each(|node| self.act(u32::try_from(node).expect("few")));
    }

    /// A node dies. All others hear of it, and of a schedule without it, sooner or later.
    pub(super) fn kill(&mut self, dead: u32, kind: ScheduleKind) {
        self.relays[dead as usize] = None;
        self.queues.retain(|(from, to), _| *from != dead && *to != dead);
        let nodes = u32::try_from(self.relays.len()).expect("few");
        for node in (0..nodes).filter(|node| *node != dead) {
            self.push(OUTSIDE, node, Event::Lost { peer: dead });
        }
        self.replan(kind);
    }

    /// All hear of another schedule, from what they hold, sooner or later.
    pub(super) fn replan(&mut self, kind: ScheduleKind) {
        let nodes = u32::try_from(self.relays.len()).expect("few");
        let mut situation = Situation::fresh(nodes, self.chunks);
        for (state, relay) in situation.nodes.iter_mut().zip(&self.relays) {
            match relay {
                Some(relay) => state.holds = relay.held().clone(),
                None => state.role = NodeRole::Dead,
            }
        }
        self.schedules.push(Schedule::new(kind, situation).expect("a schedule"));
        let number = self.schedules.len() - 1;
        for node in 0..nodes {
            // The dead hear nothing.
            self.push(OUTSIDE, node, Event::Replan { number });
        }
    }

    pub(super) fn check(&self) {
        for (node, relay) in self.relays.iter().enumerate() {
            let Some(relay) = relay else { continue };
            assert!(relay.is_complete(), "node {node} lacks {:?}", relay.held());
            assert_eq!(relay.outstanding().count(), 0, "node {node}");
        }
    }
}
