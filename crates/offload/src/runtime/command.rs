//! What the application's threads ask the runtime's thread.

use super::app_end::AppEnd;
use super::error::RuntimeError;
use super::plan::{PlannedCode, RuntimePlan};
use super::snapshot::ApplicationSnapshot;
use crate::request::{CallResult, InterfaceId, OffcodeId};
use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Where an answer to the application's call goes.
pub(super) type CallWaiter = Sender<(OffcodeId, CallResult)>;
/// Where attributes go.
pub(super) type AttributeReply = Sender<Result<BTreeMap<String, String>, RuntimeError>>;
/// Where the outcome of a change goes.
pub(super) type LifeReply = Sender<Result<(), RuntimeError>>;

#[derive(Debug)]
pub(super) enum RuntimeCommand {
    Call(Box<ApiCall>),
    Tell(OffcodeId, Vec<u8>),
    Attributes(OffcodeId, AttributeReply),
    SetAttribute(OffcodeId, String, String, AttributeReply),
    ByName(String, Sender<Option<OffcodeId>>),
    ByGuid([u8; 16], Sender<Vec<OffcodeId>>),
    Snapshot(Sender<ApplicationSnapshot>),
    End(String, Sender<Result<AppEnd, RuntimeError>>),
    Life(LifeCommand),
}

/// A call of the application to several offcodes.
#[derive(Debug)]
pub(super) struct ApiCall {
    pub(super) targets: Vec<OffcodeId>,
    pub(super) interface: InterfaceId,
    pub(super) method: u32,
    pub(super) params: Vec<u8>,
    pub(super) deadline: Option<Duration>,
    pub(super) waiter: CallWaiter,
}

/// What changes the application: one after the other.
#[derive(Debug)]
pub(super) struct LifeCommand {
    pub(super) change: LifeChange,
    pub(super) reply: LifeReply,
}

#[derive(Debug)]
pub(super) enum LifeChange {
    Create(Box<RuntimePlan>),
    Bind { offcode: String, import: u16, server: String },
    Move { offcode: String, device: usize },
    Update { offcode: String, code: PlannedCode },
    Remove { offcode: String },
    Stop,
}

impl LifeCommand {
    /// The end, for nobody who waits for it.
    pub(super) fn stop() -> Self {
        let (reply, _nobody) = channel();
        Self { change: LifeChange::Stop, reply }
    }
}
