//! A simulation: clients, each with a processor and a link, and one node, whose engine and core
//! work at one thing at a time. What the clients ask for is done on the node's real region when
//! the engine or the core begins with it.

use super::costs::{Cores, Hardware, Prices, Work};
use super::kernel::Kernel;
use super::node::SimulatedNode;
use super::operation::{Moment, Operation, Program, Step};
use super::random::Random;
use super::resource::Resource;
use super::station::Station;

/// A piece of work for the node.
#[derive(Debug)]
struct Job {
    client: usize,
    kind: JobKind,
}

#[derive(Debug)]
enum JobKind {
    /// A request has arrived at the engine.
    Request(Operation),
    /// A request to execute has passed the engine.
    Execution(Operation),
    /// A result is to leave.
    Answer(Vec<u8>),
}

/// Who does a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Engine,
    Core,
}

#[derive(Debug)]
enum Event {
    /// A client's program goes on.
    Step { client: usize, answer: Option<Vec<u8>> },
    /// A job comes to the engine or the core.
    Job(Place, Job),
    /// The engine or the core can begin with something else.
    Free(Place),
    /// An answer goes on the link.
    Leave { client: usize, answer: Vec<u8> },
    /// An answer has passed the link.
    Arrive { client: usize, answer: Vec<u8> },
}

struct Client {
    program: Box<dyn Program>,
    processor: Resource,
    uplink: Resource,
    random: Random,
    answer: Option<Vec<u8>>,
    began_ns: u64,
}

/// What came of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Nanoseconds of each piece of work, in the order of their ends.
    pub took_ns: Vec<u64>,
    /// When each of them ended.
    pub ended_ns: Vec<u64>,
    /// Round trips of clients: operations that were waited for.
    pub round_trips: u64,
    /// Executions.
    pub executions: u64,
    /// How long engine and core were occupied.
    pub busy_ns: [f64; 2],
}

impl Measured {
    /// The middle of all times, in nanoseconds.
    #[must_use]
    pub fn median_ns(&self) -> u64 {
        let mut sorted = self.took_ns.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(0)
    }

    /// Pieces of work a second, when all clients are at it: the first third is not counted.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        let counted = &self.ended_ns[self.ended_ns.len() / 3..];
        let (Some(first), Some(last)) = (counted.first(), counted.last()) else { return 0.0 };
        (counted.len() - 1) as f64 * 1e9 / (last - first).max(1) as f64
    }

    /// When the last of them ended.
    #[must_use]
    pub fn within_ns(&self) -> u64 {
        self.ended_ns.last().copied().unwrap_or(0)
    }
}

/// No simulation goes on for longer, in nanoseconds.
const MOST_NS: u64 = 60_000_000_000;

/// See the [module](self).
pub struct Simulation<'a> {
    prices: Prices,
    node: &'a mut SimulatedNode,
    clients: Vec<Client>,
    kernel: Kernel<Event>,
    engine: Station<Job>,
    core: Station<Job>,
    downlink: Resource,
    measured: Measured,
}

impl std::fmt::Debug for Simulation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation").field("prices", &self.prices).finish_non_exhaustive()
    }
}

impl<'a> Simulation<'a> {
    /// A node, and a client for each program. A seed gives the same simulation again.
    #[must_use]
    pub fn new(
        prices: Prices,
        node: &'a mut SimulatedNode,
        programs: Vec<Box<dyn Program>>,
        seed: u64,
    ) -> Self {
        let mut seeds = Random::new(seed);
        let client = |program| Client {
            program,
            processor: Resource::default(),
            uplink: Resource::default(),
            random: Random::new(seeds.number()),
            answer: None,
            began_ns: 0,
        };
        Self {
            prices,
            node,
            clients: programs.into_iter().map(client).collect(),
            kernel: Kernel::default(),
            engine: Station::default(),
            core: Station::default(),
            downlink: Resource::default(),
            measured: Measured::default(),
        }
    }

    /// Lets everybody work until so many pieces of work have ended. Clients begin a little apart.
    ///
    /// # Panics
    /// When that takes longer than a minute of virtual time: somebody waits for ever.
    #[must_use]
    pub fn run(mut self, pieces: usize) -> Measured {
        let apart_ns = self.apart_ns();
        for client in 0..self.clients.len() {
            let apart_ns = self.clients[client].random.below(1 + apart_ns);
            let at_ns = if client == 0 { 0 } else { apart_ns };
            self.kernel.add(at_ns, Event::Step { client, answer: None });
        }
        while self.measured.took_ns.len() < pieces {
            let event = self.kernel.next_event().expect("somebody has something to do");
            assert!(self.kernel.now_ns() < MOST_NS, "somebody waits for ever");
            self.handle(event);
        }
        self.measured.busy_ns = [self.engine.busy_ns(), self.core.busy_ns()];
        self.measured
    }

    /// About a round trip, so that clients do not begin in step.
    fn apart_ns(&self) -> u64 {
        nanoseconds(2.0 * self.prices.hardware.delay_ns + self.prices.read(0).takes_ns)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Step { client, answer } => self.step(client, answer),
            Event::Job(place, job) => {
                if let Some(job) = self.station(place).arrive(job) {
                    self.begin(place, job);
                }
            }
            Event::Free(place) => {
                if let Some(job) = self.station(place).next_job() {
                    self.begin(place, job);
                }
            }
            Event::Leave { client, answer } => {
                let busy_ns = nanoseconds(self.prices.transmission_ns(answer.len()));
                let left_ns = self.downlink.serve(self.kernel.now_ns(), busy_ns);
                self.kernel.add(left_ns + self.delay_ns(), Event::Arrive { client, answer });
            }
            Event::Arrive { client, answer } => {
                let work_ns = nanoseconds(self.prices.client_receive_ns(answer.len()));
                let now_ns = self.kernel.now_ns();
                let at_ns = self.clients[client].processor.serve(now_ns, work_ns);
                self.kernel.add(at_ns, Event::Step { client, answer: Some(answer) });
            }
        }
    }

    fn delay_ns(&self) -> u64 {
        nanoseconds(self.prices.hardware.delay_ns)
    }

    fn station(&mut self, place: Place) -> &mut Station<Job> {
        match (place, self.prices.hardware.cores) {
            (Place::Core, Cores::Apart) => &mut self.core,
            _ => &mut self.engine,
        }
    }

    /// A client's program goes on until it waits for something.
    fn step(&mut self, client: usize, answer: Option<Vec<u8>>) {
        let now_ns = self.kernel.now_ns();
        let its = &mut self.clients[client];
        if answer.is_none() {
            its.began_ns = now_ns;
        }
        its.answer = answer;
        let (answer, random) = (its.answer.as_deref(), &mut its.random);
        match its.program.step(Moment { answer, now_ns, random }) {
            Step::Post(operations) => self.post(client, operations),
            Step::Compute(fuel) => {
                let work_ns = nanoseconds(self.prices.costs.fuel_ns * fuel as f64);
                let at_ns = its.processor.serve(now_ns, work_ns);
                let answer = its.answer.take();
                self.kernel.add(at_ns, Event::Step { client, answer });
            }
            Step::Finished => {
                self.measured.took_ns.push(now_ns - its.began_ns);
                self.measured.ended_ns.push(now_ns);
                self.kernel.add(now_ns, Event::Step { client, answer: None });
            }
        }
    }

    fn post(&mut self, client: usize, operations: Vec<Operation>) {
        let now_ns = self.kernel.now_ns();
        for operation in operations {
            self.measured.round_trips += u64::from(operation.is_answered());
            let bytes = operation.request_bytes();
            let its = &mut self.clients[client];
            let send_ns = nanoseconds(self.prices.client_send_ns(bytes));
            let sent_ns = its.processor.serve(now_ns, send_ns);
            let busy_ns = nanoseconds(self.prices.transmission_ns(bytes));
            let left_ns = its.uplink.serve(sent_ns, busy_ns);
            let job = Job { client, kind: JobKind::Request(operation) };
            self.kernel.add(left_ns + self.delay_ns(), Event::Job(Place::Engine, job));
        }
    }

    /// The engine or the core begins with a job: it takes effect now, and is seen when it is done.
    fn begin(&mut self, place: Place, job: Job) {
        let Job { client, kind } = job;
        let (work, next) = match kind {
            JobKind::Request(Operation::Execute(call)) => {
                let passed = self.prices.request(call.args.len());
                self.pass(client, Operation::Execute(call), passed)
            }
            JobKind::Request(operation) => self.verb(client, &operation),
            JobKind::Execution(operation) => {
                let (work, result) = self.execute(&operation);
                let kind = JobKind::Answer(result);
                (work, Some(Event::Job(Place::Engine, Job { client, kind })))
            }
            JobKind::Answer(answer) => {
                (self.prices.answer(answer.len()), Some(Event::Leave { client, answer }))
            }
        };
        let now_ns = self.kernel.now_ns();
        self.station(place).occupy(work.busy_ns);
        if let Some(next) = next {
            self.kernel.add(now_ns + nanoseconds(work.takes_ns), next);
        }
        self.kernel.add(now_ns + nanoseconds(work.busy_ns), Event::Free(place));
    }

    /// A request to execute has come. Where one processor does everything, it does so at once.
    fn pass(&mut self, client: usize, operation: Operation, passed: Work) -> (Work, Option<Event>) {
        match self.prices.hardware.cores {
            Cores::Apart => {
                let job = Job { client, kind: JobKind::Execution(operation) };
                (passed, Some(Event::Job(Place::Core, job)))
            }
            Cores::Shared => {
                let (executed, answer) = self.execute(&operation);
                let work = passed.then(executed).then(self.prices.answer(answer.len()));
                (work, Some(Event::Leave { client, answer }))
            }
        }
    }

    fn execute(&mut self, operation: &Operation) -> (Work, Vec<u8>) {
        let Operation::Execute(call) = operation else { panic!("{operation:?} on the core") };
        let (result, used) = self.node.execute(call, self.kernel.now_ns());
        self.measured.executions += 1;
        (self.prices.execution(used.fuel, used.lines), result)
    }

    fn verb(&mut self, client: usize, operation: &Operation) -> (Work, Option<Event>) {
        let answer = self.node.serve(operation);
        let work = match operation {
            Operation::Write { bytes, .. } => self.prices.write(bytes.len()),
            Operation::CompareSwap { .. } => self.prices.atomic(),
            _ => self.prices.read(answer.len()),
        };
        (work, operation.is_answered().then_some(Event::Leave { client, answer }))
    }
}

/// Whole nanoseconds of a time that is not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
pub(super) fn nanoseconds(ns: f64) -> u64 {
    ns.round() as u64
}

/// What one client's piece of work takes by the closed formula: nothing waits for anything else.
#[must_use]
pub fn closed_ns(prices: &Prices, posts: &[Posted]) -> f64 {
    posts.iter().map(|posted| posted.ns(prices)).sum()
}

/// One post of a program that nothing else delays, as the closed formula sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// A Read of so many bytes.
    Read(usize),
    /// A Write of so many bytes, and a CompareSwap behind it.
    WriteCompareSwap(usize),
    /// An execution.
    Execute {
        /// Bytes of its arguments.
        args: usize,
        /// Bytes of its result.
        result: usize,
        /// Its fuel.
        fuel: u64,
        /// Lines that it writes.
        lines: u64,
    },
}

impl Posted {
    fn ns(self, prices: &Prices) -> f64 {
        let Hardware { delay_ns, .. } = prices.hardware;
        let there_ns =
            |bytes| prices.client_send_ns(bytes) + prices.transmission_ns(bytes) + delay_ns;
        let back_ns =
            |bytes| prices.transmission_ns(bytes) + delay_ns + prices.client_receive_ns(bytes);
        match self {
            Self::Read(len) => there_ns(0) + prices.read(len).takes_ns + back_ns(len),
            Self::WriteCompareSwap(len) => {
                // The engine begins with the CompareSwap when it is there and the Write has made
                // room for it.
                let written_ns = there_ns(len) + prices.write(len).busy_ns;
                let sent_ns = prices.client_send_ns(len) + prices.client_send_ns(0);
                let there_ns = sent_ns + prices.transmission_ns(0) + delay_ns;
                written_ns.max(there_ns) + prices.atomic().takes_ns + back_ns(8)
            }
            Self::Execute { args, result, fuel, lines } => {
                let messages_ns = prices.request(args).takes_ns + prices.answer(result).takes_ns;
                let core_ns = prices.execution(fuel, lines).takes_ns;
                there_ns(args) + messages_ns + core_ns + back_ns(result)
            }
        }
    }
}
