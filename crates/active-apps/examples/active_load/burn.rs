//! Several clients that have modules computed which take a while, each from a thread of its own:
//! the load beside which others are measured.

use crate::Failure;
use crate::calls::done;
use crate::session::connect;
use crate::timing::milliseconds;
use outboard_active::{ActiveCall, ActiveClient, ModuleHash, RemoteRegion};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

/// Multiplies as often as its argument says.
const BURN: &str = r#"(module
    (import "env" "memory" (memory 1))
    (func (export "burn") (result i64) (local $left i64) (local $value i64)
        (local.set $left (i64.load (i32.wrap_i64 (i64.load (i32.const 0x10010)))))
        (local.set $value (i64.const 88172645463325252))
        (loop $again
            (local.set $value (i64.add (i64.mul (local.get $value) (local.get $value))
                (i64.const 12345)))
            (local.set $left (i64.sub (local.get $left) (i64.const 1)))
            (br_if $again (i64.gt_s (local.get $left) (i64.const 0))))
        (i64.store (i32.wrap_i64 (i64.load (i32.const 0x10020))) (local.get $value))
        (i64.const 8)))"#;
const CALIBRATE: u64 = 20_000_000;

struct Burner {
    client: ActiveClient,
    region: RemoteRegion,
    module: ModuleHash,
}

impl Burner {
    fn new(host: &str, region: &str) -> Result<Self, Failure> {
        let (mut client, region) = connect(host, region, "block")?;
        // The first call loads it.
        let module = client.know("burn", &wat::parse_str(BURN)?)?;
        Ok(Self { client, region, module })
    }

    fn burn(&mut self, count: u64) -> Result<Duration, Failure> {
        let (began, args) = (Instant::now(), count.to_le_bytes());
        let call = ActiveCall::new(&self.region, self.module, "burn", &args);
        done(self.client.execute(&call)?)?;
        Ok(began.elapsed())
    }
}

/// Runs them for so long; prints how many modules were executed.
pub(crate) fn all(
    host: &str,
    region: &str,
    [clients, us, ms]: [&str; 3],
) -> Result<Value, Failure> {
    let (time, wanted) = (milliseconds(ms)?, us.parse::<f64>()? / 1e6);
    let mut first = Burner::new(host, region)?;
    first.burn(CALIBRATE)?;
    let took = first.burn(CALIBRATE)?.as_secs_f64();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    let count = (CALIBRATE as f64 * wanted / took) as u64;
    let run = || -> Result<u64, String> {
        let mut burner = Burner::new(host, region).map_err(|error| error.to_string())?;
        let (until, mut executed) = (Instant::now() + time, 0);
        while Instant::now() < until {
            burner.burn(count).map_err(|error| error.to_string())?;
            executed += 1;
        }
        Ok(executed)
    };
    let clients: usize = clients.parse()?;
    let executed = thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a panic".to_owned())?).sum()
    });
    let executed: Result<u64, String> = executed;
    Ok(json!({ "executed": executed?, "iterations": count, "calls_per_s": 0.0 }))
}
