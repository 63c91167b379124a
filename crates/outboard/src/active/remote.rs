//! `outboard active` at a node: load, exec, list, drop, kill, slowlog, stats, flush.

use super::print_line;
use super::value::{ArgValue, ShowAs, joined};
use crate::Outcome;
use crate::quantity::seconds;
use clap::Args;
use outboard_active::protocol::{EntrySummary, KillTarget, ModuleSummary};
use outboard_active::{
    ActiveCall, ActiveClient, ActiveClientOptions, CallPlace, DialActive, ModuleHash,
};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::{Host, HostList};
use outboard_secure::ServiceName;
use outboard_verbs::Context;
use serde_json::{Value, json};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a node may take to answer, besides executing.
const PATIENCE: Duration = Duration::from_secs(10);
/// ... and one that has it compile a module, which takes a minute for some of the largest.
const LOAD_PATIENCE: Duration = Duration::from_secs(180);
/// How long an execution is waited for, unless something else is said.
const LIMIT_DEFAULT: &str = "60";
/// What `outboard active kill` takes.
const NO_NUMBER: &str = "write a number of the list that `outboard active kill` without one shows";

/// Which node.
#[derive(Debug, Args)]
pub(crate) struct AtNode {
    /// The node, HOST or HOST:PORT.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    node: HostList,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Load a module, and what it imports from files beside it, into a node.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard active load table.wasm --node n01")]
pub(crate) struct LoadArgs {
    /// The module's file.
    module: PathBuf,
    #[command(flatten)]
    at: AtNode,
}

/// Execute an entry of a module next to a node's memory.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard active exec counter.wasm add u64:0 u64:5 u64:10 --node n01 --region kv")]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    what: ExecWords,
    /// The region.
    #[arg(long, value_name = "NAME")]
    region: String,
    /// Where to execute: entries that only read may run here, on pages read from the node.
    #[arg(long = "where", value_enum, default_value_t)]
    place: PlaceWord,
    #[command(flatten)]
    at: AtNode,
}

/// What to execute.
#[derive(Debug, Args)]
pub(crate) struct ExecWords {
    /// The module: a file or one that comes with this program (see `outboard active modules`),
    /// which is loaded if the node lacks it, or the hash or name of one that is loaded.
    module: String,
    /// The entry.
    entry: String,
    /// Its arguments: TYPE:VALUE, with types u8 to u64, i8 to i64, text, hex, file.
    args: Vec<ArgValue>,
    /// Seconds that the execution may take; the node may allow less.
    #[arg(long, value_name = "SECONDS", default_value = LIMIT_DEFAULT, value_parser = seconds)]
    limit: Duration,
    /// How to show the result.
    #[arg(long = "as", value_enum, default_value_t)]
    show: ShowAs,
}

/// Execute an entry of a module next to a file system's memory. It may read everything there that
/// the modules of the file system read, and changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs exec links.wasm count --node n01")]
pub(crate) struct FsExecArgs {
    #[command(flatten)]
    what: ExecWords,
    #[command(flatten)]
    at: AtNode,
}

/// Where to execute.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum PlaceWord {
    /// At the node.
    Remote,
    /// Here, if the entry only reads; else at the node.
    Local,
    /// Where it is likely to take less time.
    #[default]
    Auto,
}

impl From<PlaceWord> for CallPlace {
    fn from(word: PlaceWord) -> Self {
        match word {
            PlaceWord::Remote => Self::Remote,
            PlaceWord::Local => Self::Local,
            PlaceWord::Auto => Self::Auto,
        }
    }
}

/// List the modules of a node that this user may execute.
///
/// A line each: hash, name, bytes, whether it is everybody's (the node's operator has put it
/// there), and entries; a * marks those that write.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard active list --node n01")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    at: AtNode,
}

/// Drop a module that this user has loaded.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard active drop counter --node n01")]
pub(crate) struct DropArgs {
    /// Its hash, or its name if only one is called so.
    module: String,
    #[command(flatten)]
    at: AtNode,
}

/// End an execution of this user's; without a number, list the 64 oldest under way.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard active kill --node n01
  outboard active kill 17 --node n01")]
pub(crate) struct KillArgs {
    /// Its number in the list.
    #[arg(value_parser = |text: &str| text.parse::<u64>().map_err(|_| NO_NUMBER))]
    execution: Option<u64>,
    #[command(flatten)]
    at: AtNode,
}

/// Show the executions of this user's of late that took more than a millisecond, with what they
/// said by ob_log.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard active slowlog --node n01")]
pub(crate) struct SlowlogArgs {
    #[command(flatten)]
    at: AtNode,
}

/// Show a node's counters of executions.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard active stats --node n01")]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    at: AtNode,
}

/// Have a node write a region to its file.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard active flush kv --node n01")]
pub(crate) struct FlushArgs {
    /// The region.
    region: String,
    #[command(flatten)]
    at: AtNode,
}

type Fallible<T> = Result<T, Box<dyn Error>>;

impl AtNode {
    fn host(&self) -> Fallible<Host> {
        match self.node.hosts() {
            [host] => Ok(host.clone()),
            hosts => Err(format!("--node names {} hosts: name one", hosts.len()))?,
        }
    }

    /// A client whose calls may take so long.
    fn connect(&self, limit: Duration) -> Fallible<ActiveClient> {
        self.connect_to("active", limit)
    }

    /// ... of another service that executes modules.
    fn connect_to(&self, service: &str, limit: Duration) -> Fallible<ActiveClient> {
        let host = self.host()?;
        let service: ServiceName = service.parse()?;
        let own = [service.clone()];
        let dialer = Dialer::from_environment(|name| std::env::var_os(name), &own)?;
        let dial: DialActive = Box::new(move |limit| {
            let dialled = dialer.dial(&host, &service, Instant::now() + limit);
            dialled.map_err(|error| error.to_string())
        });
        let options = ActiveClientOptions { limit, ..ActiveClientOptions::default() };
        Ok(ActiveClient::connect(&Context::open()?, dial, options)?)
    }
}

/// The module that a word names: a file's, which the client then knows, one that comes with this
/// program, or a loaded one.
fn find(client: &mut ActiveClient, word: &str) -> Fallible<ModuleHash> {
    let path = Path::new(word);
    if path.is_file() {
        return Ok(client.know_file(path)?);
    }
    let own = know_shipped(client, word)?;
    match (word.parse(), own) {
        (Ok(hash), _) => Ok(hash),
        // The node's of that name comes first: it may be another one.
        (Err(_), Some(own)) => Ok(named(client, word)?.unwrap_or(own)),
        (Err(_), None) => {
            let none = || {
                format!(
                    "{word}: there is no such file, this program brings no module of that name \
                     (see `outboard active modules`), and none of that name is loaded"
                )
            };
            Ok(named(client, word)?.ok_or_else(none)?)
        }
    }
}

/// Has the client know a module that comes with this program, and what that imports.
fn know_shipped(client: &mut ActiveClient, word: &str) -> Fallible<Option<ModuleHash>> {
    let mut own = None;
    if super::shipped().any(|(name, _)| name == word) {
        for (name, bytes) in super::shipped() {
            let hash = client.know(name, bytes)?;
            own = (name == word).then_some(hash).or(own);
        }
    }
    Ok(own)
}

/// The one loaded module of a name, or of a hash.
fn loaded(client: &mut ActiveClient, word: &str) -> Fallible<ModuleHash> {
    if let Ok(hash) = word.parse() {
        return Ok(hash);
    }
    let none = || format!("{word}: no module of that name is loaded: see `outboard active list`");
    Ok(named(client, word)?.ok_or_else(none)?)
}

/// The one loaded module of a name.
fn named(client: &mut ActiveClient, name: &str) -> Fallible<Option<ModuleHash>> {
    let modules = client.list()?;
    let mut named = modules.iter().filter(|module| module.name == name);
    match (named.next(), named.count()) {
        (first, 0) => Ok(first.map(|module| ModuleHash(module.module))),
        (_, more) => Err(format!("{} modules are called {name}: give the hash", more + 1))?,
    }
}

fn entries(module: &ModuleSummary) -> Value {
    let of = |entry: &EntrySummary| json!({ "name": entry.name, "read_only": entry.is_read_only });
    module.entries.iter().map(of).collect()
}

pub(crate) fn load(args: &LoadArgs) -> Outcome {
    let mut client = args.at.connect(LOAD_PATIENCE)?;
    let hash = client.know_file(&args.module)?;
    let entries = client.load_known(hash)?;
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    match args.at.json {
        true => print_line(json!({ "hash": hash.to_string(), "entries": names })),
        false => print_line(format_args!("{hash}  {}", names.join(" "))),
    }
}

pub(crate) fn exec(args: &ExecArgs) -> Outcome {
    let client = args.at.connect(args.what.limit.saturating_add(PATIENCE))?;
    args.what.exec(client, (&args.region, args.place.into()), args.at.json)
}

/// A service's only region, of which it shows clients no more than they need: all is executed
/// there.
pub(crate) fn fs_exec(args: &FsExecArgs) -> Outcome {
    let limit = args.what.limit.saturating_add(LOAD_PATIENCE);
    let client = args.at.connect_to("fs", limit)?;
    args.what.exec(client, ("fs", CallPlace::Remote), args.at.json)
}

impl ExecWords {
    fn exec(
        &self,
        mut client: ActiveClient,
        (region, place): (&str, CallPlace),
        is_json: bool,
    ) -> Outcome {
        let module = find(&mut client, &self.module)?;
        let region = client.attach(region)?;
        let values = joined(&self.args);
        let mut call = ActiveCall::new(&region, module, &self.entry, &values);
        call.limit = Some(self.limit);
        let since = Instant::now();
        let (executed, place) = client.execute_at(&call, place)?;
        let place = if place == CallPlace::Local { "local" } else { "remote" };
        let took_us = u64::try_from(since.elapsed().as_micros())?;
        if let Some(why) = executed.failure() {
            return Err(why.into());
        }
        let outboard_active::Outcome::Done { result, .. } = executed else { return Ok(()) };
        let more = json!({ "took_us": took_us, "where": place });
        super::print_result(&result, self.show, is_json, &more)
    }
}

pub(crate) fn list(args: &ListArgs) -> Outcome {
    let modules = args.at.connect(PATIENCE)?.list()?;
    if args.at.json {
        let described = modules.iter().map(|module| {
            json!({
                "hash": ModuleHash(module.module).to_string(),
                "name": module.name,
                "bytes": module.len,
                "everybodys": module.is_operators,
                "entries": entries(module),
            })
        });
        return print_line(Value::Array(described.collect()));
    }
    for module in &modules {
        let names = module.entries.iter().map(|entry| {
            let mark = if entry.is_read_only { "" } else { "*" };
            format!("{}{mark}", entry.name.escape_debug())
        });
        let names: Vec<String> = names.collect();
        let (hash, name) = (ModuleHash(module.module), module.name.escape_debug());
        let (len, names) = (module.len, names.join(" "));
        let whose = if module.is_operators { "everybody's  " } else { "" };
        print_line(format_args!("{hash}  {name}  {len} bytes  {whose}{names}"))?;
    }
    Ok(())
}

pub(crate) fn drop_module(args: &DropArgs) -> Outcome {
    let mut client = args.at.connect(PATIENCE)?;
    let module = loaded(&mut client, &args.module)?;
    client.drop_module(module)?;
    say_done(&args.at, &json!({ "dropped": module.to_string() }))
}

pub(crate) fn kill(args: &KillArgs) -> Outcome {
    let mut client = args.at.connect(PATIENCE)?;
    match args.execution {
        Some(number) => {
            client.kill(KillTarget::Execution(number))?;
            say_done(&args.at, &json!({ "killed": number }))
        }
        None => show(&args.at, &client.running()?),
    }
}

pub(crate) fn slowlog(args: &SlowlogArgs) -> Outcome {
    show(&args.at, &args.at.connect(PATIENCE)?.slowlog()?)
}

pub(crate) fn stats(args: &StatsArgs) -> Outcome {
    show(&args.at, &args.at.connect(PATIENCE)?.stats()?)
}

pub(crate) fn flush(args: &FlushArgs) -> Outcome {
    let mut client = args.at.connect(PATIENCE)?;
    let region = client.attach(&args.region)?;
    client.flush_region(&region)?;
    say_done(&args.at, &json!({ "flushed": args.region }))
}

fn say_done(at: &AtNode, what: &Value) -> Outcome {
    if at.json { print_line(what) } else { Ok(()) }
}

/// Shows a node's JSON: as it is, or a line for each entry, or for each number.
fn show(at: &AtNode, text: &str) -> Outcome {
    let value: Value = serde_json::from_str(text)?;
    if at.json {
        return print_line(value);
    }
    match &value {
        Value::Array(entries) => entries.iter().try_for_each(|entry| print_line(line(entry))),
        Value::Object(members) => members.iter().try_for_each(|(name, value)| {
            print_line(format_args!("{}  {}", name.escape_debug(), line(value)))
        }),
        other => print_line(line(other)),
    }
}

fn line(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{name} {}", line(value)));
            members.collect::<Vec<_>>().join("  ")
        }
        Value::Array(entries) => entries.iter().map(line).collect::<Vec<_>>().join("; "),
        Value::String(text) => text.escape_debug().collect(),
        other => other.to_string(),
    }
}
