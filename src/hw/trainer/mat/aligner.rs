//! Alignment of an FP32 value to the 18-bit grid of its tensor.

use super::cell::OPERAND_BITS;
use crate::dsl::*;
use std::sync::Arc;

/// Cycles from `x` to `q`.
pub const ALIGN_LATENCY: u32 = 3;
/// `unit` and `hit` enter this many cycles after `x`.
pub const UNIT_LAG: u32 = 1;

/// `nf_aligner`: `q(x)` of `docs/arithmetic.md` section 2, for `emax` below 255.
///
/// An element above `emax` (possible only in a lane outside the matrix) saturates; every element
/// of an all-zero tensor has exponent 0 and gives 0. With `unit` the result is 1.0 (65536) or 0
/// by `hit`, whatever `x` is: the one-hot and all-ones operands.
pub fn aligner() -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_aligner");
    m.doc(
        "Brings an FP32 value onto the 18-bit grid of its tensor: q = x * 2^(143 - emax), nearest,\n\
         ties to even, saturated to 17 magnitude bits. unit: 65536 or 0 by hit instead.\n\
         Latency 3; unit and hit enter one cycle after x.",
    );
    let x = m.input("x", 32);
    let emax = m.input("emax", 8);
    m.port_group("one-hot and all-ones operands, one cycle later");
    let unit = m.input("unit", 1);
    let hit = m.input("hit", 1);

    m.section("distance of the exponent from the largest of the tensor");
    let exponent = x.slice(30, 23);
    let distance = (emax.zext(9) - exponent.zext(9)).named("distance");
    let over = distance.msb().named("over");
    // From 18 places on less than half a unit is left.
    let far = distance.trunc(8).ult(m.lit(18, 8)).not() & !over;
    let significand = m.mux(
        exponent.is_zero(),
        m.lit(0, 24),
        m.cat(&[m.lit(1, 1), x.trunc(23)]) | over.repeat(24),
    );
    let sig_q = m.reg_next("significand_q", significand).q();
    let shift_q = m
        .reg_next("shift_q", distance.trunc(5) & (!over).repeat(5))
        .q();
    let far_q = m.pipe("far", far, 1);
    let sign_q = m.pipe("sign", x.msb(), 1);

    m.section("shift right by 0..17 in two radix steps, keeping guard and sticky");
    let fine = m.select(shift_q.trunc(2), &[0, 1, 2, 3].map(|n| sig_q.shr_const(n)));
    let fine = fine.named("fine");
    let lost_fine = m.select(
        shift_q.trunc(2),
        &[
            m.lit(0, 1),
            sig_q.bit(0),
            sig_q.trunc(2).or_reduce(),
            sig_q.trunc(3).or_reduce(),
        ],
    );
    // Bits 7.. are whole units, bit 6 is the guard, the rest is sticky.
    let steps = shift_q.slice(4, 2);
    let coarse = m.select(
        steps,
        &[0, 4, 8, 12, 16].map(|n| fine.slice(23, 6).shr_const(n)),
    );
    let below = |hi: u32, lo: u32| fine.slice(hi, lo).or_reduce();
    let at_least = |n: u128| m.lit(n, 3).ule(steps);
    let sticky = lost_fine
        | below(5, 0)
        | (below(9, 6) & at_least(1))
        | (below(13, 10) & at_least(2))
        | (below(17, 14) & at_least(3))
        | (below(21, 18) & at_least(4));
    // Rounding up 1.11..1 would leave 17 bits: the guard goes, the largest value stays.
    let largest = (sig_q.slice(23, 6).and_reduce() & shift_q.is_zero()).named("largest");
    let nothing = (far_q | unit).named("nothing");
    let unit_value = m.cat(&[hit, m.lit(0, 16)]);
    let magnitude = m.mux(
        nothing,
        m.mux(unit, unit_value, m.lit(0, 17)),
        coarse.slice(17, 1),
    );
    let magnitude_q = m.reg_next("magnitude_q", magnitude).q();
    let guard_q = m.pipe("guard", coarse.bit(0) & !nothing & !largest, 1);
    let sticky_q = m.pipe("sticky", sticky, 1);
    let negative_q = m.pipe("negative", sign_q & !nothing, 1);

    m.section("round and negate in one addition: -(v + r) = ~v + !r");
    let up = guard_q & (sticky_q | magnitude_q.bit(0));
    let flipped = m.cat(&[negative_q, magnitude_q ^ negative_q.repeat(17)]);
    let q = flipped + (up ^ negative_q).zext(OPERAND_BITS);
    m.output("q", m.reg_next("q_q", q).q());
    m.finish()
}
