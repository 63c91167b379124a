//! What a cast writes to the standard input of a receiver that it starts: two lines.
//!
//! ```text
//! outboard-service-key-1 cast <64 hexadecimal digits>
//! {"version":1,"source":"<32 hexadecimal digits>","destination":[47,…],…}
//! ```
//!
//! The first is the secret of this cast; nothing here shows it.

use super::LaunchError;
use outboard_secure::{NodeId, ServiceKey};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// This version of the second line.
const VERSION: u32 = 1;
/// Bytes of both lines, at most: a path of 4 KiB has 16 KiB as numbers.
const LEN_MAX: usize = 32 << 10;
/// How long the source may take to write them.
const LIMIT: Duration = Duration::from_secs(60);

/// What to do when the destination is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MissingDestination {
    /// Refuse.
    #[default]
    Refuse,
    /// Make the directory, below one that is there.
    Make,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Invitation {
    /// The key of the service cast, for this cast alone.
    pub(super) key: ServiceKey,
    pub(super) terms: InvitationTerms,
}

/// The second line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InvitationTerms {
    version: u32,
    /// The source's identity, which alone may begin a cast.
    source: String,
    /// The directory below which files are published.
    destination: Vec<u8>,
    pub(super) missing: MissingDestination,
    /// The address that the source has on its way to this node, if it knows.
    pub(super) seen_from: Option<IpAddr>,
}

impl InvitationTerms {
    pub(super) fn new(source: NodeId, destination: &Path, missing: MissingDestination) -> Self {
        Self {
            version: VERSION,
            source: source.to_string(),
            destination: destination.as_os_str().as_bytes().to_vec(),
            missing,
            seen_from: None,
        }
    }

    pub(super) fn source(&self) -> Result<NodeId, LaunchError> {
        let found = "the source's identity is none";
        self.source.parse().map_err(|_| LaunchError::Input { found })
    }

    pub(super) fn destination(&self) -> PathBuf {
        OsStr::from_bytes(&self.destination).into()
    }
}

impl Invitation {
    /// Both lines.
    pub(super) fn text(key: &ServiceKey, terms: &InvitationTerms) -> Zeroizing<String> {
        let key = key.to_line();
        // Numbers, digits and two words: this cannot fail.
        let terms = serde_json::to_string(terms).unwrap_or_default();
        let mut text = Zeroizing::new(String::with_capacity(key.len() + terms.len() + 2));
        for line in [key.as_str(), terms.as_str()] {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    /// Reads both lines, and nothing behind them.
    ///
    /// # Errors
    /// [`LaunchError::Input`], [`LaunchError::Version`], [`LaunchError::System`].
    pub(super) fn read(input: BorrowedFd<'_>) -> Result<Self, LaunchError> {
        let bytes = read_lines(input)?;
        let fault = |found| LaunchError::Input { found };
        let text = str::from_utf8(&bytes).map_err(|_| fault("no text"))?;
        let (key, terms) = text.split_once('\n').ok_or_else(|| fault("no second line"))?;
        let key = ServiceKey::from_line(key).ok_or_else(|| fault("the first line is no key"))?;
        let version: TermsVersion =
            serde_json::from_str(terms).map_err(|_| fault("the second line is no invitation"))?;
        if version.version != VERSION {
            let found = version.version;
            return Err(LaunchError::Version { found, expected: VERSION });
        }
        let terms = serde_json::from_str(terms);
        Ok(Self { key, terms: terms.map_err(|_| fault("the second line lacks a field"))? })
    }
}

/// What every version of the second line has.
#[derive(Deserialize)]
struct TermsVersion {
    version: u32,
}

fn read_lines(input: BorrowedFd<'_>) -> Result<Zeroizing<Vec<u8>>, LaunchError> {
    let fault = |found| LaunchError::Input { found };
    let until = Instant::now() + LIMIT;
    // Room for everything at once: a buffer that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(LEN_MAX));
    let mut piece = Zeroizing::new([0; 1024]);
    while bytes.iter().filter(|byte| **byte == b'\n').count() < 2 {
        wait_for(input, until)?;
        match rustix::io::read(input, &mut piece[..]) {
            Ok(0) => return Err(fault("it ends early")),
            Ok(count) if bytes.len() + count > LEN_MAX => return Err(fault("it is too long")),
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(bytes)
}

fn wait_for(input: BorrowedFd<'_>, until: Instant) -> Result<(), LaunchError> {
    let left = until.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).ok();
    match poll(&mut [PollFd::new(&input, PollFlags::IN)], left.as_ref()) {
        Ok(0) => Err(LaunchError::Input { found: "nothing comes" }),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_secure::{ClusterKey, Identity};
    use std::io::Write;
    use std::os::fd::AsFd;

    fn read(text: &[u8]) -> Result<Invitation, String> {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(text).expect("it fits");
        drop(writer);
        Invitation::read(reader.as_fd()).map_err(|error| error.to_string())
    }

    fn written(destination: &[u8]) -> (InvitationTerms, Zeroizing<String>) {
        let source = Identity::generate().expect("random numbers").node();
        let path = Path::new(OsStr::from_bytes(destination));
        let terms = InvitationTerms::new(source, path, MissingDestination::Make);
        let key = ClusterKey::generate().expect("random numbers");
        let text = Invitation::text(&key.service(&"cast".parse().expect("a name")), &terms);
        (terms, text)
    }

    #[test]
    fn an_invitation_comes_back_whatever_bytes_its_path_has() {
        let (terms, text) = written(b"/tmp/\xff\nx");
        let invitation = read(text.as_bytes()).expect("it reads back");
        assert_eq!(invitation.terms, terms);
        assert_eq!(invitation.terms.destination().as_os_str().as_bytes(), b"/tmp/\xff\nx");
        let shown = format!("{invitation:?}");
        let digits = text.lines().next().and_then(|line| line.rsplit(' ').next()).expect("a key");
        assert!(!shown.contains(digits), "the secret is not shown");
    }

    #[test]
    fn what_no_source_writes_is_refused() {
        let (_, text) = written(b"/tmp");
        let cut = &text.as_bytes()[..text.len() - 3];
        for (bytes, why) in [
            (cut, "ends early"),
            (b"", "ends early"),
            (b"a\nb\n", "no key"),
            (&vec![b'x'; LEN_MAX + 1][..], "too long"),
            (b"\xff\xff\n\n", "no text"),
        ] {
            let error = read(bytes).expect_err("refused");
            assert!(error.contains(why), "{error}");
        }
        let newer = text.replace("\"version\":1", "\"version\":2");
        assert!(read(newer.as_bytes()).expect_err("refused").contains("version 2"));
    }
}
