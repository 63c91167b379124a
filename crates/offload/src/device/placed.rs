//! An offcode on a device: its body, where it is in its life, and what is due for it.

use super::body::LiveBody;
use super::context::OffcodeContext;
use crate::request::{CallFailure, InboxItem, InterfaceId, OffcodePhase, event_kind};
use std::collections::VecDeque;
use std::time::Instant;

/// Items of an inbox, at most: answers to its own calls come on top.
const INBOX_MAX: usize = 8192;

/// Bytes of them, at most: an answer that does not fit is replaced by a short one.
const INBOX_BYTES: usize = 64 << 20;

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct PlacedOffcode {
    pub(super) name: String,
    pub(super) body: Box<dyn LiveBody>,
    pub(super) phase: OffcodePhase,
    pub(super) interfaces: Vec<InterfaceId>,
    inbox: VecDeque<InboxItem>,
    inbox_bytes: usize,
    /// The port that is asked for a message next.
    pub(super) next_port: usize,
    /// The earliest time at which its device looks at its timers and deadlines.
    pub(super) noted_due: Option<Instant>,
    /// It goes on from elsewhere, and its channels are not connected yet.
    pub(super) is_paused: bool,
    is_queued: bool,
}

impl PlacedOffcode {
    pub(super) fn new(name: String, body: Box<dyn LiveBody>, interfaces: Vec<InterfaceId>) -> Self {
        Self {
            name,
            body,
            phase: OffcodePhase::Created,
            interfaces,
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            next_port: 0,
            noted_due: None,
            is_paused: false,
            is_queued: false,
        }
    }

    /// True: it is to be put into the queue of those that are run.
    pub(super) fn queue(&mut self) -> bool {
        let is_new = !self.is_queued && self.works();
        self.is_queued |= is_new;
        is_new
    }

    /// Whether its entries are called.
    pub(super) fn works(&self) -> bool {
        self.phase == OffcodePhase::Started && !self.is_paused
    }

    /// It was taken out of that queue.
    pub(super) fn unqueue(&mut self) {
        self.is_queued = false;
    }

    /// Puts something into its inbox. False: it is full. What others send finds less room than what
    /// the offcode itself has asked for: nobody keeps that from it.
    pub(super) fn deliver(&mut self, item: InboxItem) -> bool {
        let bytes = item.bytes();
        let has_bytes = self.inbox_bytes + bytes <= INBOX_BYTES;
        let (fits, item) = match item {
            InboxItem::Answer(number, Ok(_)) if !has_bytes => {
                let text = "the answers that wait for the caller take more than 64 MiB".to_owned();
                (true, InboxItem::Answer(number, Err(CallFailure::Refused(text))))
            }
            // As many as it has made calls, set timers, or was turned away.
            InboxItem::Answer(..) | InboxItem::Timer(_) | InboxItem::Writable(_) => (true, item),
            InboxItem::Call(..) => (has_bytes && self.inbox.len() < INBOX_MAX, item),
            InboxItem::Event(kind, _) => {
                let max = if kind == event_kind::MESSAGE { INBOX_MAX } else { 2 * INBOX_MAX };
                (has_bytes && self.inbox.len() < max, item)
            }
        };
        if fits {
            self.inbox_bytes += item.bytes();
            let is_answer = matches!(item, InboxItem::Answer(..));
            self.context().answers_due += usize::from(is_answer);
            self.inbox.push_back(item);
        }
        fits
    }

    /// The next item of its inbox.
    pub(super) fn take_item(&mut self) -> Option<InboxItem> {
        let item = self.inbox.pop_front()?;
        self.inbox_bytes = self.inbox_bytes.saturating_sub(item.bytes());
        let context = self.body.context();
        match item {
            InboxItem::Timer(_) => context.timers_due = context.timers_due.saturating_sub(1),
            InboxItem::Answer(..) => context.answers_due = context.answers_due.saturating_sub(1),
            _ => {}
        }
        Some(item)
    }

    /// All of its inbox.
    pub(super) fn take_inbox(&mut self) -> Vec<InboxItem> {
        std::iter::from_fn(|| self.take_item()).collect()
    }

    pub(super) fn context(&mut self) -> &mut OffcodeContext {
        self.body.context()
    }

    /// The index of an interface, as its description lists them.
    pub(super) fn interface(&self, interface: &InterfaceId) -> Option<u32> {
        let at = self.interfaces.iter().position(|own| own == interface)?;
        u32::try_from(at).ok()
    }

    /// Whether anything is there for it.
    pub(super) fn has_work(&mut self) -> bool {
        !self.inbox.is_empty() || self.context().ports.iter_mut().any(super::Port::is_ready)
    }
}
