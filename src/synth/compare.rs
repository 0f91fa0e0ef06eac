//! Planned against synthesised, per module and for the whole.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::cells::Counts;
use super::hierarchy::Hierarchy;
use super::run::Synthesised;
use super::{LUT_FORMULA, MAX_LEVELS};
use crate::trainer::plan::{MemoryKind, MemoryLine, Plan, Resources};

/// Share by which look-up tables may differ from the plan.
pub const LUT_TOLERANCE: f64 = 0.15;

/// One resource of the whole design.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pair {
    pub planned: f64,
    pub synthesised: f64,
    pub available: f64,
}

/// Counts that are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    pub bram36: f64,
    pub uram: f64,
    pub dsp: f64,
    pub lut: f64,
    pub ff: f64,
}

impl From<&Counts> for Figures {
    fn from(c: &Counts) -> Self {
        Figures {
            bram36: c.bram36,
            uram: c.uram as f64,
            dsp: c.dsp as f64,
            lut: c.lut as f64,
            ff: c.ff as f64,
        }
    }
}

/// A module of the plan with what is below it, other modules of the plan apart.
#[derive(Clone, Debug, Serialize)]
pub struct ModuleLine {
    pub module: String,
    pub planned: Figures,
    pub synthesised: Figures,
}

/// Memories of one unit of synthesis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryCheck {
    pub module: String,
    pub memories: Vec<String>,
    pub planned_bram36: f64,
    pub synthesised_bram36: f64,
    pub planned_uram: f64,
    pub synthesised_uram: f64,
}

impl MemoryCheck {
    pub fn agrees(&self) -> bool {
        self.planned_bram36 == self.synthesised_bram36 && self.planned_uram == self.synthesised_uram
    }
}

/// The comparison of a whole design.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub bram36: Pair,
    pub uram: Pair,
    pub dsp: Pair,
    pub lut: Pair,
    pub ff: Pair,
    pub lut_formula: &'static str,
    pub modules: Vec<ModuleLine>,
    pub memories: Vec<MemoryCheck>,
    pub units: Vec<Synthesised>,
    /// Longest path of the design in logic levels.
    pub levels: u32,
    pub max_levels: u32,
    /// Units with a longer path.
    pub too_long: Vec<String>,
    /// What does not agree, in words; empty if all does.
    pub differences: Vec<String>,
}

/// Module that holds a memory of the plan.
pub fn owner(memory: &MemoryLine) -> Option<String> {
    let name = memory.name.as_str();
    let fixed = [
        ("weights", "nf_neuron_core"),
        ("moments", "nf_moment_bank"),
        ("position code", "nf_position_bank_0"),
        ("gradient tiles", "nf_gradient_tile"),
        ("layernorm parameters", "nf_layernorm_state"),
        ("function tables", "nf_table_unit"),
        ("scalar file", "nf_vector_lane"),
        ("logits", "nf_vector_unit"),
        ("loss table", "nf_scalar_unit"),
        ("program mat", "nf_mat_sequencer"),
        ("program vec", "nf_vec_sequencer"),
        ("program adam", "nf_adam_sequencer"),
    ];
    if name.starts_with("activations") {
        return Some(format!("nf_act_bank_{}", memory.depth));
    }
    let found = fixed.iter().find(|(prefix, _)| name.starts_with(prefix));
    found.map(|(_, module)| (*module).to_string())
}

fn planned(r: &Resources) -> Figures {
    Figures {
        bram36: r.bram36,
        uram: r.uram,
        dsp: r.dsp,
        lut: r.lut,
        ff: r.ff,
    }
}

fn add_memory(figures: &mut Figures, memory: &MemoryLine) {
    figures.lut += memory.luts as f64;
    match memory.kind {
        MemoryKind::Block => figures.bram36 += memory.blocks,
        MemoryKind::Ultra => figures.uram += memory.blocks,
        MemoryKind::Distributed => {}
    }
}

fn add_counts(figures: &mut Figures, counts: &Counts, n: usize) {
    let mut sum = Counts::default();
    sum.add(counts, n);
    let more = Figures::from(&sum);
    figures.bram36 += more.bram36;
    figures.uram += more.uram;
    figures.dsp += more.dsp;
    figures.lut += more.lut;
    figures.ff += more.ff;
}

/// Compares `units`, all units of the design, with the plan.
pub fn compare(plan: &Plan, hierarchy: &Hierarchy, units: Vec<Synthesised>) -> Comparison {
    let modules = module_lines(plan, hierarchy, &units);
    let memories = memory_checks(plan, &units);
    let mut whole = Figures::default();
    for unit in &units {
        add_counts(&mut whole, &unit.counts, unit.instances);
    }
    let (used, available) = (&plan.used, &plan.target.available);
    let pair = |planned: f64, synthesised: f64, available: f64| Pair {
        planned,
        synthesised,
        available,
    };
    let mut result = Comparison {
        bram36: pair(used.bram36, whole.bram36.ceil(), available.bram36),
        uram: pair(used.uram, whole.uram, available.uram),
        dsp: pair(used.dsp, whole.dsp, available.dsp),
        lut: pair(used.lut, whole.lut, available.lut),
        ff: pair(used.ff, whole.ff, available.ff),
        lut_formula: LUT_FORMULA,
        modules,
        memories,
        levels: units.iter().map(|u| u.levels).max().unwrap_or(0),
        max_levels: MAX_LEVELS,
        too_long: units
            .iter()
            .filter(|u| u.levels > MAX_LEVELS)
            .map(|u| u.module.clone())
            .collect(),
        units,
        differences: vec![],
    };
    result.differences = differences(&result);
    result
}

fn module_lines(plan: &Plan, hierarchy: &Hierarchy, units: &[Synthesised]) -> Vec<ModuleLine> {
    let names: Vec<&str> = plan
        .modules
        .iter()
        .map(|m| m.module)
        .filter(|m| hierarchy.modules.contains_key(*m))
        .chain([hierarchy.top.as_str()])
        .collect();
    let below: Vec<BTreeMap<String, usize>> = names
        .iter()
        .map(|name| {
            let stop: BTreeSet<&str> = names.iter().copied().filter(|n| n != name).collect();
            hierarchy.instances_below(name, &stop)
        })
        .collect();
    // The line a module belongs to; the top's, if none has it.
    let line = |module: &str| {
        let found = below.iter().position(|b| b.contains_key(module));
        found.unwrap_or(names.len() - 1)
    };
    let mut lines: Vec<ModuleLine> = names
        .iter()
        .map(|name| ModuleLine {
            module: (*name).to_string(),
            planned: Figures::default(),
            synthesised: Figures::default(),
        })
        .collect();
    for cost in &plan.modules {
        let add = planned(&cost.resources);
        let to = &mut lines[line(cost.module)].planned;
        to.bram36 += add.bram36;
        to.uram += add.uram;
        to.dsp += add.dsp;
        to.lut += add.lut;
        to.ff += add.ff;
    }
    for memory in &plan.memories {
        if let Some(module) = owner(memory) {
            add_memory(&mut lines[line(&module)].planned, memory);
        }
    }
    // A unit that several lines instantiate is shared out by its instances.
    for unit in units {
        for (k, name) in names.iter().enumerate() {
            let n = own_instances(hierarchy, name, &names, units, &unit.module);
            add_counts(&mut lines[k].synthesised, &unit.counts, n);
        }
    }
    lines.retain(|l| l.planned != Figures::default() || l.synthesised != Figures::default());
    lines
}

/// Instances of unit `module` that belong to the line of `name`, in the whole design.
fn own_instances(
    hierarchy: &Hierarchy,
    name: &str,
    names: &[&str],
    units: &[Synthesised],
    module: &str,
) -> usize {
    let Some(root) = units.iter().find(|u| u.module == name) else {
        return 0;
    };
    if module == name {
        return root.instances;
    }
    if names.contains(&module) {
        return 0;
    }
    // Units inside a flat unit are part of it already.
    let mut stop: BTreeSet<&str> = names.iter().copied().filter(|n| *n != name).collect();
    stop.extend(
        units
            .iter()
            .flat_map(|u| u.flattened.iter().map(String::as_str))
            .filter(|f| !units.iter().any(|u| u.module == **f)),
    );
    walk(hierarchy, name, units, &stop, module) * root.instances
}

/// Instances of `module` below `root` along units only.
fn walk(
    hierarchy: &Hierarchy,
    root: &str,
    units: &[Synthesised],
    stop: &BTreeSet<&str>,
    module: &str,
) -> usize {
    let flat = units
        .iter()
        .find(|u| u.module == root)
        .is_none_or(|u| !u.flattened.is_empty());
    if flat {
        return 0;
    }
    hierarchy.modules[root]
        .children
        .iter()
        .filter(|(child, _)| !stop.contains(child.as_str()))
        .map(|(child, n)| {
            let child = hierarchy.representative(child);
            let own = usize::from(child == module);
            n * (own + walk(hierarchy, child, units, stop, module))
        })
        .sum()
}

fn memory_checks(plan: &Plan, units: &[Synthesised]) -> Vec<MemoryCheck> {
    let mut checks: BTreeMap<&str, MemoryCheck> = BTreeMap::new();
    for unit in units {
        let module = unit.module.as_str();
        let own = |m: &MemoryLine| {
            owner(m).is_some_and(|o| o == unit.module || unit.flattened.contains(&o))
        };
        let mut check = MemoryCheck {
            module: unit.module.clone(),
            memories: vec![],
            planned_bram36: 0.0,
            synthesised_bram36: unit.counts.bram36 * unit.instances as f64,
            planned_uram: 0.0,
            synthesised_uram: (unit.counts.uram * unit.instances as u64) as f64,
        };
        for memory in plan.memories.iter().filter(|m| own(m)) {
            let mut figures = Figures::default();
            add_memory(&mut figures, memory);
            check.memories.push(memory.name.clone());
            check.planned_bram36 += figures.bram36;
            check.planned_uram += figures.uram;
        }
        let some = [
            check.planned_bram36,
            check.synthesised_bram36,
            check.planned_uram,
            check.synthesised_uram,
        ];
        if some.iter().any(|n| *n > 0.0) {
            checks.insert(module, check);
        }
    }
    checks.into_values().collect()
}

fn differences(c: &Comparison) -> Vec<String> {
    let mut list = vec![];
    for (name, pair) in [("BRAM36", c.bram36), ("URAM", c.uram), ("DSP", c.dsp)] {
        if pair.planned != pair.synthesised {
            list.push(format!(
                "{name}: planned {}, synthesised {}",
                pair.planned, pair.synthesised
            ));
        }
    }
    let off = (c.lut.synthesised - c.lut.planned) / c.lut.planned.max(1.0);
    if off.abs() > LUT_TOLERANCE {
        list.push(format!(
            "LUT: synthesised {} is {:+.1} % off the planned {}",
            c.lut.synthesised,
            100.0 * off,
            c.lut.planned
        ));
    }
    for unit in &c.units {
        if !unit.unknown.is_empty() {
            list.push(format!(
                "{}: cells that are not counted: {}",
                unit.module,
                unit.unknown.join(", ")
            ));
        }
    }
    list
}
