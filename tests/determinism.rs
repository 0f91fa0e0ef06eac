//! Same input, same bytes: whatever the folder, the order of calls or the number of threads.

#[path = "support/design.rs"]
mod design;

use nfgen::config::load_device;
use nfgen::emit::{Direction, Port, Target, file_set};

#[test]
fn two_emissions_are_equal() {
    let first = design::sample_files("sample", "zcu102");
    let others: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| design::sample_files("sample", "zcu102")))
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().expect("no panic"))
            .collect()
    });
    for other in others {
        assert_eq!(first, other);
    }
}

#[test]
fn what_is_written_does_not_depend_on_where() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let files = design::sample_files("sample", "zcu104");
    for place in ["one", "two/deeper"] {
        files.write(&folder.path().join(place)).expect("written");
    }
    assert_eq!(
        files
            .compare(&folder.path().join("two/deeper"))
            .expect("readable"),
        []
    );
    let host = folder.path().display().to_string();
    for (path, bytes) in files.iter() {
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains(&host), "{path} holds a host path");
        assert!(
            !text.contains(env!("CARGO_MANIFEST_DIR")),
            "{path} holds a host path"
        );
    }
}

#[test]
fn a_change_of_the_rtl_changes_its_hash_and_nothing_else() {
    let device = load_device("zcu102").expect("built in");
    let target = Target {
        device: &device,
        clock_mhz: 150,
    };
    let core = design::sample_core("sample");
    let mut changed = core.clone();
    changed.rtl[0].text.push_str("// more\n");
    let (a, b) = (
        file_set(&core, &target).unwrap(),
        file_set(&changed, &target).unwrap(),
    );
    assert_ne!(a.sha256_below("rtl"), b.sha256_below("rtl"));
    let differing: Vec<&str> = a
        .iter()
        .filter(|(path, bytes)| b.get(path) != Some(*bytes))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(differing, ["manifest.json", "rtl/nf_mac.v"]);
}

/// The interface is checked before anything is written: `nf::emit::wrong_ports`.
#[test]
fn a_top_with_other_ports_is_refused() {
    let device = load_device("zcu102").expect("built in");
    let target = Target {
        device: &device,
        clock_mhz: 150,
    };
    let mut missing = design::sample_core("sample");
    missing
        .ports
        .retain(|port| port.name != "s_axis_token_tlast");
    let mut extra = design::sample_core("sample");
    extra.ports.push(Port {
        name: "debug".into(),
        direction: Direction::Output,
        width: 8,
    });
    for (core, words) in [
        (missing, "`s_axis_token_tlast` (input, 1 bits)"),
        (extra, "unexpected port `debug`"),
    ] {
        let problems = file_set(&core, &target).expect_err("refused").to_string();
        assert!(problems.contains(words), "{problems}");
    }
}

/// A text that would need another quoting in each language is refused: `nf::emit::bad_text`.
#[test]
fn a_text_that_no_script_can_hold_is_refused() {
    let device = load_device("zcu102").expect("built in");
    let target = Target {
        device: &device,
        clock_mhz: 150,
    };
    let mut core = design::sample_core("sample");
    core.description = "a \"quoted\" core".into();
    let problems = file_set(&core, &target).expect_err("refused");
    assert_eq!(
        problems.iter().next().map(|d| d.code),
        Some("nf::emit::bad_text")
    );
}

/// The committed example design is what this compiler emits; `make bless` renews it.
#[test]
fn the_committed_design_is_what_would_be_emitted() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let arguments = "emit --model tiny --device zcu102 --array 4 -o generated/tiny --check";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_nfgen"))
        .current_dir(root)
        .args(arguments)
        .output()
        .expect("the binary runs");
    assert_eq!(
        ran.status.code(),
        Some(0),
        "{}{}",
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    );
}
