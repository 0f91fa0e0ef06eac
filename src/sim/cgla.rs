//! The array's RTL in Verilator, as a [`Machine`].

use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::verilate::{Job, Optimise, Verilator};
use crate::bitnet::backend::Phases;
use crate::cgla::packet;
use crate::cgla::rtl::{self, register};
use crate::cgla::timing::MemoryModel;
use crate::cgla::{ArrayConfig, Error, Launch, LaunchResult, Machine, Result};

/// Memory below this address holds programs and results of the current launch.
const SCRATCH: u64 = 1 << 24;

/// What the memory of the simulation does besides [`MemoryModel`].
#[derive(Debug, Clone, Copy)]
pub struct Stalls {
    /// Share of the cycles in which an address or write channel is not ready.
    pub busy: f64,
    /// Seed of every coin.
    pub seed: u32,
}

impl Default for Stalls {
    fn default() -> Self {
        Self { busy: 0.1, seed: 1 }
    }
}

/// Address and value.
type RegisterWrite = (u32, u32);

/// A running simulation.
pub struct Simulator {
    config: ArrayConfig,
    child: Child,
    to: BufWriter<ChildStdin>,
    from: BufReader<ChildStdout>,
    next: u64,
}

/// The C++ harness for a build.
pub fn harness(config: &ArrayConfig) -> String {
    let mut bindings = String::new();
    for p in 0..config.ports {
        let of = |n: &str| format!("&top->m_axi_r{p}_{n}");
        bindings.push_str(&format!(
            "    pins[{p}] = {{{}, {}, {}, top->m_axi_r{p}_rdata.data(), {}, {}, {}, {}}};\n",
            of("arready"),
            of("rvalid"),
            of("rlast"),
            of("arvalid"),
            of("rready"),
            of("arlen"),
            of("araddr"),
        ));
    }
    include_str!("../../testbench/cgla_harness.cpp")
        .replace("@PORTS@", &config.ports.to_string())
        .replace("@BINDINGS@", &bindings)
}

impl Simulator {
    /// Builds (or finds in `cache`) and starts the model.
    pub fn start(
        config: ArrayConfig,
        memory: MemoryModel,
        stalls: Stalls,
        cache: &Path,
    ) -> Result<Self> {
        let verilog = rtl::verilog(&config)?;
        let harness = harness(&config);
        let simulation = |e: super::verilate::BuildError| Error::Simulation(e.to_string());
        let model = Verilator::find()
            .map_err(simulation)?
            .build(
                &Job {
                    top: "nf_cgla_top",
                    verilog: &verilog,
                    memory: &[],
                    configuration: "",
                    harness: ("cgla_harness.cpp", &harness),
                    optimise: Optimise::Speed,
                    trace: false,
                },
                cache,
            )
            .map_err(simulation)?;
        let mut child = Command::new(&model)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Error::Simulation(format!("{}: {e}", model.display())))?;
        let pipe = || Error::Simulation("the model has no pipe".into());
        let to = BufWriter::with_capacity(1 << 20, child.stdin.take().ok_or_else(pipe)?);
        let from = BufReader::with_capacity(1 << 20, child.stdout.take().ok_or_else(pipe)?);
        let mut simulator = Self {
            config,
            child,
            to,
            from,
            next: SCRATCH,
        };
        let share = |v: f64| (v.clamp(0.0, 1.0) * 65536.0).round() as u32;
        simulator.words(&[
            5,
            share(memory.efficiency),
            memory.latency,
            share(stalls.busy),
            stalls.seed,
        ])?;
        simulator.expect_ok("memory set-up")?;
        if simulator.read_register(register::ID)? != rtl::ID_VALUE {
            return Err(Error::Simulation(
                "the model does not identify itself".into(),
            ));
        }
        Ok(simulator)
    }

    fn words(&mut self, words: &[u32]) -> Result<()> {
        let mut bytes = Vec::with_capacity(4 * words.len());
        for word in words {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.bytes(&bytes)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.to
            .write_all(bytes)
            .map_err(|e| Error::Simulation(format!("the model ended: {e}")))
    }

    fn receive(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut out = vec![0; length];
        self.to
            .flush()
            .and_then(|()| self.from.read_exact(&mut out))
            .map_err(|e| Error::Simulation(format!("the model ended: {e}")))?;
        Ok(out)
    }

    fn receive_words<const N: usize>(&mut self) -> Result<[u32; N]> {
        let bytes = self.receive(4 * N)?;
        let mut out = [0; N];
        for (word, raw) in out.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
        }
        Ok(out)
    }

    fn expect_ok(&mut self, what: &str) -> Result<()> {
        match self.receive_words()? {
            [0] => Ok(()),
            [code] => Err(Error::Simulation(format!("{what} answered {code}"))),
        }
    }

    fn write_memory(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        self.words(&[
            1,
            address as u32,
            (address >> 32) as u32,
            bytes.len() as u32,
        ])?;
        self.bytes(bytes)?;
        self.expect_ok("memory write")
    }

    fn read_memory(&mut self, address: u64, length: usize) -> Result<Vec<u8>> {
        self.words(&[2, address as u32, (address >> 32) as u32, length as u32])?;
        self.receive(length)
    }

    /// Reads a control register.
    pub fn read_register(&mut self, address: u32) -> Result<u32> {
        self.words(&[4, address])?;
        match self.receive_words()? {
            [0, value] => Ok(value),
            _ => Err(Error::Simulation(format!(
                "register {address:#x} does not answer"
            ))),
        }
    }

    /// Registers that start `launch`, with its programs in memory; returns the output addresses.
    fn prepare(&mut self, launch: &Launch) -> Result<(Vec<RegisterWrite>, Vec<u64>)> {
        let mut cursor = 0u64;
        let mut registers = vec![];
        let mut addresses = vec![];
        let (mut started, mut linked) = (0, 0);
        for (index, part) in launch.groups.iter().enumerate() {
            let Some(part) = part else {
                addresses.push(0);
                continue;
            };
            started |= 1 << index;
            linked |= u32::from(part.linked) << index;
            let program: Vec<u8> = packet::encode(&part.packets)?
                .iter()
                .flat_map(|beat| beat.to_le_bytes())
                .collect();
            let program_addr = cursor;
            self.write_memory(program_addr, &program)?;
            let out_addr = (cursor + program.len() as u64).next_multiple_of(256);
            cursor = (out_addr + u64::from(part.results) * 4 + 16).next_multiple_of(256);
            if cursor > SCRATCH {
                return Err(Error::Simulation(format!(
                    "programs and results of a launch take {cursor} bytes; the simulation \
                     reserves {SCRATCH}"
                )));
            }
            // Stale results of an earlier launch must not pass for this one's.
            let stale = vec![0xa5; (part.results as usize * 4).next_multiple_of(16)];
            self.write_memory(out_addr, &stale)?;
            let base = register::GROUP + index as u32 * register::GROUP_STRIDE;
            registers.extend([
                (base + register::PROGRAM_ADDR, program_addr as u32),
                (base + register::PROGRAM_BEATS, (program.len() / 16) as u32),
                (base + register::OUT_ADDR, out_addr as u32),
                (base + register::WEIGHT_BEATS, part.weight_beats),
            ]);
            if part.weight_beats > 0 {
                registers.push((base + register::WEIGHT_ADDR, part.weight_addr as u32));
            }
            addresses.push(out_addr);
        }
        registers.push((register::CONTROL, started | linked << 8));
        Ok((registers, addresses))
    }
}

impl Machine for Simulator {
    fn name(&self) -> &'static str {
        "rtl"
    }

    fn config(&self) -> &ArrayConfig {
        &self.config
    }

    fn place(&mut self, bytes: &[u8]) -> Result<u64> {
        let at = self.next;
        self.next = (at + bytes.len() as u64).next_multiple_of(256);
        if self.next > u64::from(u32::MAX) {
            return Err(Error::Simulation(
                "the simulated memory ends at 4 GiB".into(),
            ));
        }
        self.write_memory(at, bytes)?;
        Ok(at)
    }

    fn run(&mut self, launch: &Launch) -> Result<LaunchResult> {
        launch.check(&self.config)?;
        let (registers, addresses) = self.prepare(launch)?;
        let work: u64 = launch
            .groups
            .iter()
            .flatten()
            .map(|g| u64::from(g.weight_beats) + 64 * g.packets.len() as u64)
            .sum();
        let limit = 200 * work + 1_000_000;
        self.words(&[
            3,
            registers.len() as u32 + 1,
            limit as u32,
            (limit >> 32) as u32,
        ])?;
        self.words(&[register::INTERRUPT, 1])?;
        for (address, value) in registers {
            self.words(&[address, value])?;
        }
        let [status, low, high, violations] = self.receive_words()?;
        let total = u64::from(low) | u64::from(high) << 32;
        if status != 0 {
            return Err(Error::Simulation(format!(
                "no interrupt within {total} cycles"
            )));
        }
        if violations != 0 {
            return Err(Error::Simulation(format!(
                "{violations} violations of the bus rules"
            )));
        }
        let state = self.read_register(register::STATUS)?;
        if state & 4 != 0 {
            return Err(Error::Simulation("the array met an unknown packet".into()));
        }
        let mut phases = Phases {
            total,
            ..Phases::default()
        };
        let cycles = self.read_register(register::CYCLES)?;
        let last = self.read_register(register::LAST_EXEC)?;
        phases.drain = u64::from(cycles.saturating_sub(last));
        let mut outputs = vec![];
        for (index, (part, address)) in launch.groups.iter().zip(addresses).enumerate() {
            let Some(part) = part else {
                outputs.push(vec![]);
                continue;
            };
            let base = register::GROUP + index as u32 * register::GROUP_STRIDE;
            let mut read = |offset| self.read_register(base + offset).map(u64::from);
            phases.conf = phases.conf.max(read(register::CONF)?);
            phases.load = phases.load.max(read(register::LOAD)?);
            phases.exec = phases.exec.max(read(register::EXEC)?);
            let bytes = self.read_memory(address, part.results as usize * 4)?;
            outputs.push(
                bytes
                    .chunks_exact(4)
                    .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                    .collect(),
            );
        }
        Ok(LaunchResult { outputs, phases })
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        // A model that already ended gives an error here, which changes nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
