//! Adam with 8-bit block moments (`docs/arithmetic.md` section 6).

use super::simd::leveled;
use super::update::Storage;
#[cfg(target_arch = "x86_64")]
use super::update512;
use crate::config::model::{Rounding, WeightFormat};
use crate::num::constants::Constants;
use crate::num::formats;
use crate::num::fp32::{CANONICAL_NAN, ftz};
use crate::num::moments8::{self, BLOCK};
use crate::num::schedule::StepScalars;
use crate::num::threefry::rounding_bits;

/// Whole rows of one tensor.
pub(crate) struct Run8<'a> {
    /// Row-major index of the first element.
    pub first: u32,
    pub columns: usize,
    pub w: &'a mut [f32],
    pub m: &'a mut [i8],
    pub v: &'a mut [u8],
    pub m_scale: &'a mut [f32],
    pub v_scale: &'a mut [f32],
    pub g: &'a [f32],
}

#[inline(always)]
fn adam8_body(run: Run8, c: &Constants, s: &StepScalars, storage: &Storage) -> u32 {
    let mut largest_weight = 0u32;
    let scales = run.m_scale.iter_mut().zip(run.v_scale);
    for (range, (m_scale, v_scale)) in moments8::blocks(run.w.len(), run.columns).zip(scales) {
        let first = run.first.wrapping_add(range.start as u32);
        let n = range.len();
        let (w, g) = (&mut run.w[range.clone()], &run.g[range.clone()]);
        let (m, v) = (&mut run.m[range.clone()], &mut run.v[range]);
        let (mut m1, mut root) = ([0f32; BLOCK], [0f32; BLOCK]);
        let (mut largest_m, mut largest_root) = (0u32, 0u32);
        for i in 0..n {
            let (m0, v0) = (
                moments8::decode_m(m[i], *m_scale),
                moments8::decode_v(v[i], *v_scale),
            );
            let x = ftz(ftz(c.beta1 * m0) + ftz(c.one_minus_beta1 * g[i]));
            let v1 = ftz(ftz(c.beta2 * v0) + ftz(c.one_minus_beta2 * ftz(g[i] * g[i])));
            let r = ftz(v1.sqrt());
            let u = ftz(x / ftz(r + s.eps_t));
            let w1 = ftz(w[i] - ftz(s.alpha * u));
            w[i] = if w1.is_nan() {
                f32::from_bits(CANONICAL_NAN)
            } else {
                w1
            };
            m1[i] = x;
            root[i] = r;
            // Bit patterns of positive floats are in their order.
            largest_m = largest_m.max(x.to_bits() & 0x7fff_ffff);
            largest_root = largest_root.max(r.to_bits());
        }
        let im;
        let iv;
        (*m_scale, im) = moments8::scale(f32::from_bits(largest_m), moments8::M_MAX);
        (*v_scale, iv) = moments8::scale(f32::from_bits(largest_root), moments8::V_MAX);
        for i in 0..n {
            let random = rounding_bits(
                storage.seed,
                s.step,
                first.wrapping_add(i as u32),
                storage.tensor,
            );
            m[i] = moments8::encode_m(m1[i], im, random.m);
            v[i] = moments8::encode_v(root[i], iv, random.v);
            w[i] = match (storage.weight, storage.rounding) {
                (WeightFormat::Fp32, _) => w[i],
                (WeightFormat::Bf16, Rounding::Nearest) => {
                    formats::bf16_decode(formats::bf16_nearest(w[i]))
                }
                (WeightFormat::Bf16, Rounding::Stochastic) => {
                    formats::bf16_decode(formats::bf16_stochastic(w[i], random.weight))
                }
                (WeightFormat::Fp24, Rounding::Nearest) => {
                    formats::fp24_decode(formats::fp24_nearest(w[i]))
                }
                (WeightFormat::Fp24, Rounding::Stochastic) => {
                    formats::fp24_decode(formats::fp24_stochastic(w[i], random.weight))
                }
            };
            largest_weight = largest_weight.max(w[i].to_bits() & 0x7f80_0000);
        }
        if largest_root >= 0x7f80_0000 {
            // An infinite second moment has no code.
            largest_weight = 0x7f80_0000;
        }
    }
    largest_weight >> 23
}
leveled! {
    /// Updates whole rows; returns the largest biased exponent of the new weights, 255 on overflow.
    pub(crate) fn adam8(run: Run8, c: &Constants, s: &StepScalars, storage: &Storage) -> u32
        = adam8_body, update512::adam8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::adam::{Parameter, adam};
    use crate::num::schedule::{Schedule, tests::paper};
    use crate::reference::simd::Level;

    /// Rows of two blocks (44 and 6) against the definition, step by step, in every format and level.
    #[test]
    fn rows_follow_the_definition() {
        for level in Level::available() {
            for weight in [WeightFormat::Fp32, WeightFormat::Bf16, WeightFormat::Fp24] {
                for rounding in [Rounding::Nearest, Rounding::Stochastic] {
                    check(level, weight, rounding);
                }
            }
        }
    }

    fn check(level: Level, weight: WeightFormat, rounding: Rounding) {
        let c = Constants::new(&paper());
        let mut schedule = Schedule::default();
        let columns = 50;
        let storage = Storage {
            weight,
            rounding,
            bf16_moments: false,
            seed: 9,
            tensor: 2,
        };
        let (mut w, mut m, mut v) = (
            vec![0.1f32; columns],
            vec![0i8; columns],
            vec![0u8; columns],
        );
        let (mut ms, mut vs) = (vec![0f32; 2], vec![0f32; 2]);
        for step in 0..5u32 {
            let s = schedule.advance(&c);
            let g: Vec<f32> = (0..columns as u32)
                .map(|i| ((i * 7 + step) as f32 * 0.9).sin() * 2f32.powi(-((i % 9) as i32)))
                .collect();
            let (w0, m0, v0, ms0, vs0) = (w.clone(), m.clone(), v.clone(), ms.clone(), vs.clone());
            let run = Run8 {
                first: 100,
                columns,
                w: &mut w,
                m: &mut m,
                v: &mut v,
                m_scale: &mut ms,
                v_scale: &mut vs,
                g: &g,
            };
            adam8(level, run, &c, &s, &storage);
            for (b, range) in [(0, 0..44), (1, 44..50)] {
                let new: Vec<Parameter> = range
                    .clone()
                    .map(|i| {
                        let p = Parameter {
                            w: w0[i],
                            m: moments8::decode_m(m0[i], ms0[b]),
                            v: moments8::decode_v(v0[i], vs0[b]),
                        };
                        adam(&c, &s, p, g[i])
                    })
                    .collect();
                let largest = new.iter().fold(0f32, |a, p| a.max(p.m.abs()));
                let (scale, reciprocal) = moments8::scale(largest, 127);
                assert_eq!(ms[b].to_bits(), scale.to_bits());
                let roots: Vec<f32> = new.iter().map(|p| crate::num::fp32::sqrt(p.v)).collect();
                let (v_scale, v_reciprocal) =
                    moments8::scale(roots.iter().fold(0f32, |a, &r| a.max(r)), 255);
                assert_eq!(vs[b].to_bits(), v_scale.to_bits());
                for (k, i) in range.enumerate() {
                    let random = rounding_bits(9, s.step, 100 + i as u32, 2);
                    assert_eq!(m[i], moments8::encode_m(new[k].m, reciprocal, random.m));
                    assert_eq!(v[i], moments8::encode_v(roots[k], v_reciprocal, random.v));
                    let want = weight.decode(weight.encode(rounding, new[k].w, random.weight));
                    assert_eq!(w[i].to_bits(), want.to_bits());
                }
            }
        }
    }
}
