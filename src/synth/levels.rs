//! Logic levels between registers: the longest path of a unit, continued through black boxes.
//!
//! What a level is: [`super::LEVEL_RULE`]. A unit is summarised by its longest path and, per port, the levels behind
//! an input, before an output and from input to output, so that a path which crosses modules is found whole.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use serde::{Deserialize, Serialize};

use super::netlist::{Bit, Cell, Direction, Netlist, is_clock};

/// Timing of a unit in levels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Longest path from a register to a register that begins or ends in this unit.
    pub longest: u32,
    /// Where it begins and ends, and the named nets between.
    pub path: Vec<String>,
    /// Levels from a register to an output port.
    pub outputs: BTreeMap<String, u32>,
    /// Levels from an input port to a register.
    pub inputs: BTreeMap<String, u32>,
    /// Levels from an input port to an output port.
    pub through: BTreeMap<String, BTreeMap<String, u32>>,
}

impl Summary {
    /// Longest path of the unit, half paths at its ports included.
    pub fn levels(&self) -> u32 {
        let ports = self.outputs.values().chain(self.inputs.values());
        let through = self.through.values().flat_map(BTreeMap::values);
        ports.chain(through).copied().fold(self.longest, u32::max)
    }
}

/// Levels of a multiplication inside a DSP slice without its product register, and of the adder behind it.
const MULTIPLIER: u32 = 2;
const POST_ADDER: u32 = 2;

#[derive(Default)]
struct Graph {
    /// Combinational arcs of a net: (to, levels).
    next: HashMap<u32, Vec<(u32, u32)>>,
    /// Nets driven by a register, with the levels behind it.
    launch: HashMap<u32, u32>,
    /// Nets that end in a register, with the levels before it, and that register's name.
    capture: HashMap<u32, (u32, String)>,
}

impl Graph {
    fn arc(&mut self, from: &Bit, to: &Bit, levels: u32) {
        if let (Some(from), Some(to)) = (from.net(), to.net()) {
            self.next.entry(from).or_default().push((to, levels));
        }
    }

    fn launch(&mut self, bits: &[Bit], levels: u32) {
        for net in bits.iter().filter_map(Bit::net) {
            let entry = self.launch.entry(net).or_insert(levels);
            *entry = levels.max(*entry);
        }
    }

    fn capture(&mut self, bits: &[Bit], levels: u32, name: &str) {
        for net in bits.iter().filter_map(Bit::net) {
            let entry = self
                .capture
                .entry(net)
                .or_insert_with(|| (levels, name.to_string()));
            if levels > entry.0 {
                *entry = (levels, name.to_string());
            }
        }
    }

    /// Every input to every output.
    fn all(&mut self, cell: &Cell, levels: u32) {
        for (_, to) in cell.ports(Direction::Output) {
            for (_, from) in cell.ports(Direction::Input) {
                for f in from {
                    for t in to {
                        self.arc(f, t, levels);
                    }
                }
            }
        }
    }

    fn add(&mut self, net: &Netlist, name: &str, cell: &Cell, boxes: &BTreeMap<String, Summary>) {
        let kind = cell.kind.as_str();
        if let Some(summary) = boxes.get(kind) {
            return self.add_box(name, cell, summary);
        }
        match kind {
            "LUT1" | "LUT2" | "LUT3" | "LUT4" | "LUT5" | "LUT6" | "INV" => self.all(cell, 1),
            "MUXF5" | "MUXF6" | "MUXF7" | "MUXF8" | "MUXF9" => self.all(cell, 0),
            "CARRY4" | "CARRY8" => self.add_carry(cell),
            "DSP48E1" | "DSP48E2" => self.add_dsp(name, cell),
            "SRL16E" | "SRLC32E" => {
                self.add_register(net, name, cell, 0);
                self.add_reads(cell, |input, _| input.starts_with('A'));
            }
            _ if kind.starts_with("RAM") && !kind.starts_with("RAMB") => {
                self.add_register(net, name, cell, 1);
                // RAM64M8 and its relatives: ADDRx reads DOx; RAM64X1D: A reads SPO, DPRA reads DPO.
                self.add_reads(cell, |input, output| {
                    match (input.strip_prefix("ADDR"), output.strip_prefix("DO")) {
                        (Some(i), Some(o)) => i == o,
                        _ => match output {
                            "DPO" => input.starts_with("DPRA"),
                            _ => input.starts_with('A'),
                        },
                    }
                });
            }
            _ => self.add_register(net, name, cell, 0),
        }
    }

    /// Registered on all inputs, with `levels` behind the outputs.
    fn add_register(&mut self, net: &Netlist, name: &str, cell: &Cell, levels: u32) {
        let mut shown = name.to_string();
        for (_, bits) in cell.ports(Direction::Output) {
            self.launch(bits, levels);
            if let Some(named) = bits
                .iter()
                .filter_map(Bit::net)
                .find_map(|n| net.names.get(&n))
            {
                shown.clone_from(named);
            }
        }
        for (port, bits) in cell.ports(Direction::Input) {
            if !is_clock(port) {
                self.capture(bits, 0, &format!("{shown} ({}.{port})", cell.kind));
            }
        }
    }

    /// Asynchronous reads of a look-up table used as memory.
    fn add_reads(&mut self, cell: &Cell, reads: impl Fn(&str, &str) -> bool) {
        for (input, from) in cell.ports(Direction::Input) {
            for (output, to) in cell.ports(Direction::Output) {
                if reads(input, output) {
                    for f in from {
                        for t in to {
                            self.arc(f, t, 1);
                        }
                    }
                }
            }
        }
    }

    fn add_carry(&mut self, cell: &Cell) {
        let bits = |name: &str| cell.connections.get(name).map_or(&[][..], Vec::as_slice);
        for output in ["O", "CO"] {
            for (j, to) in bits(output).iter().enumerate() {
                for carry in bits("CI") {
                    self.arc(carry, to, 0);
                }
                for start in bits("CYINIT") {
                    self.arc(start, to, 1);
                }
                let sum = output == "O";
                for (i, select) in bits("S").iter().enumerate().take(j + 1) {
                    self.arc(select, to, 1);
                    if let Some(data) = bits("DI").get(i)
                        && !(sum && i == j)
                    {
                        self.arc(data, to, 1);
                    }
                }
            }
        }
    }

    fn add_dsp(&mut self, name: &str, cell: &Cell) {
        let has = |register: &str| cell.number(register) > 0;
        let (mreg, preg) = (has("MREG"), has("PREG"));
        let operands = has("AREG") || has("BREG");
        let behind = match (preg, mreg, operands) {
            (true, ..) => Some(0),
            (_, true, _) => Some(POST_ADDER),
            (_, _, true) => Some(MULTIPLIER + POST_ADDER),
            _ => None,
        };
        for (_, bits) in cell.ports(Direction::Output) {
            if let Some(levels) = behind {
                self.launch(bits, levels);
            }
        }
        for (port, bits) in cell.ports(Direction::Input) {
            if is_clock(port) {
                continue;
            }
            let own = match port {
                "A" | "ACIN" => "AREG",
                "B" | "BCIN" => "BREG",
                "C" => "CREG",
                "OPMODE" => "OPMODEREG",
                "PCIN" => "",
                // Enables, resets and modes that this project holds constant.
                _ => {
                    self.capture(bits, 0, name);
                    continue;
                }
            };
            let multiplies = matches!(port, "A" | "ACIN" | "B" | "BCIN");
            if has(own) {
                self.capture(bits, 0, name);
            } else if multiplies && mreg {
                self.capture(bits, MULTIPLIER, name);
            } else {
                let levels = POST_ADDER + if multiplies { MULTIPLIER } else { 0 };
                if preg {
                    self.capture(bits, levels, name);
                } else {
                    for (_, to) in cell.ports(Direction::Output) {
                        for (f, t) in bits.iter().flat_map(|f| to.iter().map(move |t| (f, t))) {
                            self.arc(f, t, levels);
                        }
                    }
                }
            }
        }
    }

    fn add_box(&mut self, name: &str, cell: &Cell, summary: &Summary) {
        for (port, bits) in &cell.connections {
            if let Some(&levels) = summary.outputs.get(port) {
                self.launch(bits, levels);
            }
            if let Some(&levels) = summary.inputs.get(port) {
                self.capture(bits, levels, &format!("{name}.{port}"));
            }
            for (output, &levels) in summary.through.get(port).into_iter().flatten() {
                for t in cell.connections.get(output).into_iter().flatten() {
                    for f in bits {
                        self.arc(f, t, levels);
                    }
                }
            }
        }
    }

    /// Nets in topological order of the arcs. Nets on a combinational loop are left out.
    fn order(&self) -> Vec<u32> {
        let mut entering: HashMap<u32, usize> = HashMap::new();
        for (from, arcs) in &self.next {
            entering.entry(*from).or_insert(0);
            for (to, _) in arcs {
                *entering.entry(*to).or_insert(0) += 1;
            }
        }
        let mut open: Vec<u32> = entering
            .iter()
            .filter(|(_, n)| **n == 0)
            .map(|(net, _)| *net)
            .collect();
        open.sort_unstable();
        let mut order = Vec::with_capacity(entering.len());
        while let Some(net) = open.pop() {
            order.push(net);
            for (to, _) in self.next.get(&net).into_iter().flatten() {
                if let Some(n) = entering.get_mut(to) {
                    *n -= 1;
                    if *n == 0 {
                        open.push(*to);
                    }
                }
            }
        }
        order
    }
}

/// Levels of a unit whose black boxes have the summaries `boxes`.
pub fn analyse(net: &Netlist, boxes: &BTreeMap<String, Summary>) -> Summary {
    let mut graph = Graph::default();
    for (name, cell) in &net.cells {
        graph.add(net, name, cell, boxes);
    }
    let order = graph.order();

    let mut arrival: HashMap<u32, u32> = graph.launch.clone();
    let mut before: HashMap<u32, u32> = HashMap::new();
    for from in &order {
        let Some(&at) = arrival.get(from) else {
            continue;
        };
        for &(to, levels) in graph.next.get(from).into_iter().flatten() {
            if arrival.get(&to).is_none_or(|&old| at + levels > old) {
                arrival.insert(to, at + levels);
                before.insert(to, *from);
            }
        }
    }
    let mut tail: HashMap<u32, u32> = graph.capture.iter().map(|(n, (l, _))| (*n, *l)).collect();
    for from in order.iter().rev() {
        for &(to, levels) in graph.next.get(from).into_iter().flatten() {
            if let Some(&rest) = tail.get(&to) {
                let entry = tail.entry(*from).or_insert(0);
                *entry = (*entry).max(rest + levels);
            }
        }
    }

    let end = graph
        .capture
        .iter()
        .filter_map(|(n, (levels, _))| Some((arrival.get(n)? + levels, Reverse(*n))))
        .max();
    let mut summary = Summary::default();
    if let Some((longest, Reverse(last))) = end {
        summary.longest = longest;
        summary.path = path(net, &graph, &before, last);
    }
    let most = |bits: &[Bit], of: &HashMap<u32, u32>| {
        let nets = bits.iter().filter_map(Bit::net);
        nets.filter_map(|n| of.get(&n).copied()).max()
    };
    for (name, port) in &net.ports {
        match port.direction {
            Direction::Input if is_clock(name) => {}
            Direction::Input => {
                if let Some(levels) = most(&port.bits, &tail) {
                    summary.inputs.insert(name.clone(), levels);
                }
            }
            _ => {
                if let Some(levels) = most(&port.bits, &arrival) {
                    summary.outputs.insert(name.clone(), levels);
                }
            }
        }
    }
    summary.through = through(net, &graph, &order);
    summary
}

/// Names along the longest path that ends at net `last`.
fn path(net: &Netlist, graph: &Graph, before: &HashMap<u32, u32>, last: u32) -> Vec<String> {
    let mut nets = vec![last];
    while let Some(&net) = nets.last().and_then(|n| before.get(n)) {
        nets.push(net);
    }
    nets.reverse();
    let mut shown: Vec<String> = nets
        .iter()
        .filter_map(|n| net.names.get(n).cloned())
        .collect();
    shown.dedup();
    shown.extend(graph.capture.get(&last).map(|(_, name)| name.clone()));
    shown
}

/// Levels from input ports to output ports.
fn through(net: &Netlist, graph: &Graph, order: &[u32]) -> BTreeMap<String, BTreeMap<String, u32>> {
    let mut output: HashMap<u32, Vec<&str>> = HashMap::new();
    for (name, port) in &net.ports {
        if port.direction != Direction::Input {
            for n in port.bits.iter().filter_map(Bit::net) {
                output.entry(n).or_default().push(name);
            }
        }
    }
    let position: HashMap<u32, usize> = order.iter().enumerate().map(|(i, n)| (*n, i)).collect();
    let mut found = BTreeMap::new();
    for (name, port) in &net.ports {
        if port.direction != Direction::Input || is_clock(name) {
            continue;
        }
        let mut levels: HashMap<u32, u32> = HashMap::new();
        let mut open = BinaryHeap::new();
        for n in port.bits.iter().filter_map(Bit::net) {
            levels.insert(n, 0);
            open.push(Reverse((position.get(&n).copied().unwrap_or(0), n)));
        }
        let mut reached: BTreeMap<String, u32> = BTreeMap::new();
        let mut done = None;
        while let Some(Reverse((at, n))) = open.pop() {
            if done == Some((at, n)) {
                continue;
            }
            done = Some((at, n));
            let so_far = levels[&n];
            for out in output.get(&n).into_iter().flatten() {
                let entry = reached.entry((*out).to_string()).or_insert(0);
                *entry = so_far.max(*entry);
            }
            for &(to, more) in graph.next.get(&n).into_iter().flatten() {
                let Some(&place) = position.get(&to) else {
                    continue;
                };
                let entry = levels.entry(to).or_insert(0);
                *entry = (*entry).max(so_far + more);
                open.push(Reverse((place, to)));
            }
        }
        if !reached.is_empty() {
            found.insert(name.clone(), reached);
        }
    }
    found
}
