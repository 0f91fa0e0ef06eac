//! Instruction queue and address generator of the Adam unit (`docs/machine.md` section 5).

use super::config::AdamConfig;
use super::lane::HASH_LEAD;
use crate::dsl::{DslError, Module, ModuleDef, Sig, addr_width};
use crate::trainer::cycles::SLOTS;
use crate::trainer::encode::bits_for;
use std::sync::Arc;

/// `(value + step) mod n` of a value below n.
fn around(value: Sig<'_>, step: u128, n: usize) -> Sig<'_> {
    let m = value.module();
    let wide = value.width() + 1;
    let sum = value.zext(wide).add_const(step);
    let over = m.lit(n as u128, wide).ule(sum);
    m.mux(over, sum.sub_const(n as u128), sum)
        .trunc(value.width())
}

/// Module `nf_adam_issue`: one step per cycle while a tile runs.
///
/// `start` with `instr` only while `ready`; one instruction waits while another runs, so tiles
/// follow each other without a gap. A matrix tile takes `nr * Q` steps and starts in phase 0 of
/// a free-running count of Q: the phase tells which bank of each lane's group is read.
///
/// Outputs of a step: `issue`, `layernorm`, `q` (bank in the group), `lane` (LayerNorm: whose
/// group), `addr` (weight address or parameter index), `moment_addr`, `grad_addr`,
/// `valid_a`; `tile_first`, `tile_last`, `exp_first`, `exp_id`. With `hashes`, `hash_x0_a` and
/// `hash_x1` are those of the step `OPERAND_LATENCY - HASH_LEAD` = 2 cycles ago; `seed` and
/// `step` are inputs.
///
/// With 8-bit blocks also `scale_addr`, `first_column` (of the block) and `last_column`, the description of a block
/// (`desc_we`, `desc_*`) when its last tile loads, and `column_done`, `block_done` as inputs: a tile waits until the
/// buffers have room for its columns and, if it begins blocks, fewer than `SLOTS` are held (`blocks_held`: some are).
pub fn issue(config: &AdamConfig) -> Result<Arc<ModuleDef>, DslError> {
    let module = Module::new("nf_adam_issue");
    let m = &module;
    m.doc("Instruction queue and address generator of the Adam unit.");
    let (banks, group) = (config.banks, config.group());
    let layout = &config.layout;
    m.port_group("Instructions");
    let start = m.input("start", 1);
    let instr = m.input("instr", layout.width);
    let field = |name: &str| {
        let f = layout.field(name);
        instr.slice(f.low + f.width - 1, f.low)
    };
    let fit = |s: Sig<'_>, width: u32| {
        let s = m.cat(&[s]);
        if s.width() <= width {
            s.zext(width)
        } else {
            s.trunc(width)
        }
    };
    // Address bits serve weights, LayerNorm parameters and scales alike.
    let address = config.address_bits();
    let count = bits_for(banks);
    let q_bits = addr_width(group as u32);

    m.section("One instruction waits");
    let waiting = m.reg("waiting_q", 1).with_reset(0);
    m.output("ready", !waiting.q());
    let hold = |name: &str, width: u32| {
        let value = fit(field(name), width);
        m.reg(&format!("next_{name}_q"), width)
            .set_next(value)
            .with_enable(start)
            .q()
    };
    let next_layernorm = hold("layernorm", 1);
    let next_place = hold("place", bits_for(config.gradient_tiles - 1));
    let next_addr = hold("waddr", address);
    let next_tensor = hold("tensor", config.exp_id_bits());
    let next_first = hold("first", 1);
    let next_nr = hold("nr", count);
    let next_nc = hold("nc", count);

    m.section("Steps");
    let running = m.reg("running_q", 1).with_reset(0);
    let layernorm = m.reg("layernorm_q", 1);
    let q = m.reg("q_q", q_bits);
    let left = m.reg("left_q", count);
    let last_of_group = q.q().eq_const(group as u128 - 1).named("last_of_group");
    // A LayerNorm tile counts parameters, a matrix tile counts columns.
    let counts = layernorm.q() | last_of_group;
    let last = (left.q().is_zero() & counts).named("last");
    let phase = m.reg("phase_q", q_bits).with_reset(0);
    let phase_last = phase.q().eq_const(group as u128 - 1);
    phase.set_next(m.mux(phase_last, m.lit(0, q_bits), phase.q().add_const(1)));
    let room = config.blocks().then(|| {
        m.section("Room for a tile's moments, and for another block");
        let bits = bits_for(config.buffer_columns()).max(count) + 1;
        let held = m.reg("columns_held_q", bits).with_reset(0);
        let used = m.reg("blocks_held_q", bits_for(SLOTS)).with_reset(0);
        let next_first = hold("block_first", 1);
        let fits = held.q() + next_nr.zext(bits);
        let fits = fits.ule(m.lit(config.buffer_columns() as u128, bits));
        let slot = !(next_first & used.q().eq_const(SLOTS as u128));
        (held, used, next_first, (fits & slot).named("room"))
    });
    let may_start = match &room {
        Some((_, _, _, room)) => phase_last & *room,
        None => phase_last,
    };
    let load = (waiting.q() & (!running.q() | last) & (next_layernorm | may_start)).named("load");
    waiting.set_next(start | (waiting.q() & !load));
    running.set_next(load | (running.q() & !last));
    let moves = load | running.q();

    // Each counter: its value at a tile's start, else its next value.
    let advance = |reg: crate::dsl::Reg<'_>, at_load: Sig<'_>, next: Sig<'_>| {
        reg.set_next(m.mux(load, at_load, next)).with_enable(moves);
    };
    layernorm.set_next(next_layernorm).with_enable(load);
    advance(
        q,
        m.lit(0, q_bits),
        m.mux(last_of_group, m.lit(0, q_bits), q.q().add_const(1)),
    );
    let steps = m.mux(next_layernorm, next_nc, next_nr);
    advance(left, steps.sub_const(1), left.q().sub(counts.zext(count)));
    let lane_bits = addr_width(config.lanes as u32);
    let lane = m.reg("lane_q", lane_bits);
    let next_lane = lane.q().add(last_of_group.zext(lane_bits));
    advance(lane, m.lit(0, lane_bits), next_lane);
    let addr = m.reg("addr_q", address);
    advance(addr, next_addr, addr.q().add(counts.zext(address)));
    let moment_bits = config.moment_address_bits();
    let moment_addr = m.reg("moment_addr_q", moment_bits);
    let moment_start = fit(
        next_addr.mul(m.lit(group as u128, bits_for(group))),
        moment_bits,
    );
    advance(moment_addr, moment_start, moment_addr.q().add_const(1));
    let grad_bits = addr_width((config.gradient_tiles * banks) as u32);
    let grad_addr = m.reg("grad_addr_q", grad_bits);
    let places: Vec<Sig<'_>> = (0..config.gradient_tiles)
        .map(|n| m.lit((n * banks) as u128, grad_bits))
        .collect();
    let grad_start = m.select(next_place, &places);
    let to_next_column = last_of_group & !layernorm.q();
    advance(
        grad_addr,
        grad_start,
        grad_addr.q().add(to_next_column.zext(grad_bits)),
    );
    let exp_id = m.reg("exp_id_q", config.exp_id_bits());
    exp_id.set_next(next_tensor).with_enable(load);
    let exp_first = m.reg("exp_first_q", 1);
    exp_first.set_next(next_first).with_enable(load);
    let tile_first = m.reg("tile_first_q", 1);
    tile_first.set_next(load);
    let rows = m.reg("rows_q", count);
    rows.set_next(next_nc).with_enable(load);

    m.section("Row of each lane: (b - j) mod B");
    let mut row_of_lane = vec![];
    let next_row0 = config.blocks().then(|| hold("row0", count));
    for a in 0..config.lanes {
        let row = m.reg(&format!("row{a}_q"), count);
        let up = row.q().add_const(1);
        let up = m.mux(up.eq_const(banks as u128), m.lit(0, count), up);
        // From the last bank of column j to the first of column j + 1: Q rows back.
        let inside = m.lit(group as u128, count).ule(row.q());
        let back = m.mux(
            inside,
            row.q().sub_const(group as u128),
            row.q().add_const((banks - group) as u128),
        );
        let next = m.mux(last_of_group, back, up);
        let start = match next_row0 {
            Some(row0) => around(row0, (a * group) as u128, banks),
            None => m.lit((a * group) as u128, count),
        };
        advance(row, start, next);
        row_of_lane.push(row.q());
    }

    m.port_group("The step");
    m.output("issue", running.q());
    m.output("layernorm", layernorm.q());
    m.output("q", q.q());
    m.output("lane", lane.q());
    m.output("addr", addr.q());
    m.output("moment_addr", moment_addr.q());
    m.output("grad_addr", grad_addr.q());
    m.output("tile_first", tile_first.q());
    m.output("tile_last", running.q() & last);
    m.output("exp_first", exp_first.q());
    m.output("exp_id", exp_id.q());
    for (a, row) in row_of_lane.iter().enumerate() {
        let valid = row.ult(rows.q());
        // LayerNorm runs on lane 0 alone.
        let valid = match a {
            0 => valid | layernorm.q(),
            _ => valid & !layernorm.q(),
        };
        m.output(&format!("valid_{a}"), running.q() & valid);
    }

    if let Some((held, used, next_first, _)) = room {
        m.section("Moment blocks");
        m.port_group("Moment blocks: the step");
        let scale_bits = config.scale_address_bits();
        let next_last = hold("block_last", 1);
        let next_scale = hold("scale", addr_width(config.scale_words as u32));
        let words = m.lit(group as u128, bits_for(group));
        let scale_start = fit(next_scale.mul(words), scale_bits);
        let scale = m.reg("scale_addr_q", scale_bits);
        advance(scale, scale_start, scale.q().add_const(1));
        m.output("scale_addr", scale.q());
        let first = m.reg("first_column_q", 1);
        advance(first, next_first, first.q() & !last_of_group);
        m.output("first_column", first.q());
        let ends = m.reg("block_last_q", 1);
        ends.set_next(next_last).with_enable(load);
        let last_column = ends.q() & left.q().is_zero() & !layernorm.q() & running.q();
        m.output("last_column", last_column);
        m.port_group("Moment blocks: description, when the last tile loads");
        let matrix = (load & !next_layernorm).named("load_matrix");
        let ends_now = matrix & next_last;
        m.output(
            "desc_we",
            m.reg_next("desc_we_q", ends_now).with_reset(0).q(),
        );
        let next_moment = hold("block_waddr", config.weight_address_bits());
        for (name, value) in [
            ("desc_moment", fit(next_moment.mul(words), moment_bits)),
            ("desc_scale", scale_start),
            ("desc_columns", hold("columns", config.column_bits())),
            ("desc_row0", hold("block_row0", count)),
            ("desc_rows", next_nc),
            ("desc_turn", hold("turn", count)),
        ] {
            m.output(name, m.reg_next(&format!("{name}_q"), value).q());
        }
        m.port_group("Moment blocks: room given back");
        let column_done = m.input("column_done", 1);
        let block_done = m.input("block_done", 1);
        let bits = held.q().width();
        let taken = next_nr.zext(bits) & matrix.repeat(bits);
        held.set_next((held.q() + taken) - column_done.zext(bits));
        let bits = used.q().width();
        let begins = (matrix & next_first).zext(bits);
        used.set_next((used.q() + begins) - block_done.zext(bits));
        m.output("blocks_held", used.q().or_reduce());
    }

    if config.lane().hashes() {
        m.section("Hash counters: element0 + row*row_len + j, with the key injected");
        m.port_group("Hash");
        debug_assert_eq!(AdamConfig::OPERAND_LATENCY - HASH_LEAD, 2);
        let seed = m.input("seed", 32);
        let step = m.input("step", 32);
        let next_element0 = hold("element0", 32);
        let tensor = fit(field("tensor"), 32);
        let next_tensor32 = m
            .reg("next_tensor32_q", 32)
            .set_next(tensor)
            .with_enable(start)
            .q();
        let next_row_len = hold("row_len", layout.field("row_len").width.min(32));
        let row_len = m
            .reg("row_len_q", next_row_len.width())
            .set_next(next_row_len)
            .with_enable(load)
            .q();
        let x1 = m.reg("x1_q", 32);
        x1.set_next(next_tensor32 + step).with_enable(load);
        let column = m.reg("column_q", 32);
        advance(
            column,
            next_element0 + seed,
            column.q().add(to_next_column.zext(32)),
        );
        m.output("hash_x1", m.pipe("hash_x1", x1.q(), 2));
        let column = m.pipe("column_late", column.q(), 1);
        for (a, &row) in row_of_lane.iter().enumerate() {
            let product = m.pipe(&format!("offset{a}"), row.mul(row_len), 1);
            let x0 = fit(product, 32) + column;
            m.output(
                &format!("hash_x0_{a}"),
                m.pipe(&format!("hash_x0_{a}"), x0, 1),
            );
        }
    }
    module.finish()
}
