//! The modules of all tenants: read, compiled and linked once, whoever loads them. A tenant has the
//! modules that it has loaded, and the operator's; of others it learns nothing.

use crate::engine::{Bounding, Linked, WasmEngine};
use crate::error::LoadError;
use crate::hash::ModuleHash;
use crate::inspect::{ModuleImport, ModuleInfo, ModuleLimits, inspect};
use crate::low_priority::LowPriority;
use crate::program::{ProgramPart, link};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An identity with modules of its own: a node's or user's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TenantId(pub [u8; 32]);

impl fmt::Debug for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TenantId({})", ModuleHash(self.0))
    }
}

/// How much a tenant may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Modules.
    pub modules: usize,
    /// Bytes of all its modules.
    pub bytes: usize,
    /// Of one module.
    pub module: ModuleLimits,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self { modules: 256, bytes: 64 << 20, module: ModuleLimits::default() }
    }
}

/// A module that a tenant has.
#[derive(Clone, Debug)]
pub struct OwnedModule {
    /// The name under which it was loaded; for people.
    pub name: String,
    /// What is known of it.
    pub info: Arc<ModuleInfo>,
}

/// See this file's first lines.
pub struct ModuleStore<E: WasmEngine> {
    engine: Arc<E>,
    limits: StoreLimits,
    /// Who compiles tenants' modules, if not the thread that loads.
    compilers: Option<LowPriority>,
    state: Mutex<State<E>>,
    /// Grows when somebody loses a module.
    drops: AtomicU64,
}

struct State<E: WasmEngine> {
    modules: HashMap<ModuleHash, Stored<E>>,
    tenants: HashMap<TenantId, Modules>,
    operator: Modules,
    programs: HashMap<(ModuleHash, Bounding), Arc<Linked<E::Module>>>,
}

/// What one tenant has: names by hash.
type Modules = BTreeMap<ModuleHash, String>;

struct Stored<E: WasmEngine> {
    info: Arc<ModuleInfo>,
    fuel: Arc<E::Module>,
    time: Arc<E::Module>,
    /// Tenants that have it, and stored modules that import it.
    holders: usize,
}

/// A module, read and compiled for both bounds.
struct Compiled<M> {
    info: Arc<ModuleInfo>,
    fuel: Arc<M>,
    time: Arc<M>,
}

impl<E: WasmEngine> fmt::Debug for ModuleStore<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModuleStore").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl<E: WasmEngine> ModuleStore<E> {
    /// A store without modules.
    #[must_use]
    pub fn new(engine: Arc<E>, limits: StoreLimits) -> Self {
        let state = State {
            modules: HashMap::new(),
            tenants: HashMap::new(),
            operator: Modules::new(),
            programs: HashMap::new(),
        };
        let (state, drops) = (Mutex::new(state), AtomicU64::new(0));
        Self { engine, limits, compilers: None, state, drops }
    }

    /// The same store, for which these threads compile tenants' modules; the thread that loads the
    /// operator's compiles them.
    #[must_use]
    pub fn with_compilers(self, compilers: LowPriority) -> Self {
        Self { compilers: Some(compilers), ..self }
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Arc<E> {
        &self.engine
    }

    /// Loads a module for a tenant, or for everybody: `None` is the operator. Reads and compiles
    /// it, which takes time. A module that is loaded already costs nothing.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(
        &self,
        tenant: Option<TenantId>,
        name: &str,
        bytes: &[u8],
    ) -> Result<Arc<ModuleInfo>, LoadError> {
        let limit = self.limits.module.bytes as u64;
        if bytes.len() as u64 > limit {
            let found = bytes.len() as u64;
            return Err(LoadError::TooMuch { what: "bytes", found, limit });
        }
        let hash = ModuleHash::of(bytes);
        if let Some(info) = self.adopt(tenant, name, hash, bytes.len())? {
            return Ok(info);
        }
        let known = self.infos(tenant);
        let compile = || self.compile(&known, bytes);
        let compilers = self.compilers.as_ref().filter(|_| tenant.is_some());
        let Compiled { info, fuel, time } = match compilers {
            Some(low) => low.run(compile)?,
            None => compile()?,
        };
        let mut state = self.lock();
        let part = ProgramPart { info: Arc::clone(&info), module: Arc::clone(&fuel) };
        link(
            &hash,
            |of| if *of == hash { Some(part.clone()) } else { state.part(of, Bounding::Fuel) },
        )?;
        // Another thread may have loaded it meanwhile.
        if !state.modules.contains_key(&hash) {
            for import in imported(&info) {
                if let Some(stored) = state.modules.get_mut(&import) {
                    stored.holders += 1;
                }
            }
            let stored = Stored { info: Arc::clone(&info), fuel, time, holders: 0 };
            state.modules.insert(hash, stored);
        }
        drop(state);
        let adopted = self.adopt(tenant, name, hash, bytes.len());
        if adopted.is_err() {
            self.lock().release_unheld(hash);
        }
        adopted.map(|_| info)
    }

    /// Reads and compiles a module, which takes time.
    fn compile(
        &self,
        known: &HashMap<ModuleHash, Arc<ModuleInfo>>,
        bytes: &[u8],
    ) -> Result<Compiled<E::Module>, LoadError> {
        let export = |hash: &ModuleHash, field: &str| {
            known.get(hash).map(|info| info.exports.get(field).cloned())
        };
        let info = Arc::new(inspect(bytes, &self.limits.module, export)?);
        let compile = |bound| self.engine.compile(bytes, bound).map(Arc::new);
        Ok(Compiled { info, fuel: compile(Bounding::Fuel)?, time: compile(Bounding::Time)? })
    }

    /// Gives a tenant a module that is stored, if it has what that imports; `None` if it is not.
    fn adopt(
        &self,
        tenant: Option<TenantId>,
        name: &str,
        hash: ModuleHash,
        len: usize,
    ) -> Result<Option<Arc<ModuleInfo>>, LoadError> {
        let mut state = self.lock();
        // Who has a module's bytes must not get by them what another tenant has loaded.
        let imports = state.modules.get(&hash).into_iter().flat_map(|stored| &stored.info.imports);
        let is_missing = |import: &&ModuleImport| !state.has(tenant, &import.hash);
        if let Some(import) = imports.into_iter().find(is_missing) {
            return Err(LoadError::Missing { name: import.name.clone(), hash: import.hash });
        }
        let State { modules, tenants, operator, .. } = &mut *state;
        let own = match tenant {
            Some(tenant) => tenants.entry(tenant).or_default(),
            None => operator,
        };
        if !own.contains_key(&hash) && tenant.is_some() {
            let too_much = |what, found: usize, limit: usize| {
                let (found, limit) = (found as u64, limit as u64);
                if found > limit { Err(LoadError::TooMuch { what, found, limit }) } else { Ok(()) }
            };
            let bytes = own.keys().filter_map(|hash| modules.get(hash)).map(|one| one.info.len);
            too_much("modules of one tenant", own.len() + 1, self.limits.modules)?;
            let bytes = bytes.sum::<usize>() + len;
            too_much("bytes of modules of one tenant", bytes, self.limits.bytes)?;
        }
        let Some(stored) = modules.get_mut(&hash) else { return Ok(None) };
        if own.insert(hash, name.to_owned()).is_none() {
            stored.holders += 1;
        }
        Ok(Some(Arc::clone(&stored.info)))
    }

    /// What is known of the modules that a tenant may import.
    fn infos(&self, tenant: Option<TenantId>) -> HashMap<ModuleHash, Arc<ModuleInfo>> {
        let state = self.lock();
        let own = tenant.and_then(|tenant| state.tenants.get(&tenant)).into_iter().flatten();
        let hashes = state.operator.iter().chain(own).map(|(hash, _)| *hash);
        let known = |hash| Some((hash, Arc::clone(&state.modules.get(&hash)?.info)));
        hashes.filter_map(known).collect()
    }

    /// A module that a tenant may execute.
    #[must_use]
    pub fn find(&self, tenant: TenantId, hash: &ModuleHash) -> Option<Arc<ModuleInfo>> {
        let state = self.lock();
        let stored = state.modules.get(hash).filter(|_| state.has(Some(tenant), hash))?;
        Some(Arc::clone(&stored.info))
    }

    /// The modules that a tenant has, and the operator's.
    #[must_use]
    pub fn list(&self, tenant: TenantId) -> Vec<OwnedModule> {
        let state = self.lock();
        let own = state.tenants.get(&tenant).into_iter().flatten();
        let all: BTreeMap<_, _> = state.operator.iter().chain(own).collect();
        let describe = |(hash, name): (&ModuleHash, &String)| {
            let info = Arc::clone(&state.modules.get(hash)?.info);
            Some(OwnedModule { name: name.clone(), info })
        };
        all.into_iter().filter_map(describe).collect()
    }

    /// Takes a module from a tenant; false if it has none of that hash. Executions under way end
    /// as they would have.
    pub fn drop_module(&self, tenant: TenantId, hash: &ModuleHash) -> bool {
        let mut state = self.lock();
        let Some(own) = state.tenants.get_mut(&tenant) else { return false };
        let is_gone = own.remove(hash).is_some();
        if own.is_empty() {
            state.tenants.remove(&tenant);
        }
        if is_gone {
            state.release(*hash);
            self.drops.fetch_add(1, Ordering::Release);
        }
        is_gone
    }

    /// How often anybody has lost a module: what is kept for executions is looked at again then.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.drops.load(Ordering::Acquire)
    }

    /// A linked program, for a tenant that has its module.
    ///
    /// # Errors
    /// [`LoadError::Missing`].
    pub fn program(
        &self,
        tenant: TenantId,
        hash: &ModuleHash,
        bound: Bounding,
    ) -> Result<Arc<Linked<E::Module>>, LoadError> {
        let mut state = self.lock();
        if !state.has(Some(tenant), hash) {
            return Err(LoadError::Missing { name: String::new(), hash: *hash });
        }
        if let Some(program) = state.programs.get(&(*hash, bound)) {
            return Ok(Arc::clone(program));
        }
        let program = Arc::new(link(hash, |hash| state.part(hash, bound))?);
        state.programs.insert((*hash, bound), Arc::clone(&program));
        Ok(program)
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: WasmEngine> State<E> {
    fn has(&self, tenant: Option<TenantId>, hash: &ModuleHash) -> bool {
        let own = tenant.and_then(|tenant| self.tenants.get(&tenant));
        self.operator.contains_key(hash) || own.is_some_and(|own| own.contains_key(hash))
    }

    fn part(&self, hash: &ModuleHash, bound: Bounding) -> Option<ProgramPart<E::Module>> {
        let stored = self.modules.get(hash)?;
        let module = match bound {
            Bounding::Fuel => &stored.fuel,
            Bounding::Time => &stored.time,
        };
        Some(ProgramPart { info: Arc::clone(&stored.info), module: Arc::clone(module) })
    }

    /// A module that was stored for a tenant that may not have it goes again.
    fn release_unheld(&mut self, hash: ModuleHash) {
        if self.modules.get(&hash).is_some_and(|stored| stored.holders == 0) {
            self.release(hash);
        }
    }

    /// One holder less; what nobody holds goes, and what only that imported.
    fn release(&mut self, hash: ModuleHash) {
        let mut open = vec![hash];
        while let Some(hash) = open.pop() {
            let Some(stored) = self.modules.get_mut(&hash) else { continue };
            stored.holders = stored.holders.saturating_sub(1);
            if stored.holders > 0 {
                continue;
            }
            if let Some(gone) = self.modules.remove(&hash) {
                open.extend(imported(&gone.info));
            }
            for bound in [Bounding::Fuel, Bounding::Time] {
                self.programs.remove(&(hash, bound));
            }
        }
    }
}

/// The modules that a module imports, once each.
fn imported(info: &ModuleInfo) -> Vec<ModuleHash> {
    let mut hashes: Vec<ModuleHash> = info.imports.iter().map(|import| import.hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::wasmtime::Wasmtime;
    use std::thread;

    const ONE: TenantId = TenantId([1; 32]);
    const OTHER: TenantId = TenantId([2; 32]);

    fn store(limits: StoreLimits) -> ModuleStore<Wasmtime> {
        ModuleStore::new(Arc::new(Wasmtime::new(None).expect("an engine")), limits)
    }

    fn constant(value: u64) -> Vec<u8> {
        let text = format!(
            r#"(module (import "env" "memory" (memory 1))
                (func (export "value") (result i64) (i64.const {value})))"#
        );
        wat::parse_str(text).expect("legal text")
    }

    #[test]
    fn what_a_module_imports_a_tenant_must_have_loaded_itself() {
        let alloc = include_bytes!("../../../modules/built/alloc.wasm");
        // It imports the allocator.
        let table = include_bytes!("../../../modules/built/table.wasm");
        let store = store(StoreLimits::default());
        let hash = store.load(Some(ONE), "alloc", alloc).expect("loaded").hash;
        let refused = |tenant| match store.load(Some(tenant), "table", table) {
            Err(LoadError::Missing { hash: missing, .. }) => missing == hash,
            _ => false,
        };
        assert!(refused(OTHER), "nobody has loaded it");
        store.load(Some(ONE), "table", table).expect("loaded");
        assert!(refused(OTHER), "another one has");
        store.load(Some(OTHER), "alloc", alloc).expect("loaded");
        store.load(Some(OTHER), "table", table).expect("loaded");
    }

    #[test]
    fn what_is_refused_after_it_was_compiled_is_not_kept() {
        let store = store(StoreLimits { modules: 1, ..StoreLimits::default() });
        let mut refused = 0;
        for round in 0..20_u64 {
            // Both have room at first.
            let loaded = thread::scope(|scope| {
                let load = |value| {
                    let bytes = constant(2 * round + value);
                    let store = &store;
                    scope.spawn(move || store.load(Some(ONE), "one", &bytes).ok())
                };
                [load(0), load(1)].map(|thread| thread.join().expect("no panic"))
            });
            refused += loaded.iter().filter(|info| info.is_none()).count();
            let held = loaded.iter().flatten().filter(|info| store.drop_module(ONE, &info.hash));
            assert_eq!(held.count(), 1, "round {round}");
            assert_eq!(store.lock().modules.len(), 0, "round {round}");
        }
        assert!(refused > 0);
    }
}
