//! Schedule unit: bias correction and learning rate of a step (`docs/arithmetic.md` section 5).
//!
//! A short program over one adder, one multiplier, one divider and one square root. It runs once
//! per step, beside the forward pass, so its length never shows.

use crate::dsl::{DslError, Module, ModuleDef, Sig};
use crate::hw::fp;
use crate::trainer::encode::bits_for;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// FP32 bits of 1.
const ONE: u128 = 0x3f80_0000;

/// Which unit an operation uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mul = 0,
    /// `a - b`.
    Sub = 1,
    Div = 2,
    Sqrt = 3,
}

/// Values an operation reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    P1,
    P2,
    Beta1,
    Beta2,
    /// The step, or the steps since warm-up, as FP32.
    Count,
    /// Slope of warm-up or of the decay.
    Slope,
    Peak,
    One,
    Lr,
    Root,
    Eps,
    /// Result of the operation before.
    Last,
    /// Result of the operation before that one.
    LastButOne,
}

/// The operations in order. What each result is kept as follows from its number.
const PROGRAM: [(Kind, Source, Source); 10] = {
    use Kind::*;
    use Source::*;
    [
        (Mul, P1, Beta1),
        (Mul, P2, Beta2),
        (Mul, Count, Slope),
        (Sub, Peak, Last),
        (Sub, One, P2),
        (Sqrt, Last, Last),
        (Mul, Lr, Root),
        (Sub, One, P1),
        (Div, LastButOne, Last),
        (Mul, Eps, Root),
    ]
};

/// Numbers of the operations whose results are kept.
const KEEP_P1: u128 = 0;
const KEEP_P2: u128 = 1;
const KEEP_WARMUP: u128 = 2;
const KEEP_DECAY: u128 = 3;
const KEEP_ROOT: u128 = 5;
const KEEP_ALPHA: u128 = 8;
const KEEP_EPS: u128 = 9;

/// Cycles from `start` to the end of `busy`, at most (the count is normalised bit by bit).
pub fn cycles() -> u32 {
    // Count, up to 32 shifts, rounding; then per operation load, wait, store.
    2 + 33 + PROGRAM.len() as u32 * (LONGEST + 3)
}

const LONGEST: u32 = {
    let a = if fp::DIV_LATENCY > fp::SQRT_LATENCY {
        fp::DIV_LATENCY
    } else {
        fp::SQRT_LATENCY
    };
    let b = if fp::ADD_LATENCY > fp::MUL_LATENCY {
        fp::ADD_LATENCY
    } else {
        fp::MUL_LATENCY
    };
    if a > b { a } else { b }
};

/// Module `nf_schedule_unit`.
///
/// `start` (a pulse, only while not `busy`) advances to the next step; `busy` falls when `step`,
/// `p1`, `p2`, `lr`, `alpha` and `eps_t` are those of the new step. `load` (only while not
/// `busy`) replaces `step`, `p1`, `p2` by `load_*`. Constants are held inputs: `beta1`, `beta2`,
/// `adam_eps`, `lr_peak`, `lr_warmup_slope`, `lr_decay`, `lr_min` (FP32), `warmup_steps`.
pub fn schedule_unit() -> Result<Arc<ModuleDef>, DslError> {
    let module = Module::new("nf_schedule_unit");
    let m = &module;
    m.doc("Learning rate and bias correction, one training step per start.");
    m.port_group("Control");
    let start = m.input("start", 1);
    let load = m.input("load", 1);
    let load_step = m.input("load_step", 32);
    let load_p1 = m.input("load_p1", 32);
    let load_p2 = m.input("load_p2", 32);
    m.port_group("Constants");
    let constant = |name: &str| m.input(name, 32);
    let (beta1, beta2) = (constant("beta1"), constant("beta2"));
    let adam_eps = constant("adam_eps");
    let lr_peak = constant("lr_peak");
    let lr_warmup_slope = constant("lr_warmup_slope");
    let lr_decay = constant("lr_decay");
    let lr_min = constant("lr_min");
    let warmup_steps = constant("warmup_steps");

    let state = m.fsm(
        "state_q",
        &["Idle", "Count", "Normalise", "Load", "Wait", "Store"],
    );
    let step = m.reg("step_q", 32).with_reset(0);
    let begin = (state.is("Idle") & start).named("begin_now");
    let load = load & state.is("Idle");
    let saturated = step.q().and_reduce();
    let next_step = step.q().add((!saturated).zext(32));
    step.set_next(m.mux(load, load_step, next_step))
        .with_enable(begin | load);

    m.section("Step count as FP32: the leading one goes to the top, ties to even");
    let warming = step.q().ule(warmup_steps).named("warming");
    let since_warmup = step.q().sub(warmup_steps);
    let mantissa = m.reg("mantissa_q", 32);
    let exponent = m.reg("exponent_q", 8);
    let count = m.mux(warming, step.q(), since_warmup);
    let normal = (mantissa.q().msb() | mantissa.q().is_zero()).named("normal");
    mantissa
        .set_next(m.mux(state.is("Count"), count, mantissa.q().shl_const(1)))
        .with_enable(state.is("Count") | !normal);
    exponent
        .set_next(m.mux(
            state.is("Count"),
            m.lit(127 + 31, 8),
            exponent.q().sub_const(1),
        ))
        .with_enable(state.is("Count") | !normal);
    let kept = m.cat(&[exponent.q(), mantissa.q().slice(30, 8)]);
    let sticky = mantissa.q().trunc(7).or_reduce() | mantissa.q().bit(8);
    let up = mantissa.q().bit(7) & sticky;
    let rounded = m.cat(&[m.lit(0, 1), kept.add(up.zext(31))]);
    let count_fp32 = m.mux(mantissa.q().is_zero(), m.lit(0, 32), rounded);
    // Its own register: it is long settled when the third operation takes it.
    let count_fp32 = m.reg_next("count_fp32_q", count_fp32).q();

    m.section("Operands of the operation");
    let number_bits = bits_for(PROGRAM.len() - 1);
    let number = m.reg("number_q", number_bits);
    let store = state.is("Store").named("store");
    number
        .set_next(m.mux(begin, m.lit(0, number_bits), number.q().add_const(1)))
        .with_enable(begin | store);
    let is = |k: u128| number.q().eq_const(k);
    let p1 = m.reg("p1_q", 32).with_reset(ONE);
    let p2 = m.reg("p2_q", 32).with_reset(ONE);
    let lr = m.reg("lr_q", 32).with_reset(0);
    let root = m.reg("root_q", 32);
    let last = m.reg("last_q", 32);
    let last_but_one = m.reg("last_but_one_q", 32);
    let value = |source: Source| match source {
        Source::P1 => p1.q(),
        Source::P2 => p2.q(),
        Source::Beta1 => beta1,
        Source::Beta2 => beta2,
        Source::Count => count_fp32,
        Source::Slope => m.mux(warming, lr_warmup_slope, lr_decay),
        Source::Peak => lr_peak,
        Source::One => m.lit(ONE, 32),
        Source::Lr => lr.q(),
        Source::Root => root.q(),
        Source::Eps => adam_eps,
        Source::Last => last.q(),
        Source::LastButOne => last_but_one.q(),
    };
    let left: Vec<Sig> = PROGRAM.iter().map(|&(_, a, _)| value(a)).collect();
    let right: Vec<Sig> = PROGRAM.iter().map(|&(_, _, b)| value(b)).collect();
    let kinds: Vec<Sig> = PROGRAM
        .iter()
        .map(|&(kind, ..)| m.lit(kind as u128, 2))
        .collect();
    let fetch = state.is("Load").named("fetch");
    let held = |name: &str, value: Sig<'_>| m.reg_next(name, value).with_enable(fetch).q();
    let a = held("a_q", m.select(number.q(), &left));
    let b = held("b_q", m.select(number.q(), &right));
    let kind = held("kind_q", m.select(number.q(), &kinds));
    let product = fp::mul(m, "u_mul", a, b);
    let difference = fp::sub(m, "u_sub", a, b);
    let quotient = fp::div(m, "u_div", a, b);
    let square_root = fp::sqrt(m, "u_sqrt", a);
    let result = m.select(kind, &[product, difference, quotient, square_root]);
    let result = result.named("result");

    m.section("Every operation waits for the longest unit");
    let wait_bits = bits_for(LONGEST as usize);
    let wait = m.reg("wait_q", wait_bits);
    let longest = m.lit(u128::from(LONGEST), wait_bits);
    wait.set_next(m.mux(fetch, longest, wait.q().sub_const(1)));

    m.section("Results");
    last.set_next(result).with_enable(store);
    last_but_one.set_next(last.q()).with_enable(store);
    let keep = |k: u128| (store & is(k)).named(&format!("keep{k}"));
    let powers = [(p1, load_p1, KEEP_P1), (p2, load_p2, KEEP_P2)];
    for (reg, loaded, k) in powers {
        reg.set_next(m.mux(load, loaded, result))
            .with_enable(keep(k) | load);
    }
    let nan = result.slice(30, 23).and_reduce() & result.trunc(23).or_reduce();
    // A NaN is never the larger one.
    let above = order(m, lr_min).ult(order(m, result)) & !nan;
    let decayed = m.mux(above, result, lr_min);
    let keep_warmup = keep(KEEP_WARMUP) & warming;
    let keep_decay = keep(KEEP_DECAY) & !warming;
    lr.set_next(m.mux(warming, result, decayed))
        .with_enable(keep_warmup | keep_decay);
    root.set_next(result).with_enable(keep(KEEP_ROOT));
    let alpha = m.reg("alpha_q", 32).with_reset(0);
    alpha.set_next(result).with_enable(keep(KEEP_ALPHA));
    let eps_t = m.reg("eps_t_q", 32).with_reset(0);
    eps_t.set_next(result).with_enable(keep(KEEP_EPS));

    let always = m.lit(1, 1);
    state.transitions(&[
        ("Idle", start, "Count"),
        ("Count", always, "Normalise"),
        ("Normalise", normal, "Load"),
        ("Load", always, "Wait"),
        ("Wait", wait.q().is_zero(), "Store"),
        ("Store", is(PROGRAM.len() as u128 - 1), "Idle"),
        ("Store", always, "Load"),
    ]);
    m.port_group("State and scalars of the step");
    m.output("busy", !state.is("Idle"));
    for (name, value) in [
        ("step", step.q()),
        ("p1", p1.q()),
        ("p2", p2.q()),
        ("lr", lr.q()),
        ("alpha", alpha.q()),
        ("eps_t", eps_t.q()),
    ] {
        m.output(name, value);
    }
    module.finish()
}

/// Unsigned integers in the order of the FP32 values.
fn order<'m>(m: &'m Module, x: Sig<'m>) -> Sig<'m> {
    x ^ m.cat(&[m.lit(1, 1), x.bit(31).repeat(31)])
}
