//! A service from the supervisor's side: its process, what waits for it, and its next start if it
//! dies.

use super::door::Guest;
use super::link::Welcome;
use super::user::User;
use super::wire::{self, FromService, Packet, Received, ToService};
use outboard_secure::{NodeId, ServiceName};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Messages that may wait for a service.
const WAITING_MAX: usize = 256;
/// The first delay before a service that died is started again; doubled each time ...
const DELAY_MIN: Duration = Duration::from_millis(100);
/// ... up to this ...
const DELAY_MAX: Duration = Duration::from_secs(30);
/// ... and as at first when it has run for so long.
const STEADY: Duration = Duration::from_secs(60);
/// Messages taken from a service at a time: more than one that is right can have sent.
const MESSAGES: usize = WAITING_MAX + 16;

/// Words of the environment that a service gets, besides those that begin with OUTBOARD_.
const ENVIRONMENT: &[&str] = &["PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "RUST_BACKTRACE"];
/// The same where it is the same user as the supervisor.
const OWN_ENVIRONMENT: &[&str] =
    &["HOME", "USER", "LOGNAME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];

/// A directory of a service's own, as another user than this one: below this user's
/// `XDG_CACHE_HOME`, or else the system's.
fn cache(service: &ServiceName, user: User) -> io::Result<PathBuf> {
    let own = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let all = own.unwrap_or_else(|| "/var/cache".into()).join("outboard");
    fs::create_dir_all(&all)?;
    let cache = all.join(service.as_str());
    match DirBuilder::new().mode(0o700).create(&cache) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        // Whoever made it before may have been another user.
        _ => std::os::unix::fs::lchown(&cache, Some(user.uid), Some(user.gid))?,
    }
    Ok(cache)
}

/// How services are started.
#[derive(Debug)]
pub(super) struct Starter {
    /// Words before the service's name that make this program a service.
    pub(super) words: Vec<OsString>,
    /// Whom it is to be, if not the supervisor's user.
    pub(super) user: Option<User>,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Service {
    name: ServiceName,
    welcome: Welcome,
    state: State,
    waiting: VecDeque<Packet>,
    /// Guests on their way, of which the process has not said that it has them.
    on_their_way: VecDeque<Packet>,
    restarts: u64,
    guests: u64,
    delay: Duration,
    report: Value,
    /// A report was asked for and is not here.
    asked: bool,
}

#[derive(Debug)]
enum State {
    Running { child: Child, control: OwnedFd, since: Instant },
    Down { until: Instant },
}

impl Service {
    pub(super) fn new(welcome: Welcome, name: ServiceName, now: Instant) -> Self {
        Self {
            name,
            welcome,
            state: State::Down { until: now },
            waiting: VecDeque::new(),
            on_their_way: VecDeque::new(),
            restarts: 0,
            guests: 0,
            delay: DELAY_MIN,
            report: Value::Null,
            asked: false,
        }
    }

    pub(super) fn name(&self) -> &ServiceName {
        &self.name
    }

    /// The supervisor's end, while the process runs.
    pub(super) fn control(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Running { control, .. } => Some(control.as_fd()),
            State::Down { .. } => None,
        }
    }

    /// When it is to be started.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.state {
            State::Running { .. } => None,
            State::Down { until } => Some(until),
        }
    }

    /// Starts it; messages that wait go to the new process.
    pub(super) fn start(&mut self, starter: &Starter, now: Instant) -> io::Result<()> {
        let result = starter.start(&self.name);
        let (child, control) = match result {
            Ok(started) => started,
            Err(error) => {
                self.fall(now);
                return Err(error);
            }
        };
        let welcome = serde_json::to_vec(&self.welcome).map_err(io::Error::other)?;
        if let Some(packet) = Packet::of(ToService::Welcome(welcome)) {
            self.waiting.push_front(packet);
        }
        self.state = State::Running { child, control, since: now };
        self.flush();
        Ok(())
    }

    /// Whether the process has ended, and how; it is due again then.
    pub(super) fn reap(&mut self, now: Instant) -> Option<ExitStatus> {
        let State::Running { child, since, .. } = &mut self.state else { return None };
        let status = child.try_wait().ok().flatten()?;
        let since = *since;
        // Guests that it had taken are gone with it.
        self.hear();
        if now.saturating_duration_since(since) >= STEADY {
            self.delay = DELAY_MIN;
        }
        self.restarts += 1;
        self.fall(now);
        Some(status)
    }

    fn fall(&mut self, now: Instant) {
        while let Some(guest) = self.on_their_way.pop_back() {
            self.waiting.push_front(guest);
        }
        self.state = State::Down { until: now + self.delay };
        self.delay = (2 * self.delay).min(DELAY_MAX);
        self.report = Value::Null;
        self.asked = false;
    }

    /// Hands somebody over; false when too many wait, and then they are gone.
    pub(super) fn hand_over(&mut self, guest: Guest) -> bool {
        let Guest { socket, session, early, .. } = guest;
        self.guests += 1;
        self.push(ToService::Guest { socket, session, early })
    }

    pub(super) fn shut_out(&mut self, node: NodeId) {
        // A process that is not there has nobody.
        if self.control().is_some() {
            self.push(ToService::Revoked(node));
        }
    }

    pub(super) fn stop(&mut self) {
        self.push(ToService::Stop);
    }

    fn push(&mut self, message: ToService) -> bool {
        if self.waiting.len() + self.on_their_way.len() >= WAITING_MAX {
            return false;
        }
        let packet = Packet::of(message);
        let whole = packet.is_some();
        self.waiting.extend(packet);
        self.flush();
        whole
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&mut self) {
        let State::Running { control, .. } = &self.state else { return };
        while let Some(packet) = self.waiting.pop_front() {
            // A process that is gone is started again, and gets what waits then.
            if !packet.send(control.as_fd()).unwrap_or(false) {
                return self.waiting.push_front(packet);
            }
            if packet.is_guest() {
                self.on_their_way.push_back(packet);
            }
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes what the service says; false when it says nothing more. What it must not say ends it.
    pub(super) fn hear(&mut self) -> bool {
        for _ in 0..MESSAGES {
            let Some(control) = self.control() else { return true };
            match wire::receive_from_service(control) {
                Received::Message(FromService::Taken) => {
                    self.on_their_way.pop_front();
                }
                Received::Message(FromService::Report(json)) => {
                    self.asked = false;
                    self.report = serde_json::from_slice(&json).unwrap_or_default();
                }
                Received::Nothing => return true,
                Received::Ended => {
                    self.kill();
                    return false;
                }
            }
        }
        true
    }

    /// Ends the process by force; [`Service::reap`] finds it.
    pub(super) fn kill(&mut self) {
        if let State::Running { child, .. } = &mut self.state {
            // Fails only when it has ended already.
            let _killed = child.kill();
        }
    }

    /// Asks for a report.
    pub(super) fn ask(&mut self) {
        if self.control().is_some() && !self.asked {
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
            State::Running { since, .. } if self.asked => ("silent", Some(*since)),
            State::Running { since, .. } => ("running", Some(*since)),
            State::Down { .. } => ("down", None),
        };
        json!({
            "name": self.name.as_str(),
            "state": state,
            "uptime_s": up.map_or(0, |since| now.saturating_duration_since(since).as_secs()),
            "restarts": self.restarts,
            "guests": self.guests,
            "report": self.report,
        })
    }
}

/// A service does not outlive its supervisor's hold on it.
impl Drop for Service {
    fn drop(&mut self) {
        if let State::Running { child, .. } = &mut self.state {
            let _killed = child.kill();
            let _reaped = child.wait();
        }
    }
}

impl Starter {
    /// A process and our end of the sockets to it. It gets no descriptor but those of standard
    /// input (its end), output and error, and nothing of the environment that it does not need.
    fn start(&self, name: &ServiceName) -> io::Result<(Child, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("outboard").args(&self.words).arg(name.as_str());
        command.stdin(Stdio::from(theirs)).current_dir("/").process_group(0).env_clear();
        command.envs(env::vars_os().filter(|(word, _)| self.passes(word)));
        if let Some(user) = self.user {
            // Root's other groups go with this.
            command.gid(user.gid).uid(user.uid);
            // A service that must have one says so.
            command.envs(cache(name, user).ok().map(|cache| ("XDG_CACHE_HOME", cache)));
        }
        Ok((command.spawn()?, ours))
    }

    fn passes(&self, word: &OsStr) -> bool {
        let Some(word) = word.to_str() else { return false };
        let own = self.user.is_none() && OWN_ENVIRONMENT.contains(&word);
        let ours = word.starts_with("OUTBOARD_") && word != "OUTBOARD_KEY";
        own || ours || ENVIRONMENT.contains(&word)
    }
}
