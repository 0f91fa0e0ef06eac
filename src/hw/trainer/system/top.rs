//! The core's top module: AXI4-Lite registers around the transformer bus.

use std::sync::Arc;

use super::layer::{Unit, Wiring};
use crate::dsl::{DslError, Module, ModuleDef, Sig};
use crate::hw::axi::lite::register_file;
use crate::hw::axi::registers::{Access, RegisterMap};

/// Bus interfaces that the core's clock serves.
pub const BUSES: [&str; 5] = [
    "s_axil",
    "s_axis_token",
    "m_axis_result",
    "s_axis_weight",
    "m_axis_weight",
];

/// Module `nf_trainer`.
///
/// `registers` names the hardware's register file; `constants` gives the value of every
/// register that never changes. Register names are lower case.
pub fn trainer_top(
    bus: &Arc<ModuleDef>,
    registers: &RegisterMap,
    constants: &[(String, u32)],
) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_trainer");
    m.doc("On-chip transformer trainer: AXI4-Lite control, AXI4-Stream tokens, results and state.");
    m.axi_clock(&BUSES);
    let mut w = Wiring::new(&m);
    let bus = Unit::new(&m, "u_transformer_bus", bus);
    let file = Unit::new(&m, "u_registers", &register_file(registers)?);

    m.section("Commands");
    let control = w.output(&file, "control_pulse");
    for (bit, name) in [
        "start_train",
        "start_eval",
        "weight_read",
        "weight_write",
        "cancel",
    ]
    .iter()
    .enumerate()
    {
        w.connect(&bus, name, control.bit(bit as u32));
    }

    m.section("Status and results");
    let status = m.cat(&[
        w.output(&bus, "error_flags"),
        w.output(&bus, "busy"),
        w.output(&bus, "state"),
    ]);
    let cycles = w.output(&bus, "cycles");
    let loss_q24 = w.output(&bus, "loss_q24");
    let high = loss_q24.width() - 32;
    let from_bus: Vec<(&str, Sig)> = vec![
        ("status", status),
        ("step", w.output(&bus, "step")),
        ("cycle_lo", cycles.trunc(32)),
        ("cycle_hi", cycles.slice(63, 32)),
        ("loss", w.output(&bus, "loss")),
        ("loss_q24_lo", loss_q24.trunc(32)),
        ("loss_q24_hi", loss_q24.slice(31 + high, 32).sext(32)),
        ("correct", w.output(&bus, "correct").zext(32)),
        ("lr", w.output(&bus, "lr")),
        ("seed", w.output(&bus, "seed")),
    ];
    for (name, value) in &from_bus {
        w.connect(&file, name, *value);
    }
    for (name, value) in constants {
        w.connect(&file, name, m.lit(u128::from(*value), 32));
    }

    m.section("Interrupt");
    let events = m.cat(&[w.output(&bus, "error_event"), w.output(&bus, "done")]);
    w.connect(&file, "irq_status_set", events);
    let wanted = w.output(&file, "irq_enable") & w.output(&file, "irq_status");
    m.output(
        "irq",
        m.reg_next("irq_q", wanted.or_reduce()).with_reset(0).q(),
    );

    m.section("Settings");
    for register in registers.registers() {
        if register.access == Access::ReadWrite && bus.def.input_index(&register.name).is_some() {
            let value = w.output(&file, &register.name);
            w.connect(&bus, &register.name, value);
        }
    }
    // SCRATCH is for software alone.
    for register in registers.registers() {
        if register.access == Access::ReadWrite {
            w.output(&file, &register.name);
        }
    }
    w.export(&bus);
    w.export(&file);
    for unused in ["s_axil_awprot", "s_axil_arprot"] {
        w.input(unused, 3);
    }
    m.finish()
}
