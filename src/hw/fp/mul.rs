//! FP32 multiplication, one result per cycle.

use super::parts::{Fields, Special, WIDTH, round_and_pack};
use crate::dsl::{DslError, Module, ModuleDef, Sig};
use std::sync::Arc;

/// Cycles from the operands to the product.
pub const MUL_LATENCY: u32 = 4;

/// `nf_fp32_mul`: y = fl(a * b).
pub fn fp32_mul() -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_fp32_mul");
    m.doc(&format!(
        "y = a * b in FP32, round to nearest even, subnormals are zero\nlatency {MUL_LATENCY} cycles, one operation per cycle"
    ));
    let (a, b) = (m.input("a", WIDTH), m.input("b", WIDTH));
    m.output("y", datapath(&m, a, b));
    m.finish()
}

/// The multiplier's logic, for inlining; names are prefixed by the open name scope.
pub fn datapath<'m>(m: &'m Module, a: Sig<'m>, b: Sig<'m>) -> Sig<'m> {
    m.section("Stage 1: significands, sum of exponents, special operands");
    let (x, y) = (Fields::of(a), Fields::of(b));
    let sig_a = m.reg_next("sig_a_q", x.significand()).q();
    let sig_b = m.reg_next("sig_b_q", y.significand()).q();
    let sum = x.exponent.zext(10) + y.exponent.zext(10) - m.lit(127, 10);
    let exponent = m.pipe("exponent", sum, 2);
    let sign = m.delay("sign", x.sign ^ y.sign, 3);
    let special = Special {
        nan: x.nan() | y.nan() | (x.huge & y.zero) | (x.zero & y.huge),
        infinite: x.huge | y.huge,
        zero: x.zero | y.zero,
    };
    let special = special.pipe(m, "special", 3);

    m.section("Stage 2: product of the significands");
    let product = m.reg_next("product_q", sig_a.mul(sig_b)).q();

    m.section("Stage 3: normalise to a leading one");
    let high = product.msb();
    let fraction = m.mux(high, product.slice(46, 23), product.slice(45, 22));
    let fraction_q = m.reg_next("fraction_q", fraction).q();
    let low = product.trunc(22).or_reduce() | (high & product.bit(22));
    let sticky = m.reg_next("sticky_q", low).q();
    let exponent = m.reg_next("exponent_q3", exponent + high.zext(10)).q();

    m.section("Stage 4: round and pack");
    let up = fraction_q.bit(0) & (sticky | fraction_q.bit(1));
    let y = round_and_pack(sign, exponent, fraction_q.slice(23, 1), up, special);
    m.reg_next("y_q", y).q()
}
