//! AVX-512 and AVX2 vectors.
use super::{Grid, Scalar, Vector};
use std::arch::x86_64::*;

/// [`Grid::apply`] on 16 lanes; the product is exact, so the fused addition rounds once like the plain one.
#[inline(always)]
unsafe fn apply512(x: __m512, grid: Option<Grid>) -> __m512 {
    let Some(grid) = grid else { return x };
    // SAFETY: register operations; the caller enabled AVX-512.
    unsafe {
        let rounder = _mm512_set1_ps(grid.rounder);
        let x = _mm512_mul_ps(x, _mm512_set1_ps(grid.first));
        let x = _mm512_sub_ps(
            _mm512_fmadd_ps(x, _mm512_set1_ps(grid.second), rounder),
            rounder,
        );
        let x = _mm512_min_ps(x, _mm512_set1_ps(grid.limit));
        _mm512_max_ps(x, _mm512_set1_ps(-grid.limit))
    }
}

/// [`Grid::apply`] on 8 lanes.
#[inline(always)]
unsafe fn apply256(x: __m256, grid: Option<Grid>) -> __m256 {
    let Some(grid) = grid else { return x };
    // SAFETY: register operations; the caller enabled AVX2 and FMA.
    unsafe {
        let rounder = _mm256_set1_ps(grid.rounder);
        let x = _mm256_mul_ps(x, _mm256_set1_ps(grid.first));
        let x = _mm256_sub_ps(
            _mm256_fmadd_ps(x, _mm256_set1_ps(grid.second), rounder),
            rounder,
        );
        let x = _mm256_min_ps(x, _mm256_set1_ps(grid.limit));
        _mm256_max_ps(x, _mm256_set1_ps(-grid.limit))
    }
}

/// Rows become columns, 8 of each.
#[inline(always)]
pub unsafe fn transpose8(r: [__m256; 8]) -> [__m256; 8] {
    // SAFETY: register operations; the caller enabled AVX.
    unsafe {
        let t = [
            _mm256_unpacklo_ps(r[0], r[1]),
            _mm256_unpackhi_ps(r[0], r[1]),
            _mm256_unpacklo_ps(r[2], r[3]),
            _mm256_unpackhi_ps(r[2], r[3]),
            _mm256_unpacklo_ps(r[4], r[5]),
            _mm256_unpackhi_ps(r[4], r[5]),
            _mm256_unpacklo_ps(r[6], r[7]),
            _mm256_unpackhi_ps(r[6], r[7]),
        ];
        let u = [
            _mm256_shuffle_ps::<0x44>(t[0], t[2]),
            _mm256_shuffle_ps::<0xee>(t[0], t[2]),
            _mm256_shuffle_ps::<0x44>(t[1], t[3]),
            _mm256_shuffle_ps::<0xee>(t[1], t[3]),
            _mm256_shuffle_ps::<0x44>(t[4], t[6]),
            _mm256_shuffle_ps::<0xee>(t[4], t[6]),
            _mm256_shuffle_ps::<0x44>(t[5], t[7]),
            _mm256_shuffle_ps::<0xee>(t[5], t[7]),
        ];
        [
            _mm256_permute2f128_ps::<0x20>(u[0], u[4]),
            _mm256_permute2f128_ps::<0x20>(u[1], u[5]),
            _mm256_permute2f128_ps::<0x20>(u[2], u[6]),
            _mm256_permute2f128_ps::<0x20>(u[3], u[7]),
            _mm256_permute2f128_ps::<0x31>(u[0], u[4]),
            _mm256_permute2f128_ps::<0x31>(u[1], u[5]),
            _mm256_permute2f128_ps::<0x31>(u[2], u[6]),
            _mm256_permute2f128_ps::<0x31>(u[3], u[7]),
        ]
    }
}

/// Rows become columns, 16 of each.
#[inline(always)]
pub unsafe fn transpose16(r: [__m512; 16]) -> [__m512; 16] {
    // SAFETY: register operations; the caller enabled AVX-512.
    unsafe {
        let mut pairs = [_mm512_setzero_ps(); 16];
        for i in 0..8 {
            pairs[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
            pairs[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
        }
        // fours[4 g + c]: column c of each 128-bit lane, rows 4 g to 4 g + 3.
        let mut fours = [_mm512_setzero_ps(); 16];
        for g in 0..4 {
            for c in 0..2 {
                let (low, high) = (pairs[4 * g + c], pairs[4 * g + 2 + c]);
                fours[4 * g + 2 * c] = _mm512_shuffle_ps::<0x44>(low, high);
                fours[4 * g + 2 * c + 1] = _mm512_shuffle_ps::<0xee>(low, high);
            }
        }
        let mut out = [_mm512_setzero_ps(); 16];
        for c in 0..4 {
            let (a, b, d, e) = (fours[c], fours[4 + c], fours[8 + c], fours[12 + c]);
            let (ab0, ab1) = (
                _mm512_shuffle_f32x4::<0x88>(a, b),
                _mm512_shuffle_f32x4::<0xdd>(a, b),
            );
            let (de0, de1) = (
                _mm512_shuffle_f32x4::<0x88>(d, e),
                _mm512_shuffle_f32x4::<0xdd>(d, e),
            );
            out[c] = _mm512_shuffle_f32x4::<0x88>(ab0, de0);
            out[4 + c] = _mm512_shuffle_f32x4::<0x88>(ab1, de1);
            out[8 + c] = _mm512_shuffle_f32x4::<0xdd>(ab0, de0);
            out[12 + c] = _mm512_shuffle_f32x4::<0xdd>(ab1, de1);
        }
        out
    }
}

/// Stores 8 elements.
trait Put8: Scalar {
    unsafe fn put8(p: *mut Self, x: __m256);
}

impl Put8 for f64 {
    #[inline(always)]
    unsafe fn put8(p: *mut f64, x: __m256) {
        // SAFETY: the caller gives 8 elements and enabled AVX.
        unsafe {
            _mm256_storeu_pd(p, _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
            _mm256_storeu_pd(p.add(4), _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x)));
        }
    }
}

impl Put8 for f32 {
    #[inline(always)]
    unsafe fn put8(p: *mut f32, x: __m256) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_ps(p, x) }
    }
}

/// [`Vector::pack_transposed`] in squares of 8. Loops, not closures: a closure around an
/// intrinsic is not compiled for the caller's instruction set.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn pack_squares<S: Put8>(
    src: *const f32,
    ld: usize,
    k: usize,
    columns: usize,
    dst: *mut S,
    sb: usize,
    grid: Option<Grid>,
) {
    let (whole_k, whole_columns) = (k / 8 * 8, columns / 8 * 8);
    // SAFETY: the caller gives these elements on both sides.
    unsafe {
        for j in (0..whole_columns).step_by(8) {
            for i in (0..whole_k).step_by(8) {
                let at = src.add(j * ld + i);
                let mut rows = [_mm256_setzero_ps(); 8];
                for (n, row) in rows.iter_mut().enumerate() {
                    *row = apply256(_mm256_loadu_ps(at.add(n * ld)), grid);
                }
                rows = transpose8(rows);
                for (n, row) in rows.iter().enumerate() {
                    S::put8(dst.add((i + n) * sb + j), *row);
                }
            }
        }
        for j in 0..columns {
            let first = if j < whole_columns { whole_k } else { 0 };
            for i in first..k {
                let x = *src.add(j * ld + i);
                *dst.add(i * sb + j) = S::of(grid.map_or(x, |g| g.apply(x)));
            }
        }
    }
}

/// FP32 subnormals of 16 lanes become zero of their sign.
#[inline(always)]
pub unsafe fn ftz512(x: __m512) -> __m512 {
    // SAFETY: register operations; the caller enabled AVX-512.
    unsafe {
        let bits = _mm512_castps_si512(x);
        let normal = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x7f80_0000));
        let sign = _mm512_and_si512(bits, _mm512_set1_epi32(i32::MIN));
        _mm512_castsi512_ps(_mm512_mask_mov_epi32(sign, normal, bits))
    }
}

/// Elements of an AVX-512 vector.
pub const LANES: usize = 16;

/// The lowest `n` lanes.
#[inline(always)]
pub fn lanes(n: usize) -> u16 {
    if n >= LANES { !0 } else { (1u16 << n) - 1 }
}

/// `fl(a * b)`.
#[inline(always)]
pub unsafe fn mul(a: __m512, b: __m512) -> __m512 {
    // SAFETY: register operations; the caller enabled AVX-512.
    unsafe { ftz512(_mm512_mul_ps(a, b)) }
}

/// `fl(a + b)`.
#[inline(always)]
pub unsafe fn add(a: __m512, b: __m512) -> __m512 {
    // SAFETY: as above.
    unsafe { ftz512(_mm512_add_ps(a, b)) }
}

/// `fl(a - b)`.
#[inline(always)]
pub unsafe fn sub(a: __m512, b: __m512) -> __m512 {
    // SAFETY: as above.
    unsafe { ftz512(_mm512_sub_ps(a, b)) }
}

/// FP32 subnormals of 8 lanes become zero of their sign.
#[inline(always)]
pub unsafe fn ftz256(x: __m256) -> __m256 {
    // SAFETY: register operations; the caller enabled AVX2.
    unsafe {
        let bits = _mm256_castps_si256(x);
        let exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f80_0000));
        let tiny = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
        let keep = _mm256_or_si256(
            _mm256_xor_si256(tiny, _mm256_set1_epi32(-1)),
            _mm256_set1_epi32(i32::MIN),
        );
        _mm256_castsi256_ps(_mm256_and_si256(bits, keep))
    }
}

impl Vector for __m512d {
    type Scalar = f64;
    const LANES: usize = 8;
    #[inline(always)]
    unsafe fn zero() -> Self {
        unsafe { _mm512_setzero_pd() }
    }
    #[inline(always)]
    unsafe fn load(p: *const f64) -> Self {
        unsafe { _mm512_loadu_pd(p) }
    }
    #[inline(always)]
    unsafe fn splat(p: *const f64) -> Self {
        unsafe { _mm512_set1_pd(*p) }
    }
    #[inline(always)]
    unsafe fn fma(self, a: Self, b: Self) -> Self {
        unsafe { _mm512_fmadd_pd(a, b, self) }
    }
    #[inline(always)]
    unsafe fn store(self, scale: f64, p: *mut f32, n: usize) {
        unsafe {
            let x = ftz256(_mm512_cvtpd_ps(_mm512_mul_pd(self, _mm512_set1_pd(scale))));
            if n >= 8 {
                _mm256_storeu_ps(p, x);
            } else {
                _mm256_mask_storeu_ps(p, (1u8 << n) - 1, x);
            }
        }
    }
    #[inline(always)]
    unsafe fn pack(src: *const f32, dst: *mut Self::Scalar, n: usize, grid: Option<Grid>) {
        let mut i = 0;
        unsafe {
            while i < n {
                let left = n - i;
                let mask = if left >= 16 { !0 } else { (1u16 << left) - 1 };
                let x = apply512(_mm512_maskz_loadu_ps(mask, src.add(i)), grid);
                let low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
                let high = _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(x));
                _mm512_mask_storeu_pd(dst.add(i), mask as u8, low);
                _mm512_mask_storeu_pd(dst.wrapping_add(i + 8), (mask >> 8) as u8, high);
                i += 16;
            }
        }
    }
    #[inline(always)]
    unsafe fn pack_transposed(
        src: *const f32,
        ld: usize,
        k: usize,
        columns: usize,
        dst: *mut Self::Scalar,
        sb: usize,
        grid: Option<Grid>,
    ) {
        unsafe { pack_squares(src, ld, k, columns, dst, sb, grid) }
    }
}

impl Vector for __m512 {
    type Scalar = f32;
    const LANES: usize = 16;
    #[inline(always)]
    unsafe fn zero() -> Self {
        unsafe { _mm512_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> Self {
        unsafe { _mm512_maskz_loadu_ps(lanes(n), p) }
    }
    #[inline(always)]
    unsafe fn splat(p: *const f32) -> Self {
        unsafe { _mm512_set1_ps(*p) }
    }
    #[inline(always)]
    unsafe fn fma(self, a: Self, b: Self) -> Self {
        unsafe { _mm512_fmadd_ps(a, b, self) }
    }
    #[inline(always)]
    unsafe fn store(self, _scale: f64, p: *mut f32, n: usize) {
        unsafe {
            let x = ftz512(self);
            if n >= 16 {
                _mm512_storeu_ps(p, x);
            } else {
                _mm512_mask_storeu_ps(p, (1u16 << n) - 1, x);
            }
        }
    }
    #[inline(always)]
    unsafe fn pack(src: *const f32, dst: *mut Self::Scalar, n: usize, grid: Option<Grid>) {
        let mut i = 0;
        unsafe {
            while i < n {
                let left = n - i;
                let mask = if left >= 16 { !0 } else { (1u16 << left) - 1 };
                let x = apply512(_mm512_maskz_loadu_ps(mask, src.add(i)), grid);
                _mm512_mask_storeu_ps(dst.add(i), mask, x);
                i += 16;
            }
        }
    }
    #[inline(always)]
    unsafe fn pack_transposed(
        src: *const f32,
        ld: usize,
        k: usize,
        columns: usize,
        dst: *mut Self::Scalar,
        sb: usize,
        grid: Option<Grid>,
    ) {
        unsafe {
            for j in (0..columns).step_by(LANES) {
                for i in (0..k).step_by(LANES) {
                    let mask = lanes(k - i);
                    let mut square = [_mm512_setzero_ps(); LANES];
                    for (n, row) in square.iter_mut().enumerate() {
                        let mask = if j + n < columns { mask } else { 0 };
                        let x = _mm512_maskz_loadu_ps(mask, src.wrapping_add((j + n) * ld + i));
                        *row = apply512(x, grid);
                    }
                    for (n, row) in transpose16(square).iter().enumerate().take(k - i) {
                        _mm512_storeu_ps(dst.add((i + n) * sb + j), *row);
                    }
                }
            }
        }
    }
}

impl Vector for __m256d {
    type Scalar = f64;
    const LANES: usize = 4;
    #[inline(always)]
    unsafe fn zero() -> Self {
        unsafe { _mm256_setzero_pd() }
    }
    #[inline(always)]
    unsafe fn load(p: *const f64) -> Self {
        unsafe { _mm256_loadu_pd(p) }
    }
    #[inline(always)]
    unsafe fn splat(p: *const f64) -> Self {
        unsafe { _mm256_broadcast_sd(&*p) }
    }
    #[inline(always)]
    unsafe fn fma(self, a: Self, b: Self) -> Self {
        unsafe { _mm256_fmadd_pd(a, b, self) }
    }
    #[inline(always)]
    unsafe fn store(self, scale: f64, p: *mut f32, n: usize) {
        unsafe {
            let x = _mm256_cvtpd_ps(_mm256_mul_pd(self, _mm256_set1_pd(scale)));
            let x = _mm256_castps256_ps128(ftz256(_mm256_castps128_ps256(x)));
            if n >= 4 {
                _mm_storeu_ps(p, x);
            } else {
                let mut four = [0f32; 4];
                _mm_storeu_ps(four.as_mut_ptr(), x);
                std::ptr::copy_nonoverlapping(four.as_ptr(), p, n);
            }
        }
    }
    #[inline(always)]
    unsafe fn pack(src: *const f32, dst: *mut Self::Scalar, n: usize, grid: Option<Grid>) {
        let mut i = 0;
        unsafe {
            while i + 8 <= n {
                let x = apply256(_mm256_loadu_ps(src.add(i)), grid);
                _mm256_storeu_pd(dst.add(i), _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
                _mm256_storeu_pd(
                    dst.add(i + 4),
                    _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x)),
                );
                i += 8;
            }
            while i < n {
                let x = *src.add(i);
                *dst.add(i) = Self::Scalar::of(grid.map_or(x, |g| g.apply(x)));
                i += 1;
            }
        }
    }
    #[inline(always)]
    unsafe fn pack_transposed(
        src: *const f32,
        ld: usize,
        k: usize,
        columns: usize,
        dst: *mut Self::Scalar,
        sb: usize,
        grid: Option<Grid>,
    ) {
        unsafe { pack_squares(src, ld, k, columns, dst, sb, grid) }
    }
}

impl Vector for __m256 {
    type Scalar = f32;
    const LANES: usize = 8;
    #[inline(always)]
    unsafe fn zero() -> Self {
        unsafe { _mm256_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> Self {
        unsafe {
            let places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), places);
            _mm256_maskload_ps(p, mask)
        }
    }
    #[inline(always)]
    unsafe fn splat(p: *const f32) -> Self {
        unsafe { _mm256_broadcast_ss(&*p) }
    }
    #[inline(always)]
    unsafe fn fma(self, a: Self, b: Self) -> Self {
        unsafe { _mm256_fmadd_ps(a, b, self) }
    }
    #[inline(always)]
    unsafe fn store(self, _scale: f64, p: *mut f32, n: usize) {
        unsafe {
            let x = ftz256(self);
            if n >= 8 {
                _mm256_storeu_ps(p, x);
            } else {
                let mut eight = [0f32; 8];
                _mm256_storeu_ps(eight.as_mut_ptr(), x);
                std::ptr::copy_nonoverlapping(eight.as_ptr(), p, n);
            }
        }
    }
    #[inline(always)]
    unsafe fn pack(src: *const f32, dst: *mut Self::Scalar, n: usize, grid: Option<Grid>) {
        let mut i = 0;
        unsafe {
            while i + 8 <= n {
                _mm256_storeu_ps(dst.add(i), apply256(_mm256_loadu_ps(src.add(i)), grid));
                i += 8;
            }
            while i < n {
                let x = *src.add(i);
                *dst.add(i) = Self::Scalar::of(grid.map_or(x, |g| g.apply(x)));
                i += 1;
            }
        }
    }
    #[inline(always)]
    unsafe fn pack_transposed(
        src: *const f32,
        ld: usize,
        k: usize,
        columns: usize,
        dst: *mut Self::Scalar,
        sb: usize,
        grid: Option<Grid>,
    ) {
        unsafe { pack_squares(src, ld, k, columns, dst, sb, grid) }
    }
}
