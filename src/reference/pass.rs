//! What the threads of one forward or backward pass share, and the pieces both are made of.

use super::error::{ReferenceError, Result};
use super::functions::Functions;
use super::gemm::{self, Operand, Product, Scratch, Triangle};
use super::rows::{self, Norm};
use super::simd::{Grid, Level};
use super::team::Member;
use super::tensors::TensorId;
use super::update::{self, Run, Storage};
use super::update8::{self, Run8};
use super::workspace::{Shared, Workspace};
use crate::config::model::{Compute, ModelConfig};
use crate::num::block;
use crate::num::constants::Constants;
use crate::num::moments8;
use crate::num::schedule::StepScalars;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Receives intermediate tensors: name, rows and columns, row-major values.
pub type Trace<'a> = dyn FnMut(&str, [usize; 2], &[f32]) + Send + 'a;

/// Weights and moments of one tensor, as the threads share them.
pub(crate) struct TensorView {
    pub w: *mut f32,
    pub moments: MomentView,
    pub len: usize,
    pub columns: usize,
    pub storage: Storage,
}

/// Moments of one tensor, as the threads share them.
pub(crate) enum MomentView {
    /// Plain gradient descent.
    None,
    /// FP32 values.
    Float { m: *mut f32, v: *mut f32 },
    /// Codes and block scales.
    Int8 {
        m: *mut i8,
        v: *mut u8,
        m_scale: *mut f32,
        v_scale: *mut f32,
    },
}

/// One pass over one window.
pub(crate) struct Pass<'a> {
    pub model: &'a ModelConfig,
    pub c: &'a Constants,
    pub f: &'a Functions,
    pub position: &'a [f32],
    pub ws: &'a Workspace,
    pub tensors: &'a [TensorView],
    pub level: Level,
    /// Input tokens, at most T.
    pub tokens: &'a [u32],
    /// Targets, as many as tokens; empty for logits only.
    pub targets: &'a [u32],
    /// Whether the logits become their gradient.
    pub gradient: bool,
    /// Scalars of the update that follows each gradient; `None` keeps the gradients only.
    pub update: Option<StepScalars>,
    pub trace: Option<&'a SharedTrace<'a>>,
}

// SAFETY: the pointers of `tensors` are used by the rules of the pass: each element is written by
// one thread, in a phase in which no other thread reads it.
unsafe impl Sync for Pass<'_> {}

/// [`Trace`] as the threads of a pass share it.
pub(crate) type SharedTrace<'a> = dyn Fn(&str, [usize; 2], &[f32]) + Sync + 'a;

/// One thread of a pass.
pub(crate) struct Lane<'a> {
    pub member: &'a Member<'a>,
    pub scratch: &'a mut Scratch,
    /// This thread's rows of [T, *] tensors.
    pub rows: Range<usize>,
    /// `rows` in blocks.
    pub blocks: Vec<(usize, usize)>,
    /// This thread's rows where work grows with the row number (causal attention).
    pub causal: Vec<(usize, usize)>,
    spare: Vec<(usize, usize)>,
    sums: Vec<i32>,
}

impl<'a> Lane<'a> {
    pub fn new(member: &'a Member<'a>, scratch: &'a mut Scratch, t: usize) -> Self {
        let rows = member.share(t, 4);
        let mut blocks = Vec::new();
        gemm::blocks_of(rows.clone(), &mut blocks);
        // Deal blocks out forth and back, so that each thread gets short and long rows.
        let mut causal = Vec::new();
        gemm::blocks_of(0..t, &mut causal);
        let (n, me) = (member.count, member.index);
        let mut number = 0;
        causal.retain(|_| {
            let (round, place) = (number / n, number % n);
            number += 1;
            me == if round % 2 == 0 { place } else { n - 1 - place }
        });
        Self {
            member,
            scratch,
            rows,
            blocks,
            causal,
            spare: Vec::new(),
            sums: Vec::new(),
        }
    }
}

/// Which rows of a product a thread computes.
#[derive(Clone)]
pub(crate) enum Rows {
    /// Its share of the tokens.
    Tokens,
    /// Its causal share.
    Causal,
    /// Given rows.
    Range(Range<usize>),
}

impl Pass<'_> {
    /// Tokens of this window.
    pub fn t(&self) -> usize {
        self.tokens.len()
    }

    /// `compute = fp32`: library functions instead of tables.
    pub fn exact(&self) -> bool {
        self.model.compute == Compute::Fp32
    }

    /// Low bits that the model's blocks leave zero.
    pub fn cut(&self) -> u32 {
        self.model.compute.cut().unwrap_or(0)
    }

    /// The grid of a tensor.
    fn grid(&self, emax: u32) -> Grid {
        Grid::new(emax, self.cut())
    }

    pub fn weight(&self, id: TensorId) -> *const f32 {
        self.tensors[id.index()].w
    }

    /// A weight matrix as an operand.
    pub fn operand(&self, id: TensorId) -> Result<Operand> {
        let columns = id.shape(self.model)[1];
        let emax = self.ws.weights[id.index()].load(Ordering::Relaxed);
        if emax == 255 {
            return Err(ReferenceError::NotFinite { tensor: id.name() });
        }
        Ok(Operand::rows(self.weight(id), columns, emax))
    }

    /// Gain, bias and constants of a LayerNorm.
    pub fn norm(&self, gamma: TensorId, beta: TensorId) -> Norm<'_> {
        let d = self.model.embed_dim;
        // SAFETY: vectors of d elements; nobody updates them in a phase that uses them.
        let slice = |id| unsafe { std::slice::from_raw_parts(self.weight(id), d) };
        Norm {
            gamma: slice(gamma),
            beta: slice(beta),
            inv_d: self.c.inv_d,
            eps: self.c.eps,
        }
    }

    /// `C[rows] = A[rows] B`.
    ///
    /// # Safety
    /// As [`gemm::multiply`]; this thread alone writes these rows of C.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn multiply(
        &self,
        lane: &mut Lane,
        rows: Rows,
        a: Operand,
        b: Operand,
        [n, k]: [usize; 2],
        c: *mut f32,
        ldc: usize,
        triangle: Triangle,
    ) {
        let blocks = match rows {
            Rows::Tokens => &lane.blocks,
            Rows::Causal => &lane.causal,
            Rows::Range(range) => {
                gemm::blocks_of(range, &mut lane.spare);
                &lane.spare
            }
        };
        let product = Product {
            a,
            b,
            blocks,
            n,
            k,
            c,
            ldc,
            triangle,
        };
        // SAFETY: the caller's.
        unsafe { gemm::multiply(self.level, self.model.compute, product, lane.scratch) };
    }

    /// Publishes the exponent of this thread's token rows of a tensor `width` wide.
    ///
    /// # Safety
    /// Nobody else may write these rows now.
    pub unsafe fn publish_rows(&self, lane: &Lane, slot: usize, x: &Shared, width: usize) {
        // SAFETY: the caller's.
        let part = unsafe { x.part(lane.rows.start * width..lane.rows.end * width) };
        self.ws
            .exponents
            .publish(slot, rows::emax(self.level, part));
    }

    /// Passes a tensor to the trace, when there is one. Traced passes have one thread.
    pub fn show(
        &self,
        name: impl FnOnce() -> String,
        shape: [usize; 2],
        x: &Shared,
        offset: usize,
    ) {
        if let Some(trace) = self.trace {
            // SAFETY: the only thread of a traced pass is here.
            let values = unsafe { x.part(offset..offset + shape[0] * shape[1]) };
            trace(&name(), shape, values);
        }
    }

    /// The gradient of a matrix, `A^T B` over the tokens (`a` is [T, M], `b` is [T, N]), then its update.
    ///
    /// # Safety
    /// Nobody writes `a` or `b` or uses the matrix now.
    pub unsafe fn matrix_gradient(
        &self,
        lane: &mut Lane,
        id: TensorId,
        a: Operand,
        b: Operand,
        scale: Option<f32>,
    ) -> Result<()> {
        let [m, n] = id.shape(self.model);
        let share = lane.member.share(m, 4);
        let grad = &self.ws.grads[id.index()];
        // SAFETY: the caller's; each thread has its own rows.
        unsafe {
            let a = a.transposed();
            let size = [n, self.t()];
            self.multiply(
                lane,
                Rows::Range(share.clone()),
                a,
                b,
                size,
                grad.ptr(),
                n,
                Triangle::Full,
            );
            let part = share.start * n..share.end * n;
            if let Some(scale) = scale {
                rows::scale(self.level, grad.part_mut(part.clone()), scale);
            }
            self.apply(id, part)
        }
    }

    /// Updates elements `part` of a tensor from its gradient.
    ///
    /// # Safety
    /// Nobody else uses these elements now.
    pub unsafe fn apply(&self, id: TensorId, part: Range<usize>) -> Result<()> {
        // SAFETY: the caller's.
        let g = unsafe { self.ws.grads[id.index()].part(part.clone()) };
        let Some(scalars) = &self.update else {
            return Ok(());
        };
        if rows::emax(self.level, g) == 255 {
            // Reported at the end of the step: the threads must keep meeting.
            self.ws.new_weights[id.index()].fetch_max(255, Ordering::Relaxed);
            return Ok(());
        }
        let view = &self.tensors[id.index()];
        assert!(part.end <= view.len);
        // SAFETY: in bounds; aliasing is the caller's.
        unsafe {
            let n = part.len();
            let w = std::slice::from_raw_parts_mut(view.w.add(part.start), n);
            let first = part.start as u32;
            let e = match view.moments {
                MomentView::None => {
                    update::sgd(self.level, w, g, scalars.lr);
                    rows::emax(self.level, w)
                }
                MomentView::Float { m, v } => {
                    let m = std::slice::from_raw_parts_mut(m.add(part.start), n);
                    let v = std::slice::from_raw_parts_mut(v.add(part.start), n);
                    let run = Run { first, w, m, v, g };
                    update::adam(self.level, run, self.c, scalars, &view.storage)
                }
                MomentView::Int8 {
                    m,
                    v,
                    m_scale,
                    v_scale,
                } => {
                    // Parts are whole rows, so they are whole blocks.
                    let per_row = moments8::blocks_per_row(view.columns);
                    let (block, blocks) = (
                        part.start / view.columns * per_row,
                        n / view.columns * per_row,
                    );
                    let run = Run8 {
                        first,
                        columns: view.columns,
                        w,
                        m: std::slice::from_raw_parts_mut(m.add(part.start), n),
                        v: std::slice::from_raw_parts_mut(v.add(part.start), n),
                        m_scale: std::slice::from_raw_parts_mut(m_scale.add(block), blocks),
                        v_scale: std::slice::from_raw_parts_mut(v_scale.add(block), blocks),
                        g,
                    };
                    update8::adam8(self.level, run, self.c, scalars, &view.storage)
                }
            };
            self.ws.new_weights[id.index()].fetch_max(e, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Column sums of a [T, d] tensor as the gradient of a LayerNorm vector, then its update.
    ///
    /// # Safety
    /// Nobody writes `x` or uses the vector now.
    pub unsafe fn vector_gradient(
        &self,
        lane: &mut Lane,
        id: TensorId,
        x: &Shared,
        emax: u32,
    ) -> Result<()> {
        let d = self.model.embed_dim;
        let share = lane.member.share(d, 8);
        let n = share.len();
        // SAFETY: the caller's; each thread has its own columns.
        unsafe {
            let grad = self.ws.grads[id.index()].part_mut(share.clone());
            let row = |t: usize| x.part(t * d + share.start..t * d + share.end);
            if self.exact() {
                grad.fill(0.0);
                for t in 0..self.t() {
                    rows::scale_add(self.level, grad, None, row(t));
                }
            } else {
                lane.sums.clear();
                lane.sums.resize(n, 0);
                for t in 0..self.t() {
                    rows::add_on_grid(self.level, &mut lane.sums, row(t), self.grid(emax));
                }
                self.sums_to(&lane.sums, emax, grad);
            }
            self.apply(id, share)
        }
    }

    /// Products of integer column sums with ones.
    fn sums_to(&self, sums: &[i32], emax: u32, out: &mut [f32]) {
        for (g, &sum) in out.iter_mut().zip(sums) {
            let sum = i64::from(sum) * i64::from(block::UNIT);
            *g = block::normalise(sum, block::UNIT_EMAX, emax);
        }
    }

    /// Gradient of the embedding: the rows looked up, plus the output projection's part.
    ///
    /// # Safety
    /// Nobody writes `dx` or uses the embedding now.
    pub unsafe fn embedding_gradient(&self, lane: &mut Lane, emax: u32) -> Result<()> {
        let d = self.model.embed_dim;
        let share = lane.member.share(self.model.vocab, 4);
        let grad = &self.ws.grads[TensorId::Embedding.index()];
        // SAFETY: the caller's; each thread has its own rows.
        unsafe {
            for v in share.clone() {
                let out = grad.part_mut(v * d..(v + 1) * d);
                out.fill(0.0);
                let token = v as u32;
                let uses = || (0..self.t()).filter(|&t| self.tokens[t] == token);
                if self.exact() {
                    for t in uses() {
                        rows::scale_add(self.level, out, None, self.ws.dx.part(t * d..(t + 1) * d));
                    }
                } else if uses().next().is_some() {
                    lane.sums.clear();
                    lane.sums.resize(d, 0);
                    for t in uses() {
                        let row = self.ws.dx.part(t * d..(t + 1) * d);
                        rows::add_on_grid(self.level, &mut lane.sums, row, self.grid(emax));
                    }
                    self.sums_to(&lane.sums, emax, out);
                }
                rows::scale_add(
                    self.level,
                    out,
                    None,
                    self.ws.de_out.part(v * d..(v + 1) * d),
                );
            }
            self.apply(TensorId::Embedding, share.start * d..share.end * d)
        }
    }
}
