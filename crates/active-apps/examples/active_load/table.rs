//! Gets and puts of a hash table by plain verbs, as well as they can be done, or by one execution.

use crate::Failure;
use crate::list::Side;
use crate::many::Calling;
use crate::session::{connect, connect_all};
use crate::shipped::{ROOT, ShippedModule};
use crate::timing::{Timing, milliseconds};
use outboard_active_apps::{ActiveHashTable, PlainHashTable};
use serde_json::{Value, json};

/// The logarithm of the number of buckets: enough that the table does not grow.
const FIRST: u32 = 14;
const KEYS: u64 = 10_000;

/// A table, and both of its clients.
pub(crate) struct TableWork {
    pub(crate) module: ShippedModule,
    active: ActiveHashTable,
    plain: PlainHashTable,
    value: Vec<u8>,
    random: u64,
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:08x}").into_bytes()
}

impl TableWork {
    pub(crate) fn new(mut module: ShippedModule, value_len: usize) -> Result<Self, Failure> {
        let (value, random) = (vec![b'v'; value_len], 88_172_645_463_325_252);
        let (structure, len) = (module.structure(), module.region.len() - ROOT);
        let mut active = ActiveHashTable::on(structure.clone());
        active.init(&mut module.client, len, FIRST)?;
        for number in 0..KEYS {
            active.put(&mut module.client, &key(number), &value)?;
        }
        Ok(Self { module, active, plain: PlainHashTable::on(structure), value, random })
    }

    fn next_key(&mut self) -> Vec<u8> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        key(self.random % KEYS)
    }

    fn get(&mut self, side: Side) -> Result<Vec<u8>, Failure> {
        let (key, client) = (self.next_key(), &mut self.module.client);
        let value = match side {
            Side::Plain => self.plain.get(client, &key)?,
            Side::Active => self.active.get(client, &key)?,
        };
        value.ok_or_else(|| "an entry is lost".into())
    }

    fn put(&mut self, side: Side) -> Result<(), Failure> {
        let (key, client) = (self.next_key(), &mut self.module.client);
        match side {
            Side::Plain => self.plain.put(client, &key, &self.value)?,
            Side::Active => self.active.put(client, &key, &self.value)?,
        };
        Ok(())
    }

    fn round_trips(&self) -> u64 {
        self.active.structure().round_trips() + self.plain.structure().round_trips()
    }
}

/// Gets or puts, one after the other.
pub(crate) fn run(
    [host, modules, wait]: [&str; 3],
    [side, what, value_len, ms]: [&str; 4],
) -> Result<Value, Failure> {
    let module = ShippedModule::load(connect(host, "table", wait)?, modules, "table")?;
    let (side, mut work) = (Side::parse(side)?, TableWork::new(module, value_len.parse()?)?);
    for side in [Side::Plain, Side::Active] {
        if work.get(side)? != work.value {
            return Err("a value is another".into());
        }
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

/// Executions of gets or puts on many connections, several under way on each.
pub(crate) fn many(
    [host, modules]: [&str; 2],
    [what, value_len, connections, depth, ms]: [&str; 5],
) -> Result<Value, Failure> {
    let module = ShippedModule::load(connect(host, "table", "spin")?, modules, "table")?;
    let mut work = TableWork::new(module, value_len.parse()?)?;
    let all = connect_all(host, "table", connections.parse()?)?;
    let (entry, is_get) = (what, what == "get");
    let module = work.module.module;
    let next_args = &mut || {
        let key = work.next_key();
        if is_get { work.active.get_args(&key) } else { work.active.put_args(&key, &work.value) }
    };
    let mut calling = Calling { module, entry, next_args, depth: depth.parse()? };
    Ok(calling.run(all, milliseconds(ms)?)?.json())
}
