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

pub use access::{Access, Ports, Region, Space, accesses, operand_groups, ports};
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

/// Per piece of memory, the count of each engine after its last reader and its last writer.
struct History {
    readers: Vec<Clock>,
    writers: Vec<Clock>,
}

/// Memory cut into pieces at the ends of all accesses: an access is a range of few pieces, however many words it has.
struct Pieces {
    cuts: std::collections::BTreeMap<Region, (usize, Vec<usize>)>,
    count: usize,
}

impl Pieces {
    fn new(lists: &[Vec<Access>]) -> Self {
        let mut cuts: std::collections::BTreeMap<Region, (usize, Vec<usize>)> = Default::default();
        for a in lists.iter().flatten() {
            let entry = cuts.entry(a.region).or_default();
            entry.1.extend([a.start, a.start + a.len]);
        }
        let mut count = 0;
        for (first, ends) in cuts.values_mut() {
            ends.sort_unstable();
            ends.dedup();
            *first = count;
            count += ends.len();
        }
        Self { cuts, count }
    }

    fn range(&self, a: &Access) -> std::ops::Range<usize> {
        let Some((first, ends)) = self.cuts.get(&a.region) else {
            return 0..0;
        };
        let at = |word: usize| first + ends.partition_point(|&e| e < word);
        at(a.start)..at(a.start + a.len)
    }
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
    list: &[(std::ops::Range<usize>, bool)],
    history: &mut History,
    ports_used: &mut PortHistory,
    count: usize,
) -> Clock {
    let own = instr.engine() as usize;
    let mut need = [0; ENGINES];
    for (range, write) in list {
        for at in range.clone() {
            for (e, n) in need.iter_mut().enumerate() {
                let writer = history.writers[at][e];
                let reader = history.readers[at][e];
                if !write || e != own {
                    *n = (*n).max(writer);
                }
                if *write && e != own {
                    *n = (*n).max(reader);
                }
            }
        }
    }
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
    for (range, write) in list {
        let table = match write {
            true => &mut history.writers,
            false => &mut history.readers,
        };
        for at in range.clone() {
            table[at][own] = count + 1;
        }
    }
    need
}

/// Fills in the waits of a placed program and sorts it by engine. A wait that follows from earlier ones is 0.
pub fn assign(shape: &Shape, order: Vec<Instr>) -> Program {
    let lists: Vec<Vec<Access>> = order.iter().map(|i| accesses(i, shape.b)).collect();
    let pieces = Pieces::new(&lists);
    let mut history = History {
        readers: vec![[0; ENGINES]; pieces.count],
        writers: vec![[0; ENGINES]; pieces.count],
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
    for (mut instr, list) in order.into_iter().zip(&lists) {
        let own = instr.engine() as usize;
        let count = clocks[own].len();
        let list: Vec<_> = list.iter().map(|a| (pieces.range(a), a.write)).collect();
        let need = dependencies(&instr, &list, &mut history, &mut ports_used, count);
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
            Instr::Mat(i) => program.mat.push(i),
            Instr::Vec(i) => program.vec.push(i),
            Instr::Adam(i) => program.adam.push(i),
        }
    }
    program
}

/// Engines in the order of the wait counters.
pub const ENGINE_ORDER: [Engine; ENGINES] = [Engine::Mat, Engine::Vec, Engine::Adam];
