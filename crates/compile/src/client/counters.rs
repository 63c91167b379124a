//! What a manager's half of the network has done since it was started: plain numbers of its loop.

use outboard_cluster::hub::HubCounters;
use outboard_export::ExportCounters;
use serde::Serialize;

/// Counters of a manager, as it writes them beside the statistics of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ManagerCounters {
    /// The manager's process.
    pub pid: u32,
    /// Servers that are connected now.
    pub servers_now: u64,
    /// Slots of these servers.
    pub slots_now: u64,
    /// Jobs that wait for a server now, or are on one.
    pub jobs_now: u64,
    /// Threads that hang now in a file system.
    pub threads_hung_now: u64,
    /// Connections to servers that were lost or given up.
    pub servers_lost: u64,
    /// Jobs that were given to servers, copies of slow ones too.
    pub jobs_given: u64,
    /// Jobs that were given up and ran locally.
    pub jobs_given_up: u64,
    /// Connections to servers.
    pub hub: HubCounters,
    /// Files that are shown to servers.
    pub export: ExportCounters,
}
