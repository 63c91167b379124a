//! The device `nic`: a network interface's receive path, in which bodies for the kernel run.
//!
//! A thread of the application answers for it: it loads and attaches bodies, and passes their
//! records on as messages of port 0. Nothing can be pushed back into the kernel: what finds no room
//! is lost there, and counted (counter `lost`). Offcodes there cannot be moved. A body's
//! configuration is its attribute `oc_config`; its counters are what method 0 answers, as
//! `list<tuple<string, u64>>`.

use super::link::{DeviceLink, DeviceLost, LocalLink};
use crate::frames::{FrameFault, FrameStream};
use crate::request::{
    BodyCode, CallFailure, CallMessage, ChannelId, ConnectedEnd, Creation, DeviceError,
    DeviceEvent, DeviceReply, DeviceRequest, Direction, EndId, Numbered, OffcodeCounters,
    OffcodeId, OffcodePhase, PROTOCOL,
};
use data_encoding::HEXLOWER_PERMISSIVE;
use outboard_nic::{
    AttachedBody, BodyStart, BpfBody, InterfaceEvent, InterfaceWatch, LoadedBody, NetInterface,
    NicError,
};
use outboard_offcode::ModuleHash;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;

/// Objects that are kept, at most: each has 1 MiB at most.
const CODES_MAX: usize = 64;
/// Offcodes on an interface, at most: the kernel takes one program, and each is tried in turn.
const OFFCODES_MAX: usize = 16;
/// Records that are passed on in a turn.
const RECORDS_MAX: usize = 256;
/// The attribute with a body's configuration.
const CONFIG: &str = "oc_config";

/// See this file's first lines. The programs are out of the kernel when this is dropped.
#[derive(Debug)]
pub struct NicLink {
    name: String,
    link: LocalLink,
}

impl NicLink {
    /// Starts the thread for an interface.
    ///
    /// # Errors
    /// In words: there is no such interface, or this machine has no threads left.
    pub fn start(name: &str, interface: &str) -> Result<Self, String> {
        let interface = NetInterface::named(interface).map_err(|error| error.to_string())?;
        let watch = InterfaceWatch::new(interface.index).map_err(|error| error.to_string())?;
        let failed = |error: io::Error| error.to_string();
        let (near, far) = UnixStream::pair().map_err(failed)?;
        let (bell, _) = UnixStream::pair().map_err(failed)?;
        let mut frames = FrameStream::new(far).map_err(failed)?;
        let mut device = NicSide::new(interface, watch);
        let thread = thread::Builder::new().name(format!("offload-{name}"));
        let started = thread.spawn(move || {
            if let Err(error) = device.serve(&mut frames) {
                tracing::warn!("device nic: {error}");
            }
        });
        started.map_err(failed)?;
        let link = LocalLink::new(near, OwnedFd::from(bell)).map_err(failed)?;
        Ok(Self { name: name.to_owned(), link })
    }
}

impl DeviceLink for NicLink {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&mut self, request: &Numbered, fds: &[BorrowedFd<'_>]) -> Result<(), DeviceLost> {
        self.link.send(request, fds).map_err(|error| DeviceLost(error.to_string()))
    }

    fn poll(&mut self) -> Result<Option<DeviceEvent>, DeviceLost> {
        self.link.poll()
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.fd()
    }

    fn wants_write(&self) -> bool {
        self.link.wants_write()
    }

    fn flush(&mut self) -> Result<(), DeviceLost> {
        self.link.frames().flush().map_err(|error| DeviceLost(error.to_string()))
    }

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Where a body is.
#[derive(Debug)]
enum Stage {
    Loaded(LoadedBody),
    Attached(AttachedBody),
    /// It is being attached, or could not be.
    Gone,
}

/// Where its records go.
#[derive(Clone, Copy, Debug)]
struct Outlet {
    channel: ChannelId,
    other: EndId,
    depth: u32,
    on_way: u32,
}

#[derive(Debug)]
struct NicOffcode {
    name: String,
    stage: Stage,
    phase: OffcodePhase,
    outlets: Vec<Outlet>,
    attributes: BTreeMap<String, String>,
    counters: OffcodeCounters,
}

/// The thread's side.
#[derive(Debug)]
struct NicSide {
    interface: NetInterface,
    watch: InterfaceWatch,
    codes: HashMap<[u8; 32], Vec<u8>>,
    offcodes: BTreeMap<OffcodeId, NicOffcode>,
    events: Vec<DeviceEvent>,
}

impl NicSide {
    fn new(interface: NetInterface, watch: InterfaceWatch) -> Self {
        let (codes, offcodes, events) = (HashMap::new(), BTreeMap::new(), Vec::new());
        Self { interface, watch, codes, offcodes, events }
    }

    /// Serves until the runtime is gone, or the interface is.
    fn serve(&mut self, frames: &mut FrameStream) -> Result<(), FrameFault> {
        loop {
            frames.flush()?;
            loop {
                match frames.receive() {
                    Ok(Some((bytes, _))) => self.handle(&bytes)?,
                    Ok(None) => break,
                    Err(FrameFault::Closed) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            self.pass_records();
            let is_gone = self.is_removed();
            for event in std::mem::take(&mut self.events) {
                frames.send(&PROTOCOL.encode(&event), &[])?;
            }
            if is_gone {
                // The runtime hears of a lost device when the socket closes.
                return Ok(());
            }
            self.sleep(frames)?;
        }
    }

    fn is_removed(&mut self) -> bool {
        while let Ok(Some(event)) = self.watch.poll() {
            if event == InterfaceEvent::Removed {
                let why = format!("interface {} was removed", self.interface.name);
                let all: Vec<OffcodeId> = self.offcodes.keys().copied().collect();
                self.offcodes.clear();
                let ended = |id| DeviceEvent::Ended(id, why.clone());
                self.events.extend(all.into_iter().map(ended));
                return true;
            }
        }
        false
    }

    fn sleep(&self, frames: &FrameStream) -> Result<(), FrameFault> {
        let wanted = match frames.wants_write() {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        };
        let mut fds = vec![
            PollFd::new(frames, wanted),
            PollFd::from_borrowed_fd(self.watch.as_fd(), PollFlags::IN),
        ];
        let bodies = self.offcodes.values().filter(|offcode| offcode.has_room());
        let bodies = bodies.filter_map(NicOffcode::descriptor);
        fds.extend(bodies.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(FrameFault::Socket(error.into())),
        }
    }

    fn pass_records(&mut self) {
        for offcode in self.offcodes.values_mut().filter(|offcode| offcode.has_room()) {
            offcode.pass(&mut self.events);
        }
    }

    fn handle(&mut self, bytes: &[u8]) -> Result<(), FrameFault> {
        let invalid = |error| FrameFault::Socket(io::Error::new(io::ErrorKind::InvalidData, error));
        let numbered: Numbered =
            PROTOCOL.decode(bytes).map_err(|error| invalid(error.to_string()))?;
        let result = self.carry(numbered.request);
        if numbered.number != 0 {
            self.events.push(DeviceEvent::Reply(numbered.number, result));
        }
        Ok(())
    }

    fn carry(&mut self, request: DeviceRequest) -> Result<DeviceReply, DeviceError> {
        match request {
            DeviceRequest::Create(creation) => return self.create(*creation),
            DeviceRequest::Code(bytes) => self.keep(bytes)?,
            DeviceRequest::Initialize(id) => self.step(id, OffcodePhase::Initialized)?,
            DeviceRequest::Start(id) => self.attach(id)?,
            DeviceRequest::Stop(id) => self.detach(id)?,
            DeviceRequest::Remove(id) => {
                self.offcode(id)?;
                self.offcodes.remove(&id);
            }
            DeviceRequest::Take { .. } | DeviceRequest::Resume(_) => {
                return Err(DeviceError::Body("what is in the kernel cannot be moved".to_owned()));
            }
            DeviceRequest::Connect(end) => self.connect(end)?,
            DeviceRequest::Disconnect(channel, end, other) => {
                if let Some(offcode) = self.offcodes.get_mut(&end.offcode) {
                    offcode.outlets.retain(|own| (own.channel, own.other) != (channel, other));
                }
            }
            // Nothing is on the way into the kernel, and what its records find is connected anew.
            DeviceRequest::Park(channel, end, other) => self.outlet(channel, end, other, |own| {
                own.on_way = own.depth;
            }),
            DeviceRequest::Credit(channel, end, other, count) => {
                self.outlet(channel, end, other, |own| {
                    own.on_way = own.on_way.saturating_sub(count)
                });
            }
            DeviceRequest::Call(call) => self.call(call),
            DeviceRequest::SetAttribute(..) => {
                let why = "its attributes are read when it is loaded".to_owned();
                return Err(DeviceError::Body(why));
            }
            DeviceRequest::Attributes(id) => {
                return Ok(DeviceReply::Attributes(self.offcode(id)?.attributes.clone()));
            }
            DeviceRequest::Status => return Ok(self.status()),
            DeviceRequest::Bind(..)
            | DeviceRequest::Answer(..)
            | DeviceRequest::Data(..)
            | DeviceRequest::Tell(..) => {}
        }
        Ok(DeviceReply::Done)
    }

    fn keep(&mut self, bytes: Vec<u8>) -> Result<(), DeviceError> {
        if self.codes.len() >= CODES_MAX {
            return Err(DeviceError::Full(format!("it has {CODES_MAX} objects")));
        }
        BpfBody::parse(&bytes).map_err(|error| DeviceError::Body(error.to_string()))?;
        self.codes.insert(ModuleHash::of(&bytes).0, bytes);
        Ok(())
    }

    fn create(&mut self, creation: Creation) -> Result<DeviceReply, DeviceError> {
        let BodyCode::Bpf(hash, program) = &creation.code else {
            let why = "an interface runs objects for the kernel alone".to_owned();
            return Err(DeviceError::Body(why));
        };
        let Some(bytes) = self.codes.get(hash) else {
            return Ok(DeviceReply::Unknown(vec![*hash]));
        };
        if self.offcodes.len() >= OFFCODES_MAX {
            return Err(DeviceError::Full(format!("it has {OFFCODES_MAX} offcodes")));
        }
        let body = BpfBody::parse(bytes).map_err(|error| refused(&error))?;
        if !program.is_empty() && body.program() != program {
            let found = body.program();
            let why = format!("its program is {found}, and its description says {program}");
            return Err(DeviceError::Body(why));
        }
        let configuration = configuration(creation.attributes.get(CONFIG))?;
        let start = BodyStart { configuration: &configuration, state: &[] };
        let loaded = LoadedBody::load(&body, start).map_err(|error| refused(&error))?;
        let offcode = NicOffcode {
            name: creation.name,
            stage: Stage::Loaded(loaded),
            phase: OffcodePhase::Created,
            outlets: Vec::new(),
            attributes: creation.attributes,
            counters: OffcodeCounters::default(),
        };
        self.offcodes.insert(creation.offcode, offcode);
        Ok(DeviceReply::Done)
    }

    fn offcode(&mut self, id: OffcodeId) -> Result<&mut NicOffcode, DeviceError> {
        self.offcodes.get_mut(&id).ok_or(DeviceError::NoOffcode(id.0))
    }

    fn step(&mut self, id: OffcodeId, to: OffcodePhase) -> Result<(), DeviceError> {
        self.offcode(id)?.phase = to;
        Ok(())
    }

    fn attach(&mut self, id: OffcodeId) -> Result<(), DeviceError> {
        let interface = self.interface.clone();
        let offcode = self.offcode(id)?;
        let Stage::Loaded(loaded) = std::mem::replace(&mut offcode.stage, Stage::Gone) else {
            return Err(DeviceError::Body("it is attached already, or could not be".to_owned()));
        };
        offcode.stage =
            Stage::Attached(loaded.attach(&interface).map_err(|error| refused(&error))?);
        offcode.phase = OffcodePhase::Started;
        Ok(())
    }

    fn detach(&mut self, id: OffcodeId) -> Result<(), DeviceError> {
        let offcode = self.offcode(id)?;
        offcode.phase = OffcodePhase::Stopped;
        offcode.stage = match std::mem::replace(&mut offcode.stage, Stage::Gone) {
            Stage::Attached(attached) => {
                Stage::Loaded(attached.detach().map_err(|error| refused(&error))?)
            }
            other => other,
        };
        Ok(())
    }

    fn connect(&mut self, end: ConnectedEnd) -> Result<(), DeviceError> {
        let offcode = self.offcode(end.end.offcode)?;
        if end.direction == Direction::In || end.end.port != 0 {
            let why = "a body in the kernel sends on port 0, and receives nothing".to_owned();
            return Err(DeviceError::Carrier(why));
        }
        offcode.outlets.retain(|own| (own.channel, own.other) != (end.channel, end.other));
        let (channel, other, depth) = (end.channel, end.other, end.depth);
        offcode.outlets.push(Outlet { channel, other, depth, on_way: 0 });
        Ok(())
    }

    fn outlet(
        &mut self,
        channel: ChannelId,
        end: EndId,
        other: EndId,
        change: impl Fn(&mut Outlet),
    ) {
        let Some(offcode) = self.offcodes.get_mut(&end.offcode) else { return };
        let same = |own: &&mut Outlet| (own.channel, own.other) == (channel, other);
        offcode.outlets.iter_mut().filter(same).for_each(change);
    }

    fn call(&mut self, call: CallMessage) {
        let result = match self.offcodes.get(&call.target) {
            None => Err(CallFailure::Gone("it is not on this interface".to_owned())),
            Some(_) if call.method != 0 => {
                Err(CallFailure::Misfit("a body in the kernel has one method".to_owned()))
            }
            Some(offcode) => offcode.counts(),
        };
        self.events.push(DeviceEvent::Answer(call.key, result));
    }

    fn status(&self) -> DeviceReply {
        let status = |(id, own): (&OffcodeId, &NicOffcode)| (*id, own.phase, own.counters);
        DeviceReply::Status(self.offcodes.iter().map(status).collect())
    }
}

impl NicOffcode {
    fn body(&self) -> Option<&LoadedBody> {
        match &self.stage {
            Stage::Loaded(loaded) => Some(loaded),
            Stage::Attached(attached) => Some(attached.body()),
            Stage::Gone => None,
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.body().and_then(LoadedBody::descriptor)
    }

    /// Whether every receiver takes a record; with none, records wait in the kernel.
    fn has_room(&self) -> bool {
        !self.outlets.is_empty() && self.outlets.iter().all(|own| own.on_way < own.depth)
    }

    fn pass(&mut self, events: &mut Vec<DeviceEvent>) {
        let room = self.outlets.iter().map(|own| own.depth - own.on_way).min().unwrap_or(0);
        let limit = usize::try_from(room).unwrap_or(usize::MAX).min(RECORDS_MAX);
        let outlets = &mut self.outlets;
        let each = |record: &[u8]| {
            for own in outlets.iter_mut() {
                own.on_way += 1;
                events.push(DeviceEvent::Data(own.channel, own.other, record.to_vec()));
            }
        };
        let count = match &mut self.stage {
            Stage::Loaded(loaded) => loaded.receive(limit, each),
            Stage::Attached(attached) => attached.body_mut().receive(limit, each),
            Stage::Gone => 0,
        };
        self.counters.sent += count as u64;
        self.counters.entries += count as u64;
    }

    fn counts(&self) -> Result<Vec<u8>, CallFailure> {
        let gone = || CallFailure::Gone(format!("{} is not in the kernel", self.name));
        let counters = self.body().ok_or_else(gone)?.counters();
        let counters = counters.map_err(|error| CallFailure::Refused(error.to_string()))?;
        let named: Vec<(&str, u64)> =
            counters.iter().map(|counter| (counter.name.as_str(), counter.sum)).collect();
        postcard::to_stdvec(&named).map_err(|error| CallFailure::Refused(error.to_string()))
    }
}

fn refused(error: &NicError) -> DeviceError {
    DeviceError::Body(error.to_string())
}

/// A configuration's bytes: numbers such as `u16:5000`, little-endian, one behind the other, and
/// bytes such as `hex:00ff`.
fn configuration(text: Option<&String>) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = Vec::new();
    for word in text.map_or("", String::as_str).split_whitespace() {
        let wrong = || {
            DeviceError::Body(format!(
                "{CONFIG}: {word} is no number such as u8:1, u16:5000, u32:7, u64:9 or hex:00ff"
            ))
        };
        let (kind, value) = word.split_once(':').ok_or_else(wrong)?;
        match kind {
            "u8" => bytes.push(value.parse().map_err(|_| wrong())?),
            "u16" => bytes.extend(value.parse::<u16>().map_err(|_| wrong())?.to_le_bytes()),
            "u32" => bytes.extend(value.parse::<u32>().map_err(|_| wrong())?.to_le_bytes()),
            "u64" => bytes.extend(value.parse::<u64>().map_err(|_| wrong())?.to_le_bytes()),
            "hex" => {
                let decoded = HEXLOWER_PERMISSIVE.decode(value.as_bytes());
                bytes.extend(decoded.map_err(|_| wrong())?);
            }
            _ => return Err(wrong()),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_numbers_one_behind_the_other() {
        let text = "u8:1 u16:515 hex:00fF u32:1".to_owned();
        let expected = vec![1, 3, 2, 0, 255, 1, 0, 0, 0];
        assert_eq!(configuration(Some(&text)), Ok(expected));
        assert_eq!(configuration(None), Ok(vec![]));
        for wrong in ["u8:256", "x:1", "7", "hex:0"] {
            assert!(configuration(Some(&wrong.to_owned())).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_interface_that_is_not_there_is_no_device() {
        let error = NicLink::start("nic:none", "outboard-none").expect_err("none");
        assert!(error.contains("outboard-none"), "{error}");
    }
}
