//! A small first-word-fall-through queue in LUT RAM.

use std::sync::Arc;

use crate::dsl::{DslError, MemSpec, MemStyle, Module, ModuleDef, addr_width};

/// Queue of `depth` (a power of two) words of `width` bits, module `nf_fifo_<width>x<depth>`.
/// Ready and valid depend on registers only.
pub fn fifo(width: u32, depth: u32) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new(&format!("nf_fifo_{width}x{depth}"));
    m.doc("Queue in LUT RAM\nlatency 1 cycle, 1 word per cycle");
    let aw = addr_width(depth);
    let in_data = m.input("in_data", width);
    let in_valid = m.input("in_valid", 1);
    let out_ready = m.input("out_ready", 1);
    let write = m.reg("write_q", aw + 1).with_reset(0);
    let read = m.reg("read_q", aw + 1).with_reset(0);
    let level = write.q() - read.q();
    let full = level.bit(aw).named("is_full");
    let empty = level.is_zero().named("is_empty");
    let push = in_valid & !full;
    let pop = out_ready & !empty;
    write.set_next(write.q().add_const(1)).with_enable(push);
    read.set_next(read.q().add_const(1)).with_enable(pop);
    let mem = m.mem(
        "words",
        MemSpec {
            depth,
            width,
            style: MemStyle::Distributed,
            ..MemSpec::default()
        },
    );
    mem.write(write.q().trunc(aw), in_data, push);
    m.output("in_ready", !full);
    m.output("out_data", mem.read_comb(read.q().trunc(aw)));
    m.output("out_valid", !empty);
    m.finish()
}
