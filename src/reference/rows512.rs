//! Row operations of [`super::rows`] in AVX-512, 16 elements at a time.
//!
//! The plain loops of `rows` are the definition; these forms exist because rows are short
//! (88 elements, or a causal row's 1 to 128), so that what a compiler leaves to a scalar
//! remainder would dominate. They equal the plain loops on every bit.

use super::functions::Functions;
use super::rows::Norm;
use super::simd::Grid;
use super::simd::x86::{LANES, add, lanes, mul, sub};
use std::arch::x86_64::*;

#[inline(always)]
unsafe fn ftz8(x: __m256) -> __m256 {
    // SAFETY: register operations; the caller enabled AVX-512.
    unsafe {
        let bits = _mm256_castps_si256(x);
        let tiny = _mm256_testn_epi32_mask(bits, _mm256_set1_epi32(0x7f80_0000));
        let sign = _mm256_set1_epi32(i32::MIN);
        _mm256_castsi256_ps(_mm256_mask_and_epi32(bits, tiny, bits, sign))
    }
}

/// One more vector of a `sum8`; lanes outside `mask` (the lowest ones are inside) add nothing.
#[inline(always)]
unsafe fn sum_on(sums: __m256, x: __m512, mask: u16) -> __m256 {
    // SAFETY: register operations; the caller enabled AVX-512.
    unsafe {
        let low = _mm512_castps512_ps256(x);
        let high = _mm512_extractf32x8_ps::<1>(x);
        let sums = ftz8(_mm256_mask_add_ps(sums, mask as u8, sums, low));
        ftz8(_mm256_mask_add_ps(sums, (mask >> 8) as u8, sums, high))
    }
}

/// The last seven additions of `sum8`.
#[inline(always)]
unsafe fn combine(s: __m256) -> f32 {
    // SAFETY: register operations; the caller enabled AVX-512.
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps::<1>(s));
        let four = _mm256_castps256_ps128(ftz8(_mm256_castps128_ps256(four)));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        let two = _mm256_castps256_ps128(ftz8(_mm256_castps128_ps256(two)));
        let one = _mm_add_ss(two, _mm_movehdup_ps(two));
        crate::num::fp32::ftz(_mm_cvtss_f32(one))
    }
}

/// Larger exponent fields, in place.
#[inline(always)]
unsafe fn larger(e: __m512i, x: __m512, mask: u16) -> __m512i {
    // SAFETY: register operations; the caller enabled AVX-512.
    unsafe {
        let field = _mm512_set1_epi32(0x7f80_0000);
        let bits = _mm512_maskz_and_epi32(mask, _mm512_castps_si512(x), field);
        _mm512_max_epu32(e, bits)
    }
}

#[inline(always)]
unsafe fn largest(e: __m512i) -> u32 {
    // SAFETY: register operation; the caller enabled AVX-512.
    unsafe { _mm512_reduce_max_epu32(e) >> 23 }
}

/// `exp2n` of 16 lanes.
#[inline(always)]
unsafe fn exp2n(y: __m512, f: &Functions) -> __m512 {
    // SAFETY: indices are below 256; the caller enabled AVX-512.
    unsafe {
        let a = _mm512_sub_ps(_mm512_setzero_ps(), y);
        // The second operand where one is NaN.
        let a = _mm512_min_ps(a, _mm512_set1_ps(127.0));
        let a = _mm512_max_ps(a, _mm512_setzero_ps());
        let fixed = _mm512_cvttps_epi32(_mm512_mul_ps(a, _mm512_set1_ps(4_194_304.0)));
        let fixed = _mm512_sub_epi32(_mm512_setzero_si512(), fixed);
        let n = _mm512_srai_epi32::<22>(fixed);
        let i = _mm512_and_si512(_mm512_srli_epi32::<14>(fixed), _mm512_set1_epi32(255));
        let r = _mm512_and_si512(fixed, _mm512_set1_epi32(0x3fff));
        let base = _mm512_i32gather_epi32::<4>(i, f.exp_base.as_ptr().cast());
        let slope = _mm512_i32gather_epi32::<4>(i, f.exp_slope.as_ptr().cast());
        // Slopes have 15 bits, so a product of 16-bit halves is the whole product.
        let rise = _mm512_srli_epi32::<13>(_mm512_madd_epi16(slope, r));
        let m = _mm512_min_epu32(_mm512_add_epi32(base, rise), _mm512_set1_epi32(0xff_ffff));
        // The leading one of m adds one to the exponent.
        let power = _mm512_slli_epi32::<23>(_mm512_add_epi32(n, _mm512_set1_epi32(126)));
        let normal = _mm512_cmpge_epi32_mask(n, _mm512_set1_epi32(-126));
        _mm512_castsi512_ps(_mm512_maskz_add_epi32(normal, m, power))
    }
}

/// See [`super::rows::softmax`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
pub(crate) fn softmax(s: &mut [f32], scale: f32, f: &Functions) -> u32 {
    let (n, s) = (s.len(), s.as_mut_ptr());
    // SAFETY: every access is masked to the row's elements.
    unsafe {
        let lowest = _mm512_set1_ps(f32::NEG_INFINITY);
        let mut m = lowest;
        for i in (0..n).step_by(LANES) {
            let x = _mm512_mask_loadu_ps(lowest, lanes(n - i), s.add(i));
            m = _mm512_max_ps(x, m);
        }
        let m = _mm512_set1_ps(_mm512_reduce_max_ps(m));
        let scale = _mm512_set1_ps(scale);
        let mut sums = _mm256_setzero_ps();
        for i in (0..n).step_by(LANES) {
            let mask = lanes(n - i);
            let x = _mm512_maskz_loadu_ps(mask, s.add(i));
            let x = exp2n(mul(sub(x, m), scale), f);
            _mm512_mask_storeu_ps(s.add(i), mask, x);
            sums = sum_on(sums, x, mask);
        }
        let inv = crate::num::fp32::ftz(1.0 / combine(sums));
        let inv = _mm512_set1_ps(inv);
        let mut e = _mm512_setzero_si512();
        for i in (0..n).step_by(LANES) {
            let mask = lanes(n - i);
            let x = mul(_mm512_maskz_loadu_ps(mask, s.add(i)), inv);
            _mm512_mask_storeu_ps(s.add(i), mask, x);
            e = larger(e, x, mask);
        }
        largest(e)
    }
}

/// See [`super::rows::softmax_back`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
pub(crate) fn softmax_back(dp: &mut [f32], p: &[f32], inv_sqrt_dh: f32) -> u32 {
    let n = dp.len();
    let (p, dp) = (p[..n].as_ptr(), dp.as_mut_ptr());
    // SAFETY: every access is masked to the rows' elements.
    unsafe {
        let mut sums = _mm256_setzero_ps();
        for i in (0..n).step_by(LANES) {
            let mask = lanes(n - i);
            let x = _mm512_maskz_loadu_ps(mask, dp.add(i));
            let y = _mm512_maskz_loadu_ps(mask, p.add(i));
            sums = sum_on(sums, mul(y, x), mask);
        }
        let sum = _mm512_set1_ps(combine(sums));
        let scale = _mm512_set1_ps(inv_sqrt_dh);
        let mut e = _mm512_setzero_si512();
        for i in (0..n).step_by(LANES) {
            let mask = lanes(n - i);
            let x = _mm512_maskz_loadu_ps(mask, dp.add(i));
            let y = _mm512_maskz_loadu_ps(mask, p.add(i));
            let x = mul(mul(sub(x, sum), y), scale);
            _mm512_mask_storeu_ps(dp.add(i), mask, x);
            e = larger(e, x, mask);
        }
        largest(e)
    }
}

/// See [`super::rows::layernorm`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
pub(crate) fn layernorm(x: &[f32], norm: Norm, xhat: &mut [f32], n: &mut [f32]) -> (f32, u32) {
    use crate::num::fp32::ftz;
    let d = x.len();
    let (gamma, beta) = (norm.gamma[..d].as_ptr(), norm.beta[..d].as_ptr());
    let (xhat, n) = (xhat[..d].as_mut_ptr(), n[..d].as_mut_ptr());
    let x = x.as_ptr();
    // SAFETY: every access is masked to the rows' elements.
    unsafe {
        let mut sums = _mm256_setzero_ps();
        for i in (0..d).step_by(LANES) {
            let mask = lanes(d - i);
            sums = sum_on(sums, _mm512_maskz_loadu_ps(mask, x.add(i)), mask);
        }
        let mean = _mm512_set1_ps(ftz(combine(sums) * norm.inv_d));
        let mut sums = _mm256_setzero_ps();
        for i in (0..d).step_by(LANES) {
            let mask = lanes(d - i);
            let t = sub(_mm512_maskz_loadu_ps(mask, x.add(i)), mean);
            _mm512_mask_storeu_ps(xhat.add(i), mask, t);
            sums = sum_on(sums, mul(t, t), mask);
        }
        let var = ftz(combine(sums) * norm.inv_d);
        let rstd = ftz(1.0 / ftz(ftz(var + norm.eps).sqrt()));
        let r = _mm512_set1_ps(rstd);
        let mut e = _mm512_setzero_si512();
        for i in (0..d).step_by(LANES) {
            let mask = lanes(d - i);
            let t = mul(_mm512_maskz_loadu_ps(mask, xhat.add(i)), r);
            _mm512_mask_storeu_ps(xhat.add(i), mask, t);
            let y = mul(t, _mm512_maskz_loadu_ps(mask, gamma.add(i)));
            let y = add(y, _mm512_maskz_loadu_ps(mask, beta.add(i)));
            _mm512_mask_storeu_ps(n.add(i), mask, y);
            e = larger(e, y, mask);
        }
        (rstd, largest(e))
    }
}

/// See [`super::rows::layernorm_back`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
pub(crate) fn layernorm_back(
    dn: &[f32],
    xhat: &[f32],
    norm: Norm,
    rstd: f32,
    residual: &[f32],
    dx: &mut [f32],
    p: &mut [f32],
) -> [u32; 3] {
    use crate::num::fp32::ftz;
    let d = dn.len();
    let (xhat, residual) = (xhat[..d].as_ptr(), residual[..d].as_ptr());
    let gamma = norm.gamma[..d].as_ptr();
    let (dx, p, dn) = (dx[..d].as_mut_ptr(), p[..d].as_mut_ptr(), dn.as_ptr());
    // SAFETY: every access is masked to the rows' elements.
    unsafe {
        let (mut first, mut second) = (_mm256_setzero_ps(), _mm256_setzero_ps());
        let mut e = [_mm512_setzero_si512(); 3];
        for i in (0..d).step_by(LANES) {
            let mask = lanes(d - i);
            let y = _mm512_maskz_loadu_ps(mask, dn.add(i));
            let x = _mm512_maskz_loadu_ps(mask, xhat.add(i));
            let g = _mm512_maskz_loadu_ps(mask, gamma.add(i));
            let x = mul(x, y);
            _mm512_mask_storeu_ps(p.add(i), mask, x);
            e[0] = larger(e[0], x, mask);
            e[1] = larger(e[1], y, mask);
            second = sum_on(second, mul(x, g), mask);
            first = sum_on(first, mul(y, g), mask);
        }
        let c2 = _mm512_set1_ps(ftz(combine(second) * norm.inv_d));
        let c1 = _mm512_set1_ps(ftz(combine(first) * norm.inv_d));
        let rstd = _mm512_set1_ps(rstd);
        for i in (0..d).step_by(LANES) {
            let mask = lanes(d - i);
            let y = _mm512_maskz_loadu_ps(mask, dn.add(i));
            let x = _mm512_maskz_loadu_ps(mask, xhat.add(i));
            let q = mul(y, _mm512_maskz_loadu_ps(mask, gamma.add(i)));
            let r = sub(sub(q, mul(x, c2)), c1);
            let r = add(mul(r, rstd), _mm512_maskz_loadu_ps(mask, residual.add(i)));
            _mm512_mask_storeu_ps(dx.add(i), mask, r);
            e[2] = larger(e[2], r, mask);
        }
        [largest(e[0]), largest(e[1]), largest(e[2])]
    }
}

/// See [`super::rows::add_on_grid`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
pub(crate) fn add_on_grid(sums: &mut [i32], x: &[f32], grid: Grid) {
    let n = sums.len();
    let (x, sums) = (x[..n].as_ptr(), sums.as_mut_ptr());
    // SAFETY: every access is masked to the row's elements.
    unsafe {
        let (first, second) = (_mm512_set1_ps(grid.first), _mm512_set1_ps(grid.second));
        let (limit, least) = (_mm512_set1_ps(grid.limit), _mm512_set1_ps(-grid.limit));
        let rounder = _mm512_set1_ps(grid.rounder);
        for i in (0..n).step_by(LANES) {
            let mask = lanes(n - i);
            let y = _mm512_maskz_loadu_ps(mask, x.add(i));
            let y = _mm512_mul_ps(_mm512_mul_ps(y, first), second);
            let y = _mm512_sub_ps(_mm512_add_ps(y, rounder), rounder);
            let q = _mm512_cvtps_epi32(_mm512_max_ps(_mm512_min_ps(y, limit), least));
            let sum = _mm512_maskz_loadu_epi32(mask, sums.add(i));
            _mm512_mask_storeu_epi32(sums.add(i), mask, _mm512_add_epi32(sum, q));
        }
    }
}
