//! 8-bit block moments in the Adam unit: scales in, largest moments, scales and codes out.

mod encoder;
mod lane;

pub use encoder::moment_encoder;
pub use lane::moment_block;

use super::config::AdamConfig;
use super::storage;
use crate::dsl::{DslError, Instance, Module, Sig};

/// The parts of the unit that only 8-bit blocks have.
pub struct Blocks<'m> {
    lanes: Vec<Instance<'m>>,
    banks: Vec<Instance<'m>>,
    encoder: Instance<'m>,
}

impl<'m> Blocks<'m> {
    /// Scale memories, encoder, and the scales' way to the operands.
    pub fn new(
        m: &'m Module,
        config: &AdamConfig,
        issue: Instance<'m>,
        stream: Instance<'m>,
    ) -> Result<Self, DslError> {
        m.section("Scales of moment blocks");
        let active = stream.output("state_active");
        let raddr = m.mux(
            active,
            stream
                .output("moment_addr")
                .trunc(config.scale_address_bits()),
            issue.output("scale_addr"),
        );
        let raddr = m.reg_next("scale_raddr_q", raddr).q();
        let bank = storage::scale_bank(config)?;
        let lane = moment_block(config)?;
        let encoder = m.instance("u_encoder", &moment_encoder(config)?);
        let late = AdamConfig::OPERAND_LATENCY;
        let step = issue.output("issue") & !issue.output("layernorm");
        let step = m.delay("d_step", step, late);
        let first = m.delay("d_first", issue.output("first_column"), late);
        let head = m.delay("d_head", issue.output("q").is_zero(), late);
        let (mut lanes, mut banks) = (vec![], vec![]);
        for a in 0..config.lanes {
            let bank = m
                .instance(&format!("u_scales{a}"), &bank)
                .input("raddr", raddr);
            stream.input(&format!("scales_{a}"), bank.output("rdata"));
            let lane = m
                .instance(&format!("u_block{a}"), &lane)
                .input("scale_word", bank.output("rdata"))
                .input("d_step", step)
                .input("d_first", first)
                .input("d_head", head);
            encoder.input(&format!("largest_{a}"), lane.output("largest"));
            lanes.push(lane);
            banks.push(bank);
        }
        for (a, lane) in lanes.iter().enumerate() {
            let before = &lanes[(a + config.lanes - 1) % config.lanes];
            for way in ["d", "u", "e"] {
                let carry = before.output(&format!("{way}_carry"));
                lane.input(&format!("{way}_link"), carry);
            }
        }
        for port in [
            "desc_we",
            "desc_moment",
            "desc_scale",
            "desc_columns",
            "desc_row0",
            "desc_rows",
            "desc_turn",
        ] {
            encoder.input(port, issue.output(port));
        }
        for port in ["column_done", "block_done"] {
            issue.input(port, encoder.output(port));
        }
        Ok(Self {
            lanes,
            banks,
            encoder,
        })
    }

    /// Scales {sv, sm} for the operands of lane `a`, one cycle behind the codes.
    pub fn scales(&self, a: usize) -> (Sig<'m>, Sig<'m>) {
        let word = self.lanes[a].output("d_carry");
        (word.slice(63, 32), word.trunc(32))
    }

    /// The lanes' results to the encoder, `late` cycles behind the address generator; `settled`: they can be believed.
    pub fn results(
        &self,
        m: &'m Module,
        config: &AdamConfig,
        issue: Instance<'m>,
        units: &[Instance<'m>],
        late: u32,
        settled: Sig<'m>,
    ) {
        m.section("Moment blocks: from the lanes to the encoder");
        let step = issue.output("issue") & !issue.output("layernorm");
        let step = m.delay("u_step", step, late) & settled;
        let first = m.delay("u_first", issue.output("first_column"), late);
        let last = m.delay("u_last", issue.output("last_column"), late);
        let q = m.delay("u_q", issue.output("q"), late);
        let end = step & last & q.eq_const(config.group() as u128 - 1);
        let encoder = self.encoder;
        encoder.input("u_end", end);
        let slot = m.cat(&[encoder.output("u_slot"), q]);
        let waddr = m
            .reg("buffer_waddr_q", config.buffer_address_bits())
            .with_reset(0);
        waddr.set_next(waddr.q().add_const(1)).with_enable(step);
        for (a, (lane, unit)) in self.lanes.iter().zip(units).enumerate() {
            for port in ["m_new", "root_new", "m_random", "v_random"] {
                lane.input(port, unit.output(port));
            }
            let mine = encoder.output("scale_lane").eq_const(a as u128);
            lane.input("valid", unit.output("moment_valid"))
                .input("u_step", step)
                .input("u_first", first)
                .input("u_head", q.is_zero())
                .input("u_last", last)
                .input("u_slot", slot)
                .input("buffer_waddr", waddr.q())
                .input("reciprocal_we", encoder.output("reciprocal_we") & mine)
                .input("reciprocal_waddr", encoder.output("reciprocal_addr"))
                .input("reciprocal_word", encoder.output("reciprocal_word"));
            for port in [
                "collect_addr",
                "buffer_raddr",
                "reciprocal_raddr",
                "e_step",
                "e_first",
                "e_head",
            ] {
                lane.input(port, encoder.output(port));
            }
        }
    }

    /// Write ports of the scale memories: the encoder's, or the state stream's.
    pub fn write_scales(&self, m: &'m Module, stream: Instance<'m>) {
        m.section("Scales back");
        let (active, encoder) = (stream.output("state_active"), self.encoder);
        let addr = encoder.output("scale_addr");
        let addr = m.mux(
            active,
            stream.output("moment_addr").trunc(addr.width()),
            addr,
        );
        let addr = m.reg_next("scale_waddr_q", addr).q();
        let word = m.cat(&[stream.output("data_m"), stream.output("data_w")]);
        let word = m.mux(active, word, encoder.output("scale_word"));
        let word = m.reg_next("scale_wdata_q", word).q();
        let from_stream = stream.output("write") & stream.output("scales");
        for (a, bank) in self.banks.iter().enumerate() {
            let mine = |lane: Sig<'m>| lane.eq_const(a as u128);
            let we = (encoder.output("scale_we") & mine(encoder.output("scale_lane")))
                | (from_stream & mine(stream.output("lane")));
            let we = m.reg_next(&format!("scale_we{a}_q"), we).with_reset(0).q();
            bank.input("we", we)
                .input("waddr", addr)
                .input("wdata", word);
        }
    }

    /// Whether lane `a` stores codes now, and the codes {v, m}.
    pub fn codes(&self, a: usize) -> (Sig<'m>, Sig<'m>) {
        let lane = self.lanes[a];
        let store = self.encoder.output("store") & lane.output("code_valid");
        (store, lane.output("code"))
    }

    /// Address of the codes that are stored.
    pub fn store_addr(&self) -> Sig<'m> {
        self.encoder.output("store_addr")
    }

    /// Codes or scales are still to be stored.
    pub fn busy(&self, m: &'m Module, issue: Instance<'m>) -> Sig<'m> {
        let busy = issue.output("blocks_held") | self.encoder.output("storing");
        m.reg_next("moments_busy_q", busy).with_reset(0).q()
    }
}
