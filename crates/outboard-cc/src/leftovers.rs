//! What managers and wrappers left in their directory: sockets on which no process listens, and
//! marks that have expired.
//!
//! A manager that ends removes its own socket, one that is killed does not, and settings that are
//! not used again would keep theirs for ever. The next start of any manager removes them.

use crate::place::ManagerPlace;
use crate::start::{LEAVE_ALONE, RETRY_AFTER, is_newer};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

/// Removes leftovers. The caller holds the lock under which sockets are made.
pub fn remove(place: &ManagerPlace) {
    let bound = fs::read("/proc/net/unix").unwrap_or_default();
    let is_left = |path: &Path| match path.extension().and_then(|end| end.to_str()) {
        Some("sock") => !is_bound(&bound, path) && is_deserted(path),
        Some("silent") => !is_newer(path, LEAVE_ALONE),
        Some("failed") => !is_newer(path, RETRY_AFTER),
        _ => false,
    };
    // What cannot be removed costs nothing but its place.
    place.files().filter(|path| is_left(path)).for_each(|path| drop(fs::remove_file(path)));
}

/// Whether a table like `/proc/net/unix` has a socket at `path`. A socket that is there is not
/// called: its manager would take that for a wrapper, and run on. The table lacks sockets of other
/// network namespaces.
fn is_bound(table: &[u8], path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    let mut lines = table.split(|byte| *byte == b'\n');
    lines.any(|line| line.strip_suffix(path).is_some_and(|rest| rest.ends_with(b" ")))
}

/// Whether no process listens on a socket. Does not wait for one that accepts nothing.
fn is_deserted(socket: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let caller = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let reached = caller.and_then(|caller| {
        let address = SocketAddrUnix::new(socket)?;
        rustix::net::connect(&caller, &address)
    });
    reached == Err(Errno::CONNREFUSED)
}
