//! `outboard active run` and `outboard active test`: modules on a region of this process's own.

use super::value::{ArgValue, ShowAs, joined, shown};
use crate::Outcome;
use crate::quantity::ByteCount;
use clap::Args;
use outboard_offcode::executor::{Moment, Outcome as Executed};
use outboard_offcode::inspect::ModuleLimits;
use outboard_offcode::local::LocalRunner;
use outboard_offcode::{ModuleHash, Wasmtime};
use outboard_unix::regular::read_regular;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a file of tests, at most.
const TEST_FILE_MAX: usize = 16 << 20;
/// Bytes of a region, unless something else is said.
const REGION_DEFAULT: ByteCount = ByteCount(1 << 20);

/// Execute an entry of a module here, without a node, on a region of its own.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard active run counter.wasm add u64:0 u64:5 u64:10")]
pub(crate) struct RunLocallyArgs {
    /// The module.
    module: PathBuf,
    /// The entry.
    entry: String,
    /// Its arguments: TYPE:VALUE, with types u8 to u64, i8 to i64, text, hex, file.
    args: Vec<ArgValue>,
    /// A module that it imports; may be repeated, each after those that it imports itself.
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// Bytes of the region.
    #[arg(long, value_name = "SIZE", default_value = "1M")]
    size: ByteCount,
    /// A file that holds the region's bytes at first, and afterwards; it is made if it is missing.
    #[arg(long, value_name = "FILE")]
    region: Option<PathBuf>,
    /// How to show the result.
    #[arg(long = "as", value_enum, default_value_t)]
    show: ShowAs,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Run the unit tests of modules that a file describes.
///
/// The file names modules, a region's size, and calls with what they must come to, in order.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard active test counter.test.toml

A file:
  modules = [\"counter.wasm\"]            # paths from the file on; imported ones first
  size = \"64K\"                          # of the region
  [[call]]
  entry = \"add\"
  args = [\"u64:0\", \"u64:5\", \"u64:10\"]
  result = [\"u64:5\"]                    # or: fails = 3 (the module's code), or traps = \"text\"
  # time = 1500000000                   # seconds since 1970, from this call on
  # module = \"counter\"                  # the last one, unless named")]
pub(crate) struct TestLocallyArgs {
    /// The files.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// A file of tests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TestFile {
    modules: Vec<PathBuf>,
    size: Option<String>,
    call: Vec<TestCall>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TestCall {
    entry: String,
    module: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    result: Option<Vec<String>>,
    fails: Option<i32>,
    traps: Option<String>,
    time: Option<u64>,
}

fn runner(size: ByteCount) -> Result<LocalRunner<Wasmtime>, Box<dyn Error>> {
    let len = usize::try_from(size.0)?;
    if size.0 > outboard_offcode::abi::REGION_MAX {
        let most = outboard_offcode::abi::REGION_MAX;
        return Err(format!("a region has at most {most} bytes").into());
    }
    Ok(LocalRunner::new(Wasmtime::new(None)?, len)?)
}

/// Loads a module's file; its name is the file's without what follows the first dot.
fn load(
    runner: &LocalRunner<Wasmtime>,
    path: &Path,
) -> Result<(String, ModuleHash), Box<dyn Error>> {
    let shown = path.display();
    let read = read_regular(path, ModuleLimits::default().bytes);
    let bytes = read.map_err(|error| format!("{shown}: {error}"))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.split('.').next().unwrap_or_default().to_owned();
    let info = runner.load(&name, &bytes).map_err(|error| format!("{shown}: {error}"))?;
    Ok((name, info.hash))
}

pub(crate) fn run(args: &RunLocallyArgs) -> Outcome {
    let mut runner = runner(args.size)?;
    if let Some(path) = args.region.as_deref().filter(|path| path.exists()) {
        let read = read_regular(path, runner.region().memory().len());
        let advice = |error: &io::Error| match error.kind() {
            io::ErrorKind::FileTooLarge => ": give --size",
            _ => "",
        };
        let bytes =
            read.map_err(|error| format!("{}: {error}{}", path.display(), advice(&error)))?;
        let put = runner.region().memory().copy_in(0, &bytes);
        put.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    for path in &args.with {
        load(&runner, path)?;
    }
    let (_, module) = load(&runner, &args.module)?;
    let executed = runner.execute(module, &args.entry, &joined(&args.args));
    let log = String::from_utf8_lossy(runner.executor().log()).into_owned();
    if !args.json {
        log.lines().for_each(|line| eprintln!("log: {}", line.escape_debug()));
    }
    if let Some(why) = executed.failure() {
        return Err(why.into());
    }
    if let Some(path) = &args.region {
        let bytes = runner.region().snapshot()?;
        std::fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let Executed::Done { result, .. } = executed else { return Ok(()) };
    super::print_result(&result, args.show, args.json, &json!({ "log": log }))
}

pub(crate) fn test(args: &TestLocallyArgs) -> Outcome {
    let (mut passed, mut failed) = (0, Vec::new());
    for path in &args.files {
        let described = |error: Box<dyn Error>| format!("{}: {error}", path.display());
        for (call, outcome) in test_file(path).map_err(described)? {
            match outcome {
                Ok(()) => passed += 1,
                Err(why) => failed.push(format!("{}: {call}: {why}", path.display())),
            }
        }
    }
    if args.json {
        super::print_line(json!({ "passed": passed, "failed": failed }))?;
    } else {
        failed.iter().try_for_each(super::print_line)?;
        super::print_line(format_args!("{passed} calls as described, {} not", failed.len()))?;
    }
    if failed.is_empty() { Ok(()) } else { Err("calls came to something else than described")? }
}

type CallResult = (String, Result<(), String>);

fn test_file(path: &Path) -> Result<Vec<CallResult>, Box<dyn Error>> {
    let text = String::from_utf8(read_regular(path, TEST_FILE_MAX)?)?;
    let file: TestFile =
        toml::from_str(&text).map_err(|error| error.to_string().trim().to_owned())?;
    let size = file.size.as_deref().map_or(Ok(REGION_DEFAULT), str::parse)?;
    let mut runner = runner(size)?;
    let directory = path.parent().unwrap_or_else(|| Path::new(""));
    let mut modules = BTreeMap::new();
    let mut last = None;
    for module in &file.modules {
        let (name, hash) = load(&runner, &directory.join(module))?;
        modules.insert(name, hash);
        last = Some(hash);
    }
    let mut results = Vec::new();
    for (index, call) in file.call.iter().enumerate() {
        let module = match &call.module {
            Some(name) => modules.get(name).copied(),
            None => last,
        };
        let module = module.ok_or("a call's module is not among the modules")?;
        if let Some(seconds) = call.time {
            let moment = Moment::at(Duration::from_secs(seconds));
            runner.set_moment(Some(moment));
        }
        let executed = runner.execute(module, &call.entry, &bytes_of(&call.args)?);
        let name = format!("call {} ({})", index + 1, call.entry);
        results.push((name, check(call, &executed)?));
    }
    Ok(results)
}

fn bytes_of(words: &[String]) -> Result<Vec<u8>, String> {
    let values: Result<Vec<ArgValue>, String> = words.iter().map(|word| word.parse()).collect();
    Ok(joined(&values?))
}

/// Whether a call came to what its test says.
fn check(call: &TestCall, executed: &Executed) -> Result<Result<(), String>, String> {
    let expected = [call.result.is_some(), call.fails.is_some(), call.traps.is_some()];
    if expected.into_iter().filter(|is_said| *is_said).count() > 1 {
        return Err(format!("a call of {} has one of result, fails and traps", call.entry));
    }
    let found = executed.failure();
    Ok(match (executed, call.fails, &call.traps) {
        (Executed::Failed { code, .. }, Some(expected), None) if *code == expected => Ok(()),
        (Executed::Trap(text), None, Some(expected)) if text.contains(expected.as_str()) => Ok(()),
        (Executed::Done { result, .. }, None, None) => match &call.result {
            Some(expected) => {
                let expected = bytes_of(expected)?;
                let show = |bytes: &[u8]| shown(bytes, ShowAs::Hex);
                match expected == *result {
                    true => Ok(()),
                    false => Err(format!("{} instead of {}", show(result), show(&expected))),
                }
            }
            None => Ok(()),
        },
        _ => Err(found.unwrap_or_else(|| "it succeeded".into())),
    })
}
