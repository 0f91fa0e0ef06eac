//! AXI4 write master shared by the groups.

use std::sync::Arc;

use super::ADDRESS_BITS;
use crate::dsl::{DslError, Module, ModuleDef, Sig};

/// Writes that may be without their response.
pub const OUTSTANDING: u32 = 16;

/// Module `nf_cgla_writer`: single-beat bursts, 16 under way, lower groups first.
pub fn writer(groups: u32) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_cgla_writer");
    m.doc("AXI4 write master: beats of all groups, up to 16 without response");
    let start = m.input("start", 1);
    let mut beats = vec![];
    for g in 0..groups {
        m.port_group(&format!("Beat of group {g}"));
        beats.push((
            m.input(&format!("beat{g}_valid"), 1),
            m.input(&format!("beat{g}_addr"), ADDRESS_BITS),
            m.input(&format!("beat{g}_data"), 128),
            m.input(&format!("beat{g}_strobe"), 16),
        ));
    }
    m.port_group("AXI4 write channels");
    let awready = m.input("awready", 1);
    let wready = m.input("wready", 1);
    let bresp = m.input("bresp", 2);
    let bvalid = m.input("bvalid", 1);

    let awvalid = m.reg("awvalid_q", 1).with_reset(0);
    let wvalid = m.reg("wvalid_q", 1).with_reset(0);
    let pending = m.reg("pending_q", 5).with_reset(0);
    let free = (!awvalid.q() | awready) & (!wvalid.q() | wready);
    let room = pending.q().ult(m.lit(u128::from(OUTSTANDING), 5));
    let can = (free & room).named("can_take");
    let mut taken = m.lit(0, 1);
    let mut addr = m.lit(0, ADDRESS_BITS);
    let mut data = m.lit(0, 128);
    let mut strobe = m.lit(0, 16);
    let mut grants: Vec<Sig<'_>> = vec![];
    for (valid, a, d, s) in &beats {
        let grant = *valid & !taken;
        grants.push(grant & can);
        addr = m.mux(grant, *a, addr);
        data = m.mux(grant, *d, data);
        strobe = m.mux(grant, *s, strobe);
        taken = taken | *valid;
    }
    let take = (taken & can).named("take_beat");
    awvalid.set_next(take | (awvalid.q() & !awready));
    wvalid.set_next(take | (wvalid.q() & !wready));
    let counted = m.mux(take, pending.q().add_const(1), pending.q());
    pending.set_next(m.mux(bvalid, counted.sub_const(1), counted));
    let keep = |name: &str, value: Sig<'_>| {
        m.reg(name, value.width())
            .set_next(value)
            .with_enable(take)
            .q()
    };
    for (g, grant) in grants.into_iter().enumerate() {
        m.output(&format!("beat{g}_ready"), grant);
    }
    m.output("awaddr", keep("awaddr_q", addr));
    m.output("awvalid", awvalid.q());
    m.output("wdata", keep("wdata_q", data));
    m.output("wstrb", keep("wstrb_q", strobe));
    m.output("wvalid", wvalid.q());
    m.output("bready", m.lit(1, 1));
    // SLVERR and DECERR have the upper bit.
    let failed = m.reg("error_q", 1).with_reset(0);
    failed.set_next(!start & (failed.q() | (bvalid & bresp.bit(1))));
    m.output("error", failed.q());
    m.output("idle", pending.q().is_zero());
    m.finish()
}
