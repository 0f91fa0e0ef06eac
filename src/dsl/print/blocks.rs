//! Clocked blocks, instances, primitives, checks: what follows the wires of a section.

use super::super::node::*;
use super::super::plan::inst_stem;
use super::super::unused;
use super::{Printer, range};
use std::fmt::Write;

impl Printer<'_> {
    /// The named states of a state register, as far as they are printed.
    pub(super) fn state_names(&self, reg: &RegDef) -> Vec<LocalParam> {
        let stem = reg.name.strip_suffix("_q").unwrap_or(&reg.name);
        let prefix = format!("{}_", stem.to_uppercase());
        let named = self.params.iter().filter(|p| p.name.starts_with(&prefix));
        named.map(|p| (*p).clone()).collect()
    }

    pub(super) fn memory(&mut self, mem: &MemDef) {
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
    pub(super) fn part(&self, id: NodeId, hi: u32, lo: u32) -> String {
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

    pub(super) fn registers(&mut self, regs: &[&RegDef]) {
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

    pub(super) fn instance(&mut self, i: usize) {
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

    pub(super) fn connections(&mut self, rows: &[(&str, String)]) {
        let pad = rows.iter().map(|r| r.0.len()).max().unwrap_or(0);
        for (k, (port, text)) in rows.iter().enumerate() {
            let comma = if k + 1 == rows.len() { "" } else { "," };
            self.line(&format!("        .{port:<pad$} ({text}){comma}"));
        }
    }

    pub(super) fn primitive(&mut self, primitive: &Primitive) {
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

    pub(super) fn outputs(&mut self) {
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

    pub(super) fn asserts(&mut self) {
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

    pub(super) fn unused(&mut self) {
        let parts = unused::unused_parts(self.plan);
        if parts.is_empty() {
            return;
        }
        self.out
            .push_str("\n    // Bits that exist but are not needed.\n");
        let line = format!("    wire unused_bits = &{{1'b0, {}}};", parts.join(", "));
        self.line(&line);
    }
}
