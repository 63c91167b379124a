//! Who a request is made for: users with the groups that this machine's database says, and
//! identities that are one user whatever they say.
//!
//! The database is asked by threads, whose answers are kept for a while: a request of a user that
//! is not known waits for them, for a bounded time. Executes nothing.

use super::entries::has_who;
use super::grants::GrantKey;
use crate::protocol::{BatchHead, BatchItem, FsLayout, FsWho, GROUPS_MAX, NOBODY};
use nix::unistd::{Gid, Uid, User, getgrouplist};
use outboard_active::service::BackendCaller;
use outboard_cluster::waker::Waker;
use outboard_cluster::workers::Workers;
use outboard_offcode::executor::Request;
use outboard_secure::NodeId;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Threads that ask: one that gets no answer holds up only a part of the others.
const THREADS: usize = 4;
/// How long an answer holds; then it is asked for again, and holds until the next one is there.
const HOLDS: Duration = Duration::from_secs(60);
/// How long a request waits for one. Then its user has no groups, until it is asked again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Users of whom something is kept.
const KNOWN_MAX: usize = 4096;

/// Whose word counts about a user's groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupSource {
    /// This machine's database.
    #[default]
    Server,
    /// The client's.
    Client,
}

/// Who an identity is, whatever it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundUser {
    /// User.
    pub uid: u32,
    /// Group; `None`: what the database says.
    pub gid: Option<u32>,
}

/// What an identity may have made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityQuota {
    /// Blocks.
    pub blocks: u64,
    /// Inodes.
    pub inodes: u64,
}

/// What the operator says of users.
#[derive(Clone, Debug, Default)]
pub struct UserRules {
    /// Whose word counts about groups.
    pub groups: GroupSource,
    /// Identities that are one user.
    pub bound: HashMap<NodeId, BoundUser>,
    /// Identities with limits.
    pub quotas: HashMap<NodeId, IdentityQuota>,
}

/// A user's group, and all that it is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct UserGroups {
    gid: u32,
    all: Vec<u32>,
}

/// What is known of a user.
#[derive(Debug)]
struct KnownUser {
    /// `None`: the database has no such user, or did not answer.
    groups: Option<UserGroups>,
    until: Instant,
}

type AskedUser = (u32, Option<UserGroups>);
type WaitingCalls = Vec<(BackendCaller, Request)>;

/// See this file's first lines.
pub(super) struct ServerAccounts {
    rules: UserRules,
    /// Asks the database.
    ask: fn(u32) -> Option<UserGroups>,
    /// Identities that pay for what they make, by their numbers.
    tenants: HashMap<NodeId, u16>,
    known: HashMap<u32, KnownUser>,
    /// Users that are asked about, since when, and who waits.
    asked: HashMap<u32, (Instant, WaitingCalls)>,
    workers: Workers,
    sender: mpsc::Sender<AskedUser>,
    answers: mpsc::Receiver<AskedUser>,
    waker: Waker,
}

impl ServerAccounts {
    pub(super) fn new(rules: UserRules, waker: Waker) -> Self {
        let (sender, answers) = mpsc::channel();
        let workers = Workers::new("outboard-fs-users", THREADS);
        let (tenants, known, asked) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { rules, ask: groups_of, tenants, known, asked, workers, sender, answers, waker }
    }

    /// Has a request say whom it is for; `None`: it is kept until that is known.
    pub(super) fn admit(
        &mut self,
        caller: BackendCaller,
        mut request: Request,
        (grants, now): (&GrantKey, Instant),
    ) -> Option<Request> {
        let bound = self.rules.bound.get(&caller.node).copied();
        let is_as_said = bound.is_none() && self.rules.groups == GroupSource::Client;
        let places = whos(&request.entry, &request.args);
        for place in places.iter().filter(|_| !is_as_said) {
            let Some((who, _)) = FsWho::split(&request.args[*place..]) else { continue };
            let uid = bound.map_or(who.uid, |bound| bound.uid);
            if uid != 0 && !self.is_known(uid, now) {
                if let Some((_, waiting)) = self.asked.get_mut(&uid) {
                    waiting.push((caller, request));
                    return None;
                }
                // Too much is asked already: it is as if there were no answer.
                self.learn(uid, None, now + PATIENCE);
            }
        }
        let grant = grants.checked(caller.node, (&request.entry, &request.args));
        for place in places {
            let Some((who, _)) = FsWho::split(&request.args[place..]) else { continue };
            let who = if is_as_said { who } else { self.person(who, bound) };
            let bytes = FsWho { tenant: self.tenant(caller.node), grant, ..who }.bytes();
            request.args[place..place + FsWho::LEN].copy_from_slice(&bytes);
        }
        Some(request)
    }

    /// Who pays for what an identity makes; 0: nobody.
    pub(super) fn tenant(&self, node: NodeId) -> u16 {
        self.tenants.get(&node).copied().unwrap_or(0)
    }

    /// An identity pays from now on.
    pub(super) fn pays(&mut self, node: NodeId, tenant: u16) {
        self.tenants.insert(node, tenant);
    }

    /// What the operator says.
    pub(super) fn rules(&self) -> &UserRules {
        &self.rules
    }

    /// Whether something is known of a user, and has it asked about if not, or not any more.
    fn is_known(&mut self, uid: u32, now: Instant) -> bool {
        let known = self.known.get(&uid);
        let is_fresh = known.is_some_and(|known| known.until > now);
        let is_known = known.is_some();
        if !is_fresh && !self.asked.contains_key(&uid) {
            let (sender, waker, ask) = (self.sender.clone(), self.waker.clone(), self.ask);
            let asks = self.workers.run(move || {
                // The service may have ended.
                let _sent = sender.send((uid, ask(uid)));
                waker.wake();
            });
            if asks {
                self.asked.insert(uid, (now, Vec::new()));
            }
        }
        is_known
    }

    fn learn(&mut self, uid: u32, groups: Option<UserGroups>, until: Instant) {
        if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&uid) {
            self.known.clear();
        }
        self.known.insert(uid, KnownUser { groups, until });
    }

    /// Who somebody is here.
    fn person(&self, who: FsWho, bound: Option<BoundUser>) -> FsWho {
        let uid = bound.map_or(who.uid, |bound| bound.uid);
        let known = self.known.get(&uid).and_then(|known| known.groups.as_ref());
        let gid = match bound {
            None => who.gid,
            Some(BoundUser { gid: Some(gid), .. }) => gid,
            // It may choose among its own.
            Some(_) if known.is_some_and(|known| known.all.contains(&who.gid)) => who.gid,
            Some(_) => known.map_or(NOBODY, |known| known.gid),
        };
        let mut person = FsWho { uid, gid, ..FsWho::default() };
        let all = known.map(|known| &known.all[..]).unwrap_or_default();
        let further = all.iter().filter(|group| uid != 0 && **group != gid).take(GROUPS_MAX);
        for (place, group) in person.groups.iter_mut().zip(further) {
            *place = *group;
            person.groups_len += 1;
        }
        person
    }

    /// Takes what threads have found; requests whose users are known by now.
    pub(super) fn turn(&mut self, now: Instant) -> WaitingCalls {
        let mut ready = Vec::new();
        while let Ok((uid, groups)) = self.answers.try_recv() {
            self.learn(uid, groups, now + HOLDS);
            ready.extend(self.asked.remove(&uid).into_iter().flat_map(|(_, waiting)| waiting));
        }
        let is_late = |since: Instant| now >= since + PATIENCE;
        let late: Vec<u32> =
            self.asked.iter().filter(|(_, (at, _))| is_late(*at)).map(|(uid, _)| *uid).collect();
        for uid in late {
            if !self.known.contains_key(&uid) {
                tracing::warn!(uid, "the database of users does not answer: no groups");
                self.learn(uid, None, now + PATIENCE);
            }
            ready.extend(self.asked.remove(&uid).into_iter().flat_map(|(_, waiting)| waiting));
        }
        ready
    }

    /// When a request has waited long enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.asked.values().map(|(since, _)| *since + PATIENCE).min()
    }
}

/// What this machine's database says. May take as long as that takes.
fn groups_of(uid: u32) -> Option<UserGroups> {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten()?;
    let name = CString::new(user.name).ok()?;
    let all = getgrouplist(&name, user.gid).unwrap_or_else(|_| vec![user.gid]);
    Some(UserGroups { gid: user.gid.as_raw(), all: all.into_iter().map(Gid::as_raw).collect() })
}

/// Where in its arguments a request says for whom it is.
fn whos(entry: &str, args: &[u8]) -> Vec<usize> {
    let fits = |place: &usize| args.len().saturating_sub(*place) >= FsWho::LEN;
    if entry != "batch" {
        return if has_who(entry) {
            Some(0).filter(fits).into_iter().collect()
        } else {
            Vec::new()
        };
    }
    let (mut places, mut at) = (Vec::new(), BatchHead::LEN);
    while let Some((item, _)) = args.get(at..).and_then(BatchItem::split) {
        let place = at + BatchItem::LEN + item.entry_len as usize;
        places.extend(Some(place).filter(fits));
        at = place + item.args_len as usize;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{BatchChange, FsInodeArgs, FsNameArgs, batch_of};

    #[test]
    fn every_request_s_user_is_found() {
        let named = FsNameArgs::default().bytes();
        assert_eq!(whos("find", &named), [0]);
        assert!(whos("find", &named[..FsWho::LEN - 1]).is_empty());
        assert!(whos("get", &FsInodeArgs::default().bytes()).is_empty());
        let change = BatchChange { entry: "unlink", args: &named };
        let other = BatchChange { entry: "rmdir", args: &named };
        let args = batch_of(0, &[change, other]);
        let places = whos("batch", &args);
        assert_eq!(places, [22, 22 + named.len() + 13]);
        assert!(whos("batch", &args[..22]).is_empty());
    }

    fn accounts(ask: fn(u32) -> Option<UserGroups>) -> ServerAccounts {
        let waker = Waker::new().expect("a descriptor");
        ServerAccounts { ask, ..ServerAccounts::new(UserRules::default(), waker) }
    }

    fn said(uid: u32, gid: u32, groups: &[u32]) -> FsWho {
        let mut who = FsWho { uid, gid, ..FsWho::default() };
        who.groups[..groups.len()].copy_from_slice(groups);
        FsWho { groups_len: u16::try_from(groups.len()).expect("few"), ..who }
    }

    #[test]
    fn a_user_is_in_the_groups_that_the_database_says() {
        let mut users =
            accounts(|uid| Some(UserGroups { gid: uid, all: (uid..uid + 20).collect() }));
        let begun = Instant::now();
        while !users.is_known(5, begun) {
            assert!(begun.elapsed() < PATIENCE, "no answer");
            std::thread::yield_now();
            users.turn(begun);
        }
        let further: Vec<u32> = (6..19).collect();
        assert_eq!(users.person(said(5, 5, &[99]), None), said(5, 5, &further));
        let other: Vec<u32> = (5..18).collect();
        assert_eq!(users.person(said(5, 77, &[]), None), said(5, 77, &other));
        // Who is bound chooses among its own groups.
        let bound = |gid| Some(BoundUser { uid: 5, gid });
        assert_eq!(users.person(said(0, 0, &[99]), bound(None)), said(5, 5, &further));
        assert_eq!(users.person(said(9, 6, &[]), bound(None)).gid, 6);
        assert_eq!(users.person(said(9, 6, &[]), bound(Some(8))).gid, 8);
        let unknown = Some(BoundUser { uid: 6, gid: None });
        assert_eq!(users.person(said(0, 0, &[99]), unknown), said(6, NOBODY, &[]));
        // It is asked again some time later, and holds until then.
        assert!(users.is_known(5, begun + HOLDS * 2) && users.asked.contains_key(&5));
    }

    #[test]
    fn a_database_that_does_not_answer_is_waited_for_so_long() {
        let mut users = accounts(|_| {
            std::thread::sleep(Duration::from_secs(3600));
            None
        });
        let begun = Instant::now();
        assert!(!users.is_known(5, begun));
        assert_eq!(users.deadline(), Some(begun + PATIENCE));
        users.turn(begun + PATIENCE / 2);
        assert!(!users.is_known(5, begun));
        users.turn(begun + PATIENCE);
        assert!(users.is_known(5, begun + PATIENCE));
        assert_eq!(users.person(said(5, 5, &[99]), None), said(5, 5, &[]));
        for uid in 0..10_000 {
            users.learn(uid, None, begun);
            assert!(users.known.len() <= KNOWN_MAX);
        }
    }

    #[test]
    fn the_database_says_who_is_in_which_groups() {
        let root = groups_of(0).expect("every machine has it");
        assert!(root.gid == 0 && root.all.contains(&0));
        assert_eq!(groups_of(0x7fff_fff0), None);
    }
}
