//! Which instructions the lanes can execute.

use super::unit::VectorSpec;
use crate::trainer::isa::{Add, Mul1, Mul2, Post, Reduce, Table, VecInstr};

/// Checks one instruction against the structure of the lane. The error says which rule is
/// broken. Every pass of `docs/machine.md` section 4 passes.
pub fn supported(spec: &VectorSpec, i: &VecInstr) -> Result<(), String> {
    let front_idle = !i.sub_s0 && i.mul1 == Mul1::Bypass;
    let rule = |broken: bool, text: &str| {
        if broken {
            Err(text.to_string())
        } else {
            Ok(())
        }
    };
    rule(i.n == 0, "n is 0: an instruction has at least one step")?;
    rule(
        i.nc == 0 || i.nc > spec.lanes,
        &format!(
            "nc is {}: an instruction has 1 to {} lanes",
            i.nc, spec.lanes
        ),
    )?;
    rule(
        i.mul2 == Mul2::X && !front_idle,
        "mul2 = X takes x from the front of the pipe: sub_s0 and mul1 must be off",
    )?;
    rule(
        i.reduce == Reduce::Max && !front_idle,
        "the maximum takes x from the front of the pipe: sub_s0 and mul1 must be off",
    )?;
    rule(
        i.reduce == Reduce::Sum8 && (i.mul2 != Mul2::Bypass || i.add != Add::Bypass),
        "sum8 occupies the adder and sums what mul2 passes: mul2 and add must be off",
    )?;
    rule(
        i.reduce == Reduce::None && i.post != Post::None,
        "post without a reduction",
    )?;
    rule(
        i.ce_max && i.reduce != Reduce::Max,
        "ce_max belongs to a maximum",
    )?;
    rule(
        i.ce_exp != (i.post == Post::CrossEntropy) || (i.ce_exp && i.reduce != Reduce::Sum8),
        "ce_exp and post = CrossEntropy belong to one pass with sum8",
    )?;
    rule(
        i.table != Table::Bypass && i.reduce == Reduce::Max,
        "a maximum has no table function",
    )?;
    let uses_y = i.mul1 == Mul1::Y || i.mul2 == Mul2::Y || i.add == Add::Y;
    rule(uses_y && i.y.is_none(), "y is used but not read")
}
