//! Training runs as processes: killed and resumed, out of space, interrupted, and with wrong input.

#[path = "support/command.rs"]
mod command;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use command::{Ran, nfgen};

/// A text long enough for the tiny model's windows and the 64 of the validation.
fn corpus(folder: &Path) -> String {
    let path = folder.join("text.txt");
    let text: Vec<u8> = (0..20_000u32)
        .map(|i| b"etaoin shrdlu\n"[(i * i / 5 % 13 + i % 2) as usize])
        .collect();
    fs::write(&path, text).expect("corpus");
    path.display().to_string()
}

const MODEL: [&str; 7] = [
    "train",
    "--model",
    "small",
    "--samples",
    "200",
    "--checkpoint-every",
    "7",
];

fn start(folder: &Path, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_nfgen"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nfgen runs")
}

/// The first 10 of 30 samples, saved in `run`.
fn first_third(folder: &Path, model: &str, text: &str) {
    let ran = train_first_third(folder, model, text);
    assert_eq!(ran.code, 0, "{ran:?}");
}

/// The command of [`first_third`], which a second time must be refused.
fn train_first_third(folder: &Path, model: &str, text: &str) -> Ran {
    let train = format!("train --model {model} --samples 30 --stop-after 10 -o run --corpus");
    let mut arguments: Vec<&str> = train.split(' ').collect();
    arguments.push(text);
    nfgen(folder, &arguments)
}

/// Refused: exit code 2 and a diagnostic that holds `what`, without a panic.
fn refused(ran: &Ran, what: &str) {
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains(what), "{what}: {ran:?}");
    assert!(!ran.stderr.contains("panicked"), "{ran:?}");
}

/// Files of a folder, so that nothing half-written goes unseen.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("folder")
        .map(|e| e.expect("entry").file_name().to_string_lossy().into())
        .collect();
    names.sort();
    names
}

/// Bits of a linear congruential generator, for moments to kill at.
fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// 3 kills, or 20 with NFGEN_FULL=1; the log but for its times, and every bit of the checkpoint, as of an unbroken run.
#[test]
fn killed_runs_end_as_unbroken_ones() {
    let home = tempfile::tempdir().expect("temporary folder");
    let text = corpus(home.path());
    let with = |folder: &str| -> Vec<String> {
        let rest = ["--corpus", &text, "--eval-every", "50", "-o", folder];
        MODEL.iter().chain(&rest).map(|s| s.to_string()).collect()
    };
    let whole = with("whole");
    let whole: Vec<&str> = whole.iter().map(String::as_str).collect();
    let began = Instant::now();
    let ran = nfgen(home.path(), &whole);
    assert_eq!(ran.code, 0, "{ran:?}");
    let time = began.elapsed().as_micros() as u64;

    let kills = if std::env::var("NFGEN_FULL").is_ok() {
        20
    } else {
        3
    };
    let (mut seed, mut killed, mut died_late) = (7, 0, 0);
    let first = with("broken");
    let first: Vec<&str> = first.iter().map(String::as_str).collect();
    let again = [
        "train",
        "--resume",
        "--corpus",
        &text,
        "-o",
        "broken",
        "--eval-every",
        "50",
        "--checkpoint-every",
        "7",
    ];
    while killed < kills {
        let begun = home.path().join("broken/checkpoint.safetensors").exists();
        let mut child = start(home.path(), if begun { &again } else { &first });
        // Each attempt has up to a third of the whole run's time, so several are needed for it.
        std::thread::sleep(Duration::from_micros(
            1 + random(&mut seed) % (time / 3).max(1),
        ));
        match child.try_wait().expect("status") {
            None => {
                child.kill().expect("killed");
                child.wait().expect("status");
                killed += 1;
            }
            // It finished first: begin anew, so that every kill hits a running program.
            Some(status) => {
                assert!(status.success());
                died_late += 1;
                assert!(died_late < 200, "the run is too short to be killed");
                fs::remove_dir_all(home.path().join("broken")).expect("removed");
            }
        }
    }
    let begun = home.path().join("broken/checkpoint.safetensors").exists();
    let ran = nfgen(home.path(), if begun { &again } else { &first });
    assert_eq!(ran.code, 0, "{ran:?}");
    let read = |run: &str, file: &str| fs::read(home.path().join(run).join(file)).expect("file");
    assert!(
        read("whole", "checkpoint.safetensors") == read("broken", "checkpoint.safetensors"),
        "the checkpoints differ after {killed} kills"
    );
    let log = |run: &str| -> Vec<String> {
        String::from_utf8(read(run, "log.csv"))
            .expect("text")
            .lines()
            .map(|line| line.rsplit_once(',').expect("fields").0.to_string())
            .collect()
    };
    assert_eq!(log("whole"), log("broken"));
}

#[cfg(unix)]
#[test]
fn an_interrupt_saves_and_files_follow_the_umask() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = tempfile::tempdir().expect("temporary folder");
    let text = corpus(home.path());
    let command = format!(
        "umask 027; exec {} train --model small --samples 1000000 --corpus {text} -o run",
        env!("CARGO_BIN_EXE_nfgen")
    );
    let mut child = Command::new("bash")
        .args(["-c", &command])
        .current_dir(home.path())
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("bash runs");
    let run = home.path().join("run");
    while !run.join("checkpoint.safetensors").exists() {
        assert_eq!(child.try_wait().expect("status"), None, "it ended early");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    let killed = Command::new("bash")
        .args(["-c", &format!("kill -INT {}", child.id())])
        .status()
        .expect("kill runs");
    assert!(killed.success());
    assert!(child.wait().expect("status").success());
    let saved = nfgen::reference::Checkpoint::load(&run.join("checkpoint.safetensors"));
    let step = saved.expect("checkpoint").state.schedule.step;
    assert!(step > 0 && step < 1_000_000, "{step}");
    for file in ["checkpoint.safetensors", "log.csv"] {
        let mode = fs::metadata(run.join(file))
            .expect("file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o640, "{file}");
    }
}

/// A limit on file sizes stands for a full disk: writes fail in the middle.
#[cfg(unix)]
#[test]
fn a_full_disk_keeps_the_last_checkpoint() {
    let home = tempfile::tempdir().expect("temporary folder");
    let text = corpus(home.path());
    first_third(home.path(), "small", &text);
    let run = home.path().join("run");
    let before = fs::read(run.join("checkpoint.safetensors")).expect("checkpoint");
    let limited = |rest: &str| {
        let nfgen = env!("CARGO_BIN_EXE_nfgen");
        let output = Command::new("bash")
            .args([
                "-c",
                &format!("trap '' XFSZ; ulimit -f 8; exec {nfgen} {rest}"),
            ])
            .current_dir(home.path())
            .output()
            .expect("bash runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    for rest in [
        format!("train --resume --corpus {text} -o run"),
        format!("train --model small --samples 30 --corpus {text} -o new"),
        "convert run/checkpoint.safetensors -o out.neuro".into(),
    ] {
        let (code, stderr) = limited(&rest);
        assert_eq!(code, Some(2), "{rest}: {stderr}");
        assert!(
            stderr.contains("too large") && !stderr.contains("panicked"),
            "{rest}: {stderr}"
        );
    }
    assert!(before == fs::read(run.join("checkpoint.safetensors")).expect("checkpoint"));
    assert_eq!(names(&run), ["checkpoint.safetensors", "log.csv"]);
    assert_eq!(names(home.path()), ["new", "run", "text.txt"]);
    assert_eq!(names(&home.path().join("new")), ["log.csv"]);
}

#[test]
fn wrong_input_is_refused_and_writes_nothing() {
    let home = tempfile::tempdir().expect("temporary folder");
    let text = corpus(home.path());
    first_third(home.path(), "tiny", &text);
    let checkpoint = home.path().join("run/checkpoint.safetensors");
    let good = fs::read(&checkpoint).expect("checkpoint");

    // A corpus that changed between the two halves of a run.
    let mut changed = fs::read(&text).expect("text");
    changed[100] ^= 1;
    fs::write(home.path().join("other.txt"), changed).expect("text");
    let ran = nfgen(
        home.path(),
        &["train", "--resume", "--corpus", "other.txt", "-o", "run"],
    );
    refused(&ran, "the corpus is not the one of this run");
    assert!(good == fs::read(&checkpoint).expect("checkpoint"));

    // A second run in the same folder, and one whose folder is a file.
    refused(&train_first_third(home.path(), "tiny", &text), "--resume");
    let ran = nfgen(
        home.path(),
        &[
            "train",
            "--model",
            "tiny",
            "--samples",
            "9",
            "--corpus",
            &text,
            "-o",
            "other.txt",
        ],
    );
    refused(&ran, "other.txt");

    // Prompts outside the vocabulary of 128.
    let ran = nfgen(
        home.path(),
        &["generate", "run/checkpoint.safetensors", "--prompt", "é"],
    );
    refused(&ran, "vocab");
    assert_eq!(ran.stdout, "");

    // Damaged checkpoints, by every verb that reads one.
    let nan = {
        let mut bytes = good.clone();
        let at = bytes.len() - 4;
        bytes[at..].copy_from_slice(&f32::NAN.to_le_bytes());
        bytes
    };
    let text_of = |from: &[u8], a: &str, b: &str| {
        assert_eq!(a.len(), b.len());
        let at = from
            .windows(a.len())
            .position(|w| w == a.as_bytes())
            .expect(a);
        let mut bytes = from.to_vec();
        bytes[at..at + a.len()].copy_from_slice(b.as_bytes());
        bytes
    };
    for (what, bytes) in [
        ("truncated", good[..good.len() - 3].to_vec()),
        ("oversized", [&good[..], &[0; 9]].concat()),
        ("empty", Vec::new()),
        ("renamed", text_of(&good, "layers.0.w1", "layers.0.w9")),
        ("huge header", [&[0xff; 8], &good[8..]].concat()),
        ("not a number", nan),
    ] {
        fs::write(home.path().join("bad.safetensors"), bytes).expect("file");
        for verb in [
            &["eval", "bad.safetensors", "--corpus", &text][..],
            &["generate", "bad.safetensors"],
            &["convert", "bad.safetensors", "-o", "out.neuro"],
        ] {
            let ran = nfgen(home.path(), verb);
            assert_eq!(ran.code, 2, "{what}: {ran:?}");
            assert!(!ran.stderr.contains("panicked"), "{what}: {ran:?}");
            assert_eq!(ran.stdout, "", "{what}");
        }
    }
    assert!(!home.path().join("out.neuro").exists());
    assert_eq!(
        names(home.path()),
        ["bad.safetensors", "other.txt", "run", "text.txt"]
    );
}

/// A `.neuro` file written by `convert` is read and written back byte for byte, and its weights come through.
#[test]
fn conversions_keep_what_both_files_hold() {
    let home = tempfile::tempdir().expect("temporary folder");
    let text = corpus(home.path());
    let train = [
        "train",
        "--model",
        "tiny",
        "--set",
        "weight_format=fp32",
        "--samples",
        "20",
        "--corpus",
        &text,
        "-o",
        "run",
    ];
    let ran = nfgen(home.path(), &train);
    assert_eq!(ran.code, 0, "{ran:?}");
    for (from, to) in [
        ("run/checkpoint.safetensors", "a.neuro"),
        ("a.neuro", "b.safetensors"),
        ("b.safetensors", "c.neuro"),
        ("a.neuro", "d.neuro"),
    ] {
        let ran = nfgen(home.path(), &["convert", from, "-o", to]);
        assert_eq!(ran.code, 0, "{from} {to}: {ran:?}");
    }
    let read = |name: &str| fs::read(home.path().join(name)).expect("file");
    assert!(read("a.neuro") == read("c.neuro"));
    assert!(read("a.neuro") == read("d.neuro"));
    // Without --to the kind stays, and with it every byte.
    let arguments = "convert a.neuro --to neuro-gpu -o gpu.neuro";
    for arguments in [arguments, "convert gpu.neuro -o same.neuro"] {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let ran = nfgen(home.path(), &arguments);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    assert!(read("gpu.neuro").len() < read("a.neuro").len());
    assert!(read("gpu.neuro") == read("same.neuro"));
    let loss = |name: &str| {
        let same = ["--set", "compute=block18"];
        let mut arguments = vec!["eval", name, "--corpus", &*text, "--json"];
        arguments.extend(same);
        let ran = nfgen(home.path(), &arguments);
        assert_eq!(ran.code, 0, "{ran:?}");
        let object: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        object["loss"].as_f64().expect("loss")
    };
    let reference = loss("run/checkpoint.safetensors");
    // The file says nothing of GeLU's form, so the loss may differ by that only.
    assert!((loss("a.neuro") - reference).abs() < 0.01);
    assert!(loss("b.safetensors") == loss("c.neuro"));
}

/// A published file is evaluated as its authors do, in FP32, unless `--set compute` says otherwise.
#[test]
fn a_neuro_file_is_evaluated_in_fp32() {
    let home = tempfile::tempdir().expect("temporary folder");
    let text = corpus(home.path());
    first_third(home.path(), "tiny", &text);
    let convert = ["convert", "run/checkpoint.safetensors", "-o", "out.neuro"];
    assert_eq!(nfgen(home.path(), &convert).code, 0);
    let loss = |set: &[&str]| {
        let mut arguments = vec!["eval", "out.neuro", "--corpus", &*text, "--json"];
        arguments.extend(set);
        let ran = nfgen(home.path(), &arguments);
        assert_eq!(ran.code, 0, "{ran:?}");
        let result: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        result["loss"].as_f64().expect("a loss")
    };
    assert_eq!(loss(&[]), loss(&["--set", "compute=fp32"]));
    assert_ne!(loss(&[]), loss(&["--set", "compute=block18"]));
}
