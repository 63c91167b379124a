//! The line by which a receiver says where it is, or why it is not.
//!
//! Standard output may carry other lines, of a shell's start-up for instance: those are none.

use outboard_secure::NodeId;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The first word.
const LABEL: &str = "outboard-receiver-1 ";

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Announcement {
    /// The node's name for Slurm, if Slurm runs it.
    pub(super) node: Option<String>,
    pub(super) state: AnnouncedState,
}

/// How a receiver is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AnnouncedState {
    /// It listens.
    Listens {
        address: SocketAddr,
        /// The identity that its handshakes show.
        identity: String,
    },
    /// It does not.
    Failed { why: String },
}

impl Announcement {
    /// The line, with its end.
    pub(super) fn line(&self) -> String {
        // Addresses and texts: this cannot fail.
        format!("{LABEL}{}\n", serde_json::to_string(self).unwrap_or_default())
    }

    /// What a line announces, if it does.
    pub(super) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line.trim_end().strip_prefix(LABEL)?).ok()
    }

    /// A receiver that can be dialled.
    pub(super) fn receiver(&self) -> Result<(SocketAddr, NodeId), String> {
        match &self.state {
            AnnouncedState::Failed { why } => Err(why.clone()),
            AnnouncedState::Listens { address, identity } => {
                let identity = identity.parse().map_err(|_| "it shows no identity".to_owned())?;
                Ok((*address, identity))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_back_and_other_lines_are_none() {
        let address = "[::1]:7".parse().expect("an address");
        let state = AnnouncedState::Listens { address, identity: "0".repeat(32) };
        let announcement = Announcement { node: Some("n1".into()), state };
        assert_eq!(Announcement::parse(&announcement.line()).as_ref(), Some(&announcement));
        assert_eq!(announcement.receiver().map(|(at, _)| at), Ok(address));
        for other in ["", "Last login: today", LABEL, "outboard-receiver-2 {}"] {
            assert_eq!(Announcement::parse(other), None, "{other}");
        }
        let state = AnnouncedState::Failed { why: "it is full".into() };
        let failed = Announcement { node: None, state };
        assert!(!failed.line().trim_end().contains('\n'));
        assert_eq!(failed.receiver(), Err("it is full".into()));
    }
}
