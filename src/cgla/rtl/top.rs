//! The array: groups, write master, AXI4-Lite registers, interrupt.

use std::sync::Arc;

use super::super::ArrayConfig;
use super::super::registers::GROUPS;
use super::group::group;
use super::token;
use super::writer::writer;
use crate::dsl::{DslError, Module, ModuleDef};
use crate::hw::axi::lite::register_file;
use crate::hw::axi::registers::RegisterMap;

/// Name of the top module.
pub const TOP: &str = "nf_cgla";

/// Name of the AXI4 read master of a group.
pub fn read_master(group: u32) -> String {
    format!("m_axi_r{group}")
}

/// Name of the AXI4 write master.
pub const WRITE_MASTER: &str = "m_axi_w";

/// Modifiable, bufferable, no allocation: what the memory ports of a Zynq expect.
const CACHE: u128 = 0b0011;

/// Module `nf_cgla`. `registers` is the hardware's register file, `constants` gives the value of
/// every register that never changes; names are those of
/// [`register_map`](super::super::registers::register_map) in lower case.
pub fn top(
    config: &ArrayConfig,
    registers: &RegisterMap,
    constants: &[(String, u32)],
) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new(TOP);
    m.doc(&format!(
        "Programmable linear array: {} rows, {} memory read ports of 128 bits, {} words of 64 \
         bits per local memory half",
        config.rows, config.ports, config.lmm_words
    ));
    let masters: Vec<String> = (0..config.ports).map(read_master).collect();
    let mut buses = vec!["s_axil"];
    buses.extend(masters.iter().map(String::as_str));
    buses.push(WRITE_MASTER);
    m.axi_clock(&buses);

    m.section("Registers");
    let file = m.instance("registers", &register_file(registers)?);
    m.port_group("AXI4-Lite control");
    for (name, width) in [
        ("awaddr", registers.address_width()),
        ("awvalid", 1),
        ("wdata", 32),
        ("wstrb", 4),
        ("wvalid", 1),
        ("bready", 1),
        ("araddr", registers.address_width()),
        ("arvalid", 1),
        ("rready", 1),
    ] {
        let name = format!("s_axil_{name}");
        file.input(&name, m.input(&name, width));
    }
    for unused in ["s_axil_awprot", "s_axil_arprot"] {
        m.input(unused, 3);
    }
    for name in [
        "awready", "wready", "bresp", "bvalid", "arready", "rdata", "rresp", "rvalid",
    ] {
        let name = format!("s_axil_{name}");
        m.output(&name, file.output(&name));
    }
    for (name, value) in constants {
        file.input(name, m.lit(u128::from(*value), 32));
    }
    // SCRATCH is for software alone.
    file.output("scratch");
    let mut read_ports = vec![];
    for name in &masters {
        m.port_group("AXI4 read port");
        read_ports.push(
            [
                ("arready", 1),
                ("rdata", 128),
                ("rresp", 2),
                ("rlast", 1),
                ("rvalid", 1),
            ]
            .map(|(n, w)| (n, m.input(&format!("{name}_{n}"), w))),
        );
    }
    m.port_group("AXI4 write port");
    let write_inputs = [("awready", 1), ("wready", 1), ("bresp", 2), ("bvalid", 1)]
        .map(|(n, w)| (n, m.input(&format!("{WRITE_MASTER}_{n}"), w)));
    let running = m.reg("running_q", 1).with_reset(0);
    let idle = !running.q();
    let start = (file.output("control_pulse") & idle.repeat(config.ports)).named("start");
    let linked = file.output("links");

    m.section("Groups");
    let group_def = group(config)?;
    let starting = start.or_reduce();
    let write_master = m
        .instance("writer", &writer(config.ports)?)
        .input("start", starting);
    for (name, value) in write_inputs {
        write_master.input(name, value);
    }
    let groups: Vec<_> = (0..config.ports)
        .map(|g| m.instance(&format!("group{g}"), &group_def))
        .collect();
    let mut done_bits = vec![];
    for g in 0..config.ports {
        let unit = groups[g as usize];
        let names = &GROUPS[g as usize];
        let setting = |name: &str| file.output(&name.to_lowercase());
        let address = |[low, high]: [&str; 2]| m.cat(&[setting(high), setting(low)]);
        unit.input("start", start.bit(g))
            .input("linked", linked.bit(g))
            .input("program_addr", address(names.program_addr))
            .input("program_beats", setting(names.program_beats))
            .input("weight_addr", address(names.weight_addr))
            .input("weight_beats", setting(names.weight_beats))
            .input("out_addr", address(names.out_addr));
        for (name, value) in &read_ports[g as usize] {
            unit.input(name, *value);
        }
        if g == 0 {
            unit.input("token", m.lit(0, token::WIDTH))
                .input("x", m.lit(0, 64))
                .input("y", m.lit(0, 64));
        } else {
            let before = groups[g as usize - 1];
            unit.input("token", before.output("token_out"))
                .input("x", before.output("x_out"))
                .input("y", before.output("y_out"));
        }
        if g + 1 == config.ports {
            unit.input("next_linked", m.lit(0, 1))
                .input("next_credit", m.lit(0, 1));
        } else {
            unit.input("next_linked", linked.bit(g + 1))
                .input("next_credit", groups[g as usize + 1].output("credit"));
        }
        unit.input("beat_ready", write_master.output(&format!("beat{g}_ready")));
        for part in ["valid", "addr", "data", "strobe"] {
            write_master.input(
                &format!("beat{g}_{part}"),
                unit.output(&format!("beat_{part}")),
            );
        }
        for (name, counter) in [
            (names.conf, "conf_cycles"),
            (names.load, "load_cycles"),
            (names.exec, "exec_cycles"),
        ] {
            file.input(&name.to_lowercase(), unit.output(counter));
        }
        done_bits.push(unit.output("done"));
    }

    m.section("Launch: from start until every started group is done and every write answered");
    done_bits.reverse();
    let all_done = m.cat(&done_bits);
    let active = m.reg("active_q", config.ports).with_reset(0);
    let started = m.reg("started_q", config.ports).with_reset(0);
    started.set_next(start);
    // A started group leaves `done` one cycle after `start`.
    let settling = (starting | started.q().or_reduce()).named("settling");
    let groups_done = (!active.q() | all_done).and_reduce();
    let ends =
        (running.q() & !settling & groups_done & write_master.output("idle")).named("launch_ends");
    active.set_next(m.mux(starting, start, active.q()));
    running.set_next(starting | (running.q() & !ends));
    let done = m.reg("done_q", 1).with_reset(0);
    done.set_next((done.q() | ends) & !starting);
    let any = |name: &str| {
        groups
            .iter()
            .fold(m.lit(0, 1), |any, g| any | g.output(name))
    };
    let cycles = m.reg("cycles_q", 32).with_reset(0);
    cycles.set_next(m.mux(
        starting,
        m.lit(0, 32),
        m.mux(running.q(), cycles.q().add_const(1), cycles.q()),
    ));
    let last_exec = m
        .reg("last_exec_q", 32)
        .set_next(m.mux(starting, m.lit(0, 32), cycles.q()))
        .with_enable(any("executing") | starting)
        .with_reset(0)
        .q();

    let status = m.cat(&[
        write_master.output("error"),
        any("read_error"),
        any("error"),
        done.q(),
        running.q(),
    ]);
    file.input("status", status)
        .input("cycles", cycles.q())
        .input("last_exec", last_exec)
        .input("irq_status_set", ends);

    for (p, unit) in groups.iter().enumerate() {
        m.port_group("AXI4 read port");
        let name = |n: &str| format!("{}_{n}", masters[p]);
        m.output(&name("araddr"), unit.output("araddr"));
        m.output(&name("arlen"), unit.output("arlen"));
        m.output(&name("arsize"), m.lit(4, 3));
        m.output(&name("arburst"), m.lit(1, 2));
        m.output(&name("arcache"), m.lit(CACHE, 4));
        m.output(&name("arprot"), m.lit(0, 3));
        m.output(&name("arvalid"), unit.output("arvalid"));
        m.output(&name("rready"), unit.output("rready"));
    }
    m.port_group("AXI4 write port");
    m.output("m_axi_w_awaddr", write_master.output("awaddr"));
    m.output("m_axi_w_awlen", m.lit(0, 8));
    m.output("m_axi_w_awsize", m.lit(4, 3));
    m.output("m_axi_w_awburst", m.lit(1, 2));
    m.output("m_axi_w_awcache", m.lit(CACHE, 4));
    m.output("m_axi_w_awprot", m.lit(0, 3));
    m.output("m_axi_w_awvalid", write_master.output("awvalid"));
    m.output("m_axi_w_wdata", write_master.output("wdata"));
    m.output("m_axi_w_wstrb", write_master.output("wstrb"));
    m.output("m_axi_w_wlast", m.lit(1, 1));
    m.output("m_axi_w_wvalid", write_master.output("wvalid"));
    m.output("m_axi_w_bready", write_master.output("bready"));
    m.port_group("Interrupt, level, until IRQ_STATUS is cleared");
    let wanted = file.output("irq_enable") & file.output("irq_status");
    m.output(
        "irq",
        m.reg_next("irq_q", wanted.or_reduce()).with_reset(0).q(),
    );
    m.finish()
}
