//! The tree's own rules, read from its files: lengths, names, doors, limits.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, in lines, tests included.
const LINES_MAX: usize = 700;
/// Names that say nothing.
const BANNED_NAMES: [&str; 9] =
    ["utils", "util", "common", "helpers", "helper", "manager", "misc", "impls", "stuff"];
/// Characters of text diagrams, and of units in prose.
const DIAGRAM: std::ops::RangeInclusive<char> = '\u{2190}'..='\u{25ff}';

fn root() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.ancestors().nth(2).expect("crates/cli lies two levels below the root").to_owned()
}

/// Every file of the tree that git would keep, with this ending.
fn files(ending: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![root()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("the tree can be listed").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() {
                if name != "target" && !name.starts_with("target-") && name != ".git" {
                    open.push(path);
                }
            } else if name.ends_with(ending) {
                let text = fs::read_to_string(&path).expect("source is UTF-8");
                found.push((path.strip_prefix(root()).expect("below the root").to_owned(), text));
            }
        }
    }
    found.sort();
    found
}

/// Fails with every finding at once.
fn report(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn no_file_is_too_long() {
    let long = |(path, text): (PathBuf, String)| {
        let lines = text.lines().count();
        (lines > LINES_MAX).then(|| format!("{}: {lines} lines, at most {LINES_MAX}", path.display()))
    };
    report(&files(".rs").into_iter().filter_map(long).collect::<Vec<_>>());
}

#[test]
fn no_file_has_an_empty_name() {
    let banned = |(path, _): (PathBuf, String)| {
        let parts = path.iter().map(|part| part.to_string_lossy().trim_end_matches(".rs").to_owned());
        let bad = parts.into_iter().find(|part| BANNED_NAMES.contains(&part.as_str()));
        bad.map(|bad| format!("{}: `{bad}` says nothing", path.display()))
    };
    report(&files(".rs").into_iter().filter_map(banned).collect::<Vec<_>>());
}

#[test]
fn a_mod_file_is_a_door() {
    let mut findings = Vec::new();
    for (path, text) in files("/mod.rs").into_iter().chain(files("mod.rs")) {
        if path.file_name().is_none_or(|name| name != "mod.rs") || path.iter().any(|part| part == "tests") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let logic = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "impl ", "impl<"];
            if logic.iter().any(|word| line.starts_with(word)) {
                findings.push(format!(
                    "{}:{}: a mod.rs holds docs, `mod` and `use`",
                    path.display(),
                    number + 1
                ));
            }
        }
    }
    findings.dedup();
    report(&findings);
}

#[test]
fn nothing_is_left_to_fix() {
    let words = [concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];
    let mut findings = Vec::new();
    for (path, text) in files(".rs").into_iter().chain(files(".md")).chain(files(".toml")) {
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                findings.push(format!("{}:{}: {word}", path.display(), number + 1));
            }
        }
    }
    report(&findings);
}

#[test]
fn source_is_ascii_outside_diagrams_and_tests() {
    let mut findings = Vec::new();
    for (path, text) in files(".rs") {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            if let Some(c) = line.chars().find(|c| !c.is_ascii() && !DIAGRAM.contains(c)) {
                findings.push(format!("{}:{}: `{c}`", path.display(), number + 1));
            }
        }
    }
    report(&findings);
}

#[test]
fn every_limit_is_used() {
    let sources = files(".rs");
    let (_, limits) =
        sources.iter().find(|(path, _)| path.ends_with("types/src/limits.rs")).expect("limits.rs");
    let names = limits.lines().filter_map(|line| line.strip_prefix("pub const ")?.split(':').next());
    let used = |name: &str| {
        sources.iter().any(|(path, text)| !path.ends_with("types/src/limits.rs") && text.contains(name))
    };
    let unused: Vec<String> =
        names.filter(|name| !used(name)).map(|name| format!("{name} limits nothing")).collect();
    report(&unused);
}

#[test]
fn a_document_has_one_title() {
    let mut findings = Vec::new();
    for (path, text) in files(".md") {
        let mut fenced = false;
        let mut titles = 0;
        for line in text.lines() {
            fenced ^= line.trim_start().starts_with("```");
            titles += usize::from(!fenced && line.starts_with("# "));
        }
        if titles != 1 {
            findings.push(format!("{}: {titles} titles", path.display()));
        }
    }
    report(&findings);
}

/// True if the line of a Cargo.toml names this crate.
fn names(line: &str, name: &str) -> bool {
    line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '.', '=']))
}

#[test]
fn nothing_needs_the_lab_to_run() {
    let mut findings = Vec::new();
    let rooms = ["types", "layout", "world", "store", "meta", "client", "gates", "cli"];
    for (path, text) in files("Cargo.toml").into_iter().filter(|(path, _)| path.starts_with("crates")) {
        if !path.starts_with("crates/cli") && text.lines().any(|line| names(line, "lab")) {
            findings.push(format!("{}: only `cli` shows what the lab can do", path.display()));
        }
        let of_lab = path.starts_with("crates/lab");
        for room in rooms.into_iter().filter(|room| of_lab && text.lines().any(|line| names(line, room))) {
            findings.push(format!("{}: the lab uses `{room}` by its command line only", path.display()));
        }
    }
    let door = Path::new("crates/cli/src/commands/paper.rs");
    for (path, text) in files(".rs").into_iter().filter(|(path, _)| path.starts_with("crates/cli/src")) {
        if path != door && (text.contains("lab::") || text.contains("use lab")) {
            findings.push(format!("{}: only `shoal paper` may use the lab", path.display()));
        }
    }
    report(&findings);
}

#[test]
fn third_party_crates_stay_in_their_rooms() {
    let rooms = [
        ("compio", "world"),
        ("fuser", "gates"),
        ("redb", "meta"),
        ("clap", "cli"),
        ("anyhow", "cli"),
        ("indicatif", "cli"),
        ("rusty_erasure", "layout"),
    ];
    let mut findings = Vec::new();
    for (path, text) in files("Cargo.toml").into_iter().filter(|(path, _)| path.starts_with("crates")) {
        for (name, room) in rooms {
            if text.lines().any(|line| names(line, name)) && !path.starts_with(Path::new("crates").join(room))
            {
                findings.push(format!("{}: only `{room}` may use {name}", path.display()));
            }
        }
    }
    report(&findings);
}
