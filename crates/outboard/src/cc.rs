//! `outboard cc`: one compilation, and what goes with it: links by compilers' names, statistics,
//! the timeline, and the manager that wrappers start.

use crate::{Outcome, log, parent};
use clap::Args;
use outboard_cc::place::ManagerPlace;
use outboard_cc::real::{WrapperCall, search_path};
use outboard_cc::wrapper;
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::HostList;
use outboard_cluster::keys::KeyPaths;
use outboard_compile::args::is_compiler;
use outboard_compile::client::{Dial, ServerPool};
use outboard_compile::manager::{self, Manager, NoServers, Settings};
use outboard_compile::stats::{self, JobRecord, Journal, SavedJournal, state_directory};
use outboard_compile::toolchain::Toolchains;
use outboard_secure::ServiceName;
use serde_json::Value;
use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::mem;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

/// A manager without servers exits after this time, so that a repaired setting soon takes effect.
const MENDING: Duration = Duration::from_secs(1);

/// How often the list of revoked nodes is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Compile on other machines: run one compiler, or show statistics.
///
/// Put `outboard-cc` (or `outboard cc`) before a compiler's name, as in CC="outboard-cc gcc",
/// CMake's CMAKE_C_COMPILER_LAUNCHER or CCACHE_PREFIX, or put a directory of links before others in
/// PATH. What cannot run remotely runs locally.
#[derive(Debug, Args)]
#[command(override_usage = "outboard cc <COMPILER [ARGUMENTS]...|--stats [--json] [--zero]|\
--timeline FILE|--install-links DIR>")]
#[command(after_help = "Example:
  outboard cc gcc -O2 -c x.c
  outboard cc --install-links ~/.local/lib/outboard && \
PATH=~/.local/lib/outboard:$PATH make -j32
  outboard cc --timeline build.html
With OUTBOARD_CC_VERBOSE set, a wrapper says where its job ran, and why there.
With OUTBOARD_CC_FALLBACK=0 a job that could run remotely and does not fails.
OUTBOARD_CC_SHOW names directories, with colons between, that servers may see although a name \
above them begins with a dot or no word of a command line leads there.
OUTBOARD_CC_MODE says how jobs are handed over: pull (the default; servers read the files that \
compilers ask for), preprocess (sources are preprocessed here, into memory) or preprocess-disk \
(into nameless files beside the outputs).")]
#[group(required = true, multiple = true)]
pub(crate) struct CcArgs {
    /// Print what ran where, and why locally.
    #[arg(long, conflicts_with_all = ["words", "manager", "install_links"])]
    stats: bool,
    /// Print the statistics as JSON.
    #[arg(long, requires = "stats")]
    json: bool,
    /// Set the statistics to zero, after printing them.
    #[arg(long, requires = "stats")]
    zero: bool,
    /// Draw the last jobs, a lane for each slot, as a page or a picture.
    #[arg(long, value_name = "FILE.html|.svg", conflicts_with = "words")]
    timeline: Option<PathBuf>,
    /// Make links in this directory, by the names of the compilers that are in PATH.
    #[arg(long, value_name = "DIR", conflicts_with = "words")]
    install_links: Option<PathBuf>,
    /// Serve wrappers until none has been connected for a while; wrappers start this.
    #[arg(long, hide = true, conflicts_with = "words")]
    manager: bool,
    /// End with the process that started this one.
    #[arg(long, hide = true, requires = "manager")]
    with_parent: bool,
    /// The compiler and its arguments, as they are.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMPILER")]
    words: Vec<OsString>,
}

/// The exit code is the compiler's, if one was named.
pub(crate) fn run(args: CcArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    if args.manager {
        if args.with_parent {
            parent::end_with_it()?;
        }
        manage(args.with_parent)?;
    } else if let Some(directory) = &args.install_links {
        install_links(directory)?;
    } else if args.stats || args.timeline.is_some() {
        report(&args)?;
    } else {
        // There is at least one word: the command line's definition requires it.
        let call = WrapperCall::of_words(args.words).ok_or("name a compiler")?;
        return Ok(wrapper::compile(&call));
    }
    Ok(ExitCode::SUCCESS)
}

fn settings(with_parent: bool) -> Settings {
    let mut settings = Settings::default();
    if with_parent {
        // After an idle one a wrapper would start another, which the parent knows nothing of.
        settings.idle = None;
    }
    settings
}

fn manage(with_parent: bool) -> Outcome {
    log::start_manager()?;
    let (listener, place) = manager::listen()?;
    let journal = Journal::new(state_directory().as_deref());
    let settings = settings(with_parent);
    // Without servers the manager still counts jobs, and bounds the number of local compilers.
    let (why, idle) = match servers() {
        Ok(Some(servers)) => {
            return Ok(Manager::new(listener, Some(place), servers, settings, journal)?.run()?);
        }
        Ok(None) => ("OUTBOARD_HOSTS is not set".to_owned(), settings.idle),
        Err(error) => {
            tracing::warn!("{error}");
            (error.to_string(), Some(MENDING))
        }
    };
    let settings = Settings { idle, ..settings };
    Ok(Manager::new(listener, Some(place), NoServers::new(why)?, settings, journal)?.run()?)
}

/// The servers of OUTBOARD_HOSTS, with the key of OUTBOARD_KEY.
fn servers() -> Result<Option<ServerPool>, Box<dyn std::error::Error>> {
    let Some(hosts) = env::var_os("OUTBOARD_HOSTS").filter(|hosts| !hosts.is_empty()) else {
        return Ok(None);
    };
    let hosts = hosts.to_str().ok_or("OUTBOARD_HOSTS is not UTF-8")?;
    let hosts: HostList = hosts.parse().map_err(|error| format!("OUTBOARD_HOSTS: {error}"))?;
    let hosts: Vec<_> = hosts.iter().cloned().collect();
    let service: ServiceName = "compile".parse()?;
    let services = std::slice::from_ref(&service);
    let variable = |name: &str| env::var_os(name);
    let dialer = Dialer::from_environment(variable, services)?;
    let dialer = Arc::new(RwLock::new(dialer));
    let own = Arc::clone(&dialer);
    let names = hosts.iter().map(ToString::to_string).collect();
    let dial: Dial = Arc::new(move |line, limit| {
        let dialer = own.read().unwrap_or_else(PoisonError::into_inner).clone();
        let dialled = dialer.dial(&hosts[line], &service, Instant::now() + limit);
        dialled.map_err(|error| error.to_string())
    });
    let toolchains = Toolchains::new(state_directory().as_deref());
    let servers = ServerPool::new(names, dial, client_name(), toolchains)?;
    follow_revocations(KeyPaths::from_environment(variable)?.revoked, dialer, servers.distrust());
    Ok(Some(servers))
}

/// A thread that reads the list of revoked nodes again when it has changed: from then on none of
/// them is a server.
fn follow_revocations(
    list: PathBuf,
    dialer: Arc<RwLock<Dialer>>,
    distrust: impl Fn() + Send + 'static,
) {
    let state = move || fs::metadata(&list).ok().map(|at| (at.ino(), at.len(), at.modified().ok()));
    let mut known = state();
    thread::spawn(move || {
        loop {
            thread::sleep(LOOK_AGAIN);
            let found = state();
            if found == known {
                continue;
            }
            known = found;
            let services = ["compile".parse().ok()].into_iter().flatten().collect::<Vec<_>>();
            match Dialer::from_environment(|name| env::var_os(name), &services) {
                Ok(new) => *dialer.write().unwrap_or_else(PoisonError::into_inner) = new,
                Err(error) => {
                    tracing::error!("{error}; the list that was read before stays in force")
                }
            }
            distrust();
        }
    });
}

/// The name by which servers' operators see this client: user and host.
fn client_name() -> String {
    let user = env::var("USER").unwrap_or_else(|_| rustix::process::getuid().as_raw().to_string());
    format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
}

fn report(args: &CcArgs) -> Outcome {
    if let Ok(place) = ManagerPlace::of_user() {
        place.sockets().iter().for_each(|socket| manager::settle(socket));
    }
    let directory = state_directory().ok_or("set HOME or XDG_STATE_HOME, for statistics")?;
    let mut saved = SavedJournal::load(&directory)?;
    if let Some(file) = &args.timeline {
        draw(file, mem::take(&mut saved.records).into())?;
    }
    let text = match (args.json, args.stats) {
        (true, _) => serde_json::to_string_pretty(&with_manager(&saved)?)? + "\n",
        (false, true) => saved.counters.to_string(),
        (false, false) => String::new(),
    };
    match io::stdout().write_all(text.as_bytes()) {
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    if args.zero {
        SavedJournal::clear(&directory)?;
    }
    Ok(())
}

/// The sums over jobs, and beside them what the manager says of itself.
fn with_manager(saved: &SavedJournal) -> Result<Value, serde_json::Error> {
    let mut counters = serde_json::to_value(&saved.counters)?;
    if let (Some(rows), Some(manager)) = (counters.as_object_mut(), &saved.manager) {
        rows.insert("manager".into(), manager.clone());
    }
    Ok(counters)
}

fn draw(file: &Path, records: Vec<JobRecord>) -> Outcome {
    let picture = match file.extension().and_then(OsStr::to_str) {
        Some("svg") => stats::svg(&records),
        Some("html") => stats::html(&records),
        _ => return Err(format!("{}: name it .html or .svg", file.display()).into()),
    };
    fs::write(file, picture).map_err(|error| format!("{}: {error}", file.display()))?;
    println!("{} jobs in {}", records.len(), file.display());
    Ok(())
}

fn install_links(directory: &Path) -> Outcome {
    let wrapper = env::current_exe()?.with_file_name("outboard-cc");
    if !wrapper.exists() {
        return Err(format!(
            "{} does not exist: install it beside this program",
            wrapper.display()
        )
        .into());
    }
    fs::create_dir_all(directory)?;
    let names = compilers(&search_path());
    for name in &names {
        link(&wrapper, &directory.join(name))?;
        println!("{}", directory.join(name).display());
    }
    println!("{} links; put {} before others in PATH", names.len(), directory.display());
    Ok(())
}

/// The names of all compilers in `path`, and names that build files use without checking.
fn compilers(path: &OsStr) -> BTreeSet<OsString> {
    let entries = env::split_paths(path).filter_map(|dir| fs::read_dir(dir).ok()).flatten();
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter(|name| is_compiler(Path::new(name))).collect()
}

/// Replaces a link, and nothing else.
fn link(wrapper: &Path, at: &Path) -> Outcome {
    match fs::symlink_metadata(at) {
        Ok(found) if found.is_symlink() => fs::remove_file(at)?,
        Ok(_) => return Err(format!("{} is there and is no link", at.display()).into()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        Err(_) => {}
    }
    Ok(symlink(wrapper, at)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_with_a_parent_outlives_idle_minutes() {
        assert!(settings(false).idle.is_some());
        assert_eq!(settings(true).idle, None);
    }
}
