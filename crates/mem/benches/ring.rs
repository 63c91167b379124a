//! Measures rings between two threads on the two cores:
//! `cargo bench -p outboard-mem --bench ring -- [ROUNDS]`.
//! Prints one object of JSON; times in nanoseconds.
//!
//! Both sides spin, as channels do between cores that poll. Every figure is the median of the
//! rounds, with the tenth and ninetieth percentile beside it. No message is verified here.

use std::hint::spin_loop;
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::time::Instant;

use outboard_mem::ring::{
    ReceiveOutcome, RingFault, RingReceiver, RingSender, RingSpec, RingWake, SendOutcome,
    WakeBySocket,
};

/// Messages of a round of one way.
const STREAM: u32 = 2_000_000;
/// Messages that go and come back in a round.
const TURNS: u32 = 200_000;
/// Length of a small message in bytes.
const SMALL: usize = 64;
/// Length of a large message in bytes.
const LARGE: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Cargo adds `--bench`.
    let rounds = std::env::args().find_map(|word| word.parse::<usize>().ok()).unwrap_or(15);
    let small = RingSpec::new(256, 64)?;
    let large = RingSpec::new(16, 1 << 20)?;
    let stream_spec = RingSpec::new(1024, 64)?;
    let in_place = |len| move |a: &mut _, b: &mut _| turn_in_place(a, b, len);
    println!("{{");
    for (name, wakes) in [("may_sleep", Wakes::Sockets), ("only_poll", Wakes::None)] {
        let copied = sample(rounds, || turns(small, wakes, copied_turn))?;
        let small_in_place = sample(rounds, || turns(small, wakes, in_place(SMALL)))?;
        let large_in_place = sample(rounds, || turns(large, wakes, in_place(LARGE)))?;
        let stream = sample(rounds, || stream(stream_spec, wakes))?;
        println!("  \"{name}\": {{");
        println!("    \"half_round_trip_64_b_ns\": {copied},");
        println!("    \"half_round_trip_64_b_in_place_ns\": {small_in_place},");
        println!("    \"half_round_trip_1_mib_in_place_ns\": {large_in_place},");
        println!("    \"between_messages_one_way_64_b_ns\": {stream}");
        println!("  }}{}", if name == "only_poll" { "" } else { "," });
    }
    println!("}}");
    Ok(())
}

type Failed = Box<dyn std::error::Error>;

/// Median and percentiles of `rounds` figures, as JSON.
fn sample(rounds: usize, mut once: impl FnMut() -> Result<f64, Failed>) -> Result<String, Failed> {
    let mut found = (0..rounds.max(1)).map(|_| once()).collect::<Result<Vec<f64>, _>>()?;
    found.sort_by(f64::total_cmp);
    let at = |percent: usize| found[(found.len() - 1) * percent / 100];
    let (low, median, high) = (at(10), at(50), at(90));
    Ok(format!("{{ \"median\": {median:.1}, \"p10\": {low:.1}, \"p90\": {high:.1} }}"))
}

/// Whether the sides may sleep: then each looks after every message whether the other does.
#[derive(Clone, Copy)]
enum Wakes {
    None,
    Sockets,
}

/// The ends of a ring in one process.
fn pair(spec: RingSpec, wakes: Wakes) -> Result<(RingSender, RingReceiver), Failed> {
    let (sender, memfd) = RingSender::create(spec, wake(wakes)?)?;
    let receiver = RingReceiver::attach(&memfd, spec, wake(wakes)?)?;
    Ok((sender, receiver))
}

/// Nobody sleeps here, so that the other end of the socket may be closed.
fn wake(wakes: Wakes) -> Result<Option<Box<dyn RingWake>>, Failed> {
    Ok(match wakes {
        Wakes::None => None,
        Wakes::Sockets => Some(Box::new(WakeBySocket::new(UnixStream::pair()?.0)?)),
    })
}

/// Half a round trip: what `turn` does, taken in turns by two threads with a ring each way. It
/// receives a message, if it is given a receiver that has one, and sends it on.
fn turns(
    spec: RingSpec,
    wakes: Wakes,
    turn: impl Fn(&mut RingSender, &mut RingReceiver) -> Result<(), RingFault> + Sync,
) -> Result<f64, Failed> {
    let (mut to, mut at) = pair(spec, wakes)?;
    let (mut back, mut home) = pair(spec, wakes)?;
    let both = Barrier::new(2);
    let took = std::thread::scope(|threads| {
        let (turn, both) = (&turn, &both);
        let other = threads.spawn(move || {
            start_on(1, both);
            (0..TURNS).try_for_each(|_| turn(&mut back, &mut at))
        });
        let one = threads.spawn(move || {
            start_on(0, both);
            to.try_send(&[7; SMALL])?;
            let start = Instant::now();
            (1..TURNS).try_for_each(|_| turn(&mut to, &mut home))?;
            Ok::<_, RingFault>(start.elapsed())
        });
        other.join().map_err(|_| "a thread has failed")??;
        Ok::<_, Failed>(one.join().map_err(|_| "a thread has failed")??)
    })?;
    Ok(took.as_secs_f64() * 1e9 / f64::from(2 * (TURNS - 1)))
}

fn copied_turn(to: &mut RingSender, from: &mut RingReceiver) -> Result<(), RingFault> {
    let mut message = [0; SMALL];
    loop {
        if let Some(slot) = from.peek()? {
            slot.copy_out(0, &mut message).map_err(|_| RingFault::Missing)?;
            slot.release()?;
            break;
        }
        spin_loop();
    }
    while to.try_send(&message)? != SendOutcome::Sent {
        spin_loop();
    }
    Ok(())
}

/// The message's bytes stay where they are, as where a guest reads and writes them.
fn turn_in_place(
    to: &mut RingSender,
    from: &mut RingReceiver,
    len: usize,
) -> Result<(), RingFault> {
    loop {
        if let Some(slot) = from.peek()? {
            slot.release()?;
            break;
        }
        spin_loop();
    }
    loop {
        if let Some(slot) = to.reserve()? {
            slot.commit(len)?;
            return Ok(());
        }
        spin_loop();
    }
}

/// Time from one message to the next in a stream, copied in and out.
fn stream(spec: RingSpec, wakes: Wakes) -> Result<f64, Failed> {
    let (mut sender, mut receiver) = pair(spec, wakes)?;
    let both = Barrier::new(2);
    let took = std::thread::scope(|threads| {
        let both = &both;
        let sending = threads.spawn(move || {
            start_on(1, both);
            (0..STREAM).try_for_each(|_| send_one(&mut sender))
        });
        let receiving = threads.spawn(move || {
            start_on(0, both);
            let start = Instant::now();
            receive_all(&mut receiver)?;
            Ok::<_, RingFault>(start.elapsed())
        });
        sending.join().map_err(|_| "a thread has failed")??;
        Ok::<_, Failed>(receiving.join().map_err(|_| "a thread has failed")??)
    })?;
    Ok(took.as_secs_f64() * 1e9 / f64::from(STREAM))
}

fn send_one(sender: &mut RingSender) -> Result<(), RingFault> {
    while sender.try_send(&[7; SMALL])? != SendOutcome::Sent {
        spin_loop();
    }
    Ok(())
}

fn receive_all(receiver: &mut RingReceiver) -> Result<(), RingFault> {
    let mut message = Vec::new();
    let mut received = 0;
    while received < STREAM {
        match receiver.try_receive(&mut message)? {
            ReceiveOutcome::Received => received += 1,
            ReceiveOutcome::Empty => spin_loop(),
        }
    }
    Ok(())
}

/// Waits, on a processor of its own, until the other thread is there too.
fn start_on(processor: usize, both: &Barrier) {
    pin(processor);
    both.wait();
}

/// Keeps this thread on one processor; where there is none of this number, it runs anywhere.
fn pin(processor: usize) {
    // SAFETY: zeroes are an empty set; the number is below the set's 1024; the kernel only reads.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}
