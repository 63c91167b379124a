//! What is asked over a control socket.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// Bytes of a question or an answer, at most.
pub const LINE_MAX: u64 = 8 << 20;

/// A question. The answer is `{"done": …}` or `{"failed": "why"}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "ask")]
pub enum ControlQuestion {
    /// What runs where, and what it has done.
    Status,
    /// The application is to end, or one offcode with all below it.
    Stop {
        /// The offcode.
        offcode: Option<String>,
    },
    /// Calls a method of an offcode by the interface's description.
    Call {
        /// The offcode.
        offcode: String,
        /// The method, or `interface.method`.
        method: String,
        /// The parameters.
        params: Vec<Value>,
        /// Milliseconds to wait for the answer.
        deadline_ms: u64,
    },
    /// Moves an offcode to a device, by its name.
    Move {
        /// The offcode.
        offcode: String,
        /// The device.
        device: String,
    },
    /// Lets an offcode go on with the code of a package.
    Update {
        /// The offcode.
        offcode: String,
        /// The package's directory.
        package: PathBuf,
    },
    /// An offcode's attributes.
    Attributes {
        /// The offcode.
        offcode: String,
    },
    /// Sets an attribute.
    SetAttribute {
        /// The offcode.
        offcode: String,
        /// The attribute.
        name: String,
        /// Its value.
        value: String,
    },
    /// Lines of the log after the one of this number, a few thousand at most.
    Logs {
        /// 0: from the beginning.
        after: u64,
    },
}
