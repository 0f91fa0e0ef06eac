//! AXI4 read master: two memory segments, one after the other, as one stream of beats.

use std::sync::Arc;

use super::fifo::fifo;
use super::{ADDRESS_BITS, BEATS_BITS};
use crate::dsl::{DslError, Module, ModuleDef};

/// Beats of the longest burst; bursts also end at this alignment, so none crosses 4 KiB.
pub const BURST_BEATS: u32 = 16;
/// Bursts that may be under way.
pub const OUTSTANDING: u32 = 16;
/// Beats buffered between the port and the loader.
pub const FIFO_BEATS: u32 = 64;

/// Module `nf_cgla_reader`. `start` takes the program segment and then the weight segment
/// (addresses in bytes, multiples of 16; counts in beats of 16 bytes, 0 skips).
pub fn reader() -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_cgla_reader");
    m.doc(
        "AXI4 read master: program segment, then weight segment, in bursts of up to 16 beats, \
         16 of them under way",
    );
    m.port_group("Segments");
    let start = m.input("start", 1);
    let program_addr = m.input("program_addr", ADDRESS_BITS);
    let program_beats = m.input("program_beats", BEATS_BITS);
    let weight_addr = m.input("weight_addr", ADDRESS_BITS);
    let weight_beats = m.input("weight_beats", BEATS_BITS);
    m.port_group("AXI4 read channels");
    let arready = m.input("arready", 1);
    let rdata = m.input("rdata", 128);
    let rresp = m.input("rresp", 2);
    let rlast = m.input("rlast", 1);
    let rvalid = m.input("rvalid", 1);
    m.port_group("Stream of beats");
    let out_ready = m.input("out_ready", 1);

    m.section("Address channel");
    let addr = m.reg("addr_q", ADDRESS_BITS);
    let left = m.reg("left_q", BEATS_BITS).with_reset(0);
    let second = m.reg("second_q", 1).with_reset(0);
    let in_flight = m.reg("in_flight_q", 5).with_reset(0);
    let arvalid = m.reg("arvalid_q", 1).with_reset(0);
    let araddr = m.reg("araddr_q", ADDRESS_BITS);
    let arlen = m.reg("arlen_q", 4);

    let to_boundary = m.lit(u128::from(BURST_BEATS), 5) - addr.q().slice(7, 4).zext(5);
    let short = left.q().ult(to_boundary.zext(BEATS_BITS));
    let length = m
        .mux(short, left.q().trunc(5), to_boundary)
        .named("burst_beats");
    let none_left = left.q().is_zero().named("none_left");
    let channel_free = !arvalid.q() | arready;
    let room = in_flight.q().ult(m.lit(u128::from(OUTSTANDING), 5));
    let issue = (!none_left & channel_free & room).named("issue");
    let switch = (none_left & second.q()).named("switch_segment");

    let stepped_addr = addr.q() + m.cat(&[length, m.lit(0, 4)]).zext(ADDRESS_BITS);
    addr.set_next(m.mux(
        start,
        program_addr,
        m.mux(switch, weight_addr, m.mux(issue, stepped_addr, addr.q())),
    ));
    left.set_next(m.mux(
        start,
        program_beats,
        m.mux(
            switch,
            weight_beats,
            m.mux(issue, left.q() - length.zext(BEATS_BITS), left.q()),
        ),
    ));
    second.set_next(m.mux(start, m.lit(1, 1), second.q() & !switch));
    arvalid.set_next(issue | (arvalid.q() & !arready));
    araddr.set_next(addr.q()).with_enable(issue);
    arlen
        .set_next(length.sub_const(1).trunc(4))
        .with_enable(issue);

    m.section("Data channel");
    let queue = m.instance("beats", &fifo(128, FIFO_BEATS)?);
    queue
        .input("in_data", rdata)
        .input("in_valid", rvalid)
        .input("out_ready", out_ready);
    let rready = queue.output("in_ready");
    let burst_done = rvalid & rready & rlast;
    let counted = m.mux(issue, in_flight.q().add_const(1), in_flight.q());
    in_flight.set_next(m.mux(burst_done, counted.sub_const(1), counted));

    // SLVERR and DECERR have the upper bit.
    let failed = m.reg("error_q", 1).with_reset(0);
    failed.set_next(!start & (failed.q() | (rvalid & rready & rresp.bit(1))));

    m.output("error", failed.q());
    m.output("araddr", araddr.q());
    m.output("arlen", arlen.q().zext(8));
    m.output("arvalid", arvalid.q());
    m.output("rready", rready);
    m.output("out_data", queue.output("out_data"));
    m.output("out_valid", queue.output("out_valid"));
    m.finish()
}
