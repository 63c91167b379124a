//! Sockets of AF_XDP: packets between an interface and this process, past the kernel's protocols
//! (Linux, `Documentation/networking/af_xdp.rst`).
//!
//! Never without a body that redirects: a socket receives what a program gives to it by `oc_xsks`
//! ([`crate::LoadedBody::set_socket`]). It works in copy mode, which every driver can do. Rings and
//! frames are memory of `outboard-mem`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use outboard_mem::MemError;
use outboard_mem::xdp::{EntryWords, FrameMemory, RingPlaces, SocketRing};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpRingOffset, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::error::NicError;
use crate::interface::NetInterface;

/// Bytes of a frame.
pub const FRAME_BYTES: usize = 4096;
/// Frames in each direction, and entries of each ring.
pub const FRAMES: u32 = 256;
/// What the kernel leaves free before a packet that it receives.
const HEADROOM: usize = 256;
/// Most bytes of a packet.
pub const PACKET_BYTES_MAX: usize = FRAME_BYTES - HEADROOM;

/// A socket that is bound to one queue of an interface.
#[derive(Debug)]
pub struct XdpSocket {
    socket: OwnedFd,
    frames: FrameMemory,
    fill: SocketRing,
    received: SocketRing,
    transmit: SocketRing,
    completed: SocketRing,
    /// Frames for packets to send that are not the kernel's at the moment.
    free: Vec<u64>,
    buffer: Vec<u8>,
}

impl XdpSocket {
    /// Binds a socket to a queue of an interface; most interfaces begin with queue 0.
    ///
    /// # Errors
    /// [`NicError::Capability`] without CAP_NET_RAW; [`NicError::Loopback`]; [`NicError::System`]
    /// when the queue is not there or has a socket already, or this machine has no memory left.
    pub fn open(interface: &NetInterface, queue: u32) -> Result<Self, NicError> {
        if interface.loopback {
            return Err(NicError::Loopback { name: interface.name.clone() });
        }
        let (family, flags) = (AddressFamily::XDP, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, None);
        let socket = socket.map_err(|error| match error {
            Errno::PERM => NicError::Capability {
                what: "opening a socket of AF_XDP",
                capability: "CAP_NET_RAW".to_owned(),
            },
            error => NicError::system("opening a socket of AF_XDP", error),
        })?;
        let frames = FrameMemory::new(2 * FRAMES as usize * FRAME_BYTES).map_err(memory)?;
        register(&socket, &frames)
            .map_err(|error| NicError::system("registering frames for AF_XDP", error))?;
        let mut opened = Self::mapped(socket, frames)?;
        (0..FRAMES).for_each(|frame| opened.give(place(frame)));
        let copies = SocketAddrXdpFlags::XDP_COPY | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        let address = SocketAddrXdp::new(copies, interface.index, queue);
        rustix::net::bind(&opened.socket, &address)
            .map_err(|error| NicError::system("binding a socket of AF_XDP", error))?;
        Ok(opened)
    }

    fn mapped(socket: OwnedFd, frames: FrameMemory) -> Result<Self, NicError> {
        let offsets = sockopt::xdp_mmap_offsets(&socket)
            .map_err(|error| NicError::system("asking for the rings of AF_XDP", error))?;
        let map = |offset, places: XdpRingOffset, words| {
            let mapped = SocketRing::map(socket.as_fd(), offset, places_of(places), FRAMES, words);
            mapped.map_err(memory)
        };
        Ok(Self {
            fill: map(XDP_UMEM_PGOFF_FILL_RING, offsets.fr, EntryWords::One)?,
            received: map(XDP_PGOFF_RX_RING, offsets.rx, EntryWords::Two)?,
            transmit: map(XDP_PGOFF_TX_RING, offsets.tx, EntryWords::Two)?,
            completed: map(XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, EntryWords::One)?,
            free: (FRAMES..2 * FRAMES).map(place).collect(),
            buffer: vec![0; FRAME_BYTES],
            socket,
            frames,
        })
    }

    /// Hands over the packets that are there, at most `limit`; how many there were.
    pub fn receive(&mut self, limit: usize, mut each: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        while count < limit {
            let Some([at, word]) = self.received.pop() else { break };
            count += 1;
            let length = length_of(word).min(self.buffer.len());
            let bytes = &mut self.buffer[..length];
            let at_byte = usize::try_from(at).unwrap_or(usize::MAX);
            if self.frames.load(at_byte, bytes).is_ok() {
                each(bytes);
            }
            self.give(at & !(FRAME_BYTES as u64 - 1));
        }
        count
    }

    /// Puts a packet, from its Ethernet header on, on the wire; false when too many are under way:
    /// the descriptor is then readable or writable, or another call a little later goes through.
    ///
    /// # Errors
    /// [`NicError::Length`] when it is longer than [`PACKET_BYTES_MAX`]; [`NicError::System`] when
    /// the interface is down or gone.
    pub fn transmit(&mut self, packet: &[u8]) -> Result<bool, NicError> {
        if packet.len() > PACKET_BYTES_MAX {
            let (what, unit, expected) = ("the packet", "bytes", PACKET_BYTES_MAX);
            return Err(NicError::Length { what, found: packet.len(), unit, expected });
        }
        self.reclaim();
        let Some(frame) = self.free.pop() else {
            self.kick()?;
            return Ok(false);
        };
        let at = usize::try_from(frame).unwrap_or(usize::MAX);
        self.frames.store(at, packet).map_err(memory)?;
        if !self.transmit.push([frame, word_of(packet.len())]) {
            self.free.push(frame);
            self.kick()?;
            return Ok(false);
        }
        self.kick()?;
        Ok(true)
    }

    /// How many packets are on their way out.
    pub fn under_way(&mut self) -> usize {
        self.reclaim();
        FRAMES as usize - self.free.len()
    }

    /// Takes back the frames of packets that have gone.
    fn reclaim(&mut self) {
        while let Some([frame, _]) = self.completed.pop() {
            if self.free.len() < FRAMES as usize {
                self.free.push(frame & !(FRAME_BYTES as u64 - 1));
            }
        }
    }

    /// Has the kernel look at what is to be sent.
    fn kick(&self) -> Result<(), NicError> {
        if !self.transmit.needs_wakeup() {
            return Ok(());
        }
        match rustix::net::send(&self.socket, &[], SendFlags::DONTWAIT) {
            Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => Ok(()),
            Err(error) => Err(NicError::system("sending by AF_XDP", error)),
        }
    }

    /// Gives a frame to the kernel, for a packet to receive. There is always room: the ring has as
    /// many entries as there are such frames.
    fn give(&mut self, frame: u64) {
        let room = self.fill.push([frame, 0]);
        debug_assert!(room, "more frames than there are");
    }
}

impl AsFd for XdpSocket {
    /// Readable when there are packets.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn register(socket: &OwnedFd, frames: &FrameMemory) -> Result<(), Errno> {
    let memory = XdpUmemReg {
        addr: frames.address(),
        len: frames.bytes() as u64,
        chunk_size: u32::try_from(FRAME_BYTES).unwrap_or(u32::MAX),
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    sockopt::set_xdp_umem_reg(socket, memory)?;
    sockopt::set_xdp_umem_fill_ring_size(socket, FRAMES)?;
    sockopt::set_xdp_umem_completion_ring_size(socket, FRAMES)?;
    sockopt::set_xdp_rx_ring_size(socket, FRAMES)?;
    sockopt::set_xdp_tx_ring_size(socket, FRAMES)
}

fn places_of(offsets: XdpRingOffset) -> RingPlaces {
    let place = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    RingPlaces {
        producer: place(offsets.producer),
        consumer: place(offsets.consumer),
        flags: offsets.flags.map(place),
        entries: place(offsets.desc),
    }
}

/// Where a frame begins.
fn place(frame: u32) -> u64 {
    u64::from(frame) * FRAME_BYTES as u64
}

/// The length in the second word of an entry, whose first half it is in memory.
fn length_of(word: u64) -> usize {
    let [a, b, c, d, ..] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d]) as usize
}

/// The second word of an entry, without options.
fn word_of(length: usize) -> u64 {
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
}

fn memory(error: MemError) -> NicError {
    NicError::system("mapping memory of AF_XDP", io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_go_through_words() {
        for length in [0, 1, 1514, PACKET_BYTES_MAX] {
            assert_eq!(length_of(word_of(length)), length);
        }
        assert_eq!(place(3) % FRAME_BYTES as u64, 0);
    }

    #[test]
    fn loopback_has_no_such_socket() {
        let loopback = NetInterface::named("lo").unwrap();
        assert!(matches!(XdpSocket::open(&loopback, 0), Err(NicError::Loopback { .. })));
    }
}
