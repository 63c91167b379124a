//! The compiler and the interpreter, on the same operations: same results, same region.

#[path = "support/interpreter.rs"]
mod interpreter;

use interpreter::Interpreter;
use outboard_offcode::executor::{Executor, ExecutorOptions, Moment, Outcome, Request, TimeLimit};
use outboard_offcode::store::{StoreLimits, TenantId};
use outboard_offcode::{ActiveRegion, ModuleHash, ModuleStore, WasmEngine, Wasmtime};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TENANT: TenantId = TenantId([4; 32]);
const REGION_LEN: usize = 1 << 16;

/// Host calls with whatever arguments: each entry takes its operands from the call's arguments.
const MODULE: &str = r#"(module
    (import "env" "memory" (memory 1))
    (import "ob" "read" (func $read (param i64 i32 i32)))
    (import "ob" "write" (func $write (param i64 i32 i32)))
    (import "ob" "load64" (func $load (param i64) (result i64)))
    (import "ob" "store64" (func $store (param i64 i64)))
    (import "ob" "cas64" (func $cas (param i64 i64 i64) (result i64)))
    (import "ob" "add64" (func $add (param i64 i64) (result i64)))
    (func $arg (param $index i32) (result i64)
        (i64.load (i32.add (i32.load (i32.const 0x10010))
            (i32.mul (local.get $index) (i32.const 8)))))
    (func $out (param i64) (result i64)
        (i64.store (i32.load (i32.const 0x10020)) (local.get 0)) (i64.const 8))
    ;; Two reads, with a write between them that the second one sees.
    (func (export "read") (result i64)
        (call $write (call $arg (i32.const 1)) (i32.load (i32.const 0x10010)) (i32.const 24))
        (call $read (call $arg (i32.const 0)) (i32.load (i32.const 0x10020)) (i32.const 200))
        (i64.const 200))
    (func (export "load") (result i64)
        (call $store (call $arg (i32.const 1)) (call $arg (i32.const 2)))
        (call $out (call $load (call $arg (i32.const 0)))))
    (func (export "cas") (result i64)
        (drop (call $cas (call $arg (i32.const 0)) (call $arg (i32.const 1))
            (call $arg (i32.const 2))))
        (call $out (call $cas (call $arg (i32.const 0)) (call $arg (i32.const 2))
            (call $arg (i32.const 1)))))
    (func (export "add") (result i64)
        (drop (call $add (call $arg (i32.const 0)) (call $arg (i32.const 1))))
        (call $out (call $add (call $arg (i32.const 0)) (call $arg (i32.const 2)))))
    (func (export "written") (result i64)
        (call $store (call $arg (i32.const 0)) (i64.const 1))
        (call $out (i64.load (i32.const 0x10040))))
    (func (export "wild") (result i64)
        (call $read (call $arg (i32.const 0)) (i32.wrap_i64 (call $arg (i32.const 1)))
            (i32.wrap_i64 (call $arg (i32.const 2)))) (i64.const 0))
)"#;

struct Side<E: WasmEngine> {
    executor: Executor<E>,
    region: Arc<ActiveRegion>,
    module: ModuleHash,
}

impl<E: WasmEngine> Side<E> {
    fn new(engine: E) -> Self {
        let store = Arc::new(ModuleStore::new(Arc::new(engine), StoreLimits::default()));
        let bytes = wat::parse_str(MODULE).expect("legal text");
        let module = store.load(Some(TENANT), "test", &bytes).expect("loaded").hash;
        let executor = Executor::new(store, ExecutorOptions::default(), || {}).expect("threads");
        let region = ActiveRegion::new("test", REGION_LEN, 1 << 16).expect("memory");
        Self { executor, region: Arc::new(region), module }
    }

    fn run(&mut self, entry: &str, words: &[u64]) -> Outcome {
        let request = Request {
            token: 1,
            tenant: TENANT,
            id: None,
            retried_since: None,
            region: Arc::clone(&self.region),
            module: self.module,
            entry: entry.into(),
            args: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
            out_cap: 4096,
            may_write: true,
            is_at_client: false,
            limit: TimeLimit::Executor(Duration::from_secs(1)),
            moment: Moment::default(),
        };
        if let Some(outcome) = self.executor.execute(&request) {
            return outcome;
        }
        let since = Instant::now();
        loop {
            if let Some((_, outcome)) = self.executor.poll() {
                return outcome;
            }
            assert!(since.elapsed() < Duration::from_secs(20), "no outcome");
            std::thread::yield_now();
        }
    }
}

fn entry() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["read", "load", "cas", "add", "written", "wild"])
}

/// Mostly words of the region, some at its end, and some anywhere.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0..32_u64).prop_map(|word| word * 8),
        2 => REGION_LEN as u64 - 256..REGION_LEN as u64 + 16,
        1 => any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn both_compute_the_same(
        operations in prop::collection::vec((entry(), offset(), offset(), offset()), 1..60)
    ) {
        let mut compiled = Side::new(Wasmtime::new(None).expect("an engine"));
        let mut interpreted = Side::new(Interpreter::default());
        for (entry, one, two, three) in operations {
            let words = [one, two, three];
            let found = (compiled.run(entry, &words), interpreted.run(entry, &words));
            match found {
                // The words differ, and where.
                (Outcome::Trap(_), Outcome::Trap(_)) => {}
                (one, other) => prop_assert_eq!(one, other, "{} {:?}", entry, words),
            }
        }
        let bytes = |region: &ActiveRegion| region.snapshot().expect("memory");
        prop_assert!(bytes(&compiled.region) == bytes(&interpreted.region));
    }
}
