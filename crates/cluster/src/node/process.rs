//! A service from the supervisor's side: its process, the messages queued for it, and its restart
//! after a crash.

use super::config::Grant;
use super::directories;
use super::kept::Kept;
use super::link::ServiceSetup;
use super::user::User;
use super::wire::{
    self, FromService, Packet, PacketKind, ReceivedMessage, ServiceRequest, ToService,
};
use crate::waker::Waker;
use outboard_secure::{NodeId, ServiceName};
use outboard_verbs::Secured;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

/// Messages that may wait for a service.
const WAITING_MAX: usize = 256;
/// The first delay before a service that died is started again; doubled each time ...
const DELAY_MIN: Duration = Duration::from_millis(100);
/// ... up to this ...
const DELAY_MAX: Duration = Duration::from_secs(30);
/// ... and reset to the first delay once the service has run for this long.
const STEADY: Duration = Duration::from_secs(60);
/// Requests for connections that may wait for the supervisor.
const WANTS_MAX: usize = 64;
/// Messages taken from a service at a time: more than a correct service can have sent.
const MESSAGES: usize = WAITING_MAX + WANTS_MAX + 16;

/// Environment variables that a service gets, besides those that begin with OUTBOARD_.
const ENVIRONMENT: &[&str] = &["PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "RUST_BACKTRACE"];
/// The same where it is the same user as the supervisor.
const OWN_ENVIRONMENT: &[&str] =
    &["HOME", "USER", "LOGNAME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];

/// How services are started.
#[derive(Debug)]
pub(super) struct Starter {
    /// This program.
    pub(super) program: PathBuf,
    /// Words before the service's name that make this program a service.
    pub(super) words: Vec<OsString>,
    /// Which events they say, if the operator has said so.
    pub(super) log: Option<String>,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct ServiceProcess {
    name: ServiceName,
    setup: ServiceSetup,
    /// The user that it runs as, if not the supervisor's.
    user: Option<User>,
    kept: Kept,
    state: ProcessState,
    waiting: VecDeque<Packet>,
    /// Sessions that were sent to the process and that it has not confirmed yet.
    on_their_way: VecDeque<Packet>,
    /// Nodes that were revoked while sessions of theirs were on their way.
    revoked: Vec<NodeId>,
    /// How its last process ended, or why it did not start.
    ended: Option<String>,
    restarts: u64,
    sessions: u64,
    delay: Duration,
    report: Value,
    /// What the process wants, to be taken by the supervisor.
    wants: VecDeque<DialRequest>,
    /// A report was asked for and is not here.
    asked: bool,
}

/// A request that the supervisor answers.
#[derive(Debug)]
pub(super) struct DialRequest {
    pub(super) id: u64,
    pub(super) host: String,
    pub(super) service: String,
    pub(super) limit: Duration,
}

#[derive(Debug)]
enum ProcessState {
    /// A thread starts it: where a disk hangs, that takes until it answers.
    Starting {
        started: mpsc::Receiver<io::Result<Started>>,
    },
    Running {
        child: Child,
        control: OwnedFd,
        since: Instant,
    },
    Down {
        until: Instant,
    },
}

/// A process, and the supervisor's end of the sockets to it.
type Started = (Child, OwnedFd);

impl ServiceProcess {
    pub(super) fn new(
        setup: ServiceSetup,
        name: ServiceName,
        user: Option<User>,
        now: Instant,
    ) -> Self {
        Self {
            name,
            setup,
            user,
            kept: Kept::default(),
            state: ProcessState::Down { until: now },
            waiting: VecDeque::new(),
            on_their_way: VecDeque::new(),
            revoked: Vec::new(),
            ended: None,
            restarts: 0,
            sessions: 0,
            delay: DELAY_MIN,
            report: Value::Null,
            wants: VecDeque::new(),
            asked: false,
        }
    }

    /// How long it may take to end.
    pub(super) fn ending(&self) -> Duration {
        Duration::from_secs(self.setup.ending_s)
    }

    /// Jobs that it may do at a time.
    pub(super) fn slots(&self) -> u32 {
        self.setup.slots
    }

    /// Which of its processes runs, or ran last: an answer is for the one that asked.
    pub(super) fn generation(&self) -> u64 {
        self.restarts
    }

    pub(super) fn name(&self) -> &ServiceName {
        &self.name
    }

    /// The supervisor's end, while the process runs.
    pub(super) fn control(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            ProcessState::Running { control, .. } => Some(control.as_fd()),
            ProcessState::Starting { .. } | ProcessState::Down { .. } => None,
        }
    }

    /// When it is to be started.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.state {
            ProcessState::Starting { .. } | ProcessState::Running { .. } => None,
            ProcessState::Down { until } => Some(until),
        }
    }

    /// Has a thread start it, which wakes the loop when it has; then it is to be
    /// [taken](Self::take_started).
    pub(super) fn start(
        &mut self,
        starter: &Arc<Starter>,
        waker: &Waker,
        now: Instant,
    ) -> io::Result<()> {
        let (name, user) = (self.name.clone(), self.user);
        let (starter, waker) = (Arc::clone(starter), waker.clone());
        let (reply, started) = mpsc::channel();
        let start = move || {
            if let Err(mpsc::SendError(Ok(started))) = reply.send(starter.start(&name, user)) {
                // The node has ended meanwhile.
                end(started);
            }
            waker.wake();
        };
        match thread::Builder::new().name("outboard-start".into()).spawn(start) {
            Ok(_) => self.state = ProcessState::Starting { started },
            Err(error) => return self.fail(error, now),
        }
        Ok(())
    }

    /// Takes the process that a thread has started, if it has; messages that wait go to it.
    pub(super) fn take_started(&mut self, now: Instant) -> Option<io::Result<()>> {
        let ProcessState::Starting { started } = &self.state else { return None };
        let started = match started.try_recv() {
            Ok(started) => started,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                Err(io::Error::other("the thread that started it has ended"))
            }
        };
        let running = started.and_then(|started| self.run(started, now));
        Some(running.or_else(|error| self.fail(error, now)))
    }

    fn run(&mut self, (child, control): Started, now: Instant) -> io::Result<()> {
        let first = match self.first_messages() {
            Ok(first) => first,
            Err(error) => {
                end((child, control));
                return Err(error);
            }
        };
        first.into_iter().rev().for_each(|packet| self.waiting.push_front(packet));
        self.state = ProcessState::Running { child, control, since: now };
        self.flush();
        Ok(())
    }

    /// What a new process gets before everything else.
    fn first_messages(&mut self) -> io::Result<Vec<Packet>> {
        let kept = self.kept.copies()?;
        self.setup.kept = self.kept.len();
        let setup = serde_json::to_vec(&self.setup).map_err(io::Error::other)?;
        let kept = kept.into_iter().map(|(name, memory)| ToService::Kept { name, memory });
        let first = [ToService::ServiceSetup(setup)].into_iter().chain(kept);
        Ok(first.filter_map(Packet::of).collect())
    }

    /// It did not start.
    fn fail(&mut self, error: io::Error, now: Instant) -> io::Result<()> {
        self.ended = Some(error.to_string());
        self.fall(now);
        Err(error)
    }

    /// Whether the process has ended, and how; it is due again then.
    pub(super) fn reap(&mut self, now: Instant) -> Option<ExitStatus> {
        let ProcessState::Running { child, since, .. } = &mut self.state else { return None };
        let status = child.try_wait().ok().flatten()?;
        let since = *since;
        // Sessions that it had taken are gone with it.
        self.receive();
        if now.saturating_duration_since(since) >= STEADY {
            self.delay = DELAY_MIN;
        }
        self.ended = Some(status.to_string());
        self.restarts += 1;
        self.fall(now);
        Some(status)
    }

    fn fall(&mut self, now: Instant) {
        // Messages for this process alone are dropped.
        self.waiting.retain(|packet| packet.kind() != PacketKind::Other);
        while let Some(session) = self.on_their_way.pop_back() {
            self.waiting.push_front(session);
        }
        for node in mem::take(&mut self.revoked) {
            self.waiting.retain(|packet| packet.kind() != PacketKind::Session(node));
        }
        self.wants.clear();
        self.state = ProcessState::Down { until: now + self.delay };
        self.delay = (2 * self.delay).min(DELAY_MAX);
        self.report = Value::Null;
        self.asked = false;
    }

    /// Hands a session over to the process; if too many wait, the session is dropped and the result
    /// is false.
    pub(super) fn hand_over(&mut self, stream: Secured, grant: Grant) -> bool {
        self.sessions += 1;
        self.has_room() && self.push(ToService::Session { stream, grant })
    }

    /// Ends a node's sessions here, also those that are on their way: the process gets the message
    /// that the node is revoked right after such a session.
    pub(super) fn shut_out(&mut self, node: NodeId) {
        self.waiting.retain(|packet| packet.kind() != PacketKind::Session(node));
        if self.control().is_some() {
            if self.on_their_way.iter().any(|packet| packet.kind() == PacketKind::Session(node)) {
                self.revoked.push(node);
            }
            self.push(ToService::Revoked(node));
        }
    }

    pub(super) fn stop(&mut self) {
        self.push(ToService::Stop);
    }

    /// Answers a request of the process that runs.
    pub(super) fn answer(&mut self, id: u64, outcome: Result<Option<Secured>, String>) {
        if self.control().is_some() {
            self.push(ToService::Answer { id, outcome });
        }
    }

    /// The next request that the supervisor has to decide.
    pub(super) fn poll_want(&mut self) -> Option<DialRequest> {
        self.wants.pop_front()
    }

    fn has_room(&self) -> bool {
        self.waiting.len() + self.on_their_way.len() < WAITING_MAX
    }

    fn push(&mut self, message: ToService) -> bool {
        let packet = Packet::of(message);
        let whole = packet.is_some();
        self.waiting.extend(packet);
        self.flush();
        whole
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&mut self) {
        let ProcessState::Running { control, .. } = &self.state else { return };
        while let Some(packet) = self.waiting.pop_front() {
            // If the process is gone, its successor gets the messages that wait.
            if !packet.send(control.as_fd()).unwrap_or(false) {
                return self.waiting.push_front(packet);
            }
            if let PacketKind::Session(_) = packet.kind() {
                self.on_their_way.push_back(packet);
            }
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the service's messages; false when its socket has ended. A service that sends an
    /// invalid message is killed.
    pub(super) fn receive(&mut self) -> bool {
        for _ in 0..MESSAGES {
            let Some(control) = self.control() else { return true };
            match wire::receive_from_service(control) {
                ReceivedMessage::Message(FromService::Taken) => {
                    self.on_their_way.pop_front();
                    if self.on_their_way.is_empty() {
                        self.revoked.clear();
                    }
                }
                ReceivedMessage::Message(FromService::Request { id, request, memory }) => {
                    self.wish(id, request, memory);
                }
                ReceivedMessage::Message(FromService::Report(json)) => {
                    self.asked = false;
                    self.report = serde_json::from_slice(&json).unwrap_or_default();
                }
                ReceivedMessage::Nothing => return true,
                ReceivedMessage::Ended => {
                    self.kill();
                    return false;
                }
            }
        }
        true
    }

    fn wish(&mut self, id: u64, request: ServiceRequest, memory: Option<OwnedFd>) {
        if self.waiting.len() > 2 * WAITING_MAX {
            // It sends requests and does not read the answers.
            return self.kill();
        }
        let outcome = match request {
            ServiceRequest::Dial { host, service, limit_ms } if self.wants.len() < WANTS_MAX => {
                let limit = Duration::from_millis(limit_ms.into());
                return self.wants.push_back(DialRequest { id, host, service, limit });
            }
            ServiceRequest::Dial { .. } => Err("too many wait to be connected".to_owned()),
            ServiceRequest::Keep { name } => self.kept.keep(name, memory),
            ServiceRequest::Discard { name } => self.kept.discard(&name),
        };
        self.answer(id, outcome.map(|()| None));
    }

    /// Ends the process by force; [`ServiceProcess::reap`] finds it.
    pub(super) fn kill(&mut self) {
        if let ProcessState::Running { child, .. } = &mut self.state {
            // Fails only when it has ended already.
            let _killed = child.kill();
        }
    }

    /// Asks for a report.
    pub(super) fn ask(&mut self) {
        if self.control().is_some() && !self.asked && self.has_room() {
            self.asked = self.push(ToService::ReportPlease);
        }
    }

    /// A report was asked for and may still come.
    pub(super) fn is_asked(&self) -> bool {
        self.asked
    }

    /// What there is to say of it.
    pub(super) fn describe(&self, now: Instant) -> Value {
        let (state, up) = match &self.state {
            ProcessState::Running { since, .. } if self.asked => ("silent", Some(*since)),
            ProcessState::Running { since, .. } => ("running", Some(*since)),
            ProcessState::Starting { .. } => ("starting", None),
            ProcessState::Down { .. } => ("down", None),
        };
        json!({
            "name": self.name.as_str(),
            "state": state,
            "uptime_s": up.map_or(0, |since| now.saturating_duration_since(since).as_secs()),
            "ended": self.ended,
            "restarts": self.restarts,
            "sessions": self.sessions,
            "slots": self.slots(),
            "kept": self.kept.describe(),
            "waiting": self.waiting.len(),
            "report": self.report,
        })
    }
}

/// A service does not outlive this value.
impl Drop for ServiceProcess {
    fn drop(&mut self) {
        if let ProcessState::Running { child, .. } = &mut self.state {
            let _killed = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// Ends a process that is of no use.
fn end((mut child, _control): Started) {
    let _killed = child.kill();
    let _reaped = child.wait();
}

impl Starter {
    /// Waits until the program is loaded. The process gets no descriptor but those of standard
    /// input (its end), output and error, and nothing of the environment that it does not need.
    fn start(&self, name: &ServiceName, user: Option<User>) -> io::Result<Started> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let mut command = Command::new(&self.program);
        command.arg0("outboard").args(&self.words).arg(name.as_str());
        command.stdin(Stdio::from(theirs)).current_dir("/").process_group(0).env_clear();
        command.envs(env::vars_os().filter(|(word, _)| passes(word, user)));
        command.envs(self.log.iter().map(|log| ("OUTBOARD_LOG", log)));
        if let Some(user) = user {
            // Root's other groups go with this.
            command.gid(user.gid).uid(user.uid).env("XDG_CACHE_HOME", directories::cache(name));
        }
        Ok((command.spawn()?, ours))
    }
}

/// Whether a service that runs as that user, or as the supervisor's, gets a variable.
fn passes(word: &OsStr, user: Option<User>) -> bool {
    let Some(word) = word.to_str() else { return false };
    let own = user.is_none() && OWN_ENVIRONMENT.contains(&word);
    let ours = word.starts_with("OUTBOARD_") && word != "OUTBOARD_KEY";
    own || ours || ENVIRONMENT.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_testkit::hung::{Hung, may_hang};
    use outboard_testkit::{PATIENCE, eventually};
    use rustix::event::{PollFd, PollFlags, poll};
    use std::fs;
    use std::path::Path;

    fn service() -> ServiceProcess {
        let setup = ServiceSetup {
            service: "test".into(),
            node: String::new(),
            slots: 1,
            config: Value::Null,
            kept: 0,
            ending_s: 5,
        };
        let name = "test".parse().expect("a name");
        ServiceProcess::new(setup, name, None, Instant::now())
    }

    /// Waits for the thread that starts it.
    fn started(service: &mut ServiceProcess, waker: &Waker) -> io::Result<()> {
        let limit = PATIENCE.try_into().expect("short");
        let ready = poll(&mut [PollFd::new(waker, PollFlags::IN)], Some(&limit));
        assert_eq!(ready, Ok(1), "the loop is woken");
        waker.clear();
        service.take_started(Instant::now()).expect("it has started, or not")
    }

    /// Whether a child of this process sleeps.
    fn a_child_waits() -> bool {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        let tasks = fs::read_dir("/proc/self/task").expect("tasks").flatten();
        let children: String = tasks.map(|task| read(task.path().join("children"))).collect();
        let stat = |pid: &str| read(Path::new("/proc").join(pid).join("stat"));
        children
            .split_whitespace()
            .any(|pid| stat(pid).contains(") D ") || stat(pid).contains(") S "))
    }

    /// In a process of its own: the child that waits in exec(2) has copies of all descriptors, also
    /// of those that other tests close.
    #[test]
    fn a_program_on_a_disk_that_hangs_is_not_waited_for() {
        const ALONE: &str = "OUTBOARD_TEST_ALONE";
        const NAME: &str = "node::process::tests::a_program_on_a_disk_that_hangs_is_not_waited_for";
        if !may_hang() {
            return;
        }
        if env::var_os(ALONE).is_none() {
            let mut alone = Command::new("/proc/self/exe");
            let status = alone.args(["--exact", NAME]).env(ALONE, "1").status();
            return assert!(status.expect("this program").success());
        }
        let at = std::env::temp_dir().join(format!("outboard-start-{}", std::process::id()));
        fs::create_dir_all(&at).expect("a directory");
        fs::copy("/bin/true", at.join("program")).expect("a program");
        let (program, words) = (at.join("program"), Vec::new());
        let starter = Arc::new(Starter { program, words, log: None });
        let (mut service, waker) = (service(), Waker::new().expect("a waker"));
        let (begin, hung) = (Instant::now(), Hung::over(at.clone()).expect("mounted"));
        // A start that waited for the disk would go on, and fail, when that has failed.
        let (fail, fails) = mpsc::channel::<()>();
        let disk = thread::spawn(move || drop((fails.recv_timeout(PATIENCE), hung)));
        service.start(&starter, &waker, begin).expect("a thread");
        eventually("a child waits for the disk", a_child_waits);
        assert!(service.take_started(begin).is_none() && service.due().is_none());
        assert_eq!(service.describe(begin)["state"], "starting");
        drop(fail);
        disk.join().expect("no panic");
        assert!(started(&mut service, &waker).is_err(), "the disk has failed");
        assert_eq!(service.describe(begin)["state"], "down");
        assert!(service.due().is_some(), "it is tried again");
        service.start(&starter, &waker, Instant::now()).expect("a thread");
        started(&mut service, &waker).expect("it starts");
        assert_eq!(service.describe(begin)["state"], "running");
        eventually("it ends", || service.reap(Instant::now()).is_some());
        fs::remove_dir_all(at).expect("removed");
    }
}
