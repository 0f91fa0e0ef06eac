//! Where the cycles of a simulated sample go, against the plan: per engine and operator, and waiting.

use serde::Serialize;

use crate::trainer::cycles::{OperatorCycles, Timeline};
use crate::trainer::isa::Engine;
use crate::trainer::plan::Plan;

/// Signals of the sequencers that the harness reads, as a Verilator configuration file.
pub fn watched_signals() -> String {
    let mut text = String::from("`verilator_config\n");
    for engine in ["mat", "vec", "adam"] {
        for signal in ["sample_start", "start", "ready", "retire"] {
            text +=
                &format!("public_flat_rd -module \"nf_{engine}_sequencer\" -var \"{signal}\"\n");
        }
    }
    text
}

/// Cycles of one operator on one engine, planned and simulated. `waiting` counts cycles in which the engine had nothing
/// to issue before an instruction of the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperatorComparison {
    /// `encode`, `forward`, `backward`, `recompute` or, on the Adam unit, `adam`.
    pub phase: &'static str,
    pub operator: &'static str,
    pub engine: Engine,
    pub planned_busy: u64,
    pub simulated_busy: u64,
    pub planned_waiting: u64,
    pub simulated_waiting: u64,
}

/// Cycles of one phase on one engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseComparison {
    pub engine: Engine,
    /// As of an operator, or `stalls`: all cycles in which the engine waited.
    pub phase: &'static str,
    pub planned: u64,
    pub simulated: u64,
}

/// The timeline that was observed; `None` when it does not cover the plan's programs.
pub fn observed(plan: &Plan, events: [[Vec<u64>; 3]; 3]) -> Option<Timeline> {
    let mut t = Timeline::default();
    for (e, [start, ready, retire]) in events.into_iter().enumerate() {
        let n = plan.timeline.start[e].len();
        if start.len() != n || ready.len() != n || retire.len() != n {
            return None;
        }
        t.busy[e] = match e {
            // A tile may wait inside the Adam unit: it works from the retirement before to its own.
            2 => (0..n)
                .map(|i| {
                    let before = if i == 0 { 0 } else { retire[i - 1] };
                    let span = retire[i] - start[i].max(before).min(retire[i]);
                    span.min(plan.timeline.busy[e][i])
                })
                .collect(),
            _ => start.iter().zip(&ready).map(|(s, r)| r - s).collect(),
        };
        t.total = t.total.max(retire.last().copied().unwrap_or(0));
        (t.start[e], t.ready[e], t.retire[e]) = (start, ready, retire);
    }
    Some(t)
}

/// Phase of an operator's name.
pub fn phase(engine: Engine, operator: &str) -> &'static str {
    if engine == Engine::Adam {
        return "adam";
    }
    let known = ["forward", "backward", "recompute"];
    let found = known.iter().find(|p| operator.starts_with(**p));
    found.copied().unwrap_or("encode")
}

/// Planned against simulated, operator by operator.
pub fn operators(plan: &Plan, simulated: &Timeline) -> Vec<OperatorComparison> {
    let planned = plan.breakdown();
    let measured = simulated.breakdown(&plan.operators);
    let pair = |p: &OperatorCycles, s: &OperatorCycles| OperatorComparison {
        phase: phase(p.engine, p.operator),
        operator: p.operator,
        engine: p.engine,
        planned_busy: p.busy,
        simulated_busy: s.busy,
        planned_waiting: p.waiting,
        simulated_waiting: s.waiting,
    };
    planned
        .iter()
        .zip(&measured)
        .map(|(p, s)| pair(p, s))
        .collect()
}

/// Sums of operators by engine and phase, and the stalls of each engine.
pub fn phases(operators: &[OperatorComparison]) -> Vec<PhaseComparison> {
    let mut list: Vec<PhaseComparison> = vec![];
    let mut add = |engine, phase, planned, simulated| {
        let found = list
            .iter_mut()
            .find(|l| l.engine == engine && l.phase == phase);
        match found {
            Some(line) => {
                line.planned += planned;
                line.simulated += simulated;
            }
            None => list.push(PhaseComparison {
                engine,
                phase,
                planned,
                simulated,
            }),
        }
    };
    for o in operators {
        add(o.engine, o.phase, o.planned_busy, o.simulated_busy);
    }
    for o in operators {
        add(o.engine, "stalls", o.planned_waiting, o.simulated_waiting);
    }
    list.sort_by_key(|l| l.engine as usize);
    list
}
