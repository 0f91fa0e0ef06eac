//! From an exact sum to FP32.

use super::cell::SUM_BITS;
use crate::dsl::*;
use std::sync::Arc;

/// Cycles from `sum` to `y`.
pub const NORMALISE_LATENCY: u32 = 5;
/// `base` enters this many cycles after `sum`.
pub const BASE_LAG: u32 = 3;
/// Bits of `base`, two's complement.
pub const BASE_BITS: u32 = 10;
/// `base` is `emax(A) + emax(B)` minus this: the biased exponent of a sum whose leading one is
/// bit 47. The sum counts units of `2^(emax(A) + emax(B) - 286)`, and 286 - 127 - 47 = 112.
pub const BASE_OFFSET: u32 = 112;

/// `nf_normaliser`: `fl32(sum * 2^(base - 174))`, one rounding to nearest even, then the
/// subnormal rule; overflow gives infinity.
pub fn normaliser() -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_normaliser");
    m.doc(
        "Rounds a 48-bit signed sum to FP32, once, to nearest even. base is the biased exponent\n\
         that a leading one in bit 47 stands for; it enters three cycles after the sum.\n\
         Below 2^-126 the result is zero, above the range infinity. Latency 5.",
    );
    let sum = m.input("sum", SUM_BITS);
    let base = m.input("base", BASE_BITS);

    m.section("magnitude");
    let negative = sum.msb();
    let magnitude = (sum ^ negative.repeat(SUM_BITS)) + negative.zext(SUM_BITS);
    let magnitude = m.reg_next("magnitude_q", magnitude).q();
    let sign = m.pipe("sign", negative, NORMALISE_LATENCY - 1);

    m.section("leading zeros, 16 at a time");
    let (value, zeros) = leading_zeros(magnitude, 16, 3);
    let value = m.reg_next("by_16_q", value).q();
    let zeros_16 = m.pipe("zeros_16", zeros, 1);

    m.section("leading zeros, 4 and 1 at a time");
    let (value, zeros_4) = leading_zeros(value, 4, 4);
    let (value, zeros_1) = leading_zeros(value.named("by_4"), 1, 4);
    let value = m.reg_next("by_1_q", value).q();
    let zeros = m.cat(&[zeros_16, zeros_4, zeros_1]);
    let zeros = m.reg_next("zeros_q", zeros).q();

    m.section("exponent and rounding direction");
    let exponent = (base - zeros.zext(BASE_BITS)).named("exponent");
    let up = value.bit(23) & (value.trunc(23).or_reduce() | value.bit(24));
    // 1.11..1 x 2^-127 lies nearer to 2^-126 than to any smaller multiple of 2^-149.
    let tiny = exponent.is_zero() & value.slice(46, 24).and_reduce();
    let exponent_q = m.reg_next("exponent_q", exponent).q();
    let fraction_q = m.reg_next("fraction_q", value.slice(46, 24)).q();
    let up_q = m.pipe("up", up | tiny, 1);
    let some_q = m.pipe("some", value.msb(), 1);

    m.section("round, then zero or infinity outside the range");
    let rounded = m.cat(&[exponent_q, fraction_q]) + up_q.zext(BASE_BITS + 23);
    let rounded = rounded.named("rounded");
    let biased = rounded.slice(BASE_BITS + 22, 23);
    let small = biased.msb() | biased.is_zero() | !some_q;
    let large = !biased.msb() & (biased.bit(8) | biased.trunc(8).and_reduce());
    let infinity = m.lit(0xff << 23, 31);
    let finite = m.mux(large, infinity, rounded.trunc(31));
    let magnitude = m.mux(small, m.lit(0, 31), finite);
    let y = m.cat(&[sign & some_q, magnitude]);
    m.output("y", m.reg_next("y_q", y).q());
    m.finish()
}

/// One radix step: shifts `value` left by up to `groups - 1` groups of `size` zeros. Returns the
/// shifted value and the number of groups, 2 bits.
fn leading_zeros(value: Sig<'_>, size: u32, groups: u32) -> (Sig<'_>, Sig<'_>) {
    let m = value.module();
    let top = value.width();
    let empty = |g: u32| {
        value
            .slice(top - 1 - g * size, top - (g + 1) * size)
            .is_zero()
    };
    let mut count = m.lit(groups as u128 - 1, 2);
    for g in (0..groups - 1).rev() {
        count = m.mux(empty(g), count, m.lit(g as u128, 2));
    }
    let choices: Vec<Sig<'_>> = (0..groups).map(|g| value.shl_const(g * size)).collect();
    (m.select(count, &choices), count)
}
