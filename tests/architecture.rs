//! Who may import whom, and what no source may do. The picture is in `docs/architecture.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use nfgen::diag::codes;

/// Module of the crate, and the modules it may use besides itself, `diag` and `files`.
const MAY_USE: &[(&str, &[&str])] = &[
    ("diag", &[]),
    ("files", &[]),
    ("config", &[]),
    ("num", &["config"]),
    // The oracle shares no code with the hardware, so that both cannot be wrong in the same way.
    ("reference", &["config", "num"]),
    ("dsl", &[]),
    ("hw", &["dsl", "num", "trainer", "config"]),
    // `reference` for its state only: a machine's state is loaded from it and compared with it.
    (
        "trainer",
        &["config", "num", "dsl", "hw", "emit", "reference"],
    ),
    (
        "cgla",
        &["config", "num", "dsl", "hw", "emit", "bitnet", "sim"],
    ),
    ("bitnet", &["config"]),
    ("emit", &["config", "dsl"]),
    (
        "compile",
        &["config", "num", "dsl", "hw", "trainer", "cgla", "emit"],
    ),
    (
        "sim",
        &[
            "config",
            "compile",
            "num",
            "emit",
            "trainer",
            "cgla",
            "reference",
            "bitnet",
            "dsl",
        ],
    ),
    ("synth", &["trainer"]),
    ("report", &["config", "trainer"]),
    ("sweep", &["report"]),
    (
        "cli",
        &[
            "report",
            "sweep",
            "synth",
            "config",
            "num",
            "reference",
            "dsl",
            "hw",
            "trainer",
            "cgla",
            "bitnet",
            "emit",
            "compile",
            "sim",
        ],
    ),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust source below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).expect("readable folder");
    for entry in entries {
        let path = entry.expect("readable entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found.retain(|path| !is_test_file(path));
    found.sort();
    found
}

/// Whether the file, or a folder above it, is declared as `#[cfg(test)] mod name;`.
fn is_test_file(path: &Path) -> bool {
    path.ancestors().take_while(|p| *p != root()).any(|part| {
        let name = part.file_stem().unwrap_or_default().to_string_lossy();
        let parent = part.with_file_name("mod.rs");
        let declared = std::fs::read_to_string(parent).unwrap_or_default();
        let by_path = format!("#[cfg(test)]\n#[path = \"{name}.rs\"]");
        let named = |sibling: &Path| {
            sibling.is_file()
                && std::fs::read_to_string(sibling).is_ok_and(|t| t.contains(&by_path))
        };
        let siblings = part
            .parent()
            .and_then(|folder| std::fs::read_dir(folder).ok());
        if siblings.is_some_and(|mut all| all.any(|e| e.is_ok_and(|e| named(&e.path())))) {
            return true;
        }
        ["", "pub ", "pub(crate) ", "pub(super) "]
            .iter()
            .any(|visibility| declared.contains(&format!("#[cfg(test)]\n{visibility}mod {name};")))
    })
}

/// Text of a source without its line comments, tests and everything after `#[cfg(test)] mod`.
fn code_of(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("readable source");
    let production = match text.find("#[cfg(test)]\nmod ") {
        Some(end) => &text[..end],
        None => &text,
    };
    let lines = production
        .lines()
        .map(|line| match line.trim_start().starts_with("//") {
            true => "",
            false => line,
        });
    lines.collect::<Vec<_>>().join("\n")
}

/// `src/emit/core.rs` is in module `emit`.
fn module_of(path: &Path) -> String {
    let relative = path.strip_prefix(root().join("src")).expect("below src");
    let first = relative.components().next().expect("a name").as_os_str();
    first.to_string_lossy().trim_end_matches(".rs").to_string()
}

/// Top-level modules named after `crate::` in a source, groups included: `crate::{config, num::fp32}`.
fn uses(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let name = |text: &str| -> String {
        text.trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.insert(name(rest));
            continue;
        };
        let mut depth = 0;
        let mut start = true;
        for (index, c) in group.char_indices() {
            if start && depth == 0 && !c.is_whitespace() {
                found.insert(name(&group[index..]));
                start = false;
            }
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => start = true,
                _ => {}
            }
        }
    }
    found.remove("");
    found
}

#[test]
fn modules_import_only_what_they_may() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> = MAY_USE
        .iter()
        .map(|(module, others)| (*module, others.iter().copied().collect()))
        .collect();
    let mut wrong = Vec::new();
    for path in sources(&root().join("src")) {
        let module = module_of(&path);
        if module == "lib" || module == "main" {
            continue;
        }
        let Some(allowed) = allowed.get(module.as_str()) else {
            wrong.push(format!("{module} is not in this table: {}", path.display()));
            continue;
        };
        for used in uses(&code_of(&path)) {
            let known = MAY_USE.iter().any(|(name, _)| *name == used);
            if known
                && used != module
                && !["diag", "files"].contains(&used.as_str())
                && !allowed.contains(used.as_str())
            {
                wrong.push(format!("{} uses {used}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Files whose purpose is to serve tests: they say `skipped: ...` and read the variables documented in CONTRIBUTING.md.
const SERVE_TESTS: &[&str] = &["src/sim/cosim.rs", "src/sim/lint.rs"];

#[test]
fn only_the_command_line_touches_the_process() {
    let words = [
        "std::env::args",
        "env::var",
        "env::current_dir",
        "println!(",
        "eprintln!(",
        "process::exit",
    ];
    let mut wrong = Vec::new();
    for path in sources(&root().join("src")) {
        let serves_tests = SERVE_TESTS.iter().any(|file| path.ends_with(file));
        if module_of(&path) == "cli" || serves_tests {
            continue;
        }
        let code = code_of(&path);
        for word in words {
            if code.contains(word) {
                wrong.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_code_that_is_used_is_documented_and_the_reverse() {
    let mut used = BTreeSet::new();
    for path in sources(&root().join("src")) {
        if path.ends_with("diag/codes.rs") {
            continue;
        }
        let code = code_of(&path);
        for (at, _) in code.match_indices("\"nf::") {
            let rest = &code[at + 1..];
            let end = rest.find('"').unwrap_or(rest.len());
            let name = &rest[..end];
            if name.matches("::").count() == 2 && name.len() < 60 {
                used.insert(name.to_string());
            }
        }
    }
    let known: BTreeSet<String> = codes::ALL
        .iter()
        .map(|code| code.name.to_string())
        .collect();
    let undocumented: Vec<_> = used.difference(&known).collect();
    assert!(
        undocumented.is_empty(),
        "not in src/diag/codes.rs: {undocumented:?}"
    );
    let unused: Vec<_> = known.difference(&used).collect();
    assert!(unused.is_empty(), "documented but used nowhere: {unused:?}");
}

#[test]
fn the_readers_of_this_test_can_be_trusted() {
    let code = "use crate::config::Device;\nuse crate::{diag::{Diagnostic, Problems}, num, emit::core::Core};\ncrate::sim::run()";
    let found: Vec<String> = uses(code).into_iter().collect();
    assert_eq!(found, ["config", "diag", "emit", "num", "sim"]);
}
