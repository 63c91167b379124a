//! Entries that need no device: fork (ibv_fork_init(3)), files of sysfs. And those whose feature
//! this stack does not have; they return the errno that the manual pages give.

use crate::abi::{
    IBV_FORK_UNNEEDED, ibv_context, ibv_dm, ibv_ece, ibv_fork_status, ibv_gid, ibv_mr, ibv_mw,
    ibv_mw_bind, ibv_mw_type, ibv_pd, ibv_qp, ibv_wr_opcode, verbs_context,
};
use crate::absent::{Absent, refuse};
use crate::guard::{Errno, Outcome, code, fail, minus_one, pointer};
use crate::object::{Kind, is_live};
use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::OnceLock;

/// Fills in this file's functions.
pub(crate) fn set_operations(c: &mut verbs_context) {
    c.context.ops.alloc_mw = Some(alloc_mw);
    c.context.ops.bind_mw = Some(bind_mw);
    c.context.ops.dealloc_mw = Some(dealloc_mw);
}

/// ibv_fork_init(3): nothing to do. Registered memory is not pinned, and peers' Writes go through
/// the parent's own mapping.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// ibv_is_fork_initialized(3).
#[unsafe(no_mangle)]
pub extern "C" fn ibv_is_fork_initialized() -> ibv_fork_status {
    IBV_FORK_UNNEEDED
}

/// Keeps memory out of a child process, for providers: not needed, see [`ibv_fork_init`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// The reverse of [`ibv_dontfork_range`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// Providers of rdma-core before 2018 register themselves by this; it is not supported here.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_register_driver(_name: *const c_char, _init: *const c_void) {}

/// Where sysfs is: SYSFS_PATH, or /sys.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<CString> = OnceLock::new();
    PATH.get_or_init(|| CString::new(sysfs_path()).unwrap_or_else(|_| c"/sys".to_owned())).as_ptr()
}

fn sysfs_path() -> Vec<u8> {
    // SAFETY: ask for numbers. A program with another user's rights does not trust the environment.
    let trusted = unsafe { libc::getuid() == libc::geteuid() };
    let named = std::env::var_os("SYSFS_PATH").filter(|_| trusted).map(OsString::into_vec);
    let mut path = named.unwrap_or_else(|| b"/sys".to_vec());
    while path.last() == Some(&b'/') {
        path.pop();
    }
    path
}

/// Reads a small file into a text of `size` bytes with its zero, without the newline at its end:
/// returns the text's length. A buffer without room for the zero is refused.
///
/// # Safety
/// `dir` and `file` are null or texts, `buf` is null or may be written for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    minus_one("ibv_read_sysfs_file", || {
        if dir.is_null() || file.is_null() || buf.is_null() {
            return fail(libc::EINVAL);
        }
        // SAFETY: the caller's word.
        let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
        let path = |text: &CStr| OsStr::from_bytes(text.to_bytes()).to_owned();
        // The file's name may begin with a slash.
        let file = path(file).into_vec();
        let file = file.iter().position(|byte| *byte != b'/').map_or(&[][..], |at| &file[at..]);
        let mut text = read_some(&Path::new(&path(dir)).join(OsStr::from_bytes(file)), size)?;
        if text.last() == Some(&b'\n') {
            text.pop();
        }
        if text.len() >= size {
            return fail(libc::ENOSPC);
        }
        // SAFETY: the caller's word, and the text and its zero fit.
        unsafe {
            buf.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
            *buf.add(text.len()) = 0;
        }
        c_int::try_from(text.len()).map_err(|_| Errno(libc::EOVERFLOW))
    })
}

/// The first `size` bytes of a file.
fn read_some(path: &Path, size: usize) -> Outcome<Vec<u8>> {
    use std::io::Read;
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(size as u64).read_to_end(&mut text)?;
    Ok(text)
}

/// A file of a device in sysfs, for rdma-core's own libraries and providers: ours has none. (More
/// arguments follow in C; they are not looked at.)
#[unsafe(no_mangle)]
pub extern "C" fn ibv_read_ibdev_sysfs_file(
    _buf: *mut c_char,
    _size: usize,
    _device: *mut c_void,
    _format: *const c_char,
) -> c_int {
    minus_one("ibv_read_ibdev_sysfs_file", || fail(libc::ENOENT))
}

/// The answer for a feature that this stack does not have.
fn unsupported<T>() -> Outcome<T> {
    fail(libc::EOPNOTSUPP)
}

extern "C" fn alloc_mw(_pd: *mut ibv_pd, _kind: ibv_mw_type) -> *mut ibv_mw {
    pointer("ibv_alloc_mw", unsupported)
}

extern "C" fn bind_mw(_qp: *mut ibv_qp, _mw: *mut ibv_mw, _bind: *mut ibv_mw_bind) -> c_int {
    code("ibv_bind_mw", unsupported)
}

extern "C" fn dealloc_mw(_mw: *mut ibv_mw) -> c_int {
    code("ibv_dealloc_mw", unsupported)
}

/// ibv_import_device(3): contexts cannot be shared between processes.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_device(_cmd_fd: c_int) -> *mut ibv_context {
    pointer("ibv_import_device", unsupported)
}

/// ibv_import_pd(3): as [`ibv_import_device`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_pd(_context: *mut ibv_context, _handle: u32) -> *mut ibv_pd {
    pointer("ibv_import_pd", unsupported)
}

/// ibv_unimport_pd(3): there is nothing that was imported.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_pd(_pd: *mut ibv_pd) {}

/// ibv_import_mr(3): as [`ibv_import_device`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_mr(_pd: *mut ibv_pd, _handle: u32) -> *mut ibv_mr {
    pointer("ibv_import_mr", unsupported)
}

/// ibv_unimport_mr(3): there is nothing that was imported.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_mr(_mr: *mut ibv_mr) {}

/// ibv_import_dm(3): there is no device memory.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_dm(_context: *mut ibv_context, _handle: u32) -> *mut ibv_dm {
    pointer("ibv_import_dm", unsupported)
}

/// ibv_unimport_dm(3): there is nothing that was imported.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_dm(_dm: *mut ibv_dm) {}

/// ibv_reg_dmabuf_mr(3): no processor reaches that memory.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_reg_dmabuf_mr(
    _pd: *mut ibv_pd,
    _offset: u64,
    _length: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ibv_mr {
    pointer("ibv_reg_dmabuf_mr", unsupported)
}

/// ibv_attach_mcast(3): TCP has no multicast.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_attach_mcast(_qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int {
    code("ibv_attach_mcast", || refuse(Some(Absent::Multicast)))
}

/// ibv_detach_mcast(3): as [`ibv_attach_mcast`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_detach_mcast(_qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int {
    code("ibv_detach_mcast", unsupported)
}

/// ibv_query_ece(3): connections have no vendor options.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    code("ibv_query_ece", unsupported)
}

/// ibv_set_ece(3): as [`ibv_query_ece`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_set_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    code("ibv_set_ece", unsupported)
}

/// ibv_query_qp_data_in_order(3): 0, because copies may write their bytes in any order.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_qp_data_in_order(
    qp: *mut ibv_qp,
    _op: ibv_wr_opcode,
    _flags: u32,
) -> c_int {
    // Also 0 for what is no queue pair, with errno set: the page has no value for that.
    code("ibv_query_qp_data_in_order", || {
        if is_live(qp.addr(), Kind::Qp) { Ok(()) } else { fail(libc::EINVAL) }
    });
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{dangling_mut, null_mut};

    fn errno() -> c_int {
        std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
    }

    fn read(dir: &CStr, file: &CStr, buf: &mut [u8]) -> (c_int, c_int) {
        let size = buf.len();
        // SAFETY: texts and room of this test.
        let len = unsafe {
            ibv_read_sysfs_file(dir.as_ptr(), file.as_ptr(), buf.as_mut_ptr().cast(), size)
        };
        (len, errno())
    }

    #[test]
    fn files_are_read_without_their_newline() {
        let mut buf = [7; 64];
        let (len, _) = read(c"/proc/sys/kernel", c"ostype", &mut buf);
        assert_eq!((len, &buf[..6]), (5, &b"Linux\0"[..]));
        assert_eq!(read(c"/proc/sys", c"/kernel/ostype", &mut buf).0, 5);
        assert_eq!(read(c"/proc/sys/kernel", c"ostype", &mut buf[..6]).0, 5);
        assert_eq!(read(c"/proc/sys/kernel", c"ostype", &mut buf[..5]), (-1, libc::ENOSPC));
        assert_eq!(read(c"/proc/sys/kernel", c"none", &mut buf), (-1, libc::ENOENT));
        assert_eq!(read(c"/proc/sys", c"kernel", &mut buf), (-1, libc::EISDIR));
        // SAFETY: nulls are allowed.
        let refused = unsafe {
            ibv_read_sysfs_file(std::ptr::null(), c"x".as_ptr(), buf.as_mut_ptr().cast(), 64)
        };
        assert_eq!((refused, errno()), (-1, libc::EINVAL));
    }

    #[test]
    fn sysfs_has_a_path() {
        // SAFETY: a text.
        let path = unsafe { CStr::from_ptr(ibv_get_sysfs_path()) };
        assert_eq!(path, c"/sys");
    }

    #[test]
    fn missing_features_fail_with_their_errno() {
        let no = libc::EOPNOTSUPP;
        assert!(ibv_import_device(0).is_null() && errno() == no);
        assert!(ibv_import_pd(dangling_mut(), 1).is_null() && errno() == no);
        assert!(ibv_import_mr(null_mut(), 1).is_null() && errno() == no);
        assert!(ibv_import_dm(null_mut(), 1).is_null() && errno() == no);
        assert!(ibv_reg_dmabuf_mr(null_mut(), 0, 8, 0, 0, 0).is_null() && errno() == no);
        assert!(alloc_mw(null_mut(), 1).is_null() && errno() == no);
        assert_eq!(bind_mw(null_mut(), null_mut(), null_mut()), no);
        assert_eq!(dealloc_mw(dangling_mut()), no);
        assert_eq!(ibv_attach_mcast(null_mut(), null_mut(), 0), no);
        assert_eq!(ibv_detach_mcast(null_mut(), null_mut(), 0), no);
        assert_eq!([ibv_query_ece, ibv_set_ece].map(|call| call(null_mut(), null_mut())), [no; 2]);
        assert_eq!(ibv_query_qp_data_in_order(null_mut(), 0, 0), 0);
        ibv_unimport_pd(dangling_mut());
        ibv_unimport_mr(null_mut());
        ibv_unimport_dm(null_mut());
    }
}
