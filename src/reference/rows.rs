//! Row operations between the products (`docs/arithmetic.md` section 4).
//!
//! Operands never hold subnormals, so flushing results is enough; NaN is caught as an
//! exponent of 255 before a product would use it.

use super::functions::Functions;
#[cfg(target_arch = "x86_64")]
use super::rows512;
use super::simd::Grid;
use super::simd::leveled;
use crate::num::block::{self, exponent};
use crate::num::constants::Constants;

/// `fl` of one IEEE operation on flushed operands.
#[inline(always)]
fn fl(x: f32) -> f32 {
    crate::num::fp32::ftz(x)
}

/// `sum8` of `f(0..n)`.
#[inline(always)]
fn sum8(n: usize, f: impl Fn(usize) -> f32) -> f32 {
    let mut s = [0f32; 8];
    let whole = n / 8 * 8;
    let mut i = 0;
    while i < whole {
        for (lane, sum) in s.iter_mut().enumerate() {
            *sum = fl(*sum + f(i + lane));
        }
        i += 8;
    }
    for i in whole..n {
        s[i - whole] = fl(s[i - whole] + f(i));
    }
    let [s0, s1, s2, s3, s4, s5, s6, s7] = s;
    let even = fl(fl(s0 + s4) + fl(s2 + s6));
    let odd = fl(fl(s1 + s5) + fl(s3 + s7));
    fl(even + odd)
}

/// Largest value of `f(0..n)`.
#[inline(always)]
fn maximum(n: usize, f: impl Fn(usize) -> f32) -> f32 {
    const LANES: usize = 16;
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let whole = n / LANES * LANES;
    let mut i = 0;
    while i < whole {
        for (lane, best) in lanes.iter_mut().enumerate() {
            let x = f(i + lane);
            *best = if x > *best { x } else { *best };
        }
        i += LANES;
    }
    for i in whole..n {
        let x = f(i);
        lanes[0] = if x > lanes[0] { x } else { lanes[0] };
    }
    lanes
        .iter()
        .fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m })
}

#[inline(always)]
fn emax_body(x: &[f32]) -> u32 {
    x.iter()
        .fold(0u32, |e, &x| e.max(x.to_bits() & 0x7f80_0000))
        >> 23
}
leveled! {
    /// Largest biased exponent.
    pub(crate) fn emax(x: &[f32]) -> u32 = emax_body
}

/// What LayerNorm reads beside its row.
#[derive(Clone, Copy)]
pub(crate) struct Norm<'a> {
    pub gamma: &'a [f32],
    pub beta: &'a [f32],
    pub inv_d: f32,
    pub eps: f32,
}

#[inline(always)]
fn layernorm_body(x: &[f32], norm: Norm, xhat: &mut [f32], n: &mut [f32], rstd: &mut [f32]) -> u32 {
    let d = norm.gamma.len();
    let beta = &norm.beta[..d];
    let mut e = 0;
    for (r, rstd) in rstd.iter_mut().enumerate() {
        let row = r * d..(r + 1) * d;
        let (x, xhat, n) = (&x[row.clone()], &mut xhat[row.clone()], &mut n[row]);
        let mean = fl(sum8(d, |j| x[j]) * norm.inv_d);
        for j in 0..d {
            xhat[j] = fl(x[j] - mean);
        }
        let var = fl(sum8(d, |j| fl(xhat[j] * xhat[j])) * norm.inv_d);
        *rstd = fl(1.0 / fl(fl(var + norm.eps).sqrt()));
        for j in 0..d {
            xhat[j] = fl(xhat[j] * *rstd);
            n[j] = fl(fl(xhat[j] * norm.gamma[j]) + beta[j]);
        }
        e = e.max(emax_body(n));
    }
    e
}
leveled! {
    /// LayerNorm of as many rows as `rstd` has elements: normalised values to `xhat`, results to `n`;
    /// returns the results' exponent.
    pub(crate) fn layernorm(x: &[f32], norm: Norm, xhat: &mut [f32], n: &mut [f32], rstd: &mut [f32]) -> u32
        = layernorm_body, rows512::layernorm
}

#[inline(always)]
fn layernorm_back_body(
    dn: &[f32],
    xhat: &[f32],
    norm: Norm,
    rstd: &[f32],
    residual: &[f32],
    dx: &mut [f32],
    p: &mut [f32],
) -> [u32; 3] {
    let gamma = norm.gamma;
    let d = gamma.len();
    let all = rstd.len() * d;
    for (r, &rstd) in rstd.iter().enumerate() {
        let row = r * d..(r + 1) * d;
        let (dn, xhat) = (&dn[row.clone()], &xhat[row.clone()]);
        let (residual, dx) = (&residual[row.clone()], &mut dx[row.clone()]);
        let p = &mut p[row];
        for j in 0..d {
            p[j] = fl(xhat[j] * dn[j]);
        }
        let c2 = fl(sum8(d, |j| fl(p[j] * gamma[j])) * norm.inv_d);
        let c1 = fl(sum8(d, |j| fl(dn[j] * gamma[j])) * norm.inv_d);
        for j in 0..d {
            let q = fl(dn[j] * gamma[j]);
            let r = fl(q - fl(xhat[j] * c2));
            dx[j] = fl(fl(fl(r - c1) * rstd) + residual[j]);
        }
    }
    [
        emax_body(&p[..all]),
        emax_body(&dn[..all]),
        emax_body(&dx[..all]),
    ]
}
leveled! {
    /// Backward LayerNorm of as many rows as `rstd` has elements: input gradient plus `residual` to `dx`,
    /// `xhat * dn` to `p`; returns the exponents of `p`, `dn` and `dx`.
    pub(crate) fn layernorm_back(
        dn: &[f32], xhat: &[f32], norm: Norm, rstd: &[f32], residual: &[f32], dx: &mut [f32], p: &mut [f32]
    ) -> [u32; 3] = layernorm_back_body, rows512::layernorm_back
}

/// Neighbouring causal rows: row r has `first + r + 1` elements.
#[derive(Clone, Copy)]
pub(crate) struct Causal {
    pub first: usize,
    pub rows: usize,
}

impl Causal {
    /// Elements from the start of the first row to the end of the last, rows being `ld` apart.
    pub fn span(self, ld: usize) -> usize {
        (self.rows - 1) * ld + self.first + self.rows
    }

    pub fn check(self, len: usize, ld: usize) {
        assert!(self.rows > 0 && self.first + self.rows <= ld.max(1) && self.span(ld) <= len);
    }
}

#[inline(always)]
fn softmax_row<const EXACT: bool>(s: &mut [f32], scale: f32, f: &Functions) {
    let n = s.len();
    let m = maximum(n, |u| s[u]);
    for x in s.iter_mut() {
        *x = f.exp2n::<EXACT>(fl(fl(*x - m) * scale));
    }
    let inv = fl(1.0 / sum8(n, |u| s[u]));
    for x in s.iter_mut() {
        *x = fl(*x * inv);
    }
}
#[inline(always)]
fn softmax_body(
    s: &mut [f32],
    ld: usize,
    causal: Causal,
    scale: f32,
    f: &Functions,
    exact: bool,
) -> u32 {
    causal.check(s.len(), ld);
    let mut e = 0;
    for r in 0..causal.rows {
        let row = &mut s[r * ld..r * ld + causal.first + causal.rows];
        let (row, future) = row.split_at_mut(causal.first + r + 1);
        future.fill(0.0);
        match exact {
            true => softmax_row::<true>(row, scale, f),
            false => softmax_row::<false>(row, scale, f),
        }
        e = e.max(emax_body(row));
    }
    e
}
leveled! {
    /// Softmax of causal rows, `ld` apart, in place, with zeros up to the longest row's end; with the table or
    /// (`exact`) the library function. Returns their exponent.
    pub(crate) fn softmax(s: &mut [f32], ld: usize, causal: Causal, scale: f32, f: &Functions, exact: bool) -> u32
        = softmax_body, rows512::softmax
}

#[inline(always)]
fn softmax_back_body(
    dp: &mut [f32],
    p: &[f32],
    ld: usize,
    causal: Causal,
    inv_sqrt_dh: f32,
) -> u32 {
    causal.check(dp.len().min(p.len()), ld);
    let mut e = 0;
    for r in 0..causal.rows {
        let n = causal.first + r + 1;
        let p = &p[r * ld..r * ld + n];
        let (dp, future) = dp[r * ld..r * ld + causal.first + causal.rows].split_at_mut(n);
        future.fill(0.0);
        let sum = sum8(n, |u| fl(p[u] * dp[u]));
        for u in 0..n {
            dp[u] = fl(fl(fl(dp[u] - sum) * p[u]) * inv_sqrt_dh);
        }
        e = e.max(emax_body(dp));
    }
    e
}
leveled! {
    /// Gradients of the scores of causal rows, as in [`softmax`], in place of the gradients of the probabilities `p`;
    /// returns their exponent.
    pub(crate) fn softmax_back(dp: &mut [f32], p: &[f32], ld: usize, causal: Causal, inv_sqrt_dh: f32) -> u32
        = softmax_back_body, rows512::softmax_back
}

#[inline(always)]
fn gelu_table_body(h: &[f32], g: &mut [f32], f: &Functions) {
    for (g, &h) in g[..h.len()].iter_mut().zip(h) {
        *g = fl(f.phi.eval::<false>(h) * h);
    }
}
#[inline(always)]
fn gelu_exact_body(h: &[f32], g: &mut [f32], f: &Functions) {
    for (g, &h) in g[..h.len()].iter_mut().zip(h) {
        *g = fl(f.phi.eval::<true>(h) * h);
    }
}
leveled! {
    /// `g = phi(h) * h` with the table.
    pub(crate) fn gelu_table(h: &[f32], g: &mut [f32], f: &Functions) = gelu_table_body
}
leveled! {
    /// `g = phi(h) * h` with the library function.
    pub(crate) fn gelu_exact(h: &[f32], g: &mut [f32], f: &Functions) = gelu_exact_body, rows512::gelu_exact
}

#[inline(always)]
fn gelu_back_table_body(h: &[f32], dg: &mut [f32], f: &Functions) {
    for (dg, &h) in dg[..h.len()].iter_mut().zip(h) {
        *dg = fl(f.dphi.eval::<false>(h) * *dg);
    }
}
#[inline(always)]
fn gelu_back_exact_body(h: &[f32], dg: &mut [f32], f: &Functions) {
    for (dg, &h) in dg[..h.len()].iter_mut().zip(h) {
        *dg = fl(f.dphi.eval::<true>(h) * *dg);
    }
}
leveled! {
    /// `dh = dphi(h) * dg` with the table, in place of `dg`.
    pub(crate) fn gelu_back_table(h: &[f32], dg: &mut [f32], f: &Functions) = gelu_back_table_body
}
leveled! {
    /// `dh = dphi(h) * dg` with the library function, in place of `dg`.
    pub(crate) fn gelu_back_exact(h: &[f32], dg: &mut [f32], f: &Functions)
        = gelu_back_exact_body, rows512::gelu_back_exact
}

#[inline(always)]
fn scale_add_body(y: &mut [f32], scale: Option<f32>, addend: &[f32]) {
    let addend = &addend[..y.len()];
    match scale {
        Some(s) => {
            for (y, &a) in y.iter_mut().zip(addend) {
                *y = fl(fl(*y * s) + a);
            }
        }
        None => {
            for (y, &a) in y.iter_mut().zip(addend) {
                *y = fl(*y + a);
            }
        }
    }
}
leveled! {
    /// `y = y * scale + addend`, the scale being optional.
    pub(crate) fn scale_add(y: &mut [f32], scale: Option<f32>, addend: &[f32]) = scale_add_body
}

#[inline(always)]
fn scale_body(y: &mut [f32], s: f32) {
    for y in y.iter_mut() {
        *y = fl(*y * s);
    }
}
leveled! {
    /// `y = y * s`.
    pub(crate) fn scale(y: &mut [f32], s: f32) = scale_body
}

/// What the output layer makes of one row of logits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowLoss {
    /// Loss of the token in units of 2^-24.
    pub loss_q24: i64,
    /// Whether the first largest logit is the target's.
    pub correct: bool,
}

#[inline(always)]
fn output_generic<const EXACT: bool>(
    z: &mut [f32],
    target: usize,
    c: &Constants,
    f: &Functions,
    gradient: bool,
) -> RowLoss {
    let n = z.len();
    let m = maximum(n, |v| z[v]);
    let prediction = z.iter().position(|&x| x == m);
    let gap = fl(m - z[target]);
    let mut sum = [0f32; 8];
    let whole = n / 8 * 8;
    let partial = |sum: &mut f32, x: &mut f32| {
        let e = f.exp2n::<EXACT>(fl(fl(*x - m) * c.log2e));
        if gradient {
            *x = e;
        }
        *sum = fl(*sum + e);
    };
    for chunk in z[..whole].chunks_exact_mut(8) {
        for (sum, x) in sum.iter_mut().zip(chunk) {
            partial(sum, x);
        }
    }
    for (sum, x) in sum.iter_mut().zip(&mut z[whole..]) {
        partial(sum, x);
    }
    let s = crate::num::reduce::combine8(sum);
    if gradient {
        let inv = fl(1.0 / s);
        for x in z.iter_mut() {
            *x = fl(fl(*x * inv) * c.inv_t);
        }
        z[target] = fl(z[target] - c.inv_t);
    }
    let loss_q24 = if EXACT {
        ((f64::from(s).ln() + f64::from(gap)) * 16_777_216.0).round() as i64
    } else {
        let gap = if gap < 127.0 { gap } else { 127.0 };
        f.ln.ln_fx(s) + (gap * 16_777_216.0) as i64
    };
    RowLoss {
        loss_q24,
        correct: prediction == Some(target),
    }
}
#[inline(always)]
fn output_body(
    z: &mut [f32],
    target: usize,
    c: &Constants,
    f: &Functions,
    gradient: bool,
    exact: bool,
) -> RowLoss {
    if exact {
        output_generic::<true>(z, target, c, f, gradient)
    } else {
        output_generic::<false>(z, target, c, f, gradient)
    }
}
leveled! {
    /// Loss of one row of logits; with `gradient`, the logits become their gradient.
    pub(crate) fn output(
        z: &mut [f32], target: usize, c: &Constants, f: &Functions, gradient: bool, exact: bool
    ) -> RowLoss = output_body
}

/// One row on its grid, added to integer sums.
#[inline(always)]
fn add_on_grid_body(sums: &mut [i32], x: &[f32], grid: Grid) {
    for (sum, &x) in sums.iter_mut().zip(x) {
        *sum += grid.apply(x) as i32;
    }
}
leveled! {
    /// Adds a row's grid values to integer sums (a product with ones).
    pub(crate) fn add_on_grid(sums: &mut [i32], x: &[f32], grid: Grid) = add_on_grid_body, rows512::add_on_grid
}

/// Whether every element is finite.
pub(crate) fn is_finite(x: &[f32]) -> bool {
    x.iter().all(|&x| exponent(x) != 255)
}

#[inline(always)]
fn from_grid_body(x: &[f32], emax: u32, cut: u32, addend: &[f32], out: &mut [f32]) {
    let grid = Grid::new(emax, cut);
    let scale = f64::from(block::UNIT) * block::product_scale(block::UNIT_EMAX, emax);
    let (addend, out) = (&addend[..x.len()], &mut out[..x.len()]);
    for j in 0..x.len() {
        // Adding zero makes a negative zero positive, as an integer is.
        let q = f64::from(grid.apply(x[j]) + 0.0);
        out[j] = fl(fl((q * scale) as f32) + addend[j]);
    }
}
leveled! {
    /// A row of a tensor of exponent `emax` as its product with a one-hot vector, plus `addend`; `cut` as in [`Grid::new`].
    pub(crate) fn from_grid(x: &[f32], emax: u32, cut: u32, addend: &[f32], out: &mut [f32]) = from_grid_body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::fp32::ftz;
    use crate::reference::simd::Level;

    /// Numbers of many magnitudes, zeros and values whose products underflow among them.
    fn numbers(n: usize, seed: u32, spread: u32) -> Vec<f32> {
        (0..n as u32)
            .map(|i| {
                let [a, b] = crate::num::threefry::threefry2x32([seed, 3], [i, 1]);
                let x = (a as f32 / 4_294_967_296.0 - 0.5) * 2f32.powi(-((b % spread) as i32));
                if b % 19 == 0 { -0.0 } else { ftz(x) }
            })
            .collect()
    }

    fn bits(x: &[f32]) -> Vec<u32> {
        x.iter().map(|x| x.to_bits()).collect()
    }

    /// What each row operation makes of one row, as bits.
    fn everything(level: Level, n: usize, spread: u32, f: &Functions) -> Vec<Vec<u32>> {
        let make = |seed| numbers(n, seed, spread);
        let (x, gamma, beta) = (make(1), make(3), make(4));
        let norm = Norm {
            gamma: &gamma,
            beta: &beta,
            inv_d: 1.0 / n as f32,
            eps: 1e-5,
        };
        let mut out = Vec::new();
        // One row alone, and groups with a remainder.
        for rows in [1, 7] {
            let (x, y) = (numbers(rows * n, 5, spread), numbers(rows * n, 6, spread));
            let (mut a, mut b, mut rstd) = (x.clone(), x.clone(), vec![0.0; rows]);
            let e = layernorm(level, &x, norm, &mut a, &mut b, &mut rstd);
            out.extend([vec![e], bits(&rstd), bits(&a), bits(&b)]);
            let xhat = a.clone();
            let e = layernorm_back(level, &y, &xhat, norm, &rstd, &x, &mut a, &mut b);
            out.extend([e.to_vec(), bits(&a), bits(&b)]);
            let rows = rows.min(n);
            let causal = Causal {
                first: n - rows,
                rows,
            };
            for scale in [0.3, 40.0] {
                let mut s: Vec<f32> = x.iter().map(|x| x * scale * 8.0).map(ftz).collect();
                let e = softmax(level, &mut s, n, causal, 1.3, f, false);
                out.extend([vec![e], bits(&s)]);
                let mut dp = y.clone();
                let e = softmax_back(level, &mut dp, &s, n, causal, 0.2);
                out.extend([vec![e], bits(&dp)]);
            }
        }
        let mut a = vec![0.0; n];
        for cut in [0, 6, 8] {
            let mut sums: Vec<i32> = (0..n as i32).collect();
            let e = emax(level, &x);
            add_on_grid(level, &mut sums, &x, Grid::new(e, cut));
            for (i, &sum) in sums.iter().enumerate() {
                assert_eq!(sum - i as i32, block::quantise_narrow(x[i], e, cut));
            }
            from_grid(level, &x, e, cut, &beta, &mut a);
            out.push(bits(&a));
        }
        out
    }

    /// The functions of `compute = fp32` may differ between levels, by little.
    #[test]
    fn exact_functions_have_fp32_accuracy_on_every_level() {
        use crate::num::tables::{dphi, phi};
        let model = crate::num::schedule::tests::paper();
        let f = Functions::new(&model);
        let x: Vec<f32> = (0..4001).map(|i| (i - 2000) as f32 * 0.005).collect();
        let n = x.len();
        let causal = Causal {
            first: n - 3,
            rows: 3,
        };
        for level in Level::available() {
            let (mut g, mut dg) = (vec![0.0; n], vec![1.0; n]);
            gelu_exact(level, &x, &mut g, &f);
            gelu_back_exact(level, &x, &mut dg, &f);
            for i in 0..n {
                let x = f64::from(x[i]);
                let (want, slope) = (phi(model.gelu, x) * x, dphi(model.gelu, x));
                assert!(
                    (f64::from(g[i]) - want).abs() < 1.5e-7 * x.abs().max(1.0),
                    "{x}"
                );
                assert!((f64::from(dg[i]) - slope).abs() < 3e-7, "{x}");
            }
            let mut s = x.repeat(3);
            softmax(level, &mut s, n, causal, 1.3, &f, true);
            for r in 0..3 {
                let length = n - 2 + r;
                let e: Vec<f64> = (0..length)
                    .map(|u| libm::exp2(f64::from(x[u] - x[length - 1]) * 1.3))
                    .collect();
                let sum: f64 = e.iter().sum();
                for u in 0..n {
                    let want = e.get(u).unwrap_or(&0.0) / sum;
                    let got = f64::from(s[r * n + u]);
                    assert!((got - want).abs() <= 2e-6 * want, "{level:?} {r} {u}");
                }
            }
        }
    }

    #[test]
    fn every_level_equals_the_plain_loops() {
        let f = Functions::new(&crate::num::schedule::tests::paper());
        for level in Level::available() {
            for n in (1..70).chain([88, 127, 128, 264]) {
                for spread in [8, 150] {
                    let plain = everything(Level::Portable, n, spread, &f);
                    assert_eq!(everything(level, n, spread, &f), plain, "{level:?} {n}");
                }
            }
        }
    }
}
