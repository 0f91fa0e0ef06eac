//! The cycle model: when each beat arrives and is taken, when each tile runs.

use super::ArrayConfig;
use super::launch::{GroupLaunch, Launch};
use super::packet::Packet;
use super::rtl::{CREDITS, FIFO_BEATS, ROW_LATENCY};
use crate::bitnet::backend::Phases;

/// The memory behind the ports.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct MemoryModel {
    /// Share of the cycles in which a read port transfers a beat, 0 to 1.
    pub efficiency: f64,
    /// Cycles from an accepted address to its first beat.
    pub latency: u32,
}

impl Default for MemoryModel {
    /// Four 16-byte ports at 80 % of their peak, 100 cycles of latency.
    fn default() -> Self {
        Self {
            efficiency: 0.8,
            latency: 100,
        }
    }
}

impl MemoryModel {
    /// Ternary multiply-accumulates per cycle that the ports can feed at `bits` per weight.
    pub fn macs_per_cycle(&self, ports: u32, bits: f64) -> f64 {
        f64::from(ports) * 128.0 * self.efficiency / bits
    }
}

/// Cycles of one register write of the host.
const REGISTER_WRITE: u32 = 3;
/// From the last register write to the first address on the port.
const START_TO_ADDRESS: u32 = 4;
/// From a beat on the port to the loader.
const FIFO_LATENCY: f64 = 1.0;
/// From the enqueueing of a tile to its first step.
const ENQUEUE_TO_STEP: f64 = 2.0;
/// From the last step of a tile to the first of the next that waits.
const BETWEEN_TILES: f64 = 2.0;
/// From a tile's last step to its half being free, beyond the walk down the rows.
const RELEASE: f64 = 3.0;
/// From the last row's store to the write response, beyond the memory's half latency.
const WRITE: f64 = 9.0;

struct GroupTime {
    conf: u64,
    load: u64,
    exec: u64,
    last_step: f64,
    end: f64,
}

/// Cycles of a launch, from the first register write to the interrupt.
pub fn estimate(config: &ArrayConfig, launch: &Launch, memory: &MemoryModel) -> Phases {
    let writes = register_writes(launch);
    let begin = f64::from(writes * REGISTER_WRITE);
    let mut total = begin;
    let mut last_step = begin;
    let mut phases = Phases::default();
    let head = Chain {
        rows: 0,
        step: begin,
    };
    let mut chain = head;
    for part in &launch.groups {
        let Some(part) = part else {
            chain.rows = 0;
            continue;
        };
        if !part.linked {
            chain = head;
        }
        chain.rows += config.group_rows();
        let time = group_time(config, part, memory, begin, &chain);
        chain.step = chain.step.max(time.last_step);
        phases.conf = phases.conf.max(time.conf);
        phases.load = phases.load.max(time.load);
        phases.exec = phases.exec.max(time.exec);
        last_step = last_step.max(time.last_step);
        total = total.max(time.end);
    }
    phases.total = total.ceil() as u64;
    if phases.exec > 0 {
        phases.drain = (total - last_step).max(0.0).ceil() as u64;
    }
    phases
}

/// Register writes that start a launch.
pub fn register_writes(launch: &Launch) -> u32 {
    let per_group: u32 = launch
        .groups
        .iter()
        .flatten()
        .map(|g| 4 + u32::from(g.weight_beats > 0))
        .sum();
    per_group + 3
}

/// What a linked group stands behind.
#[derive(Clone, Copy)]
struct Chain {
    /// Rows from the first of the chain to the last of this group.
    rows: u32,
    /// Last step that entered the chain.
    step: f64,
}

/// Walks a group's stream: `arrival` is when the next beat is on the port, `now` when the loader
/// is ready for it.
fn group_time(
    config: &ArrayConfig,
    part: &GroupLaunch,
    memory: &MemoryModel,
    begin: f64,
    chain: &Chain,
) -> GroupTime {
    let walk = f64::from(ROW_LATENCY * config.group_rows());
    let answer = WRITE + f64::from(memory.latency / 2);
    let written = walk + answer;
    let mut clock = Beats {
        arrival: begin + f64::from(START_TO_ADDRESS + memory.latency),
        step: 1.0 / memory.efficiency,
        taken: vec![f64::MIN; FIFO_BEATS as usize],
        count: 0,
        now: begin,
    };
    let mut time = GroupTime {
        conf: 0,
        load: 0,
        exec: 0,
        last_step: begin,
        end: begin,
    };
    let mut free = [begin; 2];
    let mut half = 0;
    let mut exec_end = begin - BETWEEN_TILES;
    for packet in &part.packets {
        clock.take();
        match packet {
            Packet::Configure { .. } => {
                clock.wait(free[0].max(free[1]));
                clock.take();
                clock.take();
                time.conf += 2;
            }
            Packet::Load { both, beats, .. } => {
                let ready = if *both {
                    free[0].max(free[1])
                } else {
                    free[half]
                };
                clock.wait(ready);
                clock.now += 1.0;
                for _ in beats {
                    clock.take();
                }
                time.load += beats.len() as u64;
            }
            Packet::Tiles(work) | Packet::Execute(work) => {
                let dealing = matches!(packet, Packet::Tiles(_));
                let mut left = work.total;
                while left > 0 {
                    let count = left.min(work.tile.into());
                    clock.wait(free[half]);
                    clock.now += 1.0;
                    if dealing {
                        let beats = count * u32::from(work.unit);
                        for _ in 0..beats {
                            clock.take();
                        }
                        time.load += u64::from(beats);
                    }
                    clock.now += 1.0;
                    let steps = u64::from(count) * u64::from(work.tokens) * u64::from(work.steps);
                    let start = (clock.now + ENQUEUE_TO_STEP).max(exec_end + BETWEEN_TILES);
                    let pace = if work.store == super::isa::Store::Every {
                        ((walk + 10.0) / f64::from(CREDITS)).max(1.0)
                    } else {
                        1.0
                    };
                    exec_end = start + steps as f64 * pace;
                    time.exec += steps;
                    time.last_step = exec_end;
                    free[half] = exec_end + walk - f64::from(ROW_LATENCY) + RELEASE;
                    half ^= 1;
                    left -= count;
                }
                if work.is_final {
                    time.end = exec_end + written;
                }
            }
            Packet::End { wait } => {
                // A linked group waits for what walks down the whole chain.
                let last = if part.linked { chain.step } else { exec_end };
                let settle = f64::from(ROW_LATENCY * chain.rows) + answer;
                time.end = clock.now.max(if *wait { last + settle } else { exec_end });
            }
        }
    }
    time
}

struct Beats {
    arrival: f64,
    step: f64,
    taken: Vec<f64>,
    count: usize,
    now: f64,
}

impl Beats {
    fn wait(&mut self, until: f64) {
        self.now = self.now.max(until);
    }

    /// The loader takes the next beat: not before it is there, one per cycle. The port cannot
    /// deliver a beat before the one a queue length earlier was taken.
    fn take(&mut self) {
        let slot = self.count % self.taken.len();
        let delivered = self.arrival.max(self.taken[slot]);
        self.arrival = delivered + self.step;
        self.now = self.now.max(delivered + FIFO_LATENCY) + 1.0;
        self.taken[slot] = self.now;
        self.count += 1;
    }
}
