//! Which functions of a module may write into the region: those from which a writing host call can
//! be reached. An estimate for placing executions; what an execution at a client writes is refused
//! in any case.

use super::ImportedFunction;
use super::bodies::Bodies;

/// Of each function, imported ones first, whether it may write. `imported_writes` says it of other
/// modules' functions; `taken` are those that calls through the table reach.
pub(super) fn writers(
    imported: &[ImportedFunction],
    imported_writes: &[bool],
    bodies: &Bodies,
    taken: &[u32],
) -> Vec<bool> {
    let count = imported.len() + bodies.calls.len();
    let mut callers: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut through_table = Vec::new();
    for (index, calls) in bodies.calls.iter().enumerate() {
        let caller = imported.len() + index;
        for callee in &calls.direct {
            if let Some(callers) = callers.get_mut(*callee as usize) {
                callers.push(caller);
            }
        }
        if calls.indirect {
            through_table.push(caller);
        }
    }
    let mut writes = vec![false; count];
    let mut open: Vec<usize> = Vec::new();
    for (index, function) in imported.iter().enumerate() {
        let is_writer = match function {
            ImportedFunction::Host { writes } => *writes,
            ImportedFunction::Module(at) => imported_writes.get(*at).copied().unwrap_or(true),
        };
        if is_writer {
            open.push(index);
        }
    }
    let mut is_taken = vec![false; count];
    for index in taken {
        if let Some(is_taken) = is_taken.get_mut(*index as usize) {
            *is_taken = true;
        }
    }
    while let Some(index) = open.pop() {
        if std::mem::replace(&mut writes[index], true) {
            continue;
        }
        open.append(&mut callers[index]);
        if is_taken[index] {
            open.append(&mut through_table);
        }
    }
    writes
}
