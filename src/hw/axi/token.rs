//! Token input of the trainer: stream receiver and double-buffered token memory.

use super::stream::skid;
use crate::dsl::{DslError, MemSpec, MemStyle, Module, ModuleDef, Sig, addr_width};
use std::sync::Arc;

/// Cycles from an address to its token (`docs/machine.md` section 7).
const READ_LATENCY: u32 = crate::hw::trainer::READ_LATENCY;

/// Sizes of the token input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenInput {
    /// V: tokens are 0..V.
    pub vocab: usize,
    /// T: a sample is T + 1 tokens; the last one is a target only.
    pub seq_len: usize,
    /// B: lanes of a token tile.
    pub lanes: usize,
}

impl TokenInput {
    /// Bits of a token.
    pub fn token_bits(&self) -> u32 {
        addr_width(self.vocab as u32)
    }

    /// Token tiles of a sample.
    pub fn tiles(&self) -> usize {
        self.seq_len.div_ceil(self.lanes)
    }

    /// Module `nf_token_input`.
    ///
    /// Stream `s_axis_token_*`: 32-bit beats, one token each, T + 1 beats, TLAST on the last,
    /// TKEEP all ones. A packet of another length (`error_length`) or with a token >= V
    /// (`error_token`) is dropped whole; reception goes on after its TLAST. The next sample is
    /// received while the current one runs: `available` says that it is complete, `take` (only
    /// then) makes it the current one.
    ///
    /// Reads, data `READ_LATENCY` cycles after the address: `tok_v_en, tok_v_addr` (tile) ->
    /// `tok_lane_b = token[tile*B + b]` (kept while `tok_v_en` is 0); `tok_h_addr` (t) -> `tok_h`;
    /// `target_tile` -> `target_b = token[tile*B + b + 1]`. Lanes beyond T carry rubbish.
    pub fn build(&self) -> Result<Arc<ModuleDef>, DslError> {
        let m = Module::new("nf_token_input");
        m.doc("Receives samples of T + 1 tokens and serves the current one to the array.");
        let (bits, lanes) = (self.token_bits(), self.lanes as u32);
        let position = addr_width(self.seq_len as u32 + 1);
        let tile_bits = addr_width(self.tiles() as u32);
        let bank_bits = addr_width(lanes);

        m.port_group("Token stream");
        let tvalid = m.input("s_axis_token_tvalid", 1);
        let tdata = m.input("s_axis_token_tdata", 32);
        let tkeep = m.input("s_axis_token_tkeep", 4);
        let tlast = m.input("s_axis_token_tlast", 1);
        let slice = m
            .instance("u_slice", &skid(37)?)
            .input("s_valid", tvalid)
            .input("s_data", m.cat(&[tlast, tkeep, tdata]));
        m.output("s_axis_token_tready", slice.output("s_ready"));

        m.section("Reception");
        let state = m.fsm("state_q", &["Fill", "Drain", "Full"]);
        let take = m.input("take", 1);
        let ready = (!state.is("Full")).named("ready");
        slice.input("m_ready", ready);
        let beat = (slice.output("m_valid") & ready).named("beat");
        let payload = slice.output("m_data");
        let (data, last) = (payload.trunc(32), payload.bit(36));
        let partial = !payload.slice(35, 32).and_reduce();
        let filling = (beat & state.is("Fill")).named("filling");
        let draining = beat & state.is("Drain");

        let index = m.reg("index_q", position).with_reset(0);
        let at_end = index.q().eq_const(self.seq_len as u128).named("at_end");
        let wrong_token = (!data.ult(m.lit(self.vocab as u128, 32))).named("wrong_token");
        let spoilt = m.reg("spoilt_q", 1).with_reset(0);
        let wrong_length = (partial | last.xor(at_end)).named("wrong_length");
        let token_error = filling & wrong_token & !spoilt.q();
        let length_error = filling & wrong_length;
        let packet_ends = filling & (last | at_end);
        let good = last & at_end & !spoilt.q() & !wrong_token & !partial;
        spoilt
            .set_next(!packet_ends & (spoilt.q() | wrong_token | partial))
            .with_enable(filling);
        state.transitions(&[
            ("Fill", filling & good, "Full"),
            ("Fill", filling & at_end & !last, "Drain"),
            ("Drain", draining & last, "Fill"),
            ("Full", take, "Fill"),
        ]);
        m.output("available", state.is("Full"));
        m.output(
            "error_length",
            m.reg_next("error_length_q", length_error).with_reset(0).q(),
        );
        m.output(
            "error_token",
            m.reg_next("error_token_q", token_error).with_reset(0).q(),
        );

        m.section("Write position: token t lies in bank t mod B of tile t div B");
        let one_more = index.q().add_const(1);
        index
            .set_next(m.mux(packet_ends, m.lit(0, position), one_more))
            .with_enable(filling);
        let bank = m.reg("bank_q", bank_bits).with_reset(0);
        let tile = m.reg("tile_q", tile_bits).with_reset(0);
        let bank_wraps = bank.q().eq_const(u128::from(lanes - 1));
        let next_bank = m.mux(bank_wraps, m.lit(0, bank_bits), bank.q().add_const(1));
        bank.set_next(m.mux(packet_ends, m.lit(0, bank_bits), next_bank))
            .with_enable(filling);
        let next_tile = tile.q().add(bank_wraps.zext(tile_bits));
        tile.set_next(m.mux(packet_ends, m.lit(0, tile_bits), next_tile))
            .with_enable(filling);
        // Token t is the target of position t - 1, whose place is the one before.
        let earlier_bank = m
            .reg("earlier_bank_q", bank_bits)
            .set_next(bank.q())
            .with_enable(filling);
        let earlier_tile = m
            .reg("earlier_tile_q", tile_bits)
            .set_next(tile.q())
            .with_enable(filling);
        let fill_half = m.reg("fill_half_q", 1).with_reset(0);
        let taken = take & state.is("Full");
        fill_half.set_next(!fill_half.q()).with_enable(taken);
        let run_half = !fill_half.q();
        let token = data.trunc(bits).named("token");

        let memory = |name: &str, words: u32| {
            m.mem(
                name,
                MemSpec {
                    depth: words,
                    width: bits,
                    style: MemStyle::Distributed,
                    ..MemSpec::default()
                },
            )
        };
        let as_input = (filling & !at_end).named("as_input");
        let as_target = (filling & index.q().or_reduce()).named("as_target");

        m.section("Reads: the narrow address is delayed, the memory register comes last");
        m.port_group("Token tile");
        let v_en = m.input("tok_v_en", 1);
        let v_tile = m.input("tok_v_addr", tile_bits);
        let v_en = m.pipe("tok_v_en", v_en, READ_LATENCY - 1);
        let v_at = m.pipe("tok_v_addr", m.cat(&[run_half, v_tile]), READ_LATENCY - 1);
        let write_v = m.cat(&[fill_half.q(), tile.q()]);
        for b in 0..lanes {
            let mem = memory(&format!("lane{b}"), 2 << tile_bits);
            mem.write(write_v, token, as_input & bank.q().eq_const(u128::from(b)));
            m.output(&format!("tok_lane_{b}"), mem.read(v_at, v_en));
        }
        m.port_group("Targets of a token tile");
        let target_tile = m.input("target_tile", tile_bits);
        let target_at = m.pipe(
            "target_tile",
            m.cat(&[run_half, target_tile]),
            READ_LATENCY - 1,
        );
        let write_target = m.cat(&[fill_half.q(), earlier_tile.q()]);
        let always = m.lit(1, 1);
        for b in 0..lanes {
            let mem = memory(&format!("target{b}"), 2 << tile_bits);
            let here = earlier_bank.q().eq_const(u128::from(b));
            mem.write(write_target, token, as_target & here);
            m.output(&format!("target_{b}"), mem.read(target_at, always));
        }
        m.port_group("One token");
        let h_bits = addr_width(self.seq_len as u32);
        let h_addr = m.input("tok_h_addr", h_bits);
        let h_at = m.pipe("tok_h_addr", m.cat(&[run_half, h_addr]), READ_LATENCY - 1);
        let linear = memory("linear", 2 << h_bits);
        let h_write: Sig = index.q().trunc(h_bits);
        linear.write(m.cat(&[fill_half.q(), h_write]), token, as_input);
        m.output("tok_h", linear.read(h_at, always));
        m.finish()
    }
}
