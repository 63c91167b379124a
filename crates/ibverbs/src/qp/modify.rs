//! States and attributes (ibv_modify_qp(3)): a table of the allowed steps, and of the attributes
//! that each step needs and takes.

use super::{Qp, is_roce};
use crate::abi::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS,
    IBV_QP_ALT_PATH, IBV_QP_AV, IBV_QP_CAP, IBV_QP_CUR_STATE, IBV_QP_DEST_QPN,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER,
    IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_RETRY_CNT,
    IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_ERR,
    IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, ibv_qp, ibv_qp_attr, ibv_qp_state,
};
use crate::cq::lock;
use crate::guard::{Outcome, code, fail};
use crate::object::find;
use crate::roce;
use libc::c_int;
use outboard_verbs::Access;
use std::sync::Arc;
use std::time::Duration;

/// The peer's number in attributes of rdma_init_qp_attr(3): the connection manager connects.
pub(crate) const BY_CM: u32 = 0xFF_FFFF;

/// The unit of the attribute `timeout`: the timeout is this, doubled `timeout` times.
const TIMEOUT_UNIT: Duration = Duration::from_nanos(4096);

/// A step that programs may take.
struct Step {
    from: ibv_qp_state,
    to: ibv_qp_state,
    /// Attributes that it needs on RoCE (iWARP's come from the connection manager).
    needs: u32,
    /// Further attributes that it takes.
    takes: u32,
}

const fn step(from: ibv_qp_state, to: ibv_qp_state, needs: u32, takes: u32) -> Step {
    Step { from, to, needs, takes }
}

const INITIAL: u32 = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
const ANY_TIME: u32 = IBV_QP_CUR_STATE
    | IBV_QP_ACCESS_FLAGS
    | IBV_QP_ALT_PATH
    | IBV_QP_PATH_MIG_STATE
    | IBV_QP_MIN_RNR_TIMER;

/// The steps of reliable connections (InfiniBand Architecture 1.3, table 91), except those of SQD,
/// which no program needs. RESET and ERR can be reached from every state.
const STEPS: &[Step] = &[
    step(IBV_QPS_RESET, IBV_QPS_INIT, INITIAL, 0),
    step(IBV_QPS_INIT, IBV_QPS_INIT, 0, INITIAL),
    step(
        IBV_QPS_INIT,
        IBV_QPS_RTR,
        IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER,
        IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
    ),
    step(
        IBV_QPS_RTR,
        IBV_QPS_RTS,
        IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC,
        ANY_TIME,
    ),
    step(IBV_QPS_RTS, IBV_QPS_RTS, 0, ANY_TIME),
];

/// ibv_modify_qp(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    attr_mask: c_int,
) -> c_int {
    code("ibv_modify_qp", || {
        let found: &Qp = find(qp)?;
        // SAFETY: the program's own structure.
        match unsafe { attr.as_ref() } {
            Some(attr) => found.modify(attr, attr_mask.cast_unsigned()),
            None => fail(libc::EINVAL),
        }
    })
}

impl Qp {
    fn modify(&self, attr: &ibv_qp_attr, mask: u32) -> Outcome<()> {
        let current = self.state();
        if mask & IBV_QP_CUR_STATE != 0 && attr.cur_qp_state != current {
            return fail(libc::EINVAL);
        }
        let next = if mask & IBV_QP_STATE == 0 { current } else { attr.qp_state };
        // The connection manager has already changed the state; programs for InfiniBand still make
        // each step.
        let is_iwarp = !is_roce();
        if is_iwarp && current == IBV_QPS_RTS && matches!(next, IBV_QPS_INIT | IBV_QPS_RTR) {
            return Ok(());
        }
        check(current, next, mask)?;
        self.check_values(attr, mask)?;
        let before = *lock(&self.attributes);
        note(&mut lock(&self.attributes), attr, mask);
        if mask & IBV_QP_ACCESS_FLAGS != 0 {
            self.native.set_access(rights(attr.qp_access_flags));
        }
        let done = self.enter(current, next);
        if done.is_err() {
            *lock(&self.attributes) = before;
        }
        done
    }

    fn check_values(&self, attr: &ibv_qp_attr, mask: u32) -> Outcome<()> {
        let has = |flag: u32| mask & flag != 0;
        if has(IBV_QP_PORT) && attr.port_num != 1 || has(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0
        {
            return fail(libc::EINVAL);
        }
        // There are no alternative paths, and queues do not grow.
        if has(IBV_QP_ALT_PATH | IBV_QP_CAP) { fail(libc::EOPNOTSUPP) } else { Ok(()) }
    }

    fn enter(&self, current: ibv_qp_state, next: ibv_qp_state) -> Outcome<()> {
        match next {
            IBV_QPS_RESET => {
                self.forget_peer();
                self.queues.reset();
                self.forget_completions();
                // SAFETY: all zero bits are a value of the structure.
                *lock(&self.attributes) = unsafe { std::mem::zeroed() };
                self.show_state(next);
                return Ok(());
            }
            IBV_QPS_ERR => {
                self.forget_peer();
                self.queues.end();
            }
            IBV_QPS_RTR if current != next => self.find_peer()?,
            IBV_QPS_RTS => self.queues.set_patience(patience(&lock(&self.attributes))),
            _ => {}
        }
        self.set_state(next);
        Ok(())
    }

    /// The program names the peer, as on RoCE. On iWARP only the connection manager can connect.
    fn find_peer(&self) -> Outcome<()> {
        if lock(&self.attributes).dest_qp_num == BY_CM {
            return Ok(());
        }
        if !is_roce() {
            return fail(libc::EOPNOTSUPP);
        }
        let (address, number) = {
            let known = lock(&self.attributes);
            (known.ah_attr, known.dest_qp_num)
        };
        if address.is_global == 0 {
            return fail(libc::EINVAL);
        }
        // SAFETY: both members are the same bytes.
        let gid = unsafe { address.grh.dgid.raw };
        let peer = Arc::clone(&self.queues);
        peer.watch();
        roce::connect(self.adapter(), self.shown_number(), number, gid, peer)
    }
}

/// How long a send is repeated (InfiniBand Architecture 1.3, 9.7.6.1.3); `None` for ever.
fn patience(attributes: &ibv_qp_attr) -> Option<Duration> {
    let tries = u32::from(attributes.retry_cnt) + 1;
    let one = TIMEOUT_UNIT.saturating_mul(1 << attributes.timeout.min(31));
    (attributes.timeout != 0).then(|| one.saturating_mul(tries))
}

/// What peers may do. iWARP's queue pairs limit only which peers may invalidate STags: connections
/// have their rights from the memory. A peer without any right has none to lose.
fn rights(access: u32) -> Access {
    let table = [
        (IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
        (IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
        (IBV_ACCESS_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
    ];
    let given = table.iter().filter(|(flag, _)| access & flag != 0);
    let given = given.fold(Access::empty(), |all, (_, right)| all | *right);
    let invalidate = if given.is_empty() { given } else { Access::REMOTE_INVALIDATE };
    let rest = if is_roce() { given } else { Access::REMOTE - Access::REMOTE_INVALIDATE };
    rest | invalidate
}

/// Whether the state may change to `next` with these attributes.
fn check(current: ibv_qp_state, next: ibv_qp_state, mask: u32) -> Outcome<()> {
    if matches!(next, IBV_QPS_RESET | IBV_QPS_ERR) && mask & IBV_QP_STATE != 0 {
        return Ok(());
    }
    let Some(step) = STEPS.iter().find(|step| step.from == current && step.to == next) else {
        return fail(libc::EINVAL);
    };
    if !is_roce() {
        return Ok(());
    }
    let given = mask & !IBV_QP_STATE;
    let missing = step.needs & !given;
    let foreign = given & !(step.needs | step.takes);
    if missing | foreign == 0 { Ok(()) } else { fail(libc::EINVAL) }
}

/// Copies the attributes that the mask names.
fn note(known: &mut ibv_qp_attr, attr: &ibv_qp_attr, mask: u32) {
    macro_rules! copy {
        ($($flag:ident => $($field:ident),+;)*) => {
            $(if mask & $flag != 0 { $(known.$field = attr.$field;)+ })*
        };
    }
    copy! {
        IBV_QP_ACCESS_FLAGS => qp_access_flags;
        IBV_QP_PKEY_INDEX => pkey_index;
        IBV_QP_PORT => port_num;
        IBV_QP_AV => ah_attr;
        IBV_QP_PATH_MTU => path_mtu;
        IBV_QP_DEST_QPN => dest_qp_num;
        IBV_QP_RQ_PSN => rq_psn;
        IBV_QP_SQ_PSN => sq_psn;
        IBV_QP_MAX_DEST_RD_ATOMIC => max_dest_rd_atomic;
        IBV_QP_MAX_QP_RD_ATOMIC => max_rd_atomic;
        IBV_QP_MIN_RNR_TIMER => min_rnr_timer;
        IBV_QP_TIMEOUT => timeout;
        IBV_QP_RETRY_CNT => retry_cnt;
        IBV_QP_RNR_RETRY => rnr_retry;
        IBV_QP_PATH_MIG_STATE => path_mig_state;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_is_repeated_as_often_as_the_program_says() {
        let after = |timeout, retry_cnt| {
            // SAFETY: all zero bits are a value of the structure.
            let none: ibv_qp_attr = unsafe { std::mem::zeroed() };
            patience(&ibv_qp_attr { timeout, retry_cnt, ..none }).map(|time| time.as_millis())
        };
        assert_eq!(after(0, 7), None);
        assert_eq!(after(14, 7), Some(536));
        assert_eq!(after(20, 0), Some(4294));
        assert_eq!(after(255, 0), after(31, 0));
    }
}
