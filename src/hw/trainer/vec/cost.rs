//! Cycle formulas of the vector unit, for the cycle model and for `ready`.

use super::VectorTiming;
use super::lane::{AT_A, AT_M2, FOLD_RESULT, PARTIALS, SPACING};
use super::scalar;
use crate::trainer::isa::{Post, Reduce, VecInstr};

/// Idle cycles behind the last step of a reduction: the fold must leave the adders, and the
/// results of the lanes must be read before the next ones come.
pub fn reduce_pause(b: usize) -> u32 {
    (FOLD_RESULT + 6).max(b as u32)
}

/// The same for a pass that captures the target's distance: the capture registers must be read
/// before the next pass writes them.
pub fn target_pause(b: usize) -> u32 {
    AT_M2 - AT_A + FOLD_RESULT + b as u32 + 6
}

/// Largest value of the pause counter.
pub fn longest_pause(b: usize) -> u32 {
    reduce_pause(b).max(target_pause(b)) + PARTIALS
}

/// Slots that a reduction of `n` steps takes: all eight partial sums must exist.
fn slots(i: &VecInstr) -> u64 {
    match i.reduce {
        Reduce::None => i.n as u64,
        _ => (i.n as u64).max(u64::from(PARTIALS)),
    }
}

/// Cycles from `start` to the first cycle in which the next `start` may come.
pub fn start_to_ready(b: usize, i: &VecInstr) -> u64 {
    match (i.reduce, i.ce_exp) {
        (Reduce::None, _) => slots(i).max(u64::from(SPACING)),
        (_, false) => slots(i) + u64::from(reduce_pause(b)),
        (_, true) => slots(i) + u64::from(target_pause(b)),
    }
}

/// Cycles from `start` to the `retire` pulse of an instruction that waits for no earlier one.
/// Retirement is in order, one per cycle: the pulse comes at least one cycle after that of the
/// instruction before.
pub fn start_to_retire(b: usize, i: &VecInstr) -> u64 {
    let t = VectorTiming::new(b);
    if i.reduce == Reduce::None || i.post == Post::None {
        return i.n as u64 + u64::from(t.plain_retire);
    }
    slots(i) + i.nc as u64 + u64::from(t.go + scalar::first_write(b))
}
