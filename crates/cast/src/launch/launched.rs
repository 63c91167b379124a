//! The source's side: receivers that it has started, from the first command to their end.
//!
//! A node on which none starts has failed, and the others go on. `srun` gives up a whole step for
//! one node that does not answer: the step is then started again without it.

use super::address::address_towards;
use super::announcement::Announcement;
use super::child::{ChildEvent, LaunchChild};
use super::invitation::{Invitation, InvitationTerms, MissingDestination};
use super::receiver::{credentials, dial_with};
use super::{LaunchError, LaunchWay, RECEIVER_COMMAND};
use crate::member::DialNode;
use crate::protocol::SERVICE;
use crate::source::{CastLimits, CastOutcome, NodeOutcome};
use outboard_cluster::hosts::{Host, HostList};
use outboard_secure::{ClusterKey, Credentials, NodeId, ServiceKey};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Steps that `srun` may give up, each without the nodes that did not answer the one before.
const ATTEMPTS: u32 = 4;
/// Commands that have been started and have not announced their receiver, at a time.
const STARTING_MAX: usize = 64;
/// How the reason begins why a node has none.
const NO_RECEIVER: &str = "no receiver: ";
/// How long commands may take to end once the cast is over.
const END_LIMIT: Duration = Duration::from_secs(5);

/// What to start.
#[derive(Clone, Debug)]
pub struct LaunchRequest {
    /// By what.
    pub way: LaunchWay,
    /// This program, as the nodes have it.
    pub program: PathBuf,
    /// The directory below which receivers publish.
    pub destination: PathBuf,
    /// What they do when it is not there.
    pub missing: MissingDestination,
    /// How long they may take.
    pub limit: Duration,
    /// The levels at which they log; `None`: as their environment says.
    pub log: Option<String>,
}

impl LaunchRequest {
    /// The words that start one.
    fn receiver(&self) -> Vec<OsString> {
        let mut words = vec![self.program.clone().into(), RECEIVER_COMMAND.into()];
        if let Some(levels) = &self.log {
            // Neither ssh nor every job has the environment of the source.
            words.extend(["--log".into(), levels.into()]);
        }
        words
    }
}

/// The receivers that a cast has started.
#[derive(Debug)]
pub struct LaunchedReceivers {
    children: Vec<LaunchChild>,
    credentials: Arc<Credentials>,
    /// In the order of the nodes.
    receivers: Vec<LaunchedReceiver>,
    hosts: HostList,
    /// Nodes without a receiver, and why.
    failed: Vec<NodeOutcome>,
}

#[derive(Clone, Debug)]
struct LaunchedReceiver {
    node: String,
    address: SocketAddr,
    identity: NodeId,
}

impl LaunchedReceivers {
    /// Starts receivers, and waits until each is there or has failed.
    ///
    /// # Errors
    /// [`LaunchError`]: none has started, or the caller's.
    pub fn start(request: &LaunchRequest) -> Result<Self, LaunchError> {
        request.way.check()?;
        let cast = SERVICE.parse().map_err(|_| LaunchError::Service("no name".into()))?;
        let key = ClusterKey::generate()?.service(&cast);
        let credentials = credentials(key.clone())?;
        let terms = InvitationTerms::new(
            credentials.identity.node(),
            &request.destination,
            request.missing,
        );
        let mut attempt = LaunchAttempt::new(request, (&key, &terms));
        let mut nodes = request.way.nodes();
        for _ in 0..ATTEMPTS {
            attempt.run(&nodes)?;
            let silent = attempt.silent_for_srun(&nodes);
            nodes.retain(|node| !silent.contains(node));
            if silent.is_empty() || nodes.is_empty() {
                break;
            }
            attempt.begin_again(&silent);
        }
        attempt.into_receivers(&request.way.nodes(), credentials)
    }

    /// Where the receivers are, for [`CastRequest::nodes`](crate::source::CastRequest).
    #[must_use]
    pub fn hosts(&self) -> &HostList {
        &self.hosts
    }

    /// The nodes that have a receiver, as users name them: in the order of [`Self::hosts`].
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.receivers.iter().map(|receiver| receiver.node.as_str())
    }

    /// The nodes on which no receiver has started, each with the reason.
    #[must_use]
    pub fn failed(&self) -> &[NodeOutcome] {
        &self.failed
    }

    /// Dials receivers, and accepts no other peer as one.
    #[must_use]
    pub fn dial(&self) -> DialNode {
        let dial = dial_with(&self.credentials);
        let known = self.receivers.iter().map(|one| (one.address.to_string(), one.identity));
        let known: HashMap<String, NodeId> = known.collect();
        Arc::new(move |host: &Host, limit: Duration| {
            let stream = dial(host, limit)?;
            if known.get(&host.to_string()) != Some(&stream.peer()) {
                return Err("another process answers there than the receiver that started".into());
            }
            Ok(stream)
        })
    }

    /// Ends the receivers, and gives nodes their names, those without a receiver too.
    #[must_use]
    pub fn finish(mut self, mut outcome: CastOutcome, limits: CastLimits) -> CastOutcome {
        self.end();
        for node in &mut outcome.nodes {
            let known = self.receivers.iter().find(|one| one.address.to_string() == node.host);
            if let Some(receiver) = known {
                node.host.clone_from(&receiver.node);
            }
        }
        outcome.nodes.append(&mut self.failed);
        if limits.min_nodes.is_none() {
            outcome.required = outcome.nodes.len();
        }
        outcome
    }

    fn end(&mut self) {
        self.children.iter_mut().for_each(LaunchChild::close);
        let deadline = Instant::now() + END_LIMIT;
        self.children.iter_mut().for_each(|child| child.wait_until(deadline));
    }
}

impl Drop for LaunchedReceivers {
    fn drop(&mut self) {
        self.end();
    }
}

/// Commands under way, and what has come of them.
struct LaunchAttempt<'a> {
    request: &'a LaunchRequest,
    invitation: (&'a ServiceKey, &'a InvitationTerms),
    events: (Sender<ChildEvent>, Receiver<ChildEvent>),
    children: Vec<LaunchChild>,
    /// Children before this are of an attempt that was given up.
    first: usize,
    results: BTreeMap<String, Result<LaunchedReceiver, String>>,
    complaints: HashMap<usize, Vec<String>>,
    deadline: Instant,
}

/// Lines of a child that are kept.
const COMPLAINTS_MAX: usize = 4096;

impl<'a> LaunchAttempt<'a> {
    fn new(request: &'a LaunchRequest, invitation: (&'a ServiceKey, &'a InvitationTerms)) -> Self {
        Self {
            request,
            invitation,
            events: mpsc::channel(),
            children: Vec::new(),
            first: 0,
            results: BTreeMap::new(),
            complaints: HashMap::new(),
            deadline: Instant::now() + request.limit,
        }
    }

    /// Starts all commands, some at a time, until each node has a receiver or has failed.
    fn run(&mut self, nodes: &[String]) -> Result<(), LaunchError> {
        let mut left = self.request.way.receivers(&self.request.receiver(), nodes).into_iter();
        loop {
            while self.starting() < STARTING_MAX
                && let Some(launch) = left.next()
            {
                let text = Invitation::text(self.invitation.0, &self.terms_for(&launch.nodes));
                let number = self.children.len();
                let child = LaunchChild::start(launch, &text, (number, &self.events.0))?;
                self.children.push(child);
            }
            if nodes.iter().all(|node| self.results.contains_key(node)) {
                return Ok(());
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            match self.events.1.recv_timeout(left) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.give_up(nodes);
                    return Ok(());
                }
            }
        }
    }

    /// Commands of which a node has no result.
    fn starting(&self) -> usize {
        let has_all =
            |child: &&LaunchChild| child.nodes.iter().all(|node| self.results.contains_key(node));
        self.children[self.first..].iter().filter(|child| !has_all(child)).count()
    }

    fn terms_for(&self, nodes: &[String]) -> InvitationTerms {
        let seen_from = match (&self.request.way, nodes) {
            (LaunchWay::Slurm(_), _) => None,
            (_, [node]) => own_address_towards(node),
            _ => None,
        };
        let mut terms = self.invitation.1.clone();
        terms.seen_from = seen_from;
        terms
    }

    fn take(&mut self, event: ChildEvent) {
        match event {
            // What an attempt says that was given up is of no interest.
            ChildEvent::Announced(number, announcement) if number >= self.first => {
                self.announced(number, announcement);
            }
            ChildEvent::Complained(number, line) => {
                let lines = self.complaints.entry(number).or_default();
                if lines.len() < COMPLAINTS_MAX {
                    lines.push(line);
                }
            }
            ChildEvent::Ended(number) if number >= self.first => self.ended(number),
            ChildEvent::Announced(..) | ChildEvent::Ended(_) => {}
        }
    }

    fn announced(&mut self, number: usize, announcement: Announcement) {
        let nodes = &self.children[number].nodes;
        let node = match (nodes.as_slice(), &announcement.node) {
            ([node], _) => node.clone(),
            (nodes, Some(node)) if nodes.contains(node) => node.clone(),
            _ => return,
        };
        let receiver = announcement.receiver();
        let receiver = receiver.map(|(address, identity)| LaunchedReceiver {
            node: node.clone(),
            address,
            identity,
        });
        self.results.entry(node).or_insert(receiver);
    }

    /// A command that has ended starts nothing any more, and what it had started is gone.
    fn ended(&mut self, number: usize) {
        // Its complaints come through another pipe.
        let until = Instant::now() + Duration::from_millis(200);
        while let Ok(event) =
            self.events.1.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            match event {
                ChildEvent::Ended(other) => self.fail(other),
                event => self.take(event),
            }
        }
        self.fail(number);
    }

    fn fail(&mut self, number: usize) {
        let lines = self.complaints.get(&number).map_or(&[][..], Vec::as_slice);
        let why = lines.first().map_or("its command has ended without a word", String::as_str);
        for node in &self.children[number].nodes {
            // A reason of its own is better.
            if !matches!(self.results.get(node), Some(Err(_))) {
                self.results.insert(node.clone(), Err(format!("{NO_RECEIVER}{why}")));
            }
        }
    }

    fn give_up(&mut self, nodes: &[String]) {
        let seconds = self.request.limit.as_secs();
        for node in nodes {
            let why = || Err(format!("its receiver did not start within {seconds} s"));
            self.results.entry(node.clone()).or_insert_with(why);
        }
    }

    /// The nodes for which `srun` gave up its step.
    fn silent_for_srun(&self, nodes: &[String]) -> Vec<String> {
        let (LaunchWay::Slurm(_), Some(lines)) =
            (&self.request.way, self.complaints.get(&self.first))
        else {
            return Vec::new();
        };
        if nodes.iter().any(|node| matches!(self.results.get(node), Some(Ok(_)))) {
            return Vec::new();
        }
        let named = lines.iter().filter_map(|line| failed_node(line));
        named.filter(|node| nodes.iter().any(|known| known == node)).map(str::to_owned).collect()
    }

    /// Forgets what became of nodes that the next step has.
    fn begin_again(&mut self, silent: &[String]) {
        self.results.retain(|node, _| silent.contains(node));
        self.first = self.children.len();
        self.deadline = Instant::now() + self.request.limit;
    }

    fn into_receivers(
        mut self,
        nodes: &[String],
        credentials: Arc<Credentials>,
    ) -> Result<LaunchedReceivers, LaunchError> {
        let (mut receivers, mut failed) = (Vec::new(), Vec::new());
        for node in nodes {
            match self.results.remove(node) {
                Some(Ok(receiver)) => receivers.push(receiver),
                Some(Err(why)) => failed.push(NodeOutcome {
                    host: node.clone(),
                    result: Err(why),
                    held_chunks: 0,
                    read_chunks: 0,
                    took: Duration::ZERO,
                }),
                None => {}
            }
        }
        let list: Vec<String> = receivers.iter().map(|one| one.address.to_string()).collect();
        let children = std::mem::take(&mut self.children);
        if list.is_empty() {
            let (node, why) = match failed.first() {
                Some(NodeOutcome { host, result: Err(why), .. }) => (host.clone(), why.as_str()),
                _ => (String::new(), ""),
            };
            let why = why.strip_prefix(NO_RECEIVER).unwrap_or(why).to_owned();
            return Err(LaunchError::NoneStarted { node, why });
        }
        let hosts = HostList::parse(&list.join(","), "receivers")?;
        Ok(LaunchedReceivers { children, credentials, receivers, hosts, failed })
    }
}

/// The node of `srun`'s "Task launch for StepId=2.0 failed on node n3: …".
fn failed_node(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("ask launch for ")?.1.split_once(" failed on node ")?;
    rest.split(':').next().map(str::trim)
}

/// The address that a host sees this machine under; `None` if its name is not known here, but only
/// to what starts commands.
fn own_address_towards(node: &str) -> Option<IpAddr> {
    let list: HostList = node.parse().ok()?;
    let mut found = (list.hosts().first()?.name(), 0).to_socket_addrs().ok()?;
    found.find_map(|address| address_towards(address.ip()).ok())
}

#[cfg(test)]
mod tests;
