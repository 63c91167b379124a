//! A singly linked list: as `modules/list/list.h` says, which has the layout.
//!
//! A node holds a key and up to 40 bytes. Walking costs a plain client one Read for each node and
//! an execution a few nanoseconds. Limits: as many nodes as the list's place has room for; nodes
//! are found by walking from the head.

use crate::bytes::{word, word_in, words, words_then};
use crate::error::AppError;
use crate::structure::{Structure, handle_on_structure};
use outboard_active::{ActiveClient, RemoteRegion};
use std::ops::Range;

/// What `list.h` says of the layout.
pub mod layout {
    /// `LIST_HEADER_LEN`.
    pub const HEADER_LEN: u64 = 64;
    /// `LIST_NODE_LEN`.
    pub const NODE_LEN: usize = 64;
    /// `LIST_VALUE_MAX`.
    pub const VALUE_MAX: usize = 40;
    /// `LIST_REMOVED`, a bit of a node's `next`.
    pub const REMOVED: u64 = 1;
    /// Offset in the header of the word that leads to the first node.
    pub const HEAD: u64 = 8;
    /// Offsets in a node.
    pub const NEXT: usize = 0;
    /// Of its key.
    pub const KEY: usize = 8;
    /// Of its value's length.
    pub const VALUE_LEN: usize = 16;
    /// Of its value.
    pub const VALUE: usize = 24;
}

/// Nodes that a plain client has in store.
const TAKEN: u64 = 256;
/// How often a walk begins again because a node was removed under it.
const TRIES: usize = 1000;

/// A node of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListNode {
    /// Nodes in front of it.
    pub hops: u64,
    /// Its offset in the region.
    pub offset: u64,
    /// Its key.
    pub key: u64,
    /// Its value.
    pub value: Vec<u8>,
}

fn check_value(value: &[u8]) -> Result<(), AppError> {
    let (what, found, limit) = ("a node's value", value.len() as u64, layout::VALUE_MAX as u64);
    if found > limit {
        return Err(AppError::TooMuch { what, found, limit });
    }
    Ok(())
}

/// A list, by executions: one round trip for each method.
#[derive(Clone, Debug)]
pub struct ActiveList {
    structure: Structure,
}

handle_on_structure!(ActiveList, List);

impl ActiveList {
    /// A new, empty list in these bytes of a region, whose start is a multiple of 64. One round
    /// trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn create(
        client: &mut ActiveClient,
        region: &RemoteRegion,
        place: Range<u64>,
    ) -> Result<Self, AppError> {
        let mut list = Self::open(client, region, place.start)?;
        list.init(client, place.end.saturating_sub(place.start))?;
        Ok(list)
    }

    /// Forgets all nodes: an empty list of so many bytes. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn init(&mut self, client: &mut ActiveClient, len: u64) -> Result<(), AppError> {
        let args = words(&[self.structure.root(), len]);
        self.structure.call(client, "init", &args).map(drop)
    }

    /// Puts a node behind so many others, or last if there are fewer; its offset. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn put(
        &mut self,
        client: &mut ActiveClient,
        hops: u64,
        (key, value): (u64, &[u8]),
    ) -> Result<u64, AppError> {
        check_value(value)?;
        let args = words_then(&[self.structure.root(), hops, key], &[value]);
        self.structure.number(client, "put", &args)
    }

    /// The node behind so many others. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn at(
        &mut self,
        client: &mut ActiveClient,
        hops: u64,
    ) -> Result<Option<ListNode>, AppError> {
        self.find(client, "at", hops)
    }

    /// The first node with a key. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn get(
        &mut self,
        client: &mut ActiveClient,
        key: u64,
    ) -> Result<Option<ListNode>, AppError> {
        self.find(client, "get", key)
    }

    fn find(
        &mut self,
        client: &mut ActiveClient,
        entry: &'static str,
        what: u64,
    ) -> Result<Option<ListNode>, AppError> {
        let found = self.structure.call(client, entry, &words(&[self.structure.root(), what]))?;
        if word(&found, 0)? != 1 {
            return Ok(None);
        }
        let (hops, offset, key) = (word(&found, 8)?, word(&found, 16)?, word(&found, 24)?);
        Ok(Some(ListNode { hops, offset, key, value: found[32..].to_vec() }))
    }

    /// Removes the first node with a key; whether there was one. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn remove(&mut self, client: &mut ActiveClient, key: u64) -> Result<bool, AppError> {
        let args = words(&[self.structure.root(), key]);
        Ok(self.structure.number(client, "remove", &args)? == 1)
    }

    /// How many nodes there are, by counting them. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn count(&mut self, client: &mut ActiveClient) -> Result<u64, AppError> {
        let args = words(&[self.structure.root()]);
        self.structure.number(client, "count", &args)
    }
}

/// A list, by Reads, one for each node on the way.
///
/// A walk that meets a removed node begins again. Nodes that were removed are used again in the
/// same list: a walk may then go on at the node's new place, as a walk through any list does that
/// others change meanwhile.
#[derive(Clone, Debug)]
pub struct PlainList {
    active: ActiveList,
    /// Nodes to put.
    taken: Vec<u64>,
}

/// Where a walk has ended.
struct Walked {
    /// Offset of the word that leads to the node.
    link: u64,
    /// 0: the list's end.
    node: u64,
    hops: u64,
    bytes: Option<Vec<u8>>,
}

/// Where a walk ends, besides at the list's end.
#[derive(Clone, Copy)]
enum WalkTo {
    /// In front of the node behind so many, which is not read.
    Link(u64),
    /// At the node behind so many.
    Hops(u64),
    /// At the first node with a key.
    Key(u64),
}

impl PlainList {
    /// As [`ActiveList::create`].
    ///
    /// # Errors
    /// [`AppError`].
    pub fn create(
        client: &mut ActiveClient,
        region: &RemoteRegion,
        place: Range<u64>,
    ) -> Result<Self, AppError> {
        Ok(Self::on(ActiveList::create(client, region, place)?.structure))
    }

    /// As [`ActiveList::open`].
    ///
    /// # Errors
    /// [`AppError`].
    pub fn open(
        client: &mut ActiveClient,
        region: &RemoteRegion,
        root: u64,
    ) -> Result<Self, AppError> {
        Ok(Self::on(ActiveList::open(client, region, root)?.structure))
    }

    /// As [`ActiveList::on`].
    #[must_use]
    pub fn on(structure: Structure) -> Self {
        Self { active: ActiveList::on(structure), taken: Vec::new() }
    }

    /// What it works on, with the count of round trips.
    #[must_use]
    pub fn structure(&self) -> &Structure {
        &self.active.structure
    }

    /// As [`ActiveList::put`]: behind `n` nodes, `n + 2` round trips (a Read of the head and of
    /// each node, then a Write with a CompareSwap), and those again whenever another client was
    /// faster. One execution more for every 256 nodes, to take them.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn put(
        &mut self,
        client: &mut ActiveClient,
        hops: u64,
        (key, value): (u64, &[u8]),
    ) -> Result<u64, AppError> {
        check_value(value)?;
        let fresh = self.fresh(client)?;
        for _ in 0..TRIES {
            let Walked { link, node, .. } = self.walk(client, WalkTo::Link(hops))?;
            let bytes = words_then(&[node, key, value.len() as u64], &[value]);
            let swap = (link, node, fresh);
            if self.active.structure.write_then_swap(client, (fresh, &bytes), swap)? {
                return Ok(fresh);
            }
        }
        self.taken.push(fresh);
        Err(AppError::Changing { what: "the place in the list", tries: TRIES })
    }

    /// As [`ActiveList::at`]: `n + 2` round trips, one Read each, for the node behind `n`.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn at(
        &mut self,
        client: &mut ActiveClient,
        hops: u64,
    ) -> Result<Option<ListNode>, AppError> {
        self.walk(client, WalkTo::Hops(hops))?.into_node()
    }

    /// As [`ActiveList::get`]: `n + 2` round trips, one Read each, if `n` nodes are in front.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn get(
        &mut self,
        client: &mut ActiveClient,
        key: u64,
    ) -> Result<Option<ListNode>, AppError> {
        self.walk(client, WalkTo::Key(key))?.into_node()
    }

    /// Executes [`ActiveList::remove`]: removing changes two nodes and the list of free ones at
    /// once. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn remove(&mut self, client: &mut ActiveClient, key: u64) -> Result<bool, AppError> {
        self.active.remove(client, key)
    }

    /// As [`ActiveList::count`]: `n + 1` round trips, one Read each, for `n` nodes.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn count(&mut self, client: &mut ActiveClient) -> Result<u64, AppError> {
        Ok(self.walk(client, WalkTo::Hops(u64::MAX))?.hops)
    }

    fn fresh(&mut self, client: &mut ActiveClient) -> Result<u64, AppError> {
        if let Some(node) = self.taken.pop() {
            return Ok(node);
        }
        let structure = &mut self.active.structure;
        let taken = structure.call(client, "take", &words(&[structure.root(), TAKEN]));
        let taken = taken.map_err(|error| not_done("take", error))?;
        self.taken = taken.chunks(8).map(|node| word(node, 0)).collect::<Result<_, _>>()?;
        let (what, found, expected) = ("nodes that were taken", 0, TAKEN);
        self.taken.pop().ok_or(AppError::Broken { what, found, expected })
    }

    fn walk(&mut self, client: &mut ActiveClient, to: WalkTo) -> Result<Walked, AppError> {
        for _ in 0..TRIES {
            if let Some(walked) = self.walk_once(client, to)? {
                return Ok(walked);
            }
        }
        Err(AppError::Changing { what: "the list", tries: TRIES })
    }

    /// `None`: a node on the way was removed.
    fn walk_once(
        &mut self,
        client: &mut ActiveClient,
        to: WalkTo,
    ) -> Result<Option<Walked>, AppError> {
        let structure = &mut self.active.structure;
        let nodes_max = structure.region().len() / layout::NODE_LEN as u64;
        let head = structure.root() + layout::HEAD;
        let (mut link, mut node) = (head, word(&structure.read(client, head, 8)?, 0)?);
        for hops in 0..=nodes_max {
            let is_there = matches!(to, WalkTo::Link(wanted) if wanted == hops);
            if node == 0 || is_there {
                return Ok(Some(Walked { link, node, hops, bytes: None }));
            }
            let bytes = structure.read(client, node, layout::NODE_LEN)?;
            let next = word(&bytes, layout::NEXT)?;
            if next & layout::REMOVED != 0 {
                return Ok(None);
            }
            let is_it = match to {
                WalkTo::Link(_) => false,
                WalkTo::Hops(wanted) => wanted == hops,
                WalkTo::Key(key) => word(&bytes, layout::KEY)? == key,
            };
            if is_it {
                return Ok(Some(Walked { link, node, hops, bytes: Some(bytes) }));
            }
            (link, node) = (node, next);
        }
        let (what, found, expected) = ("a list without an end", nodes_max + 1, nodes_max);
        Err(AppError::Broken { what, found, expected })
    }
}

impl Walked {
    fn into_node(self) -> Result<Option<ListNode>, AppError> {
        let Some(bytes) = self.bytes else { return Ok(None) };
        let (found, limit) = (word_in(&bytes, layout::VALUE_LEN), layout::VALUE_MAX);
        let len = usize::try_from(found).unwrap_or(usize::MAX);
        let value = bytes.get(layout::VALUE..layout::VALUE.saturating_add(len));
        let (what, expected) = ("the length of a node's value", limit as u64);
        let value = value.ok_or(AppError::Broken { what, found, expected })?.to_vec();
        let key = word_in(&bytes, layout::KEY);
        Ok(Some(ListNode { hops: self.hops, offset: self.node, key, value }))
    }
}

/// Of a preparation that has changed nothing that others see: what it took is lost, no more.
pub(crate) fn not_done(entry: &'static str, error: AppError) -> AppError {
    match error.may_have_happened() {
        true => AppError::Crowded { entry, why: error.to_string() },
        false => error,
    }
}
