//! What carries a channel's messages: a queue inside the device, a ring of shared memory, or
//! messages through the runtime.
//!
//! A carrier never blocks and holds no more than the channel's depth. It knows no offcode.

use super::ring::{RingIn, RingOut};
use outboard_mem::ring::RingFault;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Messages between two offcodes of one device.
#[derive(Clone, Debug)]
pub struct InsideQueue(Arc<Mutex<Inside>>);

#[derive(Debug)]
struct Inside {
    messages: VecDeque<Vec<u8>>,
    depth: usize,
}

impl InsideQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(depth: u32) -> Self {
        Self(Arc::new(Mutex::new(Inside { messages: VecDeque::new(), depth: depth as usize })))
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// To an offcode of this device, which is to look at its port.
    Here,
    /// Into a ring, whose receiver was woken if it slept.
    ByRing,
    /// It is to be sent through the runtime.
    Session,
    /// Nowhere: there is no room.
    No,
}

/// A sending end.
#[derive(Debug)]
pub enum OutCarrier {
    /// Inside the device.
    Inside(InsideQueue),
    /// Into shared memory.
    Ring(RingOut),
    /// Through the runtime.
    Session {
        /// Messages that may be on their way.
        depth: u32,
        /// Messages that are.
        on_way: u32,
    },
    /// To nobody, until the channel is connected anew.
    Parked,
}

impl OutCarrier {
    /// Whether a message would be taken.
    pub fn has_room(&mut self) -> bool {
        match self {
            Self::Inside(queue) => {
                let inside = queue.lock();
                inside.messages.len() < inside.depth
            }
            Self::Ring(ring) => ring.has_room(),
            Self::Session { depth, on_way } => on_way < depth,
            Self::Parked => false,
        }
    }

    /// Takes a message, or does not.
    pub fn send(&mut self, bytes: &[u8]) -> Taken {
        match self {
            Self::Inside(queue) => {
                let mut inside = queue.lock();
                if inside.messages.len() >= inside.depth {
                    return Taken::No;
                }
                inside.messages.push_back(bytes.to_vec());
                Taken::Here
            }
            Self::Ring(ring) => match ring.send(bytes) {
                true => Taken::ByRing,
                false => Taken::No,
            },
            Self::Session { depth, on_way } if *on_way < *depth => {
                *on_way += 1;
                Taken::Session
            }
            Self::Session { .. } | Self::Parked => Taken::No,
        }
    }

    /// `count` messages have been taken out at the other end.
    pub fn credited(&mut self, count: u32) {
        if let Self::Session { on_way, .. } = self {
            *on_way = on_way.saturating_sub(count);
        }
    }

    /// How the other side has broken it, if it has.
    #[must_use]
    pub fn fault(&self) -> Option<&RingFault> {
        match self {
            Self::Ring(ring) => ring.fault(),
            Self::Inside(_) | Self::Session { .. } | Self::Parked => None,
        }
    }

    /// As [`InCarrier::prepare_sleep`], for room.
    pub fn prepare_sleep(&mut self) -> bool {
        match self {
            Self::Ring(ring) => ring.prepare_sleep(),
            Self::Inside(_) | Self::Session { .. } | Self::Parked => true,
        }
    }
}

/// A receiving end.
#[derive(Debug)]
pub enum InCarrier {
    /// Inside the device.
    Inside(InsideQueue),
    /// Out of shared memory.
    Ring(RingIn),
    /// What the runtime has brought.
    Session {
        /// The messages.
        messages: VecDeque<Vec<u8>>,
        /// How many there may be.
        depth: u32,
    },
}

impl InCarrier {
    /// Messages that the runtime brings.
    #[must_use]
    pub fn session(depth: u32) -> Self {
        Self::Session { messages: VecDeque::new(), depth }
    }

    /// The next message.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Inside(queue) => queue.lock().messages.pop_front(),
            Self::Ring(ring) => ring.receive(),
            Self::Session { messages, .. } => messages.pop_front(),
        }
    }

    /// Whether there is a message.
    pub fn is_ready(&mut self) -> bool {
        match self {
            Self::Inside(queue) => !queue.lock().messages.is_empty(),
            Self::Ring(ring) => ring.is_ready(),
            Self::Session { messages, .. } => !messages.is_empty(),
        }
    }

    /// Keeps a message that the runtime has brought. False: the sender may not send so many.
    pub fn arrived(&mut self, bytes: Vec<u8>) -> bool {
        match self {
            Self::Session { messages, depth } if messages.len() < *depth as usize => {
                messages.push_back(bytes);
                true
            }
            _ => false,
        }
    }

    /// How the other side has broken it, if it has.
    #[must_use]
    pub fn fault(&self) -> Option<&RingFault> {
        match self {
            Self::Ring(ring) => ring.fault(),
            Self::Inside(_) | Self::Session { .. } => None,
        }
    }

    /// The other side of a ring will wake this device from now on. False: a message has arrived.
    pub fn prepare_sleep(&mut self) -> bool {
        match self {
            Self::Ring(ring) => ring.prepare_sleep(),
            Self::Inside(_) | Self::Session { .. } => true,
        }
    }
}
