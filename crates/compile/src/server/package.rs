//! What a compiler left behind, as it goes to the client: octets one behind the other, and what
//! they are.

use crate::protocol::{LANDING, Made, Ran, Refusal, Took};
use crate::sandbox::{End, Ended};
use crate::view;
use std::path::Path;

/// Results on their way.
#[derive(Debug)]
pub(crate) struct Package {
    octets: Vec<u8>,
    at: usize,
    ran: Ran,
}

/// What of a package goes next.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Octets for the landing place; more follow.
    Part(Vec<u8>),
    /// The last octets, and what all of them are.
    Last(Vec<u8>, Ran),
}

impl Package {
    /// What came of a job; refused if it is of no use to the client.
    pub(crate) fn new(
        slot: u32,
        ended: Ended,
        made: view::Outcome,
        took: Took,
    ) -> Result<Self, Refusal> {
        if let Some(refusal) = made.refused {
            return Err(Refusal::Withheld { path: refusal.path });
        }
        if made.stale {
            return Err(Refusal::Stale { path: Vec::new() });
        }
        let status = status(ended.end)?;
        if status == 0 {
            check(&made)?;
        }
        let (stdout, stderr) = (ended.stdout.len() as u64, ended.stderr.len() as u64);
        let mut octets = ended.stdout;
        octets.extend_from_slice(&ended.stderr);
        let mut files = Vec::new();
        // What a compiler leaves that failed is of no use.
        for file in made.created.into_iter().filter(|_| status == 0) {
            let len = file.contents.len() as u64;
            octets.extend_from_slice(&file.contents);
            files.push(Made { path: file.path, mode: file.mode, len });
        }
        let hash = *blake3::hash(&octets).as_bytes();
        let ran = Ran { slot, status, stdout, stderr, files, len: 0, hash, took };
        Ok(Self { octets, at: 0, ran })
    }

    /// The next piece, for a landing place that is free. Ask for none behind the last.
    pub(crate) fn next(&mut self) -> Piece {
        let rest = &self.octets[self.at..];
        let piece = rest[..rest.len().min(LANDING)].to_vec();
        if piece.len() < rest.len() {
            self.at += piece.len();
            return Piece::Part(piece);
        }
        let len = u32::try_from(piece.len()).expect("a landing place is small");
        Piece::Last(piece, Ran { len, ..self.ran.clone() })
    }
}

/// As wait(2) encodes it, if the program ended by itself.
fn status(end: End) -> Result<i32, Refusal> {
    let limit = |what: &str| Err(Refusal::Limit { what: what.to_owned() });
    match end {
        End::Exited(code) => Ok((code & 0xff) << 8),
        End::Signalled(signal) => Ok(signal & 0x7f),
        End::OutOfTime => limit("it took too long"),
        End::OutOfMemory => limit("it used too much memory"),
        End::OutOfProcesses => limit("it had too many processes"),
        End::OutOfOutput => limit("it wrote too much"),
        End::Stopped => limit("it was stopped"),
        End::NotStarted(errno) => {
            let error = std::io::Error::from_raw_os_error(errno);
            Err(Refusal::Trouble { what: format!("the compiler cannot be started: {error}") })
        }
    }
}

/// Compilers make files. One that does more than that has to do it at home.
fn check(made: &view::Outcome) -> Result<(), Refusal> {
    let trouble = |what: &str, path: &[u8]| {
        let path = String::from_utf8_lossy(path);
        Err(Refusal::Trouble { what: format!("it {what} {path}") })
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

/// A path of this machine, for people.
pub(crate) fn shown(path: &[u8]) -> String {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(path)).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::Usage;
    use crate::view::Created;

    fn ended(end: End) -> Ended {
        let (stdout, stderr) = (b"out".to_vec(), b"error".to_vec());
        Ended { end, usage: Usage::default(), stdout, stderr }
    }

    fn made(len: usize) -> view::Outcome {
        let created = Created { path: b"/p/a.o".to_vec(), mode: 0o644, contents: vec![7; len] };
        view::Outcome { created: vec![created], ..view::Outcome::default() }
    }

    #[test]
    fn results_that_fit_go_at_once() {
        let ended = ended(End::Exited(0));
        let mut package = Package::new(3, ended, made(2), Took::default()).expect("of use");
        let Piece::Last(octets, ran) = package.next() else { panic!("it fits") };
        assert_eq!(octets, b"outerror\x07\x07");
        assert_eq!((ran.slot, ran.status, ran.stdout, ran.stderr, ran.len), (3, 0, 3, 5, 10));
        assert_eq!(ran.hash, *blake3::hash(&octets).as_bytes());
    }

    #[test]
    fn longer_ones_go_in_parts() {
        let ended = ended(End::Exited(0));
        let mut package = Package::new(0, ended, made(LANDING * 2), Took::default()).expect("good");
        let mut all = Vec::new();
        for _ in 0..2 {
            let Piece::Part(octets) = package.next() else { panic!("there is more") };
            all.extend(octets);
        }
        let Piece::Last(octets, ran) = package.next() else { panic!("the rest fits") };
        all.extend(&octets);
        assert_eq!((all.len(), ran.len), (LANDING * 2 + 8, 8));
        assert_eq!(ran.hash, *blake3::hash(&all).as_bytes());
    }

    #[test]
    fn a_compiler_that_failed_brings_words_and_no_files() {
        let ended = ended(End::Exited(1));
        let mut package = Package::new(0, ended, made(5), Took::default()).expect("of use");
        let Piece::Last(octets, ran) = package.next() else { panic!("it fits") };
        assert_eq!((&octets[..], ran.status, ran.files.len()), (&b"outerror"[..], 256, 0));
    }

    #[test]
    fn what_does_more_than_make_files_is_refused() {
        let removed = view::Outcome { deleted: vec![b"/p/x".to_vec()], ..made(1) };
        let stale = view::Outcome { stale: true, ..made(1) };
        for made in [removed, stale] {
            assert!(Package::new(0, ended(End::Exited(0)), made, Took::default()).is_err());
        }
        let replaced = view::Outcome { deleted: vec![b"/p/a.o".to_vec()], ..made(1) };
        assert!(Package::new(0, ended(End::Exited(0)), replaced, Took::default()).is_ok());
        let late = Package::new(0, ended(End::OutOfTime), made(1), Took::default());
        assert!(matches!(late, Err(Refusal::Limit { .. })));
    }
}
