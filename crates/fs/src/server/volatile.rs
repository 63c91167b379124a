//! A volatile file system's service: three regions in memory, which clients change by one-sided
//! verbs. Nothing is executed, logged or checked here, and nothing outlives the node.

use super::table::FsTable;
use crate::protocol::volatile::{DATA_REGION, SHARED_LEN, SHARED_REGION};
use crate::protocol::{BLOCK_LEN, REGION};
use outboard_active::Outcome;
use outboard_active::service::{
    ActiveLimits, ActiveService, ActiveServiceOptions, BackendCaller, BackendStep, RegionBackend,
    RegionSetup, cache_directory, open_regions,
};
use outboard_cluster::hub::PeerId;
use outboard_cluster::node::ServiceLink;
use outboard_cluster::service::{ServiceError, SpinMode};
use outboard_offcode::executor::Request;
use outboard_offcode::{ModuleStore, Wasmtime};
use serde_json::{Value, json};
use std::collections::{HashSet, VecDeque};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

/// Regions have whole pages of WebAssembly.
const PAGE: u64 = 64 << 10;
/// Why nothing is executed.
const NOT_HERE: &str = "this file system is volatile: its clients change it by one-sided verbs, \
    and the server executes nothing on it; mount it with outboard fs mount --variant rdma";

/// Refuses whatever is to be executed: it would see, and leave, halves of what clients change.
#[derive(Debug, Default)]
struct VolatileBackend {
    steps: VecDeque<BackendStep>,
    refused: u64,
}

impl RegionBackend for VolatileBackend {
    fn before(&mut self, _caller: BackendCaller, request: Request) -> Option<Request> {
        self.refused += 1;
        let outcome = Outcome::Refused(NOT_HERE.to_owned());
        self.steps.push_back(BackendStep::Answer { token: request.token, outcome });
        None
    }

    fn after(&mut self, _token: u64, outcome: Outcome) -> Option<Outcome> {
        Some(outcome)
    }

    fn fetched(&mut self, _token: u64, _bytes: Vec<u8>) {}

    fn note(&mut self, _caller: BackendCaller, _bytes: &[u8]) -> Result<(), ServiceError> {
        Ok(())
    }

    fn gone(&mut self, _peer: PeerId) {}

    fn superseded(&mut self, _epoch: u64) {}

    fn turn(&mut self, _now: Instant) {}

    fn step(&mut self) -> Option<BackendStep> {
        self.steps.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn ended(&mut self) -> Result<(), ServiceError> {
        Ok(())
    }

    fn report(&self) -> Value {
        json!({ "volatile": true, "refused": self.refused })
    }
}

/// The service, with the regions that the process before has left, or new ones.
pub(super) fn service(
    link: &mut ServiceLink,
    table: &FsTable,
) -> Result<ActiveService, Box<dyn Error>> {
    tracing::warn!(
        "this file system is volatile and unprotected: it is gone when the node ends, and whoever \
         has the key may read and write all of it"
    );
    let shape = table.shape()?;
    let data_len = usize::try_from((shape.block_count * BLOCK_LEN).next_multiple_of(PAGE))?;
    let lens = [
        (REGION, usize::try_from(shape.region_len)?),
        (DATA_REGION, data_len),
        (SHARED_REGION, SHARED_LEN),
    ];
    let (allow, read) = (table.allow()?, table.read()?);
    let setup = |(name, len): (&str, usize)| RegionSetup {
        allow: allow.clone(),
        read: read.clone(),
        ..RegionSetup::new(name, len)
    };
    let setups = lens.map(setup).into();
    let (kept, mut keeper) = (link.take_kept(), link.requester());
    let regions = open_regions(setups, kept, &mut keeper)?;
    let engine = Wasmtime::new(cache_directory().as_deref())?;
    let limits = ActiveLimits::default();
    let mut service = ActiveService::new(ActiveServiceOptions {
        regions,
        store: Arc::new(ModuleStore::new(Arc::new(engine), limits.store)),
        operators: HashSet::new(),
        limits,
        spin: SpinMode::Adaptive,
    })?;
    match service.back(REGION, Box::new(VolatileBackend::default())) {
        true => Ok(service),
        false => Err("the service lost its region: a fault of its own".into()),
    }
}
