//! `outboard sbcast`: a cast to the nodes of a Slurm job, with the options and the environment of
//! Slurm's own `sbcast` (22.05).

mod bcast_conf;

use crate::cast::text_on_one_line;
use crate::launch::{CastReach, LaunchChoice};
use crate::send_libs::{EXCLUDED, StagedLibraries};
use bcast_conf::BcastConf;
use clap::Args;
use outboard_cast::launch::{LaunchError, LaunchWay, MissingDestination, SlurmJob};
use outboard_cast::receive::PublishMode;
use outboard_cast::sign::ChunkLen;
use outboard_cast::source::{CastLimits, CastOutcome, CastRequest, cast};
use outboard_cast::tree::CastSource;
use outboard_cluster::hosts::HostList;
use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The longest chunk, bytes: a window has four at least.
const CHUNK_LEN_MAX: u32 = 8 << 20;
/// How long receivers may take to start, unless -t says otherwise.
const LIMIT_S: u64 = 30;

/// Transmit a file to the nodes of a Slurm job, as Slurm's sbcast does.
///
/// Takes sbcast's options and its variables (SBCAST_FORCE, …). DEST appears on each node complete
/// and verified, or not at all. Exits with 1 unless all nodes have it.
#[derive(Debug, Args)]
#[command(after_help = "Example, in a batch script:
  outboard sbcast my.prog /tmp/my.prog
  srun /tmp/my.prog

Modes and modification times are always preserved. Chunks are not compressed, and how they travel
is chosen by the number of nodes: -C and -F are accepted and change nothing.")]
pub(crate) struct SbcastArgs {
    /// The file.
    source: PathBuf,
    /// Its path on each node, in a directory that is there; a relative one is below DestDir of
    /// slurm.conf's BcastParameters, or else the current directory.
    dest: PathBuf,
    /// Accepted: chunks are not compressed.
    #[arg(short = 'C', long, value_name = "LIBRARY", num_args = 0..=1, require_equals = true)]
    compress: Option<Option<String>>,
    /// Directories whose libraries --send-libs leaves out, with commas between, or NONE [default:
    /// BcastExclude of slurm.conf].
    #[arg(long, value_name = "PATHS")]
    exclude: Option<String>,
    /// Replace DEST, at once.
    #[arg(short, long)]
    force: bool,
    /// Accepted: what suits the number of nodes is chosen.
    #[arg(short = 'F', long, visible_alias = "treewidth", value_name = "NUMBER|off",
        value_parser = fanout)]
    fanout: Option<Fanout>,
    /// The job, from outside of it [default: this one].
    #[arg(short, long, value_name = "JOB[.STEP]")]
    jobid: Option<String>,
    /// Some of the job's nodes [default: all].
    #[arg(short = 'w', long, value_name = "LIST")]
    nodelist: Option<HostList>,
    /// Accepted: modes and modification times are preserved anyway.
    #[arg(short, long)]
    preserve: bool,
    /// Send the program's shared libraries too, into DEST_libs.
    #[arg(long, value_name = "yes|no", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes")]
    send_libs: Option<String>,
    /// Bytes in a chunk, rounded to a power of two; k and m multiply.
    #[arg(short, long, value_name = "SIZE")]
    size: Option<String>,
    /// How long receivers may take to start [default: 30].
    #[arg(short, long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Say what happens.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// This program's path at the nodes [default: as here].
    #[arg(long, value_name = "PATH")]
    launch_program: Option<PathBuf>,
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpShort)]
    usage: Option<bool>,
}

/// A fanout was given, and changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fanout;

fn fanout(word: &str) -> Result<Fanout, String> {
    let is_legal = word == "off" || word.parse::<u32>().is_ok();
    is_legal.then_some(Fanout).ok_or_else(|| "give a number, or off".to_owned())
}

/// The exit code says whether all nodes have the file.
pub(crate) fn run(args: &SbcastArgs) -> Result<ExitCode, Box<dyn Error>> {
    crate::log::start_cast(None)?;
    let conf = BcastConf::of_this_machine();
    let (directory, name) = destination(&args.dest, conf.directory.as_deref())?;
    let staged = if args.sends_libs(&conf)? { args.libraries(&name, &conf)? } else { None };
    let mut reach = CastReach::launch(args.launch()?, &directory)?;
    let source = CastSource { path: args.source.clone(), name: name.into_vec() };
    if !args.source.is_file() {
        return Err(format!("{:?}: sbcast sends files; see outboard cast", args.source).into());
    }
    let sources = [source].into_iter().chain(staged.as_ref().map(StagedLibraries::source));
    let (nodes, dial) = reach.hosts()?;
    let outcome = cast(CastRequest {
        chunk_len: args.chunk_len()?,
        publish: if args.is_forced() { PublishMode::Replace } else { PublishMode::New },
        ..CastRequest::new(sources.collect(), directory, nodes, dial)
    })?;
    let outcome = reach.finish(outcome, CastLimits::default());
    args.report(&outcome);
    Ok(if outcome.has_succeeded() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

impl SbcastArgs {
    fn is_forced(&self) -> bool {
        self.force || env::var_os("SBCAST_FORCE").is_some()
    }

    fn sends_libs(&self, conf: &BcastConf) -> Result<bool, String> {
        let given = self.send_libs.clone().or_else(|| variable("SBCAST_SEND_LIBS"));
        match given.as_deref() {
            None => Ok(conf.sends_libs),
            Some("" | "yes" | "Yes" | "YES" | "1") => Ok(true),
            Some("no" | "No" | "NO" | "0") => Ok(false),
            Some(other) => Err(format!("--send-libs={other}: say yes or no")),
        }
    }

    /// The libraries; a file that has none is sent alone, as by Slurm.
    fn libraries(
        &self,
        name: &OsString,
        conf: &BcastConf,
    ) -> Result<Option<StagedLibraries>, Box<dyn Error>> {
        let excluded = self.exclude.clone().or_else(|| variable("SBCAST_EXCLUDE"));
        let excluded = excluded.or_else(|| conf.excluded.clone());
        let excluded = excluded.as_deref().unwrap_or(EXCLUDED);
        match StagedLibraries::of(&self.source, name, excluded) {
            Ok(staged) => Ok(Some(staged)),
            Err(error) => {
                let source = self.source.display();
                eprintln!("outboard: {source}: no libraries are sent with it: {error}");
                Ok(None)
            }
        }
    }

    fn launch(&self) -> Result<LaunchChoice, Box<dyn Error>> {
        let job = match &self.jobid {
            Some(id) => SlurmJob::look_up(id)?,
            None => {
                SlurmJob::from_environment(|name| env::var_os(name))?.ok_or(LaunchError::NoJob)?
            }
        };
        let job = match &self.nodelist {
            Some(nodes) => job.narrowed(nodes.clone())?,
            None => job,
        };
        let seconds = match (self.timeout, variable("SBCAST_TIMEOUT")) {
            (Some(seconds), _) => seconds,
            (None, Some(text)) => text.parse().map_err(|_| "SBCAST_TIMEOUT: give seconds")?,
            (None, None) => LIMIT_S,
        };
        Ok(LaunchChoice {
            way: LaunchWay::Slurm(job),
            program: self.launch_program.clone(),
            limit: Duration::from_secs(seconds.max(1)),
            missing: MissingDestination::Refuse,
        })
    }

    fn chunk_len(&self) -> Result<Option<ChunkLen>, Box<dyn Error>> {
        match self.size.clone().or_else(|| variable("SBCAST_SIZE")) {
            None => Ok(None),
            Some(text) => Ok(Some(ChunkLen::new(rounded(&text)?)?)),
        }
    }

    /// Options of Slurm's that have no effect here.
    fn say_what_changes_nothing(&self) {
        if self.compress.is_some() || env::var_os("SBCAST_COMPRESS").is_some() {
            eprintln!("outboard: chunks are not compressed, whatever -C says");
        }
        if self.fanout.is_some() || env::var_os("SBCAST_FANOUT").is_some() {
            eprintln!("outboard: the schedule is chosen by nodes and bytes, whatever -F says");
        }
    }

    fn report(&self, outcome: &CastOutcome) {
        for node in &outcome.nodes {
            match &node.result {
                Err(why) => eprintln!("outboard: {}: {}", node.host, text_on_one_line(why)),
                Ok(_) if self.verbose > 0 => eprintln!("outboard: {}: there", node.host),
                Ok(_) => {}
            }
        }
        if self.verbose > 0 {
            self.say_what_changes_nothing();
            let (bytes, seconds) = (outcome.stream_len, outcome.took.as_secs_f64());
            eprintln!("outboard: {bytes} bytes in {seconds:.2} s, schedule {}", outcome.kind);
        }
    }
}

/// Bytes as a chunk may have them: a power of two, not above what was given.
fn rounded(text: &str) -> Result<u32, String> {
    let wrong = || format!("size {text:?}: give a number, with k or m behind it");
    let digits = text.trim_end_matches(['k', 'K', 'm', 'M']);
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        _ => return Err(wrong()),
    };
    let bytes = digits.parse::<u64>().map_err(|_| wrong())?.saturating_mul(factor);
    let bytes = bytes.clamp(ChunkLen::MIN.into(), CHUNK_LEN_MAX.into());
    Ok(u32::try_from(1_u64 << bytes.ilog2()).unwrap_or(CHUNK_LEN_MAX))
}

/// The directory and the name in it.
fn destination(dest: &Path, configured: Option<&Path>) -> Result<(PathBuf, OsString), String> {
    if dest.as_os_str().as_bytes().ends_with(b"/") {
        return Err(format!("{dest:?} is a directory: give a file's path, as sbcast takes it"));
    }
    let base = match configured {
        Some(directory) => directory.to_owned(),
        None => env::current_dir().map_err(|error| format!("the current directory: {error}"))?,
    };
    let whole = base.join(dest);
    match (whole.parent(), whole.file_name()) {
        (Some(directory), Some(name)) => Ok((directory.to_owned(), name.to_owned())),
        _ => Err(format!("{dest:?}: give a file's path")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_down_to_what_a_chunk_may_have() {
        for (text, bytes) in [
            ("1m", 1 << 20),
            ("3m", 2 << 20),
            ("512k", 512 << 10),
            ("1", 4096),
            ("5000", 4096),
            ("999m", 8 << 20),
        ] {
            assert_eq!(rounded(text), Ok(bytes), "{text}");
        }
        for text in ["", "m", "1g", "-1", "1mm"] {
            assert!(rounded(text).is_err(), "{text}");
        }
    }

    /// The command line alone.
    #[derive(Debug, clap::Parser)]
    struct CommandLine {
        #[command(flatten)]
        args: SbcastArgs,
    }

    fn parse(words: &str) -> Result<SbcastArgs, clap::error::ErrorKind> {
        let words = std::iter::once("sbcast").chain(words.split_whitespace());
        let parsed = <CommandLine as clap::Parser>::try_parse_from(words);
        parsed.map(|line| line.args).map_err(|error| error.kind())
    }

    #[test]
    fn options_are_written_as_for_slurms() {
        let all = "-C -f -F 8 -j 7.0 -p -s 8m -t 60 -vv --send-libs --exclude=NONE a b";
        let args = parse(all).expect("of 22.05");
        assert_eq!((args.source.to_str(), args.dest.to_str()), (Some("a"), Some("b")));
        assert!(args.force && args.preserve && args.fanout.is_some() && args.compress.is_some());
        assert_eq!((args.send_libs.as_deref(), args.verbose), (Some("yes"), 2));
        assert_eq!(
            parse("-fpC --send-libs=no a b").expect("joined").send_libs.as_deref(),
            Some("no")
        );
        assert_eq!(parse("--compress=lz4 a b").expect("a name").compress, Some(Some("lz4".into())));
        for newer in ["--treewidth=off a b", "-F 64 a b", "--fanout=2 -w n1 a b"] {
            assert!(parse(newer).expect(newer).fanout.is_some());
        }
        use clap::error::ErrorKind::{DisplayHelp, MissingRequiredArgument, ValueValidation};
        assert_eq!(parse("--usage").expect_err("help"), DisplayHelp);
        assert_eq!(parse("a").expect_err("no DEST"), MissingRequiredArgument);
        assert_eq!(parse("-F wide a b").expect_err("no number"), ValueValidation);
    }

    #[test]
    fn a_relative_destination_is_below_the_configured_directory() {
        let split = |dest: &str, directory| destination(Path::new(dest), directory);
        let slurm = Some(Path::new("/local"));
        assert_eq!(split("/tmp/a", slurm), Ok(("/tmp".into(), "a".into())));
        assert_eq!(split("a", slurm), Ok(("/local".into(), "a".into())));
        assert_eq!(split("b/a", slurm), Ok(("/local/b".into(), "a".into())));
        let here = env::current_dir().expect("a directory");
        assert_eq!(split("a", None), Ok((here, "a".into())));
        assert!(split("/tmp/", None).is_err());
        assert!(split("/", None).is_err());
    }
}
