//! Causal attention, forward and backward, one head at a time.

use super::build::{Emitter, Epilogue, Part, Tensor};
use super::forward::{SCORE_DOT, SOFTMAX_INV, SOFTMAX_MAX};
use crate::trainer::isa::*;
use crate::trainer::layout::Constant;

impl Emitter<'_> {
    /// Columns of the causal part of row tile `tt`.
    fn causal_len(&self, tt: usize) -> usize {
        self.model.seq_len.min((tt + 1) * self.b)
    }

    /// A head's columns of a part.
    fn head(&self, part: &Part, h: usize) -> (Tensor, usize) {
        (part.tensor, part.first + h * self.model.head_dim())
    }

    /// Tiles on and below the diagonal of `x_h y_h^T`; operands with their first columns.
    fn causal_product(&mut self, (x, cx): (Tensor, usize), (y, cy): (Tensor, usize), dst: &Tensor) {
        for tt in 0..self.nt {
            for ut in 0..=tt {
                let col = self.col(&x, Mode::V, tt, cx);
                let row = self.row(&y, Mode::V, ut, cy);
                let nr = self.lanes(self.model.seq_len, ut);
                let k = self.model.head_dim();
                let j0 = ut * self.b;
                self.tile(col, row, k, Epilogue::default(), dst, tt, j0, nr);
            }
        }
    }

    /// `dst[:, at..] = A y_h` over u <= t (`dst[t, j] = sum_u A[t, u] y[u, j]`).
    fn lower_product(&mut self, a: &Tensor, (y, cy): (Tensor, usize), (dst, at): (Tensor, usize)) {
        let dh = self.model.head_dim();
        for tt in 0..self.nt {
            for jt in 0..dh.div_ceil(self.b) {
                let j = jt * self.b;
                let col = self.col(a, Mode::V, tt, 0);
                let row = self.row(&y, Mode::H, 0, cy + j);
                let nr = self.lanes(dh, jt);
                let k = self.causal_len(tt);
                self.tile(col, row, k, Epilogue::default(), &dst, tt, at + j, nr);
            }
        }
    }

    /// `dst[:, at..] = A^T y_h` over t >= u (`dst[u, j] = sum_t A[t, u] y[t, j]`).
    fn lower_transposed_product(
        &mut self,
        a: &Tensor,
        (y, cy): (Tensor, usize),
        (dst, at): (Tensor, usize),
    ) {
        let (dh, t) = (self.model.head_dim(), self.model.seq_len);
        for ut in 0..self.nt {
            for jt in 0..dh.div_ceil(self.b) {
                let j = jt * self.b;
                let col = self.col(a, Mode::H, ut, ut * self.b);
                let row = self.row(&y, Mode::H, ut, cy + j);
                let nr = self.lanes(dh, jt);
                let k = t - ut * self.b;
                self.tile(col, row, k, Epilogue::default(), &dst, ut, at + j, nr);
            }
        }
    }

    /// Scores of head `h`; the softmax replaces them in place.
    pub fn scores(&mut self, l: usize, h: usize, qkv: &[Part; 3], again: &str) -> Tensor {
        let p = self.causal(format!("layer{l}.p{h}{again}"));
        let p = self.with_vec_exp(p);
        self.causal_product(self.head(&qkv[0], h), self.head(&qkv[1], h), &p);
        p
    }

    /// `P = softmax(scores)` row by row, in place. Tiles take turns so that the reductions overlap.
    pub fn softmax(&mut self, p: &Tensor) {
        // Intermediate values are written without exponent: only P feeds products.
        let raw = Tensor { exp: None, ..*p };
        let max = |e: &Self, tt| e.temp_row(SOFTMAX_MAX, tt);
        let inv = |e: &Self, tt| e.temp_row(SOFTMAX_INV, tt);
        for tt in 0..self.nt {
            self.vec(VecInstr {
                reduce: Reduce::Max,
                post: Post::Raw,
                post_row: max(self, tt),
                mask: true,
                ..self.pass(p, tt, self.causal_len(tt))
            });
        }
        for tt in 0..self.nt {
            let z = self.z(&raw, tt);
            self.vec(VecInstr {
                z,
                sub_s0: true,
                s0: max(self, tt),
                mul1: Mul1::Const,
                c1: Constant::SoftmaxScale as usize,
                table: Table::Exp2n,
                reduce: Reduce::Sum8,
                post: Post::Recip,
                post_row: inv(self, tt),
                mask: true,
                ..self.pass(p, tt, self.causal_len(tt))
            });
        }
        for tt in 0..self.nt {
            let z = self.z(p, tt);
            self.vec(VecInstr {
                z,
                mul1: Mul1::S1,
                s1: inv(self, tt),
                ..self.pass(p, tt, self.causal_len(tt))
            });
        }
    }

    /// Forward attention of a layer: `o`, heads side by side. The scores of one head overlap the softmax of
    /// the head before.
    pub fn attention(&mut self, l: usize, qkv: &[Part; 3]) -> Tensor {
        let (t, d) = (self.model.seq_len, self.model.embed_dim);
        let o = self.tensor(format!("layer{l}.o"), t, d);
        let o = self.with_mat_exp(o);
        let mut previous: Option<(usize, Tensor)> = None;
        for h in 0..self.model.heads {
            self.operator = "forward.scores";
            let p = self.scores(l, h, qkv, "");
            self.operator = "forward.softmax";
            self.softmax(&p);
            if let Some((g, p)) = previous.replace((h, p)) {
                self.weighted_values(g, &p, qkv, &o);
            }
        }
        if let Some((g, p)) = previous {
            self.weighted_values(g, &p, qkv, &o);
        }
        o
    }

    fn weighted_values(&mut self, h: usize, p: &Tensor, qkv: &[Part; 3], o: &Tensor) {
        self.operator = "forward.values";
        let at = h * self.model.head_dim();
        self.lower_product(p, self.head(&qkv[2], h), (*o, at));
    }

    /// Backward through the heads: `dqkv` from `do` and `qkv`. `first` is head 0's softmax, already emitted.
    /// k and v stand in the places of their gradients: a head's v and k are last read before they are replaced.
    pub fn attention_backward(
        &mut self,
        l: usize,
        qkv: &[Part; 3],
        d_o: &Tensor,
        first: Tensor,
        dqkv: &Tensor,
    ) {
        let d = self.model.embed_dim;
        let mut p = first;
        let mut behind: Option<(usize, Tensor)> = None;
        for h in 0..self.model.heads {
            let at = h * self.model.head_dim();
            self.operator = "backward.dp";
            let ds = self.causal(format!("layer{l}.ds{h}"));
            let ds = self.with_vec_exp(ds);
            self.causal_product((*d_o, at), self.head(&qkv[2], h), &ds);
            // dv takes the place of v, and comes before the vector unit reads P again.
            self.operator = "backward.dv";
            self.lower_transposed_product(&p, (*d_o, at), (*dqkv, 2 * d + at));
            self.operator = "backward.softmax";
            self.softmax_backward(&p, &ds);
            if let Some((g, ds)) = behind.replace((h, ds)) {
                self.query_and_key_gradients(g, &ds, qkv, dqkv);
            }
            if h + 1 < self.model.heads {
                self.operator = "recompute.scores";
                p = self.scores(l, h + 1, qkv, ".again");
                self.operator = "recompute.softmax";
                self.softmax(&p);
            }
        }
        if let Some((g, ds)) = behind {
            self.query_and_key_gradients(g, &ds, qkv, dqkv);
        }
    }

    /// `dq = dS k`, then `dk = dS^T q` in the place of k.
    fn query_and_key_gradients(&mut self, h: usize, ds: &Tensor, qkv: &[Part; 3], dqkv: &Tensor) {
        let d = self.model.embed_dim;
        let at = h * self.model.head_dim();
        self.operator = "backward.dq";
        self.lower_product(ds, self.head(&qkv[1], h), (*dqkv, at));
        self.operator = "backward.dk";
        self.lower_transposed_product(ds, self.head(&qkv[0], h), (*dqkv, d + at));
    }

    /// `dS = ((dP - D) * P) / sqrt(dh)`, `D = sum8(P * dP)`, in place of dP.
    fn softmax_backward(&mut self, p: &Tensor, ds: &Tensor) {
        let dot = |e: &Self, tt| e.temp_row(SCORE_DOT, tt);
        for tt in 0..self.nt {
            self.vec(VecInstr {
                y: self.y(p, tt),
                mul1: Mul1::Y,
                reduce: Reduce::Sum8,
                post: Post::Raw,
                post_row: dot(self, tt),
                ..self.pass(ds, tt, self.causal_len(tt))
            });
        }
        for tt in 0..self.nt {
            let z = self.z(ds, tt);
            self.vec(VecInstr {
                y: self.y(p, tt),
                z,
                sub_s0: true,
                s0: dot(self, tt),
                mul1: Mul1::Y,
                mul2: Mul2::Const,
                c2: Constant::InvSqrtDh as usize,
                ..self.pass(ds, tt, self.causal_len(tt))
            });
        }
    }
}
