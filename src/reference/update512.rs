//! [`super::update8`] in AVX-512: a block of moments is three vectors, so the compiler's own
//! vectors would leave most of it to scalar remainders. Equal to the plain loops on every bit.

use super::simd::x86::{LANES, add, ftz512, lanes, mul, sub};
use super::update::Storage;
use super::update8::Run8;
use crate::config::model::{Rounding, WeightFormat};
use crate::num::constants::Constants;
use crate::num::fp32::CANONICAL_NAN;
use crate::num::moments8::{self, BLOCK, M_MAX, V_MAX};
use crate::num::schedule::StepScalars;
use crate::num::threefry::{PARITY, ROTATIONS};
use std::arch::x86_64::*;

const VECTORS: usize = BLOCK.div_ceil(LANES);

/// Both words of Threefry-2x32-8 for 16 consecutive elements from `first` on.
#[inline(always)]
unsafe fn random_words(seed: u32, step: u32, first: u32, tensor: u32) -> [__m512i; 2] {
    // SAFETY: register operations; the caller enabled AVX-512.
    unsafe {
        let keys = [seed, step, seed ^ step ^ PARITY].map(|k| _mm512_set1_epi32(k as i32));
        let places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let element = _mm512_add_epi32(_mm512_set1_epi32(first as i32), places);
        let mut x0 = _mm512_add_epi32(element, keys[0]);
        let mut x1 = _mm512_add_epi32(_mm512_set1_epi32(tensor as i32), keys[1]);
        for (round, rotation) in ROTATIONS.iter().enumerate() {
            x0 = _mm512_add_epi32(x0, x1);
            let turn = _mm512_set1_epi32(*rotation as i32);
            x1 = _mm512_xor_si512(_mm512_rolv_epi32(x1, turn), x0);
            if round % 4 == 3 {
                let n = (round + 1) / 4;
                x0 = _mm512_add_epi32(x0, keys[n % 3]);
                x1 = _mm512_add_epi32(x1, keys[(n + 1) % 3]);
                x1 = _mm512_add_epi32(x1, _mm512_set1_epi32(n as i32));
            }
        }
        [x0, x1]
    }
}

/// `moments8::code`, the random number being the lower 16 bits.
#[inline(always)]
unsafe fn code(x: __m512, reciprocal: f32, random: __m512i, most: u32) -> __m512i {
    // SAFETY: register operations; the caller enabled AVX-512.
    unsafe {
        let scaled = mul(x, _mm512_set1_ps(reciprocal));
        // The second operand where the first is NaN.
        let scaled = _mm512_min_ps(scaled, _mm512_set1_ps(256.0));
        let fixed = _mm512_cvttps_epi32(_mm512_mul_ps(scaled, _mm512_set1_ps(65_536.0)));
        let random = _mm512_and_si512(random, _mm512_set1_epi32(0xffff));
        let code = _mm512_srli_epi32::<16>(_mm512_add_epi32(fixed, random));
        _mm512_min_epu32(code, _mm512_set1_epi32(most as i32))
    }
}

/// A weight rounded into its format, as FP32.
#[inline(always)]
unsafe fn store_weight(w: __m512, storage: &Storage, random: __m512i) -> __m512 {
    let kept = match storage.weight {
        WeightFormat::Fp32 => return w,
        WeightFormat::Bf16 => 16,
        WeightFormat::Fp24 => 24,
    };
    // SAFETY: register operations; the caller enabled AVX-512.
    unsafe {
        let cut = (1i32 << (32 - kept)) - 1;
        let addend = match storage.rounding {
            Rounding::Nearest => _mm512_set1_epi32((cut + 1) / 2),
            Rounding::Stochastic => _mm512_and_si512(random, _mm512_set1_epi32(cut)),
        };
        let bits = _mm512_castps_si512(w);
        let magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(i32::MAX));
        let magnitude = _mm512_add_epi32(magnitude, addend);
        let magnitude = _mm512_min_epu32(magnitude, _mm512_set1_epi32(0x7f7f_ffff));
        let normal = _mm512_cmpge_epu32_mask(magnitude, _mm512_set1_epi32(0x0080_0000));
        let magnitude = _mm512_maskz_mov_epi32(normal, magnitude);
        let sign = _mm512_and_si512(bits, _mm512_set1_epi32(i32::MIN));
        let whole = _mm512_or_si512(sign, magnitude);
        _mm512_castsi512_ps(_mm512_andnot_si512(_mm512_set1_epi32(cut), whole))
    }
}

/// See [`super::update8::adam8`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
pub(crate) fn adam8(run: Run8, c: &Constants, s: &StepScalars, storage: &Storage) -> u32 {
    let mut largest_weight = 0u32;
    let scales = run.m_scale.iter_mut().zip(run.v_scale);
    for (range, (m_scale, v_scale)) in moments8::blocks(run.w.len(), run.columns).zip(scales) {
        let first = run.first.wrapping_add(range.start as u32);
        let n = range.len();
        let g = run.g[range.clone()].as_ptr();
        let w = run.w[range.clone()].as_mut_ptr();
        let m = run.m[range.clone()].as_mut_ptr();
        let v = run.v[range].as_mut_ptr();
        // SAFETY: every access is masked to the block's elements.
        unsafe {
            let zero = _mm512_setzero_ps();
            let (mut m1, mut root, mut w1) = ([zero; VECTORS], [zero; VECTORS], [zero; VECTORS]);
            let mut largest = [_mm512_setzero_si512(); 2];
            for k in 0..VECTORS {
                let i = k * LANES;
                let mask = lanes(n.saturating_sub(i));
                let code = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, m.wrapping_add(i)));
                let m0 = mul(_mm512_cvtepi32_ps(code), _mm512_set1_ps(*m_scale));
                let at = v.wrapping_add(i).cast();
                let code = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, at));
                let r0 = mul(_mm512_cvtepi32_ps(code), _mm512_set1_ps(*v_scale));
                let g = _mm512_maskz_loadu_ps(mask, g.wrapping_add(i));
                let x = add(
                    mul(_mm512_set1_ps(c.beta1), m0),
                    mul(_mm512_set1_ps(c.one_minus_beta1), g),
                );
                let v1 = add(
                    mul(_mm512_set1_ps(c.beta2), mul(r0, r0)),
                    mul(_mm512_set1_ps(c.one_minus_beta2), mul(g, g)),
                );
                let r = ftz512(_mm512_sqrt_ps(v1));
                let u = ftz512(_mm512_div_ps(x, add(r, _mm512_set1_ps(s.eps_t))));
                let old = _mm512_maskz_loadu_ps(mask, w.wrapping_add(i));
                let new = sub(old, mul(_mm512_set1_ps(s.alpha), u));
                let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(new, new);
                let canonical = _mm512_set1_ps(f32::from_bits(CANONICAL_NAN));
                w1[k] = _mm512_mask_mov_ps(new, nan, canonical);
                (m1[k], root[k]) = (x, r);
                // Bit patterns of positive floats are in their order; outside the mask 0 / eps is 0.
                let magnitude = _mm512_set1_epi32(i32::MAX);
                let x = _mm512_maskz_and_epi32(mask, _mm512_castps_si512(x), magnitude);
                largest[0] = _mm512_max_epu32(largest[0], x);
                let r = _mm512_maskz_mov_epi32(mask, _mm512_castps_si512(r));
                largest[1] = _mm512_max_epu32(largest[1], r);
            }
            let (largest_m, largest_root) = (
                _mm512_reduce_max_epu32(largest[0]),
                _mm512_reduce_max_epu32(largest[1]),
            );
            let (im, iv);
            (*m_scale, im) = moments8::scale(f32::from_bits(largest_m), M_MAX);
            (*v_scale, iv) = moments8::scale(f32::from_bits(largest_root), V_MAX);
            let mut largest = _mm512_setzero_si512();
            for k in 0..VECTORS {
                let i = k * LANES;
                let mask = lanes(n.saturating_sub(i));
                let element = first.wrapping_add(i as u32);
                let [r0, r1] = random_words(storage.seed, s.step, element, storage.tensor);
                let magnitude = _mm512_abs_ps(m1[k]);
                let mc = code(magnitude, im, _mm512_srli_epi32::<16>(r0), M_MAX);
                let negative = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(m1[k], zero);
                let mc = _mm512_mask_sub_epi32(mc, negative, _mm512_setzero_si512(), mc);
                _mm512_mask_cvtepi32_storeu_epi8(m.wrapping_add(i), mask, mc);
                let vc = code(root[k], iv, r1, V_MAX);
                let above = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(root[k], zero);
                let least = _mm512_maskz_set1_epi32(above, 1);
                let vc = _mm512_max_epu32(vc, least);
                _mm512_mask_cvtepi32_storeu_epi8(v.wrapping_add(i).cast(), mask, vc);
                let new = store_weight(w1[k], storage, r0);
                _mm512_mask_storeu_ps(w.wrapping_add(i), mask, new);
                let field = _mm512_set1_epi32(0x7f80_0000);
                let e = _mm512_maskz_and_epi32(mask, _mm512_castps_si512(new), field);
                largest = _mm512_max_epu32(largest, e);
            }
            largest_weight = largest_weight.max(_mm512_reduce_max_epu32(largest));
            if largest_root >= 0x7f80_0000 {
                // An infinite second moment has no code.
                largest_weight = 0x7f80_0000;
            }
        }
    }
    largest_weight >> 23
}
