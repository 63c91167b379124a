//! Why an execution ended before its entry returned.

/// Why an execution stopped. Its write set is dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The fuel of the service's loop is used up: it goes on elsewhere, from the beginning.
    #[error("the execution takes longer than the service's loop allows")]
    OutOfFuel,
    /// Its time is over.
    #[error("the execution took longer than its time limit")]
    Timeout,
    /// It was killed.
    #[error("the execution was killed")]
    Killed,
    /// The module said so, by the host call `fail`.
    #[error("the module failed with {code}: {text}")]
    Failed {
        /// The module's own number.
        code: i32,
        /// Its own words.
        text: String,
    },
    /// A fault of the module: what, and where.
    #[error("{0}")]
    Trap(String),
    /// It wrote where it may only read.
    #[error("the module writes, and this execution may only read")]
    ReadOnly,
    /// A page of the region could not be had: at a client, whose connection failed.
    #[error("this machine: {0}")]
    Machine(String),
}
