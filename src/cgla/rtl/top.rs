//! The array: groups, write master, AXI4-Lite registers, interrupt.

use std::sync::Arc;

use super::super::{ArrayConfig, LaneSign};
use super::group::group;
use super::writer::writer;
use super::{ADDRESS_BITS, BEATS_BITS, token};
use crate::dsl::{DslError, Module, ModuleDef, Sig};

/// Register addresses.
pub mod register {
    /// Reads `0x43474c41`.
    pub const ID: u32 = 0x000;
    /// Reads rows (7:0), ports (15:8), log2 of the LMM words (23:16), unsigned low lanes (24).
    pub const PARAMETERS: u32 = 0x004;
    /// Write: groups to start (3:0), groups linked to the one before (11:8).
    pub const CONTROL: u32 = 0x008;
    /// Reads busy (0), done since the last start (1), unknown packet (2).
    pub const STATUS: u32 = 0x00c;
    /// Write: bit 0 lets `done` raise the interrupt.
    pub const INTERRUPT: u32 = 0x010;
    /// Reads cycles from start to done.
    pub const CYCLES: u32 = 0x014;
    /// Reads cycles from start to the last issued step.
    pub const LAST_EXEC: u32 = 0x018;
    /// First register of group 0; the groups follow in steps of 256 bytes.
    pub const GROUP: u32 = 0x100;
    /// Distance of the groups' registers.
    pub const GROUP_STRIDE: u32 = 0x100;
    /// Write, within a group: program segment address, low word (the high word follows).
    pub const PROGRAM_ADDR: u32 = 0x00;
    /// Write: program segment length in beats of 16 bytes.
    pub const PROGRAM_BEATS: u32 = 0x08;
    /// Write: weight segment address, low word.
    pub const WEIGHT_ADDR: u32 = 0x10;
    /// Write: weight segment length in beats.
    pub const WEIGHT_BEATS: u32 = 0x18;
    /// Write: output address, low word.
    pub const OUT_ADDR: u32 = 0x20;
    /// Reads cycles with configuration beats.
    pub const CONF: u32 = 0x30;
    /// Reads cycles with operand beats.
    pub const LOAD: u32 = 0x34;
    /// Reads cycles with an issued step.
    pub const EXEC: u32 = 0x38;
}

/// Value of the identification register, `CGLA`.
pub const ID_VALUE: u32 = 0x4347_4c41;

/// Module `nf_cgla_top`.
pub fn top(config: &ArrayConfig) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_cgla_top");
    m.doc(&format!(
        "Programmable linear array: {} rows, {} memory read ports of 128 bits, {} words of 64 \
         bits per local memory half",
        config.rows, config.ports, config.lmm_words
    ));
    m.port_group("AXI4-Lite control");
    let awaddr = m.input("s_axil_awaddr", 12);
    let awvalid = m.input("s_axil_awvalid", 1);
    let wdata = m.input("s_axil_wdata", 32);
    let wvalid = m.input("s_axil_wvalid", 1);
    let bready = m.input("s_axil_bready", 1);
    let araddr = m.input("s_axil_araddr", 12);
    let arvalid = m.input("s_axil_arvalid", 1);
    let rready = m.input("s_axil_rready", 1);
    let mut read_ports = vec![];
    for p in 0..config.ports {
        m.port_group(&format!("AXI4 read port {p}"));
        read_ports.push(
            [("arready", 1), ("rdata", 128), ("rlast", 1), ("rvalid", 1)]
                .map(|(n, w)| (n, m.input(&format!("m_axi_r{p}_{n}"), w))),
        );
    }
    m.port_group("AXI4 write port");
    let write_inputs = [("awready", 1), ("wready", 1), ("bvalid", 1)]
        .map(|(n, w)| (n, m.input(&format!("m_axi_w_{n}"), w)));

    m.section("Register writes: address and data are taken together");
    let bvalid = m.reg("bvalid_q", 1).with_reset(0);
    let write = (awvalid & wvalid & !bvalid.q()).named("write_register");
    bvalid.set_next(write | (bvalid.q() & !bready));
    let at = |address: u32| write & awaddr.eq_const(u128::from(address));
    let control = at(register::CONTROL).named("write_control");
    let start = m
        .reg("start_q", config.ports)
        .set_next(m.mux(control, wdata.trunc(config.ports), m.lit(0, config.ports)))
        .with_reset(0)
        .q();
    let linked = m
        .reg("linked_q", config.ports)
        .set_next(wdata.slice(8 + config.ports - 1, 8))
        .with_enable(control)
        .with_reset(0)
        .q();
    let active = m.reg("active_q", config.ports).with_reset(0);
    let enable = m
        .reg("interrupt_enable_q", 1)
        .set_next(wdata.bit(0))
        .with_enable(at(register::INTERRUPT))
        .with_reset(0)
        .q();

    m.section("Groups");
    let group_def = group(config)?;
    let write_master = m.instance("writer", &writer(config.ports)?);
    for (name, value) in write_inputs {
        write_master.input(name, value);
    }
    let groups: Vec<_> = (0..config.ports)
        .map(|g| m.instance(&format!("group{g}"), &group_def))
        .collect();
    let mut readable: Vec<(u128, Sig<'_>)> = vec![];
    let mut done_bits = vec![];
    for g in 0..config.ports {
        let unit = groups[g as usize];
        let offset = register::GROUP + g * register::GROUP_STRIDE;
        let low_word = |name: &str, address: u32, width: u32| {
            m.reg(&format!("{name}{g}_q"), width)
                .set_next(wdata.trunc(width))
                .with_enable(at(offset + address))
                .with_reset(0)
                .q()
        };
        let long = |name: &str, address: u32| {
            let low = low_word(&format!("{name}_low"), address, 32);
            let high = low_word(&format!("{name}_high"), address + 4, ADDRESS_BITS - 32);
            m.cat(&[high, low])
        };
        unit.input("start", start.bit(g))
            .input("linked", linked.bit(g))
            .input("program_addr", long("program_addr", register::PROGRAM_ADDR))
            .input(
                "program_beats",
                low_word("program_beats", register::PROGRAM_BEATS, BEATS_BITS),
            )
            .input("weight_addr", long("weight_addr", register::WEIGHT_ADDR))
            .input(
                "weight_beats",
                low_word("weight_beats", register::WEIGHT_BEATS, BEATS_BITS),
            )
            .input("out_addr", long("out_addr", register::OUT_ADDR));
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
        for (address, name) in [
            (register::CONF, "conf_cycles"),
            (register::LOAD, "load_cycles"),
            (register::EXEC, "exec_cycles"),
        ] {
            readable.push((u128::from(offset + address), unit.output(name)));
        }
        done_bits.push(unit.output("done"));
    }

    m.section("Launch: from start until every started group is done and every write answered");
    done_bits.reverse();
    let all_done = m.cat(&done_bits);
    let starting = start.or_reduce();
    let started = m.reg("started_q", config.ports).with_reset(0);
    started.set_next(start);
    // A started group leaves `done` one cycle after `start`.
    let settling = (starting | started.q().or_reduce()).named("settling");
    let running = m.reg("running_q", 1).with_reset(0);
    let groups_done = (!active.q() | all_done).and_reduce();
    let ends =
        (running.q() & !settling & groups_done & write_master.output("idle")).named("launch_ends");
    active.set_next(m.mux(starting, start, active.q()));
    running.set_next(starting | (running.q() & !ends));
    let done = m.reg("done_q", 1).with_reset(0);
    done.set_next((done.q() | ends) & !starting);
    let error = groups
        .iter()
        .fold(m.lit(0, 1), |any, g| any | g.output("error"));
    let cycles = m.reg("cycles_q", 32).with_reset(0);
    cycles.set_next(m.mux(
        starting,
        m.lit(0, 32),
        m.mux(running.q(), cycles.q().add_const(1), cycles.q()),
    ));
    let executing = groups
        .iter()
        .fold(m.lit(0, 1), |any, g| any | g.output("executing"));
    let last_exec = m
        .reg("last_exec_q", 32)
        .set_next(cycles.q())
        .with_enable(executing)
        .with_reset(0)
        .q();

    m.section("Register reads");
    let rvalid = m.reg("rvalid_q", 1).with_reset(0);
    let read = arvalid & !rvalid.q();
    rvalid.set_next(read | (rvalid.q() & !rready));
    let parameters = config.rows
        | config.ports << 8
        | config.lmm_words.ilog2() << 16
        | u32::from(config.lane_sign == LaneSign::UnsignedLo) << 24;
    let status = m.cat(&[m.lit(0, 29), error, done.q(), running.q()]);
    readable.extend([
        (u128::from(register::ID), m.lit(ID_VALUE.into(), 32)),
        (
            u128::from(register::PARAMETERS),
            m.lit(parameters.into(), 32),
        ),
        (u128::from(register::STATUS), status),
        (u128::from(register::CYCLES), cycles.q()),
        (u128::from(register::LAST_EXEC), last_exec),
    ]);
    let value = m.case(araddr, &readable, m.lit(0, 32));
    let rdata = m.reg("rdata_q", 32).set_next(value).with_enable(read).q();

    m.port_group("AXI4-Lite control");
    m.output("s_axil_awready", write);
    m.output("s_axil_wready", write);
    m.output("s_axil_bresp", m.lit(0, 2));
    m.output("s_axil_bvalid", bvalid.q());
    m.output("s_axil_arready", !rvalid.q());
    m.output("s_axil_rdata", rdata);
    m.output("s_axil_rresp", m.lit(0, 2));
    m.output("s_axil_rvalid", rvalid.q());
    for (p, unit) in groups.iter().enumerate() {
        m.port_group(&format!("AXI4 read port {p}"));
        let name = |n: &str| format!("m_axi_r{p}_{n}");
        m.output(&name("araddr"), unit.output("araddr"));
        m.output(&name("arlen"), unit.output("arlen"));
        m.output(&name("arsize"), m.lit(4, 3));
        m.output(&name("arburst"), m.lit(1, 2));
        m.output(&name("arvalid"), unit.output("arvalid"));
        m.output(&name("rready"), unit.output("rready"));
    }
    m.port_group("AXI4 write port");
    m.output("m_axi_w_awaddr", write_master.output("awaddr"));
    m.output("m_axi_w_awlen", m.lit(0, 8));
    m.output("m_axi_w_awsize", m.lit(4, 3));
    m.output("m_axi_w_awburst", m.lit(1, 2));
    m.output("m_axi_w_awvalid", write_master.output("awvalid"));
    m.output("m_axi_w_wdata", write_master.output("wdata"));
    m.output("m_axi_w_wstrb", write_master.output("wstrb"));
    m.output("m_axi_w_wlast", m.lit(1, 1));
    m.output("m_axi_w_wvalid", write_master.output("wvalid"));
    m.output("m_axi_w_bready", write_master.output("bready"));
    m.port_group("Interrupt, level, until the next start");
    m.output("irq", done.q() & enable);
    m.finish()
}
