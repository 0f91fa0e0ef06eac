//! A set of generated files, held in memory until it is complete, then written or compared as a whole.
//!
//! Paths are relative and sorted; nothing in a file may depend on the time, the machine or the order of a hash map.
//! Writing touches only files whose bytes differ, so that `make` and Vivado rebuild only what changed, and a failure
//! leaves the folder as it was.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::diag::{Diagnostic, Problems};

/// The file that marks a folder as written by nfgen and lists what was written.
pub const MANIFEST: &str = "manifest.json";

/// Folders in which every file must come from the set: an old module left behind would be picked up by a tool.
const OWNED_FOLDERS: [&str; 3] = ["rtl", "mem", "tb"];

/// SHA-256 as 64 hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Generated files by relative path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSet {
    files: BTreeMap<String, Vec<u8>>,
}

/// What [`FileSet::write`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub written: Vec<String>,
    pub unchanged: usize,
    /// Files of an earlier emission that are no longer part of it.
    pub removed: Vec<String>,
}

/// One file that is not as it would be emitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    Missing {
        path: String,
    },
    /// A file in `rtl`, `mem` or `tb` that is not part of the set.
    Extra {
        path: String,
    },
    Changed {
        path: String,
        /// One-based line of the first difference.
        line: usize,
        emitted: String,
        found: String,
    },
}

impl FileSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file. The path must stay inside the folder, and a path is given once.
    pub fn insert(
        &mut self,
        path: impl Into<String>,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<(), Diagnostic> {
        let path = path.into();
        let legal = |part: &str| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && !part.starts_with('-')
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
        };
        if !path.split('/').all(legal) {
            return Err(Diagnostic::new(
                "nf::emit::bad_path",
                format!("`{path}` cannot be the path of a generated file"),
                "generated files have relative paths of letters, digits, `.`, `_` and `-`",
            ));
        }
        let below = |other: &String| {
            other.starts_with(&format!("{path}/")) || path.starts_with(&format!("{other}/"))
        };
        if self.files.contains_key(&path) || self.files.keys().any(below) {
            return Err(Diagnostic::new(
                "nf::emit::bad_path",
                format!("`{path}` is generated twice, or is both a file and a folder"),
                "two parts of the design have the same name; rename one",
            ));
        }
        self.files.insert(path, bytes.into());
        Ok(())
    }

    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(Vec::as_slice)
    }

    /// Files in order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files
            .iter()
            .map(|(path, bytes)| (path.as_str(), bytes.as_slice()))
    }

    /// Paths below a folder, in order.
    pub fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a str> {
        self.files.keys().map(String::as_str).filter(move |path| {
            path.strip_prefix(folder)
                .is_some_and(|r| r.starts_with('/'))
        })
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// One hash over the paths and bytes below a folder.
    pub fn sha256_below(&self, folder: &str) -> String {
        let lines: String = self
            .below(folder)
            .map(|path| format!("{}  {path}\n", sha256(&self.files[path])))
            .collect();
        sha256(lines.as_bytes())
    }

    /// Writes the set to `folder`: all files that differ are first written under other names beside their place, and
    /// only when every one is on disk are they renamed. On an error nothing is changed.
    pub fn write(&self, folder: &Path) -> Result<Written, Problems> {
        refuse_foreign(folder)?;
        let before = earlier_files(folder);
        let mut stage = Stage::default();
        let mut report = Written::default();
        for (path, bytes) in &self.files {
            let target = folder.join(path);
            if fs::read(&target).is_ok_and(|found| found == *bytes) {
                report.unchanged += 1;
                continue;
            }
            if let Err(error) = stage.add(&target, bytes) {
                stage.roll_back();
                return Err(Diagnostic::cannot_write(&target, &error).into());
            }
            report.written.push(path.clone());
        }
        if let Err((target, error)) = stage.commit() {
            return Err(Diagnostic::cannot_write(&target, &error).into());
        }
        for path in before
            .into_iter()
            .filter(|path| !self.files.contains_key(path))
        {
            let target = folder.join(&path);
            match fs::remove_file(&target) {
                Ok(()) => report.removed.push(path),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Diagnostic::cannot_write(&target, &error).into()),
            }
        }
        Ok(report)
    }

    /// Compares the set with what is on disk; writes nothing.
    pub fn compare(&self, folder: &Path) -> Result<Vec<Difference>, Problems> {
        let mut differences = Vec::new();
        for (path, bytes) in &self.files {
            let target = folder.join(path);
            match fs::read(&target) {
                Ok(found) if found == *bytes => {}
                Ok(found) => differences.push(first_difference(path, bytes, &found)),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    differences.push(Difference::Missing { path: path.clone() });
                }
                Err(error) => return Err(Diagnostic::cannot_read(&target, &error).into()),
            }
        }
        for owned in OWNED_FOLDERS {
            let mut found = Vec::new();
            list_files(&folder.join(owned), owned, &mut found);
            for path in found {
                if !self.files.contains_key(&path) {
                    differences.push(Difference::Extra { path });
                }
            }
        }
        differences.sort_by(|a, b| a.path().cmp(b.path()));
        Ok(differences)
    }
}

impl Difference {
    pub fn path(&self) -> &str {
        match self {
            Difference::Missing { path }
            | Difference::Extra { path }
            | Difference::Changed { path, .. } => path,
        }
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Difference::Missing { path } => write!(f, "{path}: missing"),
            Difference::Extra { path } => write!(f, "{path}: not part of this design"),
            Difference::Changed {
                path,
                line,
                emitted,
                found,
            } => write!(f, "{path}:{line}: differs\n  + {emitted}\n  - {found}"),
        }
    }
}

/// Files waiting under other names beside their place.
#[derive(Default)]
struct Stage {
    files: Vec<(PathBuf, PathBuf)>,
    folders: Vec<PathBuf>,
}

impl Stage {
    fn add(&mut self, target: &Path, bytes: &[u8]) -> io::Result<()> {
        let parent = target.parent().unwrap_or(Path::new("."));
        self.create_folders(parent)?;
        if target.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let waiting = parent.join(format!(".{name}.{}.new", std::process::id()));
        self.files.push((waiting.clone(), target.to_path_buf()));
        fs::write(&waiting, bytes)
    }

    fn create_folders(&mut self, folder: &Path) -> io::Result<()> {
        if folder.as_os_str().is_empty() || folder.is_dir() {
            return Ok(());
        }
        if let Some(parent) = folder.parent() {
            self.create_folders(parent)?;
        }
        match fs::create_dir(folder) {
            Ok(()) => {
                self.folders.push(folder.to_path_buf());
                Ok(())
            }
            // Another process may have created it meanwhile.
            Err(_) if folder.is_dir() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes what was staged. Leftovers that cannot be removed are hidden files and do no harm.
    fn roll_back(self) {
        for (waiting, _) in &self.files {
            drop(fs::remove_file(waiting));
        }
        for folder in self.folders.iter().rev() {
            drop(fs::remove_dir(folder));
        }
    }

    fn commit(self) -> Result<(), (PathBuf, io::Error)> {
        for (index, (waiting, target)) in self.files.iter().enumerate() {
            if let Err(error) = fs::rename(waiting, target) {
                for (left, _) in &self.files[index..] {
                    drop(fs::remove_file(left));
                }
                return Err((target.clone(), error));
            }
        }
        Ok(())
    }
}

/// Refuses a folder that holds files but no manifest of ours.
fn refuse_foreign(folder: &Path) -> Result<(), Diagnostic> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Diagnostic::cannot_write(folder, &error)),
    };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    match names.first() {
        Some(name) if !folder.join(MANIFEST).is_file() => Err(Diagnostic::new(
            "nf::emit::foreign_folder",
            format!(
                "`{}` holds `{name}` and has no {MANIFEST}, so its files are not nfgen's",
                folder.display()
            ),
            "choose an empty or new folder with -o",
        )),
        _ => Ok(()),
    }
}

/// Paths that the folder's manifest lists. A manifest that cannot be read lists nothing.
fn earlier_files(folder: &Path) -> Vec<String> {
    let Ok(text) = fs::read_to_string(folder.join(MANIFEST)) else {
        return Vec::new();
    };
    let manifest: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let mut guard = FileSet::new();
    for file in manifest["files"].as_array().into_iter().flatten() {
        if let Some(path) = file["path"].as_str() {
            // The guard keeps a manifest edited by hand from naming files outside the folder.
            drop(guard.insert(path, Vec::new()));
        }
    }
    guard.files.into_keys().collect()
}

fn list_files(folder: &Path, prefix: &str, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}/{name}");
        if entry.path().is_dir() {
            list_files(&entry.path(), &path, found);
        } else {
            found.push(path);
        }
    }
}

fn first_difference(path: &str, emitted: &[u8], found: &[u8]) -> Difference {
    let (emitted, found) = (
        String::from_utf8_lossy(emitted),
        String::from_utf8_lossy(found),
    );
    let mut emitted_lines = emitted.split('\n');
    let mut found_lines = found.split('\n');
    let mut line = 1;
    loop {
        let (a, b) = (emitted_lines.next(), found_lines.next());
        if a != b || a.is_none() {
            let shown = |text: Option<&str>| match text {
                Some(text) => text.chars().take(160).collect(),
                None => "(end of file)".to_string(),
            };
            return Difference::Changed {
                path: path.to_string(),
                line,
                emitted: shown(a),
                found: shown(b),
            };
        }
        line += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(files: &[(&str, &str)]) -> FileSet {
        let mut set = FileSet::new();
        for (path, text) in files {
            set.insert(*path, *text).unwrap();
        }
        let list: Vec<_> = files
            .iter()
            .map(|(p, _)| serde_json::json!({ "path": p }))
            .collect();
        set.insert(MANIFEST, serde_json::json!({ "files": list }).to_string())
            .unwrap();
        set
    }

    #[test]
    fn paths_stay_inside() {
        let mut files = FileSet::new();
        for path in [
            "", "/etc/x", "../x", "a/../b", "a//b", "a/./b", "a b", "c:\\x", "-rf", "a/",
        ] {
            assert_eq!(
                files.insert(path, "").unwrap_err().code,
                "nf::emit::bad_path",
                "{path}"
            );
        }
        files.insert("a/b", "").unwrap();
        for path in ["a/b", "a", "a/b/c"] {
            assert!(files.insert(path, "").is_err(), "{path}");
        }
        assert!(files.insert("a/bc", "").is_ok());
    }

    #[test]
    fn only_what_differs_is_written_and_what_is_gone_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("x/y");
        let first = set(&[("rtl/a.v", "a"), ("rtl/b.v", "b")]);
        assert_eq!(first.write(&out).unwrap().written.len(), 3);
        assert_eq!(first.compare(&out).unwrap(), []);
        let time = fs::metadata(out.join("rtl/a.v"))
            .unwrap()
            .modified()
            .unwrap();
        let second = set(&[("rtl/a.v", "a"), ("rtl/c.v", "c")]);
        let report = second.write(&out).unwrap();
        assert_eq!(report.written, ["manifest.json", "rtl/c.v"]);
        assert_eq!(report.removed, ["rtl/b.v"]);
        assert_eq!(
            fs::metadata(out.join("rtl/a.v"))
                .unwrap()
                .modified()
                .unwrap(),
            time
        );
        assert_eq!(second.compare(&out).unwrap(), []);
    }

    #[test]
    fn drift_is_described_and_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let files = set(&[("rtl/a.v", "one\ntwo\n"), ("rtl/b.v", "b")]);
        files.write(folder.path()).unwrap();
        fs::write(folder.path().join("rtl/a.v"), "one\n2\n").unwrap();
        fs::remove_file(folder.path().join("rtl/b.v")).unwrap();
        fs::write(folder.path().join("rtl/z.v"), "").unwrap();
        let drift: Vec<String> = files
            .compare(folder.path())
            .unwrap()
            .iter()
            .map(|d| d.to_string())
            .collect();
        assert_eq!(
            drift,
            [
                "rtl/a.v:2: differs\n  + two\n  - 2",
                "rtl/b.v: missing",
                "rtl/z.v: not part of this design"
            ]
        );
        assert!(!folder.path().join("rtl/b.v").exists());
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        // `rtl` is a file, so rtl/b.v cannot be created after a.v was staged.
        let files = set(&[("a.v", "a"), ("rtl/b.v", "b")]);
        fs::write(folder.path().join(MANIFEST), "{}").unwrap();
        fs::write(folder.path().join("rtl"), "mine").unwrap();
        let problem = files.write(folder.path()).unwrap_err();
        assert_eq!(problem.iter().next().unwrap().code, "nf::io::cannot_write");
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, [MANIFEST, "rtl"]);
        assert_eq!(
            fs::read_to_string(folder.path().join("rtl")).unwrap(),
            "mine"
        );
    }

    #[test]
    fn folders_of_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.tex"), "").unwrap();
        let problem = set(&[("a.v", "a")]).write(folder.path()).unwrap_err();
        assert_eq!(
            problem.iter().next().unwrap().code,
            "nf::emit::foreign_folder"
        );
    }

    #[test]
    fn hashes_are_those_of_sha256() {
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
