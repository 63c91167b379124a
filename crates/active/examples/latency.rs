//! How long calls take at a node, one after the other and many at a time:
//! `cargo run --release -p outboard-active --example latency -- HOST REGION [spin|block|adapt]`.

use outboard_active::{
    ActiveCall, ActiveClient, ActiveClientOptions, DialActive, Outcome, WaitMode,
};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::HostList;
use outboard_secure::ServiceName;
use outboard_verbs::Context;
use std::error::Error;
use std::time::Instant;

const MODULE: &str = r#"(module
    (import "env" "memory" (memory 1))
    (import "ob" "add64" (func $add (param i64 i64) (result i64)))
    (func (export "empty") (result i64) (i64.const 0))
    (func (export "count") (result i64)
        (drop (call $add (i64.const 0) (i64.const 1))) (i64.const 0)))"#;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let hosts: HostList = words.next().ok_or("name a node")?.parse()?;
    let host = hosts.hosts().first().ok_or("name a node")?.clone();
    let region = words.next().ok_or("name a region")?;
    let wait = match words.next().as_deref() {
        Some("block") => WaitMode::Block,
        Some("adapt") => WaitMode::Adaptive,
        _ => WaitMode::Spin,
    };
    let service: ServiceName = "active".parse()?;
    let own = [service.clone()];
    let dialer = Dialer::from_environment(|name| std::env::var_os(name), &own)?;
    let dial: DialActive = Box::new(move |limit| {
        let dialled = dialer.dial(&host, &service, Instant::now() + limit);
        dialled.map_err(|error| error.to_string())
    });
    let options = ActiveClientOptions { wait, in_flight: 256, ..Default::default() };
    let mut client = ActiveClient::connect(&Context::open()?, dial, options)?;
    let region = client.attach(&region)?;
    let module = client.know("latency", &wat::parse_str(MODULE)?)?;
    for entry in ["empty", "count"] {
        let call = ActiveCall::new(&region, module, entry, b"");
        let mut took: Vec<u128> = Vec::new();
        for round in 0..120_000 {
            let since = Instant::now();
            let outcome = client.execute(&call)?;
            assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
            if round >= 20_000 {
                took.push(since.elapsed().as_nanos());
            }
        }
        took.sort_unstable();
        println!("{entry}: median {} ns, p99 {} ns", took[50_000], took[99_000]);
    }
    let call = ActiveCall::new(&region, module, "empty", b"");
    let (rounds, window) = (1_000_000_u32, 64);
    let since = Instant::now();
    let (mut begun, mut over) = (0, 0);
    while over < rounds {
        while begun < rounds && begun - over < window {
            client.submit(&call)?;
            begun += 1;
        }
        if client.poll()?.is_some() {
            over += 1;
        }
    }
    println!("64 in flight: {:.0} a second", f64::from(rounds) / since.elapsed().as_secs_f64());
    Ok(())
}
