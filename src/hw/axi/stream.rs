//! Elastic buffers for AXI4-Stream and for the channels of AXI4-Lite.

use crate::dsl::{DslError, MemSpec, MemStyle, Module, ModuleDef};
use std::sync::Arc;

/// Two-entry register slice for `width` payload bits: one transfer per cycle, one cycle of
/// latency, and neither `s_ready` nor `m_valid` depends on an input within the cycle.
///
/// Ports: `s_valid`, `s_data` -> `s_ready`; `m_ready` -> `m_valid`, `m_data`.
pub fn skid(width: u32) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new(&format!("nf_skid_w{width}"));
    m.doc("Two-entry register slice: one transfer per cycle, latency 1, registered both ways.");
    m.port_group("Upstream");
    let s_valid = m.input("s_valid", 1);
    let s_data = m.input("s_data", width);
    let spare_valid = m.reg("spare_valid_q", 1).with_reset(0);
    // Low in reset, so that nothing is promised that the reset would lose.
    let ready = m.reg("s_ready_q", 1).with_reset(0);
    m.output("s_ready", ready.q());
    m.port_group("Downstream");
    let m_ready = m.input("m_ready", 1);
    let valid = m.reg("m_valid_q", 1).with_reset(0);
    let data = m.reg("m_data_q", width);
    let spare = m.reg("spare_q", width);

    // The output register moves when it is empty or taken; otherwise a transfer that was
    // promised by `s_ready` goes to the spare register.
    let moves = (!valid.q() | m_ready).named("moves");
    let holds = (spare_valid.q() | (s_valid & ready.q())).named("holds");
    valid.set_next(holds).with_enable(moves);
    data.set_next(m.mux(spare_valid.q(), spare.q(), s_data))
        .with_enable(moves);
    spare.set_next(s_data).with_enable(ready.q());
    let spare_next = (!moves & holds).named("spare_next");
    spare_valid.set_next(spare_next);
    ready.set_next(!spare_next);
    m.output("m_valid", valid.q());
    m.output("m_data", data.q());
    m.finish()
}

/// First-in first-out buffer in LUT RAM, `depth` a power of two >= 2: one transfer per cycle,
/// latency 1, registered both ways.
///
/// Ports as [`skid`]; `s_ready` is low while `depth` words are held.
pub fn fifo(width: u32, depth: u32) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new(&format!("nf_fifo_w{width}_d{depth}"));
    m.doc("First-in first-out buffer in LUT RAM, one transfer per cycle, latency 1.");
    let bits = crate::dsl::addr_width(depth);
    if !depth.is_power_of_two() || depth < 2 {
        m.problem(&format!(
            "a FIFO of {depth} words: the depth is a power of two, 2 or more"
        ));
    }
    m.port_group("Upstream");
    let s_valid = m.input("s_valid", 1);
    let s_data = m.input("s_data", width);
    let write_at = m.reg("write_at_q", bits + 1).with_reset(0);
    let read_at = m.reg("read_at_q", bits + 1).with_reset(0);
    // Low in reset, so that nothing is promised that the reset would lose.
    let ready = m.reg("s_ready_q", 1).with_reset(0);
    m.output("s_ready", ready.q());
    m.port_group("Downstream");
    let m_ready = m.input("m_ready", 1);

    let empty = write_at.q().eq(read_at.q()).named("empty");
    let push = (s_valid & ready.q()).named("push");
    let pop = (!empty & m_ready).named("pop");
    let write_next = write_at.q().add(push.zext(bits + 1));
    let read_next = read_at.q().add(pop.zext(bits + 1));
    write_at.set_next(write_next);
    read_at.set_next(read_next);
    // The pointers carry one bit more than the address: `depth` apart means full.
    ready.set_next(!write_next.sub(read_next).eq_const(u128::from(depth)));
    let words = m.mem(
        "words",
        MemSpec {
            depth,
            width,
            style: MemStyle::Distributed,
            ..MemSpec::default()
        },
    );
    words.write(write_at.q().trunc(bits), s_data, push);
    m.output("m_valid", !empty);
    m.output("m_data", words.read_comb(read_at.q().trunc(bits)));
    m.finish()
}
