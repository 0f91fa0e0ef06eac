//! `nfgen` compiles a model, a device and a few choices into a complete hardware design.
//!
//! Two machines share one compiler: the on-chip trainer (NeuronFabric) and a BitNet
//! inference array (CGLA). The pipeline is `config -> plan -> netlist -> emit -> sim`,
//! and everything the hardware computes is checked against [`reference`], which imports
//! nothing of the hardware.

pub mod bitnet;
pub mod cgla;
pub mod cli;
pub mod compile;
pub mod config;
pub mod diag;
pub mod dsl;
pub mod emit;
pub mod files;
pub mod hw;
pub mod num;
pub mod reference;
pub mod report;
pub mod sim;
pub mod sweep;
pub mod synth;
pub mod trainer;
