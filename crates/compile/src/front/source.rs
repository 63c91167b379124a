//! How a job is handed over, and preprocessed sources on their way from wrapper to farm.

use crate::args::{Halves, Job};
use crate::protocol::SOURCE_MAX;
use outboard_cc::wire::{MODE, Reply};
use outboard_verbs::SharedRegion;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use std::ffi::OsString;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Octets of a preprocessing command that still goes to a wrapper in one piece.
const WORDS_MAX: usize = 64 << 10;

/// How a job is handed to a farm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Servers read the files that compilers ask for.
    Pull,
    /// The source is preprocessed here, into memory.
    Preprocess,
    /// The same, into files beside the outputs.
    PreprocessOnDisk,
}

/// A source that is preprocessed, and the words that compile it.
#[derive(Clone, Debug)]
pub struct Preprocessed {
    /// The words, the compiler's name first.
    pub argv: Vec<OsString>,
    /// The source, which no longer changes.
    pub source: SharedRegion,
}

/// A job that is to be preprocessed by its wrapper.
#[derive(Debug)]
pub(super) struct Preprocessing {
    job: Job,
    words: Vec<u8>,
    away: Vec<OsString>,
    mode: Mode,
}

impl Mode {
    /// As a wrapper's environment says. What it does not know is the default.
    pub(super) fn of(env: &[(OsString, OsString)]) -> Self {
        let value = env.iter().find(|(name, _)| name == MODE).map(|(_, value)| value.as_bytes());
        match value {
            Some(b"preprocess") => Self::Preprocess,
            Some(b"preprocess-disk") => Self::PreprocessOnDisk,
            _ => Self::Pull,
        }
    }

    /// The job in two halves, if that is wanted and it has any; otherwise the job.
    pub(super) fn take_apart(self, job: Job) -> Result<Preprocessing, Job> {
        if self == Self::Pull {
            return Err(job);
        }
        let Some(Halves { home, away }) = job.halves() else { return Err(job) };
        let words: Vec<u8> =
            home.into_iter().flat_map(|word| [word.into_vec(), vec![0]]).flatten().collect();
        if words.len() > WORDS_MAX {
            return Err(job);
        }
        Ok(Preprocessing { job, words, away, mode: self })
    }
}

impl Preprocessing {
    /// What its wrapper is told.
    pub(super) fn reply(&self) -> Reply {
        let object = self.job.absolute(self.job.object());
        let beside = object.parent().filter(|_| self.mode == Mode::PreprocessOnDisk);
        let beside = beside.map_or(&b""[..], |at: &Path| at.as_os_str().as_bytes()).to_vec();
        Reply::Preprocess { words: self.words.clone(), beside }
    }

    /// The job with its source; says what is wrong with a file that cannot be handed over.
    pub(super) fn with(self, file: &OwnedFd) -> Result<(Job, Preprocessed), String> {
        let source = SharedRegion::of_file(file).map_err(|error| error.to_string())?;
        if source.is_empty() || source.len() > SOURCE_MAX {
            return Err(format!("a source of {} octets", source.len()));
        }
        let name = self.job.argv.first().cloned().unwrap_or_default();
        let argv = [name].into_iter().chain(self.away).collect();
        Ok((self.job, Preprocessed { argv, source }))
    }
}

/// The descriptor that comes with a wrapper's next octet; `None` when it has gone.
pub(super) fn receive(stream: impl AsFd) -> Result<Option<OwnedFd>, Errno> {
    let mut octet = [0];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let received = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut octet)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            files.extend(fds);
        }
    }
    let whole = received.bytes == 1 && !received.flags.contains(ReturnFlags::CTRUNC);
    Ok(files.pop().filter(|_| whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_how() {
        let mode = |value: &str| Mode::of(&[("A".into(), "b".into()), (MODE.into(), value.into())]);
        assert_eq!(mode("preprocess"), Mode::Preprocess);
        assert_eq!(mode("preprocess-disk"), Mode::PreprocessOnDisk);
        assert_eq!((mode("pull"), mode("?"), Mode::of(&[])), (Mode::Pull, Mode::Pull, Mode::Pull));
    }
}
