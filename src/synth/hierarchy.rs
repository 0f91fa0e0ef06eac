//! The module tree of an emitted design, and its division into units of synthesis.

use std::collections::{BTreeMap, BTreeSet};

/// One module: its text, the modules it instantiates and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    pub text: String,
    pub children: BTreeMap<String, usize>,
}

/// What one run of the synthesiser takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The module that is synthesised.
    pub top: String,
    /// Modules whose text is read: `top` alone, or `top` and everything below it.
    pub modules: Vec<String>,
    /// Modules below `top` that stay black boxes.
    pub boxes: Vec<String>,
}

/// The tree below a top module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    pub top: String,
    pub modules: BTreeMap<String, Module>,
    /// Modules that differ from another only in the contents of a ROM, and the first of their kind, which is
    /// synthesised in their place.
    pub alike: BTreeMap<String, String>,
}

/// Bytes of Verilog, instances multiplied out, up to which a subtree is synthesised flat: some thousand look-up tables,
/// which Yosys maps in seconds. A flat subtree also lets constants through its boundaries, as Vivado would.
pub const FLAT_BYTES: usize = 70_000;

/// Why a design has no hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HierarchyError {
    #[error("module `{0}` is not among the files")]
    Missing(String),
}

impl Hierarchy {
    /// Reads the tree of `(file name, text)`. One module per file, named like the file; the emitter's style puts the
    /// instantiated module's name first on its line.
    pub fn new(files: &[(String, String)], top: &str) -> Result<Self, HierarchyError> {
        let names: BTreeMap<&str, &str> = files
            .iter()
            .filter_map(|(name, text)| Some((name.strip_suffix(".v")?, text.as_str())))
            .collect();
        let mut modules = BTreeMap::new();
        let mut open = vec![top.to_string()];
        while let Some(name) = open.pop() {
            if modules.contains_key(&name) {
                continue;
            }
            let Some(text) = names.get(name.as_str()) else {
                return Err(HierarchyError::Missing(name));
            };
            let mut children = BTreeMap::new();
            for line in text.lines() {
                let mut words = line.split_whitespace();
                let (Some(first), Some(second)) = (words.next(), words.next()) else {
                    continue;
                };
                let instance = second.starts_with("u_") || second.starts_with("#(");
                if instance && names.contains_key(first) {
                    *children.entry(first.to_string()).or_insert(0) += 1;
                }
            }
            open.extend(children.keys().cloned());
            let text = (*text).to_string();
            modules.insert(name, Module { text, children });
        }
        let alike = alike(&modules);
        Ok(Hierarchy {
            top: top.to_string(),
            modules,
            alike,
        })
    }

    /// The module that is synthesised for `name`.
    pub fn representative<'a>(&'a self, name: &'a str) -> &'a str {
        self.alike.get(name).map_or(name, String::as_str)
    }

    /// Instances of every module in the design.
    pub fn instances(&self) -> BTreeMap<String, usize> {
        self.instances_below(&self.top, &BTreeSet::new())
    }

    /// Instances of `root` (1) and of everything below it, not descending into the modules of `stop`.
    pub fn instances_below(&self, root: &str, stop: &BTreeSet<&str>) -> BTreeMap<String, usize> {
        let mut count = BTreeMap::new();
        self.count(root, 1, stop, &mut count);
        count
    }

    fn count(
        &self,
        name: &str,
        times: usize,
        stop: &BTreeSet<&str>,
        count: &mut BTreeMap<String, usize>,
    ) {
        *count.entry(name.to_string()).or_insert(0) += times;
        for (child, n) in &self.modules[name].children {
            if !stop.contains(child.as_str()) {
                self.count(child, times * n, stop, count);
            }
        }
    }

    /// Bytes of a module's text with everything below it, instances multiplied out.
    pub fn flat_bytes(&self, name: &str) -> usize {
        let module = &self.modules[name];
        let below = module.children.iter();
        module.text.len()
            + below
                .map(|(child, n)| n * self.flat_bytes(child))
                .sum::<usize>()
    }

    /// The unit with `top` as its top.
    pub fn unit(&self, top: &str) -> Unit {
        let below = || {
            let all = self.instances_below(top, &BTreeSet::new());
            all.into_keys().collect::<Vec<_>>()
        };
        let (modules, boxes) = if self.flat_bytes(top) <= FLAT_BYTES {
            (below(), vec![])
        } else {
            let boxes = self.modules[top].children.keys().cloned().collect();
            (vec![top.to_string()], boxes)
        };
        Unit {
            top: top.to_string(),
            modules,
            boxes,
        }
    }

    /// All units of the design, children before parents, with their instances.
    pub fn units(&self) -> Vec<(Unit, usize)> {
        self.units_below(&self.top)
    }

    /// The units below `root` and `root`'s own, children before parents.
    pub fn units_below(&self, root: &str) -> Vec<(Unit, usize)> {
        let mut order = vec![];
        let mut count = BTreeMap::new();
        self.collect(root, 1, &mut order, &mut count);
        order
            .into_iter()
            .map(|unit: Unit| {
                let n = count[&unit.top];
                (unit, n)
            })
            .collect()
    }

    fn collect(
        &self,
        top: &str,
        times: usize,
        order: &mut Vec<Unit>,
        count: &mut BTreeMap<String, usize>,
    ) {
        *count.entry(top.to_string()).or_insert(0) += times;
        let unit = self.unit(top);
        for child in &unit.boxes {
            let n = self.modules[top].children[child];
            self.collect(self.representative(child), times * n, order, count);
        }
        if !order.contains(&unit) {
            order.push(unit);
        }
    }
}

/// See [`Hierarchy::alike`].
fn alike(modules: &BTreeMap<String, Module>) -> BTreeMap<String, String> {
    let mut first: BTreeMap<String, &str> = BTreeMap::new();
    let mut alike = BTreeMap::new();
    for (name, module) in modules {
        let mut shape = module.text.replace(name, "?");
        let files: Vec<&str> = memory_files(&module.text).collect();
        if files.is_empty() {
            continue;
        }
        for file in files {
            shape = shape.replace(file, "?");
        }
        match first.get(&shape) {
            Some(other) => {
                alike.insert(name.clone(), (*other).to_string());
            }
            None => {
                first.insert(shape, name);
            }
        }
    }
    alike
}

/// A module's head, enough for a black box: up to the end of the port list.
pub fn black_box(text: &str) -> String {
    let body = text.find("\n);").map_or(text.len(), |at| at + 3);
    format!("{}\nendmodule\n`resetall\n", &text[..body])
}

/// Names of the `$readmemh` files of a module.
pub fn memory_files(text: &str) -> impl Iterator<Item = &str> {
    text.split("$readmemh(\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn design() -> Hierarchy {
        let leaf = "module leaf (\n    input wire clk\n);\nendmodule\n".to_string();
        let row = "module row (\n    input wire clk\n);\n    leaf u_a (\n        .clk (clk)\n    );\n    \
                   leaf u_b (\n        .clk (clk)\n    );\nendmodule\n";
        let filler = "    // filler\n".repeat(FLAT_BYTES / 14);
        let top = format!(
            "module top (\n    input wire clk\n);\n{filler}    row u_0 (\n    );\n    row u_1 (\n    );\n    leaf u_2 (\n    );\nendmodule\n"
        );
        let files = [("leaf.v", leaf), ("row.v", row.into()), ("top.v", top)];
        let files = files.map(|(name, text)| (name.to_string(), text));
        Hierarchy::new(&files, "top").expect("complete")
    }

    #[test]
    fn small_trees_are_one_unit_and_counted_once() {
        let units = design().units();
        let shown: Vec<_> = units
            .iter()
            .map(|(u, n)| (u.top.as_str(), u.modules.len(), u.boxes.len(), *n))
            .collect();
        assert_eq!(
            shown,
            [("leaf", 1, 0, 1), ("row", 2, 0, 2), ("top", 1, 2, 1)]
        );
        // The leaves inside the rows belong to the rows' unit.
        assert_eq!(design().instances()["leaf"], 5);
    }

    #[test]
    fn roms_that_differ_in_contents_only_are_one_unit() {
        let rom = |n: usize, width: usize| {
            let text = format!(
                "module rom_{n} (\n    input wire clk\n);\n    reg [{width}:0] w [0:3];\n    initial $readmemh(\"rom_{n}.mem\", w);\nendmodule\n"
            );
            (format!("rom_{n}.v"), text)
        };
        let filler = "    // filler\n".repeat(FLAT_BYTES / 14);
        let top = format!(
            "module top (\n    input wire clk\n);\n{filler}    rom_0 u_0 (\n    );\n    rom_1 u_1 (\n    );\n    rom_2 u_2 (\n    );\nendmodule\n"
        );
        let files = [rom(0, 7), rom(1, 7), rom(2, 8), ("top.v".into(), top)];
        let units = Hierarchy::new(&files, "top").expect("complete").units();
        let shown: Vec<_> = units.iter().map(|(u, n)| (u.top.as_str(), *n)).collect();
        assert_eq!(shown, [("rom_0", 2), ("rom_2", 1), ("top", 1)]);
    }

    #[test]
    fn a_stop_cuts_its_subtree() {
        let stop = BTreeSet::from(["row"]);
        let below = design().instances_below("top", &stop);
        assert_eq!(below.get("row"), None);
        assert_eq!(below["leaf"], 1);
    }

    #[test]
    fn a_missing_module_is_named() {
        let files = [("a.v".to_string(), "module a;\nendmodule".to_string())];
        let error = Hierarchy::new(&files, "b").unwrap_err();
        assert_eq!(error, HierarchyError::Missing("b".into()));
    }

    #[test]
    fn a_black_box_has_ports_and_no_body() {
        let text = "module a (\n    input wire clk\n);\n    wire x = clk;\nendmodule\n";
        let shown = black_box(text);
        assert!(shown.contains("input wire clk") && !shown.contains("wire x"));
    }
}
