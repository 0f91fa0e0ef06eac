//! Co-simulation of one block: the printed Verilog in Verilator against the interpreter.
//!
//! Any module of the DSL can be driven without further code: [`compare`] prints it, builds a
//! model (cached by content), runs the same stimulus through both and compares every output
//! in every cycle.

use crate::dsl::{Design, DesignError, Interpreter, ModuleDef};
use crate::sim::verilate::{BuildError, Job, Optimise, Verilator};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

/// Input values of a module for a number of cycles.
#[derive(Clone, Debug)]
pub struct Stimulus {
    /// Cycles with `rst` = 1 at the start (all other inputs as given), where the module has one.
    pub reset_cycles: usize,
    widths: Vec<u32>,
    /// Limbs of all inputs, cycle after cycle.
    data: Vec<u64>,
    cycles: usize,
}

/// Limbs of a value on the wire between this process and the model.
fn limbs(width: u32) -> usize {
    width.div_ceil(64).max(1) as usize
}

impl Stimulus {
    /// All inputs zero.
    pub fn zero(def: &ModuleDef, cycles: usize) -> Self {
        let widths: Vec<u32> = def.inputs.iter().map(|p| p.width).collect();
        let stride: usize = widths.iter().map(|&w| limbs(w)).sum();
        Stimulus {
            reset_cycles: if def.has_rst { 2 } else { 0 },
            data: vec![0; stride * cycles],
            widths,
            cycles,
        }
    }

    /// Random values, a quarter of them corner cases (all zeros, all ones, one bit, a run of ones).
    pub fn random(def: &ModuleDef, cycles: usize, seed: u64) -> Self {
        let mut s = Self::zero(def, cycles);
        let mut rng = Pcg64::seed_from_u64(seed);
        for cycle in 0..cycles {
            for input in 0..s.widths.len() {
                let width = s.widths[input];
                let kind = rng.random_range(0..16u32);
                let at = rng.random_range(0..width);
                let value: Vec<u64> = (0..limbs(width))
                    .map(|k| match kind {
                        0 => 0,
                        1 => u64::MAX,
                        2 => (k as u32 == at / 64) as u64 * (1 << (at % 64)),
                        3 if (k as u32) < at / 64 => u64::MAX,
                        3 if k as u32 == at / 64 => (1 << (at % 64)) - 1,
                        3 => 0,
                        _ => rng.random(),
                    })
                    .collect();
                s.set_limbs(cycle, input, &value);
            }
        }
        s
    }

    /// One value per input (in the order of `def.inputs`) and cycle.
    pub fn from_rows(def: &ModuleDef, rows: &[Vec<u128>]) -> Self {
        let mut s = Self::zero(def, rows.len());
        for (cycle, row) in rows.iter().enumerate() {
            for (input, &value) in row.iter().enumerate().take(s.widths.len()) {
                s.set(cycle, input, value);
            }
        }
        s
    }

    /// Sets one value.
    pub fn set(&mut self, cycle: usize, input: usize, value: u128) {
        self.set_limbs(cycle, input, &[value as u64, (value >> 64) as u64]);
    }

    /// Sets one value of any width; bits beyond the width are cut.
    pub fn set_limbs(&mut self, cycle: usize, input: usize, value: &[u64]) {
        let (at, n) = self.place(cycle, input);
        let width = self.widths[input];
        for k in 0..n {
            let bits = (width - 64 * k as u32).min(64);
            let limb = value.get(k).copied().unwrap_or(0);
            self.data[at + k] = limb & u64::MAX >> (64 - bits);
        }
    }

    /// Cycles.
    pub fn cycles(&self) -> usize {
        self.cycles
    }

    fn place(&self, cycle: usize, input: usize) -> (usize, usize) {
        let stride = self.data.len() / self.cycles.max(1);
        let before: usize = self.widths[..input].iter().map(|&w| limbs(w)).sum();
        (cycle * stride + before, limbs(self.widths[input]))
    }

    fn value(&self, cycle: usize, input: usize) -> &[u64] {
        let (at, n) = self.place(cycle, input);
        &self.data[at..at + n]
    }
}

/// The outputs of a run: limbs of every output, cycle after cycle, before each clock edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Limbs, cycle after cycle.
    pub data: Vec<u64>,
    /// Cycles that ran; fewer than asked for when a check failed.
    pub cycles: usize,
    /// What failing checks said.
    pub failures: Vec<String>,
}

/// Words compared when everything was equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Cycles compared.
    pub cycles: usize,
    /// Output values compared.
    pub words_compared: u64,
}

/// Why a co-simulation did not end in a [`Report`].
#[derive(Debug, thiserror::Error)]
pub enum CosimError {
    /// Verilator is missing or refused the text.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The module tree is inconsistent.
    #[error(transparent)]
    Design(#[from] DesignError),
    /// A file could not be used.
    #[error("cannot use {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The model ended with an error.
    #[error("the model of {module} failed: {message}")]
    Model {
        /// Module name.
        module: String,
        /// Its output.
        message: String,
    },
    /// A check in the design failed.
    #[error("a check failed in {module}: {message}")]
    Check {
        /// Module name.
        module: String,
        /// The check's message and cycle.
        message: String,
    },
    /// The two disagree.
    #[error(
        "{module}.{port} differs in cycle {cycle}: Verilator 0x{verilog}, interpreter 0x{interpreter} (after {compared} equal words)"
    )]
    Mismatch {
        /// Module name.
        module: String,
        /// Output port.
        port: String,
        /// Cycle, counted from 0.
        cycle: usize,
        /// Value in the Verilog model, hexadecimal.
        verilog: String,
        /// Value in the interpreter, hexadecimal.
        interpreter: String,
        /// Equal words before it.
        compared: u64,
    },
}

/// Where models are cached: `NFGEN_CACHE`, else `target/nfgen-cache` of the running package.
pub fn cache_dir() -> PathBuf {
    match std::env::var_os("NFGEN_CACHE") {
        Some(dir) => dir.into(),
        None => {
            let base =
                std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(PathBuf::new, PathBuf::from);
            base.join("target/nfgen-cache")
        }
    }
}

/// For tests: true (after a visible line) when Verilator is missing and may be.
///
/// # Panics
/// If it is missing and `NFGEN_REQUIRE_TOOLS=1`.
pub fn skip_without_verilator(test: &str) -> bool {
    let Err(error) = Verilator::find() else {
        return false;
    };
    let required = std::env::var("NFGEN_REQUIRE_TOOLS").is_ok_and(|v| v == "1");
    assert!(!required, "{test}: {error}");
    println!("skipped: {test}: {error}");
    true
}

/// Runs `stimulus` through the interpreter.
pub fn interpret(def: &Arc<ModuleDef>, stimulus: &Stimulus) -> Trace {
    let mut sim = Interpreter::new(def);
    let mut data = vec![];
    for cycle in 0..stimulus.cycles {
        sim.set_reset(cycle < stimulus.reset_cycles);
        for input in 0..def.inputs.len() {
            sim.set_input_at(input, stimulus.value(cycle, input));
        }
        for k in 0..def.outputs.len() {
            data.extend_from_slice(sim.output_at(k));
        }
        sim.step();
    }
    Trace {
        data,
        cycles: stimulus.cycles,
        failures: sim.failures().to_vec(),
    }
}

/// A built Verilator model of one module.
#[derive(Clone, Debug)]
pub struct Model {
    def: Arc<ModuleDef>,
    path: PathBuf,
    arguments: Vec<String>,
}

impl Model {
    /// The model, started with a plusarg more.
    pub fn with_argument(&self, argument: String) -> Self {
        let mut model = self.clone();
        model.arguments.push(argument);
        model
    }

    /// Prints and builds `def`, or finds the model in the cache.
    pub fn build(def: &Arc<ModuleDef>) -> Result<Self, CosimError> {
        let files = Design::new(def.clone())?.print_verilog("");
        Self::build_from(def, &files)
    }

    /// Builds `def` from other Verilog text with the same ports, e.g. a changed print.
    pub fn build_from(
        def: &Arc<ModuleDef>,
        verilog: &[(String, String)],
    ) -> Result<Self, CosimError> {
        let memory = Design::new(def.clone())?.memory_files();
        let harness = harness(def);
        let path = Verilator::find()?.build(
            &Job {
                top: &def.name,
                verilog,
                memory: &memory,
                configuration: "",
                harness: ("cosim_main.cpp", &harness),
                optimise: Optimise::Build,
                trace: false,
            },
            &cache_dir().join("cosim"),
        )?;
        let path = std::path::absolute(&path).unwrap_or(path);
        Ok(Model {
            def: def.clone(),
            path,
            arguments: vec![],
        })
    }

    /// Runs `stimulus` through the model.
    pub fn run(&self, stimulus: &Stimulus) -> Result<Trace, CosimError> {
        let io = |path: &std::path::Path, source| CosimError::Io {
            path: path.display().to_string(),
            source,
        };
        let work = tempfile::tempdir().map_err(|e| io(&std::env::temp_dir(), e))?;
        let (input, output) = (work.path().join("in.bin"), work.path().join("out.bin"));
        let mut bytes = Vec::with_capacity(stimulus.data.len() * 8 + 16);
        for word in [stimulus.cycles as u64, stimulus.reset_cycles as u64]
            .iter()
            .chain(&stimulus.data)
        {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        std::fs::write(&input, bytes).map_err(|e| io(&input, e))?;
        // Memory files lie beside the model.
        let dir = self.path.parent().unwrap_or(std::path::Path::new("."));
        let run = Command::new(&self.path)
            .current_dir(dir)
            .args([&input, &output])
            .args(&self.arguments)
            .output()
            .map_err(|e| io(&self.path, e))?;
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        if !run.status.success() {
            let message = format!("{text}{}", String::from_utf8_lossy(&run.stderr));
            return Err(CosimError::Model {
                module: self.def.name.clone(),
                message,
            });
        }
        let bytes = std::fs::read(&output).map_err(|e| io(&output, e))?;
        let words = bytes.chunks_exact(8).map(|c| {
            let mut word = [0; 8];
            word.copy_from_slice(c);
            u64::from_le_bytes(word)
        });
        let data: Vec<u64> = words.collect();
        let stride: usize = self.def.outputs.iter().map(|p| limbs(p.width)).sum();
        let said = text.lines().filter(|l| !l.starts_with("- "));
        Ok(Trace {
            cycles: data.len() / stride.max(1),
            data,
            failures: said.map(str::to_string).collect(),
        })
    }
}

/// Builds `def`, runs `stimulus` in Verilator and in the interpreter, compares every output
/// in every cycle. A failing check in the design is an error too.
pub fn compare(def: &Arc<ModuleDef>, stimulus: &Stimulus) -> Result<Report, CosimError> {
    compare_model(&Model::build(def)?, stimulus)
}

/// [`compare`] with a model that was built before.
pub fn compare_model(model: &Model, stimulus: &Stimulus) -> Result<Report, CosimError> {
    let def = &model.def;
    let want = interpret(def, stimulus);
    let got = model.run(stimulus)?;
    let stride: usize = def.outputs.iter().map(|p| limbs(p.width)).sum();
    let mut compared = 0;
    for cycle in 0..got.cycles.min(want.cycles) {
        let mut at = cycle * stride;
        for port in &def.outputs {
            let n = limbs(port.width);
            let (g, w) = (&got.data[at..at + n], &want.data[at..at + n]);
            if g != w {
                return Err(CosimError::Mismatch {
                    module: def.name.clone(),
                    port: port.name.clone(),
                    cycle,
                    verilog: hex(g),
                    interpreter: hex(w),
                    compared,
                });
            }
            compared += 1;
            at += n;
        }
    }
    let failure = want.failures.first().or(got.failures.first());
    if let Some(message) = failure {
        return Err(CosimError::Check {
            module: def.name.clone(),
            message: message.clone(),
        });
    }
    if got.cycles < stimulus.cycles {
        return Err(CosimError::Model {
            module: def.name.clone(),
            message: format!("stopped after {} of {} cycles", got.cycles, stimulus.cycles),
        });
    }
    Ok(Report {
        cycles: got.cycles,
        words_compared: compared,
    })
}

fn hex(limbs: &[u64]) -> String {
    let mut text = String::new();
    for (k, limb) in limbs.iter().rev().enumerate() {
        let _ = match k {
            0 => write!(text, "{limb:x}"),
            _ => write!(text, "{limb:016x}"),
        };
    }
    text
}

/// The C++ program that drives the model from a file and records its outputs.
fn harness(def: &ModuleDef) -> String {
    let name = &def.name;
    let mut drive = String::new();
    for port in &def.inputs {
        let _ = writeln!(
            drive,
            "        take(top.{}, {}, in);",
            port.name,
            limbs(port.width)
        );
    }
    let mut record = String::new();
    for port in &def.outputs {
        let _ = writeln!(
            record,
            "        give(top.{}, {}, out);",
            port.name,
            limbs(port.width)
        );
    }
    let reset = if def.has_rst {
        "        top.rst = c < reset;\n"
    } else {
        ""
    };
    let edge = if def.has_clk {
        "        top.clk = 1;\n        top.eval();\n        top.clk = 0;\n        top.eval();\n"
    } else {
        ""
    };
    let start = if def.has_clk {
        "    top.clk = 0;\n"
    } else {
        ""
    };
    format!(
        r#"// Drives {name} from a file of 64-bit words and records its outputs.
#include "V{name}.h"
#include "verilated.h"
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <vector>

template <class T> void take(T& port, int limbs, const uint64_t*& in) {{
    if constexpr (std::is_integral<T>::value) port = static_cast<T>(*in);
    else std::memcpy(&port, in, sizeof(T));
    in += limbs;
}}
template <class T> void give(const T& port, int limbs, std::vector<uint64_t>& out) {{
    const size_t at = out.size();
    out.resize(at + limbs, 0);
    if constexpr (std::is_integral<T>::value) out[at] = port;
    else std::memcpy(&out[at], &port, sizeof(T));
}}
int main(int argc, char** argv) {{
    if (argc < 3) return 2;
    std::vector<uint64_t> words;
    FILE* f = std::fopen(argv[1], "rb");
    if (!f) return 2;
    uint64_t word;
    while (std::fread(&word, 8, 1, f) == 1) words.push_back(word);
    std::fclose(f);
    const uint64_t cycles = words[0], reset = words[1];
    (void)reset;
    const uint64_t* in = words.data() + 2;
    (void)in;
    std::vector<uint64_t> out;
    VerilatedContext context;
    context.commandArgs(argc, argv);
    V{name} top{{&context}};
{start}    for (uint64_t c = 0; c < cycles && !context.gotFinish(); ++c) {{
{reset}{drive}        top.eval();
{record}{edge}    }}
    f = std::fopen(argv[2], "wb");
    if (!f) return 2;
    if (!out.empty()) std::fwrite(out.data(), 8, out.size(), f);
    std::fclose(f);
    top.final();
    return 0;
}}
"#
    )
}
