//! shim
use crate::args::{Job, Reason};
use std::path::PathBuf;
use std::sync::Arc;
#[derive(Default)]
pub(crate) struct Toolchains;
pub(crate) struct Toolchain;
impl Toolchain { pub(crate) fn hash(&self) -> [u8; 32] { [0; 32] } pub(crate) fn directories(&self) -> Vec<PathBuf> { Vec::new() } }
impl Toolchains { pub(crate) fn of(&mut self, _job: &Job) -> Result<Arc<Toolchain>, Reason> { Ok(Arc::new(Toolchain)) } }
