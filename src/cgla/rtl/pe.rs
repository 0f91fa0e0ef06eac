//! A row of the array.

use std::sync::Arc;

use super::super::isa::field::{self, Field};
use super::super::isa::{Dest, Ex1, Ex2, Ex3, FormatB, Store};
use super::super::{ArrayConfig, LaneSign};
use super::{sma4_lane, token};
use crate::dsl::{Collision, DslError, MemSpec, MemStyle, Module, ModuleDef, Sig, addr_width};

/// Cycles from a token entering a row to the same token entering the next.
pub const ROW_LATENCY: u32 = 5;

/// A row, module `nf_cgla_row`: local memory of two halves with two read addresses, operand
/// formats, three execution stages, chain.
pub fn pe(config: &ArrayConfig) -> Result<Arc<ModuleDef>, DslError> {
    // Only lane 0 ever takes its first operand unsigned.
    let lanes = [sma4_lane(config.lane_sign)?, sma4_lane(LaneSign::Signed)?];
    let aw = addr_width(config.lmm_words);
    let m = Module::new("nf_cgla_row");
    m.doc(
        "One row of the array: local memory, operand formats, EX1 (integer, SMA4), EX2 (logic, \
         add), EX3 (shift, fold), chain\n5 cycles per row, 1 step per cycle",
    );
    m.port_group("Control token from the row above");
    let token_in = m.input("token", token::WIDTH);
    m.port_group("Chain words from the row above, one cycle behind the token");
    let (x_in, y_in) = (m.input("x", 64), m.input("y", 64));
    m.port_group("Configuration: bit 0 of the enable takes the word, bit 1 the constant");
    let cfg_data = m.input("cfg_data", 128);
    let cfg_enable = m.input("cfg_enable", 2);
    m.port_group("Local memory load");
    let load_data = m.input("load_data", 64);
    let load_halves = m.input("load_halves", 2);
    let load_set = m.input("load_set", 1);
    let load_base = m.input("load_base", aw);

    m.section("Configuration registers");
    let config_q = m
        .reg("config_q", field::USED)
        .set_next(cfg_data.trunc(field::USED))
        .with_enable(cfg_enable.bit(0))
        .with_reset(0)
        .q();
    let constant = m
        .reg("constant_q", 64)
        .set_next(cfg_data.trunc(64))
        .with_enable(cfg_enable.bit(1))
        .q();
    let get = |(low, width): Field| config_q.slice(low + width - 1, low);

    m.section("Token of every stage");
    let mut tokens = vec![token_in];
    for stage in 1..=ROW_LATENCY {
        let name = format!("token_q{stage}");
        let previous = tokens[stage as usize - 1];
        tokens.push(m.reg_next(&name, previous).with_reset(0).q());
    }
    let at = |stage: usize, bit: u32| tokens[stage].bit(bit);

    let (a_word, b_word) = local_memory(
        &m,
        config,
        &get,
        token_in,
        tokens[1].bit(token::HALF),
        Load {
            data: load_data,
            halves: load_halves,
            set: load_set,
            base: load_base,
        },
    );

    m.section("Stage 1: operand formats and sources");
    let low_unsigned = match config.lane_sign {
        LaneSign::Signed => m.lit(0, 1),
        LaneSign::UnsignedLo => get(field::LOW_UNSIGNED),
    };
    let a_operand = m.mux(
        get(field::FORMAT_A),
        fragments(&m, a_word, low_unsigned),
        a_word,
    );
    let b_operand = expand(
        &m,
        b_word,
        get(field::FORMAT_B),
        at(1, token::WORD_START),
        at(1, token::VALID),
    );
    let s1 = m.select(get(field::SOURCE1), &[a_operand, x_in, y_in, constant]);
    let s2 = m.select(get(field::SOURCE2), &[b_operand, x_in, y_in, constant]);
    let s1 = m.reg_next("source1_q", s1).q();
    let s2 = m.reg_next("source2_q", s2).q();

    m.section("Stages 2 and 3: EX1 and the accumulator");
    let ex1 = get(field::EX1);
    let is = |code: Ex1| ex1.eq_const(code as u128);
    let is_sma4 = is(Ex1::Sma4).named("is_sma4");
    let (is_min, is_max) = (is(Ex1::Min), is(Ex1::Max));
    let is_sum = (is(Ex1::Add) | is(Ex1::Sub)).named("is_sum");
    let subtracts = (!is(Ex1::Add)).named("subtracts");
    let keep = get(field::ACCUMULATE) & !at(3, token::FIRST);
    let accumulators: Vec<Sig<'_>> = (0..2)
        .map(|lane_index| {
            let _scope = m.name_scope(if lane_index == 0 { "lane0" } else { "lane1" });
            let low = 32 * lane_index;
            let (a, b) = (s1.slice(low + 31, low), s2.slice(low + 31, low));
            let sma4 = m
                .instance("sma4", &lanes[lane_index as usize])
                .input("a", a)
                .input("w", b);
            if lane_index == 0 && config.lane_sign == LaneSign::UnsignedLo {
                sma4.input("a_unsigned", low_unsigned);
            }
            // One adder: the bit below the operands is the carry in, the bit above the sign.
            let other = m.mux(subtracts, !b, b);
            let sum = (m.cat(&[a.sext(33), m.lit(1, 1)]) + m.cat(&[other.sext(33), subtracts]))
                .slice(33, 1);
            let less = sum.msb();
            let takes_b = (is_min & !less) | (is_max & less);
            let plain = m.mux(is_sum, sum.trunc(32), m.mux(takes_b, b, a));
            let plain = m.reg_next("plain_q", plain).q();
            let value = m.mux(is_sma4, sma4.output("sum").sext(32), plain);
            let acc = m.reg("acc_q", 32);
            let kept = m.mux(keep, acc.q(), m.lit(0, 32));
            acc.set_next(kept + value).with_enable(at(3, token::VALID));
            acc.q()
        })
        .collect();

    m.section("Stage 4: EX2");
    let x4 = m.pipe("x", x_in, 3);
    let y4 = m.pipe("y", y_in, 3);
    let s3 = m.select(get(field::SOURCE3), &[x4, y4, constant]);
    let ex2 = get(field::EX2);
    let second: Vec<Sig<'_>> = accumulators
        .iter()
        .enumerate()
        .map(|(lane_index, &acc)| {
            let low = 32 * lane_index as u32;
            let other = s3.slice(low + 31, low);
            m.case(
                ex2,
                &[
                    (Ex2::Add as u128, acc + other),
                    (Ex2::And as u128, acc & other),
                    (Ex2::Or as u128, acc | other),
                    (Ex2::Xor as u128, acc ^ other),
                ],
                acc,
            )
        })
        .collect();
    let lane0 = m.reg_next("ex2_lane0_q", second[0]).q();
    let lane1 = m.reg_next("ex2_lane1_q", second[1]).q();

    m.section("Stage 5: EX3");
    let shift = get(field::SHIFT);
    let ex3 = get(field::EX3);
    let fold_up = ex3.eq_const(Ex3::FoldUp as u128);
    let fold = (ex3.eq_const(Ex3::Fold as u128) | fold_up).named("is_fold");
    let left = (fold | ex3.eq_const(Ex3::Sll as u128)).named("is_left");
    let signed = ex3.eq_const(Ex3::Sra as u128);
    let none = m.case(
        ex3,
        &[Ex3::Sll, Ex3::Srl, Ex3::Sra, Ex3::Fold, Ex3::FoldUp]
            .map(|code| (code as u128, m.lit(0, 1))),
        m.lit(1, 1),
    );
    let amount = m.mux(none, m.lit(0, field::SHIFT.1), shift).named("amount");
    // One right shifter per lane; a left shift goes through it reversed.
    let shifted = |lane: Sig<'_>| {
        let turned = m.mux(left, reversed(&m, lane), lane);
        let fill = signed & lane.msb();
        let out = m.cat(&[fill, turned]).sra(amount).trunc(32);
        m.mux(left, reversed(&m, out), out)
    };
    let shifted1 = shifted(lane1).named("lane1_shifted");
    let folded = lane0 + shifted1;
    let nothing = m.lit(0, 32);
    let low = m.mux(fold, m.mux(fold_up, nothing, folded), shifted(lane0));
    let high = m.mux(fold, m.mux(fold_up, folded, nothing), shifted1);
    let result = m.cat(&[high, low]);
    let dest = get(field::DEST);
    let x5 = m.reg_next("x_q4", x4).q();
    let y5 = m.reg_next("y_q4", y4).q();
    let x_next = m.mux(dest.eq_const(Dest::X as u128), result, x5);
    let y_next = m.mux(dest.eq_const(Dest::Y as u128), result, y5);

    m.port_group("Control token and chain words to the row below");
    m.output("token_out", tokens[ROW_LATENCY as usize]);
    m.output("x_out", m.reg_next("x_out_q", x_next).q());
    m.output("y_out", m.reg_next("y_out_q", y_next).q());

    m.section("Store");
    let store = get(field::STORE);
    let every = store.eq_const(Store::Every as u128);
    let last = store.eq_const(Store::Last as u128) & at(5, token::LAST);
    let storing = at(5, token::VALID) & (every | last);
    m.port_group("Result of a storing row; the group counts its credits");
    m.valid_only("store");
    m.output(
        "store_valid",
        m.reg_next("store_valid_q", storing).with_reset(0).q(),
    );
    m.output(
        "store_final",
        m.reg_next("store_final_q", at(5, token::FINAL)).q(),
    );
    m.output("store_wide", get(field::STORE_WIDE));
    m.output("store_data", m.reg_next("store_data_q", result).q());
    m.finish()
}

struct Load<'m> {
    data: Sig<'m>,
    halves: Sig<'m>,
    set: Sig<'m>,
    base: Sig<'m>,
}

/// Address generators and the two halves; returns the words of ports A and B at stage 1.
fn local_memory<'m>(
    m: &'m Module,
    config: &ArrayConfig,
    get: &dyn Fn(Field) -> Sig<'m>,
    token_in: Sig<'m>,
    half_read: Sig<'m>,
    load: Load<'m>,
) -> (Sig<'m>, Sig<'m>) {
    let aw = addr_width(config.lmm_words);
    let bit = |index| token_in.bit(index);
    let (valid, last) = (bit(token::VALID), bit(token::LAST));
    let (row_end, tile_start) = (bit(token::ROW_END), bit(token::TILE_START));
    let step = |f: Field| {
        let signed = get(f);
        if signed.width() < aw {
            signed.sext(aw)
        } else {
            signed.trunc(aw)
        }
    };

    m.section("Address generator A: next step, next token, or back to the first token");
    let a_q = m.reg("a_address_q", aw);
    let a_base = step(field::A_BASE);
    let a = m.mux(tile_start, a_base, a_q.q()).named("a_address");
    let a_next = m.mux(
        last,
        m.mux(row_end, a_base, a + step(field::A_OUTER)),
        a + step(field::A_INNER),
    );
    a_q.set_next(a_next).with_enable(valid);

    m.section("Address generator B: next word, back to the row's first word, or next row");
    let b_q = m.reg("b_address_q", aw);
    let row_q = m.reg("b_row_q", aw);
    let b_base = step(field::B_BASE);
    let b = m.mux(tile_start, b_base, b_q.q()).named("b_address");
    let row = m.mux(tile_start, b_base, row_q.q()).named("b_row");
    let next_row = m.mux(last & row_end, row + step(field::B_OUTER), row);
    row_q.set_next(next_row).with_enable(valid);
    let stepped = m.mux(bit(token::WORD_END), b + step(field::B_INNER), b);
    let rewinds = last & !get(field::STREAM_B);
    b_q.set_next(m.mux(rewinds, next_row, stepped))
        .with_enable(valid);

    m.section("Local memory: one half is read while the other is loaded");
    let pointer = m.reg("load_pointer_q", aw);
    let loading = load.halves.or_reduce();
    pointer.set_next(m.mux(
        load.set,
        load.base,
        m.mux(loading, pointer.q().add_const(1), pointer.q()),
    ));
    let mut words = vec![];
    for half in 0..2u32 {
        let mem = m.mem(
            &format!("lmm{half}"),
            MemSpec {
                depth: config.lmm_words,
                width: 64,
                style: MemStyle::Block,
                collision: Collision::Undefined,
                ..MemSpec::default()
            },
        );
        let write = load.halves.bit(half);
        let reads = if half == 0 {
            valid & !bit(token::HALF)
        } else {
            valid & bit(token::HALF)
        };
        // Loading and port B share an address: the half is never in both uses.
        let shared = m.mux(write, pointer.q(), b);
        mem.write(shared, load.data, write);
        words.push((mem.read(a, reads), mem.read(shared, reads)));
    }
    let pick = |w0, w1| m.mux(half_read, w1, w0);
    (pick(words[0].0, words[1].0), pick(words[0].1, words[1].1))
}

/// The bits in the opposite order.
fn reversed<'m>(m: &'m Module, value: Sig<'_>) -> Sig<'m> {
    let bits: Vec<Sig<'_>> = (0..value.width()).map(|i| value.bit(i)).collect();
    m.cat(&bits)
}

/// Eight int8 values to low nibbles on lane 0 and high nibbles on lane 1. With signed low
/// nibbles the high one takes the carry, modulo 16.
fn fragments<'m>(m: &'m Module, word: Sig<'m>, low_unsigned: Sig<'m>) -> Sig<'m> {
    let mut low = vec![];
    let mut high = vec![];
    for i in (0..8).rev() {
        let byte = word.slice(8 * i + 7, 8 * i);
        low.push(byte.slice(3, 0));
        // Counting up in gates: four bits are not worth a carry chain.
        let mut carry = byte.bit(3) & !low_unsigned;
        let mut counted = vec![];
        for bit in 4..8 {
            counted.push(byte.bit(bit) ^ carry);
            carry = carry & byte.bit(bit);
        }
        counted.reverse();
        high.push(m.cat(&counted));
    }
    high.extend(low);
    m.cat(&high)
}

/// Digit extraction: every byte yields its most significant digit and moves up, so that one
/// datapath serves 2-bit codes, trits in base 3 and nibbles.
fn expand<'m>(
    m: &'m Module,
    word: Sig<'m>,
    format: Sig<'m>,
    word_start: Sig<'m>,
    valid: Sig<'m>,
) -> Sig<'m> {
    let rest = m.reg("digits_q", 64);
    let current = m.mux(word_start, word, rest.q()).named("digits");
    let trits = format.eq_const(FormatB::FiveTrits as u128);
    let nibbles = format.eq_const(FormatB::Nibbles as u128);
    let mut operands = vec![];
    let mut moved = vec![];
    for i in (0..8).rev() {
        let byte = current.slice(8 * i + 7, 8 * i);
        // Three or four times the byte, by one adder.
        let doubled = m.cat(&[byte, m.lit(0, 1)]).zext(10);
        let product = doubled + m.mux(trits, byte.zext(10), doubled);
        let code = product.slice(9, 8);
        let is_zero = code.is_zero();
        // code - 1 as int4
        let weight = m.cat(&[is_zero, is_zero, is_zero | code.and_reduce(), !code.bit(0)]);
        operands.push(m.mux(nibbles, byte.slice(7, 4), weight));
        let up = m.cat(&[byte.slice(3, 0), m.lit(0, 4)]);
        moved.push(m.mux(nibbles, up, product.slice(7, 0)));
    }
    rest.set_next(m.cat(&moved)).with_enable(valid);
    let lane = m.cat(&operands);
    let both = m.cat(&[lane, lane]);
    m.mux(format.eq_const(FormatB::Raw as u128), word, both)
}
