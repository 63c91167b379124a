//! How long an entry of a resident takes here, beside a bare call of wasmtime's: `cargo run
//! --release -p outboard-offcode --example resident`. Prints JSON.

use outboard_offcode::resident::{
    CallNotMade, Resident, ResidentEngine, ResidentHost, ResidentLimits, ResidentLog,
    ResidentModule, ResidentRules, ResidentSend,
};
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Entries with and without an answer, which is the call's parameters.
const MODULE: &str = r#"(module
    (import "offcode" "answer" (func $answer (param i64 i32 i32) (result i32)))
    (memory (export "memory") 17)
    (data (i32.const 1048576) "end")
    (func (export "oc_buffer") (param i32) (result i32) (i32.const 1024))
    (func (export "oc_message") (param i32 i32 i32))
    (func (export "oc_call") (param i32 i32 i64 i32 i32)
        (drop (call $answer (local.get 2) (local.get 3) (local.get 4)))))"#;

/// Of the same type as `oc_call`, and of one that takes nothing.
const BARE: &str = r#"(module
    (func (export "call") (param i32 i32 i64 i32 i32))
    (func (export "nothing")))"#;

const ROUNDS: u32 = 2_000_000;

#[derive(Default)]
struct Counting(u64);

impl ResidentHost for Counting {
    fn send(&mut self, _port: u32, _message: &[u8]) -> ResidentSend {
        ResidentSend::NoPort
    }

    fn call(
        &mut self,
        _method: (u32, u32),
        _params: &[u8],
        _deadline: Option<Duration>,
    ) -> Result<u64, CallNotMade> {
        Err(CallNotMade::NoImport)
    }

    fn answer(&mut self, _call: u64, results: &[u8]) -> bool {
        self.0 += black_box(results).len() as u64;
        true
    }

    fn refuse(&mut self, _call: u64, _text: &str) -> bool {
        false
    }

    fn hold(&mut self, _port: u32) {}

    fn release(&mut self, _port: u32) {}

    fn log(&mut self, _level: ResidentLog, _text: &str) {}

    fn tell(&mut self, _message: &[u8]) -> bool {
        false
    }

    fn attribute(&mut self, _name: &str) -> Option<&[u8]> {
        None
    }

    fn clock(&mut self) -> u64 {
        0
    }

    fn wall(&mut self) -> u64 {
        0
    }

    fn timer(&mut self, _timer: u32, _after: Duration) -> bool {
        false
    }
}

/// Nanoseconds of one of many rounds: the best of five runs, after one to warm up.
fn measure<E>(mut round: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    let mut best = f64::MAX;
    for run in 0..6 {
        let since = Instant::now();
        for _ in 0..ROUNDS {
            round()?;
        }
        let ns = since.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS);
        best = if run == 0 { best } else { best.min(ns) };
    }
    Ok(best)
}

/// Bare calls: of `oc_call`'s type, and of a function that takes nothing.
fn bare() -> Result<(f64, f64), Box<dyn Error>> {
    let engine = wasmtime::Engine::default();
    let module = wasmtime::Module::from_binary(&engine, &wat::parse_str(BARE)?)?;
    let mut store = wasmtime::Store::new(&engine, ());
    let instance = wasmtime::Instance::new(&mut store, &module, &[])?;
    let call = instance.get_typed_func::<(u32, u32, u64, u32, u32), ()>(&mut store, "call")?;
    let nothing = instance.get_typed_func::<(), ()>(&mut store, "nothing")?;
    let call = measure(|| call.call(&mut store, black_box((1, 2, 3, 4, 5))))?;
    Ok((call, measure(|| nothing.call(&mut store, ()))?))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (bare_call, bare_nothing) = bare()?;
    let engine = ResidentEngine::new(None)?;
    let bytes = wat::parse_str(MODULE)?;
    let module = ResidentModule::compile(&engine, &bytes, &ResidentRules::default())?;
    let make = || Resident::new(&module, Counting::default(), ResidentLimits::default());
    let mut resident = make()?;
    let params = [7; 16];
    let message = measure(|| resident.message(black_box(1), black_box(&params)).map(drop))?;
    let answered = measure(|| resident.call((1, 2), 3, black_box(&params)).map(drop))?;
    println!("{{\"bare_call_ns\":{bare_call:.1},\"bare_nothing_ns\":{bare_nothing:.1},");
    println!("\"message_16_bytes_ns\":{message:.1},\"call_16_bytes_answered_ns\":{answered:.1},");
    let since = Instant::now();
    for _ in 0..1000 {
        black_box(make()?);
    }
    println!("\"make_and_drop_us\":{:.1},", since.elapsed().as_secs_f64() * 1e3);
    full_megabyte(&module, resident)?;
    println!("\"answers_bytes\":{}}}", black_box(params).len());
    Ok(())
}

/// What a move of 1 MiB takes, all of it used.
fn full_megabyte(
    module: &ResidentModule,
    mut resident: Resident<Counting>,
) -> Result<(), Box<dyn Error>> {
    let megabyte = vec![0x5a; 1 << 20];
    let mut copy = vec![0; 1 << 20];
    resident.message(1, &megabyte[..megabyte.len() - 1024])?;
    let (mut state_us, mut go_on_us, mut copy_us) = (f64::MAX, f64::MAX, f64::MAX);
    for _ in 0..50 {
        let since = Instant::now();
        let state = resident.snapshot()?;
        state_us = state_us.min(since.elapsed().as_secs_f64() * 1e6);
        let since = Instant::now();
        let limits = ResidentLimits::default();
        black_box(Resident::from_state(module, &state, Counting::default(), limits)?);
        go_on_us = go_on_us.min(since.elapsed().as_secs_f64() * 1e6);
        let since = Instant::now();
        copy.copy_from_slice(black_box(&megabyte));
        black_box(&copy);
        copy_us = copy_us.min(since.elapsed().as_secs_f64() * 1e6);
    }
    println!("\"state_of_1_mib_us\":{state_us:.1},\"go_on_from_1_mib_us\":{go_on_us:.1},");
    println!("\"memcpy_1_mib_us\":{copy_us:.1},");
    Ok(())
}
