//! Why a module is not loaded.

use crate::hash::ModuleHash;

/// Why a module is refused: always its author's or loader's fault, except [`LoadError::Engine`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// It is larger, or has more of something, than is allowed.
    #[error("the module has {found} {what}, at most {limit} are allowed")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// How much it has.
        found: u64,
        /// How much it may have.
        limit: u64,
    },
    /// The bytes are no valid module of the allowed features.
    #[error("no valid WebAssembly module: {0}")]
    Invalid(String),
    /// It imports something that is neither a host call nor another module's.
    #[error(
        "import {module}.{field}: only ob.* (host calls), env.memory and its kind, and \
         NAME#HASH.FUNCTION (another module's) can be imported"
    )]
    Import {
        /// The import's module name.
        module: String,
        /// Its field.
        field: String,
    },
    /// A host call that does not exist, or of another type.
    #[error("host call ob.{field}{found}: {expected}")]
    HostCall {
        /// The name.
        field: String,
        /// The type that the module expects.
        found: String,
        /// What there is.
        expected: String,
    },
    /// It imports a module that is not loaded.
    #[error("it imports module {name}#{hash}, which is not loaded: load that one first")]
    Missing {
        /// The name that it uses.
        name: String,
        /// Which module.
        hash: ModuleHash,
    },
    /// It imports a function that the other module does not have.
    #[error("it imports {field}{expected} from module {name}, which has {found}")]
    Function {
        /// The name that it uses for the module.
        name: String,
        /// The function.
        field: String,
        /// The type that it expects.
        expected: String,
        /// What there is.
        found: String,
    },
    /// Its shape is none of the two that can be linked.
    #[error("{0}")]
    ModuleShape(String),
    /// The engine of this machine refused or failed.
    #[error("this machine cannot compile the module: {0}")]
    Engine(String),
}
