//! The only writer of Verilog: prints a module as Verilog-2005 that reads as if written by hand.

mod blocks;
mod expr;

use super::bits::Bits;
use super::node::*;
use super::plan::Plan;
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
    // aresetn passes two registers and becomes rst: synchronous, active high, and 256 cycles
    // longer, so that pipelines, which have no reset, run empty.
    wire clk = aclk;
    (* ASYNC_REG = \"TRUE\" *)
    reg reset_meta_q = 1'b1;
    (* ASYNC_REG = \"TRUE\" *)
    reg reset_sync_q = 1'b1;
    reg [8:0] reset_hold_q = 9'd0;
    reg rst = 1'b1;

    always @(posedge clk) begin
        reset_meta_q <= ~aresetn;
        reset_sync_q <= reset_meta_q;
        if (reset_sync_q) begin
            reset_hold_q <= 9'd0;
        end else if (!reset_hold_q[8]) begin
            reset_hold_q <= reset_hold_q + 9'd1;
        end
        rst <= reset_sync_q | !reset_hold_q[8];
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
}
