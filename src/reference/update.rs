//! Adam over a run of consecutive elements, with rounding into the storage formats
//! (`docs/arithmetic.md` section 5).

use super::simd::leveled;
use crate::config::model::{ModelConfig, MomentFormat, Rounding, WeightFormat};
use crate::num::constants::Constants;
use crate::num::formats;
use crate::num::fp32::{CANONICAL_NAN, ftz};
use crate::num::schedule::StepScalars;
use crate::num::threefry::rounding_bits;

/// How a tensor's update is rounded, and where its random bits come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storage {
    pub weight: WeightFormat,
    pub rounding: Rounding,
    /// Moments in BF16 (stochastic), else in FP32.
    pub bf16_moments: bool,
    pub seed: u32,
    /// Tensor number in the random counter.
    pub tensor: u32,
}

impl Storage {
    pub fn of(model: &ModelConfig, seed: u32, matrix: Option<u32>) -> Self {
        match matrix {
            Some(tensor) => Self {
                weight: model.weight_format,
                rounding: model.rounding,
                bf16_moments: model.moment_format == MomentFormat::Bf16,
                seed,
                tensor,
            },
            None => Self {
                weight: WeightFormat::Fp32,
                rounding: Rounding::Nearest,
                bf16_moments: false,
                seed,
                tensor: 0,
            },
        }
    }
}

/// A run of consecutive elements of one tensor.
pub(crate) struct Run<'a> {
    /// Row-major index of the first element.
    pub first: u32,
    pub w: &'a mut [f32],
    pub m: &'a mut [f32],
    pub v: &'a mut [f32],
    pub g: &'a [f32],
}

const FP32: u8 = 0;
const BF16: u8 = 1;
const FP24: u8 = 2;

/// `WEIGHT`: format; `RANDOM`: stochastic weight rounding; `MOMENTS`: BF16 moments.
#[inline(always)]
fn adam_run<const WEIGHT: u8, const RANDOM: bool, const MOMENTS: bool>(
    run: Run,
    c: &Constants,
    s: &StepScalars,
    storage: &Storage,
) -> u32 {
    let n = run.g.len();
    let (w, m, v) = (&mut run.w[..n], &mut run.m[..n], &mut run.v[..n]);
    let mut largest = 0u32;
    for i in 0..n {
        let g = run.g[i];
        let m1 = ftz(ftz(c.beta1 * m[i]) + ftz(c.one_minus_beta1 * g));
        let v1 = ftz(ftz(c.beta2 * v[i]) + ftz(c.one_minus_beta2 * ftz(g * g)));
        let u = ftz(m1 / ftz(ftz(v1.sqrt()) + s.eps_t));
        let w1 = ftz(w[i] - ftz(s.alpha * u));
        let w1 = if w1.is_nan() {
            f32::from_bits(CANONICAL_NAN)
        } else {
            w1
        };
        let random = if RANDOM || MOMENTS {
            rounding_bits(
                storage.seed,
                s.step,
                run.first.wrapping_add(i as u32),
                storage.tensor,
            )
        } else {
            crate::num::threefry::RoundingBits {
                weight: 0,
                m: 0,
                v: 0,
            }
        };
        let w1 = match (WEIGHT, RANDOM) {
            (BF16, false) => formats::bf16_decode(formats::bf16_nearest(w1)),
            (BF16, true) => formats::bf16_decode(formats::bf16_stochastic(w1, random.weight)),
            (FP24, false) => formats::fp24_decode(formats::fp24_nearest(w1)),
            (FP24, true) => formats::fp24_decode(formats::fp24_stochastic(w1, random.weight)),
            _ => w1,
        };
        w[i] = w1;
        if MOMENTS {
            m[i] = formats::bf16_decode(formats::bf16_stochastic(m1, random.m));
            v[i] = formats::bf16_decode(formats::bf16_stochastic(v1, random.v));
        } else {
            m[i] = m1;
            v[i] = v1;
        }
        largest = largest.max(w1.to_bits() & 0x7f80_0000);
    }
    largest >> 23
}

#[inline(always)]
fn adam_body(run: Run, c: &Constants, s: &StepScalars, storage: &Storage) -> u32 {
    use Rounding::{Nearest, Stochastic};
    match (storage.weight, storage.rounding, storage.bf16_moments) {
        (WeightFormat::Fp32, _, false) => adam_run::<FP32, false, false>(run, c, s, storage),
        (WeightFormat::Fp32, _, true) => adam_run::<FP32, false, true>(run, c, s, storage),
        (WeightFormat::Bf16, Nearest, false) => adam_run::<BF16, false, false>(run, c, s, storage),
        (WeightFormat::Bf16, Nearest, true) => adam_run::<BF16, false, true>(run, c, s, storage),
        (WeightFormat::Bf16, Stochastic, false) => {
            adam_run::<BF16, true, false>(run, c, s, storage)
        }
        (WeightFormat::Bf16, Stochastic, true) => adam_run::<BF16, true, true>(run, c, s, storage),
        (WeightFormat::Fp24, Nearest, false) => adam_run::<FP24, false, false>(run, c, s, storage),
        (WeightFormat::Fp24, Nearest, true) => adam_run::<FP24, false, true>(run, c, s, storage),
        (WeightFormat::Fp24, Stochastic, false) => {
            adam_run::<FP24, true, false>(run, c, s, storage)
        }
        (WeightFormat::Fp24, Stochastic, true) => adam_run::<FP24, true, true>(run, c, s, storage),
    }
}
leveled! {
    /// Updates a run of elements; returns the largest biased exponent of the new weights.
    pub(crate) fn adam(run: Run, c: &Constants, s: &StepScalars, storage: &Storage) -> u32 = adam_body
}

#[inline(always)]
fn sgd_body(w: &mut [f32], g: &[f32], lr: f32) {
    for (w, &g) in w.iter_mut().zip(g) {
        *w = ftz(*w - ftz(lr * g));
    }
}
leveled! {
    /// `w = w - lr * g`.
    pub(crate) fn sgd(w: &mut [f32], g: &[f32], lr: f32) = sgd_body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::adam::{Parameter, adam as adam_scalar};
    use crate::num::schedule::{Schedule, tests::paper};
    use crate::reference::simd::Level;

    /// Every format on every level equals the scalar definition element by element.
    #[test]
    fn vector_updates_equal_the_definition() {
        let c = Constants::new(&paper());
        let s = Schedule {
            step: 6,
            p1: 0.53,
            p2: 0.994,
        }
        .advance(&c);
        let number = |i: u32, k: u32| {
            let [a, b] = crate::num::threefry::threefry2x32([k, 9], [i, 0]);
            let x = (a as f32 / 4_294_967_296.0 - 0.5) * 2f32.powi((b % 60) as i32 - 55);
            if b % 17 == 0 { 0.0 } else { x }
        };
        let n = 1003u32;
        for level in Level::available() {
            for weight in [WeightFormat::Fp32, WeightFormat::Bf16, WeightFormat::Fp24] {
                for rounding in [Rounding::Nearest, Rounding::Stochastic] {
                    for bf16_moments in [false, true] {
                        let storage = Storage {
                            weight,
                            rounding,
                            bf16_moments,
                            seed: 5,
                            tensor: 3,
                        };
                        let column = |k, positive: bool| -> Vec<f32> {
                            let sign = |x: f32| if positive { x.abs() } else { x };
                            (0..n).map(|i| ftz(sign(number(i, k)))).collect()
                        };
                        let (mut w, mut m, mut v) =
                            (column(1, false), column(2, false), column(3, true));
                        let g = column(4, false);
                        let (w0, m0, v0) = (w.clone(), m.clone(), v.clone());
                        let run = Run {
                            first: 77,
                            w: &mut w,
                            m: &mut m,
                            v: &mut v,
                            g: &g,
                        };
                        let e = adam(level, run, &c, &s, &storage);
                        assert_eq!(e, crate::num::block::emax(&w));
                        for i in 0..n as usize {
                            let p = Parameter {
                                w: w0[i],
                                m: m0[i],
                                v: v0[i],
                            };
                            let p = adam_scalar(&c, &s, p, g[i]);
                            let r = rounding_bits(5, 7, 77 + i as u32, 3);
                            let want = weight.decode(weight.encode(rounding, p.w, r.weight));
                            assert_eq!(w[i].to_bits(), want.to_bits());
                            let moment = |x, r| {
                                if bf16_moments {
                                    formats::bf16_decode(formats::bf16_stochastic(x, r))
                                } else {
                                    x
                                }
                            };
                            assert_eq!(m[i].to_bits(), moment(p.m, r.m).to_bits());
                            assert_eq!(v[i].to_bits(), moment(p.v, r.v).to_bits());
                        }
                    }
                }
            }
        }
    }
}
