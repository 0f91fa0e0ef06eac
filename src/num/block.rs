//! Exact integer dot products on per-tensor grids (`docs/arithmetic.md` section 2).

use super::fp32;

/// Largest magnitude of a grid value: 17 bits.
pub const GRID_MAX: i32 = 131_071;
/// Exponent of an operand whose elements are 0 and 1 (one-hot, all ones).
pub const UNIT_EMAX: u32 = 127;
/// Grid value of 1.0 at [`UNIT_EMAX`].
pub const UNIT: i32 = 65_536;
/// Longest dot product that the 48-bit accumulator is sized for.
pub const MAX_K: usize = 8_192;

/// 8-bit biased exponent field.
#[inline(always)]
pub fn exponent(x: f32) -> u32 {
    x.to_bits() >> 23 & 0xff
}

/// `emax`: the largest biased exponent of a tensor; 255 means it holds Inf or NaN.
pub fn emax(values: &[f32]) -> u32 {
    values.iter().fold(0, |e, &x| e.max(exponent(x)))
}

/// Factor that brings a value onto its tensor's grid: `2^(143 - emax)`, 0 for an all-zero tensor.
#[inline(always)]
pub fn grid_scale(emax: u32) -> f64 {
    if emax == 0 {
        0.0
    } else {
        f64::from_bits(((143 - emax as i64 + 1023) as u64) << 52)
    }
}

/// Weight of one unit of an integer dot product: `2^(ea + eb - 286)`.
#[inline(always)]
pub fn product_scale(ea: u32, eb: u32) -> f64 {
    f64::from_bits(((ea as i64 + eb as i64 - 286 + 1023) as u64) << 52)
}

/// `q(x)`: the grid value of `x` in a tensor of exponent `emax` (below 255).
#[inline(always)]
pub fn quantise(x: f32, emax: u32) -> i32 {
    let scaled = f64::from(fp32::ftz(x)) * grid_scale(emax);
    let limit = f64::from(GRID_MAX);
    scaled.round_ties_even().clamp(-limit, limit) as i32
}

/// As [`quantise`] with the low `cut` bits left zero: a block of `18 - cut` bits, in units of the 18-bit grid.
#[inline(always)]
pub fn quantise_narrow(x: f32, emax: u32, cut: u32) -> i32 {
    let scaled = f64::from(fp32::ftz(x)) * grid_scale(emax) / f64::from(1u32 << cut);
    let limit = f64::from(GRID_MAX >> cut);
    (scaled.round_ties_even().clamp(-limit, limit) as i32) << cut
}

/// FP32 value of an exact sum of grid products: one rounding to nearest even, then the subnormal rule.
///
/// `|sum| < 2^47`, so both steps before the rounding are exact in f64.
#[inline(always)]
pub fn normalise(sum: i64, ea: u32, eb: u32) -> f32 {
    fp32::from_f64(sum as f64 * product_scale(ea, eb))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grid_uses_seventeen_bits() {
        let values = [1.0f32, 1.999_999_9, -0.25];
        assert_eq!(emax(&values), 127);
        assert_eq!(quantise(1.0, 127), UNIT);
        assert_eq!(quantise(1.999_999_9, 127), GRID_MAX);
        assert_eq!(quantise(-1.999_999_9, 127), -GRID_MAX);
        assert_eq!(quantise(-0.25, 127), -16_384);
        // Half a unit goes to the even neighbour.
        let unit = 2f32.powi(-16);
        assert_eq!(quantise(0.5 * unit, 127), 0);
        assert_eq!(quantise(1.5 * unit, 127), 2);
        assert_eq!(quantise(2.5 * unit, 127), 2);
        assert_eq!(quantise(f32::MIN_POSITIVE, 127), 0);
    }

    #[test]
    fn zero_tensor_and_extreme_exponents() {
        assert_eq!(emax(&[0.0, -0.0]), 0);
        assert_eq!(quantise(0.0, 0), 0);
        assert_eq!(emax(&[1.0, f32::NAN]), 255);
        assert_eq!(quantise(f32::MIN_POSITIVE, 1), UNIT);
        assert_eq!(quantise(f32::MAX, 254), GRID_MAX);
        assert_eq!(normalise(1, 0, 0), 0.0);
        assert_eq!(normalise(1 << 46, 254, 254), f32::INFINITY);
    }

    #[test]
    fn product_of_exact_values_is_exact() {
        let (a, b) = (1.25f32, -0.375f32);
        let q = i64::from(quantise(a, 127)) * i64::from(quantise(b, 127));
        assert_eq!(normalise(q, 127, 127), a * b);
    }

    #[test]
    fn rounding_is_single_and_to_even() {
        // 2^24 + 1 is a tie between two FP32 values; the even one is 2^24.
        let unit = (143 - 127) * 2;
        let value = |sum: i64| normalise(sum, 127, 127) * 2f32.powi(unit);
        assert_eq!(value((1 << 24) + 1), 16_777_216.0);
        assert_eq!(value((1 << 24) + 3), 16_777_220.0);
        assert_eq!(value((1 << 46) + (1 << 22)), (1u64 << 46) as f32);
        assert_eq!(
            value((1 << 46) + (1 << 22) + 1),
            ((1u64 << 46) + (1 << 23)) as f32
        );
    }
}
