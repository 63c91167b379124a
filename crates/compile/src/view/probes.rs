//! Paths that compilers, their loader and their C library look up by themselves without an effect
//! on their output: they are absent in a view, whether or not the client has them.
//!
//! A path belongs here only if no source file includes it. For every other path outside what the
//! client exports, the client is asked.

/// A path with all beneath it (a star stands for any bytes of one name); which program looks there,
/// and for what.
pub(super) const OWN_PROBES: &[(&str, &str)] = &[
    ("/etc/ld.so.cache", "the loader: every library of a toolchain is where it looks next"),
    ("/etc/ld.so.preload", "the loader"),
    ("/etc/ld.so.nohwcap", "loaders before glibc 2.33"),
    ("/etc/locale.alias", "the C library, aliases of locales"),
    ("/etc/lsb-release", "clang's driver, which distribution this is: it matters to linking"),
    ("/etc/os-release", "the same"),
    ("/usr/lib/os-release", "the same"),
    ("/etc/redhat-release", "the same"),
    ("/etc/debian_version", "the same"),
    ("/etc/SuSE-release", "the same"),
    ("/etc/alpine-release", "the same"),
    ("/etc/arch-release", "the same"),
    ("/etc/gentoo-release", "the same"),
    ("/usr/share/locale", "translated messages"),
    ("/usr/share/locale-langpack", "translated messages on Ubuntu"),
    ("/usr/lib/locale", "the C library's locales, for messages only"),
    ("/usr/lib/*/gconv", "the C library's character sets, for messages only"),
    ("/usr/lib64/gconv", "the same on distributions with lib64"),
    ("/usr/local/cuda*/bin", "clang's driver, installations of CUDA: it goes on without one"),
    ("/usr/lib/cuda/bin", "the same"),
    ("/opt/rocm/bin", "clang's driver, installations of ROCm: it goes on without one"),
    ("/usr/bin/.hipVersion", "the same"),
    ("/usr/local/bin/.hipVersion", "the same"),
    ("/opt/*/bin/.hipVersion", "the same"),
    ("/usr/lib/llvm-*/bin/.hipVersion", "the same"),
    ("/usr/lib/llvm-*/share/hip/version", "the same"),
    ("/opt/rocm/amdgcn", "the same"),
    ("/opt/rocm/share/hip/version", "the same"),
    ("/proc/cpuinfo", "the C library and LLVM, processors: only the time that it takes changes"),
    ("/proc/meminfo", "gcc and the C library, memory available to the garbage collector"),
    ("/proc/stat", "the C library, processors"),
    ("/proc/filesystems", "libselinux"),
    ("/proc/mounts", "the same"),
    ("/proc/sys/vm/overcommit_memory", "allocators"),
    ("/proc/sys/crypto/fips_enabled", "libraries that hash"),
    ("/sys/devices/system/cpu", "the C library and LLVM, processors"),
    ("/sys/kernel/mm/transparent_hugepage", "allocators"),
    ("/sys/kernel/mm/hugepages", "allocators"),
    ("/sys/fs/cgroup", "allocators, the limit on their memory"),
    ("/sys/fs/selinux", "libselinux"),
];

/// Directories that a compiler lists to find installations of other software. It goes on when it
/// finds none.
pub(super) const OWN_LISTINGS: &[&str] = &["/opt"];
