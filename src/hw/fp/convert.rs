//! Conversions between FP32 and two's complement fixed point.

use super::parts::{Fields, Special, WIDTH, leading_zeros, round_and_pack};
use crate::dsl::{DslError, Module, ModuleDef, Sig};
use std::sync::Arc;

/// Cycles from an integer to its FP32 value.
pub const FROM_FIXED_LATENCY: u32 = 4;
/// Cycles from an FP32 word to its fixed-point value.
pub const TO_FIXED_LATENCY: u32 = 3;

/// Rounding of [`fp32_to_fixed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToFixed {
    /// Towards zero.
    Truncate,
    /// To nearest, ties to even.
    Nearest,
}

/// `nf_fp32_from_s<width>_f<frac>`: y = fl(x * 2^-frac) of a signed integer of 4 to 64 bits.
pub fn fp32_from_fixed(width: u32, frac: u32) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new(&format!("nf_fp32_from_s{width}_f{frac}"));
    m.doc(&format!(
        "y = x * 2^-{frac} in FP32 of a signed integer of {width} bits, round to nearest even\nlatency {FROM_FIXED_LATENCY} cycles, one operation per cycle"
    ));
    let (width, frac) = in_range(&m, width, frac);
    let x = m.input("x", width);
    m.section("Stage 1: sign and magnitude");
    let sign = x.msb();
    let magnitude = m.reg_next("magnitude_q", m.mux(sign, x.neg(), x)).q();
    let sign = m.delay("sign", sign, 3);

    m.section("Stage 2: count leading zeros");
    let zeros = leading_zeros(magnitude);
    let zeros = m.reg_next("zeros_q", zeros).q();
    let magnitude_q2 = m.reg_next("magnitude_q2", magnitude).q();
    let nothing = m.reg_next("nothing_q", magnitude.is_zero()).q();

    m.section("Stage 3: normalise");
    let normal = magnitude_q2.shl(zeros);
    // Room for 24 significant bits, the guard bit and one more.
    let normal = match width < 26 {
        true => m.cat(&[normal, m.lit(0, 26 - width)]),
        false => normal,
    };
    let normal = m.reg_next("normal_q", normal).q();
    let top = u128::from((1024 + 127 + width - 1 - frac) % 1024);
    let exponent = m.lit(top, 10) - zeros.zext(10);
    let exponent = m.reg_next("exponent_q", exponent).q();
    let nothing = m.reg_next("nothing_q2", nothing).q();

    m.section("Stage 4: round and pack");
    let w = normal.width();
    let (guard, rest) = (normal.bit(w - 25), normal.trunc(w - 25).or_reduce());
    let up = guard & (rest | normal.bit(w - 24));
    let special = Special {
        nan: m.lit(0, 1),
        infinite: m.lit(0, 1),
        zero: nothing,
    };
    let y = round_and_pack(sign, exponent, normal.slice(w - 2, w - 24), up, special);
    m.output("y", m.reg_next("y_q", y).q());
    m.finish()
}

/// `nf_fp32_to_s<width>_f<frac>_<t|n>`: y = round(a * 2^frac) in two's complement, saturated to
/// +-(2^(width-1) - 1), symmetric. Infinity saturates, NaN gives zero. Width 4 to 64.
pub fn fp32_to_fixed(width: u32, frac: u32, mode: ToFixed) -> Result<Arc<ModuleDef>, DslError> {
    let letter = match mode {
        ToFixed::Truncate => "t",
        ToFixed::Nearest => "n",
    };
    let m = Module::new(&format!("nf_fp32_to_s{width}_f{frac}_{letter}"));
    m.doc(&format!(
        "y = a * 2^{frac} as a signed integer of {width} bits, {}, saturated symmetrically\nlatency {TO_FIXED_LATENCY} cycles, one operation per cycle",
        match mode {
            ToFixed::Truncate => "towards zero",
            ToFixed::Nearest => "to nearest even",
        }
    ));
    let (width, frac) = in_range(&m, width, frac);
    let a = m.input("a", WIDTH);
    let bits = width - 1;
    let x = Fields::of(a);

    m.section("Stage 1: distance from the top of the result");
    // The leading one belongs at bit (e - 127 + frac); the shifter starts it at bit bits - 1.
    let place = x.exponent.zext(11) + m.lit(u128::from(frac) + 2048 - 127, 12).trunc(11);
    let place = place.named("place");
    let distance = m.lit(u128::from(bits) - 1, 11) - place;
    let distance_q = m.reg_next("distance_q", distance).q();
    let significand_q = m.reg_next("significand_q", x.significand()).q();
    let flags = m.cat(&[x.huge & !x.nan(), x.zero | x.nan()]);
    let flags_q = m.pipe("flags", flags, 2);
    let sign = m.delay("sign", x.sign, 2);

    m.section("Stage 2: shift, keeping what rounding needs");
    // Below the result: a guard bit and 25 bits of which any one is enough to break a tie.
    let keep = match mode {
        ToFixed::Truncate => 0,
        ToFixed::Nearest => 26,
    };
    let long = bits + keep;
    let start = match long >= 24 {
        true => m.cat(&[significand_q, m.lit(0, 66)]).slice(89, 90 - long),
        false => significand_q.slice(23, 24 - long),
    };
    let over = distance_q.msb().named("over");
    let far = distance_q.slice(9, 7).or_reduce() & !over;
    let amount = distance_q.trunc(7);
    let shifted = m.mux(far, m.lit(0, long), start.shr(amount));
    let shifted_q = m.reg_next("shifted_q", shifted).q();
    let over_q = m.reg_next("over_q", over).q();

    m.section("Stage 3: round, saturate, apply the sign");
    let value = shifted_q.slice(long - 1, keep);
    let rounded = match mode {
        ToFixed::Truncate => value.zext(width),
        ToFixed::Nearest => {
            let (guard, rest) = (shifted_q.bit(25), shifted_q.trunc(25).or_reduce());
            value.zext(width) + (guard & (rest | value.bit(0))).zext(width)
        }
    };
    let rounded = rounded.named("rounded");
    let saturate = (over_q | flags_q.bit(1) | rounded.msb()) & !flags_q.bit(0);
    let largest = m.lit((1 << bits) - 1, width);
    let nothing = m.lit(0, width);
    let magnitude = m.mux(saturate, largest, m.mux(flags_q.bit(0), nothing, rounded));
    let signed = apply_sign(magnitude.named("magnitude"), sign);
    m.output("y", m.reg_next("y_q", signed).q());
    m.finish()
}

/// Negates where `sign` is 1: one adder with the carry at the bottom.
fn apply_sign<'m>(magnitude: Sig<'m>, sign: Sig<'m>) -> Sig<'m> {
    (magnitude ^ sign.repeat(magnitude.width())) + sign.zext(magnitude.width())
}

/// Records a shape that cannot be built and goes on with one that can, so that `finish` reports it.
#[track_caller]
fn in_range(m: &Module, width: u32, frac: u32) -> (u32, u32) {
    if (4..=64).contains(&width) && frac <= 64 {
        return (width, frac);
    }
    m.problem(&format!(
        "a conversion of {width} bits with {frac} fraction bits: 4 to 64 bits with 0 to 64 are possible"
    ));
    (32, 0)
}
