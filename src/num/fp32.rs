//! FP32 operations under the subnormal rule (`docs/arithmetic.md` section 1).
//!
//! `op(a, b) = ftz(ieee(ftz(a), ftz(b)))`, round to nearest even, one NaN pattern.

/// The only NaN the arithmetic produces.
pub const CANONICAL_NAN: u32 = 0x7fc0_0000;
const EXPONENT: u32 = 0x7f80_0000;
const SIGN: u32 = 0x8000_0000;

/// Replaces a subnormal by zero of its sign.
#[inline(always)]
pub fn ftz(x: f32) -> f32 {
    let bits = x.to_bits();
    if bits & EXPONENT == 0 {
        f32::from_bits(bits & SIGN)
    } else {
        x
    }
}

/// Subnormal rule and NaN rule on a result.
#[inline(always)]
fn finish(x: f32) -> f32 {
    if x.is_nan() {
        f32::from_bits(CANONICAL_NAN)
    } else {
        ftz(x)
    }
}

/// `fl(a + b)`.
#[inline(always)]
pub fn add(a: f32, b: f32) -> f32 {
    finish(ftz(a) + ftz(b))
}

/// `fl(a - b)`.
#[inline(always)]
pub fn sub(a: f32, b: f32) -> f32 {
    finish(ftz(a) - ftz(b))
}

/// `fl(a * b)`.
#[inline(always)]
pub fn mul(a: f32, b: f32) -> f32 {
    finish(ftz(a) * ftz(b))
}

/// `fl(a / b)`.
#[inline(always)]
pub fn div(a: f32, b: f32) -> f32 {
    finish(ftz(a) / ftz(b))
}

/// `fl(sqrt(a))`; the root of -0 is -0, of a negative number NaN.
#[inline(always)]
pub fn sqrt(a: f32) -> f32 {
    finish(ftz(a).sqrt())
}

/// `fl32` of a real number given in f64: one rounding to nearest even with gradual underflow, then the subnormal rule.
#[inline(always)]
pub fn from_f64(x: f64) -> f32 {
    finish(x as f32)
}

/// `fl(i)` of an unsigned integer.
#[inline(always)]
pub fn from_u32(i: u32) -> f32 {
    i as f32
}

/// `fl32` of an integer (the loss sum).
#[inline(always)]
pub fn from_i64(i: i64) -> f32 {
    i as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnormal_operands_and_results_are_zero_of_their_sign() {
        let tiny = f32::from_bits(1);
        let least = f32::MIN_POSITIVE;
        assert_eq!(add(tiny, -least).to_bits(), (-least).to_bits());
        assert_eq!(mul(-least, 0.5).to_bits(), SIGN);
        assert_eq!(div(1.0, tiny), f32::INFINITY);
        assert_eq!(sqrt(-tiny).to_bits(), SIGN);
        assert_eq!(sub(least * 1.5, least).to_bits(), 0);
    }

    /// The boundary that hardware must reproduce: the exact result counts, not one already rounded to 24 bits.
    #[test]
    fn results_that_gradual_underflow_rounds_up_to_the_least_normal() {
        let least = f32::MIN_POSITIVE;
        // (1 - 2^-24) * 2^-126 is the tie and rounds up (to even).
        let below_one = f32::from_bits(0x3f7f_ffff);
        assert_eq!(mul(least, below_one), least);
        // (1 - 2^-23) * 2^-126 rounds down to a subnormal.
        let lower = f32::from_bits(0x3f7f_fffe);
        assert_eq!(mul(least, lower), 0.0);
        // Products on both sides of the tie, closer than half a unit of 24 bits.
        let (mut found_below, mut found_above) = (0, 0);
        for k in 0..4096u32 {
            let a = f32::from_bits(0x3f80_0000 | (k * 2039));
            let b = f32::from_bits(((2.0 / a as f64) as f32).to_bits());
            for step in -3i32..=3 {
                let b = f32::from_bits((b.to_bits() as i32 + step) as u32);
                let exact = a as f64 * b as f64 * 2f64.powi(-127);
                let tie = 2f64.powi(-126) - 2f64.powi(-150);
                let got = mul(a * 2f32.powi(-64), b * 2f32.powi(-63));
                if exact < tie {
                    assert_eq!(got, 0.0);
                    found_below += usize::from(exact > tie - 2f64.powi(-151));
                } else {
                    assert!(got >= least);
                    found_above += 1;
                }
            }
        }
        assert!(
            found_below > 10 && found_above > 10,
            "{found_below} {found_above}"
        );
    }
}
