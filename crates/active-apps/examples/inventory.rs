//! An inventory that several shops sell from: a hash table, and a lock under which it is changed.
//! `cargo run -p outboard-active-apps --example inventory -- HOST REGION`, with the key of the
//! node.

use outboard_active::protocol::SERVICE;
use outboard_active::{ActiveClient, ActiveClientOptions, DialActive, RemoteRegion};
use outboard_active_apps::{
    ActiveHashTable, ActiveLock, AppError, LockAnswer, PlainHashTable, create_locks,
};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::HostList;
use outboard_verbs::Context;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

const LOCKS: u64 = 0;
const ITEMS: u64 = 4096;
const LEASE: Duration = Duration::from_secs(2);

fn connect(host: &str, region: &str) -> Result<(ActiveClient, RemoteRegion), Box<dyn Error>> {
    let hosts: HostList = host.parse()?;
    let host = hosts.hosts().first().cloned().ok_or("name a node")?;
    let dialer = Dialer::from_environment(|name| std::env::var_os(name), &[SERVICE.parse()?])?;
    let dial: DialActive = Box::new(move |limit| {
        let service = SERVICE.parse().map_err(|_| "the service has no name")?;
        let dialled = dialer.dial(&host, &service, Instant::now() + limit);
        dialled.map_err(|error| error.to_string())
    });
    let mut client =
        ActiveClient::connect(&Context::open()?, dial, ActiveClientOptions::default())?;
    let region = client.attach(region)?;
    Ok((client, region))
}

/// Sells apples until there are none; how many.
fn shop(client: &mut ActiveClient, region: &RemoteRegion, owner: u64) -> Result<u32, AppError> {
    let mut lock = ActiveLock::open(client, region, LOCKS, b"inventory")?;
    let mut items = ActiveHashTable::open(client, region, ITEMS)?;
    let mut sold = 0;
    loop {
        let LockAnswer::Granted(grant) = lock.acquire(client, owner, LEASE)? else {
            thread::sleep(Duration::from_micros(200));
            continue;
        };
        let left = items.get(client, b"apples")?.and_then(|left| left.first().copied());
        let left = left.unwrap_or(0);
        if left > 0 {
            items.put(client, b"apples", &[left - 1])?;
            sold += 1;
        }
        lock.release(client, &grant)?;
        if left == 0 {
            return Ok(sold);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [host, name] = &words[..] else { return Err("name a node and a region".into()) };
    let (mut client, region) = connect(host, name)?;
    create_locks(&mut client, &region, LOCKS, 16)?;
    ActiveHashTable::create(&mut client, &region, ITEMS..region.len(), 4)?.put(
        &mut client,
        b"apples",
        &[200],
    )?;
    let sell = |owner| -> Result<u32, String> {
        let (mut client, region) = connect(host, name).map_err(|error| error.to_string())?;
        shop(&mut client, &region, owner).map_err(|error| error.to_string())
    };
    let sold: Vec<_> = thread::scope(|scope| {
        let shops: Vec<_> = (1..=3).map(|owner| scope.spawn(move || sell(owner))).collect();
        shops.into_iter().map(|shop| shop.join().expect("no panic")).collect()
    });
    let sold = sold.into_iter().collect::<Result<Vec<u32>, String>>()?;
    let mut plain = PlainHashTable::open(&mut client, &region, ITEMS)?;
    println!("sold in all: {}", sold.iter().sum::<u32>());
    println!("left, by a Read: {:?}", plain.get(&mut client, b"apples")?);
    Ok(())
}
