//! `nf_scalar_unit`: what becomes of the lanes' reductions (`docs/machine.md` section 4, post).
//!
//! The B results wait in the lanes; one lane per cycle passes
//! `* c3 -> + eps -> sqrt -> 1/x -> sign` with the parts an operation does not need replaced by
//! an identity (multiplier, adder) or by a delay of the same length (root, reciprocal).

use std::sync::Arc;

use super::lane::{MINUS_ZERO, ONE};
use super::loss;
use crate::dsl::{DslError, Module, ModuleDef, Sig, addr_width};
use crate::hw::fp;
use crate::trainer::encode::bits_for;
use crate::trainer::isa::Post;

/// Cycles from a lane number to the lane's word: one per base-4 digit of the number.
pub fn select_latency(lanes: usize) -> u32 {
    bits_for(lanes - 1).div_ceil(2)
}

/// Cycles from `go` to the write of lane 0: lane counter, selection, the pipe, write register.
pub fn first_write(lanes: usize) -> u32 {
    1 + select_latency(lanes)
        + fp::MUL_LATENCY
        + fp::ADD_LATENCY
        + fp::SQRT_LATENCY
        + 1
        + fp::DIV_LATENCY
        + 1
}

/// Sizes and constants of the scalar unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalarSpec {
    pub lanes: usize,
    /// Rows of the scalar file.
    pub scalar_rows: u32,
    /// LayerNorm's epsilon.
    pub eps: f32,
}

/// `words[index]` by levels of 4-to-1 multiplexers with a register behind each.
pub fn select_lane<'m>(m: &'m Module, name: &str, index: Sig<'m>, words: &[Sig<'m>]) -> Sig<'m> {
    let mut level = words.to_vec();
    for digit in 0..select_latency(words.len()) {
        let high = (2 * digit + 1).min(index.width() - 1);
        let select = m.pipe(
            &format!("{name}_digit{digit}"),
            index.slice(high, 2 * digit),
            digit,
        );
        level = level
            .chunks(4)
            .enumerate()
            .map(|(k, chunk)| {
                let word = m.select(select, chunk);
                m.pipe(&format!("{name}_level{digit}_{k}"), word, 1)
            })
            .collect();
    }
    level[0]
}

/// Builds the scalar unit. `go` takes the operation; the lanes' results must hold from the
/// cycle after it for `nc` cycles.
pub fn scalar_unit(spec: &ScalarSpec) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_scalar_unit");
    m.doc(&format!(
        "Turns the lanes' reductions into scalars, one lane per cycle: raw, mean, -mean,\n\
         1/sqrt(mean + eps), 1/x; sums the cross-entropy loss and counts correct predictions.\n\
         go to the write of lane l: {} + l cycles.",
        first_write(spec.lanes)
    ));
    let row_bits = addr_width(spec.scalar_rows);
    let lane_bits = bits_for(spec.lanes - 1);
    let nc_bits = bits_for(spec.lanes);
    m.port_group("Operation, taken with go");
    let go = m.input("go", 1);
    let post = m.input("post", 3);
    let row = m.input("row", row_bits);
    let factor = m.input("factor", 32);
    let nc = m.input("nc", nc_bits);
    let count_hits = m.input("count_hits", 1);
    m.port_group("Results of the lanes: reduction, target's distance, prediction is right");
    let per_lane = |name: &str, width| -> Vec<_> {
        (0..spec.lanes)
            .map(|l| m.input(&format!("{name}_{l}"), width))
            .collect()
    };
    let result = per_lane("result", 32);
    let target = per_lane("result_target", 32);
    let hit = per_lane("result_hit", 1);
    m.port_group("Clears loss and count");
    let sample_start = m.input("sample_start", 1);

    m.section("Operation and lane counter");
    let held = |name: &str, v: Sig<'_>| m.reg_next(name, v).with_enable(go).q();
    let is = |p: Post| post.eq(m.lit(p as u128, 3));
    let scaled = is(Post::Mean).or(is(Post::NegMean)).or(is(Post::Rstd));
    let ce = is(Post::CrossEntropy);
    let root = held("root_q", is(Post::Rstd));
    let inverse = held("inverse_q", is(Post::Rstd).or(is(Post::Recip)).or(ce));
    let negate = held("negate_q", is(Post::NegMean));
    let writes = held("writes_q", is(Post::None).not());
    let adds_loss = held("adds_loss_q", ce);
    let counts = held("counts_q", count_hits);
    let row = held("row_q", row);
    let factor = held("factor_q", m.mux(scaled, factor, m.lit(ONE, 32)));
    let left = m.reg("left_q", nc_bits);
    let busy = m.reg("busy_q", 1).with_reset(0);
    let lane = m.reg("lane_q", lane_bits);
    let last = left.q().eq(m.lit(1, nc_bits)).named("last_lane");
    busy.set_next(go.or(busy.q().and(last.not())));
    left.set_next(m.mux(go, nc, left.q().sub(m.lit(1, nc_bits))));
    lane.set_next(m.mux(go, m.lit(0, lane_bits), lane.q().add(m.lit(1, lane_bits))));

    m.section("Selection");
    let wait = |name: &str, v: Sig<'_>, n: u32| {
        let (id, width) = (v, v.width());
        debug_assert!(width > 0);
        m.delay(name, id, n)
    };
    let at = select_latency(spec.lanes);
    let word = select_lane(&m, "result", lane.q(), &result);
    let distance = select_lane(&m, "target", lane.q(), &target);
    let right = select_lane(&m, "hit", lane.q(), &hit);
    let valid = m.delay("selected", busy.q(), at);

    m.section("* factor");
    let scaled = fp::mul(&m, "u_mul", word, m.delay("factor_late", factor, at));
    let at_mul = at + fp::MUL_LATENCY;
    m.section("+ eps");
    let eps = m.lit(u128::from(spec.eps.to_bits()), 32);
    let addend = m.mux(wait("root_add", root, at_mul), eps, m.lit(MINUS_ZERO, 32));
    let shifted = fp::add(&m, "u_add", scaled, addend);
    let at_add = at_mul + fp::ADD_LATENCY;
    m.section("Square root");
    let rooted = m.mux(
        wait("root_sqrt", root, at_add + fp::SQRT_LATENCY),
        fp::sqrt(&m, "u_sqrt", shifted),
        m.delay("around_sqrt", shifted, fp::SQRT_LATENCY),
    );
    let rooted = m.pipe("rooted", rooted, 1);
    let at_sqrt = at_add + fp::SQRT_LATENCY + 1;
    m.section("Reciprocal");
    let at_end = at_sqrt + fp::DIV_LATENCY;
    let value = m.mux(
        wait("inverse_div", inverse, at_end),
        fp::div(&m, "u_div", m.lit(ONE, 32), rooted),
        m.delay("around_div", rooted, fp::DIV_LATENCY),
    );
    let value = m.cat(&[
        value.bit(31).xor(wait("negate_end", negate, at_end)),
        value.trunc(31),
    ]);

    m.section("Write");
    let busy_end = m.delay("busy_end", busy.q(), at_end);
    let write = busy_end
        .and(wait("writes_end", writes, at_end))
        .named("write");
    let lane_end = m.delay("lane_end", lane.q(), at_end);
    for l in 0..spec.lanes {
        let here = write.and(lane_end.eq(m.lit(l as u128, lane_bits)));
        let we = m
            .reg_next(&format!("scalar_we_{l}_q"), here)
            .with_reset(0)
            .q();
        m.output(&format!("scalar_we_{l}"), we);
    }
    m.output(
        "scalar_row",
        m.pipe("scalar_row", wait("row_end", row, at_end), 1),
    );
    m.output("scalar_data", m.pipe("scalar_data", value, 1));
    let done = write.and(m.delay("last_end", last, at_end));
    m.output("done", m.reg_next("done_q", done).with_reset(0).q());
    let bad = write.and(value.slice(30, 23).and_reduce());
    m.output("error", m.reg_next("error_q", bad).with_reset(0).q());

    let q24 = loss::token_loss(&m, word, distance);
    let add_loss = m
        .delay(
            "adds_loss_late",
            busy.q().and(adds_loss),
            at + loss::LATENCY,
        )
        .named("add_loss");
    let total = m.reg("loss_q", 48).with_reset(0);
    let more = m.mux(add_loss, q24.zext(48), m.lit(0, 48));
    total.set_next(m.mux(sample_start, m.lit(0, 48), total.q().add(more)));
    m.output("loss_q24", total.q());

    m.section("Correct predictions");
    let correct = m.reg("correct_q", 16).with_reset(0);
    let one = valid.and(m.delay("counts_late", counts, at)).and(right);
    correct.set_next(m.mux(sample_start, m.lit(0, 16), correct.q().add(one.zext(16))));
    m.output("correct", correct.q());
    m.finish()
}
