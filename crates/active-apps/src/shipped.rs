//! The shipped modules that this crate has clients for, as they were built.

use crate::error::AppError;
use outboard_active::{ActiveClient, ModuleHash};

/// A module that comes with Outboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppModule {
    /// `modules/list`.
    List,
    /// `modules/table`.
    Table,
    /// `modules/lock`.
    Lock,
    /// `modules/script`, which works on a table.
    Script,
    /// `modules/topk`.
    TopK,
}

/// What the others import.
const ALLOC: (&str, &[u8]) = ("alloc", include_bytes!("../../../modules/built/alloc.wasm"));
const TABLE: (&str, &[u8]) = ("table", include_bytes!("../../../modules/built/table.wasm"));

impl AppModule {
    fn file(self) -> (&'static str, &'static [u8]) {
        match self {
            Self::List => ("list", include_bytes!("../../../modules/built/list.wasm")),
            Self::Table => TABLE,
            Self::Lock => ("lock", include_bytes!("../../../modules/built/lock.wasm")),
            Self::Script => ("script", include_bytes!("../../../modules/built/script.wasm")),
            Self::TopK => ("topk", include_bytes!("../../../modules/built/topk.wasm")),
        }
    }

    /// Has the client know the module and what it imports: the node gets them with the first call
    /// that needs them, if it lacks them. No round trip.
    ///
    /// # Errors
    /// None that a caller causes.
    pub fn know(self, client: &mut ActiveClient) -> Result<ModuleHash, AppError> {
        let imports: &[(&str, &[u8])] = match self {
            Self::Table => &[ALLOC],
            Self::Script => &[ALLOC, TABLE],
            _ => &[],
        };
        for (name, bytes) in imports {
            client.know(name, bytes)?;
        }
        let (name, bytes) = self.file();
        Ok(client.know(name, bytes)?)
    }
}
