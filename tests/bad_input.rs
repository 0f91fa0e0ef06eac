//! Bad input, for every verb that takes it: one error that names place and number and what would be accepted, exit
//! code 2, and not a file more than before.

#[path = "support/command.rs"]
mod command;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use command::{Ran, nfgen, with_environment};
use tempfile::TempDir;

/// A folder with a text of 20 lines, bad texts, a small device and a checkpoint of `tiny`, whole and cut off.
fn laid_out() -> TempDir {
    let folder = tempfile::tempdir().expect("temporary folder");
    let put =
        |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).expect("written");
    put(
        "text.txt",
        "To be, or not to be, that is the question.\n"
            .repeat(20)
            .as_bytes(),
    );
    put("empty.txt", b"");
    put("short.txt", b"too short for a window\n");
    put("high.txt", "Plain.\nA caf\u{e9}.\n".repeat(20).as_bytes());
    put("file", b"");
    put(
        "part.toml",
        b"part = \"xc7a15tcpg236-1\"\nfamily = \"series7\"\nlut = 63400\nff = 126800\ndsp = 200\ndsp_kind = \"DSP48E1\"\n\
          bram36 = 100\nuram = 0\ndistributed_ram_bits = 804800\n",
    );
    let train = "train --model tiny --corpus text.txt --samples 1 -o run --quiet";
    assert_eq!(run(folder.path(), train).code, 0);
    let whole = fs::read(folder.path().join("run/checkpoint.safetensors")).expect("saved");
    put("whole.safetensors", &whole);
    put("cut.safetensors", &whole[..whole.len() - 100]);
    put("head.safetensors", &whole[..200]);
    put("long.safetensors", &[&whole[..], b"abc"].concat());
    folder
}

fn run(folder: &Path, line: &str) -> Ran {
    let arguments: Vec<&str> = line.split(' ').collect();
    nfgen(folder, &arguments)
}

/// Every file and folder below `folder`.
fn listing(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).expect("readable") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                open.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}

/// Runs each line in a folder laid out as above: exit code 2, the code, every piece of text, and nothing written.
fn refused(cases: &[(&str, &str, &[&str])]) {
    let folder = laid_out();
    let before = listing(folder.path());
    for (line, code, pieces) in cases {
        let ran = run(folder.path(), line);
        // The frame of a report breaks long lines.
        let said = ran
            .stderr
            .replace(" \u{2502}", " ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(ran.code, 2, "{line}: {ran:?}");
        assert!(said.contains(code), "{line}: {ran:?}");
        // A plan that does not fit is shown all the same.
        assert!(
            ran.stdout.is_empty() || line.starts_with("plan"),
            "{line}: {ran:?}"
        );
        for piece in *pieces {
            assert!(
                said.contains(piece),
                "{line}: `{piece}` is missing in {said}"
            );
        }
        assert_eq!(said.matches("error[").count(), 1, "{line}: {ran:?}");
        assert_eq!(listing(folder.path()), before, "{line}");
    }
}

#[test]
fn a_corpus_that_is_missing_empty_too_short_or_outside_the_vocabulary() {
    let missing: &[&str] = &["`absent.txt`", "check the path"];
    let empty: &[&str] = &["empty.txt: the corpus is empty", "bytes than seq_len"];
    let training: &[&str] = &[
        "training part of the text has 20 tokens; seq_len = 40 needs at least 42",
        "at least 47 bytes, or set seq_len to 18 or less",
    ];
    let validation: &[&str] = &[
        "validation part of the text has 3 tokens; seq_len = 8 needs at least 10",
        "at least 91 bytes, or set seq_len to 1 or less",
    ];
    let high: &[&str] = &[
        "high.txt: line 2, byte 6: 195 is outside the vocabulary of 128",
        "vocab = 196 or more",
    ];
    let (read, corpus) = ("nf::io::cannot_read", "nf::reference::corpus");
    let sim = "sim --model tiny --steps 1 --quiet --corpus";
    let train = "train --model tiny --samples 1 -o new --quiet --corpus";
    let eval = "eval whole.safetensors --corpus";
    let mut cases: Vec<(String, &str, &[&str])> = vec![];
    for verb in [sim, train, eval] {
        cases.push((format!("{verb} absent.txt"), read, missing));
        cases.push((format!("{verb} ."), read, &["give a file, not a folder"]));
        cases.push((format!("{verb} empty.txt"), corpus, empty));
        cases.push((format!("{verb} high.txt"), corpus, high));
    }
    for verb in [sim, train] {
        cases.push((
            format!("{verb} short.txt --set seq_len=40"),
            corpus,
            training,
        ));
    }
    cases.push((format!("{eval} short.txt"), corpus, validation));
    let cases: Vec<_> = cases.iter().map(|(l, c, p)| (l.as_str(), *c, *p)).collect();
    refused(&cases);
}

#[test]
fn a_model_that_cannot_be() {
    let mut cases: Vec<(String, &str, &[&str])> = vec![];
    for verb in [
        "plan --model tiny",
        "plan --max --model tiny",
        "emit --model tiny -o new",
        "synth --model tiny",
        "sim --model tiny --corpus text.txt",
        "train --model tiny --corpus text.txt --samples 1 -o new",
    ] {
        cases.push((
            format!("{verb} --set heads=3"),
            "nf::model::heads_divide",
            &["3 heads do not divide embed_dim 8", "use heads = "],
        ));
        cases.push((
            format!("{verb} --set ff_dim=8193"),
            "nf::model::accumulator_length",
            &["8,193", "8,192"],
        ));
    }
    let cases: Vec<_> = cases.iter().map(|(l, c, p)| (l.as_str(), *c, *p)).collect();
    refused(&cases);
}

#[test]
fn a_device_that_cannot_hold_the_model() {
    let pieces: &[&str] = &[
        "does not fit part",
        "short by",
        "the nearest setting that fits: --set",
    ];
    let cases: Vec<(String, &str, &[&str])> =
        ["plan", "emit -o new", "sim --corpus text.txt", "synth"]
            .iter()
            .map(|verb| {
                let line = format!("{verb} --model small --device part.toml --array 8 --quiet");
                (line, "nf::plan::does_not_fit", pieces)
            })
            .collect();
    let cases: Vec<_> = cases.iter().map(|(l, c, p)| (l.as_str(), *c, *p)).collect();
    refused(&cases);
}

#[test]
fn a_place_that_cannot_be_written() {
    let pieces: &[&str] = &["cannot write `file/", "not a directory", "another folder"];
    let code = "nf::io::cannot_write";
    refused(&[
        ("emit --model tiny -o file/out", code, pieces),
        (
            "train --model tiny --corpus text.txt --samples 1 -o file/run",
            code,
            pieces,
        ),
        (
            "sim --model tiny --corpus text.txt --save file/end.safetensors",
            code,
            pieces,
        ),
        (
            "sim --model tiny --corpus text.txt --timeline file/t.json",
            code,
            pieces,
        ),
        (
            "sim --model tiny --corpus text.txt --save absent/end.safetensors",
            code,
            &["`absent/end.safetensors`", "create it"],
        ),
    ]);
}

#[test]
fn a_checkpoint_that_is_missing_or_cut_off() {
    let code = "nf::reference::file";
    let mut cases: Vec<(String, &str, &[&str])> = vec![];
    for (before, after) in [
        ("eval ", " --corpus text.txt"),
        ("generate ", " --prompt To"),
        ("sim --steps 1 --quiet --corpus text.txt --init ", ""),
        (
            "train --corpus text.txt --samples 1 -o new --quiet --init ",
            "",
        ),
    ] {
        let line = |name: &str| format!("{before}{name}{after}");
        cases.push((
            line("absent"),
            "nf::io::cannot_read",
            &["cannot read `absent`"],
        ));
        cases.push((
            line("cut.safetensors"),
            code,
            &[
                "cut.safetensors: cut off:",
                "its header announces 100 more",
                "use an earlier one",
            ],
        ));
        cases.push((
            line("head.safetensors"),
            code,
            &["cut off: a header of", "; 192 follow"],
        ));
        cases.push((
            line("long.safetensors"),
            code,
            &["3 bytes stand behind the last tensor"],
        ));
        cases.push((
            line("empty.txt"),
            code,
            &["empty.txt: 0 bytes that are neither"],
        ));
        cases.push((
            line("text.txt"),
            code,
            &["text.txt: 860 bytes that are neither"],
        ));
    }
    let cases: Vec<_> = cases.iter().map(|(l, c, p)| (l.as_str(), *c, *p)).collect();
    refused(&cases);
}

#[cfg(unix)]
mod tools {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// A folder `bin` with a program `verilator` that is this shell script.
    fn stand_in(folder: &Path, script: &str) -> PathBuf {
        let bin = folder.join("bin");
        fs::create_dir_all(&bin).expect("created");
        let path = bin.join("verilator");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        bin
    }

    fn sim(folder: &Path, bin: &Path, cache: &str) -> Ran {
        let line = "sim --model tiny --array 2 --steps 1 --quiet --corpus text.txt --cache";
        let mut arguments: Vec<&str> = line.split(' ').collect();
        arguments.push(cache);
        let path = format!("{}:/usr/bin:/bin", bin.display());
        with_environment(folder, &arguments, &[("PATH", &path)])
    }

    #[test]
    fn a_verilator_that_is_missing_too_old_or_broken() {
        let folder = laid_out();
        for (script, piece) in [
            (
                "echo 'Verilator 3.900 2017-01-15 rev'",
                "verilator 3.900 is too old; 5.006 or newer",
            ),
            (
                "echo 'Verilator 5.004 2022-12-14 rev'",
                "verilator 5.004 is too old",
            ),
            (
                "echo 'no library libz' >&2; exit 3",
                "exit status: 3, no library libz",
            ),
            ("echo 'something else'", "no version in \"something else\""),
            ("exit 0", "no version in \"no output\""),
        ] {
            let bin = stand_in(folder.path(), script);
            let ran = sim(folder.path(), &bin, "cache");
            assert_eq!(ran.code, 2, "{ran:?}");
            assert!(ran.stderr.contains("nf::sim::tool"), "{ran:?}");
            let said = ran.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains(piece), "{piece}: {ran:?}");
            assert!(!folder.path().join("cache").exists(), "{script}");
        }
        let empty = folder.path().join("empty");
        fs::create_dir(&empty).expect("created");
        let line = "sim --model tiny --array 2 --steps 1 --quiet --corpus text.txt";
        let arguments: Vec<&str> = line.split(' ').collect();
        let path = empty.display().to_string();
        let ran = with_environment(folder.path(), &arguments, &[("PATH", &path)]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(
            ran.stderr.contains("verilator is not on the PATH"),
            "{ran:?}"
        );
    }

    /// The stand-in builds a model that ends at once, and counts its builds.
    #[test]
    fn a_cache_that_is_unwritable_damaged_or_of_another_release() {
        let folder = laid_out();
        let build = |release: &str| {
            format!(
                "if [ \"$1\" = --version ]; then echo 'Verilator {release} rev'; exit; fi\n\
                 while [ $# -gt 0 ]; do if [ \"$1\" = --top-module ]; then top=$2; fi; shift; done\n\
                 mkdir obj; printf '#!/bin/sh\\nexit 1\\n' > obj/V$top; chmod +x obj/V$top\n\
                 echo built >> {}/count",
                folder.path().display()
            )
        };
        let bin = stand_in(folder.path(), &build("5.020"));
        let ran = sim(folder.path(), &bin, "file/cache");
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("nf::sim::cache"), "{ran:?}");
        assert!(ran.stderr.contains("--cache DIR"), "{ran:?}");

        let builds = || {
            let text = fs::read_to_string(folder.path().join("count")).unwrap_or_default();
            text.lines().count()
        };
        let models = || -> Vec<PathBuf> {
            let all = listing(&folder.path().join("cache"));
            let model = |p: &PathBuf| {
                let name = p
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                p.is_file() && name.starts_with('V')
            };
            all.into_iter().filter(model).collect()
        };
        let run = |expected: usize| {
            let ran = sim(folder.path(), &bin, "cache");
            assert_eq!(ran.code, 2, "{ran:?}");
            assert!(ran.stderr.contains("ended during"), "{ran:?}");
            assert_eq!(builds(), expected, "{ran:?}");
        };
        run(1);
        run(1);
        let model = models().remove(0);
        let whole = fs::read(&model).expect("kept");
        fs::write(&model, &whole[..3]).expect("damaged");
        run(2);
        assert_eq!(fs::read(&model).expect("kept"), whole);
        let memory = model.parent().expect("folder");
        let hex = listing(memory)
            .into_iter()
            .find(|p| p.extension().is_some())
            .expect("memory");
        fs::write(&hex, "0\n").expect("damaged");
        run(3);
        fs::remove_file(&model).expect("removed");
        run(4);
        // Another release has a model of its own; the old one stays.
        stand_in(folder.path(), &build("5.022"));
        run(5);
        assert_eq!(models().len(), 2);
    }
}
