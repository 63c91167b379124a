//! What views of killed processes have left: dead mounts, links that lead into them, directories.
//!
//! A view whose receiver still holds its staging directory's lock is alive and left alone.

use super::links::remove_links_into;
use super::mount::{SOURCE, unmount_view};
use super::view_prefix;
use crate::receive::{Destination, dead_staging};
use outboard_unix::mounts::mounts;
use outboard_unix::names::for_each_name;
use rustix::fs::{self, Mode, OFlags};
use std::path::Path;

/// Removes dead views at a destination. Asks the disk.
pub(crate) fn remove_dead_views(destination: &Destination) {
    let prefix = view_prefix();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut views = Vec::new();
    let Ok(listing) = fs::openat(destination.fd(), ".", flags, Mode::empty()) else { return };
    let listed = for_each_name(&listing, |name| {
        if name.to_bytes().starts_with(&prefix) {
            views.push(name.to_bytes().to_vec());
        }
    });
    if let Err(errno) = listed {
        tracing::debug!(%errno, "not all dead views were found");
    }
    for view in views {
        if let Some(_dead) = dead_staging(destination, &view[prefix.len()..]) {
            remove_links_into(destination, &view);
            unmount_view(destination, &view, None);
        }
    }
}

/// Removes dead views that are mounted below these directories, when a service starts.
pub(crate) fn remove_dead_views_of<'a>(roots: impl Iterator<Item = &'a Path> + Clone) {
    let views = mounts().unwrap_or_default().into_iter();
    for view in views.filter(|mount| mount.source == SOURCE.as_bytes()) {
        let is_below = roots.clone().any(|root| view.path().starts_with(root));
        let Some(parent) = view.path().parent().filter(|_| is_below) else { continue };
        if let Ok(destination) = Destination::open(parent) {
            remove_dead_views(&destination);
        }
    }
}
