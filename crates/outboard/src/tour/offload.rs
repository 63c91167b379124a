//! The stop `offload`: the example of docs/offload.md, a packet filter that feeds a counter that
//! feeds a page, in this program and on a processor of its own. Its layout file alone is edited.

use super::{Guide, Trouble};
use crate::offload::{launch_options, layout};
use outboard_offload::device::PortSend;
use outboard_offload::launch::{Launched, launch};
use outboard_offload::runtime::{AppEnd, ApplicationHandle, OffcodeSnapshot};
use rustix::thread::{CpuSet, sched_getaffinity};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A file of the example.
macro_rules! example {
    ($file:literal) => {
        ($file, include_bytes!(concat!("../../../../modules/packets/", $file)).as_slice())
    };
}

const FILES: &[(&str, &[u8])] = &[
    example!("filter/offcode.toml"),
    example!("filter/filter.wasm"),
    example!("filter/wit/filter.wit"),
    example!("counter/offcode.toml"),
    example!("counter/counter.wasm"),
    example!("counter/wit/counter.wit"),
    example!("page/offcode.toml"),
    example!("page/page.wasm"),
    example!("page/wit/page.wit"),
];
const LAYOUT: &str = include_str!("../../../../modules/packets/host.toml");
const PACKETS: &str = include_str!("../../../../modules/packets/packets.txt");

/// How long packets are sent in each layout.
const MEASURED: Duration = Duration::from_secs(1);
/// How long the last of them may take.
const SETTLED: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);
/// Packets between looks at pages that have come, fewer than would fill a channel with pages.
const BETWEEN: usize = 64;

pub(super) fn show(guide: &Guide) -> Result<Value, Trouble> {
    let example = PacketsExample::new(guide)?;
    let mut figures = serde_json::Map::new();
    for (name, place) in [("host", "host".to_owned()), ("core", format!("core:{}", example.core))] {
        guide.goes_on()?;
        let flow = example.run(guide, &place)?;
        guide.say(&format!(
            "   {place:9} {:.0} packets/s; filter and counter {:.2} µs of processor time for \
             each, on {place}; {} pages",
            flow.per_s(),
            flow.offcodes_us(),
            flow.pages
        ));
        figures.insert(name.to_owned(), flow.figures());
    }
    guide.say(CLOSE);
    Ok(Value::Object(figures))
}

const CLOSE: &str =
    "   The program is the same: two lines of its layout file are not. The same code runs next
   to a node's memory as well: docs/offload.md, outboard offload --help";

/// The example's files in a directory of the tour.
struct PacketsExample {
    directory: PathBuf,
    /// The processor that offcodes have to themselves.
    core: usize,
}

/// What an application did with packets.
struct PacketFlow {
    packets: u64,
    passed: u64,
    pages: u64,
    took: Duration,
    busy_ns: u64,
}

impl PacketsExample {
    fn new(guide: &Guide) -> Result<Self, Trouble> {
        let directory = guide.place.directory("offload")?;
        for (name, bytes) in FILES {
            let path = directory.join(name);
            path.parent().map(fs::create_dir_all).transpose()?;
            fs::write(path, bytes)?;
        }
        let allowed = sched_getaffinity(None).map_err(std::io::Error::from)?;
        let core = (0..CpuSet::MAX_CPU).rev().find(|number| allowed.is_set(*number));
        let core = core.ok_or_else(|| Trouble::left_out("offload", "no processor to run on"))?;
        Ok(Self { directory, core })
    }

    /// The layout file with filter and counter on a device.
    fn layout_file(&self, place: &str) -> Result<PathBuf, Trouble> {
        let text = LAYOUT.replacen("on = \"host\"", &format!("on = \"{place}\""), 2);
        let text = format!("{text}\n[device]\ncores = [{}]\n", self.core);
        let path = self.directory.join(format!("{}.toml", place.replace(':', "-")));
        fs::write(&path, text)?;
        Ok(path)
    }

    fn run(&self, guide: &Guide, place: &str) -> Result<PacketFlow, Trouble> {
        let launched = start(&self.layout_file(place)?)?;
        let flow = PacketFlow::measured(guide, &launched.running.handle());
        launched.running.stop().map_err(|error| Trouble::failed("the application", error))?;
        flow
    }
}

fn start(file: &Path) -> Result<Launched, Trouble> {
    let layout = layout(file).map_err(|error| Trouble::failed("the layout", error))?;
    launch(&layout, &launch_options()?).map_err(|error| Trouble::failed("the application", error))
}

impl PacketFlow {
    fn measured(guide: &Guide, handle: &ApplicationHandle) -> Result<Self, Trouble> {
        let failed = |error| Trouble::failed("an end", error);
        let end = handle.end("packets").map_err(failed)?;
        let pages = handle.end("pages").map_err(failed)?;
        let lines: Vec<&str> = PACKETS.lines().collect();
        let mut flow = Self { packets: 0, passed: 0, pages: 0, took: Duration::ZERO, busy_ns: 0 };
        let began = Instant::now();
        while began.elapsed() < MEASURED {
            guide.goes_on()?;
            for line in lines.iter().cycle().skip(flow.offset(lines.len())).take(BETWEEN) {
                if end.send_within(line.as_bytes(), SETTLED) != PortSend::Taken {
                    return Err(Trouble::failed("a packet", "it finds no room"));
                }
            }
            flow.packets += BETWEEN as u64;
            flow.pages += drained(&pages);
        }
        flow.settle(guide, handle, &pages, began)?;
        Ok(flow)
    }

    /// The line of the input that is next.
    fn offset(&self, lines: usize) -> usize {
        usize::try_from(self.packets % lines.max(1) as u64).unwrap_or(0)
    }

    /// Waits until the counter has all that the filter has passed on.
    fn settle(
        &mut self,
        guide: &Guide,
        handle: &ApplicationHandle,
        pages: &AppEnd,
        began: Instant,
    ) -> Result<(), Trouble> {
        let failed = |error| Trouble::failed("the application", error);
        // Sending is over: what it took is known. Counters come with heartbeats.
        self.took = began.elapsed();
        let limit = Instant::now() + SETTLED;
        loop {
            guide.goes_on()?;
            self.pages += drained(pages);
            let snapshot = handle.snapshot().map_err(failed)?;
            let of = |name: &str| snapshot.offcodes.iter().find(|one| one.name == name);
            let (Some(filter), Some(counter)) = (of("filter"), of("counter")) else {
                return Err(Trouble::failed("the application", "an offcode has ended"));
            };
            if self.is_all(filter, counter) {
                return Ok(());
            }
            if Instant::now() > limit {
                return Err(Trouble::failed("the application", "packets have not arrived"));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn is_all(&mut self, filter: &OffcodeSnapshot, counter: &OffcodeSnapshot) -> bool {
        let (filter, counter) = (&filter.counters, &counter.counters);
        self.passed = counter.received;
        self.busy_ns = filter.busy_ns + counter.busy_ns;
        filter.received == self.packets && counter.received == filter.sent
    }

    fn per_s(&self) -> f64 {
        self.packets as f64 / self.took.as_secs_f64()
    }

    /// Processor time of filter and counter for a packet.
    fn offcodes_us(&self) -> f64 {
        self.busy_ns as f64 / 1000.0 / self.packets as f64
    }

    fn figures(&self) -> Value {
        json!({ "packets": self.packets, "passed": self.passed, "pages": self.pages,
                "packets_per_s": self.per_s(), "offcodes_us": self.offcodes_us() })
    }
}

/// Pages that have come.
fn drained(pages: &AppEnd) -> u64 {
    std::iter::from_fn(|| pages.receive()).map(|_page| 1).sum()
}
