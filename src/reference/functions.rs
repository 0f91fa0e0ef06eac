//! exp, GeLU and ln as the row kernels call them: the tables of the arithmetic, or accurate
//! FP32 functions for `compute = fp32`. Branch-free, so that loops over them vectorise.

use crate::config::model::{Gelu, ModelConfig};
use crate::num::tables::{Exp2Table, LnTable, OddTable, dphi, phi};

/// Both sets of functions of one model.
pub(crate) struct Functions {
    /// `(2^20 + T[i]) << 3` and `S[i]` of `exp2n`.
    pub exp_base: [u32; 256],
    pub exp_slope: [u32; 256],
    pub phi: Interpolated,
    pub dphi: Interpolated,
    pub ln: LnTable,
}

/// A function with f(-x) = 1 - f(x), as a linear table in integers and as polynomials in FP32.
pub(crate) struct Interpolated {
    base: [i32; 512],
    slope: [i32; 512],
    shift: u32,
    /// By power of `t = 4 |x| - i - 1/2`, for each interval `i` of a quarter.
    pub coefficients: [[f32; INTERVALS]; TERMS],
}

/// Intervals of the polynomials: [0, 8) in quarters.
const INTERVALS: usize = 32;
/// Coefficients of a polynomial.
const TERMS: usize = 6;

/// The polynomial through `f` at the Chebyshev nodes of [-1/2, 1/2]: its error there is below
/// 1e-8 for the functions of GeLU.
fn polynomial(f: impl Fn(f64) -> f64) -> [f64; TERMS] {
    let node = |k: usize| {
        let angle = std::f64::consts::PI * (k as f64 + 0.5) / TERMS as f64;
        0.5 * libm::cos(angle)
    };
    // Newton's divided differences, then Horner's rule on the coefficients.
    let mut difference: [f64; TERMS] = std::array::from_fn(|k| f(node(k)));
    for order in 1..TERMS {
        for k in (order..TERMS).rev() {
            let width = node(k) - node(k - order);
            difference[k] = (difference[k] - difference[k - 1]) / width;
        }
    }
    let mut sum = [0.0; TERMS];
    for k in (0..TERMS).rev() {
        for power in (0..TERMS).rev() {
            let lower = if power > 0 {
                sum[power - 1]
            } else {
                difference[k]
            };
            sum[power] = lower - node(k) * sum[power];
        }
    }
    sum
}

impl Interpolated {
    fn new(table: &OddTable, f: impl Fn(f64) -> f64) -> Self {
        let polynomials: [[f64; TERMS]; INTERVALS] =
            std::array::from_fn(|i| polynomial(|t| f((i as f64 + 0.5 + t) / 4.0)));
        Self {
            base: std::array::from_fn(|i| (table.value[i] << 4) as i32),
            slope: std::array::from_fn(|i| table.slope[i]),
            shift: table.shift,
            coefficients: std::array::from_fn(|power| {
                std::array::from_fn(|i| polynomials[i][power] as f32)
            }),
        }
    }

    /// The linear table of `docs/arithmetic.md` section 3 (`EXACT = false`), or the function to FP32 accuracy.
    #[inline(always)]
    pub fn eval<const EXACT: bool>(&self, x: f32) -> f32 {
        let bits = x.to_bits();
        let magnitude = f32::from_bits(bits & 0x7fff_ffff);
        let inside = magnitude < 8.0;
        let a = if inside { magnitude } else { 0.0 };
        if EXACT {
            let scaled = a * 4.0;
            // SAFETY: 0 <= scaled < 32.
            let i = unsafe { scaled.to_int_unchecked::<i32>() };
            let t = scaled - i as f32 - 0.5;
            let i = i as usize % INTERVALS;
            let mut v = 0.0;
            for power in self.coefficients.iter().rev() {
                v = v * t + power[i];
            }
            let v = if inside { v } else { 1.0 };
            return if bits >> 31 == 1 { 1.0 - v } else { v };
        }
        // SAFETY: 0 <= a * 2^18 < 2^21.
        let fixed = unsafe { (a * 262_144.0).to_int_unchecked::<i32>() };
        let i = (fixed >> 12 & 511) as usize;
        let r = fixed & 0xfff;
        let v = self.base[i] + ((self.slope[i] * r) >> self.shift);
        let v = if inside { v } else { 1 << 23 };
        let v = if bits >> 31 == 1 { (1 << 23) - v } else { v };
        v as f32 * (1.0 / 8_388_608.0)
    }
}

/// Taylor coefficients of 2^x: ln(2)^k / k!.
pub const EXP2_SERIES: [f32; 8] = [
    1.0,
    std::f32::consts::LN_2,
    0.240_226_5,
    0.055_504_11,
    0.009_618_129,
    0.001_333_356,
    1.540_353e-4,
    1.525_273e-5,
];

impl Functions {
    pub fn new(model: &ModelConfig) -> Self {
        let exp = Exp2Table::new();
        let gelu: Gelu = model.gelu;
        Self {
            exp_base: std::array::from_fn(|i| ((1 << 20) + exp.value[i]) << 3),
            exp_slope: std::array::from_fn(|i| exp.slope[i]),
            phi: Interpolated::new(&OddTable::phi(gelu), |x| phi(gelu, x)),
            dphi: Interpolated::new(&OddTable::dphi(gelu), |x| dphi(gelu, x)),
            ln: LnTable::new(),
        }
    }

    /// 2^y for y <= 0: `exp2n` (`EXACT = false`), or to FP32 accuracy.
    #[inline(always)]
    pub fn exp2n<const EXACT: bool>(&self, y: f32) -> f32 {
        let a = if -y < 127.0 { -y } else { 127.0 };
        let a = if a > 0.0 { a } else { 0.0 };
        if EXACT {
            // SAFETY: a is between 0 and 127.
            let n = unsafe { (a + 0.5).to_int_unchecked::<i32>() };
            let x = n as f32 - a;
            let mut p = EXP2_SERIES[7];
            for k in (0..7).rev() {
                p = p * x + EXP2_SERIES[k];
            }
            let power = f32::from_bits(((127 - n) as u32) << 23);
            return if a < 126.0 { p * power } else { 0.0 };
        }
        // SAFETY: 0 <= a * 2^22 <= 127 * 2^22 < 2^31.
        let fixed = unsafe { (a * 4_194_304.0).to_int_unchecked::<i32>() };
        let n = -fixed >> 22;
        let g = (-fixed & 0x3f_ffff) as u32;
        let i = (g >> 14 & 255) as usize;
        let r = g & 0x3fff;
        let m = self.exp_base[i] + ((self.exp_slope[i] * r) >> 13);
        let m = if m < 0xff_ffff { m } else { 0xff_ffff };
        let bits = (m & 0x7f_ffff) | ((n + 127) as u32) << 23;
        f32::from_bits(if n < -126 { 0 } else { bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::schedule::tests::paper;

    #[test]
    fn fast_forms_equal_the_definition() {
        let mut model = paper();
        for gelu in [Gelu::Erf, Gelu::Tanh] {
            model.gelu = gelu;
            let f = Functions::new(&model);
            let (exp, p, d) = (Exp2Table::new(), OddTable::phi(gelu), OddTable::dphi(gelu));
            for k in 0..3_000_000u32 {
                let x = f32::from_bits((0x3000_0000 + k * 71) | (k & 1) << 31);
                assert_eq!(f.phi.eval::<false>(x).to_bits(), p.eval(x).to_bits(), "{x}");
                assert_eq!(
                    f.dphi.eval::<false>(x).to_bits(),
                    d.eval(x).to_bits(),
                    "{x}"
                );
                let y = -x.abs() * 9.0;
                assert_eq!(f.exp2n::<false>(y).to_bits(), exp.exp2n(y).to_bits(), "{y}");
            }
            for x in [
                0.0,
                -0.0,
                8.0,
                -8.0,
                7.999_999_5,
                f32::INFINITY,
                f32::NEG_INFINITY,
                f32::NAN,
            ] {
                assert_eq!(f.phi.eval::<false>(x).to_bits(), p.eval(x).to_bits(), "{x}");
                let y = -x.abs() * 15.9;
                assert_eq!(f.exp2n::<false>(y).to_bits(), exp.exp2n(y).to_bits(), "{y}");
            }
        }
    }

    #[test]
    fn exact_forms_have_fp32_accuracy() {
        let mut model = paper();
        for gelu in [Gelu::Erf, Gelu::Tanh] {
            model.gelu = gelu;
            let f = Functions::new(&model);
            for k in -400_000..400_000 {
                let x = k as f32 * 2.3e-5;
                let wide = f64::from(x);
                assert!(
                    (f64::from(f.phi.eval::<true>(x)) - phi(gelu, wide)).abs() < 1.5e-7,
                    "{x}"
                );
                assert!(
                    (f64::from(f.dphi.eval::<true>(x)) - dphi(gelu, wide)).abs() < 3e-7,
                    "{x}"
                );
                let y = -x.abs() * 12.0;
                let want = libm::exp2(f64::from(y));
                assert!(
                    (f64::from(f.exp2n::<true>(y)) / want - 1.0).abs() < 4e-7,
                    "{y}"
                );
            }
        }
    }
}
