//! Entries that answer a fixed errno, and those that need no device (ibv_fork_init(3), ibv_read_sysfs_file).
