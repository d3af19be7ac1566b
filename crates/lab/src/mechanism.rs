//! What a paper's system is made of, and what Shoal has instead.

use std::fmt::Write;

/// A mechanism of the paper's system, and what Shoal has in its place.
#[derive(Clone, Copy, Debug)]
pub struct Mechanism {
    /// The mechanism.
    pub id: &'static str,
    /// What the paper has.
    pub paper: &'static str,
    /// What Shoal has, and what it lacks.
    pub here: &'static str,
    /// Where this page shows it; nothing if only tests do.
    pub shown: &'static str,
    /// Tests that fail without it.
    pub tests: &'static [&'static str],
}

/// The section of a page on mechanisms, with a note below the table.
pub fn table(mechanisms: &[Mechanism], note: &str) -> String {
    let mut text =
        String::from("## Mechanisms\n\n| | the paper's system | Shoal | shown by |\n|---|---|---|---|\n");
    for Mechanism { id, paper, here, shown, tests } in mechanisms {
        let end = if shown.is_empty() { "" } else { "; " };
        let tests: Vec<String> = tests.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "| {id} | {paper} | {here} | {shown}{end}{} |", tests.join(", "));
    }
    text + "\n" + note
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{paper000, paper001, paper002, paper003, paper004};
    use std::path::{Path, PathBuf};

    fn all() -> [(&'static str, &'static [Mechanism]); 5] {
        let (zero, one) = (&paper000::mechanisms::MECHANISMS, &paper001::mechanisms::MECHANISMS);
        let (two, three) = (&paper002::mechanisms::MECHANISMS, &paper003::mechanisms::MECHANISMS);
        let four = paper004::mechanisms::MECHANISMS.as_slice();
        [
            ("000", zero.as_slice()),
            ("001", one.as_slice()),
            ("002", two.as_slice()),
            ("003", three.as_slice()),
            ("004", four),
        ]
    }

    fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }

    #[test]
    fn every_test_and_every_page_that_is_named_exists() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crates");
        let mut files = Vec::new();
        sources(crates, &mut files);
        let texts: Vec<String> = files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect();
        for mechanism in all().into_iter().flat_map(|(_, mechanisms)| mechanisms) {
            assert!(!mechanism.tests.is_empty(), "{} is shown by nothing", mechanism.id);
            for name in mechanism.tests {
                let head = format!("fn {name}()");
                assert!(texts.iter().any(|text| text.contains(&head)), "there is no test `{name}`");
            }
            for link in mechanism.here.split("](").skip(1) {
                let (target, _) = link.split_once(')').expect("a link ends");
                let page = crates.join("../docs/papers").join(target);
                assert!(page.exists(), "{} is missing", page.display());
            }
        }
    }

    #[test]
    fn the_table_has_each_mechanism_once_and_in_order() {
        for (paper, mechanisms) in all() {
            let text = table(mechanisms, "");
            let rows: Vec<&str> =
                text.lines().filter(|line| line.starts_with(&format!("| {paper}-M"))).collect();
            assert_eq!(rows.len(), mechanisms.len());
            for (number, row) in (1..).zip(rows) {
                assert!(row.starts_with(&format!("| {paper}-M{number} |")), "{row}");
                assert_eq!(row.matches(" | ").count(), 3, "{row}");
            }
        }
    }
}
