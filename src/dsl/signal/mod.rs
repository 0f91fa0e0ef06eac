//! Signals and the operations on them.

mod join;

use super::bits::Bits;
use super::module::Module;
use super::node::*;
use std::panic::Location;

/// A value of `width` bits in a module under construction. Copyable.
///
/// Vectors have no sign; the operations that need one say so (`smul`, `slt`, `sra`, `sext`).
/// Operands must have equal widths unless stated; a violation is recorded with the caller's
/// place and returned by [`Module::finish`].
#[derive(Clone, Copy)]
pub struct Sig<'m> {
    pub(super) module: &'m Module,
    pub(super) id: NodeId,
    pub(super) width: u32,
}

impl std::fmt::Debug for Sig<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sig({}, {} bits)", self.id, self.width)
    }
}

// The operators of `std::ops` are there too and call these; a builder reads better with names where a chain is long.
#[expect(
    clippy::should_implement_trait,
    reason = "the traits are implemented by these methods"
)]
impl<'m> Sig<'m> {
    /// Width in bits.
    pub fn width(self) -> u32 {
        self.width
    }

    /// The module under construction.
    pub fn module(self) -> &'m Module {
        self.module
    }

    /// Node index, for primitives (`PrimitiveConn::Input`).
    pub fn node(self) -> NodeId {
        self.id
    }

    fn constant(self) -> Option<Bits> {
        match &self.module.inner.borrow().def.nodes[self.id as usize].op {
            Op::Const(bits) => Some(bits.clone()),
            _ => None,
        }
    }

    fn param_value(self) -> Option<Bits> {
        let inner = self.module.inner.borrow();
        match inner.def.nodes[self.id as usize].op {
            Op::Param(index) => Some(inner.def.localparams[index as usize].value.clone()),
            _ => None,
        }
    }

    fn op_unless_named(self) -> Option<Op> {
        let inner = self.module.inner.borrow();
        match inner.def.names[self.id as usize] {
            Some(_) => None,
            None => Some(inner.def.nodes[self.id as usize].op.clone()),
        }
    }

    #[track_caller]
    fn binary(self, op: Binary, rhs: Sig<'_>, what: &str) -> Sig<'m> {
        let rhs = self.module.own(rhs, Location::caller());
        if self.width == 0 || rhs.width == 0 {
            return self.module.poison();
        }
        let free = matches!(
            op,
            Binary::Mul | Binary::SMul | Binary::Shl | Binary::Shr | Binary::Sra
        );
        if !free && self.width != rhs.width {
            self.module.report(format!(
                "{what} of {} and {} bits: extend or truncate one operand",
                self.width, rhs.width
            ));
            return self.module.poison();
        }
        let width = match op {
            Binary::Mul | Binary::SMul => self.width + rhs.width,
            Binary::Eq | Binary::Ne | Binary::Ult | Binary::Ule | Binary::Slt | Binary::Sle => 1,
            _ => self.width,
        };
        if let Some(simple) = self.fold(op, rhs) {
            return simple;
        }
        self.module.add_node(Op::Binary(op, self.id, rhs.id), width)
    }

    /// Identities with a constant operand, so that generic generators print no idle logic.
    fn fold(self, op: Binary, rhs: Sig<'m>) -> Option<Sig<'m>> {
        let (a, b) = (self.constant(), rhs.constant());
        let zero = |c: &Option<Bits>| c.as_ref().is_some_and(Bits::is_zero);
        let ones = |c: &Option<Bits>| c.as_ref().is_some_and(Bits::is_ones);
        let (w, bit) = (self.width, |value: bool| self.module.lit(value as u128, 1));
        if let (Some(x), Some(y)) = (&a, &b)
            && w <= 64
        {
            let (x, y) = (x.to_u128(), y.to_u128());
            let value = |v: u128| Some(self.module.lit_bits(Bits::new(v, w)));
            match op {
                Binary::Add => return value(x.wrapping_add(y)),
                Binary::Sub => return value(x.wrapping_sub(y)),
                Binary::And => return value(x & y),
                Binary::Or => return value(x | y),
                Binary::Xor => return value(x ^ y),
                Binary::Eq => return Some(bit(x == y)),
                Binary::Ne => return Some(bit(x != y)),
                Binary::Ult => return Some(bit(x < y)),
                Binary::Ule => return Some(bit(x <= y)),
                _ => {}
            }
        }
        match op {
            Binary::And if zero(&a) || ones(&b) => Some(self),
            Binary::And if zero(&b) || ones(&a) => Some(rhs),
            Binary::Or if zero(&b) || ones(&a) => Some(self),
            Binary::Or if zero(&a) || ones(&b) => Some(rhs),
            Binary::Xor | Binary::Add if zero(&a) => Some(rhs),
            Binary::Xor | Binary::Add | Binary::Sub if zero(&b) => Some(self),
            Binary::Shl | Binary::Shr | Binary::Sra if zero(&b) || zero(&a) => Some(self),
            Binary::Mul | Binary::SMul if zero(&a) || zero(&b) => {
                Some(self.module.lit_bits(Bits::zero(w + rhs.width)))
            }
            // Comparisons that one operand decides.
            Binary::Ult if zero(&b) || ones(&a) => Some(bit(false)),
            Binary::Ule if zero(&a) || ones(&b) => Some(bit(true)),
            Binary::Ult if zero(&a) => Some(rhs.or_reduce()),
            Binary::Ule if zero(&b) && w > 1 => Some(self.is_zero()),
            Binary::Ult if w == 1 => Some(self.not().and(rhs)),
            Binary::Ule if w == 1 => Some(self.not().or(rhs)),
            // One bit in two's complement is 0 or -1 (Verilator 5.006 compares it wrongly).
            Binary::Slt if w == 1 => Some(self.and(rhs.not())),
            Binary::Sle if w == 1 => Some(self.or(rhs.not())),
            Binary::Eq if w == 1 && ones(&b) => Some(self),
            Binary::Eq if w == 1 && zero(&b) => Some(self.not()),
            _ => None,
        }
    }

    fn unary(self, op: Unary, width: u32) -> Sig<'m> {
        if self.width == 0 {
            return self.module.poison();
        }
        if let Some(c) = self.constant() {
            let ones = (0..self.width).filter(|&i| c.bit(i)).count() as u32;
            match op {
                Unary::RedOr => return self.module.lit((ones > 0) as u128, 1),
                Unary::RedAnd => return self.module.lit((ones == self.width) as u128, 1),
                Unary::RedXor => return self.module.lit((ones % 2) as u128, 1),
                Unary::Neg if ones == 0 => return self,
                _ => {}
            }
        }
        self.module.add_node(Op::Unary(op, self.id), width)
    }

    /// Sum modulo 2^w.
    #[track_caller]
    pub fn add(self, rhs: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::Add, rhs, "sum")
    }

    /// Difference modulo 2^w.
    #[track_caller]
    pub fn sub(self, rhs: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::Sub, rhs, "difference")
    }

    /// Bitwise AND.
    #[track_caller]
    pub fn and(self, rhs: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::And, rhs, "AND")
    }

    /// Bitwise OR.
    #[track_caller]
    pub fn or(self, rhs: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::Or, rhs, "OR")
    }

    /// Bitwise exclusive OR.
    #[track_caller]
    pub fn xor(self, rhs: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::Xor, rhs, "XOR")
    }

    /// Unsigned product of `wa + wb` bits.
    #[track_caller]
    pub fn mul(self, rhs: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::Mul, rhs, "product")
    }

    /// Two's complement product of `wa + wb` bits.
    #[track_caller]
    pub fn smul(self, rhs: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::SMul, rhs, "product")
    }

    /// Equal, 1 bit.
    #[track_caller]
    pub fn eq(self, rhs: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::Eq, rhs, "comparison")
    }

    /// Not equal, 1 bit.
    #[track_caller]
    pub fn ne(self, rhs: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::Ne, rhs, "comparison")
    }

    /// Unsigned `self < rhs`, 1 bit.
    #[track_caller]
    pub fn ult(self, rhs: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::Ult, rhs, "comparison")
    }

    /// Unsigned `self <= rhs`, 1 bit.
    #[track_caller]
    pub fn ule(self, rhs: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::Ule, rhs, "comparison")
    }

    /// Two's complement `self < rhs`, 1 bit.
    #[track_caller]
    pub fn slt(self, rhs: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::Slt, rhs, "comparison")
    }

    /// Two's complement `self <= rhs`, 1 bit.
    #[track_caller]
    pub fn sle(self, rhs: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::Sle, rhs, "comparison")
    }

    /// Equal to the constant `value`, 1 bit.
    #[track_caller]
    pub fn eq_const(self, value: u128) -> Sig<'m> {
        if self.width == 0 {
            return self.module.poison();
        }
        self.eq(self.module.lit(value, self.width))
    }

    /// Sum with the constant `value`, modulo 2^w.
    #[track_caller]
    pub fn add_const(self, value: u128) -> Sig<'m> {
        if self.width == 0 {
            return self.module.poison();
        }
        self.add(self.module.lit(value, self.width))
    }

    /// Difference with the constant `value`, modulo 2^w.
    #[track_caller]
    pub fn sub_const(self, value: u128) -> Sig<'m> {
        if self.width == 0 {
            return self.module.poison();
        }
        self.sub(self.module.lit(value, self.width))
    }

    /// Shift left by a variable amount of any width; zeros enter.
    #[track_caller]
    pub fn shl(self, amount: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::Shl, amount, "shift")
    }

    /// Shift right by a variable amount of any width; zeros enter.
    #[track_caller]
    pub fn shr(self, amount: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::Shr, amount, "shift")
    }

    /// Shift right by a variable amount of any width; copies of the sign bit enter.
    #[track_caller]
    pub fn sra(self, amount: Sig<'_>) -> Sig<'m> {
        self.binary(Binary::Sra, amount, "shift")
    }

    /// Shift left by `n` places, same width.
    #[track_caller]
    pub fn shl_const(self, n: u32) -> Sig<'m> {
        if n == 0 || self.width == 0 {
            return self;
        }
        if n >= self.width {
            return self.module.lit_bits(Bits::zero(self.width));
        }
        let zeros = self.module.lit_bits(Bits::zero(n));
        self.module.cat(&[self.trunc(self.width - n), zeros])
    }

    /// Shift right by `n` places, same width, zeros enter.
    #[track_caller]
    pub fn shr_const(self, n: u32) -> Sig<'m> {
        if n == 0 || self.width == 0 {
            return self;
        }
        if n >= self.width {
            return self.module.lit_bits(Bits::zero(self.width));
        }
        self.slice(self.width - 1, n).zext(self.width)
    }

    /// Shift right by `n` places, same width, the sign enters.
    #[track_caller]
    pub fn sra_const(self, n: u32) -> Sig<'m> {
        if n == 0 || self.width == 0 {
            return self;
        }
        self.slice(self.width - 1, n.min(self.width - 1))
            .sext(self.width)
    }

    /// Two's complement negation.
    pub fn neg(self) -> Sig<'m> {
        self.unary(Unary::Neg, self.width)
    }

    /// Bitwise complement.
    pub fn not(self) -> Sig<'m> {
        if self.width == 0 {
            return self;
        }
        if let Some(c) = self.constant() {
            return self.module.lit_bits(c.not());
        }
        self.unary(Unary::Not, self.width)
    }

    /// OR of all bits.
    pub fn or_reduce(self) -> Sig<'m> {
        if self.width == 1 {
            return self;
        }
        self.unary(Unary::RedOr, 1)
    }

    /// AND of all bits.
    pub fn and_reduce(self) -> Sig<'m> {
        if self.width == 1 {
            return self;
        }
        self.unary(Unary::RedAnd, 1)
    }

    /// XOR of all bits.
    pub fn xor_reduce(self) -> Sig<'m> {
        if self.width == 1 {
            return self;
        }
        self.unary(Unary::RedXor, 1)
    }

    /// Whether no bit is set, 1 bit.
    pub fn is_zero(self) -> Sig<'m> {
        match self.width {
            0 | 1 => self.not(),
            w => self.eq(self.module.lit_bits(Bits::zero(w))),
        }
    }

    /// Zero extension to `width` bits.
    #[track_caller]
    pub fn zext(self, width: u32) -> Sig<'m> {
        if self.width == 0 || width == self.width {
            return self;
        }
        if width < self.width {
            self.module
                .report(format!("zext of {} bits to {width}: use trunc", self.width));
            return self.module.poison();
        }
        let zeros = self.module.lit_bits(Bits::zero(width - self.width));
        self.module.cat(&[zeros, self])
    }

    /// Sign extension to `width` bits.
    #[track_caller]
    pub fn sext(self, width: u32) -> Sig<'m> {
        if self.width == 0 || width == self.width {
            return self;
        }
        if width < self.width {
            self.module
                .report(format!("sext of {} bits to {width}: use trunc", self.width));
            return self.module.poison();
        }
        if self.width == 1 {
            return self.repeat(width);
        }
        if let Some(c) = self.constant() {
            let fill = Bits::zero(width - self.width);
            let fill = if c.bit(self.width - 1) {
                fill.not()
            } else {
                fill
            };
            return self.module.lit_bits(Bits::cat(&[&fill, &c]));
        }
        self.module.add_node(Op::Sext(self.id), width)
    }

    /// The low `width` bits.
    #[track_caller]
    pub fn trunc(self, width: u32) -> Sig<'m> {
        if self.width == 0 {
            return self;
        }
        if width == 0 || width > self.width {
            self.module.report(format!(
                "trunc of {} bits to {width}: use zext or sext",
                self.width
            ));
            return self.module.poison();
        }
        self.slice(width - 1, 0)
    }

    /// Bits `hi` down to `lo`.
    #[track_caller]
    pub fn slice(self, hi: u32, lo: u32) -> Sig<'m> {
        if self.width == 0 {
            return self;
        }
        if hi < lo || hi >= self.width {
            self.module
                .report(format!("slice [{hi}:{lo}] of {} bits", self.width));
            return self.module.poison();
        }
        let width = hi - lo + 1;
        if width == self.width {
            return self;
        }
        if let Some(value) = self.param_value() {
            return self.module.lit_bits(value.slice(lo, width));
        }
        match self.op_unless_named() {
            Some(Op::Const(c)) => return self.module.lit_bits(c.slice(lo, width)),
            Some(Op::Slice(a, from)) => {
                return self.module.add_node(Op::Slice(a, from + lo), width);
            }
            Some(Op::Sext(a)) => {
                let a = self.module.sig(a, self.module.width_of(a));
                if hi < a.width {
                    return a.slice(hi, lo);
                }
            }
            Some(Op::Cat(parts)) => {
                if let Some(s) = self.slice_of_parts(&parts, hi, lo) {
                    return s;
                }
            }
            _ => {}
        }
        self.module.add_node(Op::Slice(self.id, lo), width)
    }

    /// A slice that falls into one part of a concatenation, or covers whole parts.
    #[track_caller]
    fn slice_of_parts(self, parts: &[NodeId], hi: u32, lo: u32) -> Option<Sig<'m>> {
        let mut at = 0;
        let mut whole = vec![];
        for &p in parts.iter().rev() {
            let part = self.module.sig(p, self.module.width_of(p));
            let end = at + part.width;
            if lo >= at && hi < end {
                return Some(part.slice(hi - at, lo - at));
            }
            if at >= lo && end <= hi + 1 {
                whole.push(part);
            }
            at = end;
        }
        whole.reverse();
        let covered: u32 = whole.iter().map(|s| s.width).sum();
        (covered == hi - lo + 1).then(|| self.module.cat(&whole))
    }

    /// Bit `i`.
    #[track_caller]
    pub fn bit(self, i: u32) -> Sig<'m> {
        self.slice(i, i)
    }

    /// The most significant bit.
    #[track_caller]
    pub fn msb(self) -> Sig<'m> {
        if self.width == 0 {
            return self;
        }
        self.bit(self.width - 1)
    }

    /// `n` copies side by side.
    #[track_caller]
    pub fn repeat(self, n: u32) -> Sig<'m> {
        if self.width == 0 || n == 1 {
            return self;
        }
        if n == 0 {
            self.module.report("repeat 0 times".into());
            return self.module.poison();
        }
        if let Some(c) = self.constant() {
            let parts: Vec<&Bits> = (0..n).map(|_| &c).collect();
            return self.module.lit_bits(Bits::cat(&parts));
        }
        self.module.add_node(Op::Repeat(self.id, n), self.width * n)
    }

    /// Gives the net its name in the Verilog text. Returns the signal under that name.
    #[track_caller]
    pub fn named(self, name: &str) -> Sig<'m> {
        if self.width == 0 {
            return self;
        }
        let place = Location::caller();
        let mut inner = self.module.inner.borrow_mut();
        let full = inner.claim(name, place);
        let fixed = matches!(
            inner.def.nodes[self.id as usize].op,
            Op::Input(_) | Op::Const(_) | Op::Param(_) | Op::RegQ(_) | Op::MemQ(..)
        );
        if fixed || inner.def.names[self.id as usize].is_some() {
            let id = inner.push(Op::Buf(self.id), self.width);
            inner.set_name(id, full);
            drop(inner);
            return self.module.sig(id, self.width);
        }
        inner.set_name(self.id, full);
        self
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident) => {
        impl<'m> std::ops::$trait for Sig<'m> {
            type Output = Sig<'m>;
            #[track_caller]
            fn $method(self, rhs: Sig<'m>) -> Sig<'m> {
                Sig::$method(self, rhs)
            }
        }
    };
    ($trait:ident, $method:ident, $target:ident) => {
        impl<'m> std::ops::$trait for Sig<'m> {
            type Output = Sig<'m>;
            #[track_caller]
            fn $method(self, rhs: Sig<'m>) -> Sig<'m> {
                self.$target(rhs)
            }
        }
    };
}

operator!(Add, add);
operator!(Sub, sub);
operator!(BitAnd, bitand, and);
operator!(BitOr, bitor, or);
operator!(BitXor, bitxor, xor);

impl<'m> std::ops::Not for Sig<'m> {
    type Output = Sig<'m>;
    fn not(self) -> Sig<'m> {
        Sig::not(self)
    }
}

impl<'m> std::ops::Neg for Sig<'m> {
    type Output = Sig<'m>;
    fn neg(self) -> Sig<'m> {
        Sig::neg(self)
    }
}
