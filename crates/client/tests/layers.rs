//! The layers of the client, read from its source: a folder imports from those below it only.

use std::fs;
use std::path::{Path, PathBuf};

/// Each folder, from the lowest up, with the folders that it may import from. `error.rs` is for all of them.
const LAYERS: [(&str, &[&str]); 8] = [
    ("state", &[]),
    ("routes", &["state"]),
    ("unstable", &["state", "routes"]),
    ("paths", &["state", "routes", "unstable"]),
    ("modes", &["state", "routes", "unstable", "paths"]),
    ("cuts", &["state", "routes", "unstable", "paths", "modes"]),
    ("translators", &["state", "routes", "unstable", "paths"]),
    ("face", &["state", "routes", "unstable", "paths", "modes", "cuts", "translators"]),
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The files of a folder and of those in it, as `folder/file.rs`, with their text.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder can be listed").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let name = path.strip_prefix(source()).expect("below src").to_string_lossy().into_owned();
            found.push((name, fs::read_to_string(&path).expect("source is UTF-8")));
        }
    }
    found.sort();
    found
}

/// What follows each `crate::`, up to the next sign that belongs to no name: `a::b` for `use crate::a::b;`. Comments do
/// not count.
fn imports(text: &str) -> Vec<&str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split("crate::").skip(1))
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').next().unwrap_or(""))
        .collect()
}

#[test]
fn every_folder_imports_from_below_only() {
    let mut findings = Vec::new();
    for (folder, below) in LAYERS {
        for (name, text) in files(&source().join(folder)) {
            for path in imports(&text) {
                let room = path.split("::").next().unwrap_or("");
                if room != folder && room != "error" && !below.contains(&room) {
                    findings.push(format!("{name}: `crate::{path}` is not below `{folder}`"));
                }
            }
            if text.contains("super::super") {
                findings.push(format!("{name}: say `crate::` instead of `super::super::`"));
            }
        }
    }
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn every_file_is_in_a_layer() {
    let of_a_layer = |name: &str| LAYERS.iter().any(|(folder, _)| name.starts_with(&format!("{folder}/")));
    let loose: Vec<String> = files(&source()).into_iter().map(|(name, _)| name).collect();
    let loose: Vec<&String> = loose.iter().filter(|name| !of_a_layer(name)).collect();
    assert_eq!(loose, ["error.rs", "lib.rs"]);
}

#[test]
fn a_translator_knows_no_other_one() {
    for (name, text) in files(&source().join("translators")) {
        let own = name.trim_start_matches("translators/").split(['/', '.']).next().unwrap_or("");
        for path in imports(&text) {
            let mut parts = path.split("::");
            if parts.next() == Some("translators") {
                // Nothing comes after `translators::` where names of the stack follow in braces.
                let other = parts.next().unwrap_or("");
                let is_end = own == "stack" && other == "write_behind";
                assert!(other == own || other.is_empty() || is_end, "{name}: `crate::{path}`");
            }
        }
    }
}

#[test]
fn imports_are_found() {
    let text = "//! crate::a\nuse crate::b::{C, D};\nlet e = crate::f::G::new(); // crate::h\npub(crate) fn i() {}\n";
    assert_eq!(imports(text), ["b::", "f::G::new", "h"]);
}
