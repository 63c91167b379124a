//! A node behind many others of a linked list, found or put there by plain verbs, one Read for each
//! hop, or by one execution.

use crate::Failure;
use crate::session::connect;
use crate::shipped::{ROOT, ShippedModule};
use crate::timing::{Timing, milliseconds};
use outboard_active_apps::{ActiveList, PlainList};
use serde_json::{Value, json};

/// Nodes of the list at first.
const NODES: u64 = 200;
const VALUE: [u8; 40] = [7; 40];

/// A list, and both of its clients.
pub(crate) struct ListWork {
    pub(crate) module: ShippedModule,
    active: ActiveList,
    plain: PlainList,
    hops: u64,
    keys: u64,
}

impl ListWork {
    pub(crate) fn new(mut module: ShippedModule, hops: u64) -> Result<Self, Failure> {
        let (structure, len) = (module.structure(), module.region.len() - ROOT);
        let mut active = ActiveList::on(structure.clone());
        active.init(&mut module.client, len)?;
        for key in 0..NODES {
            active.put(&mut module.client, u64::MAX, (key, &VALUE))?;
        }
        Ok(Self { module, active, plain: PlainList::on(structure), hops, keys: NODES })
    }

    fn get(&mut self, side: Side) -> Result<u64, Failure> {
        let client = &mut self.module.client;
        let node = match side {
            Side::Plain => self.plain.at(client, self.hops)?,
            Side::Active => self.active.at(client, self.hops)?,
        };
        Ok(node.ok_or("the list is shorter")?.key)
    }

    fn put(&mut self, side: Side) -> Result<(), Failure> {
        self.keys += 1;
        let (client, node) = (&mut self.module.client, (self.keys, &VALUE[..]));
        match side {
            Side::Plain => self.plain.put(client, self.hops, node)?,
            Side::Active => self.active.put(client, self.hops, node)?,
        };
        Ok(())
    }

    fn round_trips(&self) -> u64 {
        self.active.structure().round_trips() + self.plain.structure().round_trips()
    }
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
    let (mut calls, time, before) = (0, milliseconds(ms)?, work.round_trips());
    let timing = Timing::of(time, || {
        calls += 1;
        match what {
            "get" => work.get(side).map(drop),
            _ => work.put(side),
        }
    })?;
    let mut found = timing.json();
    found["round_trips"] = json!((work.round_trips() - before) as f64 / f64::from(calls));
    Ok(found)
}
