//! Clients of file systems for commands on whole trees: who asks, and where.

use outboard_active::DialActive;
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::{Host, HostList};
use outboard_fs::client::{FsCaller, FsClient, FsClientOptions};
use outboard_fs::protocol::{FsWho, GROUPS_MAX};
use outboard_fs::tools::{FsPlace, LastLink, ResolvedPath, resolve};
use outboard_secure::ServiceName;
use outboard_verbs::Context;
use std::collections::HashMap;
use std::error::Error;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Instant;

/// The service that has file systems.
pub(super) const SERVICE: &str = "fs";

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
        let client = connect(host, &FsClientOptions::default())?;
        client.know_walks()?;
        self.0.insert(host.to_owned(), Arc::clone(&client));
        Ok(client)
    }
}

/// A client of one's own.
pub(super) fn connect(
    host: &str,
    options: &FsClientOptions,
) -> Result<Arc<FsClient>, Box<dyn Error>> {
    Ok(FsClient::connect(&Context::open()?, dial(host)?, options)?)
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

/// One host.
pub(super) fn host_of(word: &str) -> Result<Host, Box<dyn Error>> {
    let hosts: HostList = word.parse().map_err(|error| format!("{word}: {error}"))?;
    match hosts.hosts() {
        [host] => Ok(host.clone()),
        hosts => Err(format!("{word} are {} hosts: name one", hosts.len()).into()),
    }
}

fn dial(host: &str) -> Result<DialActive, Box<dyn Error>> {
    let service: ServiceName = SERVICE.parse()?;
    let own = [service.clone()];
    let dialer = Dialer::from_environment(|name| std::env::var_os(name), &own)?;
    let host = host_of(host)?;
    Ok(Box::new(move |limit| {
        let dialled = dialer.dial(&host, &service, Instant::now() + limit);
        dialled.map_err(|error| error.to_string())
    }))
}
