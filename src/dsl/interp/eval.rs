//! One instruction: in a machine word where the width allows, in limbs otherwise.

use super::super::bits::{get_bit, limbs_for, mask_top, or_bits};
use super::super::node::*;
use super::{Code, Instr, Interpreter, Slot};

impl Interpreter {
    pub(super) fn eval(&mut self, instr: &Instr) {
        let width = self.widths[instr.dst as usize];
        if width <= 64
            && let Some(v) = self.eval_narrow(&instr.code, width)
        {
            let mask = u64::MAX >> (64 - width);
            self.values[self.offsets[instr.dst as usize] as usize] = v & mask;
            return;
        }
        let mut out = vec![0u64; limbs_for(width)];
        self.eval_wide(&instr.code, width, &mut out);
        mask_top(&mut out, width);
        let at = self.offsets[instr.dst as usize] as usize;
        self.values[at..at + out.len()].copy_from_slice(&out);
    }

    pub(super) fn narrow(&self, slot: Slot) -> Option<u64> {
        (self.widths[slot as usize] <= 64)
            .then(|| self.values[self.offsets[slot as usize] as usize])
    }

    pub(super) fn signed(&self, slot: Slot) -> Option<i64> {
        let shift = 64 - self.widths[slot as usize].min(64);
        Some((self.narrow(slot)? << shift) as i64 >> shift)
    }

    /// The value when every operand fits one limb.
    pub(super) fn eval_narrow(&self, code: &Code, width: u32) -> Option<u64> {
        Some(
            match code {
                Code::Copy(a) => self.narrow(*a)?,
                Code::Unary(u, a) => {
                    let (v, w) = (self.narrow(*a)?, self.widths[*a as usize]);
                    match u {
                        Unary::Not => !v,
                        Unary::Neg => v.wrapping_neg(),
                        Unary::RedOr => (v != 0) as u64,
                        Unary::RedAnd => (v == u64::MAX >> (64 - w)) as u64,
                        Unary::RedXor => (v.count_ones() & 1) as u64,
                    }
                }
                Code::Binary(op, a, b) => {
                    let (x, y) = (self.narrow(*a)?, self.narrow(*b)?);
                    match op {
                        Binary::Add => x.wrapping_add(y),
                        Binary::Sub => x.wrapping_sub(y),
                        Binary::And => x & y,
                        Binary::Or => x | y,
                        Binary::Xor => x ^ y,
                        Binary::Mul => x.wrapping_mul(y),
                        Binary::SMul => self.signed(*a)?.wrapping_mul(self.signed(*b)?) as u64,
                        Binary::Eq => (x == y) as u64,
                        Binary::Ne => (x != y) as u64,
                        Binary::Ult => (x < y) as u64,
                        Binary::Ule => (x <= y) as u64,
                        Binary::Slt => (self.signed(*a)? < self.signed(*b)?) as u64,
                        Binary::Sle => (self.signed(*a)? <= self.signed(*b)?) as u64,
                        Binary::Shl => x.checked_shl(y.min(64) as u32).unwrap_or(0),
                        Binary::Shr => x.checked_shr(y.min(64) as u32).unwrap_or(0),
                        Binary::Sra => (self.signed(*a)? >> y.min(63)) as u64,
                    }
                }
                Code::Slice(a, lo) => match self.narrow(*a) {
                    Some(v) => v >> lo,
                    None => {
                        let limbs = self.value(*a);
                        let (k, s) = ((lo / 64) as usize, lo % 64);
                        let high = match (s, limbs.get(k + 1)) {
                            (1.., Some(h)) => h << (64 - s),
                            _ => 0,
                        };
                        limbs[k] >> s | high
                    }
                },
                Code::Cat(parts) => {
                    let mut v = 0u64;
                    for &p in parts.iter() {
                        let w = self.widths[p as usize];
                        v = v.checked_shl(w).unwrap_or(0) | self.narrow(p)?;
                    }
                    v
                }
                Code::Repeat(a, n) => {
                    let (v, w) = (self.narrow(*a)?, self.widths[*a as usize]);
                    (0..*n).fold(0, |acc: u64, _| acc.checked_shl(w).unwrap_or(0) | v)
                }
                Code::Sext(a) => self.signed(*a)? as u64,
                Code::Mux(s, a, b) => self.narrow(if self.bit(*s) { *a } else { *b })?,
                Code::Select(i, choices) => {
                    let k = (self.narrow(*i)? as usize).min(choices.len() - 1);
                    self.narrow(choices[k])?
                }
                Code::Case(s, arms, d) => {
                    let v = self.value(*s);
                    let arm = arms.iter().find(|(value, _)| value.limbs() == v);
                    self.narrow(arm.map_or(*d, |(_, a)| *a))?
                }
                Code::MemRead(m, addr) => {
                    let mem = &self.mems[*m as usize];
                    if limbs_for(mem.width) != 1 {
                        return None;
                    }
                    let a = self.narrow(*addr)? as usize;
                    mem.words.get(a).copied().unwrap_or(0)
                }
            } & u64::MAX >> (64 - width),
        )
    }

    pub(super) fn eval_wide(&self, code: &Code, width: u32, out: &mut [u64]) {
        match code {
            Code::Copy(a) => out.copy_from_slice(self.value(*a)),
            Code::Unary(u, a) => {
                let v = self.value(*a);
                match u {
                    Unary::Not => (0..out.len()).for_each(|i| out[i] = !v[i]),
                    Unary::Neg => {
                        let zero = vec![0; v.len()];
                        sub(&zero, v, out);
                    }
                    Unary::RedOr => out[0] = v.iter().any(|&l| l != 0) as u64,
                    Unary::RedAnd => {
                        let w = self.widths[*a as usize];
                        out[0] = (0..w).all(|i| get_bit(v, i)) as u64;
                    }
                    Unary::RedXor => {
                        out[0] = (v.iter().map(|l| l.count_ones()).sum::<u32>() & 1) as u64;
                    }
                }
            }
            Code::Binary(op, a, b) => self.binary_wide(*op, *a, *b, width, out),
            Code::Slice(a, lo) => or_bits(out, 0, self.value(*a), *lo, width),
            Code::Cat(parts) => {
                let mut at = 0;
                for &p in parts.iter().rev() {
                    let w = self.widths[p as usize];
                    or_bits(out, at, self.value(p), 0, w);
                    at += w;
                }
            }
            Code::Repeat(a, n) => {
                let w = self.widths[*a as usize];
                (0..*n).for_each(|k| or_bits(out, k * w, self.value(*a), 0, w));
            }
            Code::Sext(a) => out.copy_from_slice(&self.extended(*a, out.len(), true)),
            Code::Mux(s, a, b) => {
                out.copy_from_slice(self.value(if self.bit(*s) { *a } else { *b }));
            }
            Code::Select(i, choices) => {
                let v = self.value(*i);
                let big = v[1..].iter().any(|&l| l != 0);
                let last = choices.len() - 1;
                let k = if big { last } else { (v[0] as usize).min(last) };
                out.copy_from_slice(self.value(choices[k]));
            }
            Code::Case(s, arms, d) => {
                let v = self.value(*s);
                let arm = arms.iter().find(|(value, _)| value.limbs() == v);
                out.copy_from_slice(self.value(arm.map_or(*d, |(_, a)| *a)));
            }
            Code::MemRead(m, addr) => {
                let mem = &self.mems[*m as usize];
                let per = limbs_for(mem.width);
                let a = self.value(*addr)[0] as usize;
                if let Some(word) = mem.words.get(a * per..(a + 1) * per) {
                    out.copy_from_slice(word);
                }
            }
        }
    }

    /// A value extended to `limbs` limbs.
    pub(super) fn extended(&self, slot: Slot, limbs: usize, signed: bool) -> Vec<u64> {
        let width = self.widths[slot as usize];
        let mut v = self.value(slot).to_vec();
        v.resize(limbs.max(v.len()), 0);
        if signed && get_bit(&v, width - 1) {
            for i in width..v.len() as u32 * 64 {
                v[(i / 64) as usize] |= 1 << (i % 64);
            }
        }
        v
    }

    pub(super) fn binary_wide(&self, op: Binary, a: Slot, b: Slot, width: u32, out: &mut [u64]) {
        use std::cmp::Ordering;
        let (x, y) = (self.value(a), self.value(b));
        let n = x.len().max(y.len());
        let order = |signed: bool| {
            let (x, y) = (self.extended(a, n, signed), self.extended(b, n, signed));
            let top = if signed {
                (x[n - 1] as i64).cmp(&(y[n - 1] as i64))
            } else {
                x[n - 1].cmp(&y[n - 1])
            };
            top.then_with(|| x.iter().rev().cmp(y.iter().rev()))
        };
        match op {
            Binary::Add => {
                let mut carry = false;
                for i in 0..out.len() {
                    let (s, c1) = x[i].overflowing_add(y[i]);
                    let (s, c2) = s.overflowing_add(carry as u64);
                    out[i] = s;
                    carry = c1 | c2;
                }
            }
            Binary::Sub => sub(x, y, out),
            Binary::And => (0..out.len()).for_each(|i| out[i] = x[i] & y[i]),
            Binary::Or => (0..out.len()).for_each(|i| out[i] = x[i] | y[i]),
            Binary::Xor => (0..out.len()).for_each(|i| out[i] = x[i] ^ y[i]),
            Binary::Mul | Binary::SMul => {
                let signed = op == Binary::SMul;
                let (x, y) = (
                    self.extended(a, out.len(), signed),
                    self.extended(b, out.len(), signed),
                );
                for i in 0..out.len() {
                    let mut carry = 0u128;
                    for j in 0..out.len() - i {
                        let t = x[i] as u128 * y[j] as u128 + out[i + j] as u128 + carry;
                        out[i + j] = t as u64;
                        carry = t >> 64;
                    }
                }
            }
            Binary::Eq => out[0] = (x == y) as u64,
            Binary::Ne => out[0] = (x != y) as u64,
            Binary::Ult => out[0] = (order(false) == Ordering::Less) as u64,
            Binary::Ule => out[0] = (order(false) != Ordering::Greater) as u64,
            Binary::Slt => out[0] = (order(true) == Ordering::Less) as u64,
            Binary::Sle => out[0] = (order(true) != Ordering::Greater) as u64,
            Binary::Shl | Binary::Shr | Binary::Sra => {
                let huge = y[1..].iter().any(|&l| l != 0) || y[0] >= width as u64;
                let by = if huge { width } else { y[0] as u32 };
                let fill = op == Binary::Sra && get_bit(x, width - 1);
                match op {
                    Binary::Shl => or_bits(out, by.min(width), x, 0, width - by),
                    _ => or_bits(out, 0, x, by.min(width), width - by),
                }
                if fill {
                    (width - by..width).for_each(|i| out[(i / 64) as usize] |= 1 << (i % 64));
                }
            }
        }
    }
}

fn sub(x: &[u64], y: &[u64], out: &mut [u64]) {
    let mut borrow = false;
    for i in 0..out.len() {
        let (d, b1) = x[i].overflowing_sub(y[i]);
        let (d, b2) = d.overflowing_sub(borrow as u64);
        out[i] = d;
        borrow = b1 | b2;
    }
}

/// The low 128 bits of a limb slice.
pub(super) fn low128(limbs: &[u64]) -> u128 {
    limbs[0] as u128 | (limbs.get(1).copied().unwrap_or(0) as u128) << 64
}
