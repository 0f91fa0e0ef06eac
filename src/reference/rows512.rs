//! Row operations of [`super::rows`] in AVX-512, 16 elements at a time.
//!
//! The plain loops of `rows` are the definition; these forms exist because rows are short
//! (88 elements, or a causal row's 1 to 128), so that what a compiler leaves to a scalar
//! remainder would dominate. They equal the plain loops on every bit, except for the functions
//! of `compute = fp32` (`*_exact`), which fuse multiplications with additions.

use super::functions::{EXP2_SERIES, Functions, Interpolated};
use super::rows::{Causal, Norm};
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

/// 2^y for y <= 0 to FP32 accuracy, as [`Functions::exp2n`] with `EXACT`.
#[inline(always)]
unsafe fn exp2_exact(y: __m512) -> __m512 {
    // SAFETY: register operations; the caller enabled AVX-512.
    unsafe {
        // The second operand where the first is NaN.
        let y = _mm512_max_ps(y, _mm512_set1_ps(-127.0));
        let whole = _mm512_roundscale_ps::<0x08>(y);
        let x = _mm512_sub_ps(y, whole);
        let mut p = _mm512_set1_ps(EXP2_SERIES[7]);
        for k in (0..7).rev() {
            p = _mm512_fmadd_ps(p, x, _mm512_set1_ps(EXP2_SERIES[k]));
        }
        let normal = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(y, _mm512_set1_ps(-126.0));
        _mm512_maskz_scalef_ps(normal, p, whole)
    }
}

/// `rows` rows, `most` at a time as long as there are so many, then one by one: first row and number of each group.
#[inline(always)]
fn groups(rows: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let whole = rows / most * most;
    let full = (0..whole).step_by(most).map(move |r| (r, most));
    full.chain((whole..rows).map(|r| (r, 1)))
}

/// Zeros behind `rows` causal rows up to the end of the block's longest, but for what a group has cleared itself.
#[inline(always)]
fn clear_future(s: &mut [f32], ld: usize, causal: Causal, (first, rows): (usize, usize)) {
    let zeros = causal.first + first + rows..causal.first + causal.rows;
    for row in first..first + rows {
        s[row * ld..][zeros.clone()].fill(0.0);
    }
}

/// Softmax of `R` neighbouring rows, of `length`, `length + 1`, ... elements; zeros up to the longest.
///
/// Several rows at a time, here and below, because a row is a chain of dependent additions.
#[inline(always)]
unsafe fn softmax_group<const R: usize>(
    s: *mut f32,
    ld: usize,
    length: usize,
    scale: f32,
    f: &Functions,
    exact: bool,
) -> __m512i {
    let longest = length + R - 1;
    // SAFETY: every access is masked to the rows' elements.
    unsafe {
        let lowest = _mm512_set1_ps(f32::NEG_INFINITY);
        let mut m = [lowest; R];
        for i in (0..longest).step_by(LANES) {
            for (r, m) in m.iter_mut().enumerate() {
                let mask = lanes((length + r).saturating_sub(i));
                let x = _mm512_mask_loadu_ps(lowest, mask, s.add(r * ld + i));
                *m = _mm512_max_ps(x, *m);
            }
        }
        for m in &mut m {
            *m = _mm512_set1_ps(_mm512_reduce_max_ps(*m));
        }
        let scale = _mm512_set1_ps(scale);
        let mut sums = [_mm256_setzero_ps(); R];
        for i in (0..longest).step_by(LANES) {
            for (r, sum) in sums.iter_mut().enumerate() {
                let mask = lanes((length + r).saturating_sub(i));
                let x = _mm512_maskz_loadu_ps(mask, s.add(r * ld + i));
                let x = mul(sub(x, m[r]), scale);
                let x = if exact { exp2_exact(x) } else { exp2n(x, f) };
                _mm512_mask_storeu_ps(s.add(r * ld + i), mask, x);
                *sum = sum_on(*sum, x, mask);
            }
        }
        let mut inv = [lowest; R];
        for (inv, sum) in inv.iter_mut().zip(sums) {
            *inv = _mm512_set1_ps(crate::num::fp32::ftz(1.0 / combine(sum)));
        }
        let mut e = _mm512_setzero_si512();
        for i in (0..longest).step_by(LANES) {
            for (r, inv) in inv.iter().enumerate() {
                let mask = lanes((length + r).saturating_sub(i));
                let x = _mm512_maskz_loadu_ps(mask, s.add(r * ld + i));
                let x = _mm512_maskz_mov_ps(mask, mul(x, *inv));
                _mm512_mask_storeu_ps(s.add(r * ld + i), lanes(longest - i), x);
                e = larger(e, x, mask);
            }
        }
        e
    }
}

/// See [`super::rows::softmax`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
pub(crate) fn softmax(
    s: &mut [f32],
    ld: usize,
    causal: Causal,
    scale: f32,
    f: &Functions,
    exact: bool,
) -> u32 {
    causal.check(s.len(), ld);
    let mut e = _mm512_setzero_si512();
    for (r, n) in groups(causal.rows, 4) {
        let length = causal.first + r + 1;
        // SAFETY: the check above.
        unsafe {
            let row = s.as_mut_ptr().add(r * ld);
            let group = match n {
                4 => softmax_group::<4>(row, ld, length, scale, f, exact),
                _ => softmax_group::<1>(row, ld, length, scale, f, exact),
            };
            e = _mm512_max_epu32(e, group);
        }
        clear_future(s, ld, causal, (r, n));
    }
    // SAFETY: the processor has AVX-512.
    unsafe { largest(e) }
}

/// Score gradients of `R` neighbouring rows, as [`softmax_group`].
#[inline(always)]
unsafe fn softmax_back_group<const R: usize>(
    dp: *mut f32,
    p: *const f32,
    ld: usize,
    length: usize,
    inv_sqrt_dh: f32,
) -> __m512i {
    let longest = length + R - 1;
    // SAFETY: every access is masked to the rows' elements.
    unsafe {
        let mut sums = [_mm256_setzero_ps(); R];
        for i in (0..longest).step_by(LANES) {
            for (r, sum) in sums.iter_mut().enumerate() {
                let mask = lanes((length + r).saturating_sub(i));
                let x = _mm512_maskz_loadu_ps(mask, dp.add(r * ld + i));
                let y = _mm512_maskz_loadu_ps(mask, p.add(r * ld + i));
                *sum = sum_on(*sum, mul(y, x), mask);
            }
        }
        let mut sum = [_mm512_setzero_ps(); R];
        for (sum, sums) in sum.iter_mut().zip(sums) {
            *sum = _mm512_set1_ps(combine(sums));
        }
        let scale = _mm512_set1_ps(inv_sqrt_dh);
        let mut e = _mm512_setzero_si512();
        for i in (0..longest).step_by(LANES) {
            for (r, sum) in sum.iter().enumerate() {
                let mask = lanes((length + r).saturating_sub(i));
                let x = _mm512_maskz_loadu_ps(mask, dp.add(r * ld + i));
                let y = _mm512_maskz_loadu_ps(mask, p.add(r * ld + i));
                let x = _mm512_maskz_mov_ps(mask, mul(mul(sub(x, *sum), y), scale));
                _mm512_mask_storeu_ps(dp.add(r * ld + i), lanes(longest - i), x);
                e = larger(e, x, mask);
            }
        }
        e
    }
}

/// See [`super::rows::softmax_back`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
pub(crate) fn softmax_back(
    dp: &mut [f32],
    p: &[f32],
    ld: usize,
    causal: Causal,
    inv_sqrt_dh: f32,
) -> u32 {
    causal.check(dp.len().min(p.len()), ld);
    let mut e = _mm512_setzero_si512();
    for (r, n) in groups(causal.rows, 4) {
        let length = causal.first + r + 1;
        // SAFETY: the check above.
        unsafe {
            let (dp_row, p_row) = (dp.as_mut_ptr().add(r * ld), p.as_ptr().add(r * ld));
            let group = match n {
                4 => softmax_back_group::<4>(dp_row, p_row, ld, length, inv_sqrt_dh),
                _ => softmax_back_group::<1>(dp_row, p_row, ld, length, inv_sqrt_dh),
            };
            e = _mm512_max_epu32(e, group);
        }
        clear_future(dp, ld, causal, (r, n));
    }
    // SAFETY: the processor has AVX-512.
    unsafe { largest(e) }
}

/// LayerNorm of `R` rows.
#[inline(always)]
unsafe fn layernorm_group<const R: usize>(
    x: *const f32,
    norm: Norm,
    xhat: *mut f32,
    n: *mut f32,
    rstd: *mut f32,
) -> __m512i {
    use crate::num::fp32::ftz;
    let d = norm.gamma.len();
    let (gamma, beta) = (norm.gamma.as_ptr(), norm.beta.as_ptr());
    // SAFETY: every access is masked to the rows' elements.
    unsafe {
        let mut sums = [_mm256_setzero_ps(); R];
        for i in (0..d).step_by(LANES) {
            let mask = lanes(d - i);
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = sum_on(*sum, _mm512_maskz_loadu_ps(mask, x.add(r * d + i)), mask);
            }
        }
        let mut mean = [_mm512_setzero_ps(); R];
        for (mean, sum) in mean.iter_mut().zip(sums) {
            *mean = _mm512_set1_ps(ftz(combine(sum) * norm.inv_d));
        }
        let mut sums = [_mm256_setzero_ps(); R];
        for i in (0..d).step_by(LANES) {
            let mask = lanes(d - i);
            for (r, sum) in sums.iter_mut().enumerate() {
                let at = r * d + i;
                let t = sub(_mm512_maskz_loadu_ps(mask, x.add(at)), mean[r]);
                _mm512_mask_storeu_ps(xhat.add(at), mask, t);
                *sum = sum_on(*sum, mul(t, t), mask);
            }
        }
        let mut scale = [_mm512_setzero_ps(); R];
        for (r, sum) in sums.into_iter().enumerate() {
            let var = ftz(combine(sum) * norm.inv_d);
            let value = ftz(1.0 / ftz(ftz(var + norm.eps).sqrt()));
            *rstd.add(r) = value;
            scale[r] = _mm512_set1_ps(value);
        }
        let mut e = _mm512_setzero_si512();
        for i in (0..d).step_by(LANES) {
            let mask = lanes(d - i);
            let gamma = _mm512_maskz_loadu_ps(mask, gamma.add(i));
            let beta = _mm512_maskz_loadu_ps(mask, beta.add(i));
            for (r, scale) in scale.iter().enumerate() {
                let at = r * d + i;
                let t = mul(_mm512_maskz_loadu_ps(mask, xhat.add(at)), *scale);
                _mm512_mask_storeu_ps(xhat.add(at), mask, t);
                let y = add(mul(t, gamma), beta);
                _mm512_mask_storeu_ps(n.add(at), mask, y);
                e = larger(e, y, mask);
            }
        }
        e
    }
}

/// See [`super::rows::layernorm`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
pub(crate) fn layernorm(
    x: &[f32],
    norm: Norm,
    xhat: &mut [f32],
    n: &mut [f32],
    rstd: &mut [f32],
) -> u32 {
    let (d, rows) = (norm.gamma.len(), rstd.len());
    let all = rows * d;
    let (x, xhat, n) = (&x[..all], &mut xhat[..all], &mut n[..all]);
    assert_eq!(norm.beta.len(), d);
    let mut e = _mm512_setzero_si512();
    for (r, n_rows) in groups(rows, 4) {
        // SAFETY: rows r to r + n_rows - 1 exist.
        unsafe {
            let (x, xhat) = (x.as_ptr().add(r * d), xhat.as_mut_ptr().add(r * d));
            let (n, rstd) = (n.as_mut_ptr().add(r * d), rstd.as_mut_ptr().add(r));
            let group = match n_rows {
                4 => layernorm_group::<4>(x, norm, xhat, n, rstd),
                _ => layernorm_group::<1>(x, norm, xhat, n, rstd),
            };
            e = _mm512_max_epu32(e, group);
        }
    }
    // SAFETY: the processor has AVX-512.
    unsafe { largest(e) }
}

/// Pointers to the first of some rows of [`layernorm_back`]'s operands.
#[derive(Clone, Copy)]
struct BackRows {
    dn: *const f32,
    xhat: *const f32,
    rstd: *const f32,
    residual: *const f32,
    dx: *mut f32,
    p: *mut f32,
}

#[inline(always)]
unsafe fn layernorm_back_group<const R: usize>(norm: Norm, t: BackRows) -> [__m512i; 3] {
    use crate::num::fp32::ftz;
    let d = norm.gamma.len();
    let gamma = norm.gamma.as_ptr();
    // SAFETY: every access is masked to the rows' elements.
    unsafe {
        let zero = _mm256_setzero_ps();
        let (mut first, mut second) = ([zero; R], [zero; R]);
        let mut e = [_mm512_setzero_si512(); 3];
        for i in (0..d).step_by(LANES) {
            let mask = lanes(d - i);
            let g = _mm512_maskz_loadu_ps(mask, gamma.add(i));
            for r in 0..R {
                let at = r * d + i;
                let y = _mm512_maskz_loadu_ps(mask, t.dn.add(at));
                let x = mul(_mm512_maskz_loadu_ps(mask, t.xhat.add(at)), y);
                _mm512_mask_storeu_ps(t.p.add(at), mask, x);
                e[0] = larger(e[0], x, mask);
                e[1] = larger(e[1], y, mask);
                second[r] = sum_on(second[r], mul(x, g), mask);
                first[r] = sum_on(first[r], mul(y, g), mask);
            }
        }
        let (mut c1, mut c2) = ([_mm512_setzero_ps(); R], [_mm512_setzero_ps(); R]);
        let mut rstd = [_mm512_setzero_ps(); R];
        for r in 0..R {
            c2[r] = _mm512_set1_ps(ftz(combine(second[r]) * norm.inv_d));
            c1[r] = _mm512_set1_ps(ftz(combine(first[r]) * norm.inv_d));
            rstd[r] = _mm512_set1_ps(*t.rstd.add(r));
        }
        for i in (0..d).step_by(LANES) {
            let mask = lanes(d - i);
            let g = _mm512_maskz_loadu_ps(mask, gamma.add(i));
            for r in 0..R {
                let at = r * d + i;
                let q = mul(_mm512_maskz_loadu_ps(mask, t.dn.add(at)), g);
                let x = mul(_mm512_maskz_loadu_ps(mask, t.xhat.add(at)), c2[r]);
                let y = mul(sub(sub(q, x), c1[r]), rstd[r]);
                let y = add(y, _mm512_maskz_loadu_ps(mask, t.residual.add(at)));
                _mm512_mask_storeu_ps(t.dx.add(at), mask, y);
                e[2] = larger(e[2], y, mask);
            }
        }
        e
    }
}

/// See [`super::rows::layernorm_back`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
pub(crate) fn layernorm_back(
    dn: &[f32],
    xhat: &[f32],
    norm: Norm,
    rstd: &[f32],
    residual: &[f32],
    dx: &mut [f32],
    p: &mut [f32],
) -> [u32; 3] {
    let (d, rows) = (norm.gamma.len(), rstd.len());
    let all = rows * d;
    let (dn, xhat, residual) = (&dn[..all], &xhat[..all], &residual[..all]);
    let (dx, p) = (&mut dx[..all], &mut p[..all]);
    let mut e = [_mm512_setzero_si512(); 3];
    for (r, n) in groups(rows, 2) {
        // SAFETY: rows r to r + n - 1 exist.
        unsafe {
            let at = r * d;
            let operands = BackRows {
                dn: dn.as_ptr().add(at),
                xhat: xhat.as_ptr().add(at),
                rstd: rstd.as_ptr().add(r),
                residual: residual.as_ptr().add(at),
                dx: dx.as_mut_ptr().add(at),
                p: p.as_mut_ptr().add(at),
            };
            let group = match n {
                2 => layernorm_back_group::<2>(norm, operands),
                _ => layernorm_back_group::<1>(norm, operands),
            };
            for (e, group) in e.iter_mut().zip(group) {
                *e = _mm512_max_epu32(*e, group);
            }
        }
    }
    // SAFETY: the processor has AVX-512.
    unsafe { [largest(e[0]), largest(e[1]), largest(e[2])] }
}

/// A function with f(-x) = 1 - f(x) to FP32 accuracy, as [`Interpolated::eval`] with `EXACT`:
/// the 32 coefficients of each power fit in two registers, so a lookup is one permutation.
#[inline(always)]
unsafe fn odd_exact(x: __m512, f: &Interpolated) -> __m512 {
    // SAFETY: whole arrays of 32 are read; the caller enabled AVX-512.
    unsafe {
        let a = _mm512_abs_ps(x);
        let inside = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, _mm512_set1_ps(8.0));
        let scaled = _mm512_maskz_mul_ps(inside, a, _mm512_set1_ps(4.0));
        let i = _mm512_cvttps_epi32(scaled);
        let t = _mm512_sub_ps(scaled, _mm512_cvtepi32_ps(i));
        let t = _mm512_sub_ps(t, _mm512_set1_ps(0.5));
        let mut v = _mm512_setzero_ps();
        for power in f.coefficients.iter().rev() {
            let low = _mm512_loadu_ps(power.as_ptr());
            let high = _mm512_loadu_ps(power.as_ptr().add(LANES));
            v = _mm512_fmadd_ps(v, t, _mm512_permutex2var_ps(low, i, high));
        }
        let one = _mm512_set1_ps(1.0);
        let v = _mm512_mask_mov_ps(one, inside, v);
        let negative = _mm512_movepi32_mask(_mm512_castps_si512(x));
        _mm512_mask_sub_ps(v, negative, one, v)
    }
}

/// See [`super::rows::gelu_exact`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
pub(crate) fn gelu_exact(h: &[f32], g: &mut [f32], f: &Functions) {
    let (n, g) = (h.len(), g[..h.len()].as_mut_ptr());
    for i in (0..n).step_by(LANES) {
        let mask = lanes(n - i);
        // SAFETY: every access is masked to the elements.
        unsafe {
            let x = _mm512_maskz_loadu_ps(mask, h.as_ptr().add(i));
            let y = mul(odd_exact(x, &f.phi), x);
            _mm512_mask_storeu_ps(g.add(i), mask, y);
        }
    }
}

/// See [`super::rows::gelu_back_exact`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
pub(crate) fn gelu_back_exact(h: &[f32], dg: &mut [f32], f: &Functions) {
    let (n, dg) = (h.len(), dg[..h.len()].as_mut_ptr());
    for i in (0..n).step_by(LANES) {
        let mask = lanes(n - i);
        // SAFETY: every access is masked to the elements.
        unsafe {
            let x = _mm512_maskz_loadu_ps(mask, h.as_ptr().add(i));
            let y = _mm512_maskz_loadu_ps(mask, dg.add(i));
            _mm512_mask_storeu_ps(dg.add(i), mask, mul(odd_exact(x, &f.dphi), y));
        }
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
