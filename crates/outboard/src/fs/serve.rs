//! `outboard fs serve` and `replica`: a node that has a store and nothing else, as its server or as
//! a replica of another one's.

use crate::Outcome;
use crate::node;
use clap::{Args, ValueEnum};
use outboard_cluster::hosts::Host;
use outboard_cluster::node::NodeConfig;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Serve a file system out of a directory, which is made if it is not there.
///
/// The directory is a store of its own: it has no files that other programs could read, and none of
/// theirs. `outboard node` serves file systems, too, beside other services.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs serve --store /var/lib/outboard/fs --size 8GiB --listen 0.0.0.0:7410")]
pub(crate) struct FsServeArgs {
    /// The store's directory.
    #[arg(long, value_name = "DIR", required_unless_present = "volatile")]
    store: Option<PathBuf>,
    /// No store: everything is in memory, and clients with the key read and write all of it by
    /// one-sided verbs (outboard fs mount --variant rdma). Nothing is checked, logged or kept.
    #[arg(long, conflicts_with_all = ["store", "one_sided", "sync", "no_root_squash", "replica"])]
    volatile: bool,
    /// Bytes of files that a new store has room for [default: 8GiB].
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,
    /// Memory for names and attributes in a new store [default: a sixteenth, 64MiB to 3GiB].
    #[arg(long, value_name = "SIZE")]
    metadata: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

/// Keep a replica of a server's store, which follows it until it is promoted.
///
/// The server is started with `--replica` and this machine's name; it brings everything. `outboard
/// fs promote` makes this the server, which it then stays, also when it is started anew. The
/// directory is made if it is not there; that of a server that was replaced gets what the server
/// has now.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs replica --store /var/lib/outboard/replica --listen 0.0.0.0:7410")]
pub(crate) struct FsReplicaArgs {
    /// The store's directory.
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    #[command(flatten)]
    common: CommonArgs,
}

/// What both have.
#[derive(Debug, Args)]
struct CommonArgs {
    /// When changes go to the disk, besides when programs ask for it (fsync).
    #[arg(long, value_enum, default_value_t = SyncChoice::Second)]
    sync: SyncChoice,
    /// User 0 of clients may everything here, as on a disk of theirs.
    #[arg(long)]
    no_root_squash: bool,
    /// The host, or HOST:PORT, where a replica of the store is kept: fsync waits for both disks
    /// while it is there.
    #[arg(long, value_name = "HOST", value_parser = super::at::host_of_word)]
    replica: Option<Host>,
    /// Clients may read all names and attributes by one-sided Reads, where they mount with
    /// --one-sided: whoever has the key sees them, whatever rights they have.
    #[arg(long)]
    one_sided: bool,
    /// Where to listen, with commas between [default: 127.0.0.1:7410].
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',')]
    listen: Option<Vec<SocketAddr>>,
    /// The cluster's key, or the key of the service fs.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// No third party reads or alters what the network carries: clients that are set to trust it
    /// too may talk in clear.
    #[arg(long)]
    trusted_fabric: bool,
    /// Which events to log, as of `outboard node`.
    #[arg(long, value_name = "LEVELS")]
    log: Option<String>,
}

/// When changes go to the disk.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum SyncChoice {
    /// Before any change is answered.
    Always,
    /// Each second: a power cut costs what no program has asked for since.
    Second,
    /// When the system likes: fsync promises nothing.
    Never,
}

pub(crate) fn serve(args: FsServeArgs) -> Outcome {
    let store = args.store.as_deref().map(store_word).transpose()?;
    let sizes = [("store", store), ("size", args.size), ("metadata", args.metadata)];
    let words = sizes.into_iter().filter_map(|(key, word)| Some((key.to_owned(), word?.into())));
    let volatile = ("volatile".to_owned(), args.volatile.into());
    run(args.common, words.chain([volatile]).collect())
}

pub(crate) fn replica(args: FsReplicaArgs) -> Outcome {
    let words = [("role", "replica".to_owned()), ("store", store_word(&args.store)?)];
    let words = words.into_iter().map(|(key, word)| (key.to_owned(), word.into()));
    run(args.common, words.collect())
}

/// Where the store is for a process that works elsewhere.
fn store_word(store: &Path) -> Result<String, String> {
    let path = std::path::absolute(store);
    let path = path.map_err(|error| format!("{}: {error}", store.display()))?;
    Ok(path.to_string_lossy().into_owned())
}

fn run(args: CommonArgs, mut table: toml::Table) -> Outcome {
    let sync = match args.sync {
        SyncChoice::Always => "always",
        SyncChoice::Second => "second",
        SyncChoice::Never => "never",
    };
    table.extend([
        ("sync".to_owned(), sync.into()),
        ("root_squash".to_owned(), (!args.no_root_squash).into()),
        ("one_sided".to_owned(), args.one_sided.into()),
    ]);
    let mut config = NodeConfig {
        listen: args.listen,
        serve: Some(vec!["fs".into()]),
        key: args.key,
        trusted_fabric: args.trusted_fabric.then_some(true),
        log: args.log,
        ..NodeConfig::default()
    };
    if let Some(host) = args.replica {
        table.insert("replica".into(), host.to_string().into());
        let reached = BTreeMap::from([("fs".to_owned(), host.to_string())]);
        config.reach.insert("fs".into(), reached);
    }
    config.tables.insert("fs".into(), table.into());
    node::serve(config)
}
