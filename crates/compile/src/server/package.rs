//! The results of a job on their way to the client: the bytes of all files, one after the other,
//! and their description.

use crate::protocol::{JobRefusal, Made, RESULT_BUFFER_BYTES, RESULTS_MAX, Ran, Took};
use crate::sandbox::{FinishedJob, JobEnd};
use crate::view;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

/// Bytes of results that the service's own thread frees; larger ones are freed by another thread.
const DROPPED_MAX: u64 = 64 << 20;

/// Bytes that are hashed at a time, while they are in the processor's cache.
const HASHED_BYTES: usize = 128 << 10;

/// Results on their way. They are hashed part by part as they are sent.
#[derive(Debug)]
pub(crate) struct Package {
    segments: VecDeque<ResultSegment>,
    /// Bytes that have not been sent yet, and of all.
    left: u64,
    len: u64,
    hasher: Box<blake3::Hasher>,
    ran: Ran,
}

/// A part of the results that lies in one file or buffer.
#[derive(Debug)]
enum ResultSegment {
    Bytes { bytes: Vec<u8>, at: usize },
    File { file: File, at: u64, len: u64 },
}

/// The next part of a package.
#[derive(Debug)]
pub(crate) enum NextPart {
    /// Bytes for the client's result buffer; more follow.
    Part(Vec<u8>),
    /// The last bytes, and the description of all.
    Last(Vec<u8>, Ran),
}

impl Package {
    /// The results of a job; a refusal if the client cannot use them.
    pub(crate) fn new(
        slot: u32,
        ended: FinishedJob,
        made: view::JobChanges,
        took: Took,
    ) -> Result<Self, JobRefusal> {
        if let Some(refusal) = made.refused {
            return Err(JobRefusal::Withheld { path: refusal.path });
        }
        if made.stale {
            return Err(JobRefusal::Stale { path: Vec::new() });
        }
        let status = status(ended.end)?;
        if status == 0 {
            check(&made)?;
        }
        let (stdout, stderr) = (ended.stdout.len() as u64, ended.stderr.len() as u64);
        let mut segments = VecDeque::from([ended.stdout, ended.stderr].map(ResultSegment::of));
        let mut files = Vec::new();
        // The files of a compiler that failed are dropped.
        for file in made.created.into_iter().filter(|_| status == 0) {
            let (len, path, mode) = (file.contents.len() as u64, file.path, file.mode);
            segments.push_back(ResultSegment::of(file.contents));
            files.push(Made { path, mode, len });
        }
        if let (0, Some(path), Some(object)) = (status, made.redirected, ended.object) {
            let (len, mode) = (object.len, object.mode);
            segments.push_back(ResultSegment::File { file: object.file, at: 0, len });
            files.push(Made { path, mode, len });
        }
        let len = segments.iter().map(ResultSegment::len).sum();
        if len > RESULTS_MAX as u64 {
            return Err(JobRefusal::Limit { what: "it wrote too much".to_owned() });
        }
        let ran = Ran { slot, status, stdout, stderr, files, len: 0, hash: [0; 32], took };
        Ok(Self { segments, left: len, len, hasher: Box::default(), ran })
    }

    /// Bytes that the client has to hold until the last part has arrived.
    pub(crate) fn in_parts(&self) -> u64 {
        if self.len > RESULT_BUFFER_BYTES as u64 { self.len } else { 0 }
    }

    /// Whether nothing of it has been sent yet.
    pub(crate) fn is_whole(&self) -> bool {
        self.left == self.len
    }

    /// The next part, for a free place in the result buffer. Must not be called after the last
    /// part.
    ///
    /// # Errors
    /// When a file that the compiler left cannot be read.
    pub(crate) fn next(&mut self) -> io::Result<NextPart> {
        let len =
            usize::try_from(self.left).unwrap_or(RESULT_BUFFER_BYTES).min(RESULT_BUFFER_BYTES);
        let mut piece = vec![0; len];
        let mut filled = 0;
        while filled < len {
            let Some(segment) = self.segments.front_mut() else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            let end = len.min(filled + HASHED_BYTES);
            match segment.take(&mut piece[filled..end])? {
                0 => drop(self.segments.pop_front()),
                taken => {
                    self.hasher.update(&piece[filled..filled + taken]);
                    filled += taken;
                }
            }
        }
        self.left -= len as u64;
        if self.left > 0 {
            return Ok(NextPart::Part(piece));
        }
        let (len, hash) = (u32::try_from(len).map_err(io::Error::other)?, self.hasher.finalize());
        Ok(NextPart::Last(piece, Ran { len, hash: *hash.as_bytes(), ..self.ran.clone() }))
    }
}

impl ResultSegment {
    fn of(bytes: Vec<u8>) -> Self {
        Self::Bytes { bytes, at: 0 }
    }

    fn len(&self) -> u64 {
        match self {
            Self::Bytes { bytes, .. } => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    /// Fills the beginning of `into`; returns the number of bytes, 0 at the end.
    fn take(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Bytes { bytes, at } => {
                let taken = into.len().min(bytes.len() - *at);
                into[..taken].copy_from_slice(&bytes[*at..*at + taken]);
                *at += taken;
                Ok(taken)
            }
            Self::File { file, at, len } => {
                let left = usize::try_from(*len - *at).unwrap_or(usize::MAX);
                let wanted = into.len().min(left);
                file.read_exact_at(&mut into[..wanted], *at)?;
                *at += wanted as u64;
                Ok(wanted)
            }
        }
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        // Freeing a gigabyte takes the kernel longer than other clients should wait.
        if self.len > DROPPED_MAX {
            let segments = std::mem::take(&mut self.segments);
            thread::spawn(move || drop(segments));
        }
    }
}

/// The status as wait(2) encodes it, if the program ended by itself.
fn status(end: JobEnd) -> Result<i32, JobRefusal> {
    let limit = |what: &str| Err(JobRefusal::Limit { what: what.to_owned() });
    match end {
        JobEnd::Exited(code) => Ok((code & 0xff) << 8),
        JobEnd::Signalled(signal) => Ok(signal & 0x7f),
        JobEnd::OutOfTime => limit("it took too long"),
        JobEnd::OutOfMemory => limit("it used too much memory"),
        JobEnd::OutOfProcesses => limit("it had too many processes"),
        JobEnd::OutOfOutput => limit("it wrote too much"),
        JobEnd::Stopped => limit("it was stopped"),
        JobEnd::NotStarted(errno) => {
            let error = std::io::Error::from_raw_os_error(errno);
            Err(JobRefusal::Trouble { what: format!("the compiler cannot be started: {error}") })
        }
    }
}

/// Accepts a job that only made files. A job with other effects has to run locally.
fn check(made: &view::JobChanges) -> Result<(), JobRefusal> {
    let trouble = |what: &str, path: &[u8]| {
        let path = String::from_utf8_lossy(path);
        Err(JobRefusal::Trouble { what: format!("it {what} {path}") })
    };
    if let Some(path) = made.directories.first() {
        return trouble("makes the directory", path);
    }
    if let Some((path, _)) = made.renamed.first() {
        return trouble("renames an old file to", path);
    }
    let remade = |path: &&Vec<u8>| made.created.iter().any(|file| file.path == **path);
    match made.deleted.iter().find(|path| !remade(path)) {
        Some(path) => trouble("removes", path),
        None => Ok(()),
    }
}

/// A path of this machine, for messages.
pub(crate) fn shown(path: &[u8]) -> String {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(path)).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::JobUsage;
    use crate::view::Created;

    fn ended(end: JobEnd) -> FinishedJob {
        let (stdout, stderr) = (b"out".to_vec(), b"error".to_vec());
        FinishedJob { end, usage: JobUsage::default(), stdout, stderr, object: None }
    }

    fn made(len: usize) -> view::JobChanges {
        let created = Created { path: b"/p/a.o".to_vec(), mode: 0o644, contents: vec![7; len] };
        view::JobChanges { created: vec![created], ..view::JobChanges::default() }
    }

    #[test]
    fn results_that_fit_are_sent_at_once() {
        let ended = ended(JobEnd::Exited(0));
        let mut package = Package::new(3, ended, made(2), Took::default()).expect("of use");
        let NextPart::Last(bytes, ran) = package.next().expect("it is there") else {
            panic!("it fits")
        };
        assert_eq!(bytes, b"outerror\x07\x07");
        assert_eq!((ran.slot, ran.status, ran.stdout, ran.stderr, ran.len), (3, 0, 3, 5, 10));
        assert_eq!(ran.hash, *blake3::hash(&bytes).as_bytes());
    }

    #[test]
    fn longer_results_are_sent_in_parts() {
        let ended = ended(JobEnd::Exited(0));
        let mut package =
            Package::new(0, ended, made(RESULT_BUFFER_BYTES * 2), Took::default()).expect("good");
        let mut all = Vec::new();
        for _ in 0..2 {
            let NextPart::Part(bytes) = package.next().expect("it is there") else {
                panic!("there is more")
            };
            all.extend(bytes);
        }
        let NextPart::Last(bytes, ran) = package.next().expect("it is there") else {
            panic!("the rest fits")
        };
        all.extend(&bytes);
        assert_eq!((all.len(), ran.len), (RESULT_BUFFER_BYTES * 2 + 8, 8));
        assert_eq!(ran.hash, *blake3::hash(&all).as_bytes());
    }

    #[test]
    fn a_failed_compiler_returns_messages_and_no_files() {
        let ended = ended(JobEnd::Exited(1));
        let mut package = Package::new(0, ended, made(5), Took::default()).expect("of use");
        let NextPart::Last(bytes, ran) = package.next().expect("it is there") else {
            panic!("it fits")
        };
        assert_eq!((&bytes[..], ran.status, ran.files.len()), (&b"outerror"[..], 256, 0));
    }

    #[test]
    fn a_job_with_other_effects_than_files_is_refused() {
        let removed = view::JobChanges { deleted: vec![b"/p/x".to_vec()], ..made(1) };
        let stale = view::JobChanges { stale: true, ..made(1) };
        for made in [removed, stale] {
            assert!(Package::new(0, ended(JobEnd::Exited(0)), made, Took::default()).is_err());
        }
        let replaced = view::JobChanges { deleted: vec![b"/p/a.o".to_vec()], ..made(1) };
        assert!(Package::new(0, ended(JobEnd::Exited(0)), replaced, Took::default()).is_ok());
        let late = Package::new(0, ended(JobEnd::OutOfTime), made(1), Took::default());
        assert!(matches!(late, Err(JobRefusal::Limit { .. })));
    }
}
