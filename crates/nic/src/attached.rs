//! A body in an interface's path.
//!
//! Never stays there without its owner: it is held by a link of the kernel that is a descriptor of
//! this process, and a kernel that has no such links is refused.

use std::io;

use aya::programs::links::LinkOrder;
use aya::programs::tc::{SchedClassifierLinkId, TcAttachOptions};
use aya::programs::xdp::XdpLinkId;
use aya::programs::{ProgramError, SchedClassifier, TcAttachType, Xdp, XdpMode};
use aya::sys::SyscallError;
use rustix::io::Errno;

use crate::body::ProgramKind;
use crate::error::NicError;
use crate::interface::{NetInterface, is_up};
use crate::loaded::{LoadedBody, denied, program_failure, program_mut};
use crate::route::RouteSocket;
use crate::watch::InterfaceWatch;

/// How a program sees packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver.
    Native,
    /// Behind the driver, on packets as the kernel keeps them: slower, with any driver.
    Generic,
    /// In traffic control.
    TrafficControl,
}

/// Where a body that was attached is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachState {
    /// In the path of an interface that carries packets.
    Up,
    /// In the path of an interface that is switched off or has no wire.
    Down,
    /// The interface is there, but another program or none is in its path.
    Displaced,
    /// The interface is gone; so is the body's place.
    Removed,
}

#[derive(Debug)]
enum HeldLink {
    Xdp(XdpLinkId),
    Tc(SchedClassifierLinkId),
}

/// A body in an interface's path, until this value is dropped.
#[derive(Debug)]
pub struct AttachedBody {
    loaded: LoadedBody,
    link: Option<HeldLink>,
    interface: NetInterface,
    mode: AttachMode,
    program: u32,
    socket: RouteSocket,
}

impl LoadedBody {
    /// Puts the program into an interface's path: into its driver if that can, else behind it.
    ///
    /// # Errors
    /// [`NicError::NoSuchInterface`], [`NicError::Loopback`], [`NicError::Occupied`],
    /// [`NicError::Capability`], [`NicError::Unsupported`], [`NicError::Attach`].
    pub fn attach(mut self, interface: &NetInterface) -> Result<AttachedBody, NicError> {
        // What is there now, not what was there when the caller looked.
        let interface = NetInterface::indexed(interface.index)?;
        if interface.loopback {
            return Err(NicError::Loopback { name: interface.name });
        }
        let socket = RouteSocket::asking()?;
        let (link, mode, program) = match self.body().kind() {
            ProgramKind::Xdp => self.attach_xdp(&interface)?,
            ProgramKind::Classifier => self.attach_tc(&interface)?,
        };
        Ok(AttachedBody { loaded: self, link: Some(link), interface, mode, program, socket })
    }

    fn attach_xdp(
        &mut self,
        interface: &NetInterface,
    ) -> Result<(HeldLink, AttachMode, u32), NicError> {
        let occupied = |program| NicError::Occupied { name: interface.name.clone(), program };
        if let Some(program) = interface.xdp_program {
            return Err(occupied(Some(program).filter(|id| *id != 0)));
        }
        let body = self.body().clone();
        let program: &mut Xdp = program_mut(&mut self.bpf, &body)?;
        let number = number(program.info())?;
        let mut failure = None;
        for (mode, flag) in
            [(AttachMode::Native, XdpMode::Driver), (AttachMode::Generic, XdpMode::Skb)]
        {
            match program.attach_to_if_index(interface.index, flag) {
                Ok(link) if is_kernel_link(&link) => {
                    return Ok((HeldLink::Xdp(link), mode, number));
                }
                Ok(link) => {
                    let _gone_anyway = program.detach(link);
                    return Err(no_links("5.9"));
                }
                Err(error) => {
                    let error = io_of(error);
                    match Errno::from_io_error(&error) {
                        Some(Errno::BUSY | Errno::EXIST) => return Err(occupied(None)),
                        Some(Errno::PERM) => return Err(denied("attaching a program")),
                        _ => failure = Some(error),
                    }
                }
            }
        }
        let source = failure.unwrap_or_else(|| Errno::OPNOTSUPP.into());
        Err(NicError::Attach { name: interface.name.clone(), source })
    }

    fn attach_tc(
        &mut self,
        interface: &NetInterface,
    ) -> Result<(HeldLink, AttachMode, u32), NicError> {
        let body = self.body().clone();
        let program: &mut SchedClassifier = program_mut(&mut self.bpf, &body)?;
        let number = number(program.info())?;
        let options = TcAttachOptions::TcxOrder(LinkOrder::default());
        let link = program.attach_with_options(&interface.name, TcAttachType::Ingress, options);
        match link.map_err(io_of) {
            Ok(link) => Ok((HeldLink::Tc(link), AttachMode::TrafficControl, number)),
            Err(error) => Err(match Errno::from_io_error(&error) {
                Some(Errno::PERM) => denied("attaching a program"),
                Some(Errno::INVAL) => no_links("6.6"),
                _ => NicError::Attach { name: interface.name.clone(), source: error },
            }),
        }
    }
}

impl AttachedBody {
    /// The interface as it was then.
    #[must_use]
    pub fn interface(&self) -> &NetInterface {
        &self.interface
    }

    /// How the program sees packets.
    #[must_use]
    pub fn mode(&self) -> AttachMode {
        self.mode
    }

    /// The kernel's number of the program.
    #[must_use]
    pub fn program(&self) -> u32 {
        self.program
    }

    /// The body: its counters, state and records.
    #[must_use]
    pub fn body(&self) -> &LoadedBody {
        &self.loaded
    }

    /// The body, to receive records or set state.
    pub fn body_mut(&mut self) -> &mut LoadedBody {
        &mut self.loaded
    }

    /// Where it is now.
    ///
    /// # Errors
    /// [`NicError::System`] when the kernel cannot be asked.
    pub fn status(&mut self) -> Result<AttachState, NicError> {
        let Some(link) = self.socket.link(self.interface.index)? else {
            return Ok(AttachState::Removed);
        };
        let ours = self.mode == AttachMode::TrafficControl || link.xdp.1 == Some(self.program);
        Ok(match (ours, is_up(&link)) {
            (false, _) => AttachState::Displaced,
            (true, true) => AttachState::Up,
            (true, false) => AttachState::Down,
        })
    }

    /// Tells of the interface's end, and of its ups and downs, as they happen. To be called by a
    /// thread of the network namespace in which the body was attached.
    ///
    /// # Errors
    /// [`NicError::System`] when the kernel cannot be asked.
    pub fn watch(&self) -> Result<InterfaceWatch, NicError> {
        InterfaceWatch::new(self.interface.index)
    }

    /// Takes the program out of the interface's path. Counters, state and the records that are left
    /// can still be read.
    ///
    /// # Errors
    /// [`NicError::System`] when the kernel cannot be asked.
    pub fn detach(mut self) -> Result<LoadedBody, NicError> {
        let body = self.loaded.body().clone();
        let bpf = &mut self.loaded.bpf;
        let detached = match self.link.take() {
            Some(HeldLink::Xdp(link)) => program_mut::<&mut Xdp>(bpf, &body)?.detach(link),
            Some(HeldLink::Tc(link)) => {
                program_mut::<&mut SchedClassifier>(bpf, &body)?.detach(link)
            }
            None => Ok(()),
        };
        detached.map_err(|error| program_failure("taking the program off", error))?;
        Ok(self.loaded)
    }
}

/// Whether it is a link of the kernel, which ends with its descriptor. Where those are missing, the
/// library falls back to a setting of the interface, which would stay when this process dies; only
/// the number's text tells them apart.
fn is_kernel_link(link: &XdpLinkId) -> bool {
    format!("{link:?}").contains("FdLinkId")
}

fn no_links(since: &'static str) -> NicError {
    let what = "hold a program in an interface's path by a link".to_owned();
    NicError::Unsupported { what, source: Errno::OPNOTSUPP.into(), since }
}

fn number(info: Result<aya::programs::ProgramInfo, ProgramError>) -> Result<u32, NicError> {
    Ok(info.map_err(|error| program_failure("asking for the program's number", error))?.id())
}

fn io_of(error: ProgramError) -> io::Error {
    match error {
        ProgramError::SyscallError(SyscallError { io_error, .. })
        | ProgramError::IOError(io_error) => io_error,
        other => io::Error::other(other),
    }
}
