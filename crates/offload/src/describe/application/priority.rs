//! Priorities along references (the paper, section 3.3): a reference's priority is inherited by
//! what the offcode requires in turn, until a Link.
//!
//! Never changes a priority that the layout file sets.

use super::{ApplicationOffcode, ApplicationReference, PrioritySource};
use crate::describe::offcode::ReferenceKind;

/// The order of offcodes in which each comes behind those that require it other than by a Link, or
/// the offcodes of a cycle.
pub(super) fn order(
    len: usize,
    references: &[ApplicationReference],
) -> Result<Vec<usize>, Vec<usize>> {
    let mut required: Vec<Vec<usize>> = vec![Vec::new(); len];
    let mut waiting = vec![0_usize; len];
    for reference in references.iter().filter(|r| r.kind != ReferenceKind::Link) {
        required[reference.from].push(reference.to);
        waiting[reference.to] += 1;
    }
    let mut order: Vec<usize> = (0..len).filter(|offcode| waiting[*offcode] == 0).collect();
    let mut next = 0;
    while let Some(&offcode) = order.get(next) {
        next += 1;
        for &to in &required[offcode] {
            waiting[to] -= 1;
            if waiting[to] == 0 {
                order.push(to);
            }
        }
    }
    match order.len() == len {
        true => Ok(order),
        false => Err(cycle(&required, &waiting)),
    }
}

/// A cycle among the offcodes that still wait: each of them is required by another such one.
fn cycle(required: &[Vec<usize>], waiting: &[usize]) -> Vec<usize> {
    let by = |offcode: usize| {
        (0..required.len()).find(|from| waiting[*from] > 0 && required[*from].contains(&offcode))
    };
    let mut path: Vec<usize> = Vec::new();
    let mut next = (0..required.len()).find(|offcode| waiting[*offcode] > 0);
    while let Some(offcode) = next {
        if let Some(first) = path.iter().position(|on_path| *on_path == offcode) {
            path.drain(..first);
            break;
        }
        path.push(offcode);
        next = by(offcode);
    }
    path.reverse();
    path
}

/// Hands priorities down, in that order; the attribute then tells what has come of it.
pub(super) fn inherit(
    offcodes: &mut [ApplicationOffcode],
    references: &[ApplicationReference],
    order: &[usize],
) {
    let mut to: Vec<Vec<usize>> = vec![Vec::new(); offcodes.len()];
    for (index, reference) in references.iter().enumerate() {
        to[reference.to].push(index);
    }
    for &offcode in order {
        let given = to[offcode].iter().filter_map(|index| given(offcodes, references, *index));
        let mut highest: Option<(u8, PrioritySource)> = None;
        for each in given {
            // Of equal ones the first.
            highest = highest.filter(|(priority, _)| *priority >= each.0).or(Some(each));
        }
        let is_set = offcodes[offcode].priority_source == PrioritySource::LayoutFile;
        if let Some((priority, source)) = highest.filter(|_| !is_set) {
            offcodes[offcode].priority = priority;
            offcodes[offcode].priority_source = source;
        }
        offcodes[offcode].attributes.offload_priority = Some(offcodes[offcode].priority);
    }
}

/// The priority that a reference gives.
fn given(
    offcodes: &[ApplicationOffcode],
    references: &[ApplicationReference],
    index: usize,
) -> Option<(u8, PrioritySource)> {
    let reference = &references[index];
    let from = &offcodes[reference.from];
    let own = from.package.file.imports[reference.import].priority;
    match (own, reference.kind, from.priority_source) {
        (Some(priority), _, _) => Some((priority, PrioritySource::Reference(index))),
        (None, ReferenceKind::Link, _) | (None, _, PrioritySource::Default) => None,
        (None, _, _) => Some((from.priority, PrioritySource::Inherited(index))),
    }
}
