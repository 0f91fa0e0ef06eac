//! Control of the moment blocks: from a block's largest moments to scales, and the second pass that encodes.

use super::super::config::AdamConfig;
use super::lane::{ENCODE_LATENCY, MAGNITUDES};
use crate::dsl::{DslError, MemSpec, MemStyle, Module, ModuleDef, Reg, Sig, addr_width};
use crate::hw::fp::{self, DIV_LATENCY as DIV, MUL_LATENCY as MUL};
use crate::trainer::cycles::SLOTS;
use crate::trainer::encode::bits_for;
use std::sync::Arc;

/// Cycles from the read of a row's largest moments to its scales in their write registers.
const SCALE_LATENCY: u32 = 2 + MUL + DIV + 1;

/// A flag through `stages` registers with reset.
fn flag<'m>(m: &'m Module, name: &str, value: Sig<'m>, stages: u32) -> Vec<Sig<'m>> {
    let mut list = vec![value];
    for k in 0..stages as usize {
        let next = m.reg_next(&format!("{name}{k}_q"), list[k]).with_reset(0);
        list.push(next.q());
    }
    list
}

/// Module `nf_moment_encoder`.
///
/// `desc_we` describes a block in the order in which blocks end: `desc_moment`, `desc_scale` (addresses of the first
/// bank's words), `desc_columns`, `desc_row0`, `desc_rows`, `desc_turn`. `u_end` marks the last step of a block at the
/// moments' exit; `u_slot` is the slot of the block there, the upper part of its address.
///
/// Scales: `collect_addr` to all lanes -> `largest_a`; then `scale_we` with `scale_lane`, `scale_addr`, `scale_word` and
/// `reciprocal_we` with the same lane, `reciprocal_addr`, `reciprocal_word`. Codes: `buffer_raddr`, `reciprocal_raddr`,
/// `e_step`, `e_first`, `e_head` as `nf_moment_block` wants them; `store` and `store_addr` with the codes.
/// `column_done` and `block_done` give room back. `storing`: codes are under way.
pub fn moment_encoder(config: &AdamConfig) -> Result<Arc<ModuleDef>, DslError> {
    let module = Module::new("nf_moment_encoder");
    let m = &module;
    m.doc("Moment blocks: scales of finished blocks, row after row, then their codes in a second pass.");
    let (banks, lanes, group) = (config.banks, config.lanes, config.group());
    let (q_bits, lane_bits) = (addr_width(group as u32), addr_width(lanes as u32));
    let slot_bits = addr_width(SLOTS as u32);
    let count = bits_for(banks);
    let scale_bits = config.scale_address_bits();
    let moment_bits = config.moment_address_bits();
    let no = |width| m.lit(0, width);

    m.port_group("Blocks, in the order in which they end");
    let desc_we = m.input("desc_we", 1);
    let fields = [
        ("desc_moment", moment_bits),
        ("desc_scale", scale_bits),
        ("desc_columns", config.column_bits()),
        ("desc_row0", count),
        ("desc_rows", count),
        ("desc_turn", count),
    ];
    let word: Vec<Sig> = fields.iter().map(|&(name, w)| m.input(name, w)).collect();
    let width = fields.iter().map(|f| f.1).sum();
    let blocks = m.mem(
        "blocks",
        MemSpec {
            depth: SLOTS as u32,
            width,
            style: MemStyle::Distributed,
            ..MemSpec::default()
        },
    );
    let counter = |name: &str, up: Sig<'_>| {
        let slot = m.reg(name, slot_bits).with_reset(0);
        slot.set_next(slot.q().add_const(1)).with_enable(up);
        slot.q()
    };
    blocks.write(counter("described_q", desc_we), m.cat(&word), desc_we);
    let field = |word: Sig<'_>, name: &str| {
        let mut top = width;
        for &(n, w) in &fields {
            if n == name {
                return m.cat(&[word]).slice(top - 1, top - w);
            }
            top -= w;
        }
        no(1)
    };
    let u_end = m.input("u_end", 1);
    m.output("u_slot", counter("u_slot_q", u_end));
    // Blocks that stand before a stage.
    let bits = bits_for(SLOTS);
    let in_and_out = |waiting: Reg<'_>, comes: Sig<'_>, goes: Sig<'_>| {
        waiting.set_next(waiting.q().add(comes.zext(bits)).sub(goes.zext(bits)));
    };

    m.section("Rows one after the other, two cycles each: largest moments to scales");
    // The largest moments of the last step are in their memory two cycles after it.
    let ended = flag(m, "ended", u_end, 2)[2];
    let collecting = m.reg("collecting_q", 1).with_reset(0);
    let left = m.reg("rows_left_q", count);
    let half = m.reg("half_q", 1);
    let row_done = (collecting.q() & half.q()).named("row_done");
    let collect_last = (row_done & left.q().is_zero()).named("collect_last");
    let ended_blocks = m.reg("ended_blocks_q", bits).with_reset(0);
    let collect =
        (ended_blocks.q().or_reduce() & (!collecting.q() | collect_last)).named("collect");
    in_and_out(ended_blocks, ended, collect);
    collecting.set_next(collect | (collecting.q() & !collect_last));
    let next_slot = counter("collect_next_q", collect);
    let block = blocks.read_comb(next_slot);
    let hold = |name: &str, value: Sig<'_>| {
        m.reg(name, value.width())
            .set_next(value)
            .with_enable(collect)
            .q()
    };
    let slot = hold("collect_slot_q", next_slot);
    let rows = hold("rows_q", field(block, "desc_rows"));
    let scale_base = hold("scale_base_q", field(block, "desc_scale"));
    let turn = field(block, "desc_turn");
    let split: Vec<Sig> = (0..banks)
        .map(|b| {
            m.cat(&[
                m.lit((b / group) as u128, lane_bits),
                m.lit((b % group) as u128, q_bits),
            ])
        })
        .collect();
    let bank_bits = addr_width(banks as u32);
    let turn = m.select(turn.trunc(bank_bits.min(turn.width())), &split);
    half.set_next(!collect & !half.q())
        .with_enable(collect | collecting.q());
    let moves = collect | row_done;
    left.set_next(m.mux(
        collect,
        m.lit(banks as u128 - 1, count),
        left.q().sub_const(1),
    ))
    .with_enable(moves);
    // A bank as (lane, q), counted up and around.
    let bank = |name: &str, start: Sig<'_>| {
        let q = m.reg(&format!("{name}_bank_q"), q_bits);
        let lane = m.reg(&format!("{name}_lane_q"), lane_bits);
        let wraps = q.q().eq_const(group as u128 - 1);
        let top = lane.q().eq_const(lanes as u128 - 1);
        let q_next = m.mux(wraps, no(q_bits), q.q().add_const(1));
        let lane_up = m.mux(top, no(lane_bits), lane.q().add_const(1));
        let lane_next = m.mux(wraps, lane_up, lane.q());
        q.set_next(m.mux(collect, start.trunc(q_bits), q_next))
            .with_enable(moves);
        let start = start.slice(q_bits + lane_bits - 1, q_bits);
        lane.set_next(m.mux(collect, start, lane_next))
            .with_enable(moves);
        (lane.q(), q.q())
    };
    let (from_lane, from_q) = bank("from", turn);
    let (to_lane, to_q) = bank("to", no(q_bits + lane_bits));
    let row = m.reg("row_q", count);
    let up = row.q().add_const(1);
    let up = m.mux(up.eq_const(banks as u128), no(count), up);
    row.set_next(m.mux(collect, field(block, "desc_row0"), up))
        .with_enable(moves);

    m.port_group("Largest moments of a row");
    m.output("collect_addr", m.cat(&[slot, from_q]));
    let of_lane: Vec<Sig> = (0..lanes)
        .map(|a| m.input(&format!("largest_{a}"), MAGNITUDES))
        .collect();
    let chosen = m.select(m.pipe("from_lane_late", from_lane, 1), &of_lane);
    // One multiplier and one divider: first moment, then root.
    let root = m.pipe("root_turn", half.q(), 1);
    let largest = m.mux(root, chosen.slice(61, 31), chosen.trunc(31));
    let largest = m.cat(&[no(1), m.reg_next("chosen_q", largest).q()]);
    let float = |x: f32| m.lit(u128::from(x.to_bits()), 32);
    let root = m.pipe("root_turn_late", root, 1);
    let step = m.mux(root, float(1.0 / 255.0), float(1.0 / 127.0));
    let scale = fp::mul(m, "u_scale", largest, step);
    let reciprocal = fp::div(m, "u_reciprocal", float(1.0), scale);
    let scale = m.delay("scale_late", scale, DIV);
    // A block of zeros: no code can be above zero.
    let reciprocal = reciprocal & scale.trunc(31).or_reduce().repeat(32);
    let m_scale = m.reg_next("m_scale_q", scale).q();
    let m_reciprocal = m.reg_next("m_reciprocal_q", reciprocal).q();
    let stages = SCALE_LATENCY - 1;
    let active = flag(m, "row_step", row_done, SCALE_LATENCY);
    let there = (row.q().ult(rows) & row_done).named("row_there");
    let there = flag(m, "row_valid", there, SCALE_LATENCY);
    let place = m.cat(&[scale_base + to_q.zext(scale_bits), slot, to_lane, to_q]);
    let place = m.pipe("place_out", m.delay("place", place, stages), 1);
    m.port_group("Scales and reciprocals");
    m.output("scale_we", there[SCALE_LATENCY as usize]);
    m.output("reciprocal_we", active[SCALE_LATENCY as usize]);
    let to_q = place.trunc(q_bits);
    m.output("scale_lane", place.slice(q_bits + lane_bits - 1, q_bits));
    let low = q_bits + lane_bits;
    let to_slot = place.slice(low + slot_bits - 1, low);
    m.output("reciprocal_addr", m.cat(&[to_slot, to_q]));
    m.output(
        "scale_addr",
        place.slice(low + slot_bits + scale_bits - 1, low + slot_bits),
    );
    let word = m.cat(&[scale, m_scale]);
    m.output("scale_word", m.reg_next("scale_word_q", word).q());
    let word = m.cat(&[reciprocal, m_reciprocal]);
    m.output("reciprocal_word", m.reg_next("reciprocal_word_q", word).q());

    m.section("Second pass: codes");
    let scaled = flag(m, "scaled", collect_last, SCALE_LATENCY + 1)[SCALE_LATENCY as usize + 1];
    let encoding = m.reg("encoding_q", 1).with_reset(0);
    let columns = m.reg("columns_left_q", config.column_bits());
    let q = m.reg("encode_bank_q", q_bits);
    let last_bank = q.q().eq_const(group as u128 - 1);
    let column_done = (encoding.q() & last_bank).named("column_end");
    let block_done = (column_done & columns.q().is_zero()).named("block_end");
    let scaled_blocks = m.reg("scaled_blocks_q", bits).with_reset(0);
    let encode = (scaled_blocks.q().or_reduce() & (!encoding.q() | block_done)).named("encode");
    in_and_out(scaled_blocks, scaled, encode);
    encoding.set_next(encode | (encoding.q() & !block_done));
    let next_slot = counter("encode_next_q", encode);
    let block = blocks.read_comb(next_slot);
    let slot = m
        .reg("encode_slot_q", slot_bits)
        .set_next(next_slot)
        .with_enable(encode)
        .q();
    let moves = encode | encoding.q();
    let start = field(block, "desc_columns").sub_const(1);
    let fewer = columns.q().sub(last_bank.zext(columns.q().width()));
    columns
        .set_next(m.mux(encode, start, fewer))
        .with_enable(moves);
    let q_next = m.mux(encode | last_bank, no(q_bits), q.q().add_const(1));
    q.set_next(q_next).with_enable(moves);
    let first = m.reg("first_column_q", 1);
    first
        .set_next(encode | (first.q() & !last_bank))
        .with_enable(moves);
    let address = m.reg("store_addr_q", moment_bits);
    let next = m.mux(
        encode,
        field(block, "desc_moment"),
        address.q().add_const(1),
    );
    address.set_next(next).with_enable(moves);
    let buffer = m
        .reg("buffer_raddr_q", config.buffer_address_bits())
        .with_reset(0);
    buffer
        .set_next(buffer.q().add_const(1))
        .with_enable(encoding.q());
    m.port_group("Encoder");
    m.output("buffer_raddr", buffer.q());
    let slot_addr = m.cat(&[slot, q.q()]);
    m.output("reciprocal_raddr", m.pipe("slot_addr", slot_addr, 1));
    let steps = flag(m, "encode_step", encoding.q(), ENCODE_LATENCY);
    m.output("e_step", steps[2]);
    m.output("e_first", m.pipe("e_first", first.q(), 2));
    m.output("e_head", m.pipe("e_head", q.q().is_zero(), 2));
    m.output("store", steps[ENCODE_LATENCY as usize]);
    m.output(
        "store_addr",
        m.delay("store_addr_late", address.q(), ENCODE_LATENCY),
    );
    m.output("storing", m.cat(&steps[1..]).or_reduce());
    m.port_group("Room");
    m.output("column_done", column_done);
    m.output("block_done", block_done);
    module.finish()
}
