//! A body in the kernel: verified, with its maps, and not in any interface's path yet.
//!
//! Never waits. Nothing of it outlives this value: its program and maps are descriptors of this
//! process, and none is pinned.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::{Array, Map, MapData, MapError, PerCpuArray, RingBuf, XskMap};
use aya::programs::{ProgramError, SchedClassifier, TestRun, TestRunOptions, Xdp};
use aya::sys::SyscallError;
use aya::{Ebpf, EbpfError, EbpfLoader};

use crate::body::{
    self, BpfBody, CONFIG, CONFIG_BYTES, COUNTERS, OUT, ProgramKind, RECORD_BYTES_MAX, STATE, XSKS,
};
use crate::error::NicError;
use crate::interface::missing_capabilities;
use crate::verifier::VerifierRefusal;

/// What a body begins with.
#[derive(Clone, Copy, Debug, Default)]
pub struct BodyStart<'a> {
    /// Bytes of `oc_config`, at most [`CONFIG_BYTES`]; the rest is zeros.
    pub configuration: &'a [u8],
    /// Words of `oc_state` as [`LoadedBody::state`] gave them; none at all for a new body.
    pub state: &'a [u64],
}

/// A counter and its sum over all processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyCounter {
    /// Its name.
    pub name: String,
    /// Its sum; it wraps.
    pub sum: u64,
}

/// What a program said of a packet that it was tried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketVerdict {
    /// It stops with an error.
    Aborted,
    /// It ends here.
    Drop,
    /// It goes on.
    Pass,
    /// It goes out of the interface that it came from.
    Transmit,
    /// It goes elsewhere.
    Redirect,
    /// What the kernel does not know; it drops the packet.
    Other(u32),
}

/// A body that the kernel has verified.
pub struct LoadedBody {
    body: BpfBody,
    pub(crate) bpf: Ebpf,
    counters: Option<PerCpuArray<MapData, u64>>,
    state: Option<Array<MapData, u64>>,
    out: Option<RingBuf<MapData>>,
    sockets: Option<XskMap<MapData>>,
    oversized: u64,
}

impl LoadedBody {
    /// Has the kernel verify a body, makes its maps and sets what it begins with.
    ///
    /// # Errors
    /// [`NicError::Refused`] with the verifier's words; [`NicError::Capability`];
    /// [`NicError::NoSuchMap`] and [`NicError::Length`] when `start` does not fit the body;
    /// [`NicError::Unsupported`] on a kernel that lacks what the body uses.
    pub fn load(body: &BpfBody, start: BodyStart<'_>) -> Result<Self, NicError> {
        check_start(body, start)?;
        if let Some(capability) = missing_capabilities() {
            return Err(NicError::Capability { what: "loading a program", capability });
        }
        let mut bpf = body::guarded(|| EbpfLoader::new().load(body.bytes()))?
            .map_err(|error| load_failure(body, error))?;
        body::guarded(|| verify(&mut bpf, body))??;
        let mut loaded = Self {
            counters: typed(&mut bpf, COUNTERS)?,
            state: typed(&mut bpf, STATE)?,
            out: typed(&mut bpf, OUT)?,
            sockets: typed(&mut bpf, XSKS)?,
            body: body.clone(),
            bpf,
            oversized: 0,
        };
        loaded.configure(start.configuration)?;
        if !start.state.is_empty() {
            loaded.set_state(start.state)?;
        }
        Ok(loaded)
    }

    fn configure(&mut self, configuration: &[u8]) -> Result<(), NicError> {
        let Some(mut map) = typed::<Array<MapData, [u8; CONFIG_BYTES]>>(&mut self.bpf, CONFIG)?
        else {
            return Ok(());
        };
        let mut bytes = [0; CONFIG_BYTES];
        bytes[..configuration.len()].copy_from_slice(configuration);
        map.set(0, bytes, 0).map_err(|error| map_failure("setting oc_config", error))
    }

    /// What it was loaded from.
    #[must_use]
    pub fn body(&self) -> &BpfBody {
        &self.body
    }

    /// All counters, in their order.
    ///
    /// # Errors
    /// [`NicError::System`] when the kernel cannot be asked.
    pub fn counters(&self) -> Result<Vec<BodyCounter>, NicError> {
        let Some(map) = &self.counters else { return Ok(Vec::new()) };
        let names = self.body.counters().iter();
        let counter = |(number, name): (u32, &String)| {
            let values = map.get(&number, 0);
            let values = values.map_err(|error| map_failure("reading oc_counters", error))?;
            let sum = values.iter().fold(0_u64, |sum, value| sum.wrapping_add(*value));
            Ok(BodyCounter { name: name.clone(), sum })
        };
        (0..).zip(names).map(counter).collect()
    }

    /// One counter's sum; nothing if the body has none of that name.
    ///
    /// # Errors
    /// As [`LoadedBody::counters`].
    pub fn counter(&self, name: &str) -> Result<Option<u64>, NicError> {
        let counters = self.counters()?;
        Ok(counters.into_iter().find(|counter| counter.name == name).map(|counter| counter.sum))
    }

    /// The words of its state. Read while packets come, they are of slightly different times.
    ///
    /// # Errors
    /// [`NicError::System`] when the kernel cannot be asked.
    pub fn state(&self) -> Result<Vec<u64>, NicError> {
        let Some(map) = &self.state else { return Ok(Vec::new()) };
        let words = map.iter().collect::<Result<Vec<u64>, MapError>>();
        words.map_err(|error| map_failure("reading oc_state", error))
    }

    /// Sets all words of its state.
    ///
    /// # Errors
    /// [`NicError::NoSuchMap`] when it has none, [`NicError::Length`] when it has more or fewer,
    /// [`NicError::System`] when the kernel cannot be asked.
    pub fn set_state(&mut self, words: &[u64]) -> Result<(), NicError> {
        check_state(&self.body, words)?;
        let Some(map) = &mut self.state else { return Ok(()) };
        (0..).zip(words).try_for_each(|(index, word)| {
            map.set(index, word, 0).map_err(|error| map_failure("setting oc_state", error))
        })
    }

    /// Hands over the records that are there, at most `limit`; how many there were. Those that are
    /// longer than [`RECORD_BYTES_MAX`] are left out and counted in [`LoadedBody::oversized`].
    pub fn receive(&mut self, limit: usize, mut each: impl FnMut(&[u8])) -> usize {
        let Some(out) = &mut self.out else { return 0 };
        let mut received = 0;
        while received < limit {
            let Some(record) = out.next() else { break };
            received += 1;
            if record.len() > RECORD_BYTES_MAX {
                self.oversized = self.oversized.saturating_add(1);
            } else {
                each(&record);
            }
        }
        received
    }

    /// Records that were too long for anyone.
    #[must_use]
    pub fn oversized(&self) -> u64 {
        self.oversized
    }

    /// Readable whenever there are records; nothing if the body sends none.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.out.as_ref().map(AsFd::as_fd)
    }

    /// Has the body redirect packets of a queue to an AF_XDP socket that is bound to it.
    ///
    /// # Errors
    /// [`NicError::NoSuchMap`] without `oc_xsks`; [`NicError::System`] when the kernel refuses.
    pub fn set_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), NicError> {
        let missing = NicError::NoSuchMap { map: XSKS, what: "a socket" };
        let sockets = self.sockets.as_mut().ok_or(missing)?;
        let set = sockets.set(queue, socket, 0);
        set.map_err(|error| map_failure("setting oc_xsks", error))
    }

    /// Runs the program once on a packet, as if it had come from an interface. Counters, state and
    /// records change as they would.
    ///
    /// # Errors
    /// [`NicError::System`] when the kernel refuses the packet: it has at least 14 bytes.
    pub fn try_packet(&self, packet: &[u8]) -> Result<PacketVerdict, NicError> {
        let run = || TestRunOptions { data_in: Some(packet), ..TestRunOptions::new() };
        let result = match self.body.kind() {
            ProgramKind::Xdp => program_of::<&Xdp>(&self.bpf, &self.body)?.test_run(run()),
            ProgramKind::Classifier => {
                program_of::<&SchedClassifier>(&self.bpf, &self.body)?.test_run(run())
            }
        };
        let result = result.map_err(|error| program_failure("trying a packet", error))?;
        Ok(verdict(self.body.kind(), result.return_value))
    }
}

impl fmt::Debug for LoadedBody {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = out.debug_struct("LoadedBody");
        out.field("program", &self.body.program()).finish_non_exhaustive()
    }
}

fn check_start(body: &BpfBody, start: BodyStart<'_>) -> Result<(), NicError> {
    let found = start.configuration.len();
    if found > 0 && !body.takes_configuration() {
        return Err(NicError::NoSuchMap { map: CONFIG, what: "a configuration" });
    }
    if found > CONFIG_BYTES {
        let (what, unit, expected) = ("the configuration", "bytes", CONFIG_BYTES);
        return Err(NicError::Length { what, found, unit, expected });
    }
    if start.state.is_empty() { Ok(()) } else { check_state(body, start.state) }
}

fn check_state(body: &BpfBody, words: &[u64]) -> Result<(), NicError> {
    let (expected, found) = (body.state_words() as usize, words.len());
    if expected == 0 {
        return Err(NicError::NoSuchMap { map: STATE, what: "state" });
    }
    let (what, unit) = ("the state", "words");
    (found == expected).then_some(()).ok_or(NicError::Length { what, found, unit, expected })
}

/// Takes a map out of what was loaded, as what it is.
fn typed<T: TryFrom<Map, Error = MapError>>(
    bpf: &mut Ebpf,
    name: &'static str,
) -> Result<Option<T>, NicError> {
    let map = bpf.take_map(name).map(T::try_from).transpose();
    map.map_err(|error| NicError::map(name, error.to_string()))
}

/// The body's program, as what it is.
pub(crate) fn program_of<'a, P>(bpf: &'a Ebpf, body: &BpfBody) -> Result<P, NicError>
where
    P: TryFrom<&'a aya::programs::Program, Error = ProgramError>,
{
    let program = bpf.program(body.program()).ok_or(NicError::NoProgram)?;
    program.try_into().map_err(|error| program_failure("looking for the program", error))
}

/// The same, to be changed.
pub(crate) fn program_mut<'a, P>(bpf: &'a mut Ebpf, body: &BpfBody) -> Result<P, NicError>
where
    P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    let program = bpf.program_mut(body.program()).ok_or(NicError::NoProgram)?;
    program.try_into().map_err(|error| program_failure("looking for the program", error))
}

fn verify(bpf: &mut Ebpf, body: &BpfBody) -> Result<(), NicError> {
    let loaded = match body.kind() {
        ProgramKind::Xdp => program_mut::<&mut Xdp>(bpf, body)?.load(),
        ProgramKind::Classifier => program_mut::<&mut SchedClassifier>(bpf, body)?.load(),
    };
    loaded.map_err(|error| match error {
        ProgramError::LoadError { io_error, verifier_log } => {
            refusal(body, &io_error, &verifier_log.to_string())
        }
        other => program_failure("loading the program", other),
    })
}

/// A refusal by the verifier, or by what comes before it.
fn refusal(body: &BpfBody, error: &io::Error, log: &str) -> NicError {
    if log.trim().is_empty() && error.kind() == io::ErrorKind::PermissionDenied {
        return denied("loading a program");
    }
    let refusal = VerifierRefusal::read(body.program(), &error.to_string(), log);
    NicError::Refused(Box::new(refusal))
}

/// Refused although the capabilities seem to be there: in a user namespace they do not count.
pub(crate) fn denied(what: &'static str) -> NicError {
    let outside = "CAP_BPF and CAP_NET_ADMIN outside of any user namespace";
    let capability = missing_capabilities().unwrap_or_else(|| outside.to_owned());
    NicError::Capability { what, capability }
}

fn load_failure(body: &BpfBody, error: EbpfError) -> NicError {
    match error {
        EbpfError::MapError(MapError::CreateError { io_error, .. })
            if io_error.kind() == io::ErrorKind::PermissionDenied =>
        {
            denied("making a map")
        }
        EbpfError::MapError(MapError::CreateError { name, io_error }) => {
            NicError::map(&name, format!("the kernel does not make it: {io_error}"))
        }
        EbpfError::MapError(error) => map_failure("making maps", error),
        EbpfError::ProgramError(ProgramError::LoadError { io_error, verifier_log }) => {
            refusal(body, &io_error, &verifier_log.to_string())
        }
        other => NicError::malformed(chain(&other)),
    }
}

/// An error of the loader's library with those that it comes from.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

pub(crate) fn map_failure(call: &'static str, error: MapError) -> NicError {
    match error {
        MapError::SyscallError(SyscallError { io_error, .. }) | MapError::IoError(io_error) => {
            NicError::system(call, io_error)
        }
        other => NicError::system(call, io::Error::other(other)),
    }
}

pub(crate) fn program_failure(call: &'static str, error: ProgramError) -> NicError {
    match error {
        ProgramError::SyscallError(SyscallError { io_error, .. })
        | ProgramError::IOError(io_error) => NicError::system(call, io_error),
        other => NicError::system(call, io::Error::other(other)),
    }
}

/// `enum xdp_action`; `TC_ACT_…`.
fn verdict(kind: ProgramKind, value: u32) -> PacketVerdict {
    match (kind, value) {
        (ProgramKind::Xdp, 0) => PacketVerdict::Aborted,
        (ProgramKind::Xdp, 1) | (ProgramKind::Classifier, 2) => PacketVerdict::Drop,
        (ProgramKind::Xdp, 2) | (ProgramKind::Classifier, 0 | u32::MAX) => PacketVerdict::Pass,
        (ProgramKind::Xdp, 3) => PacketVerdict::Transmit,
        (ProgramKind::Xdp, 4) | (ProgramKind::Classifier, 7) => PacketVerdict::Redirect,
        (_, other) => PacketVerdict::Other(other),
    }
}
