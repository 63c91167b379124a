//! The answering side of a control socket: a thread that takes connections, and one for each.

use super::place;
use super::question::{ControlQuestion, LINE_MAX};
use crate::describe::OffcodePackage;
use crate::planning::AppLayout;
use crate::planning::layout::code_of;
use crate::request::{InterfaceId, OffcodeId};
use crate::runtime::{ApplicationHandle, ApplicationSnapshot};
use outboard_interface::Interface;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Connections at a time, at most.
const CONNECTIONS_MAX: usize = 32;
/// How long a client may take over a question.
const CLIENT_LIMIT: Duration = Duration::from_secs(60);
/// Lines of the log that are kept.
const LOG_LINES: usize = 4096;
/// Deadlines of Calls, at most.
const DEADLINE_MAX: Duration = Duration::from_secs(60);

/// What a server answers from.
#[derive(Debug)]
pub struct Hosted {
    handle: ApplicationHandle,
    layout: AppLayout,
    /// Names of the devices, in the runtime's order.
    devices: Vec<String>,
    log: Mutex<Log>,
    stop: AtomicBool,
}

#[derive(Debug, Default)]
struct Log {
    lines: VecDeque<String>,
    /// The number of the last line.
    last: u64,
}

impl Hosted {
    /// A running application with its layout; `opened` are its devices by their indices there.
    #[must_use]
    pub fn new(handle: ApplicationHandle, layout: AppLayout, opened: &[usize]) -> Self {
        let name = |at: &usize| layout.machine.devices[*at].name.clone();
        let devices = opened.iter().map(name).collect();
        Self { handle, layout, devices, log: Mutex::default(), stop: AtomicBool::new(false) }
    }

    /// Adds a line to the log.
    pub fn log(&self, line: String) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.last += 1;
        log.lines.push_back(line);
        if log.lines.len() > LOG_LINES {
            log.lines.pop_front();
        }
    }

    /// Whether somebody asked that the application end.
    #[must_use]
    pub fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn answer(&self, question: ControlQuestion) -> Result<Value, String> {
        match question {
            ControlQuestion::Status => Ok(self.status(&self.snapshot()?)),
            ControlQuestion::Stop { offcode: None } => {
                self.stop.store(true, Ordering::Relaxed);
                Ok(json!("stopping"))
            }
            ControlQuestion::Stop { offcode: Some(offcode) } => {
                done(self.handle.remove(&offcode), json!("removed"))
            }
            ControlQuestion::Call { offcode, method, params, deadline_ms } => {
                self.call(&offcode, &method, &params, Duration::from_millis(deadline_ms))
            }
            ControlQuestion::Move { offcode, device } => self.move_to(&offcode, &device),
            ControlQuestion::Update { offcode, package } => self.update(&offcode, &package),
            ControlQuestion::Attributes { offcode } => {
                let attributes = self.handle.attributes(self.id(&offcode)?);
                Ok(json!(attributes.map_err(|error| error.to_string())?))
            }
            ControlQuestion::SetAttribute { offcode, name, value } => {
                self.check_attribute(&offcode, &name)?;
                done(self.handle.set_attribute(self.id(&offcode)?, &name, &value), json!("set"))
            }
            ControlQuestion::Logs { after } => Ok(self.lines(after)),
        }
    }

    fn id(&self, offcode: &str) -> Result<OffcodeId, String> {
        self.handle.offcode(offcode).map_err(|error| error.to_string())
    }

    fn snapshot(&self) -> Result<ApplicationSnapshot, String> {
        self.handle.snapshot().map_err(|error| error.to_string())
    }

    fn status(&self, snapshot: &ApplicationSnapshot) -> Value {
        let offcodes = snapshot.offcodes.iter().map(|offcode| {
            let counters = &offcode.counters;
            json!({
                "name": offcode.name,
                "device": offcode.device,
                "phase": offcode.phase.to_string(),
                "parent": offcode.parent,
                "entries": counters.entries,
                "busy_ns": counters.busy_ns,
                "received": counters.received,
                "sent": counters.sent,
                "dropped": counters.dropped,
                "memory_bytes": counters.memory_bytes,
                "calls": offcode.calls,
            })
        });
        let channels = snapshot.channels.iter().map(|channel| {
            json!({
                "from": channel.from,
                "to": channel.to,
                "carrier": format!("{:?}", channel.carrier).to_lowercase(),
                "reliable": channel.is_reliable,
                "depth": channel.depth,
            })
        });
        let devices = snapshot.devices.iter();
        let devices = devices.map(|device| json!({ "name": device.name, "lost": device.lost }));
        json!({
            "application": snapshot.name,
            "process": std::process::id(),
            "layout": self.layout.application.path,
            "devices": devices.collect::<Vec<_>>(),
            "offcodes": offcodes.collect::<Vec<_>>(),
            "channels": channels.collect::<Vec<_>>(),
        })
    }

    fn move_to(&self, offcode: &str, device: &str) -> Result<Value, String> {
        let place = self.devices.iter().position(|name| name == device);
        let place = place.ok_or_else(|| {
            format!("no device {device} is open; there are {}", self.devices.join(", "))
        })?;
        self.check_move(offcode, device)?;
        done(self.handle.move_offcode(offcode, place), json!({ "device": device }))
    }

    /// An offcode goes where its description and the layout file let it.
    fn check_move(&self, offcode: &str, device: &str) -> Result<(), String> {
        let Some(at) = self.layout.index(offcode) else { return Ok(()) };
        let devices = &self.layout.machine.devices;
        let target = devices.iter().position(|one| one.name == device).unwrap_or(0);
        if self.layout.runs_on(at, target) {
            return Ok(());
        }
        let refusals = self.layout.refusals(at);
        let why = refusals.iter().find(|refusal| refusal.contains(&format!("`{device}`")));
        let why = why.map_or("its body there is another one", String::as_str);
        Err(format!("`{offcode}` cannot run on {device}: {why}"))
    }

    fn update(&self, offcode: &str, directory: &Path) -> Result<Value, String> {
        let package = OffcodePackage::read(directory).map_err(|error| error.to_string())?;
        let at = self.layout.index(offcode).ok_or("an offcode that the layout does not list")?;
        let old = &self.layout.application.offcodes[at].package.file;
        if package.file.interfaces != old.interfaces || package.file.ports != old.ports {
            return Err("the new code has other interfaces or ports: start it anew".to_owned());
        }
        let snapshot = self.snapshot()?;
        let found = snapshot.offcodes.iter().find(|one| one.name == offcode);
        let device = found.map(|one| one.device.clone()).ok_or("it is gone")?;
        let devices = &self.layout.machine.devices;
        let kind = devices.iter().find(|one| one.name == device).map(|one| one.kind);
        let body = kind.and_then(|kind| package.body(kind));
        let body = body.ok_or_else(|| format!("the new code has no body for {device}"))?;
        done(
            self.handle.update(offcode, code_of(body)?),
            json!({ "version": package.file.version.to_string() }),
        )
    }

    fn check_attribute(&self, offcode: &str, name: &str) -> Result<(), String> {
        let Some(at) = self.layout.index(offcode) else { return Ok(()) };
        let attributes = &self.layout.application.offcodes[at].attributes;
        let is_known = matches!(name, "OBSOLETE_TIME" | "WATCHDOG_TIME" | "OFFLOAD_PRIORITY")
            || attributes.own.keys().any(|own| own.as_str() == name);
        match is_known {
            true => Ok(()),
            false => {
                Err(format!("`{offcode}` has no attribute {name}: its description lists them"))
            }
        }
    }

    fn call(
        &self,
        offcode: &str,
        method: &str,
        params: &[Value],
        deadline: Duration,
    ) -> Result<Value, String> {
        let (id, interface, number) = self.method(offcode, method)?;
        let described = &interface.methods[number as usize];
        let values = described.parameters_from_json(params).map_err(|error| error.to_string())?;
        let bytes = described.encode_parameters(&values).map_err(|error| error.to_string())?;
        let guid: InterfaceId = *interface.guid.as_bytes();
        let limit = Some(deadline.min(DEADLINE_MAX));
        let results = self.handle.call(id, guid, number, &bytes, limit);
        let results = results.map_err(|fault| fault.to_string())?;
        let value = described.decode_results(&results).map_err(|error| {
            format!("`{offcode}` answered with results of other types: {error}")
        })?;
        match (value, &described.result) {
            (Some(value), Some(ty)) => value.to_json(ty).map_err(|error| error.to_string()),
            _ => Ok(Value::Null),
        }
    }

    /// A method by its name, or by `interface.method`.
    fn method(&self, offcode: &str, name: &str) -> Result<(OffcodeId, Interface, u32), String> {
        let id = self.id(offcode)?;
        let at = self.layout.index(offcode).ok_or("an offcode that the layout does not list")?;
        let interfaces = self.layout.interfaces(at)?;
        let (wanted, method) = match name.rsplit_once('.') {
            Some((interface, method)) => (Some(interface), method),
            None => (None, name),
        };
        let is_wanted =
            |one: &Interface| wanted.is_none_or(|wanted| one.name.interface() == wanted);
        let mut known = Vec::new();
        for interface in interfaces.into_iter().filter(is_wanted) {
            if let Some((number, _)) = interface.method(method) {
                return Ok((id, interface, number));
            }
            known.extend(interface.methods.iter().map(|method| method.name.clone()));
        }
        Err(format!("`{offcode}` has no method {name}; it has {}", known.join(", ")))
    }

    fn lines(&self, after: u64) -> Value {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let first = log.last - log.lines.len() as u64;
        let skip = usize::try_from(after.saturating_sub(first)).unwrap_or(usize::MAX);
        let lines: Vec<&String> = log.lines.iter().skip(skip).collect();
        json!({ "last": log.last, "lines": lines })
    }
}

fn done<E: ToString>(result: Result<(), E>, value: Value) -> Result<Value, String> {
    result.map(|()| value).map_err(|error| error.to_string())
}

/// See this file's first lines. The socket is taken away when this is dropped.
#[derive(Debug)]
pub struct ControlServer {
    path: PathBuf,
}

impl ControlServer {
    /// Answers questions about an application, by its name, until this is dropped.
    ///
    /// # Errors
    /// An application of that name runs already, or this machine's.
    pub fn start(name: &str, hosted: Arc<Hosted>) -> io::Result<Self> {
        let path = place::socket(name)?;
        if UnixStream::connect(&path).is_ok() {
            let text =
                format!("an application `{name}` runs already: outboard offload stop {name}");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        let _none_there = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        thread::Builder::new()
            .name("offload-control".to_owned())
            .spawn(move || take(&listener, &hosted))?;
        Ok(Self { path })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        let _gone_already = fs::remove_file(&self.path);
    }
}

fn take(listener: &UnixListener, hosted: &Arc<Hosted>) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if !is_allowed(&stream) || open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (hosted, own) = (Arc::clone(hosted), Arc::clone(&open));
        let thread = thread::Builder::new().name("offload-answers".to_owned());
        let started = thread.spawn(move || {
            // A client that breaks off has its reasons.
            let _ended = converse(&stream, &hosted);
            own.fetch_sub(1, Ordering::Relaxed);
        });
        if started.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The directory is the user's alone; this holds where somebody opens it.
fn is_allowed(stream: &UnixStream) -> bool {
    let peer = socket_peercred(stream).map(|peer| peer.uid);
    peer.is_ok_and(|uid| uid.is_root() || uid == geteuid())
}

fn converse(stream: &UnixStream, hosted: &Hosted) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_LIMIT))?;
    stream.set_write_timeout(Some(CLIENT_LIMIT))?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        if (&mut reader).take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let answer = match serde_json::from_slice(&line) {
            Ok(question) => hosted.answer(question),
            Err(error) => Err(format!("this is no question: {error}")),
        };
        let answer = match answer {
            Ok(value) => json!({ "done": value }),
            Err(why) => json!({ "failed": why }),
        };
        let mut bytes = answer.to_string().into_bytes();
        bytes.push(b'\n');
        let mut stream = stream;
        stream.write_all(&bytes)?;
    }
}
