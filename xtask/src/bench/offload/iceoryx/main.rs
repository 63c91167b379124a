//! The same turns and streams as `crates/mem/benches/ring.rs`, by iceoryx2: two threads on two
//! processors, both spinning, with its services for processes. Prints one object of JSON; times in
//! nanoseconds. `cargo xtask bench offload` builds it, outside of the workspace.

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::hint::spin_loop;
use std::sync::Barrier;
use std::time::Instant;

type Failed = Box<dyn std::error::Error + Send + Sync>;
/// Between processes: each thread opens the services for itself, as a process would.
type Kind = ipc::Service;
type Small = [u8; 64];
type From = Subscriber<Kind, Small, ()>;
type To = Publisher<Kind, Small, ()>;

const STREAM: u32 = 2_000_000;
const TURNS: u32 = 200_000;
/// Messages that a subscriber's queue holds: as the rings of `ring.rs`.
const TURN_DEPTH: usize = 256;
const STREAM_DEPTH: usize = 1024;

fn main() -> Result<(), Failed> {
    let turns = turns()?;
    let stream = stream()?;
    println!("{{\"half_round_trip_64_b_ns\":{turns:.1},");
    println!("\"between_messages_one_way_64_b_ns\":{stream:.1}}}");
    Ok(())
}

/// A service that never drops a message for a newer one.
fn service(what: &str, depth: usize) -> Result<(Node<Kind>, PortFactory<Kind, Small, ()>), Failed> {
    let node = NodeBuilder::new().create::<Kind>()?;
    let name = format!("outboard-bench/{}/{what}", std::process::id());
    let service = node
        .service_builder(&name.as_str().try_into()?)
        .publish_subscribe::<Small>()
        .enable_safe_overflow(false)
        .history_size(0)
        .max_publishers(1)
        .max_subscribers(1)
        .subscriber_max_buffer_size(depth)
        .subscriber_max_borrowed_samples(2)
        .open_or_create()?;
    Ok((node, service))
}

fn receive(from: &From) -> Result<Small, Failed> {
    loop {
        if let Some(sample) = from.receive()? {
            return Ok(*sample);
        }
        spin_loop();
    }
}

/// Until the receiver has it: if its queue is full, nobody has.
fn send(to: &To, message: Small) -> Result<(), Failed> {
    loop {
        let sample = to.loan_uninit()?.write_payload(message);
        if sample.send()? > 0 {
            return Ok(());
        }
        spin_loop();
    }
}

fn publisher(service: &PortFactory<Kind, Small, ()>) -> Result<To, Failed> {
    let builder = service.publisher_builder();
    Ok(builder.backpressure_strategy(BackpressureStrategy::DiscardData).create()?)
}

fn turns() -> Result<f64, Failed> {
    let both = Barrier::new(2);
    let took = std::thread::scope(|threads| {
        let both = &both;
        let other = threads.spawn(move || {
            let (there, back) = (service("there", TURN_DEPTH)?, service("back", TURN_DEPTH)?);
            let (at, back) = (there.1.subscriber_builder().create()?, publisher(&back.1)?);
            start_on(1, both)?;
            let turns = (0..TURNS).try_for_each(|_| send(&back, receive(&at)?));
            both.wait();
            turns
        });
        let one = threads.spawn(move || {
            let (there, back) = (service("there", TURN_DEPTH)?, service("back", TURN_DEPTH)?);
            let (to, home) = (publisher(&there.1)?, back.1.subscriber_builder().create()?);
            start_on(0, both)?;
            send(&to, [7; 64])?;
            let start = Instant::now();
            (1..TURNS).try_for_each(|_| send(&to, receive(&home)?))?;
            let took = start.elapsed();
            receive(&home)?;
            both.wait();
            Ok::<_, Failed>(took)
        });
        other.join().map_err(|_| "a thread has failed")??;
        one.join().map_err(|_| "a thread has failed")?
    })?;
    Ok(took.as_secs_f64() * 1e9 / f64::from(2 * (TURNS - 1)))
}

fn stream() -> Result<f64, Failed> {
    let both = Barrier::new(2);
    let took = std::thread::scope(|threads| {
        let both = &both;
        let sending = threads.spawn(move || {
            let stream = service("stream", STREAM_DEPTH)?;
            let to = publisher(&stream.1)?;
            start_on(1, both)?;
            let sent = (0..STREAM).try_for_each(|_| send(&to, [7; 64]));
            both.wait();
            sent
        });
        let receiving = threads.spawn(move || {
            let stream = service("stream", STREAM_DEPTH)?;
            let at = stream.1.subscriber_builder().create()?;
            start_on(0, both)?;
            let start = Instant::now();
            for _ in 0..STREAM {
                std::hint::black_box(receive(&at)?);
            }
            let took = start.elapsed();
            both.wait();
            Ok::<_, Failed>(took)
        });
        sending.join().map_err(|_| "a thread has failed")??;
        receiving.join().map_err(|_| "a thread has failed")?
    })?;
    Ok(took.as_secs_f64() * 1e9 / f64::from(STREAM))
}

/// Waits, on a processor of its own, until the other thread is there too.
fn start_on(processor: usize, both: &Barrier) -> Result<(), Failed> {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set)?;
    both.wait();
    Ok(())
}
