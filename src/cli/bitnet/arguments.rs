//! Arguments that the BitNet verbs share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::bitnet::backend::Backend;
use crate::bitnet::cpu::CpuReference;
use crate::bitnet::ternary::{I2sLayout, StreamFormat};
use crate::cgla::backend::ArrayBackend;
use crate::cgla::model::ArrayModel;
use crate::cgla::timing::MemoryModel;
use crate::cgla::{ArrayConfig, LaneSign, Machine};
use crate::diag::{Diagnostic, Problems};
use crate::sim::cgla::{Simulator, Stalls};

/// Where projections run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BackendKind {
    /// Exact integer arithmetic on this processor
    #[default]
    Cpu,
    /// The array's function and cycles from its configuration words
    Model,
    /// The emitted Verilog in Verilator
    Rtl,
}

/// The build of the array and the memory behind it.
#[derive(Clone, Debug, Args)]
pub struct ArrayArgs {
    /// Rows of the array
    #[arg(long, default_value_t = 64)]
    pub rows: u32,
    /// 16-byte memory read ports
    #[arg(long, default_value_t = 4)]
    pub ports: u32,
    /// 64-bit words in each half of a row's local memory
    #[arg(long, default_value_t = 512)]
    pub lmm_words: u32,
    /// Signedness of the low activation fragment
    #[arg(long, value_enum, default_value_t)]
    pub lane_sign: LaneSign,
    /// Packing of the weight stream
    #[arg(long, value_enum, default_value_t)]
    pub format: StreamFormat,
    /// Share of the cycles in which a memory port transfers (0.01 to 1)
    #[arg(long, default_value_t = 0.8, allow_negative_numbers = true)]
    pub efficiency: f64,
    /// Memory latency in cycles
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub latency: u32,
    /// Share of the cycles in which an address or write channel of the simulation is not ready
    #[arg(long, default_value_t = 0.1, allow_negative_numbers = true)]
    pub stalls: f64,
    /// Seed of data and stalls
    #[arg(long, default_value_t = 1)]
    pub seed: u32,
    /// Folder of built simulation models
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

impl ArrayArgs {
    pub fn config(&self) -> Result<ArrayConfig, Problems> {
        let config = ArrayConfig {
            rows: self.rows,
            ports: self.ports,
            lmm_words: self.lmm_words,
            lane_sign: self.lane_sign,
        };
        config.check()?;
        Ok(config)
    }

    pub fn memory(&self) -> Result<MemoryModel, Problems> {
        if !(0.01..=1.0).contains(&self.efficiency) || !(0.0..=0.9).contains(&self.stalls) {
            return Err(Diagnostic::new(
                "nf::bitnet::refused",
                format!("efficiency {} and stalls {}", self.efficiency, self.stalls),
                "--efficiency takes 0.01 to 1, --stalls 0 to 0.9",
            )
            .into());
        }
        Ok(MemoryModel {
            efficiency: self.efficiency,
            latency: self.latency,
        })
    }

    pub fn simulator(&self) -> Result<Simulator, Problems> {
        let stalls = Stalls {
            busy: self.stalls,
            seed: self.seed,
        };
        let cache = self.cache.clone().unwrap_or_else(default_cache);
        Ok(Simulator::start(
            self.config()?,
            self.memory()?,
            stalls,
            &cache,
        )?)
    }

    /// A machine that runs programs: the model, or the RTL.
    pub fn machine(&self, rtl: bool) -> Result<Box<dyn Machine>, Problems> {
        Ok(if rtl {
            Box::new(self.simulator()?)
        } else {
            Box::new(ArrayModel::new(self.config()?, self.memory()?)?)
        })
    }

    pub fn backend(&self, kind: BackendKind) -> Result<Box<dyn Backend>, Problems> {
        Ok(match kind {
            BackendKind::Cpu => Box::new(CpuReference::new()),
            BackendKind::Model => {
                let model = ArrayModel::new(self.config()?, self.memory()?)?;
                Box::new(ArrayBackend::new(model, self.format))
            }
            BackendKind::Rtl => Box::new(ArrayBackend::new(self.simulator()?, self.format)),
        })
    }
}

/// `$XDG_CACHE_HOME/nfgen`, `$HOME/.cache/nfgen`, or a folder beside the temporary files.
fn default_cache() -> PathBuf {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("nfgen")
}

/// `--layout`.
#[derive(Clone, Copy, Debug, Args)]
pub struct LayoutArgs {
    /// Byte order of I2_S tensors; nothing in a file tells them apart
    #[arg(long, value_enum, default_value_t)]
    pub layout: I2sLayout,
}
