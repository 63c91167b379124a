//! rtnetlink, as far as interfaces need it: asking for links and addresses, and hearing of changes
//! (man 7 rtnetlink; the layouts are those of Linux's `rtnetlink.h`, `if_link.h`).
//!
//! Never changes anything. A message that contradicts itself is skipped; nothing in one makes this
//! panic, loop or grow.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::error::NicError;

const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
/// Group of changes of links.
const RTMGRP_LINK: u32 = 1;

const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_XDP: u16 = 43;
const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;

/// Most bytes of a datagram: the kernel makes none longer for a reader of such a size.
const DATAGRAM: usize = 64 << 10;
/// Most datagrams of an answer, against a kernel that never says that it is done.
const DATAGRAMS_MAX: usize = 65_536;

/// A link as a message describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteLink {
    /// 0, or a family (such as a bridge's) that describes only its own side of the link.
    pub(crate) family: u8,
    pub(crate) index: u32,
    /// `IFF_…`
    pub(crate) flags: u32,
    pub(crate) name: String,
    pub(crate) mtu: u32,
    /// What kind of virtual link, such as "veth".
    pub(crate) kind: Option<String>,
    /// The bus of the device behind it.
    pub(crate) bus: Option<String>,
    /// How an XDP program is attached (0: none), and its number.
    pub(crate) xdp: (u8, Option<u32>),
}

/// A message: its type and what follows the header.
struct Message<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
}

/// A socket to the kernel, in the network namespace of the thread that made it.
#[derive(Debug)]
pub(crate) struct RouteSocket {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl RouteSocket {
    /// A socket for requests.
    pub(crate) fn asking() -> Result<Self, NicError> {
        Self::open(0, SocketFlags::CLOEXEC)
    }

    /// A socket that hears of changes of links, and never blocks.
    pub(crate) fn listening() -> Result<Self, NicError> {
        Self::open(RTMGRP_LINK, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    fn open(groups: u32, flags: SocketFlags) -> Result<Self, NicError> {
        let failed = |error: Errno| NicError::system("opening a socket of rtnetlink", error);
        // Protocol 0 is NETLINK_ROUTE.
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = rustix::net::socket_with(family, kind, flags, None);
        let socket = socket.map_err(failed)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups)).map_err(failed)?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; DATAGRAM] })
    }

    /// The link with this index, if there is one.
    pub(crate) fn link(&mut self, index: u32) -> Result<Option<RouteLink>, NicError> {
        let mut found = None;
        self.ask(RTM_GETLINK, 0, &link_header(index), |kind, body| {
            if kind == RTM_NEWLINK {
                found = parse_link(body).filter(|link| link.index == index);
            }
        })?;
        Ok(found)
    }

    /// All links, by their indices.
    pub(crate) fn links(&mut self) -> Result<Vec<RouteLink>, NicError> {
        let mut links = Vec::new();
        self.ask(RTM_GETLINK, NLM_F_DUMP, &link_header(0), |kind, body| {
            links.extend(Some(body).filter(|_| kind == RTM_NEWLINK).and_then(parse_link));
        })?;
        Ok(links)
    }

    /// How many addresses each interface has.
    pub(crate) fn addresses(&mut self) -> Result<BTreeMap<u32, usize>, NicError> {
        let mut counts = BTreeMap::new();
        self.ask(RTM_GETADDR, NLM_F_DUMP, &[0; 8], |kind, body| {
            let index = word(body, 4).filter(|_| kind == RTM_NEWADDR);
            if let Some(index) = index {
                *counts.entry(index).or_insert(0) += 1;
            }
        })?;
        Ok(counts)
    }

    /// Sends a request and hands over the messages of its answer. A link that is not there has
    /// none.
    fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        mut each: impl FnMut(u16, &[u8]),
    ) -> Result<(), NicError> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(kind, flags | NLM_F_REQUEST, self.sequence, body);
        rustix::net::send(&self.socket, &request, SendFlags::empty())
            .map_err(|error| NicError::system("asking rtnetlink", error))?;
        for _ in 0..DATAGRAMS_MAX {
            let length = rustix::io::retry_on_intr(|| receive(&self.socket, &mut self.buffer))
                .map_err(|error| NicError::system("reading an answer of rtnetlink", error))?;
            let datagram = &self.buffer[..length];
            for message in messages(datagram).filter(|found| found.sequence == self.sequence) {
                match message.kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return answered(message.body),
                    kind => each(kind, message.body),
                }
                if flags & NLM_F_DUMP == 0 {
                    return Ok(());
                }
            }
        }
        Err(NicError::system("reading an answer of rtnetlink", Errno::OVERFLOW))
    }

    /// The changes of links that have come so far: type of the message, and the link. An error
    /// `NOBUFS` says that some were lost.
    pub(crate) fn changes(&mut self) -> Result<Vec<(u16, RouteLink)>, Errno> {
        let length = match receive(&self.socket, &mut self.buffer) {
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let datagram = &self.buffer[..length];
        let of_links =
            messages(datagram).filter(|message| matches!(message.kind, RTM_NEWLINK | RTM_DELLINK));
        Ok(of_links.filter_map(|message| Some((message.kind, parse_link(message.body)?))).collect())
    }
}

impl AsFd for RouteSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    rustix::net::recv(socket, buffer, RecvFlags::empty()).map(|(read, _)| read)
}

/// An error's message: a negative number of errno, or 0.
fn answered(body: &[u8]) -> Result<(), NicError> {
    let code = word(body, 0).map_or(0, u32::wrapping_neg);
    let error = io::Error::from_raw_os_error(i32::try_from(code).unwrap_or(i32::MAX));
    if code == 0 || error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) {
        return Ok(());
    }
    Err(NicError::system("asking rtnetlink", error))
}

fn link_header(index: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header
}

fn request(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(body);
    message
}

fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = word(rest, 0)? as usize;
        let body = rest.get(HEADER..length)?;
        let (kind, sequence) = (half(rest, 4)?, word(rest, 8)?);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, sequence, body })
    })
}

/// The attributes of a message, or those within one: type and value.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// Marks of nested attributes and of byte order.
    const FLAGS: u16 = 0xc000;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(half(rest, 0)?);
        let value = rest.get(4..length)?;
        let kind = half(rest, 2)? & !FLAGS;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn parse_link(body: &[u8]) -> Option<RouteLink> {
    let mut link = RouteLink {
        family: *body.first()?,
        index: word(body, 4)?,
        flags: word(body, 8)?,
        ..RouteLink::default()
    };
    for (kind, value) in attributes(body.get(16..)?) {
        match kind {
            IFLA_IFNAME => link.name = text(value),
            IFLA_MTU => link.mtu = word(value, 0).unwrap_or_default(),
            IFLA_LINKINFO => link.kind = nested(value, IFLA_INFO_KIND).map(text),
            IFLA_PARENT_DEV_BUS_NAME => link.bus = Some(text(value)),
            IFLA_XDP => link.xdp = parse_xdp(value),
            _ => {}
        }
    }
    Some(link)
}

fn parse_xdp(value: &[u8]) -> (u8, Option<u32>) {
    let attached = nested(value, IFLA_XDP_ATTACHED).and_then(|value| value.first());
    let program = nested(value, IFLA_XDP_PROG_ID).and_then(|value| word(value, 0));
    (attached.copied().unwrap_or_default(), program)
}

fn nested(value: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(value).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_kernel_describes_the_loopback_interface() {
        let mut socket = RouteSocket::asking().unwrap();
        let links = socket.links().unwrap();
        let lo = links.iter().find(|link| link.name == "lo").unwrap();
        assert_eq!(lo.flags & 8, 8, "IFF_LOOPBACK: {lo:?}");
        assert_eq!(socket.link(lo.index).unwrap().as_ref(), Some(lo));
        assert_eq!(socket.link(u32::MAX >> 1).unwrap(), None);
        socket.addresses().unwrap();
    }

    #[test]
    fn a_links_message_is_read() {
        let attribute = |kind: u16, value: &[u8]| {
            let length = u16::try_from(4 + value.len()).unwrap();
            let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let xdp = [attribute(IFLA_XDP_ATTACHED, &[2]), attribute(IFLA_XDP_PROG_ID, &[7, 0, 0, 0])];
        let body = [
            link_header(5).to_vec(),
            attribute(IFLA_IFNAME, b"veth7\0"),
            attribute(IFLA_MTU, &1500_u32.to_ne_bytes()),
            attribute(IFLA_LINKINFO, &attribute(IFLA_INFO_KIND, b"veth\0")),
            attribute(IFLA_XDP | 0x8000, &xdp.concat()),
        ];
        let datagram = request(RTM_NEWLINK, 0, 9, &body.concat());
        let message = messages(&datagram).next().unwrap();
        assert_eq!((message.kind, message.sequence), (RTM_NEWLINK, 9));
        let link = parse_link(message.body).unwrap();
        let expected = RouteLink {
            index: 5,
            name: "veth7".into(),
            mtu: 1500,
            kind: Some("veth".into()),
            xdp: (2, Some(7)),
            ..RouteLink::default()
        };
        assert_eq!(link, expected);
    }

    proptest! {
        #[test]
        fn no_bytes_make_messages_endless(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            prop_assert!(messages(&bytes).count() <= bytes.len() / HEADER + 1);
            prop_assert!(attributes(&bytes).count() <= bytes.len() / 4 + 1);
            let _ = parse_link(&bytes);
            let _ = answered(&bytes);
        }
    }
}
