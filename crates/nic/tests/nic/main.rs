//! Bodies in the paths of real interfaces, in network namespaces of their own: what passes, what is
//! counted and sent, what is refused, and what is left when everything ends badly.

mod ends;
mod lab;
mod packets;
mod refused;
mod sockets;
mod traffic;
