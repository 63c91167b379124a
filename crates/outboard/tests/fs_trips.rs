//! What operations on a mounted file system cost in round trips, as the server counts them.

#[expect(dead_code, reason = "other tests use the rest")]
mod home;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "home/served.rs"]
mod served;

use home::Home;
use served::{Mounted, Served};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

/// Files that each operation is done with.
const FILES: u64 = 20;

/// Requests that a server has been sent for files: their number is that of the round trips.
fn requests(home: &Home, served: &Served) -> u64 {
    let told = home.told(&["status", &served.address, "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("json");
    let backend = &told[0]["status"]["services"][0]["report"]["backend"];
    let number = |name: &&str| backend[name].as_u64().unwrap_or_else(|| panic!("{backend}"));
    ["looks", "changes", "batches", "reads", "writes", "syncs"].iter().map(number).sum()
}

#[test]
fn operations_cost_the_round_trips_that_they_need() {
    let home = Home::new("fs-trips");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "rw");
    fs::create_dir(mounted.path("d")).expect("made");
    let path = |number: u64| mounted.path(&format!("d/f{number}"));
    let cost = |most: u64, about: &str, each: &dyn Fn(u64)| {
        let before = requests(&home, &served);
        (0..FILES).for_each(each);
        let cost = requests(&home, &served) - before;
        // Leases end meanwhile, on a busy machine.
        assert!(cost <= most * FILES + FILES / 4, "{about}: {cost} of {FILES}");
    };
    cost(2, "create, write, set, close", &|number| {
        let mut file = File::create(path(number)).expect("made");
        file.write_all(&[7; 4096]).expect("written");
        file.set_permissions(PermissionsExt::from_mode(0o640)).expect("set");
        file.set_modified(SystemTime::UNIX_EPOCH).expect("set");
    });
    cost(0, "stat, warm", &|number| {
        assert_eq!(fs::metadata(path(number)).expect("there").len(), 4096);
    });
    let read = |number| assert_eq!(fs::read(path(number)).expect("read"), [7; 4096]);
    cost(1, "open, read, close, warm", &read);
    drop(mounted);
    let mounted = Mounted::of(&home, &served, "cold", "rw");
    let path = |number: u64| mounted.path(&format!("d/f{number}"));
    let read = |number| assert_eq!(fs::read(path(number)).expect("read"), [7; 4096]);
    cost(2, "open, read, close, cold", &read);
}
