//! Modules on a region of this process's own, one execution after another: for tests of modules,
//! and to try them without a node.

use crate::engine::WasmEngine;
use crate::error::LoadError;
use crate::executor::{Executor, ExecutorOptions, Moment, Outcome, Request, TimeLimit};
use crate::hash::ModuleHash;
use crate::inspect::ModuleInfo;
use crate::journal::JournalError;
use crate::region::ActiveRegion;
use crate::store::{ModuleStore, StoreLimits, TenantId};
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The one tenant.
const TENANT: TenantId = TenantId([0; 32]);
/// Bytes of a region that an execution may write.
const WRITE_MAX: usize = 4 << 20;
/// Bytes of a result.
const RESULT_MAX: u32 = 256 << 10;

/// Why there is no local runner.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The region's memory.
    #[error(transparent)]
    Region(#[from] JournalError),
    /// No threads.
    #[error("this machine starts no thread: {0}")]
    Threads(#[from] std::io::Error),
}

/// See this file's first lines.
pub struct LocalRunner<E: WasmEngine> {
    executor: Executor<E>,
    region: Arc<ActiveRegion>,
    woken: mpsc::Receiver<()>,
    moment: Option<Moment>,
    limit: Duration,
}

impl<E: WasmEngine> fmt::Debug for LocalRunner<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalRunner").field("region", &self.region).finish_non_exhaustive()
    }
}

impl<E: WasmEngine> LocalRunner<E> {
    /// A runner with a region of so many zero bytes.
    ///
    /// # Errors
    /// [`LocalError`]: this machine's.
    pub fn new(engine: E, region_len: usize) -> Result<Self, LocalError> {
        let limits = StoreLimits { modules: 1024, bytes: 1 << 30, ..StoreLimits::default() };
        let store = Arc::new(ModuleStore::new(Arc::new(engine), limits));
        let (sender, woken) = mpsc::channel();
        let wake = move || {
            let _sent = sender.send(());
        };
        let executor = Executor::new(store, ExecutorOptions::default(), wake)?;
        let region = Arc::new(ActiveRegion::new("local", region_len, WRITE_MAX)?);
        Ok(Self { executor, region, woken, moment: None, limit: Duration::from_secs(10) })
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &Arc<ActiveRegion> {
        &self.region
    }

    /// The executor, with its counters.
    #[must_use]
    pub fn executor(&self) -> &Executor<E> {
        &self.executor
    }

    /// What time it is for executions from now on; `None`: the machine's.
    pub fn set_moment(&mut self, moment: Option<Moment>) {
        self.moment = moment;
    }

    /// How long an execution may take from now on.
    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Loads a module.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(&self, name: &str, bytes: &[u8]) -> Result<Arc<ModuleInfo>, LoadError> {
        self.executor.store().load(Some(TENANT), name, bytes)
    }

    /// Executes an entry, and waits for what comes of it.
    pub fn execute(&mut self, module: ModuleHash, entry: &str, args: &[u8]) -> Outcome {
        let request = Request {
            token: 0,
            tenant: TENANT,
            id: None,
            retried_since: None,
            region: Arc::clone(&self.region),
            module,
            entry: entry.to_owned(),
            args: args.to_vec(),
            out_cap: RESULT_MAX,
            may_write: true,
            is_at_client: false,
            limit: TimeLimit::Executor(self.limit),
            moment: self.moment.unwrap_or_else(Moment::now),
        };
        if let Some(outcome) = self.executor.execute(&request) {
            return outcome;
        }
        let patience = Instant::now() + self.limit * 4 + Duration::from_secs(60);
        loop {
            if let Some((_, outcome)) = self.executor.poll() {
                return outcome;
            }
            let left = patience.saturating_duration_since(Instant::now());
            if self.woken.recv_timeout(left).is_err() {
                return Outcome::Machine("the threads for executions do not answer".into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::wasmtime::Wasmtime;

    #[test]
    fn a_module_runs_without_a_node() {
        let text = r#"(module
            (import "env" "memory" (memory 1))
            (import "ob" "add64" (func $add (param i64 i64) (result i64)))
            (import "ob" "log" (func $log (param i32 i32)))
            (data (i32.const 0x11000) "said")
            (func (export "time") (result i64)
                (i64.store (i32.load (i32.const 0x10020)) (i64.load (i32.const 0x10038)))
                (call $log (i32.const 0x11000) (i32.const 4))
                (i64.const 8))
            (func (export "count") (result i64) (call $add (i64.const 8) (i64.const 1))))"#;
        let engine = Wasmtime::new(None).expect("an engine");
        let mut runner = LocalRunner::new(engine, 4096).expect("a runner");
        let info = runner.load("test", &wat::parse_str(text).expect("legal")).expect("loaded");
        runner.set_moment(Some(Moment { wall_ns: 77, ..Moment::default() }));
        let result = 77_u64.to_le_bytes().to_vec();
        assert_eq!(runner.execute(info.hash, "time", b""), Outcome::Done { result, seq: 0 });
        assert_eq!(runner.executor().log(), b"said\n");
        runner.execute(info.hash, "count", b"");
        assert_eq!(runner.region().memory().load_u64(8), Ok(1));
    }
}
