//! What executes modules: a compiler with its instances, behind one trait. `wasmtime` is the one
//! that services use; tests bring an interpreter.

pub mod wasmtime;

use crate::error::LoadError;
use crate::host::{Execution, Scratch};
use crate::inspect::ModuleInfo;
use crate::stop::Stop;
use outboard_mem::SharedRegion;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How an execution is bounded. A module is compiled for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bounding {
    /// By fuel: exact, slower.
    Fuel,
    /// By time.
    Time,
}

/// How much an execution may use.
#[derive(Clone, Debug)]
pub enum Budget {
    /// Units of fuel: about one for each instruction.
    Fuel(u64),
    /// Processor time of the executing thread, and ten times that by the clock at most, so that a
    /// busy machine ends nothing; and whether it was killed.
    Time(Duration, Arc<KillSwitch>),
}

/// Kills an execution, from any thread.
#[derive(Debug, Default)]
pub struct KillSwitch(AtomicBool);

impl KillSwitch {
    /// Kills it, or prevents that it begins.
    pub fn kill(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was killed.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One module of a program, and where it is placed.
#[derive(Debug)]
pub struct Placed<M> {
    /// What is known of it.
    pub info: Arc<ModuleInfo>,
    /// The engine's own form.
    pub module: Arc<M>,
    /// Where its data begin; 0 for a static module.
    pub memory_base: u32,
    /// Where its part of the table begins.
    pub table_base: u32,
}

/// What the engine instantiates: modules in the order of linking, the executed one last.
#[derive(Debug)]
pub struct Linked<M> {
    /// The modules.
    pub modules: Vec<Placed<M>>,
    /// Entries of the table.
    pub table: u32,
    /// Where the data of all modules end.
    pub data_end: u32,
}

/// A compiler and its instances.
pub trait WasmEngine: Send + Sync + 'static {
    /// A compiled module.
    type Module: Send + Sync + 'static;
    /// A program that can be called.
    type Instance: Instance;

    /// Compiles a module that was [inspected](crate::inspect).
    ///
    /// # Errors
    /// [`LoadError::Engine`].
    fn compile(&self, bytes: &[u8], bound: Bounding) -> Result<Self::Module, LoadError>;

    /// Makes an instance on a region, of which an execution may write so many bytes. The modules'
    /// start functions run within the budget.
    ///
    /// # Errors
    /// [`Stop`]: the module's fault or this machine's.
    fn instantiate(
        &self,
        program: &Linked<Self::Module>,
        region: (&SharedRegion, usize),
        bound: (Bounding, &Budget),
    ) -> Result<Self::Instance, Stop>;
}

/// A program in memory, on one region, for one caller at a time.
pub trait Instance: Send + 'static {
    /// What executions have done.
    fn execution(&mut self) -> &mut Execution;

    /// The memory for executions.
    fn scratch(&mut self) -> &mut dyn Scratch;

    /// Puts the globals back to what they were at first.
    fn restore_globals(&mut self);

    /// Calls an entry of the program's last module. `None`: there is no such entry.
    ///
    /// # Errors
    /// [`Stop`].
    fn call(&mut self, entry: &str, budget: &Budget) -> Option<Result<i64, Stop>>;

    /// What is left of the latest call's fuel; `None` if fuel is not counted.
    fn fuel_left(&self) -> Option<u64>;
}
