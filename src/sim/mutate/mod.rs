//! Mutations of emitted Verilog: one operator, constant or connection changed at a time.
//!
//! A comparison that cannot fail proves nothing. Simulating mutants and counting those that
//! the comparison notices shows what it is worth. All chosen mutants live in one model
//! ([`weave`]), which is built once and told at run time which of them to be.

mod weave;

use std::collections::{HashMap, HashSet};

pub use weave::{ARGUMENT, Woven, weave};

/// One possible change.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Site {
    /// Index into the list of files, and the file's name.
    #[serde(skip)]
    pub file_index: usize,
    pub file: String,
    /// 1-based.
    pub line: usize,
    /// Byte range in the file's text.
    #[serde(skip)]
    pub start: usize,
    #[serde(skip)]
    pub end: usize,
    pub from: String,
    pub to: String,
    pub kind: Kind,
}

/// What a mutation changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Operator,
    Constant,
    Connection,
}

const OPERATORS: [(&str, &str); 12] = [
    (" + ", " - "),
    (" - ", " + "),
    (" & ", " | "),
    (" | ", " & "),
    (" ^ ", " & "),
    (" == ", " != "),
    (" != ", " == "),
    (" < ", " > "),
    (" >> ", " << "),
    (" << ", " >> "),
    (" >>> ", " >> "),
    (" * ", " + "),
];

/// All sites of a set of files, in file and line order.
///
/// Left alone: headers, comments, declarations, simulation-only checks, vendor primitives, what
/// only quiets a linter, and values taken in reset, whose effect ends before the first command.
pub fn sites(files: &[(String, String)]) -> Vec<Site> {
    let mut out = vec![];
    let outputs = outputs(files);
    for (file_index, (file, text)) in files.iter().enumerate() {
        let mut in_ports = false;
        let mut instance = None;
        // Inside `if (rst) begin ... end else`, and inside the sum of unused bits.
        let (mut in_reset, mut unused) = (false, false);
        let mut skipped = 0usize;
        let mut offset = 0;
        for (n, line) in text.split_inclusive('\n').enumerate() {
            let line_start = offset;
            offset += line.len();
            let code = line.split("//").next().unwrap_or("");
            let trimmed = code.trim_start();
            if trimmed.starts_with("`ifndef SYNTHESIS") || trimmed.starts_with("`ifdef SYNTHESIS") {
                skipped += 1;
            } else if trimmed.starts_with("`else") && skipped > 0 {
                // The behavioural twin of a primitive follows.
                skipped -= 1;
            } else if trimmed.starts_with("`endif") {
                skipped = skipped.saturating_sub(1);
            }
            in_ports |= trimmed.starts_with("module ");
            in_reset |= trimmed.starts_with("if (rst) begin");
            in_reset &= !trimmed.starts_with("end");
            unused |= trimmed.starts_with("wire unused_bits") || only_unused(trimmed, text);
            let ignored = in_reset || unused;
            unused &= !trimmed.trim_end().ends_with(';');
            let declares = [
                "input",
                "output",
                "reg ",
                "(*",
                "module",
                "localparam",
                "initial",
            ];
            let declaration =
                declares.iter().any(|d| trimmed.starts_with(d)) || trimmed.starts_with('`');
            if !in_ports && !declaration && !ignored && skipped == 0 {
                let site = |start: usize, end: usize, to: &str, kind| Site {
                    file_index,
                    file: file.clone(),
                    line: n + 1,
                    start: line_start + start,
                    end: line_start + end,
                    from: code[start..end].to_string(),
                    to: to.to_string(),
                    kind,
                };
                operators(code, &site, &mut out);
                constants(code, &site, &mut out);
                instance = instance_of(trimmed).or(instance);
                let driven = instance.and_then(|m| outputs.get(m));
                connections(code, driven, &site, &mut out);
            }
            in_ports &= !trimmed.starts_with(");");
        }
    }
    out
}

/// Whether a line defines a net that nothing but the sum of unused bits reads.
fn only_unused(trimmed: &str, text: &str) -> bool {
    let Some((left, _)) = trimmed
        .strip_prefix("wire ")
        .and_then(|rest| rest.split_once(" = "))
    else {
        return false;
    };
    let name = left.rsplit(' ').next().unwrap_or("");
    let mut readers = text
        .lines()
        .map(str::trim_start)
        .filter(|l| *l != trimmed.trim_end())
        .filter(|l| {
            l.match_indices(name).any(|(at, _)| {
                let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                !word(l[..at].chars().next_back()) && !word(l[at + name.len()..].chars().next())
            })
        })
        .peekable();
    readers.peek().is_some() && readers.all(|l| l.starts_with("wire unused_bits"))
}

type MakeSite<'a> = &'a dyn Fn(usize, usize, &str, Kind) -> Site;

fn operators(code: &str, site: MakeSite<'_>, out: &mut Vec<Site>) {
    for (from, to) in OPERATORS {
        for (at, _) in code.match_indices(from) {
            out.push(site(at, at + from.len(), to, Kind::Operator));
        }
    }
}

/// Sized decimal and hexadecimal literals change their lowest bit.
fn constants(code: &str, site: MakeSite<'_>, out: &mut Vec<Site>) {
    for (at, _) in code.match_indices('\'') {
        let rest = &code[at + 1..];
        let Some(base) = rest.chars().next() else {
            continue;
        };
        let radix = match base {
            'd' => 10,
            'h' => 16,
            'b' => 2,
            _ => continue,
        };
        let digits: String = rest[1..]
            .chars()
            .take_while(|c| c.is_digit(radix))
            .collect();
        let Ok(value) = u128::from_str_radix(&digits, radix) else {
            continue;
        };
        let changed = value ^ 1;
        let text = match base {
            'd' => format!("{changed}"),
            'h' => format!("{changed:0w$x}", w = digits.len()),
            _ => format!("{changed:0w$b}", w = digits.len()),
        };
        let start = at + 2;
        out.push(site(start, start + digits.len(), &text, Kind::Constant));
    }
}

/// Output ports of every module.
fn outputs(files: &[(String, String)]) -> HashMap<&str, HashSet<&str>> {
    let mut out: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (_, text) in files {
        let mut module = "";
        for line in text.lines().map(str::trim_start) {
            if let Some(rest) = line.strip_prefix("module ") {
                module = rest.split([' ', '(']).next().unwrap_or("");
            } else if line.starts_with("output ") {
                let name = line.trim_end_matches(',').rsplit(' ').next().unwrap_or("");
                out.entry(module).or_default().insert(name);
            }
        }
    }
    out
}

/// The module of an instance that starts on this line: `nf_x u_y (`.
fn instance_of(trimmed: &str) -> Option<&str> {
    let (module, rest) = trimmed.split_once(' ')?;
    (module.starts_with("nf_") && rest.trim_end().ends_with('(')).then_some(module)
}

/// `.port(net)` becomes `.port(~net)`, except for clock, reset and what the instance drives.
fn connections(
    code: &str,
    driven: Option<&HashSet<&str>>,
    site: MakeSite<'_>,
    out: &mut Vec<Site>,
) {
    let trimmed = code.trim_start();
    if !trimmed.starts_with('.') {
        return;
    }
    let (Some(open), Some(close)) = (code.find('('), code.rfind(')')) else {
        return;
    };
    let port = code[code.len() - trimmed.len() + 1..open].trim();
    let net = &code[open + 1..close];
    let is_driven = driven.is_some_and(|d| d.contains(port));
    if net.is_empty() || is_driven || ["clk", "rst", "aclk"].contains(&port) {
        return;
    }
    out.push(site(
        open + 1,
        close,
        &format!("~({net})"),
        Kind::Connection,
    ));
}

/// The files with one site changed.
pub fn apply(files: &[(String, String)], site: &Site) -> Vec<(String, String)> {
    let mut out = files.to_vec();
    out[site.file_index]
        .1
        .replace_range(site.start..site.end, &site.to);
    out
}

/// Chooses `count` sites spread evenly: the files take turns, each giving its sites in a
/// seeded order.
pub fn choose(all: &[Site], count: usize, seed: u64) -> Vec<Site> {
    use rand::RngExt;
    let mut rng = rand_pcg::Pcg64Mcg::new(u128::from(seed) << 1 | 1);
    let files = all.iter().map(|s| s.file_index).max().map_or(0, |m| m + 1);
    let mut queues: Vec<Vec<&Site>> = vec![vec![]; files];
    for s in all {
        queues[s.file_index].push(s);
    }
    let mut out = vec![];
    while out.len() < count && queues.iter().any(|q| !q.is_empty()) {
        for q in &mut queues {
            if !q.is_empty() && out.len() < count {
                let k = rng.random_range(0..q.len());
                out.push(q.swap_remove(k).clone());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "// a + b\nmodule nf_x (\n    input wire [7:0] a\n);\n    assign y = a + 8'd12; // c - d\n    nf_sub u_sub (\n        .clk(clk),\n        .d(a)\n    );\n`ifndef SYNTHESIS\n    always @* if (a == 8'd3) $finish;\n`endif\nendmodule\n";

    #[test]
    fn finds_and_applies_one_site_of_each_kind() {
        let files = [("nf_x.v".to_string(), TEXT.to_string())];
        let all = sites(&files);
        let kinds: Vec<Kind> = all.iter().map(|s| s.kind).collect();
        assert_eq!(kinds, [Kind::Operator, Kind::Constant, Kind::Connection]);
        let lines: Vec<usize> = all.iter().map(|s| s.line).collect();
        assert_eq!(lines, [5, 5, 8]);
        let texts: Vec<String> = all.iter().map(|s| apply(&files, s)[0].1.clone()).collect();
        assert!(texts[0].contains("assign y = a - 8'd12;"));
        assert!(texts[1].contains("a + 8'd13;"));
        assert!(texts[2].contains(".d(~(a))"));
    }

    #[test]
    fn what_only_quiets_a_linter_is_left_alone() {
        let text = "module nf_x (\n);\n    wire [1:0] net_cat = {keep, 1'b0};\n    \
            wire y = 1'b0;\n    assign z = y;\n    wire unused_bits = &{1'b0, net_cat};\n\
            endmodule\n";
        let lines: Vec<usize> = sites(&[("nf_x.v".to_string(), text.to_string())])
            .iter()
            .map(|s| s.line)
            .collect();
        assert_eq!(lines, [4]);
    }

    #[test]
    fn choice_spreads_over_the_files() {
        let files: Vec<_> = (0..3)
            .map(|k| (format!("{k}.v"), TEXT.to_string()))
            .collect();
        let chosen = choose(&sites(&files), 6, 1);
        for k in 0..3 {
            assert_eq!(chosen.iter().filter(|s| s.file_index == k).count(), 2);
        }
    }
}
