//! A mapped netlist as Yosys writes it (`write_json`), cut down to what is evaluated here.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::cells::Counts;

/// One bit of a connection: a net, or a constant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Bit {
    Net(u32),
    Constant(String),
}

impl Bit {
    pub fn net(&self) -> Option<u32> {
        match self {
            Bit::Net(n) => Some(*n),
            Bit::Constant(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Input,
    Output,
    Inout,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Port {
    pub direction: Direction,
    pub bits: Vec<Bit>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    #[serde(rename = "type")]
    pub kind: String,
    /// Parameters that decide where a primitive has registers.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    #[serde(default)]
    pub port_directions: BTreeMap<String, Direction>,
    pub connections: BTreeMap<String, Vec<Bit>>,
}

impl Cell {
    /// Connections of one direction.
    pub fn ports(&self, direction: Direction) -> impl Iterator<Item = (&str, &[Bit])> {
        self.connections
            .iter()
            .filter(move |(name, _)| self.port_directions.get(*name) == Some(&direction))
            .map(|(name, bits)| (name.as_str(), bits.as_slice()))
    }

    /// A numeric parameter; Yosys writes binary digits.
    pub fn number(&self, name: &str) -> u64 {
        let digits = self.parameters.get(name).map_or("", String::as_str);
        u64::from_str_radix(digits, 2).unwrap_or(0)
    }
}

/// One module of primitives and black boxes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Netlist {
    pub ports: BTreeMap<String, Port>,
    pub cells: BTreeMap<String, Cell>,
    /// Name of a net, with its bit.
    pub names: BTreeMap<u32, String>,
}

#[derive(Deserialize)]
struct NetName {
    #[serde(default)]
    hide_name: u8,
    bits: Vec<Bit>,
}

#[derive(Deserialize)]
struct Module {
    ports: BTreeMap<String, Port>,
    cells: BTreeMap<String, Cell>,
    netnames: BTreeMap<String, NetName>,
}

#[derive(Deserialize)]
struct File {
    modules: HashMap<String, Module>,
}

impl Netlist {
    /// Reads module `top` of what `write_json` wrote.
    pub fn from_yosys(text: &str, top: &str) -> Result<Self, String> {
        let mut file: File = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let module = file
            .modules
            .remove(top)
            .ok_or_else(|| format!("module `{top}` is not in the netlist"))?;
        let mut names = BTreeMap::new();
        for (name, net) in &module.netnames {
            if net.hide_name != 0 {
                continue;
            }
            for (i, bit) in net.bits.iter().enumerate() {
                if let Bit::Net(n) = bit {
                    let shown = match net.bits.len() {
                        1 => name.clone(),
                        _ => format!("{name}[{i}]"),
                    };
                    names.entry(*n).or_insert(shown);
                }
            }
        }
        let cells = module
            .cells
            .into_iter()
            .filter(|(_, cell)| cell.kind != "$scopeinfo")
            .map(|(name, mut cell)| {
                cell.parameters.retain(|key, _| key.ends_with("REG"));
                (name, cell)
            })
            .collect();
        Ok(Netlist {
            ports: module.ports,
            cells,
            names,
        })
    }

    /// Resources of the unit itself; black boxes count nothing. Also the types that are neither.
    pub fn counts(&self, boxes: &[String]) -> (Counts, Vec<String>) {
        let mut counts = Counts::default();
        let mut unknown = vec![];
        for cell in self.cells.values() {
            if !counts.count(&cell.kind)
                && !boxes.contains(&cell.kind)
                && !unknown.contains(&cell.kind)
            {
                unknown.push(cell.kind.clone());
            }
        }
        (counts, unknown)
    }

    /// The net with most loads, clocks apart.
    pub fn widest(&self) -> Option<(String, usize)> {
        let mut loads: HashMap<u32, usize> = HashMap::new();
        for cell in self.cells.values() {
            for (port, bits) in cell.ports(Direction::Input) {
                if !is_clock(port) {
                    for net in bits.iter().filter_map(Bit::net) {
                        *loads.entry(net).or_insert(0) += 1;
                    }
                }
            }
        }
        let (net, n) = loads
            .into_iter()
            .max_by_key(|&(net, n)| (n, std::cmp::Reverse(net)))?;
        Some((self.name(net), n))
    }

    pub fn name(&self, net: u32) -> String {
        let name = self.names.get(&net);
        name.map_or_else(|| "an unnamed net".to_string(), Clone::clone)
    }
}

/// Clock pins of the primitives and of the emitted modules.
pub fn is_clock(port: &str) -> bool {
    matches!(
        port,
        "C" | "CLK" | "WCLK" | "CLKARDCLK" | "CLKBWRCLK" | "clk" | "aclk"
    )
}
