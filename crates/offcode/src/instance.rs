//! A warm instance: made once for a program, a region and a caller, and used for one execution
//! after another. Before each, its data and globals are as they were at first, and its stack is
//! zero as far as it was used.

use crate::abi::{CALL_BLOCK, CallBlock, DATA_START, STACK_END, STACK_TOP};
use crate::engine::{Bounding, Budget, Instance, Linked, WasmEngine};
use crate::host::Execution;
use crate::program::CallPlaces;
use crate::stop::Stop;
use outboard_mem::SharedRegion;

/// Bytes of stack that are looked at together.
const STACK_STEP: u32 = 1024;
/// As many zero bytes: comparing with them is many times faster than looking at each.
static ZEROES: [u8; STACK_STEP as usize] = [0; STACK_STEP as usize];
/// A stack is taken to be unused below this many zero bytes.
const STACK_UNUSED: u32 = 4 * STACK_STEP;

/// What an execution is called with.
#[derive(Clone, Copy, Debug)]
pub struct CallInput<'a> {
    /// The entry's name.
    pub entry: &'a str,
    /// Its arguments.
    pub args: &'a [u8],
    /// Bytes of a result that the caller takes.
    pub out_cap: u32,
    /// The times, the caller and the seed; the places are filled in.
    pub block: CallBlock,
    /// Whether it may write into the region.
    pub may_write: bool,
}

/// See this file's first lines.
#[derive(Debug)]
pub struct WarmInstance<I> {
    instance: I,
    /// The data of all modules, as the start functions left them.
    image: Vec<u8>,
    data_end: u32,
    /// Whether anything has been executed since the data were restored.
    is_used: bool,
    buffer: Vec<u8>,
}

impl<I: Instance> WarmInstance<I> {
    /// Makes an instance of a program on a region.
    ///
    /// # Errors
    /// [`Stop`]: a start function's fault, or this machine's.
    pub fn new<E: WasmEngine<Instance = I>>(
        engine: &E,
        program: &Linked<E::Module>,
        region: (&SharedRegion, usize),
        bound: (Bounding, &Budget),
    ) -> Result<Self, Stop> {
        let mut instance = engine.instantiate(program, region, bound)?;
        let data_end = program.data_end;
        let mut image = vec![0; (data_end - DATA_START) as usize];
        instance.scratch().read(DATA_START, &mut image);
        instance.restore_globals();
        Ok(Self { instance, image, data_end, is_used: false, buffer: Vec::new() })
    }

    /// Runs an entry. `None`: there is no such entry. What it has written is in its
    /// [`execution`](Self::execution); its result is appended to `result`.
    pub fn call(
        &mut self,
        input: &CallInput<'_>,
        budget: &Budget,
        result: &mut Vec<u8>,
    ) -> Option<Result<(), Stop>> {
        let places = CallPlaces::behind(self.data_end, input.args.len(), input.out_cap);
        let Some(places) = places else {
            let text = format!("{} bytes of arguments are too many", input.args.len());
            return Some(Err(Stop::Trap(text)));
        };
        self.restore();
        self.is_used = true;
        self.instance.execution().reset(input.may_write);
        let block = CallBlock {
            region_len: self.instance.execution().region().len() as u64,
            args: places.args,
            args_len: u32::try_from(input.args.len()).unwrap_or(u32::MAX),
            out: places.out,
            out_cap: places.out_cap,
            ..input.block
        };
        let scratch = self.instance.scratch();
        scratch.write(CALL_BLOCK, &block.bytes());
        scratch.write(places.args, input.args);
        let returned = match self.instance.call(input.entry, budget)? {
            Ok(returned) => returned,
            Err(stop) => return Some(Err(stop)),
        };
        Some(self.take(returned, places, result))
    }

    /// What is left of the latest call's fuel; `None` if fuel is not counted.
    #[must_use]
    pub fn fuel_left(&self) -> Option<u64> {
        self.instance.fuel_left()
    }

    /// What the latest execution has done.
    pub fn execution(&mut self) -> &mut Execution {
        self.instance.execution()
    }

    fn take(
        &mut self,
        returned: i64,
        places: CallPlaces,
        result: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let Ok(len) = u64::try_from(returned) else {
            let code = i32::try_from(returned).unwrap_or(i32::MIN);
            return Err(Stop::Failed { code, text: String::new() });
        };
        let Some(len) = usize::try_from(len).ok().filter(|len| *len <= places.out_cap as usize)
        else {
            return Err(Stop::Trap(format!(
                "the entry returned {len} as its result's length, and has room for {}",
                places.out_cap
            )));
        };
        let old = result.len();
        result.resize(old + len, 0);
        self.instance.scratch().read(places.out, &mut result[old..]);
        Ok(())
    }

    /// Makes everything as it was at first, but for arguments and results, whose places a call
    /// is told.
    fn restore(&mut self) {
        if !self.is_used {
            return;
        }
        self.instance.restore_globals();
        let scratch = self.instance.scratch();
        scratch.write(DATA_START, &self.image);
        let mut at = STACK_TOP;
        let mut unused = 0;
        while at > STACK_END && unused < STACK_UNUSED {
            at -= STACK_STEP;
            self.buffer.resize(STACK_STEP as usize, 0);
            scratch.read(at, &mut self.buffer);
            if self.buffer == ZEROES {
                unused += STACK_STEP;
                continue;
            }
            unused = 0;
            scratch.write(at, &ZEROES);
        }
        self.is_used = false;
    }
}
