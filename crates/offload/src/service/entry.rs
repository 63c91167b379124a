//! The service's process: its configuration and its start.

use super::pieces::PIECE_MAX;
use super::sessions::OffloadService;
use super::table::OffloadTable;
use crate::frames::FRAME_MAX;
use outboard_cluster::hub::HubOptions;
use outboard_cluster::node::{Needs, ServiceLink, ServiceTable, TableError};
use outboard_cluster::service::run;
use outboard_offcode::resident::ResidentEngine;
use std::error::Error;
use std::process::ExitCode;

/// Bytes that wait for a peer which does not take them: a frame of any length, and what is before
/// it.
const WAITING_MAX: usize = FRAME_MAX + (32 << 20);

/// Checks the service's table, before a node starts.
///
/// # Errors
/// Reports the operator's mistake in the table.
pub fn check_table(table: ServiceTable<'_>) -> Result<Needs, TableError> {
    table.read::<OffloadTable>()?.check()
}

/// The sizes that the service gives its hub, and clients theirs.
#[must_use]
pub fn hub_options() -> HubOptions {
    HubOptions { message_max: PIECE_MAX, waiting_max: WAITING_MAX, ..HubOptions::default() }
}

/// Runs the service until its node ends.
pub fn serve(mut link: ServiceLink) -> ExitCode {
    match service(&mut link) {
        Ok(service) => run(link, hub_options(), service),
        Err(error) => link.not_started(&*error),
    }
}

fn service(link: &mut ServiceLink) -> Result<OffloadService, Box<dyn Error>> {
    let table: OffloadTable = match link.config() {
        serde_json::Value::Null => OffloadTable::default(),
        table => serde_json::from_value(table.clone())
            .map_err(|error| format!("table {} of the configuration: {error}", link.service()))?,
    };
    Ok(OffloadService::new(table.limits()?, ResidentEngine::new(None)?)?)
}
