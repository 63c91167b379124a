//! Messages as bytes: what goes comes back, garbage is refused, the hot ones are small.

use super::*;

fn execute(args: &[u8]) -> ActiveRequest<'_> {
    ActiveRequest::Execute(ExecuteRequest {
        number: 1,
        retried_since: None,
        handle: 3,
        module: [7; 32],
        entry: "get",
        args,
        result: ResultPlace::Inline,
        limit_us: 0,
    })
}

#[test]
fn hot_messages_are_small_and_borrow() {
    let mut batch = Vec::new();
    PROTOCOL.append(&execute(&[1; 8]), &mut batch);
    assert!(batch.len() <= 56, "{} bytes", batch.len());
    let mut rest = PROTOCOL.open_batch(&batch).expect("its version");
    let found: Option<ActiveRequest<'_>> = PROTOCOL.decode_next(&mut rest).expect("a request");
    assert_eq!(found, Some(execute(&[1; 8])));
    let outcome = AnswerOutcome::Done(&[5; 8]);
    let mut batch = Vec::new();
    PROTOCOL.append(&ActiveAnswer::Executed { number: 1, seq: 2, outcome }, &mut batch);
    assert!(batch.len() <= 14, "{} bytes", batch.len());
}

#[test]
fn requests_that_are_cut_or_changed_are_refused_or_another_request() {
    let requests = [
        execute(&[3; 40]),
        ActiveRequest::Hello { client: ActiveClientId([9; 16]) },
        ActiveRequest::Attach { number: 1, handle: 2, region: "kv", epoch: 1 },
        ActiveRequest::Load { number: 1, name: "list", code: ModuleBytes::Inline(&[0; 30]) },
        ActiveRequest::Kill { number: 1, target: KillTarget::Execution(7) },
    ];
    for request in requests {
        let bytes = PROTOCOL.encode(&request);
        assert_eq!(PROTOCOL.decode::<ActiveRequest<'_>>(&bytes).as_ref(), Ok(&request));
        for len in 0..bytes.len() {
            assert!(PROTOCOL.decode::<ActiveRequest<'_>>(&bytes[..len]).is_err(), "{len} bytes");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0xff;
            assert_ne!(PROTOCOL.decode::<ActiveRequest<'_>>(&changed).as_ref(), Ok(&request));
        }
    }
}
