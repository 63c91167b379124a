//! What every handle has: a structure's place in a region, the module that works on it, and a count
//! of the round trips that were waited for.

use crate::bytes::word;
use crate::error::AppError;
use crate::shipped::AppModule;
use outboard_active::{ActiveCall, ActiveClient, ModuleHash, RemoteRegion};

/// What a handle is made with, where its structure is known by its offset alone. The handle has a
/// field `structure` and nothing else.
macro_rules! handle_on_structure {
    ($handle:ident, $module:ident) => {
        impl $handle {
            /// What is at an offset of a region, with the module that is shipped. No round trip.
            ///
            /// # Errors
            /// [`AppError`](crate::AppError).
            pub fn open(
                client: &mut outboard_active::ActiveClient,
                region: &outboard_active::RemoteRegion,
                root: u64,
            ) -> Result<Self, crate::AppError> {
                let module = crate::shipped::AppModule::$module;
                Ok(Self::on(crate::structure::Structure::shipped(client, region, root, module)?))
            }

            /// The same with a module of the caller's choice.
            #[must_use]
            pub fn on(structure: crate::structure::Structure) -> Self {
                Self { structure }
            }

            /// What it works on, with the count of round trips.
            #[must_use]
            pub fn structure(&self) -> &crate::structure::Structure {
                &self.structure
            }
        }
    };
}
pub(crate) use handle_on_structure;

/// A structure in a region. Handles are made of one, and clones of it are the same structure.
#[derive(Clone, Debug)]
pub struct Structure {
    region: RemoteRegion,
    module: ModuleHash,
    root: u64,
    round_trips: u64,
}

impl Structure {
    /// The structure at an offset of a region, for this module. The module's bytes are the caller's
    /// concern: the node has them, or the client knows them.
    #[must_use]
    pub fn new(region: &RemoteRegion, root: u64, module: ModuleHash) -> Self {
        Self { region: region.clone(), module, root, round_trips: 0 }
    }

    /// The same for a shipped module, which the client knows from now on.
    pub(crate) fn shipped(
        client: &mut ActiveClient,
        region: &RemoteRegion,
        root: u64,
        module: AppModule,
    ) -> Result<Self, AppError> {
        Ok(Self::new(region, root, module.know(client)?))
    }

    /// Where it begins in its region.
    #[must_use]
    pub fn root(&self) -> u64 {
        self.root
    }

    /// Its region.
    #[must_use]
    pub fn region(&self) -> &RemoteRegion {
        &self.region
    }

    /// The module that works on it.
    #[must_use]
    pub fn module(&self) -> ModuleHash {
        self.module
    }

    /// Round trips that this handle has waited for, one after the other: executions, Reads, and
    /// CompareSwaps. What the client library did besides (loading a module, connecting again) is
    /// not among them.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.round_trips
    }

    /// Executes an entry: one round trip.
    pub(crate) fn call(
        &mut self,
        client: &mut ActiveClient,
        entry: &'static str,
        args: &[u8],
    ) -> Result<Vec<u8>, AppError> {
        self.round_trips += 1;
        let call = ActiveCall::new(&self.region, self.module, entry, args);
        AppError::check(entry, client.execute(&call)?)
    }

    /// An entry whose result is one word.
    pub(crate) fn number(
        &mut self,
        client: &mut ActiveClient,
        entry: &'static str,
        args: &[u8],
    ) -> Result<u64, AppError> {
        word(&self.call(client, entry, args)?, 0)
    }

    /// One Read.
    pub(crate) fn read(
        &mut self,
        client: &mut ActiveClient,
        at: u64,
        len: usize,
    ) -> Result<Vec<u8>, AppError> {
        self.round_trips += 1;
        Ok(self.region.read(client, at, len)?)
    }

    /// Reads of several places, none of which waits for another: one round trip.
    pub(crate) fn read_each(
        &mut self,
        client: &mut ActiveClient,
        places: &[(u64, usize)],
    ) -> Result<Vec<Vec<u8>>, AppError> {
        self.round_trips += 1;
        Ok(self.region.read_each(client, places)?)
    }

    /// One Write, which nobody waits for.
    pub(crate) fn write(
        &mut self,
        client: &mut ActiveClient,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), AppError> {
        Ok(self.region.write(client, at, bytes)?)
    }

    /// One CompareSwap: the word that was there.
    pub(crate) fn swap(
        &mut self,
        client: &mut ActiveClient,
        (at, compare, swap): (u64, u64, u64),
    ) -> Result<u64, AppError> {
        self.round_trips += 1;
        Ok(self.region.compare_swap(client, at, compare, swap)?)
    }

    /// One FetchAdd: the word that was there.
    pub(crate) fn add(
        &mut self,
        client: &mut ActiveClient,
        at: u64,
        delta: u64,
    ) -> Result<u64, AppError> {
        self.round_trips += 1;
        Ok(self.region.fetch_add(client, at, delta)?)
    }

    /// A Write and a CompareSwap behind it: one round trip. Whether the word was `compare`.
    pub(crate) fn write_then_swap(
        &mut self,
        client: &mut ActiveClient,
        item: (u64, &[u8]),
        (at, compare, swap): (u64, u64, u64),
    ) -> Result<bool, AppError> {
        self.round_trips += 1;
        let old = self.region.write_then_swap(client, item, (at, compare, swap))?;
        Ok(old == compare)
    }
}
