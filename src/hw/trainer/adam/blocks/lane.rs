//! Moment blocks of one Adam lane (`docs/arithmetic.md` section 6, `docs/machine.md` section 5).
//!
//! Row i of a tile is in bank b in one column and in bank b + 1 in the next. What belongs to a row (its block's scales,
//! the largest moments so far, the reciprocals) therefore moves from bank to bank: within a lane it comes back after
//! Q + 1 steps, and into the lane's first bank it comes from the lane before, one step old. That is all the routing.

use super::super::config::AdamConfig;
use super::super::storage::three_cycle_read;
use crate::dsl::{DslError, MemSpec, MemStyle, Module, ModuleDef, Sig};
use crate::hw::fp::{self, MUL_LATENCY as MUL};
use std::sync::Arc;

/// Bits of {root, |m|}.
pub const MAGNITUDES: u32 = 62;
/// Bits of a word of the buffer: {valid, random bits of v and m, root, m}.
pub const BUFFER_BITS: u32 = 1 + 32 + 31 + 32;
/// Cycles from a step of the encoder to its moments in the lane's result register.
pub const ENCODE_LATENCY: u32 = 3 + MUL + 4;

/// A value per row that moves on with every column: `now` gives it from what the row had one column ago.
struct Travel<'m> {
    /// Value of the step before, for the next lane.
    carry: Sig<'m>,
}

/// Steps are marked by `step`; `head` in the lane's first bank, where `link` (the carry of the lane before) counts.
fn travel<'m>(
    m: &'m Module,
    name: &str,
    group: u32,
    step: Sig<'m>,
    head: Sig<'m>,
    link: Sig<'m>,
    now: impl FnOnce(Sig<'m>) -> Sig<'m>,
) -> Travel<'m> {
    let carry = m.reg(&format!("{name}_carry_q"), link.width());
    let own = m.pipe_en(&format!("{name}_row"), carry.q(), group, step);
    let before = m.mux(head, link, own).named(&format!("{name}_before"));
    carry.set_next(now(before)).with_enable(step);
    Travel { carry: carry.q() }
}

/// Module `nf_moment_block`.
///
/// * Scales: `scale_word` {sv, sm} with the operands of the step `d_step`; `d_first` in the block's first column,
///   `d_head`, `d_link` as in [`travel`] -> `d_carry` one cycle later, for the lane's operands and the next lane.
/// * Largest: `valid`, `m_new`, `root_new`, `m_random`, `v_random` with `u_step`, `u_first`, `u_head`, `u_link` -> `u_carry`.
///   They enter the buffer at `buffer_waddr`; in the block's last column (`u_last`) the largest are kept at `u_slot`.
///   `collect_addr` -> `largest` one cycle later.
/// * Codes: `buffer_raddr` of a step; one cycle later `reciprocal_raddr`, two later `e_step`, `e_first`, `e_head`, `e_link`
///   -> `e_carry`; [`ENCODE_LATENCY`] later `code_valid` and `code` {v, m}. Reciprocals {iv, im} come with `reciprocal_we`,
///   `reciprocal_waddr`, `reciprocal_word`.
pub fn moment_block(config: &AdamConfig) -> Result<Arc<ModuleDef>, DslError> {
    let module = Module::new("nf_moment_block");
    let m = &module;
    m.doc("Moment blocks of one Adam lane: scales to the operands, largest moments, and the encoder of the codes.");
    m.valid_only("code");
    let group = config.group() as u32;
    let slot_bits = config.slot_address_bits();
    let no = |width| m.lit(0, width);

    m.port_group("Scales of the operands");
    let scale_word = m.input("scale_word", 64);
    let step = m.input("d_step", 1);
    let first = m.input("d_first", 1);
    let head = m.input("d_head", 1);
    let link = m.input("d_link", 64);
    m.section("Scales move with their row");
    let scales = travel(m, "d", group, step, head, link, |before| {
        m.mux(first, scale_word, before)
    });
    m.output("d_carry", scales.carry);

    m.port_group("New moments");
    m.valid_only("valid");
    let valid = m.input("valid", 1);
    let m_new = m.input("m_new", 32);
    let root_new = m.input("root_new", 31);
    let m_random = m.input("m_random", 16);
    let v_random = m.input("v_random", 16);
    let step = m.input("u_step", 1);
    let first = m.input("u_first", 1);
    let head = m.input("u_head", 1);
    let last = m.input("u_last", 1);
    let slot = m.input("u_slot", slot_bits);
    let link = m.input("u_link", MAGNITUDES);
    m.section("Largest moments of each row so far");
    // Rows beyond the matrix are never written.
    let magnitudes = [m_new.trunc(31), root_new];
    let largest = travel(m, "u", group, step, head, link, |before| {
        let of = |k: usize, x: Sig<'_>| {
            let low = 31 * k as u32;
            let so_far = before.slice(low + 30, low) & (!first).repeat(31);
            m.mux(so_far.ult(x), x, so_far)
        };
        m.cat(&[of(1, magnitudes[1]), of(0, magnitudes[0])])
    });
    m.output("u_carry", largest.carry);
    let small = |name: &str, width: u32| {
        m.mem(
            name,
            MemSpec {
                depth: 1 << slot_bits,
                width,
                style: MemStyle::Distributed,
                ..MemSpec::default()
            },
        )
    };
    let kept = small("kept_largest", MAGNITUDES);
    let keep = m.reg_next("keep_q", step & last).q();
    kept.write(m.reg_next("keep_slot_q", slot).q(), largest.carry, keep);
    let collect = m.input("collect_addr", slot_bits);
    let word = kept.read_comb(collect);
    m.output("largest", m.reg_next("largest_q", word).q());

    m.section("Moments wait for their block's scales");
    let waddr = m.input("buffer_waddr", config.buffer_address_bits());
    m.port_group("Encoder");
    let raddr = m.input("buffer_raddr", config.buffer_address_bits());
    let spec = MemSpec {
        depth: config.buffer_words() as u32,
        width: BUFFER_BITS,
        style: MemStyle::Auto,
        ..MemSpec::default()
    };
    let word = m.cat(&[valid, v_random, m_random, root_new, m_new]);
    let word = three_cycle_read(m, "buffer", spec, raddr, (waddr, word, step));
    let old_m = word.trunc(32);
    let root = word.slice(62, 32);
    let random = [word.slice(78, 63), word.slice(94, 79)];
    let code_valid = word.msb();

    m.section("Reciprocals move with their row");
    let reciprocals = small("reciprocals", 64);
    reciprocals.write(
        m.input("reciprocal_waddr", slot_bits),
        m.input("reciprocal_word", 64),
        m.input("reciprocal_we", 1),
    );
    let word = reciprocals.read_comb(m.input("reciprocal_raddr", slot_bits));
    let word = m.reg_next("reciprocal_q", word).q();
    let step = m.input("e_step", 1);
    let first = m.input("e_first", 1);
    let head = m.input("e_head", 1);
    let link = m.input("e_link", 64);
    let reciprocal = travel(m, "e", group, step, head, link, |before| {
        m.mux(first, word, before)
    });
    m.output("e_carry", reciprocal.carry);

    m.section("Codes: floor(x * reciprocal + random / 2^16)");
    let scaled = [
        fp::mul(
            m,
            "u_scaled_m",
            m.cat(&[no(1), old_m.trunc(31)]),
            reciprocal.carry.trunc(32),
        ),
        fp::mul(
            m,
            "u_scaled_v",
            m.cat(&[no(1), root]),
            reciprocal.carry.slice(63, 32),
        ),
    ];
    let late = MUL + 2;
    let code = |k: usize, name: &str, max: u128| {
        let _scope = m.name_scope(name);
        let exponent = scaled[k].slice(30, 23);
        // 8.16 fixed point; 256 and more is cut to 256.
        let big = m.lit(134, 8).ult(exponent);
        let distance = m.reg_next("distance_q", m.lit(134, 8) - exponent).q();
        let big = m.reg_next("big_q", big).q();
        let significand = m.cat(&[m.lit(1, 1), scaled[k].trunc(23)]);
        let significand = m.reg_next("significand_q", significand).q();
        let far = distance.slice(7, 5).or_reduce();
        let shifted = significand.shr(distance.trunc(5));
        let fixed = m.mux(far | big, no(24), shifted);
        let fixed = m.reg_next("fixed_q", m.cat(&[big, fixed])).q();
        let random = m.delay("random", random[k], late);
        let code = (fixed + random.zext(25)).slice(24, 16);
        let code = m.reg_next("code_q", code).q();
        let bound = m.lit(max, 9);
        m.mux(code.ult(bound), code, bound).trunc(8)
    };
    let [m_code, v_code] = [code(0, "m_", 127), code(1, "v_", 255)];
    let sign = m.delay("sign", old_m.msb(), late + 1);
    let above_zero = m.delay("above_zero", root.or_reduce(), late + 1);
    let signed = (m_code ^ sign.repeat(8)) + sign.zext(8);
    let at_least_one = m.cat(&[
        v_code.slice(7, 1),
        v_code.bit(0) | (above_zero & v_code.is_zero()),
    ]);
    m.port_group("Codes");
    m.output(
        "code",
        m.reg_next("code_out_q", m.cat(&[at_least_one, signed])).q(),
    );
    m.output("code_valid", m.delay("code_valid", code_valid, late + 2));
    module.finish()
}
