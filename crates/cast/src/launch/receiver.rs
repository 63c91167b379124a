//! The process of a receiver that a cast has started: it serves this one cast, and ends.
//!
//! It ends when its source has gone and no peer is connected any more, when standard input is
//! closed, and when no cast has begun in time: it never stays behind. It lives in one thread but
//! for disks and dialling, and waits for nothing but descriptors and time.

use super::LaunchError;
use super::address::own_address;
use super::announcement::{AnnouncedState, Announcement};
use super::invitation::{Invitation, InvitationTerms, MissingDestination};
use crate::member::DialNode;
use crate::protocol::SERVICE;
use crate::receive::SecurityXattrs;
use crate::server::{CastPolicy, CastRoot, CastService, CastServiceOptions};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::Host;
use outboard_cluster::hub::HubOptions;
use outboard_cluster::node::{Permit, SessionListener};
use outboard_cluster::service::{ServiceError, ServiceLoop};
use outboard_secure::{Credentials, Fabric, Identity, Revoked, ServiceKey, ServiceName};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the source may take to begin, once this receiver listens.
const BEGIN_LIMIT: Duration = Duration::from_secs(120);
/// How often to look whether the cast is over, when nothing else happens.
const TICK: Duration = Duration::from_millis(500);

/// Serves one cast, as standard input says. Pass `|name| std::env::var_os(name)`.
///
/// # Errors
/// [`LaunchError`]; the source has heard of those before the receiver listens.
pub fn receive(
    input: BorrowedFd<'_>,
    output: &mut dyn Write,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<(), LaunchError> {
    let node = variable("SLURMD_NODENAME").and_then(|name| name.into_string().ok());
    let started = Invitation::read(input).and_then(|invitation| start(invitation, &variable));
    let state = match &started {
        Ok((address, receiver)) => {
            let identity = receiver.credentials.identity.node().to_string();
            AnnouncedState::Listens { address: *address, identity }
        }
        Err(error) => AnnouncedState::Failed { why: error.to_string() },
    };
    output.write_all(Announcement { node, state }.line().as_bytes())?;
    output.flush()?;
    started?.1.serve(input)
}

/// A receiver that listens.
struct StartedReceiver {
    credentials: Arc<Credentials>,
    listener: SessionListener,
    looping: ServiceLoop<CastService>,
}

fn start(
    invitation: Invitation,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<(SocketAddr, StartedReceiver), LaunchError> {
    let Invitation { key, terms } = invitation;
    let destination = terms.destination();
    prepare_destination(&destination, terms.missing)?;
    let credentials = credentials(key)?;
    let address = own_address(variable, terms.seen_from).map_err(LaunchError::Address)?;
    let at = SocketAddr::new(address, 0);
    let listener = SessionListener::bind(at, Arc::clone(&credentials));
    let listener = listener.map_err(LaunchError::Address)?;
    let looping = service(&terms, &destination, &credentials)?;
    Ok((listener.address()?, StartedReceiver { credentials, listener, looping }))
}

fn service(
    terms: &InvitationTerms,
    destination: &Path,
    credentials: &Arc<Credentials>,
) -> Result<ServiceLoop<CastService>, LaunchError> {
    let roots = vec![CastRoot::new(destination.to_owned())];
    let (memory, dial) = (CastServiceOptions::MEMORY_DEFAULT, dial_with(credentials));
    // It has the rights of the user that started it, and no others.
    let security_xattrs = match rustix::process::geteuid().is_root() {
        true => SecurityXattrs::Keep,
        false => SecurityXattrs::Refuse,
    };
    let policy = CastPolicy { may_chown: true, security_xattrs, ..CastPolicy::default() };
    let service = CastService::new(CastServiceOptions { roots, memory, dial, policy })?;
    let service = service.only_from(terms.source()?);
    ServiceLoop::new(HubOptions::default(), service).map_err(failed)
}

fn failed(error: ServiceError) -> LaunchError {
    LaunchError::Service(error.to_string())
}

/// Credentials of one cast: an identity that no node knows yet, and the cast's key.
pub(super) fn credentials(key: ServiceKey) -> Result<Arc<Credentials>, LaunchError> {
    Ok(Arc::new(Credentials {
        identity: Identity::generate()?,
        keys: [key].into_iter().collect(),
        fabric: Fabric::Untrusted,
        revoked: Revoked::default(),
    }))
}

/// Dials receivers of the same cast.
pub(super) fn dial_with(credentials: &Arc<Credentials>) -> DialNode {
    let dialer = Dialer::new(Arc::clone(credentials));
    Arc::new(move |host: &Host, limit: Duration| {
        let service: ServiceName = SERVICE.parse().map_err(|error| format!("{error}"))?;
        let dialled = dialer.dial(host, &service, Instant::now() + limit);
        dialled.map_err(|error| error.to_string())
    })
}

fn prepare_destination(path: &Path, missing: MissingDestination) -> Result<(), LaunchError> {
    let failed = |source| LaunchError::Destination { path: path.into(), source };
    if missing == MissingDestination::Make {
        match DirBuilder::new().create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    // Whether it is a directory shows when the cast begins.
    path.metadata().map(drop).map_err(failed)
}

impl StartedReceiver {
    fn serve(mut self, input: BorrowedFd<'_>) -> Result<(), LaunchError> {
        let begin_until = Instant::now() + BEGIN_LIMIT;
        loop {
            let now = Instant::now();
            for stream in self.listener.turn(now)? {
                let permit = Permit::outside_a_node(stream.peer(), 0);
                let admitted = self.looping.admit(stream, permit);
                admitted.map_err(|error| LaunchError::Service(error.to_string()))?;
            }
            self.looping.turn(now).map_err(failed)?;
            let service = self.looping.service();
            if service.has_begun() && service.is_idle() {
                return Ok(());
            }
            if !service.has_begun() && now >= begin_until {
                return Err(LaunchError::NotBegun(BEGIN_LIMIT));
            }
            if self.sleep(input, now)? {
                tracing::info!("the source has closed standard input: this receiver ends");
                return Ok(());
            }
        }
    }

    /// Waits for what is next; whether standard input is closed.
    fn sleep(&self, input: BorrowedFd<'_>, now: Instant) -> Result<bool, LaunchError> {
        let due = [self.looping.deadline(), self.listener.deadline()].into_iter().flatten();
        let left = due.map(|at| at.saturating_duration_since(now)).chain([TICK]).min();
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut waits = [
            PollFd::new(&self.looping, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::from_borrowed_fd(input, PollFlags::IN),
        ];
        match poll(&mut waits, left.as_ref()) {
            Err(Errno::INTR) => return Ok(false),
            result => result?,
        };
        Ok(!waits[2].revents().is_empty() && is_closed(input))
    }
}

/// Whether nothing can come any more; what does come is not for anyone.
fn is_closed(input: BorrowedFd<'_>) -> bool {
    match rustix::io::read(input, &mut [0; 256]) {
        Ok(count) => count == 0,
        Err(errno) => !matches!(errno, Errno::INTR | Errno::AGAIN),
    }
}
