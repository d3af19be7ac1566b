//! The tree's own rules, read from its files: lengths, names, doors, limits, links.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, in lines, tests included.
const LINES_MAX: usize = 700;
/// Most lines of README.md, which is read within five minutes, and their columns.
const README_LINES_MAX: usize = 170;
const README_COLUMNS_MAX: usize = 120;
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
                // What is in `vendor` is others' work.
                if name != "target" && name != "vendor" && !name.starts_with("target-") && name != ".git" {
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

#[test]
fn the_readme_is_short() {
    let text = fs::read_to_string(root().join("README.md")).expect("there is a README.md");
    let lines = text.lines().count();
    let mut findings = Vec::new();
    if lines > README_LINES_MAX {
        findings.push(format!("README.md: {lines} lines, at most {README_LINES_MAX}"));
    }
    for (line, number) in text.lines().zip(1..) {
        let columns = line.chars().count();
        if columns > README_COLUMNS_MAX {
            findings.push(format!("README.md:{number}: {columns} columns, at most {README_COLUMNS_MAX}"));
        }
    }
    report(&findings);
}

#[test]
fn links_lead_somewhere() {
    let documents = files(".md");
    let anchors_of = |place: &Path| {
        let text = fs::read_to_string(place).expect("a document can be read");
        anchors(&text)
    };
    let mut findings = Vec::new();
    for (path, text) in &documents {
        let prose = prose(text);
        for link in links(&prose).filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let dir = path.parent().expect("a document lies in a directory");
            let place = root().join(if file.is_empty() { path.clone() } else { dir.join(file) });
            let is_document = place.extension().is_some_and(|ending| ending == "md");
            if !place.exists() {
                findings.push(format!("{}: `{link}` leads to no file", path.display()));
            } else if is_document && !anchor.is_empty() && !anchors_of(&place).iter().any(|a| a == anchor) {
                findings.push(format!("{}: `{link}` leads to no heading", path.display()));
            }
        }
    }
    report(&findings);
}

/// A document without its fenced blocks and code spans: brackets in them are no links.
fn prose(text: &str) -> String {
    let (mut fenced, mut code) = (false, false);
    let mut prose = String::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        // A span ends with its paragraph.
        code &= !line.trim().is_empty();
        for c in line.chars().filter(|_| !fenced && !fence) {
            match c {
                '`' => code = !code,
                c if !code => prose.push(c),
                _ => {}
            }
        }
        prose.push('\n');
    }
    prose
}

/// Where the links of a text lead.
fn links(prose: &str) -> impl Iterator<Item = &str> {
    prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '\n']).next())
}

/// What links call the headings of a document. The second one of a name ends with `-1`.
fn anchors(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut names: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        if fenced || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let name = anchor(title.trim());
        let before = names.iter().filter(|other| **other == name).count();
        found.push(if before == 0 { name.clone() } else { format!("{name}-{before}") });
        names.push(name);
    }
    found
}

/// A heading in small letters, with `-` for blanks, without other signs and without where its links lead.
fn anchor(title: &str) -> String {
    let mut shown = String::new();
    for (part, at) in title.split("](").zip(0..) {
        let text = if at == 0 { part } else { part.split_once(')').map_or("", |(_, rest)| rest) };
        shown.push_str(text);
    }
    let kept = shown.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

#[test]
fn anchors_are_those_of_the_web() {
    let text = "# A title\n\n## What `it` does, and (not) *why*\n\n```sh\n# no heading\n```\n## A title\n\
                ## [decisions/](decisions/) too\n#hash\n";
    assert_eq!(anchors(text), ["a-title", "what-it-does-and-not-why", "a-title-1", "decisions-too"]);
    let found: Vec<String> =
        links(&prose("[a](b#c) `[d](e)` [`f`](g \"title\")\n")).map(str::to_owned).collect();
    assert_eq!(found, ["b#c", "g"]);
}

/// True if the line of a Cargo.toml names this crate.
fn names(line: &str, name: &str) -> bool {
    line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '.', '=']))
}

#[test]
fn nothing_needs_the_lab_to_run() {
    let mut findings = Vec::new();
    // Of those below it, it has the shapes of networks and ids.
    let rooms =
        ["pace", "netsim", "devsim", "world", "cache", "store", "meta", "client", "mover", "gates", "cli"];
    for (path, text) in files("Cargo.toml").into_iter().filter(|(path, _)| path.starts_with("crates")) {
        if !path.starts_with("crates/cli") && text.lines().any(|line| names(line, "lab")) {
            findings.push(format!("{}: only `cli` shows what the lab can do", path.display()));
        }
        let of_lab = path.starts_with("crates/lab");
        for room in rooms.into_iter().filter(|room| of_lab && text.lines().any(|line| names(line, room))) {
            findings.push(format!("{}: the lab uses `{room}` by its command line only", path.display()));
        }
    }
    let doors = ["paper.rs", "lab.rs", "lab/"].map(|door| format!("crates/cli/src/commands/{door}"));
    let is_door = |path: &Path| doors.iter().any(|door| path.to_string_lossy().starts_with(door));
    for (path, text) in files(".rs").into_iter().filter(|(path, _)| path.starts_with("crates/cli/src")) {
        let text = text.replace("commands::lab::", "");
        if !is_door(&path) && (text.contains("lab::") || text.contains("use lab")) {
            findings.push(format!("{}: only `shoal paper` and `shoal lab` may use the lab", path.display()));
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
