//! Encode, forward and cross-entropy.

use super::build::{Addend, Emitter, Epilogue, Part, Tensor};
use crate::trainer::isa::*;
use crate::trainer::layout::{Constant, EMBEDDING, LayerWeight, weight_number};

/// Temporaries of the scalar file. The vec engine keeps its own order, so one pair serves all operators.
pub(super) const SOFTMAX_MAX: usize = 0;
pub(super) const SOFTMAX_INV: usize = 1;
pub(super) const SCORE_DOT: usize = 0;
pub(super) const NORM_C1: usize = 0;
pub(super) const NORM_C2: usize = 1;

/// What backward needs of the forward pass.
pub(super) struct Kept {
    /// Input of every layer, and the output of the last.
    pub x: Vec<Tensor>,
    /// Attention output `o` of every layer.
    pub o: Vec<Tensor>,
    /// Of the last layer: `x'` and `h`.
    pub mid: Tensor,
    pub hidden: Tensor,
}

impl Emitter<'_> {
    pub fn step(&mut self) {
        let kept = self.forward();
        let scores = self.cross_entropy(&kept);
        self.backward(kept, scores);
    }

    fn encode(&mut self) -> Tensor {
        self.phase = Phase::Encode;
        self.operator = "encode";
        let x0 = self.tensor("x0".into(), self.model.seq_len, self.model.embed_dim);
        for tt in 0..self.nt {
            self.encode_row(&x0, tt);
            self.norm_wave(&x0, 0, false, tt, None);
        }
        x0
    }

    /// x0 once more, for backward.
    pub fn encode_again(&mut self) -> Tensor {
        self.operator = "recompute.encode";
        let x0 = self.tensor("x0.again".into(), self.model.seq_len, self.model.embed_dim);
        for tt in 0..self.nt {
            self.encode_row(&x0, tt);
        }
        x0
    }

    /// Row tile of `x0 = E[token] + PE`.
    fn encode_row(&mut self, x0: &Tensor, tt: usize) {
        let d = self.model.embed_dim;
        let epilogue = Epilogue {
            scale: None,
            add: Some(Addend::Position),
        };
        for jt in 0..d.div_ceil(self.b) {
            let j0 = jt * self.b;
            let col = self.one_hot(Mode::V, tt);
            let row = self.weight(EMBEDDING, Mode::H, 0, j0);
            let nr = self.lanes(d, jt);
            self.tile(col, row, self.model.vocab, epilogue, x0, tt, j0, nr);
        }
    }

    fn forward(&mut self) -> Kept {
        let model = self.model;
        let (t, d, layers) = (model.seq_len, model.embed_dim, model.layers);
        let mut kept_x = vec![self.encode()];
        let mut kept_o = vec![];
        let mut last = None;
        self.phase = Phase::Forward;
        for l in 0..layers {
            let x = kept_x[l];
            let n1 = self.tensor(format!("layer{l}.n1"), t, d);
            let n1 = self.with_vec_exp(n1);
            self.operator = "forward.norm1";
            for tt in 0..self.nt {
                self.normalise(&x, l, false, tt, &n1);
            }
            self.operator = "forward.qkv";
            let qkv = self.qkv_parts(l);
            self.qkv(l, &n1, &qkv);
            let o = self.attention(l, &qkv);
            kept_o.push(o);
            self.operator = "forward.out";
            let mid = self.tensor(format!("layer{l}.mid"), t, d);
            let n2 = self.tensor(format!("layer{l}.n2"), t, d);
            let n2 = self.with_vec_exp(n2);
            for tt in 0..self.nt {
                self.attention_out_row(l, &o, &x, &mid, tt);
                self.operator = "forward.norm2";
                self.norm_wave(&mid, l, true, tt, Some(&n2));
                self.operator = "forward.out";
            }
            let is_last = l + 1 == layers;
            let h = self.tensor(format!("layer{l}.h"), t, model.ff_dim);
            // Backward of the last layer finds h in place; the others compute it again.
            let g = if is_last {
                self.tensor(format!("layer{l}.g"), t, model.ff_dim)
            } else {
                h
            };
            let g = self.with_vec_exp(g);
            for tt in 0..self.nt {
                self.operator = "forward.up";
                let w1 = weight_number(l, LayerWeight::Up);
                self.linear_row(&n2, w1, Epilogue::default(), &h, tt);
                self.operator = "forward.gelu";
                self.gelu(&h, &g, tt);
            }
            let next = self.tensor(format!("x{}", l + 1), t, d);
            let next = if is_last {
                self.with_mat_exp(next)
            } else {
                next
            };
            for tt in 0..self.nt {
                self.operator = "forward.down";
                let w2 = weight_number(l, LayerWeight::Down);
                let epilogue = Epilogue {
                    scale: None,
                    add: Some(Addend::Tensor(mid)),
                };
                self.linear_row(&g, w2, epilogue, &next, tt);
                if !is_last {
                    self.operator = "forward.norm1";
                    self.norm_wave(&next, l + 1, false, tt, None);
                }
            }
            kept_x.push(next);
            last = Some((mid, h));
        }
        let (mid, hidden) = last.unwrap_or((kept_x[0], kept_x[0]));
        Kept {
            x: kept_x,
            o: kept_o,
            mid,
            hidden,
        }
    }

    /// Places of q, k and v: one tensor with one exponent, its parts in buffers of their own because products
    /// read two of them at once.
    fn qkv_parts(&mut self, l: usize) -> [Part; 3] {
        let (t, d) = (self.model.seq_len, self.model.embed_dim);
        let q = self.tensor(format!("layer{l}.q"), t, d);
        let q = self.with_mat_exp(q);
        ["q", "k", "v"].map(|name| Part {
            tensor: match name {
                "q" => q,
                _ => Tensor {
                    exp: q.exp,
                    ..self.tensor(format!("layer{l}.{name}"), t, d)
                },
            },
            first: 0,
        })
    }

    /// `qkv = n1 Wqkv` into its parts.
    pub fn qkv(&mut self, l: usize, n1: &Tensor, parts: &[Part; 3]) {
        let d = self.model.embed_dim;
        let number = weight_number(l, LayerWeight::Qkv);
        for tt in 0..self.nt {
            for (n, part) in parts.iter().enumerate() {
                let at = (&part.tensor, part.first);
                self.linear_part(n1, number, (n * d, d), Epilogue::default(), at, tt);
            }
        }
    }

    /// Row tile of `x' = prod(o, Wo) * (1/H) + x`.
    pub fn attention_out_row(&mut self, l: usize, o: &Tensor, x: &Tensor, mid: &Tensor, tt: usize) {
        let epilogue = Epilogue {
            scale: self.head_scale(),
            add: Some(Addend::Tensor(*x)),
        };
        self.linear_row(o, weight_number(l, LayerWeight::Out), epilogue, mid, tt);
    }

    pub fn head_scale(&self) -> Option<usize> {
        match self.model.head_combine {
            crate::config::model::HeadCombine::Mean => Some(Constant::HeadScale as usize),
            crate::config::model::HeadCombine::Sum => None,
        }
    }

    /// LayerNorm of a tensor whose row tile `tt` has just been emitted. The three passes of neighbouring tiles take
    /// turns, so that one tile's reduction hides behind another tile's pass. `n` is the output, if wanted here.
    fn norm_wave(&mut self, x: &Tensor, l: usize, second: bool, tt: usize, n: Option<&Tensor>) {
        self.norm_mean(x, l, second, tt);
        if let Some(before) = tt.checked_sub(1) {
            self.norm_deviation(x, l, second, before);
        }
        if let (Some(before), Some(n)) = (tt.checked_sub(2), n) {
            self.normalise(x, l, second, before, n);
        }
        if tt + 1 < self.nt {
            return;
        }
        self.norm_deviation(x, l, second, tt);
        if let Some(n) = n {
            for last in tt.saturating_sub(1)..=tt {
                self.normalise(x, l, second, last, n);
            }
        }
    }

    /// Mean of a row tile into the scalar file.
    fn norm_mean(&mut self, x: &Tensor, l: usize, second: bool, tt: usize) {
        self.vec(VecInstr {
            reduce: Reduce::Sum8,
            post: Post::Mean,
            post_row: self.stat_row(l, second, tt, 0),
            ..self.pass(x, tt, self.model.embed_dim)
        });
    }

    /// 1/sqrt(var + eps) of a row tile into the scalar file.
    fn norm_deviation(&mut self, x: &Tensor, l: usize, second: bool, tt: usize) {
        self.vec(VecInstr {
            sub_s0: true,
            s0: self.stat_row(l, second, tt, 0),
            mul1: Mul1::Square,
            reduce: Reduce::Sum8,
            post: Post::Rstd,
            post_row: self.stat_row(l, second, tt, 1),
            ..self.pass(x, tt, self.model.embed_dim)
        });
    }

    /// `n = ((x - mean) * rstd) * gamma + beta` with stored statistics.
    pub fn normalise(&mut self, x: &Tensor, l: usize, second: bool, tt: usize, n: &Tensor) {
        let (gamma, beta) = self.gain_and_bias(l, second);
        let z = self.z(n, tt);
        self.vec(VecInstr {
            z,
            sub_s0: true,
            s0: self.stat_row(l, second, tt, 0),
            mul1: Mul1::S1,
            s1: self.stat_row(l, second, tt, 1),
            mul2: Mul2::Gamma,
            gamma,
            add: Add::Beta,
            beta,
            ..self.pass(x, tt, self.model.embed_dim)
        });
    }

    /// `g = phi(h) * h`.
    pub fn gelu(&mut self, h: &Tensor, g: &Tensor, tt: usize) {
        let z = self.z(g, tt);
        self.vec(VecInstr {
            z,
            table: Table::Phi,
            mul2: Mul2::X,
            ..self.pass(h, tt, self.model.ff_dim)
        });
    }

    /// Logits, loss, accuracy; leaves `e` of the softmax in the logits' buffer.
    fn cross_entropy(&mut self, kept: &Kept) -> Tensor {
        let (t, v, d) = (self.model.seq_len, self.model.vocab, self.model.embed_dim);
        let x = kept.x[self.model.layers];
        let z = self.tensor("logits".into(), t, v);
        for tt in 0..self.nt {
            self.operator = "forward.logits";
            for vt in 0..v.div_ceil(self.b) {
                let col = self.col(&x, Mode::V, tt, 0);
                let row = self.weight(EMBEDDING, Mode::V, vt, 0);
                let nr = self.lanes(v, vt);
                self.tile(col, row, d, Epilogue::default(), &z, tt, vt * self.b, nr);
            }
            self.operator = "forward.loss";
            let (max, inv) = (
                self.temp_row(SOFTMAX_MAX, tt),
                self.temp_row(SOFTMAX_INV, tt),
            );
            self.vec(VecInstr {
                reduce: Reduce::Max,
                post: Post::Raw,
                post_row: max,
                ce_max: true,
                ..self.pass(&z, tt, v)
            });
            let dest = self.z(&z, tt);
            self.vec(VecInstr {
                z: dest,
                sub_s0: true,
                s0: max,
                mul1: Mul1::Const,
                c1: Constant::Log2e as usize,
                table: Table::Exp2n,
                reduce: Reduce::Sum8,
                post: Post::CrossEntropy,
                post_row: inv,
                ce_exp: true,
                ..self.pass(&z, tt, v)
            });
        }
        z
    }
}
