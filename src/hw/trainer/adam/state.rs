//! State stream: the whole training state out of and into the machine (`docs/machine.md`
//! section 6).

use super::config::AdamConfig;
use super::format;
use crate::dsl::{DslError, Module, ModuleDef, Sig, addr_width};
use crate::hw::axi::stream::{fifo, skid};
use crate::trainer::encode::bits_for;
use std::sync::Arc;

/// Words between the memories and the output stream; more than are under way at once.
const FIFO_DEPTH: u32 = 16;

/// Cycles from a position to the beat made of its memory words.
const READ_CYCLES: u32 = AdamConfig::OPERAND_LATENCY + 1;

/// Module `nf_state_stream`.
///
/// `state_read` or `state_write` (a pulse, only while not `state_busy`) starts a transfer.
/// A step, registered: `read` or `write`, `layernorm`, `addr`, `moment_addr`, `q`, `lane`, and
/// for a write `data_w`, `data_m`, `data_v`. Memory words come back `OPERAND_LATENCY` cycles
/// after the step: `w_a`, `moments_a` of each lane, `ln_w`, `ln_m`, `ln_v`.
///
/// With 8-bit blocks a step also has `scales`; the words `scales_a` come back for it, and `data_m`, `data_w` are {sv, sm}.
///
/// The last beat is `{seed, p2, p1, step}`: inputs `seed, p2, p1, step` when reading, outputs
/// `load_*` with the pulse `load` when writing. `error_early`: TLAST (or a partial TKEEP) came
/// before the last beat, the transfer ends there. `error_late`: the last beat had no TLAST,
/// nothing is loaded and beats are swallowed up to the next TLAST.
/// Written weights update `exp_we, exp_id, exp_value, exp_first`, once per address.
pub fn state_stream(config: &AdamConfig) -> Result<Arc<ModuleDef>, DslError> {
    let module = Module::new("nf_state_stream");
    let m = &module;
    m.doc("Moves weights, moments, LayerNorm state and the step's scalars between the memories and AXI4-Stream.");
    let group = config.group();
    let address = config.address_bits();
    let (q_bits, lane_bits) = (addr_width(group as u32), addr_width(config.lanes as u32));
    let weight_bits = config.weights.bits();
    let moment_bits = format::moment_bits(config.moments);

    m.port_group("Control");
    let start_read = m.input("state_read", 1);
    let start_write = m.input("state_write", 1);
    let state = m.fsm(
        "state_q",
        &[
            "Idle",
            "Read",
            "ReadTail",
            "ReadDone",
            "Write",
            "WriteTail",
            "Drain",
        ],
    );

    m.port_group("State in");
    let tvalid = m.input("s_axis_weight_tvalid", 1);
    let tdata = m.input("s_axis_weight_tdata", 128);
    let tkeep = m.input("s_axis_weight_tkeep", 16);
    let tlast = m.input("s_axis_weight_tlast", 1);
    let slice_in = m
        .instance("u_slice_in", &skid(130)?)
        .input("s_valid", tvalid)
        .input("s_data", m.cat(&[tlast, tkeep.and_reduce(), tdata]));
    m.output("s_axis_weight_tready", slice_in.output("s_ready"));
    let ready = state
        .is_any(&["Write", "WriteTail", "Drain"])
        .named("ready");
    slice_in.input("m_ready", ready);
    let beat = (slice_in.output("m_valid") & ready).named("beat");
    let payload = slice_in.output("m_data");
    let (whole, tail_mark) = (payload.bit(128), payload.bit(129));

    m.section("Position: bank by bank, address by address, then LayerNorm parameters");
    let credit = m
        .reg("credit_q", bits_for(FIFO_DEPTH as usize))
        .with_reset(u128::from(FIFO_DEPTH));
    let has_credit = credit.q().or_reduce().named("has_credit");
    let read_step = (state.is("Read") & has_credit).named("read_step");
    let write_step = (state.is("Write") & beat).named("write_step");
    let step = (read_step | write_step).named("step_now");
    let begin = (state.is("Idle") & (start_read | start_write)).named("begin_now");
    let moves = step | begin;
    let layernorm = m.reg("at_layernorm_q", 1);
    let at = m.reg("at_addr_q", address);
    let q = m.reg("at_q_q", q_bits);
    let lane = m.reg("at_lane_q", lane_bits);
    let moment_base = m.reg("at_moment_q", config.moment_address_bits());
    let last_q = q.q().eq_const(group as u128 - 1);
    let row_end = last_q & lane.q().eq_const(config.lanes as u128 - 1);
    let row_end = (row_end & !layernorm.q()).named("row_end");
    let scales = config.blocks().then(|| m.reg("at_scales_q", 1));
    let weights_row_end = scales.map_or(row_end, |scales| row_end & !scales.q());
    let matrix_end =
        (weights_row_end & at.q().eq_const(config.weight_depth as u128 - 1)).named("matrix_end");
    let scales_end = scales.map(|scales| {
        let last = at.q().eq_const(config.scale_words as u128 - 1);
        (row_end & scales.q() & last).named("scales_end")
    });
    let layernorm_end = layernorm.q() & at.q().eq_const(config.layernorm_words as u128 - 1);
    let layernorm_end = layernorm_end.named("layernorm_end");
    let zero = |width| m.lit(0, width);
    let restart = begin | matrix_end;
    let restart = scales_end.map_or(restart, |end| restart | end);
    layernorm
        .set_next(!begin & (layernorm.q() | scales_end.unwrap_or(matrix_end)))
        .with_enable(moves);
    if let (Some(scales), Some(end)) = (scales, scales_end) {
        scales
            .set_next(!begin & !end & (scales.q() | matrix_end))
            .with_enable(moves);
    }
    let at_next = at.q().add((row_end | layernorm.q()).zext(address));
    at.set_next(m.mux(restart, zero(address), at_next))
        .with_enable(moves);
    q.set_next(m.mux(restart | last_q, zero(q_bits), q.q().add_const(1)))
        .with_enable(moves);
    let lane_next = lane.q().add(last_q.zext(lane_bits));
    lane.set_next(m.mux(restart | row_end, zero(lane_bits), lane_next))
        .with_enable(moves);
    let base_bits = config.moment_address_bits();
    let base_next = m.mux(
        row_end,
        moment_base.q().add_const(group as u128),
        moment_base.q(),
    );
    // Words of a row of scales lie like words of a row of moments.
    let base_restart = match scales {
        Some(_) => begin | matrix_end,
        None => begin,
    };
    moment_base
        .set_next(m.mux(base_restart, zero(base_bits), base_next))
        .with_enable(moves);

    let tail_out = (state.is("ReadTail") & has_credit).named("tail_out");
    let tail_in = (state.is("WriteTail") & beat).named("tail_in");
    let all_back = credit.q().eq_const(u128::from(FIFO_DEPTH));
    state.transitions(&[
        ("Idle", start_read, "Read"),
        ("Idle", start_write, "Write"),
        ("Read", read_step & layernorm_end, "ReadTail"),
        ("ReadTail", tail_out, "ReadDone"),
        ("ReadDone", all_back, "Idle"),
        ("Write", beat & tail_mark, "Idle"),
        ("Write", beat & layernorm_end, "WriteTail"),
        ("WriteTail", beat & tail_mark, "Idle"),
        ("WriteTail", beat, "Drain"),
        ("Drain", beat & tail_mark, "Idle"),
    ]);

    m.section("The step");
    let read_q = m.reg_next("read_q", read_step).with_reset(0).q();
    let write_q = m.reg_next("write_q", write_step).with_reset(0).q();
    let layernorm_q = m.reg_next("layernorm_q", layernorm.q()).q();
    let q_q = m.reg_next("q_q", q.q()).q();
    let scales_q = scales.map(|scales| m.reg_next("scales_q", scales.q()).q());
    let lane_q = m.reg_next("lane_q", lane.q()).q();
    let addr_q = m.reg_next("addr_q", at.q()).q();
    let moment_addr = moment_base.q().add(q.q().zext(base_bits));
    m.port_group("Step to the memories");
    m.output("read", read_q);
    m.output("write", write_q);
    m.output("layernorm", layernorm_q);
    if let Some(scales) = scales_q {
        m.output("scales", scales);
    }
    m.output("q", q_q);
    m.output("lane", lane_q);
    m.output("addr", addr_q);
    m.output("moment_addr", m.reg_next("moment_addr_q", moment_addr).q());
    let data_q = m.reg_next("data_q", payload.trunc(96)).q();
    let data_w = data_q.trunc(32);
    m.output("data_w", data_w);
    m.output("data_m", data_q.slice(63, 32));
    m.output("data_v", data_q.slice(95, 64));

    m.section("Beats out");
    let tail_q = m.reg_next("tail_q", tail_out).with_reset(0).q();
    m.port_group("Words of a step");
    let w_lane: Vec<Sig> = (0..config.lanes)
        .map(|a| m.input(&format!("w_{a}"), weight_bits))
        .collect();
    let moments_lane: Vec<Sig> = (0..config.lanes)
        .map(|a| m.input(&format!("moments_{a}"), 2 * moment_bits))
        .collect();
    let [ln_w, ln_m, ln_v] = ["ln_w", "ln_m", "ln_v"].map(|name| m.input(name, 32));
    let operand_latency = AdamConfig::OPERAND_LATENCY;
    let back_lane = m.delay("back_lane", lane_q, operand_latency);
    let back_layernorm = m.delay("back_layernorm", layernorm_q, operand_latency);
    let back_tail = m.delay("back_tail", tail_q, operand_latency);
    let w_back = m.select(back_lane, &w_lane).zext(32);
    let moments_back = m.select(back_lane, &moments_lane);
    let m_back = moments_back.trunc(moment_bits).zext(32);
    let v_back = moments_back
        .slice(2 * moment_bits - 1, moment_bits)
        .zext(32);
    m.port_group("Scalars that belong to the state");
    let scalars: Vec<Sig> = ["seed", "p2", "p1", "step"]
        .iter()
        .map(|name| m.input(name, 32))
        .collect();
    let position_beat = m.cat(&[
        zero(32),
        m.mux(back_layernorm, ln_v, v_back),
        m.mux(back_layernorm, ln_m, m_back),
        m.mux(back_layernorm, ln_w, w_back),
    ]);
    let position_beat = match scales_q {
        Some(scales) => {
            let of_lane: Vec<Sig> = (0..config.lanes)
                .map(|a| m.input(&format!("scales_{a}"), 64))
                .collect();
            let back = m.delay("back_scales", scales, operand_latency);
            let word = m.select(back_lane, &of_lane).zext(128);
            m.mux(back, word, position_beat)
        }
        None => position_beat,
    };
    let out_beat = m.mux(back_tail, m.cat(&scalars), position_beat);
    let out_beat = m.cat(&[back_tail, out_beat]);
    let out_beat = m.reg_next("out_beat_q", out_beat).q();
    // No valid bit of an old transfer may survive a reset.
    let mut out_valid = read_q | tail_q;
    for k in 0..READ_CYCLES {
        out_valid = m
            .reg_next(&format!("out_valid{k}_q"), out_valid)
            .with_reset(0)
            .q();
    }
    let buffer = m
        .instance("u_buffer", &fifo(129, FIFO_DEPTH)?)
        .input("s_valid", out_valid)
        .input("s_data", out_beat);
    m.assert_(
        !out_valid | buffer.output("s_ready"),
        "the state stream's buffer has room for every word under way",
    );
    let slice_out = m
        .instance("u_slice_out", &skid(129)?)
        .input("s_valid", buffer.output("m_valid"))
        .input("s_data", buffer.output("m_data"));
    buffer.input("m_ready", slice_out.output("s_ready"));
    let popped = buffer.output("m_valid") & slice_out.output("s_ready");
    let taken = read_step | tail_out;
    let credit_bits = credit.q().width();
    credit.set_next(
        credit
            .q()
            .add(popped.zext(credit_bits))
            .sub(taken.zext(credit_bits)),
    );
    m.port_group("State out");
    let out_ready = m.input("m_axis_weight_tready", 1);
    slice_out.input("m_ready", out_ready);
    let out = slice_out.output("m_data");
    let out_tvalid = slice_out.output("m_valid");
    m.output("m_axis_weight_tvalid", out_tvalid);
    m.output("m_axis_weight_tdata", out.trunc(128));
    m.output("m_axis_weight_tkeep", m.lit(0xffff, 16));
    m.output("m_axis_weight_tlast", out.bit(128));

    m.section("Exponents of written weights: one update per address");
    let exponent = format::exponent(data_w.trunc(weight_bits));
    let row_first = q_q.is_zero() & lane_q.is_zero();
    let matrix_write = write_q & !layernorm_q;
    let matrix_write = scales_q.map_or(matrix_write, |scales| matrix_write & !scales);
    let emax = m.reg("emax_q", 8);
    let larger = m.mux(emax.q().ult(exponent), exponent, emax.q());
    emax.set_next(m.mux(row_first, exponent, larger))
        .with_enable(matrix_write);
    let row_end_write = m
        .reg_next("row_end_q", weights_row_end & write_step)
        .with_reset(0)
        .q();
    let bases = config.tensors_by_base();
    let begun_bits = bits_for(bases.len());
    let begun = m.reg("begun_q", begun_bits);
    let never = (1u128 << (address + 1)) - 1;
    let mut starts: Vec<Sig> = bases
        .iter()
        .map(|&(base, _)| m.lit(base as u128, address + 1))
        .collect();
    starts.push(m.lit(never, address + 1));
    let next_row = addr_q.zext(address + 1).add_const(1);
    // The selection is one cycle late; rows follow each other at a distance of B >= 2 cycles.
    let next_start = m.reg_next("next_start_q", m.select(begun.q(), &starts)).q();
    let begins = next_row.eq(next_start).named("begins");
    let at_zero = m.lit((bases[0].0 == 0) as u128, 1);
    let tensor_first = m.reg("tensor_first_q", 1);
    let row_moves = begin | row_end_write;
    tensor_first
        .set_next(m.mux(begin, at_zero, begins))
        .with_enable(row_moves);
    let begun_next = begun.q().add(begins.zext(begun_bits));
    begun
        .set_next(m.mux(begin, at_zero.zext(begun_bits), begun_next))
        .with_enable(row_moves);
    let id_bits = config.exp_id_bits();
    let mut ids = vec![m.lit(bases[0].1 as u128, id_bits)];
    ids.extend(bases.iter().map(|&(_, id)| m.lit(id as u128, id_bits)));
    let exp_we = row_end_write & begun.q().or_reduce();
    m.port_group("Exponent update");
    let exp_we = m.reg_next("exp_we_q", exp_we).with_reset(0).q();
    m.output("exp_we", exp_we);
    m.output(
        "exp_id",
        m.reg_next("exp_id_q", m.select(begun.q(), &ids)).q(),
    );
    m.output("exp_first", m.reg_next("exp_first_q", tensor_first.q()).q());
    m.output("exp_value", emax.q());

    m.section("Last beat in, status");
    m.port_group("Scalars of a written state");
    let load = (tail_in & tail_mark & whole).named("load_now");
    let load_q = m.reg_next("load_q", load).with_reset(0).q();
    m.output("load", load_q);
    for (k, name) in ["step", "p1", "p2", "seed"].iter().enumerate() {
        let low = 32 * k as u32;
        let word = m
            .reg(&format!("load_{name}_q"), 32)
            .set_next(payload.slice(low + 31, low))
            .with_enable(load)
            .q();
        m.output(&format!("load_{name}"), word);
    }
    m.port_group("Status");
    let partial = (write_step | tail_in) & !whole;
    let early = (write_step & tail_mark) | partial;
    let early = m.reg_next("error_early_q", early).with_reset(0).q();
    m.output("error_early", early);
    let late = tail_in & !tail_mark;
    let late = m.reg_next("error_late_q", late).with_reset(0).q();
    m.output("error_late", late);
    // What a transfer brings is complete when it is no longer busy.
    let settling = write_q | row_end_write | exp_we | load_q | early | late;
    m.output("state_busy", !state.is("Idle") | settling | out_tvalid);
    m.output("state_active", !state.is("Idle") | write_q | read_q);
    module.finish()
}
