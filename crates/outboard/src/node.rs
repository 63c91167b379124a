//! `outboard node`: the daemon. Its configuration comes from a file and from flags.

use crate::services::SERVICES;
use crate::{Outcome, log, parent};
use clap::Args;
use outboard_cluster::keys::{KeyPaths, KeysError};
use outboard_cluster::node::{NodeConfig, Supervisor};
use std::collections::HashSet;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The hidden command that makes this program a service.
const SERVICE: &str = "node-service";

/// Serve: let others with the cluster's key use this machine.
///
/// Listens, and starts a process for each service. As root, each service runs as a user of its own.
/// Where no key's file is named, the first start makes ~/.config/outboard/key; copy it to every
/// machine of the cluster. SIGTERM ends it in order.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard node --listen 0.0.0.0:7410 --slots 8

The configuration file, whose settings the options override (all may be left out):
  listen = [\"127.0.0.1:7410\"]
  serve = [\"compile\"]                 # default: compile
  slots = 4                           # default: as many as processors
  sessions = 64                       # of one identity with one service
  trusted_fabric = false
  log = \"info\"                        # or OUTBOARD_LOG
  # key = \"/etc/outboard/key\"         # default: OUTBOARD_KEY, or else ~/.config/outboard/key
  # identity = \"/etc/outboard/identity\"
  # revoked = \"/etc/outboard/revoked\" # nodes that are shut out; read again when it changes
  # allowed = \"/etc/outboard/allowed\" # if given, no other node gets in
  # user = \"nobody\"                   # as root: one user for all services
  [compile]
  # slots = 2                         # of this service
  accept_toolchains = false
  # toolchains = { gcc = \"/opt/x/bin/gcc\" }
  cache = \"/var/cache/compile\"        # default: in ~/.cache/outboard, or /var/cache/outboard
  cache_mib = 4096
  memory_mib = 4096                   # of one job
  [cast]
  roots = [\"/var/cast\"]               # directories below which files may be published
  [active]
  # modules = \"/etc/outboard/modules\"  # for everybody
  [active.regions.kv]
  size = \"64MiB\"
  # persist = \"/var/lib/outboard/kv\"  # read at the start, written when asked and at the end
  [reach.cast]
  cast = \"*\"                         # relays dial each other")]
pub(crate) struct NodeArgs {
    /// The configuration [default: ~/.config/outboard/node.toml, if it exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen, with commas between [default: 127.0.0.1:7410].
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',')]
    listen: Option<Vec<SocketAddr>>,
    /// Services to offer, with commas between [default: compile].
    #[arg(long, value_name = "SERVICES", value_delimiter = ',')]
    serve: Option<Vec<String>>,
    /// Jobs at a time [default: as many as processors].
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// The cluster's key, or the key of the one service to offer.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The service compile uses this program, `DIR/bin/PROGRAM`, as the compiler of that name, and
    /// shows jobs the directory.
    #[arg(long = "toolchain", value_name = "NAME=PROGRAM", value_parser = toolchain)]
    toolchains: Vec<(String, PathBuf)>,
    /// The service compile fetches compilers that it lacks from its clients and runs them: the
    /// sandbox is then the only boundary.
    #[arg(long)]
    accept_toolchains: bool,
    /// The service active offers a region of this name and size; its bytes are read from and
    /// written to a file, if one is named. May be repeated.
    #[arg(long = "region", value_name = "NAME=SIZE[,persist=FILE]", value_parser = region)]
    regions: Vec<(String, toml::Table)>,
    /// The service active offers the modules (*.wasm) of this directory to everybody.
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
    /// No third party reads or alters what the network carries: clients that are set to trust it
    /// too may talk in clear.
    #[arg(long)]
    trusted_fabric: bool,
    /// Which events to log on standard error: a level (error, warn, info, debug, trace, off), or
    /// levels of parts, info,outboard_cluster=debug [default: OUTBOARD_LOG, or else info].
    #[arg(long, value_name = "LEVELS")]
    log: Option<String>,
    /// End with the process that started this one.
    #[arg(long, hide = true)]
    with_parent: bool,
}

pub(crate) fn run(args: NodeArgs) -> Outcome {
    if args.with_parent {
        parent::end_with_it()?;
    }
    let places = KeyPaths::from_environment(|name| std::env::var_os(name));
    let (config, toolchains) = (file(&args, places.as_ref().ok())?, args.toolchains.clone());
    let accepts = args.accept_toolchains;
    let config = with_active(config, &args.regions, args.modules.as_deref())?;
    let is_for_active = !args.regions.is_empty() || args.modules.is_some();
    let config = with_toolchains(config.overridden_by(flags(args)), toolchains, accepts);
    let serves = config.served(SERVICES);
    if is_for_active && !serves.iter().any(|name| name == "active") {
        Err("--region and --modules are for the service active: add --serve active")?;
    }
    serve(config)
}

/// Serves what a configuration says until a signal ends it.
pub(crate) fn serve(config: NodeConfig) -> Outcome {
    let places = KeyPaths::from_environment(|name| std::env::var_os(name));
    log::start(config.log.as_deref())?;
    let serves = config.served(SERVICES);
    for table in config.tables.keys().filter(|table| !serves.contains(table)) {
        tracing::warn!("the table [{table}] has no effect: this node does not serve {table}");
    }
    let places = match (places, &config.key) {
        // Without HOME, as daemons are started.
        (Err(KeysError::NoHome), Some(key)) => KeyPaths::beside(key.clone()),
        (places, _) => places?,
    };
    let supervisor = Supervisor::new(config, places, SERVICES, vec![SERVICE.into()])?;
    let addresses: Vec<String> = supervisor.addresses().iter().map(ToString::to_string).collect();
    let mut out = std::io::stdout();
    writeln!(
        out,
        "node {} listens on {} and serves {}",
        supervisor.node(),
        addresses.join(", "),
        if serves.is_empty() { "status only".into() } else { serves.join(", ") },
    )?;
    out.flush()?;
    Ok(supervisor.run()?)
}

fn file(
    args: &NodeArgs,
    places: Option<&KeyPaths>,
) -> Result<NodeConfig, Box<dyn std::error::Error>> {
    if let Some(path) = &args.config {
        return Ok(NodeConfig::read(path, SERVICES)?);
    }
    let own = places.map(|places| places.identity.with_file_name("node.toml"));
    match own.filter(|path| path.exists()) {
        Some(path) => Ok(NodeConfig::read(&path, SERVICES)?),
        None => Ok(NodeConfig::default()),
    }
}

/// A compiler's name and the absolute path of a program.
fn toolchain(word: &str) -> Result<(String, PathBuf), String> {
    let (name, program) = word.split_once('=').ok_or("write NAME=DIR/bin/PROGRAM")?;
    let program = std::fs::canonicalize(program).map_err(|error| format!("{program}: {error}"))?;
    match program.parent().and_then(Path::parent) {
        Some(directory) if directory.parent().is_some() => Ok((name.to_owned(), program)),
        _ => Err(format!("{} is not in a directory of its own", program.display())),
    }
}

/// The file's table of the service compile, with the compilers that flags name.
fn with_toolchains(
    mut config: NodeConfig,
    toolchains: Vec<(String, PathBuf)>,
    accepts: bool,
) -> NodeConfig {
    if toolchains.is_empty() && !accepts {
        return config;
    }
    let table = config.tables.entry("compile".into()).or_insert_with(|| toml::Table::new().into());
    if let Some(table) = table.as_table_mut() {
        if accepts {
            table.insert("accept_toolchains".into(), true.into());
        }
        let named = table.entry("toolchains").or_insert_with(|| toml::Table::new().into());
        if let Some(named) = named.as_table_mut() {
            let programs = toolchains
                .into_iter()
                .map(|(name, program)| (name, program.to_string_lossy().into_owned().into()));
            named.extend(programs);
        }
    }
    config
}

/// A region's name and its table.
fn region(word: &str) -> Result<(String, toml::Table), String> {
    let explain = "write NAME=SIZE or NAME=SIZE,persist=FILE, as in kv=64MiB";
    let (name, rest) = word.split_once('=').ok_or(explain)?;
    let mut parts = rest.split(',');
    let size = parts.next().filter(|size| !size.is_empty()).ok_or(explain)?;
    let mut table = toml::Table::from_iter([("size".to_owned(), size.into())]);
    for part in parts {
        let file = part.strip_prefix("persist=").ok_or(explain)?;
        let file = std::path::absolute(file).map_err(|error| format!("{file}: {error}"))?;
        let file = file.to_string_lossy().into_owned().into();
        if table.insert("persist".into(), file).is_some() {
            return Err(format!("{word}: a region has one file"));
        }
    }
    Ok((name.to_owned(), table))
}

/// The file's table of the service active, with the regions and modules that flags name.
fn with_active(
    mut config: NodeConfig,
    regions: &[(String, toml::Table)],
    modules: Option<&Path>,
) -> Result<NodeConfig, Box<dyn std::error::Error>> {
    if regions.is_empty() && modules.is_none() {
        return Ok(config);
    }
    let table = config.tables.entry("active".into()).or_insert_with(|| toml::Table::new().into());
    let Some(table) = table.as_table_mut() else { return Ok(config) };
    if let Some(modules) = modules {
        let modules = std::fs::canonicalize(modules)
            .map_err(|error| format!("--modules {}: {error}", modules.display()))?;
        table.insert("modules".into(), modules.to_string_lossy().into_owned().into());
    }
    let own = table.entry("regions").or_insert_with(|| toml::Table::new().into());
    if let Some(own) = own.as_table_mut() {
        let mut named = HashSet::new();
        for (name, table) in regions {
            if !named.insert(name) {
                return Err(format!("--region names {name} twice: name it once").into());
            }
            own.insert(name.clone(), table.clone().into());
        }
    }
    Ok(config)
}

fn flags(args: NodeArgs) -> NodeConfig {
    NodeConfig {
        listen: args.listen,
        serve: args.serve,
        slots: args.slots,
        key: args.key,
        trusted_fabric: args.trusted_fabric.then_some(true),
        log: args.log,
        ..NodeConfig::default()
    }
}
