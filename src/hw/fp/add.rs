//! FP32 addition and subtraction, one result per cycle.

use super::parts::{Fields, Special, WIDTH, leading_zeros, round_and_pack};
use crate::dsl::{DslError, Module, ModuleDef, Sig};
use std::sync::Arc;

/// Cycles from the operands to the sum or difference.
pub const ADD_LATENCY: u32 = 6;

/// `nf_fp32_add`: y = fl(a + b).
pub fn fp32_add() -> Result<Arc<ModuleDef>, DslError> {
    build("nf_fp32_add", "y = a + b", false)
}

/// `nf_fp32_sub`: y = fl(a - b).
pub fn fp32_sub() -> Result<Arc<ModuleDef>, DslError> {
    build("nf_fp32_sub", "y = a - b", true)
}

fn build(name: &str, what: &str, subtract: bool) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new(name);
    m.doc(&format!(
        "{what} in FP32, round to nearest even, subnormals are zero\nlatency {ADD_LATENCY} cycles, one operation per cycle"
    ));
    let (a, b) = (m.input("a", WIDTH), m.input("b", WIDTH));
    let b = match subtract {
        true => m.cat(&[!b.bit(31), b.trunc(31)]).named("minus_b"),
        false => b,
    };
    m.output("y", datapath(&m, a, b));
    m.finish()
}

/// The adder's logic, for inlining; names are prefixed by the open name scope.
pub fn datapath<'m>(m: &'m Module, a: Sig<'m>, b: Sig<'m>) -> Sig<'m> {
    m.section("Stage 1: order the operands by magnitude");
    let swap = a.trunc(31).ult(b.trunc(31)).named("swap");
    let (ea, eb) = (a.slice(30, 23), b.slice(30, 23));
    let distance = m.mux(swap, eb - ea, ea - eb);
    let distance = m.reg_next("distance_q", distance).q();
    let big = m.reg_next("big_q", m.mux(swap, b, a)).q();
    let small = m.reg_next("small_q", m.mux(swap, a, b)).q();

    m.section("Stage 2: align the smaller significand, keeping guard, round and sticky bits");
    let (x, y) = (Fields::of(big), Fields::of(small));
    let subtract = (x.sign ^ y.sign).named("subtract");
    let far = distance.slice(7, 5).or_reduce().named("far");
    let (aligned, lost) = align(m, y, distance);
    let keep = !(far | y.zero);
    let aligned = m.mux(keep, aligned, m.lit(0, 26));
    let sticky = m.mux(far, !y.zero, lost & !y.zero);
    let small_q2 = m.reg_next("aligned_q", m.cat(&[aligned, sticky])).q();
    let big_q2 = m
        .reg_next("significand_q", m.cat(&[!x.zero, x.fraction]))
        .q();
    let subtract_q2 = m.reg_next("subtract_q", subtract).q();
    let special = Special {
        nan: x.huge & (x.fraction.or_reduce() | (y.huge & subtract)),
        infinite: x.huge,
        zero: m.lit(0, 1),
    };
    // The larger operand gives the sign; only two zeros of different sign need +0.
    let sign = x.sign;

    m.section("Stage 3: add or subtract; the difference is never negative");
    let wide = m.cat(&[m.lit(0, 1), big_q2, m.lit(0, 3), subtract_q2]);
    let other = m.cat(&[m.lit(0, 1), small_q2]) ^ subtract_q2.repeat(28);
    let sum = (wide + m.cat(&[other, subtract_q2])).named("sum");
    let sum_q3 = m.reg_next("sum_q", sum.slice(28, 1)).q();

    m.section("Stage 4: count leading zeros");
    let zeros = m.reg_next("zeros_q", leading_zeros(sum_q3)).q();
    let sum_q4 = m.reg_next("sum_q2", sum_q3).q();
    let zero = m.pipe("zero", x.zero, 2);
    let nothing = m.reg_next("nothing_q", sum_q3.is_zero() | zero).q();
    let exponent = m.delay("exponent", x.exponent, 3);
    let subtract_q4 = m.pipe("subtract_late", subtract_q2, 2);

    m.section("Stage 5: normalise");
    let shifted = (sum_q4.shl(zeros)).named("normal");
    let normal = m.reg_next("normal_q", shifted).q();
    let exact = exponent.zext(10) + m.lit(1, 10) - zeros.zext(10);
    let exponent_q5 = m.reg_next("exponent_q", exact).q();
    let nothing_q5 = m.reg_next("nothing_q2", nothing).q();
    let sign_q4 = m.delay("sign", sign, 3);
    let sign_q5 = m.reg_next("sign_q", sign_q4 & !(nothing & subtract_q4)).q();
    let special = special.pipe(m, "special", 4);

    m.section("Stage 6: round and pack");
    let (guard, rest) = (normal.bit(3), normal.trunc(3).or_reduce());
    let up = guard & (rest | normal.bit(4));
    let special = Special {
        zero: nothing_q5,
        ..special
    };
    let y = round_and_pack(sign_q5, exponent_q5, normal.slice(26, 4), up, special);
    m.reg_next("y_q", y).q()
}

/// The significand shifted right by 0 to 31: 26 bits, and whether a one was lost below them.
fn align<'m>(m: &'m Module, y: Fields<'m>, distance: Sig<'m>) -> (Sig<'m>, Sig<'m>) {
    let mut value = m.cat(&[y.significand(), m.lit(0, 2)]);
    let mut lost = m.lit(0, 1);
    for (k, name) in [(4, "by16"), (3, "by8"), (2, "by4"), (1, "by2"), (0, "by1")] {
        let n = 1 << k;
        let on = distance.bit(k);
        lost = lost | (on & value.trunc(n).or_reduce());
        value = m.mux(on, value.shr_const(n), value).named(name);
    }
    (value, lost)
}
