//! The forward pass (`docs/arithmetic.md` section 4).

use super::error::Result;
use super::gemm::{Operand, Triangle};
use super::pass::{Lane, Pass, Rows};
use super::rows::{self, Causal};
use super::tensors::TensorId;
use super::workspace::{Exponents, LayerBuffers, Slot};
use std::sync::atomic::Ordering;

impl Pass<'_> {
    /// Runs the forward pass up to the logits; with targets also loss and, if asked for, their gradient.
    pub fn forward(&self, lane: &mut Lane) -> Result<()> {
        self.encode(lane)?;
        for l in 0..self.model.layers {
            self.attention(lane, l)?;
            self.feed_forward(lane, l)?;
        }
        self.output(lane)
    }

    /// Input of layer `l`, or the output of the last layer.
    fn x(&self, l: usize) -> &super::workspace::Shared {
        self.ws
            .layers
            .get(l)
            .map_or(&self.ws.x_out, |layer| &layer.x)
    }

    fn encode(&self, lane: &mut Lane) -> Result<()> {
        let d = self.model.embed_dim;
        let e = self.operand(TensorId::Embedding)?;
        for t in lane.rows.clone() {
            let token = self.tokens[t] as usize;
            // SAFETY: token < V was checked; rows are this thread's.
            let (row, out) = unsafe {
                (
                    std::slice::from_raw_parts(e.data.add(token * d), d),
                    self.x(0).part_mut(t * d..(t + 1) * d),
                )
            };
            let position = &self.position[t * d..(t + 1) * d];
            if self.exact() {
                out.copy_from_slice(row);
                rows::scale_add(self.level, out, None, position);
            } else {
                rows::from_grid(self.level, row, e.emax, self.cut(), position, out);
            }
        }
        self.show(|| "x0".into(), [self.t(), d], self.x(0), 0);
        Ok(())
    }

    fn attention(&self, lane: &mut Lane, l: usize) -> Result<()> {
        let (t, d) = (self.t(), self.model.embed_dim);
        let (dh, heads) = (self.model.head_dim(), self.model.heads);
        let layer = &self.ws.layers[l];
        let exponents = &self.ws.exponents;
        let slot = |s| exponents.layer(l, s);
        let name = |what: &str| format!("layers.{l}.{what}");
        let norm = self.norm(TensorId::Ln1Gamma(l), TensorId::Ln1Beta(l));
        // SAFETY: between barriers each thread writes its own rows and reads complete tensors.
        unsafe {
            let r = lane.rows.start * d..lane.rows.end * d;
            let e = rows::layernorm(
                self.level,
                layer.x.part(r.clone()),
                norm,
                layer.xhat1.part_mut(r.clone()),
                layer.n1.part_mut(r),
                layer.rstd1.part_mut(lane.rows.clone()),
            );
            exponents.publish(slot(Slot::N1), e);
            self.show(|| name("n1"), [t, d], &layer.n1, 0);
            lane.member.meet();

            let n1 = Operand::rows(layer.n1.ptr(), d, exponents.get(slot(Slot::N1))?);
            let w = self.operand(TensorId::Wqkv(l))?;
            let qkv = layer.qkv.ptr();
            self.multiply(
                lane,
                Rows::Tokens,
                n1,
                w,
                [3 * d, d],
                qkv,
                3 * d,
                Triangle::Full,
            );
            self.publish_rows(lane, slot(Slot::Qkv), &layer.qkv, 3 * d);
            self.show(|| name("qkv"), [t, 3 * d], &layer.qkv, 0);
            lane.member.meet();

            let e_qkv = exponents.get(slot(Slot::Qkv))?;
            let part = |start: usize| Operand::rows(qkv.add(start), 3 * d, e_qkv);
            for head in 0..heads {
                let (q, k) = (part(head * dh), part(d + head * dh));
                let p = layer.p.ptr().add(head * t * t);
                self.multiply(
                    lane,
                    Rows::Causal,
                    q,
                    k.transposed(),
                    [t, dh],
                    p,
                    t,
                    Triangle::LowerC,
                );
                let mut e = 0;
                for &(i0, i1) in &lane.causal {
                    let causal = Causal {
                        first: i0,
                        rows: i1 - i0,
                    };
                    let start = (head * t + i0) * t;
                    let block = layer.p.part_mut(start..start + causal.span(t));
                    let scale = self.c.softmax_scale;
                    let (f, exact) = (self.f, self.exact());
                    e = e.max(rows::softmax(self.level, block, t, causal, scale, f, exact));
                }
                exponents.publish(exponents.p(l, head), e);
                if self.trace.is_some() {
                    for i in 0..t {
                        layer
                            .p
                            .part_mut((head * t + i) * t + i + 1..(head * t + i + 1) * t)
                            .fill(0.0);
                    }
                }
                self.show(
                    || name(&format!("p.{head}")),
                    [t, t],
                    &layer.p,
                    head * t * t,
                );
            }
            lane.member.meet();

            let mut e = 0;
            for head in 0..heads {
                let p = layer.p.ptr().add(head * t * t);
                let p = Operand::rows(p, t, exponents.get(exponents.p(l, head))?);
                let v = part(2 * d + head * dh);
                let o = layer.o.ptr().add(head * dh);
                self.multiply(lane, Rows::Causal, p, v, [dh, t], o, d, Triangle::LowerA);
            }
            for &(i0, i1) in &lane.causal {
                e = e.max(rows::emax(self.level, layer.o.part(i0 * d..i1 * d)));
            }
            exponents.publish(slot(Slot::O), e);
            self.show(|| name("o"), [t, d], &layer.o, 0);
            lane.member.meet();

            let o = Operand::rows(layer.o.ptr(), d, exponents.get(slot(Slot::O))?);
            let w = self.operand(TensorId::Wo(l))?;
            let x_mid = layer.x_mid.ptr();
            self.multiply(lane, Rows::Tokens, o, w, [d, d], x_mid, d, Triangle::Full);
            let r = lane.rows.start * d..lane.rows.end * d;
            let (y, x) = (layer.x_mid.part_mut(r.clone()), layer.x.part(r));
            rows::scale_add(self.level, y, self.c.head_scale, x);
            self.show(|| name("x_mid"), [t, d], &layer.x_mid, 0);
        }
        Ok(())
    }

    fn feed_forward(&self, lane: &mut Lane, l: usize) -> Result<()> {
        let (t, d, f) = (self.t(), self.model.embed_dim, self.model.ff_dim);
        let layer: &LayerBuffers = &self.ws.layers[l];
        let exponents = &self.ws.exponents;
        let slot = |s| exponents.layer(l, s);
        let name = |what: &str| format!("layers.{l}.{what}");
        let norm = self.norm(TensorId::Ln2Gamma(l), TensorId::Ln2Beta(l));
        // SAFETY: as in `attention`.
        unsafe {
            let r = lane.rows.start * d..lane.rows.end * d;
            let e = rows::layernorm(
                self.level,
                layer.x_mid.part(r.clone()),
                norm,
                layer.xhat2.part_mut(r.clone()),
                layer.n2.part_mut(r),
                layer.rstd2.part_mut(lane.rows.clone()),
            );
            exponents.publish(slot(Slot::N2), e);
            self.show(|| name("n2"), [t, d], &layer.n2, 0);
            lane.member.meet();

            let n2 = Operand::rows(layer.n2.ptr(), d, exponents.get(slot(Slot::N2))?);
            let w = self.operand(TensorId::W1(l))?;
            let h = layer.h.ptr();
            self.multiply(lane, Rows::Tokens, n2, w, [f, d], h, f, Triangle::Full);
            let r = lane.rows.start * f..lane.rows.end * f;
            let (h, g) = (layer.h.part(r.clone()), layer.g.part_mut(r));
            match self.exact() {
                true => rows::gelu_exact(self.level, h, g, self.f),
                false => rows::gelu_table(self.level, h, g, self.f),
            }
            self.publish_rows(lane, slot(Slot::G), &layer.g, f);
            self.show(|| name("h"), [t, f], &layer.h, 0);
            self.show(|| name("g"), [t, f], &layer.g, 0);
            lane.member.meet();

            let g = Operand::rows(layer.g.ptr(), f, exponents.get(slot(Slot::G))?);
            let w = self.operand(TensorId::W2(l))?;
            let out = self.x(l + 1);
            self.multiply(
                lane,
                Rows::Tokens,
                g,
                w,
                [d, f],
                out.ptr(),
                d,
                Triangle::Full,
            );
            let r = lane.rows.start * d..lane.rows.end * d;
            rows::scale_add(
                self.level,
                out.part_mut(r.clone()),
                None,
                layer.x_mid.part(r),
            );
            self.show(|| name("x_out"), [t, d], out, 0);
        }
        Ok(())
    }

    fn output(&self, lane: &mut Lane) -> Result<()> {
        let (t, d, v) = (self.t(), self.model.embed_dim, self.model.vocab);
        let ws = self.ws;
        // SAFETY: as in `attention`.
        unsafe {
            self.publish_rows(lane, Exponents::X_OUT, &ws.x_out, d);
            lane.member.meet();
            let x = Operand::rows(ws.x_out.ptr(), d, ws.exponents.get(Exponents::X_OUT)?);
            let e = self.operand(TensorId::Embedding)?;
            self.multiply(
                lane,
                Rows::Tokens,
                x,
                e.transposed(),
                [v, d],
                ws.z.ptr(),
                v,
                Triangle::Full,
            );
            self.show(|| "z".into(), [t, v], &ws.z, 0);
            if self.targets.is_empty() {
                return Ok(());
            }
            let (mut loss, mut correct) = (0i64, 0usize);
            for i in lane.rows.clone() {
                let z = ws.z.part_mut(i * v..(i + 1) * v);
                let target = self.targets[i] as usize;
                let row = rows::output(
                    self.level,
                    z,
                    target,
                    self.c,
                    self.f,
                    self.gradient,
                    self.exact(),
                );
                loss = loss.saturating_add(row.loss_q24);
                correct += usize::from(row.correct);
            }
            ws.loss_q24.fetch_add(loss, Ordering::Relaxed);
            ws.correct.fetch_add(correct, Ordering::Relaxed);
            self.publish_rows(lane, Exponents::DZ, &ws.z, v);
            if self.gradient {
                self.show(|| "dz".into(), [t, v], &ws.z, 0);
            }
        }
        Ok(())
    }
}
