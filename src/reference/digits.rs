//! Exact grid products in 16-bit integers, for processors with AVX512_VNNI.
//!
//! A grid value of 18 bits is two signed digits, `q = 512 * high + low` with `|high| <= 256` and
//! `-256 <= low <= 255`. A product of two such values needs three digit products (Karatsuba):
//! `high * high`, `low * low` and `(high + low) * (high + low)`, whose sum of digits is at most
//! 511, so sums over K <= 8192 stay inside 32 bits. `vpdpwssd` does 32 digit products at a time:
//! each 32-bit lane holds the digits of two neighbours along the inner dimension.

use super::gemm::{BLOCK_ROWS, Operand, Product, inner_range, wanted_columns};
use super::simd::Grid;
use super::simd::x86::{lanes, transpose8, transpose16};
use crate::num::block::{GRID_MAX, grid_scale, product_scale};
use std::arch::x86_64::*;

/// Digit sets of a value: high, low, and their sum.
const PLANES: usize = 3;
/// Columns of a panel of B, which is packed as two halves.
const WIDTH: usize = 32;
/// Columns of half a panel.
const HALF: usize = WIDTH / 2;
/// Words of one step along the inner dimension in half a panel of B.
const B_STEP: usize = PLANES * HALF;
/// Words of one step in a block of A: one stream of memory, however many rows and planes.
const A_STEP: usize = PLANES * BLOCK_ROWS;
/// Words of a panel of B that a first-level cache of 48 KiB holds beside A.
const L1_WORDS: usize = 9_216;

/// Packed operands of one thread.
#[derive(Default)]
pub(crate) struct Digits {
    a: Vec<u32>,
    b: Vec<u32>,
}

/// Brings values onto a tensor's grid with one rounding each.
#[derive(Clone, Copy)]
struct Rounder {
    /// Largest magnitude on the grid, in the tensor's unit.
    limit: __m512,
    /// The grid's scale in two factors, which FP32 holds for every exponent.
    first: __m512,
    second: __m512,
    magic: __m512,
}

/// 1.5 * 2^23, the least significant bit of which weighs 1, and half a high digit.
const MAGIC: f32 = 12_582_912.0 + 256.0;
/// Bits 9 to 24 of MAGIC without its 256.
const MAGIC_HIGH: i16 = (12_582_912f32.to_bits() >> 9) as u16 as i16;

impl Rounder {
    #[inline(always)]
    unsafe fn new(emax: u32) -> Self {
        let Grid { first, second, .. } = Grid::new(emax, 0);
        let limit = (f64::from(GRID_MAX) / grid_scale(emax)) as f32;
        // SAFETY: register operations; the caller enabled AVX-512.
        unsafe {
            Self {
                limit: _mm512_set1_ps(if emax == 0 { 0.0 } else { limit }),
                first: _mm512_set1_ps(first),
                second: _mm512_set1_ps(second),
                magic: _mm512_set1_ps(MAGIC),
            }
        }
    }

    /// Bits of `MAGIC + q(x)`: the lower 22 hold `q(x) + 256`.
    #[inline(always)]
    unsafe fn biased(self, x: __m512) -> __m512i {
        // SAFETY: register operations; the caller enabled AVX-512.
        unsafe {
            // The lesser magnitude, with the sign of x.
            let x = _mm512_range_ps::<0b0010>(x, self.limit);
            let x = _mm512_mul_ps(x, self.first);
            // The product with a power of two is exact, so the addition alone rounds, ties to even.
            _mm512_castps_si512(_mm512_fmadd_ps(x, self.second, self.magic))
        }
    }

    /// Words of 16 pairs `(even, odd)` in each plane.
    #[inline(always)]
    unsafe fn words(self, even: __m512, odd: __m512) -> [__m512i; PLANES] {
        const ODD: u32 = 0xaaaa_aaaa;
        // SAFETY: register operations; the caller enabled AVX-512.
        unsafe {
            let (even, odd) = (self.biased(even), self.biased(odd));
            let high = _mm512_mask_blend_epi16(
                ODD,
                _mm512_srli_epi32::<9>(even),
                _mm512_slli_epi32::<7>(odd),
            );
            let high = _mm512_sub_epi16(high, _mm512_set1_epi16(MAGIC_HIGH));
            let low = _mm512_mask_blend_epi16(ODD, even, _mm512_slli_epi32::<16>(odd));
            let low = _mm512_and_si512(low, _mm512_set1_epi16(511));
            let low = _mm512_sub_epi16(low, _mm512_set1_epi16(256));
            [high, low, _mm512_add_epi16(high, low)]
        }
    }
}

/// Packs a block of A, rows `i0..i1` (at most 8), from inner index `k0` (even) to `k1`: `[step][plane][row]`.
#[inline(always)]
unsafe fn pack_block(
    a: Operand,
    (i0, i1): (usize, usize),
    (k0, k1): (usize, usize),
    dst: *mut u32,
) {
    // SAFETY: the caller gives these elements and room for four steps more.
    unsafe {
        let rounder = Rounder::new(a.emax);
        let rows = i1 - i0;
        for k in (k0..k1).step_by(8) {
            // x[n]: element k + n of each row.
            let mut x = [_mm256_setzero_ps(); 8];
            // Nearly every square is whole; masks would take longer than the digits.
            let whole = rows == BLOCK_ROWS && k + 8 <= k1;
            let (outer, inner) = match a.cs {
                1 => (a.rs, a.data.wrapping_add(i0 * a.rs + k)),
                _ => (a.cs, a.data.wrapping_add(i0 + k * a.cs)),
            };
            if whole {
                for (n, x) in x.iter_mut().enumerate() {
                    *x = _mm256_loadu_ps(inner.add(n * outer));
                }
            } else {
                let (outside, inside) = match a.cs {
                    1 => (rows, k1 - k),
                    _ => (k1 - k, rows),
                };
                for (n, x) in x.iter_mut().enumerate() {
                    let mask = if n < outside { lanes(inside) as u8 } else { 0 };
                    *x = _mm256_maskz_loadu_ps(mask, inner.wrapping_add(n * outer));
                }
            }
            if a.cs == 1 {
                x = transpose8(x);
            }
            for half in 0..2 {
                let x = &x[4 * half..];
                let even = _mm512_insertf32x8::<1>(_mm512_castps256_ps512(x[0]), x[2]);
                let odd = _mm512_insertf32x8::<1>(_mm512_castps256_ps512(x[1]), x[3]);
                let at = dst.add((k / 2 + 2 * half) * A_STEP);
                for (p, w) in rounder.words(even, odd).into_iter().enumerate() {
                    let at = at.add(p * BLOCK_ROWS);
                    _mm256_storeu_si256(at.cast(), _mm512_castsi512_si256(w));
                    let next = at.add(A_STEP).cast();
                    _mm256_storeu_si256(next, _mm512_extracti64x4_epi64::<1>(w));
                }
            }
        }
    }
}

/// Packs columns `j0..j0 + columns` of B: `[half][step][plane][column]`, a half having `half` words;
/// zero beyond the columns and K.
#[inline(always)]
unsafe fn pack_panel(b: Operand, k: usize, j0: usize, columns: usize, dst: *mut u32, half: usize) {
    // SAFETY: the caller gives these elements and room for K rounded up to 16.
    unsafe {
        let rounder = Rounder::new(b.emax);
        for first in (0..columns).step_by(HALF) {
            let left = columns - first;
            let dst = dst.add(first / HALF * half);
            if b.cs == 1 {
                let mask = lanes(left);
                for step in 0..k.div_ceil(2) {
                    let src = b.data.add(2 * step * b.rs + j0 + first);
                    let even = _mm512_maskz_loadu_ps(mask, src);
                    let second = if 2 * step + 1 < k { mask } else { 0 };
                    let odd = _mm512_maskz_loadu_ps(second, src.wrapping_add(b.rs));
                    let at = dst.add(step * B_STEP);
                    for (p, w) in rounder.words(even, odd).into_iter().enumerate() {
                        _mm512_storeu_si512(at.add(p * HALF).cast(), w);
                    }
                }
            } else {
                for k0 in (0..k).step_by(16) {
                    let mask = lanes(k - k0);
                    let mut square = [_mm512_setzero_ps(); 16];
                    for (j, row) in square.iter_mut().enumerate() {
                        let mask = if j < left { mask } else { 0 };
                        let src = b.data.wrapping_add((j0 + first + j) * b.cs + k0);
                        *row = _mm512_maskz_loadu_ps(mask, src);
                    }
                    let square = transpose16(square);
                    for pair in 0..8 {
                        let at = dst.add((k0 / 2 + pair) * B_STEP);
                        let pair = rounder.words(square[2 * pair], square[2 * pair + 1]);
                        for (p, w) in pair.into_iter().enumerate() {
                            _mm512_storeu_si512(at.add(p * HALF).cast(), w);
                        }
                    }
                }
            }
        }
    }
}

/// A few rows of C from packed operands.
#[derive(Clone, Copy)]
struct Tile {
    /// Steps along the inner dimension, of two elements each.
    steps: (usize, usize),
    a: *const u32,
    b: *const u32,
    /// Words from one half of B's panel to the other.
    half: usize,
    scale: Scale,
    c: *mut f32,
    ldc: usize,
    rows: usize,
    columns: usize,
}

/// `M` rows by `NV` vectors of 16 columns, all sums in registers.
#[inline(always)]
unsafe fn kernel<const M: usize, const NV: usize>(t: Tile) {
    // SAFETY: the caller's.
    unsafe {
        let mut acc = [[[_mm512_setzero_si512(); NV]; PLANES]; M];
        let (first, end) = t.steps;
        let (mut a, mut b) = (t.a.add(first * A_STEP), t.b.add(first * B_STEP));
        for _ in first..end {
            for plane in 0..PLANES {
                let mut row = [_mm512_setzero_si512(); NV];
                for (j, x) in row.iter_mut().enumerate() {
                    *x = _mm512_loadu_si512(b.add(plane * HALF + j * t.half).cast());
                }
                for (i, sums) in acc.iter_mut().enumerate() {
                    let word = a.add(plane * BLOCK_ROWS + i).cast::<i32>();
                    let x = _mm512_set1_epi32(word.read());
                    for (sum, &y) in sums[plane].iter_mut().zip(&row) {
                        *sum = _mm512_dpwssd_epi32(*sum, x, y);
                    }
                }
            }
            a = a.add(A_STEP);
            b = b.add(B_STEP);
        }
        let Some(scale) = t.scale.single() else {
            // A copy, so that the sums above may live in registers.
            let sums = acc;
            return store_double(&sums, t);
        };
        for (i, sums) in acc.into_iter().enumerate() {
            if i < t.rows {
                let [high, low, both] = sums;
                for j in 0..NV {
                    let middle = _mm512_sub_epi32(_mm512_sub_epi32(both[j], high[j]), low[j]);
                    let x = round_single(high[j], middle, low[j], scale);
                    let mask = lanes(t.columns.saturating_sub(16 * j));
                    _mm512_mask_storeu_ps(t.c.wrapping_add(i * t.ldc + 16 * j), mask, x);
                }
            }
        }
    }
}

/// Writes sums whose scale is not for [`round_single`].
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,bmi2")]
unsafe fn store_double<const M: usize, const NV: usize>(
    acc: &[[[__m512i; NV]; PLANES]; M],
    t: Tile,
) {
    for (i, [high, low, both]) in acc.iter().enumerate().take(t.rows) {
        for j in 0..NV {
            // SAFETY: the caller's.
            unsafe {
                let middle = _mm512_sub_epi32(_mm512_sub_epi32(both[j], high[j]), low[j]);
                let x = round_double(high[j], middle, low[j], t.scale.0);
                let mask = lanes(t.columns.saturating_sub(16 * j));
                _mm512_mask_storeu_ps(t.c.wrapping_add(i * t.ldc + 16 * j), mask, x);
            }
        }
    }
}

/// Weight of one unit of the integer sums.
#[derive(Clone, Copy)]
struct Scale(f64);

impl Scale {
    /// As FP32, where it and 2^24 times it are normal numbers, so that no result is subnormal.
    #[inline(always)]
    fn single(self) -> Option<f32> {
        let least = f64::from(f32::MIN_POSITIVE);
        (self.0 >= least && self.0 <= f64::from(f32::MAX) / 16_777_216.0).then_some(self.0 as f32)
    }
}

/// `(2^18 high + 2^9 middle + low) * scale`, rounded once.
///
/// The sum is cut into `2^24 top + rest` with 24 bits in each part (|sum| < 2^47), so both parts
/// are exact in FP32 and the fused addition rounds the whole.
#[inline(always)]
unsafe fn round_single(high: __m512i, middle: __m512i, low: __m512i, scale: f32) -> __m512 {
    // SAFETY: register operations; the caller enabled AVX-512.
    unsafe {
        let digit = _mm512_set1_epi32(511);
        let middle = _mm512_add_epi32(middle, _mm512_srai_epi32::<9>(low));
        let high = _mm512_add_epi32(high, _mm512_srai_epi32::<9>(middle));
        let top = _mm512_srai_epi32::<6>(high);
        // Lower 9 bits from `low`, the next 9 from `middle`, the next 6 from `high`.
        let rest = _mm512_ternarylogic_epi32::<0xca>(digit, low, _mm512_slli_epi32::<9>(middle));
        let rest = _mm512_ternarylogic_epi32::<0xca>(
            _mm512_set1_epi32(0x3_ffff),
            rest,
            _mm512_slli_epi32::<18>(high),
        );
        let rest = _mm512_and_si512(rest, _mm512_set1_epi32(0xff_ffff));
        let rest = _mm512_mul_ps(_mm512_cvtepi32_ps(rest), _mm512_set1_ps(scale));
        let top_scale = _mm512_set1_ps(scale * 16_777_216.0);
        _mm512_fmadd_ps(_mm512_cvtepi32_ps(top), top_scale, rest)
    }
}

/// As [`round_single`] for every scale, by way of f64 and with the subnormal rule.
#[inline(always)]
unsafe fn round_double(high: __m512i, middle: __m512i, low: __m512i, scale: f64) -> __m512 {
    // SAFETY: register operations; the caller enabled AVX-512.
    unsafe {
        let scales = [1.0, 512.0, 262_144.0].map(|s| _mm512_set1_pd(s * scale));
        let left = round8(low, middle, high, scales);
        let right = round8(upper(low), upper(middle), upper(high), scales);
        let x = _mm512_insertf32x8::<1>(_mm512_castps256_ps512(left), right);
        super::simd::x86::ftz512(x)
    }
}

/// The upper half as the lower one.
#[inline(always)]
unsafe fn upper(x: __m512i) -> __m512i {
    // SAFETY: register operation; the caller enabled AVX-512.
    unsafe { _mm512_castsi256_si512(_mm512_extracti64x4_epi64::<1>(x)) }
}

/// The sum of the lower 8 lanes' digit sums times their scales, each step exact but the last rounding.
#[inline(always)]
unsafe fn round8(low: __m512i, middle: __m512i, high: __m512i, scales: [__m512d; 3]) -> __m256 {
    // SAFETY: register operations; the caller enabled AVX-512.
    unsafe {
        let sum = _mm512_mul_pd(_mm512_cvtepi32lo_pd(low), scales[0]);
        let sum = _mm512_fmadd_pd(_mm512_cvtepi32lo_pd(middle), scales[1], sum);
        _mm512_cvtpd_ps(_mm512_fmadd_pd(_mm512_cvtepi32lo_pd(high), scales[2], sum))
    }
}

/// The whole product of one thread: A packed once, B panel by panel.
///
/// # Safety
/// As [`super::gemm::multiply`], on a processor with AVX512_VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,bmi2")]
pub(crate) unsafe fn product(p: Product, s: &mut Digits) {
    let steps = p.k.div_ceil(2);
    let block = (steps + 4) * A_STEP;
    let half = steps.next_multiple_of(8) * B_STEP;
    let (a, b) = (p.blocks.len() * block, 2 * half);
    if s.a.len() < a {
        s.a.resize(a, 0);
    }
    if s.b.len() < b {
        s.b.resize(b, 0);
    }
    let scale = Scale(product_scale(p.a.emax, p.b.emax));
    // SAFETY: offsets stay inside the operands (caller) and inside the room just made.
    unsafe {
        for (index, &(i0, i1)) in p.blocks.iter().enumerate() {
            let (k0, k1) = inner_range(p.triangle, i0, i1, p.k);
            debug_assert!(k0 % 2 == 0);
            let dst = s.a.as_mut_ptr().add(index * block);
            pack_block(p.a, (i0, i1), (k0, k1), dst);
        }
        for j0 in (0..p.n).step_by(WIDTH) {
            let columns = WIDTH.min(p.n - j0);
            pack_panel(p.b, p.k, j0, columns, s.b.as_mut_ptr(), half);
            // A panel that the first-level cache does not hold is used half by half, each half by
            // all rows: that reads it from the second level less often.
            let width = if 2 * half > L1_WORDS { HALF } else { WIDTH };
            for first in (0..columns).step_by(width) {
                let columns = width.min(columns - first);
                let j0 = j0 + first;
                for (index, &(i0, i1)) in p.blocks.iter().enumerate() {
                    let wanted = wanted_columns(p.triangle, columns, j0, i1);
                    if wanted == 0 {
                        continue;
                    }
                    let (k0, k1) = inner_range(p.triangle, i0, i1, p.k);
                    let tile = Tile {
                        steps: (k0 / 2, k1.div_ceil(2)),
                        a: s.a.as_ptr().add(index * block),
                        b: s.b.as_ptr().add(first / HALF * half),
                        half,
                        scale,
                        c: p.c.add(i0 * p.ldc + j0),
                        ldc: p.ldc,
                        rows: i1 - i0,
                        columns: wanted,
                    };
                    tile_rows(tile);
                }
            }
        }
    }
}

/// Up to [`BLOCK_ROWS`] rows by up to [`WIDTH`] columns.
#[inline(always)]
unsafe fn tile_rows(tile: Tile) {
    // SAFETY: the caller's.
    unsafe {
        if tile.columns <= 16 {
            return kernel::<8, 1>(tile);
        }
        kernel::<4, 2>(Tile {
            rows: tile.rows.min(4),
            ..tile
        });
        if tile.rows > 4 {
            kernel::<4, 2>(Tile {
                rows: tile.rows - 4,
                a: tile.a.add(4),
                c: tile.c.add(4 * tile.ldc),
                ..tile
            });
        }
    }
}
