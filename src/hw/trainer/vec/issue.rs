//! Instruction decoding, the step counter and the read addresses.

use super::cost;
use super::lane::{PARTIALS, SPACING};
use super::unit::VectorSpec;
use crate::dsl::{Module, Sig};
use crate::trainer::encode::{Layout, bits_for};
use crate::trainer::isa::{Post, Reduce};

/// The running instruction at cycle 0 of each step: the cycle in which its reads are issued.
/// The fields hold from the first step to the last.
pub struct Issue<'m> {
    /// A step is issued.
    pub active: Sig<'m>,
    /// It is the instruction's first or last one.
    pub first: Sig<'m>,
    pub last: Sig<'m>,
    /// Step number j.
    pub step: Sig<'m>,
    pub x: Stream<'m>,
    pub y: Stream<'m>,
    pub z: Stream<'m>,
    pub y_en: Sig<'m>,
    pub z_en: Sig<'m>,
    pub gamma_addr: Sig<'m>,
    pub beta_addr: Sig<'m>,
    pub nc: Sig<'m>,
    pub exp_en: Sig<'m>,
    pub exp_id: Sig<'m>,
    pub exp_first: Sig<'m>,
    pub sub_s0: Sig<'m>,
    pub mul1: Sig<'m>,
    pub table: Sig<'m>,
    pub mul2: Sig<'m>,
    pub add: Sig<'m>,
    /// Whether the instruction reduces, and how.
    pub reduces: Sig<'m>,
    pub sums: Sig<'m>,
    pub post: Sig<'m>,
    pub s0: Sig<'m>,
    pub s1: Sig<'m>,
    pub s2: Sig<'m>,
    pub post_row: Sig<'m>,
    pub c1: Sig<'m>,
    pub c2: Sig<'m>,
    pub c3: Sig<'m>,
    pub mask: Sig<'m>,
    pub tile: Sig<'m>,
    pub ce_max: Sig<'m>,
    pub ce_exp: Sig<'m>,
    /// A start is taken; the instruction has a post operation (valid with `start`).
    pub start: Sig<'m>,
    pub start_posts: Sig<'m>,
}

/// Group, address and rotation of the present step.
pub struct Stream<'m> {
    pub group: Sig<'m>,
    pub addr: Sig<'m>,
    pub rot: Sig<'m>,
}

/// Widens or cuts a field; a cut field holds no larger value by construction.
pub fn fit(v: Sig<'_>, width: u32) -> Sig<'_> {
    if v.width() < width {
        v.zext(width)
    } else {
        v.trunc(width)
    }
}

/// Ports `start`, `instr`, `ready` and the issue state. `room`: the retire queue takes one more.
pub fn issue<'m>(
    m: &'m Module,
    spec: &VectorSpec,
    layout: &Layout,
    start: Sig<'m>,
    room: Sig<'m>,
) -> Issue<'m> {
    let b = spec.lanes;
    let word = m.input("instr", layout.width);
    m.section("Issue: fields of the running instruction");
    let raw = |name: &str, width: u32| {
        let f = layout.field(name);
        fit(word.slice(f.low + f.width - 1, f.low), width)
    };
    let held = |name: &str, width: u32| {
        m.reg_next(&format!("{name}_q"), raw(name, width))
            .with_enable(start)
            .q()
    };
    let row_bits = spec.row_bits();
    let const_bits = spec.const_bits();
    let rot_bits = bits_for(b - 1);
    let index_bits = spec.index_bits(layout);

    m.section("Issue: step counter");
    let n_bits = layout.field("n").width;
    let n = raw("n", n_bits);
    let one = m.lit(1, n_bits);
    let left = m.reg("left_q", n_bits);
    left.set_next(m.mux(start, n, left.q().sub(one)));
    let active = m.reg("active_q", 1).with_reset(0);
    let last = left.q().eq(one).named("last_step");
    active.set_next(start.or(active.q().and(last.not())));
    let first = m.reg_next("first_q", start).q();
    let step = m.reg("step_q", index_bits);
    step.set_next(m.mux(
        start,
        m.lit(0, index_bits),
        step.q().add(m.lit(1, index_bits)),
    ));
    let counter = |name: &str, field: &str, width: u32| {
        let r = m.reg(&format!("{name}_q"), width);
        let next = m.mux(start, raw(field, width), r.q().add(m.lit(1, width)));
        r.set_next(next).q()
    };
    let rotation = |name: &str, field: &str| {
        let r = m.reg(&format!("{name}_q"), rot_bits);
        let wrap = r.q().eq(m.lit(b as u128 - 1, rot_bits));
        let next = m.mux(wrap, m.lit(0, rot_bits), r.q().add(m.lit(1, rot_bits)));
        r.set_next(m.mux(start, raw(field, rot_bits), next)).q()
    };
    let stream = |name: &str| Stream {
        group: held(&format!("{name}_group"), spec.group_bits()),
        addr: counter(
            &format!("{name}_addr"),
            &format!("{name}_addr"),
            spec.addr_bits(),
        ),
        rot: rotation(&format!("{name}_rot"), &format!("{name}_rot")),
    };
    let (x, y, z) = (stream("x"), stream("y"), stream("z"));

    m.section("Issue: ready, and the pause that a reduction needs behind its last step");
    let reduce = raw("reduce", 2);
    let reduces = reduce.or_reduce();
    let ce_exp = raw("ce_exp", 1);
    let pause_bits = bits_for(cost::longest_pause(b) as usize);
    // A sum needs eight slots for its eight partial sums, any instruction some distance to the
    // next one. Both shortfalls are at most 25 - 1.
    let shortfall = |least: u32| {
        let low = fit(n, 5);
        let small = match n_bits {
            0..=5 => m.lit(1, 1),
            _ => n.slice(n_bits - 1, 5).is_zero(),
        };
        let least = m.lit(u128::from(least), 5);
        let less = small.and(low.ult(least));
        fit(least.sub(low), pause_bits).and(less.repeat(pause_bits))
    };
    let base = m.mux(
        ce_exp,
        m.lit(u128::from(cost::target_pause(b)), pause_bits),
        m.lit(u128::from(cost::reduce_pause(b)), pause_bits),
    );
    let wanted = m.mux(reduces, base.add(shortfall(PARTIALS)), shortfall(SPACING));
    let pause = m.reg("pause_q", pause_bits).with_reset(0);
    let over = pause.q().is_zero();
    let ends = active.q().not().or(last);
    let counts = ends.and(over.not());
    let next = m.mux(counts, pause.q().sub(m.lit(1, pause_bits)), pause.q());
    pause.set_next(m.mux(start, wanted, next));
    m.output("ready", ends.and(over).and(room));

    let post = raw("post", 3);
    let posts = reduces.and(post.ne(m.lit(Post::None as u128, 3)));
    let sums = reduce.eq(m.lit(Reduce::Sum8 as u128, 2));
    let held_now = |name: &str, v: Sig<'m>| m.reg_next(name, v).with_enable(start).q();
    Issue {
        active: active.q(),
        first,
        last,
        step: step.q(),
        x,
        y,
        z,
        y_en: held("y_en", 1),
        z_en: held("z_en", 1),
        gamma_addr: counter("gamma", "gamma", spec.parameter_bits()),
        beta_addr: counter("beta", "beta", spec.parameter_bits()),
        nc: held("nc", bits_for(b)),
        exp_en: held("exp_en", 1),
        exp_id: held("exp", spec.exp_bits()),
        exp_first: held("exp_first", 1),
        sub_s0: held("sub_s0", 1),
        mul1: held("mul1", 3),
        table: held("table", 2),
        mul2: held("mul2", 3),
        add: held("add", 2),
        reduces: held_now("reduces_q", reduces),
        sums: held_now("sums_q", sums),
        post: held("post", 3),
        s0: held("s0", row_bits),
        s1: held("s1", row_bits),
        s2: held("s2", row_bits),
        post_row: held("post_row", row_bits),
        c1: held("c1", const_bits),
        c2: held("c2", const_bits),
        c3: held("c3", const_bits),
        mask: held("mask", 1),
        tile: held("tile", spec.tile_bits()),
        ce_max: held("ce_max", 1),
        ce_exp: held("ce_exp", 1),
        start,
        start_posts: posts,
    }
}
