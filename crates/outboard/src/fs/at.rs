//! Clients of file systems for commands on whole trees: who asks, and where.

use outboard_active::DialActive;
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::{Host, HostList};
use outboard_fs::client::{FsCaller, FsClient, FsClientOptions};
use outboard_fs::protocol::{FsWho, GROUPS_MAX};
use outboard_fs::replica::replica_state;
use outboard_fs::tools::{FsPlace, LastLink, ResolvedPath, resolve};
use outboard_secure::ServiceName;
use outboard_verbs::Context;
use std::collections::HashMap;
use std::error::Error;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The service that has file systems.
const SERVICE: &str = "fs";
/// Hosts that one file system has, at most.
const HOSTS_MAX: usize = 8;
/// A connection that is lost sooner was perhaps none of a server's: another host is dialled then.
const LASTING: Duration = Duration::from_secs(10);

/// The file systems that a command has asked so far.
#[derive(Debug, Default)]
pub(super) struct FsServers(HashMap<String, Arc<FsClient>>);

/// A path, what it stands for, and whom to ask about it.
#[derive(Debug)]
pub(super) struct FoundPlace {
    pub(super) place: FsPlace,
    pub(super) client: Arc<FsClient>,
    pub(super) caller: FsCaller,
    pub(super) root: ResolvedPath,
}

impl FsServers {
    /// What a word of the command line stands for.
    pub(super) fn find(&mut self, word: &OsStr) -> Result<FoundPlace, Box<dyn Error>> {
        self.find_as(word, LastLink::Stays)
    }

    /// As [`Self::find`], with what it says about a symbolic link at the end.
    pub(super) fn find_as(
        &mut self,
        word: &OsStr,
        last: LastLink,
    ) -> Result<FoundPlace, Box<dyn Error>> {
        let place = FsPlace::of(word)?;
        let client = self.client(&place.host)?;
        let caller = caller();
        let root = resolve(&client, &caller, (&place.path, &place.shown), last)?;
        Ok(FoundPlace { place, client, caller, root })
    }

    pub(super) fn client(&mut self, host: &str) -> Result<Arc<FsClient>, Box<dyn Error>> {
        if let Some(client) = self.0.get(host) {
            return Ok(Arc::clone(client));
        }
        let client = connect(&host.parse::<FsHosts>()?, FsClientOptions::default())?;
        client.know_walks()?;
        self.0.insert(host.to_owned(), Arc::clone(&client));
        Ok(client)
    }
}

/// Who asks: this process.
pub(super) fn caller() -> FsCaller {
    let mut who = FsWho {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..FsWho::default()
    };
    // The service has its own word about them.
    let groups = rustix::process::getgroups().unwrap_or_default();
    let own = groups.iter().map(|group| group.as_raw()).filter(|group| *group != who.gid);
    for (place, group) in who.groups.iter_mut().zip(own.take(GROUPS_MAX)) {
        *place = group;
        who.groups_len += 1;
    }
    FsCaller { who, thread: 0 }
}

/// The servers of a file system, of which one serves at a time.
#[derive(Clone, Debug)]
pub(super) struct FsHosts(Vec<Host>);

impl std::str::FromStr for FsHosts {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let hosts: HostList = word.parse().map_err(|error| format!("{word}: {error}"))?;
        match hosts.hosts() {
            hosts if hosts.len() <= HOSTS_MAX => Ok(Self(hosts.to_vec())),
            hosts => Err(format!("{word} are {} hosts: name the server's", hosts.len())),
        }
    }
}

impl std::fmt::Display for FsHosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hosts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&hosts.join(","))
    }
}

/// One host of a word.
pub(super) fn host_of_word(word: &str) -> Result<Host, String> {
    match &word.parse::<FsHosts>()?.0[..] {
        [host] => Ok(host.clone()),
        hosts => Err(format!("{word} are {} hosts: name one", hosts.len())),
    }
}

/// Connects to whichever of the hosts serves.
pub(super) fn connect(
    hosts: &FsHosts,
    options: FsClientOptions,
) -> Result<Arc<FsClient>, Box<dyn Error>> {
    let options = FsClientOptions { attempts: 2 * hosts.0.len(), ..options };
    let error = match FsClient::connect(&Context::open()?, dial(hosts)?, &options) {
        Ok(client) => return Ok(client),
        Err(error) => error,
    };
    // A replica answers no client.
    match replica_state(dial(hosts)?) {
        Ok(_) => Err(format!(
            "{hosts} is a replica and serves nothing: name its server, or `outboard fs promote` it \
             if that is gone"
        )
        .into()),
        Err(_) => Err(error.into()),
    }
}

/// Dials the hosts in turn, beginning with the one that was reached last, unless that has served
/// nothing.
pub(super) fn dial(hosts: &FsHosts) -> Result<DialActive, Box<dyn Error>> {
    let service: ServiceName = SERVICE.parse()?;
    let own = [service.clone()];
    let dialer = Dialer::from_environment(|name| std::env::var_os(name), &own)?;
    let hosts = hosts.0.clone();
    let (mut next, mut reached): (usize, Option<Instant>) = (0, None);
    Ok(Box::new(move |limit| {
        if reached.take().is_some_and(|at| at.elapsed() < LASTING) {
            next += 1;
        }
        let (deadline, mut whys) = (Instant::now() + limit, Vec::new());
        for left in (1..=hosts.len()).rev() {
            let host = &hosts[next % hosts.len()];
            let now = Instant::now();
            let share = deadline.saturating_duration_since(now) / u32::try_from(left).unwrap_or(1);
            match dialer.dial(host, &service, now + share) {
                Ok(session) => {
                    reached = Some(Instant::now());
                    return Ok(session);
                }
                Err(error) => whys.push(error.to_string()),
            }
            next += 1;
        }
        Err(whys.join("; "))
    }))
}
