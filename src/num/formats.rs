//! Storage formats: BF16 and the 24-bit float, nearest and stochastic (`docs/arithmetic.md` section 5).

use crate::config::model::{Rounding, WeightFormat};

const MAGNITUDE: u32 = 0x7fff_ffff;
const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7f80_0000;

/// Adds `addend` to the magnitude of the FP32 bits `x`, then cuts the low `cut` bits off.
///
/// A sum whose exponent field is 255 saturates to the largest finite value of the narrow format
/// (so do Inf and NaN); one whose exponent field is 0 becomes zero of its sign.
#[inline(always)]
fn round_bits(x: u32, addend: u32, cut: u32) -> u32 {
    let mut magnitude = (x & MAGNITUDE) + addend;
    if magnitude >= INFINITY {
        magnitude = INFINITY - 1;
    } else if magnitude < 0x0080_0000 {
        magnitude = 0;
    }
    ((x & SIGN) | magnitude) >> cut
}

/// BF16 of an FP32 value, nearest with ties away from zero (the paper's rule).
#[inline(always)]
pub fn bf16_nearest(x: f32) -> u32 {
    round_bits(x.to_bits(), 0x8000, 16)
}

/// BF16 of an FP32 value, stochastic with 16 random bits.
#[inline(always)]
pub fn bf16_stochastic(x: f32, random: u32) -> u32 {
    round_bits(x.to_bits(), random & 0xffff, 16)
}

/// 24-bit float (1-8-15) of an FP32 value, nearest with ties away from zero.
#[inline(always)]
pub fn fp24_nearest(x: f32) -> u32 {
    round_bits(x.to_bits(), 0x80, 8)
}

/// 24-bit float (1-8-15) of an FP32 value, stochastic with 8 random bits.
#[inline(always)]
pub fn fp24_stochastic(x: f32, random: u32) -> u32 {
    round_bits(x.to_bits(), random & 0xff, 8)
}

/// FP32 value of BF16 bits.
#[inline(always)]
pub fn bf16_decode(bits: u32) -> f32 {
    f32::from_bits(bits << 16)
}

/// FP32 value of 24-bit float bits.
#[inline(always)]
pub fn fp24_decode(bits: u32) -> f32 {
    f32::from_bits(bits << 8)
}

impl WeightFormat {
    /// Bits of one stored weight.
    pub fn bits(self) -> u32 {
        match self {
            WeightFormat::Fp32 => 32,
            WeightFormat::Bf16 => 16,
            WeightFormat::Fp24 => 24,
        }
    }

    /// Stored bits (low aligned) of the updated weight `x`; `random` is used by stochastic rounding only.
    #[inline(always)]
    pub fn encode(self, rounding: Rounding, x: f32, random: u32) -> u32 {
        match (self, rounding) {
            (WeightFormat::Fp32, _) => x.to_bits(),
            (WeightFormat::Bf16, Rounding::Nearest) => bf16_nearest(x),
            (WeightFormat::Bf16, Rounding::Stochastic) => bf16_stochastic(x, random),
            (WeightFormat::Fp24, Rounding::Nearest) => fp24_nearest(x),
            (WeightFormat::Fp24, Rounding::Stochastic) => fp24_stochastic(x, random),
        }
    }

    /// FP32 value of stored bits.
    #[inline(always)]
    pub fn decode(self, bits: u32) -> f32 {
        match self {
            WeightFormat::Fp32 => f32::from_bits(bits),
            WeightFormat::Bf16 => bf16_decode(bits),
            WeightFormat::Fp24 => fp24_decode(bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bf16_code_survives_decode_and_encode() {
        for code in 0..=0xffffu32 {
            let exponent = code >> 7 & 0xff;
            let want = match exponent {
                0 => code & 0x8000,
                255 => code & 0x8000 | 0x7f7f,
                _ => code,
            };
            assert_eq!(bf16_nearest(bf16_decode(code)), want, "{code:04x}");
            assert_eq!(bf16_stochastic(bf16_decode(code), 0), want, "{code:04x}");
        }
    }

    #[test]
    fn nearest_is_nearest_with_ties_away() {
        for code in 0x0080..0x7f00u32 {
            let low = code << 16;
            for (offset, up) in [(0u32, 0), (0x7fff, 0), (0x8000, 1), (0xffff, 1)] {
                for sign in [0, SIGN] {
                    let got = bf16_nearest(f32::from_bits(sign | low | offset));
                    assert_eq!(got, sign >> 16 | (code + up), "{code:04x} {offset:04x}");
                }
            }
        }
        for code in (0x00_8000..0x7f_0000u32).step_by(977) {
            for (offset, up) in [(0u32, 0), (0x7f, 0), (0x80, 1), (0xff, 1)] {
                let got = fp24_nearest(f32::from_bits(code << 8 | offset));
                assert_eq!(got, code + up);
            }
        }
    }

    #[test]
    fn a_carry_into_infinity_saturates() {
        assert_eq!(bf16_nearest(f32::MAX), 0x7f7f);
        assert_eq!(bf16_nearest(f32::MIN), 0xff7f);
        assert_eq!(fp24_nearest(f32::MAX), 0x7f_7fff);
        assert_eq!(bf16_stochastic(f32::MAX, 0xffff), 0x7f7f);
    }

    #[test]
    fn the_least_normal_is_reached_by_carry_only() {
        let most_subnormal = f32::from_bits(0x007f_ffff);
        assert_eq!(bf16_nearest(most_subnormal), 0x0080);
        assert_eq!(bf16_nearest(f32::from_bits(0x007f_7fff)), 0);
    }

    #[test]
    fn stochastic_rounding_is_unbiased() {
        let x = f32::from_bits(0x3f80_4000);
        let ups: u32 = (0..=0xffff).map(|r| bf16_stochastic(x, r) - 0x3f80).sum();
        assert_eq!(ups, 0x4000);
        let ups: u32 = (0..=0xff)
            .map(|r| fp24_stochastic(f32::from_bits(0x3f80_0031), r) - 0x3f_8000)
            .sum();
        assert_eq!(ups, 0x31);
    }
}
