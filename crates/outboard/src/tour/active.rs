//! The stop `active`: a list in a node's memory, walked from here and by code that runs there; and
//! a limit that many callers share.

use super::nodes::TourNodes;
use super::{Guide, Trouble};
use crate::active::shipped;
use outboard_active::protocol::SERVICE;
use outboard_active::{
    ActiveCall, ActiveClient, ActiveClientOptions, ActiveError, DialActive, ModuleHash,
    RemoteRegion,
};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::HostList;
use outboard_offcode::Outcome;
use outboard_secure::ServiceName;
use outboard_verbs::Context;
use serde_json::{Value, json};
use std::fmt::Display;
use std::time::{Duration, Instant};

/// Nodes of the list before the one that is looked for.
const HOPS: u64 = 100;
/// Where structures begin in a region, and the word that leads to the list's first node.
const ROOT: u64 = 4096;
const HEAD: u64 = ROOT + 8;
/// Bytes of a list's node.
const NODE: usize = 64;
/// How long each way of walking is measured.
const MEASURED: Duration = Duration::from_millis(700);
/// Calls that a minute allows, and calls that are made.
const ALLOWED: u64 = 3;
const CALLS: u64 = 5;

pub(super) fn show(guide: &Guide) -> Result<Value, Trouble> {
    let nodes = TourNodes::with_regions(guide, &[("list", "1MiB"), ("limits", "1MiB")])?;
    guide.say("   node      on loopback, with two regions of memory, encryption");
    let mut visit = Visit::new(&nodes)?;
    let (plain_us, active_us) = visit.walks(guide)?;
    guide.say(&format!(
        "   list      {HOPS} hops: {plain_us:.0} µs by a Read for each, {active_us:.0} µs by one \
         Execute: {:.0} times faster",
        plain_us / active_us
    ));
    let allowed = visit.limited()?;
    guide.say(&format!(
        "   limit     {ALLOWED} calls a minute: of {CALLS} calls, {allowed} are allowed, all \
         counted by one module at the node"
    ));
    guide.say(CLOSE);
    Ok(json!({ "hops": HOPS, "plain_us": plain_us, "active_us": active_us,
               "calls": CALLS, "allowed": allowed }))
}

const CLOSE: &str =
    "   Each Execute is one round trip, whatever it does there, and all or nothing. On a network
   with longer round trips the difference is larger: docs/active.md, outboard active --help";

/// A client, and the node's regions.
struct Visit {
    client: ActiveClient,
    list: RemoteRegion,
    limits: RemoteRegion,
}

impl Visit {
    fn new(nodes: &TourNodes) -> Result<Self, Trouble> {
        let failed = |error: ActiveError| Trouble::failed("the node's regions", error);
        let mut client = connect(nodes)?;
        let list = client.attach("list").map_err(failed)?;
        let limits = client.attach("limits").map_err(failed)?;
        Ok(Self { client, list, limits })
    }

    /// Loads a module that comes with this program, and what it imports.
    fn load(&mut self, name: &str) -> Result<ModuleHash, Trouble> {
        let failed = |error: ActiveError| Trouble::failed("a module", error);
        let mut wanted = None;
        for (known, bytes) in shipped() {
            let hash = self.client.know(known, bytes).map_err(failed)?;
            wanted = (known == name).then_some(hash).or(wanted);
        }
        let hash = wanted.ok_or_else(|| Trouble::failed(name, "no such module"))?;
        self.client.load_known(hash).map(|_entries| hash).map_err(failed)
    }

    /// The time of a walk by Reads, and by an execution, in microseconds.
    fn walks(&mut self, guide: &Guide) -> Result<(f64, f64), Trouble> {
        let module = self.load("list")?;
        let (client, region) = (&mut self.client, &self.list);
        let mut call = |entry, args: &[u64], value: &[u8]| {
            called(client, &ActiveCall::new(region, module, entry, &bytes(args, value)))
        };
        call("init", &[ROOT, region.len() - ROOT], b"")?;
        for key in 0..2 * HOPS {
            call("put", &[ROOT, u64::MAX, key], b"on a tour")?;
        }
        let active_us = middle_us(guide, || word(&call("at", &[ROOT, HOPS], b"")?, 24))?;
        let plain_us = middle_us(guide, || self.walk())?;
        Ok((plain_us, active_us))
    }

    /// The key behind so many hops, by a Read for each.
    fn walk(&mut self) -> Result<u64, Trouble> {
        let failed = |error: ActiveError| Trouble::failed("a Read", error);
        let mut read = |at, len| self.list.read(&mut self.client, at, len).map_err(failed);
        let mut node = word(&read(HEAD, 8)?, 0)?;
        for _ in 0..HOPS {
            node = word(&read(node, NODE)?, 0)?;
        }
        word(&read(node, NODE)?, 8)
    }

    /// How many calls a limit allows.
    fn limited(&mut self) -> Result<u64, Trouble> {
        let module = self.load("script")?;
        let (client, region) = (&mut self.client, &self.limits);
        let mut call = |entry, args: &[u64], key: &[u8]| {
            called(client, &ActiveCall::new(region, module, entry, &bytes(args, key)))
        };
        call("init", &[ROOT, region.len() - ROOT, 4], b"")?;
        let minute_ns = 60_000_000_000;
        let one = [ROOT, ALLOWED, minute_ns, 1];
        (0..CALLS).map(|_| word(&call("limit", &one, b"visitor")?, 0)).sum()
    }
}

fn connect(nodes: &TourNodes) -> Result<ActiveClient, Trouble> {
    let failed = |why: &dyn Display| Trouble::failed("the node's service active", why);
    let service: ServiceName = SERVICE.parse().map_err(|error| failed(&error))?;
    let setting = |name: &str| nodes.setting(name);
    let dialer = Dialer::from_environment(setting, std::slice::from_ref(&service));
    let dialer = dialer.map_err(|error| failed(&error))?;
    let address = nodes.addresses().next().ok_or_else(|| failed(&"no node"))?;
    let hosts: HostList = address.parse().map_err(|error| failed(&error))?;
    let host = hosts.hosts().first().cloned().ok_or_else(|| failed(&"no host"))?;
    let dial: DialActive = Box::new(move |limit| {
        let dialled = dialer.dial(&host, &service, Instant::now() + limit);
        dialled.map_err(|error| error.to_string())
    });
    let context = Context::open().map_err(|error| failed(&error))?;
    let client = ActiveClient::connect(&context, dial, ActiveClientOptions::default());
    client.map_err(|error| failed(&error))
}

fn called(client: &mut ActiveClient, call: &ActiveCall<'_>) -> Result<Vec<u8>, Trouble> {
    match client.execute(call) {
        Ok(Outcome::Done { result, .. }) => Ok(result),
        Ok(other) => Err(Trouble::failed(call.entry, format!("{other:?}"))),
        Err(error) => Err(Trouble::failed(call.entry, error)),
    }
}

/// The middle of the times that something takes, which must find the same key each time.
fn middle_us(
    guide: &Guide,
    mut find: impl FnMut() -> Result<u64, Trouble>,
) -> Result<f64, Trouble> {
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < MEASURED {
        guide.goes_on()?;
        let since = Instant::now();
        let key = find()?;
        times.push(since.elapsed());
        if key != HOPS {
            return Err(Trouble::Failed(format!("behind {HOPS} hops is the key {key}")));
        }
    }
    times.sort_unstable();
    Ok(times[times.len() / 2].as_secs_f64() * 1e6)
}

/// Arguments: words, then bytes.
fn bytes(words: &[u64], behind: &[u8]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).chain(behind.iter().copied()).collect()
}

fn word(bytes: &[u8], at: usize) -> Result<u64, Trouble> {
    let found = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    let word = found.ok_or_else(|| Trouble::Failed("an answer is too short".into()))?;
    Ok(u64::from_le_bytes(*word))
}
