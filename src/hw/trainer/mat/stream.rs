//! Addresses of a streamed operand in skewed banks (`docs/machine.md` section 1).

use super::{copies, next_modulo, rot_bits};
use crate::dsl::*;
use std::sync::Arc;

/// Cycles from a step to its addresses.
pub const ADDRESS_LATENCY: u32 = 2;
/// Banks that share one copy of the base address.
const BASE_LOADS: usize = 8;

/// `nf_stream_<bits>x<B>`: the addresses of V and H mode.
///
/// `load` takes a new stream; the cycle after it is step 0. `step` moves on to the next step.
/// `rot` belongs to the present step, `addr_b` follows two cycles later.
pub fn stream(addr_bits: u32, b: usize) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new(&format!("nf_stream_{addr_bits}x{b}"));
    let rb = rot_bits(b);
    m.doc(
        "Addresses of one operand in skewed banks. V: every bank reads addr + step.\n\
         H: bank b reads addr + ((b - rot) mod B), and addr grows by pitch after B steps.\n\
         rot belongs to the present step, the bank addresses follow two cycles later.",
    );
    m.port_group("a new stream: the next cycle is its step 0");
    let load = m.input("load", 1);
    let addr = m.input("addr", addr_bits);
    let rot0 = m.input("rot0", rb);
    let pitch = m.input("pitch", addr_bits);
    let h = m.input("h", 1);
    m.port_group("go to the next step");
    let step = m.input("step", 1);

    let held = |name: &str, s: Sig<'_>| m.reg_next(name, s).with_enable(load).q();
    let pitch_q = held("pitch_q", pitch);
    let h_q = held("h_q", h);
    let base = m.reg("base_q", addr_bits);
    let rot = m.reg("rot_q", rb);
    let count = m.reg("count_q", rb);
    let wrap = count.q().eq_const(b as u128 - 1).named("wrap");
    let by_row = m.mux(wrap, pitch_q, m.lit(0, addr_bits));
    let by = m.mux(h_q, by_row, m.lit(1, addr_bits));
    let moves = load | step;
    base.set_next(m.mux(load, addr, base.q() + by))
        .with_enable(moves);
    rot.set_next(m.mux(load, rot0, next_modulo(&m, rot.q(), b)))
        .with_enable(moves);
    count
        .set_next(m.mux(load, m.lit(0, rb), next_modulo(&m, count.q(), b)))
        .with_enable(moves);

    m.output("rot", rot.q());
    let bases = copies(&m, "base_to", base.q(), b, BASE_LOADS);
    for (bank, &base) in bases.iter().enumerate() {
        // (bank - rot) mod B, 0 in V mode.
        let first = bank as u128;
        let from = m.mux(
            rot.q().ule(m.lit(first, rb)),
            m.lit(first, rb + 1),
            m.lit(first + b as u128, rb + 1),
        );
        let offset = (from - rot.q().zext(rb + 1)).trunc(rb) & h_q.repeat(rb);
        let offset_q = m.reg_next(&format!("offset_{bank}_q"), offset).q();
        let wide = match addr_bits.checked_sub(rb) {
            Some(_) => offset_q.zext(addr_bits),
            None => offset_q.trunc(addr_bits),
        };
        let at = m.reg_next(&format!("addr_{bank}_q"), base + wide).q();
        m.output(&format!("addr_{bank}"), at);
    }
    m.finish()
}
