//! A group: one memory port, its loader and sequencer, and its share of the rows.

use std::sync::Arc;

use super::super::ArrayConfig;
use super::loader::loader;
use super::reader::reader;
use super::sequencer::sequencer;
use super::store::store;
use super::{ADDRESS_BITS, BEATS_BITS, pe, token};
use crate::dsl::{DslError, Module, ModuleDef, Sig};

/// Module `nf_cgla_group`.
pub fn group(config: &ArrayConfig) -> Result<Arc<ModuleDef>, DslError> {
    let rows = config.group_rows();
    let m = Module::new("nf_cgla_group");
    m.doc(&format!(
        "{rows} rows behind one memory port. A linked group takes its tokens and chain words \
         from the group before"
    ));
    m.port_group("Launch");
    let start = m.input("start", 1);
    let linked = m.input("linked", 1);
    let segments = [
        ("program_addr", ADDRESS_BITS),
        ("program_beats", BEATS_BITS),
        ("weight_addr", ADDRESS_BITS),
        ("weight_beats", BEATS_BITS),
    ]
    .map(|(name, width)| (name, m.input(name, width)));
    let out_addr = m.input("out_addr", ADDRESS_BITS);
    m.port_group("AXI4 read channels");
    let axi = [
        ("arready", 1),
        ("rdata", 128),
        ("rresp", 2),
        ("rlast", 1),
        ("rvalid", 1),
    ]
    .map(|(name, width)| (name, m.input(name, width)));
    m.port_group("From the group before");
    let token_in = m.input("token", token::WIDTH);
    let x_in = m.input("x", 64);
    let y_in = m.input("y", 64);
    m.port_group("From the group behind");
    let next_linked = m.input("next_linked", 1);
    let next_credit = m.input("next_credit", 1);
    m.port_group("To the write master");
    let beat_ready = m.input("beat_ready", 1);

    m.section("Memory port, loader, sequencer");
    let port = m.instance("reader", &reader()?).input("start", start);
    for (name, value) in segments.iter().chain(&axi) {
        port.input(name, *value);
    }
    let load = m
        .instance("loader", &loader(config)?)
        .input("start", start)
        .input("beat", port.output("out_data"))
        .input("beat_valid", port.output("out_valid"));
    port.input("out_ready", load.output("beat_ready"));
    let sequence = m.instance("sequencer", &sequencer()?);
    for name in [
        "enqueue",
        "tile_half",
        "tile_count",
        "tile_steps",
        "tile_tokens",
        "tile_digits",
        "tile_store",
        "tile_final",
    ] {
        sequence.input(name, load.output(name));
    }

    m.section("Rows");
    let row_def = pe(config)?;
    let select = |value: Sig<'_>| m.mux(linked, value, m.lit(0, value.width()));
    let mut token_now = m.mux(linked, token_in, sequence.output("token"));
    let (mut x, mut y) = (select(x_in), select(y_in));
    let data = load.output("row_data");
    let pair = load.output("row_pair");
    let halves = load.output("row_halves");
    let (low, high) = (load.output("row_low"), load.output("row_high"));
    let mut last_row = None;
    let mut last_token = token_now;
    for row in 0..rows {
        let mine = pair.eq_const(u128::from(row / 2));
        let index = m.lit(u128::from(row), 8);
        let configured = if row == 0 {
            low.is_zero()
        } else {
            low.ule(index) & index.ule(high)
        };
        let word = if row % 2 == 0 {
            data.slice(63, 0)
        } else {
            data.slice(127, 64)
        };
        let unit = m
            .instance(&format!("row{row}"), &row_def)
            .input("token", token_now)
            .input("x", x)
            .input("y", y)
            .input("cfg_data", data)
            .input(
                "cfg_enable",
                load.output("row_config") & configured.repeat(2),
            )
            .input("load_data", word)
            .input("load_halves", halves & mine.repeat(2))
            .input("load_set", load.output("row_set"))
            .input("load_base", load.output("row_base"));
        last_token = token_now;
        token_now = unit.output("token_out");
        x = unit.output("x_out");
        y = unit.output("y_out");
        last_row = Some(unit);
    }
    let leaves = last_token.bit(token::VALID) & last_token.bit(token::TILE_END);
    load.input(
        "tile_done",
        m.reg_next("tile_done_q", leaves).with_reset(0).q(),
    )
    .input(
        "tile_done_half",
        m.reg_next("tile_done_half_q", last_token.bit(token::HALF))
            .q(),
    );

    m.section("Results of the last row");
    let results = m
        .instance("store", &store()?)
        .input("start", start)
        .input("base", out_addr)
        .input("beat_ready", beat_ready);
    if let Some(unit) = last_row {
        for part in ["valid", "final", "wide", "data"] {
            results.input(
                &format!("result_{part}"),
                unit.output(&format!("store_{part}")),
            );
        }
    }
    let credit = m.mux(next_linked, next_credit, results.output("credit"));
    sequence.input("credit", credit);

    m.section("Phase counters");
    for (name, source) in [
        ("conf", load.output("counts_conf")),
        ("load", load.output("counts_load")),
        ("exec", sequence.output("counts_exec")),
    ] {
        let count = m.reg(&format!("{name}_cycles_q"), 32).with_reset(0);
        count.set_next(m.mux(
            start,
            m.lit(0, 32),
            m.mux(source, count.q().add_const(1), count.q()),
        ));
        m.output(&format!("{name}_cycles"), count.q());
    }
    m.port_group("AXI4 read channels");
    for name in ["araddr", "arlen", "arvalid", "rready"] {
        m.output(name, port.output(name));
    }
    m.port_group("To the group behind");
    m.output("token_out", token_now);
    m.output("x_out", x);
    m.output("y_out", y);
    m.port_group("To the group before");
    m.output("credit", credit);
    m.port_group("To the write master");
    for name in ["beat_valid", "beat_addr", "beat_data", "beat_strobe"] {
        m.output(name, results.output(name));
    }
    m.port_group("Status");
    // The results of a chain of groups are written by its last one.
    let settled = !load.output("await_final") | results.output("flushed") | next_linked;
    m.output("done", load.output("finished") & settled);
    m.output("executing", sequence.output("counts_exec"));
    m.output("error", load.output("error"));
    m.output("read_error", port.output("error"));
    m.finish()
}
