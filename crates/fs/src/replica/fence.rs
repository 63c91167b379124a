//! A server that was replaced: it learns that, remembers it, and ends.

use crate::protocol::REGION;
use crate::store::role::StoreRole;
use outboard_active::{ActiveClient, ActiveClientOptions, DialActive};
use outboard_verbs::Context;
use std::path::Path;
use std::time::Duration;

/// How long a server may take to say which epoch it has.
const LIMIT: Duration = Duration::from_secs(2);

/// The epoch of a server, if one answers.
pub(super) fn epoch_of(dial: DialActive) -> Option<u64> {
    let options = ActiveClientOptions { limit: LIMIT, ..ActiveClientOptions::default() };
    let mut client = ActiveClient::connect(&Context::open().ok()?, dial, options).ok()?;
    let region = client.attach(REGION).ok()?;
    client.run(&region).map(|run| run.epoch)
}

/// Remembers that another server has a store's file system, and ends this process, which serves
/// the store: it answers nothing more, and is not started again.
pub(crate) fn end(dir: &Path, epoch: u64, by: &str) -> ! {
    let role = StoreRole::Fenced { epoch, by: by.to_owned() };
    if let Err(error) = role.set(dir) {
        tracing::error!(%error, "that this store was replaced is forgotten at the next start");
    }
    eprintln!("outboard: service fs: {}", refusal(epoch, by));
    std::process::exit(1)
}

/// Why a store that was replaced is not served.
pub(crate) fn refusal(epoch: u64, by: &str) -> String {
    format!(
        "this store was replaced: epoch {epoch} is that of {by}. What was written here since is \
         not there; `outboard fs replica --store` makes this store a replica of that one, and \
         loses what only it has"
    )
}
