//! Calls of entries that only read, executed at the node, here, or where the client library thinks
//! that they take less.

use crate::Failure;
use crate::calls::done;
use crate::list::ListWork;
use crate::scan;
use crate::session::connect;
use crate::shipped::{ROOT, ShippedModule};
use crate::table::TableWork;
use crate::timing::{Timing, milliseconds};
use outboard_active::{ActiveCall, CallPlace};
use outboard_active_apps::bytes::words;
use serde_json::{Value, json};

/// Bytes of the records that are scanned: more than the library reads at once.
const SCANNED: u64 = 1 << 20;

fn place(word: &str) -> Result<CallPlace, Failure> {
    match word {
        "remote" => Ok(CallPlace::Remote),
        "local" => Ok(CallPlace::Local),
        "auto" => Ok(CallPlace::Auto),
        _ => Err(format!("{word} is none of remote, local, auto").into()),
    }
}

/// Repeats `get` (a hash table), `hops` (100 of a list) or `top` (1 MiB of records).
pub(crate) fn run(
    [host, modules, wait]: [&str; 3],
    [place_word, what, ms]: [&str; 3],
) -> Result<Value, Failure> {
    let load =
        |region: &str, name| ShippedModule::load(connect(host, region, wait)?, modules, name);
    let (mut module, entry, args) = match what {
        "get" => {
            let work = TableWork::new(load("table", "table")?, 64)?;
            let mut args = words(&[ROOT]);
            args.extend(b"00000777");
            (work.module, "get", args)
        }
        "hops" => (ListWork::new(load("list", "list")?, 100)?.module, "at", words(&[ROOT, 100])),
        _ => (load("scan", "topk")?, "top", scan::args(SCANNED)),
    };
    let place = place(place_word)?;
    let (mut calls, mut here) = (0, 0);
    let timing = Timing::of(milliseconds(ms)?, || {
        let call = ActiveCall::new(&module.region, module.module, entry, &args);
        let (outcome, at) = module.client.execute_at(&call, place)?;
        calls += 1;
        here += u32::from(at == CallPlace::Local);
        done(outcome).map(drop)
    })?;
    let mut found = timing.json();
    found["share_here"] = json!(f64::from(here) / f64::from(calls));
    Ok(found)
}
