//! A node behind many others of a linked list (`modules/list/list.h`), found or put there by plain
//! verbs, one Read for each hop, or by one execution.

use crate::Failure;
use crate::session::connect;
use crate::shipped::{ROOT, ShippedModule, word, words};
use crate::timing::{Timing, milliseconds};
use serde_json::{Value, json};

const HEAD: u64 = ROOT + 8;
const NODE: usize = 64;
const KEY: usize = 8;
const REMOVED: u64 = 1;
/// Nodes of the list at first.
const NODES: u64 = 200;
/// What a put at a client's hands takes at a time.
const TAKEN: u64 = 256;
const VALUE: [u8; 40] = [7; 40];

/// A list, and what a client that uses plain verbs keeps.
pub(crate) struct ListWork {
    pub(crate) module: ShippedModule,
    hops: u64,
    /// Nodes to put.
    taken: Vec<u64>,
    /// Dependent accesses of plain verbs, and executions.
    round_trips: u64,
    keys: u64,
}

/// Where a walk has ended.
struct Walked {
    /// The offset of the word that leads to the node.
    link: u64,
    node: u64,
    bytes: Vec<u8>,
}

impl ListWork {
    pub(crate) fn new(module: ShippedModule, hops: u64) -> Result<Self, Failure> {
        let mut work = Self { module, hops, taken: Vec::new(), round_trips: 0, keys: NODES };
        let len = work.module.region.len() - ROOT;
        work.module.call("init", &words(&[ROOT, len]))?;
        for key in 0..NODES {
            work.module.call("put", &put_args(u64::MAX, key))?;
        }
        Ok(work)
    }

    fn read(&mut self, at: u64, len: usize) -> Result<Vec<u8>, Failure> {
        self.round_trips += 1;
        Ok(self.module.region.read(&mut self.module.client, at, len)?)
    }

    fn walk(&mut self) -> Result<Walked, Failure> {
        let head = self.read(HEAD, 8)?;
        let (mut link, mut node) = (HEAD, word(&head, 0)?);
        for _ in 0..self.hops {
            let bytes = self.read(node, NODE)?;
            let next = word(&bytes, 0)?;
            if next & REMOVED != 0 {
                return self.walk();
            }
            (link, node) = (node, next);
        }
        let bytes = self.read(node, NODE)?;
        Ok(Walked { link, node, bytes })
    }

    fn get(&mut self, side: Side) -> Result<u64, Failure> {
        match side {
            Side::Plain => word(&self.walk()?.bytes, KEY),
            Side::Active => {
                self.round_trips += 1;
                word(&self.module.call("at", &words(&[ROOT, self.hops]))?, 24)
            }
        }
    }

    fn put(&mut self, side: Side) -> Result<(), Failure> {
        self.keys += 1;
        if side == Side::Active {
            self.round_trips += 1;
            return self.module.call("put", &put_args(self.hops, self.keys)).map(drop);
        }
        let fresh = self.fresh()?;
        loop {
            let Walked { link, node, .. } = self.walk()?;
            let mut bytes = words(&[node, self.keys, VALUE.len() as u64]);
            bytes.extend(VALUE);
            let ShippedModule { client, region, .. } = &mut self.module;
            self.round_trips += 1;
            if region.write_then_swap(client, (fresh, &bytes), (link, node, fresh))? == node {
                return Ok(());
            }
        }
    }

    fn fresh(&mut self) -> Result<u64, Failure> {
        if self.taken.is_empty() {
            self.round_trips += 1;
            let taken = self.module.call("take", &words(&[ROOT, TAKEN]))?;
            self.taken = taken.chunks(8).map(|node| word(node, 0)).collect::<Result<_, _>>()?;
        }
        Ok(self.taken.pop().ok_or("the node gives no nodes")?)
    }
}

fn put_args(hops: u64, key: u64) -> Vec<u8> {
    let mut args = words(&[ROOT, hops, key]);
    args.extend(VALUE);
    args
}

/// Who works on the structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The client, by plain verbs.
    Plain,
    /// The module.
    Active,
}

impl Side {
    pub(crate) fn parse(word: &str) -> Result<Self, Failure> {
        match word {
            "plain" => Ok(Self::Plain),
            "active" => Ok(Self::Active),
            _ => Err(format!("{word} is neither plain nor active").into()),
        }
    }
}

/// Gets or puts behind so many nodes.
pub(crate) fn run(
    [host, modules, wait]: [&str; 3],
    [side, what, hops, ms]: [&str; 4],
) -> Result<Value, Failure> {
    let module = ShippedModule::load(connect(host, "list", wait)?, modules, "list")?;
    let (side, mut work) = (Side::parse(side)?, ListWork::new(module, hops.parse()?)?);
    let found = [work.get(Side::Plain)?, work.get(Side::Active)?];
    if found != [work.hops; 2] {
        return Err(format!("behind {} nodes are the keys {found:?}", work.hops).into());
    }
    let (mut calls, time) = (0, milliseconds(ms)?);
    work.round_trips = 0;
    let timing = Timing::of(time, || {
        calls += 1;
        match what {
            "get" => work.get(side).map(drop),
            _ => work.put(side),
        }
    })?;
    let mut found = timing.json();
    found["round_trips"] = json!(work.round_trips as f64 / f64::from(calls));
    Ok(found)
}
