//! An independent f64 model for gradient checks: written from the equations, with plain loops,
//! sharing nothing with the trainer but the tensor names.

use super::tensors::TensorId;
use crate::config::model::{HeadCombine, ModelConfig};
use crate::num::tables::{dphi, phi};

/// Row-major matrix.
#[derive(Clone, Debug)]
pub struct Mat {
    pub r: usize,
    pub c: usize,
    pub a: Vec<f64>,
}

impl Mat {
    pub fn new(r: usize, c: usize) -> Self {
        Mat {
            r,
            c,
            a: vec![0.0; r * c],
        }
    }
    pub fn from(r: usize, c: usize, a: Vec<f64>) -> Self {
        assert_eq!(a.len(), r * c);
        Mat { r, c, a }
    }
    fn t(&self) -> Mat {
        let mut out = Mat::new(self.c, self.r);
        for i in 0..self.r {
            for j in 0..self.c {
                out.a[j * self.r + i] = self.a[i * self.c + j];
            }
        }
        out
    }
    fn mul(&self, b: &Mat) -> Mat {
        assert_eq!(self.c, b.r);
        let mut out = Mat::new(self.r, b.c);
        for i in 0..self.r {
            for k in 0..self.c {
                let x = self.a[i * self.c + k];
                for j in 0..b.c {
                    out.a[i * b.c + j] += x * b.a[k * b.c + j];
                }
            }
        }
        out
    }
    fn add(mut self, b: &Mat) -> Mat {
        for (x, y) in self.a.iter_mut().zip(&b.a) {
            *x += y;
        }
        self
    }
    fn scale(mut self, s: f64) -> Mat {
        for x in &mut self.a {
            *x *= s;
        }
        self
    }
    fn map2(&self, b: &Mat, f: impl Fn(f64, f64) -> f64) -> Mat {
        let a = self.a.iter().zip(&b.a).map(|(&x, &y)| f(x, y)).collect();
        Mat::from(self.r, self.c, a)
    }
    fn columns(&self, from: usize, n: usize) -> Mat {
        let a = (0..self.r)
            .flat_map(|i| self.a[i * self.c + from..][..n].to_vec())
            .collect();
        Mat::from(self.r, n, a)
    }
    fn put_columns(&mut self, from: usize, b: &Mat) {
        for i in 0..self.r {
            self.a[i * self.c + from..][..b.c].copy_from_slice(&b.a[i * b.c..][..b.c]);
        }
    }
}

/// Softmax of the first `i + 1` columns of row i, or of all.
pub fn softmax(s: &Mat, causal: bool) -> Mat {
    let mut p = Mat::new(s.r, s.c);
    for i in 0..s.r {
        let n = if causal { i + 1 } else { s.c };
        let row = &s.a[i * s.c..][..n];
        let m = row.iter().cloned().fold(f64::MIN, f64::max);
        let sum: f64 = row.iter().map(|x| (x - m).exp()).sum();
        for (j, x) in row.iter().enumerate() {
            p.a[i * s.c + j] = (x - m).exp() / sum;
        }
    }
    p
}

pub fn softmax_back(p: &Mat, dp: &Mat) -> Mat {
    let mut out = Mat::new(p.r, p.c);
    for i in 0..p.r {
        let row = i * p.c..(i + 1) * p.c;
        let dot: f64 = p.a[row.clone()]
            .iter()
            .zip(&dp.a[row.clone()])
            .map(|(a, b)| a * b)
            .sum();
        for k in row {
            out.a[k] = p.a[k] * (dp.a[k] - dot);
        }
    }
    out
}

/// LayerNorm and what its backward pass needs: (n, xhat, rstd).
pub fn layernorm(x: &Mat, g: &[f64], b: &[f64]) -> (Mat, Mat, Vec<f64>) {
    let (mut n, mut xhat, mut rs) = (x.clone(), x.clone(), Vec::new());
    for i in 0..x.r {
        let row = &x.a[i * x.c..][..x.c];
        let mean = row.iter().sum::<f64>() / x.c as f64;
        let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / x.c as f64;
        let rstd = 1.0 / (var + 1e-5).sqrt();
        for j in 0..x.c {
            let h = (row[j] - mean) * rstd;
            xhat.a[i * x.c + j] = h;
            n.a[i * x.c + j] = h * g[j] + b[j];
        }
        rs.push(rstd);
    }
    (n, xhat, rs)
}

/// (dx, dgamma, dbeta).
pub fn layernorm_back(dn: &Mat, xhat: &Mat, rstd: &[f64], g: &[f64]) -> (Mat, Vec<f64>, Vec<f64>) {
    let (mut dx, d) = (dn.clone(), dn.c);
    let (mut dg, mut db) = (vec![0.0; d], vec![0.0; d]);
    for (i, rstd) in rstd[..dn.r].iter().enumerate() {
        let (dn, xh) = (&dn.a[i * d..][..d], &xhat.a[i * d..][..d]);
        let c1 = (0..d).map(|j| dn[j] * g[j]).sum::<f64>() / d as f64;
        let c2 = (0..d).map(|j| dn[j] * g[j] * xh[j]).sum::<f64>() / d as f64;
        for j in 0..d {
            dg[j] += dn[j] * xh[j];
            db[j] += dn[j];
            dx.a[i * d + j] = (dn[j] * g[j] - c1 - xh[j] * c2) * rstd;
        }
    }
    (dx, dg, db)
}

/// Loss and gradients (in the order of [`TensorId::all`]) of one window.
pub fn gradients(model: &ModelConfig, w: &[Vec<f64>], window: &[u32]) -> (f64, Vec<Vec<f64>>) {
    let (d, heads, dh) = (model.embed_dim, model.heads, model.head_dim());
    let t = window.len() - 1;
    let mat = |id: TensorId| {
        let [r, c] = id.shape(model);
        Mat::from(r, c, w[id.index()].clone())
    };
    let head_scale = match model.head_combine {
        HeadCombine::Mean => 1.0 / heads as f64,
        HeadCombine::Sum => 1.0,
    };
    let s_scale = 1.0 / (dh as f64).sqrt();
    let e = mat(TensorId::Embedding);
    let mut x = Mat::new(t, d);
    for (i, &token) in window[..t].iter().enumerate() {
        for j in 0..d {
            let angle = i as f64 / 10_000f64.powf(2.0 * (j / 2) as f64 / d as f64);
            let pe = if j % 2 == 0 { angle.sin() } else { angle.cos() };
            x.a[i * d + j] = e.a[token as usize * d + j] + pe;
        }
    }
    struct Kept {
        n1: (Mat, Mat, Vec<f64>),
        qkv: Mat,
        p: Vec<Mat>,
        o: Mat,
        n2: (Mat, Mat, Vec<f64>),
        h: Mat,
        g: Mat,
    }
    let mut kept = Vec::new();
    for l in 0..model.layers {
        let v = |id: TensorId| &w[id.index()];
        let n1 = layernorm(&x, v(TensorId::Ln1Gamma(l)), v(TensorId::Ln1Beta(l)));
        let qkv = n1.0.mul(&mat(TensorId::Wqkv(l)));
        let mut o = Mat::new(t, d);
        let mut p = Vec::new();
        for h in 0..heads {
            let part = |k: usize| qkv.columns(k * d + h * dh, dh);
            let probs = softmax(&part(0).mul(&part(1).t()).scale(s_scale), true);
            o.put_columns(h * dh, &probs.mul(&part(2)));
            p.push(probs);
        }
        x = o.mul(&mat(TensorId::Wo(l))).scale(head_scale).add(&x);
        let n2 = layernorm(&x, v(TensorId::Ln2Gamma(l)), v(TensorId::Ln2Beta(l)));
        let h = n2.0.mul(&mat(TensorId::W1(l)));
        let g = h.map2(&h, |x, _| x * phi(model.gelu, x));
        x = g.mul(&mat(TensorId::W2(l))).add(&x);
        kept.push(Kept {
            n1,
            qkv,
            p,
            o,
            n2,
            h,
            g,
        });
    }
    let probs = softmax(&x.mul(&e.t()), false);
    let mut dz = probs.clone().scale(1.0 / t as f64);
    let mut loss = 0.0;
    for i in 0..t {
        let at = i * model.vocab + window[i + 1] as usize;
        loss -= probs.a[at].ln() / t as f64;
        dz.a[at] -= 1.0 / t as f64;
    }
    let mut grads: Vec<Vec<f64>> = w.iter().map(|x| vec![0.0; x.len()]).collect();
    let mut dx = dz.mul(&e);
    let mut de = dz.t().mul(&x);
    for l in (0..model.layers).rev() {
        let k = &kept[l];
        let mut set = |id: TensorId, g: Vec<f64>| grads[id.index()] = g;
        set(TensorId::W2(l), k.g.t().mul(&dx).a);
        let dh_ = dx
            .mul(&mat(TensorId::W2(l)).t())
            .map2(&k.h, |a, h| a * dphi(model.gelu, h));
        set(TensorId::W1(l), k.n2.0.t().mul(&dh_).a);
        let dn = dh_.mul(&mat(TensorId::W1(l)).t());
        let (back, dg, db) =
            layernorm_back(&dn, &k.n2.1, &k.n2.2, &w[TensorId::Ln2Gamma(l).index()]);
        set(TensorId::Ln2Gamma(l), dg);
        set(TensorId::Ln2Beta(l), db);
        dx = back.add(&dx);
        set(TensorId::Wo(l), k.o.t().mul(&dx).scale(head_scale).a);
        let do_ = dx.mul(&mat(TensorId::Wo(l)).t()).scale(head_scale);
        let mut dqkv = Mat::new(t, 3 * d);
        for h in 0..heads {
            let part = |n: usize| k.qkv.columns(n * d + h * dh, dh);
            let do_h = do_.columns(h * dh, dh);
            let ds = softmax_back(&k.p[h], &do_h.mul(&part(2).t())).scale(s_scale);
            dqkv.put_columns(h * dh, &ds.mul(&part(1)));
            dqkv.put_columns(d + h * dh, &ds.t().mul(&part(0)));
            dqkv.put_columns(2 * d + h * dh, &k.p[h].t().mul(&do_h));
        }
        set(TensorId::Wqkv(l), k.n1.0.t().mul(&dqkv).a);
        let dn = dqkv.mul(&mat(TensorId::Wqkv(l)).t());
        let (back, dg, db) =
            layernorm_back(&dn, &k.n1.1, &k.n1.2, &w[TensorId::Ln1Gamma(l).index()]);
        set(TensorId::Ln1Gamma(l), dg);
        set(TensorId::Ln1Beta(l), db);
        dx = back.add(&dx);
    }
    for (i, &token) in window[..t].iter().enumerate() {
        for j in 0..d {
            de.a[token as usize * d + j] += dx.a[i * d + j];
        }
    }
    grads[0] = de.a;
    (loss, grads)
}
