//! Wait counts: from the global order to three programs that meet only through retired counters.
//!
//! In the global order a later instruction may depend on any earlier one. It must wait for an earlier one when
//! * it reads what the other writes (any engine, its own included),
//! * it writes what the other reads or writes (other engines; an engine writes in its own order and after it has read),
//! * both use the same port of a memory (other engines; within mat, the addend of a tile is read while later tiles start).
//!
//! All waits point backwards in the global order, so executing in that order is always possible: no deadlock.

mod access;
mod check;

pub use access::{Access, Ports, Region, Space, accesses, ports};
pub use check::{check, lists};

use super::isa::{AddSource, Engine, Program, Shape};
use super::program::Instr;

const ENGINES: usize = 3;

/// Retired counts of (mat, vec, adam).
pub type Clock = [usize; ENGINES];

fn join(a: &mut Clock, b: &Clock) {
    for (x, y) in a.iter_mut().zip(b) {
        *x = (*x).max(*y);
    }
}

/// Per address, the count of each engine after its last reader and its last writer.
struct History {
    readers: Vec<[u32; ENGINES]>,
    writers: Vec<[u32; ENGINES]>,
}

/// Port users: per group, the count of each engine after its last use, and of mat after the last tile with its
/// addend there.
struct PortHistory {
    read: Vec<Clock>,
    write: Vec<Clock>,
    addend: Vec<usize>,
}

/// Counts that `instr`, number `count` of its engine, depends on.
fn dependencies(
    instr: &Instr,
    space: &Space,
    history: &mut History,
    ports_used: &mut PortHistory,
    count: usize,
) -> Clock {
    let own = instr.engine() as usize;
    let mut need = [0u32; ENGINES];
    let list = accesses(instr, space.b);
    for a in &list {
        let range = space.range(a);
        for at in range {
            for (e, n) in need.iter_mut().enumerate() {
                let writer = history.writers[at][e];
                let reader = history.readers[at][e];
                if !a.write || e != own {
                    *n = (*n).max(writer);
                }
                if a.write && e != own {
                    *n = (*n).max(reader);
                }
            }
        }
    }
    let mut need: Clock = need.map(|n| n as usize);
    let used = ports(instr);
    for (history, groups) in [
        (&mut ports_used.read, &used.read),
        (&mut ports_used.write, &used.write),
    ] {
        for &g in groups {
            for e in (0..ENGINES).filter(|&e| e != own) {
                need[e] = need[e].max(history[g][e]);
            }
            history[g][own] = count + 1;
        }
    }
    if let Instr::Mat(i) = instr {
        for g in access::operand_groups(i) {
            need[own] = need[own].max(ports_used.addend[g]);
        }
        if let AddSource::Act(g) = i.add_source {
            ports_used.addend[g] = count + 1;
        }
    }
    for a in &list {
        let table = if a.write {
            &mut history.writers
        } else {
            &mut history.readers
        };
        for at in space.range(a) {
            table[at][own] = count as u32 + 1;
        }
    }
    need
}

/// Fills in the waits of a placed program and sorts it by engine. A wait that follows from earlier ones is 0.
pub fn assign(shape: &Shape, mut order: Vec<Instr>) -> Program {
    let space = Space::new(shape);
    let mut history = History {
        readers: vec![[0; ENGINES]; space.len()],
        writers: vec![[0; ENGINES]; space.len()],
    };
    let groups = shape.group_depth.len();
    let mut ports_used = PortHistory {
        read: vec![[0; ENGINES]; groups],
        write: vec![[0; ENGINES]; groups],
        addend: vec![0; groups],
    };
    // Clock at the start of every instruction so far, by engine.
    let mut clocks: [Vec<Clock>; ENGINES] = Default::default();
    let mut program = Program::default();
    for instr in &mut order {
        let own = instr.engine() as usize;
        let count = clocks[own].len();
        let need = dependencies(instr, &space, &mut history, &mut ports_used, count);
        let base = clocks[own].last().copied().unwrap_or_default();
        let implied = |wait: &Clock| {
            let mut clock = base;
            for (f, &w) in wait.iter().enumerate() {
                if w > 0 {
                    clock[f] = clock[f].max(w);
                    join(&mut clock, &clocks[f][w - 1]);
                }
            }
            clock
        };
        let mut wait = need;
        for f in 0..ENGINES {
            let mut without = wait;
            without[f] = 0;
            if implied(&without)[f] >= need[f] {
                wait = without;
            }
        }
        let clock = implied(&wait);
        clocks[own].push(clock);
        *instr.wait_mut() = wait;
        match instr {
            Instr::Mat(i) => program.mat.push(i.clone()),
            Instr::Vec(i) => program.vec.push(i.clone()),
            Instr::Adam(i) => program.adam.push(i.clone()),
        }
    }
    program
}

/// Engines in the order of the wait counters.
pub const ENGINE_ORDER: [Engine; ENGINES] = [Engine::Mat, Engine::Vec, Engine::Adam];
