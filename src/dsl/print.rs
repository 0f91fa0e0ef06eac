//! The only writer of Verilog: prints a module as Verilog-2005 that reads as if written by hand.

use super::bits::Bits;
use super::node::*;
use super::plan::{Plan, inst_stem};
use super::unused;
use std::fmt::Write;

/// Longest line the printer aims at.
const COLUMNS: usize = 100;

/// Prints one module. `header` becomes comment lines at the top of the file.
pub fn print_module(def: &ModuleDef, header: &str) -> String {
    let plan = Plan::new(def);
    let nodes = def.nodes.iter().zip(&def.live).filter(|(_, live)| **live);
    let params = nodes
        .filter_map(|(node, _)| match node.op {
            Op::Param(k) => Some(&def.localparams[k as usize]),
            _ => None,
        })
        .collect();
    let mut p = Printer {
        plan: &plan,
        def,
        out: String::with_capacity(def.nodes.len() * 40 + 1024),
        params,
    };
    p.file_head(header);
    p.ports();
    if let Some(primitive) = &def.synthesis {
        p.out.push_str("`ifdef SYNTHESIS\n");
        p.primitive(primitive);
        p.out.push_str("`else\n");
    }
    p.declarations();
    p.sections();
    p.outputs();
    p.asserts();
    p.unused();
    if def.synthesis.is_some() {
        p.out.push_str("`endif\n");
    }
    p.out.push_str("endmodule\n\n`resetall\n");
    p.out
}

/// Clock and reset of an AXI core's top module.
const AXI_CLOCKING: &str = "
    // aresetn passes two registers and becomes rst: synchronous, active high.
    wire clk = aclk;
    (* ASYNC_REG = \"TRUE\" *)
    reg reset_meta_q = 1'b1;
    (* ASYNC_REG = \"TRUE\" *)
    reg rst = 1'b1;

    always @(posedge clk) begin
        reset_meta_q <= ~aresetn;
        rst <= reset_meta_q;
    end
";

struct Printer<'p> {
    plan: &'p Plan<'p>,
    def: &'p ModuleDef,
    out: String,
    /// Named constants that are in use.
    params: Vec<&'p LocalParam>,
}

/// ` [7:0]`, or nothing for one bit.
fn range(width: u32) -> String {
    match width {
        1 => String::new(),
        w => format!(" [{}:0]", w - 1),
    }
}

fn symbol(op: Binary) -> &'static str {
    match op {
        Binary::Add => "+",
        Binary::Sub => "-",
        Binary::And => "&",
        Binary::Or => "|",
        Binary::Xor => "^",
        Binary::Mul | Binary::SMul => "*",
        Binary::Eq => "==",
        Binary::Ne => "!=",
        Binary::Ult | Binary::Slt => "<",
        Binary::Ule | Binary::Sle => "<=",
        Binary::Shl => "<<",
        Binary::Shr => ">>",
        Binary::Sra => ">>>",
    }
}

impl Printer<'_> {
    fn file_head(&mut self, header: &str) {
        for line in header.lines() {
            let _ = writeln!(self.out, "// {line}");
        }
        let mut doc = self.def.doc.lines();
        let _ = match doc.next() {
            Some(first) => writeln!(self.out, "// {}: {first}", self.def.name),
            None => writeln!(self.out, "// {}", self.def.name),
        };
        for line in doc {
            let _ = writeln!(self.out, "// {}", line.trim_end());
        }
        self.out
            .push_str("`resetall\n`timescale 1ns / 1ps\n`default_nettype none\n\n");
    }

    fn ports(&mut self) {
        let def = self.def;
        // (direction, kind, range, name, comment)
        let mut rows: Vec<(&str, String, &str, Option<&str>)> = vec![];
        let (clk, rst) = match def.axi_clock {
            Some(_) => ("aclk", "aresetn"),
            None => ("clk", "rst"),
        };
        if def.has_clk {
            rows.push(("input  wire", String::new(), clk, None));
        }
        if def.has_rst {
            rows.push(("input  wire", String::new(), rst, None));
        }
        for &(out, k) in &def.port_order {
            let port = if out {
                &def.outputs[k as usize]
            } else {
                &def.inputs[k as usize]
            };
            let procedural = out
                && self.plan.net(port.node) == port.name
                && matches!(
                    def.nodes[port.node as usize].op,
                    Op::Select(..) | Op::Case(..)
                );
            let kind = match (out, procedural) {
                (false, _) => "input  wire",
                (true, false) => "output wire",
                (true, true) => "output reg ",
            };
            rows.push((kind, range(port.width), &port.name, port.group.as_deref()));
        }
        let pad = rows.iter().map(|r| r.1.len()).max().unwrap_or(0);
        let _ = writeln!(self.out, "module {} (", def.name);
        let last = rows.len().saturating_sub(1);
        for (i, (kind, range, name, group)) in rows.into_iter().enumerate() {
            if let Some(text) = group {
                let _ = writeln!(self.out, "    // {text}");
            }
            let comma = if i == last { "" } else { "," };
            if let (Some(buses), true) = (&def.axi_clock, name == clk) {
                let _ = writeln!(
                    self.out,
                    "    (* X_INTERFACE_INFO = \"xilinx.com:signal:clock:1.0 aclk CLK\" *)\n    \
                     (* X_INTERFACE_PARAMETER = \"ASSOCIATED_BUSIF {buses}, ASSOCIATED_RESET aresetn\" *)"
                );
            }
            if def.axi_clock.is_some() && name == rst {
                self.out.push_str(
                    "    (* X_INTERFACE_INFO = \"xilinx.com:signal:reset:1.0 aresetn RST\" *)\n    \
                     (* X_INTERFACE_PARAMETER = \"POLARITY ACTIVE_LOW\" *)\n",
                );
            }
            let _ = writeln!(self.out, "    {kind}{range:<pad$} {name}{comma}");
        }
        self.out.push_str(");\n");
        if def.axi_clock.is_some() {
            self.out.push_str(AXI_CLOCKING);
        }
    }

    /// Constants, registers, memories and instance outputs: everything a loop may refer to.
    fn declarations(&mut self) {
        let def = self.def;
        let mut text = String::new();
        for param in &self.params {
            let _ = writeln!(
                text,
                "    localparam{} {} = {};",
                range(param.value.width()),
                param.name,
                param.value.verilog()
            );
        }
        self.block(&mut text);
        for reg in def.regs.iter().filter(|r| def.reg_is_live(r)) {
            let init = match &reg.init {
                Some(value) => format!(" = {}", value.verilog()),
                None => String::new(),
            };
            let _ = writeln!(text, "    reg{} {}{init};", range(reg.width), reg.name);
        }
        self.block(&mut text);
        for mem in def.mems.iter().filter(|m| def.mem_is_live(m)) {
            self.declare_memory(mem, &mut text);
        }
        self.block(&mut text);
        for (i, inst) in def.instances.iter().enumerate() {
            for (p, port) in inst.def.outputs.iter().enumerate() {
                let name = self.instance_output(i, p);
                let is_port = inst.outputs[p].is_some_and(|n| self.plan.is_port[n as usize]);
                if !is_port {
                    let _ = writeln!(text, "    wire{} {name};", range(port.width));
                }
            }
        }
        self.block(&mut text);
    }

    /// Appends a group of lines after an empty line.
    fn block(&mut self, text: &mut String) {
        if !text.is_empty() {
            self.out.push('\n');
            self.out.push_str(text);
            text.clear();
        }
    }

    fn instance_output(&self, inst: usize, port: usize) -> &str {
        match self.plan.unused_outputs.get(&(inst as u32, port as u32)) {
            Some(name) => name,
            None => self.def.instances[inst].outputs[port].map_or("", |n| self.plan.net(n)),
        }
    }

    fn declare_memory(&self, mem: &MemDef, text: &mut String) {
        let spec = &mem.spec;
        let style = match (spec.style, mem.write.is_some()) {
            (MemStyle::Auto, _) => None,
            (MemStyle::Block, true) => Some("ram_style = \"block\""),
            (MemStyle::Block, false) => Some("rom_style = \"block\""),
            (MemStyle::Distributed, true) => Some("ram_style = \"distributed\""),
            (MemStyle::Distributed, false) => Some("rom_style = \"distributed\""),
            (MemStyle::Ultra, _) => Some("ram_style = \"ultra\""),
        };
        let mut attributes: Vec<&str> = style.into_iter().collect();
        if mem.write.is_some() && spec.collision == Collision::Undefined {
            // Never read and written at one address: both tools may skip the bypass.
            attributes.push("rw_addr_collision = \"no\"");
            attributes.push("no_rw_check");
        }
        if !attributes.is_empty() {
            let _ = writeln!(text, "    (* {} *)", attributes.join(", "));
        }
        let _ = writeln!(
            text,
            "    reg{} {} [0:{}];",
            range(spec.width),
            mem.name,
            spec.depth - 1
        );
        for read in &mem.reads {
            if read.enable.is_some() && self.def.live[read.q as usize] {
                let _ = writeln!(text, "    reg{} {};", range(spec.width), read.name);
            }
        }
        if let Some(init) = &spec.init {
            let _ = writeln!(
                text,
                "    initial $readmemh(\"{}\", {});",
                init.file, mem.name
            );
        }
    }

    fn section_of(&self, id: NodeId) -> u32 {
        self.def.sections.partition_point(|s| s.first <= id) as u32
    }

    /// Wires, state and instances, in the order the author opened sections.
    fn sections(&mut self) {
        let def = self.def;
        let count = def.sections.len() + 1;
        let mut regs: Vec<Vec<&RegDef>> = vec![vec![]; count];
        for reg in def.regs.iter().filter(|r| def.reg_is_live(r)) {
            let mut at = reg.section.max(self.section_of(reg.next));
            if let Some(en) = reg.enable {
                at = at.max(self.section_of(en));
            }
            regs[at as usize].push(reg);
        }
        let mut mems: Vec<Vec<&MemDef>> = vec![vec![]; count];
        for mem in def.mems.iter().filter(|m| def.mem_is_live(m)) {
            let mut at = mem.section;
            let reads = mem.reads.iter().filter(|r| def.live[r.q as usize]);
            for node in reads.flat_map(|r| [Some(r.addr), r.enable]).flatten() {
                at = at.max(self.section_of(node));
            }
            if let Some(w) = &mem.write {
                for node in [w.addr, w.data, w.enable] {
                    at = at.max(self.section_of(node));
                }
            }
            mems[at as usize].push(mem);
        }
        let mut instances: Vec<Vec<usize>> = vec![vec![]; count];
        for (i, inst) in def.instances.iter().enumerate() {
            let nodes = inst.inputs.iter().map(|&n| self.section_of(n));
            let at = nodes.fold(inst.section, u32::max);
            instances[at as usize].push(i);
        }
        for s in 0..count {
            let first = if s == 0 { 0 } else { def.sections[s - 1].first };
            let end = def
                .sections
                .get(s)
                .map_or(def.nodes.len() as NodeId, |next| next.first);
            let before = self.out.len();
            self.wires(first, end);
            for mem in &mems[s] {
                self.memory(mem);
            }
            self.registers(&regs[s]);
            for &i in &instances[s] {
                self.instance(i);
            }
            if s > 0 && self.out.len() > before {
                let mut comment = String::from("\n");
                for line in def.sections[s - 1].text.lines() {
                    let _ = writeln!(comment, "    // {}", line.trim_end());
                }
                // The comment replaces the empty line that opens the first group.
                let body = self.out.split_off(before);
                self.out.push_str(&comment);
                self.out.push_str(body.strip_prefix('\n').unwrap_or(&body));
            }
        }
    }

    fn wires(&mut self, first: NodeId, end: NodeId) {
        let mut opened = false;
        for id in first..end {
            let node = &self.def.nodes[id as usize];
            let name = self.plan.net(id);
            if name.is_empty() {
                continue;
            }
            match &node.op {
                Op::Input(_) | Op::RegQ(_) | Op::InstOut(..) => continue,
                Op::MemQ(m, p)
                    if self.def.mems[*m as usize].reads[*p as usize]
                        .enable
                        .is_some() =>
                {
                    continue;
                }
                _ => {}
            }
            if !std::mem::replace(&mut opened, true) {
                self.out.push('\n');
            }
            let is_port = self.plan.is_port[id as usize];
            match &node.op {
                Op::Select(index, choices) => {
                    let values = (0..choices.len() as u128)
                        .map(|v| Bits::new(v, self.def.nodes[*index as usize].width));
                    let arms: Vec<(Bits, NodeId)> = values.zip(choices.iter().copied()).collect();
                    if let Some((last, arms)) = arms.split_last() {
                        self.case(id, *index, arms, last.1, is_port);
                    }
                }
                Op::Case(selector, arms, default) => {
                    self.case(id, *selector, arms, *default, is_port);
                }
                op => {
                    let head = if is_port {
                        format!("    assign {name} = ")
                    } else {
                        format!("    wire{} {name} = ", range(node.width))
                    };
                    let mut line = head;
                    match op {
                        Op::MemQ(m, p) => {
                            let mem = &self.def.mems[*m as usize];
                            let addr = mem.reads[*p as usize].addr;
                            let _ = write!(line, "{}[", mem.name);
                            self.expr(&mut line, addr);
                            line.push(']');
                        }
                        op => self.operation(&mut line, op, id),
                    }
                    line.push(';');
                    self.line(&line);
                }
            }
        }
    }

    /// Writes a statement, broken at spaces where it is too long.
    fn line(&mut self, line: &str) {
        let indent = line.len() - line.trim_start().len();
        let mut rest = line;
        let mut limit = COLUMNS;
        let mut first = true;
        while rest.len() > limit {
            let low = if first { indent + 1 } else { 1 };
            let Some(at) = rest[..limit].rfind(' ').filter(|&at| at > low) else {
                break;
            };
            self.out.push_str(&rest[..at]);
            self.out.push('\n');
            for _ in 0..indent + 4 {
                self.out.push(' ');
            }
            rest = &rest[at + 1..];
            limit = COLUMNS - indent - 4;
            first = false;
        }
        self.out.push_str(rest);
        self.out.push('\n');
    }

    fn case(
        &mut self,
        id: NodeId,
        selector: NodeId,
        arms: &[(Bits, NodeId)],
        default: NodeId,
        is_port: bool,
    ) {
        let plan = self.plan;
        let name = plan.net(id);
        if !is_port {
            let _ = writeln!(
                self.out,
                "    reg{} {name};",
                range(self.def.nodes[id as usize].width)
            );
        }
        let mut head = String::from("        case (");
        self.expr(&mut head, selector);
        head.push(')');
        self.out.push_str("    always @* begin\n");
        self.line(&head);
        // A state register is compared with its named states.
        let symbols = match self.def.nodes[selector as usize].op {
            Op::RegQ(r) => self.state_names(&self.def.regs[r as usize]),
            _ => vec![],
        };
        for (value, arm) in arms {
            let label = match symbols.iter().find(|p| p.value == *value) {
                Some(param) => param.name.clone(),
                None => value.verilog(),
            };
            let mut line = format!("            {label}: {name} = ");
            self.expr(&mut line, *arm);
            line.push(';');
            self.line(&line);
        }
        let mut line = format!("            default: {name} = ");
        self.expr(&mut line, default);
        line.push(';');
        self.line(&line);
        self.out.push_str("        endcase\n    end\n");
    }

    /// The named states of a state register, as far as they are printed.
    fn state_names(&self, reg: &RegDef) -> Vec<LocalParam> {
        let stem = reg.name.strip_suffix("_q").unwrap_or(&reg.name);
        let prefix = format!("{}_", stem.to_uppercase());
        let named = self.params.iter().filter(|p| p.name.starts_with(&prefix));
        named.map(|p| (*p).clone()).collect()
    }

    fn memory(&mut self, mem: &MemDef) {
        let def = self.def;
        if let Some(w) = &mem.write {
            self.out.push_str("\n    always @(posedge clk) begin\n");
            let (mut addr, mut data, mut enable) = (String::new(), String::new(), String::new());
            self.expr(&mut addr, w.addr);
            self.expr(&mut data, w.data);
            self.expr(&mut enable, w.enable);
            match mem.spec.write_lane {
                Some(lane) if lane < mem.spec.width => {
                    for k in 0..mem.spec.width / lane {
                        let (hi, lo) = (k * lane + lane - 1, k * lane);
                        let (data, enable) = (self.part(w.data, hi, lo), self.part(w.enable, k, k));
                        let target = format!("{}[{addr}][{hi}:{lo}]", mem.name);
                        self.line(&format!("        if ({enable}) {target} <= {data};"));
                    }
                }
                _ => {
                    self.line(&format!(
                        "        if ({enable}) {}[{addr}] <= {data};",
                        mem.name
                    ));
                }
            }
            self.out.push_str("    end\n");
        }
        for read in mem.reads.iter().filter(|r| def.live[r.q as usize]) {
            let Some(enable) = read.enable else { continue };
            let (mut addr, mut en) = (String::new(), String::new());
            self.expr(&mut addr, read.addr);
            self.expr(&mut en, enable);
            self.out.push_str("\n    always @(posedge clk) begin\n");
            let assign = format!("{} <= {}[{addr}];", read.name, mem.name);
            if en == "1'b1" {
                self.line(&format!("        {assign}"));
            } else {
                self.line(&format!("        if ({en}) {assign}"));
            }
            self.out.push_str("    end\n");
        }
    }

    /// A slice of any node: of a net, of a literal, or of a lane of a concatenation.
    fn part(&self, id: NodeId, hi: u32, lo: u32) -> String {
        let node = &self.def.nodes[id as usize];
        let name = self.plan.net(id);
        match &node.op {
            _ if !name.is_empty() && node.width == 1 => name.to_string(),
            _ if !name.is_empty() && hi == lo => format!("{name}[{lo}]"),
            _ if !name.is_empty() => format!("{name}[{hi}:{lo}]"),
            Op::Const(c) => c.slice(lo, hi - lo + 1).verilog(),
            Op::Slice(a, from) => self.part(*a, from + hi, from + lo),
            _ => String::new(),
        }
    }

    fn registers(&mut self, regs: &[&RegDef]) {
        // Registers with the same control share a block, in order of first appearance.
        let mut groups: Vec<(bool, Option<NodeId>, Vec<&RegDef>)> = vec![];
        for reg in regs {
            let key = (reg.reset.is_some(), reg.enable);
            match groups.iter_mut().find(|g| (g.0, g.1) == key) {
                Some(group) => group.2.push(reg),
                None => groups.push((key.0, key.1, vec![reg])),
            }
        }
        groups.sort_by_key(|g| !g.0);
        for (reset, enable, members) in groups {
            self.out.push_str("\n    always @(posedge clk) begin\n");
            let mut enable_text = String::new();
            if let Some(en) = enable {
                self.expr(&mut enable_text, en);
            }
            let mut indent = "        ";
            if reset {
                self.out.push_str("        if (rst) begin\n");
                for reg in &members {
                    let Some(value) = &reg.reset else { continue };
                    let names = self.state_names(reg);
                    let text = match names.iter().find(|p| p.value == *value) {
                        Some(param) => param.name.clone(),
                        None => value.verilog(),
                    };
                    let _ = writeln!(self.out, "            {} <= {text};", reg.name);
                }
                if enable.is_some() {
                    self.line(&format!("        end else if ({enable_text}) begin"));
                } else {
                    self.out.push_str("        end else begin\n");
                }
                indent = "            ";
            } else if enable.is_some() {
                self.line(&format!("        if ({enable_text}) begin"));
                indent = "            ";
            }
            for reg in &members {
                let mut line = format!("{indent}{} <= ", reg.name);
                self.expr(&mut line, reg.next);
                line.push(';');
                self.line(&line);
            }
            if reset || enable.is_some() {
                self.out.push_str("        end\n");
            }
            self.out.push_str("    end\n");
        }
    }

    fn instance(&mut self, i: usize) {
        let inst = &self.def.instances[i];
        let mut rows: Vec<(&str, String)> = vec![];
        if inst.def.has_clk {
            rows.push(("clk", "clk".into()));
        }
        if inst.def.has_rst {
            rows.push(("rst", "rst".into()));
        }
        for &(out, k) in &inst.def.port_order {
            let k = k as usize;
            if out {
                let net = self.instance_output(i, k).to_string();
                rows.push((&inst.def.outputs[k].name, net));
            } else {
                let mut text = String::new();
                self.expr(&mut text, inst.inputs[k]);
                rows.push((&inst.def.inputs[k].name, text));
            }
        }
        let _ = writeln!(self.out, "\n    {} {} (", inst.def.name, inst.name);
        self.connections(&rows);
        self.out.push_str("    );\n");
    }

    fn connections(&mut self, rows: &[(&str, String)]) {
        let pad = rows.iter().map(|r| r.0.len()).max().unwrap_or(0);
        for (k, (port, text)) in rows.iter().enumerate() {
            let comma = if k + 1 == rows.len() { "" } else { "," };
            self.line(&format!("        .{port:<pad$} ({text}){comma}"));
        }
    }

    fn primitive(&mut self, primitive: &Primitive) {
        let mut rows: Vec<(&str, String)> = vec![];
        let mut declared = String::new();
        let mut assigns = String::new();
        for (port, conn) in &primitive.ports {
            let text = match conn {
                PrimitiveConn::Clock => "clk".to_string(),
                PrimitiveConn::Reset => "rst".to_string(),
                PrimitiveConn::Open => String::new(),
                PrimitiveConn::Input(node) => {
                    let mut text = String::new();
                    self.port_expr(&mut text, *node);
                    text
                }
                PrimitiveConn::Output {
                    port: name,
                    low,
                    width,
                } => {
                    let out = self.def.outputs.iter().find(|p| p.name == *name);
                    let bits = out.map_or(*width, |p| p.width);
                    if bits == *width {
                        name.clone()
                    } else {
                        let wide =
                            format!("{}_{}", inst_stem(&primitive.instance), port.to_lowercase());
                        if !declared.contains(&format!(" {wide};")) {
                            let _ = writeln!(declared, "    wire{} {wide};", range(*width));
                        }
                        let _ = match bits {
                            1 => writeln!(assigns, "    assign {name} = {wide}[{low}];"),
                            _ => writeln!(
                                assigns,
                                "    assign {name} = {wide}[{}:{low}];",
                                low + bits - 1
                            ),
                        };
                        wide
                    }
                }
            };
            match rows.last() {
                Some((last, _)) if *last == port => {}
                _ => rows.push((port, text)),
            }
        }
        self.block(&mut declared);
        let _ = write!(self.out, "\n    {}", primitive.cell);
        if !primitive.parameters.is_empty() {
            self.out.push_str(" #(\n");
            let values: Vec<(&str, String)> = primitive
                .parameters
                .iter()
                .map(|(name, value)| {
                    let text = match value {
                        PrimitiveValue::Int(v) => v.to_string(),
                        PrimitiveValue::Text(t) => format!("\"{}\"", t.replace(['"', '\\'], "")),
                        PrimitiveValue::Bits(b) => b.verilog(),
                    };
                    (name.as_str(), text)
                })
                .collect();
            self.connections(&values);
            self.out.push_str("    )");
        }
        let _ = writeln!(self.out, " {} (", primitive.instance);
        self.connections(&rows);
        self.out.push_str("    );\n");
        self.block(&mut assigns);
    }

    fn outputs(&mut self) {
        let mut text = String::new();
        let mut done: Vec<&str> = vec![];
        for port in &self.def.outputs {
            if self.plan.net(port.node) == port.name && !done.contains(&port.name.as_str()) {
                done.push(&port.name);
                continue;
            }
            let _ = write!(text, "    assign {} = ", port.name);
            self.expr(&mut text, port.node);
            text.push_str(";\n");
        }
        self.block(&mut text);
    }

    fn asserts(&mut self) {
        let def = self.def;
        let mut checks: Vec<(String, String)> = vec![];
        for check in &def.asserts {
            let mut text = String::new();
            self.operand(&mut text, check.condition);
            let not = if text == "1'b0" {
                "1'b1".into()
            } else {
                format!("!{text}")
            };
            checks.push((not, check.message.clone()));
        }
        for mem in def.mems.iter().filter(|m| def.mem_is_live(m)) {
            let (Collision::Undefined, Some(w)) = (mem.spec.collision, &mem.write) else {
                continue;
            };
            for read in mem.reads.iter().filter(|r| def.live[r.q as usize]) {
                let Some(enable) = read.enable else { continue };
                let (mut we, mut en) = (String::new(), String::new());
                self.operand(&mut we, w.enable);
                if mem.spec.write_lane.is_some_and(|l| l < mem.spec.width) {
                    we = format!("(|{we})");
                }
                self.operand(&mut en, enable);
                let (mut wa, mut ra) = (String::new(), String::new());
                self.operand(&mut wa, w.addr);
                self.operand(&mut ra, read.addr);
                checks.push((
                    format!("{we} && {en} && ({wa} == {ra})"),
                    format!("{} is read and written at one address", mem.name),
                ));
            }
        }
        if checks.is_empty() {
            return;
        }
        self.out
            .push_str("\n`ifndef SYNTHESIS\n    always @(posedge clk) begin\n");
        for (fails, message) in checks {
            let guard = if def.has_rst { "!rst && " } else { "" };
            self.line(&format!("        if ({guard}{fails}) begin"));
            let _ = writeln!(
                self.out,
                "            $display(\"%m: {message}\");\n            $finish;\n        end"
            );
        }
        self.out.push_str("    end\n`endif\n");
    }

    fn unused(&mut self) {
        let parts = unused::unused_parts(self.plan);
        if parts.is_empty() {
            return;
        }
        self.out
            .push_str("\n    // Bits that exist but are not needed.\n");
        let line = format!("    wire unused_bits = &{{1'b0, {}}};", parts.join(", "));
        self.line(&line);
    }

    // ---- expressions ----

    /// A node where any expression may stand.
    fn expr(&self, out: &mut String, id: NodeId) {
        let name = self.plan.net(id);
        if name.is_empty() {
            self.operation(out, &self.def.nodes[id as usize].op, id);
        } else {
            out.push_str(name);
        }
    }

    /// A node as an operand: in parentheses unless it is a name, a literal or in braces.
    fn operand(&self, out: &mut String, id: NodeId) {
        let node = &self.def.nodes[id as usize];
        let atom = !self.plan.net(id).is_empty()
            || matches!(
                node.op,
                Op::Const(_)
                    | Op::Param(_)
                    | Op::Slice(..)
                    | Op::Cat(_)
                    | Op::Repeat(..)
                    | Op::Sext(_)
            )
            || matches!(node.op, Op::Unary(Unary::Not, a) if !self.plan.net(a).is_empty()
                || matches!(self.def.nodes[a as usize].op, Op::Slice(..)));
        if atom {
            self.expr(out, id);
        } else {
            out.push('(');
            self.expr(out, id);
            out.push(')');
        }
    }

    /// The left operand of a chain such as `a & b & c`.
    fn chain(&self, out: &mut String, id: NodeId, op: Binary) {
        let chains = matches!(op, Binary::Add | Binary::And | Binary::Or | Binary::Xor);
        let same = matches!(self.def.nodes[id as usize].op, Op::Binary(o, ..) if o == op);
        if chains && same && self.plan.net(id).is_empty() {
            self.expr(out, id);
        } else {
            self.operand(out, id);
        }
    }

    fn signed(&self, out: &mut String, id: NodeId) {
        out.push_str("$signed(");
        self.expr(out, id);
        out.push(')');
    }

    fn operation(&self, out: &mut String, op: &Op, id: NodeId) {
        match op {
            Op::Const(bits) => out.push_str(&bits.verilog()),
            Op::Param(k) => out.push_str(&self.def.localparams[*k as usize].name),
            Op::Buf(a) => self.expr(out, *a),
            Op::Unary(u, a) => {
                let one_bit = self.def.nodes[*a as usize].width == 1;
                out.push_str(match u {
                    Unary::Not if one_bit => "!",
                    Unary::Not => "~",
                    Unary::Neg => "-",
                    Unary::RedOr => "|",
                    Unary::RedAnd => "&",
                    Unary::RedXor => "^",
                });
                self.unary_operand(out, *a);
            }
            Op::Binary(op @ (Binary::SMul | Binary::Slt | Binary::Sle), a, b) => {
                self.signed(out, *a);
                let _ = write!(out, " {} ", symbol(*op));
                self.signed(out, *b);
            }
            Op::Binary(Binary::Sra, a, b) => {
                self.signed(out, *a);
                out.push_str(" >>> ");
                self.operand(out, *b);
            }
            Op::Binary(op, a, b) => {
                self.chain(out, *a, *op);
                let _ = write!(out, " {} ", symbol(*op));
                self.operand(out, *b);
            }
            Op::Slice(a, lo) => {
                let width = self.def.nodes[id as usize].width;
                out.push_str(&self.part(*a, lo + width - 1, *lo));
            }
            Op::Cat(parts) => {
                out.push('{');
                for (k, &p) in parts.iter().enumerate() {
                    if k > 0 {
                        out.push_str(", ");
                    }
                    self.expr(out, p);
                }
                out.push('}');
            }
            Op::Repeat(a, n) => {
                let _ = write!(out, "{{{n}{{");
                self.expr(out, *a);
                out.push_str("}}");
            }
            Op::Sext(a) => {
                let from = self.def.nodes[*a as usize].width;
                let n = self.def.nodes[id as usize].width - from;
                let sign = self.part(*a, from - 1, from - 1);
                let _ = match n {
                    1 => write!(out, "{{{sign}, "),
                    _ => write!(out, "{{{{{n}{{{sign}}}}}, "),
                };
                self.expr(out, *a);
                out.push('}');
            }
            Op::Mux(s, a, b) => {
                self.operand(out, *s);
                out.push_str(" ? ");
                self.mux_arm(out, *a, true);
                out.push_str(" : ");
                self.mux_arm(out, *b, false);
            }
            Op::Input(_)
            | Op::RegQ(_)
            | Op::MemQ(..)
            | Op::InstOut(..)
            | Op::Select(..)
            | Op::Case(..) => {}
        }
    }

    /// A unary operator's operand: two operators in a row need parentheses.
    fn unary_operand(&self, out: &mut String, id: NodeId) {
        let nested = matches!(self.def.nodes[id as usize].op, Op::Unary(..));
        if nested && self.plan.net(id).is_empty() {
            out.push('(');
            self.expr(out, id);
            out.push(')');
        } else {
            self.operand(out, id);
        }
    }

    fn mux_arm(&self, out: &mut String, id: NodeId, first: bool) {
        let mux = matches!(self.def.nodes[id as usize].op, Op::Mux(..));
        if mux && first {
            self.operand(out, id);
        } else {
            self.expr(out, id);
        }
    }

    /// An expression of ports only, printed in full (nets of the other branch do not exist there).
    fn port_expr(&self, out: &mut String, id: NodeId) {
        let op = &self.def.nodes[id as usize].op;
        match op {
            Op::Input(k) => out.push_str(&self.def.inputs[*k as usize].name),
            Op::Const(b) => out.push_str(&b.verilog()),
            Op::Param(k) => out.push_str(&self.def.localparams[*k as usize].value.verilog()),
            Op::Buf(a) => self.port_expr(out, *a),
            Op::Slice(a, lo) => {
                // Slices of slices are folded when they are built, names included.
                let (mut root, mut lo) = (*a, *lo);
                while let Op::Slice(inner, more) = self.def.nodes[root as usize].op {
                    root = inner;
                    lo += more;
                }
                self.port_expr(out, root);
                let width = self.def.nodes[id as usize].width;
                let _ = match width {
                    1 => write!(out, "[{lo}]"),
                    w => write!(out, "[{}:{lo}]", lo + w - 1),
                };
            }
            Op::Sext(a) => {
                let from = self.def.nodes[*a as usize].width;
                let n = self.def.nodes[id as usize].width - from;
                let (mut root, mut top) = (*a, from - 1);
                while let Op::Slice(inner, more) = self.def.nodes[root as usize].op {
                    root = inner;
                    top += more;
                }
                let _ = write!(out, "{{{{{n}{{");
                self.port_expr(out, root);
                let _ = write!(out, "[{top}]}}}}, ");
                self.port_expr(out, *a);
                out.push('}');
            }
            Op::Cat(parts) => {
                out.push('{');
                for (k, &p) in parts.iter().enumerate() {
                    if k > 0 {
                        out.push_str(", ");
                    }
                    self.port_expr(out, p);
                }
                out.push('}');
            }
            Op::Repeat(a, n) => {
                let _ = write!(out, "{{{n}{{");
                self.port_expr(out, *a);
                out.push_str("}}");
            }
            Op::Unary(u, a) => {
                out.push_str(match u {
                    Unary::Not => "~",
                    Unary::Neg => "-",
                    Unary::RedOr => "|",
                    Unary::RedAnd => "&",
                    Unary::RedXor => "^",
                });
                out.push('(');
                self.port_expr(out, *a);
                out.push(')');
            }
            Op::Binary(b, x, y) => {
                out.push('(');
                self.port_expr(out, *x);
                let _ = write!(out, " {} ", symbol(*b));
                self.port_expr(out, *y);
                out.push(')');
            }
            Op::Mux(s, a, b) => {
                out.push('(');
                self.port_expr(out, *s);
                out.push_str(" ? ");
                self.port_expr(out, *a);
                out.push_str(" : ");
                self.port_expr(out, *b);
                out.push(')');
            }
            _ => {}
        }
    }
}
