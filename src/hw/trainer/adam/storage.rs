//! Memories of the Adam unit. All reads take three cycles from the address to the data.

use super::config::AdamConfig;
use crate::dsl::{DslError, MemSpec, MemStyle, Module, ModuleDef, Sig, addr_width};
use crate::hw::trainer::READ_LATENCY;
use std::sync::Arc;

/// Module `nf_gradient_tile`: places for tiles of B words in B banks.
///
/// Write `grad_we`, `grad_addr`, `grad_data_b`. Read `raddr` (the same in all banks), `q` (bank
/// of each lane's group) and, for LayerNorm, `layernorm` and `lane` -> `g_a` three cycles later;
/// with `layernorm` lane 0 gets the word that lane `lane` would get.
pub fn gradient_tile(config: &AdamConfig) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_gradient_tile");
    m.doc("Places for gradient tiles: a row of all banks is written at once, each Adam lane reads one bank at a time.");
    let (lanes, group) = (config.lanes, config.group());
    let depth = (config.gradient_tiles * config.banks) as u32;
    let address = addr_width(depth);
    m.port_group("Write: one word in every bank");
    let we = m.input("grad_we", 1);
    let waddr = m.input("grad_addr", address);
    let data: Vec<Sig> = (0..config.banks)
        .map(|b| m.input(&format!("grad_data_{b}"), 32))
        .collect();
    m.port_group("Read");
    let raddr = m.input("raddr", address);
    let q = m.input("q", addr_width(group as u32));
    let layernorm = m.input("layernorm", 1);
    let lane = m.input("lane", addr_width(lanes as u32));

    let q = m.pipe("q", q, 1);
    let always = m.lit(1, 1);
    let mut of_lane = vec![];
    for a in 0..lanes {
        let words: Vec<Sig> = (0..group)
            .map(|k| {
                let b = a * group + k;
                let bank = m.mem(
                    &format!("bank{b}"),
                    MemSpec {
                        depth,
                        width: 32,
                        style: config.gradient_style,
                        ..MemSpec::default()
                    },
                );
                bank.write(waddr, data[b], we);
                bank.read(raddr, always)
            })
            .collect();
        of_lane.push(m.pipe(&format!("lane{a}"), m.select(q, &words), 1));
    }
    let layernorm = m.pipe("layernorm", layernorm, 2);
    let lane = m.pipe("lane", lane, 2);
    m.port_group("Gradient of each lane");
    for a in 0..lanes {
        let word = match a {
            0 => m.mux(layernorm, m.select(lane, &of_lane), of_lane[0]),
            _ => of_lane[a],
        };
        m.output(&format!("g_{a}"), m.pipe(&format!("g_{a}"), word, 1));
    }
    m.finish()
}

/// A memory with separate read and write ports; address in, data three cycles later.
pub(super) fn three_cycle_read<'m>(
    m: &'m Module,
    name: &str,
    spec: MemSpec,
    raddr: Sig<'m>,
    write: (Sig<'m>, Sig<'m>, Sig<'m>),
) -> Sig<'m> {
    let mem = m.mem(
        name,
        MemSpec {
            output_reg: true,
            ..spec
        },
    );
    mem.write(write.0, write.1, write.2);
    let data = mem.read(raddr, m.lit(1, 1));
    m.pipe(&format!("{name}_out"), data, 1)
}

/// Module `nf_moment_bank`: moments {v, m} of one lane, WD*Q words.
///
/// `raddr` -> `rdata` three cycles later; write `we`, `waddr`, `wdata`.
pub fn moment_bank(config: &AdamConfig) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_moment_bank");
    m.doc("Moments {v, m} of one Adam lane; read latency 3.");
    let address = config.moment_address_bits();
    let width = config.moment_word_bits();
    let raddr = m.input("raddr", address);
    let we = m.input("we", 1);
    let waddr = m.input("waddr", address);
    let wdata = m.input("wdata", width);
    let spec = MemSpec {
        depth: config.moment_depth() as u32,
        width,
        style: config.moment_style,
        ..MemSpec::default()
    };
    let rdata = three_cycle_read(&m, "moments", spec, raddr, (waddr, wdata, we));
    m.output("rdata", rdata);
    m.finish()
}

/// Module `nf_scale_bank`: scales {sv, sm} of one lane's moment blocks.
///
/// `raddr` -> `rdata` three cycles later; write `we`, `waddr`, `wdata`.
pub fn scale_bank(config: &AdamConfig) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_scale_bank");
    m.doc("Scales {sv, sm} of one Adam lane's moment blocks; read latency 3.");
    let address = config.scale_address_bits();
    let raddr = m.input("raddr", address);
    let we = m.input("we", 1);
    let waddr = m.input("waddr", address);
    let wdata = m.input("wdata", 64);
    let spec = MemSpec {
        depth: (config.scale_words * config.group()) as u32,
        width: 64,
        style: MemStyle::Auto,
        ..MemSpec::default()
    };
    let rdata = three_cycle_read(&m, "scales", spec, raddr, (waddr, wdata, we));
    m.output("rdata", rdata);
    m.finish()
}

/// Module `nf_layernorm_state`: parameters, moments, and a copy of the parameters for each of
/// the two broadcast ports `gamma` and `beta`.
///
/// `raddr` -> `w`, `m`, `v` three cycles later; writes `w_we, w_addr, w_data` and
/// `moment_we, moment_addr, m_data, v_data`; `gamma_addr` -> `gamma_data` and `beta_addr` ->
/// `beta_data` after [`READ_LATENCY`] cycles.
pub fn layernorm_state(config: &AdamConfig) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_layernorm_state");
    m.doc("LayerNorm gains and biases with their moments, and two broadcast read ports.");
    let address = config.layernorm_address_bits();
    let raddr = m.input("raddr", address);
    m.port_group("Parameter write");
    let w_we = m.input("w_we", 1);
    let w_addr = m.input("w_addr", address);
    let w_data = m.input("w_data", 32);
    m.port_group("Moment write");
    let moment_we = m.input("moment_we", 1);
    let moment_addr = m.input("moment_addr", address);
    let m_data = m.input("m_data", 32);
    let v_data = m.input("v_data", 32);
    let spec = MemSpec {
        depth: config.layernorm_words as u32,
        width: 32,
        style: MemStyle::Auto,
        ..MemSpec::default()
    };
    let w_write = (w_addr, w_data, w_we);
    m.port_group("State of the addressed parameter");
    let w = three_cycle_read(&m, "parameters", spec.clone(), raddr, w_write);
    m.output("w", w);
    for (name, mem, data) in [("m", "m_state", m_data), ("v", "v_state", v_data)] {
        let write = (moment_addr, data, moment_we);
        let word = three_cycle_read(&m, mem, spec.clone(), raddr, write);
        m.output(name, word);
    }
    for port in ["gamma", "beta"] {
        m.port_group("Broadcast read");
        let addr = m.input(&format!("{port}_addr"), address);
        let addr = m.pipe(&format!("{port}_addr"), addr, READ_LATENCY - 3);
        let copy = format!("{port}_copy");
        let data = three_cycle_read(&m, &copy, spec.clone(), addr, w_write);
        m.output(&format!("{port}_data"), data);
    }
    m.finish()
}
