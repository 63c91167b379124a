//! How a client works on a file system.

/// See this file's first lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsVariant {
    /// Whatever is looked up or changed is one execution next to the metadata.
    #[default]
    Active,
    /// What is changed is an execution; names and attributes are read one-sided, from a service
    /// that shows its region. The service checks no rights of what is read so.
    OneSided,
    /// Everything is done by one-sided Reads, Writes and CompareSwaps, on a volatile file system.
    Rdma,
}
