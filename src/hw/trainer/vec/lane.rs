//! `nf_vector_lane`: the configurable pipe of one lane (`docs/machine.md` section 4).
//!
//! ```text
//!  x ─► - s0 ─► A ─► * {1|c1|gamma, y, A, s1} ─► M1 ─► table or delay ─► T ─► * {1|c2|gamma, y, x, s2} ─► M2
//!                                                 └► table unit            └► maximum
//!  M2 ─► + {-0|beta|ce, y} ─► z          or, while the adder sums: partial sums round a loop of 8
//! ```
//!
//! A part that an instruction does not use computes an identity (x - 0, x * 1, x + -0), so no
//! stage has a bypass of its own. Two things follow for the instructions (`supported` in the
//! unit checks them): `mul2 = X` and the maximum see x only through an idle front, and a sum
//! needs the adder, so it has neither `mul2` nor `add`.

use std::sync::Arc;

use super::table;
use crate::dsl::{DslError, MemSpec, MemStyle, Module, ModuleDef, Sig, addr_width};
use crate::hw::fp;
use crate::hw::trainer::register_delay;

/// Cycle, counted from x at the lane, at which A leaves the subtractor.
pub const AT_A: u32 = fp::ADD_LATENCY;
/// M1 leaves the first multiplier (a register in front of it holds the chosen operands).
pub const AT_M1: u32 = AT_A + 1 + fp::MUL_LATENCY;
/// T is there, the operands of the second multiplier are chosen.
pub const AT_T: u32 = AT_M1 + table::LATENCY;
/// M2 leaves the second multiplier, the operands of the adder are chosen.
pub const AT_M2: u32 = AT_T + 1 + fp::MUL_LATENCY;
/// The sum leaves the adder.
pub const AT_SUM: u32 = AT_M2 + 1 + fp::ADD_LATENCY;
/// z leaves the lane.
pub const AT_Z: u32 = AT_SUM + 1;

/// Cycles round the loop of the partial sums, and their number.
pub const PARTIALS: u32 = 8;
/// Slots (cycles at the adder's input) from the last element to the last addition of the fold:
/// four sums at slots 4 to 7, two at 14 and 15, one at 23.
pub const FOLD_LAST: u32 = 23;
/// Slots from the last element to the reduction's result on the adder's output.
pub const FOLD_RESULT: u32 = FOLD_LAST + 1 + fp::ADD_LATENCY;

/// Least number of cycles between two instructions' first elements: then the reads of s0, s1
/// and s2 of one instruction never meet those of the next on the scalar file's only port.
pub const SPACING: u32 = AT_T + 1;

/// FP32 one.
pub const ONE: u128 = 0x3f80_0000;
/// FP32 minus zero, the addend that changes nothing.
pub const MINUS_ZERO: u128 = 0x8000_0000;

/// Sources of a multiplier's second operand on the lane's `mul1_select` and `mul2_select`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factor {
    /// The word common to all lanes: 1, a constant or gamma.
    Common = 0,
    Y = 1,
    /// First multiplier: A. Second: x.
    Own = 2,
    Scalar = 3,
}

/// Tap of the loop on the adder's second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tap {
    /// The partial sum that is due.
    Due = 0,
    /// The one before it.
    Back1 = 1,
    /// Two before it.
    Back2 = 2,
    /// Four before it.
    Back4 = 3,
}

/// Sizes of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSpec {
    /// Rows of the scalar file.
    pub scalar_rows: u32,
    /// Bits of a step number and of a target.
    pub index_bits: u32,
    /// Cycles from `step`, `target` and `masked` to `x`: the latency of the rotator.
    pub lead: u32,
}

/// Builds the lane. Every control enters one cycle before its stage and is registered here, so
/// that its copy in the lane drives the lane alone.
pub fn vector_lane(spec: &LaneSpec) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_vector_lane");
    m.doc(&format!(
        "One lane of the vector unit: (x - s0) * f1 -> table -> * f2 -> + addend, sum8 and maximum.\n\
         One element per cycle. x to z: {AT_Z} cycles; A at {AT_A}, M1 at {AT_M1}, T at {AT_T}, \
         M2 at {AT_M2}, sum at {AT_SUM}.\n\
         The number behind a port group is the cycle, counted from x, of the group's ports."
    ));
    let early = |name: &str, width: u32| m.reg_next(&format!("{name}_q"), m.input(name, width)).q();
    let row_bits = addr_width(spec.scalar_rows);

    m.port_group("Step number, target and causal mask (before the rotator)");
    let step = m.input("step", spec.index_bits);
    let target = m.input("target", spec.index_bits);
    let masked = m.input("masked", 1);
    m.port_group("Elements (0)");
    let x = m.input("x", 32);
    let y = m.input("y", 32);
    m.port_group(&format!(
        "Scalar file: write port; read port, for s0 (-2), s1 ({}) and s2 ({})",
        AT_A - 2,
        AT_T - 2
    ));
    let scalar_we = m.input("scalar_we", 1);
    let scalar_row = m.input("scalar_row", row_bits);
    let scalar_data = m.input("scalar_data", 32);
    let row = early("row", row_bits);
    let load_s0 = early("load_s0", 1);
    let load_s1 = early("load_s1", 1);
    let load_s2 = early("load_s2", 1);
    let subtract = early("subtract", 1);
    m.port_group(&format!(
        "First multiplier ({}), common factor ({AT_A})",
        AT_A - 1
    ));
    let mul1_select = early("mul1_select", 2);
    let capture_target = early("capture_target", 1);
    let common1 = m.input("common1", 32);
    m.port_group(&format!(
        "Table stage and second multiplier ({}), common factor ({AT_T})",
        AT_T - 1
    ));
    let mul2_select = early("mul2_select", 2);
    let use_table = early("use_table", 1);
    let table_y = m.input("table_y", 32);
    let common2 = m.input("common2", 32);
    m.port_group(&format!("Maximum ({AT_T})"));
    let max_step = early("max_step", 1);
    let max_first = early("max_first", 1);
    m.port_group(&format!("Adder ({}), common addend ({AT_M2})", AT_M2 - 1));
    let add_y = early("add_y", 1);
    let add_at_target = early("add_at_target", 1);
    let loop_on = early("loop_on", 1);
    let loop_zero = early("loop_zero", 1);
    let pad = early("pad", 1);
    let fold = early("fold", 1);
    let tap = early("tap", 2);
    let common3 = m.input("common3", 32);
    m.port_group(&format!("Result ({})", AT_SUM - 1));
    let keep = early("keep", 1);
    let z_is_m2 = early("z_is_m2", 1);
    m.port_group("Reduction: take the result of the sum, or the maximum (one cycle before)");
    let take = early("take", 1);
    let take_max = early("take_max", 1);

    m.section("Target and mask travel with the element");
    let at_target = step.eq(target);
    let target_a = m.delay("at_target_a", at_target, spec.lead + AT_A);
    let target_t = m.delay("at_target_t", target_a, AT_T + 1 - AT_A);
    let target_m2 = m.delay("at_target_m2", target_t, AT_M2 - AT_T - 1);
    let masked_t = m.delay("masked_t", masked, spec.lead + AT_T);
    let masked_t1 = m.pipe("masked_max", masked_t, 1);

    m.section("Scalar file");
    let scalars = m.mem(
        "scalars",
        MemSpec {
            depth: spec.scalar_rows,
            width: 32,
            style: MemStyle::Distributed,
            ..MemSpec::default()
        },
    );
    scalars.write(scalar_row, scalar_data, scalar_we);
    let word = scalars.read_comb(row);
    let held =
        |name: &str, value: Sig<'_>, load: Sig<'_>| m.reg_next(name, value).with_enable(load).q();
    let negated = m.cat(&[word.bit(31).not(), word.trunc(31)]);
    let minus_s0 = m.mux(subtract, negated, m.lit(MINUS_ZERO, 32));
    let minus_s0 = held("minus_s0_q", minus_s0, load_s0);
    let s1 = held("s1_q", word, load_s1);
    let s2 = held("s2_q", word, load_s2);

    m.section("A = x - s0");
    let a = fp::add(&m, "u_sub", x, minus_s0);
    let a_target = m
        .reg_next("a_target_q", a)
        .with_enable(capture_target.and(target_a))
        .q();

    m.section("M1 = A * factor");
    let y_a = register_delay(&m, "y_a", y, AT_A);
    let factor1 = m.select(mul1_select, &[common1, y_a, a, s1]);
    let m1 = fp::mul(
        &m,
        "u_mul1",
        m.pipe("mul1_a", a, 1),
        m.pipe("mul1_b", factor1, 1),
    );

    m.section("T = table(M1) or M1, +0 where masked; M2 = T * factor");
    let m1_late = register_delay(&m, "m1_late", m1, table::LATENCY);
    let t = m
        .mux(use_table, table_y, m1_late)
        .and(masked_t.not().repeat(32));
    let y_t = register_delay(&m, "y_t", y_a, AT_T - AT_A);
    let factor2 = m.select(mul2_select, &[common2, y_t, m1_late, s2]);
    let m2 = fp::mul(
        &m,
        "u_mul2",
        m.pipe("mul2_a", t, 1),
        m.pipe("mul2_b", factor2, 1),
    );

    m.section("Maximum of x on ordered keys, both zeros alike; the first of equals stays");
    let key = m.pipe("key", order_key(&m, m1_late), 1);
    let best = m.reg("best_q", 32);
    let larger = best.q().ult(key).and(masked_t1.not());
    let replace = max_step.and(max_first.or(larger)).named("replace");
    best.set_next(key).with_enable(replace);
    let hit = m.reg_next("hit_q", target_t).with_enable(replace).q();

    m.section("Adder: M2 + addend, or the loop of partial sums");
    let y_m2 = register_delay(&m, "y_m2", y_t, AT_M2 - AT_T);
    let gate = add_at_target.not().or(target_m2);
    let addend = m.mux(add_y, y_m2, common3.and(gate.repeat(32)));
    // The loop ends where the sum is declared below.
    let sum_inst = m.instance("u_add", &fp::fp32_add()?);
    let sum = sum_inst.output("y");
    let due = m.delay("due", sum, PARTIALS - 1 - fp::ADD_LATENCY);
    let back1 = m.pipe("back1", due, 1);
    let back2 = m.pipe("back2", back1, 1);
    let back4 = m.pipe("back4", m.pipe("back3", back2, 1), 1);
    let partial = m
        .select(tap, &[due, back1, back2, back4])
        .and(loop_zero.not().repeat(32));
    let element = m.mux(fold, due, m2.and(pad.not().repeat(32)));
    let add_a = m.pipe("add_a", element, 1);
    let add_b = m.pipe("add_b", m.mux(loop_on, partial, addend), 1);
    sum_inst.input("a", add_a).input("b", add_b);

    m.section("z, zero in lanes without a token");
    let m2_late = register_delay(&m, "m2_late", add_a, fp::ADD_LATENCY);
    let z = m.mux(z_is_m2, m2_late, sum).and(keep.repeat(32));
    m.output("z", m.pipe("z", z, 1));
    m.output("table_x", m1);

    m.section("Result of the reduction, held while it waits for the scalar unit");
    let result = m.mux(take_max, from_key(&m, best.q()), sum);
    m.output(
        "result",
        m.reg_next("result_q", result).with_enable(take).q(),
    );
    m.output(
        "result_hit",
        m.reg_next("result_hit_q", hit).with_enable(take).q(),
    );
    m.output("result_target", a_target);
    m.finish()
}

/// FP32 bits to an unsigned number of the same order; -0 counts as +0.
fn order_key<'m>(m: &'m Module, x: Sig<'m>) -> Sig<'m> {
    let zero = x.slice(30, 23).is_zero();
    let negative = x.bit(31).and(zero.not());
    let magnitude = x.trunc(31).and(zero.not().repeat(31));
    m.cat(&[negative.not(), magnitude.xor(negative.repeat(31))])
}

/// Inverse of [`order_key`].
fn from_key<'m>(m: &'m Module, key: Sig<'m>) -> Sig<'m> {
    let negative = key.bit(31).not();
    m.cat(&[negative, key.trunc(31).xor(negative.repeat(31))])
}
