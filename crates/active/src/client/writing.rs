//! Executions at the client of entries that write: on pages of a node's region that are read when
//! they are touched, as `local` has them. What was written stays here, and is told: whoever asks
//! keeps others from changing the region meanwhile, and puts it there by plain verbs.

use super::local::{LocalEnd, LocalUse, PAGE, machine};
use super::{ActiveCall, ActiveClient, ActiveError, RegionVerb, RemoteRegion, VerbWhat};
use outboard_offcode::region::written_runs;
use outboard_offcode::{ModuleHash, Outcome};
use std::sync::PoisonError;

/// What an execution at the client came to.
#[derive(Clone, Debug)]
pub struct ClientExecution {
    /// Its outcome.
    pub outcome: Outcome,
    /// What it has written: where in the region, and the bytes. Nothing, unless it is done.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// Pages that it has touched, by their offsets.
    pub pages: Vec<usize>,
    /// Round trips that reading them took.
    pub trips: u64,
}

impl ActiveClient {
    /// Makes a module ready to be executed at this client, which takes seconds.
    ///
    /// # Errors
    /// [`ActiveError::Machine`]: this machine cannot, or the client does not [know](Self::know) it.
    pub fn prepare_here(&mut self, module: ModuleHash) -> Result<(), ActiveError> {
        let why = || format!("module {module} is not known at this client, or is none");
        let info = self.load_here(module, 0)?;
        info.map(drop).ok_or_else(|| ActiveError::Machine { why: why() })
    }

    /// Executes an entry at this client that may write, up to `write_max` bytes. Pages that it
    /// probably touches are read together beforehand, others one by one. Nobody else may change the
    /// region meanwhile.
    ///
    /// # Errors
    /// [`ActiveError::Machine`]: this machine cannot, or the client does not [know](Self::know) the
    /// module; as all calls.
    pub fn execute_to_write(
        &mut self,
        call: &ActiveCall<'_>,
        write_max: usize,
        pages: &[usize],
    ) -> Result<ClientExecution, ActiveError> {
        self.prepare_here(call.module)?;
        self.local()?.write_max = write_max;
        let before = self.read_pages(call.region, pages)?;
        let end = self.try_here(call, LocalUse::Writes(&before))?;
        let here = self.local()?.region(call.region)?;
        let (mut touched, known) = (here.touched.clone(), before.len());
        let single = touched.len().saturating_sub(known) as u64;
        let lines = here.written.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        touched.sort_unstable();
        touched.dedup();
        match end {
            LocalEnd::Done(outcome) => {
                let is_done = matches!(outcome, Outcome::Done { .. });
                let writes =
                    if is_done { written_runs(&lines).map_err(machine)? } else { <_>::default() };
                let trips = single + u64::from(known > 0);
                Ok(ClientExecution { outcome, writes, pages: touched, trips })
            }
            LocalEnd::Changed | LocalEnd::NotHere => {
                let why = "the entry cannot be executed at this client".into();
                Err(ActiveError::Machine { why })
            }
        }
    }

    fn read_pages(
        &mut self,
        region: &RemoteRegion,
        pages: &[usize],
    ) -> Result<Vec<(usize, Vec<u8>)>, ActiveError> {
        let len = usize::try_from(region.len()).unwrap_or(usize::MAX);
        let inside = || pages.iter().copied().filter(|at| *at < len);
        let verb = |at: usize| {
            let what = VerbWhat::Read(PAGE.min(len - at));
            RegionVerb { region, at: at as u64, what }
        };
        let verbs: Vec<_> = inside().map(verb).collect();
        Ok(inside().zip(self.verbs(&verbs)?).collect())
    }
}
