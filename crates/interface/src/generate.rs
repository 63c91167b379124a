//! Code of interfaces: Rust and C for guests, Rust for applications.
//!
//! Never runs a compiler and writes no file. What it makes depends on the interfaces only, so that
//! two machines make the same text; no names from WIT can collide with each other, with keywords
//! or with what the text itself needs.
//!
//! Modules in reading order: `names`, `text`, `rust_types`, `rust_guest`, `rust_host`, `c_types`,
//! `c_guest`.

mod c_guest;
mod c_types;
mod names;
mod rust_guest;
mod rust_host;
mod rust_types;
mod text;

pub use c_guest::c_guest;
pub use rust_guest::rust_guest;
pub use rust_host::rust_host;

use crate::error::InterfaceError;
use crate::interface::Interface;
use crate::wit::INTERFACES_MAX;

fn check_interfaces(interfaces: &[Interface]) -> Result<(), InterfaceError> {
    InterfaceError::check("generated code", interfaces.len(), "interfaces", INTERFACES_MAX)
}

/// Interfaces that a guest exports, imports or both, each once, with their numbers in either list.
struct GuestInterface<'a> {
    interface: &'a Interface,
    export: Option<usize>,
    import: Option<usize>,
}

fn guest_interfaces<'a>(
    exports: &'a [Interface],
    imports: &'a [Interface],
) -> Result<Vec<GuestInterface<'a>>, InterfaceError> {
    check_interfaces(exports)?;
    check_interfaces(imports)?;
    let mut all: Vec<_> = exports
        .iter()
        .enumerate()
        .map(|(index, interface)| GuestInterface { interface, export: Some(index), import: None })
        .collect();
    for (index, interface) in imports.iter().enumerate() {
        let both = all.iter_mut().find(|one| one.import.is_none() && one.interface == interface);
        match both {
            Some(both) => both.import = Some(index),
            None => all.push(GuestInterface { interface, export: None, import: Some(index) }),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
