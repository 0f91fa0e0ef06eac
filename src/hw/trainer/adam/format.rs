//! Storage formats as wires: unpack to FP32 and round back (`docs/arithmetic.md` section 5).

use crate::config::model::{MomentFormat, Rounding, WeightFormat};
use crate::dsl::{Module, Sig};
use crate::hw::fp::parts::leading_zeros;

/// Bits of a stored moment.
pub fn moment_bits(format: MomentFormat) -> u32 {
    match format {
        MomentFormat::Fp32 => 32,
        MomentFormat::Bf16 => 16,
        MomentFormat::Int8 => 8,
    }
}

/// FP32 bits of a stored value: a narrow float is the upper part of an FP32 number.
pub fn unpack<'m>(m: &'m Module, stored: Sig<'m>) -> Sig<'m> {
    match 32 - stored.width() {
        0 => stored,
        cut => m.cat(&[stored, m.lit(0, cut)]),
    }
}

/// The biased exponent of a stored float.
pub fn exponent(stored: Sig<'_>) -> Sig<'_> {
    let top = stored.width() - 2;
    stored.slice(top, top - 7)
}

/// Rounds FP32 bits to their upper `width` bits: adds `addend` (as many bits as are cut) to the
/// magnitude, then cuts. A sum that reaches exponent 255 saturates to the largest finite value.
///
/// `x` is never subnormal, so a zero exponent stays zero without a further test: its mantissa is
/// zero and the addend cannot carry past the cut.
pub fn round<'m>(m: &'m Module, x: Sig<'m>, width: u32, addend: Sig<'m>) -> Sig<'m> {
    let cut = 32 - width;
    let sum = x.trunc(31) + addend.zext(31);
    let saturates = sum.slice(30, 23).and_reduce();
    let largest = m.lit((0x7f7f_ffffu128) >> cut, width - 1);
    let magnitude = m.mux(saturates, largest, sum.slice(30, cut));
    m.cat(&[x.bit(31), magnitude])
}

/// What a weight's rounding adds below the cut: half for nearest, `random` for stochastic.
/// `None`: FP32 is stored as it is.
pub fn weight_addend<'m>(
    m: &'m Module,
    format: WeightFormat,
    rounding: Rounding,
    random: Option<Sig<'m>>,
) -> Option<Sig<'m>> {
    let cut = 32 - format.bits();
    match (format, rounding, random) {
        (WeightFormat::Fp32, ..) => None,
        (_, Rounding::Stochastic, Some(random)) => Some(random.trunc(cut)),
        _ => Some(m.lit(1 << (cut - 1), cut)),
    }
}

/// Random bits a weight takes per update.
pub fn weight_random_bits(format: WeightFormat, rounding: Rounding) -> u32 {
    match (format, rounding) {
        (WeightFormat::Fp32, _) | (_, Rounding::Nearest) => 0,
        (_, Rounding::Stochastic) => 32 - format.bits(),
    }
}

/// FP32 bits of a signed magnitude of 8 bits, exact.
pub fn small_integer<'m>(m: &'m Module, sign: Sig<'m>, magnitude: Sig<'m>) -> Sig<'m> {
    let zeros = leading_zeros(magnitude);
    let normal = magnitude.shl(zeros).trunc(7);
    let exponent = m.lit(127 + 7, 8) - zeros.zext(8);
    let word = m.cat(&[sign, exponent, normal, m.lit(0, 16)]);
    m.mux(magnitude.is_zero(), m.lit(0, 32), word)
}

/// `-x` of FP32 bits.
pub fn negate<'m>(m: &'m Module, x: Sig<'m>) -> Sig<'m> {
    m.cat(&[!x.bit(31), x.trunc(31)])
}

/// Whether FP32 bits are an infinity or a NaN.
pub fn not_finite(x: Sig<'_>) -> Sig<'_> {
    x.slice(30, 23).and_reduce()
}
