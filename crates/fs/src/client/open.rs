//! Openings of files: what the service grants when a file is opened holds for the opening, and the
//! file is kept without a name until it is closed.

use super::calls::ChangedName;
use super::error::FsError;
use super::transfer::AskedRead;
use super::{FsCaller, FsClient};
use crate::protocol::{
    FsAnswer, FsCreateArgs, FsGrant, FsInode, FsLayout, FsOpenArgs, FsWho, MAY_MAP, MAY_READ,
    MAY_WRITE,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A file that is open. [`FsClient::close`] ends it.
#[derive(Clone, Copy, Debug)]
pub struct FsOpening {
    /// What this client calls it.
    number: u64,
    grant: FsGrant,
}

impl FsOpening {
    /// The caller with the rights of the opening: its user need not be the one who opened the file.
    #[must_use]
    pub fn used_by(&self, caller: &FsCaller) -> FsCaller {
        FsCaller { who: FsWho { grant: self.grant, ..caller.who }, ..*caller }
    }

    /// Whether the file may be mapped shared and writable: no other client may meanwhile.
    #[must_use]
    pub fn may_map(&self) -> bool {
        self.grant.rights & MAY_MAP != 0
    }
}

/// A file that was opened.
#[derive(Clone, Debug)]
pub struct OpenedFile {
    /// The opening.
    pub opening: FsOpening,
    /// The file as it was then.
    pub answer: FsAnswer,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}

/// The rights that flags of open(2) ask for.
#[must_use]
pub fn wanted_by(flags: i32) -> u32 {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => MAY_READ,
        libc::O_WRONLY => MAY_WRITE,
        // Linux wants both for the fourth value, too.
        _ => MAY_READ | MAY_WRITE,
    }
}

impl FsClient {
    /// Opens a file for all of `want` ([`MAY_READ`], [`MAY_WRITE`]), and reads its first bytes, at
    /// most `first`, in the same round trip.
    ///
    /// # Errors
    /// [`FsError::Failed`] with EACCES: the caller may not; EROFS: this client may not write.
    pub fn open(
        self: &Arc<Self>,
        caller: &FsCaller,
        inode: FsInode,
        want: u32,
        first: u32,
    ) -> Result<OpenedFile, FsError> {
        let args =
            |opening| FsOpenArgs { who: caller.who, inode, opening, want, len: first }.bytes();
        if !self.tells_opens {
            let result = self.ask(caller, "open", &args(0))?;
            let (answer, _) = FsAnswer::split(&result).ok_or(FsError::Answer { entry: "open" })?;
            return Ok(OpenedFile { opening: self.no_opening(), answer, bytes: Vec::new() });
        }
        self.opening(|number| {
            let asked = AskedRead { entry: "open", args: args(number), len: first.into() };
            let result = self.read_whole(caller, asked)?;
            parse(&result, first).ok_or(FsError::Answer { entry: "open" })
        })
        .map(|(opening, (answer, _, bytes))| OpenedFile { opening, answer, bytes })
    }

    /// Makes a file of that name and opens it; a file that is there is opened, unless `want` has
    /// [`EXCL`](crate::protocol::EXCL).
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`make`](Self::make); EEXIST.
    pub fn create(
        &self,
        caller: &FsCaller,
        (dir, name): (FsInode, &[u8]),
        mode: u32,
        want: u32,
    ) -> Result<(FsOpening, ChangedName), FsError> {
        let ask = |opening| {
            let args = FsCreateArgs { who: caller.who, dir, opening, mode, want };
            let args = [&args.bytes(), name].concat();
            let result = self.ask(caller, "create", &args)?;
            let both = <[FsAnswer; 2]>::split(&result);
            both.map(|([made, dir], rest)| (ChangedName { made, dir }, rest.to_vec()))
                .ok_or(FsError::Answer { entry: "create" })
        };
        if !self.tells_opens {
            let (changed, _) = ask(0)?;
            return Ok((self.no_opening(), changed));
        }
        let asked = |number| {
            let (changed, rest) = ask(number)?;
            let (grant, _) = FsGrant::split(&rest).ok_or(FsError::Answer { entry: "create" })?;
            Ok((changed.made, grant, changed))
        };
        self.opening(asked).map(|(opening, (_, _, changed))| (opening, changed))
    }

    /// The file is no longer open.
    pub fn close(&self, opening: &FsOpening) {
        if self.tells_opens {
            self.driver.closed(opening.number);
        }
    }

    /// Where no service listens, nothing is granted.
    fn no_opening(&self) -> FsOpening {
        FsOpening { number: 0, grant: FsGrant::default() }
    }

    /// Has a request open something under a new number. What comes of one that is given up here
    /// the service is told to close.
    fn opening<T>(
        &self,
        ask: impl FnOnce(u64) -> Result<(FsAnswer, FsGrant, T), FsError>,
    ) -> Result<(FsOpening, (FsAnswer, FsGrant, T)), FsError> {
        let number = self.openings.fetch_add(1, Ordering::Relaxed);
        let connection = self.driver.connection();
        match ask(number) {
            Ok(opened) => {
                let opening = FsOpening { number, grant: opened.1 };
                let maps = opening.may_map();
                self.driver.opened(number, (opened.0.inode, maps), connection);
                Ok((opening, opened))
            }
            Err(error) => {
                if !matches!(error, FsError::Failed { .. }) {
                    self.driver.closed(number);
                }
                Err(error)
            }
        }
    }
}

/// An answer of `open`: never more bytes than were asked for.
fn parse(result: &[u8], most: u32) -> Option<(FsAnswer, FsGrant, Vec<u8>)> {
    let (answer, rest) = FsAnswer::split(result)?;
    let (grant, bytes) = FsGrant::split(rest)?;
    (bytes.len() as u64 <= u64::from(most)).then(|| (answer, grant, bytes.to_vec()))
}
