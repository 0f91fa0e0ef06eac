//! The state stream: framing errors, rates, repeated transfers.

use super::model::Rule;
use super::unit::{Rig, StateEvents, scramble};
use crate::config::model::*;
use crate::trainer::isa::{AdamInstr, AdamKind, Phase};

const PROGRAM: AdamInstr = AdamInstr {
    phase: Phase::Backward,
    wait: [0; 3],
    kind: AdamKind::Matrix,
    place: 1,
    waddr: 20,
    tensor: 2,
    element0: 0,
    row_len: 9,
    nr: 6,
    nc: 6,
    first: true,
    block: None,
};

fn rig() -> Rig {
    let rule = Rule::new(WeightFormat::Fp24, MomentFormat::Fp32, Rounding::Nearest);
    Rig::new(&rule, 6, 3, &[PROGRAM])
}

#[test]
fn transfers_run_at_full_rate_and_can_be_repeated() {
    let mut rig = rig();
    let count = rig.beats(5).len();
    for round in 0..3 {
        scramble(&mut rig);
        let beats = rig.beats(round);
        let events = rig.write_state(&beats, 1.0);
        assert!(events.cycles <= count + 8, "{} cycles", events.cycles);
        assert_eq!((events.loads, events.tail), (1, round));
        assert_eq!(rig.exponents, rig.model_exponents());
        let (back, cycles) = rig.read_state(1.0);
        assert!(cycles <= count + 14, "{cycles} cycles");
        assert_eq!(back[..count - 1], beats[..count - 1]);
    }
    assert_eq!(rig.config.timing().state_beats, count);
}

fn framing(events: StateEvents) -> (usize, usize, usize) {
    assert!(!events.stuck);
    (events.early, events.late, events.loads)
}

#[test]
fn a_wrong_tlast_is_flagged_and_the_next_transfer_is_good() {
    let mut rig = rig();
    let good = rig.beats(77);
    let n = good.len();
    // TLAST on the first beat, in the middle, on the beat before the last.
    for early in [0, n / 2, n - 2] {
        let mut short = good[..=early].to_vec();
        short[early].1 = true;
        let events = rig.write_state(&short, 0.8);
        assert_eq!(framing(events), (1, 0, 0), "TLAST on beat {early}");
    }
    // Two beats too many, TLAST on the very last one.
    let mut long = good.clone();
    long[n - 1].1 = false;
    long.push((1, false));
    long.push((2, true));
    assert_eq!(framing(rig.write_state(&long, 0.8)), (0, 1, 0));
    let events = rig.write_state(&good, 0.8);
    assert_eq!(framing(events), (0, 0, 1));
    assert_eq!(rig.exponents, rig.model_exponents());
    let (back, _) = rig.read_state(0.5);
    assert_eq!(back[..n - 1], good[..n - 1]);
    rig.bench.replay("state stream framing");
}

#[test]
fn a_reset_in_mid_transfer_leaves_a_clean_stream() {
    let mut rig = rig();
    let good = rig.beats(3);
    rig.bench.set("state_read", 1);
    rig.step();
    rig.bench.set("state_read", 0);
    for _ in 0..9 {
        rig.step();
    }
    rig.bench.reset(2);
    assert!(!rig.bench.is("state_busy") && !rig.bench.is("m_axis_weight_tvalid"));
    assert_eq!(framing(rig.write_state(&good, 1.0)), (0, 0, 1));
    let (back, _) = rig.read_state(1.0);
    assert_eq!(back.len(), good.len());
    assert_eq!(back[..good.len() - 1], good[..good.len() - 1]);
}
