//! The Adam unit: lanes between memories (`docs/machine.md` sections 5 to 7).

use super::blocks::Blocks;
use super::config::{AdamConfig, AdamConfigError};
use super::{format, issue, state, storage};
use crate::config::model::LayerNormOptimizer;
use crate::dsl::{Instance, Module, ModuleDef, Sig, addr_width};
use std::sync::Arc;

/// Scalars of the step, held while tiles run.
const SCALARS: [&str; 6] = [
    "beta1",
    "one_minus_beta1",
    "beta2",
    "one_minus_beta2",
    "alpha",
    "eps_t",
];

/// Module `nf_adam_unit`. Ports as `docs/machine.md` section 7 lists them, and:
///
/// * held scalars `beta1`, `one_minus_beta1`, `beta2`, `one_minus_beta2`, `alpha`, `eps_t`, `lr`,
///   `seed`, `step`; `p1`, `p2` for the state stream;
/// * `state_load` (pulse) with `load_step`, `load_p1`, `load_p2`, `load_seed` after a complete
///   WeightWrite; `state_error_early`, `state_error_late` (pulses).
///
/// Per bank: `wb_addr_b, wb_en_b, wb_we_b, wb_wdata_b` -> `wb_rdata_b`, two cycles later.
pub fn adam_unit(config: &AdamConfig) -> Result<Arc<ModuleDef>, AdamConfigError> {
    config.check()?;
    let module = Module::new("nf_adam_unit");
    let m = &module;
    m.doc("Adam optimiser: gradient tiles in, weights, moments and LayerNorm state updated; state stream.");
    let (lanes, group) = (config.lanes, config.group());
    let q_bits = addr_width(group as u32);
    let hashes = config.lane().hashes();

    m.port_group("Engine");
    let start = m.input("start", 1);
    let instr = m.input("instr", config.layout.width);
    let issue = m
        .instance("u_issue", &issue::issue(config)?)
        .input("start", start)
        .input("instr", instr);
    m.output("ready", issue.output("ready"));
    let stream = m.instance("u_state", &state::state_stream(config)?);
    state_ports(m, stream);

    m.port_group("Scalars of the step");
    let scalars = SCALARS.map(|name| (name, m.input(name, 32)));
    let lr = m.input("lr", 32);
    let seed = m.input("seed", 32);
    let step = m.input("step", 32);
    stream.input("seed", seed).input("step", step);
    for name in ["p1", "p2"] {
        stream.input(name, m.input(name, 32));
    }
    if hashes {
        issue.input("seed", seed).input("step", step);
    }

    m.section("Address registers: a step of a tile or of the state stream");
    let active = stream.output("state_active");
    let choose = |name: &str| m.mux(active, stream.output(name), issue.output(name));
    let layernorm = choose("layernorm");
    let (q, lane) = (choose("q"), choose("lane"));
    let addr = choose("addr");
    let moment_addr = choose("moment_addr");
    let layernorm_q = m.reg_next("layernorm_q", layernorm).q();
    let q_q = m.reg_next("q_q", q).q();
    let lane_q = m.reg_next("lane_q", lane).q();
    let addr_q = m.reg_next("addr_q", addr).q();
    let moment_addr_q = m.reg_next("moment_addr_q", moment_addr).q();
    let grad_addr_q = m.reg_next("grad_addr_q", issue.output("grad_addr")).q();

    m.section("Memories");
    let gradients = m
        .instance("u_gradient", &storage::gradient_tile(config)?)
        .input("raddr", grad_addr_q)
        .input("q", q_q)
        .input("layernorm", layernorm_q)
        .input("lane", lane_q);
    m.port_group("Gradient tile");
    for (port, width) in [
        ("grad_we", 1),
        (
            "grad_addr",
            addr_width((config.gradient_tiles * config.banks) as u32),
        ),
    ] {
        gradients.input(port, m.input(port, width));
    }
    for b in 0..config.banks {
        let port = format!("grad_data_{b}");
        gradients.input(&port, m.input(&port, 32));
    }
    let moment_def = storage::moment_bank(config)?;
    let moment_banks: Vec<Instance> = (0..lanes)
        .map(|a| {
            m.instance(&format!("u_moments{a}"), &moment_def)
                .input("raddr", moment_addr_q)
        })
        .collect();
    let blocks = match config.blocks() {
        true => Some(Blocks::new(m, config, issue, stream)?),
        false => None,
    };
    let ln_bits = config.layernorm_address_bits();
    let layernorm_state = m
        .instance("u_layernorm", &storage::layernorm_state(config)?)
        .input("raddr", addr_q.trunc(ln_bits));
    m.port_group("LayerNorm parameters");
    for port in ["gamma", "beta"] {
        let addr = format!("{port}_addr");
        let data = format!("{port}_data");
        layernorm_state.input(&addr, m.input(&addr, ln_bits));
        m.output(&data, layernorm_state.output(&data));
    }

    m.section("Operands: the word of the bank that was read");
    m.port_group("Weights, port B");
    let rdata: Vec<Sig> = (0..config.banks)
        .map(|b| m.input(&format!("wb_rdata_{b}"), config.weights.bits()))
        .collect();
    let select_q = m.delay("select_q", q, AdamConfig::OPERAND_LATENCY - 1);
    let w_lane: Vec<Sig> = (0..lanes)
        .map(|a| {
            let word = m.select(select_q, &rdata[a * group..(a + 1) * group]);
            m.pipe(&format!("w{a}"), word, 1)
        })
        .collect();
    let moment_bits = format::moment_bits(config.moments);
    for name in ["w", "m", "v"] {
        stream.input(&format!("ln_{name}"), layernorm_state.output(name));
    }
    let lane_def = config.lane().build()?;
    let first_def = config.layernorm_lane().build()?;
    let operand_layernorm = m.delay("operand_layernorm", layernorm, AdamConfig::OPERAND_LATENCY);
    let sgd = config.layernorm_optimizer == LayerNormOptimizer::Sgd;
    let mut units = vec![];
    for a in 0..lanes {
        let def = if a == 0 { &first_def } else { &lane_def };
        let valid = issue.output(&format!("valid_{a}"));
        let valid = m.delay(&format!("valid{a}"), valid, AdamConfig::OPERAND_LATENCY);
        let moments = moment_banks[a].output("rdata");
        stream.input(&format!("w_{a}"), w_lane[a]);
        stream.input(&format!("moments_{a}"), moments);
        let unit = m
            .instance(&format!("u_lane{a}"), def)
            .input("valid", valid)
            .input("g", gradients.output(&format!("g_{a}")))
            .input("w", w_lane[a])
            .input("m", moments.trunc(moment_bits))
            .input("v", moments.slice(2 * moment_bits - 1, moment_bits));
        if let Some(blocks) = &blocks {
            let (v_scale, m_scale) = blocks.scales(a);
            unit.input("m_scale", m_scale).input("v_scale", v_scale);
        }
        for (name, value) in scalars {
            unit.input(name, value);
        }
        if hashes {
            unit.input("seed", seed)
                .input("step", step)
                .input("hash_x0", issue.output(&format!("hash_x0_{a}")))
                .input("hash_x1", issue.output("hash_x1"));
        }
        if a == 0 {
            unit.input("layernorm", operand_layernorm);
            let operands: &[&str] = if sgd { &["w"] } else { &["w", "m", "v"] };
            for name in operands {
                unit.input(&format!("ln_{name}"), layernorm_state.output(name));
            }
            if sgd {
                unit.input("lr", lr);
            }
        }
        units.push(unit);
    }

    m.section("Pipelines without reset are believed once new steps have filled them");
    let to_moments = AdamConfig::OPERAND_LATENCY + config.lane().moment_latency();
    let to_weights = config.read_to_write();
    let age_bits = addr_width(to_weights + 1);
    let age = m.reg("age_q", age_bits).with_reset(0);
    let moments_settled = m
        .lit(u128::from(to_moments), age_bits)
        .ule(age.q())
        .named("moments_settled");
    let weights_settled = age.q().eq_const(u128::from(to_weights));
    let weights_settled = weights_settled.named("weights_settled");
    age.set_next(age.q().add_const(1))
        .with_enable(!weights_settled);

    if let Some(blocks) = &blocks {
        blocks.results(m, config, issue, &units, to_moments, moments_settled);
        blocks.write_scales(m, stream);
    }

    m.section("Moments back");
    let state_write = stream.output("write");
    let state_matrix = state_write & !stream.output("layernorm");
    let state_matrix = match &blocks {
        Some(_) => state_matrix & !stream.output("scales"),
        None => state_matrix,
    };
    let state_matrix = state_matrix.named("state_matrix");
    let state_layernorm = (state_write & stream.output("layernorm")).named("state_layernorm");
    let late = m.cat(&[
        issue.output("layernorm"),
        issue.output("addr"),
        issue.output("moment_addr"),
    ]);
    let late = m.delay("moment_step", late, to_moments);
    let base_bits = config.moment_address_bits();
    let addr_bits = addr.width();
    let late_moment_addr = match &blocks {
        Some(blocks) => blocks.store_addr(),
        None => late.trunc(base_bits),
    };
    let late_addr = late.slice(base_bits + addr_bits - 1, base_bits);
    let late_layernorm = late.msb();
    let moment_waddr = m.mux(active, stream.output("moment_addr"), late_moment_addr);
    let moment_waddr = m.reg_next("moment_waddr_q", moment_waddr).q();
    let state_word = m.cat(&[
        stream.output("data_v").trunc(moment_bits),
        stream.output("data_m").trunc(moment_bits),
    ]);
    for (a, (unit, bank)) in units.iter().zip(&moment_banks).enumerate() {
        let mine = stream.output("lane").eq_const(a as u128) & state_matrix;
        let done = unit.output("moment_valid") & moments_settled;
        let done = if a == 0 { done & !late_layernorm } else { done };
        let (done, word) = match &blocks {
            Some(blocks) => blocks.codes(a),
            None => (done, m.cat(&[unit.output("v_new"), unit.output("m_new")])),
        };
        let we = m
            .reg_next(&format!("moment_we{a}_q"), done | mine)
            .with_reset(0)
            .q();
        let word = m.mux(active, state_word, word);
        let word = m.reg_next(&format!("moment_wdata{a}_q"), word).q();
        bank.input("we", we)
            .input("waddr", moment_waddr)
            .input("wdata", word);
    }

    m.section("Weights back");
    let padding = config.write_padding();
    let tags = m.cat(&[
        issue.output("exp_id"),
        issue.output("exp_first"),
        issue.output("tile_first"),
        issue.output("tile_last"),
        issue.output("layernorm"),
        issue.output("addr"),
    ]);
    let tags = m.delay("weight_step", tags, to_weights);
    let write_addr = tags.trunc(addr_bits).named("write_addr");
    let write_layernorm = tags.bit(addr_bits).named("write_layernorm");
    let weight_addr_bits = config.weight_address_bits();
    // Matrix tiles keep step with a count of Q, so the writes do too, a fixed distance behind.
    let write_phase = m
        .reg("write_phase_q", q_bits)
        .with_reset(((group as u32 - to_weights % group as u32) % group as u32) as u128);
    let wraps = write_phase.q().eq_const(group as u128 - 1);
    let one_more = write_phase.q().add_const(1);
    write_phase.set_next(m.mux(wraps, m.lit(0, q_bits), one_more));
    let reads = (issue.output("issue") & !issue.output("layernorm")) | stream.output("read");
    let reads_matrix = (reads & !layernorm).named("reads_matrix");
    let mut new_words = vec![];
    for (a, unit) in units.iter().enumerate() {
        let word = m.pipe(&format!("pad_w{a}"), unit.output("w_new"), padding);
        let valid = unit.output("weight_valid");
        let valid = m.pipe(&format!("pad_valid{a}"), valid, padding);
        new_words.push((valid & weights_settled, word));
    }
    // Banks of equal q share one address register: either all read or all write.
    let mut bank_addr = vec![];
    for k in 0..group {
        let reads_k = (reads & q.eq_const(k as u128)) | state_write;
        let address = m.mux(
            reads_k,
            addr.trunc(weight_addr_bits),
            write_addr.trunc(weight_addr_bits),
        );
        bank_addr.push(m.reg_next(&format!("bank_addr{k}_q"), address).q());
    }
    for (a, &(valid, word)) in new_words.iter().enumerate() {
        let valid = if a == 0 {
            valid & !write_layernorm
        } else {
            valid
        };
        let state_lane = stream.output("lane").eq_const(a as u128);
        let word = m.mux(active, stream.output("data_w").trunc(word.width()), word);
        let wdata = m.reg_next(&format!("bank_wdata{a}_q"), word).q();
        for (k, &address) in bank_addr.iter().enumerate() {
            let b = a * group + k;
            let now = q.eq_const(k as u128);
            let state_here = state_lane & now;
            let write = (valid & write_phase.q().eq_const(k as u128)) | (state_matrix & state_here);
            let stream_read = stream.output("read") & state_here;
            let tile_read = issue.output("issue") & now;
            let read = (stream_read | tile_read) & !layernorm;
            m.assert_(!(read & write), "a weight bank is read and written at once");
            let we = m
                .reg_next(&format!("bank_we{b}_q"), write)
                .with_reset(0)
                .q();
            let en = m
                .reg_next(&format!("bank_en{b}_q"), read | write)
                .with_reset(0)
                .q();
            m.output(&format!("wb_addr_{b}"), address);
            m.output(&format!("wb_en_{b}"), en);
            m.output(&format!("wb_we_{b}"), we);
            m.output(&format!("wb_wdata_{b}"), wdata);
        }
    }
    m.assert_(
        !(reads_matrix & active & issue.output("issue")),
        "the state stream runs while a tile runs",
    );

    m.section("LayerNorm state back");
    let first = units[0];
    let ln_moment_done = first.output("moment_valid") & late_layernorm & moments_settled;
    let ln_w = first.output("ln_w_new");
    // Gradient descent has the parameter as early as Adam has its moments.
    let (ln_w_done, ln_w_addr, ln_w) = if sgd {
        (ln_moment_done, late_addr, ln_w)
    } else {
        let done = new_words[0].0 & write_layernorm;
        (done, write_addr, m.pipe("pad_ln_w", ln_w, padding))
    };
    let stream_addr = stream.output("addr").trunc(ln_bits);
    let register = |name: &str, value: Sig<'_>| m.reg_next(name, value).q();
    let w_we = m
        .reg_next("ln_w_we_q", ln_w_done | state_layernorm)
        .with_reset(0)
        .q();
    let w_addr = m.mux(active, stream_addr, ln_w_addr.trunc(ln_bits));
    let w_data = m.mux(active, stream.output("data_w"), ln_w);
    let (m_done, m_word, v_word) = if sgd {
        // The moments only pass through the state stream.
        (
            m.lit(0, 1),
            stream.output("data_m"),
            stream.output("data_v"),
        )
    } else {
        (
            ln_moment_done,
            m.mux(active, stream.output("data_m"), first.output("ln_m_new")),
            m.mux(active, stream.output("data_v"), first.output("ln_v_new")),
        )
    };
    let moment_we = m
        .reg_next("ln_moment_we_q", m_done | state_layernorm)
        .with_reset(0)
        .q();
    let ln_moment_addr = m.mux(active, stream_addr, late_addr.trunc(ln_bits));
    layernorm_state
        .input("w_we", w_we)
        .input("w_addr", register("ln_w_addr_q", w_addr))
        .input("w_data", register("ln_w_data_q", w_data))
        .input("moment_we", moment_we)
        .input("moment_addr", register("ln_moment_addr_q", ln_moment_addr))
        .input("m_data", register("ln_m_data_q", m_word))
        .input("v_data", register("ln_v_data_q", v_word));

    m.section("Exponent of the stored weights, retirement, errors");
    let mut level: Vec<Sig> = new_words
        .iter()
        .map(|&(valid, word)| format::exponent(word) & valid.repeat(8))
        .collect();
    let mut stage = 0;
    while level.len() > 1 {
        let name = |k: usize| format!("emax{stage}_{k}_q");
        level = level
            .chunks(2)
            .enumerate()
            .map(|(k, pair)| {
                let top = match pair {
                    [a, b] => m.mux(a.ult(*b), *b, *a),
                    _ => pair[0],
                };
                m.reg_next(&name(k), top).q()
            })
            .collect();
        stage += 1;
    }
    let flags = tags.slice(tags.width() - 1, addr_bits);
    let last = m.delay("last_late", flags.bit(1) & weights_settled, stage);
    let flags = m.delay("maximum_step", flags, stage);
    let emax = m.reg("emax_q", 8);
    let larger = m.mux(emax.q().ult(level[0]), level[0], emax.q());
    emax.set_next(m.mux(flags.bit(2), level[0], larger));
    let finished = m.reg_next("finished_q", last).with_reset(0).q();
    let finished_matrix = m
        .reg_next("finished_matrix_q", last & !flags.bit(0))
        .with_reset(0)
        .q();
    let exp_first = m.reg_next("exp_first_q", flags.bit(3)).q();
    let exp_id = m
        .reg_next("exp_id_q", flags.slice(flags.width() - 1, 4))
        .q();
    let from_stream = stream.output("exp_we");
    m.port_group("Exponent update");
    m.output("exp_we", finished_matrix | from_stream);
    for (port, value) in [
        ("exp_id", exp_id),
        ("exp_value", emax.q()),
        ("exp_first", exp_first),
    ] {
        m.output(port, m.mux(from_stream, stream.output(port), value));
    }
    m.port_group("Retirement and errors");
    m.output("retire", m.reg_next("retire_q", finished).with_reset(0).q());
    let mut bad = m.lit(0, 1);
    for unit in &units {
        bad = bad | (unit.output("moment_bad") & moments_settled);
        bad = bad | (unit.output("weight_bad") & weights_settled);
    }
    m.output("error", m.reg_next("error_q", bad).with_reset(0).q());
    if let Some(blocks) = &blocks {
        m.output("moments_busy", blocks.busy(m, issue));
    }
    module.finish().map_err(AdamConfigError::from)
}

/// The ports of the state stream that the unit passes through.
fn state_ports<'m>(m: &'m Module, stream: Instance<'m>) {
    m.port_group("State stream: control");
    for port in ["state_read", "state_write"] {
        stream.input(port, m.input(port, 1));
    }
    m.output("state_busy", stream.output("state_busy"));
    m.port_group("State stream: in");
    for (port, width) in [("tvalid", 1), ("tdata", 128), ("tkeep", 16), ("tlast", 1)] {
        let port = format!("s_axis_weight_{port}");
        stream.input(&port, m.input(&port, width));
    }
    m.output(
        "s_axis_weight_tready",
        stream.output("s_axis_weight_tready"),
    );
    m.port_group("State stream: out");
    for port in ["tvalid", "tdata", "tkeep", "tlast"] {
        let port = format!("m_axis_weight_{port}");
        m.output(&port, stream.output(&port));
    }
    let ready = "m_axis_weight_tready";
    stream.input(ready, m.input(ready, 1));
    m.port_group("State stream: scalars of a written state, errors");
    for (port, inner) in [
        ("state_load", "load"),
        ("load_step", "load_step"),
        ("load_p1", "load_p1"),
        ("load_p2", "load_p2"),
        ("load_seed", "load_seed"),
        ("state_error_early", "error_early"),
        ("state_error_late", "error_late"),
    ] {
        m.output(port, stream.output(inner));
    }
}
