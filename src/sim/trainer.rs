//! Simulates a compiled trainer on real samples and compares it with the reference, word by word.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::compare::{Comparison, Difference, compare, from_words, to_words};
use super::driver::{Beat, Driver, DriverError};
use super::phases::{
    OperatorComparison, PhaseComparison, observed, operators, phases, watched_signals,
};
use super::verilate::{BuildError, Job, Optimise, Verilator};
use crate::compile::trainer::TOP;
use crate::config::ModelConfig;
use crate::emit::core::Core;
use crate::reference::{ReferenceError, State, Trainer};
use crate::trainer::cycles::Timeline;
use crate::trainer::layout::{TrainerState, beats_to_state, state_to_beats};
use crate::trainer::plan::Plan;

/// How to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    /// Idle and back-pressure probability of every stream and of the register bus.
    pub stalls: f64,
    /// Seed of the stalls.
    pub seed: u32,
    /// Waveform to write, for a model built with tracing.
    pub waveform: Option<PathBuf>,
    /// Folder of built models.
    pub cache: PathBuf,
    /// Threads of the reference.
    pub threads: usize,
    /// Idle cycles after which a transaction counts as hung; without it, a generous bound.
    pub limit: Option<u32>,
}

/// Why a simulation could not run.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("reference: {0}")]
    Reference(#[from] ReferenceError),
    #[error("{0}")]
    State(String),
    #[error(
        "the core reads {got:#010x} where this compiler writes {expected:#010x}: the RTL belongs to another plan"
    )]
    WrongCore { expected: u32, got: u32 },
}

/// What one sample gave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepReport {
    pub step: u32,
    /// Loss that the hardware reported.
    pub loss: f32,
    pub correct: u32,
    pub cycles: u64,
    pub words_compared: u64,
    pub mismatches: u64,
}

/// Outcome of a simulation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SimReport {
    /// `match` or `mismatch`.
    pub verdict: &'static str,
    pub steps: u32,
    pub parameters: usize,
    pub words_compared: u64,
    pub mismatches: u64,
    pub loss: Vec<f32>,
    /// Mean over the samples, from tokens taken to last update retired.
    pub cycles_per_step: f64,
    /// Channel-cycles in which a stream waited.
    pub stall_cycles: u64,
    /// All cycles simulated, state transfers included.
    pub simulated_cycles: u64,
    /// Cycles of the last sample by engine and phase, against the plan.
    pub phases: Vec<PhaseComparison>,
    pub operators: Vec<OperatorComparison>,
    /// When every instruction of the last sample started and retired.
    #[serde(skip)]
    pub timeline: Option<Timeline>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_difference: Option<Difference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waveform: Option<String>,
}

/// A built model with the register addresses it needs.
#[derive(Clone)]
pub struct Model {
    path: PathBuf,
    arguments: Vec<String>,
    control: u32,
    build_id: (u32, u32),
}

impl Model {
    /// The model, started with a plusarg more.
    pub fn with_argument(&self, argument: String) -> Model {
        let mut model = self.clone();
        model.arguments.push(argument);
        model
    }
}

const START_TRAIN: u32 = 1;
const START_EVAL: u32 = 2;
const WEIGHT_READ: u32 = 4;
const WEIGHT_WRITE: u32 = 8;

/// Words of a result packet: loss, loss_q24 low and high, correct, step, cycles low and high.
const RESULT_WORDS: usize = 7;

/// Builds the model of `core`, or of other Verilog with the same ports.
pub fn build(
    core: &Core,
    verilog: Option<&[(String, String)]>,
    options: &Options,
) -> Result<Model, SimError> {
    let pairs = |files: &[crate::emit::core::TextFile]| -> Vec<(String, String)> {
        files
            .iter()
            .map(|f| (f.name.clone(), f.text.clone()))
            .collect()
    };
    let own = pairs(&core.rtl);
    let memory = pairs(&core.memories);
    let harness = &core.testbench[0];
    let path = Verilator::find()?.build(
        &Job {
            top: TOP,
            verilog: verilog.unwrap_or(&own),
            memory: &memory,
            harness: (&harness.name, &harness.text),
            configuration: &watched_signals(),
            optimise: Optimise::Speed,
            trace: options.waveform.is_some(),
        },
        &options.cache,
    )?;
    let register = |name: &str| {
        core.registers
            .find(name)
            .map_or((0, 0), |r| (r.offset, r.reset))
    };
    Ok(Model {
        path,
        arguments: vec![],
        control: register("CONTROL").0,
        build_id: register("BUILD_ID"),
    })
}

/// A running machine with the reference beside it.
pub struct Session<'a> {
    plan: &'a Plan,
    driver: Driver,
    control: u32,
    /// Idle cycles after which a transaction counts as hung.
    limit: u32,
}

impl<'a> Session<'a> {
    /// Starts a model.
    pub fn start(plan: &'a Plan, model: &Model, options: &Options) -> Result<Self, SimError> {
        let mut driver = Driver::start(&model.path, &model.arguments)?;
        if let Some(path) = &options.waveform {
            driver.trace(path)?;
        }
        driver.set_stalls(options.stalls, options.seed)?;
        let (address, expected) = model.build_id;
        let got = driver.read_register(address)?;
        if got != expected {
            return Err(SimError::WrongCore { expected, got });
        }
        let program = &plan.program;
        let work: usize = program.mat.iter().map(|i| i.k + i.nr).sum::<usize>()
            + program.vec.iter().map(|i| i.n + 500).sum::<usize>()
            + plan.model.parameters();
        Ok(Session {
            plan,
            driver,
            control: model.control,
            limit: options
                .limit
                .unwrap_or((8 * work + 100_000).min(u32::MAX as usize) as u32),
        })
    }

    /// WeightWrite: loads weights, moments, schedule and seed.
    pub fn write_state(&mut self, state: &TrainerState) -> Result<(), SimError> {
        let beats: Vec<Beat> = state_to_beats(&self.plan.weights, state);
        self.driver.write_register(self.control, WEIGHT_WRITE)?;
        self.driver.send_state(&beats)?;
        Ok(())
    }

    /// WeightRead: the whole state as the hardware stores it.
    pub fn read_state(&mut self) -> Result<TrainerState, SimError> {
        self.driver.write_register(self.control, WEIGHT_READ)?;
        let beats = self.driver.receive_state(self.limit)?;
        beats_to_state(&self.plan.model, &self.plan.weights, &beats).map_err(SimError::State)
    }

    /// Trains on one window of T + 1 tokens and returns the result packet.
    pub fn train(&mut self, window: &[u32]) -> Result<Vec<u32>, SimError> {
        self.sample(window, START_TRAIN)
    }

    /// Forward pass only; the packet ends with the logits of the chosen position.
    pub fn evaluate(&mut self, window: &[u32]) -> Result<Vec<u32>, SimError> {
        self.sample(window, START_EVAL)
    }

    fn sample(&mut self, window: &[u32], command: u32) -> Result<Vec<u32>, SimError> {
        self.driver.write_register(self.control, command)?;
        self.driver.send_tokens(window)?;
        let words = self.driver.receive_result(self.limit)?;
        if words.len() < RESULT_WORDS {
            return Err(SimError::State(format!(
                "a result packet has {} words, expected at least {RESULT_WORDS}",
                words.len()
            )));
        }
        Ok(words)
    }

    /// The bus driver, for tests of the registers.
    pub fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }
}

/// Trains `windows` one by one on both sides and compares every word after every sample.
///
/// `progress` is called after each sample. Stops at the first sample with a difference. Also
/// returns the state that the hardware holds at the end.
pub fn run(
    plan: &Plan,
    model: &Model,
    initial: &State,
    windows: &[Vec<u32>],
    options: &Options,
    progress: &mut dyn FnMut(&StepReport),
) -> Result<(SimReport, State), SimError> {
    let config = &plan.model;
    let mut reference = Trainer::new(config, initial.clone(), options.threads)?;
    let mut session = Session::start(plan, model, options)?;
    session.write_state(&to_words(config, initial))?;

    let mut report = SimReport {
        verdict: "match",
        parameters: config.parameters(),
        waveform: options.waveform.as_ref().map(|p| p.display().to_string()),
        ..SimReport::default()
    };
    let mut cycles_total = 0u64;
    let mut held = initial.clone();
    for (n, window) in windows.iter().enumerate() {
        let step = n as u32 + 1;
        let packet = session.train(window)?;
        let expected = reference.step(window)?;
        let mut comparison = compare_result(step, &packet, &expected);
        let got = session.read_state()?;
        comparison.merge(compare(
            config,
            step,
            &to_words(config, reference.state()),
            &got,
        ));
        held = from_words(config, &got);
        let cycles = u64::from(packet[6]) << 32 | u64::from(packet[5]);
        cycles_total += cycles;
        report.steps = step;
        report.words_compared += comparison.words;
        report.mismatches += comparison.mismatches;
        report.loss.push(f32::from_bits(packet[0]));
        progress(&StepReport {
            step,
            loss: f32::from_bits(packet[0]),
            correct: packet[3],
            cycles,
            words_compared: comparison.words,
            mismatches: comparison.mismatches,
        });
        if comparison.mismatches > 0 {
            report.verdict = "mismatch";
            report.first_difference = comparison.first;
            break;
        }
    }
    report.cycles_per_step = cycles_total as f64 / f64::from(report.steps.max(1));
    report.timeline = observed(plan, session.driver.events()?);
    if let Some(timeline) = &report.timeline {
        report.operators = operators(plan, timeline);
        report.phases = phases(&report.operators);
    }
    let counters = session.driver.counters()?;
    report.stall_cycles = counters.stalled;
    report.simulated_cycles = counters.cycles;
    if report.words_compared == 0 {
        // A run that compared nothing proves nothing.
        report.verdict = "mismatch";
    }
    Ok((report, held))
}

/// The reference's state before sample `step` (1-based) of a run.
pub fn reference_before(
    model: &ModelConfig,
    initial: &State,
    windows: &[Vec<u32>],
    step: u32,
) -> Result<State, ReferenceError> {
    let mut reference = Trainer::new(model, initial.clone(), 1)?;
    for window in windows.iter().take(step as usize - 1) {
        reference.step(window)?;
    }
    Ok(reference.into_state())
}

fn compare_result(
    step: u32,
    packet: &[u32],
    expected: &crate::reference::StepResult,
) -> Comparison {
    let q24 = expected.loss_q24 as u64;
    let mut out = Comparison::default();
    for (word, got, want) in [
        ("loss", packet[0], expected.loss.to_bits()),
        ("loss_q24 low word", packet[1], q24 as u32),
        ("loss_q24 high word", packet[2], (q24 >> 32) as u32),
        ("correct predictions", packet[3], expected.correct as u32),
    ] {
        out.words += 1;
        if got != want {
            out.mismatches += 1;
            out.first.get_or_insert_with(|| Difference {
                step,
                tensor: "result packet".into(),
                word,
                row: 0,
                column: 0,
                expected_bits: format!("{want:08x}"),
                got_bits: format!("{got:08x}"),
                expected: f32::from_bits(want),
                got: f32::from_bits(got),
                ulps: u64::from(want.abs_diff(got)),
            });
        }
    }
    out
}

/// Every Verilog file of a folder, by name.
pub fn read_verilog(folder: &Path) -> std::io::Result<Vec<(String, String)>> {
    let mut files = vec![];
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        if name.ends_with(".v") {
            files.push((name, std::fs::read_to_string(&path)?));
        }
    }
    files.sort();
    Ok(files)
}
