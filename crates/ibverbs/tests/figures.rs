//! OUTBOARD_STATS=1: the contents of the figures, and the numbers of queue pairs in them.

use outboard_ibverbs::abi::*;
use outboard_ibverbs::context::ibv_open_device;
use outboard_ibverbs::cq::ibv_create_cq;
use outboard_ibverbs::device::ibv_get_device_list;
use outboard_ibverbs::pd::ibv_alloc_pd;
use outboard_ibverbs::qp::ibv_create_qp;
use outboard_ibverbs::qp::modify::ibv_modify_qp;
use std::mem::zeroed;
use std::process::{Command, Stdio};
use std::ptr::null_mut;

const IS_PROGRAM: &str = "OUTBOARD_TEST_FIGURES";

/// The program: a send that is refused, and one that is taken and flushed.
#[test]
fn program() {
    if std::env::var_os(IS_PROGRAM).is_none() {
        return;
    }
    // SAFETY: what the entries want; zeros leave everything open.
    unsafe {
        let context = ibv_open_device(*ibv_get_device_list(null_mut()));
        let (pd, cq) =
            (ibv_alloc_pd(context), ibv_create_cq(context, 4, null_mut(), null_mut(), 0));
        let mut made = ibv_qp_init_attr { send_cq: cq, recv_cq: cq, ..zeroed() };
        made.qp_type = IBV_QPT_RC;
        let qp = ibv_create_qp(pd, &raw mut made);
        let ops = (*context).ops;
        let (mut wr, mut bad): (ibv_send_wr, _) = (zeroed(), null_mut());
        wr.opcode = IBV_WR_SEND;
        let post = ops.post_send.expect("an entry");
        assert_eq!(post(qp, &raw mut wr, &raw mut bad), libc::EINVAL);
        let mut attr = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..zeroed() };
        assert_eq!(ibv_modify_qp(qp, &raw mut attr, IBV_QP_STATE.cast_signed()), 0);
        assert_eq!(post(qp, &raw mut wr, &raw mut bad), 0);
        let mut wc: ibv_wc = zeroed();
        assert_eq!(ops.poll_cq.expect("an entry")(cq, 1, &raw mut wc), 1);
        eprintln!("number {}", (*qp).qp_num);
    }
}

#[test]
fn figures_are_of_what_was_taken_under_the_number_that_the_program_knows() {
    for personality in ["iwarp", "roce"] {
        let mut program = Command::new(std::env::current_exe().expect("this one"));
        program.args(["--exact", "program", "--nocapture"]).stdout(Stdio::null());
        program.env(IS_PROGRAM, "1").env("OUTBOARD_DEVICES", "127.0.0.1");
        program.env("OUTBOARD_STATS", "1").env("OUTBOARD_PERSONALITY", personality);
        let output = program.output().expect("it starts");
        let text = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.success(), "{text}");
        let (_, behind) = text.split_once("number ").expect(&text);
        let (number, figures) = behind.split_once('\n').expect(&text);
        assert_eq!(figures.lines().count(), 2, "{text}");
        let line = format!("outboard: queue pair {number}: sends 1 (0 bytes), writes 0");
        assert!(figures.contains(&line), "{personality}: {text}");
        assert!(figures.ends_with("errors 0, flushed 1\n"), "{personality}: {text}");
    }
}
