//! `outboard fs map`: a file's bytes as memory that programs read one-sided.

use super::at::{caller, connect};
use crate::Outcome;
use clap::Args;
use outboard_fs::client::{FsClientOptions, FsPatience};
use outboard_fs::map::{FileMap, MapOffer, PageCounts};
use outboard_fs::tools::{FsPlace, LastLink, resolve};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register;
use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A page that the server does not send within so long is one that cannot be read.
const PAGE_LIMIT: Duration = Duration::from_secs(30);

/// Offer a file's bytes as registered memory: programs read any of them by RDMA Read, and what they
/// read comes from the server when it is read first.
///
/// A program connects (iWARP, RDMA connection manager) with the token as private data, 16 bytes,
/// and is told as private data where the memory is: its address and its length, 8 bytes each, and
/// its key (STag), 4 bytes, in network byte order.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs map n01:/data/table.db")]
pub(crate) struct MapArgs {
    /// HOST:/path, or a path in a mount.
    file: OsString,
    /// Where programs connect. They are not encrypted, and need the token only.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn map(args: &MapArgs) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        register(signal, Arc::clone(&stop))?;
    }
    let place = FsPlace::of(&args.file)?;
    let patience = FsPatience::Soft(PAGE_LIMIT);
    let options = FsClientOptions { patience, ..FsClientOptions::default() };
    let client = connect(&place.host.parse()?, options)?;
    let path = (&place.path[..], &place.shown[..]);
    let root = resolve(&client, &caller(), path, LastLink::IsFollowed)?;
    let shown = args.file.to_string_lossy();
    let offer = FileMap::new(&client, caller(), root.found.inode)
        .and_then(|map| MapOffer::new(map, args.listen));
    let mut offer = offer.map_err(|error| format!("{shown}: {error}"))?;
    args.say(&offer)?;
    offer.serve(&stop);
    args.say_end(&offer)
}

impl MapArgs {
    fn say(&self, offer: &MapOffer) -> Outcome {
        let (file, memory) = (self.file.to_string_lossy(), offer.memory());
        let (listen, len) = (offer.local_addr(), memory.len());
        let token = offer.token().map(|byte| format!("{byte:02x}")).concat();
        let mut out = std::io::stdout();
        if self.json {
            let told = json!({
                "file": file,
                "bytes": len,
                "listen": listen.to_string(),
                "token": token,
                "address": memory.base(),
                "key": memory.stag().0,
            });
            writeln!(out, "{told}")?;
        } else {
            writeln!(out, "{file}: {len} bytes, listens on {listen} with token {token}")?;
        }
        Ok(out.flush()?)
    }

    fn say_end(&self, offer: &MapOffer) -> Outcome {
        let PageCounts { reads, bytes } = offer.map().counts();
        let mut out = std::io::stdout();
        match self.json {
            true => writeln!(out, "{}", json!({ "reads": reads, "bytes_read": bytes }))?,
            false => writeln!(out, "{bytes} bytes were read of the file, by {reads} requests")?,
        }
        Ok(())
    }
}
