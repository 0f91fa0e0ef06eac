//! Result output of the trainer: one packet per sample.

use super::stream::{fifo, skid};
use crate::dsl::{DslError, Module, ModuleDef, Sig, addr_width};
use crate::hw::fp;
use crate::trainer::encode::bits_for;
use std::sync::Arc;

/// Words before the logits: loss (FP32 bits), loss in Q24 low and high, correct predictions,
/// step, cycles low and high.
pub const HEADER_WORDS: usize = 7;

/// Cycles from `logit_raddr` to `logit_rdata`.
const LOGIT_LATENCY: u32 = 2;

/// Words between the logit buffer and the stream.
const FIFO_DEPTH: u32 = 8;

/// Module `nf_result_output`.
///
/// `start` (a pulse, only while not `busy`) captures `loss_q24[48]`, `correct[16]`, `step[32]`,
/// `cycles[64]` and `with_logits`, and sends [`HEADER_WORDS`] words, then with `with_logits` the
/// `vocab` words of the logit buffer (`logit_raddr` -> `logit_rdata`, 2 cycles), TLAST on the
/// last. The logit buffer must keep its contents while `busy`. The loss is
/// `fl(fl32(loss_q24) * loss_scale)` (`docs/arithmetic.md` section 4); `loss` holds its bits,
/// new when `loss_valid` pulses.
pub fn result_output(vocab: usize) -> Result<Arc<ModuleDef>, DslError> {
    let module = Module::new("nf_result_output");
    let m = &module;
    m.doc("Sends one result packet per sample: loss, counters, and the logits of one position.");
    m.valid_only("loss");
    m.port_group("Result of a sample");
    let start = m.input("start", 1);
    let with_logits = m.input("with_logits", 1);
    let loss_q24 = m.input("loss_q24", 48);
    let correct = m.input("correct", 16);
    let step = m.input("step", 32);
    let cycles = m.input("cycles", 64);
    let loss_scale = m.input("loss_scale", 32);

    let state = m.fsm(
        "state_q",
        &["Idle", "Normalise", "Round", "Multiply", "Send", "Flush"],
    );
    let begin = (start & state.is("Idle")).named("begin_now");
    let capture = |name: &str, value: Sig<'_>| m.reg_next(name, value).with_enable(begin).q();
    let loss_kept = capture("loss_q24_q", loss_q24);
    let correct = capture("correct_q", correct);
    let step = capture("step_q", step);
    let cycles = capture("cycles_q", cycles);
    let with_logits = capture("with_logits_q", with_logits);

    m.section("fl32 of the sum: shift the leading one to the top, round to nearest even");
    let mantissa = m.reg("mantissa_q", 48);
    let exponent = m.reg("exponent_q", 8);
    let normal = (mantissa.q().msb() | exponent.q().is_zero()).named("normal");
    let shifts = (state.is("Normalise") & !normal).named("shifts");
    mantissa
        .set_next(m.mux(begin, loss_q24, mantissa.q().shl_const(1)))
        .with_enable(begin | shifts);
    // The leading bit of 48 is worth 2^47; a zero sum gets the exponent of zero at once.
    let start_exponent = m.mux(loss_q24.is_zero(), m.lit(0, 8), m.lit(127 + 47, 8));
    exponent
        .set_next(m.mux(begin, start_exponent, exponent.q().sub_const(1)))
        .with_enable(begin | shifts);
    let kept = m.cat(&[exponent.q(), mantissa.q().slice(46, 24)]);
    let sticky = mantissa.q().trunc(23).or_reduce();
    let up = mantissa.q().bit(23) & (sticky | mantissa.q().bit(24));
    let rounded = m.reg("rounded_q", 31);
    rounded
        .set_next(kept.add(up.zext(31)))
        .with_enable(state.is("Round"));
    let sum = m.cat(&[m.lit(0, 1), rounded.q()]);
    let product = fp::mul(m, "u_scale", sum, loss_scale);
    let wait_bits = bits_for(fp::MUL_LATENCY as usize);
    let wait = m.reg("wait_q", wait_bits);
    wait.set_next(m.mux(
        state.is("Round"),
        m.lit(u128::from(fp::MUL_LATENCY), wait_bits),
        wait.q().sub_const(1),
    ));
    let multiplied = (state.is("Multiply") & wait.q().is_zero()).named("multiplied");
    let loss = m.reg("loss_q", 32).with_reset(0);
    loss.set_next(product).with_enable(multiplied);
    m.output("loss", loss.q());
    m.output(
        "loss_valid",
        m.reg_next("loss_valid_q", multiplied).with_reset(0).q(),
    );

    m.section("Words: a number, then the logit buffer's latency, then the word");
    let words = HEADER_WORDS + vocab;
    let bits = addr_width(words as u32);
    let number = m.reg("number_q", bits);
    let credit_bits = bits_for(FIFO_DEPTH as usize);
    let credit = m
        .reg("credit_q", credit_bits)
        .with_reset(u128::from(FIFO_DEPTH));
    let send = (state.is("Send") & credit.q().or_reduce()).named("send");
    let final_number = m.mux(
        with_logits,
        m.lit(words as u128 - 1, bits),
        m.lit(HEADER_WORDS as u128 - 1, bits),
    );
    let last = number.q().eq(final_number).named("last");
    number
        .set_next(m.mux(begin, m.lit(0, bits), number.q().add_const(1)))
        .with_enable(begin | send);
    let vocab_bits = addr_width(vocab as u32);
    let logit_number = number.q().sub_const(HEADER_WORDS as u128).trunc(vocab_bits);
    m.port_group("Logit buffer");
    m.output("logit_raddr", m.reg_next("logit_raddr_q", logit_number).q());
    let logit = m.input("logit_rdata", 32);
    let is_header = number.q().ult(m.lit(HEADER_WORDS as u128, bits));
    let tag = m.cat(&[is_header, last, number.q().trunc(3)]);
    let tag = m.pipe("tag", tag, LOGIT_LATENCY + 1);
    let header = [
        loss.q(),
        loss_kept.trunc(32),
        loss_kept.slice(47, 32).zext(32),
        correct.zext(32),
        step,
        cycles.trunc(32),
        cycles.slice(63, 32),
    ];
    let word = m.mux(tag.bit(4), m.select(tag.trunc(3), &header), logit);
    let mut word_valid = send;
    for k in 0..=LOGIT_LATENCY {
        let name = format!("word_valid{k}_q");
        word_valid = m.reg_next(&name, word_valid).with_reset(0).q();
    }
    let buffer = m
        .instance("u_buffer", &fifo(33, FIFO_DEPTH)?)
        .input("s_valid", word_valid)
        .input("s_data", m.cat(&[tag.bit(3), word]));
    m.assert_(
        !word_valid | buffer.output("s_ready"),
        "the result buffer has room for every word under way",
    );
    let slice = m
        .instance("u_slice", &skid(33)?)
        .input("s_valid", buffer.output("m_valid"))
        .input("s_data", buffer.output("m_data"));
    buffer.input("m_ready", slice.output("s_ready"));
    let popped = buffer.output("m_valid") & slice.output("s_ready");
    credit.set_next(
        credit
            .q()
            .add(popped.zext(credit_bits))
            .sub(send.zext(credit_bits)),
    );
    m.port_group("Result stream");
    m.output("m_axis_result_tvalid", slice.output("m_valid"));
    m.output("m_axis_result_tdata", slice.output("m_data").trunc(32));
    m.output("m_axis_result_tkeep", m.lit(0xf, 4));
    m.output("m_axis_result_tlast", slice.output("m_data").bit(32));
    slice.input("m_ready", m.input("m_axis_result_tready", 1));

    let all_sent = credit.q().eq_const(u128::from(FIFO_DEPTH)) & !slice.output("m_valid");
    let always = m.lit(1, 1);
    state.transitions(&[
        ("Idle", start, "Normalise"),
        ("Normalise", normal, "Round"),
        ("Round", always, "Multiply"),
        ("Multiply", multiplied, "Send"),
        ("Send", send & last, "Flush"),
        ("Flush", all_sent, "Idle"),
    ]);
    m.output("busy", !state.is("Idle"));
    module.finish()
}
