//! What the application's threads hold of a running application.
//!
//! Every method that waits gets an answer: the runtime's thread gives one for everything it is
//! asked, and when it ends, that is the answer.

use super::app_end::AppEnd;
use super::command::{ApiCall, LifeChange, LifeCommand, RuntimeCommand};
use super::error::RuntimeError;
use super::events::{EventQueue, RuntimeEvent};
use super::plan::{PlannedCode, RuntimePlan};
use super::snapshot::ApplicationSnapshot;
use crate::request::{CallFailure, CallResult, InterfaceId, OffcodeId};
use outboard_cluster::waker::Waker;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A running application, to be asked from any thread. Clones are the same application.
#[derive(Clone, Debug)]
pub struct ApplicationHandle {
    pub(super) commands: SyncSender<RuntimeCommand>,
    pub(super) waker: Waker,
    pub(super) events: Arc<EventQueue>,
}

/// A running application. It is stopped when this is dropped.
#[derive(Debug)]
pub struct Running {
    pub(super) handle: ApplicationHandle,
    pub(super) thread: Option<JoinHandle<()>>,
}

/// Calls of the application that are under way.
#[derive(Debug)]
pub struct CallsUnderWay {
    answers: Receiver<(OffcodeId, CallResult)>,
    waiting: Vec<OffcodeId>,
}

impl ApplicationHandle {
    /// The offcode of that name.
    ///
    /// # Errors
    /// [`RuntimeError::NoOffcode`], or [`RuntimeError::Stopped`].
    pub fn offcode(&self, name: &str) -> Result<OffcodeId, RuntimeError> {
        let found = self.ask(|reply| RuntimeCommand::ByName(name.to_owned(), reply))?;
        found.ok_or_else(|| RuntimeError::NoOffcode { name: name.to_owned() })
    }

    /// All offcodes that are what that GUID says, in the order in which they were started.
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`].
    pub fn offcodes_by_guid(&self, guid: [u8; 16]) -> Result<Vec<OffcodeId>, RuntimeError> {
        self.ask(|reply| RuntimeCommand::ByGuid(guid, reply))
    }

    /// Calls a method of an offcode and waits for its results, in postcard. Without a deadline it
    /// waits until the offcode has answered or is gone.
    ///
    /// # Errors
    /// [`CallFailure`]: why there are no results.
    pub fn call(
        &self,
        target: OffcodeId,
        interface: InterfaceId,
        method: u32,
        params: &[u8],
        deadline: Option<Duration>,
    ) -> CallResult {
        let mut calls = self.begin_calls(&[target], interface, method, params, deadline);
        calls.next().map_or_else(|| Err(over()), |(_, result)| result)
    }

    /// Calls a method of several offcodes; the results are in the order of `targets`.
    #[must_use]
    pub fn call_many(
        &self,
        targets: &[OffcodeId],
        interface: InterfaceId,
        method: u32,
        params: &[u8],
        deadline: Option<Duration>,
    ) -> Vec<CallResult> {
        let calls = self.begin_calls(targets, interface, method, params, deadline);
        let mut answers: Vec<(OffcodeId, CallResult)> = calls.collect();
        let mut take = |target: &OffcodeId| {
            let at = answers.iter().position(|(from, _)| from == target);
            at.map_or_else(|| Err(over()), |at| answers.swap_remove(at).1)
        };
        targets.iter().map(&mut take).collect()
    }

    /// As [`Self::call_many`], and does not wait.
    #[must_use]
    pub fn begin_calls(
        &self,
        targets: &[OffcodeId],
        interface: InterfaceId,
        method: u32,
        params: &[u8],
        deadline: Option<Duration>,
    ) -> CallsUnderWay {
        let (waiter, answers) = channel();
        let (params, waiting) = (params.to_vec(), targets.to_vec());
        let targets = targets.to_vec();
        let call = ApiCall { targets, interface, method, params, deadline, waiter };
        // If nobody hears it, the waiter is dropped with it, and that is the answer.
        let _unheard = self.command(RuntimeCommand::Call(Box::new(call)));
        CallsUnderWay { answers, waiting }
    }

    /// Sends an offcode a message on the out-of-band channel, which is no more than tried.
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`].
    pub fn tell(&self, offcode: OffcodeId, bytes: &[u8]) -> Result<(), RuntimeError> {
        self.command(RuntimeCommand::Tell(offcode, bytes.to_vec()))
    }

    /// The attributes of an offcode.
    ///
    /// # Errors
    /// It is gone, its device is lost, or all is over.
    pub fn attributes(&self, offcode: OffcodeId) -> Result<BTreeMap<String, String>, RuntimeError> {
        self.ask(|reply| RuntimeCommand::Attributes(offcode, reply))?
    }

    /// Sets an attribute of an offcode. `OBSOLETE_TIME` is in milliseconds, 0 for never.
    ///
    /// # Errors
    /// As [`Self::attributes`], or the device refuses it.
    pub fn set_attribute(
        &self,
        offcode: OffcodeId,
        name: &str,
        value: &str,
    ) -> Result<(), RuntimeError> {
        let (name, value) = (name.to_owned(), value.to_owned());
        let done = self.ask(|reply| RuntimeCommand::SetAttribute(offcode, name, value, reply))?;
        done.map(drop)
    }

    /// What the application looks like now. Counters are as old as the last heartbeat.
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`].
    pub fn snapshot(&self) -> Result<ApplicationSnapshot, RuntimeError> {
        self.ask(RuntimeCommand::Snapshot)
    }

    /// The application's own end of channels, by the name that the plan gives it. It is handed out
    /// once.
    ///
    /// # Errors
    /// [`RuntimeError::NoEnd`], or [`RuntimeError::Stopped`].
    pub fn end(&self, name: &str) -> Result<AppEnd, RuntimeError> {
        self.ask(|reply| RuntimeCommand::End(name.to_owned(), reply))?
    }

    /// Adds offcodes and channels, and starts them: all, or none.
    ///
    /// # Errors
    /// The plan does not fit, or a step failed.
    pub fn create(&self, plan: RuntimePlan) -> Result<(), RuntimeError> {
        self.change(LifeChange::Create(Box::new(plan)))
    }

    /// Says who serves an import of an offcode.
    ///
    /// # Errors
    /// There is no such offcode or import.
    pub fn bind(&self, offcode: &str, import: u16, server: &str) -> Result<(), RuntimeError> {
        let (offcode, server) = (offcode.to_owned(), server.to_owned());
        self.change(LifeChange::Bind { offcode, import, server })
    }

    /// Moves an offcode to another device, by the device's index. No message is lost, doubled or
    /// reordered.
    ///
    /// # Errors
    /// [`RuntimeError::Stays`]: it goes on where it was. Else it is gone.
    pub fn move_offcode(&self, offcode: &str, device: usize) -> Result<(), RuntimeError> {
        self.change(LifeChange::Move { offcode: offcode.to_owned(), device })
    }

    /// Lets an offcode go on with other code, from the state that it saves itself.
    ///
    /// # Errors
    /// As [`Self::move_offcode`].
    pub fn update(&self, offcode: &str, code: PlannedCode) -> Result<(), RuntimeError> {
        self.change(LifeChange::Update { offcode: offcode.to_owned(), code })
    }

    /// Stops and removes an offcode and all below it.
    ///
    /// # Errors
    /// There is no such offcode.
    pub fn remove(&self, offcode: &str) -> Result<(), RuntimeError> {
        self.change(LifeChange::Remove { offcode: offcode.to_owned() })
    }

    /// Stops and removes everything, and closes the devices.
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`]: that was done before.
    pub fn stop(&self) -> Result<(), RuntimeError> {
        self.change(LifeChange::Stop)
    }

    /// The next event, if there is one within `limit`.
    #[must_use]
    pub fn next_event(&self, limit: Duration) -> Option<RuntimeEvent> {
        self.events.next_within(limit)
    }

    /// Readable when there is an event.
    #[must_use]
    pub fn events_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn change(&self, change: LifeChange) -> Result<(), RuntimeError> {
        self.ask(|reply| RuntimeCommand::Life(LifeCommand { change, reply }))?
    }

    fn command(&self, command: RuntimeCommand) -> Result<(), RuntimeError> {
        let sent = self.commands.send(command).map_err(|_| RuntimeError::Stopped);
        self.waker.wake();
        sent
    }

    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> RuntimeCommand) -> Result<T, RuntimeError> {
        let (reply, answer) = channel();
        self.command(command(reply))?;
        answer.recv().map_err(|_| RuntimeError::Stopped)
    }
}

fn over() -> CallFailure {
    CallFailure::Gone("the application has been stopped".to_owned())
}

impl CallsUnderWay {
    /// The next answer and whose it is, if it has come within `limit`.
    pub fn next_within(&mut self, limit: Duration) -> Option<(OffcodeId, CallResult)> {
        let answer = self.answers.recv_timeout(limit).ok();
        self.heard(answer)
    }

    fn heard(
        &mut self,
        answer: Option<(OffcodeId, CallResult)>,
    ) -> Option<(OffcodeId, CallResult)> {
        let from = answer.as_ref()?.0;
        self.waiting.retain({
            let mut is_first = true;
            move |target| *target != from || !std::mem::take(&mut is_first)
        });
        answer
    }
}

impl Iterator for CallsUnderWay {
    type Item = (OffcodeId, CallResult);

    /// Waits for the next answer. `None`: all have come.
    fn next(&mut self) -> Option<(OffcodeId, CallResult)> {
        match self.answers.recv() {
            Ok(answer) => self.heard(Some(answer)),
            // The runtime's thread has ended.
            Err(_) => self.waiting.pop().map(|target| (target, Err(over()))),
        }
    }
}

impl Deref for Running {
    type Target = ApplicationHandle;

    fn deref(&self) -> &ApplicationHandle {
        &self.handle
    }
}

impl Running {
    /// Another way to the same application.
    #[must_use]
    pub fn handle(&self) -> ApplicationHandle {
        self.handle.clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Stopped before, it has nothing to do any more.
        let _stopped = self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}
