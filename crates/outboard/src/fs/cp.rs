//! `outboard fs cp`: files and trees copied within a file system, at its server.

use super::at::{FoundPlace, FsServers, caller};
use super::copy::place_of;
use super::trees::code;
use clap::Args;
use outboard_fs::client::{FsCaller, FsClient};
use outboard_fs::protocol::FsAnswer;
use outboard_fs::tools::{
    CpExisting, CpKeep, CpSource, CpTarget, CpWish, FsPlace, LastLink, ResolvedPath, ToolError,
    TreeCopier, errno_words, quoted, resolve,
};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::umask;
use std::cell::Cell;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::Arc;

/// Copy files, with -r whole trees, within a file system at its server, as cp(1) does.
///
/// No bytes travel: a copy has the blocks of its file until one of both changes. Options and what
/// they mean are GNU cp's.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs cp -a shared/project shared/project.monday
  outboard fs cp -r n01:/a n01:/b n01:/copies")]
#[expect(clippy::struct_excessive_bools, reason = "as many switches as cp has")]
pub(crate) struct CpArgs {
    /// Directories, with all that is in them; symbolic links as links.
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// As -r, with all that -p keeps, extended attributes and hard links.
    #[arg(short, long)]
    archive: bool,
    /// Keep rights, owners and times.
    #[arg(short)]
    preserve: bool,
    /// Leave files alone that are there already.
    #[arg(short, long)]
    no_clobber: bool,
    /// Remove files that are there and cannot be written.
    #[arg(short, long)]
    force: bool,
    /// What is copied, and behind that where it goes: HOST:/path, or paths in a mount.
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
}

const NOT_THERE: i32 = Errno::NOENT.raw_os_error();

/// Where copies go.
struct CpPlace {
    host: String,
    client: Arc<FsClient>,
    /// What the path is, or would be.
    itself: CpTarget,
    is_directory: bool,
}

/// Says what could not be done, and remembers it.
struct CpFailures(Cell<bool>);

impl CpFailures {
    fn tell(&self, what: &str) {
        self.0.set(true);
        eprintln!("outboard: {what}");
    }
}

impl CpArgs {
    fn wish(&self) -> CpWish {
        let mask = umask(Mode::empty());
        umask(mask);
        CpWish {
            is_recursive: self.recursive || self.archive,
            keep: match (self.archive, self.preserve) {
                (true, _) => CpKeep::Everything,
                (false, true) => CpKeep::Attributes,
                (false, false) => CpKeep::Rights,
            },
            existing: match (self.no_clobber, self.force) {
                (true, _) => CpExisting::Kept,
                (false, true) => CpExisting::Removed,
                (false, false) => CpExisting::Overwritten,
            },
            umask: mask.bits(),
        }
    }

    /// What the paths stand for that are copied, and that are there.
    fn sources(&self, servers: &mut FsServers, failures: &CpFailures) -> Vec<FoundPlace> {
        let is_recursive = self.recursive || self.archive;
        let last = if is_recursive { LastLink::Stays } else { LastLink::IsFollowed };
        let mut found = Vec::new();
        for word in &self.paths[..self.paths.len() - 1] {
            match servers.find_as(word, last) {
                Ok(place) => found.push(place),
                Err(error) if error.is::<ToolError>() => {
                    failures.tell(&format!("cannot stat {error}"));
                }
                Err(error) => failures.tell(&error.to_string()),
            }
        }
        found
    }
}

pub(crate) fn cp(args: &CpArgs) -> Result<ExitCode, Box<dyn Error>> {
    let (mut servers, failures) = (FsServers::default(), CpFailures(Cell::new(false)));
    let sources = args.sources(&mut servers, &failures);
    let Some(word) = args.paths.last() else { return Ok(ExitCode::FAILURE) };
    let Some(first) = sources.first() else { return Ok(ExitCode::FAILURE) };
    let is_single = args.paths.len() == 2;
    let target = match CpPlace::find(&mut servers, word) {
        Ok(target) => target,
        Err(error) if is_single => return Err(cannot_create(first, &*error).into()),
        Err(error) => return Err(format!("target {error}").into()),
    };
    if !is_single && !target.is_directory {
        let why = if target.itself.found.is_some() { Errno::NOTDIR } else { Errno::NOENT };
        let why = errno_words(why.raw_os_error());
        return Err(format!("target {}: {why}", quoted(word.as_bytes())).into());
    }
    let mut failed = |what: &str| failures.tell(what);
    let mut copier = TreeCopier::new(&target.client, &caller(), args.wish(), &mut failed);
    for source in sources {
        match target.of(&source) {
            Ok(itself) => {
                let source = CpSource { found: source.root.found, shown: source.place.shown };
                copier.copy(&source, &itself)?;
            }
            Err(why) => failures.tell(&why),
        }
    }
    Ok(code(failures.0.get()))
}

fn cannot_create(source: &FoundPlace, error: &(dyn Error + 'static)) -> String {
    match (error.is::<ToolError>(), source.root.is_directory()) {
        (false, _) => error.to_string(),
        (true, true) => format!("cannot create directory {error}"),
        (true, false) => format!("cannot create regular file {error}"),
    }
}

/// The last name of a path as its caller has written it, unless that is `.`, `..` or `HOST:/`.
fn last_name(place: &FsPlace) -> Option<&[u8]> {
    let is_root = place.path.iter().all(|byte| *byte == b'/');
    let last = place.shown.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty());
    last.filter(|name| FsClient::can_be_name(name) && !(is_root && name.ends_with(b":")))
}

fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
    [path, slash, name].concat()
}

impl CpPlace {
    fn find(servers: &mut FsServers, word: &OsStr) -> Result<Self, Box<dyn Error>> {
        let place = place_of(word)?;
        let (client, caller) = (servers.client(&place.host)?, caller());
        let path = (&place.path[..], &place.shown[..]);
        let led = resolve(&client, &caller, path, LastLink::IsFollowed);
        let led = led.ok().filter(ResolvedPath::is_directory);
        let is_directory = led.is_some();
        let itself = match led.map_or_else(|| resolve(&client, &caller, path, LastLink::Stays), Ok)
        {
            Ok(found) => Self::existing(found, &place),
            Err(ToolError::Fs { error, .. }) if error.errno() == NOT_THERE => {
                Self::new_name(&client, &caller, &place)?
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { host: place.host, client, itself, is_directory })
    }

    fn existing(found: ResolvedPath, place: &FsPlace) -> CpTarget {
        let (dir, name) = found.parent.unwrap_or((found.found.inode, Vec::new()));
        let (place, shown) = (place.path.clone(), place.shown.clone());
        CpTarget { dir, name, found: Some(found.found), above: found.above, place, shown }
    }

    /// A name that is not there, in a directory that must be.
    fn new_name(
        client: &FsClient,
        caller: &FsCaller,
        place: &FsPlace,
    ) -> Result<CpTarget, ToolError> {
        let path = &place.path;
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let begin = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let (above, name) = path[..end].split_at(begin);
        let parent = resolve(client, caller, (above, &place.shown), LastLink::IsFollowed)?;
        let (dir, mut dirs) = (parent.found.inode, parent.above);
        dirs.push(dir);
        let (place, shown) = (path[..end].to_vec(), place.shown.clone());
        Ok(CpTarget { dir, name: name.to_vec(), found: None, above: dirs, place, shown })
    }

    /// Where something goes: here, or in here under its own name.
    fn of(&self, source: &FoundPlace) -> Result<CpTarget, String> {
        let (from, to) = (quoted(&source.place.shown), quoted(&self.itself.shown));
        if source.place.host != self.host {
            let (there, here) = (&source.place.host, &self.host);
            return Err(format!(
                "{from} is at {there}, {to} at {here}: copy it with outboard fs export and import"
            ));
        }
        let not_there = self.itself.found.is_none();
        if not_there && self.itself.shown.ends_with(b"/") && !source.root.is_directory() {
            let why = errno_words(Errno::NOTDIR.raw_os_error());
            return Err(format!("cannot create regular file {to}: {why}"));
        }
        match (self.itself.found, last_name(&source.place)) {
            (Some(dir), Some(name)) if self.is_directory => self.inside(&dir, name),
            (Some(_), None) if self.is_directory => {
                let shown = joined(&self.itself.shown, b".");
                Ok(CpTarget { shown, ..self.itself.clone() })
            }
            (Some(_), _) if self.itself.shown.ends_with(b"/") => {
                Err(format!("cannot stat {to}: {}", errno_words(Errno::NOTDIR.raw_os_error())))
            }
            _ => Ok(self.itself.clone()),
        }
    }

    fn inside(&self, dir: &FsAnswer, name: &[u8]) -> Result<CpTarget, String> {
        let shown = joined(&self.itself.shown, name);
        let found = match self.client.find(&caller(), dir.inode, name) {
            Ok(found) => Some(found),
            Err(error) if error.errno() == NOT_THERE => None,
            Err(error) => {
                let why = errno_words(error.errno());
                return Err(format!("cannot stat {}: {why}", quoted(&shown)));
            }
        };
        let mut above = self.itself.above.clone();
        above.push(dir.inode);
        let place = joined(&self.itself.place, name);
        Ok(CpTarget { dir: dir.inode, name: name.to_vec(), found, above, place, shown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_go_into_directories_under_their_last_names() {
        for (shown, path, name) in [
            ("n01:/a/b", "/a/b", Some("b")),
            ("n01:/a//", "/a//", Some("a")),
            ("n01:/", "/", None),
            ("n01://", "//", None),
            ("n01:/a/.", "/a/.", None),
            ("n01:/a/..", "/a/..", None),
            (".", "/a", None),
            // A mount's root has the name of the directory that it is mounted on.
            ("shared/files/", "/", Some("files")),
        ] {
            let (path, shown) = (path.as_bytes().to_vec(), shown.as_bytes().to_vec());
            let place = FsPlace { host: "n01".to_owned(), path, shown };
            assert_eq!(last_name(&place), name.map(str::as_bytes), "{place:?}");
        }
    }
}
