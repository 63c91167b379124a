//! A node's service `active`: regions that clients attach, modules that they load, and executions
//! beside their plain one-sided operations.
//!
//! It waits for no disk and no compiler: threads do. A request that takes long is executed by
//! `outboard-offcode`'s threads. What a client may cost is bounded: messages that wait for their
//! turn, answers that it does not take, loads, executions.
//!
//! Modules in reading order: `table` (its table of a node's configuration), `entry` (its process),
//! `options` (what it is started with), `regions` (regions that are kept and regions from files),
//! `persist` (regions as files), `operator` (modules of a directory), `session` (a connection),
//! `active` (all of it: the loop's work), `backend` (what a region has beside its memory),
//! `execute` (requests to execute), `answer` (what becomes of them), `loads` with `identities`
//! (who has how many bytes of modules), `admin` (lists, kills, reports), `counters`.

mod active;
mod admin;
mod answer;
mod backend;
mod counters;
mod entry;
mod execute;
mod gone;
mod identities;
mod loads;
mod operator;
mod options;
mod persist;
mod regions;
mod session;
mod table;

pub use active::{ActiveService, ActiveTag};
pub use backend::{BACKEND_TENANT, BACKEND_TOKEN, BackendCaller, BackendStep, RegionBackend};
pub use counters::{ActiveCounters, ActiveReport};
pub use entry::{cache_directory, check_table, hub_options, serve};
pub use operator::load_directory;
pub use options::{ActiveLimits, ActiveServiceOptions};
pub use persist::PersistError;
pub use regions::{
    FollowedRun, RegionError, RegionKeeper, RegionSetup, ServedRegion, begin_region,
    discard_region, follow_region, kept_region, open_regions,
};
pub use table::parse_size;
