//! The backward pass with the updates (`docs/arithmetic.md` sections 4 and 5).
//!
//! A weight is updated after the barrier behind its last use in the step.

use super::error::Result;
use super::gemm::{Operand, Triangle};
use super::pass::{Lane, Pass, Rows};
use super::rows::{self, Causal};
use super::tensors::TensorId;
use super::workspace::{Exponents, Slot};

impl Pass<'_> {
    /// Runs the backward pass after a forward pass with `gradient` set.
    pub fn backward(&self, lane: &mut Lane) -> Result<()> {
        let (t, d, v) = (self.t(), self.model.embed_dim, self.model.vocab);
        let ws = self.ws;
        let exponents = &ws.exponents;
        // SAFETY: between barriers each thread writes its own rows and reads complete tensors.
        unsafe {
            lane.member.meet();
            let dz = Operand::rows(ws.z.ptr(), v, exponents.get(Exponents::DZ)?);
            let e = self.operand(TensorId::Embedding)?;
            let x = Operand::rows(ws.x_out.ptr(), d, exponents.get(Exponents::X_OUT)?);
            self.multiply(
                lane,
                Rows::Tokens,
                dz,
                e,
                [d, v],
                ws.dx.ptr(),
                d,
                Triangle::Full,
            );
            self.publish_rows(lane, Exponents::DX_OUT, &ws.dx, d);
            let share = lane.member.share(v, 4);
            let out = ws.de_out.ptr();
            self.multiply(
                lane,
                Rows::Range(share),
                dz.transposed(),
                x,
                [d, t],
                out,
                d,
                Triangle::Full,
            );
            self.show(|| "dx_out".into(), [t, d], &ws.dx, 0);
            self.show(|| "de_out".into(), [v, d], &ws.de_out, 0);
            lane.member.meet();
        }
        let mut slot = Exponents::DX_OUT;
        for l in (0..self.model.layers).rev() {
            self.feed_forward_back(lane, l, slot)?;
            self.attention_back(lane, l)?;
            slot = exponents.layer(l, Slot::Dx);
        }
        // SAFETY: nothing but the embedding is used any more.
        unsafe { self.embedding_gradient(lane, exponents.get(slot)?) }
    }

    /// From the gradient of the layer's output (`ws.dx`) to that of its middle (`ws.dx_mid`).
    fn feed_forward_back(&self, lane: &mut Lane, l: usize, dx_slot: usize) -> Result<()> {
        let (t, d, f) = (self.t(), self.model.embed_dim, self.model.ff_dim);
        let ws = self.ws;
        let layer = &ws.layers[l];
        let exponents = &ws.exponents;
        let slot = |s| exponents.layer(l, s);
        let name = |what: &str| format!("layers.{l}.{what}");
        // SAFETY: as in `backward`.
        unsafe {
            let dx = Operand::rows(ws.dx.ptr(), d, exponents.get(dx_slot)?);
            let w2 = self.operand(TensorId::W2(l))?;
            let dg = ws.dg.ptr();
            self.multiply(
                lane,
                Rows::Tokens,
                dx,
                w2.transposed(),
                [f, d],
                dg,
                f,
                Triangle::Full,
            );
            self.show(|| name("dg"), [t, f], &ws.dg, 0);
            let r = lane.rows.start * f..lane.rows.end * f;
            let (h, dh) = (layer.h.part(r.clone()), ws.dg.part_mut(r));
            match self.exact() {
                true => rows::gelu_back_exact(self.level, h, dh, self.f),
                false => rows::gelu_back_table(self.level, h, dh, self.f),
            }
            self.publish_rows(lane, slot(Slot::Dh), &ws.dg, f);
            self.show(|| name("dh"), [t, f], &ws.dg, 0);
            lane.member.meet();

            let g = Operand::rows(layer.g.ptr(), f, exponents.get(slot(Slot::G))?);
            self.matrix_gradient(lane, TensorId::W2(l), g, dx, None)?;
            let dh = Operand::rows(dg, f, exponents.get(slot(Slot::Dh))?);
            let w1 = self.operand(TensorId::W1(l))?;
            let dn2 = ws.dn2.ptr();
            self.multiply(
                lane,
                Rows::Tokens,
                dh,
                w1.transposed(),
                [d, f],
                dn2,
                d,
                Triangle::Full,
            );
            self.show(|| name("dn2"), [t, d], &ws.dn2, 0);
            let norm = self.norm(TensorId::Ln2Gamma(l), TensorId::Ln2Beta(l));
            let r = lane.rows.start * d..lane.rows.end * d;
            let e = rows::layernorm_back(
                self.level,
                ws.dn2.part(r.clone()),
                layer.xhat2.part(r.clone()),
                norm,
                layer.rstd2.part(lane.rows.clone()),
                ws.dx.part(r.clone()),
                ws.dx_mid.part_mut(r.clone()),
                ws.p2.part_mut(r),
            );
            for (slot_of, e) in [Slot::P2, Slot::Dn2, Slot::DxMid].into_iter().zip(e) {
                exponents.publish(slot(slot_of), e);
            }
            self.show(|| name("p2"), [t, d], &ws.p2, 0);
            self.show(|| name("dx_mid"), [t, d], &ws.dx_mid, 0);
            lane.member.meet();

            let n2 = Operand::rows(layer.n2.ptr(), d, exponents.get(slot(Slot::N2))?);
            self.matrix_gradient(lane, TensorId::W1(l), n2, dh, None)?;
            let e = exponents.get(slot(Slot::P2))?;
            self.vector_gradient(lane, TensorId::Ln2Gamma(l), &ws.p2, e)?;
            let e = exponents.get(slot(Slot::Dn2))?;
            self.vector_gradient(lane, TensorId::Ln2Beta(l), &ws.dn2, e)
        }
    }

    /// From the gradient of the layer's middle (`ws.dx_mid`) to that of its input (`ws.dx`).
    fn attention_back(&self, lane: &mut Lane, l: usize) -> Result<()> {
        let (t, d) = (self.t(), self.model.embed_dim);
        let (dh, heads) = (self.model.head_dim(), self.model.heads);
        let ws = self.ws;
        let layer = &ws.layers[l];
        let exponents = &ws.exponents;
        let slot = |s| exponents.layer(l, s);
        let name = |what: &str| format!("layers.{l}.{what}");
        // SAFETY: as in `backward`.
        unsafe {
            let dx = Operand::rows(ws.dx_mid.ptr(), d, exponents.get(slot(Slot::DxMid))?);
            let wo = self.operand(TensorId::Wo(l))?;
            let out = ws.do_.ptr();
            self.multiply(
                lane,
                Rows::Tokens,
                dx,
                wo.transposed(),
                [d, d],
                out,
                d,
                Triangle::Full,
            );
            if let Some(scale) = self.c.head_scale {
                let r = lane.rows.start * d..lane.rows.end * d;
                rows::scale(self.level, ws.do_.part_mut(r), scale);
            }
            self.publish_rows(lane, slot(Slot::Do), &ws.do_, d);
            self.show(|| name("do"), [t, d], &ws.do_, 0);
            lane.member.meet();

            let o = Operand::rows(layer.o.ptr(), d, exponents.get(slot(Slot::O))?);
            self.matrix_gradient(lane, TensorId::Wo(l), o, dx, self.c.head_scale)?;
            let e_do = exponents.get(slot(Slot::Do))?;
            let e_qkv = exponents.get(slot(Slot::Qkv))?;
            let part = |start: usize| Operand::rows(layer.qkv.ptr().add(start), 3 * d, e_qkv);
            let do_of = |head: usize| Operand::rows(ws.do_.ptr().add(head * dh), d, e_do);
            for head in 0..heads {
                let v = part(2 * d + head * dh);
                let ds = ws.ds.ptr().add(head * t * t);
                self.multiply(
                    lane,
                    Rows::Causal,
                    do_of(head),
                    v.transposed(),
                    [t, dh],
                    ds,
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
                    let block = start..start + causal.span(t);
                    let p = layer.p.part(block.clone());
                    let (ds, scale) = (ws.ds.part_mut(block), self.c.inv_sqrt_dh);
                    e = e.max(rows::softmax_back(self.level, ds, p, t, causal, scale));
                }
                exponents.publish(exponents.ds(l, head), e);
                if self.trace.is_some() {
                    for i in 0..t {
                        ws.ds
                            .part_mut((head * t + i) * t + i + 1..(head * t + i + 1) * t)
                            .fill(0.0);
                    }
                }
                self.show(|| name(&format!("ds.{head}")), [t, t], &ws.ds, head * t * t);
            }
            lane.member.meet();

            for head in 0..heads {
                let p = layer.p.ptr().add(head * t * t);
                let p = Operand::rows(p, t, exponents.get(exponents.p(l, head))?);
                let ds = ws.ds.ptr().add(head * t * t);
                let ds = Operand::rows(ds, t, exponents.get(exponents.ds(l, head))?);
                let (q, k) = (part(head * dh), part(d + head * dh));
                let out = |start: usize| ws.dqkv.ptr().add(start + head * dh);
                let size = [dh, t];
                self.multiply(
                    lane,
                    Rows::Causal,
                    ds,
                    k,
                    size,
                    out(0),
                    3 * d,
                    Triangle::LowerA,
                );
                self.multiply(
                    lane,
                    Rows::Causal,
                    ds.transposed(),
                    q,
                    size,
                    out(d),
                    3 * d,
                    Triangle::UpperA,
                );
                self.multiply(
                    lane,
                    Rows::Causal,
                    p.transposed(),
                    do_of(head),
                    size,
                    out(2 * d),
                    3 * d,
                    Triangle::UpperA,
                );
            }
            let mut e = 0;
            for &(i0, i1) in &lane.causal {
                e = e.max(rows::emax(self.level, ws.dqkv.part(i0 * 3 * d..i1 * 3 * d)));
            }
            exponents.publish(slot(Slot::Dqkv), e);
            self.show(|| name("dqkv"), [t, 3 * d], &ws.dqkv, 0);
            lane.member.meet();

            let dqkv = Operand::rows(ws.dqkv.ptr(), 3 * d, exponents.get(slot(Slot::Dqkv))?);
            let w = self.operand(TensorId::Wqkv(l))?;
            let dn1 = ws.dn1.ptr();
            self.multiply(
                lane,
                Rows::Tokens,
                dqkv,
                w.transposed(),
                [d, 3 * d],
                dn1,
                d,
                Triangle::Full,
            );
            self.show(|| name("dn1"), [t, d], &ws.dn1, 0);
            let norm = self.norm(TensorId::Ln1Gamma(l), TensorId::Ln1Beta(l));
            let r = lane.rows.start * d..lane.rows.end * d;
            let e = rows::layernorm_back(
                self.level,
                ws.dn1.part(r.clone()),
                layer.xhat1.part(r.clone()),
                norm,
                layer.rstd1.part(lane.rows.clone()),
                ws.dx_mid.part(r.clone()),
                ws.dx.part_mut(r.clone()),
                ws.p1.part_mut(r),
            );
            for (slot_of, e) in [Slot::P1, Slot::Dn1, Slot::Dx].into_iter().zip(e) {
                exponents.publish(slot(slot_of), e);
            }
            self.show(|| name("p1"), [t, d], &ws.p1, 0);
            self.show(|| name("dx"), [t, d], &ws.dx, 0);
            lane.member.meet();

            let n1 = Operand::rows(layer.n1.ptr(), d, exponents.get(slot(Slot::N1))?);
            self.matrix_gradient(lane, TensorId::Wqkv(l), n1, dqkv, None)?;
            let e = exponents.get(slot(Slot::P1))?;
            self.vector_gradient(lane, TensorId::Ln1Gamma(l), &ws.p1, e)?;
            let e = exponents.get(slot(Slot::Dn1))?;
            self.vector_gradient(lane, TensorId::Ln1Beta(l), &ws.dn1, e)
        }
    }
}
