//! The symbolic links that show a view's names at the destination.

use crate::receive::{Destination, ReceiveError};
use crate::tree::{TreeManifest, shown};
use outboard_unix::names::for_each_name;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

/// Lets every top-level name appear, but those that are there: they keep their old content until
/// they are replaced.
pub(super) fn show_names(
    destination: &Destination,
    manifest: &TreeManifest,
) -> Result<(), ReceiveError> {
    for &top in manifest.tops() {
        let name = manifest.entry(top).name;
        let Some(target) = destination.link_target(name) else { continue };
        match fs::symlinkat(target, destination.fd(), name) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(ReceiveError::Write { path: shown(name), errno }),
        }
    }
    Ok(())
}

/// Removes the links that are still there.
pub(super) fn hide_names(destination: &Destination, manifest: &TreeManifest) {
    for &top in manifest.tops() {
        let name = manifest.entry(top).name;
        if destination.is_link(destination.fd(), name) {
            // What cannot be removed leads nowhere, and the next cast removes it.
            let _ = fs::unlinkat(destination.fd(), name, AtFlags::empty());
        }
    }
}

/// Removes all links into a view whose manifest is not known any more.
pub(super) fn remove_links_into(destination: &Destination, view: &[u8]) {
    let into = [view, b"/"].concat();
    let mut links = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    // A description of its own: a shared one has one place for all that list.
    let listing = fs::openat(destination.fd(), ".", flags | OFlags::CLOEXEC, Mode::empty());
    let Ok(listing) = listing else { return };
    let listed = for_each_name(&listing, |name| {
        let target = fs::readlinkat(destination.fd(), name, Vec::new());
        if target.is_ok_and(|target| target.as_bytes().starts_with(&into)) {
            links.push(name.to_owned());
        }
    });
    if let Err(errno) = listed {
        tracing::debug!(%errno, "not all links into a dead view were found");
    }
    for link in links {
        let _ = fs::unlinkat(destination.fd(), &link, AtFlags::empty());
    }
}
