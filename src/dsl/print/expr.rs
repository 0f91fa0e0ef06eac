//! Expressions: a node and everything inside it that has no name of its own.

use super::super::node::*;
use super::{Printer, symbol};
use std::fmt::Write;

impl Printer<'_> {
    /// A node where any expression may stand.
    pub(super) fn expr(&self, out: &mut String, id: NodeId) {
        let name = self.plan.net(id);
        if name.is_empty() {
            self.operation(out, &self.def.nodes[id as usize].op, id);
        } else {
            out.push_str(name);
        }
    }

    /// A node as an operand: in parentheses unless it is a name, a literal or in braces.
    pub(super) fn operand(&self, out: &mut String, id: NodeId) {
        let node = &self.def.nodes[id as usize];
        let atom = !self.plan.net(id).is_empty()
            || matches!(
                node.op,
                Op::Const(_)
                    | Op::Param(_)
                    | Op::Slice(..)
                    | Op::Cat(_)
                    | Op::Repeat(..)
                    | Op::Sext(_)
            )
            || matches!(node.op, Op::Unary(Unary::Not, a) if !self.plan.net(a).is_empty()
                || matches!(self.def.nodes[a as usize].op, Op::Slice(..)));
        if atom {
            self.expr(out, id);
        } else {
            out.push('(');
            self.expr(out, id);
            out.push(')');
        }
    }

    /// The left operand of a chain such as `a & b & c`.
    pub(super) fn chain(&self, out: &mut String, id: NodeId, op: Binary) {
        let chains = matches!(op, Binary::Add | Binary::And | Binary::Or | Binary::Xor);
        let same = matches!(self.def.nodes[id as usize].op, Op::Binary(o, ..) if o == op);
        if chains && same && self.plan.net(id).is_empty() {
            self.expr(out, id);
        } else {
            self.operand(out, id);
        }
    }

    pub(super) fn signed(&self, out: &mut String, id: NodeId) {
        out.push_str("$signed(");
        self.expr(out, id);
        out.push(')');
    }

    pub(super) fn operation(&self, out: &mut String, op: &Op, id: NodeId) {
        match op {
            Op::Const(bits) => out.push_str(&bits.verilog()),
            Op::Param(k) => out.push_str(&self.def.localparams[*k as usize].name),
            Op::Buf(a) => self.expr(out, *a),
            Op::Unary(u, a) => {
                let one_bit = self.def.nodes[*a as usize].width == 1;
                out.push_str(match u {
                    Unary::Not if one_bit => "!",
                    Unary::Not => "~",
                    Unary::Neg => "-",
                    Unary::RedOr => "|",
                    Unary::RedAnd => "&",
                    Unary::RedXor => "^",
                });
                self.unary_operand(out, *a);
            }
            Op::Binary(op @ (Binary::SMul | Binary::Slt | Binary::Sle), a, b) => {
                self.signed(out, *a);
                let _ = write!(out, " {} ", symbol(*op));
                self.signed(out, *b);
            }
            Op::Binary(Binary::Sra, a, b) => {
                self.signed(out, *a);
                out.push_str(" >>> ");
                self.operand(out, *b);
            }
            Op::Binary(op, a, b) => {
                self.chain(out, *a, *op);
                let _ = write!(out, " {} ", symbol(*op));
                self.operand(out, *b);
            }
            Op::Slice(a, lo) => {
                let width = self.def.nodes[id as usize].width;
                out.push_str(&self.part(*a, lo + width - 1, *lo));
            }
            Op::Cat(parts) => {
                out.push('{');
                for (k, &p) in parts.iter().enumerate() {
                    if k > 0 {
                        out.push_str(", ");
                    }
                    self.expr(out, p);
                }
                out.push('}');
            }
            Op::Repeat(a, n) => {
                let _ = write!(out, "{{{n}{{");
                self.expr(out, *a);
                out.push_str("}}");
            }
            Op::Sext(a) => {
                let from = self.def.nodes[*a as usize].width;
                let n = self.def.nodes[id as usize].width - from;
                let sign = self.part(*a, from - 1, from - 1);
                let _ = match n {
                    1 => write!(out, "{{{sign}, "),
                    _ => write!(out, "{{{{{n}{{{sign}}}}}, "),
                };
                self.expr(out, *a);
                out.push('}');
            }
            Op::Mux(s, a, b) => {
                self.operand(out, *s);
                out.push_str(" ? ");
                self.mux_arm(out, *a, true);
                out.push_str(" : ");
                self.mux_arm(out, *b, false);
            }
            Op::Input(_)
            | Op::RegQ(_)
            | Op::MemQ(..)
            | Op::InstOut(..)
            | Op::Select(..)
            | Op::Case(..) => {}
        }
    }

    /// A unary operator's operand: two operators in a row need parentheses.
    pub(super) fn unary_operand(&self, out: &mut String, id: NodeId) {
        let nested = matches!(self.def.nodes[id as usize].op, Op::Unary(..));
        if nested && self.plan.net(id).is_empty() {
            out.push('(');
            self.expr(out, id);
            out.push(')');
        } else {
            self.operand(out, id);
        }
    }

    pub(super) fn mux_arm(&self, out: &mut String, id: NodeId, first: bool) {
        let mux = matches!(self.def.nodes[id as usize].op, Op::Mux(..));
        if mux && first {
            self.operand(out, id);
        } else {
            self.expr(out, id);
        }
    }

    /// An expression of ports only, printed in full (nets of the other branch do not exist there).
    pub(super) fn port_expr(&self, out: &mut String, id: NodeId) {
        let op = &self.def.nodes[id as usize].op;
        match op {
            Op::Input(k) => out.push_str(&self.def.inputs[*k as usize].name),
            Op::Const(b) => out.push_str(&b.verilog()),
            Op::Param(k) => out.push_str(&self.def.localparams[*k as usize].value.verilog()),
            Op::Buf(a) => self.port_expr(out, *a),
            Op::Slice(a, lo) => {
                // Slices of slices are folded when they are built, names included.
                let (mut root, mut lo) = (*a, *lo);
                while let Op::Slice(inner, more) = self.def.nodes[root as usize].op {
                    root = inner;
                    lo += more;
                }
                self.port_expr(out, root);
                let width = self.def.nodes[id as usize].width;
                let _ = match width {
                    1 => write!(out, "[{lo}]"),
                    w => write!(out, "[{}:{lo}]", lo + w - 1),
                };
            }
            Op::Sext(a) => {
                let from = self.def.nodes[*a as usize].width;
                let n = self.def.nodes[id as usize].width - from;
                let (mut root, mut top) = (*a, from - 1);
                while let Op::Slice(inner, more) = self.def.nodes[root as usize].op {
                    root = inner;
                    top += more;
                }
                let _ = write!(out, "{{{{{n}{{");
                self.port_expr(out, root);
                let _ = write!(out, "[{top}]}}}}, ");
                self.port_expr(out, *a);
                out.push('}');
            }
            Op::Cat(parts) => {
                out.push('{');
                for (k, &p) in parts.iter().enumerate() {
                    if k > 0 {
                        out.push_str(", ");
                    }
                    self.port_expr(out, p);
                }
                out.push('}');
            }
            Op::Repeat(a, n) => {
                let _ = write!(out, "{{{n}{{");
                self.port_expr(out, *a);
                out.push_str("}}");
            }
            Op::Unary(u, a) => {
                out.push_str(match u {
                    Unary::Not => "~",
                    Unary::Neg => "-",
                    Unary::RedOr => "|",
                    Unary::RedAnd => "&",
                    Unary::RedXor => "^",
                });
                out.push('(');
                self.port_expr(out, *a);
                out.push(')');
            }
            Op::Binary(b, x, y) => {
                out.push('(');
                self.port_expr(out, *x);
                let _ = write!(out, " {} ", symbol(*b));
                self.port_expr(out, *y);
                out.push(')');
            }
            Op::Mux(s, a, b) => {
                out.push('(');
                self.port_expr(out, *s);
                out.push_str(" ? ");
                self.port_expr(out, *a);
                out.push_str(" : ");
                self.port_expr(out, *b);
                out.push(')');
            }
            _ => {}
        }
    }
}
