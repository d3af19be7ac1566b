//! The tables of `docs/formats.md`, made of the declarations of records.

use std::collections::BTreeMap;

use super::Record;

/// Collects the tables of the records that were described, and of all that they contain.
#[derive(Debug, Default)]
pub struct Forms {
    tables: BTreeMap<String, String>,
}

impl Forms {
    /// Adds the table of a record. `docs` are its attributes; each field has a name, a form, a default if it was added later, and its
    /// attributes. Returns its name.
    pub fn record(
        &mut self,
        name: &str,
        grows: bool,
        docs: &[&str],
        fields: impl FnOnce(&mut Forms) -> Vec<(&'static str, String, &'static str, String)>,
    ) -> String {
        if !self.tables.contains_key(name) {
            // A record does not contain itself, but its own table comes before those of its parts.
            self.tables.insert(name.to_owned(), String::new());
            let rows: String = fields(self)
                .into_iter()
                .map(|(field, form, default, docs)| {
                    let missing =
                        if default.is_empty() { String::new() } else { format!("; if missing, `{default}`") };
                    format!("| `{field}` | {form}{missing} | {} |\n", sentences(&[&docs]))
                })
                .collect();
            let kind = if grows { "" } else { " It never grows." };
            let head = match rows.is_empty() {
                true => "It has no fields.\n",
                false => "| field | form | what it is |\n|---|---|---|\n",
            };
            let table = format!("{}{kind}\n\n{head}{rows}", sentences(docs));
            self.tables.insert(name.to_owned(), table);
        }
        name.to_owned()
    }

    /// Adds the table of an enum. Returns its name.
    pub fn codes(&mut self, name: &str, int: &str, codes: &[(&str, &str)]) -> String {
        let rows: String = codes.iter().map(|(variant, code)| format!("| {code} | {variant} |\n")).collect();
        let table = format!("One of these numbers, as {int}.\n\n| number | meaning |\n|---|---|\n{rows}");
        self.tables.entry(name.to_owned()).or_insert(table);
        format!("{name} ({int})")
    }

    /// All tables, by name.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tables.iter().map(|(name, table)| (name.as_str(), table.as_str()))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.tables.remove(name)
    }

    /// Takes out a record with a number as a chapter of a document.
    pub fn chapter<R: Record>(&mut self) -> (u16, String) {
        R::describe(self);
        let table = self.take(R::NAME).expect("just described");
        (R::KIND, format!("### {} {}\n\n{table}\n", R::KIND, R::NAME))
    }

    /// All tables as chapters of a document.
    pub fn chapters(&self) -> String {
        self.tables().map(|(name, table)| format!("### {name}\n\n{table}\n")).collect()
    }
}

/// Compares generated sections of `docs/formats.md` with what the document has, or writes them there if `SHOAL_WRITE_GOLDEN` is set. For
/// tests.
///
/// # Panics
/// If a section is not there, or has another text.
#[doc(hidden)]
pub fn check_document(path: &str, sections: &[(&str, &str)]) {
    let document = std::fs::read_to_string(path).expect("the document exists");
    let mut written = document.clone();
    for (name, text) in sections {
        written =
            with_section(&written, name, text).unwrap_or_else(|| panic!("{path} has no section {name}"));
    }
    if std::env::var_os("SHOAL_WRITE_GOLDEN").is_some() {
        std::fs::write(path, &written).expect("the document can be written");
        return;
    }
    assert!(
        written == document,
        "{path} is not what the code says. SHOAL_WRITE_GOLDEN=1 cargo test document_of_formats writes it"
    );
}

/// A document with another text between `<!-- NAME -->` and `<!-- end of NAME -->`.
fn with_section(document: &str, name: &str, text: &str) -> Option<String> {
    let (before, rest) = document.split_once(&format!("<!-- {name} -->\n"))?;
    let (_, after) = rest.split_once(&format!("<!-- end of {name} -->"))?;
    Some(format!("{before}<!-- {name} -->\n{text}<!-- end of {name} -->{after}"))
}

/// The pictures and tables in the comment at the head of a source file.
///
/// # Panics
/// If there are none.
#[doc(hidden)]
pub fn at_head_of(source: &str) -> String {
    let mut out = String::new();
    let mut in_picture = false;
    for line in source
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
    {
        let is_fence = line.starts_with("```");
        if is_fence || in_picture || line.starts_with('|') {
            out += &without_links(line);
            out += "\n";
        }
        in_picture ^= is_fence;
    }
    assert!(!out.is_empty(), "the comment at the head has no picture and no table");
    out
}

/// The text of documentation attributes, as `stringify!` shows them: `doc = r" One line."`.
fn sentences(docs: &[&str]) -> String {
    let mut words = Vec::new();
    for doc in docs {
        let mut rest = *doc;
        while let Some(at) = rest.find("doc =") {
            rest = &rest[at + "doc =".len()..];
            let (Some(begin), next) = (rest.find('"'), rest.find("doc =").unwrap_or(rest.len())) else {
                break;
            };
            let Some(end) = rest[..next].rfind('"').filter(|end| *end > begin) else { break };
            words.push(rest[begin + 1..end].replace("\\\"", "\"").trim().to_owned());
            rest = &rest[next..];
        }
    }
    words.retain(|line| !line.is_empty());
    without_links(&words.join(" ")).replace('|', "\\|")
}

/// The text without links to items of the code: "[`Item`]" and "[`Item`](path)" become "`Item`".
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, inner)) = rest.split_once("[`") {
        let Some((item, after)) = inner.split_once("`]") else { break };
        out += &format!("{before}`{item}`");
        let path = after.strip_prefix('(').and_then(|path| path.split_once(')'));
        rest = path.map_or(after, |(_, after)| after);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_pictures_are_found() {
        let document = "a\n<!-- x -->\nold\n<!-- end of x -->\nb\n";
        let new = with_section(document, "x", "new\n").expect("it is there");
        assert_eq!(new, "a\n<!-- x -->\nnew\n<!-- end of x -->\nb\n");
        assert_eq!(with_section(document, "y", ""), None);
        let source = "//! Words.\n//!\n//! ```text\n//! | a |\n//!\n//!   b\n//! ```\n//! More.\n//! | 1 | 2 |\nuse x;\n//! | no |";
        assert_eq!(at_head_of(source), "```text\n| a |\n\n  b\n```\n| 1 | 2 |\n");
    }

    #[test]
    fn attributes_become_sentences() {
        assert_eq!(
            sentences(&[r#"doc = r" One.""#, r#"doc = " Two: `a|b`.""#, "derive(Default)"]),
            "One. Two: `a\\|b`."
        );
        assert_eq!(sentences(&[r#"doc = r" One."doc = r" Two.""#]), "One. Two.");
        assert_eq!(sentences(&[r#"doc = r" One." doc = r"" doc = r" Two.""#]), "One. Two.");
        let linked = r#"doc = r" [`A`] and [`B`](crate::B), [1] and (2).""#;
        assert_eq!(sentences(&[linked]), "`A` and `B`, [1] and (2).");
    }
}
