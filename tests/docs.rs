//! What the documents show is what happens: sample sessions are run, links and paths exist.

#[path = "support/command.rs"]
mod command;

use std::path::Path;

use command::nfgen;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("the document is there")
}

/// Code blocks of a document.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").skip(1).step_by(2)
}

/// A block that starts with `$ nfgen ...` is a session: command, then everything it prints.
#[test]
fn sample_sessions_are_real() {
    let text = read("README.md");
    let mut sessions = 0;
    for block in blocks(&text) {
        let Some(session) = block.trim_start().strip_prefix("$ nfgen ") else {
            continue;
        };
        sessions += 1;
        let (line, shown) = session.split_once('\n').expect("a command and its output");
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let folder = tempfile::tempdir().expect("temporary folder");
        let ran = nfgen(folder.path(), &arguments);
        let printed = format!("{}{}", ran.stdout, ran.stderr);
        assert!((0..=2).contains(&ran.code), "{ran:?}");
        let printed = printed
            .split("\nMore on an error")
            .next()
            .unwrap_or_default();
        assert_eq!(shown.trim_end(), printed.trim_end(), "nfgen {line}");
    }
    assert!(sessions > 0, "README.md shows no session");
}

#[test]
fn local_links_lead_somewhere() {
    for document in ["README.md", "CONTRIBUTING.md", "docs/architecture.md"] {
        let text = read(document);
        let folder = Path::new(document).parent().expect("a parent");
        for target in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if !target.starts_with("http") {
                let path = root().join(folder).join(target);
                assert!(path.exists(), "{document} links to {target}");
            }
        }
    }
}

#[test]
fn make_targets_that_documents_name_exist() {
    let makefile = read("Makefile");
    for document in ["README.md", "CONTRIBUTING.md", ".ci/run"] {
        for (at, _) in read(document).match_indices("make ") {
            let text = read(document);
            let rest = &text[at + "make ".len()..];
            let target: String = rest
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || *c == '-')
                .collect();
            let quoted = text[..at].ends_with('`') || text[..at].ends_with('\n');
            if quoted && !target.is_empty() {
                assert!(
                    makefile.contains(&format!("\n{target}:")),
                    "{document} names `make {target}`"
                );
            }
        }
    }
}

/// The corpus of `make demo`: at least 16 KiB of plain ASCII.
#[test]
fn the_corpus_is_long_enough_and_plain() {
    let text = read("data/corpus.txt");
    assert!(text.len() >= 16 * 1024);
    assert!(text.is_ascii() && !text.contains('\r'));
}
