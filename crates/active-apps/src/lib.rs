//! Clients of the modules that are shipped with Outboard: a linked list, a hash table, locks with
//! leases, counters with limits, compare-and-set of several keys, values that expire, top-k scans.
//!
//! Each is a handle that names a structure in a region; its methods are given the
//! [`ActiveClient`](outboard_active::ActiveClient) of the region. `Active…` handles execute an
//! entry of the module at the node. `Plain…` handles, where they exist, have the same methods and
//! do the same work by one-sided Reads, Writes and CompareSwaps, as well as the structure's layout
//! allows; both may be used on one structure at the same time. Every method says how many round
//! trips it waits for, and [`Structure::round_trips`] counts them.
//!
//! It opens no connection and brings no keys; it decides nothing that a module's header does not
//! say.
//!
//! ```no_run
//! use outboard_active::ActiveClient;
//! use outboard_active_apps::{ActiveHashTable, AppError, PlainHashTable};
//!
//! fn greet(client: &mut ActiveClient) -> Result<(), AppError> {
//!     let region = client.attach("kv")?;
//!     // A new table in the first MiB behind the region's first page.
//!     let mut table = ActiveHashTable::create(client, &region, 4096..1 << 20, 4)?;
//!     table.put(client, b"greet", b"hello")?;
//!     // Another client's, by Reads.
//!     let mut plain = PlainHashTable::open(client, &region, 4096)?;
//!     assert_eq!(plain.get(client, b"greet")?.as_deref(), Some(&b"hello"[..]));
//!     Ok(())
//! }
//! ```
//!
//! Modules in reading order: [`shipped`] (the modules themselves), [`error`], [`bytes`] (words and
//! hashes), [`structure`] (what all handles have), [`list`], [`table`], [`lock`], [`counter`],
//! [`swap`], [`expiry`], [`topk`].

#![forbid(unsafe_code)]

pub mod bytes;
pub mod counter;
pub mod error;
pub mod expiry;
pub mod list;
pub mod lock;
pub mod shipped;
pub mod structure;
pub mod swap;
pub mod table;
pub mod topk;

pub use counter::{ActiveCounter, LimitAnswer, PlainCounter};
pub use error::{AppError, FailureKind};
pub use expiry::{ActiveExpiry, ExpiringValue};
pub use list::{ActiveList, ListNode, PlainList};
pub use lock::{ActiveLock, FencedWord, LockAnswer, LockGrant, LockLook, PlainLock, create_locks};
pub use shipped::AppModule;
pub use structure::Structure;
pub use swap::{ActiveSwap, SwapAnswer, SwapKey};
pub use table::{ActiveHashTable, PlainHashTable, TableCount, TablePage};
pub use topk::{ActiveTopK, PlainTopK, RecordArray, RecordPredicate, TopRecord, TopRecords};
