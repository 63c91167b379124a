//! rping, as `rdma-core` has it: talks to the stock program on Linux's siw or on hardware, at
//! either end. Every iteration sends a buffer round: the server fetches it by RDMA Read and puts
//! it back by RDMA Write, and the client compares.
//!
//! ```text
//! rping server|client ADDRESS:PORT [--count N] [--size S] [--crc on|off] [-v]
//! ```
//!
//! Modules in reading order: [`protocol`] (messages and data), [`peer`] (one connection, used
//! step by step). The two roles are here.

mod peer;
mod protocol;

use outboard_verbs::{Access, ConnectParams, Context, Mr, Pd, Remote, SharedRegion};
use peer::Peer;
use protocol::{Advert, GO_AHEAD, ping_data};
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// What any step may fail with.
type Failure = Box<dyn Error>;

const USAGE: &str = "rping server|client ADDRESS:PORT [--count N] [--size S] [--crc on|off] [-v]; \
     for example, rping client 127.0.0.1:7174 --count 10 --size 4096 --crc on";

/// How long a server waits for its client.
const CLIENT_LIMIT: Duration = Duration::from_secs(120);

/// The command line.
struct Options {
    server: bool,
    address: SocketAddr,
    count: usize,
    /// Bytes in the client's buffer; a server learns it from the client.
    size: usize,
    crc: bool,
    verbose: bool,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rping: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, Failure> {
    let server = match words.next().as_deref() {
        Some("server") => true,
        Some("client") => false,
        _ => return Err(format!("usage: {USAGE}").into()),
    };
    let address = words.next().ok_or("the address is missing")?.parse()?;
    let mut options = Options { server, address, count: 1, size: 64, crc: true, verbose: false };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--count" => options.count = value()?.parse()?,
            "--size" => options.size = value()?.parse()?,
            "--crc" => options.crc = on_or_off(&value()?)?,
            "-v" => options.verbose = true,
            _ => return Err(format!("unknown option {word}; usage: {USAGE}").into()),
        }
    }
    if protocol::SIZES.contains(&options.size) {
        return Ok(options);
    }
    Err(format!("--size is {}; rping takes {:?}", options.size, protocol::SIZES).into())
}

fn on_or_off(word: &str) -> Result<bool, Failure> {
    match word {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("--crc is {word}; it must be on or off").into()),
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let context = Context::open()?;
    let pd = context.alloc_pd();
    let params = ConnectParams { crc: options.crc, ..ConnectParams::default() };
    if options.server {
        let listener = context.listen(options.address, 1)?;
        let request = listener.next_request(Some(CLIENT_LIMIT)).ok_or("no client came")?;
        let mut peer = Peer::new(&context, &pd)?;
        let connected = request.accept(&peer.qp, &params)?;
        print_negotiated(connected.crc);
        serve(&mut peer, options)
    } else {
        let mut peer = Peer::new(&context, &pd)?;
        let connected = peer.qp.connect(options.address, &params)?;
        print_negotiated(connected.crc);
        ping(&mut peer, &pd, options)
    }
}

fn print_negotiated(crc: bool) {
    println!("negotiated crc={}", if crc { "on" } else { "off" });
}

/// The server: fetches each buffer, checks it, puts it back.
fn serve(peer: &mut Peer, options: &Options) -> Result<(), Failure> {
    for ping in 0..options.count {
        let source = Advert::parse(&peer.receive()?)?;
        let data = peer.read(source.remote, source.size)?;
        if data != ping_data(ping, source.size) {
            return Err(format!("iteration {ping}: the data read is not rping's").into());
        }
        show(options, "server ping data", &data);
        peer.send(&GO_AHEAD)?;
        let sink = Advert::parse(&peer.receive()?)?;
        peer.write(sink.remote, data)?;
        peer.send(&GO_AHEAD)?;
    }
    peer.wait_for_end()
}

/// The client: offers a buffer to be read and one to be written, and compares.
fn ping(peer: &mut Peer, pd: &Pd, options: &Options) -> Result<(), Failure> {
    let size = options.size;
    let source = pd.register(SharedRegion::zeroed(size)?, Access::REMOTE_READ)?;
    let sink = pd.register(SharedRegion::zeroed(size)?, Access::REMOTE_WRITE)?;
    for ping in 0..options.count {
        let data = ping_data(ping, size);
        source.memory().copy_in(0, &data)?;
        sink.memory().copy_in(0, &vec![0xff; size])?;
        for mr in [&source, &sink] {
            peer.send(&advert(mr).to_bytes())?;
            peer.receive()?;
        }
        let echoed = sink.memory().snapshot(0..size)?;
        if echoed != data {
            return Err(format!("iteration {ping}: the data written is not what was read").into());
        }
        show(options, "ping data", &echoed);
    }
    peer.qp.disconnect();
    Ok(())
}

fn advert(mr: &Mr) -> Advert {
    Advert { remote: Remote { stag: mr.stag(), offset: mr.base() }, size: mr.len() }
}

fn show(options: &Options, what: &str, data: &[u8]) {
    if options.verbose {
        println!("{what}: {}", String::from_utf8_lossy(data).trim_end_matches('\0'));
    }
}
