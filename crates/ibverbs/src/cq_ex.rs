//! Extended completion queues: polling entry by entry (ibv_create_cq_ex(3)).

use crate::abi::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_SINGLE_THREADED, IBV_WC_EX_WITH_BYTE_LEN,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, IBV_WC_EX_WITH_DLID_PATH_BITS,
    IBV_WC_EX_WITH_IMM, IBV_WC_EX_WITH_QP_NUM, IBV_WC_EX_WITH_SL, IBV_WC_EX_WITH_SLID,
    IBV_WC_EX_WITH_SRC_QP, ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc,
    ibv_wc_opcode, verbs_context,
};
use crate::cq::{Cq, CqRequest, lock};
use crate::guard::{Outcome, code, fail, pointer};
use crate::object::trust;
use crate::turn::Turn;
use libc::c_int;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// The fields that our completions have. They have no hardware clock, no VLAN, no flow and no tag.
const KNOWN: u64 = (IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) as u64;

/// The state of a thread's poll.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    turn: Turn,
    entry: Mutex<CurrentCompletion>,
}

/// The completion that the functions below read.
#[derive(Default)]
struct CurrentCompletion {
    found: Option<ibv_wc>,
    /// When it was taken, in nanoseconds since 1970; 0 unless the program asked for it.
    taken: u64,
}

impl std::fmt::Debug for CurrentCompletion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} at {}", self.found.map(|wc| wc.wr_id), self.taken)
    }
}

/// Fills in this file's functions.
pub(crate) fn set_operations(c: &mut verbs_context) {
    c.create_cq_ex = Some(create_cq_ex);
}

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    let made = pointer("ibv_create_cq_ex", || {
        // SAFETY: the program's own structure.
        let Some(attr) = (unsafe { attr.as_ref() }) else { return fail(libc::EINVAL) };
        check(attr)?;
        let wallclock = u64::from(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
        let wanted = CqRequest {
            context,
            cqe: attr.cqe,
            cq_context: attr.cq_context,
            channel: attr.channel,
            vector: attr.comp_vector,
        };
        Cq::create(&wanted, |c| fill(c, attr.wc_flags & wallclock != 0))
    });
    made.cast()
}

fn check(attr: &ibv_cq_init_attr_ex) -> Outcome<()> {
    let has_flags = attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0;
    let foreign_flags = has_flags && attr.flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0;
    let foreign = attr.comp_mask & !IBV_CQ_INIT_ATTR_MASK_FLAGS != 0;
    if foreign || foreign_flags || attr.wc_flags & !KNOWN != 0 {
        return fail(libc::EOPNOTSUPP);
    }
    Ok(())
}

fn fill(c: &mut ibv_cq_ex, wallclock: bool) {
    c.start_poll = Some(start_poll);
    c.next_poll = Some(next_poll);
    c.end_poll = Some(end_poll);
    c.read_opcode = Some(read_opcode);
    c.read_vendor_err = Some(read_vendor_err);
    c.read_byte_len = Some(read_byte_len);
    c.read_imm_data = Some(read_imm_data);
    c.read_qp_num = Some(read_qp_num);
    c.read_src_qp = Some(read_src_qp);
    c.read_wc_flags = Some(read_wc_flags);
    c.read_slid = Some(read_slid);
    c.read_sl = Some(read_sl);
    c.read_dlid_path_bits = Some(read_dlid_path_bits);
    if wallclock {
        c.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
    }
}

/// Takes the next completion; ENOENT when there is none.
fn advance(cq: &Cq) -> Outcome<()> {
    let mut entry = lock(&cq.cursor.entry);
    entry.found = cq.take_one()?;
    let Some(found) = entry.found else { return fail(libc::ENOENT) };
    let c = cq.shown();
    // SAFETY: the queue's own structure. A program that polls reads these fields in this thread;
    // others may be in the rest of it.
    let wants_time = unsafe {
        ((*c).status, (*c).wr_id) = (found.status, found.wr_id);
        (*c).read_completion_wallclock_ns.is_some()
    };
    if wants_time {
        entry.taken = now();
    }
    Ok(())
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    code("ibv_start_poll", || {
        let found: &Cq = trust(cq.cast())?;
        // SAFETY: null, or the program's own structure.
        if unsafe { attr.as_ref() }.is_none_or(|attr| attr.comp_mask != 0) {
            return fail(libc::EINVAL);
        }
        found.cursor.turn.begin();
        // A program ends a poll only after it has begun one.
        let advanced = advance(found);
        if advanced.is_err() {
            found.cursor.turn.end();
        }
        advanced
    })
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    code("ibv_next_poll", || advance(trust(cq.cast())?))
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    let _done = code("ibv_end_poll", || {
        trust::<Cq>(cq.cast())?.cursor.turn.end();
        Ok(())
    });
}

/// The value that `read` gets from the completion; zero when there is none.
fn look<T: Default>(cq: *mut ibv_cq_ex, read: impl FnOnce(&ibv_wc) -> T) -> T {
    let mut value = T::default();
    let _done = code("ibv_wc_read", || {
        let cq: &Cq = trust(cq.cast())?;
        if let Some(found) = &lock(&cq.cursor.entry).found {
            value = read(found);
        }
        Ok(())
    });
    value
}

unsafe extern "C" fn read_opcode(cq: *mut ibv_cq_ex) -> ibv_wc_opcode {
    look(cq, |found| found.opcode)
}

unsafe extern "C" fn read_vendor_err(cq: *mut ibv_cq_ex) -> u32 {
    look(cq, |found| found.vendor_err)
}

unsafe extern "C" fn read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
    look(cq, |found| found.byte_len)
}

/// The immediate data, or the key that was invalidated (ibv_wc_read_invalidated_rkey).
unsafe extern "C" fn read_imm_data(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: both members are four bytes, of which every value is valid.
    look(cq, |found| unsafe { found.__bindgen_anon_1.imm_data })
}

unsafe extern "C" fn read_qp_num(cq: *mut ibv_cq_ex) -> u32 {
    look(cq, |found| found.qp_num)
}

unsafe extern "C" fn read_src_qp(cq: *mut ibv_cq_ex) -> u32 {
    look(cq, |found| found.src_qp)
}

unsafe extern "C" fn read_wc_flags(cq: *mut ibv_cq_ex) -> u32 {
    look(cq, |found| found.wc_flags)
}

unsafe extern "C" fn read_slid(cq: *mut ibv_cq_ex) -> u32 {
    look(cq, |found| u32::from(found.slid))
}

unsafe extern "C" fn read_sl(cq: *mut ibv_cq_ex) -> u8 {
    look(cq, |found| found.sl)
}

unsafe extern "C" fn read_dlid_path_bits(cq: *mut ibv_cq_ex) -> u8 {
    look(cq, |found| found.dlid_path_bits)
}

unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    let mut taken = 0;
    let _done = code("ibv_wc_read_completion_wallclock_ns", || {
        taken = lock(&trust::<Cq>(cq.cast())?.cursor.entry).taken;
        Ok(())
    });
    taken
}
