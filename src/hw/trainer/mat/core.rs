//! The matrix engine: issue, operands and array.

use super::drain::Drain;
use super::edge::Edge;
use super::fit;
use super::lane::Scale;
use super::line::Line;
use super::timing::MatTiming;
use crate::config::model::WeightFormat;
use crate::dsl::*;
use crate::trainer::encode::{Layout, bits_for};
use crate::trainer::isa::{Shape, segment_rows};
use std::sync::Arc;

/// What fixes the engine's netlist.
#[derive(Clone, Copy, Debug)]
pub struct MatConfig<'a> {
    pub shape: &'a Shape,
    /// Word layout of the mat program.
    pub layout: &'a Layout,
    pub format: WeightFormat,
    /// T, tokens per sample.
    pub tokens: usize,
    /// V, token values.
    pub vocab: usize,
    /// How tiles are scaled.
    pub scale: Scale,
}

/// Widths of the engine's ports, in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatPorts {
    /// `row_addr_b`, `col_addr_b`.
    pub act_addr: u32,
    /// `row_group`, `col_group`, `dst_group`.
    pub group: u32,
    /// `add_group`; the value NG is the position ROM.
    pub add_group: u32,
    /// `add_addr`.
    pub add_addr: u32,
    /// `dst_addr`: activation address, or gradient tile address.
    pub dst_addr: u32,
    /// `wb_addr_b`.
    pub weight_addr: u32,
    /// `wb_wdata_b`, `wb_rdata_b`.
    pub weight: u32,
    /// `tok_lane_b`, `tok_h`.
    pub token: u32,
    /// `tok_v_addr`, a token tile.
    pub token_tile: u32,
    /// `tok_h_addr`, a token.
    pub token_index: u32,
    /// `row_exp_id`, `col_exp_id`, numbered by `encode::exp_number`.
    pub exp_read: u32,
    /// `exp_id`, a mat register.
    pub exp_write: u32,
}

impl MatPorts {
    pub fn new(cfg: &MatConfig<'_>) -> Self {
        let shape = cfg.shape;
        let groups = shape.group_depth.len();
        let act = shape.group_depth.iter().copied().max().unwrap_or(1);
        let bits = |words: usize| addr_width(words as u32);
        let registers = 1 + shape.mat_exps + shape.vec_exps + shape.weight_exps;
        MatPorts {
            act_addr: bits(act),
            group: bits_for(groups.saturating_sub(1)),
            add_group: bits_for(groups),
            add_addr: bits(act.max(shape.position_depth)),
            dst_addr: bits(act.max(shape.gradient_tiles * shape.b)),
            weight_addr: bits(shape.weight_depth),
            weight: cfg.format.bits(),
            token: bits_for(cfg.vocab - 1),
            token_tile: bits_for(cfg.tokens.div_ceil(shape.b) - 1),
            token_index: bits_for(cfg.tokens - 1),
            exp_read: bits_for(registers - 1),
            exp_write: bits_for(shape.mat_exps.saturating_sub(1)),
        }
    }
}

/// Lanes that share one copy of an exponent, a scale or a token.
pub(super) const LANE_LOADS: usize = 8;

/// Fields of the instruction word, at its start and while it is issued (or, for the drain, while its rows leave).
#[derive(Clone, Copy)]
pub(super) struct Fields<'m, 'a> {
    layout: &'a Layout,
    port: Sig<'m>,
    held: Sig<'m>,
}

impl<'m> Fields<'m, '_> {
    fn of(&self, word: Sig<'m>, name: &str) -> Sig<'m> {
        let f = self.layout.field(name);
        word.slice(f.low + f.width - 1, f.low)
    }

    /// Valid in the cycle of `start`.
    pub fn incoming(&self, name: &str) -> Sig<'m> {
        self.of(self.port, name)
    }

    /// Valid in the instruction's slots (the drain: one cycle after the slots of its rows).
    pub fn held(&self, name: &str) -> Sig<'m> {
        self.of(self.held, name)
    }

    /// Whether the field holds `value`.
    pub fn is(&self, name: &str, value: u128) -> Sig<'m> {
        let field = self.held(name);
        match value >> field.width() {
            0 => field.eq_const(value),
            _ => field.module().lit(0, 1),
        }
    }
}

/// What a slot does. The drain's signals come one cycle later, when its own copy of the instruction holds.
pub(super) struct Slot<'m> {
    pub start: Sig<'m>,
    /// An operand step; `first_step` is up in the tile's first.
    pub step: Sig<'m>,
    pub first_step: Sig<'m>,
    /// The sums of a segment move up by one row.
    pub shift: Sig<'m>,
    /// The tile's last operand step: its first row of sums leaves.
    pub last_step: Sig<'m>,
    /// One cycle after the slot: a row of sums leaves with it; its segment; the tile's first and last row.
    pub row: Sig<'m>,
    pub segment: Sig<'m>,
    pub first_row: Sig<'m>,
    pub last_row: Sig<'m>,
}

/// `nf_attention_core`: the matrix engine with the interface of `docs/machine.md` section 7.
///
/// `row_exp_id` and `col_exp_id` change in the cycle after `start`; `row_emax` and `col_emax`
/// answer in the same cycle and are looked at in every slot.
pub fn attention_core(cfg: &MatConfig<'_>) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_attention_core");
    let b = cfg.shape.b;
    let t = MatTiming::new(b);
    let w = MatPorts::new(cfg);
    m.doc(&format!(
        "Matrix engine: {b} x {b} cells on {b} skewed banks. An instruction takes k + tail slots from\n\
         the cycle after start. Segments of {} rows work one after the other by as many cycles, so\n\
         rows of sums leave one a cycle from the last operand step on, {} cycles behind the slot,\n\
         while the next tile runs. They are written {} cycles behind it; retire comes {} cycles\n\
         after the last row's slot.",
        segment_rows(b),
        t.sum, t.write, t.retire
    ));
    m.port_group("instructions");
    let start = m.input("start", 1);
    let word = m.input("instr", cfg.layout.width);
    let fields = Fields {
        layout: cfg.layout,
        port: word,
        held: m.reg_next("instr_q", word).with_enable(start).q(),
    };
    let slot = issue(&m, &fields, start, b);
    let draining = Fields {
        held: m
            .reg_next("instr_drain_q", fields.held)
            .with_enable(slot.last_step)
            .q(),
        ..fields
    };
    m.port_group("exponents of the operands");
    m.output("row_exp_id", fit(fields.held("row_exp"), w.exp_read));
    m.output("col_exp_id", fit(fields.held("col_exp"), w.exp_read));
    let emax = ["row_emax", "col_emax"].map(|name| {
        let port = m.input(name, 8);
        Line::value(&m, name, port, 0)
    });

    let edge = Edge {
        m: &m,
        cfg,
        t: &t,
        w: &w,
        fields: &fields,
        slot: &slot,
    };
    let cols = edge.columns(&emax[1])?;
    let sums = edge.rows(&emax[0], &cols)?;

    let step = Line::flag(&m, "operand_step", slot.step, 0).at(1);
    let invalid = emax.each_ref().map(|e| e.at(1).and_reduce());
    let operand_error = step & (invalid[0] | invalid[1]);
    let drain = Drain {
        m: &m,
        shape: cfg.shape,
        kind: cfg.scale,
        t: &t,
        w: &w,
        fields: &draining,
        slot: &slot,
    };
    drain.build(&emax, &sums, operand_error)?;
    m.finish()
}

/// The counters of slots and of leaving rows.
fn issue<'m>(m: &'m Module, fields: &Fields<'m, '_>, start: Sig<'m>, b: usize) -> Slot<'m> {
    m.section("issue: k operand steps, then the slots of the tail");
    let (k, tail) = (fields.incoming("k"), fields.incoming("tail"));
    let width = k.width().max(tail.width()) + 1;
    let slots = k.zext(width) + tail.zext(width);
    let left = m.reg("slots_left_q", width).with_reset(0);
    let active = left.q().or_reduce().named("active");
    let last = left.q().eq_const(1).named("last_slot");
    left.set_next(m.mux(start, slots, left.q().sub_const(1)))
        .with_enable(start | active);
    let behind = fields.held("tail").zext(width);
    let step = (active & behind.ult(left.q())).named("operand_slot");
    let last_step = (active & left.q().eq(behind.add_const(1))).named("last_operand_slot");
    m.output("ready", !active | last);

    m.section("rows: from the last operand step on, segment by segment");
    let nr = fields.held("nr");
    let rows_left = m.reg("rows_left_q", nr.width()).with_reset(0);
    let row = rows_left.q().or_reduce().named("row_leaves");
    rows_left
        .set_next(m.mux(last_step, nr, rows_left.q().sub_const(1)))
        .with_enable(last_step | row);
    let rows = segment_rows(b);
    let counter = |name: &str, last: usize, up: Sig<'m>| {
        let width = bits_for(last);
        let r = m.reg(name, width);
        let next = r.q().add(up.zext(width));
        let wraps = up & r.q().eq_const(last as u128);
        let next = m.mux(last_step | wraps, m.lit(0, width), next);
        r.set_next(next).with_enable(last_step | row);
        (r.q(), wraps)
    };
    let one = m.lit(1, 1);
    let turn = match rows {
        1 => one,
        _ => counter("row_of_segment_q", rows - 1, one).1,
    };
    let (segment, _) = counter("segment_q", b.div_ceil(rows) - 1, turn);
    Slot {
        start,
        step,
        first_step: m.reg_next("first_step_q", start).with_reset(0).q(),
        shift: active & !step,
        last_step,
        row,
        segment,
        first_row: m.pipe("first_row", last_step, 1),
        last_row: rows_left.q().eq_const(1),
    }
}
