//! The array's RTL in Verilator, as a [`Machine`].

use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::verilate::{Job, Optimise, Verilator};
use crate::bitnet::backend::Phases;
use crate::cgla::image::Image;
use crate::cgla::registers::{self, GROUPS, register_map};
use crate::cgla::rtl::TOP;
use crate::cgla::timing::MemoryModel;
use crate::cgla::{ArrayConfig, Error, Launch, LaunchResult, Machine, Result};
use crate::compile::cgla::{harness, verilog};
use crate::emit::RegisterMap;

/// Memory below this address holds programs and results of the current launch.
const SCRATCH: u64 = 1 << 24;

/// Groups are alike: compiled once as a block, a build takes a fraction of the time.
const BLOCKS: &str = "`verilator_config\nhier_block -module \"nf_cgla_group\"\n";

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

/// A running simulation.
pub struct Simulator {
    config: ArrayConfig,
    map: RegisterMap,
    child: Child,
    to: BufWriter<ChildStdin>,
    from: BufReader<ChildStdout>,
    next: u64,
}

impl Simulator {
    /// Builds (or finds in `cache`) and starts the model.
    pub fn start(
        config: ArrayConfig,
        memory: MemoryModel,
        stalls: Stalls,
        cache: &Path,
    ) -> Result<Self> {
        let verilog = verilog(&config)?;
        let harness = harness(&config);
        let simulation = |e: super::verilate::BuildError| Error::Simulation(e.to_string());
        let model = Verilator::find()
            .map_err(simulation)?
            .build(
                &Job {
                    top: TOP,
                    verilog: &verilog,
                    memory: &[],
                    configuration: BLOCKS,
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
            map: register_map(&config),
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
        if simulator.read_register("ID")? != registers::ID {
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

    fn offset(&self, name: &str) -> Result<u32> {
        let register = self.map.find(name);
        register
            .map(|r| r.offset)
            .ok_or_else(|| Error::Simulation(format!("this build has no register {name}")))
    }

    /// Reads a control register by name.
    pub fn read_register(&mut self, name: &str) -> Result<u32> {
        let offset = self.offset(name)?;
        self.words(&[4, offset])?;
        match self.receive_words()? {
            [0, value] => Ok(value),
            _ => Err(Error::Simulation(format!(
                "register {name} does not answer"
            ))),
        }
    }

    /// Writes a control register by name.
    pub fn write_register(&mut self, name: &str, value: u32) -> Result<()> {
        let offset = self.offset(name)?;
        self.words(&[6, offset, value])?;
        self.expect_ok(&format!("register {name}"))
    }

    /// Puts a launch into memory; returns the register writes that start it and the places of
    /// its results.
    fn prepare(&mut self, launch: &Launch) -> Result<Image> {
        let mut image = Image::new(launch, 0)?;
        if image.end > SCRATCH {
            return Err(Error::Simulation(format!(
                "programs and results of a launch take {} bytes; the simulation reserves {SCRATCH}",
                image.end
            )));
        }
        for (at, program) in &image.segments {
            self.write_memory(*at, program)?;
        }
        for (at, words) in image.outputs.iter().flatten() {
            // Stale results of an earlier launch must not pass for this one's.
            let stale = vec![0xa5; (*words as usize * 4).next_multiple_of(16)];
            self.write_memory(*at, &stale)?;
        }
        // The memory ends below 4 GiB: the upper address registers stay zero from reset on.
        image.registers.retain(|(name, _)| !name.ends_with("_HI"));
        Ok(image)
    }

    fn check_status(&mut self) -> Result<()> {
        let state = self.read_register("STATUS")?;
        for (bit, what) in [
            (registers::ERROR_PACKET, "the array met an unknown packet"),
            (registers::ERROR_READ, "the array read outside the memory"),
            (registers::ERROR_WRITE, "the array wrote outside the memory"),
        ] {
            if state & bit != 0 {
                return Err(Error::Simulation(what.into()));
            }
        }
        Ok(())
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
        let image = self.prepare(launch)?;
        let work: u64 = launch
            .groups
            .iter()
            .flatten()
            .map(|g| u64::from(g.weight_beats) + 64 * g.packets.len() as u64)
            .sum();
        let limit = 200 * work + 1_000_000;
        self.words(&[
            3,
            image.registers.len() as u32 + 1,
            limit as u32,
            (limit >> 32) as u32,
        ])?;
        for (name, value) in [("IRQ_ENABLE", 1)].iter().chain(&image.registers) {
            let offset = self.offset(name)?;
            self.words(&[offset, *value])?;
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
        self.write_register("IRQ_STATUS", 1)?;
        self.check_status()?;
        let mut phases = Phases {
            total,
            ..Phases::default()
        };
        let cycles = self.read_register("CYCLES")?;
        let last = self.read_register("LAST_EXEC")?;
        let mut outputs = vec![];
        for (names, place) in GROUPS.iter().zip(&image.outputs) {
            let Some((address, words)) = *place else {
                outputs.push(vec![]);
                continue;
            };
            let mut read = |name| self.read_register(name).map(u64::from);
            phases.conf = phases.conf.max(read(names.conf)?);
            phases.load = phases.load.max(read(names.load)?);
            phases.exec = phases.exec.max(read(names.exec)?);
            let bytes = self.read_memory(address, words as usize * 4)?;
            outputs.push(
                bytes
                    .chunks_exact(4)
                    .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                    .collect(),
            );
        }
        // A launch without a step drains nothing.
        if phases.exec > 0 {
            phases.drain = u64::from(cycles.saturating_sub(last));
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
