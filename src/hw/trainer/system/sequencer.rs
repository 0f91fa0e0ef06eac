//! Program sequencer of one engine: instruction ROM, wait counters, start.

use std::sync::Arc;

use crate::dsl::{Bits, DslError, MemInit, MemSpec, MemStyle, Module, ModuleDef, addr_width};
use crate::trainer::encode::Encoded;

/// Cycles from an engine's `retire` pulse to the earliest `start` of an instruction, on any
/// engine, that waits for it: counter, comparison, start.
pub const RETIRE_TO_START: u32 = 2;
/// Least number of cycles between two starts of one engine.
pub const START_INTERVAL: u32 = 2;

/// The sequencer of engine number `engine` (0 mat, 1 vec, 2 adam), module `nf_<name>_sequencer`.
///
/// `count_bits` is the width of the retired counters of all engines. The instruction word
/// leaves on `instr` and holds until the cycle of `start`.
pub fn sequencer(
    name: &str,
    engine: usize,
    program: &Encoded,
    count_bits: u32,
) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new(&format!("nf_{name}_sequencer"));
    m.doc(
        "Fetches one engine's program in order and starts each instruction when its waits are met.",
    );
    let words = program.words.len() as u32;
    let width = program.layout.width;

    m.port_group("Control");
    let sample_start = m.input("sample_start", 1);
    let forward_only = m.input("forward_only", 1);
    m.port_group("Engine");
    let ready = m.input("ready", 1);
    let retire = m.input("retire", 1);
    m.port_group("Retired counters of all engines");
    let others: Vec<_> = ["mat", "vec", "adam"]
        .iter()
        .enumerate()
        .filter(|(k, _)| *k != engine)
        .map(|(k, n)| (k, m.input(&format!("retired_{n}"), count_bits)))
        .collect();

    m.section("Program counter: the ROM output always holds the word at pc_q");
    let pc_bits = addr_width(words + 1);
    let pc = m.reg("pc_q", pc_bits).with_reset(0);
    let running = m.reg("running_q", 1).with_reset(0);
    let valid = m.reg("valid_q", 1).with_reset(0);
    let ready_to_go = m.reg("waits_met_q", 1).with_reset(0);
    let start = ready_to_go.q().and(ready).named("start_now");
    let more = pc
        .q()
        .ne(m.lit(u128::from(words), pc_bits))
        .named("more_words");
    let take = running
        .q()
        .and(more)
        .and(valid.q().not().or(start))
        .named("take_word");
    let pc_next = m
        .mux(
            sample_start,
            m.lit(0, pc_bits),
            m.mux(take, pc.q().add_const(1), pc.q()),
        )
        .named("pc_next");
    pc.set_next(pc_next);
    let rom = m.mem(
        "program_rom",
        MemSpec {
            depth: words,
            width,
            style: if words > 32 {
                MemStyle::Block
            } else {
                MemStyle::Distributed
            },
            init: Some(MemInit {
                file: format!("{name}_program.mem"),
                words: Arc::new(
                    program
                        .words
                        .iter()
                        .map(|w| Bits::from_limbs(w, width))
                        .collect(),
                ),
            }),
            ..MemSpec::default()
        },
    );
    let address = pc_next.trunc(addr_width(words));
    let word = rom.read(address, m.lit(1, 1)).named("rom_word");

    m.section("Current instruction");
    let current = m.reg("instr_q", width);
    current.set_next(word).with_enable(take);
    valid.set_next(m.mux(
        sample_start,
        m.lit(0, 1),
        m.mux(take, m.lit(1, 1), valid.q().and(start.not())),
    ));

    m.section("Retired and issued counters");
    let retired = m.reg("retired_q", count_bits).with_reset(0);
    retired.set_next(m.mux(
        sample_start,
        m.lit(0, count_bits),
        m.mux(retire, retired.q().add_const(1), retired.q()),
    ));
    let issued = m.reg("issued_q", count_bits).with_reset(0);
    issued.set_next(m.mux(
        sample_start,
        m.lit(0, count_bits),
        m.mux(start, issued.q().add_const(1), issued.q()),
    ));

    m.section("Waits: counters only grow, so a comparison once true stays true");
    let field = |name: &str| {
        let f = program.layout.field(name);
        current.q().slice(f.low + f.width - 1, f.low)
    };
    let mut met = m.lit(1, 1);
    for (k, n) in ["mat", "vec", "adam"].iter().enumerate() {
        let count = match others.iter().find(|(o, _)| *o == k) {
            Some((_, c)) => *c,
            None => retired.q(),
        };
        let wait = field(&format!("wait_{n}")).zext(count_bits);
        met = met.and(wait.ule(count));
    }
    let phase = field("phase").zext(2);
    let blocked = forward_only
        .and(phase.eq(m.lit(2, 2)))
        .named("past_forward");
    ready_to_go.set_next(
        valid
            .q()
            .and(start.not())
            .and(sample_start.not())
            .and(met)
            .and(blocked.not()),
    );

    m.section("End of the sample");
    let exhausted = more
        .not()
        .and(valid.q().not())
        .or(valid.q().and(blocked))
        .named("exhausted");
    let drained = issued.q().eq(retired.q());
    let finished = running.q().and(exhausted).and(drained).named("finished");
    running.set_next(m.mux(sample_start, m.lit(1, 1), running.q().and(finished.not())));

    m.output("start", start);
    m.output("instr", current.q());
    m.output("phase", phase);
    m.output("retired", retired.q());
    m.output("running", running.q());
    m.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsl::Interpreter;
    use crate::trainer::encode::encode_adam;
    use crate::trainer::isa::{AdamInstr, AdamKind, Phase};

    fn instruction(phase: Phase, wait: [usize; 3], waddr: usize) -> AdamInstr {
        AdamInstr {
            phase,
            wait,
            kind: AdamKind::Matrix,
            place: 0,
            waddr,
            tensor: 0,
            element0: 0,
            row_len: 1,
            nr: 1,
            nc: 1,
            first: false,
            block: None,
        }
    }

    /// Runs with an engine that takes `busy` cycles per instruction; returns (cycle, waddr) of
    /// the starts and the cycle in which `running` fell.
    fn run(program: &[AdamInstr], forward_only: bool, busy: u64) -> (Vec<(u64, u128)>, u64) {
        let encoded = encode_adam(program);
        let def = sequencer("adam", 2, &encoded, 8).expect("sequencer builds");
        let mut sim = Interpreter::new(&def);
        sim.set_input("forward_only", u128::from(forward_only));
        sim.set_input("sample_start", 1);
        sim.step();
        sim.set_input("sample_start", 0);
        let field = encoded.layout.field("waddr").clone();
        let (mut starts, mut ends_at) = (vec![], None);
        for cycle in 0..400u64 {
            sim.set_input("ready", u128::from(ends_at.is_none()));
            sim.set_input("retire", u128::from(ends_at == Some(cycle)));
            // The mat engine retires one instruction every 20 cycles.
            sim.set_input("retired_mat", u128::from(cycle / 20));
            sim.set_input("retired_vec", 0);
            if ends_at == Some(cycle) {
                ends_at = None;
            }
            if sim.get_output("start") == 1 {
                let word = sim.get_output("instr");
                starts.push((cycle, word >> field.low & ((1 << field.width) - 1)));
                ends_at = Some(cycle + busy);
            }
            sim.step();
            if sim.get_output("running") == 0 {
                return (starts, cycle);
            }
        }
        panic!("the sequencer did not end: {starts:?}");
    }

    #[test]
    fn starts_in_order_once_the_waits_are_met() {
        let program = [
            instruction(Phase::Forward, [0, 0, 0], 7),
            instruction(Phase::Forward, [3, 0, 0], 8),
            instruction(Phase::Forward, [3, 0, 2], 9),
            instruction(Phase::Forward, [0, 0, 0], 10),
        ];
        let (starts, end) = run(&program, false, 5);
        let order: Vec<u128> = starts.iter().map(|s| s.1).collect();
        assert_eq!(order, [7, 8, 9, 10]);
        assert!(starts[1].0 >= 60, "waited for the third mat retirement");
        assert!(starts[2].0 >= starts[1].0 + 5, "waited for its own engine");
        assert!(end > starts[3].0 + 5);
    }

    #[test]
    fn forward_only_stops_before_the_backward_phase() {
        let program = [
            instruction(Phase::Forward, [0, 0, 0], 1),
            instruction(Phase::Backward, [0, 0, 0], 2),
        ];
        let (starts, _) = run(&program, true, 1);
        assert_eq!(starts.len(), 1);
        let (starts, _) = run(&program, false, 1);
        assert_eq!(starts.len(), 2);
        assert!(starts[1].0 - starts[0].0 >= u64::from(START_INTERVAL));
    }
}
