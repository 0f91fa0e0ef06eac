//! The generated software: the C driver compiles without a warning and runs, the Python class compiles, the make and
//! FuseSoC files name files that exist.

#[path = "support/cc.rs"]
mod cc;
#[path = "support/design.rs"]
mod design;
#[path = "support/tools.rs"]
mod tools;

use std::path::Path;
use std::process::Command;

const CHECK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/driver_check.c");

fn emitted() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("temporary folder");
    design::sample_files("my-chip.v2", "zcu102")
        .write(folder.path())
        .expect("written");
    folder
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("the tool runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}\n{text}{errors}");
    text
}

#[test]
fn the_c_driver_compiles_cleanly_and_works() {
    let Some(compiler) = tools::tool("cc") else {
        return;
    };
    let folder = emitted();
    let software = folder.path().join("software");
    let program = folder.path().join("check");
    succeeds(
        cc::strict(&compiler)
            .arg("-I")
            .arg(&software)
            .arg(software.join("nf_driver.c"))
            .arg(CHECK)
            .arg("-o")
            .arg(&program),
    );
    succeeds(&mut Command::new(&program));
}

#[test]
fn the_python_class_compiles() {
    let Some(python) = tools::tool("python3") else {
        return;
    };
    let folder = emitted();
    let file = folder.path().join("software/nf_overlay.py");
    let check = "import ast,sys; tree=ast.parse(open(sys.argv[1]).read()); \
                 print(*[n.name for n in tree.body if isinstance(n, ast.ClassDef)])";
    let classes = succeeds(Command::new(python).arg("-c").arg(check).arg(&file));
    assert_eq!(classes.trim(), "TrainerError Trainer TrainerOverlay");
}

#[test]
fn the_make_fragment_lists_the_sources() {
    let Some(make) = tools::tool("make") else {
        return;
    };
    let folder = emitted();
    let makefile = folder.path().join("Makefile.check");
    let text = "include files.mk\nprint:\n\t@echo $(NF_MY_CHIP_V2_TOP) $(NF_MY_CHIP_V2_RTL) $(NF_MY_CHIP_V2_MEM)\n";
    std::fs::write(&makefile, text).expect("written");
    let printed = succeeds(
        Command::new(make)
            // The test itself may run below make.
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .arg("--no-print-directory")
            .args(["-f", "Makefile.check", "print"])
            .current_dir(folder.path()),
    );
    let mut words = printed.split_whitespace();
    assert_eq!(words.next(), Some("nf_trainer"));
    let files: Vec<&str> = words.collect();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in files {
        assert!(folder.path().join(file).is_file(), "{file}");
    }
}

#[test]
fn the_fusesoc_file_names_files_that_exist() {
    let folder = emitted();
    let text = std::fs::read_to_string(folder.path().join("nfgen.core")).expect("emitted");
    assert!(text.starts_with("CAPI=2:\n"));
    let named: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("      - "))
        .map(|entry| entry.split(" : ").next().unwrap_or(entry))
        .collect();
    assert_eq!(named.len(), 4, "{text}");
    for file in named {
        assert!(folder.path().join(file).is_file(), "{file}");
    }
}

#[test]
fn the_manifest_describes_every_file() {
    let folder = emitted();
    let text = std::fs::read_to_string(folder.path().join("manifest.json")).expect("emitted");
    let manifest: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(manifest["top"], "nf_trainer");
    assert_eq!(manifest["register_map"]["registers"][0]["name"], "ID");
    let files = manifest["files"].as_array().expect("a list");
    for file in files {
        let bytes = std::fs::read(folder.path().join(file["path"].as_str().expect("a path")))
            .expect("there");
        assert_eq!(
            nfgen::emit::sha256(&bytes),
            file["sha256"].as_str().expect("a hash")
        );
    }
    let count = count_files(folder.path());
    assert_eq!(
        files.len() + 1,
        count,
        "the manifest lists all files but itself"
    );
}

fn count_files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).expect("readable");
    entries
        .map(|entry| {
            let path = entry.expect("readable").path();
            if path.is_dir() { count_files(&path) } else { 1 }
        })
        .sum()
}
