//! How long an empty execution takes here: `cargo run --release -p outboard-offcode --example
//! executor_latency`.

use outboard_offcode::executor::{Executor, ExecutorOptions, Moment, Outcome, Request, TimeLimit};
use outboard_offcode::store::{StoreLimits, TenantId};
use outboard_offcode::{ActiveRegion, ModuleStore, Wasmtime};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MODULE: &str = r#"(module
    (import "env" "memory" (memory 1))
    (import "ob" "add64" (func $add (param i64 i64) (result i64)))
    (func (export "empty") (result i64) (i64.const 0))
    (func (export "count") (result i64)
        (drop (call $add (i64.const 0) (i64.const 1))) (i64.const 0)))"#;

fn main() -> Result<(), Box<dyn Error>> {
    let store = Arc::new(ModuleStore::new(Arc::new(Wasmtime::new(None)?), StoreLimits::default()));
    let tenant = TenantId([0; 32]);
    let module = store.load(Some(tenant), "example", &wat::parse_str(MODULE)?)?.hash;
    let mut executor = Executor::new(store, ExecutorOptions::default(), || {})?;
    let region = Arc::new(ActiveRegion::new("example", 1 << 20, 1 << 16)?);
    let request = |entry: &str| Request {
        token: 0,
        tenant,
        id: None,
        retried_since: None,
        region: Arc::clone(&region),
        module,
        entry: entry.into(),
        args: Vec::new(),
        out_cap: 64,
        may_write: true,
        is_at_client: false,
        limit: TimeLimit::Executor(Duration::from_secs(1)),
        moment: Moment::now(),
    };
    for entry in ["empty", "count"] {
        // The first makes the instance, on a thread.
        if executor.execute(&request(entry)).is_none() {
            while executor.poll().is_none() {}
        }
        let rounds = 1_000_000_u32;
        let since = Instant::now();
        for _ in 0..rounds {
            let outcome = executor.execute(&request(entry));
            assert!(matches!(outcome, Some(Outcome::Done { .. })), "{outcome:?}");
        }
        println!("{entry}: {:?}", since.elapsed() / rounds);
    }
    Ok(())
}
