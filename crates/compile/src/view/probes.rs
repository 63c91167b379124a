//! Where compilers look although nothing of theirs need be there. That a view has nothing at
//! these paths is no reason to send a job home.
//!
//! Found by what gcc and g++ were refused (`-O2 -g -MD -gsplit-dwarf --coverage`), and what is
//! known of clang and older loaders. Directories in which a compiler looks for headers are here
//! only as far as no distribution puts headers there: the others are roots of the client, or named
//! by it as not there.

/// A path with all beneath it (a star stands for any octets of one name), and who looks there for
/// what.
pub const KNOWN_ABSENT: &[(&str, &str)] = &[
    ("/etc/ld.so.*", "the loader's cache and list of preloads"),
    ("/etc/localtime", "the C library's time zone"),
    ("/etc/locale.alias", "other names of locales"),
    ("/etc/*-release", "clang's driver, which distribution this is"),
    ("/etc/debian_version", "the same"),
    ("/etc/env.d", "the same on Gentoo, where its installations of gcc are noted"),
    ("/sys", "the C library counts processors and asks for huge pages"),
    ("/proc", "the C library and LLVM ask for memory and processors; jobs see processes only"),
    ("/usr/share/locale", "translated messages"),
    ("/usr/share/locale-langpack", "translated messages on Ubuntu"),
    ("/usr/lib/locale", "the C library's locales"),
    ("/usr/lib/*/gconv", "the C library's character sets"),
    ("/lib/*/glibc-hwcaps", "the loader, libraries for newer processors"),
    ("/usr/lib/*/glibc-hwcaps", "the same where /lib is a link"),
    ("/lib/*/tls", "loaders before glibc 2.37, libraries for newer processors"),
    ("/usr/lib/*/tls", "the same where /lib is a link"),
    ("/lib/*/x86_64", "loaders before glibc 2.37, libraries for newer processors"),
    ("/usr/lib/*/x86_64", "the same where /lib is a link"),
    ("/lib/*/haswell", "loaders before glibc 2.37, libraries for newer processors"),
    ("/usr/lib/*/haswell", "the same where /lib is a link"),
    ("/lib/*/lib*.so*", "the loader, libraries that are found in a later directory"),
    ("/usr/lib/*/lib*.so*", "the same where /lib is a link"),
    ("/lib/lib*.so*", "the loader, libraries that are found in a later directory"),
    ("/usr/lib/lib*.so*", "the same where /lib is a link"),
    ("/usr/*-linux-*", "gcc's directory for a target's own tools and headers"),
    ("/usr/lib/gcc/*/*/include-fixed", "gcc's corrected headers, which Debian does not install"),
    ("/usr/local/include/*-linux-*", "gcc's local headers for one architecture"),
    ("/bin", "programs; a job has those of its toolchain"),
    ("/usr/bin", "the same"),
    ("/usr/local/bin", "the same"),
    ("/usr/lib/gcc/*/as", "gcc looks for an assembler of its own"),
    ("/usr/lib/gcc/*/objcopy", "the same for -gsplit-dwarf"),
    ("/usr/lib/gcc/*/*-objcopy", "the same under the target's name"),
    ("/usr/lib/gcc/*/*-as", "the same under the target's name"),
    ("/usr/lib/gcc/*/specs", "gcc's specs for all versions; nobody has them"),
    ("/usr/lib/*-linux-*/1*", "gcc looks for start files of its own version, here 10 and later"),
    ("/usr/lib/*-linux-*/9", "the same of gcc 9"),
    ("/usr/lib/*-linux-*/8", "the same of gcc 8"),
    ("/usr/lib/os-release", "clang's driver, which distribution this is"),
    ("/usr/lib/gcc-cross", "clang looks for installations of gcc"),
    ("/usr/lib64", "the same; those that it found are shown"),
    ("/usr/lib32", "the same"),
    ("/usr/libx32", "the same"),
    ("/opt/rh", "the same, those of Red Hat's toolsets"),
    ("/usr/local/cuda*", "clang looks for installations of CUDA"),
    ("/usr/lib/cuda", "the same"),
    ("/opt/rocm*", "clang looks for installations of ROCm"),
];
