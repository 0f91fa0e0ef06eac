//! Issues the control tokens of a tile.

use std::sync::Arc;

use super::super::packet;
use super::{is_half, token};
use crate::dsl::{DslError, Module, ModuleDef, Sig};

/// Results that may be on their way or waiting in a group's store queue.
pub const CREDITS: u32 = 64;

/// Module `nf_cgla_sequencer`: outputs of a tile, tokens of an output, steps of a dot product.
pub fn sequencer() -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_cgla_sequencer");
    m.doc(
        "Walks outputs, tokens and steps of a tile, one control token per cycle while there are \
         credits for its result\n2 cycles between tiles",
    );
    m.port_group("Tile from the loader");
    let enqueue = m.input("enqueue", 1);
    let half = m.input("tile_half", 1);
    let fields = [
        ("tile_count", packet::TILE.1),
        ("tile_steps", packet::STEPS.1),
        ("tile_tokens", packet::TOKENS.1),
        ("tile_digits", packet::DIGITS.1),
        ("tile_store", packet::STORE_MODE.1),
        ("tile_final", 1),
    ];
    let inputs: Vec<Sig<'_>> = fields.iter().map(|(n, w)| m.input(n, *w)).collect();
    m.port_group("A result left the store queue");
    let credit = m.input("credit", 1);

    m.section("Two waiting tiles, one per half of the local memories");
    let running = m.reg("running_q", 1).with_reset(0);
    let exec_half = m.reg("exec_half_q", 1).with_reset(0);
    let pending: Vec<_> = (0..2)
        .map(|h| m.reg(&format!("pending{h}_q"), 1).with_reset(0))
        .collect();
    let waiting = m.mux(exec_half.q(), pending[1].q(), pending[0].q());
    let begin = (!running.q() & waiting).named("begin_tile");
    for (h, reg) in pending.iter().enumerate() {
        let set = enqueue & is_half(h, half);
        let clear = begin & is_half(h, exec_half.q());
        reg.set_next(set | (reg.q() & !clear));
    }
    let params: Vec<Sig<'_>> = fields
        .iter()
        .zip(&inputs)
        .map(|((name, width), &value)| {
            let kept: Vec<Sig<'_>> = (0..2)
                .map(|h| {
                    m.reg(&format!("{name}{h}_q"), *width)
                        .set_next(value)
                        .with_enable(enqueue & is_half(h, half))
                        .q()
                })
                .collect();
            m.mux(exec_half.q(), kept[1], kept[0])
        })
        .collect();
    let (count, steps, tokens) = (params[0], params[1], params[2]);
    let (digits, store, is_final) = (params[3], params[4], params[5]);

    m.section("Position within the tile");
    let outputs_left = m.reg("outputs_left_q", packet::TILE.1);
    let tokens_left = m.reg("tokens_left_q", packet::TOKENS.1);
    let steps_left = m.reg("steps_left_q", packet::STEPS.1);
    let digits_left = m.reg("digits_left_q", packet::DIGITS.1);
    let first = m.reg("first_q", 1);
    let word_start = m.reg("word_start_q", 1);
    let tile_start = m.reg("tile_start_q", 1);
    let last = steps_left.q().eq_const(1).named("last_step");
    let row_end = tokens_left.q().eq_const(1).named("last_token");
    let word_end = digits_left.q().eq_const(1).named("last_digit");
    let tile_end = (last & row_end & outputs_left.q().eq_const(1)).named("last_of_tile");

    let credits = m.reg("credits_q", 7).with_reset(u128::from(CREDITS));
    let stores = (store.bit(1) | (store.bit(0) & last)).named("step_stores");
    let go = (running.q() & (!stores | credits.q().or_reduce())).named("issue_step");
    let spent = m.mux(go & stores, credits.q().sub_const(1), credits.q());
    credits.set_next(m.mux(credit, spent.add_const(1), spent));

    let reload = |again: Sig<'_>, fresh: Sig<'_>, now: Sig<'_>| {
        m.mux(begin | again, fresh, now.sub_const(1))
    };
    steps_left
        .set_next(reload(last, steps, steps_left.q()))
        .with_enable(begin | go);
    digits_left
        .set_next(reload(word_end, digits, digits_left.q()))
        .with_enable(begin | go);
    tokens_left
        .set_next(reload(row_end, tokens, tokens_left.q()))
        .with_enable(begin | (go & last));
    outputs_left
        .set_next(m.mux(begin, count, outputs_left.q().sub_const(1)))
        .with_enable(begin | (go & last & row_end));
    first.set_next(begin | last).with_enable(begin | go);
    word_start
        .set_next(begin | word_end)
        .with_enable(begin | go);
    tile_start.set_next(begin).with_enable(begin | go);
    let ends = go & tile_end;
    running.set_next(begin | (running.q() & !ends));
    exec_half.set_next(exec_half.q() ^ ends);

    m.section("Token");
    let mut bits = vec![m.lit(0, 1); token::WIDTH as usize];
    for (position, bit) in [
        (token::VALID, go),
        (token::FIRST, first.q()),
        (token::LAST, last),
        (token::ROW_END, row_end),
        (token::WORD_START, word_start.q()),
        (token::WORD_END, word_end),
        (token::TILE_START, tile_start.q()),
        (token::TILE_END, tile_end),
        (token::HALF, exec_half.q()),
        (token::FINAL, tile_end & is_final),
    ] {
        bits[position as usize] = bit;
    }
    bits.reverse();
    m.output(
        "token",
        m.reg_next("token_q", m.cat(&bits)).with_reset(0).q(),
    );
    m.output("counts_exec", go);
    m.finish()
}
