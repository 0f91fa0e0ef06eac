//! Backward with recompute from each layer's input and attention output, and the weight updates.
//!
//! The order keeps the array busy while the vector unit works: weight-gradient tiles and recomputed products
//! stand where a LayerNorm or softmax would otherwise be waited for.

use super::build::{Addend, Emitter, Epilogue, Part, Tensor};
use super::forward::{Kept, NORM_C1, NORM_C2, SOFTMAX_INV};
use crate::trainer::isa::*;
use crate::trainer::layout::{Constant, EMBEDDING, LayerWeight, weight_number};

/// What a layer's backward pass starts from.
struct Inputs {
    /// Input and attention output of the layer.
    x: Tensor,
    o: Tensor,
    /// Gradient of the layer's output.
    dy: Tensor,
    /// `x'` and `h`.
    mid: Tensor,
    hidden: Tensor,
}

/// What it leaves.
struct Done {
    /// Gradient of the layer's input.
    dx: Tensor,
    /// `x'` and `h` of the layer below.
    below: Option<(Tensor, Tensor)>,
    norm1: NormSums,
}

/// Operands of the gradients of a LayerNorm's gain and bias.
struct NormSums {
    p: Tensor,
    dn: Tensor,
    gain: usize,
    bias: usize,
    operator: &'static str,
}

impl Emitter<'_> {
    pub fn backward(&mut self, kept: Kept, e: Tensor) {
        self.phase = Phase::Backward;
        let model = self.model;
        let (t, d, v) = (model.seq_len, model.embed_dim, model.vocab);
        let last = model.layers;
        self.operator = "backward.loss";
        let dz = self.with_vec_exp(e);
        for tt in 0..self.nt {
            let z = self.z(&dz, tt);
            self.vec(VecInstr {
                z,
                mul1: Mul1::S1,
                s1: self.temp_row(SOFTMAX_INV, tt),
                mul2: Mul2::Const,
                c2: Constant::InvT as usize,
                add: Add::CrossEntropy,
                ..self.pass(&dz, tt, v)
            });
        }
        let de = self.tensor("de_out".into(), v, d);
        self.operator = "backward.dembedding";
        for vt in 0..v.div_ceil(self.b) {
            for jt in 0..d.div_ceil(self.b) {
                let col = self.col(&dz, Mode::H, 0, vt * self.b);
                let row = self.row(&kept.x[last], Mode::H, 0, jt * self.b);
                let nr = self.lanes(d, jt);
                self.tile(col, row, t, Epilogue::default(), &de, vt, jt * self.b, nr);
            }
        }
        self.operator = "backward.logits";
        let dx = self.tensor(format!("dx{last}"), t, d);
        let mut dx = self.with_mat_exp(dx);
        for tt in 0..self.nt {
            self.linear_row(&dz, EMBEDDING, Epilogue::default(), &dx, tt);
        }
        let (mut mid, mut hidden) = (kept.mid, kept.hidden);
        let mut pending = None;
        let mut encoded_again = false;
        let mut kept = kept;
        for l in (0..last).rev() {
            if l <= 1 && self.choices.encode_again && !encoded_again {
                kept.x[0] = self.encode_again();
                encoded_again = true;
            }
            let below = l.checked_sub(1).map(|b| (b, kept.x[b], kept.o[b]));
            let done = self.layer_backward(
                l,
                Inputs {
                    x: kept.x[l],
                    o: kept.o[l],
                    dy: dx,
                    mid,
                    hidden,
                },
                below,
                pending,
            );
            dx = done.dx;
            pending = Some(done.norm1);
            if let Some(n) = done.below {
                (mid, hidden) = n;
            }
        }
        if let Some(sums) = pending {
            self.norm_gradients(&sums);
        }
        self.operator = "backward.dembedding";
        let epilogue = Epilogue {
            scale: None,
            add: Some(Addend::Tensor(de)),
        };
        for vt in 0..v.div_ceil(self.b) {
            for part in self.column_tiles(EMBEDDING) {
                let col = self.one_hot(Mode::H, vt);
                let row = self.row(&dx, Mode::H, 0, part.j0);
                self.gradient_tile(col, row, t, epilogue, EMBEDDING, vt, part);
            }
        }
    }

    /// One layer. With a layer `below` (number, input, attention output) it also computes that layer's `x'` and `h`
    /// again. `pending` are the column sums of the LayerNorm above, left over to keep the array busy here.
    fn layer_backward(
        &mut self,
        l: usize,
        inputs: Inputs,
        below: Option<(usize, Tensor, Tensor)>,
        pending: Option<NormSums>,
    ) -> Done {
        let Inputs {
            x,
            o,
            dy,
            mid,
            hidden,
        } = inputs;
        let (t, d, f) = (self.model.seq_len, self.model.embed_dim, self.model.ff_dim);
        let plain = Epilogue::default();
        let [wqkv, wo, w1, w2] = [
            LayerWeight::Qkv,
            LayerWeight::Out,
            LayerWeight::Up,
            LayerWeight::Down,
        ]
        .map(|w| weight_number(l, w));

        // dh replaces dg, then g replaces h.
        let dh = self.tensor(format!("layer{l}.dh"), t, f);
        let dh = self.with_vec_exp(dh);
        let g = self.with_vec_exp(hidden);
        for tt in 0..self.nt {
            self.operator = "backward.dg";
            self.linear_t_row(&dy, w2, plain, &dh, tt);
            self.operator = "backward.gelu";
            let z = self.z(&dh, tt);
            self.vec(VecInstr {
                y: self.y(&dh, tt),
                z,
                table: Table::Dphi,
                mul2: Mul2::Y,
                ..self.pass(&hidden, tt, f)
            });
            self.gelu(&hidden, &g, tt);
        }
        if let Some(sums) = pending {
            self.norm_gradients(&sums);
        }
        self.operator = "backward.dw2";
        self.weight_gradient(&g, &dy, w2, plain);
        self.operator = "backward.dn2";
        let dn2 = self.tensor(format!("layer{l}.dn2"), t, d);
        let dn2 = self.with_mat_exp(dn2);
        for tt in 0..self.nt {
            self.linear_t_row(&dh, w1, plain, &dn2, tt);
        }
        self.operator = "recompute.norm2";
        let n2 = self.norm_again(&mid, l, true);
        self.operator = "backward.norm2";
        let (norm2, dmid) = self.norm_backward(&mid, &dn2, &dy, l, true);
        self.operator = "backward.dw1";
        self.weight_gradient(&n2, &dh, w1, plain);

        self.operator = "recompute.norm1";
        let n1 = self.norm_again(&x, l, false);
        self.operator = "recompute.qkv";
        let dqkv = self.tensor(format!("layer{l}.dqkv"), t, 3 * d);
        let qkv = self.qkv_again(l, &dqkv);
        self.qkv(l, &n1, &qkv);
        let dqkv = self.with_mat_exp(dqkv);
        self.operator = "recompute.scores";
        let p0 = self.scores(l, 0, &qkv, ".again");
        self.operator = "recompute.softmax";
        self.softmax(&p0);
        self.norm_gradients(&norm2);

        self.operator = "backward.do";
        let scaled = Epilogue {
            scale: self.head_scale(),
            add: None,
        };
        let d_o = self.tensor(format!("layer{l}.do"), t, d);
        let d_o = self.with_mat_exp(d_o);
        for tt in 0..self.nt {
            self.linear_t_row(&dmid, wo, scaled, &d_o, tt);
        }
        self.operator = "backward.dwo";
        self.weight_gradient(&o, &dmid, wo, scaled);
        self.attention_backward(l, &qkv, &d_o, p0, &dqkv);

        self.operator = "recompute.norm1";
        let n1 = self.norm_again(&x, l, false);
        self.operator = "backward.dn1";
        let dn1 = self.tensor(format!("layer{l}.dn1"), t, d);
        let dn1 = self.with_mat_exp(dn1);
        for tt in 0..self.nt {
            self.linear_t_row(&dqkv, wqkv, plain, &dn1, tt);
        }
        let mid_below = below.map(|(b, x, o)| {
            self.operator = "recompute.out";
            let mid = self.tensor(format!("layer{b}.mid.again"), t, d);
            for tt in 0..self.nt {
                self.attention_out_row(b, &o, &x, &mid, tt);
            }
            (b, mid)
        });
        self.operator = "backward.norm1";
        let (norm1, dx) = self.norm_backward(&x, &dn1, &dmid, l, false);
        let n2_below = mid_below.map(|(b, mid)| {
            self.operator = "recompute.norm2";
            (b, mid, self.norm_again(&mid, b, true))
        });
        self.operator = "backward.dwqkv";
        self.weight_gradient(&n1, &dqkv, wqkv, plain);
        let below = n2_below.map(|(b, mid, n2)| (mid, self.hidden_of(&n2, b)));
        Done { dx, below, norm1 }
    }

    /// `h = n2 W1` once more.
    fn hidden_of(&mut self, n2: &Tensor, l: usize) -> Tensor {
        self.operator = "recompute.up";
        let (t, f) = (self.model.seq_len, self.model.ff_dim);
        let h = self.tensor(format!("layer{l}.h.again"), t, f);
        let w1 = weight_number(l, LayerWeight::Up);
        for tt in 0..self.nt {
            self.linear_row(n2, w1, Epilogue::default(), &h, tt);
        }
        h
    }

    /// Places of the recomputed q, k and v: k and v in the second and third part of `dqkv`.
    fn qkv_again(&mut self, l: usize, dqkv: &Tensor) -> [Part; 3] {
        let (t, d) = (self.model.seq_len, self.model.embed_dim);
        let q = self.tensor(format!("layer{l}.q.again"), t, d);
        let q = self.with_mat_exp(q);
        let rest = Tensor {
            exp: q.exp,
            ..*dqkv
        };
        [(q, 0), (rest, d), (rest, 2 * d)].map(|(tensor, first)| Part { tensor, first })
    }

    /// LayerNorm output once more, from stored statistics.
    fn norm_again(&mut self, x: &Tensor, l: usize, second: bool) -> Tensor {
        let (t, d) = (self.model.seq_len, self.model.embed_dim);
        let which = if second { "n2" } else { "n1" };
        let n = self.tensor(format!("layer{l}.{which}.again"), t, d);
        let n = self.with_vec_exp(n);
        for tt in 0..self.nt {
            self.normalise(x, l, second, tt, &n);
        }
        n
    }

    /// LayerNorm backward: operands of its parameters' gradients, and the gradient of the input with `res` added.
    fn norm_backward(
        &mut self,
        x: &Tensor,
        dn: &Tensor,
        res: &Tensor,
        l: usize,
        second: bool,
    ) -> (NormSums, Tensor) {
        let (t, d) = (self.model.seq_len, self.model.embed_dim);
        let (gamma, bias) = self.gain_and_bias(l, second);
        let n = if second { 2 } else { 1 };
        let p = self.tensor(format!("layer{l}.p.norm{n}"), t, d);
        let p = self.with_vec_exp(p);
        let q = self.tensor(format!("layer{l}.dx.norm{n}"), t, d);
        let dx = self.with_vec_exp(q);
        let mean = |e: &Self, tt| e.stat_row(l, second, tt, 0);
        let rstd = |e: &Self, tt| e.stat_row(l, second, tt, 1);
        let c1 = |e: &Self, tt| e.temp_row(NORM_C1, tt);
        let c2 = |e: &Self, tt| e.temp_row(NORM_C2, tt);
        for tt in 0..self.nt {
            let z = self.z(&p, tt);
            self.vec(VecInstr {
                y: self.y(dn, tt),
                z,
                sub_s0: true,
                s0: mean(self, tt),
                mul1: Mul1::S1,
                s1: rstd(self, tt),
                mul2: Mul2::Y,
                ..self.pass(x, tt, d)
            });
        }
        for tt in 0..self.nt {
            let z = self.z(&q, tt);
            self.vec(VecInstr {
                z,
                mul1: Mul1::Gamma,
                gamma,
                reduce: Reduce::Sum8,
                post: Post::Mean,
                post_row: c1(self, tt),
                ..self.pass(dn, tt, d)
            });
        }
        for tt in 0..self.nt {
            self.vec(VecInstr {
                mul1: Mul1::Gamma,
                gamma,
                reduce: Reduce::Sum8,
                post: Post::NegMean,
                post_row: c2(self, tt),
                ..self.pass(&p, tt, d)
            });
        }
        for tt in 0..self.nt {
            let z = self.z(&q, tt);
            self.vec(VecInstr {
                y: self.y(&q, tt),
                z,
                sub_s0: true,
                s0: mean(self, tt),
                mul1: Mul1::S1,
                s1: rstd(self, tt),
                mul2: Mul2::S2,
                s2: c2(self, tt),
                add: Add::Y,
                ..self.pass(x, tt, d)
            });
        }
        for tt in 0..self.nt {
            let z = self.z(&dx, tt);
            self.vec(VecInstr {
                y: self.y(res, tt),
                z,
                sub_s0: true,
                s0: c1(self, tt),
                mul1: Mul1::S1,
                s1: rstd(self, tt),
                add: Add::Y,
                ..self.pass(&q, tt, d)
            });
        }
        let sums = NormSums {
            p,
            dn: *dn,
            gain: gamma,
            bias,
            operator: if second {
                "backward.dnorm2"
            } else {
                "backward.dnorm1"
            },
        };
        (sums, dx)
    }

    /// Gradients of gain (column sums of p) and bias (column sums of dn), and their updates.
    fn norm_gradients(&mut self, sums: &NormSums) {
        self.operator = sums.operator;
        self.layernorm_gradient(&sums.p, sums.gain);
        self.layernorm_gradient(&sums.dn, sums.bias);
    }
}
