//! The layer datapath: three engines, their sequencers, and the memories between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::System;
use super::banks::{act_bank, exponent_file, position_bank};
use super::sequencer::sequencer;
use crate::dsl::{DslError, Instance, Module, ModuleDef, Sig, addr_width};
use crate::hw::trainer::READ_LATENCY;
use crate::trainer::isa::{AddSource, ColSource, MatDest, Program, RowSource};

/// The three engines of one machine.
#[derive(Clone)]
pub struct Engines {
    /// `nf_attention_core`.
    pub mat: Arc<ModuleDef>,
    /// `nf_vector_unit`.
    pub vec: Arc<ModuleDef>,
    /// `nf_adam_unit`.
    pub adam: Arc<ModuleDef>,
}

/// Which activation groups each read and write port ever touches in a program; only these
/// multiplexers are built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    pub row: BTreeSet<usize>,
    pub col: BTreeSet<usize>,
    pub add: BTreeSet<usize>,
    pub x: BTreeSet<usize>,
    pub y: BTreeSet<usize>,
    pub dst: BTreeSet<usize>,
    pub z: BTreeSet<usize>,
}

impl Reach {
    /// Collects the groups that `program` names.
    pub fn of(program: &Program) -> Self {
        let mut r = Reach::default();
        for i in &program.mat {
            if let RowSource::Act(g) = i.row_source {
                r.row.insert(g);
            }
            if let ColSource::Act(g) = i.col_source {
                r.col.insert(g);
            }
            if let AddSource::Act(g) = i.add_source {
                r.add.insert(g);
            }
            if let MatDest::Act(g) = i.dest {
                r.dst.insert(g);
            }
        }
        for i in &program.vec {
            r.x.insert(i.x.0);
            r.y.extend(i.y.map(|y| y.0));
            r.z.extend(i.z.map(|z| z.group));
        }
        r
    }
}

/// Zero-extends or cuts `sig` to `width` bits; cut bits are zero by the sizes of the program.
pub(super) fn fit<'m>(sig: Sig<'m>, width: u32) -> Sig<'m> {
    if sig.width() > width {
        sig.trunc(width)
    } else {
        sig.zext(width)
    }
}

/// Connects instances port by port and passes what stays open through the enclosing module.
pub(super) struct Wiring<'m> {
    m: &'m Module,
    inputs: BTreeMap<String, Sig<'m>>,
    constants: BTreeMap<String, u32>,
    connected: BTreeSet<(String, String)>,
    used: BTreeSet<(String, String)>,
}

impl<'m> Wiring<'m> {
    pub fn new(m: &'m Module) -> Self {
        Wiring {
            m,
            inputs: BTreeMap::new(),
            constants: BTreeMap::new(),
            connected: BTreeSet::new(),
            used: BTreeSet::new(),
        }
    }

    /// Open inputs called `name` become the constant `value` instead of ports.
    pub fn constant(&mut self, name: &str, value: u32) {
        self.constants.insert(name.to_string(), value);
    }

    /// An input port of the enclosing module, made on first use.
    pub fn input(&mut self, name: &str, width: u32) -> Sig<'m> {
        if let Some(value) = self.constants.get(name) {
            return self.m.lit(u128::from(*value), width);
        }
        match self.inputs.get(name) {
            Some(s) => fit(*s, width),
            None => {
                let s = self.m.input(name, width);
                self.inputs.insert(name.to_string(), s);
                s
            }
        }
    }

    pub fn connect(&mut self, unit: &Unit<'m>, port: &str, value: Sig<'m>) {
        let Some(index) = unit.def.input_index(port) else {
            // The instance reports the unknown port with the known ones.
            unit.inst.input(port, value);
            return;
        };
        unit.inst
            .input(port, fit(value, unit.def.inputs[index].width));
        self.connected
            .insert((unit.name.to_string(), port.to_string()));
    }

    pub fn output(&mut self, unit: &Unit<'m>, port: &str) -> Sig<'m> {
        self.used.insert((unit.name.to_string(), port.to_string()));
        unit.inst.output(port)
    }

    /// Connects every open input of `unit` to an input of the enclosing module of the same
    /// name, and makes every unused output an output.
    pub fn export(&mut self, unit: &Unit<'m>) {
        for port in &unit.def.inputs {
            let key = (unit.name.to_string(), port.name.clone());
            if !self.connected.contains(&key) {
                let value = self.input(&port.name, port.width);
                self.connect(unit, &port.name, value);
            }
        }
        for port in &unit.def.outputs {
            let key = (unit.name.to_string(), port.name.clone());
            if !self.used.contains(&key) {
                let value = self.output(unit, &port.name);
                self.m.output(&port.name, value);
            }
        }
    }
}

/// An instance with its definition.
pub(super) struct Unit<'m> {
    pub name: &'static str,
    pub inst: Instance<'m>,
    pub def: Arc<ModuleDef>,
}

impl<'m> Unit<'m> {
    pub fn new(m: &'m Module, name: &'static str, def: &Arc<ModuleDef>) -> Self {
        Unit {
            name,
            inst: m.instance(name, def),
            def: def.clone(),
        }
    }
}

/// One read port of an engine, seen from the memories.
struct Reader<'m> {
    enable: Sig<'m>,
    group: Sig<'m>,
    /// One address per bank, or one for all.
    address: Vec<Sig<'m>>,
    reach: BTreeSet<usize>,
}

/// Module `nf_attention_layer`.
pub fn attention_layer(system: &System, engines: &Engines) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_attention_layer");
    m.doc("The datapath that every layer runs on: engines, sequencers and activation memories.");
    let b = system.shape.b;
    let mut w = Wiring::new(&m);
    let sample_start = w.input("sample_start", 1);
    let forward_only = w.input("forward_only", 1);
    let mat = Unit::new(&m, "u_attention_core", &engines.mat);
    let vec = Unit::new(&m, "u_vector_unit", &engines.vec);
    let adam = Unit::new(&m, "u_adam_unit", &engines.adam);

    m.section("Program sequencers");
    let count_bits = addr_width(
        1 + [&system.mat, &system.vec, &system.adam]
            .iter()
            .map(|e| e.words.len() as u32)
            .max()
            .unwrap_or(1),
    );
    let mut sequencers = vec![];
    for (k, (name, program)) in [
        ("mat", &system.mat),
        ("vec", &system.vec),
        ("adam", &system.adam),
    ]
    .into_iter()
    .enumerate()
    {
        let def = sequencer(name, k, program, count_bits)?;
        let inst_name = ["u_mat_sequencer", "u_vec_sequencer", "u_adam_sequencer"][k];
        sequencers.push(Unit::new(&m, inst_name, &def));
    }
    let retired: Vec<Sig> = sequencers
        .iter()
        .map(|s| s.inst.output("retired"))
        .collect();
    let mut running = m.lit(0, 1);
    for (k, (s, unit)) in sequencers.iter().zip([&mat, &vec, &adam]).enumerate() {
        w.connect(s, "sample_start", sample_start);
        w.connect(s, "forward_only", forward_only);
        for (o, name) in ["mat", "vec", "adam"].iter().enumerate() {
            if o != k {
                w.connect(s, &format!("retired_{name}"), retired[o]);
            }
        }
        let mut ready = w.output(unit, "ready");
        if k == 2 {
            // The optimiser waits for the scalars of the step.
            ready = ready & !w.input("adam_hold", 1);
        }
        let retire = w.output(unit, "retire");
        w.connect(s, "ready", ready);
        w.connect(s, "retire", retire);
        w.connect(unit, "start", s.inst.output("start"));
        w.connect(unit, "instr", s.inst.output("instr"));
        running = running.or(s.inst.output("running"));
    }
    if engines.adam.output_index("moments_busy").is_some() {
        // A step ends when its last moments are stored.
        running = running.or(w.output(&adam, "moments_busy"));
    }
    m.output("mat_start", sequencers[0].inst.output("start"));
    m.output("mat_phase", sequencers[0].inst.output("phase"));
    m.output("running", running);

    m.section("Exponent file");
    let shape = &system.shape;
    let exponents = Unit::new(
        &m,
        "u_exponent_file",
        &exponent_file(shape.mat_exps, shape.vec_exps, shape.weight_exps)?,
    );
    for (name, unit) in [("mat", &mat), ("vec", &vec), ("adam", &adam)] {
        for port in ["we", "id", "value", "first"] {
            let value = w.output(unit, &format!("exp_{port}"));
            w.connect(&exponents, &format!("{name}_{port}"), value);
        }
    }
    for edge in ["row", "col"] {
        let id = w.output(&mat, &format!("{edge}_exp_id"));
        w.connect(&exponents, &format!("{edge}_id"), id);
        let emax = w.output(&exponents, &format!("{edge}_emax"));
        w.connect(&mat, &format!("{edge}_emax"), emax);
    }

    m.section("Activation groups: read ports");
    let reach = &system.reach;
    let mut readers = vec![];
    for (unit, port, per_bank, groups) in [
        (&mat, "row", true, &reach.row),
        (&mat, "col", true, &reach.col),
        (&mat, "add", false, &reach.add),
        (&vec, "x", false, &reach.x),
        (&vec, "y", false, &reach.y),
    ] {
        let address = match per_bank {
            true => (0..b)
                .map(|k| w.output(unit, &format!("{port}_addr_{k}")))
                .collect(),
            false => vec![w.output(unit, &format!("{port}_addr"))],
        };
        readers.push((
            unit,
            port,
            Reader {
                enable: w.output(unit, &format!("{port}_en")),
                group: w.output(unit, &format!("{port}_group")),
                address,
                reach: groups.clone(),
            },
        ));
    }
    let dst_en = w.output(&mat, "dst_en");
    let dst_grad = w.output(&mat, "dst_grad");
    let dst_group = w.output(&mat, "dst_group");
    let dst_addr = w.output(&mat, "dst_addr");
    let dst_data: Vec<Sig> = (0..b)
        .map(|k| w.output(&mat, &format!("dst_data_{k}")))
        .collect();
    let z_en = w.output(&vec, "z_en");
    let z_group = w.output(&vec, "z_group");
    let z_addr = w.output(&vec, "z_addr");
    let z_data: Vec<Sig> = (0..b)
        .map(|k| w.output(&vec, &format!("z_data_{k}")))
        .collect();

    let is_group = |signal: Sig<'_>, g: usize| -> bool {
        // A group number that the port cannot express is never selected.
        signal.width() >= 64 || (g as u64) >> signal.width() == 0
    };
    let mut bank_data: Vec<Vec<Sig>> = vec![];
    for (g, depth) in shape.group_depth.iter().enumerate() {
        let depth = *depth as u32;
        let bits = addr_width(depth);
        let def = act_bank(depth)?;
        let select = |enable: Sig<'_>, group: Sig<'_>, reach: &BTreeSet<usize>| {
            (reach.contains(&g) && is_group(group, g))
                .then(|| m.cat(&[enable.and(group.eq_const(g as u128))]))
        };
        let selects: Vec<Option<Sig>> = readers
            .iter()
            .map(|(_, port, r)| {
                select(r.enable, r.group, &r.reach).map(|s| s.named(&format!("{port}_reads_g{g}")))
            })
            .collect();
        let from_mat = select(dst_en.and(dst_grad.not()), dst_group, &reach.dst);
        let from_vec = select(z_en, z_group, &reach.z);
        let mut data = vec![];
        for k in 0..b {
            let _scope = m.name_scope(&format!("g{g}_b{k}"));
            let mut address = m.lit(0, bits);
            for ((_, _, r), s) in readers.iter().zip(&selects) {
                if let Some(s) = s {
                    let a = fit(r.address[k.min(r.address.len() - 1)], bits);
                    address = address.or(a.and(s.repeat(bits)));
                }
            }
            let zero = m.lit(0, 1);
            let (fm, fv) = (from_mat.unwrap_or(zero), from_vec.unwrap_or(zero));
            let waddr = match (from_mat, from_vec) {
                (Some(_), Some(v)) => m.mux(v, fit(z_addr, bits), fit(dst_addr, bits)),
                (None, Some(_)) => fit(z_addr, bits),
                _ => fit(dst_addr, bits),
            };
            let wdata = match (from_mat, from_vec) {
                (Some(_), Some(v)) => m.mux(v, z_data[k], dst_data[k]),
                (None, Some(_)) => z_data[k],
                _ => dst_data[k],
            };
            let bank = m
                .instance("u_bank", &def)
                .input("raddr", address)
                .input("waddr", waddr)
                .input("we", fm.or(fv))
                .input("wdata", wdata);
            data.push(bank.output("rdata"));
        }
        bank_data.push(data);
    }

    m.section("Position code");
    let position: Vec<Sig> = {
        let address = readers[2].2.address[0];
        let mut data = vec![];
        for (k, words) in system.position.iter().enumerate() {
            let _scope = m.name_scope(&format!("position_b{k}"));
            let def = position_bank(k, words, k < system.position_blocks)?;
            let bits = addr_width(words.len() as u32);
            let bank = m
                .instance("u_bank", &def)
                .input("raddr", fit(address, bits));
            data.push(bank.output("rdata"));
        }
        data
    };
    // The adder port names the position ROM by the number after the last group.
    let add_group = readers[2].2.group;
    let position_number = shape.group_depth.len();
    let add_position = match is_group(add_group, position_number) {
        true => add_group.eq_const(position_number as u128),
        false => m.lit(0, 1),
    };

    m.section("Activation groups: read data");
    for (unit, port, r) in &readers {
        let groups: Vec<usize> = r.reach.iter().copied().collect();
        let late = |name: &str, s: Sig<'_>| m.pipe(name, s, READ_LATENCY - 1);
        let group = late(&format!("{port}_group"), r.group);
        let from_position = (*port == "add").then(|| late("add_position", add_position));
        for k in 0..b {
            let mut value = match groups.first() {
                Some(g) => bank_data[*g][k],
                None => m.lit(0, 32),
            };
            for g in groups.iter().skip(1) {
                if is_group(group, *g) {
                    value = m.mux(group.eq_const(*g as u128), bank_data[*g][k], value);
                }
            }
            if let Some(p) = from_position {
                value = m.mux(p, position[k], value);
            }
            let data = m.pipe(&format!("{port}_data_{k}"), value, 1);
            w.connect(unit, &format!("{port}_data_{k}"), data);
        }
    }

    m.section("Gradient tiles go to the Adam unit, weight port B comes from it");
    w.connect(&adam, "grad_we", dst_en.and(dst_grad));
    w.connect(&adam, "grad_addr", dst_addr);
    for (k, data) in dst_data.iter().enumerate() {
        w.connect(&adam, &format!("grad_data_{k}"), *data);
        for port in ["addr", "en", "we", "wdata"] {
            let value = w.output(&adam, &format!("wb_{port}_{k}"));
            w.connect(&mat, &format!("wb_{port}_{k}"), value);
        }
        let value = w.output(&mat, &format!("wb_rdata_{k}"));
        w.connect(&adam, &format!("wb_rdata_{k}"), value);
    }
    for port in ["gamma", "beta"] {
        let address = w.output(&vec, &format!("{port}_addr"));
        w.connect(&adam, &format!("{port}_addr"), address);
        let data = w.output(&adam, &format!("{port}_data"));
        w.connect(&vec, &format!("{port}_data"), data);
    }
    let error = w
        .output(&mat, "error")
        .or(w.output(&vec, "error"))
        .or(w.output(&adam, "error"));
    m.output("error", m.reg_next("error_q", error).with_reset(0).q());

    for unit in [&mat, &vec, &adam] {
        w.export(unit);
    }
    m.finish()
}
