//! AXI4-Lite slave: the register file of a [`RegisterMap`].

use super::registers::{Access, RegisterMap};
use super::stream::skid;
use crate::dsl::{DslError, Module, ModuleDef, Sig};
use std::sync::Arc;

/// AXI response codes.
const OKAY: u128 = 0;
const SLVERR: u128 = 2;

/// The register file as a module named after the map.
///
/// Bus ports: `s_axil_*` with 32 data bits. Address and data of a write may come in any order
/// and any distance; WSTRB selects bytes; a write to a read-only or unmapped register and a read
/// of an unmapped one are answered with SLVERR and change nothing. One write and one read per
/// cycle; every `ready` is a register output.
///
/// Register ports: `ReadOnly` input `<name>`; `ReadWrite` output `<name>`; `WriteOneToClear`
/// input `<name>_set` (wins over a clear) and output `<name>`; `WritePulse` output
/// `<name>_pulse`, high for one cycle.
pub fn register_file(map: &RegisterMap) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new(map.name());
    m.doc("AXI4-Lite register file: any order of AW and W, byte strobes, SLVERR on bad accesses.");
    let address = map.address_width();
    let address_skid = skid(address)?;
    let data_skid = skid(36)?;

    m.port_group("AXI4-Lite write address");
    let aw = m
        .instance("u_aw", &address_skid)
        .input("s_valid", m.input("s_axil_awvalid", 1))
        .input("s_data", m.input("s_axil_awaddr", address));
    m.output("s_axil_awready", aw.output("s_ready"));
    m.port_group("AXI4-Lite write data");
    let wvalid = m.input("s_axil_wvalid", 1);
    let wdata = m.input("s_axil_wdata", 32);
    let wstrb = m.input("s_axil_wstrb", 4);
    let w = m
        .instance("u_w", &data_skid)
        .input("s_valid", wvalid)
        .input("s_data", m.cat(&[wstrb, wdata]));
    m.output("s_axil_wready", w.output("s_ready"));
    m.port_group("AXI4-Lite write response");
    let bvalid = m.reg("bvalid_q", 1).with_reset(0);
    let bresp = m.reg("bresp_q", 2);
    m.output("s_axil_bvalid", bvalid.q());
    m.output("s_axil_bresp", bresp.q());
    let bready = m.input("s_axil_bready", 1);
    m.port_group("AXI4-Lite read address");
    let ar = m
        .instance("u_ar", &address_skid)
        .input("s_valid", m.input("s_axil_arvalid", 1))
        .input("s_data", m.input("s_axil_araddr", address));
    m.output("s_axil_arready", ar.output("s_ready"));
    m.port_group("AXI4-Lite read data");
    let rvalid = m.reg("rvalid_q", 1).with_reset(0);
    let rdata = m.reg("rdata_q", 32);
    let rresp = m.reg("rresp_q", 2);
    m.output("s_axil_rvalid", rvalid.q());
    m.output("s_axil_rdata", rdata.q());
    m.output("s_axil_rresp", rresp.q());
    let rready = m.input("s_axil_rready", 1);

    m.section("Write: both halves are here and the response register is free");
    let both = aw.output("m_valid") & w.output("m_valid");
    let write = (both & (!bvalid.q() | bready)).named("write");
    aw.input("m_ready", write);
    w.input("m_ready", write);
    // Byte addresses of one word share a register.
    let write_word = aw.output("m_data").slice(address - 1, 2);
    let w_data = w.output("m_data");
    let strobes: Vec<Sig> = (0..4).rev().map(|k| w_data.bit(32 + k).repeat(8)).collect();
    let strobe_mask = m.cat(&strobes).named("strobe_mask");
    let w_data = w_data.trunc(32);
    let word = |r: &super::registers::Register| u128::from(r.offset / 4);
    let arms: Vec<_> = map
        .registers()
        .iter()
        .filter(|r| r.access != Access::ReadOnly)
        .map(|r| (word(r), m.lit(OKAY, 2)))
        .collect();
    let write_response = m.case(write_word, &arms, m.lit(SLVERR, 2));
    bvalid.set_next(write | (bvalid.q() & !bready));
    bresp.set_next(write_response).with_enable(write);

    m.section("Registers");
    let mut read_arms = vec![];
    for r in map.registers() {
        let hit = || (write & write_word.eq_const(word(r))).named(&format!("write_{}", r.name));
        let mask = strobe_mask.trunc(r.width);
        let data = w_data.trunc(r.width);
        m.port_group(&r.doc);
        let value = match r.access {
            Access::ReadOnly => m.input(&r.name, r.width),
            Access::ReadWrite => {
                let reg = m
                    .reg(&format!("{}_q", r.name), r.width)
                    .with_reset(u128::from(r.reset));
                reg.set_next((data & mask) | (reg.q() & !mask))
                    .with_enable(hit());
                m.output(&r.name, reg.q());
                reg.q()
            }
            Access::WriteOneToClear => {
                let set = m.input(&format!("{}_set", r.name), r.width);
                let reg = m
                    .reg(&format!("{}_q", r.name), r.width)
                    .with_reset(u128::from(r.reset));
                let clear = data & mask & hit().repeat(r.width);
                reg.set_next(set | (reg.q() & !clear));
                m.output(&r.name, reg.q());
                reg.q()
            }
            Access::WritePulse => {
                let pulse = m.reg(&format!("{}_pulse_q", r.name), r.width).with_reset(0);
                pulse.set_next(data & mask & hit().repeat(r.width));
                m.output(&format!("{}_pulse", r.name), pulse.q());
                m.lit(0, r.width)
            }
        };
        read_arms.push((word(r), m.cat(&[m.lit(OKAY, 2), value.zext(32)])));
    }

    m.section("Read");
    let read = (ar.output("m_valid") & (!rvalid.q() | rready)).named("read");
    ar.input("m_ready", read);
    let read_word = ar.output("m_data").slice(address - 1, 2);
    let unmapped = m.cat(&[m.lit(SLVERR, 2), m.lit(0, 32)]);
    let answer = m.case(read_word, &read_arms, unmapped).named("answer");
    rvalid.set_next(read | (rvalid.q() & !rready));
    rdata.set_next(answer.trunc(32)).with_enable(read);
    rresp.set_next(answer.slice(33, 32)).with_enable(read);
    m.finish()
}
