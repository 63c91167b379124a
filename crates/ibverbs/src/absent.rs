//! Services that RDMA hardware may have and Outboard does not have. A program that asks for one
//! gets an errno. Many programs do not print it, so a message is printed too, once for each
//! service.

use crate::abi::{
    IBV_QPT_RAW_PACKET, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, RDMA_PS_IPOIB,
    RDMA_PS_UDP, ibv_qp_type, rdma_port_space,
};
use crate::guard::{Outcome, fail, minus_one};
use libc::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    Datagrams,
    Unreliable,
    RawPackets,
    Multicast,
    Xrc,
    Rsockets,
}

impl Absent {
    /// The missing service that a queue pair of this type would use.
    pub(crate) fn of_type(kind: ibv_qp_type) -> Option<Self> {
        match kind {
            IBV_QPT_UD => Some(Self::Datagrams),
            IBV_QPT_UC => Some(Self::Unreliable),
            IBV_QPT_RAW_PACKET => Some(Self::RawPackets),
            IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => Some(Self::Xrc),
            _ => None,
        }
    }

    /// The missing service that an identifier of this port space would use.
    pub(crate) fn of_space(space: rdma_port_space) -> Option<Self> {
        matches!(space, RDMA_PS_UDP | RDMA_PS_IPOIB).then_some(Self::Datagrams)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Datagrams => "datagrams (UD)",
            Self::Unreliable => "unreliable connections (UC)",
            Self::RawPackets => "raw packets",
            Self::Multicast => "multicast",
            Self::Xrc => "XRC",
            Self::Rsockets => "rsockets",
        }
    }

    /// Prints that it is not supported.
    pub(crate) fn note(self) {
        static SAID: [AtomicBool; 6] = [const { AtomicBool::new(false) }; 6];
        if !SAID[self as usize].swap(true, Ordering::Relaxed) {
            let name = self.name();
            say!("the program asks for {name}; Outboard has reliable connections (RC) only");
        }
    }
}

/// Refuses, with a message if the service has a name.
pub(crate) fn refuse<T>(what: Option<Absent>) -> Outcome<T> {
    if let Some(what) = what {
        what.note();
    }
    fail(libc::EOPNOTSUPP)
}

/// rsocket(7): none.
#[unsafe(export_name = "outboard_rsocket")]
pub extern "C" fn rsocket(_domain: c_int, _kind: c_int, _protocol: c_int) -> c_int {
    minus_one("rsocket", || refuse(Some(Absent::Rsockets)))
}
