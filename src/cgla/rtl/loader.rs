//! Interprets the stream of beats: configuration, operand loads, weight tiles.

use std::sync::Arc;

use super::super::packet::{self, Opcode};
use super::super::{ArrayConfig, isa::field::Field};
use super::{is_half, zero};
use crate::dsl::{DslError, Module, ModuleDef, addr_width};

/// Module `nf_cgla_loader`: one beat per cycle while the half to be filled is free.
pub fn loader(config: &ArrayConfig) -> Result<Arc<ModuleDef>, DslError> {
    let aw = addr_width(config.lmm_words);
    let m = Module::new("nf_cgla_loader");
    m.doc(
        "Packet interpreter of a group: header beats say what the beats behind them are\n\
         1 beat per cycle, 2 cycles between tiles",
    );
    m.port_group("Stream of beats");
    let start = m.input("start", 1);
    let beat = m.input("beat", 128);
    let beat_valid = m.input("beat_valid", 1);
    m.port_group("A tile has left the rows");
    let done = m.input("tile_done", 1);
    let done_half = m.input("tile_done_half", 1);

    let state = m.fsm(
        "state_q",
        &[
            "Finished",
            "Header",
            "ConfWord",
            "ConfConstant",
            "LoadWait",
            "Load",
            "TileWait",
            "Fill",
            "Enqueue",
        ],
    );
    let header = m.reg("header_q", 128);
    let get = |(low, width): Field| header.q().slice(low + width - 1, low);
    let of_beat = |(low, width): Field| beat.slice(low + width - 1, low);

    m.section("Halves: the one being filled, and which hold a tile that is not done");
    let fill_half = m.reg("fill_half_q", 1).with_reset(0);
    let busy: Vec<_> = (0..2)
        .map(|h| m.reg(&format!("busy{h}_q"), 1).with_reset(0))
        .collect();
    let enqueue = state.is("Enqueue").named("enqueue_now");
    for (h, reg) in busy.iter().enumerate() {
        let set = enqueue & is_half(h, fill_half.q());
        let clear = done & is_half(h, done_half);
        reg.set_next(set | (reg.q() & !clear));
    }
    fill_half.set_next(fill_half.q() ^ enqueue);
    let idle = (!busy[0].q() & !busy[1].q()).named("halves_idle");
    let fill_free = m
        .mux(fill_half.q(), !busy[1].q(), !busy[0].q())
        .named("fill_half_free");
    let both = get(packet::HALVES).and_reduce().named("load_both");

    m.section("Beats taken");
    let in_header = state.is("Header");
    let in_conf = state.is_any(&["ConfWord", "ConfConstant"]);
    let in_load = state.is("Load");
    let in_fill = state.is("Fill");
    let ready = (in_header | (in_conf & idle) | in_load | in_fill).named("beat_ready");
    let take = (ready & beat_valid).named("take_beat");
    header.set_next(beat).with_enable(take & in_header);

    m.section("Counters");
    let is_tiles = get(packet::OPCODE).eq_const(Opcode::Tiles as u128);
    let beats_left = m.reg("beats_left_q", packet::BEATS.1);
    beats_left
        .set_next(m.mux(in_load, beats_left.q().sub_const(1), get(packet::BEATS)))
        .with_enable(take | state.is("LoadWait"));
    let load_last = beats_left.q().eq_const(1);

    let total = packet::TOTAL.1;
    let remaining = m.reg("remaining_q", total);
    let tile = get(packet::TILE);
    let count = m
        .mux(
            remaining.q().ult(tile.zext(total)),
            remaining.q().trunc(packet::TILE.1),
            tile,
        )
        .named("tile_outputs");
    let after = (remaining.q() - count.zext(total)).named("outputs_after");
    remaining
        .set_next(m.mux(enqueue, after, of_beat(packet::TOTAL)))
        .with_enable(enqueue | (take & in_header));

    let unit_left = m.reg("unit_left_q", packet::UNIT.1);
    let unit_last = unit_left.q().eq_const(1).named("unit_last");
    let waiting = state.is("TileWait");
    unit_left
        .set_next(m.mux(
            waiting | unit_last,
            get(packet::UNIT),
            unit_left.q().sub_const(1),
        ))
        .with_enable(waiting | (take & in_fill));
    let outputs_left = m.reg("outputs_left_q", packet::TILE.1);
    outputs_left
        .set_next(m.mux(waiting, count, outputs_left.q().sub_const(1)))
        .with_enable(waiting | (take & in_fill & unit_last));
    let fill_last = unit_last & outputs_left.q().eq_const(1);

    let pair = m.reg("pair_q", 8);
    let wraps = pair.q().eq(get(packet::PAIR_HIGH)) | (in_fill & unit_last);
    pair.set_next(m.mux(
        waiting | state.is("LoadWait") | wraps,
        get(packet::PAIR_LOW),
        pair.q().add_const(1),
    ))
    .with_enable(waiting | state.is("LoadWait") | (take & (in_load | in_fill)));

    m.section("Next state");
    let opcode = of_beat(packet::OPCODE);
    let is = |code: Opcode| take & opcode.eq_const(code as u128);
    let known = [
        Opcode::Configure,
        Opcode::Load,
        Opcode::Tiles,
        Opcode::Execute,
    ]
    .map(is);
    let load_free = m.mux(both, idle, fill_free);
    let unknown = (take & !known[0] & !known[1] & !known[2] & !known[3]).named("ends_stream");
    state.transitions(&[
        ("Finished", start, "Header"),
        ("Header", known[0], "ConfWord"),
        ("Header", known[1], "LoadWait"),
        ("Header", known[2] | known[3], "TileWait"),
        ("Header", unknown, "Finished"),
        ("ConfWord", take, "ConfConstant"),
        ("ConfConstant", take, "Header"),
        ("LoadWait", load_free, "Load"),
        ("Load", take & load_last, "Header"),
        ("TileWait", fill_free & is_tiles, "Fill"),
        ("TileWait", fill_free, "Enqueue"),
        ("Fill", take & fill_last, "Enqueue"),
        ("Enqueue", after.is_zero() & get(packet::FINAL), "Finished"),
        ("Enqueue", after.is_zero(), "Header"),
        ("Enqueue", m.lit(1, 1), "TileWait"),
    ]);
    let failed = m.reg("error_q", 1).with_reset(0);
    let is_end = opcode.eq_const(Opcode::End as u128);
    failed.set_next(!start & (failed.q() | (in_header & unknown & !is_end)));

    m.section("Registered bus to the rows");
    let one_half = m.mux(fill_half.q(), m.lit(2, 2), m.lit(1, 2));
    let halves = m.mux(in_load & both, m.lit(3, 2), one_half);
    let loading = take & (in_load | in_fill);
    let conf = m.cat(&[take & state.is("ConfConstant"), take & state.is("ConfWord")]);
    let set = waiting | state.is("LoadWait");
    m.port_group("Registered bus to the rows");
    m.output("row_data", m.reg_next("row_data_q", beat).q());
    m.output("row_pair", m.reg_next("row_pair_q", pair.q()).q());
    let masked = m.mux(loading, halves, zero(&m, 2));
    m.output(
        "row_halves",
        m.reg_next("row_halves_q", masked).with_reset(0).q(),
    );
    m.output("row_set", m.reg_next("row_set_q", set).with_reset(0).q());
    let base = get(packet::BASE).trunc(aw);
    m.output("row_base", m.reg_next("row_base_q", base).q());
    m.output(
        "row_config",
        m.reg_next("row_config_q", conf).with_reset(0).q(),
    );
    m.output(
        "row_low",
        m.reg_next("row_low_q", get(packet::PAIR_LOW)).q(),
    );
    m.output(
        "row_high",
        m.reg_next("row_high_q", get(packet::PAIR_HIGH)).q(),
    );
    m.port_group("Tile to the sequencer");
    m.output("enqueue", enqueue);
    m.output("tile_half", fill_half.q());
    m.output("tile_count", count);
    m.output("tile_steps", get(packet::STEPS));
    m.output("tile_tokens", get(packet::TOKENS));
    m.output("tile_digits", get(packet::DIGITS));
    m.output("tile_store", get(packet::STORE_MODE));
    m.output("tile_final", get(packet::FINAL) & after.is_zero());
    m.port_group("Status");
    m.output("beat_ready", ready);
    m.output("finished", state.is("Finished") & idle);
    m.output("await_final", get(packet::FINAL));
    m.output("error", failed.q());
    m.output("counts_conf", take & in_conf);
    m.output("counts_load", loading);
    m.finish()
}
