//! Collects the results of a group into 16-byte beats.

use std::sync::Arc;

use super::ADDRESS_BITS;
use super::fifo::fifo;
use super::sequencer::CREDITS;
use crate::dsl::{DslError, Module, ModuleDef, Sig};

/// Module `nf_cgla_store`: results, 32 or 64 bits each, to beats at consecutive addresses.
pub fn store() -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_cgla_store");
    m.doc("Packs results into 16-byte beats for the write master\n1 result per cycle");
    m.port_group("Start of a launch, with the group's output address");
    let start = m.input("start", 1);
    let base = m.input("base", ADDRESS_BITS);
    m.port_group("Results; the credits of the sequencer keep the queue from overflowing");
    m.valid_only("result");
    let valid = m.input("result_valid", 1);
    let last = m.input("result_final", 1);
    let wide = m.input("result_wide", 1);
    let data = m.input("result_data", 64);
    m.port_group("Beat to the write master");
    let beat_ready = m.input("beat_ready", 1);

    let queue = m.instance("results", &fifo(66, CREDITS)?);
    let beat_valid = m.reg("beat_valid_q", 1).with_reset(0);
    let free = !beat_valid.q() | beat_ready;
    queue
        .input("in_data", m.cat(&[last, wide, data]))
        .input("in_valid", valid)
        .input("out_ready", free);
    m.assert_(
        !valid | queue.output("in_ready"),
        "a result arrives without room",
    );
    let entry = queue.output("out_data");
    let pop = (queue.output("out_valid") & free).named("take_result");
    let (last, wide) = (entry.bit(65), entry.bit(64));

    m.section("Lanes of the beat being filled");
    let fill = m.reg("fill_q", 2).with_reset(0);
    let lanes = m.reg("lanes_q", 128);
    let mut merged: Vec<Sig<'_>> = vec![];
    let mut strobes: Vec<Sig<'_>> = vec![];
    for lane in 0..4u32 {
        let here = fill.q().eq_const(u128::from(lane));
        let above = if lane == 0 {
            m.lit(0, 1)
        } else {
            wide & fill.q().eq_const(u128::from(lane - 1))
        };
        let old = lanes.q().slice(32 * lane + 31, 32 * lane);
        let value = m.mux(
            here,
            entry.slice(31, 0),
            m.mux(above, entry.slice(63, 32), old),
        );
        merged.push(value);
        let before = match lane {
            0 => fill.q().or_reduce(),
            1 => fill.q().bit(1),
            2 => fill.q().and_reduce(),
            _ => m.lit(0, 1),
        };
        strobes.push((before | here | above).repeat(4));
    }
    merged.reverse();
    strobes.reverse();
    let merged = m.cat(&merged);
    lanes.set_next(merged).with_enable(pop);
    let full = m.mux(wide, fill.q().bit(1), fill.q().and_reduce());
    let emit = (pop & (full | last)).named("beat_complete");
    let stepped = fill.q() + m.cat(&[wide, !wide]);
    fill.set_next(m.mux(emit | start, m.lit(0, 2), stepped))
        .with_enable(pop | start);

    m.section("Beat register");
    let addr = m.reg("addr_q", ADDRESS_BITS);
    addr.set_next(m.mux(start, base, addr.q().add_const(16)))
        .with_enable(start | emit);
    beat_valid.set_next(emit | (beat_valid.q() & !beat_ready));
    let keep = |name: &str, value: Sig<'_>| {
        m.reg(name, value.width())
            .set_next(value)
            .with_enable(emit)
            .q()
    };
    let flushed = m.reg("flushed_q", 1).with_reset(0);
    flushed.set_next(!start & (flushed.q() | (pop & last)));
    m.output("beat_valid", beat_valid.q());
    m.output("beat_addr", keep("beat_addr_q", addr.q()));
    m.output("beat_data", keep("beat_data_q", merged));
    m.output("beat_strobe", keep("beat_strobe_q", m.cat(&strobes)));
    m.port_group("Status");
    m.output("credit", pop);
    m.output("flushed", flushed.q() & !beat_valid.q());
    m.finish()
}
