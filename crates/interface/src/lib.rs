//! Interfaces of offcodes: WIT text, values of their types, calls, and generated proxies.
//!
//! An interface has a versioned name, a GUID and methods. A call carries the GUID, the method's
//! index and the parameters in postcard, in order; an answer carries the results or a fault.
//! Bytes of peers are checked against the interface's types within bounds of depth and size.
//!
//! Never knows an offcode, a device or a channel, and never reads a file.
//!
//! Modules in reading order: `guid`, `name`, `types`, `interface` and `wit` (interfaces of text),
//! [`wire`] (values of Rust types as bytes), `value` (values whose types are known at run time
//! only) and `json`, `call`, [`generate`] (Rust and C for guests, Rust for applications), `error`.
//!
//! # Examples
//!
//! ```
//! use outboard_interface::{Call, Interface, Value};
//!
//! let text = "package hydra:net@1.0.0;
//!     interface checksum { sum: func(data: list<u8>) -> u32; }";
//! let checksum = Interface::parse_wit("checksum.wit", text)?.remove(0);
//! let call = checksum.call(0, &[Value::Bytes(vec![1, 2, 3])])?;
//! assert_eq!(Call::decode(&call.encode())?.parameters, [3, 1, 2, 3]);
//! let (_, sum) = checksum.method("sum").unwrap();
//! assert_eq!(sum.decode_results(&[6])?, Some(Value::U32(6)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod call;
mod error;
pub mod generate;
mod guid;
mod interface;
mod json;
mod name;
mod types;
mod value;
pub mod wire;
mod wit;

pub use call::{Call, CallAnswer, CallError, CallFault, TypedCall};
pub use error::{InterfaceError, ValueError};
pub use guid::{Guid, GuidError};
pub use interface::{Interface, METHODS_MAX, Method, PARAMETERS_MAX};
pub use name::InterfaceName;
pub use types::{LabelsType, ListType, RecordType, Type, VariantType};
pub use value::{ENCODED_LEN_MAX, VALUES_MAX, Value};
pub use wit::{INTERFACES_MAX, WIT_LEN_MAX};

// The generated files' part cannot say so itself: compilers of guests are older than the trait.
impl std::error::Error for wire::WireError {}
