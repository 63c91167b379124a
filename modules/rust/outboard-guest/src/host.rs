//! The host calls and the call block, as the node has them. Nothing here checks anything: the host
//! does.

/// What an execution is told of its call: `struct ob_call` of outboard.h.
#[repr(C)]
pub(crate) struct CallBlock {
    pub(crate) region_base: u64,
    pub(crate) region_len: u64,
    pub(crate) args: u64,
    pub(crate) args_len: u64,
    pub(crate) out: u64,
    pub(crate) out_cap: u64,
    pub(crate) monotonic_ns: u64,
    pub(crate) wall_ns: u64,
    pub(crate) written: u64,
    pub(crate) caller: [u8; 32],
    pub(crate) flags: u64,
    pub(crate) seed: u64,
}

/// Where the node puts it.
pub(crate) const CALL: *const CallBlock = 0x10000 as *const CallBlock;

#[link(wasm_import_module = "ob")]
extern "C" {
    pub(crate) fn read(offset: u64, to: *mut u8, len: usize);
    pub(crate) fn load64(offset: u64) -> u64;
    pub(crate) fn write(offset: u64, from: *const u8, len: usize);
    pub(crate) fn store64(offset: u64, value: u64);
    pub(crate) fn expect64(offset: u64, value: u64);
    pub(crate) fn cas64(offset: u64, compare: u64, swap: u64) -> u64;
    pub(crate) fn add64(offset: u64, delta: u64) -> u64;
    pub(crate) fn fail(code: i32, text: *const u8, len: usize) -> !;
    pub(crate) fn log(text: *const u8, len: usize);
}
