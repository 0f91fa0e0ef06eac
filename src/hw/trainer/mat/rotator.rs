//! Rotation of B words modulo B.

use super::{copies, digits, rot_bits};
use crate::dsl::*;
use std::sync::Arc;

/// Which way a rotator turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Banks to lanes: output l takes input `(l + rot) mod B`.
    ToLanes,
    /// Lanes to banks: output b takes input `(b - rot) mod B`.
    ToBanks,
}

/// Selected bits that one copy of a select register drives.
const SELECT_LOADS: usize = 128;

/// Cycles through a rotator of B lanes: one per base-4 digit of the rotation.
pub fn rotate_latency(b: usize) -> u32 {
    digits(b)
}

/// `nf_rotate_<turn>_<width>x<B>[_idle]`: radix-4 stages, a register behind each.
///
/// `rot` (below B) enters one cycle before its data, so that every stage's select comes from
/// registers with few loads. With `idle` the rotator has a further input of that name, which
/// enters with `rot` and replaces every word by that constant (free: the last stage's registers
/// are set and reset).
pub fn rotator(
    turn: Turn,
    width: u32,
    b: usize,
    idle: Option<u128>,
) -> Result<Arc<ModuleDef>, DslError> {
    let (tag, formula) = match turn {
        Turn::ToLanes => ("lanes", "y[l] = x[(l + rot) mod B]"),
        Turn::ToBanks => ("banks", "y[b] = x[(b - rot) mod B]"),
    };
    let kind = if idle.is_some() { "_idle" } else { "" };
    let m = Module::new(&format!("nf_rotate_{tag}_{width}x{b}{kind}"));
    m.doc(&format!(
        "Rotation of {b} words of {width} bits: {formula}.\n\
         One radix-4 stage per cycle, latency {}; rot enters one cycle before its data.",
        rotate_latency(b)
    ));
    let group = (SELECT_LOADS / width as usize).max(1);
    let rot = m.input("rot", rot_bits(b));
    let idle = idle.map(|value| {
        let idle = m.pipe("idle", m.input("idle", 1), digits(b) - 1);
        (copies(&m, "idle_to", idle, b, group), m.lit(value, width))
    });
    let mut words: Vec<Sig<'_>> = (0..b).map(|l| m.input(&format!("x_{l}"), width)).collect();
    for stage in 0..digits(b) {
        let place = 1usize << (2 * stage);
        m.section(&format!("rotate by 0..3 times {place}"));
        let high = (2 * stage + 1).min(rot_bits(b) - 1);
        let digit = m.pipe(&format!("digit{stage}"), rot.slice(high, 2 * stage), stage);
        let choices = ((b - 1) / place + 1).min(1 << digit.width());
        let select = copies(&m, &format!("select{stage}"), digit, b, group);
        words = (0..b)
            .map(|l| {
                let from: Vec<Sig<'_>> = (0..choices)
                    .map(|d| match turn {
                        Turn::ToLanes => words[(l + d * place) % b],
                        Turn::ToBanks => words[(l + b - d * place) % b],
                    })
                    .collect();
                let mut word = m.select(select[l], &from);
                if let (Some((idle, value)), true) = (&idle, stage + 1 == digits(b)) {
                    word = m.mux(idle[l], *value, word);
                }
                m.reg_next(&format!("stage{stage}_{l}_q"), word).q()
            })
            .collect();
    }
    for (l, word) in words.iter().enumerate() {
        m.output(&format!("y_{l}"), *word);
    }
    m.finish()
}
