//! The asking side of a control socket.

use super::place;
use super::question::{ControlQuestion, LINE_MAX};
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nothing of that name runs.
    #[error("no application `{0}` of this user runs here: outboard offload ps lists those that do")]
    NotRunning(String),
    /// It does not answer.
    #[error("application `{name}` does not answer: {source}")]
    Silent {
        /// Which.
        name: String,
        /// The system's answer.
        source: io::Error,
    },
    /// It refused, or could not do it.
    #[error("{0}")]
    Failed(String),
    /// Its answer is none.
    #[error("application `{0}` gave an answer that is none: it is another version of this program")]
    Malformed(String),
}

/// A connection to a running application.
#[derive(Debug)]
pub struct ControlClient {
    name: String,
    stream: BufReader<UnixStream>,
}

impl ControlClient {
    /// Connects; answers are waited for as long as `limit`.
    ///
    /// # Errors
    /// [`ControlError`]. The socket of an application that has ended is taken away.
    pub fn connect(name: &str, limit: Duration) -> Result<Self, ControlError> {
        let silent = |source| ControlError::Silent { name: name.to_owned(), source };
        let path = place::socket(name).map_err(silent)?;
        let stream = UnixStream::connect(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ControlError::NotRunning(name.to_owned()),
            io::ErrorKind::ConnectionRefused => {
                let _gone_already = fs::remove_file(&path);
                ControlError::NotRunning(name.to_owned())
            }
            _ => silent(error),
        })?;
        stream.set_read_timeout(Some(limit)).map_err(silent)?;
        stream.set_write_timeout(Some(limit)).map_err(silent)?;
        Ok(Self { name: name.to_owned(), stream: BufReader::new(stream) })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn ask(&mut self, question: &ControlQuestion) -> Result<Value, ControlError> {
        let silent = |source| ControlError::Silent { name: self.name.clone(), source };
        let malformed = || ControlError::Malformed(self.name.clone());
        let mut line = serde_json::to_vec(question).map_err(|_| malformed())?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).map_err(silent)?;
        let mut answer = Vec::new();
        let read = (&mut self.stream).take(LINE_MAX).read_until(b'\n', &mut answer);
        match read.map_err(silent)? {
            0 => Err(ControlError::NotRunning(self.name.clone())),
            _ => told(&answer).ok_or_else(malformed)?,
        }
    }
}

/// What an answer says; `None`: it is none.
fn told(answer: &[u8]) -> Option<Result<Value, ControlError>> {
    let mut answer: Value = serde_json::from_slice(answer).ok()?;
    if let Some(why) = answer.get("failed") {
        return Some(Err(ControlError::Failed(why.as_str()?.to_owned())));
    }
    answer.get_mut("done").map(|done| Ok(done.take()))
}
