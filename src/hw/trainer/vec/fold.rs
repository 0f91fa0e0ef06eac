//! Sequencer of the reductions at the lanes' adders.

use super::lane::{FOLD_RESULT, Tap};
use crate::dsl::{Module, Sig};
use crate::trainer::encode::bits_for;

/// The element that the adders choose two cycles later.
pub struct Slot<'m> {
    pub active: Sig<'m>,
    pub first: Sig<'m>,
    pub last: Sig<'m>,
    pub reduces: Sig<'m>,
    pub sums: Sig<'m>,
}

/// Controls of the lanes' adders, each at the cycle of the lane's port unless stated.
pub struct FoldControl<'m> {
    pub loop_on: Sig<'m>,
    pub loop_zero: Sig<'m>,
    pub pad: Sig<'m>,
    pub fold: Sig<'m>,
    pub tap: Sig<'m>,
    pub take: Sig<'m>,
    /// The last element of a reduction is in `Slot`: what belongs to its result is latched now.
    pub latch: Sig<'m>,
    /// The results are in the lanes' holding registers.
    pub go: Sig<'m>,
}

/// After the last element: slots of +0 until the loop has eight partial sums, then the fold.
/// Four apart, the partial sums meet first, then two apart, then neighbours; each addition's
/// operands may come in either order, so the fold starts at any phase of the loop.
pub fn fold_control<'m>(m: &'m Module, slot: &Slot<'m>) -> FoldControl<'m> {
    m.section("Reductions: age of the partial sums, then the fold's slots");
    let starts = slot.active.and(slot.first);
    let age = m.reg("age_q", 4);
    let age_now = m.mux(starts, m.lit(0, 4), age.q()).named("age_now");
    let old = age_now.bit(3);
    age.set_next(m.mux(old, age_now, age_now.add_const(1)));

    let latch = slot
        .active
        .and(slot.last)
        .and(slot.reduces)
        .named("reduction_ends");
    let bits = bits_for(FOLD_RESULT as usize);
    let tail = m.reg("tail_q", 1).with_reset(0);
    let place = m.reg("place_q", bits);
    let folding = tail.q().and(old).named("folding");
    let done = folding
        .and(place.q().eq_const(u128::from(FOLD_RESULT)))
        .named("fold_done");
    tail.set_next(latch.or(tail.q().and(done.not())));
    let next = m.mux(folding, place.q().add_const(1), m.lit(0, bits));
    place.set_next(next);

    // Slots 0 to 7, 8 to 15, 16 to 23; only 4 to 7, 14, 15 and 23 matter.
    let tap = m.select(
        place.q().slice(4, 3),
        &[Tap::Back4, Tap::Back2, Tap::Back1].map(|t| m.lit(t as u128, 2)),
    );
    let due = m.lit(Tap::Due as u128, 2);
    let out = |name: &str, v: Sig<'m>| m.pipe(name, v, 1);
    let take = out("take", done);
    FoldControl {
        loop_on: out("loop_on", slot.sums.or(tail.q())),
        loop_zero: out("loop_zero", old.not()),
        pad: out("pad", tail.q().and(folding.not())),
        fold: out("fold", folding),
        tap: out("tap", m.mux(folding, tap, due)),
        take,
        latch,
        go: m.pipe("go", take, 2),
    }
}
