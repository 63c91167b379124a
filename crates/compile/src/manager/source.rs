//! The modes in which jobs are handed to an executor, and preprocessed sources on their way from
//! wrapper to executor.

use crate::args::{Halves, Job};
use crate::protocol::SOURCE_MAX;
use outboard_cc::wire::{MODE, Reply};
use outboard_unix::rights;
use outboard_verbs::SharedRegion;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Bytes of a preprocessing command, at most: it must fit into a new socket's buffer.
const WORDS_MAX: usize = 64 << 10;

/// How a job is handed to an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceMode {
    /// Servers read the files that compilers ask for.
    Pull,
    /// The wrapper preprocesses the source into memory.
    Preprocess,
    /// The wrapper preprocesses the source into a file without a name in the output's directory.
    PreprocessOnDisk,
}

/// A preprocessed source, and the command line that compiles it.
#[derive(Clone, Debug)]
pub struct Preprocessed {
    /// The command line, the compiler's name first.
    pub argv: Vec<OsString>,
    /// The source, in memory that can no longer change.
    pub source: SharedRegion,
}

/// A job whose source its wrapper is to preprocess.
#[derive(Debug)]
pub(super) struct Preprocessing {
    job: Job,
    words: Vec<u8>,
    remote: Vec<OsString>,
    mode: SourceMode,
}

impl SourceMode {
    /// The mode that a wrapper's environment names; an unknown value means the default, `pull`.
    pub(super) fn of(env: &[(OsString, OsString)]) -> Self {
        let value = env.iter().find(|(name, _)| name == MODE).map(|(_, value)| value.as_bytes());
        match value {
            Some(b"preprocess") => Self::Preprocess,
            Some(b"preprocess-disk") => Self::PreprocessOnDisk,
            _ => Self::Pull,
        }
    }

    /// Splits the job into preprocessing and compiling if the mode asks for that and the job can be
    /// split; otherwise the job comes back as the error.
    pub(super) fn split(self, job: Job) -> Result<Preprocessing, Job> {
        if self == Self::Pull {
            return Err(job);
        }
        let Some(Halves { local, remote }) = job.halves() else { return Err(job) };
        let words: Vec<u8> =
            local.into_iter().flat_map(|word| [word.into_vec(), vec![0]]).flatten().collect();
        if words.len() > WORDS_MAX {
            return Err(job);
        }
        Ok(Preprocessing { job, words, remote, mode: self })
    }
}

impl Preprocessing {
    /// The reply that has the wrapper preprocess.
    pub(super) fn reply(&self) -> Reply {
        let object = self.job.absolute(self.job.object());
        let beside = object.parent().filter(|_| self.mode == SourceMode::PreprocessOnDisk);
        let beside = beside.map_or(&b""[..], |at: &Path| at.as_os_str().as_bytes()).to_vec();
        Reply::Preprocess { words: self.words.clone(), beside }
    }

    /// The job with its source out of `file`; the error says why `file` cannot be used.
    pub(super) fn with(self, file: &OwnedFd) -> Result<(Job, Preprocessed), String> {
        let source = SharedRegion::of_file(file).map_err(|error| error.to_string())?;
        if source.is_empty() || source.len() > SOURCE_MAX {
            return Err(format!("a source of {} bytes", source.len()));
        }
        let name = self.job.argv.first().cloned().unwrap_or_default();
        let argv = [name].into_iter().chain(self.remote).collect();
        Ok((self.job, Preprocessed { argv, source }))
    }
}

/// Receives the descriptor that comes with a wrapper's next byte; `None` if the wrapper has
/// disconnected or sent none.
pub(super) fn receive(stream: impl AsFd) -> Result<Option<OwnedFd>, Errno> {
    let mut received = rights::receive(stream, &mut [0], RecvFlags::empty())?;
    let is_whole = received.len == 1 && received.fds.len() == 1 && !received.is_cut;
    Ok(received.fds.pop().filter(|_| is_whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_the_mode() {
        let mode =
            |value: &str| SourceMode::of(&[("A".into(), "b".into()), (MODE.into(), value.into())]);
        assert_eq!(mode("preprocess"), SourceMode::Preprocess);
        assert_eq!(mode("preprocess-disk"), SourceMode::PreprocessOnDisk);
        assert_eq!(
            (mode("pull"), mode("?"), SourceMode::of(&[])),
            (SourceMode::Pull, SourceMode::Pull, SourceMode::Pull)
        );
    }
}
