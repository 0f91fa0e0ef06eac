//! Matrix products: operands are brought onto their grid while they are packed, multiplied
//! exactly in f64, and rounded once on the way out (`docs/arithmetic.md` section 2).
//!
//! The same code with f32 elements and no grid is the FP32 product of `compute = fp32`.

use super::simd::{Grid, Level, Plain, Scalar, Vector};
use crate::config::model::Compute;
use crate::num::block::product_scale;

/// Rows that one kernel call computes.
pub(crate) const BLOCK_ROWS: usize = 8;
/// Inner dimension from which on a panel of B is made narrower, to stay in the first-level cache.
const LONG: usize = 192;
/// Elements between the packed rows of an operand may be read past its end.
const PAD: usize = 64;

/// A matrix operand: element (i, j) is `data[i * rs + j * cs]`, one stride being 1.
#[derive(Clone, Copy)]
pub(crate) struct Operand {
    pub data: *const f32,
    pub rs: usize,
    pub cs: usize,
    /// The tensor's exponent.
    pub emax: u32,
}

impl Operand {
    /// Row-major with `ld` elements between rows.
    pub fn rows(data: *const f32, ld: usize, emax: u32) -> Self {
        Self {
            data,
            rs: ld,
            cs: 1,
            emax,
        }
    }

    pub fn transposed(self) -> Self {
        Self {
            rs: self.cs,
            cs: self.rs,
            ..self
        }
    }
}

/// Which part of the inner dimension or of the columns a triangular operand leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Triangle {
    /// All of it.
    Full,
    /// A is lower triangular: rows i use k <= i.
    LowerA,
    /// A is upper triangular: rows i use k >= i.
    UpperA,
    /// Only columns j <= i of the result are wanted.
    LowerC,
}

/// One product `C[rows, 0..n] = A[rows, 0..k] * B[0..k, 0..n]`.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub a: Operand,
    pub b: Operand,
    /// Row blocks `(first, end)` of at most [`BLOCK_ROWS`] rows.
    pub blocks: &'a [(usize, usize)],
    pub n: usize,
    pub k: usize,
    pub c: *mut f32,
    pub ldc: usize,
    pub triangle: Triangle,
}

/// Packed operands of one thread.
#[derive(Default)]
pub(crate) struct Scratch {
    wide: Packed<f64>,
    single: Packed<f32>,
    #[cfg(target_arch = "x86_64")]
    digits: super::digits::Digits,
}

#[derive(Default)]
struct Packed<S> {
    a: Vec<S>,
    b: Vec<S>,
}

impl<S: Scalar> Packed<S> {
    fn reserve(&mut self, a: usize, b: usize) {
        if self.a.len() < a {
            self.a.resize(a, S::default());
        }
        if self.b.len() < b {
            self.b.resize(b, S::default());
        }
    }
}

/// Splits a range of rows into blocks.
pub(crate) fn blocks_of(range: std::ops::Range<usize>, out: &mut Vec<(usize, usize)>) {
    out.clear();
    let mut i = range.start;
    while i < range.end {
        let end = (i + BLOCK_ROWS).min(range.end);
        out.push((i, end));
        i = end;
    }
}

/// Computes a product.
///
/// # Safety
/// The operands must be valid for reading and `c` for writing in the parts that the product names,
/// and no other thread may write them.
pub(crate) unsafe fn multiply(level: Level, compute: Compute, p: Product, scratch: &mut Scratch) {
    let wide = &mut scratch.wide;
    let single = &mut scratch.single;
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
        unsafe fn grid512(p: Product, cut: u32, s: &mut Packed<f64>) {
            unsafe { product::<__m512d, 8, true>(p, cut, s) }
        }
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
        unsafe fn plain512(p: Product, s: &mut Packed<f32>) {
            unsafe { product::<__m512, 8, false>(p, 0, s) }
        }
        #[target_feature(enable = "avx2,fma,bmi2")]
        unsafe fn grid256(p: Product, cut: u32, s: &mut Packed<f64>) {
            unsafe { product::<__m256d, 4, true>(p, cut, s) }
        }
        #[target_feature(enable = "avx2,fma,bmi2")]
        unsafe fn plain256(p: Product, s: &mut Packed<f32>) {
            unsafe { product::<__m256, 4, false>(p, 0, s) }
        }
        // SAFETY: the level was detected; the rest is the caller's.
        match (level, compute.cut()) {
            (Level::Vnni, Some(0)) => {
                return unsafe { super::digits::product(p, &mut scratch.digits) };
            }
            (Level::Avx512 | Level::Vnni, Some(cut)) => return unsafe { grid512(p, cut, wide) },
            (Level::Avx512 | Level::Vnni, None) => return unsafe { plain512(p, single) },
            (Level::Avx2, Some(cut)) => return unsafe { grid256(p, cut, wide) },
            (Level::Avx2, None) => return unsafe { plain256(p, single) },
            (Level::Portable, _) => {}
        }
    }
    let _ = level;
    // SAFETY: the caller's.
    match compute.cut() {
        Some(cut) => unsafe { product::<Plain<f64, 4>, 4, true>(p, cut, wide) },
        None => unsafe { product::<Plain<f32, 8>, 4, false>(p, 0, single) },
    }
}

/// The whole product of one thread: A packed once, B panel by panel; FP32 operands where they lie.
#[inline(always)]
unsafe fn product<V: Vector, const MR: usize, const GRID: bool>(
    p: Product,
    cut: u32,
    s: &mut Packed<V::Scalar>,
) {
    let grid = |emax| GRID.then(|| Grid::new(emax, cut));
    let (ga, gb) = (grid(p.a.emax), grid(p.b.emax));
    let scale = if GRID {
        product_scale(p.a.emax, p.b.emax)
    } else {
        1.0
    };
    let long = p.k > LONG;
    let width = if long { 2 } else { 3 } * V::LANES;
    let room = if GRID { p.blocks.len() } else { 0 };
    s.reserve(room * BLOCK_ROWS * p.k + PAD, p.k * width + PAD);
    // SAFETY: offsets stay inside the operands (caller) and inside the scratch sizes just reserved.
    unsafe {
        // Without a grid A is read where it lies.
        let packed_blocks = if GRID { p.blocks } else { &[] };
        for (index, &(i0, i1)) in packed_blocks.iter().enumerate() {
            let dst = s.a.as_mut_ptr().add(index * BLOCK_ROWS * p.k);
            let (k0, k1) = inner_range(p.triangle, i0, i1, p.k);
            if p.a.cs == 1 {
                for i in i0..i1 {
                    let src = p.a.data.add(i * p.a.rs + k0);
                    V::pack(src, dst.add((i - i0) * p.k + k0), k1 - k0, ga);
                }
            } else if i1 - i0 == BLOCK_ROWS {
                for k in k0..k1 {
                    let src = p.a.data.add(i0 + k * p.a.cs);
                    V::pack(src, dst.add(k * BLOCK_ROWS), BLOCK_ROWS, ga);
                }
            } else {
                for k in k0..k1 {
                    let src = p.a.data.add(i0 + k * p.a.cs);
                    V::pack(src, dst.add(k * BLOCK_ROWS), i1 - i0, ga);
                }
            }
        }
        let (si, sk) = match (GRID, p.a.cs) {
            (false, _) => (p.a.rs, p.a.cs),
            (true, 1) => (p.k, 1),
            (true, _) => (1, BLOCK_ROWS),
        };
        let mut j0 = 0;
        while j0 < p.n {
            let columns = width.min(p.n - j0);
            let sb = columns.next_multiple_of(V::LANES);
            // So is a row-major B whose panel the first-level cache holds as it lies.
            let in_place = V::in_place(p.b.data).filter(|_| p.b.cs == 1 && !long);
            let (b, sb) = match in_place {
                Some(data) => (data.add(j0), p.b.rs),
                None => {
                    pack_panel::<V>(&p, j0, columns, sb, gb, s);
                    (s.b.as_ptr(), sb)
                }
            };
            for (index, &(i0, i1)) in p.blocks.iter().enumerate() {
                let columns = wanted_columns(p.triangle, columns, j0, i1);
                if columns == 0 {
                    continue;
                }
                let (k0, k1) = inner_range(p.triangle, i0, i1, p.k);
                let tile = Tile {
                    k: k1 - k0,
                    a: match V::in_place(p.a.data) {
                        Some(data) => data.add(i0 * si + k0 * sk),
                        None => s.a.as_ptr().add(index * BLOCK_ROWS * p.k + k0 * sk),
                    },
                    si,
                    sk,
                    b: b.add(k0 * sb),
                    sb,
                    scale,
                    c: p.c.add(i0 * p.ldc + j0),
                    ldc: p.ldc,
                    columns,
                };
                tile_rows::<V, MR>(tile, i1 - i0);
            }
            j0 += columns;
        }
    }
}

/// Columns of a panel from `j0` on that the rows before `i1` of the product need.
pub(crate) fn wanted_columns(triangle: Triangle, columns: usize, j0: usize, i1: usize) -> usize {
    match triangle {
        Triangle::LowerC => columns.min(i1.saturating_sub(j0)),
        _ => columns,
    }
}

#[inline(always)]
pub(crate) fn inner_range(triangle: Triangle, i0: usize, i1: usize, k: usize) -> (usize, usize) {
    match triangle {
        Triangle::LowerA => (0, i1.min(k)),
        Triangle::UpperA => (i0, k),
        Triangle::Full | Triangle::LowerC => (0, k),
    }
}

/// Packs columns `j0..j0 + columns` of B as k rows of `sb` elements, the rest zero.
#[inline(always)]
unsafe fn pack_panel<V: Vector>(
    p: &Product,
    j0: usize,
    columns: usize,
    sb: usize,
    grid: Option<Grid>,
    s: &mut Packed<V::Scalar>,
) {
    let dst = s.b.as_mut_ptr();
    // SAFETY: the scratch holds k rows of at least `sb` elements; the source is the caller's.
    unsafe {
        if p.b.cs == 1 {
            for k in 0..p.k {
                V::pack(
                    p.b.data.add(k * p.b.rs + j0),
                    dst.add(k * sb),
                    columns,
                    grid,
                );
            }
        } else {
            let src = p.b.data.add(j0 * p.b.cs);
            V::pack_transposed(src, p.b.cs, p.k, columns, dst, sb, grid);
        }
        for k in 0..p.k {
            for j in columns..sb {
                *dst.add(k * sb + j) = V::Scalar::default();
            }
        }
    }
}

/// A few rows of C from packed operands.
#[derive(Clone, Copy)]
struct Tile<S> {
    k: usize,
    a: *const S,
    si: usize,
    sk: usize,
    b: *const S,
    sb: usize,
    scale: f64,
    c: *mut f32,
    ldc: usize,
    columns: usize,
}

/// Runs kernels over up to [`BLOCK_ROWS`] rows.
#[inline(always)]
unsafe fn tile_rows<V: Vector, const MR: usize>(tile: Tile<V::Scalar>, rows: usize) {
    let mut done = 0;
    while done < rows {
        let m = MR.min(rows - done);
        // SAFETY: rows below `rows` exist in the packed block and in C.
        unsafe {
            let tile = Tile {
                a: tile.a.add(done * tile.si),
                c: tile.c.add(done * tile.ldc),
                ..tile
            };
            match tile.columns.div_ceil(V::LANES) {
                1 => kernel_rows::<V, 1>(tile, m),
                2 => kernel_rows::<V, 2>(tile, m),
                _ => kernel_rows::<V, 3>(tile, m),
            }
        }
        done += m;
    }
}

#[inline(always)]
unsafe fn kernel_rows<V: Vector, const NV: usize>(tile: Tile<V::Scalar>, m: usize) {
    // SAFETY: the caller's.
    unsafe {
        match m {
            1 => kernel::<V, 1, NV>(tile),
            2 => kernel::<V, 2, NV>(tile),
            3 => kernel::<V, 3, NV>(tile),
            4 => kernel::<V, 4, NV>(tile),
            5 => kernel::<V, 5, NV>(tile),
            6 => kernel::<V, 6, NV>(tile),
            7 => kernel::<V, 7, NV>(tile),
            _ => kernel::<V, 8, NV>(tile),
        }
    }
}

/// `M` rows by `NV` vectors, all sums in registers.
#[inline(always)]
unsafe fn kernel<V: Vector, const M: usize, const NV: usize>(t: Tile<V::Scalar>) {
    // SAFETY: the caller's.
    unsafe {
        let mut acc = [[V::zero(); NV]; M];
        let last = t.columns - (NV - 1) * V::LANES;
        let (mut a, mut b) = (t.a, t.b);
        for _ in 0..t.k {
            let mut row = [V::zero(); NV];
            for (j, x) in row.iter_mut().enumerate() {
                let at = b.add(j * V::LANES);
                *x = match j + 1 < NV {
                    true => V::load(at),
                    false => V::load_part(at, last),
                };
            }
            for (i, sums) in acc.iter_mut().enumerate() {
                let x = V::splat(a.add(i * t.si));
                for (sum, &y) in sums.iter_mut().zip(&row) {
                    *sum = sum.fma(x, y);
                }
            }
            a = a.add(t.sk);
            b = b.add(t.sb);
        }
        for (i, sums) in acc.into_iter().enumerate() {
            for (j, sum) in sums.into_iter().enumerate() {
                let column = j * V::LANES;
                if column < t.columns {
                    sum.store(t.scale, t.c.add(i * t.ldc + column), t.columns - column);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::block;

    fn pseudo_random(n: usize, seed: u32) -> Vec<f32> {
        (0..n as u32)
            .map(|i| {
                let [a, b] = crate::num::threefry::threefry2x32([seed, 0], [i, 1]);
                let x = a as f32 / 4_294_967_296.0 - 0.5;
                x * 2f32.powi((b % 24) as i32 - 20)
            })
            .collect()
    }

    struct Case {
        m: usize,
        n: usize,
        k: usize,
        transpose_a: bool,
        transpose_b: bool,
        triangle: Triangle,
    }

    fn check(case: &Case, level: Level, magnitude: f32) {
        let Case {
            m,
            n,
            k,
            transpose_a,
            transpose_b,
            triangle,
        } = *case;
        let scaled = |v: Vec<f32>| -> Vec<f32> {
            v.iter()
                .map(|x| crate::num::fp32::mul(*x, magnitude))
                .collect()
        };
        let a_at = |i: usize, l: usize| if transpose_a { l * m + i } else { i * k + l };
        let b_at = |l: usize, j: usize| if transpose_b { j * k + l } else { l * n + j };
        let mut a = scaled(pseudo_random(m * k, 1));
        let b = scaled(pseudo_random(k * n, 2));
        for i in 0..m {
            for l in 0..k {
                if triangle == Triangle::LowerA && l > i || triangle == Triangle::UpperA && l < i {
                    a[a_at(i, l)] = 0.0;
                }
            }
        }
        let (ea, eb) = (block::emax(&a), block::emax(&b));
        let mut op_a = Operand::rows(a.as_ptr(), if transpose_a { m } else { k }, ea);
        if transpose_a {
            op_a = op_a.transposed();
        }
        let mut op_b = Operand::rows(b.as_ptr(), if transpose_b { k } else { n }, eb);
        if transpose_b {
            op_b = op_b.transposed();
        }
        for compute in [
            Compute::Block18,
            Compute::Block12,
            Compute::Block10,
            Compute::Fp32,
        ] {
            let mut c = vec![0f32; m * n];
            let mut blocks = Vec::new();
            blocks_of(0..m, &mut blocks);
            let product = Product {
                a: op_a,
                b: op_b,
                blocks: &blocks,
                n,
                k,
                c: c.as_mut_ptr(),
                ldc: n,
                triangle,
            };
            // SAFETY: the operands are whole vectors of the stated shapes.
            unsafe { multiply(level, compute, product, &mut Scratch::default()) };
            for i in 0..m {
                for j in 0..n {
                    if triangle == Triangle::LowerC && j > i {
                        continue;
                    }
                    if let Some(cut) = compute.cut() {
                        let sum: i64 = (0..k)
                            .map(|l| {
                                i64::from(block::quantise_narrow(a[a_at(i, l)], ea, cut))
                                    * i64::from(block::quantise_narrow(b[b_at(l, j)], eb, cut))
                            })
                            .sum();
                        let want = block::normalise(sum, ea, eb);
                        assert_eq!(c[i * n + j].to_bits(), want.to_bits(), "{level:?} {i} {j}");
                    } else {
                        let terms =
                            (0..k).map(|l| f64::from(a[a_at(i, l)]) * f64::from(b[b_at(l, j)]));
                        let (want, size) = terms.fold((0.0, 0.0), |(s, t), x| (s + x, t + x.abs()));
                        let error = (f64::from(c[i * n + j]) - want).abs();
                        assert!(error <= size * 1e-5 + 1e-37, "{level:?} {i} {j}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_level_equals_the_integer_definition() {
        for level in Level::available() {
            for (transpose_a, transpose_b) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                for (m, n, k) in [
                    (1, 1, 1),
                    (8, 24, 22),
                    (13, 31, 17),
                    (21, 22, 40),
                    (16, 50, 3),
                ] {
                    let case = Case {
                        m,
                        n,
                        k,
                        transpose_a,
                        transpose_b,
                        triangle: Triangle::Full,
                    };
                    check(&case, level, 1.0);
                }
                for triangle in [Triangle::LowerA, Triangle::UpperA, Triangle::LowerC] {
                    let case = Case {
                        m: 23,
                        n: 23,
                        k: 23,
                        transpose_a,
                        transpose_b,
                        triangle,
                    };
                    check(&case, level, 1.0);
                }
            }
        }
    }

    #[test]
    fn extreme_exponents() {
        let case = Case {
            m: 5,
            n: 9,
            k: 7,
            transpose_a: false,
            transpose_b: false,
            triangle: Triangle::Full,
        };
        for level in Level::available() {
            for magnitude in [2f32.powi(-120), 2f32.powi(-60), 2f32.powi(60)] {
                check(&case, level, magnitude);
            }
        }
    }
}
