//! Moving bytes where a tap watches: through buffers, with ordinary reads and writes.

use crate::engine::sockio::{Received, Sent};
use crate::engine::staging::Staging;
use crate::tap::StreamTap;
use outboard_iwarp::{Connection, Env};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// As [`crate::engine::sockio::transmit`].
pub(crate) fn transmit(
    mut socket: &TcpStream,
    conn: &mut Connection,
    budget: usize,
    tap: &StreamTap,
    env: &mut Env<'_>,
) -> io::Result<Sent> {
    let mut bytes = Vec::new();
    let offered = conn.poll_transmit_copy(Instant::now(), budget, env, &mut bytes);
    if offered == 0 {
        return Ok(Sent::Everything);
    }
    match socket.write(&bytes) {
        Ok(count) => {
            tap.sent(&bytes[..count]);
            conn.handle_transmitted(count, env.completions);
            Ok(if count < offered { Sent::Blocked(count) } else { Sent::Some(count) })
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Sent::Blocked(0)),
        Err(error) => Err(error),
    }
}

/// As [`crate::engine::sockio::receive`], with everything into staging.
pub(crate) fn receive(
    mut socket: &TcpStream,
    staging: &mut Staging,
    want: usize,
    tap: &StreamTap,
) -> io::Result<Received> {
    let room = staging.room(want);
    let total = socket.read(room)?;
    tap.received(&room[..total]);
    let short = total < room.len();
    staging.added(total);
    Ok(Received { total, short })
}
