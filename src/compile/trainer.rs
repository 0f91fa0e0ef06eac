//! From a planned trainer to its core: netlist, Verilog, memory files, registers, test bench.

use super::registers::hardware_registers;
use super::{HEADER, top_ports};
use crate::dsl::{Design, MemStyle};
use crate::emit::core::{Core, Parameter, TextFile, trainer_dmas};
use crate::emit::regmap::{self, TrainerResets, trainer_map};
use crate::hw::axi::registers::RegisterMapError;
use crate::hw::trainer::system::build::{MachineError, MachineSpec, build_machine};
use crate::num::constants::Constants;
use crate::trainer::plan::{MemoryKind, Plan};

/// Name of the top module.
pub const TOP: &str = "nf_trainer";

/// The C++ harness of the simulation.
const HARNESS: &str = include_str!("../../testbench/nf_harness.cpp");

/// Why a planned machine could not be compiled. None of these depends on user input alone.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    #[error("the planned machine cannot be built: {0}")]
    Machine(#[from] MachineError),
    #[error("the register map is inconsistent: {0}")]
    Registers(#[from] RegisterMapError),
}

/// Beats of a whole state stream.
pub fn state_beats(plan: &Plan) -> usize {
    plan.weights.state_beats(&plan.model)
}

/// The register map of a planned machine.
pub fn registers(plan: &Plan, build_id: u32) -> regmap::RegisterMap {
    let c = Constants::new(&plan.model);
    trainer_map(
        &plan.model,
        &TrainerResets {
            build_id,
            lr_rise: c.lr_warmup_slope.to_bits(),
            lr_slope: c.lr_decay.to_bits(),
            lr_floor: c.lr_min.to_bits(),
            state_beats: state_beats(plan) as u32,
        },
    )
}

/// First 32 bits of the hash over everything that decides the netlist.
fn build_id(plan: &Plan) -> u32 {
    use sha2::{Digest, Sha256};
    let text = format!("{:?} {:?} {:?}", plan.model, plan.shape, plan.program);
    // What a machine has nothing of does not count, so that its identity outlives new formats.
    let text = text.replace(", block: None", "");
    let hash = Sha256::digest(text.as_bytes());
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
}

/// The netlist of a planned machine.
pub fn netlist(plan: &Plan) -> Result<Design, CompileError> {
    let (file, constants) = hardware_registers(&registers(plan, build_id(plan)), "nf_registers")?;
    let style = |kind: MemoryKind| match kind {
        MemoryKind::Ultra => MemStyle::Ultra,
        MemoryKind::Distributed => MemStyle::Distributed,
        MemoryKind::Block => MemStyle::Block,
    };
    Ok(build_machine(&MachineSpec {
        model: &plan.model,
        shape: &plan.shape,
        program: &plan.program,
        tensor_bases: plan.tensor_bases(),
        position: plan.position_banks(),
        position_blocks: plan.position_blocks,
        scale_words: plan.scale_words(),
        gradient_style: style(plan.gradient_kind),
        moment_style: style(plan.moment_kind),
        registers: &file,
        register_constants: &constants,
    })?)
}

/// Compiles the core.
pub fn compile(plan: &Plan, description: &str, resolved: &str) -> Result<Core, CompileError> {
    let map = registers(plan, build_id(plan));
    let design = netlist(plan)?;
    let text = |(name, text): (String, String)| TextFile { name, text };
    Ok(Core {
        name: plan.model.name.clone(),
        description: description.to_string(),
        top: TOP.to_string(),
        ports: top_ports(&design),
        parameters: Vec::<Parameter>::new(),
        registers: map,
        dmas: trainer_dmas(),
        masters: vec![],
        rtl: design.print_verilog(HEADER).into_iter().map(text).collect(),
        memories: design.memory_files().into_iter().map(text).collect(),
        testbench: vec![TextFile {
            name: "nf_harness.cpp".into(),
            text: HARNESS.into(),
        }],
        resolved: resolved.to_string(),
        resources: plan.to_json(),
    })
}
