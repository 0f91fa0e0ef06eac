//! The command line: exit codes, streams, JSON, help.

#[path = "support/command.rs"]
mod command;

use std::io::Read;
use std::process::{Command, Stdio};

use command::{Ran, nfgen};

fn run(arguments: &[&str]) -> Ran {
    let folder = tempfile::tempdir().expect("temporary folder");
    nfgen(folder.path(), arguments)
}

/// Stdout as the one JSON object that `--json` promises.
fn object(ran: &Ran) -> serde_json::Value {
    serde_json::from_str(&ran.stdout)
        .unwrap_or_else(|error| panic!("stdout is not one JSON object ({error}): {ran:?}"))
}

/// The verbs that `nfgen --help` lists.
fn verbs() -> Vec<String> {
    let help = run(&["--help"]);
    let listed = help
        .stdout
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1);
    listed
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .map(str::to_string)
        .collect()
}

#[test]
fn help_and_version_go_to_stdout() {
    let help = run(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
    assert!(
        help.stdout
            .contains("Exit codes: 0 done, 1 ran and found a difference, 2 could not run.")
    );
    let version = run(&["--version"]);
    assert_eq!(
        version.stdout.trim(),
        format!("nfgen {}", env!("CARGO_PKG_VERSION"))
    );
    let nothing = run(&[]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (2, ""));
    assert!(nothing.stderr.contains("Usage: nfgen"));
}

#[test]
fn every_verb_has_help_with_examples() {
    let verbs = verbs();
    for expected in ["devices", "check", "explain"] {
        assert!(verbs.iter().any(|verb| verb == expected), "{verbs:?}");
    }
    for verb in &verbs {
        let help = run(&[verb, "--help"]);
        assert_eq!(help.code, 0, "{verb}");
        let example = format!("nfgen {verb}");
        let examples = help.stdout.split("Examples:").nth(1).unwrap_or_default();
        assert!(
            examples.contains(&example),
            "{verb} --help shows no example:\n{}",
            help.stdout
        );
        assert!(help.stdout.contains("--json"), "{verb}");
    }
}

#[test]
fn devices_as_table_and_as_json() {
    let table = run(&["devices"]);
    assert_eq!((table.code, table.stderr.as_str()), (0, ""));
    insta::assert_snapshot!("devices", table.stdout);
    let json = object(&run(&["devices", "--json"]));
    let devices = json["devices"].as_array().expect("a list");
    assert_eq!(devices.len(), table.stdout.lines().count() - 1);
    let one = run(&["devices", "zcu104", "--json"]);
    assert_eq!(object(&one)["uram"], 96);
}

#[test]
fn a_device_file_can_be_started_from_the_catalogue() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let toml = nfgen(folder.path(), &["devices", "zcu102", "--toml"]);
    std::fs::write(
        folder.path().join("mine.toml"),
        toml.stdout.replace("912", "456"),
    )
    .expect("written");
    let mine = nfgen(folder.path(), &["devices", "mine.toml", "--json"]);
    assert_eq!(object(&mine)["bram36"], 456);
}

#[test]
fn check_shows_what_was_resolved() {
    let ran = run(&["check", "--model", "shakespeare-334k"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    insta::assert_snapshot!("check", ran.stdout);
    let json = run(&[
        "check",
        "--model",
        "tiny",
        "--set",
        "embed_dim=12",
        "--set",
        "gelu=erf",
        "--json",
    ]);
    assert_eq!(object(&json)["model"]["embed_dim"], 12);
    assert_eq!(object(&json)["model"]["gelu"], "erf");
    assert!(
        json.stderr.contains("nf::model::small_layers"),
        "warnings go to stderr: {}",
        json.stderr
    );
}

#[test]
fn a_resolved_model_is_a_model_file() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let toml = nfgen(
        folder.path(),
        &[
            "check", "--model", "small", "--set", "seed=7", "--toml", "-q",
        ],
    );
    std::fs::write(folder.path().join("mine.toml"), &toml.stdout).expect("written");
    let again = nfgen(
        folder.path(),
        &["check", "--model", "mine.toml", "--toml", "-q"],
    );
    assert_eq!(toml.stdout, again.stdout);
}

#[test]
fn explain_knows_every_code() {
    let list = object(&run(&["explain", "--json"]));
    for code in list["codes"].as_array().expect("a list") {
        let name = code["code"].as_str().expect("a name");
        let ran = run(&["explain", name]);
        assert_eq!(ran.code, 0, "{name}");
        assert!(ran.stdout.starts_with(&format!("{name}: ")), "{name}");
    }
}

#[test]
fn errors_are_one_object_in_json_mode_and_exit_2() {
    let cases: [&[&str]; 5] = [
        &["check", "--set", "heads=5", "--json"],
        &["check", "--model", "absent.toml", "--json"],
        &["explain", "nf::no::such", "--json"],
        &["devices", "--no-such-flag", "--json"],
        &["no-such-verb", "--json"],
    ];
    for arguments in cases {
        let ran = run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}");
        let error = &object(&ran)["error"];
        assert!(
            error["code"]
                .as_str()
                .is_some_and(|c| c.starts_with("nf::")),
            "{ran:?}"
        );
        assert!(
            error["message"].is_string() && error["help"].is_string(),
            "{ran:?}"
        );
        assert!(ran.stderr.contains("error[nf::"), "{ran:?}");
    }
}

#[test]
fn all_mistakes_of_a_file_come_in_one_object() {
    let folder = tempfile::tempdir().expect("temporary folder");
    std::fs::write(
        folder.path().join("m.toml"),
        "vocab = 1\nheads = \"x\"\nlayer = 2\n",
    )
    .expect("written");
    let json = object(&nfgen(
        folder.path(),
        &["check", "--model", "m.toml", "--json"],
    ));
    let errors = json["errors"].as_array().expect("several errors");
    assert_eq!(errors.len(), 4);
    assert_eq!(errors[0]["at"], "m.toml:2:9");
}

#[test]
fn colour_is_only_where_it_is_asked_for() {
    let plain = run(&["check", "--set", "heads=5"]);
    assert!(!plain.stderr.contains('\u{1b}'), "{}", plain.stderr);
    let coloured = run(&["check", "--set", "heads=5", "--color", "always"]);
    assert!(coloured.stderr.contains('\u{1b}'), "{}", coloured.stderr);
}

#[test]
fn quiet_keeps_results_and_errors() {
    let ran = run(&["check", "--model", "tiny", "--quiet"]);
    assert_eq!(ran.stderr, "");
    assert!(ran.stdout.contains("vocab = 128"));
    assert!(
        run(&["check", "--set", "heads=5", "-q"])
            .stderr
            .contains("heads_divide")
    );
}

/// `nfgen explain | head -1` must end well although nobody reads the rest.
#[test]
fn a_closed_pipe_is_no_error() {
    for _ in 0..5 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_nfgen"))
            .arg("explain")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nfgen runs");
        drop(child.stdout.take());
        let mut stderr = String::new();
        child
            .stderr
            .take()
            .expect("piped")
            .read_to_string(&mut stderr)
            .expect("text");
        let status = child.wait().expect("ends");
        assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
    }
}

/// A result that is lost on a full disk is no success; a reader that has gone away is his own business.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_behind_stdout_is_an_error() {
    use std::process::{Command, Stdio};
    for arguments in [&["devices"][..], &["devices", "--json"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let ran = Command::new(env!("CARGO_BIN_EXE_nfgen"))
            .args(arguments)
            .stdout(full.expect("there"))
            .output()
            .expect("nfgen runs");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(said.contains("standard output"), "{said}");
        let mut child = Command::new(env!("CARGO_BIN_EXE_nfgen"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("nfgen runs");
        drop(child.stdout.take());
        assert_eq!(child.wait().expect("ended").code(), Some(0));
    }
}

/// An endless file ends with an error, not with the memory.
#[cfg(unix)]
#[test]
fn endless_files_are_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    for arguments in [
        &["check", "--model", "/dev/zero"][..],
        &["plan", "--device", "/dev/zero"],
    ] {
        let ran = nfgen(folder.path(), arguments);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("more than 1048576 bytes"), "{ran:?}");
    }
    let ran = nfgen(folder.path(), &["bitnet", "inspect", "/dev/zero"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("regular file"), "{ran:?}");
}

#[test]
fn adam_lanes_that_no_array_has_are_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    for lanes in ["0", "100000000"] {
        let line = ["plan", "--model", "tiny", "--adam-lanes", lanes];
        let ran = nfgen(folder.path(), &line);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(
            ran.stderr.contains("nf::plan::impossible_machine"),
            "{ran:?}"
        );
    }
}
