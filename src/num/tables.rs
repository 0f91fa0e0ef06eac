//! Interpolation tables of exp, GeLU and ln (`docs/arithmetic.md` section 3).
//!
//! The contents are public: the emitter writes the same words into ROM files. Entries come from
//! the `libm` crate's portable functions, so they are the same on every host.

use crate::config::model::Gelu;

/// Rounds half away from zero, as every table entry is.
fn round(x: f64) -> i32 {
    libm::round(x) as i32
}

/// 2^-n for the exponentials: 256 intervals of one octave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exp2Table {
    /// `T[i] = round((2^(i/256) - 1) * 2^20)`, 20 bits unsigned.
    pub value: Vec<u32>,
    /// `S[i]`, slope over the interval, unsigned.
    pub slope: Vec<u32>,
}

impl Exp2Table {
    pub fn new() -> Self {
        let value: Vec<u32> = (0..256)
            .map(|i| round((libm::exp2(f64::from(i) / 256.0) - 1.0) * 1_048_576.0) as u32)
            .collect();
        let slope = (0..256u32)
            .map(|i| {
                let next = libm::exp2(f64::from(i + 1) / 256.0) * 8_388_608.0;
                let here = ((1 << 20) + value[i as usize]) << 3;
                round((next - f64::from(here)) / 2.0) as u32
            })
            .collect();
        Self { value, slope }
    }

    /// `exp2n(y)` = 2^y for y <= 0; a positive y counts as 0, below about -126 the result is +0 (so it is for NaN).
    #[inline(always)]
    pub fn exp2n(&self, y: f32) -> f32 {
        let bits = y.to_bits();
        let a = if bits >> 31 == 0 && !y.is_nan() {
            0.0
        } else {
            f32::from_bits(bits & 0x7fff_ffff)
        };
        // Also catches NaN, whose magnitude bits are above those of 127.
        if a.to_bits() >= 127f32.to_bits() {
            return 0.0;
        }
        let fixed = (a * 4_194_304.0) as i32;
        let n = -fixed >> 22;
        let g = (-fixed & 0x3f_ffff) as u32;
        let (i, r) = ((g >> 14) as usize, g & 0x3fff);
        let m = (((1 << 20) + self.value[i]) << 3) + ((self.slope[i] * r) >> 13);
        let m = m.min(0xff_ffff);
        if n < -126 {
            return 0.0;
        }
        // m has its leading one at bit 23: drop it and set the exponent field.
        f32::from_bits((m & 0x7f_ffff) | ((n + 127) as u32) << 23)
    }
}

impl Default for Exp2Table {
    fn default() -> Self {
        Self::new()
    }
}

/// A function with f(-x) = 1 - f(x) and f(x) = 1 from x = 8 on: 512 intervals of 1/64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddTable {
    /// `T[i] = round(F(i/64) * 2^19)`, 20 bits unsigned.
    pub value: Vec<u32>,
    /// `S[i]`, slope over the interval, signed 16 bits.
    pub slope: Vec<i32>,
    /// `s`: right shift of the interpolated term.
    pub shift: u32,
}

impl OddTable {
    fn new(f: impl Fn(f64) -> f64, shift: u32) -> Self {
        let value: Vec<u32> = (0..512)
            .map(|i| round(f(f64::from(i) / 64.0) * 524_288.0) as u32)
            .collect();
        let slope = (0..512u32)
            .map(|i| {
                let next = f(f64::from(i + 1) / 64.0) * 8_388_608.0;
                let here = f64::from(value[i as usize] << 4);
                round((next - here) / f64::from(1u32 << (12 - shift)))
            })
            .collect();
        Self {
            value,
            slope,
            shift,
        }
    }

    /// Table of `phi`, the factor of GeLU: `gelu(x) = x * phi(x)`.
    pub fn phi(gelu: Gelu) -> Self {
        Self::new(|x| phi(gelu, x), 11)
    }

    /// Table of GeLU's derivative.
    pub fn dphi(gelu: Gelu) -> Self {
        Self::new(|x| dphi(gelu, x), 10)
    }

    /// The function at `x`, in Q23 and exact in FP32. NaN counts as 8 of its sign.
    #[inline(always)]
    pub fn eval(&self, x: f32) -> f32 {
        let bits = x.to_bits();
        let a = f32::from_bits(bits & 0x7fff_ffff);
        let v = if bits & 0x7fff_ffff >= 8f32.to_bits() {
            1 << 23
        } else {
            let fixed = (a * 262_144.0) as u32;
            let (i, r) = ((fixed >> 12) as usize, (fixed & 0xfff) as i32);
            ((self.value[i] << 4) as i32) + ((self.slope[i] * r) >> self.shift)
        };
        let v = if bits >> 31 == 1 { (1 << 23) - v } else { v };
        v as f32 * (1.0 / 8_388_608.0)
    }
}

/// sqrt(2 / pi), the constant of GeLU's tanh form.
const TANH_SCALE: f64 = 0.797_884_560_802_865_4;
/// Cubic coefficient of GeLU's tanh form.
const TANH_CUBIC: f64 = 0.044_715;

/// `phi(x)` in f64: the standard normal distribution function, or its tanh form.
pub fn phi(gelu: Gelu, x: f64) -> f64 {
    match gelu {
        Gelu::Erf => 0.5 * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Gelu::Tanh => 0.5 * (1.0 + libm::tanh(TANH_SCALE * (x + TANH_CUBIC * x * x * x))),
    }
}

/// Derivative of `x * phi(x)` in f64.
pub fn dphi(gelu: Gelu, x: f64) -> f64 {
    match gelu {
        Gelu::Erf => {
            let density = libm::exp(-0.5 * x * x) * (TANH_SCALE * 0.5);
            phi(gelu, x) + x * density
        }
        Gelu::Tanh => {
            let t = libm::tanh(TANH_SCALE * (x + TANH_CUBIC * x * x * x));
            let inner = TANH_SCALE * (1.0 + 3.0 * TANH_CUBIC * x * x);
            0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner
        }
    }
}

/// Natural logarithm of numbers from 1 on, as a Q24 integer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LnTable {
    /// `T[i] = round(ln(1 + i/256) * 2^24)`, 24 bits unsigned, 257 entries.
    pub value: Vec<u32>,
    /// `D[i] = T[i+1] - T[i]`, 256 entries.
    pub delta: Vec<u32>,
}

/// ln 2 in Q24.
pub const LN2_Q24: i64 = 11_629_080;

impl LnTable {
    pub fn new() -> Self {
        let value: Vec<u32> = (0..=256)
            .map(|i| round(libm::log(1.0 + f64::from(i) / 256.0) * 16_777_216.0) as u32)
            .collect();
        let delta = value.windows(2).map(|w| w[1] - w[0]).collect();
        Self { value, delta }
    }

    /// `ln_fx(s)` in Q24 for a finite s >= 1.
    #[inline(always)]
    pub fn ln_fx(&self, s: f32) -> i64 {
        let bits = s.to_bits();
        let e = i64::from(bits >> 23) - 127;
        let (i, r) = ((bits >> 15 & 0xff) as usize, u64::from(bits & 0x7fff));
        let fraction = u64::from(self.value[i]) + ((u64::from(self.delta[i]) * r) >> 15);
        e * LN2_Q24 + fraction as i64
    }
}

impl Default for LnTable {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp2n_is_within_2e_6() {
        let table = Exp2Table::new();
        assert!(table.value.iter().all(|&t| t < 1 << 20));
        let mut worst = 0f64;
        for k in 0..2_000_000 {
            let y = -(k as f32) * 6.3e-5;
            if y < -125.5 {
                break;
            }
            let want = libm::exp2(f64::from(y));
            worst = worst.max((f64::from(table.exp2n(y)) / want - 1.0).abs());
        }
        assert!(worst < 2e-6, "{worst}");
        assert!(worst > 1e-7);
    }

    #[test]
    fn exp2n_at_its_borders() {
        let table = Exp2Table::new();
        assert_eq!(table.exp2n(0.0), 1.0);
        assert_eq!(table.exp2n(-0.0), 1.0);
        assert_eq!(table.exp2n(3.0), 1.0);
        assert_eq!(table.exp2n(-1.0), 0.5);
        assert_eq!(table.exp2n(-126.0), f32::MIN_POSITIVE);
        assert_eq!(table.exp2n(-126.5), 0.0);
        assert_eq!(table.exp2n(-127.0), 0.0);
        assert_eq!(table.exp2n(f32::NEG_INFINITY), 0.0);
        assert_eq!(table.exp2n(f32::INFINITY), 1.0);
        assert_eq!(table.exp2n(f32::NAN), 0.0);
        // Monotone over every interval border of an octave.
        let mut last = 1.0;
        for k in 0..(1 << 16) {
            let y = table.exp2n(-(k as f32) / 65_536.0);
            assert!(y <= last);
            last = y;
        }
    }

    #[test]
    fn gelu_tables_hold_their_bounds() {
        for gelu in [Gelu::Erf, Gelu::Tanh] {
            let (p, d) = (OddTable::phi(gelu), OddTable::dphi(gelu));
            for table in [&p, &d] {
                assert!(table.value.iter().all(|&t| t < 1 << 20));
                assert!(table.slope.iter().all(|&s| i16::try_from(s).is_ok()));
            }
            let (mut worst_p, mut worst_d) = (0f64, 0f64);
            for k in -1_000_000..1_000_000 {
                let x = k as f32 * 9.1e-6;
                let e = (f64::from(p.eval(x)) - phi(gelu, f64::from(x))).abs();
                worst_p = worst_p.max(e);
                let e = (f64::from(d.eval(x)) - dphi(gelu, f64::from(x))).abs();
                worst_d = worst_d.max(e);
            }
            assert!(worst_p < 1e-5, "{gelu:?} {worst_p}");
            assert!(worst_d < 5e-5, "{gelu:?} {worst_d}");
            assert_eq!(p.eval(8.0), 1.0);
            assert_eq!(p.eval(-8.0), 0.0);
            assert_eq!(p.eval(0.0), 0.5);
            assert_eq!(p.eval(f32::INFINITY), 1.0);
        }
    }

    #[test]
    fn dphi_is_the_derivative_of_gelu() {
        for gelu in [Gelu::Erf, Gelu::Tanh] {
            for k in -80..80 {
                let x = f64::from(k) / 16.0;
                let f = |x: f64| x * phi(gelu, x);
                let slope = (f(x + 1e-5) - f(x - 1e-5)) / 2e-5;
                assert!((slope - dphi(gelu, x)).abs() < 1e-8);
            }
        }
    }

    #[test]
    fn ln_is_within_3e_6() {
        let table = LnTable::new();
        let mut worst = 0f64;
        let mut s = 1f32;
        while s < 70_000.0 {
            let got = table.ln_fx(s) as f64 / 16_777_216.0;
            worst = worst.max((got - libm::log(f64::from(s))).abs());
            s *= 1.000_013;
        }
        assert!(worst < 3e-6, "{worst}");
        assert_eq!(table.ln_fx(1.0), 0);
        assert_eq!(table.ln_fx(2.0), LN2_Q24);
    }
}
