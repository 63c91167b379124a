//! The programs by name, and nodes that are ready for them.

use super::costs::Prices;
use super::list::{self, ActiveList, ListWork, PlainList};
use super::lock::{self, ActiveLock, PlainLock, Rivals};
use super::node::SimulatedNode;
use super::operation::Program;
use super::scan::{self, ActiveScan, PlainScan};
use super::simulation::{Measured, Simulation};
use super::table::{self, ActiveTable, PlainTable, TableWork};

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client, by plain verbs.
    Plain,
    /// The node, by executions.
    Active,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// A list's node behind so many others.
    ListGet(u64),
    /// A new node there.
    ListPut(u64),
    /// The value of a key, of so many bytes: up to 16 lie in their bucket.
    HashGet(usize),
    /// Another value for a key, of so many bytes.
    HashPut(usize),
    /// Acquire a lock and release it.
    Lock(Rivals),
    /// The largest records of so many bytes.
    TopK(usize),
}

/// Bytes of a region, for every workload but the largest scans.
const REGION_LEN: usize = 16 << 20;

/// A node with what a workload needs.
#[derive(Debug)]
pub struct Stage {
    workload: Workload,
    node: SimulatedNode,
    lock: u64,
    fuel: u64,
}

impl Stage {
    /// Makes the structures.
    #[must_use]
    pub fn new(workload: Workload) -> Self {
        let region_len = match workload {
            Workload::TopK(bytes) => REGION_LEN.max(bytes + (1 << 20)),
            _ => REGION_LEN,
        };
        let mut node = SimulatedNode::new(region_len);
        let (mut lock, mut fuel) = (0, 0);
        match workload {
            Workload::ListGet(hops) | Workload::ListPut(hops) => list::prepare(&mut node, hops + 1),
            Workload::HashGet(len) | Workload::HashPut(len) => table::prepare(&mut node, len),
            Workload::Lock(_) => lock = lock::prepare(&mut node),
            Workload::TopK(bytes) => {
                scan::prepare(&mut node, bytes);
                fuel = node.execute(&ActiveScan::new(bytes).call(), 0).1.fuel;
            }
        }
        Self { workload, node, lock, fuel }
    }

    /// The node.
    pub fn node(&mut self) -> &mut SimulatedNode {
        &mut self.node
    }

    /// A client's program.
    #[must_use]
    pub fn program(&self, side: Side) -> Box<dyn Program> {
        match (self.workload, side) {
            (Workload::ListGet(hops), Side::Plain) => Box::new(PlainList::new(ListWork::Get, hops)),
            (Workload::ListGet(hops), Side::Active) => {
                Box::new(ActiveList::new(ListWork::Get, hops))
            }
            (Workload::ListPut(hops), Side::Plain) => Box::new(PlainList::new(ListWork::Put, hops)),
            (Workload::ListPut(hops), Side::Active) => {
                Box::new(ActiveList::new(ListWork::Put, hops))
            }
            (Workload::HashGet(len), Side::Plain) => Box::new(PlainTable::new(TableWork::Get, len)),
            (Workload::HashGet(len), Side::Active) => {
                Box::new(ActiveTable::new(TableWork::Get, len))
            }
            (Workload::HashPut(len), Side::Plain) => Box::new(PlainTable::new(TableWork::Put, len)),
            (Workload::HashPut(len), Side::Active) => {
                Box::new(ActiveTable::new(TableWork::Put, len))
            }
            (Workload::Lock(rivals), Side::Plain) => Box::new(PlainLock::new(rivals, self.lock)),
            (Workload::Lock(rivals), Side::Active) => Box::new(ActiveLock::new(rivals)),
            (Workload::TopK(bytes), Side::Plain) => Box::new(PlainScan::new(bytes, self.fuel)),
            (Workload::TopK(bytes), Side::Active) => Box::new(ActiveScan::new(bytes)),
        }
    }

    /// So many clients that work until so many pieces of work have ended.
    pub fn run(
        &mut self,
        prices: Prices,
        (side, clients): (Side, usize),
        pieces: usize,
        seed: u64,
    ) -> Measured {
        let programs = (0..clients).map(|_| self.program(side)).collect();
        Simulation::new(prices, &mut self.node, programs, seed).run(pieces)
    }
}
