//! The shipped modules three times: by the compiler, by the interpreter, and natively. Each
//! operation is executed by all and must come to the same.

use crate::interpreter::Interpreter;
use crate::native::{Came, MODULES, NativeModules, sources};
use outboard_offcode::executor::{Moment, Outcome};
use outboard_offcode::local::LocalRunner;
use outboard_offcode::{ModuleHash, WasmEngine, Wasmtime};
use std::collections::HashMap;
use std::path::Path;

/// See the [module](self).
pub(crate) struct Sides {
    native: NativeModules,
    compiled: LocalRunner<Wasmtime>,
    interpreted: LocalRunner<Interpreter>,
    hashes: HashMap<&'static str, ModuleHash>,
    region_len: usize,
    seed: u64,
    now_ns: u64,
}

fn load<E: WasmEngine>(runner: &LocalRunner<E>) -> HashMap<&'static str, ModuleHash> {
    let load = |name: &'static str| {
        let bytes = std::fs::read(sources().join(format!("built/{name}.wasm")));
        let info = runner.load(name, &bytes.expect("a built module"));
        (name, info.unwrap_or_else(|error| panic!("{name}: {error}")).hash)
    };
    MODULES.into_iter().map(load).collect()
}

fn came(outcome: Outcome) -> Came {
    match outcome {
        Outcome::Done { result, .. } => Came::Done(result),
        Outcome::Failed { code, text } => Came::Failed(code, text),
        Outcome::Trap(_) => Came::Trap,
        other => panic!("{other:?}"),
    }
}

impl Sides {
    /// All three, each with a region of so many zero bytes.
    pub(crate) fn new(region_len: usize) -> Self {
        let native = NativeModules::start(region_len);
        // Compiled once for all tests, each of which may be a process of its own.
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("modules");
        let engine = Wasmtime::new(Some(&cache)).expect("an engine");
        let compiled = LocalRunner::new(engine, region_len);
        let interpreted = LocalRunner::new(Interpreter::default(), region_len);
        let (compiled, interpreted) = (compiled.expect("a region"), interpreted.expect("a region"));
        let hashes = load(&compiled);
        assert_eq!(hashes, load(&interpreted));
        Self { native, compiled, interpreted, hashes, region_len, seed: 0, now_ns: 0 }
    }

    /// What time it is from now on.
    pub(crate) fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Executes an entry `MODULE.ENTRY` on each side.
    pub(crate) fn execute(&mut self, name: &str, args: &[u8]) -> Came {
        self.seed += 1;
        let (now_ns, seed) = (self.now_ns, self.seed);
        let moment = Some(Moment { monotonic_ns: now_ns, wall_ns: now_ns, seed });
        self.native.set_time(now_ns, seed);
        self.compiled.set_moment(moment);
        self.interpreted.set_moment(moment);
        let (module, entry) = name.split_once('.').expect("a module and an entry");
        let hash = self.hashes[module];
        let native = self.native.execute(name, args);
        let compiled = came(self.compiled.execute(hash, entry, args));
        let interpreted = came(self.interpreted.execute(hash, entry, args));
        assert_eq!(native, compiled, "natively and compiled: {name} {args:x?}");
        assert_eq!(interpreted, compiled, "interpreted and compiled: {name} {args:x?}");
        compiled
    }

    /// Executes an entry that succeeds.
    pub(crate) fn done(&mut self, name: &str, args: &[u8]) -> Vec<u8> {
        match self.execute(name, args) {
            Came::Done(result) => result,
            other => panic!("{name} {args:x?}: {other:?}"),
        }
    }

    /// Executes an entry that succeeds, and whose result is one number.
    pub(crate) fn number(&mut self, name: &str, args: &[u8]) -> u64 {
        word(&self.done(name, args), 0)
    }

    /// Executes an entry that fails; its code.
    pub(crate) fn failure(&mut self, name: &str, args: &[u8]) -> i32 {
        match self.execute(name, args) {
            Came::Failed(code, _) => code,
            other => panic!("{name} {args:x?}: {other:?}"),
        }
    }

    /// Whether a client may execute an entry, because it does not write.
    pub(crate) fn is_read_only(&self, module: &str, entry: &str) -> bool {
        let bytes = std::fs::read(sources().join(format!("built/{module}.wasm")));
        let info = self.compiled.load(module, &bytes.expect("a built module")).expect("loaded");
        !info.exports[entry].writes
    }

    /// The region's bytes, which are the same on each side.
    pub(crate) fn region(&mut self) -> Vec<u8> {
        let compiled = self.compiled.region().snapshot().expect("memory");
        let interpreted = self.interpreted.region().snapshot().expect("memory");
        assert!(compiled[..self.region_len] == interpreted[..self.region_len]);
        assert!(compiled[..self.region_len] == self.native.read(0, self.region_len));
        compiled
    }

    /// Makes all bytes zero, as peers could.
    pub(crate) fn clear(&mut self) {
        let zeroes = vec![0; self.region_len];
        self.native.clear(self.region_len);
        self.compiled.region().memory().copy_in(0, &zeroes).expect("inside");
        self.interpreted.region().memory().copy_in(0, &zeroes).expect("inside");
    }

    /// Writes as a peer does.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let at = usize::try_from(offset).expect("small");
        self.native.write(at, bytes);
        self.compiled.region().memory().copy_in(at, bytes).expect("inside");
        self.interpreted.region().memory().copy_in(at, bytes).expect("inside");
    }
}

/// Words one behind the other, then bytes.
pub(crate) fn args(words: &[u64], bytes: &[u8]) -> Vec<u8> {
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    words.chain(bytes.iter().copied()).collect()
}

/// A word of a result or a region.
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
