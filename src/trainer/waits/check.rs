//! An independent proof that three programs are free of races and deadlocks.
//!
//! It does not look at the order they were emitted in. First it lets the engines run as far as the waits allow: if
//! they stop before the end, the waits deadlock. On the way it notes what each instruction can rely on at its start
//! (the retired counts, and transitively what those instructions could rely on). Then every two instructions that touch
//! the same word, one of them writing, or the same port must be ordered one way or the other.

use super::access::{Space, accesses, operand_groups, ports};
use super::{Clock, ENGINE_ORDER, ENGINES, join};
use crate::trainer::isa::*;
use crate::trainer::program::Instr;

/// Name of an instruction in messages.
fn name(engine: usize, index: usize) -> String {
    format!("{:?} {index}", ENGINE_ORDER[engine]).to_lowercase()
}

/// The programs as one list per engine.
pub fn lists(program: &Program) -> [Vec<Instr>; ENGINES] {
    [
        program.mat.iter().cloned().map(Instr::Mat).collect(),
        program.vec.iter().cloned().map(Instr::Vec).collect(),
        program.adam.iter().cloned().map(Instr::Adam).collect(),
    ]
}

/// What every instruction can rely on when it starts; an error names a deadlock.
fn clocks(lists: &[Vec<Instr>; ENGINES]) -> Result<[Vec<Clock>; ENGINES], String> {
    let mut clocks: [Vec<Clock>; ENGINES] = Default::default();
    loop {
        let mut moved = false;
        for e in 0..ENGINES {
            while let Some(instr) = lists[e].get(clocks[e].len()) {
                let wait = instr.wait();
                if (0..ENGINES).any(|f| clocks[f].len() < wait[f]) {
                    break;
                }
                let mut clock = clocks[e].last().copied().unwrap_or_default();
                for f in 0..ENGINES {
                    if wait[f] > 0 {
                        clock[f] = clock[f].max(wait[f]);
                        let before = clocks[f][wait[f] - 1];
                        join(&mut clock, &before);
                    }
                }
                clocks[e].push(clock);
                moved = true;
            }
        }
        if (0..ENGINES).all(|e| clocks[e].len() == lists[e].len()) {
            return Ok(clocks);
        }
        if !moved {
            let stuck: Vec<String> = (0..ENGINES)
                .filter(|&e| clocks[e].len() < lists[e].len())
                .map(|e| name(e, clocks[e].len()))
                .collect();
            return Err(format!("deadlock: {} wait for ever", stuck.join(", ")));
        }
    }
}

/// Proves a program free of races and deadlocks, or names the first two instructions that collide.
pub fn check(shape: &Shape, program: &Program) -> Result<(), String> {
    let lists = lists(program);
    let clocks = clocks(&lists)?;
    let space = Space::new(shape);
    let ordered = |(e, i): (usize, usize), (f, j): (usize, usize)| clocks[f][j][e] > i;
    // Per word: (engine, index, writes).
    let mut words: Vec<Vec<(u8, u32, bool)>> = vec![vec![]; space.len()];
    let groups = shape.group_depth.len();
    // Per group, read port then write port.
    let mut users: Vec<Vec<(u8, u32)>> = vec![vec![]; 2 * groups];
    for (e, list) in lists.iter().enumerate() {
        for (i, instr) in list.iter().enumerate() {
            for a in accesses(instr, space.b) {
                let range = space.range(&a);
                if range.end > space.len() {
                    return Err(format!("{} reaches beyond its memory", name(e, i)));
                }
                for at in range {
                    words[at].push((e as u8, i as u32, a.write));
                }
            }
            let used = ports(instr);
            for (n, list) in [used.read, used.write].into_iter().enumerate() {
                for (k, &g) in list.iter().enumerate() {
                    if list[..k].contains(&g) {
                        return Err(format!("{} uses a port of group {g} twice", name(e, i)));
                    }
                    users[2 * g + n].push((e as u8, i as u32));
                }
            }
        }
    }
    for list in &words {
        for (n, &(f, j, w)) in list.iter().enumerate() {
            for &(e, i, v) in &list[..n] {
                let (a, b) = ((e as usize, i as usize), (f as usize, j as usize));
                if !(v || w) || a == b {
                    continue;
                }
                // An engine keeps its own order, except that it does not wait for its own results.
                let safe = if e == f {
                    !v || w || ordered(a, b)
                } else {
                    ordered(a, b) || ordered(b, a)
                };
                if !safe {
                    return Err(format!("{} and {} race", name(a.0, a.1), name(b.0, b.1)));
                }
            }
        }
    }
    for (n, list) in users.iter().enumerate() {
        for (m, &(f, j)) in list.iter().enumerate() {
            for &(e, i) in &list[..m] {
                let (a, b) = ((e as usize, i as usize), (f as usize, j as usize));
                if e != f && !ordered(a, b) && !ordered(b, a) {
                    let port = ["read", "write"][n % 2];
                    return Err(format!(
                        "{} and {} meet at the {port} port of group {}",
                        name(a.0, a.1),
                        name(b.0, b.1),
                        n / 2
                    ));
                }
            }
        }
    }
    for (j, tile) in program.mat.iter().enumerate() {
        for (i, earlier) in program.mat[..j].iter().enumerate() {
            let AddSource::Act(g) = earlier.add_source else {
                continue;
            };
            if operand_groups(tile).any(|n| n == g) && !ordered((0, i), (0, j)) {
                return Err(format!(
                    "mat {i} may read its addend when mat {j} reads an operand of group {g}"
                ));
            }
        }
    }
    Ok(())
}
