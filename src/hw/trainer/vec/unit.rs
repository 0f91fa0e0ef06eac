//! `nf_vector_unit`: lanes, tables, rotators, scalar unit and control put together.

use std::sync::Arc;

use super::fold::{Slot, fold_control};
use super::issue::{fit, issue};
use super::lane::{self, AT_A, AT_M1, AT_M2, AT_SUM, AT_T, AT_Z, Factor, LaneSpec};
use super::retire::RetireQueue;
use super::scalar::{ScalarSpec, scalar_unit, select_lane, select_latency};
use super::table;
use crate::config::model::Gelu;
use crate::dsl::{DslError, MemSpec, MemStyle, Module, ModuleDef, Sig, addr_width};
use crate::hw::trainer::READ_LATENCY;
use crate::hw::trainer::mat::{Turn, exponent_max, max_latency, rotate_latency, rotator};
use crate::trainer::encode::{Layout, bits_for};
use crate::trainer::isa::{Add, Mul1, Mul2, Shape};

/// Sizes and constants of the vector unit.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorSpec {
    /// B: lanes and banks, at least 2.
    pub lanes: usize,
    pub gelu: Gelu,
    /// Activation groups and the words per bank of the deepest one.
    pub groups: usize,
    pub group_depth: usize,
    pub scalar_rows: usize,
    /// Exponent registers written by this engine.
    pub exps: usize,
    /// LayerNorm parameters.
    pub layernorm_words: usize,
    /// FP32 bits of the constant table.
    pub constants: Vec<u32>,
    /// Tokens of a sample, and size of the vocabulary.
    pub seq_len: usize,
    pub vocab: usize,
    /// LayerNorm's epsilon and 1/T.
    pub eps: f32,
    pub inv_t: f32,
}

impl VectorSpec {
    /// The unit of a machine of the given shape for one model.
    pub fn new(
        shape: &Shape,
        gelu: Gelu,
        seq_len: usize,
        vocab: usize,
        eps: f32,
        inv_t: f32,
    ) -> Self {
        VectorSpec {
            lanes: shape.b,
            gelu,
            groups: shape.group_depth.len(),
            group_depth: shape.group_depth.iter().copied().max().unwrap_or(1),
            scalar_rows: shape.scalar_rows,
            exps: shape.vec_exps,
            layernorm_words: shape.layernorm_words,
            constants: shape.constants.clone(),
            seq_len,
            vocab,
            eps,
            inv_t,
        }
    }

    /// Bits of a group number, of an address within a bank, of a scalar row, and so on.
    pub fn group_bits(&self) -> u32 {
        addr_width(self.groups as u32)
    }
    pub fn addr_bits(&self) -> u32 {
        addr_width(self.group_depth as u32)
    }
    pub fn row_bits(&self) -> u32 {
        addr_width(self.scalar_rows as u32)
    }
    pub fn const_bits(&self) -> u32 {
        addr_width(self.constants.len() as u32)
    }
    pub fn parameter_bits(&self) -> u32 {
        addr_width(self.layernorm_words as u32)
    }
    pub fn exp_bits(&self) -> u32 {
        addr_width(self.exps.max(1) as u32)
    }
    pub fn token_bits(&self) -> u32 {
        addr_width(self.vocab as u32)
    }
    pub fn tile_bits(&self) -> u32 {
        addr_width(self.seq_len.div_ceil(self.lanes) as u32)
    }
    pub fn position_bits(&self) -> u32 {
        addr_width(self.seq_len as u32)
    }
    /// Bits of a step number, a target or a token position, whichever is widest.
    pub fn index_bits(&self, layout: &Layout) -> u32 {
        let n = layout.field("n").width;
        n.max(self.token_bits()).max(self.position_bits() + 1)
    }
}

/// When everything happens, counted from the cycle in which a step's reads are issued. The
/// first step is issued one cycle after `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorTiming {
    /// x and y at the lanes.
    pub lanes: u32,
    /// z leaves the lanes.
    pub z: u32,
    /// Write on the ports.
    pub write: u32,
    /// Exponent update on the ports.
    pub exponent: u32,
    /// Retire pulse of an instruction without post operation, from its last step.
    pub plain_retire: u32,
    /// The last element's slot at the sequencer of the reductions.
    pub slot: u32,
    /// `go` of the scalar unit, from the last slot of a reduction.
    pub go: u32,
}

impl VectorTiming {
    /// Timing of a unit of `b` lanes.
    pub fn new(b: usize) -> Self {
        let turn = rotate_latency(b);
        let lanes = READ_LATENCY + turn;
        let z = lanes + AT_Z;
        let write = z + turn;
        let exponent = z + max_latency(b) + 1;
        let slot = lanes + AT_M2 - 2;
        VectorTiming {
            lanes,
            z,
            write,
            exponent,
            plain_retire: write.max(exponent) + 1,
            slot,
            go: slot + lane::FOLD_RESULT + 4,
        }
    }
}

/// Builds the vector unit for programs encoded with `layout`.
pub fn vector_unit(spec: &VectorSpec, layout: &Layout) -> Result<Arc<ModuleDef>, DslError> {
    let b = spec.lanes;
    let time = VectorTiming::new(b);
    let m = Module::new("nf_vector_unit");
    m.doc(&format!(
        "Vector unit of {b} lanes: LayerNorm, softmax, GeLU, cross-entropy and their derivatives.\n\
         One token tile per instruction, one step per cycle. A step's reads are issued in cycle 0,\n\
         x is at the lanes in cycle {}, z is written in cycle {}.",
        time.lanes, time.write
    ));
    m.port_group("Instruction");
    let start = m.input("start", 1);
    let sample_start = m.input("sample_start", 1);
    let queue = RetireQueue::new(&m);
    let now = issue(&m, spec, layout, start, queue.room());
    let index_bits = spec.index_bits(layout);

    m.port_group("Activation reads");
    m.output("x_en", now.active);
    m.output("x_group", now.x.group);
    m.output("x_addr", now.x.addr);
    let y_en = now.active.and(now.y_en);
    m.output("y_en", y_en);
    m.output("y_group", now.y.group);
    m.output("y_addr", now.y.addr);
    let banks = |name: &str, width| -> Vec<_> {
        (0..b)
            .map(|k| m.input(&format!("{name}_{k}"), width))
            .collect()
    };
    let x_data = banks("x_data", 32);
    let y_data = banks("y_data", 32);
    m.port_group("LayerNorm parameters and targets");
    m.output("gamma_addr", now.gamma_addr);
    m.output("beta_addr", now.beta_addr);
    let gamma = m.input("gamma_data", 32);
    let beta = m.input("beta_data", 32);
    m.output("target_tile", now.tile);
    let targets = banks("target", spec.token_bits());
    m.port_group("Logit capture");
    let position = m.input("logit_position", spec.position_bits());
    let logit_raddr = m.input("logit_raddr", spec.token_bits());

    let at = |name: &str, v: Sig<'_>, cycle: u32| m.delay(&format!("{name}_to{cycle}"), v, cycle);

    m.section("Banks to lanes");
    let to_lanes = rotator(Turn::ToLanes, 32, b, None)?;
    let turn_in = |name: &str, rot: Sig<'_>, data: &[Sig<'_>]| -> Vec<Sig<'_>> {
        let i = m.instance(&format!("u_rotate_{name}"), &to_lanes);
        i.input("rot", at(&format!("rot_{name}"), rot, READ_LATENCY - 1));
        for (k, d) in data.iter().enumerate() {
            i.input(&format!("x_{k}"), *d);
        }
        (0..b).map(|l| i.output(&format!("y_{l}"))).collect()
    };
    let x = turn_in("x", now.x.rot, &x_data);
    let y = turn_in("y", now.y.rot, &y_data);

    m.section("Causal mask: lane l is masked from step t0 + l + 1 on");
    let past_at = READ_LATENCY - 1;
    let t0 = m.pipe(
        "tile_start",
        fit(now.tile.mul(m.lit(b as u128, bits_for(b))), index_bits),
        1,
    );
    let t0 = m.delay("tile_start_late", t0, past_at - 1);
    let step3 = at("step", now.step, past_at);
    let first3 = at("first_mask", now.first, past_at);
    let mask3 = at("mask", now.mask, past_at);
    let past = t0.ult(step3);
    let chain = m.reg("past_q", b as u32);
    // Bit l in the cycle of `masked`: j > t0 + l.
    let shifted = m.cat(&[chain.q().trunc(b as u32 - 1), past]);
    chain.set_next(m.mux(first3, m.lit(0, b as u32), shifted));
    let masked = chain.q().and(m.pipe("mask_on", mask3, 1).repeat(b as u32));
    let step4 = m.pipe("step_lane", step3, 1);

    m.section("Common factors and addends");
    let constants: Vec<_> = spec
        .constants
        .iter()
        .map(|c| m.lit(u128::from(*c), 32))
        .collect();
    let one = m.lit(lane::ONE, 32);
    let common =
        |name: &str, kind: Sig<'_>, constant: u128, by_gamma: u128, index: Sig<'_>, cycle| {
            let bits = kind.width();
            let is_const = at(
                &format!("{name}_const"),
                kind.eq(m.lit(constant, bits)),
                cycle,
            );
            let is_gamma = at(
                &format!("{name}_gamma"),
                kind.eq(m.lit(by_gamma, bits)),
                cycle,
            );
            let index = at(&format!("{name}_index"), index, cycle);
            let gamma = m.delay(&format!("{name}_gamma_data"), gamma, cycle - READ_LATENCY);
            let value = m.mux(
                is_const,
                m.select(index, &constants),
                m.mux(is_gamma, gamma, one),
            );
            m.pipe(name, value, 1)
        };
    let x_at = time.lanes;
    let common1 = common(
        "common1",
        now.mul1,
        Mul1::Const as u128,
        Mul1::Gamma as u128,
        now.c1,
        x_at + AT_A - 1,
    );
    let common2 = common(
        "common2",
        now.mul2,
        Mul2::Const as u128,
        Mul2::Gamma as u128,
        now.c2,
        x_at + AT_T - 1,
    );
    let add_at = x_at + AT_M2 - 1;
    let is_add = |a: Add| now.add.eq(m.lit(a as u128, 2));
    let minus_inv_t = m.lit(u128::from((-spec.inv_t).to_bits()), 32);
    let plain = m.mux(
        at("add_ce", is_add(Add::CrossEntropy), add_at),
        minus_inv_t,
        m.lit(lane::MINUS_ZERO, 32),
    );
    let common3 = m.mux(
        at("add_beta", is_add(Add::Beta), add_at),
        m.delay("beta_late", beta, add_at - READ_LATENCY),
        plain,
    );
    let common3 = m.pipe("common3", common3, 1);

    m.section("Controls of the lanes");
    let factor1 = m.select(
        now.mul1,
        &[
            Factor::Common,
            Factor::Scalar,
            Factor::Own,
            Factor::Y,
            Factor::Common,
        ]
        .map(|f| m.lit(f as u128, 2)),
    );
    let factor2 = m.select(
        now.mul2,
        &[
            Factor::Common,
            Factor::Y,
            Factor::Own,
            Factor::Scalar,
            Factor::Common,
        ]
        .map(|f| m.lit(f as u128, 2)),
    );
    let is_max = now.reduces.and(now.sums.not());
    let slot = Slot {
        active: at("slot_active", now.active, time.slot),
        first: at("slot_first", now.first, time.slot),
        last: at("slot_last", now.last, time.slot),
        reduces: at("slot_reduces", now.reduces, time.slot),
        sums: at("slot_sums", now.sums, time.slot),
    };
    let fold = fold_control(&m, &slot);
    let held = |name: &str, v: Sig<'_>| {
        let late = at(name, v, time.slot);
        m.reg_next(&format!("{name}_q_end"), late)
            .with_enable(fold.latch)
            .q()
    };
    let take_max = held("take_max", is_max);
    // One read port: s0, s1 and s2 of an instruction each with its first element.
    let load_at = [x_at - 2, x_at + AT_A - 2, x_at + AT_T - 2];
    let loads = load_at.map(|cycle| at("load", now.first, cycle));
    let rows = [(now.s0, 0), (now.s1, 1), (now.s2, 2)]
        .map(|(row, k)| at(&format!("row{k}"), row, load_at[k]));
    let row = m.mux(loads[0], rows[0], m.mux(loads[1], rows[1], rows[2]));
    let mut controls = vec![
        ("row", row),
        ("load_s0", loads[0]),
        ("load_s1", loads[1]),
        ("load_s2", loads[2]),
        ("subtract", at("subtract", now.sub_s0, x_at - 2)),
        ("mul1_select", at("mul1_select", factor1, x_at + AT_A - 1)),
        (
            "capture_target",
            at(
                "capture_target",
                now.active.and(now.ce_exp),
                x_at + AT_A - 1,
            ),
        ),
        ("common1", common1),
        ("mul2_select", at("mul2_select", factor2, x_at + AT_T - 1)),
        (
            "use_table",
            at("use_table", now.table.or_reduce(), x_at + AT_T - 1),
        ),
        ("common2", common2),
        (
            "max_step",
            at("max_step", now.active.and(is_max), x_at + AT_T),
        ),
        ("max_first", at("max_first", now.first, x_at + AT_T)),
        ("add_y", at("add_y", is_add(Add::Y), add_at)),
        (
            "add_at_target",
            at("add_at_target", is_add(Add::CrossEntropy), add_at),
        ),
        ("common3", common3),
        ("z_is_m2", at("z_is_m2", now.sums, x_at + AT_SUM - 1)),
        ("take_max", take_max),
        ("step", step4),
    ];
    controls.extend([
        ("loop_on", fold.loop_on),
        ("loop_zero", fold.loop_zero),
        ("pad", fold.pad),
        ("fold", fold.fold),
        ("tap", fold.tap),
        ("take", fold.take),
    ]);
    let keep_nc = at("keep_nc", now.nc, x_at + AT_SUM - 2);

    m.section("Lanes");
    let lane_def = lane::vector_lane(&LaneSpec {
        scalar_rows: spec.scalar_rows as u32,
        index_bits,
        lead: rotate_latency(b),
    })?;
    let lanes: Vec<_> = (0..b)
        .map(|l| {
            let i = m.instance(&format!("u_lane{l}"), &lane_def);
            for (port, value) in &controls {
                i.input(port, *value);
            }
            i.input("target", targets[l].zext(index_bits));
            i.input("masked", masked.bit(l as u32));
            i.input("x", x[l]);
            i.input("y", y[l]);
            let keep = m.lit(l as u128, keep_nc.width()).ult(keep_nc);
            i.input("keep", m.pipe(&format!("keep_{l}"), keep, 1));
            i
        })
        .collect();

    m.section("Table units, one for two lanes");
    let op = at("table_op", now.table, x_at + AT_M1);
    for first in (0..b).step_by(2) {
        let pair = &lanes[first..(first + 2).min(b)];
        let def = table::table_unit(spec.gelu, pair.len())?;
        let unit = m.instance(&format!("u_table{}", first / 2), &def);
        unit.input("op", op);
        for (k, lane) in pair.iter().enumerate() {
            unit.input(&format!("x_{k}"), lane.output("table_x"));
            lane.input("table_y", unit.output(&format!("y_{k}")));
        }
    }

    m.section("Lanes to banks");
    m.port_group("Activation writes");
    let z: Vec<_> = lanes.iter().map(|l| l.output("z")).collect();
    let to_banks = m.instance("u_rotate_z", &rotator(Turn::ToBanks, 32, b, None)?);
    to_banks.input("rot", at("rot_z", now.z.rot, time.z - 1));
    for (l, z) in z.iter().enumerate() {
        to_banks.input(&format!("x_{l}"), *z);
    }
    let writes = now.active.and(now.z_en);
    m.output("z_en", at("z_en", writes, time.write));
    m.output("z_group", at("z_group", now.z.group, time.write));
    m.output("z_addr", at("z_addr", now.z.addr, time.write));
    for k in 0..b {
        m.output(&format!("z_data_{k}"), to_banks.output(&format!("y_{k}")));
    }

    m.section("Largest exponent of the pass");
    let tree = m.instance("u_exponent_max", &exponent_max(b)?);
    for (l, z) in z.iter().enumerate() {
        tree.input(&format!("e_{l}"), z.slice(30, 23));
    }
    let row_max = tree.output("row_max");
    let tree_at = time.exponent - 1;
    let step_writes = at("tree_writes", writes, tree_at);
    let emax = m.reg("emax_q", 8);
    let fresh = at("tree_first", now.first, tree_at);
    let grows = fresh.or(emax.q().ult(row_max));
    emax.set_next(row_max).with_enable(step_writes.and(grows));
    let updates = writes.and(now.last).and(now.exp_en);
    m.port_group("Exponent update");
    m.output("exp_we", at("exp_we", updates, time.exponent));
    m.output("exp_id", at("exp_id", now.exp_id, time.exponent));
    m.output("exp_value", emax.q());
    m.output("exp_first", at("exp_first", now.exp_first, time.exponent));
    let bad_z = m
        .reg_next("bad_z_q", step_writes.and(row_max.and_reduce()))
        .with_reset(0)
        .q();

    m.section("Scalar unit");
    let c3 = held("c3", now.c3);
    let scalar = m.instance(
        "u_scalar",
        &scalar_unit(&ScalarSpec {
            lanes: b,
            scalar_rows: spec.scalar_rows as u32,
            eps: spec.eps,
        })?,
    );
    scalar
        .input("go", fold.go)
        .input("post", held("post", now.post))
        .input("row", held("post_row", now.post_row))
        .input("factor", m.pipe("post_factor", m.select(c3, &constants), 1))
        .input("nc", held("post_nc", now.nc))
        .input("count_hits", held("count_hits", now.ce_max))
        .input("sample_start", sample_start);
    for (l, lane) in lanes.iter().enumerate() {
        for port in ["result", "result_target", "result_hit"] {
            scalar.input(&format!("{port}_{l}"), lane.output(port));
        }
        lane.input("scalar_we", scalar.output(&format!("scalar_we_{l}")))
            .input("scalar_row", scalar.output("scalar_row"))
            .input("scalar_data", scalar.output("scalar_data"));
    }
    m.port_group("Loss and correct predictions of the sample");
    m.output("loss_q24", scalar.output("loss_q24"));
    m.output("correct", scalar.output("correct"));

    m.section("Logit buffer");
    let wide = index_bits.max(spec.position_bits()) + 1;
    let tile_now = m.pipe(
        "capture_start",
        fit(now.tile.mul(m.lit(b as u128, bits_for(b))), wide),
        1,
    );
    let offset = m.pipe("capture_offset", position.zext(wide).sub(tile_now), 1);
    let inside = offset.ult(m.lit(b as u128, wide));
    let capture = at("capture", now.active.and(now.ce_max), 2).and(inside);
    let capture = m.delay("capture_write", capture, x_at + select_latency(b) - 2);
    let which = m.delay("capture_lane", fit(offset, bits_for(b - 1)), x_at - 2);
    let logit = select_lane(&m, "logit", which, &x);
    let logits = m.mem(
        "logits",
        MemSpec {
            depth: spec.vocab as u32,
            width: 32,
            style: MemStyle::Block,
            output_reg: true,
            ..MemSpec::default()
        },
    );
    let waddr = at(
        "capture_step",
        fit(now.step, spec.token_bits()),
        x_at + select_latency(b),
    );
    logits.write(waddr, logit, capture);
    m.port_group("Logits of the captured position");
    m.output("logit_rdata", logits.read(logit_raddr, m.lit(1, 1)));

    m.port_group("Status");
    let plain = now
        .active
        .and(now.last)
        .and(now.reduces.and(now.post.or_reduce()).not());
    let plain = at("plain_done", plain, time.plain_retire - 1);
    let retire = queue.connect(
        now.start,
        now.start_posts,
        plain,
        scalar.output("done"),
        sample_start,
    );
    m.output("retire", retire);
    let error = bad_z.or(scalar.output("error"));
    m.output("error", m.reg_next("error_q", error).with_reset(0).q());
    m.finish()
}
